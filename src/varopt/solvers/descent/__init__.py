"""Descents of the bound while sigma falls: the one loop, its schedules, and the methods that step on a bound."""

from varopt.solvers.descent._diagonal_newton import DiagonalNewton
from varopt.solvers.descent._group_newton import GroupNewton
from varopt.solvers.descent._lbfgs import LBFGS
from varopt.solvers.descent._newton import Newton, Program, typical_lengths
from varopt.solvers.descent._path import Adaptive, Cooling, Every, Geometric, Path, Schedule, follow

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
