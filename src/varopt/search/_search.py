"""Ask and tell: a search that hands out points and learns from their values, in whatever way these are computed."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from varopt._display import card, curves, fold, table
from varopt._threads import one_thread
from varopt._version import __version__
from varopt.certificates import Sampled
from varopt.search._batch import UNKNOWN, Batch, Span, Stretch, Told
from varopt.search._checks import as_values, positive, whole
from varopt.search._coding import Coding
from varopt.search._dimensions import Box, Dimension
from varopt.search._incumbent import Averaged, Best, Contender, Lowest
from varopt.search._kept import Kept
from varopt.search._methods import SearchPlan, build
from varopt.search._plot import plot_history
from varopt.search._space import Space, SpaceLayout, as_space, starting_rows
from varopt.search.journal import Journal, Record

__all__ = ["Search"]

Array = NDArray[np.float64]


class Search(Kept):
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
    maximize : bool
        Whether larger values are better.
    noisy : bool
        Whether values are noisy: promising points are evaluated again, and the best is the best on average.
    asynchronous : bool
        Learn from values as they come. By default values are used by generation and in a fixed order, so that a search
        depends on its seed alone and not on the order in which evaluations finish.
    budget : int, optional
        How many evaluations there will be, if that is known: a few hundred are worth a model of the function, which is
        slower to ask and needs fewer of them. The search may go on beyond.
    batch : int, optional
        How many points are evaluated at once, by methods that do not need a whole generation. By default one, or as
        many as the first `ask` asks for.
    journal : path, optional
        An SQLite file to which every evaluation is appended before it is used. It must not exist yet; see `load`.

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
        x0: Any = None, sigma: float | None = None, maximize: bool = False, noisy: bool = False,
        asynchronous: bool = False, budget: int | None = None, batch: int | None = None,
        journal: str | Path | None = None,
    ) -> None:  # fmt: skip
        self.space: Space | Dimension = as_space(space)
        self._layout = SpaceLayout(self.space)
        self._coding = Coding(self._layout)
        self.seed = _check_seed(seed)
        population = None if population is None else whole("population", population, 2)
        sigma = None if sigma is None else positive("sigma", sigma, "a positive fraction of the box")
        starts = self._starts = starting_rows(self._layout, x0)
        self.noisy, self.asynchronous = bool(noisy), bool(asynchronous)
        self._sign = -1.0 if maximize else 1.0
        self.settings: dict[str, Any] = {
            "method": method, "seed": self.seed, "population": population,
            "x0": None if starts is None else starts.tolist(), "sigma": sigma,
            "maximize": bool(maximize), "noisy": self.noisy, "asynchronous": self.asynchronous,
            "budget": None if budget is None else whole("budget", budget, 1),
            "batch": None if batch is None else whole("batch", batch, 1),
        }  # fmt: skip
        latent = None if starts is None else self._coding.latent(starts)
        self._plan = SearchPlan(
            method, self._layout, self._coding, latent, sigma=sigma, budget=budget, noisy=self.noisy
        )
        self.method, self._model = build(self._plan, population, batch or population or 1)
        self._rng = np.random.default_rng(self.seed)

        self._lowest = Lowest()
        self._averaged = Averaged() if self.noisy else None
        self._open: deque[Batch] = deque()  # drawn, and not all values known
        self._queue: deque[Stretch] = deque()  # drawn, and not handed out
        self._handed: deque[Stretch] = deque()  # handed out, to be recognised if told as they were asked for
        self._pending: dict[bytes, list[tuple[Batch, int]]] = {}  # handed out, by row
        self._arrived: list[tuple[Array, float]] = []  # asynchronous samples, to be used by the next update
        self._own: list[tuple[Array, float]] = []  # points from elsewhere, to be used by it too
        self._drawn = 0
        self._evaluations = 0
        self._records: list[Record] = []
        self._unrecorded: list[Told] = []
        self._batches: list[tuple[int, int]] = []  # of every batch: its size, and how many evaluations were told before
        self.failures = 0
        self.generation = 0
        self._trace: list[tuple[int, float, Array | float, float, float]] = []  # of every update; see `history`
        self._journal: Journal | None = None
        if journal is not None:
            self._journal = Journal.create(Path(journal), self._meta())

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
        return taken[0].rows if len(taken) == 1 else np.concatenate([stretch.rows for stretch in taken])

    def _draw(self, count: int | None) -> None:
        free = self._drawn == 0 and self.settings["population"] is None and not self.asynchronous
        if free and count is not None and count > self._model.population:
            _, self._model = build(self._plan, count, count)
        self._model.refresh(self._rng)
        size = self._model.population if count is None or not self.asynchronous else count
        with one_thread():
            latent = self._model.sample(self._rng, size)
        rows = self._coding.rows(latent)
        if self._starts is not None and (given := self._starts[self._drawn : self._drawn + size]).size:
            rows[: len(given)] = given  # to the last digit
        if self._averaged is not None and (again := self._averaged.doubtful()):
            rows = np.vstack((rows, again))
        batch = Batch(self._drawn, latent, rows, size, self._model.epoch)
        self._batches.append((len(rows), self._evaluations))
        if self._journal is not None:
            self._journal.add_batch(len(self._batches) - 1, *self._batches[-1])
        self._drawn += len(rows)
        self._open.append(batch)
        self._queue.append(Stretch(batch, 0, len(rows)))

    def tell(self, xs: Any, ys: Any, *, errors: Sequence[str | None] | None = None) -> None:
        """Learn what points cost.

        Parameters
        ----------
        xs : batch of points
            As `ask` gave them, or points of your own.
        ys : sequence of float
            Their values; ``None``, NaN, an infinity or an exception for an evaluation that failed.
        errors : sequence of str, optional
            What went wrong with those that failed, for the journal.
        """
        rows = xs if isinstance(self.space, Box) and self._next_told(xs) else self._layout.rows(xs)
        self._tell_rows(rows, *as_values(ys, len(rows), errors))

    def _tell_rows(
        self, rows: Array, values: list[float], errors: list[str | None], spans: Sequence[Span] | None = None
    ) -> None:
        now = time.time()
        if self._next_told(rows) and not self.asynchronous and not any(errors):
            self._use_together(self._handed[0], values, now, spans)
            return
        places = self._claim(rows)
        records = [
            Record(number, -1 if batch is None else batch.first + position, row, value, error, now, *span)
            for number, ((batch, position), row, value, error, span) in enumerate(
                zip(places, rows, values, errors, spans or [UNKNOWN] * len(rows), strict=True), self.evaluations
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

    def _use_together(
        self, stretch: Stretch, told: list[float], now: float, spans: Sequence[Span] | None = None
    ) -> None:
        """What `_use` does with one record after the other, for candidates told as asked of which none failed."""
        batch, start, stop = stretch
        entry = Told(self._evaluations, batch.first + start, stretch.rows, told, now, spans)
        if self._journal is not None:
            self._journal.add(entry.records())  # before any use
        self._handed.popleft()
        self._unrecorded.append(entry)
        self._evaluations += stretch.size
        self.failures = 0
        values = self._sign * np.array(told)
        best = int(values.argmin())  # the first of equals
        self._lowest.see(entry.rows[best], float(values[best]), entry.candidate + best)
        batch.values[start:stop] = values
        batch.missing -= stretch.size
        self._advance()

    def _use(self, record: Record, batch: Batch | None, position: int) -> None:
        self.records.append(record)
        self._evaluations += 1
        if record.error is None:
            self.failures, value = 0, self._sign * record.value
            self._lowest.see(record.row, value, self._drawn if batch is None else record.candidate)
        else:
            self.failures, value = self.failures + 1, math.inf
        if batch is None:
            self._own.append((self._coding.latent(record.row[None])[0], value))
            self._average(record.row, value)
            return
        batch.values[position] = value
        batch.missing -= 1
        if self.asynchronous:
            self._average(record.row, value)
            if position < batch.fresh and batch.epoch == self._model.epoch:
                self._arrived.append((batch.latent[position], value))
            if batch.missing == 0:
                self._open.remove(batch)
            if len(self._arrived) + len(self._own) >= self._model.population:
                self._update(np.empty((0, self._layout.columns)), np.empty(0))
            return
        self._advance()

    def _advance(self) -> None:
        """Learn from the batches that are complete, in the order in which they were drawn."""
        while self._open and self._open[0].missing == 0:
            done = self._open.popleft()
            if self._averaged is not None:
                for row, value in zip(done.rows, done.values, strict=True):
                    self._average(row, value)
            self._update(done.latent, done.values[: done.fresh])

    def _average(self, row: Array, value: float) -> None:
        if self._averaged is not None and math.isfinite(value):
            self._averaged.see(row, value)

    @property
    def _incumbent(self) -> Contender | None:
        averaged = None if self._averaged is None else self._averaged.best
        return self._lowest.best if averaged is None else averaged

    def _update(self, latent: Array, values: Array) -> None:
        latent, values = _with(latent, values, self._arrived)
        drawn = values  # samples of the distribution: what estimates its average
        latent, values = _with(latent, values, self._own)
        self._arrived, self._own = [], []
        self.generation += 1
        if values.min() < math.inf:  # a generation that failed as a whole teaches nothing
            with one_thread():
                self._model.tell(latent, values)
        best = self._incumbent
        upper = math.inf if best is None else best.value
        self._trace.append((self.evaluations, upper, self._model.average(drawn), self._model.spread, time.time()))

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
    def best(self) -> Best | None:
        """The best point so far; ``None`` before the first value."""
        best = self._incumbent
        if best is None:
            return None
        point, value = self._layout.point(best.row), self._sign * best.value
        if self._averaged is None:
            return Best(point, value, 0.0, best.count)
        return Best(point, value, self._averaged.standard_error, best.count, self._averaged.freedom)

    @property
    def bound(self) -> Sampled:
        """The best value, and the average of f under the distribution with its standard error: an estimate."""
        best = self._incumbent
        upper = math.inf if best is None else best.value
        sampled = _average(self._trace[-1][2]) if self._trace else (math.nan, math.nan, 0)
        bound = Sampled(-math.inf, upper, self._assumption, *sampled)
        return bound.mirrored() if self._sign < 0.0 else bound

    @property
    def _assumption(self) -> str:
        return "the noise of repeated evaluations averages out" if self.noisy else ""

    @property
    def history(self) -> dict[str, Array]:
        """After every update: evaluations, best, mean, standard_error, samples, sigma and time (in seconds).

        ``mean`` is the average of the objective over the ``samples`` of the distribution at that time.
        """
        names = ("evaluations", "best", "mean", "standard_error", "samples", "sigma", "time")
        rows = [(told, best, *_average(values), *rest) for told, best, values, *rest in self._trace]
        columns = np.array(rows, dtype=np.float64).reshape(-1, len(names))
        columns[:, 1:3] *= self._sign
        columns[:, -1] -= columns[0, -1] if len(columns) else 0.0
        return dict(zip(names, columns.T, strict=True))

    def plot(self, axes: Any = None) -> Any:
        """Best value, bound and spread against evaluations. Needs Matplotlib (the extra `plot`); returns the axes.

        Parameters
        ----------
        axes : pair of Matplotlib axes, optional
            Where to draw.
        """
        return plot_history(self.history, axes)

    def __repr__(self) -> str:
        best = self.best
        value = "nothing told yet" if best is None else f"best {best.fun:.8g}"
        return f"Search({self.space!r}, method={self.method!r}): {self.evaluations} evaluations, {value}"

    def _repr_html_(self) -> str:
        best, history = self.best, self.history
        rows = [("space", repr(self.space)), ("method", f"{self.method}, generation {self.generation}")]
        if best is not None:
            rows += [("best", f"{best.fun:.8g} at {best.x}")]
            rows += [("distribution", _words(self.bound))] if self.bound.samples else []
        shown = {name: history[name] for name in ("evaluations", "best", "mean", "sigma", "time")}
        drawing = curves(history["evaluations"], {"best": history["best"]})
        return card(f"Search: {self.evaluations} evaluations", rows, drawing, fold("generations", table(shown)))

    # Keeping -------------------------------------------------------------------------------------------------------

    def _meta(self) -> dict[str, str]:
        return {
            "varopt": __version__,
            "numpy": np.__version__,
            "space": json.dumps(self.space.describe()),
            "settings": json.dumps(self.settings),
        }

    def close(self) -> None:
        """Close the journal, so that another process may open it."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _with(latent: Array, values: Array, more: list[tuple[Array, float]]) -> tuple[Array, Array]:
    if not more:
        return latent, values
    return np.vstack((latent, [point for point, _ in more])), np.append(values, [value for _, value in more])


def _average(values: Array | float) -> tuple[float, float, int]:
    """The average of the values that are finite, its standard error, and how many there are; or that of a model."""
    if isinstance(values, float):
        return values, math.nan, 0
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return math.nan, math.nan, 0
    with np.errstate(over="ignore", invalid="ignore"):  # of values near the largest number: infinite, and no more
        mean = float(finite.sum()) / finite.size
        if finite.size == 1:
            return mean, math.nan, 1
        deviations = finite - mean
        error = math.sqrt(float(deviations @ deviations) / (finite.size - 1) / finite.size)
        return mean, error, finite.size


def _words(bound: Sampled) -> str:
    """The bound as what it is: an average over where the search samples now."""
    low, high = sorted(bound.interval())
    return f"averages {bound.mean:.4g} where it samples now; {low:.4g} to {high:.4g} with 95 %"


def _check_seed(seed: Any) -> int:
    if seed is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    return whole("seed", seed, 0)
