"""Interior points for sparse and banded problems."""

from varopt.solvers.interior_point._interior_point import InteriorPoint

__all__ = ["InteriorPoint"]
