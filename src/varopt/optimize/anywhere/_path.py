r"""Newton's method on the bound, each evaluation a pass over rows that are not in memory.

Where too many rows lie near a knot for the pilot to settle them, and where a pass is cheap, as on a device: sigma falls
until few are left. A pass yields value, gradient and Hessian together, so that a step that is taken costs one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._linalg import solve_definite
from varopt.bounds import CompositeBound, RowNoise
from varopt.composite import composite
from varopt.model import Objective
from varopt.optimize.anywhere._ask import Ask
from varopt.optimize.anywhere._band import typical_lengths
from varopt.optimize.anywhere._problem import Problem
from varopt.optimize.anywhere._sweep import Moments, Moved
from varopt.places import DataPart

__all__ = ["Reached", "follow", "on_sample", "unit_of"]

Vector = NDArray[np.float64]

_FACTOR = 0.3  # by which deviations fall from level to level
_MOST_LEVEL_STEPS = 8  # most steps of a level
_EVALUATIONS = 30  # most of a path: where they do not suffice, as for features of hardly any row, more do not help
_SMALLEST_DEVIATION = 1e-9  # share of the first deviation at which the path ends
_ARMIJO = 1e-4  # share of the decrease that the gradient promises which a step has to bring [NW06, eq. 3.4]


class Reached(NamedTuple):
    """Where a path has ended: a point, the deviations there, and how many rows lie within four of them of a knot."""

    x: Vector
    deviations: list[float]
    near: int


class _Evaluated(NamedTuple):
    value: float
    gradient: Vector
    hessian: Vector
    added: float
    near: int


def follow(
    problem: Problem, x: Vector, deviations: Sequence[float], last: Callable[[Reached], bool],
    step: Callable[[], None], every: int = 1,
) -> Generator[Ask, Any, Reached]:  # fmt: skip
    """Lower the bound while deviations fall, until `last`; of `every` rows one stands for all."""
    deviations, first, left = list(deviations), list(deviations), _EVALUATIONS
    while True:
        left -= 1
        at = yield from _evaluate(problem, x, deviations, first, every)
        for _ in range(_MOST_LEVEL_STEPS if left > 0 else 0):
            move = solve_definite(at.hessian, -at.gradient)
            decrement = -float(at.gradient @ move)
            if not decrement > 1e-13 * abs(at.value):
                break
            step()
            if decrement <= at.added:  # the last of the level: to look at it first would cost a pass
                x = x + move
                break
            length, left = 1.0, left - 1
            there = yield from _evaluate(problem, x + move, deviations, first, every)
            while there.value > at.value - _ARMIJO * length * decrement + 1e-13 * abs(at.value) and length > 1e-6:
                length, left = 0.3 * length, left - 1
                there = yield from _evaluate(problem, x + length * move, deviations, first, every)
            x, at = x + length * move, there
        reached = Reached(x, deviations, at.near)
        if last(reached) or deviations[0] <= _SMALLEST_DEVIATION * first[0] or left <= 0:
            return reached
        deviations = [_FACTOR * s for s in deviations]


def on_sample(problem: Problem, sample: DataPart) -> Vector:
    """Where the path on a sample ends, at about its own error: no proof is needed of it, and no exact optimum."""
    scale, x = problem.count / sample.count, np.zeros(problem.size)
    lengths = typical_lengths(problem, sample, x)
    rough = float(np.sqrt(problem.size / sample.count))
    path = follow(problem, x, lengths, lambda at: at.deviations[0] <= 2.0 * rough * lengths[0], lambda: None)
    answer: Any = None
    while True:
        try:
            ask = path.send(answer)
        except StopIteration as end:
            return np.asarray(end.value.x)
        moved = [m.of(block, problem.variables, sample) for block, m in zip(problem.blocks, ask.work, strict=True)]
        answer = [Moved(scale * m.value, scale * m.gradient, scale * m.hessian, scale * m.added, m.near) for m in moved]


def unit_of(problem: Problem, sample: DataPart) -> float:
    """What values below count as, where a gap is relative: as of all rows, estimated by a sample of them."""
    return composite(problem.on(sample, problem.count / sample.count)).unit


def _evaluate(
    problem: Problem, x: Vector, deviations: Sequence[float], first: Sequence[float], every: int
) -> Generator[Ask, Any, _Evaluated]:
    moved: list[Moved] = yield Ask(work=[Moments(x, s, every) for s in deviations])
    value, gradient, hessian = _penalties(problem, x, deviations[0] / first[0])
    return _Evaluated(
        value + sum(m.value for m in moved), gradient + sum(m.gradient for m in moved),
        hessian + sum(m.hessian for m in moved), sum(m.added for m in moved), sum(m.near for m in moved),
    )  # fmt: skip


def _penalties(problem: Problem, x: Vector, sigma: float) -> tuple[float, Vector, Vector]:
    """The bound of what is in memory, kinks smoothed by a share of where they are."""
    gradient, hessian = np.zeros(x.size), np.zeros((x.size, x.size))
    if not problem.others:
        return 0.0, gradient, hessian
    others = Objective(problem.others)
    if not others.variables:
        return float(others.at(np.zeros(0))), gradient, hessian
    form = composite(others)
    place = np.concatenate([np.r_[problem.objective.slices[v]] for v in others.variables])
    lengths = [max(float(np.median(np.abs(r.positions(x[place])))), 1e-3) for r in form.rows]
    bound = CompositeBound(form, x[place], RowNoise(0.1 * sigma, lengths))
    matrix = bound.newton_matrix()
    gradient[place] = bound.mean_gradient
    if matrix is not None:
        hessian[np.ix_(place, place)] = matrix.toarray() if hasattr(matrix, "toarray") else matrix
    return bound.value, gradient, hessian
