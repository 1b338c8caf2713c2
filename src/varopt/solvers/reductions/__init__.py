"""Reductions: a smaller problem whose answer is lifted back."""

from varopt.solvers.reductions._low_rank import LowRank
from varopt.solvers.reductions._orthogonal import Orthogonal
from varopt.solvers.reductions._reduction import Lifted, Reduction, Smaller
from varopt.solvers.reductions._row_space import Range
from varopt.solvers.reductions._working_set import WorkingSet

__all__ = ["Lifted", "LowRank", "Orthogonal", "Range", "Reduction", "Smaller", "WorkingSet"]
