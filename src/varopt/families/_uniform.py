"""The uniform distribution on a box."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from varopt.families._family import FloatArray
from varopt.families._location_scale import LocationScale

__all__ = ["Uniform"]

_NO_SCORE = (
    "Uniform has no score, and so no Fisher matrix: the edges of the box, where the density jumps, move with its "
    "parameters. Use the reparameterised gradient (transform and pullback) or a Gaussian, Laplace or Logistic family."
)


class Uniform(LocationScale):
    """x uniform on the box [mean - scale, mean + scale].

    Parameters
    ----------
    mean : float or array of shape (size,)
        Centre of the box; a number is a vector of one.
    scale : float or array of shape (size,)
        Half-width of the box; the variance is scale^2 / 3.

    Notes
    -----
    The density is not differentiable in the parameters, so `has_score` is False and `score`, `fisher` and
    `natural_gradient` raise a TypeError. Gradients of <f(x)> come from `transform` and `pullback`. Every point of the
    box is a mode; `mode` returns its centre.

    Examples
    --------
    >>> from varopt.families import Uniform
    >>> p = Uniform([0.0, 5.0], [1.0, 2.0])
    >>> p.from_uniform([[0.5, 0.75]])
    array([[0., 6.]])
    >>> p.log_density([0.0, 8.0])
    array(-inf)
    >>> p.pullback([[0.5, -0.5]], [[2.0, 2.0]])["scale"]
    array([[ 1., -1.]])
    """

    has_score: ClassVar[bool] = False

    noise_symmetric: ClassVar[bool] = True
    noise_variance: ClassVar[float] = 1.0 / 3.0
    noise_entropy: ClassVar[float] = math.log(2.0)
    noise_support: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    @staticmethod
    def noise_log_density(z: FloatArray) -> FloatArray:
        return np.where(np.abs(z) <= 1.0, -math.log(2.0), -np.inf)

    @staticmethod
    def noise_score(z: FloatArray) -> NoReturn:
        raise TypeError(_NO_SCORE)

    @staticmethod
    def noise_cdf(z: FloatArray) -> FloatArray:
        return np.clip(0.5 + 0.5 * np.asarray(z), 0.0, 1.0)

    @staticmethod
    def noise_quantile(u: FloatArray) -> FloatArray:
        return 2.0 * u - 1.0

    @np.errstate(over="ignore")
    def log_density(self, x: ArrayLike) -> FloatArray:
        # Compared with the rounded edges, as rounding is monotone: no sample can fall outside its own box.
        x = self._points(x)
        mean, scale = self._arrays.values()
        inside = ((mean - scale <= x) & (x <= mean + scale)).all(axis=-1)
        return np.where(inside, -self.entropy(), -np.inf)

    def score(self, x: ArrayLike) -> NoReturn:
        """Refused: see the Notes of `Uniform`."""
        raise TypeError(_NO_SCORE)

    def fisher(self) -> NoReturn:
        """Refused: see the Notes of `Uniform`."""
        raise TypeError(_NO_SCORE)

    def natural_gradient(self, gradient: Mapping[str, ArrayLike]) -> NoReturn:
        """Refused: see the Notes of `Uniform`."""
        raise TypeError(_NO_SCORE)
