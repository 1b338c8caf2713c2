r"""Least squares with linear splines of given knots, and the dual point of trend filtering that belongs to them.

With B the hat functions of the knots, C the weights and g the gradient of the squares at zero, the squares of a spline
with values v at the knots are

    1/2 v' (B'CB) v + (B'g)' v,        B'CB tridiagonal,                                                            (2)

and where D takes the values at the knots to the jumps of the derivative there, the values that belong to a dual point q
at the knots solve

    (B'CB) v = -B'g - D'q.                                                                                          (3)

Equation (1) is that of `_trend_filtering`.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.solvers.signals._trend_filtering import TrendFiltering

__all__ = ["LinearSpline"]

Vector = NDArray[np.float64]


class LinearSpline:
    """Linear splines with given knots, the first and the last place among them, made of their values there.

    O(n) time and a handful of vectors for n places.
    """

    def __init__(self, signal: TrendFiltering, knots: NDArray[np.intp]) -> None:
        self.signal, self.knots = signal, knots
        self.inner = knots[1:-1] - 1  # of the kinks, those at knots
        self._counts = np.diff(knots)
        self._counts[-1] += 1  # every place is counted with the knot before it, and the last one with them
        self.share = signal.places
        starts = self.share[knots]
        self.lengths = np.diff(starts)
        #: How far on the way from one knot to the next every place is.
        self.share -= self._spread(starts[:-1])
        self.share /= self._spread(self.lengths)
        # (2): sums of weights times the hat functions of the knots, and of products of these.
        weighted = signal.weights * self.share
        first = self._summed(weighted)
        weighted *= self.share
        ends = self._summed(weighted)
        self.off_diagonal = first - ends  # (2): sum of c (1 - b) b, b the share of the way
        self.diagonal = np.append(self._summed(signal.weights) - first - self.off_diagonal, 0.0)
        self.diagonal[1:] += ends
        later = self._summed(np.multiply(signal.gradient, self.share, out=weighted))
        self.gradient = np.append(self._summed(signal.gradient) - later, 0.0)
        self.gradient[1:] += later

    def _spread(self, values: Vector) -> Vector:
        return np.repeat(values, self._counts)

    def _summed(self, values: Vector) -> Vector:
        return np.asarray(np.add.reduceat(values, self.knots[:-1]))

    def kinks(self, values: Vector) -> Vector:
        """How much the derivative of a spline jumps at its inner knots."""
        return np.diff(np.diff(values) / self.lengths)

    def points(self, values: Vector) -> Vector:
        """The spline with the given values at the knots; both are counted from the mean of the targets."""
        out = self.share * self._spread(np.diff(values))
        out += self._spread(values[:-1])
        return out

    def right_hand_side(self, dual: Vector) -> Vector:
        """Of (3), for a dual point at the inner knots."""
        steps = np.diff(np.concatenate([[0.0], dual, [0.0]])) / self.lengths
        rhs = np.diff(np.concatenate([[0.0], steps, [0.0]]))
        rhs += self.gradient
        return np.negative(rhs, out=rhs)  # (3): -B'g - D'q

    def minimiser(self, dual: Vector) -> Vector:
        """The values at the knots that belong to a dual point there: the solution of (3)."""
        return self._solved(slice(0, self.knots.size), self.right_hand_side(dual))

    def response(self, part: slice, values: Vector, rhs: Vector, which: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """By how much a unit of dual at each of some inner knots lowers the kinks there, and the kinks without it.

        Only the values of the knots in `part` respond; `rhs` is that of the dual point otherwise.
        """
        columns = np.zeros((part.stop - part.start, which.size + 1))
        columns[:, -1] = rhs[part]
        if part.start > 0:
            columns[0, -1] -= self.off_diagonal[part.start - 1] * values[part.start - 1]
        if part.stop < values.size:
            columns[-1, -1] -= self.off_diagonal[part.stop - 1] * values[part.stop]
        inverse, column, row = 1.0 / self.lengths, np.arange(which.size), which - part.start
        columns[row, column] = inverse[which]  # (3): minus the derivatives of the right-hand side in the dual point
        columns[row + 1, column] = -(inverse[which] + inverse[which + 1])
        columns[row + 2, column] = inverse[which + 1]
        moves = self._solved(part, columns)
        kinks = np.diff(np.diff(moves, axis=0) / self.lengths[part.start : part.stop - 1, None], axis=0)[row]
        return kinks[:, :-1], kinks[:, -1]

    def _solved(self, part: slice, rhs: Vector) -> Vector:
        *_, values, info = scipy.linalg.lapack.dptsv(
            self.diagonal[part], self.off_diagonal[part.start : part.stop - 1], rhs
        )
        if info:
            raise np.linalg.LinAlgError("knots are too close for their distances")
        return np.asarray(values)

    def dual(self, points: Vector, dual: Vector) -> Vector:
        """The dual point at all places from that at the knots, by (1).

        The second differences of sums of sums of the gradient are the gradient: but for a linear spline with the same
        knots these are the dual point, turned around.
        """
        sums = points * self.signal.weights
        sums += self.signal.gradient
        np.cumsum(sums, out=sums)
        if not self.signal.even:
            sums[:-1] *= self.signal.distances
        sums[1:] = np.cumsum(sums[:-1])
        sums[0] = 0.0
        spline = self.points(np.concatenate([[0.0], dual, [0.0]]) + sums[self.knots])
        return np.subtract(spline, sums, out=spline)[1:-1]
