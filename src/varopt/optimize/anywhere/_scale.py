r"""Huber's regression with its scale, over rows that are not in memory: each step of Newton's method is a pass.

    F(x, s) = sum_i c_i (s + H(r_i / s) s) + alpha ||w||^2,    H(z) = z^2 up to eps, 2 eps |z| - eps^2 beyond

is convex in coefficients and scale together [Hub81, Owe07]. At a scale s and a multiple t of it, ``s F(x, s t) / 2`` is

    sum_i c_i (t s^2 / 2 + max_v v r_i - t v^2 / 2) + alpha s ||w||^2 / 2    over |v| <= eps s,

which at t = 1 is a sum of `huber` with the knot ``eps s``. So the ordinary sweep at the scale s has all that is needed:
its lines are minorants for every t if what their conjugates add up to is multiplied by t. A few rows keep room for
their dual, ``v +- delta``, at the price of ``t delta^2 / 2`` each: then they stand as ``delta |r_i - t v_i|``, and the
small problem in coefficients and t that lines and they make is proved like any other.

[Hub81] P. J. Huber, Robust Statistics, 1981.
[Owe07] A. B. Owen, A robust hybrid of lasso and ridge regression, 2007.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.composite import Rows, rows_of
from varopt.model import Objective
from varopt.optimize.anywhere._ask import Ask
from varopt.optimize.anywhere._centre import centre_of
from varopt.optimize.anywhere._engine import RunOptions, rows_at_once
from varopt.optimize.anywhere._relations import Relations, relations_of
from varopt.optimize.anywhere._scale_bound import (
    ANCHORS,
    MORE_ANCHORS,
    LosesDigits,
    ScaledHuber,
    Seen,
    evaluated,
    see,
)
from varopt.optimize.anywhere._scale_finish import SCALE_NEAR_ZERO, few_within, finish, newton, rounded, vanish
from varopt.places import DataPart, OnDevice
from varopt.solvers import State
from varopt.solvers.huber import HuberProblem, JointNewton, Overflow
from varopt.terms import abs_

__all__ = ["solve_scaled"]

Vector = NDArray[np.float64]

_MOST_EVALUATIONS = 40  # most evaluations
_SMALLEST_SHARE = 2.0**-12  # of the value without coefficients: better fits than that count as this good
_RESCALING = 10.0  # times which a step may make the scale larger, or smaller
_OFF_SCALE = 0.3  # share of the weights that the derivative in the scale may be
_BEYOND_KNOT = 0.7  # share of what it is at most, where all rows are beyond the knot
_STALLED_SCALE_STEPS = 2  # steps without a narrower bracket
_SHORTEST_SCALE_STEP = 1e-6  # share of a step
_VANISHED_SCALE = 1e-12  # share of the first scale below which the data are fitted exactly
_ROUGHLY = 1e-4  # gap of a sample that will do
_ARMIJO = 1e-4  # share of the decrease that the gradient promises which a step has to bring [NW06, eq. 3.4]
_FITTED_EXACTLY = 1e-11  # share of the largest target within which a row counts as fitted exactly,
_NEARLY = 0.98  # and of what outliers may weigh, times epsilon^2, for a scale of zero: a sample may be mistaken
_LED_ASTRAY = 0.05  # typical residual of least squares, as a share of the largest, where outliers may hide exact fits


def solve_scaled(problem: ScaledHuber, state: State, options: RunOptions) -> Generator[Ask, Any, None]:
    """Lower the bracket of `state`: Newton's method from where a sample has its optimum, a pass each."""
    part: DataPart | None = None
    wanted = rows_at_once(problem, options)
    if wanted < 0:
        part = yield Ask(rows=-1)
    sample: DataPart = part if part is not None else (yield Ask(rows=wanted))
    relations = relations_of(problem, sample) if problem.alpha == 0.0 else Relations.none(problem.size)
    state.unit = _SMALLEST_SHARE * 2.0 * problem.count / sample.count * _null(problem, sample) or 1.0
    if not relations.spared.size and (part is not None or not isinstance(problem.table, OnDevice)):
        problem = replace(
            problem, centre=centre_of(rows_of(problem.blocks[0].at(sample), problem.variables), problem.ridge)
        )
    steps, again = _from_sample(problem, state, options, sample, part, relations), sample
    if problem.centre is None:
        del again  # so that it is not held while rows are read
    del sample
    while True:
        try:
            yield from steps
        except LosesDigits as lost:  # by the first pass
            problem = replace(problem, centre=lost.left)
            steps = _from_sample(problem, state, options, again, part, relations)
        else:
            return


