"""One version: answers `next`, `value` and `time` on standard output, a line of JSON each."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._measure import seconds
from benchmarks.versions._cases import cases

_ENOUGH = 0.1  # seconds of calls that make one round


def _value(call: Callable[[], Any]) -> tuple[float, int]:
    """What is optimised, at the end; and how many calls make a round."""
    began = time.perf_counter()
    result = call()
    first = time.perf_counter() - began
    again = seconds(call) if first < 1.0 else first  # the first call loads and compiles
    objective = getattr(result, "fun", None)
    value = getattr(result, "objective_", 0.0) if objective is None else objective
    return float(np.max(value)), max(1, int(_ENOUGH / max(again, 1e-6)))


def _processor_time(call: Callable[[], object], repeats: int) -> float:
    """Seconds of one of `repeats` calls."""
    return seconds(lambda: [call() for _ in range(repeats)], time.process_time) / repeats


def main() -> None:
    """Answer until the other end closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    coming = (case for case in cases(options.quick) if options.only in case[0])
    call: Callable[[], object] = int
    repeats = 1
    for line in sys.stdin:
        answer: Any
        match line.strip():
            case "next":
                answer, call = next(coming, (None, int))
            case "value":
                answer, repeats = _value(call)
            case _:
                answer = _processor_time(call, repeats)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
