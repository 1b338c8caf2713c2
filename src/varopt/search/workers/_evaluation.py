"""What runs on a worker: the user's function, its clock, and everything it may do wrong turned into a sentence.

The clock is the worker's own. It starts when the evaluation does, so that no time in a queue counts, whoever keeps the
queue, and the same evaluations are late with one worker as with a hundred.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import math
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import GeneratorType
from typing import Any, NamedTuple

from varopt.search._checks import Found, Measured, as_found, sentence
from varopt.search.journal import Course

__all__ = ["Evaluated", "Evaluation", "Job", "Packed", "pack", "worker_name"]

GRACE = 1.0  # seconds beyond the timeout after which a process that cannot even say so is ended


class Evaluated(NamedTuple):
    """What a worker says about one evaluation."""

    value: float
    error: str | None = None
    course: Course = Course()  # how it went, as a journal keeps it, by the worker's clock
    abandoned: bool = False  # it goes on in a thread that nobody waits for


class Job(NamedTuple):
    """What travels to a worker: a row, and at which steps which values on its way are too high to go on."""

    row: Any
    limits: Mapping[int, float] = {}


@dataclass(frozen=True)
class Evaluation:
    """A row of numbers in, what its evaluation gave out; of a function that yields, the last value that it yields.

    Parameters
    ----------
    function, decode : callable
        The user's function, and the point that a row stands for.
    timeout : float, optional
        Seconds after which an evaluation counts as failed. It then runs in a thread of its own, which is asked to stop
        and left behind.
    lethal : bool
        Whether the worker is a process of its own, which may be ended if it hangs where no Python runs.
    width : int
        How many numbers an evaluation gives.
    sign : float
        -1 where larger values are better.
    """

    function: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    timeout: float | None = None
    lethal: bool = False
    width: int = 1
    sign: float = 1.0

    def __call__(self, job: Job) -> Evaluated:
        began, clock = time.time(), time.perf_counter()
        found, abandoned = (self.found(*job), False) if self.timeout is None else self._within(job)
        value, error, others, reports, stopped = found if isinstance(found, Measured) else Measured(found)
        course = Course(began, time.perf_counter() - clock, worker_name(), others, reports, stopped)
        return Evaluated(value, error, course, abandoned)

    def found(self, row: Any, limits: Mapping[int, float]) -> Found:
        """What the function gives at the point of a row, whatever it does instead of returning a number."""
        reports: list[float] = []
        try:
            found: Any = self.function(self.decode(row))
            if isinstance(found, GeneratorType):
                return self._followed(found, limits, reports)
            return as_found(found, self.width)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit() in the objective too
            return Measured(math.nan, sentence(error), (), tuple(reports))

    def _followed(self, steps: Generator[Any, Any, Any], limits: Mapping[int, float], reports: list[float]) -> Measured:
        """The last value that a generator yields, or the one at which it is to stop."""
        last = Measured(math.nan, "the function yields nothing")
        with contextlib.closing(steps):
            for found in steps:
                last = Measured.of(found, self.width)
                if last.error is not None:
                    break
                reports.append(last.value)
                if self.sign * last.value > limits.get(len(reports), math.inf):
                    return last._replace(reports=tuple(reports), stopped=True)
        return last._replace(reports=tuple(reports))

    def _within(self, job: Job) -> tuple[Found, bool]:
        done: list[Found] = []
        interrupts: list[KeyboardInterrupt] = []

        def evaluate() -> None:
            try:
                done.append(self.found(*job))
            except KeyboardInterrupt as interrupt:
                interrupts.append(interrupt)

        thread = threading.Thread(target=evaluate, daemon=True)
        with _LastResort(self.timeout + GRACE if self.lethal and self.timeout is not None else None):
            thread.start()
            thread.join(self.timeout)
        if interrupts:
            raise interrupts[0]
        if done:
            return done[0], False
        _ask_to_stop(thread)
        return Measured(math.nan, f"no value after {self.timeout:g} s"), True


class _LastResort:
    """End this process if it is still inside after some seconds, whatever holds the interpreter.

    By the alarm of the system, which ends who does not listen to it. Where someone does, by `faulthandler`: not sooner,
    since a process forked while its parent was watched by that waits for ever when it asks for it.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        if self._seconds is None:
            return
        alarm = getattr(signal, "SIGALRM", None)
        self._alarm = alarm is not None and signal.getsignal(alarm) == signal.SIG_DFL
        self._alarm = self._alarm and signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
        if self._alarm:
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
        else:
            self._sink = Path(os.devnull).open("w")
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._sink)

    def __exit__(self, *exception: object) -> None:
        if self._seconds is None:
            return
        if self._alarm:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        else:
            faulthandler.cancel_dump_traceback_later()
            self._sink.close()


def _ask_to_stop(thread: threading.Thread) -> None:
    """Raise `SystemExit` in a thread at its next line of Python; what sleeps or computes elsewhere does not hear it."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def worker_name() -> str:
    """Who evaluates: host and process, and the thread unless it is the first."""
    thread, name = threading.current_thread(), _process_name(os.getpid())
    return name if thread is threading.main_thread() else f"{name} {thread.name}"


@functools.cache
def _process_name(process: int) -> str:
    return f"{socket.gethostname()}:{process}"


@dataclass(frozen=True)
class Packed:
    """An evaluation on its way to another process, unpacked there once; failing to is the error of an evaluation."""

    digest: int
    payload: bytes

    def __call__(self, job: Job) -> Evaluated:
        if self.digest not in _unpacked:
            try:
                function = pickle.loads(self.payload)
            except Exception as error:
                return Evaluated(
                    math.nan, f"the worker cannot load the function: {sentence(error)}", Course(time.time(), 0.0)
                )
            _unpacked.clear()
            _unpacked[self.digest] = function
        return _unpacked[self.digest](job)


_unpacked: dict[int, Evaluation] = {}


def pack(evaluation: Evaluation) -> Packed:
    """The evaluation as bytes, lambdas and local functions included, or a `ValueError` that says what cannot travel."""
    import cloudpickle  # only where processes are used

    try:
        payload = cloudpickle.dumps(evaluation)
    except Exception as error:
        raise ValueError(
            f"f cannot be sent to worker processes: {sentence(error)}. Leave what cannot travel (locks, open files, "
            "connections) out of the function and open it inside, or give a concurrent.futures.ThreadPoolExecutor."
        ) from None
    return Packed(hash((os.getpid(), time.time(), payload)), payload)
