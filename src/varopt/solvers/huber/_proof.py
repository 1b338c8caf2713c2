r"""The bracket of Huber's regression with its scale, in arithmetic that knows its rounding: nothing is assumed.

With v_i the duals of the rows times their weights, every v with ``|v_i| <= 2 eps c_i`` and
``sum_i (c_i - v_i^2 / (4 c_i)) >= 0`` gives, for all coefficients and scales,

    F(w, b, s) >= sum_i v_i r_i + alpha ||w||^2.                                                                    (1)

So does the largest of the right-hand sides over a box of such v. A few rows keep a little room, ``v_i +- delta_i``, and

    F(w, b, s) >= sum_i v_i r_i + sum_few delta_i |r_i| + alpha ||w||^2                                             (2)

is a small problem without a scale, in which rounding of what balances is taken up by the room, and which is proved like
any other sum of terms.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import FEW_COLUMNS, SLACK, TINY, UNIT, Ball, dot, down, total, up
from varopt.certificates import Verifier
from varopt.certificates.enclosures import Norms, NotEnclosed, applied, transposed
from varopt.model import Affine, Objective, Variable, sum_squares
from varopt.model.blocks import AffineBlock, TermBlock
from varopt.model.maps import Map, Matrix, as_map
from varopt.solvers.huber._problem import HuberProblem, solved
from varopt.terms import abs_

__all__ = ["proved_bracket"]

Vector = NDArray[np.float64]

_ROOMY_ROWS, _MORE_ROOMY_ROWS = 8, 64  # rows that keep room: so many for each variable, and so many
_CORRECTED_ENTRIES = 1 << 18  # entries of the data up to which a correction does not take longer than most solves
_FAINT_RIDGE = 1e-290  # below it a ridge in units of the data has lost digits
_FAINT_COLUMN = 1e-100  # entries of a column below which it is not looked at
_FREE = 1e-3  # share of its interval that a dual is from its ends, to keep room
_MOST_MOVED = 0.5  # share of that by which a dual is moved at first
_ROOM, _LEAST_MARGIN = 64.0, 1e-13  # times what balance takes, and shares of its interval, that a dual keeps as room
_MANY_ROWS = 4096  # rows from which on the rounding of one is bounded by lengths of columns
_SCALE_MARGIN = 1e-12, 1e-10  # shares of the weights that are left for rounding where a scale has nothing to gain


class _Duals(NamedTuple):
    """Duals times weights, and the rows that keep room: their places, columns, and most that they may move."""

    v: Vector
    few: NDArray[np.intp]
    columns: Vector
    most: Vector


def proved_bracket(problem: HuberProblem, x: Vector, dual: Vector, tol: float) -> tuple[float, float]:
    """Bounds of the optimum: one that duals near those given prove, and what the value at x is at most.

    Costs three passes over the data, and of few more where these leave more than a share `tol`. Infinite where nothing
    is proved.
    """
    knot = problem.epsilon * float(x[-1])
    if 0.0 < problem.alpha < _FAINT_RIDGE or not math.isfinite(4.0 * knot * knot):
        return -math.inf, math.inf
    with np.errstate(all="ignore"):
        try:
            norms: Norms = {}
            linear = as_map("X", problem.X)
            v = _within(problem, dual, _SCALE_MARGIN[0])
            slope = transposed(linear, Ball.exact(v), norms)  # which finds the lengths of columns
            known = norms if problem.y.size >= _MANY_ROWS else {}  # of few rows it pays to look at each
            residual = _residual(problem, x, linear, known)
            upper = _upper(problem, x, residual)
            lower = _directly(problem, x, v, slope, residual)
            if not (upper - lower <= tol * upper or problem.y.size * x.size > _CORRECTED_ENTRIES):
                few, there = _without_empty(problem, x)
                if few is not problem:
                    problem, x, linear, norms = few, there, as_map("X", few.X), {}
                    transposed(linear, Ball.exact(v), norms)
            for sharp, margin in itertools.product((False, True), _SCALE_MARGIN):
                if upper - lower <= tol * upper or problem.y.size * x.size > _CORRECTED_ENTRIES:
                    break
                lower = max(lower, _corrected(problem, x, dual, linear, residual, {} if sharp else norms, margin))
        except (NotEnclosed, np.linalg.LinAlgError):
            return -math.inf, math.inf
    return max(lower, 0.0), upper


def _residual(problem: HuberProblem, x: Vector, linear: Map, norms: Norms) -> Ball:
    """``y - X w - b``, enclosed."""
    fitted = applied(linear, Ball.exact(x[:-2]), norms).rounded()
    return Ball(-fitted.middle, fitted.radius).shifted(problem.y).shifted(-x[-2])


def _upper(problem: HuberProblem, x: Vector, residual: Ball) -> float:
    """The value at x, rounded upwards: losses do not fall where more of them counts as near.

    A loss is ``t (|r| - t / 2)``, t being |r| or the knot, whichever is less: neither this nor their sum cancels.
    """
    scale, w, knot = float(x[-1]), x[:-2], float(up(problem.epsilon * float(x[-1])))
    sizes = np.abs(residual.middle)
    near = np.minimum(sizes, knot)
    value, error = dot(problem.weight, near * (sizes - 0.5 * near))
    steepest = np.minimum(sizes + residual.radius, knot)
    error += float(problem.weight @ (residual.radius * steepest))
    weights, off = problem.enclosed_total
    error = (error + 8.0 * UNIT * (value + error) + TINY * (weights + sizes.size)) * SLACK
    squares, lost = dot(w, w)
    parts = 2.0 * (value + error) / scale + (weights + off) * scale + problem.alpha * (squares + lost)
    upper = float(parts * (1.0 + 16.0 * UNIT) + TINY)
    return upper if math.isfinite(upper) else math.inf


def _within(problem: HuberProblem, dual: Vector, margin: float) -> Vector:
    """Duals times weights, inside of their ends and such that a scale has nothing to gain."""
    end = 2.0 * problem.epsilon * (1.0 - 8.0 * UNIT)
    u = np.clip(dual, -end, end)
    size = 0.25 * float(problem.weight @ u**2)
    share = min(1.0, math.sqrt(problem.total * (1.0 - margin) / size)) if size > 0.0 else 1.0
    return np.asarray(problem.weight * (share * u))


def _directly(problem: HuberProblem, x: Vector, v: Vector, slope: Ball, residual: Ball) -> float:
    """By (1), with one dual that takes what is left of the intercept's equation, and a ridge what is left of others."""
    p, w = problem, x[:-2]
    if p.alpha == 0.0:
        return -math.inf
    few, move, row = np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(w.size)
    if p.intercept:
        few = np.array([np.argmax(2.0 * p.epsilon * p.weight - np.abs(v))], dtype=np.intp)
        level, off = total(v)
        move = np.array([(abs(level) + off) * SLACK])
        row = np.abs(_dense_rows(p.X, few)[0])
    if not _scale_gains_nothing(p, v, few, move):
        return -math.inf
    ridge = 2.0 * p.alpha * w
    left = np.abs(slope.middle - ridge) + slope.radius + 4.0 * UNIT * np.abs(ridge) + move.sum() * row
    gained = float((left * (left / (4.0 * p.alpha))).sum()) * SLACK
    squares, lost = dot(w, w)
    value, off = dot(v, residual.middle)
    off += float(np.abs(v) @ residual.radius) + float(move @ (np.abs(residual.middle[few]) + residual.radius[few]))
    kept = p.alpha * (squares - lost)
    error = (off + gained + 4.0 * UNIT * (abs(value) + abs(kept))) * SLACK + TINY
    return float(down(value + kept - error))


