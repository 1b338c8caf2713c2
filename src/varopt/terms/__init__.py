"""Terms: functions of one real variable as data, with their expectation, derivatives, curvature, conjugate and gap.

>>> from varopt import terms
>>> hinge = terms.hinge()
>>> hinge.value([-1.0, 0.0, 2.0])
array([2., 1., 0.])
>>> print(hinge.curvature)
CONVEX
"""

from varopt.terms._composition import composed
from varopt.terms._curvature import AFFINE, CONCAVE, CONVEX, UNKNOWN, Curvature
from varopt.terms._custom import piecewise
from varopt.terms._gaussian import expectations_of
from varopt.terms._named import (
    REGISTRY,
    Declaration,
    abs_,
    capped_abs,
    clip,
    dead_zone,
    epsilon_insensitive,
    hinge,
    huber,
    mcp,
    pinball,
    pos,
    ramp,
    scad,
    square,
    squared_hinge,
    step,
    zero_one,
)
from varopt.terms._piecewise import PiecewisePolynomial

__all__ = [
    "AFFINE",
    "CONCAVE",
    "CONVEX",
    "REGISTRY",
    "UNKNOWN",
    "Curvature",
    "Declaration",
    "PiecewisePolynomial",
    "abs_",
    "capped_abs",
    "clip",
    "composed",
    "dead_zone",
    "epsilon_insensitive",
    "expectations_of",
    "hinge",
    "huber",
    "mcp",
    "piecewise",
    "pinball",
    "pos",
    "ramp",
    "scad",
    "square",
    "squared_hinge",
    "step",
    "zero_one",
]
