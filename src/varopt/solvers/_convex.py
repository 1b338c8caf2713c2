"""The convex solver: a pilot on part of the rows, the path on all of them, the crossover, the certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._composite import Composite
from varopt.solvers._crossover import cross_over, dual_gap
from varopt.solvers._newton import Path, follow, typical_lengths

__all__ = ["State", "solve"]

Vector = NDArray[np.float64]

_GROWTH = 8  # each sample of rows is this many times the one before
_FLOOR = 1e-10  # relative sigma at which the path gives up
_ROUGH = 0.07  # relative sigma from which the active set of a sparse problem settles
_KINKS = 2000  # most near kinks that the crossover takes on
# Deviations within which a row is taken as near a kink, and the most such rows: a few; where that does not lock on,
# more; at last all of them. An active set only needs a guess of the rows at rest.
_ATTEMPTS = ((4.0, _KINKS), (40.0, _KINKS // 2), (np.inf, _KINKS // 2))
_SPARSE_ATTEMPTS = ((1.0, _KINKS), (4.0, _KINKS))


@dataclass
class State:
    """What is known so far: the best point, its bracket, and the way there."""

    x: Vector
    upper: float = np.inf
    lower: float = -np.inf
    sigma: float = np.inf
    steps: int = 0
    latest: Vector | None = None  # where the path stands; its value is not known yet
    assumption: str = ""
    history: list[dict[str, float]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def reached(self, tol: float) -> bool:
        """Whether the bracket is within the relative tolerance."""
        return np.isfinite(self.upper) and self.upper - self.lower <= tol * max(1.0, abs(self.upper))

    def see(self, x: Vector, value: float, gap: float = np.inf, assumption: str = "") -> None:
        """A point with its value and the gap that a dual point proves for it."""
        if value < self.upper:
            self.x, self.upper = x, value
        if value - gap > self.lower:
            self.lower, self.assumption = value - gap, assumption

    def record(self) -> None:
        """Append to the history."""
        self.history.append(
            {"time": self.elapsed, "steps": self.steps, "sigma": self.sigma, "upper": self.upper, "lower": self.lower}
        )


def solve(problem: Composite, state: State, tol: float, check: Callable[[State], None], seed: int = 0) -> None:
    """Minimise a convex composite with at least one row; `check` sees every level and may raise to stop."""
    x, p = state.x, problem.size
    rng = np.random.default_rng(seed)
    sigma, lengths, done = 1.0, typical_lengths(problem, x), 0

    def level(path: Path) -> None:
        nonlocal done
        state.sigma, state.steps, done = path.sigma, state.steps + path.steps - done, path.steps
        state.latest = path.x
        state.record()
        check(state)

    # A sample of m rows fixes the point up to a share sqrt(p / m) of the spread of the rows: no smaller sigma is of
    # use there.
    sample = max(1000, 20 * p)
    while max(r.count for r in problem.rows) > 4 * sample:
        thinned = problem.thin([sample if r.count > 4 * sample else r.count for r in problem.rows], rng)
        rough = float(np.sqrt(p / sample))

        def coarse(path: Path, rough: float = rough) -> bool:
            level(path)
            return path.sigma <= rough

        x, done = follow(thinned, x, list(lengths), sigma, coarse).x, 0
        lengths, sigma = typical_lengths(problem, x), min(1.0, rough)
        sample *= _GROWTH

    near = 3 * p + 50

    def settled(path: Path) -> bool:
        level(path)
        if path.near > _KINKS and not problem.is_sparse:
            # Too many for the crossover: the bracket has to come from the smoothed slopes.
            _bracket(problem, path.x, [path.sigma * length for length in lengths], state)
        enough = path.sigma <= _ROUGH if problem.is_sparse and near else path.near <= near
        return enough or path.sigma < _FLOOR or state.reached(tol)

    while True:
        path = follow(problem, x, list(lengths), sigma, settled)
        done = 0
        if np.all(np.isfinite(path.x)):
            x = path.x
        deviations = [path.sigma * length for length in lengths]
        _bracket(problem, x, deviations, state)
        for reach, most in _SPARSE_ATTEMPTS if problem.is_sparse else _ATTEMPTS:
            if state.reached(tol):
                break
            exact = cross_over(problem, x, [reach * s for s in deviations], tol, most=most)
            if exact is not None:
                state.see(exact.x, exact.value, exact.gap, exact.assumption)
        state.record()
        if state.reached(tol) or path.sigma < _FLOOR:
            return
        check(state)
        sigma, near = path.sigma * 0.25, 0


def _bracket(problem: Composite, x: Vector, deviations: list[float], state: State) -> None:
    """Value and dual gap at a point, with the slopes of the smoothed terms as the dual point."""
    positions = problem.positions(x)
    if problem.hessian is None:  # smoothed slopes balance only as far as Newton's method got: no dual point
        state.see(x, problem.value(x, positions))
        return
    slopes = [r.term.derivatives(z, s)[1] for r, z, s in zip(problem.rows, positions, deviations, strict=True)]
    state.see(x, problem.value(x, positions), *dual_gap(problem, x, positions, slopes))
