"""SLEP's algorithm for the fused lasso: Nesterov's method on the proximal step of the penalty [LYY10], [SLEP]."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["fused_lasso_prox", "slep", "total_variation_prox"]

Vector = NDArray[np.float64]


def slep(X: Vector, y: Vector, sparsity: float, fusion: float, *, tol: float = 1e-6, most: int = 10_000) -> Vector:
    """Minimise ``||y - Xw||^2 + sparsity ||w||_1 + fusion ||diff(w)||_1``.

    Two-step gradient steps with a curvature L found by backtracking, which only grows [LYY10, algorithm 3]. Stop when
    the objective changes by less than `tol` of itself. An iteration costs two products with X and O(p) for the step.
    """
    w = previous = np.zeros(X.shape[1])
    image = previous_image = np.zeros(y.size)
    momentum, previous_momentum, curvature = 1.0, 0.0, 1.0
    objective = math.inf
    for _ in range(most):
        ahead = (previous_momentum - 1.0) / momentum
        search, search_image = w + ahead * (w - previous), image + ahead * (image - previous_image)
        derivative = X.T @ (search_image - y)
        previous, previous_image = w, image
        while True:
            # half the objective: 1/2 ||y - Xw||^2 and half of each penalty
            w = fused_lasso_prox(search - derivative / curvature, 0.5 * sparsity / curvature, 0.5 * fusion / curvature)
            image = X @ w
            step, moved = w - search, image - search_image
            if moved @ moved <= curvature * (step @ step) * (1.0 + 1e-12):
                break
            curvature = max(2.0 * curvature, float(moved @ moved) / float(step @ step))
        previous_momentum, momentum = momentum, 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        residual = y - image
        before = objective
        objective = float(residual @ residual) + sparsity * np.abs(w).sum() + fusion * np.abs(np.diff(w)).sum()
        if abs(before - objective) <= tol * objective:
            break
    return w


def fused_lasso_prox(v: Vector, sparsity: float, fusion: float) -> Vector:
    """``argmin_w ||w - v||^2 / 2 + sparsity ||w||_1 + fusion ||diff(w)||_1``: a soft threshold after the fusion."""
    w = total_variation_prox(v, fusion)
    return np.asarray(np.sign(w) * np.maximum(np.abs(w) - sparsity, 0.0))


def total_variation_prox(v: Vector, weight: float) -> Vector:
    """``argmin_w ||w - v||^2 / 2 + weight ||diff(w)||_1``, exactly, in O(p) but for rare inputs [Con13].

    [LYY10] reach the same point by a dual iteration. `low` and `high` are the smallest and largest value that the
    segment from `start` may take; `slack_low` and `slack_high` the dual variable where the segment takes them. A
    segment ends where neither can be kept.
    """
    data, last = v.tolist(), v.size - 1
    w = np.empty(v.size)
    k = start = end_low = end_high = 0
    low, high = data[0] - weight, data[0] + weight
    slack_low, slack_high = weight, -weight
    while True:
        if k == last:
            if slack_low < 0.0:  # the last segment may not take its smallest value: it ends before
                w[start : end_low + 1] = low
                k = start = end_low = end_low + 1
                low, slack_low = data[start], weight
                slack_high = low + weight - high
            elif slack_high > 0.0:
                w[start : end_high + 1] = high
                k = start = end_high = end_high + 1
                high, slack_high = data[start], -weight
                slack_low = high - weight - low
            else:
                w[start:] = low + slack_low / (k - start + 1)
                return w
            continue
        slack_low += data[k + 1] - low
        slack_high += data[k + 1] - high
        if slack_low < -weight:  # a jump down
            w[start : end_low + 1] = low
            k = start = end_low = end_high = end_low + 1
            low, high = data[start], data[start] + 2.0 * weight
            slack_low, slack_high = weight, -weight
        elif slack_high > weight:  # a jump up
            w[start : end_high + 1] = high
            k = start = end_low = end_high = end_high + 1
            low, high = data[start] - 2.0 * weight, data[start]
            slack_low, slack_high = weight, -weight
        else:
            k += 1
            if slack_low >= weight:
                end_low, low = k, low + (slack_low - weight) / (k - start + 1)
                slack_low = weight
            if slack_high <= -weight:
                end_high, high = k, high + (slack_high + weight) / (k - start + 1)
                slack_high = -weight
