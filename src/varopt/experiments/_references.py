"""Optima from other methods, without varopt: what the tour's brackets have to contain.

An ``_optimum`` is ``(lower, upper)``, the values of a dual and of a primal feasible point: the optimum lies between
them whatever the method did.
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

__all__ = ["all_states", "box_relaxation", "kernel_machine_optimum", "lasso_optimum", "quantile_optimum"]

Vector = NDArray[np.float64]


def lasso_optimum(X: Vector, y: Vector, penalty: float, sweeps: int = 1000) -> tuple[float, float]:
    """Coordinate descent (the paper's "shooting") until the duality gap is at rounding level."""
    gram, correlation = X.T @ X, X.T @ y
    w = np.zeros(X.shape[1])
    lower, upper = -np.inf, np.inf
    for _ in range(sweeps):
        for i in range(w.size):
            rest = correlation[i] - gram[i] @ w + gram[i, i] * w[i]
            w[i] = np.sign(rest) * max(abs(rest) - 0.5 * penalty, 0.0) / gram[i, i]
        residual = y - X @ w
        upper = min(upper, float(residual @ residual + penalty * np.abs(w).sum()))
        dual = 2.0 * residual * min(1.0, penalty / np.max(np.abs(2.0 * X.T @ residual)))  # |X'u| <= penalty
        lower = max(lower, float(y @ dual - 0.25 * dual @ dual))
        if upper - lower <= 1e-13 * upper:
            break
    return lower, upper


def kernel_machine_optimum(K: Vector, y: Vector, cost: float) -> tuple[float, float]:
    """The dual quadratic programme, ``max sum a - a'Ka/4`` with ``0 <= a <= C`` and ``y'a = 0``, by SciPy's SLSQP."""
    solution = scipy.optimize.minimize(
        lambda a: 0.25 * a @ K @ a - a.sum(),
        np.full(y.size, 0.1 * cost),
        jac=lambda a: 0.5 * K @ a - 1.0,
        bounds=[(0.0, cost)] * y.size,
        constraints={"type": "eq", "fun": lambda a: y @ a, "jac": lambda a: y},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    a = balanced(np.clip(solution.x, 0.0, cost), y)
    outputs = 0.5 * K @ a
    # The best offset for these coefficients makes some margin exactly one.
    losses = [np.maximum(1.0 - outputs - b * y, 0.0).sum() for b in y * (1.0 - outputs)]
    return float(a.sum() - 0.25 * a @ K @ a), float(0.25 * a @ K @ a + cost * min(losses))


def balanced(a: Vector, y: Vector) -> Vector:
    """Non-negative `a` with the heavier class scaled down until ``y'a = 0``: feasible in the dual whatever it was."""
    plus, minus = a[y > 0.0].sum(), a[y < 0.0].sum()
    return np.asarray(a * np.where(y > 0.0, min(1.0, minus / plus), min(1.0, plus / minus)))


def quantile_optimum(X: Vector, y: Vector, level: float) -> tuple[float, float]:
    """The linear programme, by HiGHS: ``min level 1'r + (1 - level) 1's`` with ``Xw + r - s = y`` and ``r, s >= 0``."""
    n, p = X.shape
    programme = scipy.optimize.linprog(
        np.concatenate([np.zeros(p), np.full(n, level), np.full(n, 1.0 - level)]),
        A_eq=np.hstack([X, np.eye(n), -np.eye(n)]),
        b_eq=y,
        bounds=[(None, None)] * p + [(0.0, None)] * (2 * n),
    )
    residual = y - X @ programme.x[:p]
    upper = float(np.sum(np.maximum(level * residual, (level - 1.0) * residual)))
    return float(y @ feasible(programme.eqlin.marginals, X, level)), upper


def feasible(u: Vector, X: Vector, level: float) -> Vector:
    """`u` made feasible in the dual of quantile regression: ``X'u = 0``, then scaled into ``[level - 1, level]``."""
    projected = u - X @ np.linalg.lstsq(X, u)[0]
    return np.asarray(projected / max(1.0, np.max(projected) / level, np.max(-projected) / (1.0 - level)))


def all_states(n: int) -> Vector:
    """All vectors of n bits."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=n)))


def box_relaxation(A: Vector, b: Vector) -> float:
    """An upper bound on ``max x'Ax + b'x`` over bits.

    As ``x_i^2 = x_i``, moving enough of the diagonal into b makes the objective concave on the box and leaves it alone
    on the bits. A concave function lies below its tangents, so the value need not even be maximised exactly.
    """
    n = b.size
    shift = float(np.linalg.eigvalsh(A)[-1])
    Q, c = A - shift * np.eye(n), b + shift
    found = scipy.optimize.minimize(
        lambda z: -(z @ Q @ z + c @ z), np.full(n, 0.5), jac=lambda z: -(2.0 * Q @ z + c), bounds=[(0.0, 1.0)] * n
    )
    z = found.x
    slope = 2.0 * Q @ z + c
    return float(z @ Q @ z + c @ z + np.sum(np.maximum(slope * (1.0 - z), -slope * z)))
