"""Quadratic programmes for [DAQP], a dual active set, in the time that is left.

It looks at its clock within a programme only. Where it finds too little curvature it solves a row of them, a few steps
each, and never looks: so the steps that time is left for are counted as well.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from varopt._clock import left

__all__ = ["EQUAL", "active", "by_dual_active_set"]

Vector = NDArray[np.float64]

EQUAL = 5  # how DAQP is told that a constraint always holds with equality
_ENTRIES_PER_SECOND = 4e8  # that it touches in its plain loops
_LEAST_SECONDS = 1e-3


def by_dual_active_set(
    matrix: Vector, vector: Vector, rows: Vector, high: Vector, low: Vector, kinds: NDArray[np.int32], *, steps: int,
    primal_tol: float = 1e-11, seconds: float = math.inf,
) -> tuple[Vector, Vector] | None:  # fmt: skip
    """The minimum of ``1/2 u'Hu + v'u`` with variables, and then rows of them, between bounds; and the multipliers.

    Bounds of variables may be left out, all of them. None where it takes more than so many steps or seconds, or than
    are left, and where it loses its way.
    """
    import daqp

    seconds = max(min(left(), seconds), _LEAST_SECONDS)
    entries = float(max(matrix.shape[0] * high.size, 1))  # a step looks at all rows, and at the variables of each
    u, _, flag, facts = daqp.solve(
        np.ascontiguousarray(matrix), vector, np.ascontiguousarray(rows), high, low, kinds, primal_tol=primal_tol,
        dual_tol=1e-13, iter_limit=int(max(min(steps, seconds * _ENTRIES_PER_SECOND / entries), 1.0)),
        time_limit=min(seconds, 1e9),
    )  # fmt: skip
    return (np.asarray(u), np.asarray(facts["lam"])) if flag >= 1 else None


def active(sides: Vector) -> NDArray[np.int32]:
    """How DAQP is told which constraints to begin with: -1 and 1 for the lower and the upper end, 0 for neither."""
    return np.choose(sides.astype(np.intp) + 1, (3, 0, 1)).astype(np.int32)
