"""Sampled natural gradients: distributions over reals, integers, choices and orders that follow their better samples.

Each file reads like the paper of its method; all of them are the same idea, a step along the natural gradient of an
average over the distribution, with different weights for the samples and different step sizes.
"""

from varopt.solvers.natural_gradient._bounds import Bounded, reflect
from varopt.solvers.natural_gradient._categorical import Categorical, berny, pbil, umda
from varopt.solvers.natural_gradient._cma import CMA, default_population
from varopt.solvers.natural_gradient._integers import Integers
from varopt.solvers.natural_gradient._local import LocalSearch
from varopt.solvers.natural_gradient._low_rank import LowRank
from varopt.solvers.natural_gradient._product import Product
from varopt.solvers.natural_gradient._restarts import Restarts
from varopt.solvers.natural_gradient._snes import SNES
from varopt.solvers.natural_gradient._update import Gaussian, Update
from varopt.solvers.natural_gradient._weights import (
    log_weights,
    nes_utilities,
    raw_weights,
    signed_log_weights,
    truncation_weights,
)
from varopt.solvers.natural_gradient._xnes import XNES

__all__ = [
    "CMA",
    "SNES",
    "XNES",
    "Bounded",
    "Categorical",
    "Gaussian",
    "Integers",
    "LocalSearch",
    "LowRank",
    "Product",
    "Restarts",
    "Update",
    "berny",
    "default_population",
    "log_weights",
    "nes_utilities",
    "pbil",
    "raw_weights",
    "reflect",
    "signed_log_weights",
    "truncation_weights",
    "umda",
]
