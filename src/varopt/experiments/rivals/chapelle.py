"""Chapelle's primal method [Cha07], a Huber loss for the hinge: minimised by L-BFGS as in [SB12], and by Newton."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from varopt.experiments.rivals._line_search import armijo

__all__ = ["chapelle", "chapelle_newton", "huber", "huber_objective"]

Vector = NDArray[np.float64]


def huber(xi: Vector, h: float) -> tuple[Vector, Vector]:
    """The loss ``(h + xi)^2 / 4h`` for ``|xi| < h``, else ``max(xi, 0)`` ([SB12] misprint it), and its slope."""
    inside = np.abs(xi) < h
    value = np.where(inside, (h + xi) ** 2 / (4.0 * h), np.maximum(xi, 0.0))
    return value, np.where(inside, (h + xi) / (2.0 * h), (xi > 0.0).astype(np.float64))


def huber_objective(K: Vector, y: Vector, cost: float, at: Vector, h: float) -> tuple[float, Vector]:
    """``beta'K beta + cost sum_n L(1 - K_n beta - b y_n)`` and its gradient in (beta, b): two products with K."""
    beta, b = at[:-1], at[-1]
    outputs = K @ beta
    loss, derivative = huber(1.0 - outputs - b * y, h)
    gradient = np.append(K @ (2.0 * beta - cost * derivative), -cost * (y @ derivative))
    return float(beta @ outputs + cost * loss.sum()), gradient


def chapelle(
    K: Vector, y: Vector, cost: float, start: Vector, watch: Callable[[Vector], None], *, h: float, factor: float,
    every: int = 250, most: int, memory: int = 100,
) -> Vector:  # fmt: skip
    """Minimise ``beta'K beta + cost sum_n L(1 - K_n beta - b y_n)`` over (beta, b), L the Huber loss of width h.

    h is multiplied by `factor` every `every` iterations; L-BFGS forgets what it remembers there. `watch` sees every
    iterate and may raise `StopIteration`; at most `most` iterations, each two products with K or a few more.
    """
    point, taken = start, 0
    stopped = False

    def value_and_gradient(at: Vector, h: float) -> tuple[float, Vector]:
        return huber_objective(K, y, cost, at, h)

    def seen(at: Vector) -> None:
        nonlocal stopped
        try:
            watch(at)
        except StopIteration:
            stopped = True
            raise

    while taken < most and not stopped and h > 1e-12:
        found = minimize(
            value_and_gradient, point, args=(h,), jac=True, method="L-BFGS-B", callback=seen,
            options={"maxiter": min(every, most - taken) if factor < 1.0 else most - taken, "maxcor": memory,
                     "maxfun": 100 * most, "maxls": 100, "ftol": 0.0, "gtol": 0.0},
        )  # fmt: skip
        point, taken, h = found.x, taken + max(int(found.nit), 1), factor * h
        if factor == 1.0:
            break
    return point


def chapelle_newton(
    K: Vector, y: Vector, cost: float, start: Vector, watch: Callable[[Vector], None], *, h: float, most: int = 50
) -> tuple[Vector, str]:
    """The same objective by Newton's method with backtracking, K divided out as in [Cha07]; and what stopped it.

    The system for (beta, b) is that of the Hessian ``2K + (C/2h) K I K``, bordered by ``(C/2h) K I y`` and
    ``(C/2h) y'I y``, with I one for the points in the quadratic part. As a step makes beta the same combination of the
    losses' slopes, K is divided out of the first N rows. Where no point lies in the quadratic part the row of b is
    zero: the step does not exist. An iteration costs O(N^3).
    """
    point, curvature = start, cost / (2.0 * h)

    def value(at: Vector) -> float:
        outputs = K @ at[:-1]
        return float(at[:-1] @ outputs + cost * huber(1.0 - outputs - at[-1] * y, h)[0].sum())

    for _ in range(most):
        beta, xi = point[:-1], 1.0 - K @ point[:-1] - point[-1] * y
        inside = np.abs(xi) < h
        if not inside.any():
            return point, "no point in the quadratic part: the row of b in the Hessian is zero"
        derivative = huber(xi, h)[1]
        system = np.zeros((y.size + 1, y.size + 1))
        system[:-1, :-1] = np.where(inside, curvature, 0.0)[:, None] * K
        system[:-1, -1] = curvature * inside * y
        system[-1, :-1] = curvature * ((inside * y) @ K)
        system[-1, -1] = curvature * inside.sum()
        system[np.arange(y.size), np.arange(y.size)] += 2.0
        residual = np.append(2.0 * beta - cost * derivative, -cost * (y @ derivative))
        try:
            step: Vector = -np.linalg.solve(system, residual).astype(np.float64, copy=False)
        except np.linalg.LinAlgError:
            return point, "the Hessian is singular"
        length = armijo(value, point, step, float(np.append(K @ residual[:-1], residual[-1]) @ step))
        if length == 0.0:
            return point, ""
        point = point + length * step
        try:
            watch(point)
        except StopIteration:
            break
    return point, ""
