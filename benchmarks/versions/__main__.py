"""``python -m benchmarks.versions ../before``: the same calls on another checkout and on this one, in turns.

Processor time of one thread, so that other work on the machine matters little; the ratio is after / before.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from benchmarks.versions._turns import ROOT, Turns, compared

_SAME = 1e-6  # relative difference of two values above which the versions did not do the same
_BEYOND = 1.05  # slower than that in three quarters of the rounds is a loss


def _judged(turns: Turns) -> tuple[str, bool]:
    """The call's line of the table, and whether it is slower beyond noise or ended elsewhere."""
    low, high = turns.spread
    before, after = (f"{1e3 * min(times):.3g} ms" for times in (turns.before, turns.after))
    apart = not math.isclose(*turns.values, rel_tol=_SAME)
    remark = " values {:.9g}, {:.9g}".format(*turns.values) if apart else ""
    slower = min(low, turns.ratio) > _BEYOND
    ratio = f"**{turns.ratio:.2f}**" if slower else f"{turns.ratio:.2f}"
    return f"| {turns.name} | {before} | {after} | {ratio} | {low:.2f} to {high:.2f} |{remark}", slower or apart


def main() -> int:
    """Compare, a line for each call; 1 if one is slower beyond noise, or ended elsewhere."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("before", type=Path, help="another checkout of the project")
    parser.add_argument("--only", default="", metavar="TEXT", help="only calls with this in their names")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of both (7)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs")
    options = parser.parse_args()
    if not (source := options.before / "src").is_dir():
        parser.error(f"before must be a checkout of the project, with a folder src; {options.before} has none.")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    lost = []
    print("| call | before | after | after / before | rounds |\n|---|---:|---:|---:|---:|", flush=True)
    for turns in compared(source.resolve(), ROOT / "src", options.only, options.quick, options.rounds):
        line, is_lost = _judged(turns)
        print(line, flush=True)
        if is_lost:
            lost.append(turns.name)
    return int(bool(lost))


if __name__ == "__main__":
    raise SystemExit(main())
