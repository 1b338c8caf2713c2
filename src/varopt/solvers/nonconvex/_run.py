"""A run of `graduated`: starts, the descent of the bound, exact moves, and what bounds the optimum from below."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt._clock import tick
from varopt.bounds import MovingBound, PointNoise
from varopt.certificates import ConvexEnvelope, ConvexRelaxation, EveryCell
from varopt.certificates import floor as least_value
from varopt.composite import Composite
from varopt.solvers._method import Check, State
from varopt.solvers.descent import Newton, Path, follow
from varopt.solvers.nonconvex._envelope import enclosure, radius
from varopt.solvers.nonconvex._exact_descent import ExactDescent
from varopt.solvers.nonconvex._graduated import Graduated
from varopt.solvers.nonconvex._hyperplane_arrangement import ASSUMPTION, arrangement
from varopt.solvers.nonconvex._relaxation import canonical, floor, relaxation

__all__ = ["Run"]

Vector = NDArray[np.float64]

_WHITEN = 1000  # variables up to which C is a full matrix
# Standard deviations that the mean may move at one sigma: where f ignores the scale of x, x stays bounded.
_MEAN_REACH = 4.0
_EXACT_MOVES_FROM = 1e-4  # share of the first sigma at which exact moves take over
_FARTHEST_START = 6.6  # halvings of the unit within which random starts begin
_KEPT_ROWS = 5000  # up to which positions along all paths are kept, to see where two meet
_MEETING = 0.3  # deviations of each row within which two paths are one: of a smaller size the bound has no features
_SETTLED = 0.1  # share of it from which on a path is left where exact moves would end at a known point, twice in turn
_LBFGS_ITERATIONS_AT_SIGMA = 40  # of L-BFGS at one sigma
_TURNS = 64  # most variables for which moves along knots are tried
_OVERHEAD = 1000  # rows that a line search could visit in the time that it takes beside that
_BATCH = 10  # how many times cheaper a row is in an exhaustive search, which sorts many lines at once
_FLIPS = 20  # rows that are tried on the other side of their kink, at most,
_FLIPPED = 4  # and one of so many
_MOVES_BETWEEN_LOOKS = 20  # moves between two looks at the clock
_MOVES_EFFORT = 0.5  # effort of a turn of moves, where a run has no end of its own; it takes about as long
_CHUNKS = 2  # as so many chunks of cells
_TURN = 4  # turns after which there is another start, where moves search on
_ENCLOSURES = 8  # most of a run,
_GAINED = 0.05  # each of which takes this share off the gap
_MOST_CELLS = 1e12  # numbers to sort beyond which it is not tried


class Run:
    """One run: the problem, its scaling, and where the best point so far is kept."""

    def __init__(self, problem: Composite, state: State, tol: float, check: Check, config: Graduated) -> None:
        problem = canonical(problem)
        self.problem, self.state, self.tol, self.check, self.config = problem, state, tol, check, config
        self.rng = np.random.default_rng([config.seed, state.steps])
        self.walk = ExactDescent(problem, state.x)
        self.factor = _spread(problem)
        if problem.size <= _TURNS:
            self.factor = self.walk.within(self.factor)
        self.noise = PointNoise.of(problem, 1.0, self.factor)  # x ~ N(mu, sigma^2 C C')
        self.bound = MovingBound(problem, self.noise)
        self.trails: dict[float, list[list[Vector]]] = {}  # where paths were, by sigma: positions in deviations of rows
        self.ends: set[bytes] = set()  # majorants at whose optima no coordinate gains either
        self.relaxed: State | None = None  # of the latest convex problem below this one,
        self.enclosed = -math.inf  # and the best value known when points as good as that were last enclosed
        self.jumps = any(not r.term.is_continuous for r in problem.rows)

    def solve(self) -> None:
        self._see(self.state.x, self.walk.value)
        start = self.state.x
        self.walk.sweep(np.arange(self.problem.size))  # also finds most ways to fall for ever
        self._see(self.walk.x, self.walk.value)
        if not self._done():
            self._from([start])
        self.state.record()

    def _from(self, points: list[Vector]) -> None:
        """From the given points, from the optimum of a relaxation, and from random ones around them."""
        relaxed, unit = self._relax(), self._unit(points[0])
        if relaxed is not None and np.any(relaxed != points[0]):
            points.append(relaxed)
        for k in range(self.config.starts):
            if self._done() or (k == 1 and (self._exhaust() or self._enclose(points))):
                return
            x, share = points[k % len(points)], 1.0
            if k >= len(points):  # from a smaller sigma, since from a large one all starts end alike
                x, share = self._around(self.state.x if k % 2 else x, unit)
            self._start(x, share, unit)
        self._flip()
        if self.state.upper < self.enclosed and not self._done() and self._enclose(points):
            return
        self._search(self.config.usual_effort)
        if self.config.effort == math.inf:
            self._go_on(unit)
        self.state.sigma = 0.0

    def _start(self, x: Vector, share: float, unit: float) -> None:
        """A path from x, and exact moves where it ends, unless it meets an earlier one."""
        end = self._descend(x, unit * share * self.config.schedule.start, unit)
        if end is not None:
            self._polish(end)

    def _meets(self, path: Path) -> bool:
        """Whether an earlier path was here at this sigma, so that the rest would be the same; asked of few rows."""
        if self.problem.row_count > _KEPT_ROWS:
            return False
        rows = zip(self.problem.positions(path.x), self.noise.lengths, strict=True)
        here = [np.divide(z, length, out=np.zeros_like(z), where=length > 0.0) for z, length in rows]  # 0: never moved
        earlier = self.trails.setdefault(path.sigma, [])
        close = _MEETING * path.sigma
        met = any(all(np.abs(a - b).max() <= close for a, b in zip(here, there, strict=True)) for there in earlier)
        earlier.append(here)
        return met

    def _around(self, x: Vector, unit: float) -> tuple[Vector, float]:
        """A random point around x, and how far, as a share of the unit: a power of two, so that paths can meet."""
        share = float(0.5 ** np.round(self.rng.uniform(0.0, _FARTHEST_START)))
        return x + unit * share * self._scaled(self.rng.standard_normal(x.size)), share

    def _flip(self) -> None:
        """Majorants beside those that touch at the best point, until none of them leads to a better one."""
        walk = self.walk
        if self.jumps:
            return
        walk.put(self.state.x)
        most = min(_FLIPS, -(-self.problem.row_count // _FLIPPED))
        while not self._done() and walk.flip(most, self._inner):
            before = self.state.upper
            self._polish(walk.x)
            if not self.state.upper < before:  # far out, values of one point may differ by more than flips gain
                return
            walk.put(self.state.x)
            self._look()

    def _go_on(self, unit: float) -> None:
        """More cells, more starts and more moves in turn, until there is a proof; else a time limit ends it."""
        found = arrangement(self.problem) if self.problem.size <= _TURNS else None
        cells = found.cells(self._look) if found is not None and found.work <= _MOST_CELLS else iter(())
        optimum = None
        for turn in itertools.count():
            for seen in itertools.islice(cells, _CHUNKS):
                optimum = seen
                self._see(seen[1], self.problem.value(seen[1]))
                self._look()
            if optimum is not None and (more := next(cells, None)) is None:  # all cells were looked at
                self._every_cell(*optimum)
                return
            optimum = more if optimum is not None else None
            if self._done():
                return
            if not self.jumps or turn % _TURN == 0:
                self._start(*self._around(self.state.x, unit), unit)
                self._flip()
            self._search(_MOVES_EFFORT)
            self._look()

    def _look(self) -> None:
        """At the clock."""
        self.check(self.state)

    def _done(self) -> bool:
        if self.walk.falls and not math.isfinite(least_value(self.problem)):  # else what overflows has misled a line
            self.state.falls, self.state.ray = True, self.walk.ray
        return self.state.reached(self.tol) or self.state.falls

    def _see(self, x: Vector, value: float) -> None:
        if -math.inf < value < self.state.upper:  # not where a difference of what overflows is taken for a value
            self.state.see(x, value)

    def _inner(self, _: State) -> None:
        """The clock and the callbacks of this run, for the runs of the convex solver inside it."""
        self.check(self.state)

    def _relax(self) -> Vector | None:
        """The lower bound of a convex relaxation, and its optimum as a start."""
        state, relaxed = self.state, relaxation(self.problem)
        if relaxed is None:
            return None
        state.see(state.x, state.upper, state.upper - floor(relaxed), "", proof=ConvexRelaxation)
        if self.state.reached(self.tol) or not (relaxed.rows or self.problem.size <= _WHITEN):
            return None  # of a large quadratic alone the optimum would say little for its price
        inner = State(state.x, unit=state.unit)
        Newton(thorough=True).solve(relaxed, inner, min(1e-9, self.tol), self._inner)
        state.see(state.x, state.upper, state.upper - inner.lower, inner.assumption, proof=ConvexRelaxation)
        if not np.all(np.isfinite(inner.x)):
            return None
        self.relaxed = inner
        return inner.x

    def _enclose(self, points: list[Vector]) -> bool:
        """Raise the bound by envelopes over shrinking enclosures; whether that closes the gap.

        Where it does not, their last optimum is a start beside others. A better point encloses less: once more, then.
        """
        state, inner, known = self.state, self.relaxed, enclosure(self.problem)
        if known is None or inner is None:
            return False
        for _ in range(_ENCLOSURES):
            before, far = state.lower, radius(state.upper, inner.lower, inner.upper)
            enough = state.upper - 0.25 * state.allowed(self.tol)  # what costs more is as good as what is known
            convex = known.below(inner.x, far, enough)
            if convex is None:
                return False
            inner = State(inner.x, unit=state.unit)
            Newton(thorough=True).solve(convex, inner, min(1e-9, self.tol), self._inner)
            if not np.all(np.isfinite(inner.x)):
                return False
            self.relaxed, self.enclosed = inner, state.upper
            lower = min(inner.lower, enough)
            state.see(state.x, state.upper, state.upper - lower, inner.assumption, proof=ConvexEnvelope)
            self._polish(inner.x)
            if self._done():
                return True
            if state.lower - before < _GAINED * (state.upper - before):
                break
        points.append(inner.x)
        return False

    # -- The path -----------------------------------------------------------------------------------------------------

    def _scaled(self, y: Vector) -> Vector:
        return self.factor * y if self.factor.ndim == 1 else self.factor @ y

    def _unit(self, x: Vector) -> float:
        """The sigma at which a typical row's standard deviation is its distance from its farthest knot."""
        shares = []
        for r, z, length in zip(self.problem.rows, self.problem.positions(x), self.noise.lengths, strict=True):
            if r.term.knots:
                farthest = np.max([np.abs(z - t) for t in r.term.knots], axis=0)
                shares.append(float(np.median(farthest / np.maximum(length, 1e-300))))
        return max(shares, default=1.0) or 1.0

    def _descend(self, x: Vector, sigma: float, unit: float) -> Vector | None:
        """Follow a minimum of the bound from `sigma` down; None where that is where an earlier path went."""
        from scipy.optimize import minimize

        state, touching, met = self.state, [b""], [False]
        transpose = self.factor if self.factor.ndim == 1 else self.factor.T

        def level(path: Path) -> int:
            origin = path.x

            def value_and_gradient(y: Vector) -> tuple[float, Vector]:
                tick()
                value, gradient = self.bound.value_and_gradient(origin + self._scaled(y), path.sigma)
                return value, transpose * gradient if transpose.ndim == 1 else transpose @ gradient

            def seen(_: Vector) -> None:
                state.steps += 1
                self.check(state)

            box = [(-_MEAN_REACH * path.sigma, _MEAN_REACH * path.sigma)] * origin.size
            found = minimize(
                value_and_gradient, np.zeros(origin.size), jac=True, method="L-BFGS-B", bounds=box, callback=seen,
                options={"maxiter": _LBFGS_ITERATIONS_AT_SIGMA, "maxfun": 4 * _LBFGS_ITERATIONS_AT_SIGMA},
            )  # fmt: skip
            path.x = origin + self._scaled(found.x)
            state.evaluations += found.nfev
            state.bound = float(found.fun)
            return int(found.nit)

        def stop(path: Path) -> bool:
            state.sigma, state.latest = path.sigma, path.x
            self._see(path.x, self.problem.value(path.x))
            state.record()
            self.check(state)
            if self.ends and path.sigma <= _SETTLED * unit:
                touching.append(self.walk.above(path.x))
            known = touching[-1] in self.ends and touching[-1] == touching[-2]
            met[0] = not self.jumps and self._meets(path)
            return path.sigma <= _EXACT_MOVES_FROM * unit or known or met[0]

        with np.errstate(over="ignore", invalid="ignore"):  # along a direction of unbounded descent
            path = follow(Path(self.problem, x, self.noise, sigma), level, self.config.schedule, stop)
        if met[0]:
            return None
        return path.x if np.all(np.isfinite(path.x)) else x

    def _exhaust(self) -> bool:
        """Look at all cells of a sum of steps where they are few enough; whether that was done."""
        found = arrangement(self.problem) if self.problem.size <= _TURNS else None
        if found is None or found.work > _BATCH * 1e6 * self.config.usual_effort:
            return False
        self._every_cell(*found.optimum(self._look))
        return True

    def _every_cell(self, optimum: float, x: Vector) -> None:
        """Show the state the best of all cells."""
        value = self.problem.value(x)
        self.state.see(x, value, value - optimum, ASSUMPTION, proof=EveryCell)
        self.state.sigma = 0.0

    # -- Exact moves --------------------------------------------------------------------------------------------------

    def _polish(self, x: Vector) -> None:
        """Coordinates and convex majorants, until neither gains."""
        walk, everything = self.walk, np.arange(self.problem.size)
        walk.put(x)
        most, enough = (4, 1e-6) if self.jumps else (20, 1e-11)  # towards a jump sweeps may gain a little for ever
        for _ in range(most):
            before = walk.value
            solved = walk.descend_majorants(self._inner)
            if solved in self.ends:
                break
            moved, rounds, bottom = everything, 0, walk.value
            while moved.size and rounds < most and not walk.falls:
                moved, rounds = walk.sweep(moved), rounds + 1
                self.check(self.state)
            self._see(walk.x, walk.value)
            self.state.steps += 1
            little = enough * max(1.0, abs(walk.value))
            if solved and bottom - walk.value <= little:  # neither gains
                self.ends.add(solved)
            if rounds == 1 and not moved.size:
                return
            if walk.falls or before - walk.value <= little:
                break
        walk.descend_majorants(self._inner)  # what sweeps leave of it
        self._see(walk.x, walk.value)

    def _search(self, effort: float) -> None:
        """Iterated local search from the best point: lines in random directions, and lines on which rows rest on knots.

        Equally good points are accepted, so that the search drifts through cells of the same value. It is for
        objectives that jump, of several variables but not many.
        """
        if not self.jumps or not 1 < self.problem.size <= _TURNS:
            return
        problem, state, walk, rng = self.problem, self.state, self.walk, self.rng
        budget = int(1e6 * effort / (problem.row_count + _OVERHEAD))
        best, idle, patience = state.x, 0, 100 + 10 * problem.size
        scale_free = walk.scale_free
        walk.put(best)
        for move in range(budget):
            if move % 3 == 0 or problem.size == 2:
                lower = walk.along(self._scaled(rng.standard_normal(problem.size)), rng)
            else:
                count = int(rng.integers(max(1, problem.size - 3), problem.size))
                lower = walk.turn(self._to_pin(min(count, problem.row_count)), rng)
            if scale_free:  # else the point drifts to where rounding decides
                walk.put(walk.x / max(float(np.abs(walk.x).max()), 1e-300))
            idle = 0 if lower else idle + 1
            if walk.value < state.upper:
                best = walk.x
                self._see(best, walk.value)
                state.record()
            if idle > patience:  # a jump away from the best point, larger the longer nothing was found
                idle = 0
                walk.put(best + rng.exponential(0.3) * self._unit(best) * self._scaled(rng.standard_normal(best.size)))
            if move % _MOVES_BETWEEN_LOOKS == 0:
                state.steps += _MOVES_BETWEEN_LOOKS
                self.check(state)
                if self._done():
                    return

    def _to_pin(self, count: int) -> NDArray[np.intp]:
        """Rows to put on their knots: mostly near ones."""
        walk, rng = self.walk, self.rng
        distance = np.concatenate(
            [
                r.knot_distance(z) / np.maximum(s, 1e-300)
                for r, z, s in zip(self.problem.rows, walk.z, self.noise.lengths, strict=True)
            ]
        )
        near = min(distance.size, max(count, int(rng.choice([4, 16, 64])) * count))
        pool = np.argpartition(distance, near - 1)[:near] if near < distance.size else np.arange(distance.size)
        return np.asarray(rng.choice(pool, count, replace=False))


