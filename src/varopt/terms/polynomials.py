"""Arithmetic of polynomials whose coefficients are numbers, or arrays with one entry per row."""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Any

import numpy as np

from varopt._array import Array, constant, namespace
from varopt._domains import as_finite

__all__ = [
    "Coefficient", "Polynomial", "differentiate", "evaluate", "every", "extremes", "horner", "is_zero", "own",
    "quadratic_conjugate", "real_roots", "scalar_or_row", "shift", "spread", "subtract", "trim",
]  # fmt: skip

Coefficient = Any  # a Python float shared by all rows, or an array with one entry per row
Polynomial = tuple[Coefficient, ...]  # by increasing degree

_CANCELLED_SUM = 16 * float(np.finfo(np.float64).eps)  # share of what is added below which a sum is rounding of zero


def scalar_or_row(name: str, value: Any) -> Coefficient:
    """A number where all rows have the same, else an array of their own; or a `ValueError` that names it."""
    array = as_finite(name, value)
    if array.ndim > 1 or array.size == 0:
        raise ValueError(
            f"{name} must be a number or a one-dimensional array, one entry per row; got shape {array.shape}."
        )
    if np.all(array == array.flat[0]):
        return float(array.flat[0])
    return own(array.astype(np.float64, copy=False))


def own(array: Array) -> Array:
    """A copy that nobody can change: terms are immutable."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def spread(xp: Any, value: Any, like: Array) -> Array:
    """A number as an array of no dimensions; an array as it is."""
    return constant(xp, value, like) if isinstance(value, float) else value


def is_zero(value: Coefficient) -> bool:
    """Whether a coefficient is known to be zero; an array of zeros is not."""
    return isinstance(value, float) and value == 0.0


def every(condition: Any) -> bool:
    """Whether a condition holds in every row."""
    return bool(np.all(condition))


def trim(coefficients: Polynomial) -> Polynomial:
    """Without leading zeros."""
    end = len(coefficients)
    while end > 1 and is_zero(coefficients[end - 1]):
        end -= 1
    return coefficients[:end]


def differentiate(polynomial: Polynomial) -> Polynomial:
    """The derivative."""
    return tuple(m * c for m, c in enumerate(polynomial))[1:] or (0.0,)


def evaluate(polynomial: Polynomial, x: Array) -> Array:
    """Horner's rule."""
    return horner(trim(polynomial), x)


def horner(polynomial: Polynomial, x: Array) -> Array:
    """The same, of a polynomial without leading zeros."""
    total = polynomial[-1]
    for c in polynomial[-2::-1]:
        total = total * x if is_zero(c) else total * x + c
    return total


def shift(polynomial: Polynomial, offset: Coefficient) -> Polynomial:
    """The same polynomial in powers of ``x - offset``, by repeated synthetic division."""
    shifted = list(polynomial)
    if is_zero(offset):
        return polynomial
    for start in range(len(shifted) - 1):
        for m in range(len(shifted) - 2, start - 1, -1):
            shifted[m] = shifted[m] + offset * shifted[m + 1]
    return tuple(shifted)


def subtract(a: Polynomial, b: Polynomial, reach: Coefficient) -> Polynomial:
    """``a - b``, with what is only the rounding of shifts by at most `reach` set to zero.

    A jump of 1e-17 where the term is continuous would become a spike of height ``1e-17 / s`` in the derivative, so the
    difference must be exactly zero there.
    """
    degree = max(len(a), len(b))
    pad = (0.0,) * degree
    difference = []
    for m, (left, right) in enumerate(zip((a + pad)[:degree], (b + pad)[:degree], strict=True)):
        value = left - right
        # A shift adds terms of size |c_i| reach^(i - m): rounding of that size is no jump.
        size = abs(left) + abs(right)
        for polynomial in (a, b):
            for i, c in enumerate(polynomial):
                if i > m and not is_zero(c):
                    size = size + reduce(operator.mul, [reach] * (i - m), math.comb(i, m) * abs(c))
        if isinstance(value, float) and isinstance(size, float):
            difference.append(0.0 if abs(value) <= _CANCELLED_SUM * size else value)
        elif isinstance(value, float) and value == 0.0:
            difference.append(0.0)  # equal in every row, though other coefficients differ by row
        else:
            xp = namespace(size)
            rows = value + xp.zeros_like(size)
            difference.append(xp.where(abs(rows) > _CANCELLED_SUM * size, rows, xp.zeros_like(size)))
    return tuple(difference)


def extremes(polynomial: Polynomial, low: Coefficient, high: Coefficient) -> tuple[Array, Array]:
    """Smallest and largest value of a polynomial on ``[low, high]``; the ends may be infinite."""
    polynomial = trim(polynomial)
    if len(polynomial) == 1:
        value = np.asarray(polynomial[0])
        return value, value
    with np.errstate(invalid="ignore", over="ignore"):
        candidates = [_at(polynomial, low), _at(polynomial, high)]
        for stationary in real_roots(differentiate(polynomial)):
            inside = (stationary > low) & (stationary < high)
            candidates.append(np.where(inside, _at(polynomial, stationary), candidates[0]))
    return reduce(np.minimum, candidates), reduce(np.maximum, candidates)


def _at(polynomial: Polynomial, x: Coefficient) -> Array:
    """The value at x, zero where it is only rounding; the limit where x is infinite."""
    if isinstance(x, float) and math.isinf(x):
        limit = np.asarray(polynomial[0])
        for m, c in enumerate(polynomial[1:], start=1):
            limit = np.where(
                np.asarray(c) == 0.0, limit, np.copysign(np.inf, np.asarray(c) * math.copysign(1.0, x) ** m)
            )
        return limit
    value = evaluate(polynomial, x)
    # Else the sign of (z - 1)^4, written in powers of z, would be anything at its root.
    size = evaluate(tuple(map(abs, polynomial)), abs(x))
    return np.where(abs(value) <= _CANCELLED_SUM * size, 0.0, value)


def quadratic_conjugate(
    polynomial: Polynomial, centre: Coefficient, low: Coefficient, high: Coefficient, dual: Array
) -> Array:
    """The supremum of ``v z - p(z - centre)`` for ``low <= z - centre <= high``, where p is a convex quadratic.

    Minus infinity for rows in which p is a line: theirs is reached on an end.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.clip((dual - polynomial[1]) / (2.0 * polynomial[2]), low, high)  # where the derivative is v
        value = dual * (centre + x) - evaluate(polynomial, x)
    return np.where(np.isfinite(x), value, -math.inf)


def real_roots(polynomial: Polynomial) -> list[Array]:
    """Real roots, row by row; rows with fewer roots, or with coefficients that overflowed, are filled with NaN."""
    polynomial = trim(polynomial)
    if len(polynomial) == 1:
        return []
    if len(polynomial) == 2:
        with np.errstate(divide="ignore", invalid="ignore"):
            return [np.asarray(-np.asarray(polynomial[0], dtype=float) / polynomial[1])]
    rows = np.broadcast_arrays(*(np.asarray(c, dtype=float) for c in polynomial))
    shape = rows[0].shape
    found = np.full((len(polynomial) - 1, rows[0].size), np.nan)
    for k, row in enumerate(zip(*(r.ravel() for r in rows), strict=True)):
        if not np.all(np.isfinite(row)):
            continue
        roots = np.roots(row[::-1])
        real = np.real(roots[np.abs(np.imag(roots)) <= 1e-12 * (1 + np.abs(roots))])
        found[: real.size, k] = real
    return [f.reshape(shape) for f in found]
