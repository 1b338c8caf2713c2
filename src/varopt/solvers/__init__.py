"""Solvers: the methods, which of them suits a problem, and the state that they lower the bracket of."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.solvers._method import Check, GaveUp, Method, Nested, Solver, State, Way
from varopt.solvers._select import METHODS, Auto
from varopt.solvers._stopped import settle
from varopt.solvers.descent import Geometric, Newton, Program, Schedule
from varopt.solvers.finish import PenalisedMinimum, exact_minimum, is_small, penalised_minimum
from varopt.solvers.lasso import Pivoting
from varopt.solvers.reductions import Orthogonal, Reduction
from varopt.solvers.signals import TautString

if TYPE_CHECKING:
    from varopt.solvers.augmented_lagrangian import Multipliers
    from varopt.solvers.descent import LBFGS, Adaptive, Cooling, DiagonalNewton, Every, GroupNewton
    from varopt.solvers.interior_point import InteriorPoint
    from varopt.solvers.lasso import BlockDescent, interior_along, pivoted_along
    from varopt.solvers.nonconvex import Graduated
    from varopt.solvers.reductions import LowRank, Range, WorkingSet
    from varopt.solvers.signals import Knots

# What problems of a few dozen variables are asked about, or solved by, is here; the others are loaded when a problem
# comes to them. Paths of penalties are asked for by estimators that choose one.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "Graduated": "varopt.solvers.nonconvex",
        "InteriorPoint": "varopt.solvers.interior_point",
        "Knots": "varopt.solvers.signals",
        "Multipliers": "varopt.solvers.augmented_lagrangian",
    }
    | dict.fromkeys(("BlockDescent", "interior_along", "pivoted_along"), "varopt.solvers.lasso")
    | dict.fromkeys(
        ("LBFGS", "Adaptive", "Cooling", "DiagonalNewton", "Every", "GroupNewton"), "varopt.solvers.descent"
    )
    | dict.fromkeys(("LowRank", "Range", "WorkingSet"), "varopt.solvers.reductions"),
)

__all__ = [
    "LBFGS",
    "METHODS",
    "Adaptive",
    "Auto",
    "BlockDescent",
    "Check",
    "Cooling",
    "DiagonalNewton",
    "Every",
    "GaveUp",
    "Geometric",
    "Graduated",
    "GroupNewton",
    "InteriorPoint",
    "Knots",
    "LowRank",
    "Method",
    "Multipliers",
    "Nested",
    "Newton",
    "Orthogonal",
    "PenalisedMinimum",
    "Pivoting",
    "Program",
    "Range",
    "Reduction",
    "Schedule",
    "Solver",
    "State",
    "TautString",
    "Way",
    "WorkingSet",
    "exact_minimum",
    "interior_along",
    "is_small",
    "penalised_minimum",
    "pivoted_along",
    "settle",
]
