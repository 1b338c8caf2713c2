"""The bracket at a point: a dual value from subgradients of the terms.

Where variables have kinks, a dual point is scaled until it is feasible for all of them (`prove`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import add, as_dense, column_exponents, solve_definite
from varopt.bounds import CompositeBound
from varopt.composite import Composite, Rows, scaled_gap, separable_kinks

__all__ = [
    "NEARBY",
    "STATIONARY",
    "Bracketed",
    "balanced",
    "balancing",
    "bracket",
    "charge",
    "dual_gap",
    "floor",
    "gradient_units",
    "prove",
    "rests",
    "young",
]

Vector = NDArray[np.float64]

STATIONARY = 1e-12  # share of what cancels in a residual below which it counts as rounding
_ROWS_AT_ONCE = 1 << 15  # rows at a time where each needs a few numbers that the cache should hold
_FIRST_ROWS = 16  # rows looked at before all
# Shares of what a position adds up within which a row rests on a knot; the loosest where closer ones do not balance.
_AT_KNOT = 2e-15, 1e-12, 1e-9, 1e-7
_ONLY_ROUNDING = 1e-12  # share of what cancels that is nothing but rounding
_MOST_UNIT_EXPONENT = 900  # of a unit, times which numbers of no more than a few hundred powers of two are numbers
_DUAL_CORRECTIONS = 8  # rounds in which a dual point is moved until they balance
NEARBY = (
    "an optimum lies within twice the coordinates of the point found (which absorbs that it is stationary to rounding)"
)


class Bracketed(NamedTuple):
    """A point, its value, and how far above the optimum a dual point proves it to be at most."""

    x: Vector
    value: float
    gap: float = np.inf
    assumption: str = ""
    dual: Sequence[Vector | None] | None = None  # of every row, where it is known


def dual_gap(
    problem: Composite, x: Vector, positions: Sequence[Vector], dual: Sequence[Vector], cancelling: Any = 0.0,
    residual: Vector | None = None,
) -> tuple[float, str]:  # fmt: skip
    r"""``f(x)`` minus the value of a dual point, summed without cancellation, and what it assumes.

    With r the gradient of the quadratic plus :math:`A^T(w u)`, for every y

        f(y) >= f(x) - sum_k w_k (rho(z_k) + rho*(u_k) - u_k z_k) + r'(y - x) + 1/2 (y - x)'H(y - x).

    Each summand is a Fenchel-Young gap, not negative, and zero where u is the derivative at z. Where H is positive
    definite on the variables that it touches, their rest is at least :math:`-r'H^{-1}r/2`. For the others, as
    unpenalised intercepts, or for all, r has to vanish: where it is more than rounding the gap is infinite; as rounding
    it is charged with the distance to an optimum, assumed to be no farther from the point than twice its coordinates.
    `cancelling` is the size of what has cancelled in the gradient of the quadratic already, `residual` r where it is
    known.
    """
    residual, gap = _residual(problem, x, dual) if residual is None else residual, 0.0
    for r, z, u in zip(problem.rows, positions, dual, strict=True):
        for start in range(0, r.count, _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            open_rows = start + np.flatnonzero(
                (u[part] != r.term.take(part).derivative(z[part])) & (r.weights[part] > 0)
            )
            if open_rows.size:
                gap += float(r.weights[open_rows] @ young(r, z, u, open_rows))
    energy, flat = problem.inverse_energy(residual)
    gap += 0.5 * energy
    if not flat.any():
        return gap, ""
    residual = np.where(flat, residual, 0.0)
    if np.any(np.abs(residual) > STATIONARY * (_cancelling(problem, x) + cancelling)):
        return np.inf, ""
    return gap + charge(residual, x), NEARBY


def _residual(problem: Composite, x: Vector, dual: Sequence[Vector]) -> Vector:
    """What a dual point leaves unbalanced."""
    residual = problem.quadratic_gradient(x).copy()
    for r, u in zip(problem.rows, dual, strict=True):
        residual += r.linear.transpose_apply(r.weights * u)
    return residual


def _cancelling(problem: Composite, x: Vector) -> Vector:
    """The size of what cancels in the residual, for its rounding."""
    size = np.abs(problem.gradient_at_zero) + np.abs(problem.quadratic_gradient(x))
    if problem.hessian is not None:
        # With targets of mean zero the derivatives in an intercept cancel before they are added up: those of a sum of
        # squares q have sizes that add up to at most sqrt(2 q H_jj), by Cauchy and Schwarz.
        squares = np.asarray(problem.hessian.diagonal()) * max(2.0 * problem.quadratic(x), 0.0)
        size = size + np.sqrt(np.maximum(squares, 0.0))
    return sum((r.largest_gradient for r in problem.rows), size)


def young(r: Rows, z: Vector, u: Vector, index: NDArray[np.intp] | slice = slice(None)) -> Vector:
    """Fenchel-Young gaps ``rho(z) + rho*(u) - u z`` of some rows, not negative."""
    term = r.term.take(index)
    return np.asarray(np.maximum(term.value(z[index]) + term.conjugate(u[index]) - u[index] * z[index], 0.0))


def bracket(bound: CompositeBound, *, balance: bool = True) -> Bracketed:
    """The point of a bound, with what the derivatives of its smoothed terms prove.

    They are a dual point where the quadratic is definite. Otherwise they have to balance exactly, and with `balance`
    they are moved within their intervals until they do; that costs a weighted Gram matrix or a few.
    """
    problem, x, dual = bound.problem, bound.mean, bound.dual
    positions = [part.z for part in bound.rows]
    gap, assumption = dual_gap(problem, x, positions, dual)
    if balance and not np.isfinite(gap):
        dual = balanced(problem, x, dual)
        gap, assumption = dual_gap(problem, x, positions, dual)
    return Bracketed(x, problem.value(x, positions), gap, assumption, dual)


def balanced(problem: Composite, x: Vector, dual: Sequence[Vector]) -> list[Vector]:
    """A dual point near the given one that balances: each row moves by a share of its distance from the ends."""
    dual, size = list(dual), _cancelling(problem, x)
    for _ in range(_DUAL_CORRECTIONS):
        tick((sum(r.count for r in problem.rows) + x.size) * float(x.size) ** 2)
        residual = _residual(problem, x, dual)
        if np.all(np.abs(residual) <= 0.1 * STATIONARY * size):
            break
        room, matrix = [], None
        for r, u in zip(problem.rows, dual, strict=True):
            low, high = r.term.subgradient_range
            room.append(np.minimum(np.minimum(u - low, high - u), 1.0))
            matrix = add(matrix, r.linear.gram(r.weights * room[-1]))
        shift = solve_definite(matrix, -residual)
        for b, (r, share) in enumerate(zip(problem.rows, room, strict=True)):
            dual[b] = dual[b] + share * np.clip(r.linear.apply(shift), -0.9, 0.9)
    return dual


class Balanced(NamedTuple):
    """Subgradients of rows, the share of what cancels that they leave unbalanced, and whether a norm rests there.

    And what they leave, with the sizes of what is added up in it, of each variable.
    """

    dual: list[Vector]
    left: float
    norm_rests: bool
    residual: Vector
    size: Vector


def balancing(problem: Composite, x: Vector) -> Balanced:
    """Subgradients at x of a small problem that balance best: for where a method tells none.

    Rows that rest on a knot, but for rounding, may have any of theirs, and norms that rest any of a cube inside of
    their ball; a least squares problem with these bounds finds them. Of rows with large numbers what is rounding may be
    slack as well: none rest that need not.
    """
    best = _balancing(problem, x, _AT_KNOT[0])
    for share in _AT_KNOT[1:]:
        if best.left <= _ONLY_ROUNDING:
            break
        best = min(best, _balancing(problem, x, share), key=lambda found: found.left)
    return best


def gradient_units(problem: Composite) -> Vector:
    """Powers of two times which the entries of gradients compare, whatever units the variables are in."""
    return problem.structure(_gradient_units)


def _gradient_units(problem: Composite) -> Vector:
    seen = [r.linear.dense() for r in problem.rows] + [group.linear.dense() for group in problem.groups]
    seen.append(problem.vector[None])
    if problem.hessian is not None:
        seen.append(as_dense(problem.hessian))
    return np.exp2(np.clip(column_exponents(np.vstack(seen)), -_MOST_UNIT_EXPONENT, _MOST_UNIT_EXPONENT))


def _balancing(problem: Composite, x: Vector, at_knot: float) -> Balanced:
    dual, matrices, places, ends, norm_rests = [], [], [], [], False
    gradient = problem.quadratic_gradient(x).copy()
    size = np.abs(gradient)
    for k, r in enumerate(problem.rows):
        z, matrix = r.positions(x), np.asarray(r.linear.dense(), dtype=np.float64)
        reach = np.abs(matrix) @ np.abs(x) + np.abs(r.offset)
        z = _on_knots(r, z, at_knot * reach, at_knot)
        low, high = (np.array(np.broadcast_to(end, z.shape), dtype=np.float64) for end in r.term.subdifferential(z))
        free = np.flatnonzero((high > low) & (r.weights > 0.0))
        dual.append(np.where(high > low, 0.0, low))
        gradient += matrix.T @ (r.weights * dual[k])
        size += np.abs(matrix).T @ np.abs(r.weights * dual[k])
        matrices.append(r.weights[free, None] * matrix[free])
        places.append((k, free))
        ends.append((low[free], high[free]))
    for group in problem.groups:
        z, matrix = group.positions(x), np.asarray(group.linear.dense(), dtype=np.float64)
        reach = group.norms(np.abs(matrix) @ np.abs(x) + np.abs(group.offset))
        rests = group.norms(z) <= at_knot * reach
        norm_rests |= bool(rests.any())
        v = group.spread(np.where(rests, 0.0, group.weights)) * group.directions(z)
        gradient += matrix.T @ v
        size += np.abs(matrix).T @ np.abs(v)
        free = np.flatnonzero(group.spread(rests))
        cube = group.spread(group.weights / np.sqrt(group.sizes))[free]
        matrices.append(cube[:, None] * matrix[free])
        ends.append((np.full(free.size, -1.0), np.ones(free.size)))
    if not matrices:
        return Balanced(dual, float(np.any(gradient)), norm_rests, gradient, size)
    matrix, (low, high) = np.concatenate(matrices), (np.concatenate(end) for end in zip(*ends, strict=True))
    unit = gradient_units(problem)
    found = _least_squares_within(unit * matrix, unit * gradient, low, high)
    for (k, free), part in zip(places, np.split(found, np.cumsum([f.size for _, f in places])), strict=False):
        dual[k][free] = part
    residual, sizes = gradient + matrix.T @ found, size + np.abs(matrix).T @ np.abs(found)
    left, most = (float(np.abs(unit * v).max(initial=0.0)) for v in (residual, sizes))
    return Balanced(dual, left / most if most > 0.0 else 0.0, norm_rests, residual, sizes)


def _on_knots(r: Rows, z: Vector, within: Vector, share: float) -> Vector:
    """Positions, those near a knot on the nearest: of steep rows more than one may be within rounding."""
    nearest, distance = z, np.full(z.shape, np.inf)
    for knot in r.term.knots:
        off = np.abs(z - knot)
        closer = (off <= np.maximum(within, share * np.abs(knot))) & (off < distance)
        nearest, distance = np.where(closer, knot, nearest), np.where(closer, off, distance)
    return np.asarray(nearest)


def _least_squares_within(matrix: Vector, gradient: Vector, low: Vector, high: Vector) -> Vector:
    """Shares of rows, within their bounds, that balance a gradient best.

    Rows count as long as the gradient, and its entries in units of what is added up there: solvers look at absolute
    sizes of what is left, and rows may weigh 10^13 times what they are worth.
    """
    from scipy.optimize import lsq_linear  # slow to load, and seldom needed

    found = np.zeros(low.size)
    unit = float(np.abs(gradient).max(initial=0.0))
    lengths = np.abs(matrix).max(axis=1, initial=0.0)
    live = (lengths > 0.0) & (high > low)
    if unit > 0.0 and live.any():
        per = lengths[live] / unit
        rows, ends = matrix[live] / lengths[live, None], (low[live] * per, high[live] * per)
        solve = partial(lsq_linear, rows.T, -gradient / unit, bounds=ends, tol=1e-14)
        answer = solve(method="bvls")  # active sets leave nothing but rounding where they end,
        if not answer.success:  # and where they do not, interior points come near
            answer = min(answer, solve(method="trf"), key=lambda one: one.cost)
        found[live] = np.clip(answer.x / per, low[live], high[live])
    return found


def charge(residual: Vector, x: Vector) -> float:
    """The most that ``r'(y - x)`` can be for the points y of the assumption `NEARBY`."""
    reach = np.abs(x)
    return float(np.abs(residual) @ (2.0 * reach + 1e-6 * reach.max(initial=1.0)))


