"""Sub-gradients: Newton steps along the sub-gradient of least norm [SFR07], [PLT03]."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.experiments.rivals._line_search import armijo

__all__ = ["subgradient"]

Vector = NDArray[np.float64]


def subgradient(X: Vector, y: Vector, penalty: float, *, tol: float = 1e-9, most: int = 2000) -> Vector:
    """Minimise ``||y - Xw||^2 + penalty ||w||_1`` along the steepest of its sub-gradients, scaled by the Hessian.

    The sub-gradient of least norm is the gradient where a coefficient is not zero, and what is left of the slope
    beyond the penalty where it is; coefficients for which it vanishes rest, as in grafting [PLT03]. A coefficient that
    would change sign stops at zero. Stop when its norm is below `tol` of the penalty. A step costs O(p^3).
    """
    gram, correlation = X.T @ X, X.T @ y
    w: Vector = scipy.linalg.solve(gram + penalty * np.eye(correlation.size), correlation, assume_a="pos")

    def value(at: Vector) -> float:
        return float(at @ (gram @ at) - 2.0 * correlation @ at + penalty * np.abs(at).sum())

    for _ in range(most):
        slope = 2.0 * (gram @ w - correlation)
        beyond = np.sign(slope) * np.maximum(np.abs(slope) - penalty, 0.0)
        least = np.where(w != 0.0, slope + penalty * np.sign(w), beyond)
        moving = np.flatnonzero(least)
        if np.abs(least).max(initial=0.0) <= tol * penalty:
            break
        orthant = np.where(w != 0.0, np.sign(w), -np.sign(least))

        def project(at: Vector, orthant: Vector = orthant) -> Vector:
            return np.where(at * orthant > 0.0, at, 0.0)

        step = np.zeros_like(w)
        hessian = 2.0 * gram[np.ix_(moving, moving)]
        step[moving] = -scipy.linalg.solve(hessian, least[moving], assume_a="pos", check_finite=False)
        length = armijo(value, w, step, float(least @ step), project=project)
        if length == 0.0:
            break
        w = project(w + length * step)
    return w
