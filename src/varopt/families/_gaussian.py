"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from varopt._domains import POSITIVE, REAL, Domain
from varopt.families._family import Builder, FloatArray
from varopt.families._location_scale import LocationScale

__all__ = ["Gaussian"]


class Gaussian(LocationScale):
    """x ~ N(mean, sigma^2 I), N(mean, diag(sigma^2)) or N(mean, C C^T).

    Parameters
    ----------
    mean : float or array of shape (size,)
        Mean; a number is a vector of one.
    sigma : float, array of shape (size,) or array of shape (size, size)
        Standard deviation common to all coordinates, one for each, or the lower triangular Cholesky factor C of the
        covariance, with a positive diagonal.

    Notes
    -----
    With a Cholesky factor, `score` and `pullback` of n points hold n size^2 numbers, and `natural_gradient` is that of
    xNES: with C <- C (I + M), M lower triangular, the Fisher matrix of M is 1 off the diagonal and 2 on it.

    Examples
    --------
    >>> from varopt.families import Gaussian
    >>> p = Gaussian([1.0, -2.0], [[2.0, 0.0], [1.0, 0.5]])
    >>> p.covariance
    array([[4.  , 2.  ],
           [2.  , 1.25]])
    >>> p.sharpen(0.5).sigma
    array([[1.  , 0.  ],
           [0.5 , 0.25]])
    >>> p.sample(1000, seed=0).shape
    (1000, 2)

    A step of natural gradient descent on (mean, sigma):

    >>> step = p.natural_gradient({"mean": [1.0, 0.0], "sigma": [[1.0, 0.0], [0.0, 1.0]]})
    >>> step["mean"]
    array([4., 2.])
    """

    domains: ClassVar[Mapping[str, Domain]] = MappingProxyType({"mean": REAL, "sigma": POSITIVE})

    noise_symmetric: ClassVar[bool] = True
    noise_variance: ClassVar[float] = 1.0
    noise_entropy: ClassVar[float] = 0.5 * math.log(2.0 * math.pi * math.e)
    noise_information: ClassVar[tuple[float, float]] = (1.0, 2.0)

    _accepts_cholesky: ClassVar[bool] = True

    def __init__(self, mean: ArrayLike, sigma: ArrayLike) -> None:
        super().__init__(mean, sigma)

    @property
    def sigma(self) -> FloatArray:
        """The dispersion as it was given: shape (), (size,) or (size, size)."""
        return self.scale

    @staticmethod
    @np.errstate(over="ignore")
    def noise_log_density(z: FloatArray) -> FloatArray:
        return -0.5 * z**2 - 0.5 * math.log(2.0 * math.pi)

    @staticmethod
    def noise_score(z: FloatArray) -> FloatArray:
        return z

    @staticmethod
    def noise_cdf(z: FloatArray) -> FloatArray:
        return np.asarray(ndtr(z))

    @staticmethod
    def noise_quantile(u: FloatArray) -> FloatArray:
        return np.asarray(ndtri(u))

    def noise(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal((n, self.size))  # several times faster than the inverse distribution function

    @classmethod
    def examples(cls) -> dict[str, Builder]:
        def cholesky(n: int, rng: np.random.Generator) -> Gaussian:
            factor = np.tril(rng.uniform(-1.0, 1.0, (n, n)), -1)
            return cls(rng.uniform(*REAL.typical, n), factor + np.diag(rng.uniform(*POSITIVE.typical, n)))

        return {**super().examples(), "gaussian-cholesky": cholesky}
