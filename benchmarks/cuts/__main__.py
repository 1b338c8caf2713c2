"""Run on, and print the tables."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.cuts._runs import GRAPHS, SOLVERS, Job, Kept, best_known, plan, run


def _show(kept: Kept) -> None:
    """A table for each time and seed: cuts, bold where one of the others is ahead of ours."""
    for seconds, seed in sorted({(job.seconds, job.seed) for job in kept.jobs()}):
        names = dict.fromkeys(job.graph for job in kept.jobs() if (job.seconds, job.seed) == (seconds, seed))
        print(f"\n| {seconds:g} s, seed {seed} | best known | {' | '.join(SOLVERS)} |")
        print(f"|---{'|---' * (len(SOLVERS) + 1)}|")
        for name in names:
            told_of = {s: job for s in SOLVERS if (job := Job(s, name, seconds, seed)) in kept}
            # A rival may have tried its settings in shorter times; ours is what it is in this one.
            cells = {s: kept.best(job) if s == "varopt" else kept.best_within(job) for s, job in told_of.items()}
            other = max((cut.value for s, cut in cells.items() if s != "varopt"), default=-np.inf)
            told = []
            for solver in SOLVERS:
                text = f"{cells[solver].value:g}" if solver in cells else ""
                text += f" ({cells[solver].setting:g})" if solver in cells and cells[solver].setting else ""
                behind = solver == "varopt" and solver in cells and cells[solver].value < other
                told.append(f"**{text}**" if behind else text)
            known = best_known(name)
            print(f"| {name} | {'' if np.isinf(known) else f'{known:g}'} | {' | '.join(told)} |")


def main() -> int:
    """Run, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuts", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--keep", type=Path, help="a file of runs, to go on from")
    parser.add_argument("--solvers", default=",".join(SOLVERS))
    parser.add_argument("--graphs", default=",".join(GRAPHS), help="such as G22 and 'planar 5000'")
    parser.add_argument("--times", default="5,20,60", help="seconds of processor time")
    parser.add_argument("--seeds", type=int, default=1, help="how many, of the graphs made afresh and of the solvers")
    options = parser.parse_args()
    kept, deadline = Kept(options.keep), time.monotonic() + 60.0 * options.minutes
    times = [float(t) for t in options.times.split(",")]
    with threadpool_limits(limits=1):
        for job in plan(options.graphs.split(","), times, options.solvers.split(","), range(options.seeds)):
            if time.monotonic() > deadline:
                break
            if job not in kept:
                run(job, kept)
                print(*job, kept.best(job), file=sys.stderr, flush=True)
    _show(kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
