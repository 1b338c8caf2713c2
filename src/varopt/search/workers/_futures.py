"""Evaluations as futures: `concurrent.futures`, loky, Dask, Ray, with workers that die or hang replaced."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from varopt.search._checks import sentence
from varopt.search.journal import Courses
from varopt.search.workers._evaluation import Evaluated, Evaluation, Job, Packed
from varopt.search.workers._workers import Array, Finished, Workers

__all__ = ["Futures", "PoolExecutor", "Renewal"]

TENDED = 1.0  # seconds of waiting after which workers are looked after
LONE_ATTEMPT = 2  # after so many deaths of its worker a point is evaluated with no other beside it
DEATHS = {"KilledWorker", "RayActorError", "ActorDiedError", "WorkerCrashedError"}  # Dask's and Ray's words for it

Pending = futures.Future[Evaluated]
# Pools that we ended since a worker of theirs had died or hung: who made them did not, and may give them again.
ENDED: weakref.WeakSet[Any] = weakref.WeakSet()


class Renewal(NamedTuple):
    """How to end an executor with all that runs on it, and how to make another like it."""

    end: Callable[[Any], None]
    another: Callable[[Any], Any]


class Outcome(NamedTuple):
    """What became of a numbered row."""

    number: int
    row: Array
    evaluated: Evaluated


@dataclass
class Flight:
    """A row on its way."""

    number: int
    job: Job
    deaths: int = 0
    alone: bool = False


class Futures(Workers):
    """A `concurrent.futures` executor, with workers that die or hang replaced.

    A dead worker breaks a whole process pool, so that all points under way are suspects. They are evaluated again in a
    new pool; one that was there twice goes alone, and if its worker dies again it is recorded as failed. A process with
    an evaluation left behind is ended as soon as the others have finished theirs.

    Parameters
    ----------
    evaluation : Evaluation or Packed
        What to run.
    executor : Executor
        Who evaluates.
    renewal : Renewal, optional
        How to end an executor and to make another like it; none where its owner sees to that.
    capacity : int, optional
        How many workers there are.
    owned : bool
        Whether to shut the executor down at the end.
    patient : bool
        Whether at most as many points are handed over as there are workers: one that hangs keeps nobody waiting.
    tend : callable, optional
        What to do while nothing is finished, such as asking for workers that were given up; it says whether what is
        under way has been lost, and is to be sent again.
    """

    def __init__(
        self, evaluation: Evaluation | Packed, executor: Any, renewal: Renewal | None = None, *,
        capacity: int | None = None, owned: bool = False, patient: bool = False,
        tend: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        self._evaluation, self._executor, self._renewal, self._owned = evaluation, executor, renewal, owned
        self.capacity = int(capacity or getattr(executor, "_max_workers", None) or os.cpu_count() or 1)
        self._most = self.capacity if patient else math.inf
        self._tend = tend
        self._backlog: deque[Flight] = deque()
        self._suspects: deque[Flight] = deque()
        self._flying: dict[Pending, Flight] = {}
        self._haunted = False  # some worker has an evaluation that was left behind
        self._accepted = False
        self._started = 0

    def start(self, rows: Array, limits: Mapping[int, float]) -> None:
        self._backlog.extend(Flight(number, Job(row, limits)) for number, row in enumerate(rows, self._started))
        self._started += len(rows)

    def wait(self, deadline: float) -> Finished | None:
        if not (outcomes := self._outcomes(deadline)):
            return None
        _, rows, evaluated = zip(*sorted(outcomes, key=lambda outcome: outcome.number), strict=True)
        courses = Courses.of(each.course for each in evaluated)
        return Finished(np.array(rows), [each.value for each in evaluated], [each.error for each in evaluated], courses)

    def _outcomes(self, deadline: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while not outcomes and (self._flying or self._backlog or self._suspects):
            outcomes += self._launch()
            if not self._flying or outcomes:
                continue
            left = deadline - time.monotonic()
            if left <= 0.0:
                break
            if self._tend is not None:
                left = min(left, TENDED)
            done, _ = futures.wait(
                self._flying, None if math.isinf(left) else left, return_when=futures.FIRST_COMPLETED
            )
            if self._tend is not None and not done and self._tend():
                self._send_again()
            outcomes += self._collect(done)
        return outcomes

    def _send_again(self) -> None:
        """Give up the futures of what is under way, and send it once more: a suspect first, and alone."""
        for future, flight in sorted(self._flying.items(), key=lambda pair: -pair[1].number):
            future.cancel()
            (self._suspects if flight.alone else self._backlog).appendleft(flight)
        self._flying.clear()

    def _launch(self) -> list[Outcome]:
        """Send off what is waiting: everybody, or a single suspect, with nobody else under way before or beside it."""
        lone = any(flight.alone for flight in self._flying.values())
        if (self._haunted or self._suspects or lone) and self._flying:
            return []
        if self._haunted or _pool(self._executor) in ENDED:
            self._replace()
        outcomes: list[Outcome] = []
        waiting = self._suspects or self._backlog
        while waiting and len(self._flying) < self._most:
            flight = waiting.popleft()
            flight.alone = waiting is self._suspects
            try:
                self._flying[self._executor.submit(self._evaluation, flight.job)] = flight
                self._accepted = True
            except futures.BrokenExecutor:
                if self._replace():
                    waiting.appendleft(flight)
                else:
                    outcomes.append(_failed(flight, "the worker died, and its executor cannot be replaced"))
            except Exception as error:
                if not self._accepted:  # nothing has run: an executor that is shut down, a function it cannot send
                    raise ValueError(f"executor does not take f: {sentence(error)}") from error
                outcomes.append(_failed(flight, sentence(error)))
            if flight.alone:
                break
        return outcomes

    def _collect(self, done: set[Pending]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        dead: list[Flight] = []
        broken = False
        for future in sorted(done, key=lambda f: self._flying[f].number):
            flight = self._flying.pop(future)
            try:
                evaluated = Evaluated(*future.result())
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a value that cannot be sent, a lost node, a dead worker
                broken = broken or isinstance(error, futures.BrokenExecutor)
                if _is_death(error):
                    dead.append(flight)
                else:
                    outcomes.append(_failed(flight, sentence(error)))
            else:
                self._haunted = self._haunted or (evaluated.abandoned and self._renewal is not None)
                outcomes.append(_outcome(flight, evaluated))
        if broken:  # and all that were under way with it
            dead += sorted(self._flying.values(), key=lambda flight: flight.number)
            self._flying.clear()
            self._replace()
        return outcomes + [outcome for flight in dead for outcome in self._bury(flight)]

    def _bury(self, flight: Flight) -> list[Outcome]:
        flight.deaths += 1
        if flight.alone:
            return [_failed(flight, "the worker died")]
        (self._suspects if flight.deaths >= LONE_ATTEMPT else self._backlog).append(flight)
        return []

    def _replace(self) -> bool:
        """A new pool like the old one; false where it is not known how to make one."""
        self._haunted = False
        if self._renewal is None:
            return False
        old, self._executor, self._owned = self._executor, self._renewal.another(self._executor), True
        ENDED.add(_pool(old))
        self._renewal.end(old)
        return True

    def close(self) -> None:
        if self._owned and self._renewal is not None and (self._flying or self._haunted):
            self._renewal.end(self._executor)  # which then fails every future, and would stumble over one cancelled
            return
        for future in self._flying:
            future.cancel()
        if self._owned:
            self._executor.shutdown(wait=not self._flying)


def _pool(executor: Any) -> Any:
    """What the user gave, where we have wrapped it."""
    return executor.pool if isinstance(executor, PoolExecutor) else executor


def _outcome(flight: Flight, evaluated: Evaluated) -> Outcome:
    return Outcome(flight.number, flight.job.row, evaluated)


def _failed(flight: Flight, error: str) -> Outcome:
    return _outcome(flight, Evaluated(math.nan, error))


def _is_death(error: BaseException) -> bool:
    return isinstance(error, futures.BrokenExecutor) or any(kind.__name__ in DEATHS for kind in type(error).__mro__)


class PoolExecutor(futures.Executor):
    """A pool with `apply_async` (of threads, or Ray's) as an executor."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.is_ray = hasattr(pool, "_actor_pool")
        self._max_workers = len(pool._actor_pool) if self.is_ray else getattr(pool, "_processes", None)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Hand over a call."""
        future: futures.Future[Any] = futures.Future()
        future.set_running_or_notify_cancel()

        def fail(error: BaseException) -> None:
            # Ray's pool goes on sending work to actors that have died: it is of no more use.
            future.set_exception(futures.BrokenExecutor(str(error)) if _is_death(error) else error)

        self.pool.apply_async(fn, args, kwargs, callback=future.set_result, error_callback=fail)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the pool."""
        self.pool.terminate()
