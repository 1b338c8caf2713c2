"""Descents of the bound while sigma falls: the one loop, its schedules, and the methods that step on a bound."""

from varopt.solvers.descent._diagonal_newton import DiagonalNewton
from varopt.solvers.descent._group_newton import GroupNewton
from varopt.solvers.descent._lbfgs import LBFGS
from varopt.solvers.descent._loop import Path, follow
from varopt.solvers.descent._newton import Newton
from varopt.solvers.descent._newton_level import typical_lengths
from varopt.solvers.descent._program import Program
from varopt.solvers.descent._schedules import Adaptive, Cooling, Every, Geometric, Schedule

__all__ = [
    "LBFGS",
    "Adaptive",
    "Cooling",
    "DiagonalNewton",
    "Every",
    "Geometric",
    "GroupNewton",
    "Newton",
    "Path",
    "Program",
    "Schedule",
    "follow",
    "typical_lengths",
]
