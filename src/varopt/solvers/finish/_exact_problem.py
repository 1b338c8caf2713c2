"""A convex problem of few variables in rational numbers: exactly what the objective's blocks hold."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._verified import is_semidefinite, up
from varopt.composite import Groups, Rows, composite
from varopt.model import Affine, Objective
from varopt.model.blocks import AffineBlock
from varopt.model.maps import Composition, HStack, Map, Matrix, Scaled, Selection, Sparse, Sum
from varopt.solvers.finish._far_rows import FarRows, exact_total, near_and_far
from varopt.solvers.finish._lattice import close_point

__all__ = [
    "ZERO", "ExactProblem", "Inexact", "Norm", "Numbers", "RationalMinimum", "Row", "above", "dot", "independent",
    "meet", "reduced",
]  # fmt: skip

Vector = NDArray[np.float64]
Numbers = list[Fraction]
Equation = tuple[int, Numbers, Fraction]  # a variable, what it is multiplied by beside others, and the right-hand side

_NEAR_ROWS = 300  # near a knot, up to which it is done
_PRODUCTS = 1 << 16  # of rational numbers in forms, whose own matrix may have many rows: half a second
_STAY, _STAY_AT_LEAST = 6, 60  # rows for each variable, and in all, that are not taken as lines
_ROOT_BITS = 420  # bits of a square root
_REST_ON_KNOT = Fraction(1, 10**12)  # share of what is added up in a position within which it is on a knot
# Relative gap beyond which a better point is looked for in the lattice of those nearby.
_LATTICE_GAP = Fraction(1, 10**11)
_LATTICE = 8  # variables up to which that is done
_REACHES = Fraction(1, 10**3), Fraction(1, 10**6), Fraction(1, 10**9)  # how far from the optimum, relative
ZERO = Fraction(0)


class Inexact(ValueError):
    """What is at hand is not as exact as rational arithmetic."""


class RationalMinimum(NamedTuple):
    """The optimum, rounded; what no point is below; and what the rounded one is not above.

    Where the objective falls for ever, `lower` is minus infinity, and x a point from which it does.
    """

    x: Vector
    lower: float
    upper: float


def above(value: Fraction) -> float:
    """The number in double precision that is not below."""
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else float(up(rounded))


class Row(NamedTuple):
    """One weighted term: knots, and pieces as powers of z."""

    entries: Numbers
    offset: Fraction
    knots: Numbers
    pieces: list[tuple[Fraction, Fraction, Fraction]]

    def position(self, x: Numbers) -> Fraction:
        """``a'x + d``."""
        return self.offset + dot(self.entries, x)

    def derivative(self, piece: int, z: Fraction) -> Fraction:
        """The derivative of a piece."""
        _, first, second = self.pieces[piece]
        return first + 2 * second * z

    def kink(self, knot: int) -> tuple[Fraction, Fraction]:
        """The derivatives on either side of a knot."""
        return self.derivative(knot, self.knots[knot]), self.derivative(knot + 1, self.knots[knot])

    def steepness(self, knot: int) -> Fraction:
        """By how much the gradient jumps on a knot."""
        low, high = self.kink(knot)
        return (high - low) * max(map(abs, self.entries))

    def joined(self) -> Row:
        """The row with pieces that meet: where rounding parts their constants, that of the least value counts."""
        ends = [j for j in range(len(self.knots)) if self.kink(j)[0] >= 0]
        first, pieces = ends[0] if ends else len(self.knots), list(self.pieces)
        for j in (*range(first, len(self.knots)), *reversed(range(first))):
            known, moved = (j, j + 1) if j >= first else (j + 1, j)
            _, a, b = pieces[moved]
            z = self.knots[j]
            pieces[moved] = (pieces[known][0] + (pieces[known][1] - a + (pieces[known][2] - b) * z) * z, a, b)
        return self._replace(pieces=pieces)

    def value(self, z: Fraction) -> Fraction:
        """The term, weighted."""
        constant, first, second = self.pieces[bisect_right(self.knots, z)]
        return constant + first * z + second * z * z


class Norm(NamedTuple):
    """One weighted norm ``w |Z x + e|``."""

    weight: Fraction
    matrix: list[Numbers]
    offset: Numbers

    def position(self, x: Numbers) -> Numbers:
        """``Z x + e``."""
        return [e + dot(row, x) for row, e in zip(self.matrix, self.offset, strict=True)]

    def value(self, z: Numbers) -> Fraction:
        """The norm, weighted and rounded upwards far beyond double precision."""
        return self.weight * root_above(dot(z, z))


