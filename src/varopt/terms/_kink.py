r"""Derivatives of the average of two lines that meet in a kink, on short vectors: a handful of calls.

``|z|``, the hinge and the check loss are such terms, and the paper's diagonal Newton steps ask for their derivatives,
not for their value, hundreds of times. On a few hundred rows the general formulas of `_gaussian` spend more time on
calls than on numbers. For slopes l and r on either side of a knot t they come down to, with :math:`u = (\nu - t)/s`,

    E' = l Phi(-u) + r Phi(u)        E'' = (r - l) phi(u) / s

written so that each keeps its digits: E' lies between the two slopes, and is one of them where the tail is zero.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfc

from varopt._array import is_torch
from varopt.terms._tails import FAR, tails

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = [
    "DENSITY_AT_ZERO", "ROOT_TWO", "SHORT_ROWS", "Kink", "is_short", "kink_derivatives", "kink_expectations",
    "kink_gradient", "kink_of", "kink_slopes", "kink_steps",
]  # fmt: skip

Vector = NDArray[np.float64]
Kink = tuple[float, float, float]  # knot, slope left and right of it

SHORT_ROWS = 4096  # rows up to which calls cost more than numbers
DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)  # of the standard normal
ROOT_TWO = math.sqrt(2.0)


def kink_of(term: PiecewisePolynomial) -> Kink | None:
    """The knot of a term that is two lines that meet, the same for all rows, and the slopes on its sides."""
    if len(term.knots) != 1 or term.rows is not None or term.degree > 1 or not term.is_continuous:
        return None
    left, right = (float(p[1]) if len(p) > 1 else 0.0 for p in term.pieces)
    return float(term.knots[0]), left, right


def kink_derivatives(
    kink: Kink, mean: Any, sigma: Any, weight: float = 1.0, out: tuple[Vector, Vector] | None = None
) -> tuple[Vector, Vector] | None:
    """First and second derivative of the expectation in the mean, times a weight.

    None where the general formulas are to be used. With `out` they are written there, and warnings of overflow
    are the caller's.
    """
    if not is_short(mean, sigma):
        return None
    if weight != 1.0:
        kink = kink[0], weight * kink[1], weight * kink[2]
    if out is not None:
        return _derivatives(kink, mean, sigma, *out)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return _derivatives(kink, mean, sigma, np.empty_like(mean), np.empty_like(mean))


def kink_slopes(kink: Kink, z: Vector) -> Vector | None:
    """The derivative from the right; None where there is none, as of NaN."""
    knot, left, right = kink
    here = (z >= knot).astype(np.float64)
    slopes = right * here  # on data in no order far faster than `where`, and memory that is new takes longest
    here -= 1.0
    here *= -left
    slopes += here
    return None if np.isnan(z.max(initial=-np.inf)) else slopes


def kink_expectations(
    term: PiecewisePolynomial, mean: Any, sigma: Any, derivatives: bool = True
) -> tuple[Any, Any, Any] | None:
    """Expectation and its derivatives in the mean; without `derivatives` the first alone. None where it is not short.

    The expectation is the value at the mean and, beyond the knot, a tail to full relative accuracy.
    """
    kink = term.kink
    if kink is None or not is_short(mean, sigma):
        return None
    knot, left, right = kink
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        u = (mean - knot if knot else mean) / sigma
        value = tails(np, np.minimum(np.abs(u), FAR), 1)[2]
        value *= (right - left) * sigma
        value += term.value(mean)
        if not np.isfinite(value).all():
            return None  # as of infinite means
        if not derivatives:
            return value, None, None
        return value, *_derivatives(kink, mean, sigma, np.empty_like(mean), np.empty_like(mean))


def is_short(mean: Any, sigma: Any) -> bool:
    """Whether these are a short vector of NumPy and deviations that are not zero."""
    if type(mean) is not np.ndarray or mean.dtype != np.float64 or not 0 < mean.size <= SHORT_ROWS:
        return False
    if isinstance(sigma, float):
        return sigma > 0.0
    if type(sigma) is not np.ndarray or sigma.shape != mean.shape or sigma.dtype != np.float64:
        return False
    return bool(np.minimum.reduce(sigma, axis=None) > 0.0)


def kink_steps(kink: Kink, distance: Any, sigma: float) -> tuple[Any, Any, Any] | None:
    """What smoothing adds to a tensor of PyTorch at distances from the knot, and the derivatives of the expectation.

    To rounding of what is added up; None where it is no tensor. On a device every call costs as much as a million
    numbers: these are thirteen in place of a hundred and thirty.
    """
    if not is_torch(distance) or not sigma > 0.0:
        return None
    torch, (_, left, right) = sys.modules["torch"], kink
    u = distance / (ROOT_TWO * sigma)
    size = u.abs()
    tail = torch.special.erfc(size).mul_(0.5 * (right - left))
    first = torch.where(u >= 0.0, right - tail, left + tail)
    second = torch.exp(-u * u).mul_((right - left) * DENSITY_AT_ZERO / sigma)
    added = torch.addcmul(sigma * sigma * second, size, tail, value=-ROOT_TWO * sigma)
    return added, first, second


def _derivatives(kink: Kink, mean: Vector, sigma: Any, first: Vector, second: Vector) -> tuple[Vector, Vector]:
    """The two, in arrays of their own; u is their argument over the square root of two."""
    knot, left, right = kink
    u = np.divide(mean - knot if knot else mean, ROOT_TWO * sigma, first)
    np.exp(np.negative(np.square(u, second), second), second)
    np.multiply(second, (right - left) * DENSITY_AT_ZERO / sigma, second)
    return kink_gradient(kink, u, first), second


def kink_gradient(kink: Kink, u: Vector, out: Vector) -> Any:
    """E' at u, which may be the array that it is written to."""
    _, left, right = kink
    if left == -right:  # it passes through zero on the knot, and keeps its digits there
        erf(u, out)
        return out if right == 1.0 else np.multiply(out, right, out)
    if left == 0.0:
        return np.multiply(erfc(np.negative(u, out), out), 0.5 * right, out)
    if right == 0.0:
        return np.multiply(erfc(u, out), 0.5 * left, out)
    tail = 0.5 * (right - left) * erfc(np.abs(u))
    np.copyto(out, np.where(u >= 0.0, right - tail, left + tail))
    return out
