r"""Huber's regression with its scale, where few rows are within epsilon scales, or the best scale is zero.

Rows beyond the knot are linear in coefficients and scale, ``c (2 eps |r| - (eps^2 - 1) s)``, and stay so near a point:
a pass adds them up as one line, and keeps the others. What is left is a small problem in memory, at each scale a sum
of `huber` and a line; the root of its derivative in the scale is found there. Near ``eps = 1`` that takes few passes
where Newton's method, which sees how many rows are within only as its scale gets there, takes many.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from varopt.composite import Rows
from varopt.model import Affine, Objective, Variable, sum_squares
from varopt.model.blocks import AffineBlock, TermBlock
from varopt.model.maps import Matrix
from varopt.optimize.anywhere._ask import Ask
from varopt.optimize.anywhere._engine import COPIES, RunOptions
from varopt.optimize.anywhere._relations import Relations
from varopt.optimize.anywhere._scale_bound import ScaledHuber, Seen, evaluated, see, solved
from varopt.places import DataPart
from varopt.solvers import State
from varopt.solvers.huber import HuberProblem, ScaleSearch
from varopt.terms import abs_, huber

__all__ = ["SCALE_NEAR_ZERO", "few_within", "finish", "newton", "rounded", "vanish"]

Vector = NDArray[np.float64]

_FEW_WITHIN = 0.03  # epsilon^2 less one, a share of the rows: at the optimum not many more are within the knot
_WITHIN, _MISLED = 3.0, 8.0  # times that share, and times what a sample is expected to be off by, rows are kept
_MOST_FINISHES = 5  # passes, each with the rows that the last point says to keep
_KNOTS_KEPT = 3.0  # knots within which rows are kept at the least
_NO_SCALE = 1e-9  # share of the distance within which rows are kept, below which the scale is tried as zero
_ROUGHLY_FITTED, _TAKEN_UP_AT = 1e-4, 0.25  # gap of the fit to a sample; deviation at which small problems are taken up
_EXACTLY = 1e-3  # of the gap allowed, for small problems
SCALE_NEAR_ZERO = 1e-8  # share of the largest target that is a scale close to zero, but for rounding
_OF_TOLERANCE = 0.05  # share of the gap allowed that a scale may cost, where zero is the best
_SCALE_BITS = 24  # of a scale, so that its square is exact


def few_within(problem: ScaledHuber) -> bool:
    """Whether so few rows are within the knot that they may be kept."""
    return problem.epsilon**2 - 1.0 <= _FEW_WITHIN


def finish(
    problem: ScaledHuber, state: State, options: RunOptions, sample: DataPart, part: DataPart | None,
    relations: Relations,
) -> Generator[Ask, Any, None]:  # fmt: skip
    """Solve small problems in which far rows are a line, each a pass nearer to the whole one."""
    block, rows = problem.blocks[0].at(sample), problem.rows(sample)
    share = sample.count / problem.count
    ridge = 0.5 * share * problem.alpha / problem.epsilon * sum_squares(problem.coefficients)
    absolute = Objective([replace(block, term=abs_()), *(ridge.blocks if problem.alpha else ())])
    x = _flat(problem, absolute, options.minimize(absolute, tol=_ROUGHLY_FITTED, proved=False).x)
    x = x if problem.centre is None else problem.centre.there(x)
    distances, size = np.sort(np.abs(rows.positions(x))), float(np.abs(rows.offset).max(initial=0.0))
    within = float(np.quantile(distances, min(1.0, _WITHIN * (problem.epsilon**2 - 1.0))))
    within += _MISLED * math.sqrt((problem.size + 1) / sample.count) * float(np.median(distances))
    near = np.searchsorted(distances, within) / sample.count * problem.count
    if not within > 0.0 or near > options.memory // (COPIES * problem.row_bytes):
        return
    del sample, rows, block, absolute
    scale = within / (_KNOTS_KEPT * problem.epsilon)
    for attempt in range(_MOST_FINISHES):
        state.steps += 1
        within, best = max(within, _KNOTS_KEPT * problem.knot(scale)), state.upper
        found = rounded(scale)
        seen = yield from evaluated(problem, x, found, part, None if attempt else relations.vectors, within)
        if not attempt:
            relations = relations.where(np.broadcast_to(seen.related, relations.spared.shape))
        see(problem, state, seen, relations)
        if state.reached(options.tol) or not seen.value < best:
            return
        x, scale = _small(problem, seen, options, _NO_SCALE * within)
        state.latest = np.append(x if problem.centre is None else problem.centre.back(x)[0], scale)
        if scale == 0.0:
            scale = rounded(SCALE_NEAR_ZERO * size)
            yield from vanish(problem, state, options.tol, x, scale, part, relations, _KNOTS_KEPT * problem.knot(scale))
            if state.reached(options.tol):
                return


def _small(problem: ScaledHuber, seen: Seen, options: RunOptions, least: float) -> tuple[Vector, float]:
    """The optimum where the rows that were not kept are a line; a scale of zero where it falls below `least`."""
    kept, knot, x = seen.kept, problem.knot(seen.scale), seen.x
    line = np.asarray(seen.far.gradient.ball().middle / knot, dtype=np.float64)  # of the sum of ``c |r|`` of the others
    offset = float(seen.far.offsets.ball().middle) / knot
    far = max(float(seen.weight.middle) - float(kept.weights.sum()), 0.0)
    weights = np.append(kept.weights, far)

    def residuals() -> Vector:
        return np.append(kept.positions(x), (line @ x + offset) / far if far else 0.0)

    few = HuberProblem(np.zeros((weights.size, 0)), residuals(), weights, problem.epsilon, 0.0, False)
    search, scale = ScaleSearch(few, seen.scale), seen.scale
    objective = _AtScale(problem, kept, line)
    for scale in search:
        vanishes = scale < least
        x = objective.best(0.0 if vanishes else scale, x, options)
        if vanishes:
            return x, 0.0
        search.tell(residuals())
    return x, scale


class _AtScale:
    """The objective over ``2 eps``, or over the scale's share of that: of the rows kept, a line, and the ridge."""

    def __init__(self, problem: ScaledHuber, kept: Rows, line: Vector) -> None:
        matrix, free, ridge = np.asarray(kept.linear.dense(), dtype=np.float64), problem.free, problem.ridge > 0.0
        self.problem, self.kept, self.free = problem, kept, free
        squares = np.eye(ridge.size)[ridge]
        if free is not None:
            matrix, line, squares = matrix @ free, line @ free, squares @ free
        u = self.variable = Variable(matrix.shape[1], name="u")
        self.rows = Affine({u: Matrix(matrix)}, kept.offset, (kept.count,))
        self.others = [AffineBlock(Affine({u: Matrix(line[None, :])}, 0.0, ()))]
        if problem.alpha:
            penalty = Affine({u: Matrix(squares)}, np.zeros(len(squares)), (len(squares),))
            self.others += (0.5 * problem.alpha / problem.epsilon * sum_squares(penalty)).blocks

    def best(self, scale: float, x: Vector, options: RunOptions) -> Vector:
        """The best coefficients at a scale, which may be zero, near others."""
        knot = self.problem.knot(scale)
        term, over = (huber(knot), knot) if scale else (abs_(), 1.0)
        small = Objective([TermBlock(term, self.rows, self.kept.weights / over), *self.others])
        start = x if self.free is None else np.asarray(np.linalg.lstsq(self.free, x, rcond=None)[0], dtype=np.float64)
        near = State(start, latest=start, sigma=_TAKEN_UP_AT)
        found = options.minimize(small, tol=_EXACTLY * options.tol, resume=near, proved=False).x
        return np.asarray(found if self.free is None else self.free @ found)


