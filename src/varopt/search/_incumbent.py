"""The best point so far: by its value, or, where values are noisy, by its average."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Averaged", "Contender", "Lowest"]

Array = NDArray[np.float64]


@dataclass
class Contender:
    """A point and what its evaluations gave."""

    row: Array
    total: float
    count: int
    squares: float = 0.0  # of the deviations from the average

    @property
    def value(self) -> float:
        """The average of its evaluations."""
        return self.total / self.count


class Lowest:
    """The point with the lowest value; of equals the one drawn first, in whatever order their values come."""

    def __init__(self) -> None:
        self.best: Contender | None = None
        self._value, self._drawn = math.inf, 0

    def see(self, row: Array, value: float, drawn: int) -> None:
        """Take note of an evaluation that did not fail."""
        if value < self._value or (value == self._value and drawn < self._drawn):
            self.best = Contender(row.copy(), value, 1)
            self._value, self._drawn = value, drawn


class Averaged:
    """The point with the lowest cautious average among a few contenders that are evaluated again and again.

    A single lucky value cannot win. The lowest of N noisy values lies about ``sqrt(2 log N)`` standard deviations too
    low, so averages are raised by that many standard errors, with the noise estimated from all repetitions together: a
    point has to repeat what it promised. Every generation re-evaluates the incumbent and the rival that promises most.

    Parameters
    ----------
    contenders : int
        How many points are kept.
    """

    def __init__(self, contenders: int = 10) -> None:
        self._limit = contenders
        self._points: dict[bytes, Contender] = {}
        self._seen = 0

    def see(self, row: Array, value: float) -> None:
        """Take note of an evaluation that did not fail."""
        self._seen += 1
        key = row.tobytes()
        known = self._points.get(key)
        if known is not None:
            before = known.value
            known.total, known.count = known.total + value, known.count + 1
            known.squares += (value - before) * (value - known.value)  # Welford
            return
        self._points[key] = Contender(row.copy(), value, 1)
        if len(self._points) > self._limit:  # the least promising leaves
            noise = self.noise
            del self._points[max(self._points, key=lambda k: self._cautious(self._points[k], noise))]

    @property
    def noise(self) -> float:
        """The standard deviation of one evaluation, from all repetitions; infinite before the first."""
        freedom = sum(point.count - 1 for point in self._points.values())
        return math.sqrt(sum(p.squares for p in self._points.values()) / freedom) if freedom else math.inf

    def _cautious(self, point: Contender, noise: float) -> tuple[float, float]:
        luck = noise * math.sqrt(2.0 * math.log(1.0 + self._seen) / point.count) if math.isfinite(noise) else 0.0
        return point.value + luck, point.value

    @property
    def best(self) -> Contender | None:
        """The contender with the lowest cautious average."""
        noise = self.noise
        return min(self._points.values(), key=lambda p: self._cautious(p, noise), default=None)

    def doubtful(self) -> list[Array]:
        """The two points to evaluate again: the incumbent, and the rival with the lowest plain average."""
        best = self.best
        if best is None:
            return []
        rivals = [point for point in self._points.values() if point is not best]
        chosen = [best, min(rivals, key=lambda p: p.value)] if rivals else [best]
        return [point.row.copy() for point in chosen]

    @property
    def standard_error(self) -> float:
        """Of the incumbent's average."""
        best = self.best
        return math.nan if best is None else self.noise / math.sqrt(best.count)
