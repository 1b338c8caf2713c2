"""Families of the form x = mean + S z with noise z of a fixed law."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from varopt._domains import POSITIVE, REAL, Domain, as_finite
from varopt.families._dispersion import Dispersion, as_dispersion
from varopt.families._family import Builder, Elementary, FloatArray, as_sharpening, as_vector, with_last_axis

__all__ = ["LocationScale"]


class LocationScale(Elementary):
    """x = mean + S z, where z has independent coordinates of one law of mean zero, with density q.

    S is a number, a vector (elementwise) or, for a `Gaussian`, a Cholesky factor. x is linear in (mean, S), so these
    families are expectation affine: if f is convex then so is <f(x)> in (mean, S) jointly (Theorem 1 of [SB12]).

    A subclass states facts of q: the ``noise_*`` members. Everything else follows from them.

    Parameters
    ----------
    mean : float or array of shape (size,)
        Centre of the distribution.
    scale : float or array of shape (size,)
        Positive factor of the noise.
    """

    domains: ClassVar[Mapping[str, Domain]] = MappingProxyType({"mean": REAL, "scale": POSITIVE})
    expectation_affine: ClassVar[bool] = True
    has_score: ClassVar[bool] = True

    noise_variance: ClassVar[float]
    """<z^2>."""

    noise_symmetric: ClassVar[bool] = False
    """Whether -z is distributed as z is: then it is the mirror image of an antithetic pair."""

    noise_entropy: ClassVar[float]
    """-<log q(z)>."""

    noise_information: ClassVar[tuple[float, float]]
    """(<psi^2>, <(psi z - 1)^2>): Fisher information of location and scale at scale 1, psi = -q'/q."""

    noise_support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    """The smallest interval outside which q is zero."""

    _accepts_cholesky: ClassVar[bool] = False
    _dispersion: Dispersion

    def __init__(self, mean: ArrayLike, scale: ArrayLike) -> None:
        _, name = self.domains
        center = as_vector("mean", mean, self.domains["mean"])
        dispersion = as_dispersion(name, scale, self.domains[name], center.size, cholesky=self._accepts_cholesky)
        self._declare(**{"mean": center, name: dispersion.scale})
        self._assign(_dispersion=dispersion)

    # The law of one coordinate of z --------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def noise_log_density(z: FloatArray) -> FloatArray:
        """Log q(z), elementwise."""

    @staticmethod
    @abstractmethod
    def noise_score(z: FloatArray) -> FloatArray:
        """psi(z) = -d log q / dz, elementwise."""

    @staticmethod
    @abstractmethod
    def noise_cdf(z: FloatArray) -> FloatArray:
        """Probability that a coordinate of the noise is at most z, elementwise."""

    @staticmethod
    @abstractmethod
    def noise_quantile(u: FloatArray) -> FloatArray:
        """Inverse of `noise_cdf`, elementwise, for u in (0, 1)."""

    @classmethod
    def noise_density(cls, z: ArrayLike) -> FloatArray:
        """q(z), elementwise."""
        return np.exp(cls.noise_log_density(np.asarray(z, dtype=np.float64)))

    @property
    def law(self) -> Any:
        """What states the facts of q: the class itself."""
        return type(self)

    # Noise and points ----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return self._arrays["mean"].size

    @property
    def noise_size(self) -> int:
        return self.size

    @property
    def dispersion(self) -> str:
        """Shape of S: "scalar", "diagonal" or "cholesky"."""
        return self._dispersion.kind

    @property
    def scale(self) -> FloatArray:
        """S, the second parameter, as it was given: shape (), (size,) or (size, size)."""
        return self._dispersion.scale.view()

    def noise(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n noise vectors z, of shape (n, size)."""
        return self.noise_from_uniform(rng.random((n, self.noise_size)))

    def noise_from_uniform(self, u: ArrayLike) -> FloatArray:
        """Noise z of shape (..., size) from uniforms of the same shape, by the inverse distribution function."""
        return self.noise_quantile(self._uniforms(u))

    @np.errstate(over="ignore", invalid="ignore")
    def transform(self, z: ArrayLike) -> FloatArray:
        """X = mean + S z, for z of shape (..., size)."""
        return self._arrays["mean"] + self._dispersion.apply(self._points(z, "z"))

    @np.errstate(over="ignore", invalid="ignore")
    def standardize(self, x: ArrayLike) -> FloatArray:
        """Z = S^-1 (x - mean), the inverse of `transform`."""
        x = self._points(x)
        mean = self._arrays["mean"]
        difference = x - mean
        if np.isfinite(difference).all():
            return self._dispersion.solve(difference)
        return 2.0 * self._dispersion.solve(x / 2.0 - mean / 2.0)  # opposite signs near the largest float

    def from_uniform(self, u: ArrayLike) -> FloatArray:
        return self.transform(self.noise_from_uniform(u))

    def _draw(self, n: int, rng: np.random.Generator, antithetic: bool) -> FloatArray:
        if not antithetic:
            return self.transform(self.noise(n, rng))
        if not self.noise_symmetric:
            return super()._draw(n, rng, antithetic)
        z = self.noise(n // 2, rng)
        return self.transform(np.concatenate([z, -z]))  # -z is what 1 - u gives

    @np.errstate(over="ignore", invalid="ignore")
    def pullback(self, z: ArrayLike, gradient_x: ArrayLike) -> dict[str, FloatArray]:
        """Gradient in each parameter from the gradient of f at x = `transform` (z): reparameterisation.

        Parameters
        ----------
        z, gradient_x : arrays of shape (..., size)
            Noise, and the gradient of f at the points it was transformed to.

        Returns
        -------
        dict of ndarray
            By parameter, of shape ``(..., *parameter.shape)``: g for the mean; for the dispersion g . z (scalar), g z
            (diagonal), tril(g z^T) (Cholesky, n size^2 numbers for n points). Their averages are the gradient of E.
        """
        mean, scale = self._arrays
        g = with_last_axis("gradient_x", as_finite("gradient_x", gradient_x), self.size)
        z, g = np.broadcast_arrays(self._points(z, "z"), g)
        return {mean: g.copy(), scale: self._dispersion.pullback(z, g)}

    # Moments and density -------------------------------------------------------------------------------------------

    @property
    def mean(self) -> FloatArray:
        return self._arrays["mean"].view()

    @property
    def mode(self) -> FloatArray:
        return self.mean

    @property
    @np.errstate(over="ignore")
    def variance(self) -> FloatArray:
        return self.noise_variance * self._dispersion.squared_rows()

    @property
    @np.errstate(over="ignore", invalid="ignore")
    def covariance(self) -> FloatArray:
        """Covariance of x, dense, of shape (size, size)."""
        return self.noise_variance * self._dispersion.covariance()

    def entropy(self) -> float:
        return self.size * self.noise_entropy + self._dispersion.log_determinant()

    def sharpen(self, factor: float) -> Self:
        """Multiply the dispersion by `factor` in (0, 1]: standard deviations shrink by it, the mean stays."""
        _, name = self._arrays
        scale = as_sharpening(factor) * self._arrays[name]
        if not (np.diagonal(scale) if scale.ndim == 2 else scale).all():
            raise ValueError(f"factor = {factor:g} shrinks {name} below the smallest positive float64.")
        return self.replace({name: scale})

    @np.errstate(over="ignore")
    def log_density(self, x: ArrayLike) -> FloatArray:
        # p(x) = q(z_1) ... q(z_n) / det S
        return np.asarray(self.noise_log_density(self.standardize(x)).sum(axis=-1) - self._dispersion.log_determinant())

    @np.errstate(over="ignore", invalid="ignore")
    def score(self, x: ArrayLike) -> dict[str, FloatArray]:
        # d log p / d mean = S^-T psi(z);  d log p / dS = pullback of the same through S z, less d log det S / dS.
        mean, scale = self._arrays
        z = self.standardize(x)
        score = self._dispersion.solve_transposed(self.noise_score(z))
        return {mean: score, scale: self._dispersion.pullback(z, score) - self._dispersion.log_determinant_gradient()}

    @np.errstate(over="ignore", invalid="ignore")
    def fisher(self) -> dict[str, FloatArray]:
        mean, scale = self._arrays
        location, dispersion = self.noise_information
        return {
            mean: location * self._dispersion.precision(),
            scale: self._dispersion.fisher((location, dispersion, self.noise_variance)),
        }

    @np.errstate(over="ignore", invalid="ignore")
    def natural_gradient(self, gradient: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
        location, dispersion = self.noise_information
        information = (location, dispersion, self.noise_variance)
        return {
            name: self._dispersion.natural_mean(g) / location
            if name == "mean"
            else self._dispersion.natural(g, information)
            for name, g in self._gradients(gradient).items()
        }

    @classmethod
    def examples(cls) -> dict[str, Builder]:
        _, name = cls.domains
        center, width = cls.domains["mean"].typical, cls.domains[name].typical
        label = cls.__name__.lower()
        return {
            f"{label}-scalar": lambda n, rng: cls(rng.uniform(*center, n), rng.uniform(*width)),
            f"{label}-diagonal": lambda n, rng: cls(rng.uniform(*center, n), rng.uniform(*width, n)),
        }
