"""Backtracking, shared by the rivals that need it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["armijo"]

Vector = NDArray[np.float64]


def armijo(
    value: Callable[[Vector], float],
    x: Vector,
    step: Vector,
    derivative: float,
    *,
    project: Callable[[Vector], Vector] = np.asarray,
) -> float:
    """The first of 1, 1/2, 1/4, ... that lowers `value` by 10^-4 of what the slope along the step promises.

    `project` maps a trial point to a feasible one. Zero where rounding leaves nothing to gain.
    """
    before, length = value(x), 1.0
    slack = 1e-15 * abs(before)  # a step that only rounding judges is taken
    while value(project(x + length * step)) > before + 1e-4 * length * derivative + slack:
        length *= 0.5
        if length < 1e-12:
            return 0.0
    return length
