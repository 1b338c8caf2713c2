r"""Averages of continuous terms of lines and parabolas, on short vectors: a handful of calls for all knots together.

The formulas are those of `_gaussian`: what the piece that holds the mean has, and for each knot t, where slope and
curvature jump by d and 2e, tails :math:`J_m(|u|)`, :math:`u = (\nu - t)/s`, on the side away from the mean:

    E = rho(nu) + s^2 rho''(nu)/2 + sum_t d s J_1 -+ e s^2 J_2

with the upper sign right of the knot; E' and E'' are its derivatives. Where knots are closer than they may be for their
jumps not to cancel, and where rows have parameters of their own, there is nothing short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.terms._kink import is_short
from varopt.terms._tails import FAR, tails
from varopt.terms.polynomials import is_zero

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = ["KnotTable", "Lines", "expectations_at_knots", "knots_of", "largest_line", "lines_of", "square_of"]

Vector = NDArray[np.float64]

Lines = list[tuple[float, float, float]]  # centre, slope and constant of each

_MODERATE_SIZE = 1e150  # numbers from which and to which nothing overflows
_KNOTS_APART = 1.0  # deviations that knots are apart at the least, as in the general formulas


class KnotTable(NamedTuple):
    """KnotTable, jumps of slope and of half the curvature there, and for each piece its coefficients and its centre."""

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