def _from_sample(
    problem: ScaledHuber, state: State, options: RunOptions, sample: DataPart, part: DataPart | None,
    relations: Relations,
) -> Generator[Ask, Any, None]:  # fmt: skip
    if (exact := _exact(problem, sample, options)) is not None:
        yield from vanish(problem, state, options.tol, *exact, part, relations)
        if state.reached(options.tol):
            return
    if few_within(problem):
        yield from finish(problem, state, options, sample, part, relations)
        if state.reached(options.tol):
            return
    if few_within(problem) and math.isfinite(state.upper):
        x, scale = state.x[:-1] if problem.centre is None else problem.centre.there(state.x[:-1]), float(state.x[-1])
    else:
        x, scale = _pilot(problem, sample, options)
    del sample
    yield from _descend(problem, state, options, x, scale, part, relations)


def _descend(
    problem: ScaledHuber, state: State, options: RunOptions, x: Vector, scale: float, part: DataPart | None,
    relations: Relations,
) -> Generator[Ask, Any, None]:  # fmt: skip
    """Newton's method from a point, by passes or on the rows that were read."""
    first, step, length = scale, np.zeros(problem.width + 1), 1.0
    before: Seen | None = None
    stalled = 0
    for attempt in range(_MOST_EVALUATIONS):
        state.steps += 1
        if attempt:
            options.check()
        seen = yield from evaluated(problem, x, scale, part, relations.vectors if attempt == 0 else None)
        if attempt == 0:
            relations = relations.where(np.broadcast_to(seen.related, relations.spared.shape))
        if before is not None and not seen.value <= before.value * (1.0 + 1e-14) + _promised(before, step, length):
            if length < _SHORTEST_SCALE_STEP:
                return
            length *= 0.3
        else:
            gap = state.gap
            see(problem, state, seen, relations)
            least = 0.1 if state.lower > 0.0 else options.tol  # without a bound, it is the value alone that steps lower
            stalled = stalled + 1 if gap - state.gap < least * gap else 0  # at what rounding leaves
            if state.reached(options.tol) or scale < _VANISHED_SCALE * first or stalled > _STALLED_SCALE_STEPS:
                return
            if (factor := _off_scale(problem, seen)) != 1.0:  # first the scale alone: far from it, steps lead nowhere
                before, scale = None, rounded(factor * scale)
                state.latest = np.append(seen.given, scale)
                continue
            before, step = seen, newton(problem, seen, relations)
            length = min(1.0, (1.0 - 1.0 / _RESCALING) / max(-step[-1], 1e-9), (_RESCALING - 1.0) / max(step[-1], 1e-9))
        x, scale = before.x + length * step[:-1], rounded(before.scale * (1.0 + length * float(step[-1])))
        state.latest = np.append(x if problem.centre is None else problem.centre.back(x)[0], scale)


def _promised(before: Seen, step: Vector, length: float) -> float:
    """The share that has to come true of what the gradient promises for a step."""
    return 2.0 / before.scale * _ARMIJO * length * float(before.gradient @ step)


def _off_scale(problem: ScaledHuber, seen: Seen) -> float:
    """Times what the scale should be, where it is far off: one otherwise.

    With the residuals as they are, ``s^2 <- sum_i c_i v_i^2 / sum_i c_i`` lowers the objective [Hub81, section 7.8].
    """
    half = float(seen.weight.middle) * 0.5 * seen.scale * seen.scale
    share, most = 1.0 - float(seen.gradient[-1]) / half, problem.epsilon**2
    if -_OFF_SCALE <= share - 1.0 <= min(_OFF_SCALE, _BEYOND_KNOT * (most - 1.0)):
        return 1.0
    if share > _BEYOND_KNOT * most:  # nearly all rows are beyond the knot, and tell little
        return _RESCALING
    return max(math.sqrt(max(share, 0.0)), 1.0 / _RESCALING)


