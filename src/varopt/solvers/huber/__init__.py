"""Huber's regression: coefficients, intercept and the scale of the residuals in one convex problem."""

from varopt.solvers.huber._joint_newton import JointNewton
from varopt.solvers.huber._problem import HuberProblem, Overflow
from varopt.solvers.huber._solve import ScaleSearch, solve_huber, solve_huber_held

__all__ = ["HuberProblem", "JointNewton", "Overflow", "ScaleSearch", "solve_huber", "solve_huber_held"]
