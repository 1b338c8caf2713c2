"""Runs repetitions in worker processes, one thread each, and keeps every one that finishes."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from varopt.experiments._store import Store
from varopt.experiments._tasks import Experiment, ExperimentTask, Row

__all__ = ["run"]

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

_LINE_EVERY = 60.0  # seconds

Job = tuple[Experiment, ExperimentTask, list[str]]


def run(jobs: Sequence[Job], store: Store, workers: int, console: Console, minutes: float | None = None) -> None:
    """Run the jobs and store their rows as they come; an interrupt ends the workers and loses only what they were at.

    Times are processor seconds of one thread, so that several workers and a busy machine change them little. After so
    many `minutes` no further one is begun. Where nobody sees a bar, a line a minute says how far it is.
    """
    if not jobs:
        return
    # The longest first, so that no worker ends alone; where the time is limited, a repetition of every size in turn.
    queue = iter(sorted(jobs, key=lambda job: (0 if minutes is None else job[1].repetition, -job[1].cost)))
    end = math.inf if minutes is None else time.monotonic() + 60.0 * minutes
    with _bar(console) as progress, _single_threaded():
        bars = {
            name: progress.add_task(name, total=sum(job[1].cost for job in jobs if job[0].name == name))
            for name in dict.fromkeys(job[0].name for job in jobs)
        }
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_interrupts)
        pending: dict[Future[list[Row]], Job] = {}
        said = time.monotonic()
        try:
            while True:
                while len(pending) < workers and time.monotonic() < end and (job := next(queue, None)) is not None:
                    pending[executor.submit(job[0].run, job[1], job[2])] = job
                if not pending:
                    break
                for done in wait(pending, timeout=_LINE_EVERY, return_when=FIRST_COMPLETED).done:
                    experiment, task, _ = pending.pop(done)
                    store.add(done.result())
                    progress.advance(bars[experiment.name], task.cost)
                if not console.is_terminal:
                    said = _say(console, progress, said)
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def _say(console: Console, progress: Progress, said: float) -> float:
    """A line on how far everything is, if the last was a minute ago; when the last was."""
    now = time.monotonic()
    if now - said < _LINE_EVERY:
        return said
    parts = [f"{task.description} {task.percentage:.0f} %" for task in progress.tasks]
    done, whole = (sum(costs) for costs in zip(*((t.completed, t.total or 0.0) for t in progress.tasks), strict=True))
    left = max((task.elapsed or 0.0) for task in progress.tasks) * (whole - done) / done if done else 0.0
    console.print(", ".join(parts) + (f"; about {left / 60.0:.0f} min left" if left else ""))
    return now


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
               TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _ignore_interrupts() -> None:
    """An interrupt of the terminal reaches every process of its group; the parent ends the workers.

    Where the parent is ended from outside, they end by themselves.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Workers that start here inherit one thread for linear algebra."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