def _arrays(problem: ScaledHuber, sample: DataPart) -> tuple[Vector, Rows]:
    rows = problem.rows(sample)
    return -np.asarray(rows.linear.dense(), dtype=np.float64), rows


def _null(problem: ScaledHuber, sample: DataPart) -> float:
    """The sum of weights times the scale of the targets."""
    _, rows = _arrays(problem, sample)
    total = float(rows.weights.sum())
    if total == 0.0:
        return 0.0
    mean = 0.0 if problem.ridge.all() else float(rows.weights @ rows.offset) / total  # an intercept takes it
    few = HuberProblem(np.zeros((rows.count, 0)), rows.offset - mean, rows.weights, problem.epsilon, 0.0, False)
    return total * few.typical


def _exact(problem: ScaledHuber, sample: DataPart, options: RunOptions) -> tuple[Vector, float] | None:
    """A point that fits so many rows of a sample exactly that the best scale is zero, and a scale close to that.

    There each row costs ``2 epsilon |r|``, and the scale has nothing to gain where rows with ``r = 0`` are more than a
    share ``1 - 1 / epsilon^2``.
    """
    rows = problem.rows(sample)
    size = float(np.abs(rows.offset).max(initial=0.0))
    if size == 0.0 or not rows.weights.any():
        return None
    A, free = np.asarray(rows.linear.dense(), dtype=np.float64), problem.free
    if free is None:
        x = np.asarray(np.linalg.lstsq(A, -rows.offset, rcond=None)[0], dtype=np.float64)
    else:
        x = free @ np.linalg.lstsq(A @ free, -rows.offset, rcond=None)[0]
    residuals = np.abs(rows.positions(x))
    if not _fits(problem, rows, x, size) and float(np.median(residuals)) <= _LED_ASTRAY * float(residuals.max()):
        few = min(sample.count, MORE_ANCHORS + ANCHORS * problem.size)  # outliers lead absolute values not astray
        some = problem.blocks[0].at(sample.take(np.linspace(0, sample.count - 1, few).astype(np.intp)))
        x = options.minimize(Objective([replace(some, term=abs_())]), tol=_ROUGHLY, proved=False).x
        x = x if problem.centre is None else problem.centre.there(x)
    return (x, rounded(SCALE_NEAR_ZERO * size)) if _fits(problem, rows, x, size) else None


def _fits(problem: ScaledHuber, rows: Rows, x: Vector, size: float) -> bool:
    """Whether so many rows are fitted exactly, by what they weigh."""
    outliers = np.abs(rows.positions(x)) > _FITTED_EXACTLY * size
    return float(rows.weights[outliers].sum()) * problem.epsilon**2 <= _NEARLY * float(rows.weights.sum())


def _pilot(problem: ScaledHuber, sample: DataPart, options: RunOptions) -> tuple[Vector, float]:
    """The optimum of a sample."""
    A, rows = _arrays(problem, sample)
    marks = problem.ridge > 0.0
    share = sample.count / problem.count
    intercept = not marks.all()
    few = HuberProblem(
        np.ascontiguousarray(A[:, marks]), rows.offset, rows.weights, problem.epsilon, share * problem.alpha, intercept
    )
    x = np.zeros(problem.width)
    if few.total == 0.0:
        return x, 1.0
    typical = few.typical or 1.0
    start = np.append(np.zeros(int(marks.sum()) + 1), few.best_scale(rows.offset) or typical)
    newton, found = JointNewton(few, start), False
    with contextlib.suppress(Overflow):  # which the first pass tells
        found = problem.width == problem.size and newton.descend(1e-9 * typical, options.check)
    if found:
        x[marks], x[~marks] = newton.x[:-2], newton.x[-2] if intercept else 0.0
        return x, rounded(float(newton.x[-1]))
    state = State(np.append(x, start[-1]))  # as where columns depend on each other: by small steps
    of_sample = replace(problem, alpha=share * problem.alpha)
    rough, relations = options._replace(tol=_ROUGHLY), Relations.none(problem.size)
    for _ in _descend(of_sample, state, rough, x, rounded(start[-1]), sample, relations):
        pass
    x = state.x[:-1] if problem.centre is None else problem.centre.there(state.x[:-1])
    return x, rounded(max(float(state.x[-1]), 1e-9 * typical))
