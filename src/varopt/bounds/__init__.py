"""Bounds: expectations of an objective under a family, with derivatives, by closed form, quadrature or sampling."""

from varopt.bounds._bound import Bound, Gradient, NoClosedForm, Verdict
from varopt.bounds._methods import bound
from varopt.bounds._sigma import sigma_for

__all__ = ["Bound", "Gradient", "NoClosedForm", "Verdict", "bound", "sigma_for"]
