r"""The optimum at once, where hardly a row leaves the piece on which it begins: a regulariser that rules the losses.

With the rows of several variables frozen to their pieces at x, and those of one variable left as they are, the rest is

    min 1/2 y'Hy + (g + A'u)'y + sum_j c_j(y_j),        u the derivatives at x,                                     (1)

which is a step of H from x but for the kinks of the c_j. Where it does not move, as from zero beside a penalty that is
larger than the gradients of any loss, x is the optimum; u, and what the c_j take of the gradient, are the dual point
that proves it. Where it moves a little, so that few rows pass a kink, the crossover solves what is left. A look at some
rows tells beforehand whether that is likely, for next to nothing. Where all rows together are few, as of small data,
the crossover takes every kink on.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._linalg import solve_definite
from varopt.composite import Composite, Rows
from varopt.solvers.finish._crossover import Exact, cross_over

__all__ = ["at_once"]

Vector = NDArray[np.float64]

_ROWS_LOOKED_AT = 200  # rows of a block that are looked at
_CROSSOVER_ROUNDS = 4  # of the crossover: where it takes more, the path is the shorter way


def at_once(problem: Composite, x: Vector, tol: float, most: int) -> Exact | None:
    """The optimum, where at most so many rows seem to rest on a kink or pass one on the way from x; else None.

    Parameters
    ----------
    problem : Composite
        Convex, of rows with linear pieces.
    x : array
        Where to begin.
    tol : float
        Relative gap within which it is the optimum.
    most : int
        Near kinks up to which the crossover is a short way.
    """
    if sum(r.count * max(1, len(r.kinks)) for r in problem.rows) <= most:  # the crossover takes all on, from anywhere
        return _within(cross_over(problem, x, [np.inf] * len(problem.rows), tol, most=most), problem, tol)
    curvature = _curvature(problem)
    if curvature is None:
        return None
    positions = problem.positions(x)
    kinks = [np.inf if r.hard else 0.0 for r in problem.rows]
    if _resting(problem, positions, kinks) > most:
        return None
    dual, residual = _dual(problem, x, positions)
    step = -residual / curvature if _is_diagonal(problem) else solve_definite(problem.hessian, -residual)  # (1)
    gap, value = -0.5 * float(residual @ step), problem.value(x, positions)  # what (1) falls by
    if gap <= tol * max(problem.unit, abs(value)) and _satisfied(problem, positions):  # as where nothing moves
        return Exact(x, value, gap, "", dual)
    if sum(_passing(r, z, step) for r, z in zip(problem.rows, positions, strict=True)) > most:
        return None
    exact = _within(cross_over(problem, x, kinks, tol, rounds=_CROSSOVER_ROUNDS, most=most), problem, tol)
    return None if exact is None or exact.assumption else exact


def _within(exact: Exact | None, problem: Composite, tol: float) -> Exact | None:
    """What reaches the tolerance."""
    return exact if exact is not None and exact.gap <= tol * max(problem.unit, abs(exact.value)) else None


def _curvature(problem: Composite) -> Vector | None:
    """The diagonal of the quadratic, where all that is left are rows of lines and it curves along every variable."""
    if problem.groups or problem.hessian is None or any(r.term.degree > 1 for r in problem.rows):
        return None
    diagonal = np.asarray(problem.hessian.diagonal())
    return diagonal if np.all(diagonal > 0.0) else None


def _is_diagonal(problem: Composite) -> bool:
    """Whether variables meet in the rows alone."""
    return not problem.forms and (
        problem.matrix is None or (sp.issparse(problem.matrix) and problem.matrix.nnz <= problem.size)
    ) and all(r.single is not None for r in problem.squares)  # fmt: skip


def _resting(problem: Composite, positions: list[Vector], reach: list[float]) -> int:
    """How many rows are within reach of a kink."""
    blocks = zip(problem.rows, positions, reach, strict=True)
    return sum(int(np.count_nonzero(np.abs(z - t) <= d)) for r, z, d in blocks for t, _ in r.kinks)


def _dual(problem: Composite, x: Vector, positions: list[Vector]) -> tuple[list[Vector], Vector]:
    """Derivatives at x, of constraints zero, and of rows of one variable what balances best; and what that leaves."""
    residual = problem.quadratic_gradient(x) + 0.0
    dual: list[Vector] = []
    for r, z in zip(problem.rows, positions, strict=True):
        dual.append(np.zeros(r.count) if r.hard else r.term.derivative(z))
        if not r.hard:
            residual += r.gradient(z) if x.any() else r.gradient_at_zero  # which may be known
    for b, (r, z) in enumerate(zip(problem.rows, positions, strict=True)):
        if r.single is None:
            continue
        index, factor = r.single
        scale = r.weights * factor
        low, high = r.term.subdifferential(z)
        needed = np.divide(-residual[index], scale, out=np.zeros(index.size), where=scale != 0.0)
        u = np.clip(dual[b] + needed, low, high)
        residual += r.linear.transpose_apply(r.weights * (u - dual[b]))
        dual[b] = u
    return dual, residual


def _satisfied(problem: Composite, positions: list[Vector]) -> bool:
    """Whether zero is a subgradient of every constraint of several variables, which `_dual` takes for granted."""
    blocks = ((r, z) for r, z in zip(problem.rows, positions, strict=True) if r.hard and r.single is None)
    ends = (r.term.subdifferential(z) for r, z in blocks)
    return all(bool(np.all((low <= 0.0) & (high >= 0.0))) for low, high in ends)


def _passing(r: Rows, z: Vector, step: Vector) -> int:
    """About how many rows a step takes past a kink, by a look at some of them."""
    if r.single is not None or r.hard or not r.count:
        return 0
    stride = 1 + r.count // _ROWS_LOOKED_AT
    index = np.arange(0, r.count, stride)
    before = z[index]
    moved = before + np.asarray(r.linear.rows(index).apply(step))
    knots = r.term.take(index).knots
    return stride * int(sum(np.count_nonzero((moved >= t) != (before >= t)) for t in knots))
