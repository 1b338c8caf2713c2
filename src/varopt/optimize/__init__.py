"""`minimize` and `maximize`: an objective in, a point and a bracket of the optimum out."""

from typing import TYPE_CHECKING

from varopt._lazy import on_first_use
from varopt.optimize._minimize import maximize, minimize, minimize_together
from varopt.optimize._result import Result, Status

if TYPE_CHECKING:
    from varopt.optimize._bound_descent import BoundResult
    from varopt.optimize._certify import certify
    from varopt.optimize._discrete import minimize_energy
    from varopt.optimize._path import ResultPath, path
    from varopt.optimize.anywhere import enclosed_stored, minimize_huber_stored, small_part

# Bits bring forty modules along, bounds of one's own families, data that are not in memory what reads them.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "BoundResult": "varopt.optimize._bound_descent",
        "ResultPath": "varopt.optimize._path",
        "certify": "varopt.optimize._certify",
        "enclosed_stored": "varopt.optimize.anywhere",
        "minimize_energy": "varopt.optimize._discrete",
        "minimize_huber_stored": "varopt.optimize.anywhere",
        "path": "varopt.optimize._path",
        "small_part": "varopt.optimize.anywhere",
    },
)

__all__ = [
    "BoundResult",
    "Result",
    "ResultPath",
    "Status",
    "certify",
    "enclosed_stored",
    "maximize",
    "minimize",
    "minimize_energy",
    "minimize_huber_stored",
    "minimize_together",
    "path",
    "small_part",
]
