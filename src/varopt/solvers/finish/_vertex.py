r"""Small linear programmes of kinks, solved from vertex to vertex, after [BarrodaleRoberts73].

``g'x + sum_k h_k (a_k'x + d_k)_+`` is least at a vertex, a point at which a basis B of as many rows rests as there are
variables, and whose multipliers are within their bounds:

    A_B x = -d_B,                                                                                                   (1)
    A_B' u_B = -(g + sum_{k not in B, z_k > 0} h_k a_k),    0 <= u_B <= h_B.                                        (2)

From a vertex that nearly is the optimum it takes a few exchanges to get there. A row whose multiplier is outside its
bounds leaves the basis, and the point moves along the edge that this opens,

    A_B dx = +e_leaving or -e_leaving,                                                                              (3)

along which the sum falls at the rate by which the multiplier is outside. At every kink that is passed the rate is less
by h_k |a_k'dx|; the row of the kink at which nothing is left of it enters the basis.                               (4)
The edge is the steepest [GoldfarbReid77]: that of the largest rate for its length |A dx|, where all rows move.     (5)
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.lapack import dgetrf, dgetrs  # as they are: on small bases what SciPy wraps around them takes longer

from varopt._clock import tick

__all__ = ["best_vertex"]

Vector = NDArray[np.float64]

_OUTSIDE_BOUND = 1e-11  # share of its bound by which a multiplier may be outside, as rounding
# Of the distances: rows nearer than this share are alike in the choice of the first vertex. Four times as much or as
# little changes nothing on a quantile regression and a support vector machine of 2,000 x 40.
_ALIKE_SHARE = 0.02
_UNTIL_FRESH = 50  # exchanges after which the inverse is made anew: rounding grows with each
_WORK = 4_000_000_000  # operations of exchanges beyond the first that are worth it before a simplex method
_REPEATS = 4  # exchanges of one row, one after the other, after which they are taken to go around
_OFFSET_NOISE = 1e-7  # share of the largest offset
_REST_POSITION = 1e-12  # share of what a position adds up below which a row rests
_LEAST_SQUARE = 1.0  # squared length of a column of the table, that of its own row
_SINGULAR_PIVOT = 1e-10  # share of the largest pivot below which rows count as dependent


def best_vertex(
    gradient: Vector, a: Vector, d: Vector, high: Vector, distance: Vector, exchanges: int | None = None
) -> tuple[Vector, Vector] | None:
    """The minimiser and the multipliers of all rows; None where no few exchanges lead there.

    Parameters
    ----------
    gradient, a, d, high : array
        g, the rows of A, d and h > 0.
    distance : array
        How far each row is from resting, as far as is known: the first vertex is made of the closest.
    exchanges : int, optional
        The most exchanges, by default ``p + 50``, and up to ``8 p`` where these take a few seconds at most: what takes
        more, as dependent rows may, is for a simplex method with safeguards against cycling.

    Notes
    -----
    An exchange costs O(p^2 + m p) for m rows of p variables. The inverse of the basis is carried along, and made anew
    every now and then and at the end.
    """
    p, unit = gradient.size, np.abs(a).max(axis=0, initial=0.0)
    if high.size < p or not unit.all():
        return None
    a, gradient = a / unit, gradient / unit  # variables in any units
    triangle, order = scipy.linalg.qr(
        (a / (distance + _ALIKE_SHARE)[:, None]).T, mode="r", pivoting=True, check_finite=False
    )
    pivots = np.abs(np.diagonal(triangle))
    if pivots[-1] <= _SINGULAR_PIVOT * pivots[0]:
        return None
    basis = order[:p].copy()
    left = max(p + 50, min(8 * p, _WORK // (p * (p + high.size)))) if exchanges is None else exchanges
    found = _walked(gradient, a, d, high, basis.copy(), left) or _unsettled(gradient, a, d, high, basis, left)
    return None if found is None else (found[0] / unit, found[1])


def _walked(
    gradient: Vector, a: Vector, d: Vector, high: Vector, basis: NDArray[np.intp], left: int
) -> tuple[Vector, Vector] | None:
    """The minimiser and the multipliers, by exchanges from a basis, which is that of the minimiser in the end."""
    repeats, above = 0, None
    while left > 0 and repeats < _REPEATS:
        tick()
        fresh = _vertex(gradient, a, d, high, basis, above)
        if fresh is None:
            return None
        x, z, above, u = fresh
        resting = u[basis]
        if _outside(resting, high[basis]).max() <= _OUTSIDE_BOUND:
            u[basis] = np.clip(resting, 0.0, high[basis])
            return x, u
        done = _exchange(a, high, basis, z, above, resting, min(left, _UNTIL_FRESH))
        if not done:
            return None
        left -= done
        repeats = repeats + 1 if done == 1 else 0
    return None


def _unsettled(
    gradient: Vector, a: Vector, d: Vector, high: Vector, basis: NDArray[np.intp], left: int
) -> tuple[Vector, Vector] | None:
    """The same where more rows rest than there are variables, as with equal or whole numbers, and exchanges go around.

    A little noise in d has them rest one after the other. Its minimiser's basis and multipliers are those of the
    problem without noise, if every row that does not rest has the multiplier of its side.
    """
    size = np.abs(d).max(initial=0.0)
    noise = _OFFSET_NOISE * (size if size > 0.0 else 1.0) * np.random.default_rng(0).uniform(0.5, 1.0, d.size)
    found = _walked(gradient, a, d + noise, high, basis, left)
    if found is None:
        return None
    u, (*factor, _) = found[1], dgetrf(a[basis])
    x = dgetrs(*factor, -d[basis])[0]  # (1)
    z = a @ x + d
    away = np.abs(z) > _REST_POSITION * (np.abs(a) @ np.abs(x) + np.abs(d))
    away[basis] = False
    return (x, u) if np.array_equal(u[away], np.where(z > 0.0, high, 0.0)[away]) else None


def _vertex(
    gradient: Vector, a: Vector, d: Vector, high: Vector, basis: NDArray[np.intp], sides: NDArray[np.bool_] | None
) -> tuple[Vector, Vector, NDArray[np.bool_], Vector] | None:
    """The point at which a basis rests, the positions of all rows there, which count as above, and the multipliers.

    A row that rests beside the basis counts on the side where exchanges have left it, if there were any: that which
    rounding gives it would undo them.
    """
    *factor, singular = dgetrf(a[basis])
    if singular:
        return None
    x = dgetrs(*factor, -d[basis])[0]  # (1)
    z = a @ x + d
    z[basis] = 0.0
    above = z > 0.0
    if sides is not None:
        resting_too = np.abs(z) <= _REST_POSITION * (np.abs(a) @ np.abs(x) + np.abs(d))
        z[resting_too], above[resting_too] = 0.0, sides[resting_too]
        above[basis] = False
    u = np.where(above, high, 0.0)
    rest = gradient + u @ a
    resting = dgetrs(*factor, -rest, trans=1)[0]  # (2), and refined once
    resting -= dgetrs(*factor, rest + resting @ a[basis], trans=1)[0]
    u[basis] = resting
    return x, z, above, u


def _outside(resting: Vector, high: Vector) -> Vector:
    """By which share of its bound each multiplier is outside."""
    return np.maximum(-resting, resting - high) / high


def _exchange(
    a: Vector, high: Vector, basis: NDArray[np.intp], z: Vector, above: NDArray[np.bool_], resting: Vector, most: int
) -> int:
    """Exchange rows of the basis, in place, until its multipliers are within bounds; how often. Zero: no way.

    Carried along is ``A A_B^{-1}``, how all rows move with those of the basis.
    """
    table = np.asfortranarray(a @ np.linalg.inv(a[basis]))
    bound, lengths = high[basis], np.einsum("ij,ij->j", table, table)  # of all rows' moves, squared
    for done in range(most):
        outside = _outside(resting, bound)
        if not outside.max() > _OUTSIDE_BOUND:
            return max(done, 1)
        steep = outside * bound / np.sqrt(lengths)  # (5)
        leaving = int(np.where(outside > _OUTSIDE_BOUND, steep, 0.0).argmax())
        side, out = (1.0 if resting[leaving] > 0.0 else -1.0), basis[leaving]
        column = table[:, leaving].copy()
        move = side * column  # (3)
        move[basis] = 0.0
        passed = _passed(z, above, move, high, fall=outside[leaving] * bound[leaving])
        if passed is None:
            return 0
        entering = passed[-1]
        row = table[entering].copy()
        pivot = float(row[leaving])
        if pivot == 0.0:  # rounding has made the rows dependent
            return 0
        # What was passed counts on its other side; the row that enters no longer does, that which left may.
        counts = np.sign(move[passed]) * high[passed]
        counts[-1] = min(counts[-1], 0.0)
        resting = resting - counts @ table[passed]
        if side > 0.0:
            resting[leaving] -= bound[leaving]
        step = max(0.0, -z[entering] / move[entering])
        z += step * move
        z[out], z[entering] = side * step, 0.0
        above[passed] = ~above[passed]
        above[out], above[entering] = side > 0.0, False
        row[leaving] -= 1.0
        row /= pivot
        resting -= resting[leaving] * row  # (2)
        lengths += row * (row * lengths[leaving] - 2.0 * (column @ table))  # of the columns of the table below
        np.maximum(lengths, _LEAST_SQUARE, out=lengths)  # which rounding may miss; a row of the basis moves by one
        # A A_B^{-1} after the exchange, by Sherman and Morrison.
        table = scipy.linalg.blas.dger(-1.0, column, row, a=table, overwrite_a=True)
        basis[leaving], bound[leaving] = entering, high[entering]
    return most


def _passed(z: Vector, above: NDArray[np.bool_], move: Vector, high: Vector, fall: float) -> NDArray[np.intp] | None:
    """The rows whose kinks are met until a sum that falls at rate `fall` stops falling; None where it never does."""
    ahead = (((move > 0.0) != above) & (move != 0.0)).nonzero()[0]
    rates = move[ahead]
    order = np.maximum(z[ahead] / -rates, 0.0).argsort(kind="stable")
    climbed = (high[ahead] * np.abs(rates))[order].cumsum()  # (4)
    order = ahead[order]
    place = int(climbed.searchsorted(fall))
    return order[: place + 1] if place < order.size else None
