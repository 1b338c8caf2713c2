"""Reductions: a smaller problem whose answer is lifted back."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.solvers.reductions._orthogonal import Orthogonal
from varopt.solvers.reductions._reduction import Lifted, Reduction, Smaller

if TYPE_CHECKING:
    from varopt.solvers.reductions._low_rank import LowRank
    from varopt.solvers.reductions._row_space import Range
    from varopt.solvers.reductions._working_set import WorkingSet

# Few variables are not worth making fewer.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "LowRank": "varopt.solvers.reductions._low_rank",
        "Range": "varopt.solvers.reductions._row_space",
        "WorkingSet": "varopt.solvers.reductions._working_set",
    },
)

__all__ = ["Lifted", "LowRank", "Orthogonal", "Range", "Reduction", "Smaller", "WorkingSet"]
