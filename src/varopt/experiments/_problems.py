"""The problems of the tour, generated as in [SB12] where the paper has them, with their objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo

__all__ = ["binary_quadratic", "kernel_machine", "lasso", "quantile"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Lasso:
    """``sum_n (y_n - w'x_n)^2 + penalty sum_i |w_i|``."""

    X: Vector
    y: Vector
    penalty: float
    objective: Any


def lasso(rng: np.random.Generator, dimension: int) -> Lasso:
    """[SB12, section 2.2]: N = 10 D, lambda = 30 D, half of the true coefficients zero, noise a tenth of mean |y|."""
    n, kind = 10 * dimension, rng.random(dimension)
    true = np.where(kind < 0.5, 0.0, np.where(kind < 0.75, 5.0, -5.0) + rng.standard_normal(dimension))
    X = rng.standard_normal((n, dimension))
    clean = X @ true
    y = clean + 0.1 * np.mean(np.abs(clean)) * rng.standard_normal(n)
    penalty = 30.0 * dimension
    w = vo.Variable(dimension, name="w")
    return Lasso(X, y, penalty, vo.sum_squares(y - X @ w) + penalty * vo.norm1(w))


@dataclass(frozen=True)
class KernelMachine:
    """``beta'K beta + C sum_n max(1 - K_n beta - b y_n, 0)`` with ``K_nm = y_n y_m k(x_n, x_m)``; x is (beta, b)."""

    K: Vector
    y: Vector
    cost: float
    objective: Any


def kernel_machine(rng: np.random.Generator, n: int, dimension: int) -> KernelMachine:
    """[SB12, section 3.2]: two unit Gaussians 3.5 apart, linear kernel, C = 10."""
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    apart = rng.standard_normal(dimension)
    apart *= 3.5 / np.linalg.norm(apart)
    X = rng.standard_normal((n, dimension)) + np.outer(y > 0.0, apart)
    K, cost = np.outer(y, y) * (X @ X.T), 10.0
    beta, b = vo.Variable(n, name="beta"), vo.Variable(name="b")
    return KernelMachine(K, y, cost, vo.quad_form(beta, K) + cost * vo.sum(vo.hinge(K @ beta + b * y)))


@dataclass(frozen=True)
class Quantile:
    """``sum_n pinball(y_n - w'x_n)`` at one level."""

    X: Vector
    y: Vector
    level: float
    objective: Any


def quantile(rng: np.random.Generator, n: int, level: float) -> Quantile:
    """A line in three covariates, with noise of heavy tails (Student's t, 3 degrees of freedom)."""
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 3))])
    y = X @ np.array([1.0, 2.0, -1.0, 0.5]) + rng.standard_t(3.0, n)
    w = vo.Variable(4, name="w")
    return Quantile(X, y, level, vo.sum(vo.pinball(y - X @ w, level)))


@dataclass(frozen=True)
class BinaryQuadratic:
    """``x'Ax + b'x`` over bits, to be maximised; A symmetric."""

    A: Vector
    b: Vector
    objective: Any


def binary_quadratic(rng: np.random.Generator, n: int) -> BinaryQuadratic:
    """Standard normal coefficients."""
    A, b = rng.standard_normal((n, n)), rng.standard_normal(n)
    A = 0.5 * (A + A.T)
    x = vo.Binary(n, name="x")
    return BinaryQuadratic(A, b, vo.quad_form(x, A) + b @ x)
