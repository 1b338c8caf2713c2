"""Projection: the lasso as a bound-constrained quadratic, by two-metric projection [Ber82], [SFR07]."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.experiments.rivals._line_search import armijo

__all__ = ["projection"]

Vector = NDArray[np.float64]


def projection(X: Vector, y: Vector, penalty: float, *, tol: float = 1e-13, most: int = 1000) -> Vector:
    """Minimise ``||y - Xw||^2 + penalty ||w||_1`` as ``w = p - n`` with p and n not negative.

    Variables at zero whose slope would push them below it are held; the rest take a Newton step, projected on the
    bounds along its way [Ber82]. As ``p_i n_i > 0`` never pays, at most one of each pair moves, so the Newton system
    is definite. Stop when no slope of a free variable exceeds `tol` of the penalty. A step costs O(p^3).
    """
    gram, correlation = X.T @ X, X.T @ y
    start = np.linalg.solve(gram + penalty * np.eye(correlation.size), correlation)
    parts = np.concatenate([np.maximum(start, 0.0), np.maximum(-start, 0.0)])
    size = correlation.size

    def value(at: Vector) -> float:
        w = at[:size] - at[size:]
        return float(w @ (gram @ w) - 2.0 * correlation @ w + penalty * at.sum())

    def project(at: Vector) -> Vector:
        return np.maximum(at, 0.0)

    for _ in range(most):
        smaller = np.minimum(parts[:size], parts[size:])
        parts = parts - np.concatenate([smaller, smaller])
        derivative = 2.0 * (gram @ (parts[:size] - parts[size:]) - correlation)
        derivatives = np.concatenate([derivative, -derivative]) + penalty
        twin = np.concatenate([parts[size:], parts[:size]])
        free = np.flatnonzero((parts > 0.0) | ((derivatives < 0.0) & (twin == 0.0)))
        if np.abs(derivatives[free]).max(initial=0.0) <= tol * penalty:
            break
        sign, index = np.where(free < size, 1.0, -1.0), free % size
        hessian = 2.0 * sign[:, None] * gram[np.ix_(index, index)] * sign
        step = np.zeros_like(parts)
        step[free] = -scipy.linalg.solve(hessian, derivatives[free], assume_a="pos", check_finite=False)
        length = armijo(value, parts, step, float(derivatives @ step), project=project)
        if length == 0.0:
            break
        parts = project(parts + length * step)
    return np.asarray(parts[:size] - parts[size:])
