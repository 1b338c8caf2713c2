"""What proves that there is no optimum: a contradiction among the constraints, or a direction without end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.model import Constraint, Variable

__all__ = ["Contradiction", "Ray"]

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
