r"""`knots`: trend filtering by lines that may break at a few places only.

A broken line is made of its values at the knots, and the dual point is at an end of its range wherever the line breaks.
Guess where, and at which end: then a tridiagonal system has the values, and sums of sums of residuals have the dual
point elsewhere. A knot at which the line breaks to the wrong side is none; a place at which the dual point leaves its
range becomes one. That is a primal-dual active set, which changes all that is wrong at once, and which may go on
changing the same few for ever [HC15]: small programmes settle these, each of the duals of a few neighbours. The first
guess is that of interior points with a knot at every eighth place, in the values there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._maps import Sparse
from varopt.solvers._bends import Bends, Line
from varopt.solvers._box import box_by_active_set
from varopt.solvers._composite import Composite, Rows
from varopt.solvers._duality import dual_gap
from varopt.solvers._interior_point import InteriorPoint
from varopt.solvers._method import Method
from varopt.solvers._state import Check, State

__all__ = ["Knots"]

Vector = NDArray[np.float64]
Sides = NDArray[np.int8]  # for every kink: 1 where the dual point is at its high end, -1 at its low end, 0 within

_LONG = 1000  # places from which lines pay
_MARGIN = 1e-12  # share of its range by which a dual point may leave it
_ROUGHLY, _NEAR = 1e-3, 0.02  # tolerance of the first guess, and share of the range within which an end counts as met
_MET = 1e-6  # the latter where interior points have gone on to the end
_UNIT = 1e-6  # share of the squares at a constant that is the unit of the objective for interior points
_PATIENCE = 3  # rounds without fewer changes after which they go in circles
_MOST = 20  # times that what goes in circles is settled
_MANY = 0.65  # share of the places at which the line should break beyond which a few at a time do not pay
_DECIDED = 200  # neighbouring places that change in circles up to which a small programme settles them,
_BESIDE = 10  # with so many knots to either side
_FEW = 0.25  # share of the places at which a start may break


@dataclass(frozen=True)
class Knots(Method):
    """Break a line where its dual point says so.

    Parameters
    ----------
    spacing : int
        Places for each knot of the first guess.

    Notes
    -----
    A round costs some thirty passes over vectors of the size of the signal; there are ten to thirty. Interior points
    see a knot for every `spacing` places at first, and later little more than the knots of the optimum. A start `x0`
    with few breaks, as the optimum of a similar penalty, saves the first. Memory: a dozen vectors beside the problem.
    """

    spacing: int = 8

    name: ClassVar[str] = "knots"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        if reason := problem.not_convex or problem.not_quadratic:
            return reason
        return "" if problem.bends else "it is no line with a square for each variable and a kink where it bends."

    def suits(self, problem: Composite) -> bool:
        """Whether the signal is long enough for rounds to cost less than steps of interior points."""
        return problem.size >= _LONG

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        if problem.bends is None:
            raise ValueError(self.refusal(problem))
        try:
            settled = _settles(problem, problem.bends, state, tol, check, self.spacing)
        except np.linalg.LinAlgError:
            settled = False
        except BaseException:  # whatever ends the run: some point with a dual point of zero is better than nothing
            if not np.isfinite(state.upper):
                _show(problem, problem.bends, state, np.zeros(problem.size), np.zeros(problem.size - 2))
            raise
        if not settled or not state.reached(tol):
            InteriorPoint().solve(problem, state, tol, check)


def _settles(problem: Composite, bends: Bends, state: State, tol: float, check: Check, spacing: int) -> bool:
    """Whether the knots are found, or all but a few that matter less than the tolerance, whatever the units."""
    sides = _broken(bends, state.x)
    if sides is None:
        every = np.zeros(problem.size - 2, dtype=bool)
        every[spacing - 1 :: spacing] = True
        sides, missing = _settled(problem, bends, state, every, _ROUGHLY, check, rough=True)
        if missing > _MANY:
            return False
    moving = np.zeros(problem.size - 2, dtype=bool)
    for again in range(_MOST):
        moved, points = _exchange(problem, bends, state, sides, check, again=again > 0)
        if not moved.size or state.gap <= tol * abs(state.upper):
            return True
        known, moving[moved] = moving[moved].all(), True
        decided = not known and _decided(bends, sides, moving, points)
        del points  # before the next take as much again
        if not decided:
            sides, _ = _settled(problem, bends, state, moving | (sides != 0), 0.1 * tol, check)
    return False


def _exchange(
    problem: Composite, bends: Bends, state: State, sides: Sides, check: Check, *, again: bool
) -> tuple[NDArray[np.intp], Vector]:
    """Change what is wrong until nothing is, or until a few places change in circles, and show the line.

    They do where for a few rounds the changes are not fewer, once they have become so. Returned are these places, with
    all others that have changed where it is done again, and the points of the line.
    """
    fewest, before, waited, falls = problem.size, problem.size, 0, False
    moved: list[NDArray[np.intp]] = []
    while True:
        check(state)
        inner, breaks, points, dual = _line(bends, sides)
        state.steps += 1
        excess = dual - bends.high
        np.maximum(excess, bends.low - dual, out=excess)
        excess /= bends.width
        excess[inner] = 0.0
        joining = _peaks(excess, dual > bends.high)
        wrong = inner[(breaks * sides[inner] < 0.0) & ~bends.free[inner]]
        changes = joining.size + wrong.size
        if not changes:
            del excess
            _show(problem, bends, state, points, dual)
            return joining, points
        falls = falls or (before < problem.size and changes < before)
        waited = 0 if changes < fewest or not falls else waited + 1
        fewest, before = min(fewest, changes), changes
        sides[joining] = np.where(dual[joining] > bends.high[joining], 1, -1)
        sides[wrong] = 0
        moved = [*moved, joining, wrong] if waited or again else []
        if waited > _PATIENCE:
            del excess
            _show(problem, bends, state, points, dual)
            return np.unique(np.concatenate(moved)), points
        del points, dual, excess


def _line(bends: Bends, sides: Sides) -> tuple[NDArray[np.intp], Vector, Vector, Vector]:
    """The line with the given sides: the kinks at its knots, how it breaks there, its points and its dual point."""
    line = Line(bends, _knots(bends, sides != 0))
    at = np.where(sides[line.inner] > 0, bends.high[line.inner], bends.low[line.inner])
    values = line.pulled(at)
    points = line.points(values)
    return line.inner, line.bent(values), points, line.dual(points, at)


def _knots(bends: Bends, inside: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Knots at the given kinks, where there is no kink, and at the ends."""
    return np.concatenate([[0], np.flatnonzero(inside | bends.free) + 1, [bends.weights.size - 1]])


