"""Runs that take hours, kept in a file and gone on with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["gathered"]

Job = tuple[Any, ...]


def gathered(
    run: Callable[[Any], list[float]], jobs: Iterable[Job], minutes: float, path: Path | None = None
) -> dict[Any, list[float]]:
    """What every job came to, as far as the time allows; those in the file are not run again."""
    done: dict[Any, list[float]] = {}
    if path is not None and path.exists():
        done = {tuple(job): found for job, found, *_ in map(json.loads, path.read_text().splitlines())}
    deadline = time.monotonic() + 60.0 * minutes
    for job in jobs:
        if time.monotonic() > deadline:
            break
        if job in done:
            continue
        done[job] = run(job)
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps([job, done[job]]) + "\n")
    return done
