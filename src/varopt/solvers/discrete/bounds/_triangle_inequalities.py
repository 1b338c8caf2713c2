r"""The semidefinite relaxation tightened by triangle inequalities, for small dense problems.

Of three spins an even number of products is negative: a X_ij + b X_ik + c X_jk >= -1 for signs with abc = 1. With
multipliers y of the diagonal and gamma >= 0 of the triangles, Z = M/2 - Diag(y) - sum_t gamma_t A_t, every point has

    s'Ms / 2 = <Z, ss'> + sum(y) + sum_t gamma_t <A_t, ss'>  >=  sum(y) - sum(gamma) + n min(0, lambda_min(Z)).      (1)

The multipliers come from a regularised dual that is smooth, hence L-BFGS-B [KMR14]; the bound is proved from them:

    max over y, gamma >= 0 of  sum(y) - sum(gamma) - |[-Z]_+|^2 / (2 alpha),    X = [-Z]_+ / alpha,                  (2)

whose derivatives are 1 - X_ii in y_i and -1 - <A_t, X> in gamma_t: how far X is from feasible.

Where the relaxation is tight, Z has the optimal spins in its kernel and the bound only tends to their energy. But all
others are then away from the kernel: for spins t other than s and -s, |s't| <= n - 2, and for every c

    <Z, tt'> = <Z + c ss'/n, tt'> - c (s't)^2 / n  >=  n lambda_min(Z + c ss'/n) - c (n - 2)^2 / n,                  (3)

about 4 c where c is the second smallest eigenvalue of Z. Once that is more than the gap, s is optimal.

KMR14: N. Krislock, J. Malick and F. Roupin, *Improved semidefinite bounding procedure for solving Max-Cut problems to
optimality*, Mathematical Programming 143, 2014.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete.bounds._smallest_eigenvalue import cholesky_lower_bound

__all__ = ["TriangleDual", "tighten"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_SIGNS = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
# Set by hand; the proofs of the suite `discrete` (`docs/benchmarks/bits.md`) are what they give.
_REGULARISATIONS = (1.0, 0.1, 0.01, 0.001)  # relative, and what the bound loses falls with it
_SEPARATIONS = 3  # searches for violated triangles at each
_CUTS = 8  # triangles added in a search, as a multiple of n
_VIOLATED_TRIANGLE = 1e-2  # by which -1 is missed, at least
_LBFGS_ITERATIONS = 60  # between two searches, at most


@dataclass(frozen=True)
class TriangleDual:
    """Multipliers, the bounds they prove, and the primal matrix that goes with them."""

    bound: float  # on all spins
    diagonal: Vector
    triples: Index  # (T, 3)
    signs: Vector  # (T, 3)
    gamma: Vector  # (T,)
    primal: Vector  # (n, n), about the optimal X
    spins: Vector  # the best that rounding it gave,
    value: float  # their value,
    rounding: float  # which is off by this at most,
    apart: float  # and a bound on all spins but these and their negatives

    @property
    def lower(self) -> float:
        """What no spins fall below."""
        return max(self.bound, min(self.value - self.rounding, self.apart))

    def without(self, spin: int) -> TriangleDual:
        """The multipliers for the problem in which a spin was merged into another: a start."""
        keep = ~np.any(self.triples == spin, axis=1)
        triples = self.triples[keep]
        return _start(
            np.delete(self.diagonal, spin),
            triples - (triples > spin),
            self.signs[keep],
            self.gamma[keep],
            np.delete(np.delete(self.primal, spin, 0), spin, 1),
        )


def tighten(
    matrix: Vector, enough: float, start: TriangleDual | None = None, expired: Callable[[], bool] = lambda: False
) -> TriangleDual:
    """Lower bounds on ``s'Ms / 2`` over spins, for a dense symmetric M of zero diagonal; it stops above `enough`.

    Cost: some hundreds of eigenvalue decompositions of order n. Memory: n^2, and n^3/6 for a moment in each search.
    """
    n = matrix.shape[0]
    unit = float(np.abs(matrix).sum() / max(1, n)) or 1.0
    if start is None:
        start = _start(-0.5 * np.abs(matrix).sum(axis=1), *_nothing(), np.eye(n))
    best = current = _prove(matrix, start)
    warm = start.gamma.size > 0
    for level, regularisation in enumerate(_REGULARISATIONS):
        if warm and level < 2:
            continue
        for _ in range(_SEPARATIONS):
            if max(best.bound, best.apart) >= enough or expired():
                return best
            current = _ascend(matrix, current, regularisation * unit / n)
            best = current if current.apart >= enough else max(best, current, key=lambda d: d.bound)
            grown = _separate(current)
            if grown is None:
                break
            current = grown
    return best


def _nothing() -> tuple[Index, Vector, Vector]:
    return np.empty((0, 3), np.intp), np.empty((0, 3)), np.empty(0)


def _start(diagonal: Vector, triples: Index, signs: Vector, gamma: Vector, primal: Vector) -> TriangleDual:
    """Multipliers of which nothing is known yet."""
    return TriangleDual(-np.inf, diagonal, triples, signs, gamma, primal, np.ones(diagonal.size), np.inf, 0.0, -np.inf)


def _dual_matrix(matrix: Vector, diagonal: Vector, triples: Index, signs: Vector, gamma: Vector) -> Vector:
    z = 0.5 * matrix  # Z = M/2 - Diag(y) - sum_t gamma_t A_t
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


def _ascend(matrix: Vector, dual: TriangleDual, alpha: float) -> TriangleDual:
    """Maximise the regularised dual (2)."""
    from scipy.optimize import minimize as scipy_minimize  # slow to load, and only proofs need it

    n = matrix.shape[0]
    primal = dual.primal

    def negative(point: Vector) -> tuple[float, Vector]:
        nonlocal primal
        y, gamma = point[:n], point[n:]
        values, vectors = np.linalg.eigh(-_dual_matrix(matrix, y, dual.triples, dual.signs, gamma))
        positive = values > 0.0
        part = vectors[:, positive]
        primal = (part * (values[positive] / alpha)) @ part.T  # X of (2)
        value = y.sum() - gamma.sum() - (values[positive] ** 2).sum() / (2.0 * alpha)  # (2)
        gradient = np.concatenate([1.0 - np.diagonal(primal), -1.0 - _products(primal, dual.triples, dual.signs)])
        return -float(value), -gradient

    start = np.concatenate([dual.diagonal, dual.gamma])
    limits = [(None, None)] * n + [(0.0, None)] * dual.gamma.size
    options: dict[str, Any] = {"maxiter": _LBFGS_ITERATIONS, "maxcor": 20, "ftol": 1e-9, "gtol": 1e-3}
    found = scipy_minimize(negative, start, jac=True, method="L-BFGS-B", bounds=limits, options=options)
    negative(found.x)
    return _prove(matrix, _start(found.x[:n], dual.triples, dual.signs, np.maximum(found.x[n:], 0.0), primal))


def _prove(matrix: Vector, dual: TriangleDual) -> TriangleDual:
    """The dual with spins and the bounds that its multipliers prove, rounding accounted for."""
    z = _dual_matrix(matrix, dual.diagonal, dual.triples, dual.signs, dual.gamma)
    spins, value = _rounded(matrix, dual.primal)
    size = float(np.abs(dual.diagonal).sum() + dual.gamma.sum() + np.abs(matrix).sum())
    rounding = 8.0 * np.finfo(np.float64).eps * (z.shape[0] + dual.gamma.size) * size
    constant = float(dual.diagonal.sum() - dual.gamma.sum()) - rounding
    bound = constant + z.shape[0] * min(0.0, cholesky_lower_bound(z))  # (1)
    own = 2.0 * float(np.finfo(np.float64).eps) * z.shape[0] * float(np.abs(matrix).sum())
    return replace(dual, bound=bound, spins=spins, value=value, rounding=own, apart=constant + _apart(z, spins))


def _apart(z: Vector, s: Vector) -> float:
    """A lower bound on ``<Z, tt'>`` over all spins t but s and -s; none where Z has more than s in its kernel."""
    n = s.size
    cost = float(np.linalg.eigvalsh(z)[1])
    if cost <= 0.0:
        return -np.inf
    rounding = 8.0 * float(np.finfo(np.float64).eps) * n * n * cost
    # (3): n lambda_min(Z + c ss'/n) - c (n - 2)^2 / n
    return n * cholesky_lower_bound(z + (cost / n) * np.outer(s, s)) - cost * (n - 2) ** 2 / n - rounding


def _rounded(matrix: Vector, primal: Vector) -> tuple[Vector, float]:
    """Spins by the signs of the leading eigenvectors, after one-flip descent, and their value."""
    _, vectors = np.linalg.eigh(primal)
    best, least = np.ones(len(vectors)), np.inf
    for column in vectors[:, -3:].T:
        s = np.where(column >= 0.0, 1.0, -1.0)
        while True:
            gain = 2.0 * s * (matrix @ s)
            k = int(gain.argmax())
            if gain[k] <= 1e-9:
                break
            s[k] = -s[k]
        value = 0.5 * float(s @ matrix @ s)
        if value < least:
            best, least = s, value
    return best, least


def _separate(dual: TriangleDual) -> TriangleDual | None:
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
            at = np.flatnonzero(total < -1.0 - _VIOLATED_TRIANGLE)
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
    return _start(
        dual.diagonal,
        np.concatenate([dual.triples[keep], triples[fresh]]),
        np.concatenate([dual.signs[keep], signs[fresh]]),
        np.concatenate([dual.gamma[keep], np.zeros(len(fresh))]),
        x,
    )
