r"""`knots`: trend filtering by linear splines with a few knots, which are exchanged.

A spline is made of its values at the knots, and the dual point is at an end of its range wherever the spline has a
kink. Guess where, and at which end: then a tridiagonal system has the values (equation (3) of `_linear_spline`), and
sums of sums of residuals have the dual point elsewhere (equation (1) of `_trend_filtering`). A knot at which the kink
has the wrong sign is none; a place at which the dual point leaves its range becomes one. That is a primal-dual active
set, which changes all that is wrong at once, and which may go on changing the same few for ever [HC15]: small
programmes settle these, each of the duals of a few neighbours. The first guess is that of interior points with a knot
at every eighth place, in the values there. Where constraints make the spline convex, or concave, knots only have to be
added as long as there are any (`_convex_spline`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.certificates import dual_gap
from varopt.composite import Composite, Rows
from varopt.model.maps import Sparse
from varopt.solvers._method import Check, GaveUp, Nested, Solver, State, convex, piecewise_quadratic, signal
from varopt.solvers.finish import box_by_active_set
from varopt.solvers.signals._convex_spline import convex_spline
from varopt.solvers.signals._linear_spline import LinearSpline
from varopt.solvers.signals._trend_filtering import TrendFiltering, trend_filtering

__all__ = ["Knots"]

Vector = NDArray[np.float64]
Sides = NDArray[np.int8]  # for every kink: 1 where the dual point is at its high end, -1 at its low end, 0 within

# Nothing here is delicate: on a noisy random walk of 50,000 points, at three penalties over three orders, none of the
# guess, the cycles and the settling, two to ten times larger or smaller, changes the rounds (22, 20 and 43) by more
# than a third, or the time beyond its noise.
_LONG_SIGNAL = 1000  # places from which on rounds cost less than steps of interior points
_DUAL_EXCESS = 1e-12  # share of its range by which a dual point may leave it
_GUESS_TOL, _GUESS_END = 1e-3, 0.02  # of the first guess: its tolerance, and share of the range that counts as its end
_EXACT_END = 1e-6  # the latter where interior points have gone on to the end
_OBJECTIVE_UNIT = 1e-6  # share of the squares at a constant that is the unit of the objective for interior points
_CYCLING = 3  # rounds without fewer changes after which they go in circles
_CYCLES = 20  # times that what goes in circles is settled
_DENSE_KNOTS = 0.65  # share of the places that should be knots beyond which a few at a time do not pay
_SETTLED_PLACES = 200  # neighbours that change in circles up to which a small programme settles them,
_SETTLED_KNOTS = 10  # with so many knots to either side
_START_KNOTS = 0.25  # share of the places at which a start may have kinks


@dataclass(frozen=True)
class Knots(Nested):
    """Exchange the knots of a linear spline as its dual point says.

    Parameters
    ----------
    spacing : int
        Places for each knot of the first guess.

    Notes
    -----
    A round costs some thirty passes over vectors of the size of the signal; there are ten to thirty. Interior points
    see a knot for every `spacing` places at first, and later little more than the knots of the optimum. A start `x0`
    with few kinks, as the optimum of a similar penalty, saves the first. Memory: a dozen vectors beside the problem.
    """

    spacing: int = 8

    name: ClassVar[str] = "knots"
    fewest = _LONG_SIGNAL
    needs = (convex, piecewise_quadratic, signal)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks."""
        if problem.structure(trend_filtering) is None:
            return "it is no line with a square for each variable and a kink of every second difference."
        return ""

    def solve(self, problem: Composite, state: State, tol: float, check: Check, solver: Solver) -> None:
        """Lower the bracket of `state`."""
        signal = problem.structure(trend_filtering)
        if signal is None:
            raise ValueError(self.refusal(problem))
        try:
            _settle(problem, signal, state, tol, check, self.spacing, solver)
        except (np.linalg.LinAlgError, GaveUp):
            raise GaveUp from None
        except BaseException:  # whatever ends the run: some point with a dual point of zero is better than nothing
            if not np.isfinite(state.upper):
                _show(problem, signal, state, np.zeros(problem.size), np.zeros(problem.size - 2))
            raise