# -- What needs no run: a start that is optimal term by term, and a lower bound term by term ---------------------------


def rests(problem: Composite, x: Vector) -> bool:
    """Whether every part is at its own minimum, as where all targets are fitted without coefficients: x is optimal."""
    if problem.not_convex or problem.not_quadratic or problem.vector.any():
        return False
    if problem.matrix is not None and np.any(problem.matrix @ x):
        return False
    for r in (*problem.squares, *problem.rows):  # penalties are at their minimum more often than losses
        z, zero = r.positions(x), np.zeros(r.count)
        first = r.term.take(slice(_FIRST_ROWS))
        if np.count_nonzero((first.value(z[:_FIRST_ROWS]) > first.infimum) & (r.weights[:_FIRST_ROWS] != 0.0)):
            return False  # which a few rows often show
        if young(r, z, zero).any():
            return False
    return True


def floor(problem: Composite) -> float:
    """The sum of the least values of all parts, below which no point comes: zero for losses and penalties.

    It is the value of the dual point zero, and all that there is where rounding hides every other.
    """
    return problem.structure(_floor)


def _floor(problem: Composite) -> float:
    if problem.indefinite or problem.vector.any() or any(np.any(r.distinct_weights < 0.0) for r in problem.rows):
        return -np.inf
    return problem.scalar + sum(_least(r) for r in (*problem.squares, *problem.rows))


def _least(r: Rows) -> float:
    """The sum of the least values of the terms of rows, each with its weight."""
    weights = r.distinct_weights
    if weights.size == 1 and r.term.rows is None:
        return float(r.count * weights[0] * r.term.infimum) if weights[0] > 0.0 else 0.0
    with np.errstate(invalid="ignore"):  # 0 * -inf, where the weight alone decides
        return float(np.where(r.weights > 0.0, r.weights * r.term.infimum, 0.0).sum())


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
