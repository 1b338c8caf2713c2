"""The one loop: lower the bound at this sigma, stop or go on, take the next sigma from the schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._composite import Composite
from varopt.solvers._schedules import Schedule

__all__ = ["Path", "follow", "isotropic"]

Vector = NDArray[np.float64]


@dataclass
class Path:
    """Where the path following stands: a point, a sigma, and the smoothed problem they belong to.

    The rows of block b are smoothed with standard deviation ``sigma * lengths[b]``; a length is a number or one number
    a row. `problem` is what is left of `origin`: the rows in play, and the others frozen into its quadratic.
    """

    origin: Composite
    x: Vector
    sigma: float
    lengths: list[Any]
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

    @property
    def deviations(self) -> list[Any]:
        """Standard deviation of the rows in play, block by block."""
        return [self.sigma * length for length, live in zip(self.lengths, self.live, strict=True) if live.any()]


def follow(path: Path, step: Callable[[Path], int], schedule: Schedule, stop: Callable[[Path], bool]) -> Path:
    """Lower the bound by `step` (which says how many steps it took) at falling sigma until `stop`."""
    while True:
        before = path.x
        path.level_steps = step(path)
        path.steps += path.level_steps
        path.moved = float(np.abs(path.x - before).sum() / max(np.abs(path.x).sum(), 1e-300))
        if stop(path) or not np.all(np.isfinite(path.x)):
            return path
        path.sigma = schedule(path)


def isotropic(problem: Composite, x: Vector, sigma: float) -> Path:
    """The path of the paper: x ~ N(mu, sigma^2 I), so that a row with coefficients a has deviation ``sigma ||a||``."""
    return Path(problem, x, sigma, [np.sqrt(r.linear.row_variance(1.0)) for r in problem.rows])
