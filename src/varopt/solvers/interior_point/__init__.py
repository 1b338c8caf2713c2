"""Interior points: for sparse and banded problems, and for norms of anything."""

from varopt.solvers.interior_point._conic import Conic
from varopt.solvers.interior_point._interior_point import InteriorPoint

__all__ = ["Conic", "InteriorPoint"]
