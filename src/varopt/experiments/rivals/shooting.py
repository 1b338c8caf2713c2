"""Shooting: the lasso one coefficient at a time [Fu98]."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["shooting"]

Vector = NDArray[np.float64]


def shooting(X: Vector, y: Vector, penalty: float, *, tol: float = 1e-15, sweeps: int = 2000) -> Vector:
    """Minimise ``||y - Xw||^2 + penalty ||w||_1`` by cycling through the coefficients from the least-squares fit.

    Each coefficient has its minimum in closed form; stop when a sweep moves none by more than `tol` of the largest.
    With the Gram matrix formed once a sweep costs O(p^2).
    """
    gram, correlation = X.T @ X, X.T @ y
    curvature, half = np.diag(gram).tolist(), 0.5 * penalty
    w: Vector = scipy.linalg.solve(gram, correlation, assume_a="pos")
    for _ in range(sweeps):
        derivative = correlation - gram @ w  # anew each sweep, so that its updates do not collect rounding
        moved = 0.0
        for i, own in enumerate(curvature):
            old = w[i]
            target = derivative[i] + own * old
            new = (target - half if target > half else target + half if target < -half else 0.0) / own
            if new != old:
                derivative -= (new - old) * gram[i]
                moved, w[i] = max(moved, abs(new - old)), new
        if moved <= tol * np.abs(w).max():
            break
    return w
