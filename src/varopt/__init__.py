"""Optimise what gradients cannot reach by descending a differentiable bound on the optimum, and bracket the answer.

>>> import numpy as np
>>> import varopt as vo
>>> w = vo.Variable(3, name="w")
>>> X, y = np.eye(3), np.array([1.0, 0.0, -2.0])
>>> f = vo.sum_squares(y - X @ w) + 0.5 * vo.norm1(w)          # any loss, any penalty
>>> E = vo.bound(f, vo.Gaussian(np.zeros(3), 0.1))             # E(theta) = <f(x)>, differentiable
>>> f(np.zeros(3)) <= E.value, bool(E.convex)
(True, True)
>>> r = vo.minimize(f)                                         # descend E while sigma falls, then finish exactly
>>> r[w], bool(r.lower <= r.fun <= r.upper), r.status.name
(array([ 0.75,  0.  , -1.75]), True, 'OPTIMAL')
"""

from varopt import bounds, certificates, families, model, solvers, terms
from varopt._version import __version__
from varopt.bounds import bound, sigma_for
from varopt.families import Bernoulli, Gaussian, Laplace, Logistic, Product, Uniform
from varopt.model import (
    Binary,
    Categorical,
    Parameter,
    Variable,
    abs,
    capped_abs,
    clip,
    dead_zone,
    diff,
    epsilon_insensitive,
    hinge,
    huber,
    mcp,
    norm1,
    norm2,
    piecewise,
    pinball,
    pos,
    quad_form,
    ramp,
    scad,
    square,
    squared_hinge,
    step,
    sum,
    sum_squares,
    zero_one,
)
from varopt.optimize import Result, ResultPath, Status, maximize, minimize, path
from varopt.terms import AFFINE, CONCAVE, CONVEX, UNKNOWN, Curvature

__all__ = [
    "AFFINE",
    "CONCAVE",
    "CONVEX",
    "UNKNOWN",
    "Bernoulli",
    "Binary",
    "Categorical",
    "Curvature",
    "Gaussian",
    "Laplace",
    "Logistic",
    "Parameter",
    "Product",
    "Result",
    "ResultPath",
    "Status",
    "Uniform",
    "Variable",
    "__version__",
    "abs",
    "bound",
    "bounds",
    "capped_abs",
    "certificates",
    "clip",
    "dead_zone",
    "diff",
    "epsilon_insensitive",
    "families",
    "hinge",
    "huber",
    "maximize",
    "mcp",
    "minimize",
    "model",
    "norm1",
    "norm2",
    "path",
    "piecewise",
    "pinball",
    "pos",
    "quad_form",
    "ramp",
    "scad",
    "sigma_for",
    "solvers",
    "square",
    "squared_hinge",
    "step",
    "sum",
    "sum_squares",
    "terms",
    "zero_one",
]