def _decided(bends: Bends, sides: Sides, moving: NDArray[np.bool_], points: Vector) -> bool:
    """Whether the moving places have found their sides, those at the optimum with all that is far away as it is.

    What a knot does to others fades with every knot in between. Moving places that are near each other make a small
    programme in their duals, with the sides nearby and the values of the line beyond as they are.
    """
    line = Line(bends, _knots(bends, moving | (sides != 0)))
    values, inner = points[line.knots] - bends.middle, line.inner
    at = np.where(sides[inner] > 0, bends.high[inner], bends.low[inner])
    moves = np.flatnonzero(moving[inner] & ~bends.free[inner])
    at[moves] = 0.0
    forces = line.forces(at)
    for group in np.split(moves, np.flatnonzero(np.diff(moves) > 2 * _BESIDE) + 1):
        if group.size > _DECIDED:
            return False
        part = slice(max(int(group[0]) + 1 - _BESIDE, 0), min(int(group[-1]) + 2 + _BESIDE, values.size))
        response, breaks = line.response(part, values, forces, group)
        places = inner[group]
        low, high = bends.low[places], bends.high[places]
        nothing = np.zeros((0, group.size))
        dual = box_by_active_set(response, -breaks, nothing, nothing[:, 0], low, high, sides[places].astype(np.float64))
        if dual is None:
            return False
        sides[places] = np.where(dual == high, 1, np.where(dual == low, -1, 0))
    return True


