"""Bits with a bracket: Max-Cut, MAX-SAT, QUBO, Ising and pseudo-Boolean problems, and readers of their files.

>>> from varopt.discrete import max_cut
>>> r = max_cut([[0, 1, 1], [1, 0, 1], [1, 1, 0]])    # a triangle: two of its three edges can be cut
>>> r.fun, r.upper, r.status.name
(2.0, 2.0, 'PROVED')
"""

from varopt.discrete._labels import LabelledResult
from varopt.discrete._opb import PseudoBoolean, pseudo_boolean, read_opb, write_opb
from varopt.discrete._problems import ising, max_cut, max_sat, qubo
from varopt.discrete._readers import Formula, first_words, read_cnf, read_dimacs, read_edges, read_gset, read_qubo
from varopt.discrete._writers import write_cnf, write_gset, write_qubo

__all__ = [
    "Formula",
    "LabelledResult",
    "PseudoBoolean",
    "first_words",
    "ising",
    "max_cut",
    "max_sat",
    "pseudo_boolean",
    "qubo",
    "read_cnf",
    "read_dimacs",
    "read_edges",
    "read_gset",
    "read_opb",
    "read_qubo",
    "write_cnf",
    "write_gset",
    "write_opb",
    "write_qubo",
]
