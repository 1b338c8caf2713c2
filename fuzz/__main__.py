"""``python -m fuzz``: minutes of it, seeds printed; what fails is a program of a few lines.

Options: --seconds 300, --seed 0, --only composite|bits|estimators, --all to print every finding and not two a kind.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from fuzz.bits import bits
from fuzz.constraints import constraints
from fuzz.estimators import estimators
from fuzz.run import Report, composite

PARTS = {
    "ordinary": lambda seed, report: composite(seed, report, extreme=False),
    "extreme": lambda seed, report: composite(seed, report, extreme=True),
    "not convex": lambda seed, report: composite(seed, report, extreme=False, convex=False),
    "constraints": constraints,
    "bits": bits,
    "estimators": estimators,
}
SHARES = {"ordinary": 0.25, "extreme": 0.3, "not convex": 0.1, "constraints": 0.1, "bits": 0.1, "estimators": 0.15}


def main() -> int:
    """Run, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[*PARTS])
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    report = Report()
    shares = {options.only: 1.0} if options.only else SHARES
    for name, share in shares.items():
        end, seed = time.perf_counter() + share * options.seconds, options.seed
        while time.perf_counter() < end:
            PARTS[name](seed, report)
            seed += 1
        print(f"{name}: seeds {options.seed} to {seed - 1}", flush=True)
    show(report, everything=options.all)
    return any(f.kind not in ("gap open", "time limit", "not proved") for f in report.findings)


def show(report: Report, *, everything: bool = False) -> None:
    """The counts, and the programs."""
    print("\nRuns:", dict(report.runs))
    for status, count in sorted(report.statuses.items()):
        print(f"  {count:6d}  {status}")
    print("\nFindings:")
    for kind, count in report.kinds().most_common():
        print(f"  {count:6d}  {kind}")
    shown: Counter[str] = Counter()
    for f in sorted(report.findings, key=lambda f: (f.kind, f.method, len(f.program))):
        key = f"{f.kind} [{f.method}]"
        shown[key] += 1
        if everything or shown[key] <= 1:
            print(f"\n# {key}, seed {f.seed}: {f.text}\n{f.program}")


if __name__ == "__main__":
    raise SystemExit(main())
