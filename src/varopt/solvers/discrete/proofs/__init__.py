"""Proofs of optimality: elimination where the graph is narrow, branch and bound where the problem is small."""

from varopt.solvers.discrete.proofs._branch_and_bound import ProofProgress, branch_and_bound
from varopt.solvers.discrete.proofs._elimination import ENTRIES, eliminate, elimination_order

__all__ = ["ENTRIES", "ProofProgress", "branch_and_bound", "eliminate", "elimination_order"]
