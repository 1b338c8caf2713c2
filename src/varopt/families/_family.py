"""What every family p(x|theta) can do, and the checks they share."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from varopt._domains import PROBABILITY, Domain, Seed, as_finite, as_generator

__all__ = ["SMALLEST_UNIFORM", "Builder", "Elementary", "Family", "FloatArray", "Seed"]

FloatArray: TypeAlias = NDArray[np.float64]

SHARPENING = Domain(low=0.0, high=1.0, low_open=True, typical=(0.1, 1.0))

_WRITTEN_OUT = 12  # numbers of a list that are printed one by one

# A float64 uniform is a multiple of 2^-53. Clipping to the outermost ones but 0 and 1 keeps inverse distribution
# functions finite, maps u and 1 - u to mirror images, and moves no other draw.
SMALLEST_UNIFORM = 2.0**-53


class Family(ABC):
    """A distribution p(x|theta) over points x with `size` real coordinates.

    Families are immutable values: methods that change a parameter return a new family, arrays handed out as parameters
    are read-only, and arrays handed in are copied. Two families of the same kind with the same parameters are equal.
    Numbers are float64 throughout. A result too large for float64 is infinite, without a warning.
    """

    # Facts ---------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of coordinates of x."""

    @property
    @abstractmethod
    def noise_size(self) -> int:
        """Number of uniforms that `from_uniform` turns into one x."""

    @property
    @abstractmethod
    def expectation_affine(self) -> bool:
        """Whether <f(x)>_p = <f(A(theta) z + b(theta))>_q(z) with A, b linear in theta (Theorem 1 of [SB12])."""

    @property
    @abstractmethod
    def has_score(self) -> bool:
        """Whether log p(x|theta) is differentiable in theta, so that `score` and `fisher` exist."""

    @property
    @abstractmethod
    def parameters(self) -> dict[Any, Any]:
        """The parameters by name, in declared order, as read-only arrays (nested by key for a `Product`)."""

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """<x>, of shape (size,)."""

    @property
    @abstractmethod
    def variance(self) -> FloatArray:
        """<(x_i - <x_i>)^2> of each coordinate, of shape (size,)."""

    @property
    @abstractmethod
    def mode(self) -> FloatArray:
        """A most probable point, of shape (size,)."""

    @abstractmethod
    def replace(self, parameters: Mapping[Any, Any] | None = None, /) -> Self:
        """A family of the same kind in which the named parameters are replaced."""

    @abstractmethod
    def entropy(self) -> float:
        """-<log p(x)> in nats."""

    @abstractmethod
    def sharpen(self, factor: float) -> Self:
        """The family with its dispersion reduced by `factor` in (0, 1] about the same mode.

        Entropy and total variance fall. What is multiplied is each family's own: see its `sharpen`.
        """

    # Samples -------------------------------------------------------------------------------------------------------

    def sample(self, n: int, seed: Seed = None, *, antithetic: bool = False) -> FloatArray:
        """Draw `n` independent points.

        Parameters
        ----------
        n : int
            Number of points, at least one.
        seed : int, numpy.random.Generator, numpy.random.SeedSequence or None
            A generator is used and advanced; None draws fresh entropy from the operating system.
        antithetic : bool
            Draw mirrored pairs instead, made from uniforms u and 1 - u: rows i and i + n/2 belong together, and `n`
            must be even. Each point is still distributed as p. The pairs of a location-scale family average to its
            mean; those of a choice among three or more may be positively correlated and then gain nothing.

        Returns
        -------
        ndarray of shape (n, size)
        """
        try:
            count = operator.index(n)
        except TypeError:
            raise ValueError(f"n must be a whole number of samples; got {n!r}.") from None
        if count < 1:
            raise ValueError(f"n must be at least 1; got {count}.")
        if antithetic and count % 2:
            raise ValueError(f"n must be even for antithetic pairs; got {count}.")
        return self._draw(count, as_generator(seed), antithetic)

    def _draw(self, n: int, rng: np.random.Generator, antithetic: bool) -> FloatArray:
        if not antithetic:
            return self.from_uniform(rng.random((n, self.noise_size)))
        u = rng.random((n // 2, self.noise_size))
        return self.from_uniform(np.concatenate([u, 1.0 - u]))

    @abstractmethod
    def from_uniform(self, u: ArrayLike) -> FloatArray:
        """Map uniforms to points by the inverse distribution function, for quasi-random sampling.

        Parameters
        ----------
        u : array of shape (..., noise_size)
            Numbers in [0, 1]. They are clipped to [2^-53, 1 - 2^-53], so that 0 and 1 give points inside the support.

        Returns
        -------
        ndarray of shape (..., size)
        """

    # Density -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def log_density(self, x: ArrayLike) -> FloatArray:
        """Log p(x|theta) for x of shape (..., size); a log-probability if x is discrete; -inf outside the support."""

    @abstractmethod
    def score(self, x: ArrayLike) -> dict[Any, Any]:
        """Gradient of `log_density` in each parameter, ``(..., *parameter.shape)``, for x of shape (..., size)."""

    @abstractmethod
    def fisher(self) -> dict[Any, Any]:
        """Covariance matrix of the score of each parameter, dense, over its free entries in row-major order.

        Scores of different parameters are uncorrelated in every family here, so these blocks are the whole matrix.
        Meant for small sizes and for tests: `natural_gradient` applies the inverse without forming it.
        """

    @abstractmethod
    def natural_gradient(self, gradient: Mapping[Any, Any]) -> dict[Any, Any]:
        """Solve ``fisher() @ natural = gradient`` in closed form, for each parameter named in `gradient`.

        Each gradient has shape ``(..., *parameter.shape)``, so that a batch of gradients is one call.
        """

    @classmethod
    def examples(cls) -> dict[str, Builder]:
        """Builders of random valid instances by name: what the tests of all families are parametrised over.

        A builder takes the number of independent coordinates (or blocks) and a generator.
        """
        return {}

    # A value: immutable, comparable, picklable --------------------------------------------------------------------

    def _assign(self, **attributes: Any) -> None:
        vars(self).update(attributes)  # past __setattr__; for constructors only

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: replace() returns a changed copy.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: replace() returns a changed copy.")

    # Checks --------------------------------------------------------------------------------------------------------

    def _points(self, x: ArrayLike, name: str = "x") -> FloatArray:
        return with_last_axis(name, as_finite(name, x), self.size)

    def _uniforms(self, u: ArrayLike) -> FloatArray:
        array = with_last_axis("u", PROBABILITY.validate("u", u), self.noise_size)
        return np.clip(array, SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM)


Builder: TypeAlias = Callable[[int, np.random.Generator], Family]


class Elementary(Family):
    """A family with parameter arrays of its own, as opposed to a product of families."""

    domains: ClassVar[Mapping[str, Domain]]
    """Where each parameter may lie, in declared order: read by the validation, the documentation and the tests."""

    _arrays: Mapping[str, FloatArray]

    def _declare(self, **arrays: FloatArray) -> None:
        # Owners, not views: a view of a writeable array could be made writeable again.
        owned = {name: array if array.base is None else array.copy() for name, array in arrays.items()}
        for array in owned.values():
            array.flags.writeable = False
        self._assign(_arrays=owned)

    @property
    def parameters(self) -> dict[str, FloatArray]:
        # Views of read-only arrays: the caller cannot make them writeable again.
        return {name: array.view() for name, array in self._arrays.items()}

    def replace(self, parameters: Mapping[str, ArrayLike] | None = None, /, **named: ArrayLike) -> Self:
        """A family of the same kind in which the named parameters are replaced.

        Parameters
        ----------
        parameters : mapping, optional
            New values by name; may also be given as keywords.
        **named
            New values; they win over `parameters`.
        """
        changed = {**(parameters or {}), **named}
        self._check_names("parameters", changed)
        return type(self)(**{**self._arrays, **changed})

    def _check_names(self, argument: str, names: Mapping[str, Any]) -> None:
        unknown = [name for name in names if name not in self._arrays]
        if unknown:
            accepted = ", ".join(self._arrays)
            owner = type(self).__name__
            raise ValueError(f"{argument} names {unknown[0]!r}, which {owner} does not have; accepted: {accepted}.")

    def _gradients(self, gradient: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
        self._check_names("gradient", gradient)
        checked = {}
        for name, value in gradient.items():
            array = np.asarray(as_finite(f"gradient[{name!r}]", value), dtype=np.float64)
            shape = self._arrays[name].shape
            if array.ndim < len(shape) or array.shape[array.ndim - len(shape) :] != shape:
                expected = ", ".join(map(str, ("...", *shape)))
                raise ValueError(f"gradient[{name!r}] must have shape ({expected}); got {array.shape}.")
            checked[name] = array
        return checked

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(np.array_equal(array, other._arrays[name]) for name, array in self._arrays.items())

    def __hash__(self) -> int:
        # Adding zero turns -0.0, which equals 0.0, into it.
        return hash((type(self), *((array.shape, (array + 0.0).tobytes()) for array in self._arrays.values())))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self._arrays.values())  # through the constructor, which makes them read-only again

    def __repr__(self) -> str:
        texts = (f"{name}={_in_one_line(array)}" for name, array in self._arrays.items())
        return f"{type(self).__name__}({', '.join(texts)})"


def _in_one_line(array: Any) -> str:
    """The numbers of an array, of a long one its ends, of a large matrix its shape."""
    if np.ndim(array) > 1 and np.size(array) > _WRITTEN_OUT:
        return f"<{' x '.join(map(str, np.shape(array)))} numbers>"
    text = np.array2string(np.asarray(array), separator=", ", threshold=_WRITTEN_OUT, edgeitems=2)
    return " ".join(text.split())


def as_sharpening(factor: float) -> float:
    """`factor` as a number in (0, 1]."""
    number = SHARPENING.validate("factor", factor)
    if number.ndim:
        raise ValueError(f"factor must be a number; got shape {number.shape}.")
    return float(number)


def as_vector(name: str, value: ArrayLike, domain: Domain) -> FloatArray:
    """A float64 copy of a scalar or vector as a non-empty vector inside `domain`."""
    array = np.array(domain.validate(name, value), dtype=np.float64)
    if array.ndim > 1:
        raise ValueError(f"{name} must be a scalar or a vector; got shape {array.shape}.")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty.")
    return array.reshape(-1)


def with_last_axis(name: str, array: NDArray[np.floating[Any]], size: int) -> FloatArray:
    """`array` as float64, if its last axis has `size` entries."""
    if array.ndim == 0 or array.shape[-1] != size:
        raise ValueError(f"{name} must have shape (..., {size}); got {array.shape}.")
    return array.astype(np.float64, copy=False)
