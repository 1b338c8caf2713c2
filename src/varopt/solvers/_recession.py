"""A convex composite is unbounded below just if it falls for ever along a direction: a linear programme finds it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers._composite import Composite

__all__ = ["falls_for_ever"]

_MOST_ROWS = 20_000


def falls_for_ever(problem: Composite) -> NDArray[np.float64] | None:
    """A direction along which f falls without bound; None where there is none, or too many rows or a norm to tell.

    Far out a row rises with its steepest slope, so f falls along d just if it does not curve there, ``Hd = 0``, and
    ``g'd + sum_k w_k max(low_k a_k'd, high_k a_k'd) < 0``.
    """
    from scipy.optimize import linprog

    if problem.row_count > _MOST_ROWS or problem.groups:
        return None
    p, n = problem.size, problem.row_count
    equal, above, position = [], [], p
    curved = [] if problem.matrix is None else [problem.matrix]
    for rows in (*curved, *(r.linear.rows(np.flatnonzero(r.weights > 0.0)).explicit() for r in problem.squares)):
        matrix = sp.csr_array(rows)
        if matrix.nnz == 0:
            continue
        equal.append(sp.hstack([matrix / max(1e-300, float(np.abs(matrix).max())), sp.csr_array((matrix.shape[0], n))]))
    for r in problem.rows:
        rows = sp.csr_array(r.linear.explicit())
        lift = sp.csr_array(
            (np.ones(r.count), (np.arange(r.count), position + np.arange(r.count))), shape=(r.count, p + n)
        )
        wide = sp.hstack([rows, sp.csr_array((r.count, n))]).tocsr()
        for end, sign in zip(r.term.slopes, (-1.0, 1.0), strict=True):
            slope = np.broadcast_to(np.asarray(end, dtype=np.float64), (r.count,))
            finite = np.isfinite(slope)
            above.append(sp.diags_array(r.weights * np.where(finite, slope, 0.0)) @ wide - lift)
            if not finite.all():  # quadratic growth on that side: d may not point there
                above.append(sign * wide[np.flatnonzero(~finite & (r.weights > 0))])
        position += r.count
    cost = np.concatenate([problem.slope, np.ones(n)])
    inequalities = sp.vstack(above) if above else None
    result = linprog(
        cost, A_ub=inequalities, b_ub=None if inequalities is None else np.zeros(inequalities.shape[0]),
        A_eq=sp.vstack(equal) if equal else None, b_eq=np.zeros(sum(e.shape[0] for e in equal)) if equal else None,
        bounds=[(-1.0, 1.0)] * p + [(None, None)] * n, method="highs",
    )  # fmt: skip
    if result.status != 0 or result.fun > -1e-9 * max(1.0, float(np.abs(problem.slope).max(initial=0.0))):
        return None
    return np.asarray(result.x[:p])
