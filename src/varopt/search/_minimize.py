"""The loop around ask and tell: evaluate, keep, learn, until a budget, a target or a limit is reached."""

from __future__ import annotations

import json
import math
import numbers
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from varopt._display import Progress, curves, duration, table
from varopt.optimize import Result, Status
from varopt.search._checks import positive, whole
from varopt.search._dimensions import Searchable
from varopt.search._incumbent import Contender
from varopt.search._plot import plot_history, plot_search
from varopt.search._search import Search
from varopt.search._space import SpaceLayout, as_space
from varopt.search.goals import Front
from varopt.search.journal import is_blank
from varopt.search.workers import Workers, workers_for
from varopt.solvers.natural_gradient import CategoricalUpdate, default_population

__all__ = ["SearchResult", "minimize_black_box"]

SENTENCES = {  # of statuses that tell others what a bracket is worth
    Status.TIME_LIMIT: "The time is spent; the best so far is returned. Raise time_limit to go on.",
    Status.INTERRUPTED: "The run was interrupted; the best so far is returned.",
    Status.NOT_FOUND: "No point was found that satisfies all constraints. Raise budget to go on.",
}
NOTHING_YET = {  # instead of what speaks of the best so far, where there is none
    Status.TIME_LIMIT: "The time was spent before any evaluation gave a value. Raise time_limit.",
    Status.INTERRUPTED: "The run was interrupted before any evaluation gave a value.",
}
SHOWN = 300  # characters of an error in a result; `errors` has the rest


