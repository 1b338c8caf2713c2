r"""Mean squared errors of linear models, with a penalty that takes many strengths.

For coefficients w and residuals r, and any s in (0, 1], the gap of ``1/2 sum_i v_i r_i^2 + sum_j h(w_j)`` is at most

    1/2 (1 - s)^2 |r|_v^2 + sum_j (h(w_j) - s c_j w_j + h*(s c_j)),    c = X'(v r),                                  (1)

a sum of terms that are not negative, so that nothing cancels. The residuals have to add up to zero where there is an
intercept, and all sums are rounded: (1) is charged with what that may amount to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers import pivoted_along

__all__ = ["Squares"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_UNIT = 0.5 * float(np.finfo(np.float64).eps)
_SAFE = 1.0 + 1e-6  # makes up for what bounds of rounding lose by their own
_BLOCK = 1 << 22  # residuals that are made at a time


class Squares:
    """``1/2 sum_i v_i (y_i - x_i'w - b)^2`` with weights v that add up to one, b left out where there is no intercept.

    Parameters
    ----------
    X : array or sparse array of shape (n, p)
    y : array of shape (n,)
    weight : array of shape (n,)
    intercept : bool
    """

    def __init__(self, X: Any, y: Vector, weight: Vector, intercept: bool) -> None:
        self.X = X if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        self.y, self.share, self.intercept = np.asarray(y, dtype=np.float64), weight / weight.sum(), intercept
        self.center = np.asarray(self.X.T @ self.share) * float(intercept)
        self.level = float(self.share @ self.y) * float(intercept)

    @cached_property
    def null(self) -> float:
        """The value without coefficients."""
        return 0.5 * float(self.share @ (self.y - self.level) ** 2)

    @cached_property
    def gram(self) -> Matrix:
        """The Hessian in w, b at its best."""
        if sp.issparse(self.X):
            product = (self.X.T @ sp.csr_array(self.X).multiply(self.share[:, None])).toarray()
            return np.asarray(product - np.outer(self.center, self.center), dtype=np.float64)
        moved = np.sqrt(self.share)[:, None] * (self.X - self.center)
        return np.asarray(moved.T @ moved)

    @cached_property
    def gradient(self) -> Vector:
        """The gradient at w = 0, b at its best."""
        return np.asarray(-(self.X.T @ (self.share * (self.y - self.level))), dtype=np.float64)

    @cached_property
    def _lengths(self) -> Vector:
        """The length of each feature, weighted."""
        squares = self.X.multiply(self.X) if sp.issparse(self.X) else np.square(self.X)
        return np.sqrt(np.asarray(squares.T @ self.share))

    def levels(self, coefs: Matrix) -> Vector:
        """The intercepts of coefficients, one set a row."""
        return np.asarray(self.level - coefs @ self.center)

    def minimisers(self, l1: Vector, l2: Vector, positive: bool, stop: Callable[[], bool]) -> Matrix:
        """Coefficients for each pair of strengths, a row each; NaN where they were not found, or after a stop."""
        coefs = np.full((l1.size, self.X.shape[1]), np.nan)
        steepest = 2.0 * self._lengths * np.sqrt(2.0 * self.null) + np.abs(self.gradient) if positive else None
        for row, x in zip(coefs, pivoted_along(self.gram, self.gradient, l1, l2, steepest), strict=True):
            if x is not None:
                row[:] = np.maximum(x, 0.0) if positive else x
            if stop():
                break
        return coefs

    def brackets(self, coefs: Matrix, l1: Vector, l2: Vector, positive: bool = False) -> tuple[Vector, Vector]:
        """The objectives at coefficients, one set a row, and how far above the optimum each is at most."""
        step = max(1, _BLOCK // max(1, self.y.size))
        parts = [
            self._brackets(coefs[k : k + step], l1[k : k + step], l2[k : k + step], positive)
            for k in range(0, len(coefs), step)
        ]
        values, gaps = (np.concatenate(part) for part in zip(*parts, strict=True)) if parts else (np.zeros(0),) * 2
        return values, gaps

    def _brackets(self, w: Matrix, l1: Vector, l2: Vector, positive: bool) -> tuple[Vector, Vector]:
        levels, size = self.levels(w), np.abs(w)
        residual = self.y - np.asarray(self.X @ w.T).T - levels[:, None]  # a row for each set of coefficients
        weighted = self.share * residual
        dual = np.asarray(self.X.T @ weighted.T).T
        squares = np.einsum("ki,ki->k", weighted, residual)
        length = np.sqrt(squares)
        rounding = _SAFE * _UNIT * (sum(self.X.shape) + 8)
        error = rounding * (np.sqrt(self.share @ self.y**2) + size @ self._lengths + np.abs(levels))  # of residuals
        sum_left = (np.abs(weighted.sum(axis=1)) + rounding * length) * float(self.intercept)
        slack = self._lengths * (2.0 * rounding * length + sum_left)[:, None]  # of the dual values
        reach = (dual if positive else np.abs(dual)) + slack
        most = reach.max(axis=1, initial=0.0)
        # A ridge takes any dual value; without one they are shrunk until the strength allows them.
        shrunk = np.where(l2 > 0.0, 1.0, np.minimum(1.0, np.divide(l1, most, out=np.ones_like(l1), where=most > 0.0)))
        beyond = np.maximum(reach - l1[:, None], 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            conjugate = np.where(l2 > 0.0, 0.5 * (beyond**2).sum(axis=1) / l2, 0.0)
        product = shrunk[:, None] * dual * w
        penalty = l1[:, None] * size + 0.5 * l2[:, None] * w * w
        rounded = (self.X.shape[1] + 8) * _UNIT * (penalty + np.abs(product))
        young = (penalty - product + slack * size + rounded).sum(axis=1) + conjugate
        left = (1.0 - shrunk) * length + error + sum_left
        gaps = (np.maximum(young, 0.0) + 0.5 * left**2) * _SAFE
        return 0.5 * squares + penalty.sum(axis=1), gaps
