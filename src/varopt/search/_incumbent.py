"""The best point so far: by its value, or, where values are noisy, by its average."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import student

__all__ = ["Averaged", "Best", "Contender", "Lowest"]

Array = NDArray[np.float64]
REMEMBERED = 20  # repetitions: noise may shrink with the values, and that of the first points says nothing of the last


@dataclass(frozen=True)
class Best:
    """The best point of a search.

    Attributes
    ----------
    x : point
        An array for a Box, a dictionary for a Space.
    fun : float, or array of shape (m,)
        Its value, or its values where there are several objectives. If the search is noisy, the average of those of its
        evaluations that took no part in choosing it: an estimate without bias.
    standard_error : float
        Of that average; zero where values are exact, infinite while no evaluation is left for it.
    evaluations : int
        How often it was evaluated.
    freedom : float
        Degrees of freedom of the standard error.
    violation : float
        By how much it breaks the constraints that are measured, in all; zero if it satisfies them.
    """

    x: Any
    fun: Any
    standard_error: float
    evaluations: int
    freedom: float = math.inf
    violation: float = 0.0

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where the true value of `x` lies with this probability, by Student's t.

        Parameters
        ----------
        level : float
            Between 0 and 1.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1; got {level!r}.")
        reach = 0.0 if self.standard_error == 0.0 else student(self.standard_error, self.freedom, level)
        return self.fun - reach, self.fun + reach


@dataclass
class Tally:
    """Some evaluations of a point."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """Count one more."""
        self.total, self.count = self.total + value, self.count + 1

    @property
    def mean(self) -> float:
        """Their average."""
        return self.total / self.count if self.count else math.nan


@dataclass
class Contender:
    """A point and what its evaluations gave: every second one takes no part in the choice."""

    row: Array
    first: float
    chosen_by: Tally = field(default_factory=Tally)
    held_out: Tally = field(default_factory=Tally)

    @classmethod
    def of(cls, row: Array, value: float) -> Contender:
        """A point evaluated once."""
        return cls(row.copy(), value, Tally(value, 1))

    @property
    def count(self) -> int:
        """How often it was evaluated."""
        return self.chosen_by.count + self.held_out.count

    @property
    def value(self) -> float:
        """What is reported: the average of what was held out, as soon as there is any."""
        return self.held_out.mean if self.held_out.count else self.chosen_by.mean

    def see(self, value: float) -> tuple[float, float | None]:
        """Take note of another evaluation; what it adds to the squares of the deviations from the average.

        Of all evaluations, and without the first; ``None`` where there is no other than that to compare with.
        """
        total, count = self.chosen_by.total + self.held_out.total, self.count
        (self.held_out if self.held_out.count < self.chosen_by.count else self.chosen_by).add(value)
        without = _deviation(value, total - self.first, count - 1) if count > 1 else None
        return _deviation(value, total, count), without


def _deviation(value: float, total: float, count: int) -> float:
    """What a value adds to the squares of the deviations of `count` others from their average (Welford)."""
    return (value - total / count) ** 2 * count / (count + 1)


@dataclass
class Spread:
    """The variance of one evaluation, from the latest repetitions."""

    squares: float = 0.0  # of the deviations of repetitions from the averages of their points
    freedom: float = 0.0  # how many repetitions it is estimated from

    def add(self, square: float) -> None:
        """Count one more, and forget a little of the others."""
        kept = 1.0 - 1.0 / REMEMBERED
        self.squares, self.freedom = kept * self.squares + square, kept * self.freedom + 1.0

    @property
    def deviation(self) -> float:
        """Its root; infinite before the first."""
        return math.sqrt(self.squares / self.freedom) if self.freedom else math.inf


class Lowest:
    """The point with the lowest value; of equals the one drawn first, in whatever order their values come.

    What breaks a constraint is behind all that breaks it less.
    """

    def __init__(self) -> None:
        self.best: Contender | None = None
        self._key = (math.inf, math.inf, 0)

    @property
    def violation(self) -> float:
        """By how much it breaks constraints."""
        return 0.0 if self.best is None else self._key[0]

    def see(self, row: Array, value: float, drawn: int, violation: float = 0.0) -> None:
        """Take note of an evaluation that did not fail."""
        key = (violation, value, drawn)
        if key < self._key:
            self.best, self._key = Contender.of(row, value), key


class Averaged:
    """The point with the lowest cautious average among a few contenders that are evaluated again and again.

    A single lucky value cannot win. The lowest of N noisy values lies about ``sqrt(2 log N)`` standard deviations too
    low, so averages are raised by that many standard errors, with the noise estimated from the latest repetitions: a
    point has to repeat what it promised, and noise that falls with the values is noticed. Every generation re-evaluates
    the incumbent and the rival that promises most.

    Whatever takes part in a choice is biased by it. So every second evaluation of a contender is held out: the choice
    never sees it, and its average is an unbiased estimate however the choice went. Nor does its standard error go by
    the first evaluations of points, which became contenders because these were low: noise would seem larger.

    Parameters
    ----------
    contenders : int
        How many points are kept.
    """

    def __init__(self, contenders: int = 10) -> None:
        self._limit = contenders
        self._points: dict[bytes, Contender] = {}
        self._seen = 0
        self._all, self._without = Spread(), Spread()  # of all evaluations, and without the first of every point

    def see(self, row: Array, value: float) -> None:
        """Take note of an evaluation that did not fail."""
        self._seen += 1
        key = row.tobytes()
        known = self._points.get(key)
        if known is not None:
            of_all, without = known.see(value)
            self._all.add(of_all)
            if without is not None:
                self._without.add(without)
            return
        self._points[key] = Contender.of(row, value)
        if len(self._points) > self._limit:  # the least promising leaves
            noise = self._all.deviation
            del self._points[max(self._points, key=lambda k: self._cautious(self._points[k], noise)[1:])]

    def _cautious(self, point: Contender, noise: float) -> tuple[bool, float, float]:
        chosen_by = point.chosen_by
        luck = noise * math.sqrt(2.0 * math.log(1.0 + self._seen) / chosen_by.count) if math.isfinite(noise) else 0.0
        return point.held_out.count == 0, chosen_by.mean + luck, chosen_by.mean

    @property
    def best(self) -> Contender | None:
        """The contender with the lowest cautious average, of those evaluated twice if there are any."""
        noise = self._all.deviation
        return min(self._points.values(), key=lambda p: self._cautious(p, noise), default=None)

    def doubtful(self) -> list[Array]:
        """The two points to evaluate again: the incumbent, and the rival with the lowest plain average."""
        best = self.best
        if best is None:
            return []
        rivals = [point for point in self._points.values() if point is not best]
        chosen = [best, min(rivals, key=lambda p: p.chosen_by.mean)] if rivals else [best]
        return [point.row.copy() for point in chosen]

    @property
    def _noise(self) -> Spread:
        return self._without if self._without.freedom else self._all

    @property
    def freedom(self) -> float:
        """How many repetitions the standard error goes by."""
        return self._noise.freedom

    @property
    def standard_error(self) -> float:
        """Of the incumbent's average."""
        best = self.best
        if best is None or not best.held_out.count:
            return math.inf
        return self._noise.deviation / math.sqrt(best.held_out.count)
