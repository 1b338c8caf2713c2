r"""The exact optimum of a few variables, by an active set in rational arithmetic.

Where weights span twenty orders, no arithmetic with sixteen digits tells what the small ones ask for beside the large.
With rational numbers nothing is lost. Rows at rest on a kink form a working set W; with K and G the second and first
derivatives of all else, on the pieces where rows are,

    K p + A_W' u = -G,    A_W p = 0                                                                                 (1)

is the step to the minimum on the working set. Along it rows are followed across knots until the derivative is not
negative: the row of that knot joins W. Where p = 0 the u are the subgradients of W; one outside its interval says in
which direction its row should leave, and if there is none the point is the optimum [Bartels & Conn 1980 for sums of
absolute values]. The number of digits grows with that of variables: this is for a few.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, tick
from varopt._verified import Definiteness, definiteness, up
from varopt.composite import Composite, composite
from varopt.model import Objective
from varopt.model.blocks import AffineBlock
from varopt.model.maps import Composition, HStack, Map, Matrix, Scaled, Selection, Sparse, Sum
from varopt.terms import PiecewisePolynomial

__all__ = ["RationalMinimum", "exact_minimum", "is_small"]

Vector = NDArray[np.float64]
Numbers = list[Fraction]
_Equation = tuple[int, Numbers, Fraction]  # a variable, what it is multiplied by beside others, and the right-hand side

_VARIABLES, _ROWS = 12, 300  # up to which a problem is one of few
_STEPS = 300  # of the active set
_WANDERING = 60  # steps after which rows leave in order, so that it cannot cycle
_NEAR = 1e-7  # share of what is added up in a position within which a row begins at rest
_ZERO = Fraction(0)


class Inexact(ValueError):
    """What is at hand is not as exact as rational arithmetic."""


def is_small(problem: Composite) -> bool:
    """Whether a problem is convex and has few variables and rows, and no norms."""
    rows = problem.row_count + sum(r.count for r in problem.squares)
    few = problem.size <= _VARIABLES and rows <= _ROWS
    return few and not problem.groups and not problem.not_convex and not problem.not_quadratic


class RationalMinimum(NamedTuple):
    """The optimum, rounded; what no point is below; and what the rounded one is not above.

    Where the objective falls for ever, `lower` is minus infinity, and x a point from which it does.
    """

    x: Vector
    lower: float
    upper: float


def exact_minimum(objective: Objective, x: Vector) -> RationalMinimum | None:
    """The minimum of a convex objective of few variables, looked for from x; None where it is not known exactly.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> from varopt.solvers.finish import exact_minimum
    >>> w = vo.Variable(2)
    >>> f = 1e12 * vo.abs(w[0] + w[1]) + 1e-4 * w[1] + 2e-4 * vo.sum(vo.pos(-w[1] - 1e6))
    >>> found = exact_minimum(f, np.zeros(2))
    >>> found.x.tolist(), round(found.lower, 9)
    ([1000000.0, -1000000.0], -100.0)
    """
    try:
        search = _ActiveSet(objective, x)
        if (found := search.solved()) is None:
            return None
        if not found.has_end:
            return RationalMinimum(x, -math.inf, math.inf)
        upper, point = min(((search.value_at(point), point) for point in search.rounded()), key=lambda pair: pair[0])
        return RationalMinimum(point, -_above(search.jumps - found.value), _above(upper + search.jumps))
    except (Inexact, TimeUp, OverflowError):
        return None


def _above(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else float(up(rounded))


class _Row(NamedTuple):
    """One weighted term: knots, and pieces as powers of z."""

    entries: Numbers
    offset: Fraction
    knots: Numbers
    pieces: list[tuple[Fraction, Fraction, Fraction]]

    def slope(self, piece: int, z: Fraction) -> Fraction:
        _, first, second = self.pieces[piece]
        return first + 2 * second * z

    def kink(self, knot: int) -> tuple[Fraction, Fraction]:
        """The derivatives on either side of a knot."""
        return self.slope(knot, self.knots[knot]), self.slope(knot + 1, self.knots[knot])

    def steepness(self, knot: int) -> Fraction:
        """By how much the gradient jumps on a knot."""
        low, high = self.kink(knot)
        return (high - low) * max(map(abs, self.entries))

    def value(self, z: Fraction) -> Fraction:
        constant, first, second = self.pieces[bisect_right(self.knots, z)]
        return constant + first * z + second * z * z


class _Found(NamedTuple):
    """The least value, if there is one."""

    value: Fraction
    has_end: bool = True


class _ActiveSet:
    """The problem in rational numbers, and where the search is."""

    def __init__(self, objective: Objective, x: Vector) -> None:
        form = composite(objective, multiplied=False)
        if form.groups or form.not_convex or form.not_quadratic:
            raise Inexact
        self.size = form.size
        self.line, self.constant = _linear_part(objective)
        self.matrix = [[_ZERO] * self.size for _ in range(self.size)]
        for q in form.forms:
            self._add(q.linear, q.offset, q.matrix, q.weight)
        self.jumps = _ZERO  # of terms whose pieces do not quite meet
        self.rows = [row for r in form.rows for row in self._rows(r.linear, r.offset, r.term, r.weights)]
        for row in self.rows:
            if not row.knots:
                self._multiply_out(row)
        self.rows = [row for row in self.rows if row.knots]
        self.x = [Fraction(float(v)) for v in x]
        self.working: dict[int, int] = {}  # rows at rest, and on which of their knots
        self._begin()

    def _add(self, linear: Map, offset: Vector, matrix: Map, weight: float) -> None:
        """``c z'Qz`` of ``z = L x + d``."""
        inner = exact_rows(matrix)
        dense = np.array([[float(v) for v in row] for row in inner])
        rounded = any(Fraction(float(v)) != v for row in inner for v in row)
        if rounded or definiteness(dense if weight >= 0.0 else -dense) is not Definiteness.POSITIVE:
            raise Inexact
        rows, shift = exact_rows(linear), [Fraction(float(v)) for v in offset]
        c = Fraction(float(weight))
        for i, row in enumerate(inner):
            for j, entry in enumerate(row):
                if not entry:
                    continue
                factor = c * entry
                self.constant += factor * shift[i] * shift[j]
                for k in range(self.size):
                    self.line[k] += factor * (rows[i][k] * shift[j] + shift[i] * rows[j][k])
                    if rows[i][k]:
                        for m in range(self.size):
                            both = factor * rows[i][k] * rows[j][m]
                            self.matrix[k][m] += both
                            self.matrix[m][k] += both

    def _multiply_out(self, row: _Row) -> None:
        """A row of one piece, as a square, is part of the quadratic."""
        constant, first, second = row.pieces[0]
        d = row.offset
        self.constant += constant + first * d + second * d * d
        for i, a in enumerate(row.entries):
            if a:
                self.line[i] += (first + 2 * second * d) * a
                for j, b in enumerate(row.entries):
                    self.matrix[i][j] += 2 * second * a * b

    def _rows(self, linear: Map, offset: Vector, term: PiecewisePolynomial, weights: Vector) -> list[_Row]:
        result = []
        for k, entries in enumerate(exact_rows(linear)):
            c = Fraction(float(weights[k]))
            if not c:
                continue
            knots = [_of_row(knot, k) for knot in term.knots]
            pieces = [_powers(p, m, k, c) for p, m in zip(term.pieces, term.centres, strict=True)]
            row = _Row(entries, Fraction(float(offset[k])), knots, pieces)
            for j, knot in enumerate(knots):
                left, right = (p[0] + p[1] * knot + p[2] * knot * knot for p in pieces[j : j + 2])
                self.jumps += abs(right - left)
                if row.kink(j)[0] > row.kink(j)[1]:
                    raise Inexact
            if any(p[2] < 0 for p in pieces):
                raise Inexact
            result.append(row)
        return result

    # -- Where to begin -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Rows close to a kink are put on it, steep ones first, as far as they are independent."""
        close = []
        for k, row in enumerate(self.rows):
            z = self._position(row)
            size = sum((abs(a * v) for a, v in zip(row.entries, self.x, strict=True)), abs(row.offset))
            for j, knot in enumerate(row.knots):
                low, high = row.kink(j)
                if high > low and abs(z - knot) <= Fraction(_NEAR) * (size + abs(knot)):
                    close.append((-row.steepness(j), k, j))
        chosen, equations = self._independent([(k, j) for _, k, j in sorted(close)])
        self.working.update(chosen)
        self._meet(equations)
        self.z = [self._position(row) for row in self.rows]
        self.piece = [bisect_right(row.knots, z) for row, z in zip(self.rows, self.z, strict=True)]

    def _independent(self, places: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[_Equation]]:
        """Rows and knots of a list whose equations do not follow from those before; and these, each of a variable."""
        chosen: list[tuple[int, int]] = []
        equations: list[_Equation] = []
        for k, j in places:
            row = self.rows[k]
            left, right = list(row.entries), row.knots[j] - row.offset
            for pivot, known, value in equations:
                if factor := left[pivot]:
                    left = [a - factor * b for a, b in zip(left, known, strict=True)]
                    right -= factor * value
            if any(left):
                pivot = max(range(self.size), key=lambda i, left=left: abs(left[i]))  # type: ignore[misc]
                equations.append((pivot, [a / left[pivot] for a in left], right / left[pivot]))
                chosen.append((k, j))
        return chosen, equations

    def _meet(self, equations: list[_Equation]) -> None:
        """Change one variable for each equation so that all hold."""
        for pivot, known, value in reversed(equations):
            self.x[pivot] = _ZERO
            self.x[pivot] = value - _dot(known, self.x)

    def rounded(self) -> list[Vector]:
        """Floating-point numbers next to the optimum: as they are, and with steep rows as close to rest as can be."""
        plain = np.array([float(v) for v in self.x])
        steep = sorted(self.working.items(), key=lambda place: -self.rows[place[0]].steepness(place[1]))
        _, equations = self._independent(steep)
        self.x = [Fraction(v) for v in plain.tolist()]
        self._meet(equations)
        return [plain, np.array([float(v) for v in self.x])]

    def _position(self, row: _Row) -> Fraction:
        return row.offset + _dot(row.entries, self.x)

    # -- The search ---------------------------------------------------------------------------------------------------

    def solved(self) -> _Found | None:
        """Search, and the value of the optimum, or that there is none; None where the search does not end."""
        for step in range(_STEPS):
            tick()
            gradient, matrix = self._derivatives()
            held = sorted(self.working)
            direction, duals = _step(gradient, matrix, [self.rows[k].entries for k in held])
            if any(direction):
                if not self._move(gradient, matrix, direction):
                    return _Found(_ZERO, False)
            elif not self._release(dict(zip(held, duals, strict=True)), in_order=step > _WANDERING):
                return _Found(self._value())
        return None

    def _derivatives(self) -> tuple[Numbers, list[Numbers]]:
        gradient = [g + _dot(row, self.x) for g, row in zip(self.line, self.matrix, strict=True)]
        matrix = [list(row) for row in self.matrix]
        for k, row in enumerate(self.rows):
            if k in self.working:
                continue
            slope, second = row.slope(self.piece[k], self.z[k]), 2 * row.pieces[self.piece[k]][2]
            for i, a in enumerate(row.entries):
                if not a:
                    continue
                gradient[i] += slope * a
                if second:
                    for j, b in enumerate(row.entries):
                        matrix[i][j] += second * a * b
        return gradient, matrix

    def _release(self, duals: dict[int, Fraction], *, in_order: bool) -> bool:
        """Let a row go whose subgradient is outside its interval; whether there is one."""
        worst: tuple[Fraction, int, int] | None = None
        for k, u in duals.items():
            low, high = self.rows[k].kink(self.working[k])
            over = max(u - high, low - u)
            if over > 0 and (worst is None or (over > worst[0] and not in_order)):
                worst = (over, k, self.working[k] + (1 if u > high else 0))
        if worst is None:
            return False
        _, k, self.piece[k] = worst
        del self.working[k]
        return True

    def _move(self, gradient: Numbers, matrix: list[Numbers], direction: Numbers) -> bool:
        """Go along a direction as long as the objective falls; whether that has an end."""
        slope = _dot(direction, gradient)
        second = _dot(direction, [_dot(row, direction) for row in matrix])
        along = [_ZERO if k in self.working else _dot(direction, row.entries) for k, row in enumerate(self.rows)]
        end, joined = _ZERO, None
        moving = [k for k, r in enumerate(along) if r]
        while True:
            least = end - slope / second if second > 0 else None  # where the derivative would vanish
            events = [(t, k) for k in moving if (t := self._next_knot(k, along[k])) is not None]
            t, k = min(events, default=(None, -1), key=lambda e: (e[0], e[1]))
            if t is None or (least is not None and least <= t):
                if least is None:
                    return False  # for ever
                end = least
                break
            slope += second * (t - end)
            end, up = t, along[k] > 0
            knot = self.piece[k] if up else self.piece[k] - 1
            low, high = self.rows[k].kink(knot)
            jump = (high - low) * abs(along[k])
            if jump and slope + jump >= 0:
                joined = (k, knot)
                break
            before = self.rows[k].pieces[self.piece[k]][2]
            self.piece[k] += 1 if up else -1
            slope += jump
            second += 2 * (self.rows[k].pieces[self.piece[k]][2] - before) * along[k] * along[k]
        self.x = [v + end * p for v, p in zip(self.x, direction, strict=True)]
        self.z = [z + end * r if r else z for z, r in zip(self.z, along, strict=True)]
        if joined is not None:
            self.working[joined[0]] = joined[1]
        return True

    def _next_knot(self, k: int, rate: Fraction) -> Fraction | None:
        """How far along a direction a row meets the end of the piece that it is on."""
        knots, piece = self.rows[k].knots, self.piece[k]
        if rate > 0:
            return (knots[piece] - self.z[k]) / rate if piece < len(knots) else None
        return (knots[piece - 1] - self.z[k]) / rate if piece > 0 else None

    def value_at(self, point: Vector) -> Fraction:
        """The value of a point, where the search goes to."""
        self.x = [Fraction(v) for v in point.tolist()]
        self.z = [self._position(row) for row in self.rows]
        return self._value()

    def _value(self) -> Fraction:
        quadratic = _dot(self.x, [_dot(row, self.x) for row in self.matrix])
        line = self.constant + _dot(self.line, self.x)
        return line + quadratic / 2 + sum((row.value(z) for row, z in zip(self.rows, self.z, strict=True)), _ZERO)


