"""Whether a run that has come far down goes on for ever."""

from __future__ import annotations

import math

from varopt.certificates import falls_along, floor
from varopt.composite import Composite
from varopt.model import Objective
from varopt.solvers import State

__all__ = ["Descent", "Falls"]

_DEEP = 100.0  # times the sizes at zero, or the value at the last look, below which a direction is looked at


class Falls(Exception):
    """The objective falls without bound along a direction that was checked."""


class Descent:
    """Looks whether a run that has come far down goes on for ever in the direction it has taken.

    A pass over the data each time that the value has fallen a hundredfold.
    """

    def __init__(self, objective: Objective, problem: Composite) -> None:
        self.objective = objective
        self.bounded = bool(problem.not_convex) or floor(problem) > -math.inf
        self.below = -_DEEP * max(problem.unit * 2.0**12, 1e-300)

    def look(self, state: State) -> None:
        """Raise `Falls` where the direction of the best point shows it."""
        if self.bounded or not state.upper < self.below or math.isfinite(state.lower):
            return
        self.below = _DEEP * state.upper
        if falls_along(self.objective, state.x):
            raise Falls
