"""Bounds: expectations of an objective under a family, with derivatives, by closed form, quadrature or sampling."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.bounds._bound import Bound, Gradient, NoClosedForm, Verdict
from varopt.bounds._composite_bound import CompositeBound
from varopt.bounds._noise import PointNoise, RowNoise

if TYPE_CHECKING:
    from varopt.bounds._gap import sigma_for
    from varopt.bounds._methods import bound
    from varopt.bounds._moving_bound import MovingBound
    from varopt.bounds._points_bound import PointsBound
    from varopt.bounds._target import NotFinite

# What most solvers step on is here; bounds under a family of one's own, and that of the paper's two methods, are loaded
# when one is asked for.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "MovingBound": "varopt.bounds._moving_bound",
        "NotFinite": "varopt.bounds._target",
        "PointsBound": "varopt.bounds._points_bound",
        "bound": "varopt.bounds._methods",
        "sigma_for": "varopt.bounds._gap",
    },
)

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
