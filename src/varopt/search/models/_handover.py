"""From given points, or a model of everything, to a sampled bound around the best of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.search.models._expected_improvement import ExpectedImprovement
from varopt.search.models._given import Given
from varopt.solvers.natural_gradient import AroundUpdate, Update

__all__ = ["Handover"]

Array = NDArray[np.float64]
PROPOSAL = 0.05  # seconds that a proposal of a model takes, a little more than most do
TIME_SHARE = 0.1  # of the time of a run that is given in seconds


class Handover(AroundUpdate):
    """Points of the user's or of a Gaussian process first, then an update that begins where these led.

    Parameters
    ----------
    first : ExpectedImprovement or Given
        What proposes the first points.
    length : int
        How many evaluations it has.
    after : callable
        From the best point, a spread, and all points and values so far to the update that goes on.
    timed : bool
        Whether the first points may take no more than a tenth of the time of the run: see `afford`.
    """

    def __init__(
        self,
        first: ExpectedImprovement | Given,
        length: int,
        after: Callable[[Array, float, tuple[Array, Array]], Update],
        timed: bool = False,
    ) -> None:
        self._first, self._length, self._after, self._timed = first, length, after, timed
        self.inner: Update = first
        self.epoch = 0
        self._sampled = False  # whether what was told last is of the distribution that there is now

    @property
    def epoch(self) -> int:
        """Counts fresh starts."""
        return self._epoch + (self.inner.epoch if self.begun else 0)

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch = value

    @property
    def begun(self) -> bool:
        """Whether what goes on has begun."""
        return self.inner is not self._first

    def tell(self, points: Array, values: Array) -> None:
        self._sampled = self.begun
        self.inner.tell(points, values)
        if not self.begun and len(self._first.known[1]) >= self._length:
            self._hand_over()

    def average(self, values: Array) -> Array | float:
        return self.inner.average(values if self._sampled else values[:0])

    def afford(self, seconds: float) -> None:
        """Hand over where another proposal of a model would take more than a tenth of the time of all evaluations.

        Parameters
        ----------
        seconds : float
            What evaluations took so far. What proposals take is not measured but taken to be `PROPOSAL` seconds, so
            that a search which is repeated from its records hands over where it did.
        """
        if isinstance(self.inner, Handover):
            self.inner.afford(seconds)
        elif self._timed and not self.begun and isinstance(self._first, ExpectedImprovement):
            batch = self._first.population  # evaluated at once
            if PROPOSAL * (self._first.modelled + batch) > TIME_SHARE * seconds / batch:
                self._hand_over()

    def _hand_over(self) -> None:
        if np.isfinite(self._first.known[1]).any():
            self.inner = self._after(self._first.mean, self._first.spread, self._first.known)
