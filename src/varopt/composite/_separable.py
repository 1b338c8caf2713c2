r"""Kinks of single variables, as of the L1 norm, and the dual point that they allow.

    phi_i(x_i) = high_i (x_i - rest_i)_+ - low_i (rest_i - x_i)_+        (up to a constant),      low_i <= high_i

A dual point is feasible just if its gradient in every variable lies between the subgradients of that variable's kink,
or, for a norm ``radius_g ||x_g - rest_g||`` of a group of variables, no farther from there than its radius. Scaling
down makes it so: that is the bracket of problems whose quadratic is singular, as with more variables than rows [FGS15].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from varopt._array import repeated
from varopt._linalg import diagonal_matrix
from varopt.composite._form import Composite, Rows, single_variables

__all__ = ["Balls", "Kinks", "ridge_form", "scaled_gap", "separable_kinks"]

Vector = NDArray[np.float64]

_SCALE_WIDTH = 1e-15  # relative width at which a scale is found


@dataclass(frozen=True, eq=False)
class Balls:
    """Norms of groups of variables, each of one group at most: their subgradients at rest are balls."""

    label: NDArray[np.intp]  # which group a variable is of, or -1
    radius: Vector

    @property
    def members(self) -> NDArray[np.bool_]:
        """The variables that are of a group."""
        return np.asarray(self.label >= 0)

    def norms(self, values: Vector) -> Vector:
        """The norm of each group, scaled so that squares neither overflow nor vanish."""
        members = self.members
        unit = float(np.abs(values[members]).max(initial=0.0)) or 1.0
        squares = np.bincount(self.label[members], (values[members] / unit) ** 2, minlength=self.radius.size)
        return np.asarray(unit * np.sqrt(squares))

    def spread(self, values: Vector, others: float) -> Vector:
        """One number for each group as one for each variable; `others` for those of no group."""
        return np.asarray(np.where(self.members, values[self.label], others))

    def shrink(self, values: Vector) -> Vector:
        """The factors that take each group into its ball."""
        norms = self.norms(values)
        return np.divide(self.radius, norms, out=np.ones_like(norms), where=norms > self.radius)


@dataclass(frozen=True, eq=False)
class Kinks:
    """At most one kink for each variable, and one norm; low and high are equal where there is no kink."""

    rest: Vector
    low: Vector
    high: Vector
    balls: Balls | None = None

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """The variables without a kink and a norm."""
        plain = np.asarray(self.low == self.high)
        return plain if self.balls is None else plain & ~self.balls.members

    def take(self, index: NDArray[np.intp] | slice) -> Kinks:
        """The kinks of some of the variables, norms left out."""
        return Kinks(self.rest[index], self.low[index], self.high[index])

    def beyond(self, dual: Vector) -> Vector:
        """How far dual values are outside of the kinks of their variables."""
        return np.asarray(dual - np.clip(dual, self.low, self.high))

    def excess(self, gradient: Vector) -> Vector:
        """By how much the gradient exceeds what holds a variable at rest, relative to that; of a group, of all it."""
        beyond, width = self.beyond(-gradient), self.high - self.low
        with np.errstate(over="ignore"):  # of a kink next to nothing
            alone = np.divide(np.abs(beyond), width, out=np.zeros_like(beyond), where=width > 0.0)
            if self.balls is None:
                return alone
            grouped = self.balls.norms(beyond) / self.balls.radius - 1.0
        return np.where(self.balls.members, self.balls.spread(grouped, 0.0), alone)

    def inside(self, dual: Vector) -> Vector:
        """The dual values taken back to where their kinks and norms allow them to be."""
        clipped = np.clip(dual, self.low, self.high)
        if self.balls is None:
            return clipped
        beyond = dual - clipped
        return np.asarray(clipped + self.balls.spread(self.balls.shrink(beyond), 0.0) * beyond)

    def young(self, x: Vector, dual: Vector) -> float:
        """The sum of the Fenchel-Young gaps at x of dual values inside."""
        away = x - self.rest
        gaps = np.maximum((self.high - dual) * away, (self.low - dual) * away)
        if self.balls is None:
            return float(np.sum(gaps))
        members, label = self.balls.members, self.balls.label
        norms = self.balls.radius * self.balls.norms(away)
        grouped = norms + np.bincount(label[members], gaps[members], minlength=norms.size)
        return float(np.sum(gaps[~members]) + np.sum(np.maximum(grouped, 0.0)))


def separable_kinks(problem: Composite) -> tuple[Kinks, tuple[Rows, ...]]:
    """The kinks of single variables and norms of groups, one for each at most, and the rows that are none."""
    nothing = repeated(0.0, (problem.size,))  # most problems without kinks are large, and pay for none
    rest = low = high = nothing
    taken, others = np.zeros(problem.size, dtype=bool), []
    for r in problem.rows:
        if len(r.term.knots) != 1 or r.term.degree > 1 or r.single is None or not r.term.is_continuous:
            others.append(r)
            continue
        there = (r.weights > 0.0) & (r.single[1] != 0.0)
        live = slice(None) if there.all() else np.flatnonzero(there)
        index, factor, term = r.single[0][live], r.single[1][live], r.term.take(live)
        at, scale = (term.knots[0] - r.offset[live]) / factor, factor * r.weights[live]
        left, right = (scale * end for end in term.subgradient_range)
        if rest is nothing and index.size == problem.size and (index == np.arange(problem.size)).all():
            rest, low, high = at, np.minimum(left, right), np.maximum(left, right)  # of every variable one, in order
            taken[:] = True
            continue
        candidate = rest.copy()
        candidate[index] = np.where(taken[index], rest[index], at)
        if not np.array_equal(candidate[index], at):  # two kinks of one variable
            others.append(r)
            continue
        if rest is nothing:
            low, high = np.zeros((2, problem.size))
        rest = candidate
        taken[index] = True
        np.add.at(low, index, np.minimum(left, right))
        np.add.at(high, index, np.maximum(left, right))
    balls, rest = _balls(problem, rest, taken)
    return Kinks(rest, low, high, balls), tuple(others)


def _balls(problem: Composite, rest: Vector, kinked: NDArray[np.bool_]) -> tuple[Balls | None, Vector]:
    """The norms of groups of variables that share none, and where all rest; None where a norm is another."""
    groups = [group.take(group.weights > 0.0) for group in problem.groups if np.any(group.weights > 0.0)]
    singles = [single_variables(group.linear) for group in groups]
    if not groups or any(single is None or np.any(single[1] != 1.0) for single in singles):
        return None, rest
    index = np.concatenate([single[0] for single in singles if single is not None])
    at = -np.concatenate([group.offset for group in groups])
    if np.unique(index).size < index.size or np.any(kinked[index] & (rest[index] != at)):
        return None, rest
    label, sizes = np.full(problem.size, -1), np.concatenate([group.sizes for group in groups])
    label[index] = np.repeat(np.arange(sizes.size), sizes)
    rest = rest.copy()
    rest[index] = at
    return Balls(label, np.concatenate([group.weights for group in groups])), rest


def scaled_gap(
    kinks: Kinks, x: Vector, gradient: Vector, linear: Vector, scaled: Callable[[float], float]
) -> tuple[float, Vector, float]:
    """The gap that a dual point proves once it is scaled to be feasible, and what it leaves on variables.

    Parameters
    ----------
    kinks : Kinks
    x : array
        The point.
    gradient : array
        The gradient of all that can be scaled, as squares and losses.
    linear : array
        The gradient of what cannot: linear functions of the variables.
    scaled : callable
        The gap of all that can be scaled, by the scale.

    Returns
    -------
    gap : float
        Infinite where no scale is feasible.
    residual : array
        The gradient in variables without a kink, which has to vanish.
    scale : float
        By which the dual point is feasible, one where none is.
    """
    scale = _scale(kinks, gradient, linear)
    if scale is None:
        return np.inf, np.zeros_like(x), 1.0
    dual = -(scale * gradient + linear)
    inside = kinks.inside(dual)
    return scaled(scale) + kinks.young(x, inside), np.where(kinks.free, inside - dual, 0.0), scale


def _scale(kinks: Kinks, gradient: Vector, linear: Vector) -> float | None:
    """The number closest to one with ``low <= -(scale gradient + linear) <= high`` on every kink, norms added."""
    kinked = ~kinks.free if kinks.balls is None else ~(kinks.free | kinks.balls.members)
    up, down, v = kinks.high + linear, kinks.low + linear, -gradient  # down <= scale v <= up
    if not kinked.all():
        up, down, v = up[kinked], down[kinked], v[kinked]
    if kinks.balls is None and (up >= 0.0).all() and (down <= 0.0).all():  # as zero is feasible: what is beyond decides
        over, under = v > up, v < down
        return float(min((up[over] / v[over]).min(initial=1.0), (down[under] / v[under]).min(initial=1.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.stack([up / v, down / v])
    most = np.min(ends.max(axis=0), initial=np.inf, where=v != 0.0)
    least = np.max(ends.min(axis=0), initial=-np.inf, where=v != 0.0)
    if least > most or np.any((v == 0.0) & ((down > 0.0) | (up < 0.0))):
        return None
    scale = float(min(max(1.0, least), most))
    if kinks.balls is None:
        return scale

    def allowed(scale: float, balls: Balls = kinks.balls) -> bool:
        return bool(np.all(balls.norms(kinks.beyond(-(scale * gradient + linear))) <= balls.radius))

    return _largest(allowed, float(max(least, 0.0)), scale)


def _largest(allowed: Callable[[float], bool], low: float, high: float) -> float | None:
    """The largest number of an interval that is allowed, to the last digits, where the allowed ones are another."""
    if allowed(high):
        return high
    if not low < high or not allowed(low):
        return None
    while (middle := 0.5 * (low + high)) not in (low, high) and high - low > _SCALE_WIDTH * high:
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def ridge_form(problem: Composite) -> Composite:
    """The problem with squares of single variables multiplied out, a diagonal matrix, and all others as rows."""
    diagonal = np.zeros(problem.size) if problem.matrix is None else np.array(problem.matrix.diagonal())
    vector, scalar, others = problem.vector, problem.scalar, []
    for r in problem.squares:
        if r.single is None:
            others.append(r)
            continue
        diagonal += r.hessian_diagonal
        vector, scalar = vector + r.gradient_at_zero, scalar + r.total(r.offset)
    return Composite(diagonal_matrix(diagonal), vector, scalar, (*problem.rows, *others))
