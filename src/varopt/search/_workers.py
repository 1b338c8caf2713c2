"""Who evaluates: this process, a `concurrent.futures` executor, joblib, Dask, Ray or a multiprocessing pool.

All of them are given numbered points and give back numbered values, in whatever order these finish. What goes wrong in
one evaluation, up to the death of its worker, is the outcome of that evaluation and of no other.
"""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import numpy as np

from varopt.search._checks import as_value

__all__ = ["Outcome", "Workers", "workers_for"]

Outcome = tuple[int, float, str | None]  # number, value, what went wrong

FLUSH_SECONDS = 0.05  # results are handed over at least this often, so that a killed process loses little
LONE_ATTEMPT = 2  # after so many deaths of its worker a point is evaluated with no other beside it


@dataclass(frozen=True)
class Guarded:
    """The user's function, with everything it may do wrong turned into a value and a sentence."""

    function: Callable[[Any], Any]

    def __call__(self, point: Any) -> tuple[float, str | None]:
        try:
            return as_value(self.function(point))
        except Exception as error:
            return math.nan, f"{type(error).__name__}: {error}"


class Workers(ABC):
    """Numbered points in, numbered values out."""

    capacity: int = 1

    @abstractmethod
    def start(self, number: int, point: Any) -> None:
        """Have a point evaluated, now or soon."""

    @abstractmethod
    def wait(self, deadline: float) -> list[Outcome]:
        """Some outcomes; an empty list only if the deadline (of `time.monotonic`) has passed."""

    def close(self) -> None:  # noqa: B027 -- most have nothing to give back
        """Give back what was taken; abandon what still runs."""


