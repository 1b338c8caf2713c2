"""The optimum of an objective from its explicit programme, by a solver that shares nothing with ours."""

from __future__ import annotations

import clarabel
import numpy as np
import scipy.sparse as sp

from varopt.solvers import composite


def explicit_optimum(f) -> float:
    """The optimum of piecewise linear, quadratic and norm parts from their explicit programme, by Clarabel."""
    problem = composite(f)
    p, n = problem.size, problem.row_count + sum(g.weights.size for g in problem.groups)
    quadratic = np.zeros((p + n, p + n))
    if problem.hessian is not None:
        quadratic[:p, :p] = problem.hessian.toarray() if sp.issparse(problem.hessian) else problem.hessian
    cost = np.concatenate([problem.slope, *(part.weights for part in (*problem.rows, *problem.groups))])
    rows, limits, position = [np.zeros((0, p + n))], [np.zeros(0)], p
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
    cones = [clarabel.NonnegativeConeT(sum(limit.size for limit in limits))]
    for group in problem.groups:  # (v, z) in the second-order cone
        dense = group.linear.dense()
        for start, size in zip(group.starts, group.sizes, strict=True):
            block = np.zeros((size + 1, p + n))
            block[0, position] = -1.0
            block[1:, :p] = -dense[start : start + size]
            rows.append(block)
            limits.append(np.concatenate([[0.0], group.offset[start : start + size]]))
            cones.append(clarabel.SecondOrderConeT(int(size) + 1))
            position += 1
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    limit = np.concatenate(limits)
    solution = clarabel.DefaultSolver(
        sp.csc_matrix(np.triu(quadratic)),
        cost,
        sp.csc_matrix(np.vstack(rows)),
        limit,
        cones,
        settings,
    ).solve()
    return solution.obj_val + problem.constant
