"""One pass over Huber's objective with its scale, and what it proves to be below it."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

import varopt.model as vo
from varopt._linalg import factorised
from varopt._verified import SLACK, TINY, UNIT, Ball, down
from varopt.certificates import Lines, Verifier, lines, positions
from varopt.composite import Rows, rows_of
from varopt.model import Affine, Objective, Variable
from varopt.model.blocks import AffineBlock, Block, TermBlock
from varopt.model.maps import Map, Matrix
from varopt.optimize.anywhere._ask import Ask
from varopt.optimize.anywhere._centre import ColumnCentres
from varopt.optimize.anywhere._problem import Problem
from varopt.optimize.anywhere._relations import Relations
from varopt.optimize.anywhere._sweep import Sweep, Swept
from varopt.places import DataPart, joined
from varopt.solvers import State
from varopt.terms import PiecewisePolynomial, abs_, huber

__all__ = ["ANCHORS", "MORE_ANCHORS", "LosesDigits", "ScaledHuber", "Seen", "evaluated", "see", "solved"]

Vector = NDArray[np.float64]

# By which duals may move: a share of the scale, or times what balance should take.
_DUAL_ROOM, _MORE_DUAL_ROOM = 1e-7, 4.0
_AIMED_GAP = 1e-11  # relative gap that proofs aim at: one that a ridge closes alone may be wide
_SHARE_OF_GAIN = 0.125  # of what the scale may lose at zero
_INSIDE_KNOT = 1.0 - 1e-6  # share of the knot up to which they may
ANCHORS, MORE_ANCHORS = 20, 1000  # rows that keep room: so many for each variable, and so many
_SMALLEST_SQUARE = 1e-200  # of a knot, and its inverse the largest
_CLOSE_ENOUGH = 1e-9  # gap beyond which a bound is tried with the tangent of the ridge, and with more room,
_ROOM_PRICES = 0.0, 1e-11, 2e-10  # at these shares of the value
_CHARGED = 2.0**-46  # times the square of the knot, for each row: more than what rounding of the term's pieces is


class LosesDigits(Exception):
    """Numbers cannot be taken from all columns that they were to be taken from: from which they may be."""

    def __init__(self, left: ColumnCentres | None) -> None:
        super().__init__()
        self.left = left


@dataclass(frozen=True)
class ScaledHuber(Problem):
    """The sum of ``huber(r, 1)`` over rows that are elsewhere, to be minimised with a ridge and a scale.

    A point holds the variables of the objective, and then the scale.
    """

    coefficients: Variable
    epsilon: float
    alpha: float
    centre: ColumnCentres | None = None  # points are in terms of what it leaves of the data

    def rows(self, part: DataPart, term: PiecewisePolynomial | None = None) -> Rows:
        """The rows of a part, less what is taken from their columns."""
        block = self.blocks[0].at(part)
        rows = rows_of(block if term is None else replace(block, term=term), self.variables)
        return rows if self.centre is None else self.centre.of(rows)[0]

    @property
    def width(self) -> int:
        """Number of variables, with the one that stands for what is taken from columns where there is no intercept."""
        return self.size + (self.centre is not None and self.centre.tie is not None)

    @property
    def free(self) -> Vector | None:
        """What points are tied to, if they are: the columns of a matrix times what may be anything."""
        return None if self.centre is None else self.centre.free

    @property
    def ridge(self) -> Vector:
        """One for each coefficient, zero for an intercept."""
        marks = np.zeros(self.width)
        marks[self.objective.slices[self.coefficients]] = 1.0
        return marks

    def knot(self, scale: float) -> float:
        """Not above ``epsilon * scale``: no dual is then beyond what the loss allows."""
        return self.epsilon * scale * (1.0 - 4.0 * UNIT)


class Seen(NamedTuple):
    """The objective times half the scale, as a function of coefficients and of a multiple of the scale, at a point."""

    x: Vector
    given: Vector  # the same point, in terms of the data as they are
    scale: float
    value: float  # of the objective itself
    upper: float
    gradient: Vector
    hessian: Vector
    lines: Lines
    weight: Ball
    kept: Rows
    positions: Ball  # of the rows kept
    related: Any
    off: float  # by how much rows differ at x from what they are at the point given
    far: Lines  # of the rows that are not kept


def evaluated(
    problem: ScaledHuber, x: Vector, scale: float, part: DataPart | None, relations: Vector | None = None,
    within: float = 0.0,
) -> Generator[Ask, Any, Seen]:  # fmt: skip
    """By a pass, or of all rows that were read; those nearer to a fit than `within`, at least two knots, are kept."""
    knot = problem.knot(scale)
    if not _SMALLEST_SQUARE <= knot * knot <= 1.0 / _SMALLEST_SQUARE:
        raise ValueError(f"the scale of the residuals, about {scale:.0e}, has no square: measure y in other units.")
    every = max(1, problem.count // (ANCHORS * (problem.size + 1) + MORE_ANCHORS))
    given, off = x, 0.0
    if problem.centre is not None:
        given, x, off = problem.centre.back(x)
    request = Sweep(
        x, every=every, curved=True, scaled=True, term=huber(knot), relations=relations, centre=problem.centre
    )
    if within:
        request = replace(request, factor=np.zeros((x.size, 1)), reach=within, least=within - knot)
    swept: Swept
    if part is None:
        [swept] = yield Ask(work=[request])
    else:
        swept = request.of(problem.blocks[0], problem.variables, part)
    if not swept.weight.ball().middle > 0.0:
        raise ValueError("weights must not be zero for every row.")
    if problem.centre is not None and not np.all(swept.exact):
        raise LosesDigits(problem.centre.only(swept.exact))
    kept = problem.rows(joined(swept.kept), huber(knot))
    placed = positions(kept, x, {})
    z = placed.middle
    all_lines = swept.lines + lines(kept, z, kept.weights, {}, placed.radius)
    curvature = kept.weights * kept.term.derivative(z, 2)
    gram = kept.linear.gram(curvature)
    gram = gram.toarray() if hasattr(gram, "toarray") else gram
    bend = swept.bend + np.append(kept.linear.transpose_apply(curvature * z), curvature @ z**2)
    ridge, weight = problem.alpha * scale * problem.ridge, swept.weight.ball()
    hessian = np.zeros((problem.width + 1,) * 2)
    hessian[:-1, :-1] = swept.hessian + gram + np.diag(ridge)
    hessian[-1, :-1] = hessian[:-1, -1] = -bend[:-1]
    hessian[-1, -1] = bend[-1]
    conjugates = float(all_lines.conjugates.ball().middle)
    half = 0.5 * scale * scale
    gradient = np.append(
        all_lines.gradient.ball().middle + ridge * x, float(weight.middle) * half + conjugates
    )  # fmt: skip
    losses = swept.value.ball()
    squares = 0.5 * problem.alpha * scale * float(problem.ridge @ x**2)
    charged = _CHARGED * knot * knot * float(weight.middle) + 2.0**-46 * (float(losses.middle) + squares)
    middle = float(weight.middle) * half + float(losses.middle) + squares
    radius = float(weight.radius) * half + float(losses.radius) + charged + 16.0 * UNIT * middle
    radius += off * knot * float(weight.middle + weight.radius) * (1.0 + 8.0 * UNIT)  # no dual is beyond the knot
    upper = 2.0 * (middle + radius) / scale * (1.0 + 8.0 * UNIT)
    return Seen(
        x, given, scale, 2.0 * middle / scale, upper, gradient, hessian, all_lines, weight, kept, placed,
        swept.related, off, swept.lines,
    )  # fmt: skip


def see(problem: ScaledHuber, state: State, seen: Seen, relations: Relations) -> None:
    """The bracket at a point."""
    if seen.upper < state.upper:
        state.x, state.upper, state.bound = np.append(seen.given, seen.scale), seen.upper, seen.value
    lower = max(0.0, *(_lower_bound(problem, seen, relations, at_zero) for at_zero in (False, True)))
    # A ridge that is faint in the units of the data takes up what rounding leaves at any price: better its tangent. And
    # beside columns that nearly depend on each other, rounding asks for more room than balance does.
    for price in _ROOM_PRICES:
        if not lower >= (1.0 - _CLOSE_ENOUGH) * seen.value:
            lower = max(lower, _lower_bound(problem, seen, relations, False, price, tangent=True))
    if lower > state.lower:
        state.lower, state.assumption = lower, ""
    state.record()


def _lower_bound(
    problem: ScaledHuber, seen: Seen, relations: Relations, at_zero: bool, price: float = 0.0, *, tangent: bool = False
) -> float:
    """What no point and no scale is below: of the lines of all rows, some of which keep room for their duals.

    Where all that is multiplied by t is not negative, whatever room is taken, t may be zero: a proof for that case. The
    room is what balance takes, or as much as costs a share `price` of the value; with `tangent` the ridge is that at
    the point, which it is not below.
    """
    knot, rows, z = problem.knot(seen.scale), seen.kept, seen.positions.middle
    most = 0.5 * (_INSIDE_KNOT * knot - np.abs(z))  # by which a dual may move
    inside = np.flatnonzero((most > 1e-3 * knot) & (rows.weights > 0.0))
    if not inside.size:
        return -math.inf
    A = np.array(rows.linear.dense(), dtype=np.float64)[inside]
    h, c, most = z[inside], rows.weights[inside], most[inside]
    A[:, relations.spared] = 0.0
    B = A if at_zero else np.column_stack([A, -h])
    gram = B.T @ ((c * most)[:, None] * B)
    if not tangent:
        ridge = problem.alpha * seen.scale * knot * problem.ridge  # which takes up what it may at the same price
        gram[np.diag_indices(ridge.size)] += ridge
    wanted, pull = seen.gradient[: gram.shape[0]], 0.0
    tie = None if problem.centre is None else problem.centre.tie
    if tie is not None:
        pull, wanted = _pulled(gram, wanted, tie)
    shares = -B @ solved(gram, wanted, 1e-13)  # of what they may
    taken_up = max(_DUAL_ROOM * seen.scale / knot, _MORE_DUAL_ROOM * float(np.abs(shares).max()))
    if not taken_up <= 1.0:
        return -math.inf
    taken_up = max(taken_up, min(1.0, math.sqrt(price * seen.scale * seen.value / float(c @ most**2))))
    if at_zero:  # room costs nothing as long as the scale has nothing to gain, and rounding asks for some
        taken_up = max(taken_up, min(1.0, _SHARE_OF_GAIN * _spare(seen, c * most, h, most)))
    room = taken_up * most
    t, half = Variable(name="t"), 0.5 * seen.scale * seen.scale
    gradient, there, conjugates = (s.ball() for s in (seen.lines.gradient, seen.lines.there, seen.lines.conjugates))
    gradient.middle[relations.spared] = gradient.radius[relations.spared] = 0.0
    if tangent:
        gradient, there = _with_tangent(problem, seen, gradient, there)
    if tie is not None:
        gradient = gradient.plus(Ball(pull * tie, UNIT * np.abs(pull * tie) + TINY))
    taken = float(c @ (0.5 * room * room + 8.0 * UNIT * room * np.abs(h))) * (1.0 + 2.0**-30)
    taken += _CHARGED * knot * knot * float(seen.weight.middle)
    of_t = float(seen.weight.middle) * half + float(conjugates.middle) - taken
    about = float(seen.weight.radius) * half + float(conjugates.radius)
    about += 8.0 * UNIT * (float(seen.weight.middle) * half + abs(float(conjugates.middle)) + taken)
    if at_zero and not of_t - about * SLACK - float(c @ (room * np.abs(h))) * (1.0 + 2.0**-30) > 0.0:
        return -math.inf
    # Coefficients are counted from the point, where targets have cancelled, and in units, powers of two, in which the
    # scale and the columns are about one: nothing of it is rounded.
    unit, columns = 2.0 ** round(math.log2(seen.scale)), _powers(np.abs(A).max(axis=0))
    gradient = Ball(gradient.middle / unit / columns, gradient.radius / unit / columns)
    square = unit * unit
    places = dict(problem.objective.slices)
    if tie is not None:
        places[Variable(name="c")] = slice(problem.size, problem.size + 1)
    line: dict[Variable, Map] = {v: Matrix(gradient.middle[None, place]) for v, place in places.items()}
    absolute: dict[Variable, Map] = {v: Matrix((A / columns)[:, place]) for v, place in places.items()}
    if not at_zero:
        line[t], absolute[t] = Matrix(np.array([[of_t / square]])), Matrix(-h[:, None] / unit)
    small = Objective([
        AffineBlock(Affine(line, float(there.middle) / square, ())),
        TermBlock(abs_(), Affine(absolute, h / unit, (inside.size,)), room / unit * c),
        *(() if tangent else _penalty(problem, seen, unit, columns)),
    ])  # fmt: skip
    point, radius = np.zeros(small.size), np.zeros(small.size)
    for v, place in places.items():
        radius[small.slices[v]] = gradient.radius[place]
    if not at_zero:
        point[small.slices[t]], radius[small.slices[t]] = 1.0, about * SLACK / square
    error = float(there.radius) + float((c * room) @ seen.positions.radius[inside]) * (1.0 + 2.0**-30)
    error = (error + abs(pull) * seen.off) * SLACK
    proof = Verifier(small, point, radius, error / square + TINY)
    lower = proof.bracket([shares / taken_up], _AIMED_GAP * 0.5 * seen.scale * seen.value / square).lower * square
    return float(down(2.0 * lower / seen.scale * (1.0 - 8.0 * UNIT * np.sign(lower)))) if lower > -math.inf else lower


def _spare(seen: Seen, weights: Vector, h: Vector, most: Vector) -> float:
    """Times the room that duals may take, about what the scale may yet lose."""
    gain = max(0.0, float(seen.gradient[-1]))
    linear, squares = float(weights @ np.abs(h)), 0.5 * float(weights @ most)
    return min(gain / linear if linear else math.inf, math.sqrt(gain / squares))


def _pulled(gram: Vector, wanted: Vector, tie: Vector) -> tuple[float, Vector]:
    """The multiple of what is zero at all points with which the least is left to balance, and what that is."""
    tie = np.append(tie, np.zeros(wanted.size - tie.size))
    along = solved(gram, tie, 1e-13)
    pull = -float(along @ wanted) / float(along @ tie)
    return pull, wanted + pull * tie


def _with_tangent(problem: ScaledHuber, seen: Seen, gradient: Ball, there: Ball) -> tuple[Ball, Ball]:
    """A line, as its gradient and its value at the point, and the tangent there of the ridge times half the scale."""
    slope = problem.alpha * seen.scale * problem.ridge * seen.x
    squares = 0.5 * float(slope @ seen.x)
    off = 8.0 * UNIT * (np.abs(gradient.middle) + np.abs(slope))
    about = (problem.size + 8.0) * UNIT * (abs(float(there.middle)) + squares)
    return (
        Ball(gradient.middle + slope, (gradient.radius + off + TINY) * SLACK),
        Ball(there.middle + squares, (there.radius + about + problem.size * TINY) * SLACK),
    )


def _powers(sizes: Vector) -> Vector:
    """Powers of two near sizes; one for zero."""
    return np.where(sizes > 0.0, np.exp2(np.round(np.log2(np.where(sizes > 0.0, sizes, 1.0)))), 1.0)


def _penalty(problem: ScaledHuber, seen: Seen, unit: float, columns: Vector) -> tuple[Block, ...]:
    """The ridge times half the scale, rounded downwards, of coefficients counted from the point in units of columns."""
    if problem.alpha == 0.0:
        return ()
    strength, place = 0.5 * problem.alpha * seen.scale * (1.0 - 4.0 * UNIT), problem.objective.slices
    mine = place[problem.coefficients]
    whole = (1.0 / columns[mine]) * problem.coefficients + seen.x[mine] / unit
    return Objective((strength * vo.sum_squares(whole)).blocks).blocks


def solved(matrix: Vector, wanted: Vector, cutoff: float) -> Vector:
    """The solution of equations with a matrix that is not negative, in units in which its diagonal is ones."""
    unit = np.sqrt(np.diag(matrix))
    unit = np.divide(1.0, unit, out=np.zeros_like(unit), where=unit > 0.0)
    even, wanted = unit[:, None] * matrix * unit, unit * wanted
    used = unit > 0.0
    factor = factorised(even[np.ix_(used, used)])
    if factor is None:
        return np.asarray(unit * np.linalg.lstsq(even, wanted, rcond=cutoff)[0], dtype=np.float64)
    # Entries that a strong ridge keeps small are exact beside large ones, as by singular values they would not be.
    found = np.zeros(unit.size)
    found[used] = cho_solve(factor, wanted[used], check_finite=False)
    return unit * found
