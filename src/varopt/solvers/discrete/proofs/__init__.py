"""Proofs of optimality: elimination where the graph is narrow, branch and bound or cut where it is small or sparse."""

from varopt.solvers.discrete.proofs._branch_and_bound import ProofProgress, branch_and_bound
from varopt.solvers.discrete.proofs._branch_and_cut import branch_and_cut, is_sparse
from varopt.solvers.discrete.proofs._elimination import ENTRIES, eliminate, elimination_order
from varopt.solvers.discrete.proofs._partial_states import Bounded, are_branched, partial_states

__all__ = [
    "ENTRIES",
    "Bounded",
    "ProofProgress",
    "are_branched",
    "branch_and_bound",
    "branch_and_cut",
    "eliminate",
    "elimination_order",
    "is_sparse",
    "partial_states",
]
