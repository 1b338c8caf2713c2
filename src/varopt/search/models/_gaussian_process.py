"""A Gaussian process with a Matern kernel and a length for each coordinate: exact and small.

RW06: C. E. Rasmussen and C. K. I. Williams, *Gaussian processes for machine learning*, MIT Press, 2006. Hv23: C.
Hvarfner, E. O. Hellsten and L. Nardi, *Vanilla Bayesian optimization performs great in high dimensions*, 2024; the
prior of the lengths grows with the dimension as theirs does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize as descend

__all__ = ["GaussianProcess"]

Array = NDArray[np.float64]

ROOT5 = math.sqrt(5.0)
LENGTH, WIDTH = math.sqrt(2.0) - 1.0, math.sqrt(3.0)  # of log lengths: log sqrt(d) above the first, this wide [Hv23]
NOISE = (math.log(1e-4), 2.0)  # of the log of the noise's variance: middle and width
LEAST_NOISE = 1e-8
STEPS = 30  # of a fit


def differences(one: Array, other: Array, discrete: NDArray[np.bool_]) -> Array:
    """Squared differences by coordinate, of shape (d, n, m); of choices, whether they differ."""
    delta = one.T[:, :, None] - other.T[:, None, :]
    delta *= delta
    if discrete.any():
        delta[discrete] = delta[discrete] > 0.0
    return delta


def matern(squares: Array) -> tuple[Array, Array]:
    """The kernel at squared distances r^2, and minus twice its derivative by r^2 [RW06, eq. 4.17]."""
    r = ROOT5 * np.sqrt(squares)
    decay = np.exp(-r)
    return (1.0 + r + r * r / 3.0) * decay, (5.0 / 3.0) * (1.0 + r) * decay


@dataclass(frozen=True)
class GaussianProcess:
    """y ~ N(0, s (K + noise I)) of standardised values, with s integrated out of the fit."""

    points: Array
    values: Array
    discrete: NDArray[np.bool_]
    parameters: Array  # logs of 1 / length^2 for each coordinate, and of the noise
    factor: Array  # lower triangular
    weights: Array  # (K + noise I)^-1 y
    scale: float  # s

    @classmethod
    def fit(
        cls, points: Array, values: Array, discrete: NDArray[np.bool_], start: Array | None = None, steps: int = STEPS
    ) -> Self:
        """Lengths and noise of the highest posterior density, from a start, by L-BFGS with exact gradients."""
        d = points.shape[1]
        squares = differences(points, points, discrete)
        first = _prior(d)[0] if start is None else start
        bounds = [(-8.0, 8.0)] * d + [(math.log(LEAST_NOISE), 1.0)]
        best = descend(
            _posterior, first, args=(squares, values), jac=True, method="L-BFGS-B", bounds=bounds,
            options={"maxiter": steps},
        ).x  # fmt: skip
        return cls.given(points, values, discrete, best)

    @classmethod
    def given(cls, points: Array, values: Array, discrete: NDArray[np.bool_], parameters: Array) -> Self:
        """The process with these parameters."""
        kernel = matern(np.tensordot(np.exp(parameters[:-1]), differences(points, points, discrete), 1))[0]
        factor = np.asarray(np.linalg.cholesky(_noisy(kernel, parameters)), dtype=np.float64)
        weights = cho_solve((factor, True), values)
        return cls(
            points, values, discrete, parameters, factor, weights, max(float(values @ weights) / values.size, 1e-12)
        )

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the function at points."""
        squares = np.tensordot(np.exp(self.parameters[:-1]), differences(points, self.points, self.discrete), 1)
        kernel = matern(squares)[0]
        left = solve_triangular(self.factor, kernel.T, lower=True)
        variance = self.scale * np.maximum(1.0 - np.einsum("ij,ij->j", left, left), 1e-12)
        return kernel @ self.weights, np.sqrt(variance)

    def gradient(self, point: Array) -> tuple[float, float, Array, Array]:
        """Mean, deviation and their gradients at one point."""
        rates = np.exp(self.parameters[:-1])
        delta = point - self.points
        moves = np.where(self.discrete, 0.0, delta)
        delta = np.where(self.discrete, delta != 0.0, delta)
        kernel, falls = matern((delta * delta) @ rates)
        slope = -falls[:, None] * moves * rates  # d kernel / d point: falls is minus twice the derivative by r^2
        left = solve_triangular(self.factor, kernel, lower=True)
        solved = solve_triangular(self.factor, left, lower=True, trans=1)
        deviation = math.sqrt(self.scale * max(1.0 - float(left @ left), 1e-12))
        return (
            float(kernel @ self.weights),
            deviation,
            slope.T @ self.weights,
            -self.scale * (slope.T @ solved) / deviation,
        )


def _prior(d: int) -> tuple[Array, Array]:
    """Middle and width of the parameters."""
    rates = np.full(d, -2.0 * (LENGTH + 0.5 * math.log(d) - 1.0))
    return np.append(rates, NOISE[0]), np.append(np.full(d, 2.0 * WIDTH / 2.0), NOISE[1])


def _noisy(kernel: Array, parameters: Array) -> Array:
    kernel[np.diag_indices_from(kernel)] += math.exp(parameters[-1]) + 1e-10
    return kernel


def _posterior(parameters: Array, squares: Array, values: Array) -> tuple[float, Array]:
    """Minus the log posterior, the scale at its best [RW06, eq. 5.8 and 5.9], and its gradient."""
    n = values.size
    rates = np.exp(parameters[:-1])
    kernel, falls = matern(np.tensordot(rates, squares, 1))
    try:
        factor = np.linalg.cholesky(_noisy(kernel, parameters))
    except np.linalg.LinAlgError:
        return 1e12, np.zeros_like(parameters)
    inverse = cho_solve((factor, True), np.eye(n))
    weights = inverse @ values
    power = max(float(values @ weights), 1e-300)
    middle, width = _prior(rates.size)
    away = (parameters - middle) / width
    value = 0.5 * n * math.log(power / n) + float(np.log(factor.diagonal()).sum()) + 0.5 * float(away @ away)
    by_kernel = inverse - np.outer(weights, weights) * (n / power)  # twice the gradient by the kernel
    by_rate = -0.25 * rates * np.tensordot(squares, by_kernel * falls, 2)
    by_noise = 0.5 * math.exp(parameters[-1]) * float(np.trace(by_kernel))
    return value, np.append(by_rate, by_noise) + away / width
