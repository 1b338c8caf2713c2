"""Noise of one's own and an affine map: x = mean + A z."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from varopt._domains import POSITIVE, REAL, Domain, as_finite
from varopt.families._dispersion import Dispersion, as_dispersion
from varopt.families._family import FloatArray, as_vector, with_last_axis
from varopt.families._gaussian import Gaussian
from varopt.families._location_scale import LocationScale

__all__ = ["AffineFamily", "NoiseLaw"]

# Probabilities at which a law is compared with its mirror image.
_MIRRORED = np.array([1e-6, 1e-3, 0.02, 0.1, 0.25, 0.4])
_DIFFERENCE_STEP = 1e-5  # of the difference that stands for the derivative of a log-density


class NoiseLaw:
    """The law of one coordinate of z: that of a distribution, moved and scaled to mean zero and variance one.

    Parameters
    ----------
    distribution : object
        With ``ppf``, ``logpdf``, ``cdf``, ``mean``, ``var`` and ``support``: a frozen continuous distribution of
        `scipy.stats`, or one's own.
    """

    noise_variance = 1.0

    def __init__(self, distribution: Any) -> None:
        lacking = [name for name in ("ppf", "logpdf", "cdf", "mean", "var", "support")
                   if not callable(getattr(distribution, name, None))]  # fmt: skip
        if lacking:
            raise ValueError(
                "noise must be a continuous distribution with ppf, logpdf, cdf, mean, var and support, such as "
                f"scipy.stats.gamma(2.0); {type(distribution).__name__} has no {', '.join(lacking)}."
            )
        self.distribution = distribution
        self.centre, variance = float(distribution.mean()), float(distribution.var())
        if not (math.isfinite(self.centre) and 0.0 < variance < math.inf):
            raise ValueError(f"noise must have a mean and a positive variance; got {self.centre} and {variance}.")
        self.unit = math.sqrt(variance)
        low, high = (float(end) for end in distribution.support())
        self.noise_support = ((low - self.centre) / self.unit, (high - self.centre) / self.unit)

    @property
    def has_score(self) -> bool:
        """Whether the support stays where it is when the parameters move."""
        return not any(math.isfinite(end) for end in self.noise_support)

    @cached_property
    def noise_symmetric(self) -> bool:
        """Whether -z is distributed as z is."""
        return bool(
            np.allclose(self.noise_quantile(_MIRRORED), -self.noise_quantile(1.0 - _MIRRORED), rtol=1e-9, atol=1e-9)
        )

    def noise_log_density(self, z: Any) -> FloatArray:
        """Log q(z)."""
        raw = self.centre + self.unit * np.asarray(z, dtype=np.float64)
        return np.asarray(self.distribution.logpdf(raw) + math.log(self.unit))

    def noise_density(self, z: Any) -> FloatArray:
        """q(z)."""
        return np.exp(self.noise_log_density(z))

    def noise_score(self, z: Any) -> FloatArray:
        """``-d log q / dz``, by a central difference: about ten digits."""
        z = np.asarray(z, dtype=np.float64)
        step = _DIFFERENCE_STEP * np.maximum(np.abs(z), 1.0)
        return np.asarray((self.noise_log_density(z - step) - self.noise_log_density(z + step)) / (2.0 * step))

    def noise_cdf(self, z: Any) -> FloatArray:
        """Probability of at most z."""
        return np.asarray(self.distribution.cdf(self.centre + self.unit * np.asarray(z, dtype=np.float64)))

    def noise_quantile(self, u: Any) -> FloatArray:
        """Inverse of `noise_cdf`."""
        return np.asarray((self.distribution.ppf(u) - self.centre) / self.unit, dtype=np.float64)

    @cached_property
    def noise_entropy(self) -> float:
        """``-<log q>``."""
        return -self._average(self.noise_log_density)

    @cached_property
    def noise_information(self) -> tuple[float, float]:
        """``<psi^2>`` and ``<(psi z - 1)^2>``."""
        return (
            self._average(lambda z: self.noise_score(z) ** 2),
            self._average(lambda z: (self.noise_score(z) * z - 1.0) ** 2),
        )

    def _average(self, function: Any) -> float:
        from scipy.integrate import quad

        return float(quad(lambda u: float(function(self.noise_quantile(u))), 0.0, 1.0, limit=200)[0])


class Rectangular:
    """S = A, any matrix of shape (size, latent): x lies in the plane that its columns span."""

    kind: ClassVar[str] = "rectangular"

    def __init__(self, scale: FloatArray) -> None:
        self.scale = scale

    def apply(self, z: FloatArray) -> FloatArray:
        return z @ self.scale.T

    def solve(self, d: FloatArray) -> FloatArray:
        flat = np.linalg.lstsq(self.scale, d.reshape(-1, d.shape[-1]).T, rcond=None)[0].T
        return np.asarray(flat.reshape(*d.shape[:-1], self.scale.shape[1]))

    def squared_rows(self) -> FloatArray:
        return np.asarray((self.scale**2).sum(axis=-1))

    def covariance(self) -> FloatArray:
        return self.scale @ self.scale.T

    def pullback(self, z: FloatArray, g: FloatArray) -> FloatArray:
        return g[..., :, None] * z[..., None, :]


class AffineFamily(LocationScale):
    """x = mean + A z with independent noise z of a law of one's own: expectation affine, as Theorem 1 of [SB12] asks.

    Parameters
    ----------
    mean : float or array of shape (size,)
        Mean of x.
    factor : float, array of shape (size,) or of shape (size, latent)
        A: a positive number or vector multiplies z coordinate by coordinate; a matrix of any shape maps `latent`
        coordinates of noise to x, as of low rank.
    noise : distribution, optional
        The law of every coordinate of z, moved and scaled to mean zero and variance one, so that x has covariance A A':
        a frozen continuous distribution of `scipy.stats`, or an object with the same ``ppf``, ``logpdf``, ``cdf``,
        ``mean``, ``var`` and ``support``. It need not be symmetric. Standard normal by default.

    Notes
    -----
    Gaussian noise has closed forms for whatever A. Other noise goes by quadrature where every row depends on one
    coordinate of z, and by sampling; gradients are reparameterised. There is a score where A is no matrix and the
    support of the noise is the whole line. Antithetic pairs are made from uniforms u and 1 - u, which is right for a
    noise that is not symmetric too.

    Examples
    --------
    >>> import numpy as np, scipy.stats, varopt as vo
    >>> p = vo.families.AffineFamily([1.0, 2.0, 3.0], [[1.0], [1.0], [0.0]])       # on a line
    >>> p.covariance
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 0.]])
    >>> w = vo.Variable(1)
    >>> E = vo.bound(vo.norm1(w), vo.families.AffineFamily([0.0], 1.0, scipy.stats.expon()), method="quadrature")
    >>> print(f"{E.value:.6f}, {E.convex}")                                  # <|e - 1|> = 2 / exp(1)
    0.735759, yes: Theorem 1: f is convex and the family is expectation affine
    """

    domains: ClassVar[Mapping[str, Domain]] = MappingProxyType({"mean": REAL, "factor": POSITIVE})

    _noise: NoiseLaw | None

    def __init__(self, mean: ArrayLike, factor: ArrayLike, noise: Any = None) -> None:
        center = as_vector("mean", mean, REAL)
        law = noise if noise is None or isinstance(noise, NoiseLaw) else NoiseLaw(noise)
        scale = np.array(as_finite("factor", factor), dtype=np.float64)
        dispersion: Dispersion | Rectangular
        if scale.ndim < 2:
            dispersion = as_dispersion("factor", scale, POSITIVE, center.size, cholesky=False)
        else:
            if scale.ndim > 2 or scale.shape[0] != center.size or scale.shape[1] == 0:
                raise ValueError(
                    f"factor must be a number, a vector of {center.size} or a matrix of {center.size} rows to match "
                    f"mean; got shape {scale.shape}."
                )
            scale.flags.writeable = False
            dispersion = Rectangular(scale)
        self._declare(mean=center, factor=dispersion.scale)
        self._assign(_dispersion=dispersion, _noise=law)

    # The law of the noise ------------------------------------------------------------------------------------------

    @property
    def law(self) -> Any:
        return Gaussian if self._noise is None else self._noise

    @property
    def is_gaussian(self) -> bool:
        """Whether the noise is normal, so that closed forms hold."""
        return self._noise is None

    @property
    def noise_symmetric(self) -> bool:  # type: ignore[override]
        return bool(self.law.noise_symmetric)

    @property
    def noise_variance(self) -> float:  # type: ignore[override]
        return 1.0

    @property
    def noise_entropy(self) -> float:  # type: ignore[override]
        return float(self.law.noise_entropy)

    @property
    def noise_information(self) -> tuple[float, float]:  # type: ignore[override]
        return self.law.noise_information  # type: ignore[no-any-return]

    @property
    def noise_support(self) -> tuple[float, float]:  # type: ignore[override]
        return self.law.noise_support  # type: ignore[no-any-return]

    @property
    def has_score(self) -> bool:  # type: ignore[override]
        return self._arrays["factor"].ndim < 2 and bool(self.law.has_score)

    def noise_log_density(self, z: FloatArray) -> FloatArray:  # type: ignore[override]
        return self.law.noise_log_density(z)  # type: ignore[no-any-return]

    def noise_score(self, z: FloatArray) -> FloatArray:  # type: ignore[override]
        return self.law.noise_score(z)  # type: ignore[no-any-return]

    def noise_cdf(self, z: FloatArray) -> FloatArray:  # type: ignore[override]
        return self.law.noise_cdf(z)  # type: ignore[no-any-return]

    def noise_quantile(self, u: FloatArray) -> FloatArray:  # type: ignore[override]
        return self.law.noise_quantile(u)  # type: ignore[no-any-return]

    def noise_density(self, z: ArrayLike) -> FloatArray:  # type: ignore[override]
        return self.law.noise_density(z)  # type: ignore[no-any-return]

    # Noise and points ----------------------------------------------------------------------------------------------

    @property
    def factor(self) -> FloatArray:
        """A as it was given."""
        return self.scale

    @property
    def noise_size(self) -> int:
        scale = self._arrays["factor"]
        return int(scale.shape[1]) if scale.ndim == 2 else self.size

    @np.errstate(over="ignore", invalid="ignore")
    def transform(self, z: ArrayLike) -> FloatArray:
        """X = mean + A z, for z of shape (..., noise_size)."""
        points = with_last_axis("z", as_finite("z", z), self.noise_size)
        return self._arrays["mean"] + self._dispersion.apply(points)

    @np.errstate(over="ignore", invalid="ignore")
    def pullback(self, z: ArrayLike, gradient_x: ArrayLike) -> dict[str, FloatArray]:
        """Gradient in each parameter from the gradient of f at x = `transform` (z): reparameterisation."""
        if self._arrays["factor"].ndim < 2:
            return super().pullback(z, gradient_x)
        g = with_last_axis("gradient_x", as_finite("gradient_x", gradient_x), self.size)
        points = with_last_axis("z", as_finite("z", z), self.noise_size)
        shape = np.broadcast_shapes(points.shape[:-1], g.shape[:-1])
        g = np.broadcast_to(g, (*shape, self.size))
        return {"mean": g.copy(), "factor": self._dispersion.pullback(points, g)}

    def _has_density(self) -> None:
        if self._arrays["factor"].ndim == 2:
            raise ValueError(
                "AffineFamily with a matrix has no density here, and so no score, entropy or Fisher matrix; give a "
                "number or a vector, or use Gaussian with a Cholesky factor."
            )

    def log_density(self, x: ArrayLike) -> FloatArray:
        self._has_density()
        return super().log_density(x)

    def entropy(self) -> float:
        self._has_density()
        return super().entropy()

    def score(self, x: ArrayLike) -> dict[str, FloatArray]:
        self._has_density()
        if not self.has_score:
            raise TypeError(
                "AffineFamily has no score where the support of its noise ends: the end moves with its mean."
            )
        return super().score(x)

    def fisher(self) -> dict[str, FloatArray]:
        self._has_density()
        return super().fisher()

    def natural_gradient(self, gradient: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
        self._has_density()
        return super().natural_gradient(gradient)

    # A value -------------------------------------------------------------------------------------------------------

    def replace(self, parameters: Mapping[str, ArrayLike] | None = None, /, **named: ArrayLike) -> Self:
        """The same noise with the named parameters replaced."""
        changed = {**(parameters or {}), **named}
        self._check_names("parameters", changed)
        return type(self)(**{**self._arrays, **changed}, noise=self._noise)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) is True and self._noise is other._noise  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((super().__hash__(), id(self._noise)))

    def __reduce__(self) -> tuple[Any, ...]:
        noise = None if self._noise is None else self._noise.distribution
        return type(self), (*self._arrays.values(), noise)
