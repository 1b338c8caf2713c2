"""Minimisation of sums over rows that are not in memory."""

from varopt.optimize.anywhere._memory import bytes_of
from varopt.optimize.anywhere._minimize import (
    METHOD,
    enclosed_stored,
    minimize_huber_stored,
    minimize_stored,
    small_part,
)

__all__ = ["METHOD", "bytes_of", "enclosed_stored", "minimize_huber_stored", "minimize_stored", "small_part"]
