r"""Numbers of twice the digits: unevaluated sums of two doubles, with bounds of what their operations round.

What a sum or a product of doubles rounds is a double itself, so that pairs of them lose no more than a few ``u^2``
[Joldes, Muller and Popescu 2017]. Sizes have to stay below 2^900.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified._arithmetic import UNIT, two_product, two_sum

__all__ = ["EXPONENTIAL_SHARE", "PAIR_SHARE", "Pair", "Slices", "exponential", "gram", "sliced", "squared_lengths"]

Vector = NDArray[np.float64]

PAIR_SHARE = 16.0 * UNIT * UNIT  # of the sizes of what a sum or a product of pairs takes: more than it rounds
EXPONENTIAL_SHARE = 1e-24  # relative error of `exponential` for exact arguments
_SPLIT_BITS = 8
_SPLITS = 1 << _SPLIT_BITS  # steps between powers of two of the table of exponentials
_UNDERFLOW_EXPONENT = -745.0  # where exponentials underflow
_SLICED_BITS = 72  # bits of a row of a matrix, counted from its largest entry, that `sliced` keeps at least


class Pair(NamedTuple):
    """Unevaluated sums ``high + low``, of which `low` is what `high` leaves."""

    high: Any
    low: Any

    @classmethod
    def of(cls, values: Any) -> Pair:
        """Doubles."""
        return cls(values, np.zeros_like(values))

    def plus(self, other: Pair) -> Pair:
        """The sum, off by at most `PAIR_SHARE` of the sizes of both."""
        high, low = two_sum(self.high, other.high)
        return Pair(*two_sum(high, low + (self.low + other.low)))

    def times(self, other: Pair) -> Pair:
        """The product, off by at most `PAIR_SHARE` of its size, and what underflows."""
        high, low = two_product(self.high, other.high)
        return Pair(*two_sum(high, low + (self.high * other.low + self.low * other.high)))

    def summed(self) -> Pair:
        """The sums of the rows of a matrix, off by at most ``(log2(columns) + 2)^2 PAIR_SHARE`` of their sizes."""
        high, low = self
        while (columns := high.shape[1]) > 1:
            half = columns // 2
            added, error = two_sum(high[:, :half], high[:, half : 2 * half])
            error += low[:, :half] + low[:, half : 2 * half]
            high, low = (np.hstack([new, old[:, 2 * half :]]) for new, old in ((added, high), (error, low)))
        return Pair(*two_sum(high[:, 0], low[:, 0]))


def exponential(exponents: Pair) -> Pair:
    """``exp(x)`` of numbers that are not positive, off by at most `EXPONENTIAL_SHARE` of it, and what underflows.

    x is a multiple of ln(2) / 256 and a rest r of at most 0.00136, and exp(r) the Taylor polynomial of degree seven,
    whose remainder is below 3e-28; from its cube on, which is below 5e-10, its terms are doubles.
    """
    table, parts = _table()
    high = np.maximum(exponents.high, _UNDERFLOW_EXPONENT)
    low = np.where(high == exponents.high, exponents.low, 0.0)
    count = np.rint(high * (_SPLITS / math.log(2.0)))
    rest, error = two_sum(high, -count * parts[0])  # of 34 bits, so that the products are exact
    rest, more = two_sum(rest, -count * parts[1])
    rest, error = two_sum(rest, error + more + low - count * parts[2])
    tail = 1.0 / 720.0 + rest * (1.0 / 5040.0)
    for divisor in (120.0, 24.0, 6.0):
        tail = 1.0 / divisor + rest * tail
    square, lost = two_product(rest, rest)
    first, left = two_sum(rest, 0.5 * square)
    first, more = two_sum(first, rest * square * tail)
    beyond = Pair(first, left + more + error + 0.5 * lost + rest * error)  # exp(r) - 1
    whole = count.astype(np.int64)
    place = whole & (_SPLITS - 1)
    base = Pair(table.high.take(place), table.low.take(place))
    grown = base.plus(base.times(beyond))
    # A power of two from the bits of its exponent, and zero where it underflows.
    scale = (np.maximum((whole >> _SPLIT_BITS) + 1023, 0) << 52).view(np.float64)
    return Pair(grown.high * scale, grown.low * scale)


@cache
def _table() -> tuple[Pair, tuple[float, float, float]]:
    """``2^(i / 256)``, and the three parts of ``ln(2) / 256``, the first two of 34 bits."""
    from decimal import Decimal, localcontext  # slow to load, and seldom needed

    with localcontext() as context:
        context.prec = 60
        step = Decimal(2).ln() / _SPLITS
        numbers = [(step * i).exp() for i in range(_SPLITS)]
        high = [float(number) for number in numbers]
        low = [float(number - Decimal(top)) for number, top in zip(numbers, high, strict=True)]
        first = _cut(step)
        second = _cut(step - Decimal(first))
        third = float(step - Decimal(first) - Decimal(second))
    return Pair(np.array(high), np.array(low)), (first, second, third)


def _cut(number: Any) -> float:
    """A number to 34 bits."""
    mantissa, exponent = math.frexp(float(number))
    return math.ldexp(round(mantissa * 2.0**34), exponent - 34)


class Slices(NamedTuple):
    """The rows of a matrix as a sum of matrices of few bits, whose products add up without rounding [Ozaki 2012]."""

    parts: list[Any]
    tops: Vector  # a power of two above the entries of each row; zero where there are none but zeros
    share: float  # of both tops, that a product of two rows is off by at most


def sliced(matrix: Pair) -> Slices | None:
    """The rows of a matrix cut into slices of so few bits that products of rows are exact sums; None near overflow."""
    largest = np.abs(matrix.high).max(axis=1, initial=0.0)
    width = max(1, matrix.high.shape[1])
    bits = (53 - width.bit_length()) // 2
    exponents = np.frexp(np.maximum(largest, largest.max(initial=0.0) * 2.0**-60))[1]
    if not np.all(np.isfinite(largest)) or np.any(np.abs(exponents) > 300):
        return None
    left, low = np.array(matrix.high), np.broadcast_to(matrix.low, matrix.high.shape)
    parts = [np.zeros(left.shape)]
    for number in range(1, -(-_SLICED_BITS // bits) + 1):
        grid = np.ldexp(1.0, exponents - number * bits)[:, None]
        part = np.rint(left / grid) * grid
        left, low = two_sum(left - part, low)
        parts = [part] if number == 1 else [*parts, part]
        if not left.any():
            break
    # What is left of both rows, and sums of so many products that are pairs.
    lost = 2.5 * math.ldexp(1.0, -len(parts) * bits) if left.any() else 0.0
    tops = np.where(largest > 0.0, np.ldexp(1.0, exponents), 0.0)
    return Slices(parts, tops, width * (lost + len(parts) ** 4 * PAIR_SHARE))


def gram(rows: list[Any], columns: list[Any]) -> Pair:
    """The products of rows with rows, of their slices, each off by the share of both tops at most."""
    return _added(rows[i] @ columns[j].T for i, j in _orders(len(rows)))


def squared_lengths(rows: list[Any]) -> Pair:
    """The products of rows with themselves: the same numbers as in `gram`, to the last bit."""
    return _added(np.einsum("ij,ij->i", rows[i], rows[j]) for i, j in _orders(len(rows)))


def _orders(count: int) -> list[tuple[int, int]]:
    return sorted(((i, j) for i in range(count) for j in range(count)), key=sum)


def _added(products: Iterator[Vector]) -> Pair:
    high = next(products)
    low = np.zeros_like(high)
    for product in products:
        high, error = two_sum(high, product)
        low += error
    return Pair(*two_sum(high, low))
