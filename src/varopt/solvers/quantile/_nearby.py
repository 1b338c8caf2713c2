r"""Many quantile regressions that differ a little from one that is solved, as the refits of a bootstrap do.

With residuals r_i of the solved one, its neighbour with weights v_i and residuals e_i (of the same coefficients) moves
the coefficients by the minimiser of

    sum_i v_i rho(e_i - x_i'd),    rho(e) = q e + (-e)_+ .                                                          (1)

One Newton step on the smoothed sum, d = H^{-1} X'(v psi(e)), leaves an error of a smaller order [Bahadur66], so that
few rows are near enough to their kink to be on another side of it than there. The others are frozen on their piece:

    g'd + sum_near v_i (x_i'd - e_i)_+,    g = sum_far v_i [x_i'd > e_i] x_i - q sum_i v_i x_i,                      (2)

which is a small linear programme, solved from vertex to vertex. Where no frozen row turns out to be on the other side,
its solution is that of (1); else those rows join the near ones. The idea is the preprocessing of [PortnoyKoenker97], as
[ChernozhukovFernandezValMelly22] use it for the bootstrap. Products with X are made for all neighbours at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.finish import best_vertex

__all__ = ["Centre", "nearby"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_NEAR = 8  # rows a variable that are not frozen at first
_ATTEMPTS = 8
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
        resting = np.abs(self.residual) <= _RESTING * np.median(np.abs(self.residual))
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
    at = centre.residual[:, None] if residuals is None else residuals
    psi = centre.score[:, None] if residuals is None else np.where(at < 0.0, q - 1.0, q)
    factor = scipy.linalg.cho_factor(centre.hessian)
    reach = _reach(X, centre.hessian)[:, None]
    moves = scipy.linalg.cho_solve(factor, X.T @ (weights * psi))
    first = at - X @ moves
    ratio = np.abs(first) / reach
    count = min(_NEAR * X.shape[1], X.shape[0])
    cut = np.partition(np.where(weights > 0.0, ratio, np.inf), count - 1, axis=0)[count - 1]
    far = ratio > cut
    gradient = X.T @ (weights * ((far & (first < 0.0)) - q))
    for k in range(moves.shape[1]):
        moves[:, k] = _small(X, ~far[:, k], at[:, k % at.shape[1]], weights[:, k], gradient[:, k], ratio[:, k], cut[k])
    second = at - X @ moves
    wrong = far & ((second < 0.0) != (first < 0.0)) & (weights > 0.0)
    for k in np.flatnonzero(wrong.any(axis=0) | np.isnan(moves).any(axis=0)):
        begin = first[:, k] if np.isnan(moves[:, k]).any() else second[:, k]
        near = ~far[:, k] | wrong[:, k]
        moves[:, k] = _again(centre, near, at[:, k % at.shape[1]], weights[:, k], begin, reach[:, 0])
    return np.ascontiguousarray(moves.T)


def _small(X: Any, near: Any, at: Vector, weight: Vector, gradient: Vector, ratio: Vector, cut: float) -> Vector:
    """The solution of (2), NaN where it was not found."""
    rows = np.flatnonzero(near & (weight > 0.0))
    found = best_vertex(gradient, _rows(X, rows), -at[rows], weight[rows], ratio[rows] / (cut or 1.0))
    return np.full(X.shape[1], np.nan) if found is None else found[0]


def _again(centre: Centre, near: Any, at: Vector, weight: Vector, begin: Vector, reach: Vector) -> Vector:
    """The solution for one neighbour, with more and more rows that are not frozen."""
    X, q, count = centre.X, centre.level, _NEAR * centre.X.shape[1]
    for _ in range(_ATTEMPTS):
        count = min(2 * count, at.size)
        ratio = np.abs(begin) / reach
        cut = float(np.partition(ratio, count - 1)[count - 1])
        near = near | (ratio <= cut)
        gradient = X.T @ (weight * ((~near & (begin < 0.0)) - q))
        move = _small(X, near, at, weight, gradient, ratio, cut)
        if np.isnan(move).any():
            continue
        reached = at - X @ move
        wrong = ~near & ((reached < 0.0) != (begin < 0.0)) & (weight > 0.0)
        if not wrong.any():
            return move
        near, begin = near | wrong, reached
    return np.full(X.shape[1], np.nan)


def _reach(X: Any, hessian: Matrix) -> Vector:
    """How far the plane moves at each row, in units of the coefficients' own error: ``sqrt(x_i' H^{-1} x_i)``."""
    inverse = np.linalg.inv(hessian)
    product = X @ inverse
    squares = X.multiply(product).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, product)
    reach = np.sqrt(np.maximum(np.asarray(squares).ravel(), 0.0))
    return np.maximum(reach, 1e-12 * reach.max(initial=1.0))


def _rows(X: Any, rows: Any) -> Matrix:
    chosen = X[rows]
    return np.asarray(chosen.toarray() if sp.issparse(chosen) else chosen)
