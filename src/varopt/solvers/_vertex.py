r"""Small linear programmes of kinks, solved from vertex to vertex.

``g'x + sum_k h_k (a_k'x + d_k)_+`` is least at a vertex, a point where as many independent rows rest as there are
variables. From a vertex that nearly is the optimum it takes a few exchanges to get there: the row whose multiplier is
farthest outside ``[0, h]`` leaves, the point moves along the edge that this opens, past every kink at which the sum
still falls, and the row of the kink at which it no longer does rests in its place [BarrodaleRoberts73].
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["best_vertex"]

Vector = NDArray[np.float64]

_INSIDE = 1e-11  # share of its bound by which a multiplier may be outside, as rounding
_NEARBY = 0.02  # of the distances: rows nearer than this share are alike in the choice of the first vertex
_SINGULAR = 1e-10  # share of the largest pivot below which rows count as dependent


def best_vertex(slope: Vector, a: Vector, d: Vector, high: Vector, distance: Vector) -> tuple[Vector, Vector] | None:
    """The minimiser and the multipliers of all rows; None where no few exchanges lead there.

    Parameters
    ----------
    slope, a, d, high : array
        g, the rows of A, d and h > 0.
    distance : array
        How far each row is from resting, as far as is known: the first vertex is made of the closest.

    Notes
    -----
    An exchange costs O(p^3 + m p) for m rows of p variables, most of it the factorisation. There are at most ``p + 50``
    of them: what takes more, as dependent rows may, is for a simplex method with safeguards against cycling.
    """
    p, unit = slope.size, np.abs(a).max(axis=0, initial=0.0)
    if high.size < p or not unit.all():
        return None
    a, slope = a / unit, slope / unit  # variables in any units
    triangle, order = scipy.linalg.qr(
        (a / (distance + _NEARBY)[:, None]).T, mode="r", pivoting=True, check_finite=False
    )
    pivots = np.abs(np.diagonal(triangle))
    if pivots[-1] <= _SINGULAR * pivots[0]:
        return None
    basis = order[:p].copy()
    for _ in range(p + 50):
        *factor, singular = scipy.linalg.lapack.dgetrf(a[basis])
        if singular:
            return None
        x = scipy.linalg.lu_solve(factor, -d[basis], check_finite=False)
        z = a @ x + d
        z[basis] = 0.0
        u = np.where(z > 0.0, high, 0.0)
        pull = slope + u @ a
        resting = scipy.linalg.lu_solve(factor, -pull, trans=1, check_finite=False)
        resting -= scipy.linalg.lu_solve(factor, pull + resting @ a[basis], trans=1, check_finite=False)
        outside = np.maximum(-resting, resting - high[basis]) / high[basis]
        leaving = int(np.argmax(outside))
        if not outside[leaving] > _INSIDE:
            u[basis] = np.clip(resting, 0.0, high[basis])
            return x / unit, u
        side = 1.0 if resting[leaving] > 0.0 else -1.0
        edge = np.zeros(p)
        edge[leaving] = side
        move = a @ scipy.linalg.lu_solve(factor, edge, check_finite=False)
        move[basis] = 0.0
        entering = _stop(z, move, high, fall=outside[leaving] * high[basis[leaving]])
        if entering is None:
            return None
        basis[leaving] = entering
    return None


def _stop(z: Vector, move: Vector, high: Vector, fall: float) -> int | None:
    """The row at whose kink a sum that falls at rate `fall` stops falling; None where it never does."""
    ahead = np.flatnonzero(np.where(move > 0.0, z <= 0.0, (move < 0.0) & (z > 0.0)))
    order = ahead[np.argsort(-z[ahead] / move[ahead])]
    climbed = np.cumsum(high[order] * np.abs(move[order]))
    place = int(np.searchsorted(climbed, fall))
    return int(order[place]) if place < order.size else None