class Here(Workers):
    """One evaluation after the other, in this process."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._guarded = Guarded(function)
        self._todo: deque[tuple[int, Any]] = deque()

    def start(self, number: int, point: Any) -> None:
        self._todo.append((number, point))

    def wait(self, deadline: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        flush = min(deadline, time.monotonic() + FLUSH_SECONDS)
        while self._todo and (not outcomes or time.monotonic() < flush):
            number, point = self._todo.popleft()
            outcomes.append((number, *self._guarded(point)))
        return outcomes


class Vectorized(Workers):
    """The whole batch in one call."""

    def __init__(self, function: Callable[[Any], Any], assemble: Callable[[list[Any]], Any]) -> None:
        self._function, self._assemble = function, assemble
        self._numbers: list[int] = []
        self._points: list[Any] = []

    def start(self, number: int, point: Any) -> None:
        self._numbers.append(number)
        self._points.append(point)

    def wait(self, deadline: float) -> list[Outcome]:
        numbers, points = self._numbers, self._points
        self._numbers, self._points = [], []
        try:
            values = self._function(self._assemble(points))
        except Exception as error:
            return [(number, math.nan, f"{type(error).__name__}: {error}") for number in numbers]
        shape = np.shape(values)
        if shape[:1] != (len(numbers),):
            text = f"a vectorized function must give one value for each of {len(numbers)} points; got shape {shape}"
            return [(number, math.nan, text) for number in numbers]
        return [(number, *as_value(value)) for number, value in zip(numbers, values, strict=True)]


class Joblib(Workers):
    """A `joblib.Parallel`, batch by batch; Ray and Dask register themselves as its backends.

    Its workers stay for the whole run: starting them takes seconds on Ray.
    """

    def __init__(self, function: Callable[[Any], Any], parallel: Any) -> None:
        self._guarded, self._parallel = Guarded(function), parallel
        self._todo: list[tuple[int, Any]] = []
        self._owned = not getattr(parallel, "_managed_backend", False)  # else the caller's `with` keeps them
        if self._owned:
            parallel.__enter__()

    def start(self, number: int, point: Any) -> None:
        self._todo.append((number, point))

    def wait(self, deadline: float) -> list[Outcome]:
        todo, self._todo = self._todo, []
        results = self._parallel((self._guarded, (point,), {}) for _, point in todo)
        return [(number, *result) for (number, _), result in zip(todo, results, strict=True)]

    def close(self) -> None:
        if self._owned:
            self._parallel.__exit__(None, None, None)


@dataclass
class Evaluation:
    """A point on its way."""

    number: int
    point: Any
    deaths: int = 0
    alone: bool = False
    running_since: float = math.inf


class Futures(Workers):
    """A `concurrent.futures` executor, with workers that die or hang replaced.

    A dead worker breaks a whole process pool, so that all points under way are suspects. They are evaluated again in a
    new pool; one that was there twice goes alone, and if its worker dies again it is recorded as failed.

    Parameters
    ----------
    function : callable
        What to evaluate.
    executor : Executor
        Who evaluates.
    timeout : float, optional
        Seconds after which an evaluation counts as failed.
    owned : bool
        Whether to shut the executor down at the end.
    """

    def __init__(
        self, function: Callable[[Any], Any], executor: Any, timeout: float | None = None, *, owned: bool = False
    ) -> None:
        self._guarded, self._executor, self._timeout, self._owned = Guarded(function), executor, timeout, owned
        self.capacity = int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)
        self._backlog: deque[Evaluation] = deque()
        self._suspects: deque[Evaluation] = deque()
        self._flying: dict[futures.Future[tuple[float, str | None]], Evaluation] = {}

    def start(self, number: int, point: Any) -> None:
        self._backlog.append(Evaluation(number, point))

    def wait(self, deadline: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while not outcomes and (self._flying or self._backlog or self._suspects):
            outcomes += self._launch()
            if not self._flying or outcomes:
                continue
            now = time.monotonic()
            if now >= deadline:
                break
            step = deadline - now if self._timeout is None else min(deadline - now, max(0.01, self._timeout / 10.0))
            done, _ = futures.wait(
                self._flying, None if math.isinf(step) else step, return_when=futures.FIRST_COMPLETED
            )
            outcomes += self._collect(done) + self._expire()
        return outcomes

    def _launch(self) -> list[Outcome]:
        """Send off what is waiting: everybody, or a single suspect once nobody else is under way."""
        if not self._suspects:
            waiting, self._backlog = self._backlog, deque()
        elif self._flying:
            return []
        else:
            suspect = self._suspects.popleft()
            suspect.alone = True
            waiting = deque([suspect])
        outcomes: list[Outcome] = []
        while waiting:
            task = waiting.popleft()
            try:
                self._flying[self._executor.submit(self._guarded, task.point)] = task
            except futures.BrokenExecutor:
                if not self._replace():
                    outcomes.append((task.number, math.nan, "the worker died, and its executor cannot be replaced"))
                else:
                    waiting.appendleft(task)
        return outcomes

    def _collect(self, done: set[futures.Future[tuple[float, str | None]]]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        dead: list[Evaluation] = []
        for future in sorted(done, key=lambda f: self._flying[f].number):
            task = self._flying.pop(future)
            try:
                outcomes.append((task.number, *future.result()))
            except futures.BrokenExecutor:
                dead.append(task)
            except Exception as error:  # a point or a value that cannot be sent, a lost node
                outcomes.append((task.number, math.nan, f"{type(error).__name__}: {error}"))
        if dead:
            dead += [task for _, task in sorted(self._flying.items(), key=lambda item: item[1].number)]
            self._flying.clear()
            self._replace()
            for task in dead:
                task.deaths += 1
                if task.alone:
                    outcomes.append((task.number, math.nan, "the worker died"))
                else:
                    (self._suspects if task.deaths >= LONE_ATTEMPT else self._backlog).append(task)
        return outcomes

    def _expire(self) -> list[Outcome]:
        """Give up on evaluations that run for too long."""
        if self._timeout is None:
            return []
        now = time.monotonic()
        late = []
        for future, task in self._flying.items():
            if math.isinf(task.running_since) and future.running():
                task.running_since = now
            if now - task.running_since > self._timeout:
                late.append(future)
        if not late:
            return []
        outcomes: list[Outcome] = []
        for future in late:
            future.cancel()
            outcomes.append((self._flying.pop(future).number, math.nan, f"no value after {self._timeout:g} s"))
        if self._replace():  # their workers are still busy
            for task in self._flying.values():
                task.running_since = math.inf
                self._backlog.append(task)
            self._flying.clear()
        return outcomes

    def _replace(self) -> bool:
        """A new pool like the old one; false where it is not known how to make one."""
        old = self._executor
        if isinstance(old, futures.ProcessPoolExecutor):
            new: futures.Executor = _like(old)
            _kill(old)
        elif isinstance(old, futures.ThreadPoolExecutor):
            new = futures.ThreadPoolExecutor(old._max_workers)
        elif isinstance(old, _PoolExecutor) and old.is_ray:
            new = old.anew()
        else:
            return False
        old.shutdown(wait=False, cancel_futures=True)
        self._executor, self._owned = new, True
        return True

    def close(self) -> None:
        for future in self._flying:
            future.cancel()
        if self._owned:
            if self._flying and isinstance(self._executor, futures.ProcessPoolExecutor):
                _kill(self._executor)
            self._executor.shutdown(wait=not self._flying, cancel_futures=True)


def _like(pool: futures.ProcessPoolExecutor) -> futures.ProcessPoolExecutor:
    known: Any = pool  # the standard library keeps these, without a public name
    return futures.ProcessPoolExecutor(
        known._max_workers, mp_context=known._mp_context, initializer=known._initializer, initargs=known._initargs
    )


def _kill(pool: futures.ProcessPoolExecutor) -> None:
    processes: Any = getattr(pool, "_processes", None) or {}
    for process in list(processes.values()):
        process.kill()


class _PoolExecutor(futures.Executor):
    """A pool with `apply_async` (multiprocessing, Ray's) as an executor."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.is_ray = hasattr(pool, "_actor_pool")
        self._max_workers = len(pool._actor_pool) if self.is_ray else getattr(pool, "_processes", None)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = futures.Future()
        future.set_running_or_notify_cancel()

        def fail(error: BaseException) -> None:
            died = any(kind.__name__ == "RayActorError" for kind in type(error).__mro__)
            future.set_exception(futures.BrokenExecutor(str(error)) if died else error)

        self._pool.apply_async(fn, args, kwargs, callback=future.set_result, error_callback=fail)
        return future

    def anew(self) -> _PoolExecutor:
        """Another pool of Ray's like this one: it would go on sending work to actors that have died."""
        old = self._pool
        again = type(old)(
            self._max_workers, old._initializer, old._initargs, ray_remote_args=getattr(old, "_ray_remote_args", None)
        )
        return _PoolExecutor(again)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.terminate()


def workers_for(
    function: Callable[[Any], Any], executor: Any, *, timeout: float | None, vectorized: bool,
    assemble: Callable[[list[Any]], Any],
) -> Workers:  # fmt: skip
    """Who evaluates, by what `executor` is."""
    if vectorized:
        if executor is not None:
            raise ValueError(
                "vectorized=True hands over the whole batch in one call; give executor or vectorized, not both."
            )
        workers: Workers = Vectorized(function, assemble)
    elif executor is None:
        workers = Here(function)
    elif isinstance(executor, int) and not isinstance(executor, bool) and executor >= 1:
        return Futures(function, futures.ProcessPoolExecutor(executor), timeout, owned=True)
    elif hasattr(executor, "get_executor"):  # dask.distributed.Client
        return Futures(function, executor.get_executor(), timeout)
    elif hasattr(executor, "apply_async"):
        return Futures(function, _PoolExecutor(executor), timeout)
    elif hasattr(executor, "submit"):
        return Futures(function, executor, timeout)
    elif type(executor).__module__.partition(".")[0] == "joblib":
        workers = Joblib(function, executor)
    else:
        raise ValueError(
            "executor must be a concurrent.futures executor, a number of processes, a dask.distributed Client, a "
            f"joblib.Parallel or a pool with apply_async; got {executor!r}."
        )
    if timeout is not None:
        raise ValueError("timeout needs an executor whose workers can be left behind, such as executor=4 (processes).")
    return workers
