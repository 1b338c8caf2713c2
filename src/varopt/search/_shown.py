"""What a search knows, and how it shows itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from varopt._display import card, curves, fold, table
from varopt.certificates import Sampled
from varopt.search._dimensions import Dimension
from varopt.search._incumbent import Averaged, Best, Contender, Lowest
from varopt.search._plot import plot_search
from varopt.search._space import Space, SpaceLayout
from varopt.search.goals import Archive, Front
from varopt.search.journal import Record

__all__ = ["Shown"]

Array = NDArray[np.float64]


class Shown:
    """What a `Search` says about itself."""

    if TYPE_CHECKING:  # what it has besides

        @property
        def records(self) -> list[Record]: ...
        @property
        def evaluations(self) -> int: ...

        space: Space | Dimension
        method: str
        noisy: bool
        generation: int
        _sign: float
        _signs: Array
        _layout: SpaceLayout
        _lowest: Lowest
        _averaged: Averaged | None
        _archive: Archive | None
        _trace: list[tuple[int, float, Array | float, float, float]]

    @property
    def _incumbent(self) -> Contender | None:
        averaged = None if self._averaged is None else self._averaged.best
        return self._lowest.best if averaged is None else averaged

    @property
    def best(self) -> Best | None:
        """The best point so far; ``None`` before the first value.

        Of several objectives, the point of the front that is nearest to the best of everything, where every objective
        of the front spans 0 to 1. Where constraints are measured, the best that satisfies them, or the one that breaks
        them least.
        """
        if self._archive is not None:
            if not self._archive.rows:
                return None
            i = self._archive.compromise()
            return Best(self._layout.point(self._archive.rows[i]), self._signs * self._archive.values[i], 0.0, 1)
        best = self._incumbent
        if best is None:
            return None
        point, value = self._layout.point(best.row), self._sign * best.value
        if self._averaged is None:
            return Best(point, value, 0.0, best.count, violation=self._lowest.violation)
        return Best(point, value, self._averaged.standard_error, best.count, self._averaged.freedom)

    @property
    def front(self) -> Front:
        """Of several objectives: the points that no other point is better than in all of them."""
        if self._archive is None:
            raise ValueError("front is for several objectives: give objectives=2, or more.")
        order = np.argsort(self._archive.values[:, 0], kind="stable")
        rows = np.array([self._archive.rows[i] for i in order]).reshape(-1, self._layout.columns)
        return Front(self._layout.decode(rows), self._signs * self._archive.values[order])

    @property
    def bound(self) -> Sampled:
        """The best value, and the average of f under the distribution with its standard error: an estimate."""
        best = self._incumbent
        upper = math.inf if best is None or self._lowest.violation > 0.0 else best.value
        sampled = _average(self._trace[-1][2]) if self._trace else (math.nan, math.nan, 0)
        bound = Sampled(-math.inf, upper, self._assumption, *sampled)
        return bound.mirrored() if self._sign < 0.0 else bound

    @property
    def _assumption(self) -> str:
        return "the noise of repeated evaluations averages out" if self.noisy else ""

    @property
    def history(self) -> dict[str, Array]:
        """After every update: evaluations, best, mean, standard_error, samples, sigma and time (in seconds).

        ``mean`` is the average of the objective over the ``samples`` of the distribution at that time. Of several
        objectives there is neither a best value nor a mean, and no best before a point satisfies the constraints that
        are measured.
        """
        names = ("evaluations", "best", "mean", "standard_error", "samples", "sigma", "time")
        if not self._trace:
            return {name: np.empty(0) for name in names}
        told, best, values, sigma, time = zip(*self._trace, strict=True)
        columns = np.array([told, best, *_averages(values), sigma, time], dtype=np.float64)
        columns[1:3] *= self._sign
        columns[-1] -= columns[-1, 0]
        return dict(zip(names, columns, strict=True))

    def plot(self, axes: Any = None, *, kind: str | None = None) -> Any:
        """Draw the search. Needs Matplotlib (the extra `plot`); returns the axes.

        Parameters
        ----------
        axes : Matplotlib axes, optional
            Where to draw; a pair but for ``"parts"``, which takes one for every part.
        kind : {"history", "front", "constraints", "reports", "parts"}, optional
            Best value, bound and spread against evaluations; the front of several objectives and the volume that it
            dominates; values and violations of constraints; what evaluations reported on their way and where they were
            stopped; the values of every part. By default what the search is about: a front, constraints, reports, or
            else its history.
        """
        return plot_search(self, axes, kind)

    def __repr__(self) -> str:
        if self._archive is not None:
            value = f"{len(self._archive.rows)} points on the front"
        else:
            best = self.best
            value = "nothing told yet" if best is None else f"best {best.fun:.8g}"
        return f"Search({self.space!r}, method={self.method!r}): {self.evaluations} evaluations, {value}"

    def _repr_html_(self) -> str:
        best, history = self.best, self.history
        rows = [("space", repr(self.space)), ("method", f"{self.method}, generation {self.generation}")]
        if best is not None:
            fun = f"{best.fun:.8g}" if isinstance(best.fun, float) else str(best.fun)
            rows += [("best", f"{fun} at {best.x}")]
            rows += [("distribution", _words(self.bound))] if self.bound.samples else []
        shown = {name: history[name] for name in ("evaluations", "best", "mean", "sigma", "time")}
        drawing = curves(history["evaluations"], {"best": history["best"]})
        return card(f"Search: {self.evaluations} evaluations", rows, drawing, fold("generations", table(shown)))


def _average(values: Array | float) -> tuple[float, float, int]:
    """The average of the values that are finite, its standard error, and how many there are; or that of a model."""
    if isinstance(values, float):
        return values, math.nan, 0
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return math.nan, math.nan, 0
    mean, error = _moments(finite)
    return float(mean), float(error), finite.size


def _averages(samples: Sequence[Array | float]) -> tuple[Array, Array, NDArray[np.intp]]:
    """What `_average` says of each: of those with as many values together, which takes a tenth of the time."""
    arrays = [values if isinstance(values, np.ndarray) else np.empty(0) for values in samples]
    mean = np.array([math.nan if isinstance(values, np.ndarray) else values for values in samples])
    error = np.full(len(samples), math.nan)
    told, owner = np.concatenate(arrays), np.repeat(np.arange(len(arrays)), [values.size for values in arrays])
    finite = np.isfinite(told)
    told, count = told[finite], np.bincount(owner[finite], minlength=len(arrays))
    first = np.cumsum(count) - count
    for size in np.unique(count[count > 0]):
        (which,) = np.nonzero(count == size)
        mean[which], error[which] = _moments(told[first[which, None] + np.arange(size)])
    return mean, error, count


def _moments(values: Array) -> tuple[Array, Array]:
    """The average of finite values along the last axis, and its standard error, of which one alone has none."""
    size = values.shape[-1]
    with np.errstate(over="ignore", invalid="ignore"):  # of values near the largest number: infinite, and no more
        mean = np.asarray(values.sum(axis=-1) / size)
        deviations = values - mean[..., None]
        return mean, np.sqrt(np.vecdot(deviations, deviations) / np.float64(size - 1) / size)


def _words(bound: Sampled) -> str:
    """The bound as what it is: an average over where the search samples now."""
    low, high = sorted(bound.interval())
    return f"averages {bound.mean:.4g} where it samples now; {low:.4g} to {high:.4g} with 95 %"
