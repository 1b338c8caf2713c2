"""`newton`: a pilot on part of the rows, the path on all of them, the crossover, the certificate.

A level of the path is Newton's method on the bound at one sigma. Rows farther than `_FREEZING` standard deviations from
every knot are equal to their polynomial to machine precision and are frozen, so that the work of a level is that of the
rows still near a knot.

`program` is the crossover of a small problem, at once.

[BV04] S. Boyd, L. Vandenberghe, Convex Optimization, 2004. [NW06] J. Nocedal, S. Wright, Numerical Optimization, 2006.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt._clock import left, tick
from varopt._linalg import solve_definite
from varopt.bounds import CompositeBound, RowNoise
from varopt.certificates import Bracketed, DualGap, bracket, dual_gap
from varopt.composite import Bounds, Composite, bounded
from varopt.solvers._method import Check, Method, State, convex, piecewise_quadratic
from varopt.solvers.descent._path import Geometric, Path, Schedule, follow, following
from varopt.solvers.finish import at_once, cross_over, cross_over_inside

if TYPE_CHECKING:
    from varopt.solvers.descent._polyhedron import Polyhedron

__all__ = ["Newton", "Program", "descend", "newton_level", "typical_lengths"]

Vector = NDArray[np.float64]

_QUICK = 1e6  # operations of a step that no clock is needed for
_FIRST_STEPS = 4  # steps of a level of such that are taken whatever the limit
_FREEZING = 16.0  # standard deviations from a knot at which a row is frozen: its tail is below rounding at half of them
ARMIJO = 1e-4  # share of the decrease that the gradient promises which a step has to bring [NW06, eq. 3.4]
_ROW_SUM_ROUNDING = 64 * float(np.finfo(np.float64).eps)  # relative rounding of a sum over many rows
_TINY = float(np.finfo(np.float64).tiny)
_SHORTEST_MOVE = 1e-10  # share of a step, or of the point that it moves, which is not worth taking
_MEDIAN = 10_000  # rows whose median is as good as that of more
_GROWTH = 8  # each sample of rows is this many times the one before
_FLOOR = 1e-10  # relative sigma at which the path gives up
_KINKS = 2000  # most near kinks that the crossover takes on
# Near kinks from which it is a short way: for each variable that may move, and more.
_NEAR_KINKS_PER_VARIABLE, _NEAR_KINKS = 2, 50
# Deviations within which a row is taken as near a kink, and the most such rows: a few; where that does not lock on,
# more; at last all of them.
_CROSSOVER_ATTEMPTS = ((4.0, _KINKS), (40.0, _KINKS // 2), (np.inf, _KINKS // 2))
_KINKS_AT_ONCE = 2000  # kinks up to which all are taken at once
_CURVED_KINKS_AT_ONCE = 500  # the same with a quadratic part
# Kinks times variables up to which a linear problem goes from vertex to vertex at once: at 500 x 20 that takes two
# thirds of the time of a path in sigma, at 2,000 x 40 four times as long.
_VERTEX_WORK = 12_000


def typical_lengths(problem: Composite, x: Vector) -> list[float]:
    """The median distance of each block's rows from their nearest knot, where not zero."""
    lengths = []
    for r, z in zip(problem.rows, problem.positions(x), strict=True):
        distance = r.knot_distance(z)
        least = 1e-10 * distance.max(initial=0.0)  # at a solution many rest but for rounding
        some = distance[:: 1 + distance.size // _MEDIAN]
        positive = some[some > least]
        positive = positive if positive.size else distance[distance > least]
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
        elif count > _FIRST_STEPS and left() <= 0.0:  # the first steps of a small problem are worth their time
            break
        gradient = bound.mean_gradient
        matrix = bound.newton_matrix()
        step = solve_definite(matrix, -gradient) if box is None else box.step(matrix, gradient, bound.mean)
        decrement = -float(gradient @ step)  # lambda^2 of [BV04, sect. 9.5.1]: twice what a quadratic would gain
        if not decrement > _ROW_SUM_ROUNDING * abs(bound.value):
            break
        share = cap(step)
        last = share == 1.0 and decrement <= enough(bound)
        bound, length = _search(bound, share * step, share * decrement, last)
        if last or length < _SHORTEST_MOVE:
            break
    return bound, count


def _search(bound: CompositeBound, step: Vector, decrement: float, last: bool) -> tuple[CompositeBound, float]:
    """Shorten the step until the bound falls enough, or it does not move the point; the products are made once.

    Where the curvature is singular but for rounding a step can be longer than the way to any optimum by many orders.
    Unless the step is the last of its level, what the next one needs is evaluated with the bound itself.
    """
    line, length = bound.along(step), 1.0
    far = max(1.0, float(np.abs(bound.mean).max())) / max(float(np.abs(step).max()), _TINY)
    allowed = bound.value + _ROW_SUM_ROUNDING * abs(bound.value)
    while True:
        trial = line.at(length, derivatives=not last)
        if trial.value <= allowed - ARMIJO * length * decrement:
            return trial, length
        if not length > max(_SHORTEST_MOVE * min(1.0, far), _TINY):  # as of a step that overflows
            return trial, 0.0
        length *= 0.5 if length > 0.1 else 0.1


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
    if not any(r.hard for r in problem.rows):
        return None, x
    from varopt.solvers.descent._polyhedron import polyhedron  # constraints of several variables are seldom there

    rows = problem.structure(polyhedron)
    if rows is not None and (inside := rows.clip(x)) is not None:
        return rows, inside
    box = problem.structure(bounded)
    return box, x if box is None else box.clip(x)


def _solve(problem: Composite, state: State, tol: float, check: Check, config: Newton) -> None:
    afresh = not state.resumes
    x, sigma = state.begin(config.schedule.start)
    few = _NEAR_KINKS_PER_VARIABLE * problem.size + _NEAR_KINKS
    if afresh and (exact := at_once(problem, x, tol, few)) is not None:
        state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.dual)
        state.sigma = 0.0
        state.record()
        return
    box, x = _kept(problem, x)
    run = _Run(problem, box, state, tol, check, config)
    lengths = typical_lengths(run.smooth, x)
    if afresh:
        x, sigma, lengths = run.pilot(x, sigma, lengths)
    run.descend(x, sigma, lengths, few)


