"""What a benchmark is, and how suites are found."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks._measure import Timing

T = TypeVar("T")

_COMMANDS = {"versions"}  # needs another checkout


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
        The measured ratio and the largest one that passes; an infinite target asks for nothing.
    timing, baseline : Timing, optional
        Seconds of the solver and of what it is compared with.
    objective, lower, gap : float, optional
        What the solver reached and what it proved.
    status : str
        ``"ok"``, or a sentence on what went wrong; anything but ``"ok"`` fails the row.
    skipped : str
        Why nothing was measured, such as ``"not installed"``; such a row neither passes nor fails.
    peak_bytes, data_bytes : int, optional
        Peak memory of one call, from a run that was not timed, and the size of the data that it was given.
    memory_target : float
        The largest peak, in sizes of the data, that passes.
    note : str
        What a reader of the numbers has to know: settings, limits, what bounds the figure.
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
    skipped: str = ""
    peak_bytes: int | None = None
    data_bytes: int | None = None
    memory_target: float = math.inf
    note: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def memory(self) -> float | None:
        """Peak memory in sizes of the data."""
        return None if self.peak_bytes is None or not self.data_bytes else self.peak_bytes / self.data_bytes

    @property
    def relative_gap(self) -> float | None:
        """The gap on the scale of `tol`: divided by the objective where that is above one."""
        return None if self.gap is None or self.objective is None else self.gap / max(1.0, abs(self.objective))

    @property
    def verdict(self) -> str:
        """One word: ``"ok"``, ``"MISSED"`` (a target), ``"FAILED"`` (to run) or ``"skipped"``."""
        if self.skipped:
            return "skipped"
        if self.status != "ok":
            return "FAILED"
        return "ok" if self.ratio <= self.target and not self.is_heavy else "MISSED"

    @property
    def is_heavy(self) -> bool:
        """Whether it took more memory than it may."""
        return self.memory is not None and self.memory > self.memory_target

    @property
    def remarks(self) -> str:
        """What the ratio is of, what went wrong, and the note."""
        wrong = "" if self.status == "ok" else self.status
        heavy = f"memory above {self.memory_target:g} times the data" if self.is_heavy else ""
        return "; ".join(filter(None, [self.ratio_of, self.skipped, wrong, heavy, self.note]))

    @property
    def passed(self) -> bool:
        """Whether the targets were met and nothing went wrong; a skipped row has none to miss."""
        return self.verdict in ("ok", "skipped")

    @property
    def ran(self) -> bool:
        """Whether nothing went wrong, met or missed: all that small sizes can show."""
        return self.verdict != "FAILED"


@dataclass(frozen=True)
class Config:
    """How much work a run may do.

    Where `tell` is given, problems are handed to it in place of being solved.
    """

    quick: bool = False
    tell: Callable[[Any], None] | None = None

    def pick(self, full: T, quick: T) -> T:
        """One value for the full run and another for the quick one."""
        return quick if self.quick else full


Benchmark = Callable[[Config], Iterator[Row]]
REGISTRY: dict[str, list[Benchmark]] = {}


def benchmark(function: Benchmark) -> Benchmark:
    """Register a generator of rows under its suite: the module or package of `benchmarks` that it is in."""
    REGISTRY.setdefault(function.__module__.split(".")[1], []).append(function)
    return function


def suites() -> list[str]:
    """The names of all suites: every public module and package in here that is not a command of its own."""
    names = {info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)]) if info.name[0] != "_"}
    return sorted(names - _COMMANDS)


def load(suite: str) -> list[Benchmark]:
    """The benchmarks of a suite."""
    if suite not in suites():
        raise ValueError(f"suite must be one of {', '.join(suites())}; got {suite!r}.")
    importlib.import_module(f"benchmarks.{suite}")
    return REGISTRY.get(suite, [])
