"""Bounds: expectations of an objective under a family, with derivatives, by closed form, quadrature or sampling."""

from varopt.bounds._bound import Bound, Gradient, NoClosedForm, Verdict
from varopt.bounds._composite_bound import CompositeBound
from varopt.bounds._gap import sigma_for
from varopt.bounds._methods import bound
from varopt.bounds._moving_bound import MovingBound
from varopt.bounds._noise import PointNoise, RowNoise
from varopt.bounds._points_bound import PointsBound
from varopt.bounds._target import NotFinite

__all__ = [
    "Bound",
    "CompositeBound",
    "Gradient",
    "MovingBound",
    "NoClosedForm",
    "NotFinite",
    "PointNoise",
    "PointsBound",
    "RowNoise",
    "Verdict",
    "bound",
    "sigma_for",
]
