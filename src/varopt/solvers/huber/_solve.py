"""Huber's regression to a certified gap: coefficients and scale together, or one scale after the other.

At a given scale the problem is a composite of Huber losses, which the caller knows how to minimise. The derivative in
the scale of that minimum increases with the scale; its root is found by secants that are kept in a bracket.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._threads import one_thread
from varopt.solvers._method import Check, State
from varopt.solvers.huber._joint_newton import JointNewton
from varopt.solvers.huber._problem import HuberProblem, Overflow
from varopt.solvers.huber._proof import proved_bracket

__all__ = ["AtScale", "ScaleSearch", "solve_huber", "solve_huber_held"]

Vector = NDArray[np.float64]
#: The minimiser at a scale, coefficients and intercept, near a start if there is one; at a scale of zero, that of
#: ``eps sum_i c_i |r_i| + alpha / 2 ||w||^2``, the limit of half the objective.
AtScale = Callable[[float, Vector | None], Vector]

_PERFECT = 1e-12  # a scale below this share of that of the targets is an exact fit
_VANISHING = 1e-3  # and below this one the best scale may be zero
_STRIDE = 5.0  # most by which the logarithm of a scale moves at a time
_ON_KINK = 1e-9  # share of the targets within which a residual of a fit without a scale vanishes
_MOST_FEATURES = 1000  # features up to which coefficients and scale go together, where there are more rows
_ALIKE = 0.2  # logarithms of scales this close have much the same fit
_FEW_ENTRIES = 1 << 16  # sparse data of at most so many are as well dense
_MOST_SCALES = 200  # scales tried: a bisection over all that numbers hold takes fewer


def solve_huber(problem: HuberProblem, state: State, tol: float, check: Check, at_scale: AtScale) -> None:
    """Minimise to a certified gap, from the coefficients and the intercept of ``state.x``.

    `check` sees the state after every step and may raise: the latest point is bracketed all the same.

    Raises
    ------
    Overflow
        Where products of the data, or residuals, overflow.
    """
    if sp.issparse(problem.X) and math.prod(problem.X.shape) <= _FEW_ENTRIES:
        problem = replace(problem, X=problem.X.toarray())
    if problem.typical == 0.0:  # targets of zero: there is nothing to explain
        state.see(*problem.bracket(np.append(np.zeros(state.x.size - 1), _PERFECT)))
        return
    try:
        vanishes = _together(problem, state, check)
        if not state.reached(tol):
            _one_by_one(problem, state, check, at_scale, vanishes)
            _finished(problem, state, tol, check)
    finally:
        if state.latest is not None and np.all(np.isfinite(state.latest)):
            state.see(*problem.bracket(state.latest))
            state.record()
    _prove(problem, state, tol)


def _prove(problem: HuberProblem, state: State, tol: float) -> None:
    """The bracket in arithmetic that knows its rounding, where that is as close as is asked, or closer than another.

    Where it is not, the upper end is at least above what rounding made of the value.
    """
    if not state.assumption or state.dual is None or (dual := state.dual[0]) is None:
        return
    lower, upper = proved_bracket(problem, state.x, dual, tol)
    gap = max(state.gap, 0.0)
    if math.isfinite(upper) and upper - lower <= max(tol * max(state.unit, abs(upper)), gap):
        state.lower, state.upper, state.assumption = lower, upper, ""
        return
    state.upper = max(state.upper, min(upper, problem.highest(state.x)))
    if state.lower > state.upper:  # of another point, whose value rounding hid
        state.lower = 2.0 * state.upper - state.lower


def solve_huber_held(
    problem: HuberProblem,
    state: State,
    tol: float,
    check: Check,
    at_scale: Callable[[float, Vector | None], tuple[Vector, HuberProblem]],
) -> None:
    """The same under constraints: `at_scale` keeps to them, and tells the problem with their multipliers.

    One scale after the other: a Newton method in coefficients and scale would have to know which constraints hold.
    """

    def seen(scale: float, near: Vector | None) -> tuple[Vector, Vector]:
        """The coefficients at a scale, and their residuals."""
        found, held = at_scale(scale, near)
        x = np.append(found, scale)
        state.see(*held.bracket(x))
        state.record()
        check(state)
        return found, held.residual(x)

    start, first = None, None
    if problem.typical == 0.0:  # targets of zero have no scale, but for what the constraints leave of them
        start, residual = seen(_PERFECT, None)
        first = problem.best_scale(residual)
        if state.reached(tol) or not first > _PERFECT:
            return
    search = ScaleSearch(problem, first)
    for scale in search:
        start, residual = seen(scale, start)
        if state.reached(tol):
            return
        search.tell(residual)


@one_thread()
def _together(problem: HuberProblem, state: State, check: Check) -> bool:
    """Newton's method in coefficients and scale at once, where there are few features and more rows.

    Returns whether the scale fell to nothing.
    """
    n, p = problem.X.shape
    if not _is_small(problem):
        return False
    part, least = max(1000, 20 * p), _ON_KINK * problem.typical
    sampled, few = not np.any(state.x[:-1]) and n > 4 * part, problem
    if sampled:  # rows are in no order: the first of them are a sample
        few = replace(problem, X=problem.X[:part], y=problem.y[:part], weight=problem.weight[:part])
    x = np.append(state.x[:-1], few.best_scale(few.residual(state.x)) or problem.typical)
    state.latest = x  # what there is where time is up before a step
    if sampled:
        pilot = JointNewton(few, x)
        if pilot.descend(least, lambda: check(state)):
            x = pilot.x
    newton = JointNewton(problem, x)

    def seen() -> None:
        state.latest, state.steps = newton.x, newton.steps
        check(state)

    if newton.descend(least, seen):
        state.latest, state.steps = None, newton.steps
        state.see(*problem.bracket(newton.x))
    return newton.vanishes


def _one_by_one(problem: HuberProblem, state: State, check: Check, at_scale: AtScale, vanishes: bool) -> None:
    """The fits at one scale after the other, until the derivative in the scale is zero.

    The fit without a scale is tried once: at once where the scale `vanishes`, or where it becomes small.
    """
    start: Vector | None = state.x[:-1] if np.any(state.x[:-1]) else None
    if vanishes and _without_scale(problem, state, at_scale):
        return
    search, before = ScaleSearch(problem), None
    for scale in search:
        near = before is None or abs(math.log(scale / before)) < _ALIKE
        start, before = at_scale(scale, start if near else None), scale
        state.latest = np.append(start, scale)
        search.tell(problem.residual(state.latest))
        if search.falls and not vanishes and (search.plunges or scale < _VANISHING * problem.typical):
            vanishes = True
            if _without_scale(problem, state, at_scale):
                return
        check(state)


@one_thread()
def _finished(problem: HuberProblem, state: State, tol: float, check: Check) -> None:
    """The last digits, together: a fit at a scale is as good as its own objective asks, which outliers may dominate."""
    if state.latest is None or not _is_small(problem):
        return
    state.see(*problem.bracket(state.latest))
    if state.reached(tol):
        return
    newton = JointNewton(problem, state.latest)
    if newton.descend(_ON_KINK * problem.typical, lambda: check(state)):
        state.steps, state.latest = state.steps + newton.steps, newton.x


def _is_small(problem: HuberProblem) -> bool:
    """Whether there are few features, and more rows, in memory as they are."""
    n, p = problem.X.shape
    return not sp.issparse(problem.X) and p <= min(_MOST_FEATURES, n)


class ScaleSearch:
    """Scales to try, until the derivative of the objective in the scale is zero; `tell` it the residuals of each."""

    def __init__(self, problem: HuberProblem, start: float | None = None) -> None:
        self.problem = problem
        self.low, self.high = -math.inf, math.inf  # logarithms of scales, between which the best lies
        self.log_scale = math.log(start or problem.best_scale(problem.y) or problem.typical)
        self.before: tuple[float, float] | None = None
        self.ended = self.plunges = False

    def __iter__(self) -> Iterator[float]:
        for _ in range(_MOST_SCALES):
            yield math.exp(self.log_scale)
            if self.ended:
                return
            self.log_scale = self._next

    @property
    def falls(self) -> bool:
        """Whether a smaller scale is better than the latest."""
        return self.derivative > 0.0

    def tell(self, residual: Vector) -> None:
        """The residuals of the fit at the latest scale."""
        p, x, epsilon = self.problem, self.log_scale, self.problem.epsilon
        share = np.minimum(np.abs(residual) / math.exp(x), epsilon) ** 2
        self.derivative = 1.0 - float(p.weight @ share) / p.total
        if not math.isfinite(self.derivative):
            raise Overflow
        if self.derivative > 0.0:
            self.high = x
        else:
            self.low = x
        step = math.nan
        if self.before is not None and self.derivative != self.before[1]:
            step = self.derivative * (x - self.before[0]) / (self.derivative - self.before[1])
        new = min(x - step, x + _STRIDE)
        if not self.low < new < self.high:
            # The best scale for these residuals is nearer to the optimum, though not much.
            better = p.best_scale(residual)
            new = math.log(better) if better > 0.0 else x - _STRIDE
            if not self.low < new < self.high:
                new = 0.5 * (max(self.low, x - 4.0) + min(self.high, x + 4.0))
        self.before = x, self.derivative
        perfect = math.exp(x) < _PERFECT * p.typical
        self.ended = abs(self.derivative) < 1e-10 or abs(new - x) < 1e-12 or perfect
        self.plunges = new <= x - _STRIDE  # residuals all but vanish beside the scale
        self._next = max(new, x - _STRIDE)  # farther up only where these residuals have their scale


def _without_scale(problem: HuberProblem, state: State, at_scale: AtScale) -> bool:
    """Whether the scale is zero, the limit of small ones, at the optimum: the state then has it, with its bracket.

    Losses are then absolute values. Dual variables of those that vanish are whatever balances the rest, the least of
    them: the scale stays at zero if ``sum_i c_i (1 - u_i^2 / 4)`` is not negative.
    """
    x = np.append(at_scale(0.0, None), 1e-16 * problem.typical)
    kinks = np.flatnonzero(np.abs(problem.residual(x)) <= _ON_KINK * problem.typical)
    if not kinks.size:
        return False
    dual = problem.least_dual(x, kinks)
    held = np.abs(dual).max() <= 2.0 * problem.epsilon * (1.0 + _ON_KINK)
    if not held or problem.weight @ (1.0 - dual**2 / 4.0) < 0.0:
        return False
    state.latest = None
    state.see(*problem.bracket(x, dual))
    return True
