"""What a benchmark is, and how suites are found."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks._measure import Timing

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One line of the table: what was run, what it cost and whether it met its target.

    Parameters
    ----------
    problem, solver : str
        What was computed, and by what.
    ratio_of : str
        What `ratio` divides by what, in words.
    ratio, target : float
        The measured ratio and the largest one that passes.
    timing, baseline : Timing, optional
        Seconds of the solver and of what it is compared with.
    objective, lower, gap : float, optional
        What the solver reached and what it proved.
    status : str
        ``"ok"``, or a sentence on what went wrong; anything but ``"ok"`` fails the row.
    peak_bytes : int, optional
        Peak memory of one call, from a run that was not timed.
    """

    problem: str
    solver: str
    ratio_of: str
    ratio: float
    target: float
    timing: Timing | None = None
    baseline: Timing | None = None
    objective: float | None = None
    lower: float | None = None
    gap: float | None = None
    status: str = "ok"
    peak_bytes: int | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the target was met and nothing went wrong."""
        return self.status == "ok" and self.ratio <= self.target


@dataclass(frozen=True)
class Config:
    """How much work a run may do."""

    quick: bool = False

    def pick(self, full: T, quick: T) -> T:
        """One value for the full run and another for the quick one."""
        return quick if self.quick else full


Benchmark = Callable[[Config], Iterator[Row]]
REGISTRY: dict[str, list[Benchmark]] = {}


def benchmark(function: Benchmark) -> Benchmark:
    """Register a generator of rows under the suite named after its module."""
    REGISTRY.setdefault(function.__module__.rpartition(".")[2], []).append(function)
    return function


def suites() -> list[str]:
    """The names of all suites: every public module of this package."""
    return sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)]) if info.name[0] != "_")


def load(suite: str) -> list[Benchmark]:
    """The benchmarks of a suite."""
    if suite not in suites():
        raise ValueError(f"suite must be one of {', '.join(suites())}; got {suite!r}.")
    importlib.import_module(f"benchmarks.{suite}")
    return REGISTRY.get(suite, [])
