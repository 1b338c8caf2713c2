"""Limited-memory matrix adaptation for many coordinates: LM-MA-ES [L17, alg. 1].

Of lambda samples of d coordinates the best have weights w_i, which sum to one, with mu_w = 1 / sum_i w_i^2. There are
r = 4 + 3 log d evolution paths m_j, of time scales from d up:

    c_sigma = 2 lambda / d,    c_d,j = 1 / (1.5^(j-1) d),    c_c,j = lambda / (4^(j-1) d)                            (1)
    x_i = mean + sigma y_i,    y_i = M z_i,    z_i ~ N(0, I),    M = F_r ... F_1,                                    (2)
    F_j = (1 - c_d,j) I + c_d,j m_j m_j'                                                                             (3)
    mean <- mean + sigma sum_i w_i y_i                                                                               (4)
    p <- (1 - c_sigma) p + sqrt(mu_w c_sigma (2 - c_sigma)) z,    z = sum_i w_i z_i                                  (5)
    m_j <- (1 - c_c,j) m_j + sqrt(mu_w c_c,j (2 - c_c,j)) z                                                          (6)
    sigma <- sigma exp(c_sigma / 2 (|p|^2 / d - 1))                                                                  (7)

Where samples come from elsewhere their z_i are not known, so that z is M^-1 sum_i w_i y_i, with each factor inverted by
Sherman and Morrison, c that of its path m:

    F^-1 y = (y - m c m'y / (1 - c + c m'm)) / (1 - c)                                                               (8)

L17: I. Loshchilov, T. Glasmachers and H.-G. Beyer, *Limited-memory matrix adaptation for large scale black-box
optimization*, arXiv:1705.06693, 2017.
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
        self._mu_eff = 1.0 / float((weights**2).sum())  # mu_w
        rank = default_population(d)  # r
        self._c_sigma = min(0.9, 2.0 * self.population / d)  # (1)
        powers = np.arange(rank)
        # (1), which in one dimension would leave nothing of what was learnt: hence the limits.
        self._c_direction = np.minimum(0.5, 1.0 / (1.5**powers * d))
        self._c_path = np.minimum(0.9, self.population / (4.0**powers * d))
        self._mean, self.sigma = np.array(mean, dtype=np.float64), float(sigma)
        self._path_sigma, self._paths = np.zeros(d), np.zeros((rank, d))
        self._deviations = np.full(d, self.sigma)
        self.generation = 0

    def root(self) -> Root:
        sigma, factors = self.sigma, self._factors()

        def root(z: Array) -> Array:
            y = z
            for c, path in factors:
                y = (1.0 - c) * y + np.outer(c * (y @ path), path)  # (3)
            return np.asarray(sigma * y)  # (2)

        return root

    def tell(self, points: Array, values: Array) -> None:
        order = np.argsort(values, kind="stable")[: self._parents]
        weights = self._weights[: len(order)]
        y = (points[order] - self._mean) / self.sigma
        self._deviations = np.sqrt(((points - self._mean) ** 2).mean(axis=0))  # as sampled: the factors are many
        step = weights @ y  # sum_i w_i y_i
        white = step.copy()  # z, one factor after the other
        for c, path in reversed(self._factors()):
            white = (white - path * (c * (path @ white) / (1.0 - c + c * (path @ path)))) / (1.0 - c)  # (8)
        self._mean = self._mean + self.sigma * step  # (4)
        c_s = self._c_sigma
        # (5)
        self._path_sigma = (1.0 - c_s) * self._path_sigma + math.sqrt(self._mu_eff * c_s * (2.0 - c_s)) * white
        c_p = self._c_path
        # (6)
        self._paths = (1.0 - c_p)[:, None] * self._paths + np.outer(np.sqrt(self._mu_eff * c_p * (2.0 - c_p)), white)
        # (7), by a factor of e at most
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
