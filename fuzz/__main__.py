"""``python -m fuzz``: random problems of every kind, seeds printed; what fails is a program of a few lines.

Each part draws problems by their seeds: ``--only extreme --seed 17 --seconds 0`` runs that one again. The table counts
runs; a run is one method on one problem.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from fuzz.gather import PARTS, SHARES, gathered
from fuzz.report import Report


def main() -> int:
    """Run, and report."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long (300)")
    parser.add_argument("--count", type=int, help="problems of each part after which to end, in one process")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument("--seed", type=int, default=0, help="the first of every part (0); long runs take 10^7")
    parser.add_argument("--only", choices=[*PARTS], help="one part")
    parser.add_argument("--all", action="store_true", help="print every finding, not one of each kind")
    parser.add_argument("--json", type=Path, help="where to write a record of it all, as it grows")
    options = parser.parse_args()
    shares = {options.only: 1.0} if options.only else SHARES
    started = time.perf_counter()

    def keep(report: Report) -> None:
        if options.json:
            wall = time.perf_counter() - started
            report.write(options.json, seed=options.seed, workers=options.workers, wall=wall)

    report = gathered(shares, options.seed, options.seconds, options.workers, options.count or math.inf, keep)
    print(report.programs(everything=options.all))
    wall = time.perf_counter() - started
    print(f"\n{sum(report.problems.values())} problems in {wall:.0f} s, from seed {options.seed} on\n")
    print(report.table())
    print("\n" + "\n".join(f"{count:8d}  {status}" for status, count in sorted(report.statuses.items())))
    print("\n" + "\n".join(f"{count:8d}  {kind}" for kind, count in report.kinds().most_common()))
    keep(report)
    return int(bool(report.serious()))


if __name__ == "__main__":
    raise SystemExit(main())
