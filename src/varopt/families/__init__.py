"""Families p(x|theta) over which the bound E(theta) = <f(x)>_{p(x|theta)} is taken.

`Gaussian`, `Uniform`, `Laplace` and `Logistic` are location-scale, hence expectation affine: with them a convex f has
a convex bound (Theorem 1 of the paper, SB12). `Bernoulli` and `OneHotCategorical` turn bits and choices into
probabilities. `Product` puts one family on each of several variables. Those are the distributions: the sampled
updates of `varopt.solvers.natural_gradient` draw from them, a `RootedGaussian` where they keep axes of their own.

Of one's own: `AffineFamily` takes any noise and an affine map; whatever object samples itself is a family for sampled
bounds (`as_family`).

``Categorical`` is `OneHotCategorical` by its older name, which `varopt.Categorical`, the variable, has too.

SB12: J. Staines and D. Barber, *Variational Optimization*, arXiv:1212.4507, 2012.
"""

from __future__ import annotations

from varopt.families._affine import AffineFamily
from varopt.families._bernoulli import Bernoulli
from varopt.families._family import Family
from varopt.families._gaussian import Gaussian, RootedGaussian
from varopt.families._laplace import Laplace
from varopt.families._location_scale import LocationScale
from varopt.families._logistic import Logistic
from varopt.families._one_hot_categorical import OneHotCategorical
from varopt.families._own import OwnFamily, as_family, name_of
from varopt.families._product import Product
from varopt.families._registry import REGISTRY
from varopt.families._uniform import Uniform

Categorical = OneHotCategorical

__all__ = [
    "REGISTRY",
    "AffineFamily",
    "Bernoulli",
    "Categorical",
    "Family",
    "Gaussian",
    "Laplace",
    "LocationScale",
    "Logistic",
    "OneHotCategorical",
    "OwnFamily",
    "Product",
    "RootedGaussian",
    "Uniform",
    "as_family",
    "name_of",
]