def _settle(
    problem: Composite, signal: TrendFiltering, state: State, tol: float, check: Check, spacing: int, solver: Solver
) -> None:
    """Find the knots, or all but a few that matter less than the tolerance, whatever the units, if they settle."""

    def seen() -> None:
        state.steps += 1
        check(state)

    if (convex := convex_spline(signal, _peaks, seen)) is not None:
        _show(problem, signal, state, *convex, held=True)
        return
    sides = _kinked(signal, state.x)
    if sides is None:
        every = np.zeros(problem.size - 2, dtype=bool)
        every[spacing - 1 :: spacing] = True
        sides, missing = _settled(problem, signal, state, every, _GUESS_TOL, check, solver, rough=True)
        if missing > _DENSE_KNOTS:
            raise GaveUp
    moving = np.zeros(problem.size - 2, dtype=bool)
    for again in range(_CYCLES):
        moved, points = _exchange(problem, signal, state, sides, check, again=again > 0)
        if not moved.size or state.gap <= tol * abs(state.upper):
            return
        known, moving[moved] = moving[moved].all(), True
        decided = not known and _decided(signal, sides, moving, points)
        del points  # before the next take as much again
        if not decided:
            sides, _ = _settled(problem, signal, state, moving | (sides != 0), 0.1 * tol, check, solver)
    raise GaveUp


def _exchange(
    problem: Composite, signal: TrendFiltering, state: State, sides: Sides, check: Check, *, again: bool
) -> tuple[NDArray[np.intp], Vector]:
    """Change what is wrong until nothing is, or until a few places change in circles, and show the spline.

    They do where for a few rounds the changes are not fewer, once they have become so. Returned are these places, with
    all others that have changed where it is done again, and the points of the spline.
    """
    fewest, before, waited, falls = problem.size, problem.size, 0, False
    moved: list[NDArray[np.intp]] = []
    while True:
        check(state)
        inner, kinks, points, dual = _spline(signal, sides)
        state.steps += 1
        excess = dual - signal.high
        np.maximum(excess, signal.low - dual, out=excess)
        excess /= signal.width
        excess[inner] = 0.0
        joining = _peaks(excess, dual > signal.high)
        wrong = inner[(kinks * sides[inner] < 0.0) & ~signal.free[inner]]
        changes = joining.size + wrong.size
        if not changes:
            del excess
            _show(problem, signal, state, points, dual)
            return joining, points
        falls = falls or (before < problem.size and changes < before)
        waited = 0 if changes < fewest or not falls else waited + 1
        fewest, before = min(fewest, changes), changes
        sides[joining] = np.where(dual[joining] > signal.high[joining], 1, -1)
        sides[wrong] = 0
        moved = [*moved, joining, wrong] if waited or again else []
        if waited > _CYCLING:
            del excess
            _show(problem, signal, state, points, dual)
            return np.unique(np.concatenate(moved)), points
        del points, dual, excess


def _spline(signal: TrendFiltering, sides: Sides) -> tuple[NDArray[np.intp], Vector, Vector, Vector]:
    """The spline with the given sides: its inner knots, the kinks there, its points and its dual point."""
    spline = LinearSpline(signal, _knots(signal, sides != 0))
    at = np.where(sides[spline.inner] > 0, signal.high[spline.inner], signal.low[spline.inner])
    values = spline.minimiser(at)
    points = spline.points(values)
    return spline.inner, spline.kinks(values), points, spline.dual(points, at)


