"""Rivals: other people's solvers at their best settings, judged by our objective at their point.

A rival's accuracy is what it leaves above the certified lower bound, never what it says of itself. Where it has a
tolerance or a limit on iterations, a ladder of settings is climbed until it is as accurate as asked for or its time is
up; the cheapest setting among the most accurate ones is the one that is timed, in turns with our own solver.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._isolate import isolated
from benchmarks._measure import Comparison, Timing, compare, seconds

Vector = NDArray[np.float64]
Fit = Callable[..., Vector]  # keyword settings -> the point, flat, in the order of our variables

ACCURATE = 1e-9  # relative excess over the lower bound that is asked of everybody
_PATIENCE = 6.0  # seconds of a fit beyond which it is not repeated


def _nothing_missing() -> str:
    return ""


@dataclass(frozen=True)
class Rival:
    """Another solver.

    Parameters
    ----------
    name : str
        What the table calls it.
    prepare : callable
        Takes the problem's data and returns ``fit(**setting)``; conversions that a user does once are made here, off
        the clock.
    ladder : sequence of dict
        Settings, from cheap to accurate.
    modules, packages : tuple of str
        What it imports, and the distributions whose versions decide its numbers.
    missing : callable
        Why it cannot run although its modules are there; an empty text where it can.
    versions : callable
        Versions of what is not a Python package.
    compile : callable, optional
        Makes whatever is compiled at first use; run once, and added to its cold time.
    """

    name: str
    prepare: Callable[..., Fit]
    ladder: Sequence[dict[str, Any]] = ({},)
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    missing: Callable[[], str] = _nothing_missing
    versions: Callable[[], dict[str, str]] = dict
    compile: Callable[[], object] | None = None

    @property
    def absent(self) -> str:
        """Why it cannot run here; empty where it can."""
        unknown = [name for name in self.modules if importlib.util.find_spec(name) is None]
        return f"not installed: {', '.join(unknown)}" if unknown else self.missing()

    @property
    def all_versions(self) -> dict[str, str]:
        """The versions that decide its numbers."""
        return {name: importlib.metadata.version(name) for name in self.packages} | self.versions()


@dataclass(frozen=True)
class Trial:
    """One rung of a ladder: the setting, its seconds, our objective at its point."""

    setting: dict[str, Any]
    seconds: float
    value: float


@dataclass(frozen=True)
class Outcome:
    """What a rival came to; `trial` is None where it gave no point in time."""

    trial: Trial | None
    timing: Timing | None = None
    ratio: float = math.nan  # our seconds over theirs
    remark: str = ""


@functools.cache
def _compiled(compile_once: Callable[[], object] | None) -> float:
    return seconds(compile_once) if compile_once is not None else 0.0


def excess(value: float, lower: float) -> float:
    """How far a value lies above the lower bound, relative as `tol` is."""
    return (value - lower) / max(1.0, abs(lower))


def choose(trials: Sequence[Trial], lower: float) -> Trial:
    """The cheapest of the trials that are accurate enough, or else as accurate, within a tenth, as any of them."""
    best = min(excess(trial.value, lower) for trial in trials)
    enough = max(ACCURATE, 1.1 * best)
    return min((t for t in trials if excess(t.value, lower) <= enough), key=lambda trial: trial.seconds)


def challenge(
    rival: Rival,
    data: Sequence[Any],
    ours: Callable[[], object],
    our_seconds: float,
    value: Callable[[Vector], float],
    lower: float,
    *,
    limit: float,
    rounds: int,
) -> Outcome:
    """Let a rival climb its ladder for at most `limit` seconds, then time it in turns with `ours`."""
    for name in rival.modules:
        importlib.import_module(name)
    compiled = _compiled(rival.compile)

    def climb() -> Iterator[Trial | None]:
        fit = rival.prepare(*data)
        yield None
        for setting in rival.ladder:
            points: list[Vector] = []
            spent = seconds(lambda setting=setting, points=points: points.append(fit(**setting)))  # type: ignore[misc]
            yield Trial(setting, spent, finite(value(points[-1])))
            if excess(value(points[-1]), lower) <= ACCURATE:
                return

    found, reason = isolated(climb, limit)
    trials = [trial for trial in found if trial is not None]
    if not trials:
        # Theirs is longer than the limit, so that the ratio is at most this.
        return Outcome(None, ratio=our_seconds / limit if reason.startswith("stopped") else math.nan, remark=reason)
    chosen = choose(trials, lower)
    cut = "" if not reason or excess(chosen.value, lower) <= ACCURATE else f"ladder {reason}"
    told = ", ".join(f"{key} {content:g}" if isinstance(content, float) else f"{key} {content}"
                     for key, content in chosen.setting.items())  # fmt: skip
    remark = "; ".join(filter(None, [told, f"compiled in {compiled:.1f} s" if compiled else "", cut]))

    def race() -> Iterator[Comparison | None]:
        fit = rival.prepare(*data)
        yield None
        yield compare(ours, lambda: fit(**chosen.setting), rounds=rounds)

    races: list[Comparison | None] = []
    if chosen.seconds <= _PATIENCE:
        races, reason = isolated(race, 30.0 + 2.0 * (rounds + 1) * (chosen.seconds + our_seconds))
    for comparison in filter(None, races):
        theirs = comparison.baseline
        return Outcome(chosen, Timing(theirs.cold + compiled, theirs.warm), comparison.ratio, remark)
    once = Timing(chosen.seconds + compiled, (chosen.seconds,))
    return Outcome(chosen, once, our_seconds / chosen.seconds, remark)


def finite(value: float) -> float:
    """A value that compares: what is not a number is as bad as can be."""
    return value if math.isfinite(value) else math.inf