class _Run:
    """One run: the problem, the constraints that its steps keep to, and who sees its levels."""

    def __init__(
        self,
        problem: Composite,
        box: Bounds | Polyhedron | None,
        state: State,
        tol: float,
        check: Check,
        config: Newton,
    ) -> None:
        self.problem, self.box, self.state, self.tol, self.check, self.config = problem, box, state, tol, check, config
        self.smooth = problem if box is None else box.inside  # constraints are kept as they are

    def pilot(self, x: Vector, sigma: float, lengths: list[float]) -> tuple[Vector, float, list[float]]:
        """Follow the path on samples of the rows, where there are many: the point, sigma and lengths to go on from.

        A sample of m rows fixes the point up to a share sqrt(p / m) of the spread of the rows. At a smaller sigma it
        would follow its own noise: it stops at about this one, and more rows go on from a little below.
        """
        rng = np.random.default_rng(self.config.seed)
        p, sample = self.problem.size, max(1000, 20 * self.problem.size)
        while max((r.count for r in self.smooth.rows), default=0) > 4 * sample:
            thinned = self.smooth.thin([sample if r.count > 4 * sample else r.count for r in self.smooth.rows], rng)
            rough = float(np.sqrt(p / sample))

            def coarse(path: Path, rough: float = rough) -> bool:
                self._level(path)
                return path.sigma <= 2.0 * rough

            path = Path(thinned, x, RowNoise(sigma, lengths), sigma)
            x = follow(path, self._step, self.config.schedule, coarse).x
            lengths, sigma = typical_lengths(self.smooth, x), min(sigma, 0.5 * rough)
            sample *= _GROWTH
        return x, sigma, lengths

    def descend(self, x: Vector, sigma: float, lengths: list[float], few: int) -> None:
        """Follow the path on all rows until few are near a kink, cross over, and go on where that proves too little."""
        waits = 0
        while True:
            path = Path(self.smooth, x, RowNoise(sigma, lengths), sigma, waits=waits)
            path = follow(path, self._step, self.config.schedule, lambda path, few=few: self._settled(path, few))  # type: ignore[misc]
            if np.all(np.isfinite(path.x)):
                x = path.x
            path.x = x
            if not self._crossed_over(path, [path.sigma * length for length in lengths]):
                self.state.record()
                return
            if not (self._within_reach(path) or self._proved()):
                self.state.see(*self._proof(path))
            self.state.record()
            if self._proved() or path.sigma < _FLOOR:
                return
            self.check(self.state)
            sigma, few, waits = following(self.config.schedule, path), 0, path.waits

    def _crossed_over(self, path: Path, deviations: list[float]) -> bool:
        """Cross over from rows within more and more deviations of a kink; whether to go on where nothing is proved.

        What the smoothed terms prove is looked at where the first does not: it is a pass over all rows.
        """
        x = path.x
        for attempt, (reach, most) in enumerate(_CROSSOVER_ATTEMPTS):
            if attempt == 1 and not self._proved() and self._within_reach(path):
                self.state.see(*self._proof(path))
            if attempt and not self.config.thorough and not self._proved():
                return False  # rows in such units that active sets lose their way
            if attempt and self._proved():  # once even so: exact zeros are worth it
                break
            exact, reaches = None, [reach * s for s in deviations]
            if isinstance(self.box, Bounds):
                exact = cross_over_inside(self.problem, self.box, x, reaches, self.tol, most=most)
            if exact is None:
                if self.box is not None:
                    reaches = self.box.reaches(self.problem, x, reaches, every=reach == np.inf)
                exact = cross_over(self.problem, x, reaches, self.tol, most=most)
            if exact is not None:
                self.state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.dual)
        return True

    def _step(self, path: Path) -> int:
        return newton_level(path, self.box)

    def _level(self, path: Path) -> None:
        """Show the state."""
        self.state.sigma, self.state.latest = path.sigma, path.x
        self.state.steps += path.level_steps
        self.state.record(path.problem.value(path.x) if path.origin is self.smooth else np.inf)
        self.check(self.state)

    def _settled(self, path: Path, few: int) -> bool:
        """Whether few enough rows are near a kink for the crossover, or nothing is left to do."""
        self._level(path)
        count = path.at(path.x).near(4.0)
        if count > _KINKS and self._within_reach(path):
            # Too many for the crossover: the bracket has to come from the smoothed terms.
            self.state.see(*self._proof(path))
        box = self.box
        free = self.problem.size if box is None or isinstance(box, Bounds) else box.free(path.x)
        return count <= min(few, _NEAR_KINKS_PER_VARIABLE * free + _NEAR_KINKS) or path.sigma < _FLOOR or self._proved()

    def _within_reach(self, path: Path) -> bool:
        """Whether the derivatives of the smoothed terms may prove enough: without curvature they are no dual point."""
        return self.problem.hessian is not None and path.sigma**2 <= 100.0 * self.tol

    def _proof(self, path: Path) -> Bracketed:
        """What the derivatives of the smoothed terms prove, and of bounds that are reached what these leave."""
        bound, problem = path.whole(), self.problem
        if self.box is None:
            return bracket(bound, balance=False)
        positions = problem.positions(path.x)
        dual = self.box.dual(problem, path.x, bound.mean_gradient, bound.dual)
        gap, assumption = dual_gap(problem, path.x, positions, dual)
        return Bracketed(path.x, problem.value(path.x, positions), gap, assumption, dual)

    def _proved(self) -> bool:
        """Whether the tolerance is; a smoothing gap within it is no reason not to finish exactly."""
        return self.state.reached(self.tol) and self.state.proof is DualGap


