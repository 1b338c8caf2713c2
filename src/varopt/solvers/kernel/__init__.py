"""Kernel machines: an exact finish, and its proof."""

from varopt.solvers.kernel._kernel_machine import KernelProblem, solve_kernel

__all__ = ["KernelProblem", "solve_kernel"]
