"""Numbered points in, numbered values out: in this process, or a whole batch in one call."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from varopt.search._checks import Measured
from varopt.search.workers._evaluation import Evaluated, Evaluation, Job, Outcome, sentence, worker_name

__all__ = ["Here", "Vectorized", "Workers"]

FLUSH_SECONDS = 0.05  # results are handed over at least this often, so that a killed process loses little


class Workers(ABC):
    """Numbered rows in, numbered values out, in whatever order these finish.

    What goes wrong in one evaluation, up to the death of its worker, is the outcome of that evaluation and of no other.
    """

    capacity: int = 1

    @abstractmethod
    def start(self, number: int, job: Job) -> None:
        """Have a row evaluated, now or soon."""

    @abstractmethod
    def wait(self, deadline: float) -> list[Outcome]:
        """Some outcomes; an empty list only if the deadline (of `time.monotonic`) has passed."""

    def close(self) -> None:  # noqa: B027 -- most have nothing to give back
        """Give back what was taken; abandon what still runs."""


class Here(Workers):
    """One evaluation after the other, in this process."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._todo: deque[tuple[int, Job]] = deque()

    def start(self, number: int, job: Job) -> None:
        self._todo.append((number, job))

    def wait(self, deadline: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        flush = min(deadline, time.monotonic() + FLUSH_SECONDS)
        while self._todo and (not outcomes or time.monotonic() < flush):
            number, job = self._todo.popleft()
            outcomes.append(Outcome(number, self._evaluation(job)))
        return outcomes


class Vectorized(Workers):
    """The whole batch in one call."""

    def __init__(self, function: Callable[[Any], Any], assemble: Callable[[Any], Any], width: int = 1) -> None:
        self._function, self._assemble, self._width = function, assemble, width
        self._numbers: list[int] = []
        self._rows: list[Any] = []

    def start(self, number: int, job: Job) -> None:
        self._numbers.append(number)
        self._rows.append(job.row)

    def wait(self, deadline: float) -> list[Outcome]:
        numbers, rows = self._numbers, np.array(self._rows)
        self._numbers, self._rows = [], []
        began, clock = time.time(), time.perf_counter()
        found = self._values(rows)
        seconds, worker = time.perf_counter() - clock, worker_name()
        return [
            Outcome(number, Evaluated.of(measured, began, seconds, worker))
            for number, measured in zip(numbers, found, strict=True)
        ]

    def _values(self, rows: Any) -> list[Measured]:
        try:
            values = self._function(self._assemble(rows))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return [Measured(math.nan, sentence(error))] * len(rows)
        shape = np.shape(values)
        if shape[:1] != (len(rows),):
            text = f"a vectorized function must give one value for each of {len(rows)} points; got shape {shape}"
            return [Measured(math.nan, text)] * len(rows)
        return [Measured.of(value, self._width) for value in values]
