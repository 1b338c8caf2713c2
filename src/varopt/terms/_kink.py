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
from scipy.special import erf, ndtr

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = ["Kink", "kink_derivatives", "kink_of"]

Vector = NDArray[np.float64]
Kink = tuple[float, float, float]  # knot, slope left and right of it

_SHORT = 4096  # rows up to which calls cost more than numbers
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_ROOT_HALF = math.sqrt(0.5)


def kink_of(term: PiecewisePolynomial) -> Kink | None:
    """The knot and the two slopes of a continuous term of two lines, the same for all rows."""
    if len(term.knots) != 1 or term.rows is not None or term.degree > 1 or not term.is_continuous:
        return None
    left, right = (float(p[1]) if len(p) > 1 else 0.0 for p in term.pieces)
    return float(term.knots[0]), left, right


def kink_derivatives(kink: Kink, mean: Any, sigma: Any) -> tuple[Vector, Vector] | None:
    """First and second derivative of the expectation in the mean; None where the general formulas are to be used."""
    if type(mean) is not np.ndarray or mean.dtype != np.float64 or not 0 < mean.size <= _SHORT:
        return None
    rowwise = type(sigma) is np.ndarray and sigma.shape == mean.shape and sigma.dtype == np.float64
    if not rowwise and not isinstance(sigma, float):
        return None
    if not (np.minimum.reduce(sigma, axis=None) if rowwise else sigma) > 0.0:
        return None
    knot, left, right = kink
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        u = (mean - knot if knot else mean) / sigma
        return _first(u, left, right), ((right - left) * _DENSITY / sigma) * np.exp(-0.5 * u * u)


def _first(u: Vector, left: float, right: float) -> Vector:
    """The average slope."""
    if left == -right:  # it passes through zero on the knot, and keeps its digits there
        return np.asarray(right * erf(_ROOT_HALF * u))
    if left == 0.0:
        return np.asarray(right * ndtr(u))
    if right == 0.0:
        return np.asarray(left * ndtr(-u))
    tail = (right - left) * ndtr(-np.abs(u))
    return np.asarray(np.where(u >= 0.0, right - tail, left + tail))
