"""Ask and tell: a search that hands out points and learns from their values, in whatever way these are computed."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._threads import one_thread
from varopt.search._batch import Batch, Stretch, Told
from varopt.search._checks import as_reports, as_seed, as_values, constraint_count, positive, signs, whole
from varopt.search._coding import Coding
from varopt.search._dimensions import Box, Dimension
from varopt.search._incumbent import Averaged, Lowest
from varopt.search._kept import Kept
from varopt.search._methods import SearchPlan, build
from varopt.search._shown import Shown
from varopt.search._space import Space, SpaceLayout, as_space, starting_rows
from varopt.search.goals import Archive, Rules, Rungs, as_halving, violations
from varopt.search.journal import Courses, Journal, Record
from varopt.search.models import Handover
from varopt.solvers.natural_gradient import Update

__all__ = ["Search"]

Array = NDArray[np.float64]
HUGE = 1e100  # objectives and constraints beyond it count as if they were there


class Search(Kept, Shown):
    """Optimise a black box by asking for points and telling their values.

    Parameters
    ----------
    space : Box, Space or another dimension
        Where to search.
    method : str
        ``"auto"`` or a name of `varopt.search.METHODS`.
    seed : int, optional
        The same seed and the same values give the same points. Without one, a fresh one is drawn, and kept.
    population : int, optional
        Samples of a generation. By default what the method chooses, or as many as the first `ask` asks for, if that is
        more.
    x0 : point, or list of points, optional
        What to evaluate first; the search starts at the best of them, in the middle of the space by default. Of a
        Space, a point may have some of the parts only: the others are in the middle.
    sigma : float, optional
        The first standard deviation, as a fraction of the width of the box; 0.2 by default.
    maximize : bool, or sequence of bool
        Whether larger values are better; of several objectives, of each.
    noisy : bool
        Whether values are noisy: promising points are evaluated again, and the best is the best on average.
    asynchronous : bool
        Learn from values as they come. By default values are used by generation and in a fixed order, so that a search
        depends on its seed alone and not on the order in which evaluations finish.
    budget : int, optional
        How many evaluations there will be, if that is known: a few hundred are worth a model of the function, which is
        slower to ask and needs fewer of them. The search may go on beyond.
    time_limit : float, optional
        How many seconds there will be, where only that is known: a model is then used as long as it takes less than a
        tenth of them, by what `minimize` measures of the evaluations. Nothing ends by it.
    batch : int, optional
        How many points are evaluated at once, by methods that do not need a whole generation. By default one, or as
        many as the first `ask` asks for.
    journal : path, optional
        An SQLite file to which every evaluation is appended before it is used. It must not exist yet; see `load`.
    objectives : int
        How many values an evaluation gives. Of more than one a front is sought: see `front`.
    constraints : int
        How many numbers follow the values, each at most zero where a constraint that is measured holds.
    subject_to : callable, or list of them, optional
        Constraints that are known in advance: functions of the point, true or at most zero where it is allowed. No
        other point is proposed.
    stop_early : bool or Halving
        Whether evaluations that report values on their way are stopped if these are not among the better third of what
        was reported so far: see `stops`, and `minimize_black_box` for who reports.

    Notes
    -----
    `ask` beyond the current generation draws from the same distribution again; these points are used when their turn
    comes. Points that were never asked for may be told as well: they take part in the next update. `tell` takes
    ``None``, NaN, infinities or exceptions as values of evaluations that failed; these rank last.

    Memory: all evaluations so far, as numbers, so that `save` can write them.

    Examples
    --------
    >>> import varopt as vo
    >>> search = vo.Search(vo.Box(-5, 5, size=3), seed=0)
    >>> for _ in range(60):
    ...     xs = search.ask()
    ...     search.tell(xs, ((xs - 1) ** 2).sum(axis=1))
    >>> search.best.x.round(2), search.best.fun < 1e-3
    (array([1., 1., 1.]), True)
    """

    def __init__(
        self, space: Any, *, method: str = "auto", seed: int | None = None, population: int | None = None,
        x0: Any = None, sigma: float | None = None, maximize: bool | Sequence[bool] = False, noisy: bool = False,
        asynchronous: bool = False, budget: int | None = None, time_limit: float | None = None,
        batch: int | None = None, journal: str | Path | None = None, objectives: int = 1, constraints: int = 0,
        subject_to: Any = None, stop_early: Any = False,
    ) -> None:  # fmt: skip
        self.space: Space | Dimension = as_space(space)
        self._layout = SpaceLayout(self.space)
        self._coding = Coding(self._layout)
        self.seed = as_seed(seed)
        population = None if population is None else whole("population", population, 2)
        sigma = None if sigma is None else positive("sigma", sigma, "a positive fraction of the box")
        starts = self._starts = starting_rows(self._layout, x0)
        self.noisy, self.asynchronous = bool(noisy), bool(asynchronous)
        objectives, constraints = whole("objectives", objectives, 1), constraint_count(constraints)
        self._signs = signs(maximize, objectives)
        self._sign = float(self._signs[0]) if objectives == 1 else 1.0
        self._width = objectives + constraints
        halving = as_halving(stop_early)
        if self._width > 1 and (self.noisy or halving is not None):
            raise ValueError("noisy and stop_early are for one objective without measured constraints.")
        self._rungs = None if halving is None else Rungs(halving)
        self._rules = None if subject_to is None else Rules(subject_to, self._coding, self._descent)
        self._archive = Archive(objectives) if objectives > 1 else None
        self.settings: dict[str, Any] = {
            "method": method, "seed": self.seed, "population": population,
            "x0": None if starts is None else starts.tolist(), "sigma": sigma,
            "maximize": maximize if isinstance(maximize, bool) else (self._signs < 0.0).tolist(),
            "noisy": self.noisy, "asynchronous": self.asynchronous,
            "budget": None if budget is None else whole("budget", budget, 1),
            "time_limit": None if time_limit is None else positive("time_limit", time_limit, "a number of seconds"),
            "batch": None if batch is None else whole("batch", batch, 1),
            "objectives": objectives, "constraints": constraints,
            "subject_to": 0 if self._rules is None else len(self._rules.functions),
            "stop_early": None if halving is None else [halving.first, halving.factor],
        }  # fmt: skip
        latent = None if starts is None else self._coding.latent(starts)
        self._plan = SearchPlan(
            method, self._layout, self._coding, latent, sigma=sigma, budget=budget, time_limit=time_limit,
            noisy=self.noisy, objectives=objectives, constraints=constraints, rules=self._rules,
        )  # fmt: skip
        for number, row in enumerate(() if starts is None or self._rules is None else starts):
            if self._rules is not None and self._rules.violation(row) > 0.0:
                raise ValueError(f"x0[{number}] must satisfy subject_to; it does not.")
        self.method, self._model = build(self._plan, population, batch or population or 1)
        self._rng = np.random.default_rng(self.seed)

        self._lowest = Lowest()
        self._averaged = Averaged() if self.noisy else None
        self._open: deque[Batch] = deque()  # drawn, and not all values known
        self._queue: deque[Stretch] = deque()  # drawn, and not handed out
        self._handed: deque[Stretch] = deque()  # handed out, to be recognised if told as they were asked for
        self._pending: dict[bytes, list[tuple[Batch, int]]] = {}  # handed out, by row
        self._arrived: list[tuple[Array, Any]] = []  # asynchronous samples, to be used by the next update
        self._own: list[tuple[Array, Any]] = []  # points from elsewhere, to be used by it too
        self._drawn = 0
        self._evaluations = 0
        self._seconds = 0.0  # that they took, as far as that is known
        self._records: list[Record] = []
        self._unrecorded: list[Told] = []
        self._batches: list[tuple[int, int]] = []  # of every batch: its size, and how many evaluations were told before
        self.failures = 0  # in a row, at the end of the last batch that is complete
        self.generation = 0
        self._trace: list[tuple[int, float, Array | float, float, float]] = []  # of every update; see `history`
        self._journal: Journal | None = None
        if journal is not None:
            self._journal = Journal.create(Path(journal), self._meta())

    def _descent(self, latent: Array) -> Update:
        """What goes to points that the rules allow, where hardly any are."""
        numbers = self._layout.real.size + self._layout.integer.size
        return build(SearchPlan("cma" if numbers else "auto", self._layout, self._coding, start=latent))[1]

    # Ask and tell --------------------------------------------------------------------------------------------------

    def ask(self, count: int | None = None) -> Any:
        """Points to evaluate next: an array of shape (count, d) for a Box, a list of points otherwise.

        Parameters
        ----------
        count : int, optional
            How many; by default what is left of the current generation, or all of the next.
        """
        return self._layout.decode(self._ask_rows(None if count is None else whole("count", count, 1)))

    def reseed(self, *entropy: int) -> None:
        """Draw what comes next from other random numbers; for searches that share their values and not their points.

        Parameters
        ----------
        *entropy : int
            Non-negative numbers. A journal does not keep them.
        """
        if self._journal is not None:
            raise ValueError("reseed would change what a journal repeats; give the search no journal.")
        self._rng = np.random.default_rng(entropy)

    @property
    def _queued(self) -> int:
        """How many candidates are drawn and not handed out."""
        return sum(stretch.size for stretch in self._queue)

    def _ask_rows(self, count: int | None) -> Array:
        taken = self._take(count)
        return taken[0].rows if len(taken) == 1 else np.concatenate([stretch.rows for stretch in taken])

    def _take(self, count: int | None) -> list[Stretch]:
        """Hand out candidates, drawing what is missing."""
        if not self._queue:
            self._draw(count)
        missing = self._queued if count is None else count
        taken: list[Stretch] = []
        while missing:
            if not self._queue:
                self._draw(missing)
            batch, start, stop = self._queue.popleft()
            if stop - start > missing:
                self._queue.appendleft(Stretch(batch, start + missing, stop))
                stop = start + missing
            missing -= stop - start
            taken.append(Stretch(batch, start, stop))
        self._handed.extend(taken)
        return taken

    def _doubtful(self) -> list[Array]:
        """Points that the next batch evaluates again, beside those that are new."""
        return [] if self._averaged is None else self._averaged.doubtful()

    def _draw(self, count: int | None) -> None:
        free = self._drawn == 0 and self.settings["population"] is None and not self.asynchronous
        if free and count is not None and count > self._model.population:
            _, self._model = build(self._plan, count, count)
        if isinstance(self._model, Handover):
            self._model.afford(self._seconds)
        self._model.refresh(self._rng)
        size = self._model.population if count is None or not self.asynchronous else count
        with one_thread():
            latent = self._model.sample(self._rng, size)
        rows = self._coding.rows(latent)
        if self._starts is not None and (given := self._starts[self._drawn : self._drawn + size]).size:
            rows[: len(given)] = given  # to the last digit
        if again := self._doubtful():
            rows = np.vstack((rows, again))
        batch = Batch(self._drawn, latent, rows, size, self._model.epoch, self._width, self._limits())
        self._batches.append((len(rows), self._evaluations))
        if self._journal is not None:
            self._journal.add_batch(len(self._batches) - 1, *self._batches[-1])
        self._drawn += len(rows)
        self._open.append(batch)
        self._queue.append(Stretch(batch, 0, len(rows)))

    def tell(
        self, xs: Any, ys: Any, *, errors: Sequence[str | None] | None = None,
        reports: Sequence[Sequence[float]] | None = None, stopped: Sequence[bool] | None = None,
    ) -> None:  # fmt: skip
        """Learn what points cost.

        Parameters
        ----------
        xs : batch of points
            As `ask` gave them, or points of your own.
        ys : sequence of float
            Their values; ``None``, NaN, an infinity or an exception for an evaluation that failed. Where there are
            several objectives or measured constraints, a row of numbers for each point: objectives, then constraints.
        errors : sequence of str, optional
            What went wrong with those that failed, for the journal.
        reports : sequence of sequences of float, optional
            The values that each evaluation reported on its way, from the first step on.
        stopped : sequence of bool, optional
            Which evaluations were stopped early; their values are the last that they reported.
        """
        rows = xs if isinstance(self.space, Box) and self._next_told(xs) else self._layout.rows(xs)
        count = len(rows)
        alone = errors is None and reports is None and stopped is None
        plain = alone and isinstance(ys, np.ndarray) and ys.dtype == np.float64
        if plain and self._width == 1 and ys.shape == (count,) and np.isfinite(ys).all():
            self._tell_rows(rows, ys.tolist(), [None] * count, Courses.unknown(count))
            return
        measured = as_values(ys, count, errors, self._width)
        for name, given in (("reports", reports), ("stopped", stopped)):
            if given is not None and len(given) != count:
                raise ValueError(f"{name} must have one entry for each of the {count} points; got {len(given)}.")
        courses = Courses.unknown(count)._replace(others=measured.others)
        if reports is not None:
            courses = courses._replace(reports=as_reports(reports))
        if stopped is not None:
            courses = courses._replace(stopped=list(map(bool, stopped)))
        self._tell_rows(rows, measured.value, measured.error, courses)

    def stops(self, step: int, value: float) -> bool:
        """Whether an evaluation that reports this value at this step, the first being 1, is not worth going on with.

        Parameters
        ----------
        step : int
            How many values it has reported, with this one.
        value : float
            What it reports.
        """
        limit = self._limits().get(whole("step", step, 1), math.inf)
        return not self._sign * float(value) <= limit

    def _limits(self) -> dict[int, float]:
        """At which steps which values are too high to go on."""
        return {} if self._rungs is None else self._rungs.limits()

    def _tell_rows(self, rows: Array, values: list[float], errors: list[str | None], courses: Courses) -> None:
        now = time.time()
        plain = self._width == 1 and self._rungs is None and self._rules is None and not self.asynchronous
        if plain and self._next_told(rows) and not any(errors):
            self._use_together(self._handed[0], values, now, courses)
            return
        places = self._claim(rows)
        records = [
            Record(number, -1 if batch is None else batch.first + position, row, value, error, now, *course)
            for number, ((batch, position), row, value, error, course) in enumerate(
                zip(places, rows, values, errors, zip(*courses, strict=True), strict=True), self.evaluations
            )
        ]
        if self._journal is not None:
            self._journal.add(records)  # before any use
        for record, (batch, position) in zip(records, places, strict=True):
            self._use(record, batch, position)

    def _next_told(self, rows: Any) -> bool:
        """Whether these are, as a whole, the rows that were handed out first of all that are still unknown."""
        if self._pending or not self._handed or not isinstance(rows, np.ndarray):
            return False
        asked = self._handed[0].rows
        return rows.shape == asked.shape and rows.dtype == asked.dtype and rows.tobytes() == asked.tobytes()

    def _claim(self, rows: Array) -> list[tuple[Batch | None, int]]:
        """Where every row belongs: to the first candidate handed out of those with the same bytes, if there is one."""
        while self._handed:
            stretch = self._handed.popleft()
            for position, row in enumerate(stretch.rows, stretch.start):
                self._pending.setdefault(row.tobytes(), []).append((stretch.batch, position))
        places: list[tuple[Batch | None, int]] = []
        for row in rows:
            key = row.tobytes()
            waiting = self._pending.get(key)
            places.append(waiting.pop(0) if waiting else (None, -1))
            if not waiting:
                self._pending.pop(key, None)
        return places

    def _use_together(self, stretch: Stretch, told: list[float], now: float, courses: Courses) -> None:
        """What `_use` does with one record after the other, for candidates told as asked of which none failed."""
        batch, start, stop = stretch
        entry = Told(self._evaluations, batch.first + start, stretch.rows, told, now, courses)
        if self._journal is not None:
            self._journal.add(entry.records())  # before any use
        self._handed.popleft()
        self._unrecorded.append(entry)
        self._evaluations += stretch.size
        self._seconds += courses.took
        values = self._sign * np.array(told)
        best = int(values.argmin())  # the first of equals
        self._lowest.see(entry.rows[best], float(values[best]), entry.candidate + best)
        batch.values[start:stop] = values
        batch.missing -= stretch.size
        self._advance()

    def _use(self, record: Record, batch: Batch | None, position: int) -> None:
        self.records.append(record)
        self._evaluations += 1
        self._seconds += max(0.0, record.seconds)  # zero of a NaN
        if self._rungs is not None:
            reports = [self._sign * report for report in record.reports]
            self._rungs.see(reports, finished=record.error is None and not record.stopped)
        numbers = self._numbers(record)
        if record.error is None:
            self._see(record, numbers, self._drawn if batch is None else record.candidate)
        if batch is None or self.asynchronous:
            self.failures = 0 if record.error is None else self.failures + 1
        if batch is None:
            self._own.append((self._coding.latent(record.row[None])[0], self._raised(record, numbers)))
            self._average(record.row, numbers)
            return
        batch.values[position] = numbers
        batch.missing -= 1
        if record.stopped:
            batch.stopped.add(position)
        if self.asynchronous:
            self._average(record.row, numbers)
            if position < batch.fresh and batch.epoch == self._model.epoch:
                self._arrived.append((batch.latent[position], self._raised(record, numbers)))
            if batch.missing == 0:
                self._open.remove(batch)
            if len(self._arrived) + len(self._own) >= self._model.population:
                self._update(np.empty((0, self._layout.columns)), np.empty(0 if self._width == 1 else (0, self._width)))
            return
        self._advance()

    def _numbers(self, record: Record) -> Any:
        """What an evaluation gave, smaller being better: a number, or objectives and constraints."""
        if self._width == 1:
            return self._sign * record.value if record.error is None else math.inf
        if record.error is not None:
            return np.full(self._width, math.inf)
        if len(record.others) != self._width - 1:
            raise ValueError(f"evaluation {record.number} has {1 + len(record.others)} values")
        numbers = np.array([record.value, *record.others])
        numbers[: self._signs.size] *= self._signs
        return numbers

    def _see(self, record: Record, numbers: Any, drawn: int) -> None:
        """Remember what may be the best."""
        if record.stopped:
            return
        if self._width == 1:
            self._lowest.see(record.row, numbers, drawn)
            return
        broken = float(violations(numbers[None], self._signs.size)[0])
        if self._archive is None:
            self._lowest.see(record.row, float(numbers[0]), drawn, broken)
        elif broken == 0.0:
            self._archive.see(record.row, numbers[: self._signs.size])

    def _raised(self, record: Record, numbers: Any) -> Any:
        """Of an evaluation stopped early: no better than the best that was not, whatever it was on its way to."""
        best = self._lowest.best
        return max(numbers, best.value) if record.stopped and best is not None else numbers

    def _advance(self) -> None:
        """Learn from the batches that are complete, in the order in which they were drawn."""
        while self._open and self._open[0].missing == 0:
            done = self._open.popleft()
            self._count_failures(done)
            if self._averaged is not None:
                for row, value in zip(done.rows, done.values, strict=True):
                    self._average(row, value)
            if done.stopped and self._lowest.best is not None:
                some = list(done.stopped)
                done.values[some] = np.maximum(done.values[some], self._lowest.best.value)
            if done.epoch != self._model.epoch and done.fresh < self._model.population:
                self._note(math.nan)  # drawn ahead by a run that is over: fewer than a generation of this one
            else:
                self._update(done.latent, done.values[: done.fresh])

    def _count_failures(self, done: Batch) -> None:
        """How many have failed in a row, in the order in which they were drawn: whoever was quicker plays no part."""
        values = np.flatnonzero(np.isfinite(done.values.reshape(len(done.rows), -1)[:, 0]))
        self.failures = len(done.rows) - 1 - int(values[-1]) if values.size else self.failures + len(done.rows)

    def _average(self, row: Array, value: float) -> None:
        if self._averaged is not None and math.isfinite(value):
            self._averaged.see(row, value)

    def _update(self, latent: Array, values: Array) -> None:
        latent, values = _with(latent, values, self._arrived)
        drawn = values  # samples of the distribution: what estimates its average
        latent, values = _with(latent, values, self._own)
        self._arrived, self._own = [], []
        if values.ndim == 2:  # what is squared and scaled below must not overflow; which is best is known exactly
            values = np.where(np.isfinite(values), np.clip(values, -HUGE, HUGE), np.inf)
        # A generation that failed as a whole says nothing about which way to go; single points that failed do.
        if np.isfinite(values).any() or (len(values) and self._model.learns_from_failures):
            with one_thread():
                self._model.tell(latent, values)
        self._note(self._model.average(drawn if drawn.ndim == 1 else drawn[:, 0]))

    def _note(self, average: Array | float) -> None:
        """Keep how things stand after a generation, and what tells its average."""
        self.generation += 1
        best = self._incumbent
        is_best = self._archive is None and not self._lowest.violation > 0.0  # of all that is allowed
        upper = math.nan if not is_best else math.inf if best is None else best.value
        self._trace.append((self.evaluations, upper, average, self._model.spread, time.time()))

    # What is known -------------------------------------------------------------------------------------------------

    @property
    def evaluations(self) -> int:
        """How many evaluations were told, those that failed included."""
        return self._evaluations

    @property
    def records(self) -> list[Record]:
        """All evaluations in the order in which they were told."""
        for told in self._unrecorded:
            self._records += told.records()
        self._unrecorded.clear()
        return self._records

    @property
    def errors(self) -> list[str]:
        """What went wrong in the evaluations that failed, in the order in which they were told."""
        return [record.error for record in self._records if record.error is not None]  # none failed of the unrecorded


def _with(latent: Array, values: Array, more: list[tuple[Array, Any]]) -> tuple[Array, Array]:
    if not more:
        return latent, values
    told = np.array([value for _, value in more])
    return np.vstack((latent, [point for point, _ in more])), np.concatenate((values, told))
