"""The problems of [SB12], generated as its pages say from a seeded generator.

Each knows its data, its value at a point, and its objective in the modelling language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo

__all__ = [
    "BinaryQuadratic",
    "KernelMachine",
    "Regression",
    "binary_quadratic",
    "fused_lasso",
    "kernel_machine",
    "lasso",
]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Regression:
    """``sum_n (y_n - w'x_n)^2 + sparsity sum_i |w_i| + fusion sum_i |w_i - w_(i-1)|``."""

    X: Vector
    y: Vector
    sparsity: float
    fusion: float = 0.0
    true: Vector = field(default_factory=lambda: np.zeros(0))  # the coefficients that made y, but for noise

    def value(self, w: Vector) -> float:
        """The objective at w, summed in one order for every method."""
        residual = self.y - self.X @ w
        penalty = self.sparsity * np.abs(w).sum() + self.fusion * np.abs(np.diff(w)).sum()
        return float(residual @ residual + penalty)

    def objective(self) -> Any:
        """The objective in the modelling language."""
        w = vo.Variable(self.X.shape[1], name="w")
        f = vo.sum_squares(self.y - self.X @ w) + self.sparsity * vo.norm1(w)
        return f + self.fusion * vo.norm1(vo.diff(w)) if self.fusion else f


def lasso(rng: np.random.Generator, dimension: int) -> Regression:
    """[SB12, section 2.2]: N = 10 D, lambda = 30 D; half of the true coefficients are zero."""
    return _regression(rng, np.array([_coefficient(rng) for _ in range(dimension)]), 30.0 * dimension)


def fused_lasso(rng: np.random.Generator, dimension: int) -> Regression:
    """[SB12, section 2.4]: N = 10 D, lambda_1 = 500, lambda_2 = 200; half of the coefficients repeat the last."""
    true = [_coefficient(rng)]
    while len(true) < dimension:
        true.append(true[-1] if rng.random() < 0.5 else _coefficient(rng))
    return _regression(rng, np.array(true), 500.0, 200.0)


def _coefficient(rng: np.random.Generator) -> float:
    """0 with probability 1/2, else N(5, 1) or N(-5, 1)."""
    kind = rng.random()
    return 0.0 if kind < 0.5 else (5.0 if kind < 0.75 else -5.0) + rng.standard_normal()


def _regression(rng: np.random.Generator, true: Vector, sparsity: float, fusion: float = 0.0) -> Regression:
    """Ten points per coefficient, x ~ N(0, I), noise with a tenth of mean |y| for its standard deviation."""
    X = rng.standard_normal((10 * true.size, true.size))
    clean = X @ true
    noise = 0.1 * np.mean(np.abs(clean)) * rng.standard_normal(clean.size)
    return Regression(X, clean + noise, sparsity, fusion, true)


@dataclass(frozen=True)
class KernelMachine:
    """``beta'K beta + C sum_n max(1 - K_n beta - b y_n, 0)``, ``K_nm = y_n y_m x_n'x_m``; a point is (beta, b)."""

    X: Vector
    y: Vector
    cost: float
    start: Vector  # where the paper's methods begin: a standard normal draw

    @cached_property
    def K(self) -> Vector:
        """The kernel matrix, with the labels in it."""
        rows = self.y[:, None] * self.X
        return rows @ rows.T

    def value(self, point: Vector) -> float:
        """The objective at (beta, b)."""
        beta, outputs = point[:-1], self.K @ point[:-1]
        return float(beta @ outputs + self.cost * np.maximum(1.0 - outputs - point[-1] * self.y, 0.0).sum())

    def linear_value(self, w: Vector, b: float) -> float:
        """The same objective at ``w = sum_n beta_n y_n x_n``."""
        return float(w @ w + self.cost * np.maximum(1.0 - self.y * (self.X @ w + b), 0.0).sum())

    def objective(self) -> Any:
        """The objective in the modelling language, in beta and b."""
        beta, b = vo.Variable(self.y.size, name="beta"), vo.Variable(name="b")
        return vo.quad_form(beta, self.K) + self.cost * vo.sum(vo.hinge(self.K @ beta + b * self.y))

    def linear_objective(self) -> Any:
        """The same problem in w and b: possible because the kernel is linear."""
        w, b = vo.Variable(self.X.shape[1], name="w"), vo.Variable(name="b")
        return vo.sum_squares(w) + self.cost * vo.sum(vo.hinge(self.y * (self.X @ w + b)))


def kernel_machine(rng: np.random.Generator, n: int, dimension: int = 100) -> KernelMachine:
    """[SB12, section 3.2]: unit Gaussians around 0 and around a random vector of length 3.5, half each; C = 10."""
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    apart = rng.standard_normal(dimension)
    apart *= 3.5 / np.linalg.norm(apart)
    X = rng.standard_normal((n, dimension)) + np.outer(y > 0.0, apart)
    return KernelMachine(X, y, 10.0, rng.standard_normal(n + 1))


@dataclass(frozen=True)
class BinaryQuadratic:
    """``x'Ax + b'x`` over bits, to be maximised; A symmetric."""

    A: Vector
    b: Vector

    def objective(self) -> Any:
        """The objective in the modelling language."""
        x = vo.Binary(self.b.size, name="x")
        return vo.quad_form(x, self.A) + self.b @ x


def binary_quadratic(rng: np.random.Generator, n: int) -> BinaryQuadratic:
    """Standard normal coefficients; the paper leaves the instance open."""
    A, b = rng.standard_normal((n, n)), rng.standard_normal(n)
    return BinaryQuadratic(0.5 * (A + A.T), b)
