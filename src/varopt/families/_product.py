"""One family on each of several variables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from varopt.families._bernoulli import Bernoulli
from varopt.families._family import Builder, Family, FloatArray
from varopt.families._gaussian import Gaussian
from varopt.families._laplace import Laplace
from varopt.families._one_hot_categorical import OneHotCategorical

__all__ = ["Product"]


class Product(Family):
    """Independent variables, each with a family of its own; x is their coordinates laid end to end.

    Parameters
    ----------
    families : mapping from hashable to Family
        The family of each variable, in the order of the coordinates.

    Notes
    -----
    Parameters, scores, Fisher matrices and gradients are dictionaries by key of what the families return. A product is
    expectation affine, or has a score, if all its families are, or have.

    Examples
    --------
    >>> from varopt.families import Bernoulli, Gaussian, Product
    >>> p = Product({"weights": Gaussian([0.0, 1.0], 0.5), "bits": Bernoulli([0.25])})
    >>> p.mean
    array([0.  , 1.  , 0.25])
    >>> p.slices["bits"], p.expectation_affine
    (slice(2, 3, None), False)
    >>> p.replace({"bits": {"probability": 0.75}}).families["bits"]
    Bernoulli(probability=[0.75])
    """

    _families: Mapping[Any, Family]
    _slices: Mapping[Any, slice]
    _noise_slices: Mapping[Any, slice]

    def __init__(self, families: Mapping[Any, Family]) -> None:
        if not isinstance(families, Mapping):
            raise ValueError(f"families must be a mapping from key to Family; got {type(families).__name__}.")
        if not families:
            raise ValueError("families must not be empty.")
        for key, family in families.items():
            if not isinstance(family, Family):
                raise ValueError(f"families[{key!r}] must be a Family; got {type(family).__name__}.")
        self._assign(
            _families=MappingProxyType(dict(families)),
            _slices=MappingProxyType(_laid_out(families, lambda family: family.size)),
            _noise_slices=MappingProxyType(_laid_out(families, lambda family: family.noise_size)),
        )

    @property
    def families(self) -> Mapping[Any, Family]:
        """The families by key."""
        return self._families

    @property
    def slices(self) -> Mapping[Any, slice]:
        """Where the coordinates of each key lie in x."""
        return self._slices

    @property
    def size(self) -> int:
        return sum(family.size for family in self._families.values())

    @property
    def noise_size(self) -> int:
        return sum(family.noise_size for family in self._families.values())

    @property
    def expectation_affine(self) -> bool:
        return all(family.expectation_affine for family in self._families.values())

    @property
    def has_score(self) -> bool:
        return all(family.has_score for family in self._families.values())

    @property
    def parameters(self) -> dict[Any, dict[Any, Any]]:
        return {key: family.parameters for key, family in self._families.items()}

    def replace(self, parameters: Mapping[Any, Any] | None = None, /) -> Self:
        """A product in which some families, or some of their parameters, are replaced.

        Parameters
        ----------
        parameters : mapping
            By key, a mapping of new parameters as the family's own `replace` takes it, or a new Family.
        """
        changed = parameters or {}
        self._check_keys("parameters", changed)
        return type(self)(
            {
                key: family if key not in changed else _replaced(family, changed[key])
                for key, family in self._families.items()
            }
        )

    @property
    def mean(self) -> FloatArray:
        return np.concatenate([family.mean for family in self._families.values()])

    @property
    def variance(self) -> FloatArray:
        return np.concatenate([family.variance for family in self._families.values()])

    @property
    def mode(self) -> FloatArray:
        return np.concatenate([family.mode for family in self._families.values()])

    def entropy(self) -> float:
        return sum(family.entropy() for family in self._families.values())

    def sharpen(self, factor: float) -> Self:
        """Sharpen every family by the same `factor` in (0, 1]."""
        return type(self)({key: family.sharpen(factor) for key, family in self._families.items()})

    def from_uniform(self, u: ArrayLike) -> FloatArray:
        u = self._uniforms(u)
        return np.concatenate(
            [family.from_uniform(u[..., self._noise_slices[key]]) for key, family in self._families.items()], axis=-1
        )

    def _draw(self, n: int, rng: np.random.Generator, antithetic: bool) -> FloatArray:
        return np.concatenate([family._draw(n, rng, antithetic) for family in self._families.values()], axis=-1)

    def log_density(self, x: ArrayLike) -> FloatArray:
        # log p(x) = sum of log p_key(x_key); terms are below +inf, so no inf - inf
        return np.asarray(sum(family.log_density(part) for family, part in self._parts(x)))

    def score(self, x: ArrayLike) -> dict[Any, dict[Any, Any]]:
        parts = zip(self._families, self._parts(x), strict=True)
        return {key: family.score(part) for key, (family, part) in parts}

    def fisher(self) -> dict[Any, dict[Any, Any]]:
        return {key: family.fisher() for key, family in self._families.items()}

    def natural_gradient(self, gradient: Mapping[Any, Mapping[Any, Any]]) -> dict[Any, dict[Any, Any]]:
        self._check_keys("gradient", gradient)
        return {key: self._families[key].natural_gradient(part) for key, part in gradient.items()}

    def _parts(self, x: ArrayLike) -> Iterator[tuple[Family, FloatArray]]:
        points = self._points(x)
        return ((family, points[..., self._slices[key]]) for key, family in self._families.items())

    def _check_keys(self, argument: str, keys: Mapping[Any, Any]) -> None:
        for key in keys:
            if key not in self._families:
                accepted = ", ".join(map(repr, self._families))
                raise ValueError(f"{argument} names {key!r}, which Product does not have; accepted: {accepted}.")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        # By lookup and position: keys may be model variables, whose own == may mean something else.
        return self._slices.keys() == other._slices.keys() and all(
            other._slices[key] == self._slices[key] and other._families[key] == family
            for key, family in self._families.items()
        )

    def __hash__(self) -> int:
        return hash((type(self), *self._families.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self._families),)

    def __repr__(self) -> str:
        return f"Product({dict(self._families)!r})"

    @classmethod
    def examples(cls) -> dict[str, Builder]:
        parts: dict[str, tuple[type[Family], ...]] = {
            "product-affine": (Gaussian, Laplace),
            "product-discrete": (Bernoulli, OneHotCategorical),
            "product-mixed": (Gaussian, Bernoulli),
        }

        def builder(kinds: tuple[type[Family], ...]) -> Builder:
            def build(n: int, rng: np.random.Generator) -> Product:
                return cls({kind.__name__: next(iter(kind.examples().values()))(n, rng) for kind in kinds})

            return build

        return {name: builder(kinds) for name, kinds in parts.items()}


def _laid_out(families: Mapping[Hashable, Family], length: Callable[[Family], int]) -> dict[Hashable, slice]:
    slices, start = {}, 0
    for key, family in families.items():
        slices[key] = slice(start, start + length(family))
        start += length(family)
    return slices


def _replaced(family: Family, change: Any) -> Family:
    return change if isinstance(change, Family) else family.replace(change)
