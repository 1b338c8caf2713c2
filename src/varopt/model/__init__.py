"""Objectives: variables, affine maps of them, terms of these, and sums. Data are held by reference, never copied.

>>> import numpy as np, varopt as vo
>>> X, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0])
>>> w = vo.Variable(2, name="w")
>>> f = vo.sum_squares(y - X @ w) + 0.5 * vo.norm1(w)
>>> f([0.0, 0.0]), f.curvature.name
(2.0, 'CONVEX')
"""

from varopt.model import _numpy  # noqa: F401  (registers what NumPy's functions are)
from varopt.model._affine import Affine, Binary, Categorical, Variable, diff
from varopt.model._constraint import Constraint, as_constraints
from varopt.model._expression import Expression, flattened, ordered, slices, split, unflatten
from varopt.model._functions import (
    abs,
    capped_abs,
    clip,
    dead_zone,
    epsilon_insensitive,
    hinge,
    huber,
    mcp,
    mean,
    norm1,
    piecewise,
    pinball,
    pos,
    ramp,
    scad,
    square,
    squared_hinge,
    step,
    sum,
    sum_squares,
    zero_one,
)
from varopt.model._objective import Elementwise, Objective, as_objective
from varopt.model._parameter import Parameter, Parametric
from varopt.model._polynomial import Polynomial, as_polynomial
from varopt.model._vector_functions import concatenate, cvar, max, norm2, norm_inf, quad_form, sum_largest

__all__ = [
    "Affine",
    "Binary",
    "Categorical",
    "Constraint",
    "Elementwise",
    "Expression",
    "Objective",
    "Parameter",
    "Parametric",
    "Polynomial",
    "Variable",
    "abs",
    "as_constraints",
    "as_objective",
    "as_polynomial",
    "capped_abs",
    "clip",
    "concatenate",
    "cvar",
    "dead_zone",
    "diff",
    "epsilon_insensitive",
    "flattened",
    "hinge",
    "huber",
    "max",
    "mcp",
    "mean",
    "norm1",
    "norm2",
    "norm_inf",
    "ordered",
    "piecewise",
    "pinball",
    "pos",
    "quad_form",
    "ramp",
    "scad",
    "slices",
    "split",
    "square",
    "squared_hinge",
    "step",
    "sum",
    "sum_largest",
    "sum_squares",
    "unflatten",
    "zero_one",
]