def _step(gradient: Numbers, matrix: list[Numbers], held: list[Numbers]) -> tuple[Numbers, Numbers]:
    """(1): the step and the subgradients; or a direction without curvature in which the objective falls."""
    size, count = len(gradient), len(held)
    system = [[*matrix[i], *(row[i] for row in held), -gradient[i]] for i in range(size)]
    system += [[*row, *([_ZERO] * count), _ZERO] for row in held]
    order = _reduced(system)
    if size + count in order:  # no solution
        null = next(v for v in _null_vectors(system, order, size + count) if _dot(v[:size], gradient))
        falls = _dot(null[:size], gradient) < 0
        return [v if falls else -v for v in null[:size]], []
    solution = [_ZERO] * (size + count)
    for row, pivot in enumerate(order):
        solution[pivot] = system[row][-1]
    return solution[:size], solution[size:]


def _reduced(system: list[Numbers]) -> list[int]:
    """Reduce the rows in place; the columns of their leading ones, the last where there is no solution."""
    order: list[int] = []
    for column in range(len(system[0])):
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


def _null_vectors(system: list[Numbers], order: list[int], width: int) -> list[Numbers]:
    """Vectors that the matrix, reduced, makes zero."""
    pivots = [c for c in order if c < width]
    vectors = []
    for free in (c for c in range(width) if c not in pivots):
        vector = [_ZERO] * width
        vector[free] = Fraction(1)
        for row, pivot in enumerate(pivots):
            vector[pivot] = -system[row][free]
        vectors.append(vector)
    return vectors


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((v * w for v, w in zip(a, b, strict=True) if v), _ZERO)


