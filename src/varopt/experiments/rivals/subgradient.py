"""Sub-gradients: Newton steps along the sub-gradient of least norm [SFR07], [PLT03]."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.experiments.rivals._line_search import armijo

__all__ = ["subgradient"]

Vector = NDArray[np.float64]

_ZERO = 1e-4  # coefficients below are zero


def subgradient(
    X: Vector, y: Vector, penalty: float, *, orthant: bool = False, tol: float = 1e-9, most: int = 2000
) -> Vector:
    """Minimise ``||y - Xw||^2 + penalty ||w||_1`` along the steepest of its sub-gradients, scaled by the Hessian.

    The sub-gradient of least norm is the gradient where a coefficient is not zero, and what is left of the slope
    beyond the penalty where it is; coefficients for which it vanishes rest, as in grafting [PLT03]. A step may take a
    coefficient through zero; one that ends below 10^-4 is set to zero, as in [SFR07]. With `orthant`, which [SFR07] do
    not have, a coefficient that would change sign stops at zero instead. Stop when the norm of the sub-gradient is
    below `tol` of the penalty. A step costs O(p^3).
    """
    gram, correlation = X.T @ X, X.T @ y
    w: Vector = scipy.linalg.solve(gram + penalty * np.eye(correlation.size), correlation, assume_a="pos")

    def value(at: Vector) -> float:
        return float(at @ (gram @ at) - 2.0 * correlation @ at + penalty * np.abs(at).sum())

    for _ in range(most):
        derivative = 2.0 * (gram @ w - correlation)
        beyond = np.sign(derivative) * np.maximum(np.abs(derivative) - penalty, 0.0)
        least = np.where(w != 0.0, derivative + penalty * np.sign(w), beyond)
        moving = np.flatnonzero(least)
        if np.abs(least).max(initial=0.0) <= tol * penalty:
            break
        side = np.where(w != 0.0, np.sign(w), -np.sign(least))

        def project(at: Vector, side: Vector = side) -> Vector:
            return np.where(at * side > 0.0, at, 0.0) if orthant else at

        step = np.zeros_like(w)
        hessian = 2.0 * gram[np.ix_(moving, moving)]
        step[moving] = -scipy.linalg.solve(hessian, least[moving], assume_a="pos", check_finite=False)
        length = armijo(value, w, step, float(least @ step), project=project)
        if length == 0.0:
            break
        w = project(w + length * step)
        w = w if orthant else np.where(np.abs(w) < _ZERO, 0.0, w)
    return w
