"""Runs that take hours, kept in a file and gone on with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["BBOB_RIVALS", "RIVALS", "gathered"]

# Ranks of others, which do not change with our code: Optuna 5.0, nevergrad 1.0.12, pycma 4.5, scikit-learn 1.9.
RIVALS = Path(__file__).with_name("rivals.jsonl")
BBOB_RIVALS = Path(__file__).with_name("bbob_rivals.jsonl")  # precisions and evaluations, in 40 dimensions so far
Job = tuple[Any, ...]


def gathered(
    run: Callable[[Any], list[float]], jobs: Iterable[Job], minutes: float, path: Path | None = None,
    known: Path | None = None,
) -> dict[Any, list[float]]:  # fmt: skip
    """What every job came to, as far as the time allows; those in one of the files are not run again."""
    done: dict[Any, list[float]] = {}
    for file in (known, path):
        if file is not None and file.exists():
            done |= {tuple(job): found for job, found, *_ in map(json.loads, file.read_text().splitlines())}
    deadline = time.monotonic() + 60.0 * minutes
    for job in jobs:
        if time.monotonic() > deadline:
            break
        if job in done:
            continue
        done[job] = run(job)
        if path is not None:
            with path.open("a") as kept:
                kept.write(json.dumps([job, done[job]]) + "\n")
    return done
