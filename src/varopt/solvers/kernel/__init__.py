"""Kernel machines: an exact finish, and its proof."""

from varopt.solvers.kernel._kernel_machine import KernelProblem, solve_kernel
from varopt.solvers.kernel._proof import Enclosed, balanced_coefficients, is_beyond, proved_bracket
from varopt.solvers.kernel._refinement import best_intercept, refinement

__all__ = [
    "Enclosed",
    "KernelProblem",
    "balanced_coefficients",
    "best_intercept",
    "is_beyond",
    "proved_bracket",
    "refinement",
    "solve_kernel",
]
