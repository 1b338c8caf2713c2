"""Exponential natural evolution strategies: the natural gradient, taken where its coordinates are orthonormal [G10].

A sample is x_k = mean + sigma B z_k, det B = 1, of weight u_k by its rank. In the coordinates (delta, M) of
``mean + sigma B delta`` and ``B exp(M / 2)`` the Fisher matrix at zero is the identity for delta and half of it for M,
so that natural gradients are sums over the samples. The step size takes the trace of M:

    G_delta = sum_k u_k z_k,    G_M = sum_k u_k (z_k z_k' - I)                                                       (1)
    G_sigma = tr(G_M) / d,    G_B = G_M - G_sigma I                                                                  (2)
    mean <- mean + sigma B G_delta                                                                                   (3)
    sigma <- sigma exp(eta / 2 G_sigma),    B <- B exp(eta / 2 G_B),    eta that of [W14, table 1]                   (4)

G10: T. Glasmachers, T. Schaul, Y. Sun, D. Wierstra and J. Schmidhuber, *Exponential natural evolution strategies*,
GECCO 2010. W14: D. Wierstra et al., *Natural evolution strategies*, JMLR 15, 2014; its algorithm xNES is followed.
"""

from __future__ import annotations

import math

import numpy as np

from varopt.solvers.natural_gradient._cma import default_population
from varopt.solvers.natural_gradient._update import Array, GaussianUpdate, Root
from varopt.solvers.natural_gradient._weights import nes_utilities, raw_weights

__all__ = ["XNES"]

_LONGEST_AXIS = 1e7  # times the shortest axis: beyond, samples no longer tell their z


class XNES(GaussianUpdate):
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
        self._rate = (9.0 + 3.0 * math.log(d)) / (5.0 * d * math.sqrt(d))  # eta_sigma = eta_B [W14, table 1]
        self._rate = min(self._rate, 0.6)  # in one dimension the formula exceeds what is stable
        self._mean, self.sigma, self._shape = np.array(mean, dtype=np.float64), float(sigma), np.eye(d)

    def root(self) -> Root:
        sigma, shape = self.sigma, self._shape
        return lambda z: np.asarray(sigma * (z @ shape.T))  # x = mean + sigma B z

    def tell(self, points: Array, values: Array) -> None:
        order = np.argsort(values, kind="stable")[: self.population]
        weights = raw_weights(values[order]) if self._raw else self._utilities[: len(order)]
        z = np.linalg.solve(self._shape, (points[order] - self._mean).T / self.sigma).T  # ~ N(0, I)
        d = self._mean.size
        # No step is longer than e in any direction.
        gradient_mean = weights @ z  # (1)
        gradient_root = (z.T * weights) @ z - weights.sum() * np.eye(d)  # (1)
        gradient_sigma = float(np.trace(gradient_root)) / d  # (2)
        self._mean = self._mean + self.sigma * (self._shape @ gradient_mean)  # (3)
        self.sigma *= math.exp(max(-1.0, min(1.0, 0.5 * self._rate * gradient_sigma)))  # (4)
        squares, axes = np.linalg.eigh(0.5 * self._rate * (gradient_root - gradient_sigma * np.eye(d)))
        self._shape = self._shape @ ((axes * np.exp(np.clip(squares, -1.0, 1.0))) @ axes.T)  # (4)

    def exhausted(self) -> str:
        lengths = np.linalg.svd(self._shape, compute_uv=False)
        return "" if lengths[0] <= _LONGEST_AXIS * lengths[-1] else "the covariance is too ill-conditioned"

    @property
    def deviations(self) -> Array:
        return np.asarray(self.sigma * np.linalg.norm(self._shape, axis=1))

    @property
    def spread(self) -> float:
        return float(self.sigma * np.linalg.norm(self._shape, 2))
