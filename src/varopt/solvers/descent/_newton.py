"""`newton`: a pilot on part of the rows, the path on all of them, the crossover, the certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.bounds import RowNoise
from varopt.certificates import Bracketed, DualGap, bracket, dual_gap
from varopt.composite import Bounds, Composite, bounded
from varopt.solvers._method import Method
from varopt.solvers._state import Check, State
from varopt.solvers.descent._loop import Path, follow
from varopt.solvers.descent._newton_level import newton_level, typical_lengths
from varopt.solvers.descent._polyhedron import Polyhedron, polyhedron
from varopt.solvers.descent._schedules import Geometric, Schedule
from varopt.solvers.finish import at_once, cross_over, cross_over_inside

__all__ = ["Newton"]

Vector = NDArray[np.float64]

_GROWTH = 8  # each sample of rows is this many times the one before
_FLOOR = 1e-10  # relative sigma at which the path gives up
_KINKS = 2000  # most near kinks that the crossover takes on
_PER_VARIABLE, _MORE = 2, 50  # near kinks from which it is a short way: for each variable that may move, and more
# Deviations within which a row is taken as near a kink, and the most such rows: a few; where that does not lock on,
# more; at last all of them.
_ATTEMPTS = ((4.0, _KINKS), (40.0, _KINKS // 2), (np.inf, _KINKS // 2))


@dataclass(frozen=True)
class Newton(Method):
    """Newton's method on the bound while sigma falls, then a crossover to the exact optimum.

    On tall data the path starts on samples of the rows; far rows are frozen as sigma falls, so that the work of a level
    is that of the rows near a knot.

    Parameters
    ----------
    schedule : Schedule
        How sigma falls; it is relative to the median distance of a block's rows from their knots.
    seed : int
        Chooses the samples.
    thorough : bool
        Whether to go on where a crossover from the rows near a kink does not prove the tolerance, with more rows and a
        smaller sigma. Otherwise the run ends there, since other methods may take less time.
    """

    schedule: Schedule = field(default_factory=Geometric)
    seed: int = 0
    thorough: bool = False

    name: ClassVar[str] = "newton"

    def lacks(self, problem: Composite) -> str:
        """What the problem lacks."""
        if problem.is_sparse:
            return (
                f"its sparse matrices would be made dense, with {problem.size} variables; "
                "method 'interior-point' keeps them sparse."
            )
        return problem.not_quadratic or problem.not_convex

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        if problem.rows:
            with np.errstate(over="ignore", invalid="ignore"):  # along a direction of unbounded descent
                _solve(problem, state, tol, check, self)
            return
        if problem.hessian is None and not problem.gradient_at_zero.any():
            state.see(state.x, problem.constant, 0.0)  # a constant: every point is optimal
        elif problem.hessian is not None and (exact := cross_over(problem, state.x, [], tol)) is not None:
            state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.dual)
        state.sigma = 0.0
        state.record()


def _kept(problem: Composite, x: Vector) -> tuple[Bounds | Polyhedron | None, Vector]:
    """The constraints that steps keep to, and about the nearest point to x that satisfies them."""
    rows = problem.structure(polyhedron)
    if rows is not None and (inside := rows.clip(x)) is not None:
        return rows, inside
    box = problem.structure(bounded)
    return box, x if box is None else box.clip(x)


def _solve(problem: Composite, state: State, tol: float, check: Check, config: Newton) -> None:
    p, schedule, afresh = problem.size, config.schedule, not state.resumes
    x, sigma = state.begin(schedule.start)
    few = _PER_VARIABLE * p + _MORE
    if afresh and (exact := at_once(problem, x, tol, few)) is not None:
        state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.dual)
        state.sigma = 0.0
        state.record()
        return
    box, x = _kept(problem, x)
    smooth = problem if box is None else box.inside  # constraints are kept as they are
    lengths = typical_lengths(smooth, x)
    rng = np.random.default_rng(config.seed)

    def within_reach(path: Path) -> bool:
        """Whether the derivatives of the smoothed terms may prove enough: without curvature they are no dual point."""
        return problem.hessian is not None and path.sigma**2 <= 100.0 * tol

    def level(path: Path) -> None:
        state.sigma, state.latest = path.sigma, path.x
        state.steps += path.level_steps
        state.record(path.problem.value(path.x) if path.origin is smooth else np.inf)
        check(state)

    def descent(path: Path) -> int:
        return newton_level(path, box)

    def proof(path: Path) -> Bracketed:
        """What the derivatives of the smoothed terms prove, and of bounds that are reached what these leave."""
        bound = path.whole()
        if box is None:
            return bracket(bound, balance=False)
        dual, positions = box.dual(problem, path.x, bound.mean_gradient, bound.dual), problem.positions(path.x)
        gap, assumption = dual_gap(problem, path.x, positions, dual)
        return Bracketed(path.x, problem.value(path.x, positions), gap, assumption, dual)

    def proved() -> bool:  # a smoothing gap within the tolerance is no reason not to finish exactly
        return state.reached(tol) and state.proof is DualGap

    # A sample of m rows fixes the point up to a share sqrt(p / m) of the spread of the rows. At a smaller sigma it
    # would follow its own noise: it stops at about this one, and more rows go on from a little below.
    sample = max(1000, 20 * p)
    while afresh and max((r.count for r in smooth.rows), default=0) > 4 * sample:
        thinned = smooth.thin([sample if r.count > 4 * sample else r.count for r in smooth.rows], rng)
        rough = float(np.sqrt(p / sample))

        def coarse(path: Path, rough: float = rough) -> bool:
            level(path)
            return path.sigma <= 2.0 * rough

        x = follow(Path(thinned, x, RowNoise(sigma, lengths), sigma), descent, schedule, coarse).x
        lengths, sigma = typical_lengths(smooth, x), min(sigma, 0.5 * rough)
        sample *= _GROWTH

    def settled(path: Path) -> bool:
        level(path)
        count = path.at(path.x).near(4.0)
        if count > _KINKS and within_reach(path):
            # Too many for the crossover: the bracket has to come from the smoothed terms.
            state.see(*proof(path))
        free = p if not isinstance(box, Polyhedron) else box.free(path.x)
        return count <= min(few, _PER_VARIABLE * free + _MORE) or path.sigma < _FLOOR or proved()

    while True:
        path = follow(Path(smooth, x, RowNoise(sigma, lengths), sigma), descent, schedule, settled)
        if np.all(np.isfinite(path.x)):
            x = path.x
        path.x = x
        deviations = [path.sigma * length for length in lengths]
        if within_reach(path):
            state.see(*proof(path))
        for attempt, (reach, most) in enumerate(_ATTEMPTS):
            if attempt and not config.thorough and not proved():  # rows in such units that active sets lose their way
                state.record()
                return
            if attempt and proved():  # once even so: exact zeros are worth it
                break
            reaches = [reach * s for s in deviations]
            exact = cross_over_inside(problem, box, x, reaches, tol, most=most) if isinstance(box, Bounds) else None
            if exact is None:
                whole = reaches if box is None else box.reaches(problem, x, reaches, every=reach == np.inf)
                exact = cross_over(problem, x, whole, tol, most=most)
            if exact is not None:
                state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.dual)
        if not (within_reach(path) or proved()):
            state.see(*proof(path))
        state.record()
        if proved() or path.sigma < _FLOOR:
            return
        check(state)
        sigma, few = schedule(path), 0
