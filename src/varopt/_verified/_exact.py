"""Sums that are known to be exact, or known not to be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["difference_is_zero", "equal_products", "exact_sum", "is_double", "is_exact_product"]

Vector = NDArray[np.float64]


def is_double(array: Any) -> bool:
    """Whether the entries of an array, dense or sparse, are numbers of double precision, whatever they are kept in."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "iu" or size <= 4:
        return kind == "b" or kind in "iu" or (kind == "f" and size <= 8)
    entries = array.data if hasattr(array, "nnz") else array  # of a sparse one
    return array.size == 0 or max(abs(int(entries.min(initial=0))), int(entries.max(initial=0))) <= 2**53


def exact_sum(a: Vector, b: Vector) -> Vector | None:
    """The sum of two arrays where no entry of it is rounded, else None [Knuth's TwoSum]."""
    with np.errstate(over="ignore", invalid="ignore"):
        s = a + b
        t = s - a
        error = (a - (s - t)) + (b - t)
    return None if np.any(error != 0.0) or not np.all(np.isfinite(s)) else np.asarray(s)


def is_exact_product(factor: float, values: Vector) -> bool:
    """Whether a whole number times an array is exact: its entries have as many trailing zero bits as that takes."""
    if factor == 0.0 or np.frexp(abs(factor))[0] == 0.5:  # a power of two, short of under- and overflow
        product = factor * values
        return bool(np.all(np.isfinite(product)) and np.all((product != 0.0) | (values == 0.0) | (factor == 0.0)))
    bits = int(abs(factor)).bit_length()
    mantissa = np.abs(np.frexp(values)[0]) * 2.0**53  # whole numbers
    return float(factor).is_integer() and bits < 50 and bool(np.all(np.fmod(mantissa, 2.0**bits) == 0.0))


def equal_products(a: Vector, c: float, b: Vector, d: float) -> bool:
    """Whether ``a c = b d`` entry by entry, exactly [Dekker's product, in two parts that do not overlap]."""
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = _exact_product(a, c), _exact_product(b, d)
        sizes = np.abs(first[0])
        safe = np.all((sizes < 2.0**900) & ((sizes > 2.0**-900) | ((a == 0.0) & (b == 0.0))))
        return bool(safe and all(np.array_equal(x, y) for x, y in zip(first, second, strict=True)))


def _exact_product(a: Vector, c: float) -> tuple[Vector, Vector]:
    """The rounded product and its error, short of under- and overflow."""
    product = a * c
    high, top = _halves(a), _halves(np.float64(c))
    error = ((high[0] * top[0] - product) + high[0] * top[1] + high[1] * top[0]) + high[1] * top[1]
    return product, error


def _halves(a: Any) -> tuple[Any, Any]:
    """A number as the sum of two of half as many bits [Veltkamp]."""
    carried = (2.0**27 + 1.0) * a
    high = carried - (carried - a)
    return high, a - high


def difference_is_zero(pairs: Any) -> bool:
    """Whether ``sum a_i b_i`` of a few numbers is zero, exactly."""
    from fractions import Fraction  # slow to load, and seldom needed

    return sum((Fraction(float(a)) * Fraction(float(b)) for a, b in pairs), Fraction(0)) == 0
