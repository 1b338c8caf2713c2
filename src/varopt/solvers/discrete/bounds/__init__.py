"""Lower bounds on the energies of bits and choices: term by term, and semidefinite relaxations with their proofs."""

from varopt.solvers.discrete.bounds._semidefinite import diagonal_bound, low_rank, semidefinite_bound
from varopt.solvers.discrete.bounds._smallest_eigenvalue import (
    FAILURE,
    cholesky_lower_bound,
    extreme_eigenvalues,
    verified_lower_bound,
)
from varopt.solvers.discrete.bounds._spins import Spins, quadratic_minorant, spins_of
from varopt.solvers.discrete.bounds._termwise import termwise_bound
from varopt.solvers.discrete.bounds._triangle_inequalities import TriangleDual, tighten

__all__ = [
    "FAILURE",
    "Spins",
    "TriangleDual",
    "cholesky_lower_bound",
    "diagonal_bound",
    "extreme_eigenvalues",
    "low_rank",
    "quadratic_minorant",
    "semidefinite_bound",
    "spins_of",
    "termwise_bound",
    "tighten",
    "verified_lower_bound",
]
