r"""Kinks of single variables, as of the L1 norm, and the dual point that they allow.

    phi_i(x_i) = high_i (x_i - rest_i)_+ - low_i (rest_i - x_i)_+        (up to a constant),      low_i <= high_i

A dual point is feasible just if its gradient in every variable lies between the subgradients of that variable's kink.
Scaling down makes it so: that is the bracket of problems whose quadratic is singular, as with more variables than rows
[FGS15].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.composite._form import Composite
from varopt.composite._rows import Rows

__all__ = ["Kinks", "ridge_form", "scaled_gap", "separable_kinks"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Kinks:
    """At most one kink for each variable; low and high are equal where there is none."""

    rest: Vector
    low: Vector
    high: Vector

    @property
    def free(self) -> NDArray[np.bool_]:
        """The variables without a kink."""
        return np.asarray(self.low == self.high)

    def take(self, index: NDArray[np.intp] | slice) -> Kinks:
        """The kinks of some of the variables."""
        return Kinks(self.rest[index], self.low[index], self.high[index])

    def young(self, x: Vector, dual: Vector) -> float:
        """The sum of the Fenchel-Young gaps at x of dual values between low and high."""
        away = x - self.rest
        return float(np.sum(np.maximum((self.high - dual) * away, (self.low - dual) * away)))


def separable_kinks(problem: Composite) -> tuple[Kinks, tuple[Rows, ...]]:
    """The kinks of single variables, one for each at most, and the rows that are none."""
    nothing = np.broadcast_to(0.0, (problem.size,))  # most problems without kinks are large, and pay for none
    rest = low = high = nothing
    taken, others = np.zeros(problem.size, dtype=bool), []
    for r in problem.rows:
        if len(r.term.knots) != 1 or r.term.degree > 1 or r.single is None:
            others.append(r)
            continue
        live = np.flatnonzero((r.weights > 0.0) & (r.single[1] != 0.0))
        index, factor = r.single[0][live], r.single[1][live]
        knot, left, right = (
            np.broadcast_to(np.asarray(v, dtype=np.float64), (r.count,))[live]
            for v in (r.term.knots[0], *r.term.subgradient_range)
        )
        at = (knot - r.offset[live]) / factor
        candidate = rest.copy()
        candidate[index] = np.where(taken[index], rest[index], at)
        if not np.array_equal(candidate[index], at):  # two kinks of one variable
            others.append(r)
            continue
        if rest is nothing:
            low, high = np.zeros((2, problem.size))
        rest = candidate
        taken[index] = True
        ends = factor * r.weights[live] * np.stack([left, right])
        np.add.at(low, index, ends.min(axis=0))
        np.add.at(high, index, ends.max(axis=0))
    return Kinks(rest, low, high), tuple(others)


def scaled_gap(
    kinks: Kinks, x: Vector, gradient: Vector, linear: Vector, scaled: Callable[[float], float]
) -> tuple[float, Vector]:
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
    """
    scale = _scale(kinks, gradient, linear)
    if scale is None:
        return np.inf, np.zeros_like(x)
    dual = -(scale * gradient + linear)
    inside = np.clip(dual, kinks.low, kinks.high)
    return scaled(scale) + kinks.young(x, inside), np.where(kinks.free, inside - dual, 0.0)


def _scale(kinks: Kinks, gradient: Vector, linear: Vector) -> float | None:
    """The number closest to one with ``low <= -(scale gradient + linear) <= high`` on every kink."""
    kinked = ~kinks.free
    up, down = (kinks.high + linear)[kinked], (kinks.low + linear)[kinked]
    v = -gradient[kinked]  # down <= scale v <= up
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.stack([up / v, down / v])
    most = np.min(ends.max(axis=0), initial=np.inf, where=v != 0.0)
    least = np.max(ends.min(axis=0), initial=-np.inf, where=v != 0.0)
    if least > most or np.any((v == 0.0) & ((down > 0.0) | (up < 0.0))):
        return None
    return float(min(max(1.0, least), most))


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
    return Composite(sp.diags_array(diagonal), vector, scalar, (*problem.rows, *others))
