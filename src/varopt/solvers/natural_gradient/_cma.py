"""Covariance matrix adaptation: the natural gradient of a Gaussian with full covariance [H16], and its step size.

Of k integers among d coordinates there are more samples [Ma24]; points from elsewhere, told by the user or drawn long
ago, with z what they are in whitened coordinates, count as if they were no farther than a sample ever is [Ha11]; and
coordinates that a least deviation holds, which sigma cannot narrow, have no say in it [Ha11b]:

    lambda = floor(6 + 3 log(d k))                                                                                   (1)
    z <- z min(1, (sqrt(d) + 3) / |z|)                                                                               (2)
    |p_sigma| / E|N(0, I)|  of [H16, eq. 44] is that of the coordinates that are not held                            (3)

H16: N. Hansen, *The CMA evolution strategy: a tutorial*, arXiv:1604.00772, 2016; its figure 6 is followed, with the
parameters of its table 1. Ha11: N. Hansen, *Injecting external solutions into CMA-ES*, arXiv:1110.4181, 2011. Ha11b: N.
Hansen, *A CMA-ES for mixed-integer nonlinear optimization*, INRIA RR-7751, 2011. Ma24: T. Marty et al., *LB+IC-CMA-ES:
two simple modifications of CMA-ES to handle mixed-integer problems*, PPSN 2024.
"""

from __future__ import annotations

import math

import numpy as np

from varopt._threads import all_threads
from varopt.solvers.natural_gradient._integers import Integers
from varopt.solvers.natural_gradient._update import Array, GaussianUpdate, Root
from varopt.solvers.natural_gradient._weights import signed_log_weights

__all__ = ["CMA", "default_population"]

NEARLY_HELD = 0.95  # least deviation over deviation: so close to it, the next generations would take it below
FARTHEST_LENGTH = 3.0  # beyond sqrt(d), the length of whitened samples: farther ones count as if they were there


def default_population(size: int, integers: int = 0) -> int:
    """4 + 3 log(size), the usual number of samples of a generation; more if some coordinates are integers [Ma24]."""
    return int(6 + 3 * math.log(size * integers)) if integers else 4 + int(3 * math.log(size))  # (1), [H16, eq. 48]


def expected_norm(size: int) -> float:
    """The average length of a standard normal vector, by its expansion in 1 / size."""
    return math.sqrt(size) * (1.0 - 1.0 / (4.0 * size) + 1.0 / (21.0 * size * size))  # E|N(0, I)| [H16, figure 6]


