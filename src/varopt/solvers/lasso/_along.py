r"""All minimisers of a quadratic and ``l1 |x|_1 + l2 |x|^2 / 2`` along a sequence of strengths, at once.

As long as every variable stays on its side of zero, the minimiser is a formula in the strengths,

    x_I = -(M_II + l2 1)^{-1} (g_I + l1 s_I),    x = 0 elsewhere,                                                   (1)

and one spectral decomposition of M_II gives it for all of them: for the lasso this is its piecewise linear path
[OsbornePresnellTurlach00]. Sides are found by pivoting (`_sides`) at the first strength where those of the stretch
before are wrong, so that there are no more of these solves than stretches.

.. [OsbornePresnellTurlach00] M. Osborne, B. Presnell, B. Turlach. A new approach to variable selection in least squares
   problems. IMA Journal of Numerical Analysis 20(3), 2000.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from varopt.composite import Kinks
from varopt.solvers.lasso._sides import PATIENCE, pivoted, solved

__all__ = ["pivoted_along"]

Vector = NDArray[np.float64]

_STRENGTHS_AHEAD = 32  # strengths for which sides are tried at a time
_SPECTRUM = 150  # variables that move beyond which a spectral decomposition costs more than it saves
_OVER_STRENGTH = 1e-12  # share of a strength by which a gradient may exceed it


def pivoted_along(
    matrix: Vector, gradient: Vector, l1: Vector, l2: Vector, steepest: Vector | None = None,
    sides: NDArray[np.int8] | None = None,
) -> Iterator[Vector | None]:  # fmt: skip
    """Minimise ``1/2 x'Mx + g'x + l1 |x|_1 + l2 |x|^2 / 2`` for one pair of strengths after the other.

    Parameters
    ----------
    matrix, gradient : array
        M, positive semidefinite, whose diagonal is written to, and g.
    l1, l2 : array
        The strengths, in an order in which neighbours are alike.
    steepest : array, optional
        Where x must not be negative: what its gradient does not exceed.
    sides : array, optional
        Signs of x, or 0, to begin with.

    Yields
    ------
    array or None
        A minimiser, as accurate as the matrix allows; None where sides do not settle.

    Notes
    -----
    Two Cholesky factors or so, and one spectral decomposition, of the variables that move, for each stretch.
    """
    diagonal, ridgeless = np.arange(gradient.size), matrix.diagonal().copy()
    side, place = np.zeros(gradient.size, dtype=np.int8) if sides is None else sides, 0
    while place < l1.size:
        high = np.full(gradient.size, l1[place])
        kinks = Kinks(np.zeros(gradient.size), -high if steepest is None else -(high + steepest), high)
        matrix[diagonal, diagonal] = ridgeless + l2[place]
        if not side.any():
            side = np.where(np.abs(gradient) > l1[place], -np.sign(gradient), 0).astype(np.int8)
            side = side if steepest is None else np.maximum(side, 0)
        settled = pivoted(matrix, gradient, kinks, side, PATIENCE, solved)
        matrix[diagonal, diagonal] = ridgeless
        place += 1
        if settled is None:
            side = np.zeros_like(side)
            yield None
            continue
        side = np.sign(settled.away).astype(np.int8)
        yield settled.away
        ahead = slice(place, place + _STRENGTHS_AHEAD)
        for x in _as_long_as_right(matrix, gradient, side, l1[ahead], l2[ahead], steepest is not None):
            place += 1
            yield x


def _as_long_as_right(
    matrix: Vector, gradient: Vector, side: NDArray[np.int8], l1: Vector, l2: Vector, positive: bool
) -> Vector:
    """The minimisers for the first strengths, as rows, of those for which all variables are on the right side."""
    moving = np.flatnonzero(side)
    if moving.size > _SPECTRUM or not l1.size:
        return np.zeros((0, side.size))
    sign = side[moving]
    spectrum, basis = np.linalg.eigh(matrix[np.ix_(moving, moving)])
    curvature = spectrum + l2[:, None]
    if not np.all(curvature > np.finfo(np.float64).eps * 4 * curvature.max(initial=0.0)):
        return np.zeros((0, side.size))
    part = -((gradient[moving] + l1[:, None] * sign) @ basis / curvature) @ basis.T  # (1), a row for each strength
    reached = gradient + part @ matrix[moving]
    outside = np.where(side == 0, -reached if positive else np.abs(reached), 0.0)
    right = np.all(part * sign >= 0.0, axis=1) & np.all(outside <= (1.0 + _OVER_STRENGTH) * l1[:, None], axis=1)
    first = l1.size if right.all() else int(np.argmin(right))
    x = np.zeros((first, side.size))
    x[:, moving] = part[:first]
    return x
