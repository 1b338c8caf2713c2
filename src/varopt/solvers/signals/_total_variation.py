r"""Recognises weighted total variation of a signal: a square for each variable, and a kink between neighbours.

    1/2 sum_i c_i (x_i - y_i)^2 + sum_i phi_i(x_{i+1} - x_i) + sum_i psi(x_i),    phi_i(d) = high_i d_+ - low_i (-d)_+

That is total variation where high = -low, and nearly isotonic regression where one of them is zero. The kinks psi of
single variables, as of a fused lasso, are the same for all or none, and with them the weights c_i are: then they only
shrink the optimum without them [FHHT07].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._array import repeated
from varopt.composite import separable_kinks

if TYPE_CHECKING:
    from varopt.composite import Composite, Rows

__all__ = ["TotalVariation", "compact", "total_variation"]

Vector = NDArray[np.float64]


def compact(values: Vector) -> Vector:
    """The same values of a vector, in the memory of one, and for reading, where all are equal."""
    if values.strides == (0,) or not (values == values[:1]).all():
        return values
    one = values[:1].copy()
    one.flags.writeable = False
    return np.ndarray(values.shape, values.dtype, one, 0, (0,))  # what `np.broadcast_to` makes, in half its time


@dataclass(frozen=True)
class TotalVariation:
    """Weights and gradient of the squares, and the bounds of the dual variables of differences of neighbours."""

    weights: Vector  # c
    gradient: Vector  # -c y, of the squares at zero
    low: Vector
    high: Vector
    differences: Rows  # the rows of the kinks between neighbours,
    place: NDArray[np.intp] | slice  # where in the signal they are,
    sign: Vector  # and the signs of their differences


def total_variation(problem: Composite) -> TotalVariation | None:
    """The total variation that a problem is, or None."""
    if all(row.linear.storage != "sparse" for row in problem.rows):
        return None  # as most problems are not, which costs them nothing
    kinks, others = problem.structure(separable_kinks)
    if len(others) != 1 or any(square.single is None for square in problem.squares):
        return None
    row = others[0]
    if len(row.term.knots) != 1 or row.term.degree > 1 or row.linear.storage != "sparse" or row.count >= problem.size:
        return None
    if np.any(row.term.knots[0] != row.offset):
        return None
    if (located := _located(row)) is None:
        return None
    place, factor = located
    weights = compact(np.zeros(1) if problem.hessian is None else np.asarray(problem.hessian.diagonal()))
    if not sp.issparse(problem.hessian) or problem.hessian.nnz > problem.size or not np.all(weights > 0.0):
        return None
    if len(problem.rows) > 1 and np.any([np.ptp(part) for part in (weights, kinks.rest, kinks.low, kinks.high)]):
        return None
    ends = [compact(row.weights * factor) * end for end in row.term.subgradient_range]
    low, high = compact(np.minimum(*ends)), compact(np.maximum(*ends))
    if not isinstance(place, slice):
        some, (low, high) = (low, high), np.zeros((2, problem.size - 1))
        low[place], high[place] = some
    return TotalVariation(weights, problem.gradient_at_zero, low, high, row, place, compact(np.sign(factor)))


def _located(row: Rows) -> tuple[NDArray[np.intp] | slice, Vector] | None:
    """The places of differences of neighbours and what they are multiplied with; None where rows are none."""
    if (known := row.differences) is not None:
        return (slice(None), repeated(known[0], row.offset.shape)) if known[1].order == 1 else None
    matrix = sp.csr_array(row.linear.explicit())
    if matrix.nnz != 2 * matrix.shape[0] or np.any(np.diff(matrix.indptr) != 2):
        return None
    ends, values = matrix.indices.reshape(-1, 2), matrix.data.reshape(-1, 2)
    step, place = ends[:, 1] - ends[:, 0], ends.min(axis=1).astype(np.intp)
    if np.any(np.abs(step) != 1) or np.any(values[:, 0] != -values[:, 1]) or np.bincount(place).max() > 1:
        return None
    complete = np.array_equal(place, np.arange(matrix.shape[1] - 1))
    return slice(None) if complete else place, values[:, 1] * step
