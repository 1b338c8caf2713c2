r"""The near problems of many neighbours of few variables at once: NumPy's calls cost more than their numbers there.

Each is

    g'd + sum_i v_i (x_i'd - e_i)_+                                                                                 (1)

with rows of its own. The steps are those of `near_problem`, for all of them in arrays whose first axis is the
neighbour: Newton's under noise that falls, the rows nearest to their kinks as a first basis, exchanges of one row of it
at a time. What is not solved so, and where another vertex may be as good, is left to `near_problem`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = ["side_by_side"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_FAINT_CURVATURE = 1e-12  # share of the trace of a Hessian: no row may be within the noise
_ALIKE_HERE = 0.02  # of the distances: rows nearer than this share are alike in the choice of the first basis
_DEPENDENT_SQUARE = 1e-20  # share of the first pivot's square below which rows count as dependent
_BEYOND_BOUND = 1e-11  # share of its bound by which a multiplier may be outside, as rounding
_MAY_REST_TOO = 1e-9  # of the typical distance from the plane: a row nearer than this may rest too
_EXCHANGES_EACH = 12  # exchanges a variable, and ten, after which a neighbour is left to others


def side_by_side(
    gradient: Matrix, X: Matrix, e: Matrix, weight: Matrix, reach: Vector, near: NDArray[np.bool_], start: Matrix,
    shares: tuple[float, ...], resting_rows: int,
) -> Matrix:  # fmt: skip
    """The solution of each neighbour, a row each as all but `X` and `reach` are; NaN where it was not found.

    Parameters
    ----------
    gradient : (k, p) array
    X : (n, p) array
    e, weight, near : (k, n) arrays
        `near` tells which rows (1) has of each neighbour.
    reach : (n,) array
    start : (k, p) array
    shares : the deviations of the noise, as shares of how far the near rows reach
    resting_rows : how many rows the linear programme has
    """
    k, p = gradient.shape
    which, rows = near.nonzero()
    counts = np.bincount(which, minlength=k)
    place = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
    m = int(counts.max())
    if counts.min() < max(resting_rows, p + 1):
        return np.full((k, p), np.nan)
    # Missing rows are zero, without weight: they never leave their kink, and nothing feels them.
    a, offset, v, unit = np.zeros((k, m, p)), np.zeros((k, m)), np.zeros((k, m)), np.ones((k, m))
    size = np.abs(X).max(axis=0)
    size[size == 0.0] = 1.0
    a[which, place], offset[which, place] = X[rows] / size, e[which, rows]
    v[which, place], unit[which, place] = weight[which, rows], reach[rows]
    with np.errstate(all="ignore"):  # what overflows or is no number is left to others
        try:
            gradient = gradient / size  # variables in any units
            move = _descended(gradient, a, offset, v, unit, start * size, shares)
            return np.asarray(_frozen(gradient, a, offset, v, unit, move, resting_rows) / size)
        except np.linalg.LinAlgError:  # a basis that is singular to the last digit
            return np.full((k, p), np.nan)


def _positions(a: Matrix, x: Matrix, e: Matrix) -> Matrix:
    return np.asarray((a @ x[..., None])[..., 0] - e)


def _descended(
    gradient: Matrix, a: Matrix, e: Matrix, v: Matrix, reach: Matrix, move: Matrix, shares: tuple[float, ...]
) -> Matrix:
    """Newton steps under normal noise of the rows, that falls; a neighbour stops where one leads beyond its rows."""
    z = _positions(a, move, e)
    farthest = np.max(np.abs(z) / reach, axis=1)
    going = farthest > 0.0
    diagonal = np.arange(gradient.shape[1])
    for share in shares:
        sigma = share * farthest[:, None] * reach
        scaled = z / sigma
        density = v * np.exp(-0.5 * scaled**2) / (math.sqrt(2.0 * math.pi) * sigma)
        hessian = np.swapaxes(a * density[..., None], 1, 2) @ a
        trace = np.trace(hessian, axis1=1, axis2=2)
        hessian[~(going & (trace > 0.0))] = np.eye(len(diagonal))
        hessian[:, diagonal, diagonal] += _FAINT_CURVATURE * np.where(trace > 0.0, trace, 1.0)[:, None]
        slope = gradient + ((v * ndtr(scaled))[:, None] @ a)[:, 0]
        step = np.linalg.solve(hessian, slope[..., None])[..., 0]
        moved = (a @ step[..., None])[..., 0]
        going &= (trace > 0.0) & (np.max(np.abs(moved) / reach, axis=1) <= farthest)
        move = np.where(going[:, None], move - step, move)
        z = np.where(going[:, None], z - moved, z)
    return move


def _frozen(gradient: Matrix, a: Matrix, e: Matrix, v: Matrix, reach: Matrix, move: Matrix, count: int) -> Matrix:
    """The vertex of each neighbour, of `count` rows and of more where one that was frozen is on the other side."""
    found, left, most = np.full_like(move, np.nan), np.arange(len(move)), v.shape[1]
    while left.size:
        found[left] = _vertices(gradient[left], a[left], e[left], v[left], reach[left], move[left], count)
        if count == most:
            break
        count, left = min(2 * count, most), left[np.isnan(found[left, 0])]
    return found


def _vertices(
    gradient: Matrix, a: Matrix, e: Matrix, v: Matrix, reach: Matrix, move: Matrix, resting_rows: int
) -> Matrix:
    """The vertex of each neighbour, as the few rows nearest to their kinks have it; NaN where another row disagrees."""
    z = _positions(a, move, e)
    ratio = np.where(v > 0.0, np.abs(z) / reach, np.inf)
    closest = np.argpartition(ratio, resting_rows - 1, axis=1)[:, :resting_rows]
    far = v > 0.0
    np.put_along_axis(far, closest, False, axis=1)
    above = z > 0.0
    frozen = gradient + ((v * (far & above))[:, None] @ a)[:, 0]
    distance = np.take_along_axis(ratio, closest, axis=1)
    farthest = np.max(distance, axis=1, keepdims=True, where=np.isfinite(distance), initial=0.0)
    distance = np.minimum(distance / farthest, 1.0)  # of missing rows too
    few = np.take_along_axis(a, closest[..., None], axis=1)
    found = _exchanged(
        frozen, few, np.take_along_axis(e, closest, axis=1), np.take_along_axis(v, closest, axis=1), distance
    )
    reached = _positions(a, found, e)
    wrong = far & ((reached > 0.0) != above)
    found[wrong.any(axis=1)] = np.nan
    return found


def _exchanged(gradient: Matrix, a: Matrix, e: Matrix, high: Matrix, distance: Matrix) -> Matrix:
    """The minimisers by exchanges of a basis, that of the steepest edge each time; NaN where rows are dependent."""
    k, _, p = a.shape
    out = np.full((k, p), np.nan)
    basis, fine = _first_basis(a / (distance + _ALIKE_HERE)[..., None])
    open_ = np.flatnonzero(fine)
    gradient, a, e, high, basis = gradient[open_], a[open_], e[open_], high[open_], basis[open_]
    for _ in range(_EXCHANGES_EACH * (p + 1)):
        if not open_.size:
            break
        inverse = np.linalg.inv(np.take_along_axis(a, basis[..., None], axis=1))
        x = (inverse @ np.take_along_axis(e, basis, axis=1)[..., None])[..., 0]
        z = _positions(a, x, e)
        np.put_along_axis(z, basis, 0.0, axis=1)
        above, bound = z > 0.0, np.take_along_axis(high, basis, axis=1)
        resting = -((gradient + ((high * above)[:, None] @ a)[:, 0])[:, None] @ inverse)[:, 0]
        outside = np.maximum(-resting, resting - bound)
        settled = (outside <= _BEYOND_BOUND * bound).all(axis=1)
        rests = (np.abs(z) <= _MAY_REST_TOO * np.mean(np.abs(z), axis=1, keepdims=True)) & (high > 0.0)
        alone = np.count_nonzero(rests, axis=1) == p
        good = settled & alone
        out[open_[good]] = x[good]
        table = a @ inverse
        steep = np.where(outside > _BEYOND_BOUND * bound, outside, 0.0) / np.sqrt(
            np.einsum("kmp,kmp->kp", table, table)
        )
        leaving = steep.argmax(axis=1)[:, None]
        side = np.where(np.take_along_axis(resting, leaving, axis=1) > 0.0, 1.0, -1.0)
        along = side * np.take_along_axis(table, leaving[:, None], axis=2)[..., 0]
        np.put_along_axis(along, basis, 0.0, axis=1)
        ahead = ((along > 0.0) != above) & (along != 0.0)
        order = np.where(ahead, np.maximum(-z / along, 0.0), np.inf).argsort(axis=1, kind="stable")
        climbed = np.take_along_axis(np.where(ahead, high * np.abs(along), 0.0), order, axis=1).cumsum(axis=1)
        enough = climbed >= np.take_along_axis(outside, leaving, axis=1)
        entering = np.take_along_axis(order, enough.argmax(axis=1)[:, None], axis=1)
        np.put_along_axis(basis, leaving, entering, axis=1)
        on = ~settled & enough[:, -1] & np.isfinite(outside).all(axis=1)
        open_, basis, gradient = open_[on], basis[on], gradient[on]
        a, e, high = a[on], e[on], high[on]
    return out


def _first_basis(a: Matrix) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Independent rows of each neighbour, the longest of what earlier ones leave first; and whether there are any."""
    p = a.shape[2]
    basis, squares = np.empty((len(a), p), dtype=np.intp), np.empty((len(a), p))
    for j in range(p):
        lengths = np.einsum("kmp,kmp->km", a, a)
        basis[:, j] = lengths.argmax(axis=1)
        squares[:, j] = lengths.max(axis=1)
        row = np.take_along_axis(a, basis[:, j, None, None], axis=1) / np.sqrt(squares[:, j])[:, None, None]
        a = a - (a @ np.swapaxes(row, 1, 2)) * row
    return basis, squares[:, -1] > _DEPENDENT_SQUARE * squares[:, 0]
