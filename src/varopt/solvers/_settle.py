"""What needs no run: a start that is optimal, a bound part by part, and the bracket of a run that was stopped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._composite import Composite
from varopt.solvers._duality import bracket, young
from varopt.solvers._level import typical_lengths
from varopt.solvers._state import State

__all__ = ["floor", "rests", "settle"]

Vector = NDArray[np.float64]

_FIRST = 16  # rows looked at before all
_SIGMAS = (1.0, 0.1, 0.01)  # relative dispersions whose slopes are tried as the dual point


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

    It is the dual value of slopes that are all zero, and all that there is where rounding hides every other.
    """
    if problem.indefinite or problem.vector.any() or any(np.any(r.weights < 0.0) for r in problem.rows):
        return -np.inf
    with np.errstate(invalid="ignore"):  # 0 * -inf, where the weight alone decides
        least = [np.where(r.weights > 0.0, r.weights * r.term.infimum, 0.0) for r in (*problem.squares, *problem.rows)]
    return problem.scalar + float(sum(values.sum() for values in least))


def settle(problem: Composite, state: State) -> None:
    """Give a stopped run the best bracket that its latest point proves, where it has none yet."""
    x = state.x if state.latest is None else state.latest
    if problem.not_convex or problem.not_quadratic or np.isfinite(state.lower) or not np.all(np.isfinite(x)):
        return
    lengths = typical_lengths(problem, x)
    for sigma in _SIGMAS:
        bracket(problem, x, [sigma * length for length in lengths], state)
    state.record()
