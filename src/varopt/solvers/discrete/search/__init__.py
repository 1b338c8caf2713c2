"""Searches of bits and choices: populations of replicas, annealed and recombined, and descents in probabilities."""

from varopt.solvers.discrete.search._annealing import (
    GeometricTemperature,
    LinearTemperature,
    Temperatures,
    anneal,
    typical_field,
)
from varopt.solvers.discrete.search._population import Found, population_search
from varopt.solvers.discrete.search._probability_descent import (
    DESCENTS,
    MeanFieldDescent,
    NaturalGradientDescent,
    ProbabilityDescent,
    ProjectedGradientDescent,
    SampledDescent,
)
from varopt.solvers.discrete.search._recombination import is_symmetric, recombine
from varopt.solvers.discrete.search._sweeps import Sweeper

__all__ = [
    "DESCENTS",
    "Found",
    "GeometricTemperature",
    "LinearTemperature",
    "MeanFieldDescent",
    "NaturalGradientDescent",
    "ProbabilityDescent",
    "ProjectedGradientDescent",
    "SampledDescent",
    "Sweeper",
    "Temperatures",
    "anneal",
    "is_symmetric",
    "population_search",
    "recombine",
    "typical_field",
]
