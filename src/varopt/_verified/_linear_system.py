"""Linear systems with an enclosure of their solution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from varopt._verified._arithmetic import SLACK, TINY, Ball, gamma

__all__ = ["NearlySingular", "enclosed_solution", "inverse_size"]

Vector = NDArray[np.float64]


class NearlySingular(np.linalg.LinAlgError):
    """Rounding hides whether a matrix is regular."""


def inverse_size(sizes: Vector) -> Vector:
    """Powers of two near the inverses of numbers; one for zero."""
    return np.where(sizes > 0.0, np.ldexp(1.0, -np.frexp(sizes)[1]), 1.0)


def enclosed_solution(system: Ball, right: Ball) -> Ball:
    """The solution m of ``M'm = b`` for every matrix and right-hand side of the enclosures."""
    # Equations and unknowns of size one, by powers of two: what is solved does not depend on units.
    scale = inverse_size(np.max(np.abs(system.middle), axis=0))
    unit = inverse_size(np.max(np.abs(system.middle) * scale, axis=1))
    middle, radius = ((unit[:, None] * part * scale).T for part in (system.middle, system.radius))
    wanted, spread = scale * right.middle, scale * right.radius
    size = len(unit)
    inverse = np.linalg.inv(middle)
    solution = inverse @ wanted
    solution += inverse @ (wanted - middle @ solution)
    rounding = gamma(size + 3)
    bulk = np.abs(inverse) @ np.abs(middle)
    distance = np.abs(np.eye(size) - inverse @ middle) + 2.0 * rounding * bulk + np.abs(inverse) @ radius
    norm = float(distance.sum(axis=1).max()) * SLACK
    if not norm < 0.5:
        raise NearlySingular("the columns are nearly dependent.")
    left = np.abs(wanted - middle @ solution) + rounding * (np.abs(middle) @ np.abs(solution) + np.abs(wanted))
    left += spread + radius @ np.abs(solution) + size * TINY
    first = np.abs(inverse) @ left * SLACK
    # |x - y| <= |R d| + |I - RM| |x - y|, and |x - y| <= max |R d| / (1 - norm) in the second place.
    error = first + distance.sum(axis=1) * float(first.max(initial=0.0)) / (1.0 - norm)
    return Ball(unit * solution, unit * error * SLACK)