# -- Numbers as they are ----------------------------------------------------------------------------------------------


def exact_rows(linear: Map) -> list[Numbers]:
    """The rows of the matrix of a map, without any rounding."""
    if isinstance(linear, Scaled):
        scale = np.broadcast_to(np.asarray(linear.scale), linear.shape[:1]).tolist()
        return [[Fraction(s) * v for v in row] for s, row in zip(scale, exact_rows(linear.inner), strict=True)]
    if isinstance(linear, HStack):
        whole = [[_ZERO] * linear.shape[1] for _ in range(linear.shape[0])]
        for part, inner in linear.live():
            for row, values in zip(whole, exact_rows(inner), strict=True):
                row[part] = values
        return whole
    if isinstance(linear, Sum):
        parts = [exact_rows(part) for part in linear.parts]
        return [[sum(values, _ZERO) for values in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]
    if isinstance(linear, Composition):
        columns = list(zip(*exact_rows(linear.inner), strict=True))
        return [[_dot(row, column) for column in columns] for row in exact_rows(linear.outer)]
    if isinstance(linear, (Matrix, Sparse, Selection)):
        given = linear.array if isinstance(linear, (Matrix, Sparse)) else linear.explicit()
        dense = np.asarray(given.toarray() if hasattr(given, "toarray") else given)
        if dense.dtype.itemsize > 8:
            raise Inexact
        return [[Fraction(v) for v in row] for row in dense.tolist()]
    raise Inexact


def _linear_part(objective: Objective) -> tuple[Numbers, Fraction]:
    """The linear function of the objective, and its constants."""
    line, constant = [_ZERO] * objective.size, _ZERO
    for block in objective.blocks:
        if isinstance(block, AffineBlock) and block.variables:
            weight = Fraction(float(block.weights))
            (row,) = exact_rows(block.argument.stacked(objective.variables))
            line = [g + weight * v for g, v in zip(line, row, strict=True)]
            constant += weight * Fraction(float(np.ravel(block.argument.offset)[0]))
        elif isinstance(block, AffineBlock):
            constant += Fraction(float(block.value({})))
        elif not block.variables:
            raise Inexact
    return line, constant


def _of_row(number: float | Vector, k: int) -> Fraction:
    return Fraction(float(number if np.ndim(number) == 0 else np.asarray(number)[k]))


def _powers(
    piece: Sequence[float | Vector], centre: float | Vector, k: int, weight: Fraction
) -> tuple[Fraction, Fraction, Fraction]:
    """Coefficients around a centre as those of powers of z, times a weight."""
    constant, first, second, *more = (*(_of_row(c, k) for c in piece), _ZERO, _ZERO, _ZERO)
    if any(more):
        raise Inexact
    m = _of_row(centre, k)
    return weight * (constant - first * m + second * m * m), weight * (first - 2 * second * m), weight * second
