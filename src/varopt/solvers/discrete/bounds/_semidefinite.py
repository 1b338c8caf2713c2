r"""The semidefinite relaxation of spins, by a low-rank factorisation, with a dual that is a proof.

The smallest <M, X>/2 over X with unit diagonal, positive semidefinite, is at most that over X = ss'. X = VV' with unit
rows v_i, of so many columns k that there are no spurious minima [BM03]; row by row, the best v_i given the others is on
the other side of their sum [mixing, algorithm 1], and an independent set of rows is updated at once:

    k (k + 1) / 2 > n,  as where  k > sqrt(2 n),                                                                     (1)
    g_i = sum_j M_ij v_j,    v_i <- -g_i / |g_i|,    y_i = |g_i|.                                                    (2)

At the optimum y makes M + Diag(y) positive semidefinite; short of it, for every y,

    s'Ms = s'(M + Diag(y))s - sum(y)  >=  n min(0, lambda_min(M + Diag(y))) - sum(y)   over s in {-1, 1}^n,          (3)

or, as s_i^2 = 1, the same after a scaling of the rows with any d > 0, D = Diag(d):

    s'Ms  >=  sum(d) min(0, lambda_min(D^(-1/2) (M + Diag(y)) D^(-1/2))) - sum(y).                                   (4)

BM03: S. Burer and R. Monteiro, *A nonlinear programming algorithm for solving semidefinite programs via low-rank
factorization*, Mathematical Programming 95, 2003. mixing: P.-W. Wang, W.-C. Chang and J. Z. Kolter, *The mixing method:
low-rank coordinate descent for semidefinite programming with diagonal constraints*, arXiv:1706.00476, 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._matrices import permuted, row_sizes
from varopt.solvers.discrete.bounds._smallest_eigenvalue import verified_lower_bound
from varopt.solvers.discrete.bounds._spins import Spins

__all__ = ["diagonal_bound", "low_rank", "semidefinite_bound"]

Vector = NDArray[np.float64]

# On random graphs of 800 nodes, with 6 % and 0.5 % of all pairs: ranks of 20 and 60 and a tolerance of 2e-8 move the
# bound by at most 4e-5 of it, a tolerance of 2e-6 loses up to 2e-4.
_MIXING_RANK = 40  # at most; sqrt(2n) rules out spurious minima, fewer columns have never been seen to hurt beyond this
_MIXING_SWEEPS = 1000
_ROW_BLOCKS = 64  # of the rows of a dense matrix
_MIXING_TOLERANCE = 2e-7  # relative change of the objective in a sweep at which to stop


def low_rank(spins: Spins, rng: np.random.Generator, expired: Callable[[], bool] = lambda: False) -> Vector:
    """The dual variables y at which coordinate descent on the factors stopped.

    Cost: sweeps of one product of M with up to 40 columns each. Memory: that of M and 40 n numbers.
    """
    n = spins.size
    rank = min(_MIXING_RANK, int(np.ceil(np.sqrt(2.0 * n))) + 1)  # (1)
    unit = spins.unit
    matrix = spins.matrix(np.float32, unit)
    # Of a dense matrix some rows at once, so few that each hardly feels that the others moved: not quite coordinate
    # descent, but whatever comes out is proved in the end.
    label = spins.colours if sp.issparse(matrix) else np.arange(n) // max(1, n // _ROW_BLOCKS)
    order = np.argsort(label, kind="stable")
    matrix = permuted(matrix, order)
    if sp.issparse(matrix):
        matrix = sp.csr_matrix(matrix)  # of the older kind, which has less overhead per product
    ends = np.cumsum(np.bincount(label))
    sets = [(slice(a, b), matrix[a:b]) for a, b in zip(np.r_[0, ends[:-1]].tolist(), ends.tolist(), strict=True)]
    factor = rng.standard_normal((n, rank)).astype(np.float32)
    factor /= np.linalg.norm(factor, axis=1, keepdims=True)  # rows on the sphere, at random
    y, last = np.zeros(n), 0.0
    for _ in range(_MIXING_SWEEPS):
        for rows, part in sets:
            gradient = part @ factor  # (2)
            length = np.sqrt(np.einsum("ij,ij->i", gradient, gradient))
            y[rows] = length  # (2): the multiplier of |v_i| = 1
            moved = length > 0.0
            # (2)
            factor[rows] = np.where(moved[:, None], -gradient / np.where(moved, length, 1.0)[:, None], factor[rows])
        objective = float(y.sum())  # minus <M, V V'>, as v_i'g_i = -|g_i|
        if abs(objective - last) <= _MIXING_TOLERANCE * objective or expired():
            break
        last = objective
    result = np.empty(n)
    result[order] = unit * y
    return result


def diagonal_bound(
    spins: Spins, y: Vector, rng: np.random.Generator, expired: Callable[[], bool] = lambda: False
) -> tuple[float, str]:
    """The lower bound on the energy that y proves, and what it rests on besides.

    The eigenvalue is that of D^(-1/2) (M + Diag(y)) D^(-1/2) with the row sums of |M| for D: of order one however the
    rows differ in size (4).
    """
    slack = spins.matrix()
    rows = row_sizes(slack)
    d = np.where(rows > 0.0, rows, 1e-9 * rows.mean() + 1e-300)
    root = 1.0 / np.sqrt(d)
    if sp.issparse(slack):
        slack = sp.csr_array(sp.diags_array(root) @ (slack + sp.diags_array(y)) @ sp.diags_array(root))
    else:  # in place
        np.fill_diagonal(slack, y)
        slack *= root[:, None]
        slack *= root
    smallest, assumption = verified_lower_bound(slack, rng, expired)
    eps = float(np.finfo(np.float64).eps)
    smallest -= 16.0 * eps * float(1.0 + np.max(np.abs(y) / d, initial=0.0))  # of the scaling, entry by entry
    total = float(d.sum()) * min(0.0, smallest) - float(y.sum())  # (4)
    rounding = 4.0 * eps * spins.size * float(np.abs(y).sum() + d.sum() + abs(spins.constant))
    return spins.constant + 0.5 * total - rounding, assumption


def semidefinite_bound(
    spins: Spins, rng: np.random.Generator, within: Callable[[], Callable[[], bool]] = lambda: lambda: False
) -> tuple[float, str, Any]:
    """A lower bound on the energy, what it rests on, and the dual variables.

    `within` starts a clock that is asked whether the time is over: one for the variables, one for their proof.
    """
    y = low_rank(spins, rng, within())
    bound, assumption = diagonal_bound(spins, y, rng, within())
    return bound, assumption, y
