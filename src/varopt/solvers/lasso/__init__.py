"""Quadratics with a kink for each variable or a norm for each group: pivoting, and blocks of variables."""

from varopt.solvers.lasso._along import pivoted_along
from varopt.solvers.lasso._block_descent import BlockDescent
from varopt.solvers.lasso._group_descent import GroupDescent
from varopt.solvers.lasso._interior_along import interior_along
from varopt.solvers.lasso._pivoting import Pivoting

__all__ = ["BlockDescent", "GroupDescent", "Pivoting", "interior_along", "pivoted_along"]
