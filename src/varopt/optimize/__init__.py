"""`minimize` and `maximize`: an objective in, a point and a bracket of the optimum out."""

import importlib
from typing import TYPE_CHECKING, Any

from varopt.optimize._bound_descent import BoundResult
from varopt.optimize._certify import certify
from varopt.optimize._minimize import maximize, minimize, minimize_together
from varopt.optimize._path import ResultPath, path
from varopt.optimize._result import Result, Status

if TYPE_CHECKING:
    from varopt.optimize._discrete import minimize_energy
    from varopt.optimize.anywhere import enclosed_stored, minimize_huber_stored, small_part

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


def __getattr__(name: str) -> Any:
    # Bits bring forty modules along, and data that are not in memory a tenth as many: loaded when first used.
    if name == "minimize_energy":
        return importlib.import_module("varopt.optimize._discrete").minimize_energy
    if name in ("enclosed_stored", "minimize_huber_stored", "small_part"):
        return getattr(importlib.import_module("varopt.optimize.anywhere"), name)
    raise AttributeError(f"module 'varopt.optimize' has no attribute {name!r}")
