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

from typing import TYPE_CHECKING

from varopt import bounds, certificates, model, solvers, terms
from varopt._elsewhere import FUNCTIONS as INSTEAD
from varopt._lazy import on_first_use
from varopt._version import __version__
from varopt.model import (
    Binary,
    Categorical,
    Parameter,
    Variable,
    abs,
    capped_abs,
    clip,
    concatenate,
    cvar,
    dead_zone,
    diff,
    epsilon_insensitive,
    hinge,
    huber,
    max,
    mcp,
    mean,
    norm1,
    norm2,
    norm_inf,
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
    sum_largest,
    sum_squares,
    zero_one,
)
from varopt.optimize import Result, Status, maximize, minimize
from varopt.terms import AFFINE, CONCAVE, CONVEX, UNKNOWN, Curvature

if TYPE_CHECKING:
    from varopt import discrete, families, learn, nn, search
    from varopt.bounds import bound, sigma_for
    from varopt.families import Bernoulli, Gaussian, Laplace, Logistic, Product, Uniform
    from varopt.nn import smooth
    from varopt.optimize import ResultPath, certify, path
    from varopt.places import rows
    from varopt.search import Boolean, Box, Choice, Integer, Permutation, Search, Space

# Black boxes bring SQLite and process pools along, estimators scikit-learn, layers what they smooth, data on disk what
# reads them; a family is only needed for a bound of one's own. What `minimize` runs is loaded at once: else the first
# solve would take as long as ten.
_HOMES = {
    "varopt.bounds": ("bound", "sigma_for"),
    "varopt.families": ("Bernoulli", "Gaussian", "Laplace", "Logistic", "Product", "Uniform"),
    "varopt.nn": ("smooth",),
    "varopt.optimize": ("ResultPath", "certify", "path"),
    "varopt.places": ("rows",),
    "varopt.search": ("Boolean", "Box", "Choice", "Integer", "Permutation", "Search", "Space"),
}
_PACKAGES = ("discrete", "families", "learn", "nn", "search")
__getattr__, __dir__ = on_first_use(
    __name__,
    {name: f"varopt.{name}" for name in _PACKAGES} | {name: home for home, names in _HOMES.items() for name in names},
    INSTEAD,
)

__all__ = [
    "AFFINE",
    "CONCAVE",
    "CONVEX",
    "UNKNOWN",
    "Bernoulli",
    "Binary",
    "Boolean",
    "Box",
    "Categorical",
    "Choice",
    "Curvature",
    "Gaussian",
    "Integer",
    "Laplace",
    "Logistic",
    "Parameter",
    "Permutation",
    "Product",
    "Result",
    "ResultPath",
    "Search",
    "Space",
    "Status",
    "Uniform",
    "Variable",
    "__version__",
    "abs",
    "bound",
    "bounds",
    "capped_abs",
    "certificates",
    "certify",
    "clip",
    "concatenate",
    "cvar",
    "dead_zone",
    "diff",
    "discrete",
    "epsilon_insensitive",
    "families",
    "hinge",
    "huber",
    "learn",
    "max",
    "maximize",
    "mcp",
    "mean",
    "minimize",
    "model",
    "nn",
    "norm1",
    "norm2",
    "norm_inf",
    "path",
    "piecewise",
    "pinball",
    "pos",
    "quad_form",
    "ramp",
    "rows",
    "scad",
    "search",
    "sigma_for",
    "smooth",
    "solvers",
    "square",
    "squared_hinge",
    "step",
    "sum",
    "sum_largest",
    "sum_squares",
    "terms",
    "zero_one",
]
