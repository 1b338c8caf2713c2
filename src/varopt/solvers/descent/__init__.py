"""Descents of the bound while sigma falls: the one loop, its schedules, and the methods that step on a bound."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.solvers.descent._newton import Newton, Program, typical_lengths
from varopt.solvers.descent._path import Geometric, Path, Schedule, follow

if TYPE_CHECKING:
    from varopt.solvers.descent._diagonal_newton import DiagonalNewton
    from varopt.solvers.descent._group_newton import GroupNewton
    from varopt.solvers.descent._lbfgs import LBFGS
    from varopt.solvers.descent._schedules import Adaptive, Cooling, Every

# The paper's two are run where they are named, norms of groups ask for the third, and schedules are chosen by few.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "Adaptive": "varopt.solvers.descent._schedules",
        "Cooling": "varopt.solvers.descent._schedules",
        "DiagonalNewton": "varopt.solvers.descent._diagonal_newton",
        "Every": "varopt.solvers.descent._schedules",
        "GroupNewton": "varopt.solvers.descent._group_newton",
        "LBFGS": "varopt.solvers.descent._lbfgs",
    },
)

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
