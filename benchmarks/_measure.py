"""How time and memory are measured."""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of one function: the first call in this process, and the calls after it."""

    cold: float
    warm: tuple[float, ...]

    @property
    def best(self) -> float:
        """The fastest warm call: the one least disturbed by the machine."""
        return min(self.warm)

    @property
    def median(self) -> float:
        """The median warm call: what a user sees."""
        return statistics.median(self.warm)


@dataclass(frozen=True)
class Comparison:
    """A candidate and a baseline, timed in turns."""

    candidate: Timing
    baseline: Timing

    @property
    def ratio(self) -> float:
        """The median over rounds of candidate / baseline.

        The two calls of a round are neighbours in time, so that a slow spell of the machine hits both.
        """
        return self.ratio_beyond(0.0)

    def ratio_beyond(self, allowance: float) -> float:
        """The same with some seconds of every candidate forgiven."""
        rounds = zip(self.candidate.warm, self.baseline.warm, strict=True)
        return statistics.median(max(0.0, candidate - allowance) / baseline for candidate, baseline in rounds)


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The time of one call, by the wall clock or another, with the garbage collector held off."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = clock()
        call()
        return clock() - start
    finally:
        if enabled:
            gc.enable()


def compare(
    candidate: Callable[[], object], baseline: Callable[[], object], rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:  # fmt: skip
    """Time both cold, then warm in `rounds` rounds that alternate which of the two goes first."""
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1; got {rounds}.")
    cold_baseline, cold_candidate = seconds(baseline, clock), seconds(candidate, clock)
    warm_candidate, warm_baseline = [], []
    for index in range(rounds):
        if index % 2:
            warm_candidate.append(seconds(candidate, clock))
            warm_baseline.append(seconds(baseline, clock))
        else:
            warm_baseline.append(seconds(baseline, clock))
            warm_candidate.append(seconds(candidate, clock))
    return Comparison(Timing(cold_candidate, tuple(warm_candidate)), Timing(cold_baseline, tuple(warm_baseline)))


def peak_memory(call: Callable[[], object]) -> int:
    """The most bytes a call held at once beyond what was held before; in a run of its own, since tracing is slow.

    NumPy reports its buffers to tracemalloc; memory that a C library allocates for itself is not seen.
    """
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        result = call()
        _, peak = tracemalloc.get_traced_memory()
        del result
        return peak - before
    finally:
        tracemalloc.stop()
