r"""Averages of continuous terms of lines and parabolas in a handful of calls.

On a few hundred rows the general formulas of `_gaussian` spend more time on calls than on numbers, and so they do on a
device, where every call costs as much as a million numbers. ``|z|``, the hinge and the check loss are two lines that
meet in a kink, and the paper's diagonal Newton steps ask for their derivatives, not for their value, hundreds of times.
For slopes l and r on either side of a knot t these come down to, with :math:`u = (\nu - t)/s`,

    E' = l Phi(-u) + r Phi(u)        E'' = (r - l) phi(u) / s                                                        (1)

written so that each keeps its digits: E' lies between the two slopes, and is one of them where the tail is zero.

Several knots go together: what the piece that holds the mean has, and for each knot t, where slope and curvature jump
by d and 2e, tails :math:`J_m(|u|)` on the side away from the mean:

    E = rho(nu) + s^2 rho''(nu)/2 + sum_t d s J_1 -+ e s^2 J_2                                                       (2)

with the upper sign right of the knot; E' and E'' are its derivatives. Where knots are closer than they may be for their
jumps not to cancel, and where rows have parameters of their own, there is nothing short.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfc

from varopt._array import is_torch
from varopt.terms._tails import FAR, tails
from varopt.terms.polynomials import is_zero

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = [
    "DENSITY_AT_ZERO", "ROOT_TWO", "SHORT_ROWS", "Kink", "KnotTable", "Lines", "expectations_at_knots", "is_short",
    "kink_derivatives", "kink_expectations", "kink_gradient", "kink_of", "kink_slopes", "kink_steps", "knots_of",
    "largest_line", "lines_of", "square_of",
]  # fmt: skip

Vector = NDArray[np.float64]
Kink = tuple[float, float, float]  # knot, slope left and right of it
Lines = list[tuple[float, float, float]]  # centre, slope and constant of each

SHORT_ROWS = 4096  # rows up to which calls cost more than numbers
DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)  # of the standard normal
ROOT_TWO = math.sqrt(2.0)
_MODERATE_SIZE = 1e150  # numbers from which and to which nothing overflows
_KNOTS_APART = 1.0  # deviations that knots are apart at the least, as in the general formulas


# -- Two lines that meet in a kink -----------------------------------------------------------------------------------


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
    np.multiply(second, (right - left) * DENSITY_AT_ZERO / sigma, second)  # (1)
    return kink_gradient(kink, u, first), second


def kink_gradient(kink: Kink, u: Vector, out: Vector) -> Any:
    """E' at u, which may be the array that it is written to."""
    _, left, right = kink  # (1)
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


# -- Several knots, lines and parabolas ------------------------------------------------------------------------------


class KnotTable(NamedTuple):
    """Knots, jumps of slope and of half the curvature there, and for each piece its coefficients and its centre."""

    knots: Vector
    kinks: Vector
    curves: Vector
    pieces: Vector
    centres: Vector
    apart: float  # the least distance of two knots


def knots_of(term: PiecewisePolynomial) -> KnotTable | None:
    """The numbers of a term that is continuous, of degree at most two, and the same for all rows."""
    if term.rows is not None or not term.knots or term.degree > 2 or not term.is_continuous:
        return None
    if any(abs(float(jump[0])) > 0.0 for jump in term.jumps):
        return None
    jumps = np.array([[*jump, 0.0, 0.0, 0.0][1:3] for jump in term.jumps], dtype=np.float64)
    pieces = np.array([[*piece, 0.0, 0.0][:3] for piece in term.pieces], dtype=np.float64)
    knots = np.array(term.knots, dtype=np.float64)
    apart = float(np.diff(knots).min(initial=np.inf))
    return KnotTable(knots, jumps[:, 0].copy(), jumps[:, 1].copy(), pieces.T.copy(), np.array(term.centres), apart)


def expectations_at_knots(
    term: KnotTable, mean: Any, sigma: Any, derivatives: bool = True
) -> tuple[Any, Any, Any] | None:
    """Expectation and its derivatives in the mean; without `derivatives` the first alone; None of long vectors."""
    knots, kinks, curves, pieces, centres, apart = term
    if not is_short(mean, sigma) or mean.ndim != 1 or not np.max(sigma) * _KNOTS_APART <= apart:
        return None
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        piece = np.searchsorted(knots, mean, side="right")
        constant, slope, half = pieces[:, piece]  # half: of the curvature
        x = mean - centres[piece]
        u = (mean - knots[:, None]) / sigma
        phi, upper, first, second = tails(np, np.minimum(np.abs(u), FAR), 2)
        sign = np.where(u >= 0.0, -1.0, 1.0)
        second *= sign
        # (2)
        value = (half * x + slope) * x + constant + sigma * (kinks @ first + sigma * (half + curves @ second))
        if not np.isfinite(value).all():
            return None
        if not derivatives:
            return value, None, None
        upper *= sign
        gradient = 2.0 * (half * x) + slope + kinks @ upper + 2.0 * (sigma * (curves @ first))
        return value, gradient, 2.0 * (half + curves @ upper) + kinks @ phi / sigma


def lines_of(term: PiecewisePolynomial) -> Lines:
    """The pieces of a term that is the largest of its lines, where these do not overflow; else none."""
    if any(abs(c) > 1.0 for piece in term.pieces for c in piece):
        return []
    if any(abs(centre) > _MODERATE_SIZE for centre in term.centres):
        return []
    return [(c, p[1] if len(p) > 1 else 0.0, p[0]) for c, p in zip(term.centres, term.pieces, strict=True)]


def largest_line(lines: Lines, z: Vector) -> Any:
    """The largest of lines: on short vectors questions would cost more than numbers."""
    best: Any = None
    for centre, slope, level in lines:
        line: Any = level
        if slope != 0.0:
            line = slope * (z if centre == 0.0 else z - centre)
            line = line if level == 0.0 else line + level
        best = line if best is None else np.maximum(best, line)
    return best


def square_of(term: PiecewisePolynomial) -> float | None:
    """The number that squares are multiplied by, of a term that is nothing else and the same for all rows."""
    if term.rows is not None or term.knots or len(term.pieces[0]) != 3 or not is_zero(term.centres[0]):
        return None
    return None if any(term.pieces[0][:2]) else float(term.pieces[0][2])
