"""The clock: processor seconds of one thread, with what only judges a method off the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.composite import composite
from varopt.model import as_objective
from varopt.solvers import Method, State

__all__ = ["Race", "descended", "timed"]

Vector = NDArray[np.float64]


def timed(method: Callable[[], Any]) -> tuple[Any, float]:
    """What a method returns, and the processor seconds that it took."""
    start = time.process_time()
    result = method()
    return result, time.process_time() - start


def descended(objective: Any, method: Method) -> State:
    """Where a method of the library ends by its own rule: what `varopt.minimize` proves after it is left out."""
    problem = composite(as_objective(objective))
    state = State(np.zeros(problem.size))
    method.solve(problem, state, 0.0, lambda _: None)
    return state


class Race:
    """Watches the iterates of a method until one is good enough.

    Judging an iterate takes the clock's time back. `watch` raises `StopIteration` from the iterate that reaches
    `target` on.

    Parameters
    ----------
    value : callable
        The objective, which the method need not know.
    target : float
        The value to reach.
    """

    def __init__(self, value: Callable[[Vector], float], target: float) -> None:
        self._value, self._target = value, target
        self._judged, self._started = 0.0, time.process_time()
        self.best = np.inf
        self.iterations = 0
        self.seconds: float | None = None

    def watch(self, point: Vector) -> None:
        """Judge an iterate."""
        with self._paused():
            self.iterations += self.seconds is None
            self.best = min(self.best, self._value(point))
        if self.best <= self._target:
            if self.seconds is None:
                self.seconds = self.spent
            raise StopIteration

    @property
    def spent(self) -> float:
        """Processor seconds on the clock."""
        return time.process_time() - self._started - self._judged

    @contextmanager
    def _paused(self) -> Iterator[None]:
        start = time.process_time()
        yield
        self._judged += time.process_time() - start
