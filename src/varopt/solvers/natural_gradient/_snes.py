"""Separable natural evolution strategies: the same for a diagonal covariance, in linear time [S11]."""

from __future__ import annotations

import math

import numpy as np

from varopt.solvers.natural_gradient._cma import default_population
from varopt.solvers.natural_gradient._update import Array, Gaussian
from varopt.solvers.natural_gradient._weights import nes_utilities

__all__ = ["SNES"]


class SNES(Gaussian):
    """x ~ N(mean, diag(deviations^2)); mean and log deviations follow the natural gradient.

    Parameters
    ----------
    mean : array of shape (d,)
        Where to start.
    sigma : float
        The first standard deviation of every coordinate.
    population : int, optional
        Samples of a generation; 4 + 3 log(d) by default.

    Notes
    -----
    A generation costs O(population d). Memory: 2 d numbers and the samples.
    """

    def __init__(self, mean: Array, sigma: float, population: int | None = None) -> None:
        d = mean.size
        self.population = population or default_population(d)
        self._utilities = nes_utilities(self.population)
        self._rate = (3.0 + math.log(d)) / (5.0 * math.sqrt(d))
        self._mean, self._deviations = np.array(mean, dtype=np.float64), np.full(d, float(sigma))

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return np.asarray(self._mean + self._deviations * rng.standard_normal((count, self._mean.size)))

    def tell(self, points: Array, values: Array) -> None:
        order = np.argsort(values, kind="stable")[: self.population]
        weights = self._utilities[: len(order)]
        z = (points[order] - self._mean) / self._deviations  # ~ N(0, I)
        self._mean = self._mean + self._deviations * (weights @ z)
        step = 0.5 * self._rate * (weights @ (z * z - 1.0))
        self._deviations = self._deviations * np.exp(np.clip(step, -1.0, 1.0))

    @property
    def deviations(self) -> Array:
        return self._deviations

    @property
    def spread(self) -> float:
        return float(self._deviations.max())
