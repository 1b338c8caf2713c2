"""The optimum of an objective from its explicit programme, by a solver that shares nothing with ours."""

from __future__ import annotations

import clarabel
import numpy as np
import scipy.sparse as sp

from varopt.solvers import composite


def explicit_optimum(f) -> float:
    """The optimum of a piecewise linear plus quadratic objective from its explicit programme, by Clarabel."""
    problem = composite(f)
    p, n = problem.size, problem.row_count
    quadratic = np.zeros((p + n, p + n))
    if problem.hessian is not None:
        quadratic[:p, :p] = problem.hessian.toarray() if sp.issparse(problem.hessian) else problem.hessian
    cost = np.concatenate([problem.slope, *(r.weights for r in problem.rows)])
    rows, limits, position = [], [], p
    for r in problem.rows:
        dense = r.linear.dense()
        for piece, centre in zip(r.term.pieces, r.term.centres, strict=True):  # v >= piece(z), a line
            value, slope = (np.broadcast_to(c, (r.count,)) for c in (*piece, 0.0)[:2])
            block = np.zeros((r.count, p + n))
            block[:, :p] = slope[:, None] * dense
            block[np.arange(r.count), position + np.arange(r.count)] = -1.0
            rows.append(block)
            limits.append(-(value + slope * (r.offset - centre)))
        position += r.count
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    limit = np.concatenate(limits)
    solution = clarabel.DefaultSolver(
        sp.csc_matrix(np.triu(quadratic)),
        cost,
        sp.csc_matrix(np.vstack(rows)),
        limit,
        [clarabel.NonnegativeConeT(limit.size)],
        settings,
    ).solve()
    return solution.obj_val + problem.constant
