"""A step towards the optimum of a kernel machine from values that are known to more digits than its solver has.

Large weights make small errors dear: where samples rest on a kink to sixteen digits of ``K beta`` only, what they miss
costs its weight. From residuals with more digits the same programme has a solution with more digits, as linear systems
have by iterative refinement [Higham 2002, chapter 12].
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._verified import TINY, UNIT, Pair
from varopt.solvers.finish import box_by_active_set, box_by_interior_point
from varopt.solvers.kernel._kernel_machine import KernelProblem, bordered
from varopt.solvers.kernel._proof import Enclosed, sides

__all__ = ["best_intercept", "refinement"]

Vector = NDArray[np.float64]

_SMALL_MULTIPLIER = 0.05  # share of its range below which a multiplier is small
_NO_MULTIPLIER = 1e-6  # share of the largest below which a multiplier may have the wrong sign
_ROUNDINGS_INSIDE = 4.0  # units of what is added up by which samples with small multipliers keep off their kinks
_DOUBTFUL_REST, _NEAR = 1e3, 1e-9  # shares of what positions are made of by which samples may be off and yet rest
_SHARE_OF_GAP = 1e-4  # from which on a sample is solved for, wherever it is
_PROGRAMME_SAMPLES = 400  # that are solved for at most
_AT_BOUND = 1e-10  # share of the largest coefficient within which one is at a bound
_LEVEL = 1e-12  # share of all slopes below which a slope is zero


def best_intercept(problem: KernelProblem, values: Enclosed, offset: Pair, b: float) -> float:
    """The intercept at which samples cost least, at given values of ``K beta``: a weighted median."""
    steps, slopes, before = [], [], 0.0
    for side in sides(problem, values, offset, b):
        steps.append(-side.sign * problem.scale * side.beyond.value.high)
        slopes.append(side.cost)
        before -= float(side.cost[side.sign * problem.scale < 0.0].sum())
    step, slope = np.concatenate(steps), np.concatenate(slopes)
    order = np.argsort(step)
    after = before + np.cumsum(slope[order])
    level = _LEVEL * float(slope.sum())
    at = min(int(np.searchsorted(after, -level)), step.size - 1)
    low = high = float(step[order[at]])
    if abs(after[at]) <= level and at + 1 < step.size:  # as good up to the next
        high = float(step[order[at + 1]])
    return b if low <= 0.0 <= high else b + 0.5 * (low + high)


def refinement(problem: KernelProblem, values: Enclosed, offset: Pair, beta: Vector, b: float) -> Vector | None:
    """What is missing in the coefficients of samples that rest on a kink, or may; None where it is not found.

    In ``u = sign v >= 0`` on the side of a sample, the dual value has the derivatives ``sign (z - knot)``, and they
    are a programme in a box: what is left of them is solved for, in units of that.
    """
    v, largest = -problem.scale * beta, float(np.abs(beta).max(initial=0.0))
    sign, knot, beyond, cost = (np.zeros(problem.size) for _ in range(4))
    for side in sides(problem, values, offset, b):
        high = side.beyond.value.high
        # With hardly a multiplier a sample is on the side that it is nearest to, or beyond.
        own = (side.sign * v > _NO_MULTIPLIER * largest) | (
            (np.abs(v) <= _NO_MULTIPLIER * largest) & ((high > beyond) | (cost == 0.0))
        )
        for whole, part in ((sign, side.sign), (knot, side.knot), (beyond, high), (cost, side.cost)):
            np.copyto(whole, part, where=own)
    u = sign * v
    room = np.where(beyond > 0.0, cost - u, u)
    sizes = np.abs(values.value.high) + abs(b) + np.abs(offset.high) + np.abs(knot) + TINY
    # Complementary: samples rest where what is left of their multiplier is a larger share than what they are off by.
    rests = np.abs(beyond) * largest <= _DOUBTFUL_REST * sizes * room + _NEAR * sizes * largest
    lost = np.abs(beyond) * room  # the gap, sample by sample
    index = np.flatnonzero(rests | (lost > _SHARE_OF_GAP * lost.sum()))
    if not index.size:
        return None
    index = np.sort(index[np.argsort(np.abs(beyond[index]) / sizes[index])[:_PROGRAMME_SAMPLES]])
    tick(float(index.size) ** 3)
    turn = (-problem.scale * sign)[index]
    low = np.where(knot == -knot, -cost - u, -u)[index]
    matrix = turn[:, None] * problem.block(index, index) * turn
    # What rounding of the coefficients moves positions by.
    moved = np.abs(matrix) @ np.abs(beta[index]) + sizes[index]
    inside = np.where((u < _SMALL_MULTIPLIER * cost)[index], _ROUNDINGS_INSIDE * UNIT * moved, 0.0)
    target = beyond[index] + inside
    high, missing = (cost - u)[index], -math.fsum(beta)
    found = box_by_active_set(matrix, -target, turn[None, :], np.array([missing]), low, high)
    if found is None:
        tried = (
            _at_rest(matrix, target, turn, missing, low, high, _AT_BOUND * largest),
            _inside(matrix, target, turn, missing, low, high),
        )
        found = min(tried, key=lambda step: 0.5 * float(step @ matrix @ step) - float(target @ step))
    step = np.zeros(problem.size)
    step[index] = turn * found
    return step


def _at_rest(
    matrix: Vector, target: Vector, turn: Vector, total: float, low: Vector, high: Vector, margin: float
) -> Vector:
    """The step that puts samples away from their bounds on their kinks, or as much of it as these allow."""
    free = (low < -margin) & (high > margin)
    signs = turn[free]
    found = bordered(
        signs[:, None] * matrix[np.ix_(free, free)] * signs, signs * target[free], total, np.zeros(signs.size)
    )
    step = np.zeros(turn.size)
    if found is None:
        return step
    step[free] = signs * found[0]
    ends = np.where(step > 0.0, high, low)
    share = np.divide(ends, step, out=np.ones_like(step), where=step != 0.0)
    return step * min(1.0, float(share.min(initial=1.0)))


def _inside(matrix: Vector, target: Vector, turn: Vector, total: float, low: Vector, high: Vector) -> Vector:
    """The step to where interior points end, which is coarse, and away from no bound by mistake."""
    found, _ = box_by_interior_point(matrix, matrix @ low - target, high - low, turn, total - float(turn @ low))
    return np.clip(found + low, low, high)
