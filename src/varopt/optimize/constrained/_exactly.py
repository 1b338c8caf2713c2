"""Few variables in rational numbers, where thin wedges or faint rows ask for more digits than floating point has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import DualGap
from varopt.model import Objective, flattened, unflatten
from varopt.optimize._composite import is_closed
from varopt.optimize._result import Result, Status
from varopt.optimize.constrained._penalty import Penalised
from varopt.solvers import PenalisedMinimum, penalised_minimum

__all__ = ["least_missing", "solved_exactly"]

Vector = NDArray[np.float64]

_LAST = " > rational"  # the step in the name of a method
_ANY_WEIGHT = 2.0**200  # times first weights: above the multipliers of wedges that any doubles make


def least_missing(missing: Objective, counts: Sequence[int], x: Vector) -> tuple[list[Vector], Vector] | None:
    """Multipliers of the point that misses all constraints least, and that point, rounded; None where not known."""
    found = penalised_minimum(missing, sum(counts), x)
    return None if found is None else (_split(found, counts), found.x)


def solved_exactly(
    penalised: Penalised, weights: Sequence[Vector], result: Result, tol: float, unit: float
) -> Result | None:
    """The constrained optimum, its point rounded; None where it is not known, or rounding moves it too far."""
    objective = penalised.objective([_ANY_WEIGHT * w for w in weights])
    x = np.where(np.isfinite(result.x), result.x, 0.0)
    found = penalised_minimum(objective, sum(w.size for w in weights), x)
    if found is None or not found.vanish or not penalised.holds(found.x):
        return None
    own = flattened(penalised.f.variables, unflatten(tuple(result.slices), found.x))
    value = float(penalised.f.at(own))
    lower, upper = min(found.lower, value), max(found.upper, value)
    if not is_closed(lower, upper, tol, unit):
        return None
    return replace(
        result, x=found.x + 0.0, fun=value, certificate=DualGap(lower, upper), status=Status.OPTIMAL,
        method=f"{result.method.removesuffix(_LAST)}{_LAST}", violation=penalised.violation(found.x),
        multipliers=penalised.by_constraint(_split(found, [w.size for w in weights])),
    )  # fmt: skip


def _split(found: PenalisedMinimum, counts: Sequence[int]) -> list[Vector]:
    """Derivatives of penalties, by constraint."""
    return np.split(found.derivatives, np.cumsum(counts)[:-1])
