r"""Derivatives of the average of two lines that meet in a kink, on short vectors: a handful of calls.

``|z|``, the hinge and the check loss are such terms, and the paper's diagonal Newton steps ask for their derivatives,
not for their value, hundreds of times. On a few hundred rows the general formulas of `_gaussian` spend more time on
calls than on numbers. For slopes l and r on either side of a knot t they come down to, with :math:`u = (\nu - t)/s`,

    E' = l Phi(-u) + r Phi(u)        E'' = (r - l) phi(u) / s

written so that each keeps its digits: E' lies between the two slopes, and is one of them where the tail is zero.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfc

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = ["Kink", "kink_derivatives", "kink_expectation", "kink_of"]

Vector = NDArray[np.float64]
Kink = tuple[float, float, float]  # knot, slope left and right of it

_SHORT = 4096  # rows up to which calls cost more than numbers
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_ROOT_TWO = math.sqrt(2.0)


def kink_of(term: PiecewisePolynomial) -> Kink | None:
    """The knot and the two slopes of a continuous term of two lines, the same for all rows."""
    if len(term.knots) != 1 or term.rows is not None or term.degree > 1 or not term.is_continuous:
        return None
    left, right = (float(p[1]) if len(p) > 1 else 0.0 for p in term.pieces)
    return float(term.knots[0]), left, right


def kink_derivatives(
    kink: Kink, mean: Any, sigma: Any, out: tuple[Vector, Vector] | None = None
) -> tuple[Vector, Vector] | None:
    """First and second derivative of the expectation in the mean; None where the general formulas are to be used.

    With `out` they are written there, and warnings of overflow are the caller's.
    """
    if type(mean) is not np.ndarray or mean.dtype != np.float64 or not 0 < mean.size <= _SHORT:
        return None
    if not isinstance(sigma, float):
        if type(sigma) is not np.ndarray or sigma.shape != mean.shape or sigma.dtype != np.float64:
            return None
        if not np.minimum.reduce(sigma, axis=None) > 0.0:
            return None
    elif not sigma > 0.0:
        return None
    if out is not None:
        return _derivatives(kink, mean, sigma, *out)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return _derivatives(kink, mean, sigma, np.empty_like(mean), np.empty_like(mean))


def kink_expectation(kink: Kink, at_knot: float, mean: Vector, sigma: Any, first: Vector, second: Vector) -> Vector:
    """The expectation, from its derivatives: ``rho(t) + (mean - t) E' + s^2 E''``; it takes the array of the second."""
    knot = kink[0]
    value = np.multiply(np.multiply(second, sigma, second), sigma, second)
    value += (mean - knot if knot else mean) * first
    value += at_knot
    return np.asarray(value)


def _derivatives(kink: Kink, mean: Vector, sigma: Any, first: Vector, second: Vector) -> tuple[Vector, Vector]:
    """The two, in arrays of their own; u is their argument over the square root of two."""
    knot, left, right = kink
    u = np.divide(mean - knot if knot else mean, _ROOT_TWO * sigma, first)
    np.exp(np.negative(np.square(u, second), second), second)
    np.multiply(second, (right - left) * _DENSITY / sigma, second)
    if left == -right:  # it passes through zero on the knot, and keeps its digits there
        erf(u, first)
        return first if right == 1.0 else np.multiply(first, right, first), second
    if left == 0.0:
        return np.multiply(erfc(np.negative(u, first), first), 0.5 * right, first), second
    if right == 0.0:
        return np.multiply(erfc(u, first), 0.5 * left, first), second
    tail = 0.5 * (right - left) * erfc(np.abs(u))
    np.copyto(first, np.where(u >= 0.0, right - tail, left + tail))
    return first, second
