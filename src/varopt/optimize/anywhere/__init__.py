"""Minimisation of sums over rows that are not in memory."""

from varopt.optimize.anywhere._memory import bytes_of
from varopt.optimize.anywhere._minimize import METHOD, minimize_stored

__all__ = ["METHOD", "bytes_of", "minimize_stored"]
