"""Command line of the tour: prints its sections, and fails if a check does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from varopt.experiments import tour


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the sections asked for, all by default; 1 if a check failed."""
    names = ", ".join(tour.SECTIONS)
    parser = argparse.ArgumentParser(prog="python -m varopt.experiments", description="A certified tour of varopt.")
    parser.add_argument("sections", nargs="*", metavar="section", help=f"some of: {names} (default: all)")
    chosen = parser.parse_args(arguments).sections or list(tour.SECTIONS)
    for name in chosen:
        if name not in tour.SECTIONS:
            parser.error(f"there is no section {name!r}; choose from {names}")
    checks, failures = 0, []
    for number, name in enumerate(chosen, start=1):
        section = tour.SECTIONS[name]()
        print(section.text(number), flush=True)
        checks += len(section.checks)
        failures += [f"{name}: {failure}" for failure in section.failures]
    if failures:
        print(f"{len(failures)} of {checks} checks failed; the first is in {failures[0]}.")
        return 1
    print(f"All {checks} checks held: every number above was compared with one computed another way.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
