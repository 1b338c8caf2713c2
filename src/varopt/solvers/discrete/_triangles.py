r"""The semidefinite relaxation tightened by triangle inequalities, for small dense problems.

Of three spins an even number of products is negative: a X_ij + b X_ik + c X_jk >= -1 for signs with abc = 1. With
multipliers y of the diagonal and gamma >= 0 of the triangles, Z = M/2 - Diag(y) - sum_t gamma_t A_t, every point has

    s'Ms / 2 = <Z, ss'> + sum(y) + sum_t gamma_t <A_t, ss'>  >=  sum(y) - sum(gamma) + n min(0, lambda_min(Z)).

The multipliers come from a regularised dual that is smooth, hence L-BFGS-B [KMR14]; the bound is proved from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize as scipy_minimize

from varopt.solvers.discrete._eigenvalue import cholesky_lower_bound

__all__ = ["Dual", "tighten"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_SIGNS = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
_REGULARISATIONS = (1.0, 0.1, 0.01, 0.001)  # relative, and what the bound loses falls with it
_ROUNDS = 3  # searches for violated triangles at each
_CUTS = 8  # triangles added in a search, as a multiple of n
_VIOLATED = 1e-2
_ITERATIONS = 60


@dataclass(frozen=True)
class Dual:
    """Multipliers, the bound they prove, and the primal matrix that goes with them."""

    bound: float
    diagonal: Vector
    triples: Index  # (T, 3)
    signs: Vector  # (T, 3)
    gamma: Vector  # (T,)
    primal: Vector  # (n, n), about the optimal X

    def without(self, spin: int) -> Dual:
        """The multipliers for the problem in which a spin was merged into another: a start."""
        keep = ~np.any(self.triples == spin, axis=1)
        triples = self.triples[keep]
        return Dual(
            -np.inf,
            np.delete(self.diagonal, spin),
            triples - (triples > spin),
            self.signs[keep],
            self.gamma[keep],
            np.delete(np.delete(self.primal, spin, 0), spin, 1),
        )


def tighten(
    matrix: Vector, enough: float, start: Dual | None = None, expired: Callable[[], bool] = lambda: False
) -> Dual:
    """A lower bound on ``s'Ms / 2`` over spins, for a dense symmetric M of zero diagonal; it stops above `enough`.

    Cost: some hundreds of eigenvalue decompositions of order n. Memory: n^2, and n^3/6 for a moment in each search.
    """
    n = matrix.shape[0]
    unit = float(np.abs(matrix).sum() / max(1, n)) or 1.0
    if start is None:
        start = Dual(-np.inf, -0.5 * np.abs(matrix).sum(axis=1), *_nothing(), np.eye(n))
    best = current = _prove(matrix, start)
    warm = start.gamma.size > 0
    for level, regularisation in enumerate(_REGULARISATIONS):
        if warm and level < 2:
            continue
        for _ in range(_ROUNDS):
            if best.bound >= enough or expired():
                return best
            current = _ascend(matrix, current, regularisation * unit / n)
            best = max(best, current, key=lambda d: d.bound)
            grown = _separate(current)
            if grown is None:
                break
            current = grown
    return best


def _nothing() -> tuple[Index, Vector, Vector]:
    return np.empty((0, 3), np.intp), np.empty((0, 3)), np.empty(0)


def _dual_matrix(matrix: Vector, diagonal: Vector, triples: Index, signs: Vector, gamma: Vector) -> Vector:
    z = 0.5 * matrix
    z[np.diag_indices_from(z)] -= diagonal
    if gamma.size:
        half = np.zeros(z.size)
        n = z.shape[0]
        for k, (i, j) in enumerate(itertools.combinations(range(3), 2)):
            at = triples[:, i] * n + triples[:, j]
            half += np.bincount(at, weights=0.5 * gamma * signs[:, k], minlength=z.size)
        z = z - half.reshape(n, n) - half.reshape(n, n).T
    return z


def _products(x: Vector, triples: Index, signs: Vector) -> Vector:
    """``<A_t, X>``."""
    pairs = [x[triples[:, i], triples[:, j]] for i, j in itertools.combinations(range(3), 2)]
    return np.asarray(sum(s * p for s, p in zip(signs.T, pairs, strict=True)))


def _ascend(matrix: Vector, dual: Dual, alpha: float) -> Dual:
    """Maximise ``sum(y) - sum(gamma) - |[-Z]_+|^2 / (2 alpha)``."""
    n = matrix.shape[0]
    primal = dual.primal

    def negative(point: Vector) -> tuple[float, Vector]:
        nonlocal primal
        y, gamma = point[:n], point[n:]
        values, vectors = np.linalg.eigh(-_dual_matrix(matrix, y, dual.triples, dual.signs, gamma))
        positive = values > 0.0
        part = vectors[:, positive]
        primal = (part * (values[positive] / alpha)) @ part.T
        value = y.sum() - gamma.sum() - (values[positive] ** 2).sum() / (2.0 * alpha)
        slope = np.concatenate([1.0 - np.diagonal(primal), -1.0 - _products(primal, dual.triples, dual.signs)])
        return -float(value), -slope

    start = np.concatenate([dual.diagonal, dual.gamma])
    limits = [(None, None)] * n + [(0.0, None)] * dual.gamma.size
    options: dict[str, Any] = {"maxiter": _ITERATIONS, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-3}
    found = scipy_minimize(negative, start, jac=True, method="L-BFGS-B", bounds=limits, options=options)
    negative(found.x)
    moved = Dual(-np.inf, found.x[:n], dual.triples, dual.signs, np.maximum(found.x[n:], 0.0), primal)
    return _prove(matrix, moved)


def _prove(matrix: Vector, dual: Dual) -> Dual:
    """The dual with the bound that its multipliers prove, rounding accounted for."""
    z = _dual_matrix(matrix, dual.diagonal, dual.triples, dual.signs, dual.gamma)
    smallest = cholesky_lower_bound(z)
    size = float(np.abs(dual.diagonal).sum() + dual.gamma.sum() + np.abs(matrix).sum())
    rounding = 8.0 * np.finfo(np.float64).eps * (z.shape[0] + dual.gamma.size) * size
    bound = float(dual.diagonal.sum() - dual.gamma.sum()) + z.shape[0] * min(0.0, smallest) - rounding
    return Dual(bound, dual.diagonal, dual.triples, dual.signs, dual.gamma, dual.primal)


def _separate(dual: Dual) -> Dual | None:
    """Triangles that weigh nothing dropped, the most violated added; None where none is violated."""
    x = dual.primal
    n = x.shape[0]
    keep = dual.gamma > 1e-9 * max(1.0, float(dual.gamma.max(initial=0.0)))
    known = {(*t, *s) for t, s in zip(dual.triples[keep].tolist(), dual.signs[keep].tolist(), strict=True)}
    found: list[tuple[Index, Vector, Vector]] = []
    for i in range(n - 2):
        j, k = np.triu_indices(n - i - 1, 1)
        j, k = j + i + 1, k + i + 1
        for signs in _SIGNS:
            total = signs[0] * x[i, j] + signs[1] * x[i, k] + signs[2] * x[j, k]
            at = np.flatnonzero(total < -1.0 - _VIOLATED)
            if at.size:
                triples = np.stack([np.full(at.size, i), j[at], k[at]], axis=1)
                found.append((triples, np.tile(signs, (at.size, 1)), total[at]))
    if not found:
        return None
    triples, signs, total = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(total)[: _CUTS * n]
    fresh = [t for t in order.tolist() if (*triples[t].tolist(), *signs[t].tolist()) not in known]
    if not fresh:
        return None
    return Dual(
        -np.inf,
        dual.diagonal,
        np.concatenate([dual.triples[keep], triples[fresh]]),
        np.concatenate([dual.signs[keep], signs[fresh]]),
        np.concatenate([dual.gamma[keep], np.zeros(len(fresh))]),
        x,
    )
