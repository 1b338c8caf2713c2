"""The double exponential distribution."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from varopt.families._family import FloatArray
from varopt.families._location_scale import LocationScale

__all__ = ["Laplace"]


class Laplace(LocationScale):
    """Independent coordinates with density ``exp(-|x - mean| / scale) / (2 scale)``.

    Parameters
    ----------
    mean : float or array of shape (size,)
        Mean; a number is a vector of one.
    scale : float or array of shape (size,)
        Mean absolute deviation; the variance is 2 scale^2.

    Notes
    -----
    The density has a kink at the mean; there the score of the mean is taken as zero.

    Examples
    --------
    >>> from varopt.families import Laplace
    >>> p = Laplace([0.0, 1.0], 0.5)
    >>> p.variance
    array([0.5, 0.5])
    >>> float(p.log_density([0.0, 1.0]))
    0.0
    """

    noise_symmetric: ClassVar[bool] = True
    noise_variance: ClassVar[float] = 2.0
    noise_entropy: ClassVar[float] = 1.0 + math.log(2.0)
    noise_information: ClassVar[tuple[float, float]] = (1.0, 1.0)

    @staticmethod
    def noise_log_density(z: FloatArray) -> FloatArray:
        return -np.abs(z) - math.log(2.0)

    @staticmethod
    def noise_score(z: FloatArray) -> FloatArray:
        return np.sign(z)

    @staticmethod
    def noise_cdf(z: FloatArray) -> FloatArray:
        tail = 0.5 * np.exp(-np.abs(z))
        return np.where(z < 0.0, tail, 1.0 - tail)

    @staticmethod
    def noise_quantile(u: FloatArray) -> FloatArray:
        # 1 - u is exact where it is the smaller one, so both tails are accurate.
        with np.errstate(divide="ignore"):
            distance = -np.log(2.0 * np.minimum(u, 1.0 - u))
        return np.copysign(distance, u - 0.5)
