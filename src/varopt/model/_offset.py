"""The constant part of an affine expression, of which nothing is computed before it is needed."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import dot, exact_pair, exact_product, total
from varopt.model.maps import signed_sum, times
from varopt.places import DataPart, Stored, at

__all__ = ["Offset"]

Vector = NDArray[np.float64]

_ADDED_EXACTLY = 1 << 13  # numbers up to which nothing of a sum is lost, in a millisecond: of more, last digits


class Offset(NamedTuple):
    """The constant ``number + factor * array``, computed when it is first needed: building costs no memory.

    Numbers are added up with what rounding leaves of them, the rest, so that 0.3 is not lost in ``1e16 + 0.3 - 1e16``.
    """

    number: float = 0.0
    factor: float = 1.0
    array: Any = None  # of NumPy, or stored elsewhere
    rest: float = 0.0  # of the number

    @classmethod
    def of(cls, value: Any) -> Offset:
        if isinstance(value, Offset):
            return value
        if np.ndim(value) == 0:
            return cls(float(value))
        return cls(array=value if isinstance(value, Stored) else np.asarray(value))

    @property
    def is_zero(self) -> bool:
        return self.array is None and self.number == 0.0

    @property
    def value(self) -> Any:
        """A float, or an array: the user's own where it can be."""
        if self.array is None:
            return self.number
        array = self.array
        if array.dtype.kind != "f" and not isinstance(array, Stored):
            array = array.astype(np.float64)
        if self.factor != 1.0:
            array = self.factor * array
        return array if self.number == 0.0 else array + self.number

    def scaled(self, factor: Any) -> Offset:
        """Times a number or a vector."""
        if self.is_zero:
            return self
        if np.ndim(factor) == 0:
            number, lost = exact_product(float(factor), self.number)
            number, rest = exact_pair(number, lost + factor * self.rest)
            return Offset(number, factor * self.factor, self.array, rest)
        return Offset(0.0, self.number, factor) if self.array is None else Offset(array=factor * self.value)

    def plus(self, other: Offset) -> Offset:
        """The sum; a new array only where both have one."""
        if self.array is not None and other.array is not None:
            return Offset(array=self.value + other.value)
        held = self if other.array is None else other
        number, lost = exact_pair(self.number, other.number)
        number, rest = exact_pair(number, lost + (self.rest + other.rest))
        return Offset(number, held.factor, held.array, rest)

    def dot(self, weights: Vector) -> Offset:
        """``sum_i c_i d_i`` as a number."""
        number = Offset()
        if self.number != 0.0:
            whole = _added(weights)
            number = whole.scaled(self.number).plus(whole.scaled(self.rest))
        if self.array is None:
            return number
        return _dot(weights, np.asarray(self.array, dtype=np.float64)).scaled(self.factor).plus(number)

    def rows(self, index: Any) -> Offset:
        return self if self.array is None else self._replace(array=self.array[index])

    def at(self, part: DataPart) -> Offset:
        """The rows of a part of data that are not in memory."""
        return self if self.array is None else self._replace(array=at(self.array, part))

    def __str__(self) -> str:
        parts = [] if self.array is None else [times(self.factor, "c")]
        if self.number != 0.0 or not parts:
            parts.append(f"{self.number:g}")
        return signed_sum(parts)


def _dot(weights: Vector, values: Vector) -> Offset:
    if weights.strides == (0,) and weights[0] == 1.0:
        return _added(values)
    if values.size > _ADDED_EXACTLY:
        return Offset(dot(weights, values)[0])
    return _added(*exact_product(weights, values))


def _added(*arrays: Vector) -> Offset:
    """The sum of all entries, and what rounding leaves of it."""
    if arrays[0].size <= _ADDED_EXACTLY:
        with suppress(OverflowError, ValueError):  # of numbers that are not finite, or add up to none
            numbers = [v for array in arrays for v in array.tolist()]
            whole = math.fsum(numbers)
            return Offset(whole, rest=math.fsum([*numbers, -whole]))
    with np.errstate(over="ignore", invalid="ignore"):
        return Offset(float(sum(total(array)[0] for array in arrays)))
