r"""Many quantile regressions that differ a little from one that is solved, as the refits of a bootstrap do.

With residuals r_i of the solved one, its neighbour with weights v_i and residuals e_i (of the same coefficients) moves
the coefficients by the minimiser of

    sum_i v_i rho(e_i - x_i'd),    rho(e) = q e + (-e)_+ .                                                          (1)

One Newton step on the smoothed sum, d = H^{-1} X'(v psi(e)), leaves an error of a smaller order [Bahadur66], so that
few rows are near enough to their kink to be on another side of it than there. The others are frozen on their piece:

    g'd + sum_near v_i (x_i'd - e_i)_+,    g = sum_far v_i [x_i'd > e_i] x_i - q sum_i v_i x_i.                      (2)

A few more Newton steps on (2), the noise of its rows falling, freeze most of those, and what is left is a small linear
programme, solved from vertex to vertex. Where no frozen row turns out to be on the other side, its solution is that of
(1); else those rows join the near ones. The idea is the preprocessing of [PK97], as
[ChernozhukovFernandezValMelly22] use it for the bootstrap. Products with X are made for all neighbours at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtr

from varopt.solvers.finish import best_vertex
from varopt.solvers.quantile._side_by_side import side_by_side

__all__ = ["Centre", "near_problem", "nearby", "reaches"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Tuned on a quantile of 20,000 x 50: a third of the near rows, or noise that falls faster, takes two to three times as
# long.
_NEAR_AFTER = 25  # rows a variable that are near after the first step
_RESTING_ROWS = 4  # rows a variable that the linear programme has
_NOISE_SHARES = (0.35, 0.12, 0.05, 0.025)  # of the rows of (2), as shares of how far the near ones reach
_TAIL = 4.0  # deviations beyond which a row's curvature is not felt
_NEIGHBOR_ENTRIES = 1 << 19  # entries of the arrays of some neighbours, which stay in a cache
_SIDE_BY_SIDE = 20  # variables up to which neighbours are solved together
_EXCHANGES = 20  # the most a variable, and two hundred
_RESTING = 1e-9  # of the typical residual: rows nearer to the plane rest on it


@dataclass(frozen=True)
class Centre:
    """A solved quantile regression.

    Attributes
    ----------
    X : (n, p) array or sparse array
    residual : (n,) array
    level : float
    hessian : (p, p) array
        That of the smoothed sum of losses: ``sum_i f_i x_i x_i'`` with f_i the density of y_i at its quantile.
    """

    X: Any
    residual: Vector
    level: float
    hessian: Matrix

    @property
    def score(self) -> Vector:
        """Subgradients of the losses, in [q - 1, q], that balance: ``X'score = 0``."""
        psi = np.where(self.residual < 0.0, self.level - 1.0, self.level)
        resting = np.abs(self.residual) <= _RESTING * np.mean(np.abs(self.residual))
        if resting.any():
            rest = -(self.X[~resting].T @ psi[~resting])
            solution = np.linalg.lstsq(_rows(self.X, resting).T, rest, rcond=None)[0]
            psi[resting] = np.clip(solution, self.level - 1.0, self.level)
        return psi


