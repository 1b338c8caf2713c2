"""The bracket of a run that was stopped: what the point it had reached proves."""

from __future__ import annotations

import numpy as np

from varopt.solvers._composite import Composite
from varopt.solvers._duality import bracket
from varopt.solvers._level import typical_lengths
from varopt.solvers._state import State

__all__ = ["settle"]

_SIGMAS = (1.0, 0.1, 0.01)  # relative dispersions whose slopes are tried as the dual point


def settle(problem: Composite, state: State) -> None:
    """Give a stopped run the best bracket that its latest point proves, where it has none yet."""
    x = state.x if state.latest is None else state.latest
    if problem.not_convex or problem.not_quadratic or np.isfinite(state.lower) or not np.all(np.isfinite(x)):
        return
    lengths = typical_lengths(problem, x)
    for sigma in _SIGMAS:
        bracket(problem, x, [sigma * length for length in lengths], state)
    state.record()
