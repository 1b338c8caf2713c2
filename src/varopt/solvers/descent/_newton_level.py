r"""Newton's method on the bound at one sigma.

Rows farther than `_FREEZING` standard deviations from every knot are equal to their polynomial to machine precision
and are frozen, so that the work of a level is that of the rows still near a knot.

[BV04] S. Boyd, L. Vandenberghe, Convex Optimization, 2004. [NW06] J. Nocedal, S. Wright, Numerical Optimization, 2006.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt._clock import left, tick
from varopt._linalg import solve_definite
from varopt.bounds import CompositeBound
from varopt.composite import Bounds, Composite
from varopt.solvers.descent._loop import Path
from varopt.solvers.descent._polyhedron import Polyhedron

__all__ = ["descend", "newton_level", "typical_lengths"]

Vector = NDArray[np.float64]

_QUICK = 1e6  # operations of a step that no clock is needed for
_FIRST = 4  # steps of a level of such that are taken whatever the limit
_FREEZING = 16.0  # standard deviations from a knot at which a row is frozen: its tail is below rounding at half of them
ARMIJO = 1e-4  # share of the decrease that the gradient promises which a step has to bring [NW06, eq. 3.4]
_NOISE = 64 * float(np.finfo(np.float64).eps)  # relative rounding of a sum over many rows
_TINY = float(np.finfo(np.float64).tiny)
_SHORTEST = 1e-10  # share of a step, or of the point that it moves, which is not worth taking
_MEDIAN = 100_000  # rows whose median is as good as that of more


def typical_lengths(problem: Composite, x: Vector) -> list[float]:
    """The median distance of each block's rows from their nearest knot, where not zero."""
    lengths = []
    for r, z in zip(problem.rows, problem.positions(x), strict=True):
        distance = r.knot_distance(z)
        least = 1e-10 * distance.max(initial=0.0)  # at a solution many rest but for rounding
        some = distance[:: 1 + distance.size // _MEDIAN]
        positive = some[some > least] if np.any(some > least) else distance[distance > least]
        lengths.append(float(np.median(positive)) if positive.size else 1.0)
    return lengths


def newton_level(path: Path, box: Bounds | Polyhedron | None = None) -> int:
    """Newton steps on the bound with the far rows frozen, within a box where there is one; says how many.

    A frozen row that leaves its piece was not far enough: the level is repeated from its start with such rows in play.
    """
    start, count = path.x, 0
    path.freeze_far(_FREEZING)
    while True:
        before = path.origin.positions(start)
        bound, steps = descend(path.at(path.x), box=box)
        path.x, count = bound.mean, count + steps
        if path.problem is path.origin:
            return count
        left = [
            ~live & r.left_piece(z, z0)
            for r, live, z, z0 in zip(path.origin.rows, path.live, path.origin.positions(path.x), before, strict=True)
        ]
        if not any(mask.any() for mask in left):
            return count
        wanted = [live | mask for live, mask in zip(path.live, left, strict=True)]
        path.x = start
        path.thaw()
        path.freeze(wanted)


def descend(
    bound: CompositeBound,
    enough: Callable[[CompositeBound], float] = lambda bound: sum(bound.added),
    cap: Callable[[Vector], float] = lambda step: 1.0,
    most: int = 25,
    box: Bounds | Polyhedron | None = None,
) -> tuple[CompositeBound, int]:
    """Newton steps until what was left to gain is small against what the smoothing adds: where they end, and how many.

    Parameters
    ----------
    bound : CompositeBound
        Where to begin.
    enough : callable
        The decrement that is small enough, for a bound; by default what the smoothing adds to all blocks.
    cap : callable
        The share of a step that may be taken.
    most : int
        Most steps.
    box : Bounds or Polyhedron, optional
        Where the steps keep to.
    """
    work = bound.problem.row_count * bound.mean.size**2
    if isinstance(bound.problem.hessian, np.ndarray):
        work += bound.mean.size**3 // 3  # for the factor, where rows are few or there are only squares
    for count in range(1, most + 1):
        if work > _QUICK:
            tick(work)
        elif count > _FIRST and left() <= 0.0:  # the first steps of a small problem are worth their time in any case
            break
        gradient = bound.mean_gradient
        matrix = bound.newton_matrix()
        step = solve_definite(matrix, -gradient) if box is None else box.step(matrix, gradient, bound.mean)
        decrement = -float(gradient @ step)  # lambda^2 of [BV04, sect. 9.5.1]: twice what a quadratic would gain
        if not decrement > _NOISE * abs(bound.value):
            break
        share = cap(step)
        last = share == 1.0 and decrement <= enough(bound)
        bound, length = _search(bound, share * step, share * decrement, last)
        if last or length < _SHORTEST:
            break
    return bound, count


def _search(bound: CompositeBound, step: Vector, decrement: float, last: bool) -> tuple[CompositeBound, float]:
    """Shorten the step until the bound falls enough, or it does not move the point; the products are made once.

    Where the curvature is singular but for rounding a step can be longer than the way to any optimum by many orders.
    Unless the step is the last of its level, what the next one needs is evaluated with the bound itself.
    """
    line, length = bound.along(step), 1.0
    far = max(1.0, float(np.abs(bound.mean).max())) / max(float(np.abs(step).max()), _TINY)
    allowed = bound.value + _NOISE * abs(bound.value)
    while True:
        trial = line.at(length, derivatives=not last)
        if trial.value <= allowed - ARMIJO * length * decrement:
            return trial, length
        if length < _SHORTEST * min(1.0, far):
            return trial, 0.0
        length *= 0.5 if length > 0.1 else 0.1
