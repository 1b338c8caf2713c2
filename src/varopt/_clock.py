"""The clock of a run: whatever takes long looks at it between its steps.

A method shows its state after every level, which may take long on large data. Inside a level there is no state to show,
but time is up all the same. A deadline is hidden state, in a context variable: as an argument it would go through every
function of every method and proof. Unlike a global one it is not seen by other threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["TimeUp", "budget", "deadline", "left", "tick"]

_OPERATIONS_PER_SECOND = 1e10  # operations in a second, at most: what is sure to end too late is not begun
_LATE = 0.05  # seconds after the deadline that count as in time: the bracket that is left to prove takes some too

_END: ContextVar[float] = ContextVar("when time is up", default=math.inf)
_GRACE: ContextVar[float] = ContextVar("seconds that count as in time", default=_LATE)
_SPENT: ContextVar[float] = ContextVar("when a budget of processor time is spent", default=math.inf)


class TimeUp(Exception):
    """The time limit was reached."""


@contextmanager
def deadline(seconds: float | None, late: float = _LATE) -> Iterator[None]:
    """Within it `tick` raises `TimeUp` once so many seconds have passed, or those of a deadline around it.

    What takes long is begun where it would end at most `late` seconds after it.
    """
    token = _END.set(min(_END.get(), math.inf if seconds is None else time.perf_counter() + seconds))
    grace = _GRACE.set(late)
    try:
        yield
    finally:
        _END.reset(token)
        _GRACE.reset(grace)


@contextmanager
def budget(seconds: float) -> Iterator[None]:
    """Within it `tick` raises `TimeUp` once this thread has computed for so long: what others compute does not count.

    For what a run allows its own parts, so that a busy machine does not change what they find; users' limits are
    deadlines.
    """
    token = _SPENT.set(min(_SPENT.get(), time.thread_time() + seconds))
    try:
        yield
    finally:
        _SPENT.reset(token)


def tick(operations: float = 0.0) -> None:
    """Raise `TimeUp` where time is up, or where so many operations would end well after it.

    Examples
    --------
    >>> with deadline(60.0):
    ...     tick()
    """
    left = _END.get() - time.perf_counter()
    if left < 0.0 or operations / _OPERATIONS_PER_SECOND > left + _GRACE.get():
        raise TimeUp
    if (spent := _SPENT.get()) < math.inf and time.thread_time() > spent:
        raise TimeUp


def left() -> float:
    """Seconds until time is up, for what cannot look at the clock itself; infinite where there is no deadline."""
    return max(_END.get() - time.perf_counter(), 0.0)
