"""Solvers: the composite form, the one loop and its schedules, the methods, and the crossover to the exact optimum."""

from varopt.solvers._block_descent import BlockDescent
from varopt.solvers._choose import METHODS, choose
from varopt.solvers._composite import Composite, NotComposite, composite, shared_rows
from varopt.solvers._diagonal_newton import DiagonalNewton
from varopt.solvers._graduated import Graduated
from varopt.solvers._group_newton import GroupNewton
from varopt.solvers._interior_point import InteriorPoint
from varopt.solvers._knots import Knots
from varopt.solvers._lbfgs import LBFGS
from varopt.solvers._low_rank import LowRank
from varopt.solvers._method import Method
from varopt.solvers._multipliers import Multipliers
from varopt.solvers._newton import Newton
from varopt.solvers._pivoting import Pivoting, pivoted_along
from varopt.solvers._program import Program
from varopt.solvers._range import Range
from varopt.solvers._recession import falls_for_ever
from varopt.solvers._schedules import Adaptive, Every, Geometric, Schedule
from varopt.solvers._settle import floor, rests, settle
from varopt.solvers._state import Check, State
from varopt.solvers._taut_string import TautString
from varopt.solvers._working_set import WorkingSet

__all__ = [
    "LBFGS",
    "METHODS",
    "Adaptive",
    "BlockDescent",
    "Check",
    "Composite",
    "DiagonalNewton",
    "Every",
    "Geometric",
    "Graduated",
    "GroupNewton",
    "InteriorPoint",
    "Knots",
    "LowRank",
    "Method",
    "Multipliers",
    "Newton",
    "NotComposite",
    "Pivoting",
    "Program",
    "Range",
    "Schedule",
    "State",
    "TautString",
    "WorkingSet",
    "choose",
    "composite",
    "falls_for_ever",
    "floor",
    "pivoted_along",
    "rests",
    "settle",
    "shared_rows",
]
