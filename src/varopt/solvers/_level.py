r"""Newton's method on the bound at one sigma.

The rows are smoothed with standard deviations :math:`s_k = \sigma \ell_b`, :math:`\ell_b` the typical distance of a
block's rows from their knots. Rows farther than `FAR` standard deviations from every knot are equal to their
polynomial to machine precision and are frozen, so that the work of a level is that of the rows still near a knot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._composite import Composite, add
from varopt.solvers._definite import solve_definite
from varopt.solvers._loop import Path

__all__ = ["near", "newton_level", "typical_lengths"]

Vector = NDArray[np.float64]

FAR = 16.0  # standard deviations from a knot at which a row is frozen: its tail is below rounding at half of them
_DESCENT = 1e-4  # Armijo's constant
_ROUNDING = 64 * float(np.finfo(np.float64).eps)
_MEDIAN = 100_000  # rows whose median is as good as that of more


def near(path: Path) -> int:
    """Knots with a row within four standard deviations, each counted as often as there are such rows."""
    positions = path.problem.positions(path.x)
    return sum(
        int(np.count_nonzero(np.abs(z - t) < 4.0 * deviation))
        for r, z, deviation in zip(path.problem.rows, positions, path.deviations, strict=True)
        for t in r.term.knots
    )


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


def newton_level(path: Path) -> int:
    """Newton steps on the bound with the far rows frozen; says how many.

    A frozen row that leaves its piece was not far enough: the level is repeated from its start with such rows in play.
    """
    start, count = path.x, 0
    _freeze_far(path)
    while True:
        before = path.origin.positions(start)
        count += _descend(path)
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


def _freeze_far(path: Path) -> None:
    wanted = [live.copy() for live in path.live]
    positions = iter(path.problem.positions(path.x))
    rows, deviations = iter(path.problem.rows), iter(path.deviations)
    for live in wanted:
        if live.any():
            live[live] = next(rows).knot_distance(next(positions)) < FAR * next(deviations)
    kept = sum(int(live.sum()) for live in wanted)
    if kept < 0.7 * path.problem.row_count or not all(r.is_direct for r in path.problem.rows):
        path.freeze(wanted)  # else the copy does not pay


def _descend(path: Path, most: int = 25) -> int:
    """Newton steps until what was left to gain is less than the smoothing gap itself; says how many."""
    problem, x = path.problem, path.x
    positions = problem.positions(x)
    bound = _evaluated(path, x, positions)
    for count in range(1, most + 1):  # noqa: B007  (the number of steps taken is the answer)
        slope, matrix, gap = problem.quadratic_slope(x).copy(), problem.hessian, 0.0
        for r, z, (smoothed, first, second) in zip(problem.rows, positions, bound.rows, strict=True):
            gap += float(r.weights @ (smoothed - r.term.value(z)))
            slope += r.linear.transpose_apply(r.weights * first)
            bend = r.weights * second
            active = np.flatnonzero(bend > 1e-10 * bend.max(initial=0.0))
            if active.size > 0.6 * r.count:
                matrix = add(matrix, r.linear.gram(bend))
            elif active.size:
                matrix = add(matrix, r.linear.rows(active).gram(bend[active]))
        step = solve_definite(matrix, -slope)
        decrement = -float(slope @ step)
        if not decrement > _ROUNDING * abs(bound.value):
            break
        last = decrement <= gap
        x, positions, bound = _search(path, x, positions, step, bound.value, decrement, last)
        if last:
            break
    path.x = x
    return count


class _Bound(NamedTuple):
    """The bound at a point; for each block the expectations of its rows, with two derivatives where asked for."""

    value: float
    rows: Sequence[tuple[Vector, ...]]


def _evaluated(path: Path, x: Vector, positions: list[Vector], derivatives: bool = True) -> _Bound:
    rows = [
        r.term.derivatives(z, deviation) if derivatives else (r.term.expectation(z, deviation),)
        for r, z, deviation in zip(path.problem.rows, positions, path.deviations, strict=True)
    ]
    total = sum(float(r.weights @ row[0]) for r, row in zip(path.problem.rows, rows, strict=True))
    return _Bound(path.problem.quadratic(x) + total, rows)


def _search(
    path: Path, x: Vector, positions: list[Vector], step: Vector, value: float, decrement: float, last: bool
) -> tuple[Vector, list[Vector], _Bound]:
    """Shorten the step until the bound falls enough, or does not move the point; products with the data are made once.

    Where the curvature is singular but for rounding a step can be longer than the way to any optimum by many orders.
    Unless the step is the last of its level, what the next one needs is evaluated with the bound itself.
    """
    length = 1.0
    shortest = 1e-10 * min(1.0, max(1.0, float(np.abs(x).max())) / float(np.abs(step).max()))
    moves = [r.linear.apply(step) for r in path.problem.rows]
    while True:
        trial = [z + length * move for z, move in zip(positions, moves, strict=True)]
        bound = _evaluated(path, x + length * step, trial, derivatives=not last)
        if bound.value <= value - _DESCENT * length * decrement + _ROUNDING * abs(value) or length < shortest:
            return x + length * step, trial, bound
        length *= 0.5 if length > 0.1 else 0.1
