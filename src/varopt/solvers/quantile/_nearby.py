r"""Many quantile regressions that differ a little from one that is solved, as the refits of a bootstrap do.

With residuals r_i of the solved one, its neighbour with weights v_i and residuals e_i (of the same coefficients) moves
the coefficients by the minimiser of

    sum_i v_i rho(e_i - x_i'd),    rho(e) = q e + (-e)_+ .                                                          (1)

One Newton step on the smoothed sum, d = H^{-1} X'(v psi(e)), leaves an error of a smaller order [Bahadur66], so that
few rows are near enough to their kink to be on another side of it than there. The others are frozen on their piece:

    g'd + sum_near v_i (x_i'd - e_i)_+,    g = sum_far v_i [x_i'd > e_i] x_i - q sum_i v_i x_i.                      (2)

A few more Newton steps on (2), the noise of its rows falling, freeze most of those, and what is left is a small linear
programme, solved from vertex to vertex. Where no frozen row turns out to be on the other side, its solution is that of
(1); else those rows join the near ones. The idea is the preprocessing of [PortnoyKoenker97], as
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

__all__ = ["Centre", "near_problem", "nearby", "reaches"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

# Tuned on a quantile of 20,000 x 50: a third of the near rows, or noise that falls faster, takes three times as long.
_NEAR_AFTER = 30  # rows a variable that are near after the first step
_RESTING_ROWS = 4  # rows a variable that the linear programme has
_NOISE = (0.35, 0.12, 0.04)  # of the rows of (2), as shares of how far the near ones reach
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
    Four products of X with an (n, k) matrix, which is also the memory it takes a few of, and for each neighbour some
    ten exchanges of a basis, O(p^3) each.
    """
    X, q = centre.X, centre.level
    at = np.broadcast_to(centre.residual[:, None] if residuals is None else residuals, weights.shape)
    psi = centre.score[:, None] if residuals is None else np.where(at < 0.0, q - 1.0, q)
    try:
        reach, factor = reaches(X, centre.hessian), scipy.linalg.cho_factor(centre.hessian)
    except np.linalg.LinAlgError:  # columns that are, but for rounding, made of others
        return np.full((weights.shape[1], X.shape[1]), np.nan)
    moves = scipy.linalg.cho_solve(factor, X.T @ (weights * psi))
    first = at - X @ moves
    ratio = np.where(weights > 0.0, np.abs(first) / reach[:, None], np.inf)
    count = min(_NEAR_AFTER * X.shape[1], X.shape[0])
    far = ratio > np.partition(ratio, count - 1, axis=0)[count - 1]
    gradient = X.T @ (weights * ((far & (first < 0.0)) - q))
    for k in range(moves.shape[1]):
        near = np.flatnonzero(~far[:, k] & (weights[:, k] > 0.0))
        moves[:, k] = near_problem(
            gradient[:, k], _rows(X, near), at[near, k], weights[near, k], reach[near], moves[:, k]
        )
    second = at - X @ moves
    wrong = far & (weights > 0.0) & ((second < 0.0) != (first < 0.0))
    for k in map(int, np.flatnonzero(wrong.any(axis=0))):
        begin = first[:, k] if np.isnan(moves[:, k]).any() else second[:, k]
        moves[:, k] = _again(centre, at[:, k], weights[:, k], begin, reach, 2 * count)
    return np.ascontiguousarray(moves.T)


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
    farthest = float(np.max(np.abs(a @ move - e) / reach))
    for share in _NOISE:
        sigma = share * farthest * reach
        z = (a @ move - e) / sigma
        density = np.exp(-0.5 * z * z) / (math.sqrt(2.0 * math.pi) * sigma)
        try:
            factor = scipy.linalg.cho_factor(a.T @ (a * (weight * density)[:, None]))
        except np.linalg.LinAlgError:  # too few rows are within the noise
            break
        step = scipy.linalg.cho_solve(factor, gradient + a.T @ (weight * ndtr(z)))
        if not np.max(np.abs(a @ step) / reach) <= farthest:  # beyond the near rows: the noise fell too fast
            break
        move = move - step
    return move


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
