"""The bracket of a run that was stopped."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, budget, deadline, tick
from varopt.bounds import CompositeBound, RowNoise
from varopt.certificates import bracket
from varopt.composite import Composite
from varopt.solvers._method import State
from varopt.solvers.descent import typical_lengths

__all__ = ["settle"]

Vector = NDArray[np.float64]

_QUICK = 1e6  # operations that no clock on the wall is needed for,
_QUICK_SECONDS = 0.04  # but one of the processor: of many blocks it is their number that takes time
_NEW_ENTRY_OPERATIONS = 400.0  # operations that an entry of a matrix takes in memory that is new
_SIGMAS = (1.0, 0.1, 0.01)  # relative dispersions whose derivatives are tried as the dual point


def settle(problem: Composite, state: State, seconds: float = 1.0) -> None:
    """Give a stopped run the best bracket that its latest point proves in so many seconds, where it has none yet."""
    x = state.x if state.latest is None else state.latest
    if problem.not_convex or problem.not_quadratic or np.isfinite(state.lower) or not np.all(np.isfinite(x)):
        return
    small = (problem.row_count + problem.size) * problem.size**2 <= _QUICK
    # Far out, where a path that falls for ever was stopped, numbers overflow: they prove nothing, and need no word.
    limit = budget(_QUICK_SECONDS) if small else deadline(seconds, late=0.0)
    with limit, suppress(TimeUp), np.errstate(all="ignore"):
        if "hessian" not in problem.__dict__:
            tick((sum(r.count for r in problem.squares) + _NEW_ENTRY_OPERATIONS) * float(problem.size) ** 2)
        lengths = typical_lengths(problem, x)
        for sigma in _SIGMAS:
            tick()
            found = bracket(CompositeBound(problem, x, RowNoise(sigma, lengths)))
            if np.isfinite(found[1]):
                state.see(*found)
    state.record()
