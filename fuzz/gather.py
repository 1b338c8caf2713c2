"""Parts of the fuzzing in chunks of seconds, by one process or several."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from fuzz.bits import bits
from fuzz.choices import choices
from fuzz.compositions import compositions
from fuzz.constraints import constraints
from fuzz.estimators import estimators
from fuzz.report import Finding, Report
from fuzz.run import composite

PARTS = {
    "ordinary": lambda seed, report: composite(seed, report, extreme=False),
    "extreme": lambda seed, report: composite(seed, report, extreme=True),
    "not convex": lambda seed, report: composite(seed, report, extreme=False, convex=False),
    "compositions": compositions,
    "constraints": constraints,
    "steep": lambda seed, report: constraints(seed, report, extreme=True),
    "bits": bits,
    "choices": choices,
    "estimators": estimators,
}
SHARES = {
    "ordinary": 0.25,
    "extreme": 0.2,
    "not convex": 0.05,
    "compositions": 0.05,
    "constraints": 0.1,
    "steep": 0.1,
    "bits": 0.1,
    "choices": 0.05,
    "estimators": 0.1,
}
CHUNK = 5.0  # seconds that a worker runs before it tells what it has found
_PER_CHUNK = 10_000  # seeds that are set aside for a chunk


def gathered(
    shares: dict[str, float], seed: int, seconds: float, workers: int, count: float = math.inf,
    seen: Callable[[Report], object] = lambda _: None,
) -> Report:  # fmt: skip
    """What all parts find in so many seconds: chunks of a few, those of the part that is most behind next.

    One process ends a part after `count` problems; `seen` is called with what is known after every chunk.
    """
    report, end, spent, taken = Report(), time.perf_counter() + seconds, Counter[str](), Counter[str]()

    def chunk() -> tuple[str, int, float]:
        part = min(shares, key=lambda name: spent[name] / shares[name])
        first = seed + taken[part]
        length = min(CHUNK, max(end - time.perf_counter(), 0.0))
        spent[part] += length
        taken[part] += _PER_CHUNK
        return part, first, length

    if workers == 1:
        while True:
            part, first, length = chunk()
            report.add(drawn(part, first, length, report.known, count - report.problems[part]))
            seen(report)
            shares = {name: share for name, share in shares.items() if report.problems[name] < count}
            if time.perf_counter() >= end or not shares:
                return report
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    running: dict[Future[Report], tuple[str, int]] = {}
    while running or time.perf_counter() < end:
        while len(running) < workers and time.perf_counter() < end:
            part, first, length = chunk()
            running[pool.submit(drawn, part, first, length, report.known)] = (part, first)
        done, _ = wait(running, timeout=60.0 + CHUNK, return_when=FIRST_COMPLETED)
        if not done and time.perf_counter() > end:
            for part, first in running.values():
                report.findings.append(Finding("hang", "", "a worker did not come back", first, "", part))
            break
        for future in done:
            part, first = running.pop(future)
            try:
                report.add(future.result())
                seen(report)
            except BrokenProcessPool:
                report.findings.append(Finding("died", "", "a worker died, one of these", first, "", part))
                pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
            except Exception as error:  # outside of what a part watches over: found, and the rest goes on
                report.findings.append(Finding("exception", "", repr(error), first, "", part))
    pool.shutdown(wait=False, cancel_futures=True)
    return report


def drawn(part: str, first: int, seconds: float, known: set[tuple[str, str]], most: float = math.inf) -> Report:
    """One part from a seed on, for so long or `most` problems, and one at least."""
    report, end, count = Report(known=set(known)), time.perf_counter() + seconds, 0
    while count == 0 or (time.perf_counter() < end and count < min(most, _PER_CHUNK)):
        before, started = len(report.findings), time.process_time()
        PARTS[part](first + count, report)
        report.problems[part] += 1
        report.seconds[part] += time.process_time() - started
        for finding in report.findings[before:]:
            finding.part = part
        count += 1
    return report
