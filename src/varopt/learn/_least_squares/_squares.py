r"""Mean squared errors of linear models of one target or several, with a penalty that takes many strengths.

For coefficients w, a row w_j for each feature, and residuals r, and any s in (0, 1], the gap of
``1/2 sum_i v_i |r_i|^2 + sum_j h(w_j)`` with ``h(w) = l1 |w| + l2 |w|^2 / 2`` is at most

    1/2 (1 - s)^2 |r|_v^2 + sum_j (h(w_j) - s c_j'w_j + h*(s c_j)),    c = X'(v r),                                 (1)

a sum of terms that are not negative, so that nothing cancels. The residuals have to add up to zero where there is an
intercept, and all sums are rounded: (1) is charged with what that may amount to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers import pivoted_along

__all__ = ["Squares", "ordinary"]

Vector = NDArray[np.float64]
Array = NDArray[np.float64]

_UNIT = 0.5 * float(np.finfo(np.float64).eps)
_SAFE = 1.0 + 1e-6  # makes up for what bounds of rounding lose by their own
_ORDINARY = 1e60  # sizes of data beyond which, or below whose inverse, squares are not to be trusted
_CENTERED_AT_ONCE = 1 << 16  # entries that are centred at a time, and stay in the cache
_RESIDUALS_AT_ONCE = 1 << 22  # residuals that are made at a time


def ordinary(X: Any, y: Array) -> bool:
    """Whether squares of the features, of the targets and of their products are numbers, and not lost."""
    if not X.shape[0]:
        return False
    sizes = max(float(X.max()), -float(X.min())), float(np.abs(y).max(initial=0.0))
    return any(sizes) and all(size == 0.0 or 1.0 / _ORDINARY < size < _ORDINARY for size in sizes)


class Squares:
    """``1/2 sum_i v_i |y_i - x_i'w - b|^2`` with weights v that add up to one, b left out where there is no intercept.

    Parameters
    ----------
    X : array or sparse array of shape (n, p)
    y : array of shape (n,) or (n, targets)
    weight : array of shape (n,)
    intercept : bool
    """

    def __init__(self, X: Any, y: Array, weight: Vector, intercept: bool) -> None:
        self.X: Any = X if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        self.y = np.asarray(y, dtype=np.float64).reshape(X.shape[0], -1)
        self.share, self.intercept = weight / weight.sum(), intercept
        self.center = np.asarray(self.X.T @ self.share, dtype=np.float64) * float(intercept)
        self.level = self.share @ self.y * float(intercept)

    @cached_property
    def null(self) -> float:
        """The value without coefficients."""
        return 0.5 * float(np.sum(self.share @ (self.y - self.level) ** 2))

    @cached_property
    def gram(self) -> Array:
        """The Hessian in the coefficients of a target, b at its best."""
        if sp.issparse(self.X):
            product = (self.X.T @ sp.csr_array(self.X).multiply(self.share[:, None])).toarray()
            return np.asarray(product - np.outer(self.center, self.center), dtype=np.float64)
        gram, root = np.zeros((self.X.shape[1],) * 2), np.sqrt(self.share)[:, None]
        for rows in self._parts(self.X.shape[1]):
            moved = self.X[rows] - self.center
            moved *= root[rows]
            gram += moved.T @ moved
        return gram

    @cached_property
    def gradient(self) -> Array:
        """The gradient at w = 0, b at its best, a column for each target."""
        return np.asarray(-(self.X.T @ (self.share[:, None] * (self.y - self.level))), dtype=np.float64)

    @cached_property
    def standard(self) -> tuple[Array, Array]:
        """Features and targets centred, times the roots of the weights, whose mean is one."""
        root = np.sqrt(self.share * self.share.size)[:, None]
        X = np.array(self.X.toarray() if sp.issparse(self.X) else self.X, order="F")
        if self.intercept:
            X -= self.center
        if not np.all(root == 1.0):
            X *= root
        return X, np.asfortranarray(root * (self.y - self.level))

    @cached_property
    def _lengths(self) -> Vector:
        """The length of each feature, weighted."""
        if sp.issparse(self.X):
            return np.sqrt(np.asarray(self.X.multiply(self.X).T @ self.share, dtype=np.float64))
        return np.sqrt(sum((self.share[rows] @ np.square(self.X[rows]) for rows in self._parts(1)), np.zeros(1)))

    def _parts(self, fewest: int) -> Iterator[slice]:
        """Rows that stay in the cache, or so many."""
        step = max(fewest, _CENTERED_AT_ONCE // max(1, self.X.shape[1]))
        return (slice(k, k + step) for k in range(0, self.X.shape[0], step))

    def levels(self, coefs: Array) -> Array:
        """The intercepts of coefficients of shape (k, p), (k,); or of (k, p, targets), (k, targets)."""
        moved = np.tensordot(coefs, self.center, axes=(1, 0))
        return np.asarray((self.level[0] if coefs.ndim == 2 else self.level) - moved)

    def minimisers(self, l1: Vector, l2: Vector, positive: bool, stop: Callable[[], bool]) -> Array:
        """Coefficients of one target for each pair of strengths, a row each; NaN where not found, or after a stop."""
        coefs, gradient = np.full((l1.size, self.X.shape[1]), np.nan), self.gradient[:, 0]
        steepest = 2.0 * self._lengths * np.sqrt(2.0 * self.null) + np.abs(gradient) if positive else None
        for row, x in zip(coefs, pivoted_along(self.gram, gradient, l1, l2, steepest), strict=True):
            if x is not None:
                row[:] = np.maximum(x, 0.0) if positive else x
            if stop():
                break
        return coefs

    def brackets(self, coefs: Array, l1: Vector, l2: Vector, positive: bool = False) -> tuple[Vector, Vector]:
        """The objectives at coefficients of shape (k, p) or (k, p, targets), and how far they are above the optimum."""
        coefs = coefs.reshape(*coefs.shape[:2], self.y.shape[1])
        step = max(1, _RESIDUALS_AT_ONCE // max(1, self.y.size))
        parts = [
            self._brackets(coefs[k : k + step], l1[k : k + step], l2[k : k + step], positive)
            for k in range(0, len(coefs), step)
        ]
        values, gaps = (np.concatenate(part) for part in zip(*parts, strict=True)) if parts else (np.zeros(0),) * 2
        return values, gaps

    def _brackets(self, w: Array, l1: Vector, l2: Vector, positive: bool) -> tuple[Vector, Vector]:
        levels, size = self.levels(w), np.sqrt(np.square(w).sum(axis=2))
        residual = self.y[:, None] - self._product(self.X, w.transpose(1, 0, 2)) - levels  # (n, k, targets)
        weighted = self.share[:, None, None] * residual
        dual = self._product(self.X.T, weighted).transpose(1, 0, 2)
        squares = np.einsum("ikt,ikt->k", weighted, residual)
        length = np.sqrt(squares)
        rounding = _SAFE * _UNIT * (sum(self.X.shape) + self.y.shape[1] + 8)
        known = np.sqrt(np.sum(self.share @ self.y**2)) + size @ self._lengths + np.sqrt(np.square(levels).sum(axis=1))
        left = np.sqrt(np.square(weighted.sum(axis=0)).sum(axis=1)) * self.intercept + rounding * length
        slack = self._lengths * (2.0 * rounding * length + left)[:, None]  # of the dual values
        reach = (dual[:, :, 0] if positive else np.sqrt(np.square(dual).sum(axis=2))) + slack
        most = reach.max(axis=1, initial=0.0)
        # A ridge takes any dual value; without one they are shrunk until the strength allows them.
        shrunk = np.where(l2 > 0.0, 1.0, np.minimum(1.0, np.divide(l1, most, out=np.ones_like(l1), where=most > 0.0)))
        beyond = np.square(np.maximum(reach - l1[:, None], 0.0)).sum(axis=1)
        conjugate = np.divide(0.5 * beyond, l2, out=np.zeros_like(l2), where=l2 > 0.0)
        product = shrunk[:, None] * (dual * w).sum(axis=2)
        penalty = l1[:, None] * size + 0.5 * l2[:, None] * size**2
        rounded = rounding * (penalty + self._lengths * length[:, None] * size)
        young = (penalty - product + slack * size + rounded).sum(axis=1) + conjugate
        away = (1.0 - shrunk) * length + rounding * known + left  # from the residuals to the dual point
        return 0.5 * squares + penalty.sum(axis=1), (np.maximum(young, 0.0) + 0.5 * away**2) * _SAFE

    @staticmethod
    def _product(matrix: Any, columns: Array) -> Array:
        """The product of a matrix with columns that lie in an array of three axes."""
        return np.asarray(matrix @ columns.reshape(columns.shape[0], -1)).reshape(-1, *columns.shape[1:])
