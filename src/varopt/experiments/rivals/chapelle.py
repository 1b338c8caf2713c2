"""Chapelle's primal method: a Huber loss for the hinge, here minimised by L-BFGS as in [SB12]; [Cha07]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

__all__ = ["chapelle", "huber"]

Vector = NDArray[np.float64]


def huber(xi: Vector, h: float) -> tuple[Vector, Vector]:
    """The loss ``(h + xi)^2 / 4h`` for ``|xi| < h``, else ``max(xi, 0)`` ([SB12] misprint it), and its slope."""
    inside = np.abs(xi) < h
    value = np.where(inside, (h + xi) ** 2 / (4.0 * h), np.maximum(xi, 0.0))
    return value, np.where(inside, (h + xi) / (2.0 * h), (xi > 0.0).astype(np.float64))


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
        beta, b = at[:-1], at[-1]
        outputs = K @ beta
        loss, slope = huber(1.0 - outputs - b * y, h)
        gradient = np.append(K @ (2.0 * beta - cost * slope), -cost * (y @ slope))
        return float(beta @ outputs + cost * loss.sum()), gradient

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
