"""What proves that there is no optimum: a contradiction among the constraints, or a direction without end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import left
from varopt.model import Constraint, Variable
from varopt.optimize.constrained._penalty import Penalised

__all__ = ["Contradiction", "Ray", "of_few_rows"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Contradiction:
    """Multipliers of the constraints whose combination no point satisfies [Farkas 1902].

    With g the normal form of each constraint (``g <= 0`` or ``g == 0``, see `Constraint`), and multipliers that are not
    negative for inequalities, ``sum multipliers' g(x)`` is at most zero wherever all constraints hold. It is at least
    `least`, a positive number, for every x: multipliers within rounding of those given were proved to make its slope
    zero exactly.

    Attributes
    ----------
    multipliers : mapping from constraints to arrays
        By the shape of each.
    least : float
        What the combination is at least, everywhere.

    Examples
    --------
    >>> import varopt as vo
    >>> w = vo.Variable(2, name="w")
    >>> positive, total = w >= 0, vo.sum(w) <= -1
    >>> r = vo.minimize(vo.norm1(w), subject_to=[positive, total])
    >>> r.status.name, r.proof.multipliers[total] > 0, r.proof.least > 0
    ('INFEASIBLE', True, True)
    """

    multipliers: Mapping[Constraint, Any] = field(repr=False)
    least: float

    def __str__(self) -> str:
        used = [str(c) for c, y in self.multipliers.items() if np.any(np.asarray(y) != 0.0)]
        return f"these contradict each other: {'; '.join(used)}"


@dataclass(frozen=True)
class Ray:
    """A direction along which the objective falls for ever (rises, when maximising) and no constraint is ever broken.

    ``ray[w]`` is its part in a variable.
    """

    direction: Vector
    slices: Mapping[Variable, slice] = field(repr=False)

    def __getitem__(self, variable: Variable) -> Any:
        part = self.direction[self.slices[variable]]
        return float(part[0]) if variable.dimensions == () else part.reshape(variable.dimensions)


def of_few_rows(penalised: Penalised, weights: Sequence[Vector]) -> list[Vector] | None:
    """About the multipliers y with ``A'y = 0`` of the largest ``d'y``, of those whose sum in units of weights is one.

    A vertex of these has as few as contradict each other, which rational arithmetic is quick to prove, where other
    combinations mix many. None where entries are not at hand, or there is none.
    """
    from scipy.optimize import linprog  # slow to load, and seldom needed

    rows = penalised.rows
    if any(r.linear.storage == "operator" for r in rows):
        return None
    unit = np.concatenate(weights)
    matrix = sp.vstack([sp.csr_array(r.linear.explicit()) for r in rows]).T @ sp.diags_array(unit)
    offset = unit * np.concatenate([r.offset for r in rows])
    equal = np.concatenate([np.full(r.count, c.is_equality) for c, r in zip(penalised.constraints, rows, strict=True)])
    both = sp.hstack([matrix, -sp.csc_array(matrix)[:, equal]])
    found = linprog(
        -np.r_[offset, -offset[equal]], np.ones((1, both.shape[1])), [1.0], both, np.zeros(both.shape[0]),
        method="highs-ds", options={"time_limit": min(left(), 1e9)},
    )  # fmt: skip
    if found.x is None:
        return None
    shares = found.x[: unit.size].copy()
    shares[equal] -= found.x[unit.size :]
    return np.split(unit * shares, np.cumsum([r.count for r in rows])[:-1])