def _flat(problem: ScaledHuber, objective: Objective, x: Vector) -> Vector:
    """A point of an objective of the same variables in their order here."""
    point = np.zeros(problem.size)
    for variable, place in problem.objective.slices.items():
        point[place] = x[objective.slices[variable]]
    return point


def vanish(
    problem: ScaledHuber, state: State, tol: float, x: Vector, scale: float, part: DataPart | None,
    relations: Relations, within: float = 0.0,
) -> Generator[Ask, Any, None]:  # fmt: skip
    """The bracket where the best scale is zero: a bound from a scale close to that, a value where it costs little."""
    seen = yield from evaluated(problem, x, scale, part, relations.vectors, within)
    relations = relations.where(np.broadcast_to(seen.related, relations.spared.shape))
    see(problem, state, seen, relations)
    if not state.reached(tol) and not state.lower > 0.0:
        # Outliers weigh more than the few rows that keep room can balance: a step lets all that are fitted do that.
        balanced = x + newton(problem, _scale_apart(seen), relations)[:-1]
        see(problem, state, (yield from evaluated(problem, balanced, scale, part, None, within)), relations)
    tiny = rounded(_OF_TOLERANCE * state.allowed(tol) / float(seen.weight.middle))
    see(problem, state, (yield from evaluated(problem, x, tiny, part, None)), relations)


def newton(problem: ScaledHuber, seen: Seen, relations: Relations) -> Vector:
    """Newton's step, in units in which the Hessian has a diagonal of ones; along relations there is none."""
    hessian, gradient = seen.hessian.copy(), seen.gradient.copy()
    if (free := problem.free) is not None:
        free = block_diag(free, 1.0)
        return np.asarray(free @ -solved(free.T @ hessian @ free, free.T @ gradient, 1e-14))
    hessian[relations.spared] = hessian[:, relations.spared] = 0.0
    gradient[relations.spared] = 0.0
    return -solved(hessian, gradient, 1e-14)


def _scale_apart(seen: Seen) -> Seen:
    """With derivatives in the coefficients alone."""
    gradient, hessian = seen.gradient.copy(), seen.hessian.copy()
    gradient[-1] = hessian[-1] = hessian[:, -1] = 0.0
    return seen._replace(gradient=gradient, hessian=hessian)


def rounded(scale: float) -> float:
    """With few digits."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(round(math.ldexp(mantissa, _SCALE_BITS)), exponent - _SCALE_BITS)
