r"""Exact solution where the matrices are sparse: a primal-dual active set.

Every kink ``high (z - t)_+`` is in one of three states: left of it, right of it, or resting on it with a multiplier in
between. For fixed states the optimum is that of a quadratic under ``z = t`` for the resting rows; the states are then
corrected by what the solution says (Hintermueller, Ito and Kunisch, 2002). The constraint is met by the method of
multipliers, so that only ``H + penalty A'A`` is ever factorised: banded for differences, and then the cost of a round
is linear in the number of variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers._level import as_band

__all__ = ["active_set"]

Vector = NDArray[np.float64]

_PENALTY = 1e4  # of the constraint, relative to the curvature of the objective
_ROUNDS = 100


def active_set(
    hessian: Any, slope: Vector, a: Any, d: Vector, high: Vector, state: NDArray[np.int8]
) -> tuple[Vector, Vector] | None:
    """Minimise ``1/2 x'Hx + g'x + sum high (Ax + d)_+``; None where the states do not settle.

    `state` is a guess: -1 left of the kink, 0 resting on it, 1 right of it.
    """
    curvature = float(np.mean(np.abs(hessian.diagonal())))
    if curvature <= 0.0:
        return None
    penalty = _PENALTY * curvature / max(float(np.mean(a.multiply(a).sum(axis=1))), 1e-300)
    a = a.tocsr()
    u = np.where(state > 0, high, 0.0)
    scale = max(float(np.abs(d).max(initial=0.0)), 1e-300)
    for _ in range(_ROUNDS):
        resting = np.flatnonzero(state == 0)
        rows, target = a[resting], d[resting]
        try:
            solve = _factorised(hessian + penalty * (rows.T @ rows))
        except np.linalg.LinAlgError:
            return None
        outside = np.where(state > 0, high, 0.0)
        base = slope + a.T @ outside
        multipliers = u[resting]
        for _ in range(50):
            x = solve(-(base + rows.T @ (multipliers + penalty * target)))
            miss = rows @ x + target
            multipliers = multipliers + penalty * miss
            if float(np.abs(miss).max(initial=0.0)) <= 1e-14 * max(scale, float(np.abs(x).max(initial=0.0))):
                break
        u = outside
        u[resting] = multipliers
        z = a @ x + d
        margin = 1e-12 * high
        following = state.copy()
        following[(state == 0) & (u > high + margin)] = 1
        following[(state == 0) & (u < -margin)] = -1
        following[(state != 0) & (z * state <= 0.0)] = 0
        if np.array_equal(following, state):
            return x, np.clip(u, 0.0, high)
        state = following
    return None


def _factorised(matrix: Any) -> Any:
    """A solver for a sparse positive definite matrix, banded where it is."""
    band = as_band(matrix)
    if band is not None:
        factor = scipy.linalg.cholesky_banded(band, lower=True, check_finite=False)
        return lambda rhs: scipy.linalg.cho_solve_banded((factor, True), rhs, check_finite=False)
    from scipy.sparse.linalg import splu

    try:
        return splu(sp.csc_array(matrix)).solve
    except RuntimeError as error:  # exactly singular
        raise np.linalg.LinAlgError(str(error)) from None
