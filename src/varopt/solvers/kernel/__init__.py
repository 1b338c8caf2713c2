"""Kernel machines: an exact finish, and its proof."""

from varopt.solvers.kernel._kernel_machine import KernelProblem, solve_kernel
from varopt.solvers.kernel._proof import balanced_coefficients, proved_bracket

__all__ = ["KernelProblem", "balanced_coefficients", "proved_bracket", "solve_kernel"]
