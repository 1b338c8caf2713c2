r"""All minimisers of a quadratic and ``sum_k h_k |a_k'x|`` along a sequence of strengths h, through their duals.

    min 1/2 (g + A'v)' M^{-1} (g + A'v),    -h <= v <= h,    x = -M^{-1} (g + A'v)                                  (1)

is a programme in a box, whose matrix A M^{-1} A' is made once, and whose solution for one h says on which ends of their
ranges multipliers are for the next. A point and multipliers v are at most this far from the optimum,

    sum_k (h_k |a_k'x| - v_k a_k'x) + 1/2 r'M^{-1}r,    r = Mx + g + A'v.                                           (2)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.solvers.finish import box_by_active_set
from varopt.solvers.lasso._sides import is_singular

__all__ = ["duals_along"]

Vector = NDArray[np.float64]

_RIDGE = 1e-11  # of the matrix, where multipliers that are not unique are in the way


def duals_along(matrix: Vector, gradient: Vector, rows: Vector, strengths: Vector) -> Iterator[tuple[Vector, float]]:
    """Minimise ``1/2 x'Mx + g'x + sum_k h_k |a_k'x|`` for one h, a row of `strengths`, after the other.

    Parameters
    ----------
    matrix, gradient : array
        M and g.
    rows : array of shape (m, p)
        A.
    strengths : array of shape (k, m)

    Yields
    ------
    x : array
    gap : float
        How far it is from the optimum at most, but for rounding; infinite where M is singular, or nothing was found.
    """
    factor, info = scipy.linalg.lapack.dpotrf(matrix, lower=False)
    if info or is_singular(factor, matrix.diagonal()):
        yield from ((np.zeros(gradient.size), np.inf) for _ in strengths)
        return
    spread = scipy.linalg.cho_solve((factor, False), rows.T, check_finite=False)
    inner, linear = rows @ spread, spread.T @ gradient
    unpenalised = -scipy.linalg.cho_solve((factor, False), gradient, check_finite=False)
    sides, none = np.zeros(len(rows)), np.zeros((0, len(rows)))
    for high in strengths:
        v = box_by_active_set(inner, linear, none, np.zeros(0), -high, high, sides)
        if v is None:  # more rows than variables: multipliers are not unique, and an active set may go around
            ridge = _RIDGE * float(np.trace(inner)) / high.size * np.eye(high.size)
            v = box_by_active_set(inner + ridge, linear, none, np.zeros(0), -high, high)
        if v is None:
            yield np.zeros(gradient.size), np.inf
            continue
        sides = np.where(v >= high, 1.0, np.where(v <= -high, -1.0, 0.0))
        x = unpenalised - spread @ v
        positions, left = rows @ x, matrix @ x + gradient + v @ rows
        solved = scipy.linalg.solve_triangular(factor, left, trans=1, check_finite=False)
        yield x, float(np.sum(high * np.abs(positions) - v * positions) + 0.5 * (solved @ solved))  # (2)
