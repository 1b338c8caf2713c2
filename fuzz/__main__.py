"""``python -m fuzz``: random problems of every kind, seeds printed; what fails is a program of a few lines.

Each part draws problems by their seeds: ``--only extreme --seed 17 --seconds 0`` runs that one again. The table counts
runs; a run is one method on one problem.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from fuzz.bits import bits
from fuzz.constraints import constraints
from fuzz.estimators import estimators
from fuzz.report import Finding, Report
from fuzz.run import composite

PARTS = {
    "ordinary": lambda seed, report: composite(seed, report, extreme=False),
    "extreme": lambda seed, report: composite(seed, report, extreme=True),
    "not convex": lambda seed, report: composite(seed, report, extreme=False, convex=False),
    "constraints": constraints,
    "bits": bits,
    "estimators": estimators,
}
SHARES = {"ordinary": 0.35, "extreme": 0.2, "not convex": 0.05, "constraints": 0.1, "bits": 0.15, "estimators": 0.15}
CHUNK = 5.0  # seconds that a worker runs before it tells what it has found
_PER_CHUNK = 10_000  # seeds that are set aside for a chunk


def main() -> int:
    """Run, and report."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long (300)")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument("--seed", type=int, default=0, help="the first of every part (0); long runs take 10^7")
    parser.add_argument("--only", choices=[*PARTS], help="one part")
    parser.add_argument("--all", action="store_true", help="print every finding, not one of each kind")
    parser.add_argument("--json", type=Path, help="where to write a record of it all")
    options = parser.parse_args()
    shares = {options.only: 1.0} if options.only else SHARES
    started = time.perf_counter()
    report = gathered(shares, options.seed, options.seconds, options.workers)
    about = {"seed": options.seed, "workers": options.workers, "wall": time.perf_counter() - started}
    print(report.programs(everything=options.all))
    print(f"\n{sum(report.problems.values())} problems in {about['wall']:.0f} s, from seed {options.seed} on\n")
    print(report.table())
    print("\n" + "\n".join(f"{count:8d}  {status}" for status, count in sorted(report.statuses.items())))
    print("\n" + "\n".join(f"{count:8d}  {kind}" for kind, count in report.kinds().most_common()))
    if options.json:
        report.write(options.json, **about)
    return int(bool(report.serious()))


def gathered(shares: dict[str, float], seed: int, seconds: float, workers: int) -> Report:
    """What all parts find in so many seconds: chunks of a few, those of the part that is most behind next."""
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
            report.add(drawn(*chunk(), report.known))
            if time.perf_counter() >= end:
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
            except BrokenProcessPool:
                report.findings.append(Finding("died", "", "a worker died, one of these", first, "", part))
                pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    pool.shutdown(wait=False, cancel_futures=True)
    return report


def drawn(part: str, first: int, seconds: float, known: set[tuple[str, str]]) -> Report:
    """One part from a seed on, for so long, and one problem at least."""
    report, end, count = Report(known=set(known)), time.perf_counter() + seconds, 0
    while count == 0 or (time.perf_counter() < end and count < _PER_CHUNK):
        before, started = len(report.findings), time.process_time()
        PARTS[part](first + count, report)
        report.problems[part] += 1
        report.seconds[part] += time.process_time() - started
        for finding in report.findings[before:]:
            finding.part = part
        count += 1
    return report


if __name__ == "__main__":
    raise SystemExit(main())
