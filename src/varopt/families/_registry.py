"""Every family, with builders of random instances: tests and documentation are parametrised over it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from varopt.families._affine import AffineFamily
from varopt.families._bernoulli import Bernoulli
from varopt.families._family import Builder, Family
from varopt.families._gaussian import Gaussian, RootedGaussian
from varopt.families._laplace import Laplace
from varopt.families._logistic import Logistic
from varopt.families._one_hot_categorical import OneHotCategorical
from varopt.families._product import Product
from varopt.families._uniform import Uniform

__all__ = ["REGISTRY"]

_FAMILIES: tuple[type[Family], ...] = (
    AffineFamily,
    Gaussian,
    RootedGaussian,
    Uniform,
    Laplace,
    Logistic,
    Bernoulli,
    OneHotCategorical,
    Product,
)

REGISTRY: Mapping[str, Builder] = MappingProxyType(
    {name: build for family in _FAMILIES for name, build in family.examples().items()}
)
"""Builders by name: ``REGISTRY["gaussian-cholesky"](n, rng)`` is a random valid family of n coordinates or blocks."""