def _knots(signal: TrendFiltering, inside: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Knots at the given kinks, where there is no kink, and at the ends."""
    return np.concatenate([[0], np.flatnonzero(inside | signal.free) + 1, [signal.weights.size - 1]])


def _decided(signal: TrendFiltering, sides: Sides, moving: NDArray[np.bool_], points: Vector) -> bool:
    """Whether the moving places have found their sides, those at the optimum with all that is far away as it is.

    What a knot does to others fades with every knot in between. Moving places that are near each other make a small
    programme in their duals, with the sides nearby and the values of the spline beyond as they are.
    """
    spline = LinearSpline(signal, _knots(signal, moving | (sides != 0)))
    values, inner = points[spline.knots] - signal.mean, spline.inner
    at = np.where(sides[inner] > 0, signal.high[inner], signal.low[inner])
    moves = np.flatnonzero(moving[inner] & ~signal.free[inner])
    at[moves] = 0.0
    rhs = spline.right_hand_side(at)
    for group in np.split(moves, np.flatnonzero(np.diff(moves) > 2 * _SETTLED_KNOTS) + 1):
        if group.size > _SETTLED_PLACES:
            return False
        first, last = int(group[0]) + 1 - _SETTLED_KNOTS, int(group[-1]) + 2 + _SETTLED_KNOTS
        part = slice(max(first, 0), min(last, values.size))
        response, kinks = spline.response(part, values, rhs, group)
        places = inner[group]
        low, high = signal.low[places], signal.high[places]
        nothing = np.zeros((0, group.size))
        dual = box_by_active_set(response, -kinks, nothing, nothing[:, 0], low, high, sides[places].astype(np.float64))
        if dual is None:
            return False
        sides[places] = np.where(dual == high, 1, np.where(dual == low, -1, 0))
    return True


def _peaks(excess: Vector, above: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Where a dual point is farthest out of its range, in every stretch in which it is out on one side."""
    out = np.flatnonzero(excess > _DUAL_EXCESS)
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
    problem: Composite, signal: TrendFiltering, state: State, candidates: NDArray[np.bool_], tol: float, check: Check,
    solver: Solver, *, rough: bool = False,
) -> tuple[Sides, float]:  # fmt: skip
    """The sides at the optimum with knots at the candidates only, and the share of places that should be knots.

    The state is shown the optimum.
    """
    knots = _knots(signal, candidates)
    inner, at, values = knots[1:-1] - 1, np.zeros(knots.size - 2), None
    if inner.size:
        part = State(np.zeros(knots.size), exact=not rough, unit=state.unit)
        small = _restricted(LinearSpline(signal, knots))
        try:
            solver(small, part, tol, lambda _: check(state))
        finally:
            state.runs(part.ran)
        state.steps += part.steps
        values, at = part.x, at if part.whole_dual is None else part.whole_dual[0] * signal.scale[inner]
        del small
    spline = LinearSpline(signal, knots)  # anew: interior points had need of its room
    values = spline.minimiser(at) if values is None else values
    points = spline.points(values)
    dual = spline.dual(points, at)
    out = float(np.mean((dual < signal.low) | (dual > signal.high)))
    del spline
    _show(problem, signal, state, points, dual)
    near = (_GUESS_END if rough else _EXACT_END) * (signal.high[inner] - signal.low[inner])
    sides = np.zeros(candidates.size, dtype=np.int8)
    sides[inner] = np.where(signal.high[inner] - at <= near, 1, np.where(at - signal.low[inner] <= near, -1, 0))
    return sides, out


def _restricted(spline: LinearSpline) -> Composite:
    """The problem in the values at the knots: equation (2) of `_linear_spline`, and the kinks there."""
    signal, inner = spline.signal, spline.inner
    inverse, count = 1.0 / spline.lengths, inner.size
    entries = np.stack([inverse[:-1], -(inverse[:-1] + inverse[1:]), inverse[1:]], axis=1)
    columns = np.arange(count)[:, None] + np.arange(3)
    rows = Sparse(sp.csr_array((entries.ravel(), columns.ravel(), 3 * np.arange(count + 1)), (count, count + 2)))
    beside = spline.off_diagonal
    matrix = sp.diags_array([beside, spline.diagonal, beside], offsets=[-1, 0, 1], format="csr")
    # As the terms are, rows count where their weights are not negative.
    term, scale = signal.rows.term.take(inner), signal.scale[inner]
    flip = np.where(scale < 0.0, -1.0, 1.0)
    rows = rows if np.all(flip > 0) else Sparse(sp.diags_array(flip) @ rows.explicit())
    energy = 0.5 * float(signal.gradient @ (signal.gradient / signal.weights))
    unit = _OBJECTIVE_UNIT * energy or 1.0  # small beside the optimum: tolerances are relative to what is above one
    kinks = Rows(rows, np.zeros(count), term, np.abs(scale) / unit)
    return Composite(matrix / unit, spline.gradient / unit, energy / unit, (kinks,))


def _show(
    problem: Composite, signal: TrendFiltering, state: State, points: Vector, dual: Vector, *, held: bool = False
) -> None:
    """Show `state` a spline (counted from the mean) with what its dual point proves, moved into its range.

    Both arrays are given away. Where the kinks are constraints that are `held`, what rounding violates them by is not
    charged with their weights, which are far above their multipliers.
    """
    points += signal.mean
    subgradients = signal.subgradients(np.clip(dual, signal.low, signal.high, out=dual))
    positions = problem.positions(points)
    if held:
        term = signal.rows.term
        positions = [np.where(term.value(z) > 0.0, term.knots[0], z) for z in positions]
    gap, assumption = dual_gap(problem, points, positions, [subgradients])
    state.see(points, problem.value(points, positions), gap, assumption, dual=[subgradients])
    state.sigma = 0.0
    state.record()


def _kinked(signal: TrendFiltering, x: Vector) -> Sides | None:
    """The signs of the second differences of a start; None where all are zero or too few."""
    if not x.any():
        return None
    kinks = np.diff(np.diff(x) / signal.distances)
    sides = np.sign(np.where(np.abs(kinks) > 1e-9 * np.abs(kinks).max(), kinks, 0.0)).astype(np.int8)
    few = 0 < np.count_nonzero(sides) <= _START_KNOTS * sides.size
    return sides if few else None
