r"""Recognises trend filtering of a signal: a square for each variable, and a kink of every second difference.

    1/2 sum_i c_i (x_i - y_i)^2 + sum_i phi_i((x_{i+1} - x_i) / h_i - (x_i - x_{i-1}) / h_{i-1}),
    phi_i(d) = high_i d_+ - low_i (-d)_+

That is l1 trend filtering [KKBG09], at places whose distances h need not be equal. Its optimum is a linear spline with
knots at a few of them. A dual point q, one number for each place between the first and the last, lies between low and
high; with q = 0 at both ends, its second differences are the gradient of the squares, turned around:

    c_i (x_i - y_i) + (q_{i+1} - q_i) / h_i - (q_i - q_{i-1}) / h_{i-1} = 0.                                        (1)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.signals._total_variation import compact

if TYPE_CHECKING:
    from varopt.composite import Composite, Rows

__all__ = ["TrendFiltering", "trend_filtering"]

Vector = NDArray[np.float64]

_ANNIHILATED = 1e-14  # share of its middle entry by which a row may respond to a constant


@dataclass(frozen=True)
class TrendFiltering:
    """Weights and gradient of the squares, distances, and the bounds of the dual variables of second differences."""

    weights: Vector  # c
    mean: float  # of the targets: sums of what is centred lose no digits
    gradient: Vector  # of the squares where all variables are at the mean
    distances: Vector  # h
    low: Vector
    high: Vector
    rows: Rows
    scale: Vector  # what a second difference is multiplied with in its row, times the weight of the row

    @property
    def places(self) -> Vector:
        """Where the variables are, counted from the first."""
        if self.even:
            return np.arange(self.weights.size, dtype=np.float64)
        return np.append(0.0, np.cumsum(self.distances))

    @cached_property
    def even(self) -> bool:
        """Whether all distances are one."""
        return bool(np.all(self.distances == 1.0))

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Where there is no kink."""
        return np.asarray(compact(self.low == self.high))

    @cached_property
    def width(self) -> Vector:
        """The ranges of a dual point, one where there is no kink."""
        return compact(np.where(self.free, 1.0, self.high - self.low))

    def subgradients(self, dual: Vector) -> Vector:
        """The subgradients of the terms at a dual point, in its memory; any will do for rows without weight."""
        np.divide(dual, self.scale, out=dual, where=self.scale != 0.0)
        return np.clip(dual, *self.rows.term.subgradient_range, out=dual)


def trend_filtering(problem: Composite) -> TrendFiltering | None:
    """The trend filtering that a problem is, or None."""
    if len(problem.rows) != 1 or any(square.single is None for square in problem.squares):
        return None
    row = problem.rows[0]
    if len(row.term.knots) != 1 or row.term.degree > 1 or row.linear.storage != "sparse":
        return None
    if row.count != problem.size - 2 or row.count < 1 or np.any(row.term.knots[0] != row.offset):
        return None
    if not sp.issparse(problem.hessian) or problem.hessian.nnz > problem.size:
        return None
    if (located := _located(row)) is None:
        return None
    distances, factor = located
    weights = compact(np.asarray(problem.hessian.diagonal()))
    if not np.all(weights > 0.0):
        return None
    scale = compact(row.weights * factor)
    ends = [scale * end for end in row.term.subgradient_range]
    low, high = compact(np.minimum(*ends)), compact(np.maximum(*ends))
    mean = -float(problem.gradient_at_zero.sum()) / float(weights.sum())
    gradient = problem.gradient_at_zero + mean * weights
    return TrendFiltering(weights, mean, gradient, distances, low, high, row, scale)


def _located(row: Rows) -> tuple[Vector, Vector] | None:
    """The distances of places whose second differences rows are, and factors of these; None where they are not."""
    if (known := row.differences) is not None:
        one = np.broadcast_to(1.0, row.count + 1)
        return (one, np.broadcast_to(known[0], row.count)) if known[1].order == 2 else None
    matrix = sp.csr_array(row.linear.explicit())
    count = matrix.shape[0]
    if matrix.nnz != 3 * count or not np.all(np.diff(matrix.indptr) == 3):
        return None
    if any(np.any(matrix.indices[k::3] != np.arange(k, count + k, dtype=np.int32)) for k in range(3)):
        return None
    left, middle, right = matrix.data.reshape(-1, 3).T
    if np.any(left * right <= 0.0) or np.any(np.abs(left + middle + right) > _ANNIHILATED * np.abs(middle)):
        return None
    distances = compact(np.cumprod(np.append(1.0, left / right)))
    return (distances, left * distances[:-1]) if 0.0 < distances.min() <= distances.max() < np.inf else None
