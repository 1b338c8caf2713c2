r"""All quantiles of a regression, each from its neighbour: the quantile process.

From one level to the next the plane moves by a little, and by much the same as before. Rows that are far from where it
is expected are frozen on their side of it, as in `_nearby`; what is left,

    min g'd + sum_near v_i (x_i'd - e_i)_+,    g = sum_far v_i [e_i < 0] x_i - q sum_i v_i x_i,                      (1)

with residuals e at the expected plane, is solved from vertex to vertex. Sums over all rows are those of the neighbour,
less the rows that have changed sides. This is the preprocessing of [ChernozhukovFernandezValMelly22].

A vertex w, at which the rows B rest, is proved by multipliers u, those of all other rows at the ends of their ranges,

    u_i = q v_i where r_i > 0,  (q - 1) v_i where r_i < 0,    X_B'u_B = -X_N'u_N,    (q - 1) v_B <= u_B <= q v_B.   (2)

The exact solution of (2) lies within a ball around the computed one. Where that is within the ranges, the value at w is
above the optimum by no more than what the rows of B, and those whose side rounding leaves open, add to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.quantile._nearby import near_problem, reaches

__all__ = ["ProcessFit", "quantile_process"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_UNIT = 0.5 * float(np.finfo(np.float64).eps)
_PAIRWISE = 64.0  # units of rounding of a sum by halves, whatever its length
_SAFE = 1.0 + 1e-6  # makes up for what bounds of rounding lose by their own
_NEAR_AT_FIRST = 60  # rows a variable that are near to begin with: half as many take three times as long at 50,000 x 20
_NEAR_ATTEMPTS, _NEAR_AGAIN = 4, 4  # with twice as many each, or four times where they are far too few
_RESTING = 1e-9  # of the typical residual: rows nearer to the plane rest on it


class ProcessFit(NamedTuple):
    """A vertex, its mean loss, and how far it is above the optimum at most, the rounding of the mean included."""

    coef: Vector
    value: float
    gap: float


@dataclass
class _Data:
    """Rows, targets and weights that add up to one, and what bounds of rounding are made of."""

    X: Matrix
    y: Vector
    weight: Vector

    @cached_property
    def units(self) -> Vector:
        """Of the columns: the largest of their sizes."""
        return np.asarray(np.maximum(self.X.max(axis=0), -self.X.min(axis=0)))

    @cached_property
    def lengths(self) -> Vector:
        """Of the rows, in the units of the columns."""
        scaled = self.X / np.where(self.units > 0.0, self.units, 1.0)
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", scaled, scaled)))

    @cached_property
    def sums(self) -> Vector:
        """Of the sizes of each column, weighted."""
        return np.asarray(self.weight @ np.abs(self.X))

    @cached_property
    def total(self) -> Vector:
        """Of each column, weighted."""
        return np.asarray(self.weight @ self.X)

    @cached_property
    def sizes(self) -> Vector:
        """Of the targets."""
        return np.abs(self.y)


@dataclass
class _Place:
    """A plane, its residuals, and the sum of ``v_i x_i`` over the rows below it."""

    level: float
    coef: Vector
    residual: Vector
    below: Vector


def quantile_process(
    X: Matrix, y: Vector, weight: Vector, levels: Sequence[float], start: tuple[float, Vector],
    stop: Callable[[], bool], other: tuple[float, Vector] | None = None,
) -> Iterator[ProcessFit | None]:  # fmt: skip
    """The fits of levels that follow that of `start`, one after the other, until one does not lead on: None.

    Parameters
    ----------
    X, y, weight : array
        The data; weights positive, with sum one.
    levels : sequence of float
        In the order of their distance from the first, on one side of it.
    start : tuple of float and array
        A level and its coefficients.
    stop : callable
        Whether to end.
    other : tuple of float and array, optional
        Another level whose coefficients are known: from where the way to the first is gone on.
    """
    data = _Data(X, y, weight)
    residual = y - X @ start[1]
    here = _Place(start[0], start[1], residual, (weight * (residual < 0.0)) @ X)
    # Of the place before, the sum is of no account.
    before = None if other is None else _Place(other[0], other[1], y - X @ other[1], here.below)
    reach = reaches(X, X.T @ (weight[:, None] * X))
    for level in levels:
        there = None if stop() else _next(data, level, here, before, reach)
        fit = None if there is None else _proved(data, there)
        yield fit
        if there is None or fit is None:
            return
        before, here = here, there


def _next(data: _Data, level: float, here: _Place, before: _Place | None, reach: Vector) -> _Place | None:
    """The plane of a level near that of `here`, by (1)."""
    X, y, weight = data.X, data.y, data.weight
    ahead = 0.0 if before is None else (level - here.level) / (here.level - before.level)
    coef, expected = here.coef, here.residual
    if before is not None:
        coef = coef + ahead * (coef - before.coef)
        expected = expected + ahead * (expected - before.residual)
    count = min(_NEAR_AT_FIRST * X.shape[1] * (1 if before is not None else 4), y.size)
    for _ in range(_NEAR_ATTEMPTS):
        ratio = np.abs(expected) / reach
        near = ratio <= np.partition(ratio, count - 1)[count - 1]
        rows, far_below = np.flatnonzero(near), ~near & (expected < 0.0)
        below = _changed(data, here, far_below)
        gradient, none = below - level * data.total, np.zeros(coef.size)
        move = near_problem(gradient, X[rows], expected[rows], weight[rows], reach[rows], none)
        if np.isnan(move).any():  # the plane moves beyond the near rows
            if before is None or count == y.size:
                return None
            count = min(_NEAR_AGAIN * count, y.size)
            continue
        found = _at_rest(data, coef + move, rows)
        if found is None:
            return None
        residual = y - X @ found
        if not np.any(~near & ((residual < 0.0) != far_below)):
            return _Place(level, found, residual, below + (weight[rows] * (residual[rows] < 0.0)) @ X[rows])
        if count == y.size:
            return None
        coef, expected, count = found, residual, min(2 * count, y.size)
    return None


def _changed(data: _Data, here: _Place, below: NDArray[np.bool_]) -> Vector:
    """The sum of ``v_i x_i`` over some rows, from that over the rows below `here`."""
    was = here.residual < 0.0
    rows = np.flatnonzero(was != below)
    sign = np.where(below[rows], data.weight[rows], -data.weight[rows])
    return np.asarray(here.below + sign @ data.X[rows])


def _at_rest(data: _Data, coef: Vector, rows: NDArray[np.intp]) -> Vector | None:
    """The coefficients to the last digits, by the rows that rest; None where these are not as many as variables."""
    residual = data.y[rows] - data.X[rows] @ coef
    resting = rows[np.abs(residual) <= _RESTING * float(np.mean(np.abs(data.y)))]
    if resting.size != coef.size:
        return None
    try:
        return np.asarray(coef + np.linalg.solve(data.X[resting], data.y[resting] - data.X[resting] @ coef))
    except np.linalg.LinAlgError:
        return None


def _proved(data: _Data, place: _Place) -> ProcessFit | None:
    """The bracket of a vertex, by (2); None where its multipliers are too close to the ends of their ranges."""
    X, weight, q, residual = data.X, data.weight, place.level, place.residual
    n, p = X.shape
    size = np.abs(residual)
    far = float(np.linalg.norm(data.units * place.coef))
    error = _SAFE * _UNIT * (p + 4) * (data.sizes + data.lengths * far)  # of residuals
    resting = np.argpartition(size, p - 1)[:p]
    basis = X[resting]
    open_rows = size <= error
    open_rows[resting] = True
    # Sums over all rows anew: what was carried along is not known to the last digits.
    negative = weight * (residual < 0.0)
    negative[resting] = 0.0
    others = q * (data.total - weight[resting] @ basis) - negative @ X
    sums = _SAFE * _UNIT * (n + 8) * 3.0 * data.sums
    try:
        inverse = np.linalg.inv(basis)
    except np.linalg.LinAlgError:
        return None
    dual = -(others @ inverse)
    left = np.abs(dual @ basis + others) + sums + _UNIT * (p + 4) * (np.abs(dual) @ np.abs(basis) + np.abs(others))
    wrong = float(np.abs(np.eye(p) - basis @ inverse).sum(axis=0).max())
    if not wrong < 0.5:
        return None
    radius = float((left @ np.abs(inverse)).max()) / (1.0 - wrong) * _SAFE
    if np.any(dual + radius > q * weight[resting]) or np.any(dual - radius < (q - 1.0) * weight[resting]):
        return None
    value = float(np.sum(weight * np.maximum(q * residual, (q - 1.0) * residual)))
    rounding = _PAIRWISE * _UNIT * value + float(np.sum(weight * error))
    return ProcessFit(place.coef, value, 2.0 * rounding + float(np.sum((weight * (size + error))[open_rows])) * _SAFE)