def _corrected(
    problem: HuberProblem, x: Vector, dual: Vector, linear: Map, residual: Ball, norms: Norms, margin: float
) -> float:
    """By (2); without the lengths of columns in `norms` in extended precision."""
    duals = _balanced(problem, x, dual, margin)
    v, few, columns, most = duals
    largest = np.abs(columns).max(axis=0, initial=0.0)
    if np.any(largest < _FAINT_COLUMN):  # products with it underflow
        return -math.inf
    slope = transposed(linear, Ball.exact(v), norms) if norms else _sharp(linear, v)
    level = Ball(*map(np.atleast_1d, total(v))) if problem.intercept else Ball.exact(np.zeros(0))
    left = np.append(slope.middle - 2.0 * problem.alpha * x[:-2], level.middle)
    spread = np.append(slope.radius, level.radius)
    shares = _shares(problem, duals, np.abs(left) + spread)
    alone = few.size / max(1, left.size)  # as few rows as there are equations take what all of them would
    share = max(_ROOM * alone * float(np.abs(shares).max(initial=0.0)), _LEAST_MARGIN)
    if not share <= 1.0:
        return -math.inf
    room = share * most
    if not _scale_gains_nothing(problem, v, few, room):
        return -math.inf
    there, off = dot(v, residual.middle)
    off += float(np.abs(v) @ residual.radius) * SLACK + float(room @ residual.radius[few]) * SLACK
    coef, intercept = Variable(x.size - 2, name="coef"), Variable(name="intercept")
    line: dict[Variable, Map] = {coef: Matrix(-slope.middle[None, :])}
    rows: dict[Variable, Map] = {coef: Matrix(-columns[:, : x.size - 2])}
    if problem.intercept:
        line[intercept], rows[intercept] = Matrix(-level.middle[None, :]), Matrix(-np.ones((few.size, 1)))
    blocks = [
        AffineBlock(Affine(line, there, ())),
        TermBlock(abs_(), Affine(rows, residual.middle[few], (few.size,)), room),
    ]
    small = Objective(blocks)
    if problem.alpha > 0.0:  # of coefficients counted from the point
        small = Objective([*blocks, *(problem.alpha * sum_squares(coef + x[:-2])).blocks])
    radius = np.zeros(small.size)
    for variable, part in zip((coef, intercept), np.split(spread, [x.size - 2]), strict=True):
        if part.size:
            radius[small.slices[variable]] = part
    proof = Verifier(small, np.zeros(small.size), radius, off * SLACK + TINY)
    return float(down(proof.bracket([np.zeros(few.size)], 1e-12 * abs(there)).lower))