def _spread(problem: Composite) -> Vector:
    """C: a matrix, or a vector where there are many variables, such that the rows of ``A C`` are alike in all ways."""
    p = problem.size
    diagonal = np.zeros(p) if problem.hessian is None else np.abs(problem.hessian.diagonal())
    ridge = diagonal / max(float(diagonal.max(initial=0.0)), 1e-300)
    if p > _WHITEN:
        total = 1e-3 * ridge
        for r in problem.rows:
            squares = r.linear.gram_diagonal(np.ones(r.count))
            total = total + squares / max(float(squares.max(initial=0.0)), 1e-300)
        return np.asarray(1.0 / np.sqrt(np.where(total > 0.0, total, 1.0)))
    gram: Any = np.diag(1e-3 * ridge)
    for r in problem.rows:
        dense = r.linear.gram(np.ones(r.count))
        dense = np.asarray(dense if isinstance(dense, np.ndarray) else dense.toarray())
        gram = gram + dense / max(float(dense.diagonal().max()), 1e-300)
    unit = np.sqrt(np.where(gram.diagonal() > 0.0, gram.diagonal(), 1.0))
    scaled = gram / unit[:, None] / unit
    lower = scipy.linalg.cholesky(scaled + 1e-10 * np.eye(p), lower=True, check_finite=False)
    inverse = scipy.linalg.solve_triangular(lower, np.eye(p), lower=True, check_finite=False)
    return np.asarray(inverse.T / unit[:, None])
