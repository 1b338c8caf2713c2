"""Quadratics with a kink for each variable: pivoting, and blocks of variables."""

from varopt.solvers.lasso._block_descent import BlockDescent
from varopt.solvers.lasso._pivoting import Pivoting
from varopt.solvers.lasso._sides import pivoted_along

__all__ = ["BlockDescent", "Pivoting", "pivoted_along"]
