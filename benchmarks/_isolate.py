"""Work in a process of its own, under a limit that nothing inside it can overstay."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

FORKS = "fork" in multiprocessing.get_all_start_methods()


PREPARATION = 60.0  # seconds until the first item


def isolated(work: Callable[[], Iterator[T]], limit: float) -> tuple[list[T], str]:
    """What `work` yields, and why there is no more: nothing, a limit or an error.

    The first item says that preparations are over; it is dropped, and the `limit` in seconds counts from there. The
    work is done in a fork of this process, which shares its data and is killed, with all that it started, when time is
    up. Where there is no fork it is done here, and the limit is not kept.
    """
    if not FORKS:
        return list(work())[1:], ""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python warns of threads at a fork. OpenBLAS stops its own before one, and nothing else here has any.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=_serve, args=(work, sender))
        process.start()
    sender.close()
    results: list[T] = []
    prepared = False
    deadline = time.monotonic() + PREPARATION
    reason = f"stopped after {limit:g} s"
    try:
        while receiver.poll(max(0.0, deadline - time.monotonic())):
            try:
                kind, content = receiver.recv()
            except EOFError:
                process.join()
                reason = f"the process died with code {process.exitcode}"
                break
            if kind == "end":
                reason = content
                break
            if prepared:
                results.append(content)
            else:
                prepared, deadline = True, time.monotonic() + limit
    finally:  # an interrupt of this process too ends the other
        _end(process)
    return results, reason


def _serve(work: Callable[[], Iterator[Any]], connection: Connection) -> None:
    os.setsid()  # so that the whole family can be ended at once
    warnings.simplefilter("ignore")
    try:
        for item in work():
            connection.send(("item", item))
    except Exception as error:  # the other side reports it
        connection.send(("end", f"{type(error).__name__}: {error}"))
    else:
        connection.send(("end", ""))


def _end(process: Any) -> None:
    """Kill the process and what it started; it has led a group of its own since its first statement."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()