@dataclass(frozen=True, repr=False)
class SearchResult(Result):
    """The outcome of minimising a black box.

    `Result` with ``x`` an array for a Box and a dictionary for a Space; ``certificate`` is `Sampled`, and ``history``
    has ``evaluations``, ``best``, ``mean``, ``standard_error``, ``samples``, ``sigma``, ``time`` of every generation.
    Of several objectives ``x`` is a compromise, ``fun`` an array of its values, and ``front`` has all the others.

    Attributes
    ----------
    search : Search
        The search itself, to look at or to go on with.
    errors : list of str
        What went wrong in the last evaluations that failed, at most ten.
    """

    x: Any
    search: Search | None = field(default=None, compare=False)
    errors: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether it ended as it was meant to: by its budget, of evaluations or of seconds alone, or its target."""
        return self.status in (Status.BUDGET, Status.TARGET) or (self.status is Status.TIME_LIMIT and self._by_time)

    @property
    def _by_time(self) -> bool:
        """Whether seconds were all the budget it was given, and it found something in them."""
        return self.search is not None and self.search.settings["time_limit"] is not None and self.x is not None

    @property
    def message(self) -> str:
        """The sentence of the status; there is no bracket to speak of."""
        sentences = {**SENTENCES, **NOTHING_YET} if self.x is None else SENTENCES
        return sentences.get(self.status, str(self.status.value))

    @property
    def front(self) -> Front:
        """Of several objectives: the points that no other point is better than in all of them."""
        if self.search is None:
            raise ValueError("front is for the result of a search.")
        return self.search.front

    def __repr__(self) -> str:
        rows = [("value", self._value), *self._rows()]
        return "\n".join([f"{self.status.name}: {self.message}", *(f"  {name:<8} {text}" for name, text in rows)])

    @property
    def _value(self) -> str:
        if isinstance(self.fun, float):
            return f"{self.fun + 0.0:.12g}"  # not -0
        return f"{_short(self.fun)}, a compromise; {len(self.front)} points on the front"

    def _rows(self) -> list[tuple[str, str]]:
        broken = [("broken", f"constraints, by {self.violation:.3g}")] if self.violation else []
        rows = [("x", _short(self.x)), *broken, ("method", self._way)]
        count = "" if self.search is None else f"{len(self.search.errors)} of {self.nfev}, the last: "
        last = [error if len(error) <= SHOWN else error[:SHOWN] + " ..." for error in self.errors[-1:]]
        return rows + [("failed", count + error) for error in last]

    @property
    def _way(self) -> str:
        return f"{self.method}, {self.nfev} evaluations, {duration(self.time)}"

    def _course(self) -> str:
        shown = {name: self.history[name] for name in ("evaluations", "best", "mean", "sigma", "time")}
        return curves(shown["evaluations"], {"best": shown["best"]}) + table(shown)

    def plot(self, axes: Any = None, *, kind: str | None = None) -> Any:
        """Draw the search, as `Search.plot` does. Needs Matplotlib (the extra `plot`); returns the axes.

        Parameters
        ----------
        axes : Matplotlib axes, optional
            Where to draw.
        kind : str, optional
            What to draw.
        """
        return plot_history(self.history, axes) if self.search is None else plot_search(self.search, axes, kind)


def minimize_black_box(
    f: Callable[[Any], Any], space: Any, *, budget: int | None = None, method: str = "auto", seed: int | None = None,
    population: int | None = None, x0: Any = None, sigma: float | None = None, maximize: Any = False,
    noisy: bool = False, vectorized: bool = False, executor: Any = None, asynchronous: bool = False,
    timeout: float | None = None, time_limit: float | None = None, target: float | None = None,
    callback: Callable[[Search], Any] | None = None, progress: bool = False,
    journal: str | Path | None = None, max_failures: int = 100, batch: int | None = None,
    beta: Callable[[float], float] | None = None, objectives: int = 1, constraints: int = 0, subject_to: Any = None,
    stop_early: Any = False,
) -> SearchResult:  # fmt: skip
    """Minimise a black box: what `varopt.minimize` does when it is given a function and a space.

    Parameters
    ----------
    f : callable
        Gets an array for a Box, a dictionary for a Space; returns a number. What it raises, and values that are not
        finite, count as failed evaluations: they rank last, and the search goes on.
    space : Box, Space or another dimension
        Where to search.
    budget : int, optional
        Evaluations, 1000 times the number of coordinates by default, and as many as the time allows where only
        `time_limit` is given; those in an existing journal count.
    method, seed, population, x0, sigma, maximize, noisy
        As in `Search`.
    vectorized : bool
        Whether `f` takes a whole batch, as `Search.ask` gives it, and returns as many values.
    executor : executor, int, optional
        Who evaluates: a `concurrent.futures` executor, a number of processes, a ``dask.distributed`` Client, a
        ``joblib.Parallel``, or a pool with ``apply_async`` such as Ray's. The result does not depend on it.
    asynchronous : bool
        Keep all workers busy and learn from values as they come: faster where evaluations differ in length, but the
        result then depends on the order in which they finish.
    timeout : float, optional
        Seconds after which one evaluation counts as failed; needs an executor.
    time_limit : float, optional
        Seconds after which the best so far is returned.
    target : float, optional
        Stop after the generation in which a value at least as good was found.
    callback : callable, optional
        Called with the search after every generation; it may raise `StopIteration` to end the run.
    progress : bool
        Show a live line on standard error.
    journal : path, optional
        An SQLite file that keeps every evaluation. If it exists, the search in it goes on: run the same line again
        after a crash.
    max_failures : int
        Stop after the generation in which so many evaluations in a row have failed.
    batch : int, optional
        How many points are evaluated at once, by methods that do not need a whole generation (see `Search`): one by
        default, which needs the fewest, and as many as a usual generation has where there is an executor.
    beta : callable, optional
        Of method ``"free-energy"``: from the share of the budget that is used up, in [0, 1], to the beta of
        ``<log p> + beta <f>``, such as `varopt.solvers.Cooling`; in units of one over f. A journal does not keep it.
    objectives : int
        How many values `f` returns. Of more than one the result has a `front`: the points that no other point is better
        than in all of them.
    constraints : int
        How many numbers `f` returns after its values, each at most zero where a constraint that is measured holds.
    subject_to : callable, or list of them, optional
        Constraints known in advance: functions of the point, true or at most zero where it is allowed. `f` is never
        evaluated elsewhere.
    stop_early : bool or Halving
        Stop evaluations that are not worth finishing. `f` is then a function that yields a value again and again, as a
        training does after every epoch; its last one counts. An evaluation is stopped at step 1, 3, 9, ... if what it
        yields there is not among the better third of what others did.

    Returns
    -------
    SearchResult
    """
    began = time.monotonic()
    space = as_space(space)
    if not callable(f):
        raise ValueError(f"f must be a function of a point; got {f!r}.")
    limit = math.inf if time_limit is None else positive("time_limit", time_limit, "a positive number of seconds")
    timeout = None if timeout is None else positive("timeout", timeout, "a positive number of seconds")
    if target is not None and not (isinstance(target, numbers.Real) and math.isfinite(target)):
        raise ValueError(f"target must be a finite number; got {target!r}.")
    if target is not None and objectives != 1:
        raise ValueError("target is for one objective.")
    if vectorized and stop_early:
        raise ValueError("stop_early needs one evaluation at a time; vectorized=True hands over a batch.")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of the search; got {callback!r}.")
    max_failures = whole("max_failures", max_failures, 1)
    budget = None if budget is None else whole("budget", budget, 1)
    settings = {"method": method, "seed": seed, "population": population, "x0": x0, "sigma": sigma,
                "maximize": maximize, "noisy": noisy, "asynchronous": asynchronous, "objectives": objectives,
                "constraints": constraints, "subject_to": subject_to, "stop_early": stop_early}  # fmt: skip
    if batch is None and (executor is not None or vectorized) and population is None and not asynchronous:
        batch = default_population(SpaceLayout(space).columns)  # whoever evaluates: the result depends on none of them
    _check_beta(beta, method, journal, math.inf if budget is None and time_limit is not None else 0.0)
    hints = {"budget": budget, "time_limit": None if budget else time_limit, "batch": batch}
    search = _begin(space, journal, settings, hints)
    total = budget or (1000 * search._layout.columns if time_limit is None else math.inf)
    if beta is not None and isinstance(search._model, CategoricalUpdate):
        search._model.beta = lambda told: beta(min(told / total, 1.0))
    layout = search._layout
    try:
        workers = workers_for(
            f, executor, timeout=timeout, vectorized=vectorized, decode=layout.point, assemble=layout.decode,
            width=search._width, sign=search._sign,
        )  # fmt: skip
    except BaseException:
        search.close()
        raise
    line = Progress(progress)
    run = _Run(search, workers, total, began + limit, target, max_failures)
    try:
        for _ in run:
            if line.shown:
                line.show(_line(search, total, began))
            if callback is not None:
                callback(search)
    except (KeyboardInterrupt, StopIteration):
        run.status = Status.INTERRUPTED
    finally:
        workers.close()
        search.close()
        if line.shown:
            line.end(_line(search, total, began))
    return _conclude(search, run.status, time.monotonic() - began)


def _check_beta(beta: Any, method: str, journal: Any, endless: float) -> None:
    if beta is None:
        return
    if not callable(beta):
        raise ValueError(f"beta must be a function from progress in [0, 1] to a positive number; got {beta!r}.")
    if method != "free-energy":
        raise ValueError(f"beta applies to method 'free-energy' only; got method {method!r}.")
    if journal is not None:
        raise ValueError("beta is a function, which a journal cannot keep; give one of the two.")
    if endless:
        raise ValueError("beta is a function of the share of the budget that is used up; give a budget.")


class _Run:
    """Goes on by a generation whenever it is asked for the next; `status` says how it ended."""

    def __init__(
        self, search: Search, workers: Workers, budget: float, deadline: float, target: float | None, max_failures: int
    ) -> None:
        self.search, self.workers = search, workers
        self.budget, self.deadline, self.target, self.max_failures = budget, deadline, target, max_failures
        self._flying = 0  # rows under way
        self.status = Status.INTERRUPTED

    def __iter__(self) -> Iterator[None]:
        generation = self.search.generation
        while (status := self._ended()) is None:
            self._start()
            if (finished := self.workers.wait(self.deadline)) is not None:
                self._flying -= len(finished.rows)
                self.search._tell_rows(*finished)
            if self.search.generation > generation:
                generation = self.search.generation
                yield
        self.status = status

    def _start(self) -> None:
        """Send off the next generation, or, if asynchronous, as many points as there are idle workers."""
        room = self.budget - self.search.evaluations - self._flying
        if self.search.asynchronous:
            room = min(room, self.workers.capacity - self._flying)
        elif self._flying:
            return
        if room < 1:
            return
        if not self.search.asynchronous:
            if not self.search._queue:
                self.search._draw(None)
            room = min(room, self.search._queued)
        for stretch in self.search._take(int(room)):
            self._flying += stretch.size
            self.workers.start(stretch.rows, stretch.batch.limits)

    def _ended(self) -> Status | None:
        search = self.search
        between = search.asynchronous or not self._flying  # generations are finished, so that order plays no part
        if between and search.failures >= self.max_failures:
            return Status.FAILURES
        if time.monotonic() >= self.deadline:
            return self._spent(Status.TIME_LIMIT) if search.evaluations else Status.TIME_LIMIT
        best = search._incumbent
        if between and self.target is not None and best is not None and not self._misses(best, self.target):
            return Status.TARGET
        return self._spent(Status.BUDGET) if search.evaluations >= self.budget else None

    def _misses(self, best: Contender, target: float) -> bool:
        return self.search._lowest.violation > 0.0 or best.value > self.search._sign * target

    def _spent(self, what: Status) -> Status:
        """How a run that used up its evaluations or its time ended."""
        search = self.search
        if len(search.errors) == search.evaluations:
            return Status.NO_VALUE
        best = search.best
        return what if best is not None and best.violation == 0.0 else Status.NOT_FOUND


def _begin(space: Any, journal: str | Path | None, settings: dict[str, Any], hints: dict[str, Any]) -> Search:
    """A new search, or the one in the journal, which keeps the hints that it was begun with."""
    if journal is None or is_blank(Path(journal)):
        return Search(space, journal=journal, **settings, **hints)
    search = Search.load(journal, space, subject_to=settings["subject_to"])
    try:
        fresh = Search(
            search.space, **{**settings, "seed": search.seed if settings["seed"] is None else settings["seed"]}
        )
        for name in settings:
            if search.settings[name] != fresh.settings[name]:
                raise ValueError(
                    f"journal {journal} was begun with {name}={json.dumps(search.settings[name])}, not "
                    f"{json.dumps(fresh.settings[name])}; name another file, or give what it was begun with."
                )
    except BaseException:
        search.close()
        raise
    return search


def _conclude(search: Search, status: Status, seconds: float) -> SearchResult:
    best, history = search.best, search.history
    return SearchResult(
        x=None if best is None else best.x, fun=search._sign * math.inf if best is None else best.fun,
        violation=0.0 if best is None else best.violation,
        certificate=search.bound, status=status, method=search.method, sigma=search._model.spread,
        nit=search.generation, time=seconds, history=history, slices={}, nfev=search.evaluations, search=search,
        errors=tuple(search.errors[-10:]),
    )  # fmt: skip


def _line(search: Search, budget: float, began: float) -> str:
    """How far a search is: evaluations, the best value, and the average over the distribution."""
    best, bound = search.best, search.bound
    share = min(1.0, search.evaluations / budget)
    bar = ("#" * round(20 * share)).ljust(20, ".")
    value = "none yet" if best is None else f"{best.fun:.6g}" if isinstance(best.fun, float) else _short(best.fun)
    average = f"  average {bound.mean:.4g} +- {bound.standard_error:.1g}" if bound.samples > 1 else ""
    of = f"/{budget}" if math.isfinite(budget) else ""
    return f"[{bar}] {search.evaluations}{of}  best {value}{average}  {duration(time.monotonic() - began)}"


def _short(x: Any) -> str:
    """A point in one line; of a long array its length."""
    if isinstance(x, np.ndarray):
        text = np.array2string(x, precision=5, separator=", ").replace("\n", "")
        return text if x.size <= 8 else f"{x.size} numbers"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{name!r}: {_short(value)}" for name, value in x.items()) + "}"
    return f"{x:.6g}" if isinstance(x, float) else repr(x)


Searchable.black_box = staticmethod(minimize_black_box)
