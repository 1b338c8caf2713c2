"""Bits and choices subject to linear constraints: a search that keeps to them, and what proves its answer."""

from varopt.solvers.discrete.constrained._convexified import convexified
from varopt.solvers.discrete.constrained._enumeration import enumerated
from varopt.solvers.discrete.constrained._groups import branched
from varopt.solvers.discrete.constrained._limits import Limits, limits_of
from varopt.solvers.discrete.constrained._milp import MixedInteger, mixed_integer
from varopt.solvers.discrete.constrained._plain import plain_points
from varopt.solvers.discrete.constrained._propagation import Propagated, propagated
from varopt.solvers.discrete.constrained._tabu import searched

__all__ = [
    "Limits",
    "MixedInteger",
    "Propagated",
    "branched",
    "convexified",
    "enumerated",
    "limits_of",
    "mixed_integer",
    "plain_points",
    "propagated",
    "searched",
]