class CMA(GaussianUpdate):
    """x ~ N(mean, sigma^2 D C D): rank weights, two evolution paths, negative weights for the worse half.

    The rank-mu part of the update is a step along the natural gradient of the weighted average in (mean, covariance);
    the paths add what single generations cannot see, namely that successive steps agree. D is a diagonal of ones,
    unless a coordinate stands for an integer and must not become too narrow for its cells (`Integers`).

    Parameters
    ----------
    mean : array of shape (d,)
        Where to start.
    sigma : float
        The first standard deviation of every coordinate.
    population : int, optional
        Samples of a generation; 4 + 3 log(d) by default.
    integers : Integers, optional
        Coordinates that stand for integers, inside (0, 1).

    Notes
    -----
    A generation costs O(population d^2), and an eigendecomposition, O(d^3), every 1 / (d (c_1 + c_mu)) generations, in
    which C changes by a share of at most 1 / d: both grow alike. Memory: 4 d^2 numbers.
    """

    def __init__(
        self,
        mean: Array,
        sigma: float,
        population: int | None = None,
        *,
        integers: Integers | None = None,
    ) -> None:
        d = mean.size
        self.size = d
        self.population = population or default_population(d)
        weights = signed_log_weights(self.population)  # [H16, eq. 49]
        positive = np.maximum(weights, 0.0)
        self._parents = int((weights > 0.0).sum())
        self._recombination = positive[: self._parents].copy()
        mu_eff = 1.0 / float((positive**2).sum())  # [H16, eq. 8], of weights that sum to one
        negative = np.minimum(weights, 0.0)
        mu_eff_minus = 1.0 / float((negative**2).sum())

        # Learning rates [H16, table 1], with alpha_cov = 2.
        self._mu_eff = mu_eff
        self._c_sigma = (mu_eff + 2.0) / (d + mu_eff + 5.0)  # [H16, eq. 55]
        self._damping = 1.0 + 2.0 * max(0.0, math.sqrt((mu_eff - 1.0) / (d + 1.0)) - 1.0) + self._c_sigma  # eq. 55
        self._c_path = (4.0 + mu_eff / d) / (d + 4.0 + 2.0 * mu_eff / d)  # [H16, eq. 56]
        self._c_one = 2.0 / ((d + 1.3) ** 2 + mu_eff)  # [H16, eq. 57]
        # [H16, eq. 58]
        self._c_mu = min(1.0 - self._c_one, 2.0 * (0.25 + mu_eff + 1.0 / mu_eff - 2.0) / ((d + 2.0) ** 2 + mu_eff))
        alpha = min(
            1.0 + self._c_one / self._c_mu,  # [H16, eq. 50]
            1.0 + 2.0 * mu_eff_minus / (mu_eff + 2.0),  # [H16, eq. 51]
            (1.0 - self._c_one - self._c_mu) / (d * self._c_mu),  # [H16, eq. 52]
        )
        weights = np.where(weights > 0.0, weights, alpha * weights)  # [H16, eq. 53]
        self._rates = self._c_mu * weights
        self._decay = self._c_one + float(self._rates.sum())
        self._expected_norm = expected_norm(d)
        every = int(1.0 / (d * (self._c_one + self._c_mu)))  # [H16, appendix B.2] has a tenth of it
        self._decompose_every = max(1, min(d, every))  # in one dimension all that is worse shortens the same axis

        # State.
        self._mean = np.array(mean, dtype=np.float64)
        self.sigma = float(sigma)
        self.scale = np.ones(d)  # the diagonal of D
        self.covariance = np.eye(d)
        self._decompose()
        self._path_sigma, self._path = np.zeros(d), np.zeros(d)
        self.generation = 0
        self._integers = integers
        self._free = np.ones(d, dtype=bool)  # coordinates that no least deviation keeps from becoming narrower

    def root(self) -> Root:
        width, axes = self.sigma * self.scale, self._root
        # z ~ N(0, I) [H16, eq. 38]; y = B D z ~ N(0, C) [eq. 39]; x = mean + sigma y ~ N(mean, sigma^2 C) [eq. 40]
        return lambda z: np.asarray(width * (z @ axes.T))

    def tell(self, points: Array, values: Array) -> None:
        best_first = values.argsort(kind="stable")[: self.population]
        points = points.take(best_first, axis=0)
        if self._integers is not None:
            columns, better = self._integers.columns, slice(None, self._parents)
            points[better, columns] = self._integers.center(points[better, columns], self._mean[columns])
        width = self.sigma * self.scale
        y = (points - self._mean) / width  # ~ N(0, C)
        z = y @ self._whitening  # ~ N(0, I), in the axes of C
        squares, rim = np.vecdot(z, z), math.sqrt(self.size) + FARTHEST_LENGTH  # (2)
        if squares.max() > rim * rim:
            shrink = np.minimum(1.0, rim / np.sqrt(np.maximum(squares, rim)))
            y, z, squares = y * shrink[:, None], z * shrink[:, None], squares * shrink * shrink
        self.generation += 1
        parents = self._recombination

        # The mean, by the weighted average of the better half.
        step = parents @ y[: self._parents]  # <y>_w = sum_i w_i y_i [H16, eq. 41]
        self._mean = self._mean + width * step  # m <- m + c_m sigma <y>_w [H16, eq. 42], c_m = 1 [eq. 54]

        # The step size: longer if the whitened steps agree, shorter if they cancel.
        c = self._c_sigma
        # p_sigma <- (1 - c_sigma) p_sigma + sqrt(c_sigma (2 - c_sigma) mu_eff) C^(-1/2) <y>_w [H16, eq. 43]
        self._path_sigma = (1.0 - c) * self._path_sigma + math.sqrt(c * (2.0 - c) * self._mu_eff) * (
            self._axes @ (parents @ z[: self._parents])
        )
        length = math.sqrt(self._path_sigma @ self._path_sigma)
        excess = length / self._expected_norm - 1.0
        if self._integers is not None:  # (3)
            path = self._path_sigma[self._free]
            excess = math.sqrt(path @ path) / expected_norm(path.size) - 1.0 if path.size else 0.0
        # sigma <- sigma exp(c_sigma / d_sigma (|p_sigma| / E|N(0, I)| - 1)) [H16, eq. 44], by a factor of e at most
        self.sigma *= math.exp(min(1.0, (c / self._damping) * excess))

        # The covariance: the path's direction, and the weighted samples.
        warm = (  # h_sigma [H16, figure 6]
            length / math.sqrt(1.0 - (1.0 - c) ** (2 * self.generation))
            < (1.4 + 2.0 / (self.size + 1.0)) * self._expected_norm
        )
        c = self._c_path
        # p_c <- (1 - c_c) p_c + h_sigma sqrt(c_c (2 - c_c) mu_eff) <y>_w [H16, eq. 45]
        self._path = (1.0 - c) * self._path
        if warm:
            self._path += math.sqrt(c * (2.0 - c) * self._mu_eff) * step
        rates = self._rates[: len(y)].copy()
        worse = slice(self._parents, None)  # scaled to length sqrt(d), so that a far sample cannot make C indefinite
        rates[worse] *= self.size / np.maximum(squares[worse], 1e-300)  # w_i d / |C^(-1/2) y_i|^2 [H16, eq. 46]
        lost = 0.0 if warm else self._c_one * c * (2.0 - c)  # c_1 delta(h_sigma) [H16, figure 6]
        # C <- (1 + c_1 delta - c_1 - c_mu sum_i w_i) C + c_1 p_c p_c' + c_mu sum_i w_i y_i y_i' [H16, eq. 47]
        self.covariance *= 1.0 + lost - self._decay
        self.covariance += (y.T * rates) @ y
        self.covariance += (self._c_one * self._path[:, None]) * self._path
        if self.generation % self._decompose_every == 0:
            self._decompose()
        if self._integers is not None:
            columns = self._integers.columns
            least = self._integers.least_deviation(self._mean[columns], min(0.2, self._mu_eff / self.size))
            widen = least / self.deviations[columns]
            self.scale[columns] *= np.maximum(1.0, widen)
            self._free[columns] = widen < NEARLY_HELD

    def _decompose(self) -> None:
        with all_threads("numpy", 9.0 * self.size**3):
            squares, self._axes = np.linalg.eigh(self.covariance)  # C = axes diag(lengths^2) axes', shortest first
        self._lengths = np.sqrt(np.maximum(squares, 1e-30 * squares[-1]))
        self._root, self._whitening = self._axes * self._lengths, self._axes / self._lengths  # C = root root'

    @property
    def deviations(self) -> Array:
        return np.asarray(self.sigma * self.scale * np.sqrt(np.maximum(self.covariance.diagonal(), 0.0)))

    @property
    def spread(self) -> float:
        return float(self.sigma * self._lengths[-1])

    def exhausted(self) -> str:
        if self._lengths[-1] > 1e7 * self._lengths[0]:
            return "the covariance is too ill-conditioned"
        return ""
