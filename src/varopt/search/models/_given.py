"""Points that the user gives to begin with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from varopt.search.goals import Rules
from varopt.solvers.natural_gradient import Update

__all__ = ["Given"]

Array = NDArray[np.float64]


class Given(Update):
    """Proposes some points once each, and then points around them, for whoever asks for more before these are known.

    Parameters
    ----------
    points : array of shape (n, d)
        Latent points.
    numeric : integer array
        The columns that are numbers; the others stay as they are.
    sigma : float
        How far around them the others are.
    rules : Rules, optional
        What is allowed; a point around them that is not is replaced by the one that it is around.
    """

    learns_from_failures = True

    def __init__(self, points: Array, numeric: NDArray[np.intp], sigma: float, rules: Rules | None = None) -> None:
        self._given, self._numeric, self._sigma, self._rules = points, numeric, sigma, rules
        self._proposed = 0
        self._points, self._values = np.empty((0, points.shape[1])), np.empty(0)

    @property
    def population(self) -> int:  # type: ignore[override]
        """How many are left to propose."""
        return max(1, len(self._given) - self._proposed)

    @property
    def known(self) -> tuple[Array, Array]:
        """What was evaluated: latent points and values."""
        return self._points, self._values

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        places = self._proposed + np.arange(count)
        self._proposed += count
        points = self._given[places % len(self._given)]
        again = np.flatnonzero(places >= len(self._given))
        moved = points[again]
        moved[:, self._numeric] += self._sigma * rng.normal(size=(again.size, self._numeric.size))
        fine = np.ones(again.size, dtype=bool) if self._rules is None else self._rules.allows(moved)
        points[again[fine]] = moved[fine]
        return points

    def tell(self, points: Array, values: Array) -> None:
        self._points = np.vstack((self._points, points))
        self._values = np.concatenate((self._values, values)) if self._values.size else np.asarray(values)

    @property
    def mean(self) -> Array:
        return np.asarray(self._given[0] if not self._values.size else self._points[int(np.argmin(self._values))])

    @property
    def spread(self) -> float:
        return self._sigma
