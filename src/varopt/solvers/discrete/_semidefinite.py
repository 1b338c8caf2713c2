r"""The semidefinite relaxation of spins, by a low-rank factorisation, with a dual that is a proof.

The smallest <M, X>/2 over X with unit diagonal, positive semidefinite, is at most that over X = ss'. X = VV' with unit
rows [BM03]; row by row, the best v_i given the others is -(MV)_i / |(MV)_i| [mixing], and an independent set of rows
is updated at once. At the optimum y_i = |(MV)_i| makes M + Diag(y) positive semidefinite; short of it, for every y,

    s'Ms = s'(M + Diag(y))s - sum(y)  >=  n min(0, lambda_min(M + Diag(y))) - sum(y)   over s in {-1, 1}^n,

or the same after a scaling of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._colouring import colour
from varopt.solvers.discrete._eigenvalue import verified_lower_bound
from varopt.solvers.discrete._matrices import permuted, row_sizes
from varopt.solvers.discrete._spins import Spins

__all__ = ["diagonal_bound", "low_rank", "semidefinite_bound"]

Vector = NDArray[np.float64]

_RANK = 40  # at most; sqrt(2n) rules out spurious minima, fewer columns have never been seen to hurt beyond this
_SWEEPS = 1000
_TOLERANCE = 2e-7  # relative change of the objective in a sweep at which to stop


def low_rank(spins: Spins, rng: np.random.Generator, expired: Callable[[], bool] = lambda: False) -> Vector:
    """The dual variables y at which coordinate descent on the factors stopped.

    Cost: sweeps of one product of M with up to 40 columns each. Memory: that of M and 40 n numbers.
    """
    n = spins.size
    rank = min(_RANK, int(np.ceil(np.sqrt(2.0 * n))) + 1)
    unit = spins.unit
    matrix = spins.matrix(np.float32, unit)
    label = colour(matrix)
    order = np.argsort(label, kind="stable")
    matrix = permuted(matrix, order)
    if sp.issparse(matrix):
        matrix = sp.csr_matrix(matrix)  # of the older kind, which has less overhead per product
    ends = np.cumsum(np.bincount(label))
    sets = [(slice(a, b), matrix[a:b]) for a, b in zip(np.r_[0, ends[:-1]].tolist(), ends.tolist(), strict=True)]
    factor = rng.standard_normal((n, rank)).astype(np.float32)
    factor /= np.linalg.norm(factor, axis=1, keepdims=True)
    y, last = np.zeros(n), 0.0
    for _ in range(_SWEEPS):
        for rows, part in sets:
            pull = part @ factor
            length = np.sqrt(np.einsum("ij,ij->i", pull, pull))
            y[rows] = length
            moved = length > 0.0
            factor[rows] = np.where(moved[:, None], -pull / np.where(moved, length, 1.0)[:, None], factor[rows])
        objective = float(y.sum())
        if abs(objective - last) <= _TOLERANCE * objective or expired():
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
    rows differ in size. As s_i^2 = 1, ``s'(M + Diag(y))s >= sum(d) min(0, lambda_min)``.
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
    total = float(d.sum()) * min(0.0, smallest) - float(y.sum())
    rounding = 4.0 * eps * spins.size * float(np.abs(y).sum() + d.sum() + abs(spins.constant))
    return spins.constant + 0.5 * total - rounding, assumption


def semidefinite_bound(
    spins: Spins, rng: np.random.Generator, within: Callable[[float], Callable[[], bool]] = lambda _: lambda: False
) -> tuple[float, str, Any]:
    """A lower bound on the energy, what it rests on, and the dual variables.

    `within` makes of a share of the time that is left what is asked whether it has passed: the variables get half of
    it, their proof half of the rest.
    """
    y = low_rank(spins, rng, within(0.5))
    bound, assumption = diagonal_bound(spins, y, rng, within(0.5))
    return bound, assumption, y
