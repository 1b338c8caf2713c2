"""The logistic distribution."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from scipy.special import expit, logit

from varopt.families._family import FloatArray
from varopt.families._location_scale import LocationScale

__all__ = ["Logistic"]


class Logistic(LocationScale):
    """Independent coordinates with distribution function 1 / (1 + exp(-(x - mean) / scale)).

    Parameters
    ----------
    mean : float or array of shape (size,)
        Mean; a number is a vector of one.
    scale : float or array of shape (size,)
        Scale; the variance is pi^2 scale^2 / 3.

    Examples
    --------
    >>> from varopt.families import Logistic
    >>> p = Logistic(0.0, 2.0)
    >>> p.from_uniform([[0.5], [0.9]])
    array([[0.        ],
           [4.39444915]])
    """

    noise_symmetric: ClassVar[bool] = True
    noise_variance: ClassVar[float] = math.pi**2 / 3.0
    noise_entropy: ClassVar[float] = 2.0
    noise_information: ClassVar[tuple[float, float]] = (1.0 / 3.0, (3.0 + math.pi**2) / 9.0)

    @staticmethod
    def noise_log_density(z: FloatArray) -> FloatArray:
        # q(z) = e^-|z| / (1 + e^-|z|)^2, even in z: no exponential of a positive number
        r = np.abs(z)
        return -r - 2.0 * np.log1p(np.exp(-r))

    @staticmethod
    def noise_score(z: FloatArray) -> FloatArray:
        return np.tanh(z / 2.0)

    @staticmethod
    def noise_cdf(z: FloatArray) -> FloatArray:
        return np.asarray(expit(z))

    @staticmethod
    def noise_quantile(u: FloatArray) -> FloatArray:
        return np.asarray(logit(u))
