"""The normal distribution, by its standard deviations, a Cholesky factor, or whichever root is at hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from varopt._domains import POSITIVE, REAL, Domain
from varopt.families._dispersion import Cholesky
from varopt.families._family import Builder, FloatArray, as_sharpening
from varopt.families._location_scale import LocationScale

__all__ = ["Gaussian", "RootedGaussian"]


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


class RootedGaussian(Gaussian):
    """x ~ N(mean, S S^T), drawn as mean + S z with z ~ N(0, I), for S given by what it does to a vector.

    Who keeps the axes of an ellipsoid, or a product of factors of rank one, has a root S of the covariance and no
    Cholesky factor C. Both give one law, as S = C U with an orthogonal U; only the samples of a seed differ.

    Parameters
    ----------
    mean : array of shape (size,)
        Mean.
    root : callable
        z to S z, linear and invertible, for z of shape (..., size).

    Notes
    -----
    Samples need products with S alone. Everything else is that of ``Gaussian(mean, C)``, which it equals; C comes from
    a QR factorisation when it is first asked for: size^2 numbers and O(size^3) operations. Nothing is checked: `root`
    is taken at its word.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.families import Gaussian, RootedGaussian
    >>> turned = np.array([[0.0, 2.0], [1.0, 0.0]])
    >>> p = RootedGaussian([1.0, -2.0], lambda z: z @ turned.T)
    >>> p == Gaussian([1.0, -2.0], np.diag([2.0, 1.0]))
    True
    """

    _center: FloatArray
    _root: Callable[[FloatArray], FloatArray]

    def __init__(self, mean: ArrayLike, root: Callable[[FloatArray], FloatArray]) -> None:
        center = np.array(mean, dtype=np.float64)
        center.flags.writeable = False
        self._assign(_center=center, _root=root)

    @cached_property
    def _arrays(self) -> Mapping[str, FloatArray]:  # type: ignore[override]  # made when they are first asked for
        # The rows of root(I) are the columns of S, so that its QR factorisation is S^T = Q R and C = R^T, up to signs.
        factor = np.asarray(np.linalg.qr(self._root(np.eye(self._center.size)), mode="r")).T
        sigma = np.tril(factor * np.where(np.diagonal(factor) < 0.0, -1.0, 1.0))
        sigma.flags.writeable = False
        return {"mean": self._center, "sigma": sigma}

    @cached_property
    def _dispersion(self) -> Cholesky:  # type: ignore[override]
        return Cholesky(self._arrays["sigma"])

    @property
    def size(self) -> int:
        return self._center.size

    @property
    def mean(self) -> FloatArray:
        return self._center.view()

    def _draw(self, n: int, rng: np.random.Generator, antithetic: bool) -> FloatArray:
        z = self.noise(n // 2 if antithetic else n, rng)  # ~ N(0, I)
        return self._center + self._root(np.concatenate([z, -z]) if antithetic else z)

    def _plain(self) -> Gaussian:
        return Gaussian(**self._arrays)

    def replace(self, parameters: Mapping[str, ArrayLike] | None = None, /, **named: ArrayLike) -> Any:
        """The `Gaussian` in which the named parameters, ``mean`` and the Cholesky factor ``sigma``, are replaced."""
        return self._plain().replace(parameters, **named)

    def sharpen(self, factor: float) -> Self:
        """Multiply the root by `factor` in (0, 1]: standard deviations shrink by it, the mean stays."""
        number, root = as_sharpening(factor), self._root
        return type(self)(self._center, lambda z: number * root(z))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Gaussian):
            return NotImplemented
        return self._plain() == (other._plain() if isinstance(other, RootedGaussian) else other)

    def __hash__(self) -> int:
        return hash(self._plain())

    def __reduce__(self) -> tuple[Any, ...]:
        return Gaussian, tuple(self._arrays.values())

    @classmethod
    def examples(cls) -> dict[str, Builder]:
        def rooted(n: int, rng: np.random.Generator) -> RootedGaussian:
            root = rng.standard_normal((n, n)) + 3.0 * np.eye(n)[::-1]
            return cls(rng.uniform(*cls.domains["mean"].typical, n), lambda z: z @ root.T)

        return {"gaussian-rooted": rooted}
