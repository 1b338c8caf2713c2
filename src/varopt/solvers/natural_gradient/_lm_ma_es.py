"""Limited-memory matrix adaptation for many coordinates: LM-MA-ES [L17].

L17: I. Loshchilov, T. Glasmachers and H.-G. Beyer, *Limited-memory matrix adaptation for large scale black-box
optimization*, arXiv:1705.06693, 2017. Its algorithm is followed line by line, but for samples that come from elsewhere:
the noise of these is not known, so that the step is whitened by the factors instead of averaged from the noise.
"""

from __future__ import annotations

import math

import numpy as np

from varopt.solvers.natural_gradient._cma import default_population
from varopt.solvers.natural_gradient._update import Array, GaussianUpdate, Root
from varopt.solvers.natural_gradient._weights import log_weights

__all__ = ["LMMAES"]


class LMMAES(GaussianUpdate):
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
        self._mu_eff = 1.0 / float((weights**2).sum())  # mu_w = 1 / sum_i w_i^2 [L17]
        rank = default_population(d)  # m = 4 + 3 log(d) directions [L17]
        self._c_sigma = min(0.9, 2.0 * self.population / d)  # c_sigma = 2 lambda / d [L17]
        powers = np.arange(rank)
        # [L17]: c_d,i = 1 / (1.5^(i-1) d) and c_c,i = lambda / (4^(i-1) d), which in one dimension leaves nothing.
        self._c_direction = np.minimum(0.5, 1.0 / (1.5**powers * d))
        self._c_path = np.minimum(0.9, self.population / (4.0**powers * d))
        self._mean, self.sigma = np.array(mean, dtype=np.float64), float(sigma)
        self._path_sigma, self._paths = np.zeros(d), np.zeros((rank, d))
        self._deviations = np.full(d, self.sigma)
        self.generation = 0

    def root(self) -> Root:
        sigma, factors = self.sigma, self._factors()

        def root(z: Array) -> Array:
            y = z  # d_i <- (1 - c_d,j) d_i + c_d,j m_j (m_j' d_i), for every direction j [L17]
            for c, path in factors:
                y = (1.0 - c) * y + np.outer(c * (y @ path), path)
            return np.asarray(sigma * y)  # x_i = mean + sigma d_i [L17]

        return root

    def tell(self, points: Array, values: Array) -> None:
        order = np.argsort(values, kind="stable")[: self._parents]
        weights = self._weights[: len(order)]
        y = (points[order] - self._mean) / self.sigma
        self._deviations = np.sqrt(((points - self._mean) ** 2).mean(axis=0))  # as sampled: the factors are many
        step = weights @ y  # sum_i w_i d_i
        white = step.copy()  # M^-1 step = sum_i w_i z_i, one factor after the other by Sherman and Morrison
        for c, path in reversed(self._factors()):
            white = (white - path * (c * (path @ white) / (1.0 - c + c * (path @ path)))) / (1.0 - c)
        self._mean = self._mean + self.sigma * step  # y += sigma sum_i w_i d_i [L17]
        c_s = self._c_sigma
        # p_sigma <- (1 - c_sigma) p_sigma + sqrt(mu_w c_sigma (2 - c_sigma)) sum_i w_i z_i [L17]
        self._path_sigma = (1.0 - c_s) * self._path_sigma + math.sqrt(self._mu_eff * c_s * (2.0 - c_s)) * white
        c_p = self._c_path
        # m_i <- (1 - c_c,i) m_i + sqrt(mu_w c_c,i (2 - c_c,i)) sum_i w_i z_i [L17]
        self._paths = (1.0 - c_p)[:, None] * self._paths + np.outer(np.sqrt(self._mu_eff * c_p * (2.0 - c_p)), white)
        # sigma <- sigma exp(c_sigma / 2 (|p_sigma|^2 / d - 1)) [L17], by a factor of e at most
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
