"""Rows in, and what their evaluations gave out: in this process, or a whole batch in one call."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from varopt.search._checks import Found, FoundColumns, Measured, as_found, sentence
from varopt.search.journal import Courses
from varopt.search.workers._evaluation import Evaluation, worker_name

__all__ = ["Finished", "Here", "Vectorized", "Workers"]

Array = NDArray[np.float64]

FLUSH_SECONDS = 0.05  # results are handed over at least this often, so that a killed process loses little


class Finished(NamedTuple):
    """Evaluations that are over, at least one, in the order in which they were started."""

    rows: Array
    values: list[float]
    errors: list[str | None]
    courses: Courses

    @classmethod
    def of(cls, rows: Array, found: list[Found], began: list[float], seconds: list[float]) -> Self:
        """What this process found."""
        values, errors, others, reports, stopped = FoundColumns.of(found)
        courses = Courses(began, seconds, [worker_name()] * len(found), others, reports, stopped)
        return cls(rows, values, errors, courses)


class Workers(ABC):
    """Rows in, and what their evaluations gave out, in whatever order these finish.

    What goes wrong in one evaluation, up to the death of its worker, is the outcome of that evaluation and of no other.
    """

    capacity: int = 1

    @abstractmethod
    def start(self, rows: Array, limits: Mapping[int, float]) -> None:
        """Have rows evaluated, now or soon; `limits` says at which steps which values on the way are too high."""

    @abstractmethod
    def wait(self, deadline: float) -> Finished | None:
        """What is over by now; nothing only if the deadline (of `time.monotonic`) has passed."""

    def close(self) -> None:  # noqa: B027 -- most have nothing to give back
        """Give back what was taken; abandon what still runs."""


class Here(Workers):
    """One evaluation after the other, in this process."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._todo: deque[tuple[Array, Mapping[int, float]]] = deque()

    def start(self, rows: Array, limits: Mapping[int, float]) -> None:
        self._todo.append((rows, limits))

    def wait(self, deadline: float) -> Finished | None:
        if not self._todo:
            return None
        world, marks = time.time(), [time.perf_counter()]
        flush = marks[0] + min(FLUSH_SECONDS, deadline - time.monotonic())
        pieces: list[Array] = []
        found: list[Found] = []
        while self._todo and (not found or marks[-1] < flush):
            rows, limits = self._todo.popleft()
            before = len(found)
            self._evaluate(rows, limits, flush, found, marks)
            done = len(found) - before
            pieces.append(rows[:done])
            if done < len(rows):
                self._todo.appendleft((rows[done:], limits))
        ahead = world - marks[0]
        began, seconds = [mark + ahead for mark in marks[:-1]], [end - start for start, end in pairwise(marks)]
        return Finished.of(np.concatenate(pieces), found, began, seconds)

    def _evaluate(
        self, rows: Array, limits: Mapping[int, float], flush: float, found: list[Found], marks: list[float]
    ) -> None:
        """Add what rows give, and when each is over, until it is time to hand that over.

        The clock is read once for each: where one ends the next begins. A cheap function takes no longer than the rest
        of what is done here.
        """
        evaluate, clock = self._evaluation.found, time.perf_counter
        for row in rows:
            found.append(evaluate(row, limits))
            marks.append(now := clock())
            if now >= flush:
                break


class Vectorized(Workers):
    """The whole batch in one call."""

    def __init__(self, function: Callable[[Any], Any], assemble: Callable[[Any], Any], width: int = 1) -> None:
        self._function, self._assemble, self._width = function, assemble, width
        self._todo: list[Array] = []

    def start(self, rows: Array, limits: Mapping[int, float]) -> None:
        self._todo.append(rows)

    def wait(self, deadline: float) -> Finished | None:
        if not self._todo:
            return None
        rows, self._todo = np.concatenate(self._todo), []
        began, clock = time.time(), time.perf_counter()
        found = self._found(rows)
        seconds = time.perf_counter() - clock
        return Finished.of(rows, found, [began] * len(rows), [seconds] * len(rows))

    def _found(self, rows: Any) -> list[Found]:
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
        return [as_found(value, self._width) for value in values]
