"""Two smoothings of the absolute value, minimised by Newton's method while they sharpen [SFR07], [LM01], [LLAN06]."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.experiments.rivals._line_search import armijo

__all__ = ["integral_of_sigmoids", "square_root"]

Vector = NDArray[np.float64]
Smoothed = Callable[[Vector, float], tuple[Vector, Vector, Vector]]  # value, slope and curvature at a sharpness

_ZERO = 1e-4  # coefficients below are zero, as in [SFR07]: a smoothed penalty makes none exactly so


def integral_of_sigmoids(X: Vector, y: Vector, penalty: float) -> Vector:
    """``|w| ~ (log(1 + e^(-a w)) + log(1 + e^(a w))) / a`` [LM01], a from 1 to 10^6 by factors of 1.5 [SFR07]."""

    def smoothed(w: Vector, a: float) -> tuple[Vector, Vector, Vector]:
        derivative = np.tanh(0.5 * a * w)
        value = (np.logaddexp(0.0, -a * w) + np.logaddexp(0.0, a * w)) / a
        return value, derivative, 0.5 * a * (1.0 - derivative**2)

    return _sharpen(X, y, penalty, smoothed, 1.5 ** np.arange(0.0, 35.0))


def square_root(X: Vector, y: Vector, penalty: float) -> Vector:
    """``|w| ~ sqrt(w^2 + e)`` [LLAN06], e from 1 to 10^-14 by factors of 4."""

    def smoothed(w: Vector, e: float) -> tuple[Vector, Vector, Vector]:
        root = np.sqrt(w * w + e)
        return root, w / root, e / root**3

    return _sharpen(X, y, penalty, smoothed, 0.25 ** np.arange(0.0, 24.0))


def _sharpen(X: Vector, y: Vector, penalty: float, smoothed: Smoothed, sharpness: Iterable[float]) -> Vector:
    """Newton's method with backtracking at each sharpness, from the last minimum; O(p^3) a step."""
    gram, correlation = X.T @ X, X.T @ y
    w: Vector = scipy.linalg.solve(gram + penalty * np.eye(gram.shape[0]), correlation, assume_a="pos")
    for level in sharpness:

        def value(at: Vector, level: float = level) -> float:
            return float(at @ (gram @ at) - 2.0 * correlation @ at + penalty * smoothed(at, level)[0].sum())

        for _ in range(50):
            _, derivative, curvature = smoothed(w, level)
            gradient = 2.0 * (gram @ w - correlation) + penalty * derivative
            hessian = 2.0 * gram + np.diag(penalty * curvature)
            step = -scipy.linalg.solve(hessian, gradient, assume_a="pos", check_finite=False)
            decrement = float(-gradient @ step)
            length = armijo(value, w, step, -decrement)
            w = w + length * step
            if length == 0.0 or decrement <= 1e-14 * abs(value(w)):
                break
    return np.where(np.abs(w) < _ZERO, 0.0, w)
