r"""Convex problems around one that is not: a majorant that touches it, and a relaxation below it.

A continuous term of degree two is a convex one (its upward kinks and upward curvature) plus a concave rest. With the
rest replaced by its tangent at z the sum lies above the objective and touches it there: to minimise it exactly never
makes the objective worse [DCA]. With terms that are not convex replaced by their least values it lies below the
objective everywhere: its optimum is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.composite import Composite, Rows
from varopt.model.maps import Map, Matrix, Sparse
from varopt.terms import PiecewisePolynomial
from varopt.terms.polynomials import shift

__all__ = ["canonical", "convex_part", "floor", "majorant", "relaxation", "restricted"]

Vector = NDArray[np.float64]

# Entries of a matrix up to which a product with it takes less than asking maps and zeros.
_CHEAP_PRODUCT_ENTRIES = 1 << 16
_EIGENVALUES = 1500  # variables up to which those of a quadratic are computed


def canonical(problem: Composite) -> Composite:
    """The same problem with explicit matrices and every negative weight moved into its term."""
    rows = []
    for r in problem.rows:
        if r.count * problem.size <= _CHEAP_PRODUCT_ENTRIES:
            r = replace(r, linear=Matrix(np.ascontiguousarray(r.linear.dense(), dtype=np.float64)))
        elif not r.is_direct:
            r = r.take(np.arange(r.count))
        negative = r.weights < 0.0
        if negative.any():
            below, above = r.take(np.flatnonzero(negative)), r.take(np.flatnonzero(~negative))
            pieces = tuple(tuple(-c for c in piece) for piece in below.term.pieces)
            turned = replace(below.term, pieces=pieces, name=f"-{r.term.name}")
            rows.append(replace(below, term=turned, weights=-below.weights))
            r = above
        if r.count:
            rows.append(r)
    whole = replace(problem, rows=tuple(rows))
    if problem.size**2 > _CHEAP_PRODUCT_ENTRIES or problem.forms or any(r.offset.any() for r in problem.squares):
        return whole
    # Sums of squares of x itself lose no digits as a matrix.
    hessian = whole.hessian.toarray() if sp.issparse(whole.hessian) else whole.hessian
    return replace(whole, matrix=hessian, vector=whole.gradient_at_zero, scalar=whole.constant, squares=())


def convex_part(term: PiecewisePolynomial) -> PiecewisePolynomial | None:
    """The term with downward kinks and curvature left out; None where it jumps or has a degree beyond two."""
    if not term.is_continuous or term.degree > 2:
        return None
    first = term.knots[0] if term.knots else term.centres[0]
    value, gradient, half = (*shift(term.pieces[0], first - term.centres[0]), 0.0, 0.0)[:3]  # half of the curvature
    pieces = [(value, gradient, np.maximum(half, 0.0))]
    for j, (knot, jump) in enumerate(zip(term.knots, term.jumps, strict=True)):
        if j:  # value and gradient where the piece before ends
            width, (start, rise, half) = knot - term.knots[j - 1], pieces[-1]
            value, gradient = start + width * (rise + width * half), rise + 2.0 * width * half
        else:
            value, gradient = pieces[0][:2]
        gradient = gradient + np.maximum(jump[1] if len(jump) > 1 else 0.0, 0.0)
        here = term.pieces[j + 1]
        pieces.append((value, gradient, np.maximum(here[2] if len(here) > 2 else 0.0, 0.0)))
    whole = PiecewisePolynomial(term.knots, tuple(pieces), (first, *term.knots), name=f"convex part of {term.name}")
    kept = [j for j, jump in enumerate(whole.jumps) if any(map(np.any, jump))]  # knots that are left of it
    return replace(
        whole,
        knots=tuple(whole.knots[j] for j in kept),
        pieces=(whole.pieces[0], *(whole.pieces[j + 1] for j in kept)),
        centres=(whole.centres[0], *(whole.centres[j + 1] for j in kept)),
    )


def convex_parts(problem: Composite) -> list[PiecewisePolynomial | None]:
    """Of the terms of all blocks; of convex ones themselves."""
    return [r.term if r.term.curvature.is_convex else convex_part(r.term) for r in problem.rows]


def majorant(problem: Composite, x: Vector, positions: Sequence[Vector]) -> Composite | None:
    """A convex problem above this one that touches it at x; None where a term has no convex part to split off.

    Weights must be positive. An indefinite quadratic is split by its eigenvalues: O(p^3) for p variables.
    """
    gradient, constant, rows = problem.gradient_at_zero.copy(), problem.constant, []
    for r, z, convex in zip(problem.rows, positions, problem.structure(convex_parts), strict=True):
        if convex is None or convex.degree > 2:
            return None
        if convex is not r.term:
            tangent = r.weights * (r.term.derivative(z) - convex.derivative(z))
            gradient += r.linear.transpose_apply(tangent)
            constant += float(r.weights @ (r.term.value(z) - convex.value(z)) - tangent @ (z - r.offset))
        rows.append(replace(r, term=convex))
    hessian = problem.hessian
    if problem.indefinite and hessian is not None:
        values, vectors = np.linalg.eigh(hessian.toarray() if sp.issparse(hessian) else hessian)
        hessian = (vectors * np.maximum(values, 0.0)) @ vectors.T
        down = (vectors * np.minimum(values, 0.0)) @ (vectors.T @ x)
        gradient += down
        constant -= 0.5 * float(x @ down)
    whole = Composite(hessian, gradient, constant, tuple(rows))
    if all(r.term.knots for r in rows):
        return whole
    kinked = [np.full(r.count, bool(r.term.knots)) for r in rows]
    return whole.freeze(positions, kinked)


def relaxation(problem: Composite) -> Composite | None:
    """A convex problem below this one: terms that are not convex at their least values; None where that is no bound.

    Weights must be positive.
    """
    if problem.indefinite and problem.hessian is not None:
        if problem.size > _EIGENVALUES:
            return None
        dense = problem.hessian.toarray() if sp.issparse(problem.hessian) else problem.hessian
        values = np.linalg.eigvalsh(dense)
        if values[0] < -1e-12 * abs(values[-1]):
            return None
    constant, rows = problem.scalar, []
    for r in problem.rows:
        if r.term.curvature.is_convex and r.term.degree <= 2:
            rows.append(r)
            continue
        with np.errstate(invalid="ignore"):  # 0 * -inf, where the weight alone decides
            constant += float(np.sum(r.weights * r.term.infimum, where=r.weights > 0.0))
        if not np.isfinite(constant):
            return None
    return Composite(problem.matrix, problem.vector, constant, tuple(rows), squares=problem.squares)


def floor(problem: Composite) -> float:
    """The sum of the infima of the parts of a convex problem: a lower bound, if a weak one, that costs nothing."""
    if problem.vector.any():
        return -np.inf
    parts = (*problem.rows, *problem.squares)
    return problem.scalar + sum(float(np.sum(r.weights * r.term.infimum, where=r.weights > 0.0)) for r in parts)


def restricted(problem: Composite, free: NDArray[np.intp], x: Vector) -> Composite:
    """The problem in the variables `free`, the others held where they are."""
    held = x.copy()
    held[free] = 0.0
    hessian: Any = sp.csr_array(problem.hessian) if sp.issparse(problem.hessian) else problem.hessian
    hessian = None if hessian is None else hessian[np.ix_(free, free)]
    rows = []
    for r in problem.rows:
        explicit = r.linear.explicit()
        part = explicit.tocsc()[:, free].tocsr() if sp.issparse(explicit) else np.asarray(explicit)[:, free]
        linear: Map = Sparse(part) if sp.issparse(part) else Matrix(np.ascontiguousarray(part, dtype=np.float64))
        moved = np.flatnonzero(np.asarray(abs(part).sum(axis=1)).ravel())
        if moved.size:
            rows.append(Rows(linear, r.positions(held), r.term, r.weights).take(moved))
    gradient = problem.quadratic_gradient(held)[free]
    return Composite(hessian, gradient, 0.0, tuple(rows), problem.not_convex, (), problem.indefinite)
