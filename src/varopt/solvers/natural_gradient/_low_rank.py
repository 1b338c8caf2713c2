"""A Gaussian of low rank for many coordinates: the limited-memory matrix adaptation LM-MA-ES [L17]."""

from __future__ import annotations

import math

import numpy as np

from varopt.solvers.natural_gradient._cma import default_population
from varopt.solvers.natural_gradient._update import Array, Gaussian
from varopt.solvers.natural_gradient._weights import log_weights

__all__ = ["LowRank"]


class LowRank(Gaussian):
    """x = mean + sigma M z, M a product of identities plus rank one: evolution paths of many time scales.

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
    With r = 4 + 3 log(d) paths a generation costs O(population r d). Memory: r d numbers and the samples.
    """

    def __init__(self, mean: Array, sigma: float, population: int | None = None) -> None:
        d = mean.size
        self.population = population or default_population(d)
        weights = log_weights(self.population)
        self._parents = int((weights > 0.0).sum())
        self._weights = weights[: self._parents]
        self._mu_eff = 1.0 / float((weights**2).sum())
        rank = default_population(d)
        self._c_sigma = min(0.9, 2.0 * self.population / d)
        powers = np.arange(rank)
        self._c_direction = np.minimum(0.5, 1.0 / (1.5**powers * d))  # one dimension would leave nothing of the rest
        self._c_path = np.minimum(0.9, self.population / (4.0**powers * d))
        self._mean, self.sigma = np.array(mean, dtype=np.float64), float(sigma)
        self._path_sigma, self._paths = np.zeros(d), np.zeros((rank, d))
        self._deviations = np.full(d, self.sigma)
        self.generation = 0

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        y = rng.standard_normal((count, self._mean.size))
        for c, path in self._factors():
            y = (1.0 - c) * y + np.outer(c * (y @ path), path)
        return np.asarray(self._mean + self.sigma * y)

    def tell(self, points: Array, values: Array) -> None:
        order = np.argsort(values, kind="stable")[: self._parents]
        weights = self._weights[: len(order)]
        y = (points[order] - self._mean) / self.sigma
        self._deviations = np.sqrt(((points - self._mean) ** 2).mean(axis=0))  # as sampled: the factors are many
        step = weights @ y
        white = step.copy()  # M^-1 step, one factor after the other
        for c, path in reversed(self._factors()):
            white = (white - path * (c * (path @ white) / (1.0 - c + c * (path @ path)))) / (1.0 - c)
        self._mean = self._mean + self.sigma * step
        c_s = self._c_sigma
        self._path_sigma = (1.0 - c_s) * self._path_sigma + math.sqrt(self._mu_eff * c_s * (2.0 - c_s)) * white
        c_p = self._c_path
        self._paths = (1.0 - c_p)[:, None] * self._paths + np.outer(np.sqrt(self._mu_eff * c_p * (2.0 - c_p)), white)
        excess = float(self._path_sigma @ self._path_sigma) / self._mean.size - 1.0
        self.sigma *= math.exp(min(1.0, 0.5 * c_s * excess))
        self.generation += 1

    def _factors(self) -> list[tuple[float, Array]]:
        return list(zip(self._c_direction, self._paths, strict=True))[: self.generation]

    @property
    def deviations(self) -> Array:
        return self._deviations

    @property
    def spread(self) -> float:
        return self.sigma
