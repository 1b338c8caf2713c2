"""What needs no run: a start that is optimal term by term, and a lower bound term by term."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from varopt.certificates._duality import young
from varopt.composite import Composite

__all__ = ["floor", "rests"]

Vector = NDArray[np.float64]

_FIRST = 16  # rows looked at before all


def rests(problem: Composite, x: Vector) -> bool:
    """Whether every part is at its own minimum, as where all targets are fitted without coefficients: x is optimal."""
    if problem.not_convex or problem.not_quadratic or problem.vector.any():
        return False
    if problem.matrix is not None and np.any(problem.matrix @ x):
        return False
    for r in (*problem.squares, *problem.rows):  # penalties are at their minimum more often than losses
        z, zero = r.positions(x), np.zeros(r.count)
        if young(r, z, zero, slice(_FIRST)).any() or young(r, z, zero).any():  # a few rows often show that it is not
            return False
    return True


def floor(problem: Composite) -> float:
    """The sum of the least values of all parts, below which no point comes: zero for losses and penalties.

    It is the value of the dual point zero, and all that there is where rounding hides every other.
    """
    if problem.indefinite or problem.vector.any() or any(np.any(r.weights < 0.0) for r in problem.rows):
        return -np.inf
    with np.errstate(invalid="ignore"):  # 0 * -inf, where the weight alone decides
        least = [np.where(r.weights > 0.0, r.weights * r.term.infimum, 0.0) for r in (*problem.squares, *problem.rows)]
    return problem.scalar + float(sum(values.sum() for values in least))