def root_above(value: Fraction) -> Fraction:
    """A square root, rounded upwards."""
    if value == 0:
        return ZERO
    shift = max(0, _ROOT_BITS - value.numerator.bit_length() + value.denominator.bit_length())
    shift += shift % 2
    return Fraction(math.isqrt((value.numerator << shift) // value.denominator) + 1, 1 << (shift // 2))


class ExactProblem:
    """``1/2 x'Kx + g'x + c``, rows of terms and norms; raises `Inexact` where some of it is rounded, or not convex.

    With a point `near` the optimum, and many rows, those far from their knots there are lines.
    """

    def __init__(self, objective: Objective, near: Vector | None = None) -> None:
        form = composite(objective, multiplied=False)
        if form.not_convex or any(r.term.degree > 2 for r in form.rows):
            raise Inexact
        if sum(q.offset.size**2 for q in form.forms) * form.size > _PRODUCTS:
            raise Inexact
        self.size = form.size
        self.line, self.constant = _linear_part(objective)
        self.matrix = [[ZERO] * self.size for _ in range(self.size)]
        for q in form.forms:
            self._add(q.linear, q.offset, q.matrix, q.weight)
        self.far: list[FarRows] = []
        few = form.rows if near is None else self._without_far(form.rows, near)
        if sum(np.count_nonzero(r.weights) for r in few) > _NEAR_ROWS:
            raise Inexact
        rows = [row for r in few for row in self._rows(r)]
        for row in rows:
            if not row.knots:
                self._multiply_out(row)
        self.rows = [row for row in rows if row.knots]
        if not is_semidefinite(self.matrix):  # of the sum: a form that rounding makes curve down may have company
            raise Inexact
        self.norms = [norm for group in form.groups for norm in _norms(group)]

    def value(self, x: Numbers) -> Fraction:
        """The objective at a point; norms are rounded upwards."""
        quadratic = dot(x, [dot(row, x) for row in self.matrix])
        terms = sum((row.value(row.position(x)) for row in self.rows), ZERO)
        norms = sum((norm.value(norm.position(x)) for norm in self.norms), ZERO)
        return self.constant + dot(self.line, x) + quadratic / 2 + terms + norms

    def bracket(self, lower: Fraction, x: Numbers) -> RationalMinimum:
        """What is known from a lower bound and a point: the best of those next to it, and bounds rounded outwards."""
        upper, point = min((self._valued(p) for p in self._rounded(x)), key=lambda pair: pair[0])
        if upper - lower > _LATTICE_GAP * abs(upper) and self.size <= _LATTICE:
            for p in self._close(x, point, (upper - lower) / 1000):
                upper, point = min((upper, point), self._valued(p), key=lambda pair: pair[0])
        if not all(part.stay(point) for part in self.far):
            raise Inexact
        return RationalMinimum(point, -above(-lower), above(upper))

    def _valued(self, point: Vector) -> tuple[Fraction, Vector]:
        return self.value([Fraction(v) for v in point.tolist()]), point

    def _rounded(self, x: Numbers) -> Iterable[Vector]:
        """Points in double precision next to one: as it is, and with what is steep where it was, the steepest first.

        A steep term rests on its kink, or near the middle of its curve, where an equation holds. Each is met by a
        variable of its own once the others are rounded: that with the largest coefficient, which moves least, or that
        whose neighbouring numbers change the equation least.
        """
        plain = np.array([float(v) for v in x])
        yield plain
        given, grid = [Fraction(v) for v in plain.tolist()], _spacing(plain)
        costs = [(jump * (step := _moved(line, grid)) + curvature * step * step, line)
                 for jump, curvature, line in self._held(x)]  # fmt: skip
        costs = sorted((pair for pair in costs if pair[0] > 0), key=lambda pair: -pair[0])
        for spacing in (None, grid):
            _, solved = independent(((line, dot(line, x)) for _, line in costs), len(x), spacing)
            met = list(given)
            for pivot, known, value in reversed(solved):  # each is rounded before the next, which makes up for it
                met[pivot] = ZERO
                met[pivot] = Fraction(float(value - dot(known, met)))
            yield np.array([float(v) for v in met])

    def _close(self, x: Numbers, start: Vector, allowed: Fraction) -> Iterable[Vector]:
        """Points farther away at which no steep term costs more than is allowed, or little more."""
        held = [(jump / allowed + root_above(curvature / allowed), line) for jump, curvature, line in self._held(x)]
        for reach in _REACHES:
            found = close_point(x, [Fraction(v) for v in start.tolist()], _spacing(start), held, reach)
            yield np.array([float(v) for v in found])

    def _held(self, x: Numbers) -> Iterable[tuple[Fraction, Fraction, Numbers]]:
        """Positions, and what it costs to move them: the jump of a derivative, and its rate."""
        yield from ((ZERO, 1 / line[i], line) for i, line in enumerate(self.matrix) if line[i] > 0)
        for row in self.rows:
            z = row.position(x)
            size = sum((abs(a * v) for a, v in zip(row.entries, x, strict=True)), abs(row.offset)) * _REST_ON_KNOT
            jumps = [row.kink(j) for j, knot in enumerate(row.knots) if abs(z - knot) <= size]
            piece = bisect_right(row.knots, z)
            curvature = max(p[2] for p in row.pieces[max(piece - 1, 0) : piece + 2])
            yield sum((high - low for low, high in jumps), ZERO), curvature, row.entries
        for norm in self.norms:
            length = norm.value(norm.position(x)) / norm.weight
            rests = length <= _REST_ON_KNOT * max(map(abs, norm.offset))
            for line in norm.matrix:
                yield (norm.weight, ZERO, line) if rests else (ZERO, norm.weight / length, line)

    def _add(self, linear: Map, offset: Vector, matrix: Map, weight: float) -> None:
        """``c z'Qz`` of ``z = L x + d``."""
        c, shift = Fraction(float(weight)), [Fraction(float(v)) for v in offset]
        rows = exact_rows(linear)
        columns = [*zip(*rows, strict=True)]
        for row, d, inner in zip(rows, shift, exact_rows(matrix), strict=True):
            tick()
            images = [c * dot(inner, column) for column in columns]  # of one coordinate of Qz
            at_zero = c * dot(inner, shift)
            self.constant += d * at_zero
            for k, entry in enumerate(row):
                self.line[k] += entry * at_zero + d * images[k]
                if entry:
                    for m, image in enumerate(images):
                        self.matrix[k][m] += entry * image
                        self.matrix[m][k] += entry * image

    def _multiply_out(self, row: Row) -> None:
        """A row of one piece, as a square, is part of the quadratic."""
        constant, first, second = row.pieces[0]
        d = row.offset
        self.constant += constant + first * d + second * d * d
        for i, a in enumerate(row.entries):
            if a:
                self.line[i] += (first + 2 * second * d) * a
                for j, b in enumerate(row.entries):
                    self.matrix[i][j] += 2 * second * a * b

    def _without_far(self, blocks: Sequence[Rows], x: Vector) -> list[Rows]:
        """The rows that stay; the others are added to the line."""
        most = _STAY * self.size + _STAY_AT_LEAST
        result = []
        for r, (near, parts) in zip(blocks, near_and_far(blocks, x, most), strict=True):
            result.append(r if near.size == r.count else _part(r, near))
            for part in parts:
                (row,) = self._rows(_part(r, np.array([part.first])))
                constant, derivative, _ = row.pieces[part.piece]
                self.constant += constant * part.offset.size + derivative * exact_total(part.offset)
                sums = (exact_total(column) for column in part.matrix.T)
                self.line = [g + derivative * total for g, total in zip(self.line, sums, strict=True)]
            self.far += parts
        return result

    @staticmethod
    def _rows(r: Rows) -> list[Row]:
        result, term = [], r.term
        for k, entries in enumerate(exact_rows(r.linear)):
            tick()
            c = Fraction(float(r.weights[k]))
            if not c:
                continue
            knots = [_of_row(knot, k) for knot in term.knots]
            pieces = [_powers(p, m, k, c) for p, m in zip(term.pieces, term.centres, strict=True)]
            row = Row(entries, Fraction(float(r.offset[k])), knots, pieces)
            if any(p[2] < 0 for p in pieces) or any(low > high for low, high in map(row.kink, range(len(knots)))):
                raise Inexact
            result.append(row.joined())
        return result


def independent(
    places: Iterable[tuple[Numbers, Fraction]], size: int, grid: Numbers | None = None
) -> tuple[list[int], list[Equation]]:
    """Equations of a list that do not follow from those before; and these, each solved for a variable of its own.

    It is the one with the largest coefficient, or, with a grid, that whose spacing is the least for the equation.
    """
    chosen: list[int] = []
    equations: list[Equation] = []
    for k, (given, right) in enumerate(places):
        left = list(given)
        for pivot, known, value in equations:
            if factor := left[pivot]:
                left = [a - factor * b for a, b in zip(left, known, strict=True)]
                right -= factor * value
        if any(left):
            size_of = [abs(a) if grid is None else 1 / abs(a * s) if a else ZERO
                       for a, s in zip(left, grid or left, strict=True)]  # fmt: skip
            pivot = size_of.index(max(size_of))
            equations.append((pivot, [a / left[pivot] for a in left], right / left[pivot]))
            chosen.append(k)
            if len(chosen) == size:
                break
    return chosen, equations


def meet(x: Numbers, equations: list[Equation]) -> Numbers:
    """The point with one variable for each equation changed so that all hold."""
    x = list(x)
    for pivot, known, value in reversed(equations):
        x[pivot] = ZERO
        x[pivot] = value - dot(known, x)
    return x


def _spacing(point: Vector) -> Numbers:
    return [Fraction(v) for v in np.spacing(np.abs(point)).tolist()]


def _moved(row: Numbers, grid: Numbers) -> Fraction:
    return sum((abs(a) * s for a, s in zip(row, grid, strict=True)), ZERO)


def reduced(system: list[Numbers]) -> list[int]:
    """Reduce the rows in place; the columns of their leading ones, the last where there is no solution."""
    order: list[int] = []
    for column in range(len(system[0])):
        tick()
        top = len(order)
        pivot = next((i for i in range(top, len(system)) if system[i][column]), None)
        if pivot is None:
            continue
        system[top], system[pivot] = system[pivot], system[top]
        lead = system[top][column]
        system[top] = row = [v / lead if v else v for v in system[top]]
        for i, other in enumerate(system):
            if i != top and (factor := other[column]):
                system[i] = [a - factor * b if b else a for a, b in zip(other, row, strict=True)]
        order.append(column)
        if len(order) == len(system):
            break
    return order


def dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    """The inner product."""
    return sum((v * w for v, w in zip(a, b, strict=True) if v), ZERO)


# -- Numbers as they are ----------------------------------------------------------------------------------------------


def exact_rows(linear: Map) -> list[Numbers]:
    """The rows of the matrix of a map, without any rounding."""
    if isinstance(linear, Scaled):
        scale = np.broadcast_to(np.asarray(linear.scale), linear.shape[:1]).tolist()
        return [[Fraction(s) * v for v in row] for s, row in zip(scale, exact_rows(linear.inner), strict=True)]
    if isinstance(linear, HStack):
        whole = [[ZERO] * linear.shape[1] for _ in range(linear.shape[0])]
        for part, inner in linear.live():
            for row, values in zip(whole, exact_rows(inner), strict=True):
                row[part] = values
        return whole
    if isinstance(linear, Sum):
        parts = [exact_rows(part) for part in linear.parts]
        return [[sum(values, ZERO) for values in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]
    if isinstance(linear, Composition):
        columns = list(zip(*exact_rows(linear.inner), strict=True))
        return [[dot(row, column) for column in columns] for row in exact_rows(linear.outer)]
    if isinstance(linear, (Matrix, Sparse, Selection)):
        given = linear.array if isinstance(linear, (Matrix, Sparse)) else linear.explicit()
        dense = np.asarray(given.toarray() if hasattr(given, "toarray") else given)
        if dense.dtype.itemsize > 8:
            raise Inexact
        return [[Fraction(v) for v in row] for row in dense.tolist()]
    raise Inexact


def _norms(group: Groups) -> Iterable[Norm]:
    rows, offset = exact_rows(group.linear), [Fraction(float(v)) for v in group.offset]
    for start, width, weight in zip(group.starts, group.sizes, group.weights, strict=True):
        part = slice(int(start), int(start + width))
        if weight < 0.0:
            raise Inexact
        if weight > 0.0:
            yield Norm(Fraction(float(weight)), rows[part], offset[part])


def _linear_part(objective: Objective) -> tuple[Numbers, Fraction]:
    """The linear function of the objective, and its constants."""
    line, constant = [ZERO] * objective.size, ZERO
    for block in objective.blocks:
        if isinstance(block, AffineBlock) and block.variables:
            weight = Fraction(float(block.weights))
            (row,) = exact_rows(block.argument.stacked(objective.variables))
            line = [g + weight * v for g, v in zip(line, row, strict=True)]
        if isinstance(block, AffineBlock):
            constant += Fraction(float(block.weights)) * _constant(block.argument)
        elif not block.variables:
            raise Inexact
    return line, constant


def _constant(argument: Affine) -> Fraction:
    """The constant of a scalar, with what rounding has left of it."""
    return Fraction(float(np.ravel(argument.offset)[0])) + Fraction(argument.constant.rest)


def _part(r: Rows, index: NDArray[np.intp]) -> Rows:
    """Some rows, with maps as they are: none is multiplied out."""
    return Rows(r.linear.rows(index), r.offset[index], r.term.take(index), r.weights[index])


def _of_row(number: float | Vector, k: int) -> Fraction:
    return Fraction(float(number if np.ndim(number) == 0 else np.asarray(number)[k]))


def _powers(
    piece: Sequence[float | Vector], centre: float | Vector, k: int, weight: Fraction
) -> tuple[Fraction, Fraction, Fraction]:
    """Coefficients around a centre as those of powers of z, times a weight."""
    constant, first, second, *more = (*(_of_row(c, k) for c in piece), ZERO, ZERO, ZERO)
    if any(more):
        raise Inexact
    m = _of_row(centre, k)
    return weight * (constant - first * m + second * m * m), weight * (first - 2 * second * m), weight * second
