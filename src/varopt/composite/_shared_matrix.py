"""A quadratic and rows of one matrix, as kernel machines have them: its products serve both."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.composite._form import Composite
from varopt.model.maps import HStack, Map, Matrix

__all__ = ["SharedMatrix", "shared_matrix"]

Vector = NDArray[np.float64]


class SharedMatrix(NamedTuple):
    """A quadratic ``weight b'Kb``, b a part of the variables, whose matrix is that of a block of rows."""

    block: int
    part: slice
    matrix: Matrix
    others: list[tuple[slice, Map]]  # what the rows have beside it
    weight: float


def shared_matrix(problem: Composite) -> SharedMatrix | None:
    """What the quadratic shares with its rows: for a kernel machine K, ``b'Kb + C sum_n max(1 - K_n b - ..., 0)``."""
    if not isinstance(problem.matrix, np.ndarray) or problem.squares or problem.forms:
        return None
    for block, r in enumerate(problem.rows):
        parts = r.linear.live() if isinstance(r.linear, HStack) else [(slice(0, problem.size), r.linear)]
        for part, kernel in parts:
            weight = _multiple(problem.matrix, part, kernel)
            if weight and isinstance(kernel, Matrix):
                others = [other for other in parts if other[0] is not part]
                return SharedMatrix(block, part, kernel, others, 0.5 * weight)
    return None


def _multiple(matrix: Vector, part: slice, kernel: Map) -> float:
    """By what the kernel is multiplied to be the only part of a symmetric matrix that is not zero; else zero."""
    if not isinstance(kernel, Matrix) or kernel.array.dtype != np.float64 or kernel.shape[0] != kernel.shape[1]:
        return 0.0
    inside, first = matrix[part, part], float(kernel.array[0, 0])
    weight = float(inside[0, 0]) / first if first else 0.0
    # A number and its multiple by a power of two have the same digits: others are not looked for.
    if math.frexp(abs(weight))[0] != 0.5 or np.count_nonzero(matrix) != np.count_nonzero(inside):
        return 0.0
    return weight if np.array_equal(inside, weight * kernel.array) else 0.0