def nearby(centre: Centre, weights: Matrix, residuals: Matrix | None = None) -> Matrix:
    """How the coefficients of each neighbour differ from those at the centre; NaN where no few steps lead there.

    Parameters
    ----------
    centre : Centre
    weights : (n, k) array
        The weights of each neighbour's rows, not negative.
    residuals : (n, k) array, optional
        The residuals of each neighbour at the coefficients of the centre; by default its own.

    Returns
    -------
    (k, p) array

    Notes
    -----
    Four products of X with a matrix of k columns, and for each neighbour about as many exchanges of a basis as there
    are variables, O(p^2) each. Memory: a few MB beside what is given.
    """
    X, k = centre.X, weights.shape[1]
    if not np.all(np.isfinite(centre.hessian)):  # residuals so many of which are equal that they have no density
        return np.full((k, X.shape[1]), np.nan)
    try:
        reach, factor = reaches(X, centre.hessian), scipy.linalg.cho_factor(centre.hessian)
    except np.linalg.LinAlgError:  # columns that are, but for rounding, made of others
        return np.full((k, X.shape[1]), np.nan)
    size, score = max(1, _NEIGHBOR_ENTRIES // X.shape[0]), centre.score
    moves = np.empty((k, X.shape[1]))
    for block in (slice(start, start + size) for start in range(0, k, size)):
        weight = np.ascontiguousarray(weights[:, block].T)
        at = centre.residual if residuals is None else np.ascontiguousarray(residuals[:, block].T)
        psi = score if residuals is None else np.where(at < 0.0, centre.level - 1.0, centre.level)
        begin = scipy.linalg.cho_solve(factor, X.T @ (weight * psi).T)
        moves[block] = _block(centre, weight, np.broadcast_to(at, weight.shape), reach, begin)
    return moves


def _block(centre: Centre, weight: Matrix, at: Matrix, reach: Vector, begin: Matrix) -> Matrix:
    """The moves of some neighbours, a row each as `weight` and `at`; `begin` are their first steps, a column each."""
    X, q = centre.X, centre.level
    moves, first, still = begin.T.copy(), at - (X @ begin).T, weight == 0.0
    ratio = np.abs(first)
    ratio /= reach
    ratio[still] = np.inf
    count = min(_NEAR_AFTER * X.shape[1], X.shape[0])
    far = ratio > _cuts(ratio, count)[:, None]
    below = first < 0.0
    gradient = (X.T @ (weight * ((far & below) - q)).T).T
    near = ~(far | still)
    solved = np.full_like(moves, np.nan)
    if X.shape[1] <= _SIDE_BY_SIDE and not sp.issparse(X):
        solved = side_by_side(
            gradient, X, at, weight, reach, near, moves, _NOISE_SHARES, _RESTING_ROWS * X.shape[1]
        )  # fmt: skip
    for k in map(int, np.flatnonzero(np.isnan(solved).any(axis=1))):
        rows = np.flatnonzero(near[k])
        solved[k] = near_problem(gradient[k], _rows(X, rows), at[k, rows], weight[k, rows], reach[rows], moves[k])
    moves = solved
    second = at - (X @ moves.T).T
    wrong = ((second < 0.0) != below) & far & ~still
    for k in map(int, np.flatnonzero(wrong.any(axis=1))):
        start = first[k] if np.isnan(moves[k]).any() else second[k]
        moves[k] = _again(centre, at[k], weight[k], start, reach, 2 * count)
    return moves


def _cuts(ratio: Matrix, count: int) -> Vector:
    """Below which about `count` entries of each row are: that of the first row, where it is right for others too."""
    cuts = np.full(len(ratio), np.partition(ratio[0], count - 1)[count - 1])
    counts = np.count_nonzero(ratio <= cuts[0], axis=1)
    for k in np.flatnonzero((2 * counts < count) | (counts > 2 * count)):
        cuts[k] = np.partition(ratio[k], count - 1)[count - 1]
    return cuts


def _again(centre: Centre, at: Vector, weight: Vector, begin: Vector, reach: Vector, count: int) -> Vector:
    """The solution for one neighbour, with more and more rows near; `begin` are residuals close to the solution."""
    X, q = centre.X, centre.level
    while True:
        count = min(count, at.size)
        ratio = np.where(weight > 0.0, np.abs(begin) / reach, np.inf)
        near = ratio <= np.partition(ratio, count - 1)[count - 1]
        gradient = X.T @ (weight * ((~near & (begin < 0.0)) - q))
        rows = np.flatnonzero(near & (weight > 0.0))
        start = np.asarray(np.linalg.lstsq(_rows(X, rows), (at - begin)[rows], rcond=None)[0], dtype=np.float64)
        move = near_problem(gradient, _rows(X, rows), at[rows], weight[rows], reach[rows], start)
        reached = at - X @ move
        if not np.any(~near & (weight > 0.0) & ((reached < 0.0) != (begin < 0.0))):
            return move
        if count == at.size:
            return np.full(X.shape[1], np.nan)
        count, begin = 2 * count, begin if np.isnan(move).any() else reached


def near_problem(gradient: Vector, a: Matrix, e: Vector, weight: Vector, reach: Vector, start: Vector) -> Vector:
    """The solution of (2); NaN where it was not found."""
    move = _descended(gradient, a, e, weight, reach, start)
    count = min(_RESTING_ROWS * gradient.size, e.size)
    while True:
        z = a @ move - e
        ratio = np.abs(z) / reach
        cut = float(np.partition(ratio, count - 1)[count - 1])
        near = ratio <= cut
        frozen = gradient + (weight * (~near & (z > 0.0))) @ a
        distance = ratio[near] / (cut or 1.0)
        found = best_vertex(frozen, a[near], -e[near], weight[near], distance, _EXCHANGES * (gradient.size + 10))
        if found is not None:
            move = found[0]
            if not np.any(~near & ((a @ move - e > 0.0) != (z > 0.0))):
                return move
        if count == e.size:
            return np.full_like(gradient, np.nan)
        count = min(2 * count, e.size)


def _descended(gradient: Vector, a: Matrix, e: Vector, weight: Vector, reach: Vector, move: Vector) -> Vector:
    """Newton steps on (2) under normal noise of its rows, that falls."""
    z = a @ move - e
    farthest = float(np.max(np.abs(z) / reach))
    for share in _NOISE_SHARES if farthest else ():  # where all rows rest, nothing is left to smooth
        sigma = share * farthest * reach
        scaled = z / sigma
        factor = _curvature(a, weight, scaled, sigma)
        if factor is None:
            break
        step = scipy.linalg.lapack.dpotrs(factor, gradient + (weight * ndtr(scaled)) @ a)[0]
        moved = a @ step
        if not np.max(np.abs(moved) / reach) <= farthest:  # beyond the near rows: the noise fell too fast
            break
        move, z = move - step, z - moved
    return move


def _curvature(a: Matrix, weight: Vector, z: Vector, sigma: Vector) -> Any:
    """The factor of the Hessian under noise; None where too few rows are within it."""
    inside = np.flatnonzero(np.abs(z) < _TAIL)
    density = np.exp(-0.5 * z[inside] ** 2) / (math.sqrt(2.0 * math.pi) * sigma[inside])
    root = a[inside] * np.sqrt(weight[inside] * density)[:, None]
    factor, failed = scipy.linalg.lapack.dpotrf(root.T @ root, clean=0)  # small: LAPACK's own call is half of the time
    return None if failed else factor


def reaches(X: Any, hessian: Matrix) -> Vector:
    """How far the plane moves at each row, in units of the coefficients' own error: ``sqrt(x_i' H^{-1} x_i)``."""
    inverse = np.linalg.inv(hessian)
    product = X @ inverse
    squares = X.multiply(product).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, product)
    reach = np.sqrt(np.maximum(np.asarray(squares).ravel(), 0.0))
    return np.asarray(np.maximum(reach, 1e-12 * reach.max(initial=1.0)))


def _rows(X: Any, rows: Any) -> Matrix:
    chosen = X[rows]
    return np.asarray(chosen.toarray() if sp.issparse(chosen) else chosen)
