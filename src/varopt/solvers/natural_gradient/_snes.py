"""Separable natural evolution strategies: the natural gradient of a diagonal covariance, in linear time [S11].

A sample is x_k = mean + sigma z_k, coordinate by coordinate, of weight u_k by its rank. In units of sigma the Fisher
matrix of (mean, log sigma) is diagonal, so that the natural gradient is a sum over the samples:

    mean <- mean + sigma sum_k u_k z_k                                                                               (1)
    sigma <- sigma exp(eta / 2 sum_k u_k (z_k^2 - 1)),    eta that of [W14, table 1]                                 (2)

S11: T. Schaul, T. Glasmachers and J. Schmidhuber, *High dimensions and heavy tails for natural evolution strategies*,
GECCO 2011. W14: D. Wierstra et al., *Natural evolution strategies*, JMLR 15, 2014; its algorithm SNES is followed.
"""

from __future__ import annotations

import math

import numpy as np

from varopt.solvers.natural_gradient._cma import default_population
from varopt.solvers.natural_gradient._update import Array, GaussianUpdate, Root
from varopt.solvers.natural_gradient._weights import nes_utilities

__all__ = ["SNES"]


class SNES(GaussianUpdate):
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
        self._rate = (3.0 + math.log(d)) / (5.0 * math.sqrt(d))  # eta_sigma [W14, table 1]
        self._mean, self._deviations = np.array(mean, dtype=np.float64), np.full(d, float(sigma))

    def root(self) -> Root:
        deviations = self._deviations
        return lambda z: np.asarray(deviations * z)  # x = mean + sigma z ~ N(mean, diag(sigma^2))

    def tell(self, points: Array, values: Array) -> None:
        order = values.argsort(kind="stable")[: self.population]
        weights = self._utilities[: len(order)]
        z = (points.take(order, axis=0) - self._mean) / self._deviations  # ~ N(0, I)
        self._mean = self._mean + self._deviations * (weights @ z)  # (1)
        step = 0.5 * self._rate * (weights @ (z * z - 1.0))  # the exponent of (2)
        self._deviations = self._deviations * np.exp(np.minimum(np.maximum(step, -1.0), 1.0))  # (2), by e at most

    @property
    def deviations(self) -> Array:
        return self._deviations

    @property
    def spread(self) -> float:
        return float(self._deviations.max())
