"""The one loop: lower the bound at this sigma, stop or go on, take the next sigma from the schedule.

A schedule, how the dispersion falls, is a callable from the path to the next sigma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from varopt._linalg import absolute_sum
from varopt.bounds import CompositeBound, RowNoise
from varopt.composite import Composite

__all__ = ["Geometric", "Path", "Schedule", "falling", "follow", "following"]

Vector = NDArray[np.float64]

_FROZEN = 0.7  # share of the rows in play below which a copy of these pays
_STILL = 1e-13  # share of itself by which rounding may move x at a level that has nothing more to give
_PATIENCE = 100  # such levels at one sigma, after which no schedule is waiting for anything


class Schedule(Protocol):
    """A first sigma, and the next one from what the path has seen."""

    @property
    def start(self) -> float:
        """The first sigma."""
        ...

    def __call__(self, path: Path) -> float:
        """The next sigma."""
        ...


def falling(start: float, factor: float) -> None:
    """Refuse a start and a factor of which no sigma falls."""
    if not start > 0:
        raise ValueError(f"start must be a positive sigma; got {start!r}.")
    if not 0 < factor < 1:
        raise ValueError(f"factor must lie in (0, 1) for sigma to fall; got {factor!r}.")


@dataclass(frozen=True)
class Geometric:
    """Sigma times `factor` at every level."""

    start: float = 1.0
    factor: float = 0.25

    def __post_init__(self) -> None:
        falling(self.start, self.factor)

    def __call__(self, path: Path) -> float:
        """The next sigma."""
        return path.sigma * self.factor


@dataclass(eq=False)
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
    waits: int = 0  # levels in a row that found x at rest, and after which sigma stayed

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
        path.sigma = following(schedule, path)


def following(schedule: Schedule, path: Path) -> float:
    """The next sigma of a schedule, which may be anybody's: a number, and one that falls in the end."""
    sigma: Any = schedule(path)  # of whoever wrote it
    number = np.ndim(sigma) == 0 and isinstance(sigma, (int, float, np.generic, np.ndarray))
    if not (number and 0.0 <= sigma < inf):  # zero where it has fallen below all numbers
        raise ValueError(f"schedule must return a sigma of at least 0; got {sigma!r}.")
    path.waits = path.waits + 1 if sigma >= path.sigma > 0.0 and path.moved <= _STILL else 0
    if path.waits > _PATIENCE + getattr(schedule, "steps", 0):
        raise ValueError(
            f"schedule must let sigma fall, as vo.solvers.Geometric() does; after {path.waits} levels at which the "
            f"point did not move it still is {sigma:.3g}."
        )
    return float(sigma)
