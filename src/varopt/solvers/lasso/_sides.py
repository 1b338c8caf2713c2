r"""Which side of its kink every variable is on: all that are on the wrong one change at once [HIK02, KP11].

For fixed sides the optimum is a linear system in the variables that do not rest. Its solution shows which of these
have gone to the other side, and its gradient which of those at rest are moved off their kinks: a semismooth Newton
method, which ends with the optimum once no variable is wrong, and which may go in circles.

.. [HIK02] M. Hintermüller, K. Ito, K. Kunisch. The primal-dual active set strategy as a semismooth Newton method. SIAM
   Journal on Optimization 13(3), 2002.
.. [KP11] J. Kim, H. Park. Fast nonnegative matrix factorization: an active-set-like method and comparisons. SIAM
   Journal on Scientific Computing 33(6), 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import solve_definite
from varopt.composite import Kinks

__all__ = ["PATIENCE", "Solve", "first_sides", "is_singular", "pivoted", "solved"]

Vector = NDArray[np.float64]
Solve = Callable[[Any, NDArray[np.intp], Vector], Vector | None]

PATIENCE = 6  # rounds without fewer variables on the wrong side after which they are taken not to settle
_WRONG_SIDE = 1e-12  # share of a kink by which a variable has to be on the wrong side of it
_DEPENDENT_COLUMN = 1e-7  # share of a column's length that those before it leave, below which it is made of them
_PRODUCT_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # share of what a product with the matrix adds up


class Settled(NamedTuple):
    """Variables on the right side of their kinks."""

    away: Vector  # from the kinks
    moving: NDArray[np.intp]  # those that do not rest,
    subgradient: Vector  # and the derivatives of their kinks
    rounds: int


def pivoted(
    matrix: Any, gradient: Vector, kinks: Kinks, side: NDArray[Any], patience: int, solve: Solve
) -> Settled | None:
    """Minimise ``1/2 v'Mv + gradient'v`` and the kinks of v by changing sides; None where they do not settle.

    Parameters
    ----------
    matrix : array, sparse array or Columns
        Positive semidefinite.
    gradient : array
        That of the quadratic at rest.
    kinks : Kinks
    side : array
        Those to begin with: -1 and 1, and 0 at rest.
    patience : int
        Rounds without fewer variables on the wrong side after which they are taken not to settle.
    solve : callable
        Solves with some rows and columns of the matrix, or says None where they are singular.
    """
    lengths, width = np.sqrt(matrix.diagonal()), _WRONG_SIDE * (kinks.high - kinks.low)
    fewest, left, rounds = side.size + 1, patience, 0
    while left:
        tick()
        moving = np.flatnonzero(side)
        away = np.zeros(side.size)
        subgradient = np.where(side > 0, kinks.high, kinks.low)[moving]
        solution = solve(matrix, moving, -(gradient[moving] + subgradient))  # M_II v_I = -(g_I + s_I), v = 0 elsewhere
        if solution is None:
            return None
        away[moving] = solution
        image = matrix @ away
        reached = gradient + image
        # The gradient of the variables at rest, less what rounding may have done to it.
        far = math.sqrt(max(float(away @ image), 0.0))
        margin = width + _PRODUCT_ROUNDING * (np.abs(gradient) + far * lengths)
        resting = side == 0
        up, down = resting & (-reached > kinks.high + margin), resting & (-reached < kinks.low - margin)
        back = (side * away < 0.0) & ~kinks.free
        wrong = int(np.count_nonzero(up | down | back))
        rounds += 1
        if not wrong:
            return Settled(away, moving, subgradient, rounds)
        left = patience if wrong < fewest else left - 1  # full exchanges as long as they pay  [KP11]
        fewest = min(fewest, wrong)
        side = np.where(back, 0, np.where(up, 1, np.where(down, -1, side)))  # the active sets of the next step  [HIK02]
    return None


def first_sides(matrix: Any, solve: Solve, gradient: Vector, kinks: Kinks, away: Vector) -> NDArray[np.int8]:
    """Those of the start; else the variables that the gradient moves off their kinks, or all as if there were none."""
    side = np.sign(away)
    if not side.any():
        side = np.where(-gradient > kinks.high, 1, np.where(-gradient < kinks.low, -1, 0))
        if 2 * np.count_nonzero(side) > side.size:
            everything = np.arange(side.size)
            unpenalised = solve(matrix, everything, -gradient)
            side = side if unpenalised is None else np.sign(unpenalised)
    return np.where(kinks.free, 1, side).astype(np.int8)


def solved(matrix: Any, index: NDArray[np.intp], rhs: Vector) -> Vector | None:
    """Solve with the rows and columns `index` of a positive definite matrix; None where they are singular."""
    if not index.size:
        return rhs
    if sp.issparse(matrix):
        return solve_definite(sp.csr_array(matrix)[index][:, index], rhs)
    block = matrix.T if index.size == rhs.size == matrix.shape[0] else matrix[index[:, None], index].T
    factor, solution, info = scipy.linalg.lapack.dposv(block, rhs, lower=False)
    return None if info or is_singular(factor, block.diagonal()) else np.asarray(solution)


def is_singular(factor: Vector, diagonal: Vector) -> bool:
    """Whether a column is but for rounding made of those before it, by a Cholesky factor; whatever their units."""
    return not bool((factor.diagonal() > _DEPENDENT_COLUMN * np.sqrt(diagonal)).all())
