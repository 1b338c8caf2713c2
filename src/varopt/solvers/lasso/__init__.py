"""Quadratics with a kink for each variable or a norm for each group: pivoting, and blocks of variables."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.solvers.lasso._pivoting import Pivoting

if TYPE_CHECKING:
    from varopt.solvers.lasso._along import pivoted_along
    from varopt.solvers.lasso._block_descent import BlockDescent
    from varopt.solvers.lasso._group_descent import GroupDescent
    from varopt.solvers.lasso._interior_along import interior_along

# Blocks are for many variables or for norms; paths of penalties are asked for by estimators that choose one.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "BlockDescent": "varopt.solvers.lasso._block_descent",
        "GroupDescent": "varopt.solvers.lasso._group_descent",
        "interior_along": "varopt.solvers.lasso._interior_along",
        "pivoted_along": "varopt.solvers.lasso._along",
    },
)

__all__ = ["BlockDescent", "GroupDescent", "Pivoting", "interior_along", "pivoted_along"]
