r"""Huber's regression with its scale: the problem, its best scale for given residuals, and its dual bound.

    f(w, b, s) = sum_i c_i (s + H((y_i - w'x_i - b) / s) s) + alpha ||w||^2
    H(z) = z^2 up to eps, 2 eps |z| - eps^2 beyond

convex in all three together [Hub81, Owe07]. Each row's cost is ``s + max_u u r - s u^2 / 4`` over ``|u| <= 2 eps``. So
any such u that balance, ``sum_i c_i u_i = 0``, and for which the scale has nothing to gain,
``sum_i c_i (1 - u_i^2 / 4) >= 0``, prove the bound ``sum_i c_i u_i y_i - ||X'(c u)||^2 / (4 alpha)``.

Under constraints ``g(w, b) <= 0`` with multipliers m the bound is that of the Lagrangian: what ``m'g`` adds is linear,
so that its gradient is taken from ``X'(c u)`` and from ``sum_i c_i u_i``, and its constant is added.

[Hub81] P. J. Huber, Robust Statistics, 1981.
[Owe07] A. B. Owen, A robust hybrid of lasso and ridge regression, 2007.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse.linalg import lsmr

from varopt._verified import UNIT, dot, total

__all__ = ["HuberProblem", "Overflow", "solved"]

Vector = NDArray[np.float64]

_BALANCED = 1e-9  # share of what cancels in a gradient that counts as balance
_HUBER_DUAL_CORRECTIONS = 4  # rounds in which dual variables are moved until they balance
# Entries of the data of which absolute values are taken at once: they stay in the cache.
_DATA_ENTRIES_AT_ONCE = 1 << 15
_FEW_ROWS = 64  # by which the size of predictions is seen before they cancel
_ROUNDING_SHOWS = 1e-11  # share of a value that rounding of predictions may cost at most, unless it is charged
_MOST_MULTIPLIERS = 1000  # unpenalised directions up to which their Gram matrix is formed
_MULTIPLIER_STEPS = 50  # Newton steps in them
_ASSUMPTION = (
    "slopes of the losses balance up to rounding, where coefficients are at most twice as large as those found"
)


class Overflow(ArithmeticError):
    """Products of the data, or residuals, are larger than numbers can be."""


@dataclass(frozen=True)
class HuberProblem:
    """The problem; a point x holds the coefficients, then the intercept (zero where there is none), then the scale."""

    X: Any
    y: Vector
    weight: Vector  # c
    epsilon: float
    alpha: float
    intercept: bool
    held: Vector | None = None  # the gradient of the constraints times their multipliers, in coefficients and intercept
    held_at_zero: float = 0.0  # and their value at zero

    @cached_property
    def total(self) -> float:
        """The sum of the weights."""
        return float(self.weight.sum())

    @cached_property
    def enclosed_total(self) -> tuple[float, float]:
        """The same, with a bound of its error."""
        return total(self.weight)

    @cached_property
    def typical(self) -> float:
        """The scale of the targets: the root of their mean square."""
        largest = float(np.abs(self.y).max(initial=0.0))  # without which squares may overflow, or vanish
        if largest == 0.0:
            return 0.0
        return largest * math.sqrt(float(self.weight @ (self.y / largest) ** 2) / self.total)

    def residual(self, x: Vector) -> Vector:
        """``y - X w - b``."""
        return np.asarray(self.y - self.X @ x[:-2] - x[-2])

    def value(self, x: Vector, residual: Vector) -> float:
        """The objective at a point with the given residuals."""
        scale, sizes = float(x[-1]), np.abs(residual)
        within = np.minimum(sizes, self.epsilon * scale)
        losses = float(self.weight @ ((within / scale) * (2.0 * sizes - within)))
        return self.total * scale + losses + self.alpha * float(x[:-2] @ x[:-2])

    def _cancels(self, x: Vector, value: float) -> bool:
        """Whether predictions cancel such that their rounding shows in the value, by some of the rows."""
        few = abs(self.X[:: self.X.shape[0] // _FEW_ROWS + 1]).max(axis=0)
        reach = np.ravel(few.toarray() if sp.issparse(few) else few) @ np.abs(x[:-2]) + abs(float(x[-2]))
        return bool(2.0 * self.epsilon * self.total * x.size * UNIT * float(reach) > _ROUNDING_SHOWS * value)

    def highest(self, x: Vector) -> float:
        """What the objective at a point is at most, whatever rounding made of its residuals."""
        X, extended = self.X, x.astype(np.longdouble)
        largest = np.maximum(*(np.ravel(v.toarray() if sp.issparse(v) else v) for v in (X.max(axis=0), -X.min(axis=0))))
        reach = float(largest @ np.abs(x[:-2])) + abs(float(x[-2])) + float(np.abs(self.y).max())
        rows, sizes = max(1, _DATA_ENTRIES_AT_ONCE // x.size), np.empty(self.y.size)
        for start in range(0, self.y.size, rows):
            part = slice(start, start + rows)
            fitted = X[part].astype(np.longdouble) @ extended[:-2] + extended[-2]
            sizes[part] = np.abs(self.y[part] - fitted)
        return self._above(x, sizes * (1.0 + 2.0 * UNIT) + (x.size + 2) * float(np.finfo(np.longdouble).eps) * reach)

    def _charged(self, x: Vector, residual: Vector) -> float:
        """The same, wider: rounding moves all residuals by what the sizes of their products add up to, at most."""
        moved = _absolute_product(self.X, self.weight) @ np.abs(x[:-2]) + self.weight @ np.abs(self.y)
        moved += self.total * abs(float(x[-2]))
        return self._above(x, np.abs(residual)) + 2.0 * self.epsilon * (x.size + 4) * UNIT * float(moved)

    def _above(self, x: Vector, sizes: Vector) -> float:
        """What the objective is at most where residuals have these sizes."""
        scale = float(x[-1])
        within = np.minimum(sizes, self.epsilon * scale)
        losses, off = dot(self.weight, (within / scale) * (2.0 * sizes - within))
        highest = self.total * scale + losses + off + self.alpha * float(x[:-2] @ x[:-2])
        return highest * (1.0 + (16.0 + x.size) * UNIT)

    def best_scale(self, residual: Vector) -> float:
        """The best scale for given residuals: the root of ``sum_i c_i (1 - min((r_i / s)^2, eps^2))``."""
        sizes = np.abs(residual)
        highest = math.log(max(float(sizes.max()), 1e-300))
        given = sizes, self.weight, self.epsilon
        if not _scale_derivative(highest - 40.0, *given) < 0.0:
            return 0.0
        # Not a closure: SciPy keeps what it calls in a cycle, and a closure would keep the data until it is collected.
        return math.exp(brentq(_scale_derivative, highest - 40.0, highest + 1.0, args=given))

    def bracket(self, x: Vector, dual: Vector | None = None) -> tuple[Vector, float, float, str, list[Vector | None]]:
        """A point, its value, the gap that is proved for it, under which assumption, and by what: for `State.see`.

        The dual variables are those of the losses where none are given, moved until they balance.
        """
        residual, bound = self.residual(x), 2.0 * self.epsilon
        value = self.value(x, residual)
        dual = np.clip(2.0 * residual / x[-1] if dual is None else dual, -bound, bound)
        if (free := self._without_penalty()) is not None:
            dual = _balanced(free, self.weight, dual, bound, self._balance())
        share = min(1.0, math.sqrt(4.0 * self.total / max(float(self.weight @ dual**2), 1e-300)))
        lower = float(self.weight @ (share * dual * self.y)) + share * self.held_at_zero
        lower -= self._conjugate(x[:-2], share * dual, share)
        lower = max(0.0, lower)  # no value is negative
        cancels = self._cancels(x, value)
        if lower > value or cancels:
            value = self.highest(x) if cancels else self._charged(x, residual)
            lower = lower if lower <= value else 2.0 * value - lower  # the gap is what they disagree by
        return x, value, value - lower, _ASSUMPTION if lower > 0.0 else "", [dual]

    def _without_penalty(self) -> Any:
        """The columns of what is not penalised, where there is any."""
        ones = np.ones((self.y.size, 1))
        if self.alpha > 0.0:
            return ones if self.intercept else None
        if not self.intercept:
            return self.X
        return sp.hstack([self.X, ones], format="csr") if sp.issparse(self.X) else np.hstack([self.X, ones])

    def _balance(self) -> Vector | float:
        """What the gradients of the dual in the directions without a penalty have to be."""
        if self.held is None:
            return 0.0
        return self.held[-1:] if self.alpha > 0.0 else self.held if self.intercept else self.held[:-1]

    def _conjugate(self, coef: Vector, dual: Vector, share: float) -> float:
        """The conjugate of the ridge: what coefficients can gain at most, ``gradient^2 / (4 alpha)`` each.

        That is large where all but rounding has cancelled in a gradient, of data in large units, and the ridge is less.
        Such coefficients are taken to be at most twice as large as they came out. What has no ridge, and is not in
        balance, may gain without end.
        """
        held = np.zeros(coef.size + 1) if self.held is None else share * self.held
        gradient = np.abs(self.X.T @ (self.weight * dual) - held[:-1])
        balanced = gradient <= _BALANCED * (_absolute_product(self.X, self.weight * np.abs(dual)) + np.abs(held[:-1]))
        lifts = self.intercept and abs(self.weight @ dual - held[-1]) > _BALANCED * (self.weight @ np.abs(dual))
        if lifts or (self.alpha == 0.0 and not np.all(balanced)):
            return math.inf
        size = np.abs(coef)
        reach = np.where(balanced, 2.0 * size + 1e-6 * size.max(initial=0.0), np.inf)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            best = np.minimum(np.where(gradient > 0.0, gradient / (2.0 * self.alpha), 0.0), reach)
            gain = float(best @ (gradient - self.alpha * best))  # squares of it may overflow
        return gain if math.isfinite(gain) else math.inf

    def least_dual(self, x: Vector, kinks: NDArray[np.intp]) -> Vector:
        """Dual variables without a scale: those of the rows at `kinks` are the least that balance the rest."""
        bound = 2.0 * self.epsilon
        dual = bound * np.sign(self.residual(x))
        dual[kinks] = 0.0
        gradient = 2.0 * self.alpha * x[:-2] - self.X.T @ (self.weight * dual)
        ones = np.ones((kinks.size, int(self.intercept)))
        wanted = np.append(gradient, -float(self.weight @ dual) * ones[:1])
        stack = sp.hstack if sp.issparse(self.X) else np.hstack
        dual[kinks] = _least(stack([self.X[kinks], ones]), self.weight[kinks], wanted, bound)
        return dual


def _absolute_product(columns: Any, v: Vector) -> Vector:
    """``|columns|'v``, without a copy of the data."""
    if sp.issparse(columns):
        return np.asarray(abs(columns).T @ v)
    rows, total = max(1, _DATA_ENTRIES_AT_ONCE // columns.shape[1]), np.zeros(columns.shape[1])
    for start in range(0, v.size, rows):
        total += np.abs(columns[start : start + rows]).T @ v[start : start + rows]
    return total


def _scale_derivative(log_scale: float, sizes: Vector, weight: Vector, epsilon: float) -> float:
    return float(weight @ (1.0 - np.minimum(sizes / math.exp(log_scale), epsilon) ** 2))


def solved(gram: Vector, wanted: Vector, cutoff: float) -> Vector:
    """What solves equations with a Gram matrix, in units in which its columns are equally long."""
    unit = np.sqrt(np.diag(gram))
    unit = np.where(unit > 0.0, unit, 1.0)
    if not (np.all(np.isfinite(gram)) and np.all(np.isfinite(wanted))):
        return np.zeros(unit.size)  # where products overflow: LAPACK would write about it
    return np.asarray(np.linalg.lstsq(gram / unit[:, None] / unit, wanted / unit, rcond=cutoff)[0] / unit)


def _least(columns: Any, weight: Vector, wanted: Vector, bound: float) -> Vector:
    """The u of least ``sum_i c_i u_i^2`` with ``columns'(c u) = wanted`` and none beyond `bound`, if there is any.

    By Newton's method in the multipliers m: ``u = clip(columns m)``, and what is maximised is ``wanted'm`` less the
    Huber functions of ``columns m``.
    """
    if columns.shape[1] > _MOST_MULTIPLIERS:  # the least without a bound, which often keeps it
        root = np.sqrt(weight)[:, None]
        rows = columns.multiply(root) if sp.issparse(columns) else root * columns
        return np.asarray(lsmr(rows.T, wanted, atol=1e-15, btol=1e-15, conlim=0.0)[0] / root[:, 0])

    def dual_value(m: Vector, position: Vector) -> float:
        sizes = np.minimum(np.abs(position), bound)
        return float(wanted @ m - weight @ (sizes * (np.abs(position) - 0.5 * sizes)))

    def gram(weights: Vector) -> Vector:
        share = weights[:, None]
        product = columns.T @ (columns.multiply(share) if sp.issparse(columns) else share * columns)
        return np.asarray(product.toarray() if sp.issparse(product) else product)

    m, position = np.zeros(columns.shape[1]), np.zeros(columns.shape[0])
    for _ in range(_MULTIPLIER_STEPS):
        u = np.clip(position, -bound, bound)
        missing = wanted - columns.T @ (weight * u)
        if np.all(np.abs(missing) <= 1e-15 * (np.abs(wanted) + _absolute_product(columns, weight * np.abs(u)))):
            break
        # A little of the rows at their bound keeps the equations solvable.
        inside = np.where(np.abs(position) < bound, 1.0, 1e-9)
        step = solved(gram(weight * inside), missing, 1e-15)
        ahead, length, value = columns @ step, 1.0, dual_value(m, position)
        while length > 1e-12 and not dual_value(m + length * step, position + length * ahead) > value:
            length *= 0.5
        if length <= 1e-12:
            break
        m, position = m + length * step, position + length * ahead
    return np.clip(position, -bound, bound)


def _balanced(columns: Any, weight: Vector, dual: Vector, bound: float, wanted: Vector | float) -> Vector:
    """Dual variables near the given ones, none beyond `bound`, whose gradients in all columns are those wanted."""
    for _ in range(_HUBER_DUAL_CORRECTIONS):
        gradient = columns.T @ (weight * dual) - wanted
        if np.all(np.abs(gradient) <= 1e-15 * _absolute_product(columns, weight * np.abs(dual))):
            break
        room = bound - np.abs(dual)
        share = (weight * room)[:, None]
        matrix = columns.T @ (columns.multiply(share) if sp.issparse(columns) else share * columns)
        move = solved(matrix.toarray() if sp.issparse(matrix) else matrix, -gradient, 1e-13)
        dual = dual + room * np.clip(columns @ move, -0.9, 0.9)
    return dual
