"""Families p(x|theta) over which the bound E(theta) = <f(x)>_{p(x|theta)} is taken.

`Gaussian`, `Uniform`, `Laplace` and `Logistic` are location-scale, hence expectation affine: with them a convex f has
a convex bound (Theorem 1 of the paper, SB12). `Bernoulli` and `Categorical` turn bits and choices into probabilities.
`Product` puts one family on each of several variables.

SB12: J. Staines and D. Barber, *Variational Optimization*, arXiv:1212.4507, 2012.
"""

from __future__ import annotations

from varopt.families._bernoulli import Bernoulli
from varopt.families._categorical import Categorical
from varopt.families._family import Family
from varopt.families._gaussian import Gaussian
from varopt.families._laplace import Laplace
from varopt.families._location_scale import LocationScale
from varopt.families._logistic import Logistic
from varopt.families._product import Product
from varopt.families._registry import REGISTRY
from varopt.families._uniform import Uniform

__all__ = [
    "REGISTRY",
    "Bernoulli",
    "Categorical",
    "Family",
    "Gaussian",
    "Laplace",
    "LocationScale",
    "Logistic",
    "Product",
    "Uniform",
]
