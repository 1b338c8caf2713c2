"""Command line: run suites, print their tables, keep their records."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import _registry, _report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites asked for; 1 if a row failed, or in a full run missed its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", choices=_registry.suites(), help="one suite (default: all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the benchmarks whose name begins with this")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, proves no target")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).parent / "results",
        metavar="FOLDER",
        help="where the JSON records go (default: benchmarks/results)",
    )
    options = parser.parse_args(arguments)
    config = _registry.Config(quick=options.quick)
    passed = True
    for suite in [options.suite] if options.suite else _registry.suites():
        rows: list[_registry.Row] = []
        try:
            for function in _registry.load(suite):
                for row in function(config) if function.__name__.startswith(options.only) else ():
                    print(f"  {row.problem}: {row.solver}", file=sys.stderr, flush=True)
                    rows.append(row)
        except KeyboardInterrupt:
            print("Interrupted: what was measured by then is shown and kept.", file=sys.stderr)
            passed = False
        path = _report.write(rows, suite, config.quick, options.output)
        print(f"{suite}{' (quick: targets are for the full sizes)' if config.quick else ''}")
        print(_report.table(rows))
        print(f"written to {path}\n", flush=True)
        passed &= all(row.ran if config.quick else row.passed for row in rows)
    return 0 if passed else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` too leaves what was measured by then
    sys.exit(main())
