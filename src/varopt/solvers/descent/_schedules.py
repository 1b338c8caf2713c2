"""Schedules beside the geometric one, for those who choose how the dispersion falls."""

from __future__ import annotations

import math
from dataclasses import dataclass

from varopt.solvers.descent._path import Path, falling

__all__ = ["Adaptive", "Cooling", "Every"]


@dataclass(frozen=True)
class Every:
    """Sigma times `factor` whenever another `steps` steps have been taken; until then it stays."""

    steps: int = 250
    start: float = 1.0
    factor: float = 0.1

    def __post_init__(self) -> None:
        falling(self.start, self.factor)
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
        falling(self.start, self.factor)
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
