r"""Bends: every variable tied to a target of its own, and a kink where the line through the variables bends.

    1/2 sum_i c_i (x_i - y_i)^2 + sum_i phi_i((x_{i+1} - x_i) / h_i - (x_i - x_{i-1}) / h_{i-1}),
    phi_i(d) = high_i d_+ - low_i (-d)_+

That is trend filtering [KKBG09], at places whose distances h need not be equal. Its optimum is a line broken at a few
of them. A dual point q, one number for each place between the first and the last, lies between low and high; with q = 0
at both ends, its bends balance the pulls ``c_i (x_i - y_i)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._maps import Difference, Map
from varopt.solvers._chain import compact

if TYPE_CHECKING:
    from varopt.solvers._composite import Composite, Rows

__all__ = ["Bends", "Line", "bent"]

Vector = NDArray[np.float64]

_STRAIGHT = 1e-14  # share of its middle entry by which a row may respond to a constant


@dataclass(frozen=True)
class Bends:
    """Weights of the variables, their distances, and the slopes of the kinks of all but the outer two."""

    weights: Vector
    middle: float  # a mean of the targets: sums of what is centred lose no digits
    pulls: Vector  # on variables that are all in the middle
    distances: Vector
    low: Vector
    high: Vector
    rows: Rows
    scale: Vector  # how many bends a row is, times its weight

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

    def slopes(self, dual: Vector) -> Vector:
        """The slopes of the terms of a dual point, in its memory; any will do for rows without weight."""
        np.divide(dual, self.scale, out=dual, where=self.scale != 0.0)
        return np.clip(dual, *self.rows.term.slopes, out=dual)


def bent(problem: Composite) -> Bends | None:
    """The bends that a problem is made of, or None."""
    if len(problem.rows) != 1 or any(square.single is None for square in problem.squares):
        return None
    row = problem.rows[0]
    if len(row.term.knots) != 1 or row.term.degree > 1 or row.linear.storage != "sparse":
        return None
    if row.count != problem.size - 2 or row.count < 1 or np.any(row.term.knots[0] != row.offset):
        return None
    if not sp.issparse(problem.hessian) or problem.hessian.nnz > problem.size:
        return None
    if (located := _located(row.linear)) is None:
        return None
    distances, factor = located
    weights = compact(np.asarray(problem.hessian.diagonal()))
    if not np.all(weights > 0.0):
        return None
    scale = compact(row.weights * factor)
    ends = [scale * end for end in row.term.slopes]
    low, high = compact(np.minimum(*ends)), compact(np.maximum(*ends))
    middle = -float(problem.slope.sum()) / float(weights.sum())
    return Bends(weights, middle, problem.slope + middle * weights, distances, low, high, row, scale)


def _located(linear: Map) -> tuple[Vector, Vector] | None:
    """The distances of places at whose bends rows are, and what these are multiplied with; None where they are not."""
    if isinstance(linear, Difference):
        one = np.broadcast_to(1.0, linear.shape[1:])
        return (one[1:], one[2:]) if linear.order == 2 else None
    matrix = sp.csr_array(linear.explicit())
    count = matrix.shape[0]
    if matrix.nnz != 3 * count or not np.all(np.diff(matrix.indptr) == 3):
        return None
    if any(np.any(matrix.indices[k::3] != np.arange(k, count + k, dtype=np.int32)) for k in range(3)):
        return None
    left, middle, right = matrix.data.reshape(-1, 3).T
    if np.any(left * right <= 0.0) or np.any(np.abs(left + middle + right) > _STRAIGHT * np.abs(middle)):
        return None
    distances = compact(np.cumprod(np.append(1.0, left / right)))
    return (distances, left * distances[:-1]) if 0.0 < distances.min() <= distances.max() < np.inf else None


class Line:
    """Lines that may break at given knots, the first and the last place among them, made of their values there.

    In these the squares have a tridiagonal matrix. O(n) time and a handful of vectors for n places.
    """

    def __init__(self, bends: Bends, knots: NDArray[np.intp]) -> None:
        self.bends, self.knots = bends, knots
        self.inner = knots[1:-1] - 1  # of the kinks, those at knots
        self._counts = np.diff(knots)
        self._counts[-1] += 1  # every place is counted with the knot before it, and the last one with them
        self.share = bends.places
        starts = self.share[knots]
        self.lengths = np.diff(starts)
        #: How far on the way from one knot to the next every place is.
        self.share -= self._spread(starts[:-1])
        self.share /= self._spread(self.lengths)
        # Sums of weights times the hat functions of the knots, and of products of these.
        weighted = bends.weights * self.share
        first = self._summed(weighted)
        weighted *= self.share
        ends = self._summed(weighted)
        self.beside = first - ends
        self.diagonal = np.append(self._summed(bends.weights) - first - self.beside, 0.0)
        self.diagonal[1:] += ends
        later = self._summed(np.multiply(bends.pulls, self.share, out=weighted))
        self.vector = np.append(self._summed(bends.pulls) - later, 0.0)
        self.vector[1:] += later

    def _spread(self, values: Vector) -> Vector:
        return np.repeat(values, self._counts)

    def _summed(self, values: Vector) -> Vector:
        return np.asarray(np.add.reduceat(values, self.knots[:-1]))

    def bent(self, values: Vector) -> Vector:
        """How much a line bends at its knots."""
        return np.diff(np.diff(values) / self.lengths)

    def points(self, values: Vector) -> Vector:
        """The line through values at the knots; both are counted from the middle of the targets."""
        out = self.share * self._spread(np.diff(values))
        out += self._spread(values[:-1])
        return out

    def forces(self, dual: Vector) -> Vector:
        """What is left to the squares to balance at every knot, of a dual point at the inner ones."""
        steps = np.diff(np.concatenate([[0.0], dual, [0.0]])) / self.lengths
        forces = np.diff(np.concatenate([[0.0], steps, [0.0]]))
        forces += self.vector
        return np.negative(forces, out=forces)

    def pulled(self, dual: Vector) -> Vector:
        """The values at the knots that balance a dual point there."""
        return self._solved(slice(0, self.knots.size), self.forces(dual))

    def response(self, part: slice, values: Vector, forces: Vector, which: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """How much less the line bends at some inner knots for a unit of dual at each of them, and how much at all.

        Only the values of the knots in `part` respond; `forces` are those of the dual point otherwise.
        """
        pull = np.zeros((part.stop - part.start, which.size + 1))
        pull[:, -1] = forces[part]
        if part.start > 0:
            pull[0, -1] -= self.beside[part.start - 1] * values[part.start - 1]
        if part.stop < values.size:
            pull[-1, -1] -= self.beside[part.stop - 1] * values[part.stop]
        steep, column, row = 1.0 / self.lengths, np.arange(which.size), which - part.start
        pull[row, column] = steep[which]
        pull[row + 1, column] = -(steep[which] + steep[which + 1])
        pull[row + 2, column] = steep[which + 1]
        moves = self._solved(part, pull)
        breaks = np.diff(np.diff(moves, axis=0) / self.lengths[part.start : part.stop - 1, None], axis=0)[row]
        return breaks[:, :-1], breaks[:, -1]

    def _solved(self, part: slice, forces: Vector) -> Vector:
        *_, values, info = scipy.linalg.lapack.dptsv(
            self.diagonal[part], self.beside[part.start : part.stop - 1], forces
        )
        if info:
            raise np.linalg.LinAlgError("knots are too close for their distances")
        return np.asarray(values)

    def dual(self, points: Vector, dual: Vector) -> Vector:
        """The dual point at all kinks: it is known at the knots, and its bends balance the pulls in between.

        Sums of sums of pulls bend as it does; a line is all that is missing between two knots.
        """
        course = points * self.bends.weights
        course += self.bends.pulls
        np.cumsum(course, out=course)
        if not self.bends.even:
            course[:-1] *= self.bends.distances
        course[1:] = np.cumsum(course[:-1])
        course[0] = 0.0
        missing = self.points(np.concatenate([[0.0], dual, [0.0]]) + course[self.knots])
        return np.subtract(missing, course, out=missing)[1:-1]
