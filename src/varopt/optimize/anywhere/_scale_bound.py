"""What is below Huber's objective with its scale, from one pass over rows that are not in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

import varopt.model as vo
from varopt._linalg import factorised
from varopt._verified import SLACK, TINY, UNIT, Ball, down
from varopt.certificates import Lines, Verifier
from varopt.composite import Rows, rows_of
from varopt.model import Affine, Objective, Variable
from varopt.model.blocks import AffineBlock, Block, TermBlock
from varopt.model.maps import Map, Matrix
from varopt.optimize.anywhere._centre import ColumnCentres
from varopt.optimize.anywhere._problem import Problem
from varopt.optimize.anywhere._relations import Relations
from varopt.places import DataPart
from varopt.terms import PiecewisePolynomial, abs_

__all__ = ["CHARGED", "ScaledHuber", "Seen", "lower_bound", "solved"]

Vector = NDArray[np.float64]

# By which duals may move: a share of the scale, or times what balance should take.
_DUAL_ROOM, _MORE_DUAL_ROOM = 1e-7, 4.0
_AIMED_GAP = 1e-11  # relative gap that proofs aim at: one that a ridge closes alone may be wide
_INSIDE_KNOT = 1.0 - 1e-6  # share of the knot up to which they may
CHARGED = 2.0**-46  # times the square of the knot, for each row: more than what rounding of the term's pieces is


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


def lower_bound(
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
    room = taken_up * most
    t, half = Variable(name="t"), 0.5 * seen.scale * seen.scale
    gradient, there, conjugates = (s.ball() for s in (seen.lines.gradient, seen.lines.there, seen.lines.conjugates))
    gradient.middle[relations.spared] = gradient.radius[relations.spared] = 0.0
    if tangent:
        gradient, there = _with_tangent(problem, seen, gradient, there)
    if tie is not None:
        gradient = gradient.plus(Ball(pull * tie, UNIT * np.abs(pull * tie) + TINY))
    taken = float(c @ (0.5 * room * room + 8.0 * UNIT * room * np.abs(h))) * (1.0 + 2.0**-30)
    taken += CHARGED * knot * knot * float(seen.weight.middle)
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
