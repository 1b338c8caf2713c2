"""From given points, or a model of everything, to a sampled bound around the best of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.search.models._expected_improvement import ExpectedImprovement
from varopt.search.models._given import Given
from varopt.solvers.natural_gradient import Update

__all__ = ["Handover"]

Array = NDArray[np.float64]


class Handover(Update):
    """Points of the user's or of a Gaussian process first, then an update that begins where these led.

    Parameters
    ----------
    first : ExpectedImprovement or Given
        What proposes the first points.
    length : int
        How many evaluations it has.
    after : callable
        From the best point, a spread, and all points and values so far to the update that goes on.
    """

    def __init__(
        self,
        first: ExpectedImprovement | Given,
        length: int,
        after: Callable[[Array, float, tuple[Array, Array]], Update],
    ) -> None:
        self._first, self._length, self._after = first, length, after
        self.current: Update = first
        self.epoch = 0

    @property
    def population(self) -> int:  # type: ignore[override]
        """How many samples the next `tell` expects."""
        return self.current.population

    @property
    def epoch(self) -> int:
        """Counts fresh starts."""
        return self._epoch + (self.current.epoch if self.begun else 0)

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch = value

    @property
    def begun(self) -> bool:
        """Whether what goes on has begun."""
        return self.current is not self._first

    def refresh(self, rng: np.random.Generator) -> None:
        self.current.refresh(rng)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return self.current.sample(rng, count)

    def tell(self, points: Array, values: Array) -> None:
        self.current.tell(points, values)
        if not self.begun and len(self._first.known[1]) >= self._length and np.isfinite(self._first.known[1]).any():
            self.current = self._after(self._first.mean, self._first.spread, self._first.known)

    @property
    def mean(self) -> Array:
        return self.current.mean

    @property
    def spread(self) -> float:
        return self.current.spread

    def average(self, values: Array) -> Array | float:
        return self.current.average(values)

    def exhausted(self) -> str:
        return self.current.exhausted()
