"""Sampled natural gradients: rules that move families over reals, integers, choices and orders to their better samples.

Each file reads like the paper of its method; all of them are the same idea, a step along the natural gradient of an
average over a family of `varopt.families`, with different weights for the samples and different step sizes.
"""

from varopt.solvers.natural_gradient._bounded import BoundedUpdate, reflect
from varopt.solvers.natural_gradient._categorical import CategoricalUpdate, adaptive, berny, free_energy, pbil, umda
from varopt.solvers.natural_gradient._cma import CMA, default_population
from varopt.solvers.natural_gradient._integers import Integers
from varopt.solvers.natural_gradient._lm_ma_es import LMMAES
from varopt.solvers.natural_gradient._local_search import LocalSearch
from varopt.solvers.natural_gradient._product import ProductUpdate
from varopt.solvers.natural_gradient._quadratic_model import QuadraticModel
from varopt.solvers.natural_gradient._restarts import Restarts
from varopt.solvers.natural_gradient._separable import DiagonalCMA, SeparableOrNot
from varopt.solvers.natural_gradient._snes import SNES
from varopt.solvers.natural_gradient._surrogate import Allowance, SurrogateUpdate
from varopt.solvers.natural_gradient._update import FamilyUpdate, GaussianUpdate, Update
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
    "LMMAES",
    "SNES",
    "XNES",
    "Allowance",
    "BoundedUpdate",
    "CategoricalUpdate",
    "DiagonalCMA",
    "FamilyUpdate",
    "GaussianUpdate",
    "Integers",
    "LocalSearch",
    "ProductUpdate",
    "QuadraticModel",
    "Restarts",
    "SeparableOrNot",
    "SurrogateUpdate",
    "Update",
    "adaptive",
    "berny",
    "default_population",
    "free_energy",
    "log_weights",
    "nes_utilities",
    "pbil",
    "raw_weights",
    "reflect",
    "signed_log_weights",
    "truncation_weights",
    "umda",
]