def _without_empty(problem: HuberProblem, x: Vector) -> tuple[HuberProblem, Vector]:
    """The problem without columns of zeros, whose coefficients can only cost, and a point of it."""
    largest = abs(problem.X).max(axis=0)
    used = np.ravel(largest.toarray() if sp.issparse(largest) else largest) > 0.0
    if used.all():
        return problem, x
    return replace(problem, X=problem.X[:, used]), x[np.append(used, [True, True])]


def _sharp(linear: Map, v: Vector) -> Ball:
    """``X'v`` in extended precision: what rounding leaves of it is what rows need room for."""
    slope = Ball.exact(np.zeros(linear.shape[1]))
    for start in range(0, linear.shape[1], FEW_COLUMNS):
        part = np.arange(start, min(start + FEW_COLUMNS, linear.shape[1]))
        slope.middle[part], slope.radius[part] = transposed(linear.columns(part), Ball.exact(v), {})
    return slope


def _balanced(problem: HuberProblem, x: Vector, dual: Vector, margin: float) -> _Duals:
    """Duals that about balance, for which a scale has nothing to gain, and the rows that may move."""
    p, c = problem, problem.weight
    v, end = _within(p, dual, margin), 2.0 * p.epsilon * c * (1.0 - 8.0 * UNIT)
    free = np.flatnonzero(end - np.abs(v) > _FREE * end)
    stride = 1 + free.size // (_ROOMY_ROWS * (x.size - 1) + _MORE_ROOMY_ROWS)
    few = free[::stride]
    columns = _dense_rows(p.X, few)
    if p.intercept:
        columns = np.column_stack([columns, np.ones(few.size)])
    duals = _Duals(v, few, columns, 0.5 * (end - np.abs(v))[few])
    gradient = np.asarray(p.X.T @ duals.v) - 2.0 * p.alpha * x[:-2]
    shares = _shares(p, duals, np.append(gradient, [duals.v.sum()] * p.intercept))
    duals.v[few] -= duals.most * np.clip(shares, -_MOST_MOVED, _MOST_MOVED)
    # What moved takes a share of the scale again.
    size = 0.25 * float((duals.v[c > 0.0] ** 2 / c[c > 0.0]).sum())
    if size > p.total * (1.0 - 0.5 * margin):
        duals.v[:] *= math.sqrt(p.total * (1.0 - 0.5 * margin) / size)
    return duals


def _shares(problem: HuberProblem, duals: _Duals, gradient: Vector) -> Vector:
    """The shares of their most by which rows that may move make a gradient; a ridge takes up what is cheaper there.

    Of fewer rows than equations by the rows' own Gram matrix: the same least squares, in their order.
    """
    columns, most = duals.columns, duals.most
    if columns.shape[0] < columns.shape[1]:
        rows = np.sqrt(most)[:, None] * columns
        found = solved(rows @ rows.T, rows @ gradient, 1e-13)
        return np.asarray(found / np.where(most > 0.0, np.sqrt(most), 1.0))
    return np.asarray(columns @ solved(columns.T @ (most[:, None] * columns), gradient, 1e-13))


def _scale_gains_nothing(problem: HuberProblem, v: Vector, few: NDArray[np.intp], room: Vector) -> bool:
    """Whether ``sum_i (c_i - v_i^2 / (4 c_i))`` is not negative and no dual beyond its ends, in all of the box."""
    c, size = problem.weight, np.abs(v)  # which is zero where a weight is
    size[few] = (size[few] + room) * (1.0 + 4.0 * UNIT)
    if not np.all(size <= 2.0 * problem.epsilon * c * (1.0 - 2.0 * UNIT)):
        return False
    parts = size * (0.25 * size / np.where(c > 0.0, c, 1.0)) * (1.0 + 8.0 * UNIT) + TINY
    spent, off = total(parts)
    weights, lost = problem.enclosed_total
    return bool((spent + off) * (1.0 + 4.0 * UNIT) <= (weights - lost) * (1.0 - 4.0 * UNIT))


def _dense_rows(X: Any, index: NDArray[np.intp]) -> Vector:
    """Some of the rows, densely."""
    rows = X[index]
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64)