@dataclass(frozen=True)
class Program(Method):
    """The crossover from the start, with every kink in play: HiGHS without a quadratic part, DAQP with one.

    The path in sigma finds out which kinks matter. With more variables than rows most of them do, and it would only
    delay the exact solution; where there are few kinks and no curvature, vertices are tried as fast as it gets there,
    and faster from a vertex nearby.

    Notes
    -----
    Memory is that of a dense matrix of as many rows as kinks, and of columns as variables.
    """

    name: ClassVar[str] = "program"
    needs = (piecewise_quadratic, convex)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks."""
        return "" if problem.rows else "it has no kinks."

    def suits(self, problem: Composite) -> bool:
        """Whether it is small, has no curved terms, and few rows: for its variables, or, without curvature, at all."""
        curved = problem.matrix is not None or bool(problem.squares)
        count = sum(len(r.kinks) * r.count for r in problem.rows)
        rows = sum(r.count for r in problem.rows if r.single is None)
        return (
            count <= (_CURVED_KINKS_AT_ONCE if curved else _KINKS_AT_ONCE)
            and (rows < problem.size or (not curved and count * problem.size <= _VERTEX_WORK))
            and all(r.term.degree == 1 for r in problem.rows)
        )

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        start, _ = state.begin(0.0)
        exact = cross_over(problem, start, [np.inf] * len(problem.rows), tol, most=_KINKS_AT_ONCE)
        if exact is not None:
            state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.dual)
        state.sigma, state.steps = 0.0, state.steps + 1
        state.record()
        check(state)
