"""Lower bounds on the energies of bits and choices: term by term, by linear and semidefinite relaxations, proved."""

from varopt.solvers.discrete.bounds._odd_cycles import CycleBound, OddCycles
from varopt.solvers.discrete.bounds._semidefinite import diagonal_bound, low_rank, semidefinite_bound
from varopt.solvers.discrete.bounds._smallest_eigenvalue import (
    FAILURE,
    cholesky_lower_bound,
    extreme_eigenvalues,
    factorisation_seconds,
    verified_lower_bound,
)
from varopt.solvers.discrete.bounds._spins import Spins, quadratic_minorant, spins_of
from varopt.solvers.discrete.bounds._termwise import termwise_bound
from varopt.solvers.discrete.bounds._triangle_inequalities import TriangleDual, tighten

__all__ = [
    "FAILURE",
    "CycleBound",
    "OddCycles",
    "Spins",
    "TriangleDual",
    "cholesky_lower_bound",
    "diagonal_bound",
    "extreme_eigenvalues",
    "factorisation_seconds",
    "low_rank",
    "quadratic_minorant",
    "semidefinite_bound",
    "spins_of",
    "termwise_bound",
    "tighten",
    "verified_lower_bound",
]
