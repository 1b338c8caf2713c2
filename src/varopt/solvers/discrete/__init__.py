"""Bits and choices: annealing with recombination, elimination, relaxations, branch and bound."""

from varopt.solvers.discrete._distributions import MeanField, NaturalGradient, ProjectedGradient, Sampled
from varopt.solvers.discrete._energy import BIT, NEGATED, SPIN, Energy, NotPolynomial, Products, energy_of
from varopt.solvers.discrete._free_energy import Geometric, Linear, anneal, typical_field
from varopt.solvers.discrete._population import search
from varopt.solvers.discrete._solve import SEARCHES, Outcome, solve
from varopt.solvers.discrete._sweeps import Sweeper

__all__ = [
    "BIT",
    "NEGATED",
    "SEARCHES",
    "SPIN",
    "Energy",
    "Geometric",
    "Linear",
    "MeanField",
    "NaturalGradient",
    "NotPolynomial",
    "Outcome",
    "Products",
    "ProjectedGradient",
    "Sampled",
    "Sweeper",
    "anneal",
    "energy_of",
    "search",
    "solve",
    "typical_field",
]
