"""The method of multipliers for sparse rows and a ridge."""

from varopt.solvers.augmented_lagrangian._multipliers import Multipliers

__all__ = ["Multipliers"]
