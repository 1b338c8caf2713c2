"""The bracket where variables have kinks: a dual point scaled until it is feasible for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.certificates._duality import NEARBY, STATIONARY, Bracketed, charge, young
from varopt.composite import Composite, Rows, scaled_gap, separable_kinks

__all__ = ["prove"]

Vector = NDArray[np.float64]


def prove(problem: Composite, x: Vector, dual: Sequence[Vector]) -> tuple[Bracketed, Vector]:
    """A point with what its dual point proves, and the gradient in every variable, kinks left out.

    The dual point is the gradient of the quadratic and the given dual of the rows that are no kinks of a variable.
    It is scaled until every variable's kink can balance it. Variables without a kink have to be balanced as they are.
    Squares are summed as such, without the cancellation of a quadratic multiplied out.
    """
    kinks, losses = problem.structure(separable_kinks)
    image = np.zeros(problem.size) if problem.matrix is None else problem.matrix @ x
    energy, gradient = 0.5 * float(x @ image), image
    for r in problem.squares:
        z = r.positions(x)
        energy, gradient = energy + r.total(z), gradient + r.gradient(z)
    positions = problem.positions(x)
    value = problem.scalar + float(problem.vector @ x) + energy
    value += sum(r.total(z) for r, z in zip(problem.rows, positions, strict=True))
    value += sum(group.total(group.positions(x)) for group in problem.groups)
    pairs = []
    for r, u in zip(losses, dual, strict=True):
        position = next(z for other, z in zip(problem.rows, positions, strict=True) if other is r)
        pairs.append((r, position, u, r.weights > 0.0))  # the gap of a row without a weight may be infinite
        gradient = gradient + r.linear.transpose_apply(r.weights * u)
    balanced, cost = gradient, 0.0
    if kinks.free.any():
        balanced, cost = _balanced(problem, gradient, np.flatnonzero(kinks.free))

    def scaled(scale: float) -> float:
        gaps = sum((float(r.weights[live] @ young(r, z, scale * u)[live]) for r, z, u, live in pairs), cost)
        return (1.0 - scale) ** 2 * energy + gaps

    gap, residual, scale = scaled_gap(kinks, x, balanced, problem.vector, scaled)
    assumption = ""
    if residual.any():
        left = np.flatnonzero(residual)
        gap, assumption = gap + charge(residual[left], x[left]), NEARBY
        if np.any(np.abs(residual[left]) > STATIONARY * _sizes(problem, losses, left)):
            gap, assumption = np.inf, ""
    # Without a quadratic, whose own dual is its gradient at x, the scaled point is one that balances.
    factor = scale if problem.matrix is None and not problem.squares else 1.0
    known = {id(r): factor * u for r, u in zip(losses, dual, strict=True)}
    kept = [*(known.get(id(r)) for r in problem.rows), *(None for _ in problem.groups)] if known else None
    return Bracketed(x, value, gap, assumption, kept), np.asarray(gradient + problem.vector)


def _sizes(problem: Composite, losses: Sequence[Rows], index: NDArray[np.intp]) -> Vector:
    """The size of what cancels in the gradient in some variables."""
    total = np.abs(problem.gradient_at_zero[index])
    for r in losses:
        total = total + Rows(r.linear.columns(index), r.offset, r.term, r.weights).largest_gradient
    return total


def _balanced(problem: Composite, gradient: Vector, free: NDArray[np.intp]) -> tuple[Vector, float]:
    """The gradient after a small move of the variables without a kink that makes it vanish there, and what that costs.

    Where the quadratic has no curvature along them they are left as they are.
    """
    missing = gradient[free] + problem.vector[free]
    columns = _columns(problem, free)
    block = columns[free]
    move = np.linalg.lstsq(block, -missing, rcond=1e-13)[0]
    moved = gradient + columns @ move
    if not np.all(
        np.abs(block @ move + missing) <= 1e-13 * (np.abs(gradient[free]) + np.abs(problem.gradient_at_zero[free]))
    ):
        return gradient, 0.0
    moved[free] = -problem.vector[free]
    return moved, 0.5 * float(move @ block @ move)


def _columns(problem: Composite, index: NDArray[np.intp]) -> Vector:
    """Some columns of the matrix of the quadratic, which is not formed for them."""
    if "hessian" in problem.__dict__ and problem.hessian is not None:
        if sp.issparse(problem.hessian):
            return np.asarray(sp.csc_array(problem.hessian)[:, index].toarray())
        return np.asarray(problem.hessian[:, index])
    unit = np.zeros((problem.size, index.size))
    unit[index, np.arange(index.size)] = 1.0
    total = np.zeros_like(unit) if problem.matrix is None else np.asarray(problem.matrix @ unit)
    for r in problem.squares:
        total += r.linear.transpose_apply((r.curvature[:, None] * r.linear.columns(index).dense()).T).T
    return total
