"""Bounds: the expectation of an objective under a family, with its derivatives, by closed form, quadrature or sampling."""

from varopt.bounds._analytic import NoClosedForm
from varopt.bounds._bound import Bound, Gradient, Verdict, bound
from varopt.bounds._sigma import sigma_for

__all__ = ["Bound", "Gradient", "NoClosedForm", "Verdict", "bound", "sigma_for"]
