"""The one loop: lower the bound at this sigma, stop or go on, take the next sigma from the schedule.

A schedule, how the dispersion falls, is a callable from the path to the next sigma.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from varopt._linalg import absolute_sum
from varopt.bounds import CompositeBound, RowNoise
from varopt.composite import Composite

__all__ = ["Adaptive", "Cooling", "Every", "Geometric", "Path", "Schedule", "follow"]

Vector = NDArray[np.float64]

_FROZEN = 0.7  # share of the rows in play below which a copy of these pays


class Schedule(Protocol):
    """A first sigma, and the next one from what the path has seen."""

    @property
    def start(self) -> float:
        """The first sigma."""
        ...

    def __call__(self, path: Path) -> float:
        """The next sigma."""
        ...


@dataclass(frozen=True)
class Geometric:
    """Sigma times `factor` at every level."""

    start: float = 1.0
    factor: float = 0.25

    def __post_init__(self) -> None:
        _check(self.start, self.factor)

    def __call__(self, path: Path) -> float:
        """The next sigma."""
        return path.sigma * self.factor


@dataclass(frozen=True)
class Every:
    """Sigma times `factor` whenever another `steps` steps have been taken; until then it stays."""

    steps: int = 250
    start: float = 1.0
    factor: float = 0.1

    def __post_init__(self) -> None:
        _check(self.start, self.factor)
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}.")

    def __call__(self, path: Path) -> float:
        """The next sigma."""
        before = (path.steps - path.level_steps) // self.steps
        return path.sigma * self.factor ** (path.steps // self.steps - before)


@dataclass(frozen=True)
class Adaptive:
    """Sigma falls fast where a level was easy and slowly where it was hard.

    A level that took at most `easy` steps multiplies the factor in use by `gain`, one that took more than `hard`
    divides it; it stays between `fast` and `slow`.
    """

    start: float = 1.0
    factor: float = 0.25
    easy: int = 2
    hard: int = 6
    gain: float = 0.5
    fast: float = 0.05
    slow: float = 0.7

    def __post_init__(self) -> None:
        _check(self.start, self.factor)
        if not 0 < self.fast <= self.factor <= self.slow < 1:
            raise ValueError(f"fast <= factor <= slow must lie in (0, 1); got {self.fast}, {self.factor}, {self.slow}.")

    def __call__(self, path: Path) -> float:
        """The next sigma."""
        factor = path.factor or self.factor
        if path.level_steps <= self.easy:
            factor *= self.gain
        elif path.level_steps > self.hard:
            factor /= self.gain
        path.factor = min(max(factor, self.fast), self.slow)
        return path.sigma * path.factor


@dataclass(frozen=True)
class Cooling:
    """The beta of a free energy ``<log p> + beta <f>``: geometrically from `start` to `end` as a search goes on.

    It is a function of progress in [0, 1], as are all schedules of beta; one over beta is a temperature in units of f.

    Examples
    --------
    >>> import varopt as vo
    >>> beta = vo.solvers.Cooling(0.1, 10.0)
    >>> print(f"{beta(0.0):g} {beta(0.5):g} {beta(1.0):g}")
    0.1 1 10
    """

    start: float = 0.1
    end: float = 10.0

    def __post_init__(self) -> None:
        if not 0.0 < self.start <= self.end < math.inf:
            raise ValueError(
                f"beta must not fall, from a positive start to a finite end; got {self.start}, {self.end}."
            )

    def __call__(self, progress: float) -> float:
        """Beta at a share of the search."""
        return float(self.start * (self.end / self.start) ** progress)


def _check(start: float, factor: float) -> None:
    if not start > 0:
        raise ValueError(f"start must be a positive sigma; got {start!r}.")
    if not 0 < factor < 1:
        raise ValueError(f"factor must lie in (0, 1) for sigma to fall; got {factor!r}.")


@dataclass
class Path:
    """Where the path following stands: a point, a sigma, and the bound they belong to.

    `problem` is what is left of `origin`: the rows in play, and the others frozen into its quadratic.
    """

    origin: Composite
    x: Vector
    noise: RowNoise  # at whatever sigma it was made for: the path has its own
    sigma: float
    steps: int = 0
    level_steps: int = 0  # of these, at the present sigma
    factor: float = 0.0  # by which an adaptive schedule last shrank sigma; 0 before it has
    moved: float = np.inf  # mean absolute change of x at this level, relative to its mean absolute value

    def __post_init__(self) -> None:
        self.thaw()

    def thaw(self) -> None:
        """All rows in play."""
        self.problem = self.origin
        self.live = [np.ones(r.count, dtype=bool) for r in self.origin.rows]

    def freeze(self, live: list[NDArray[np.bool_]]) -> None:
        """Only these rows in play, of those that were; the others are frozen as they lie now."""
        inside = [new[old] for new, old in zip(live, self.live, strict=True) if old.any()]
        self.problem = self.problem.freeze(self.problem.positions(self.x), inside)
        self.live = live

    def freeze_far(self, deviations: float) -> None:
        """Freeze the rows in play that lie farther than so many standard deviations from every knot, if that pays."""
        wanted, parts = [live.copy() for live in self.live], iter(self.at(self.x).rows)
        for live in wanted:
            if live.any():
                part = next(parts)
                live[live] = part.rows.knot_distance(part.z) < deviations * part.deviation
        kept = sum(int(live.sum()) for live in wanted)
        if kept < _FROZEN * self.problem.row_count or not all(r.is_direct for r in self.problem.rows):
            self.freeze(wanted)

    def at(self, x: Vector, *, derivatives: bool = True) -> CompositeBound:
        """The bound of the rows in play with mean x, at the present sigma."""
        noise = self.noise.at(self.sigma)
        if self.problem is not self.origin:  # blocks of which no row is in play are gone
            noise = noise.of_blocks([bool(live.any()) for live in self.live])
        return CompositeBound(self.problem, x, noise, derivatives=derivatives)

    def whole(self) -> CompositeBound:
        """The bound of all rows where the path stands."""
        return CompositeBound(self.origin, self.x, self.noise.at(self.sigma))


def follow(path: Path, step: Callable[[Path], int], schedule: Schedule, stop: Callable[[Path], bool]) -> Path:
    """Lower the bound by `step` (which says how many steps it took) at falling sigma until `stop`."""
    while True:
        before = path.x
        path.level_steps = step(path)
        path.steps += path.level_steps
        path.moved = absolute_sum(path.x - before) / max(absolute_sum(path.x), 1e-300)
        if stop(path) or not isfinite(path.moved):
            return path
        path.sigma = schedule(path)