def _peaks(excess: Vector, above: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Where a dual point is farthest out of its range, in every stretch in which it is out on one side."""
    out = np.flatnonzero(excess > _MARGIN)
    if not out.size:
        return out
    new = np.diff(out) > 1
    new |= above[out[1:]] != above[out[:-1]]
    starts = np.append(0, np.flatnonzero(new) + 1)
    highest = np.maximum.reduceat(excess[out], starts)
    counts = np.diff(starts, append=out.size)
    peaks = np.flatnonzero(excess[out] == np.repeat(highest, counts))
    return np.asarray(out[peaks[np.unique(np.searchsorted(starts, peaks, side="right"), return_index=True)[1]]])


def _settled(
    problem: Composite, bends: Bends, state: State, candidates: NDArray[np.bool_], tol: float, check: Check, *,
    rough: bool = False,
) -> tuple[Sides, float]:  # fmt: skip
    """The sides at the optimum with knots at the candidates only, and the share of places at which it should break.

    The state is shown the optimum.
    """
    knots = _knots(bends, candidates)
    inner, at, values = knots[1:-1] - 1, np.zeros(knots.size - 2), None
    if inner.size:
        part = State(np.zeros(knots.size))
        small = _restricted(Line(bends, knots))
        InteriorPoint(exact=not rough).solve(small, part, tol, lambda _: check(state))
        state.steps += part.steps
        values, at = part.x, at if part.dual is None else part.dual[0] * bends.scale[inner]
        del small
    line = Line(bends, knots)  # anew: interior points had need of its room
    values = line.pulled(at) if values is None else values
    points = line.points(values)
    dual = line.dual(points, at)
    out = float(np.mean((dual < bends.low) | (dual > bends.high)))
    del line
    _show(problem, bends, state, points, dual)
    near = (_NEAR if rough else _MET) * (bends.high[inner] - bends.low[inner])
    sides = np.zeros(candidates.size, dtype=np.int8)
    sides[inner] = np.where(bends.high[inner] - at <= near, 1, np.where(at - bends.low[inner] <= near, -1, 0))
    return sides, out


def _restricted(line: Line) -> Composite:
    """The problem in the values at the knots."""
    bends, inner = line.bends, line.inner
    steep, count = 1.0 / line.lengths, inner.size
    entries = np.stack([steep[:-1], -(steep[:-1] + steep[1:]), steep[1:]], axis=1)
    columns = np.arange(count)[:, None] + np.arange(3)
    rows = Sparse(sp.csr_array((entries.ravel(), columns.ravel(), 3 * np.arange(count + 1)), (count, count + 2)))
    matrix = sp.diags_array([line.beside, line.diagonal, line.beside], offsets=[-1, 0, 1], format="csr")
    # As the terms are, rows count where their weights are not negative.
    term, scale = bends.rows.term.take(inner), bends.scale[inner]
    flip = np.where(scale < 0.0, -1.0, 1.0)
    rows = rows if np.all(flip > 0) else Sparse(sp.diags_array(flip) @ rows.explicit())
    energy = 0.5 * float(bends.pulls @ (bends.pulls / bends.weights))
    unit = _UNIT * energy or 1.0  # small beside the optimum: tolerances are relative to what is above one
    kinks = Rows(rows, np.zeros(count), term, np.abs(scale) / unit)
    return Composite(matrix / unit, line.vector / unit, energy / unit, (kinks,))


def _show(problem: Composite, bends: Bends, state: State, points: Vector, dual: Vector) -> None:
    """Show `state` a line (counted from the middle) with what its dual point proves, moved into its range.

    Both arrays are given away.
    """
    points += bends.middle
    slopes = bends.slopes(np.clip(dual, bends.low, bends.high, out=dual))
    positions = problem.positions(points)
    gap, assumption = dual_gap(problem, points, positions, [slopes])
    state.see(points, problem.value(points, positions), gap, assumption, dual=[slopes])
    state.sigma = 0.0
    state.record()


def _broken(bends: Bends, x: Vector) -> Sides | None:
    """The sides of the breaks of a line; None where there are none or too many for a start."""
    if not x.any():
        return None
    breaks = np.diff(np.diff(x) / bends.distances)
    sides = np.sign(np.where(np.abs(breaks) > 1e-9 * np.abs(breaks).max(), breaks, 0.0)).astype(np.int8)
    few = 0 < np.count_nonzero(sides) <= _FEW * sides.size
    return sides if few else None
