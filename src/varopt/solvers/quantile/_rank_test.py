r"""Rank tests of a coefficient of a quantile regression, and their inversion to an interval [Koenker94].

Held at b, the coefficient j leaves a regression of y - b x_j on the other columns. Its dual point a in [0, 1]^n, one
above the plane and zero below, are the rank scores of [GutenbrunnerJureckova92]:

    X_{-j}' a = (1 - q) X_{-j}' 1,    T_j(b) = x_j'(a - (1 - q) 1) / sqrt(q (1 - q) Q_j),                            (1)

with Q_j the squared length of what the other columns leave of x_j. T_j falls in b from step to step. From the optimum,
where it is zero, the interval is found by parametric programming: the coefficients move along an edge,

    x_h'd = 0 for the resting rows h,    d_j = 1 or -1,                                                             (2)

up to the first row that is met; its score goes to the other end of [0, 1], or the score of a resting row gets to an
end before, which row then leaves,

    sum_h u_h x_h + m e_j = -x_s.                                                                                   (3)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["rank_interval", "rank_statistic"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_TINY_STEP = 1e-9  # share of what is refused below which a step is rounding


@dataclass
class _Walk:
    """Where the parametric programme stands: the residuals, the scores, and the rows that rest."""

    X: Matrix
    residual: Vector
    score: Vector
    basis: NDArray[np.intp]  # the resting rows; the place of that which left holds -1: there, coefficient j is held
    column: int

    def matrix(self) -> Matrix:
        rows = self.X[self.basis]
        rows[self.basis < 0] = np.eye(self.X.shape[1])[self.column]
        return rows

    def leave(self, rates: Vector, most: float) -> tuple[float, int | None]:
        """How far the scores of resting rows go at these rates until one is at an end, and whose place that is."""
        scores = self.score[self.basis]
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(rates > 0.0, (1.0 - scores) / rates, np.where(rates < 0.0, -scores / rates, np.inf))
        room[self.basis < 0] = np.inf
        place = int(np.argmin(room))
        step = max(0.0, float(room[place]))
        step, out = (step, place) if step < most else (most, None)
        inside = self.basis >= 0
        self.score[self.basis[inside]] = np.clip(scores + step * rates, 0.0, 1.0)[inside]
        if out is not None:
            self.score[self.basis[out]] = 1.0 if rates[out] > 0.0 else 0.0
        return step, out


def rank_statistic(X: Matrix, resting: NDArray[np.intp], residual: Vector, x: Vector, level: float) -> float:
    """``x'(a - (1 - q) 1)`` for the rank scores of a regression on X, of which as many rows rest as it has columns."""
    score = _scores(X, resting, residual, level)
    return float(x @ (score - (1.0 - level)))


def rank_interval(
    X: Matrix, basis: NDArray[np.intp], residual: Vector, level: float, column: int, scale: float, cutoff: float,
    tie: float = 0.0,
) -> tuple[float, float]:  # fmt: skip
    """By how much coefficient `column` may be less and more before the rank test refuses it.

    Parameters
    ----------
    X : (n, p) array
    basis : (p,) array of int
        The rows that rest at the optimum.
    residual : (n,) array
        Those at the optimum.
    level, column : float, int
        q and j.
    scale : float
        ``sqrt(q (1 - q) Q_j)``.
    cutoff : float
        The absolute value of T beyond which b is refused. T is interpolated between its steps, as `quantreg` does.
    tie : float
        Rows that are so near to the plane when another row meets it meet it there too: their steps are one.

    Returns
    -------
    tuple of float
        Both at least zero, infinite where nothing is refused.

    Notes
    -----
    O(n p + p^3) for a step, of which there are about sqrt(n) in all.
    """
    scores = _scores(X, basis, residual, level)
    below, above = (_end(X, basis, residual, scores, column, cutoff * scale, tie, side) for side in (-1.0, 1.0))
    return below, above


def _scores(X: Matrix, basis: NDArray[np.intp], residual: Vector, level: float) -> Vector:
    score = np.where(residual > 0.0, 1.0, 0.0)
    score[basis] = 0.0
    rest = (1.0 - level) * X.sum(axis=0) - score @ X
    score[basis] = np.clip(np.linalg.solve(X[basis].T, rest), 0.0, 1.0)
    return score


def _end(
    X: Matrix,
    basis: NDArray[np.intp],
    residual: Vector,
    scores: Vector,
    column: int,
    most: float,
    tie: float,
    side: float,
) -> float:
    walk = _Walk(X, residual.copy(), scores.copy(), basis.copy(), column)
    held = np.eye(X.shape[1])[column]
    step, place = walk.leave(np.linalg.solve(X[basis].T, -side * held), math.inf)
    if place is None:
        return math.inf
    walk.residual[basis] = 0.0
    walk.basis[place] = -1
    moved, statistic = 0.0, step
    start, before = 0.0, 0.0  # of the step before
    for _ in range(10 * X.shape[0]):  # many times more than there are, should equal rows go round in a circle
        direction = np.linalg.solve(walk.matrix(), np.where(walk.basis < 0, side, 0.0))  # (2)
        rates = X @ direction
        rates[walk.basis[walk.basis >= 0]] = 0.0
        above = 2.0 * walk.score - 1.0  # the side a row is on; equal rows meet the plane together, one after the other
        with np.errstate(divide="ignore", invalid="ignore"):
            time = np.where(above * rates > 0.0, np.maximum(above * walk.residual, 0.0) / np.abs(rates), np.inf)
        entering = int(np.argmin(time))
        length = float(time[entering])
        if length == math.inf or length * abs(rates[entering]) > tie:  # what steps here has done so
            if statistic > most:
                return start + (moved - start) * (most - before) / (statistic - before)
            if statistic - before > _TINY_STEP * most:  # where n q is whole, rows may meet the plane and change nothing
                start, before = moved, statistic
        if length == math.inf:
            return math.inf
        moved += length
        walk.residual -= length * rates
        statistic += side * _enter(walk, entering)
    return math.inf


def _enter(walk: _Walk, entering: int) -> float:
    """The row that was met changes sides, or takes the place of one that rests: by how much ``-x_j'a`` grows."""
    sign = -1.0 if walk.score[entering] > 0.5 else 1.0
    rates = np.linalg.solve(walk.matrix().T, -sign * walk.X[entering])  # (3)
    held = walk.basis < 0
    gain = float(rates[held][0])
    rates[held] = 0.0
    step, place = walk.leave(rates, 1.0)
    walk.residual[entering] = 0.0
    walk.score[entering] += sign * step
    if place is not None:
        walk.basis[place] = entering
    return gain * step
