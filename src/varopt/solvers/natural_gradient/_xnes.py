"""Exponential natural evolution strategies: the natural gradient, taken where its coordinates are orthonormal [G10]."""

from __future__ import annotations

import math

import numpy as np

from varopt.solvers.natural_gradient._cma import default_population
from varopt.solvers.natural_gradient._update import Array, Gaussian
from varopt.solvers.natural_gradient._weights import nes_utilities, raw_weights

__all__ = ["XNES"]


class XNES(Gaussian):
    """x = mean + sigma B z, z ~ N(0, I), det B = 1; mean, log sigma and log B follow the natural gradient.

    Parameters
    ----------
    mean : array of shape (d,)
        Where to start.
    sigma : float
        The first standard deviation of every coordinate.
    population : int, optional
        Samples of a generation; 4 + 3 log(d) by default.
    raw : bool
        Weigh samples by their values rather than by their ranks: the sampled gradient of E(theta) itself, the paper's
        method. Slower, since it is not invariant under transformations of f; on a grown population.

    Notes
    -----
    A generation costs O(population d^2 + d^3). Memory: 2 d^2 numbers.
    """

    def __init__(self, mean: Array, sigma: float, population: int | None = None, *, raw: bool = False) -> None:
        d = mean.size
        self.population = population or default_population(d)
        self._raw = raw
        self._utilities = nes_utilities(self.population)
        self._rate = (9.0 + 3.0 * math.log(d)) / (5.0 * d * math.sqrt(d))
        self._rate = min(self._rate, 0.6)  # in one dimension the formula exceeds what is stable
        self._mean, self.sigma, self._shape = np.array(mean, dtype=np.float64), float(sigma), np.eye(d)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        z = rng.standard_normal((count, self._mean.size))  # ~ N(0, I)
        return np.asarray(self._mean + self.sigma * (z @ self._shape.T))

    def tell(self, points: Array, values: Array) -> None:
        order = np.argsort(values, kind="stable")[: self.population]
        weights = raw_weights(values[order]) if self._raw else self._utilities[: len(order)]
        z = np.linalg.solve(self._shape, (points[order] - self._mean).T / self.sigma).T  # ~ N(0, I)
        d = self._mean.size
        toward = weights @ z
        spread = (z.T * weights) @ z - weights.sum() * np.eye(d)  # <w (z z' - I)>
        overall = float(np.trace(spread)) / d
        self._mean = self._mean + self.sigma * (self._shape @ toward)
        self.sigma *= math.exp(max(-1.0, min(1.0, 0.5 * self._rate * overall)))
        squares, axes = np.linalg.eigh(0.5 * self._rate * (spread - overall * np.eye(d)))
        self._shape = self._shape @ ((axes * np.exp(np.clip(squares, -1.0, 1.0))) @ axes.T)

    @property
    def deviations(self) -> Array:
        return np.asarray(self.sigma * np.linalg.norm(self._shape, axis=1))

    @property
    def spread(self) -> float:
        return float(self.sigma * np.linalg.norm(self._shape, 2))
