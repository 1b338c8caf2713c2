"""What is not convex: the bound descended from several starts, then exact moves."""

from varopt.solvers.nonconvex._graduated import Graduated

__all__ = ["Graduated"]
