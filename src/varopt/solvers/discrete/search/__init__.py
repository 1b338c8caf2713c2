"""Searches of bits and choices: populations of replicas, annealed and recombined, and descents in probabilities."""

from varopt.solvers.discrete.search._annealing import (
    GeometricTemperature,
    LinearTemperature,
    Temperatures,
    anneal,
    typical_field,
)
from varopt.solvers.discrete.search._dense_sweeps import DenseSweeper
from varopt.solvers.discrete.search._enumeration import block_minimum, block_values
from varopt.solvers.discrete.search._gathered import GatheredRows
from varopt.solvers.discrete.search._population import Found, population_search
from varopt.solvers.discrete.search._probability_descent import (
    DESCENTS,
    MeanFieldDescent,
    NaturalGradientDescent,
    ProbabilityDescent,
    ProjectedGradientDescent,
    SampledDescent,
)
from varopt.solvers.discrete.search._recombination import is_symmetric, largest_cluster, recombine
from varopt.solvers.discrete.search._sweeps import Sweeper, whole_number_type
from varopt.solvers.discrete.search._tabu_walk import TabuWalk

__all__ = [
    "DESCENTS",
    "DenseSweeper",
    "Found",
    "GatheredRows",
    "GeometricTemperature",
    "LinearTemperature",
    "MeanFieldDescent",
    "NaturalGradientDescent",
    "ProbabilityDescent",
    "ProjectedGradientDescent",
    "SampledDescent",
    "Sweeper",
    "TabuWalk",
    "Temperatures",
    "anneal",
    "block_minimum",
    "block_values",
    "is_symmetric",
    "largest_cluster",
    "population_search",
    "recombine",
    "typical_field",
    "whole_number_type",
]
