"""The optimum of an objective, and a point near it, from its explicit programme by a solver that is not ours."""

from __future__ import annotations

import clarabel
import numpy as np
import scipy.sparse as sp

from varopt.composite import composite


def explicit_optimum(f) -> float:
    """The optimum of piecewise linear, quadratic and norm parts from their explicit programme, by Clarabel."""
    problem = composite(f)
    p, n = problem.size, problem.row_count + sum(g.weights.size for g in problem.groups)
    quadratic = np.zeros((p + n, p + n))
    if problem.hessian is not None:
        quadratic[:p, :p] = problem.hessian.toarray() if sp.issparse(problem.hessian) else problem.hessian
    cost = np.concatenate([problem.gradient_at_zero, *(part.weights for part in (*problem.rows, *problem.groups))])
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


def explicit_point(f):
    """A near-optimal point by Clarabel, quadratic pieces included.

    A term is a line and, at every knot t, a kink of height h or a slope that rises at rate c, by h in all: of
    ``y = z - t`` these are ``min { h a + c v^2 / 2 : v >= y - a, a >= 0, v >= 0 }``, with a only where h is finite, and
    v only where c is not infinite.
    """
    problem = composite(f)
    size, slope, parts = problem.size, problem.gradient_at_zero.copy(), []
    for r in problem.rows:
        a, term = sp.csr_array(r.linear.explicit()), r.term
        slope += a.T @ (r.weights * term.subdifferential(np.asarray(term.knots[0], dtype=float))[0])
        curvatures = [2.0 * np.asarray(piece[2]) if len(piece) > 2 else np.zeros(()) for piece in term.pieces]
        ends = [*term.knots[1:], np.inf]
        found = [(-1.0, term.knots[0], np.inf, curvatures[0])]
        for knot, end, jump, curvature in zip(term.knots, ends, term.jumps, curvatures[1:], strict=True):
            found.append((1.0, knot, jump[1] if len(jump) > 1 else 0.0, np.inf))
            found.append((1.0, knot, np.inf if np.all(np.isinf(end)) else curvature * (end - knot), curvature))
        for sign, knot, high, curvature in found:
            if np.any(high) and np.any(curvature):
                used = np.flatnonzero(r.weights)
                high, curvature = (np.broadcast_to(v, (r.count,))[used] * r.weights[used] for v in (high, curvature))
                parts.append((sign * a[used], (sign * (r.offset - knot))[used], high, curvature))
    hessian = sp.csr_array((size, size)) if problem.hessian is None else sp.csr_array(problem.hessian)
    costs, bends, columns, limits = [slope], [np.zeros(size)], [], []
    for a, d, high, curvature in parts:
        identity = sp.eye_array(a.shape[0])
        mine = []
        for cost, bend in ((high, np.zeros_like(d)), (np.zeros_like(d), curvature)):
            if np.all(np.isfinite(cost)) and np.all(np.isfinite(bend)):
                costs.append(cost)
                bends.append(bend)
                mine.append(len(columns) + len(mine))
        columns += [identity] * len(mine)
        limits.append((a, d, mine))
    counts = [c.shape[0] for c in columns]
    rows = []
    for a, _, mine in limits:
        rows.append([a, *(-columns[k] if k in mine else sp.csr_array((a.shape[0], n)) for k, n in enumerate(counts))])
    lifted = sp.block_diag([hessian, sp.csr_array((sum(counts), sum(counts)))]) + sp.diags_array(np.concatenate(bends))
    positive = sp.hstack([sp.csr_array((sum(counts), size)), -sp.eye_array(sum(counts))])
    constraint = sp.vstack([sp.block_array(rows), positive])
    bound = np.concatenate([*(-d for _, d, _ in limits), np.zeros(sum(counts))])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    cones = [clarabel.NonnegativeConeT(bound.size)]
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(sp.triu(lifted)), np.concatenate(costs), sp.csc_matrix(constraint), bound, cones, settings
    )
    return np.array(solver.solve().x)[:size]
