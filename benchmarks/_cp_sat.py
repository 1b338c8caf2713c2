"""CP-SAT under a limit of processor time: its own is one of the wall, which a busy machine makes short."""

from __future__ import annotations

import threading
import time
from typing import Any

__all__ = ["solved"]


def solved(solver: Any, model: Any, seconds: float) -> tuple[str, float]:
    """Run with one worker until the processor time is spent; the status, and what was spent."""
    solver.parameters.num_workers = 1
    began, ended = time.process_time(), threading.Event()

    def watch() -> None:
        while time.process_time() - began < seconds:
            if ended.wait(0.02):
                return
        solver.stop_search()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        status = str(solver.status_name(solver.solve(model)))
    finally:
        ended.set()
        watcher.join()
    return status, time.process_time() - began
