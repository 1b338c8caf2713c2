"""Bits and choices: annealing with recombination, elimination, relaxations, branch and bound.

An `Energy` is the normal form. `search` finds points, `bounds` says what none of them falls below, `proofs` closes the
bracket, and `solve` says in which order they come.
"""

from varopt.solvers.discrete._conversion import NotPolynomial, energy_of, model_energy
from varopt.solvers.discrete._energy import BIT, NEGATED, SPIN, Energy, Products
from varopt.solvers.discrete._pool import Collector, SolutionPool
from varopt.solvers.discrete._rounding import added_rounding, doubles, lost_by_converting, lost_of_repeated
from varopt.solvers.discrete._solve import SEARCHES, RunEnded, solve
from varopt.solvers.discrete.search import (
    GeometricTemperature,
    LinearTemperature,
    MeanFieldDescent,
    NaturalGradientDescent,
    ProjectedGradientDescent,
    SampledDescent,
    Sweeper,
    anneal,
    is_symmetric,
    population_search,
    typical_field,
)

__all__ = [
    "BIT",
    "NEGATED",
    "SEARCHES",
    "SPIN",
    "Collector",
    "Energy",
    "GeometricTemperature",
    "LinearTemperature",
    "MeanFieldDescent",
    "NaturalGradientDescent",
    "NotPolynomial",
    "Products",
    "ProjectedGradientDescent",
    "RunEnded",
    "SampledDescent",
    "SolutionPool",
    "Sweeper",
    "added_rounding",
    "anneal",
    "doubles",
    "energy_of",
    "is_symmetric",
    "lost_by_converting",
    "lost_of_repeated",
    "model_energy",
    "population_search",
    "solve",
    "typical_field",
]
