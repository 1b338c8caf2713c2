r"""The exact optimum of a few variables, by an active set in rational arithmetic.

Where weights span twenty orders, no arithmetic with sixteen digits tells what the small ones ask for beside the large.
With rational numbers nothing is lost. Rows at rest on a kink form a working set W; with K and G the second and first
derivatives of all else, on the pieces where rows are,

    K p + A_W' u = -G,    A_W p = 0                                                                                 (1)

is the step to the minimum on the working set. Along it rows are followed across knots until the derivative is not
negative: the row of that knot joins W. Where p = 0 the u are the subgradients of W; one outside its interval says in
which direction its row should leave, and if there is none the point is the optimum; for sums of absolute values that is
[BartelsConn80]. The number of digits grows with that of variables: this is for a few.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import tick
from varopt.solvers.finish._exact_problem import (
    ZERO,
    ExactProblem,
    Inexact,
    Numbers,
    RationalMinimum,
    dot,
    independent,
    meet,
    reduced,
)

__all__ = ["rational_minimum", "rational_point"]

Vector = NDArray[np.float64]

_RATIONAL_STEPS = 300  # of the active set
_WANDERING = 60  # steps after which rows leave in order, so that it cannot cycle
_BEGINS_AT_REST = 1e-7  # share of what is added up in a position within which a row begins at rest


class RationalPoint(NamedTuple):
    """Where a search has ended: the point, its value, and derivatives of all rows that balance the rest.

    Where the objective falls for ever from there, it has no end.
    """

    x: Numbers
    value: Fraction
    derivatives: Numbers
    has_end: bool = True


def rational_point(problem: ExactProblem, x: Vector) -> RationalPoint | None:
    """The optimum of a problem without norms, looked for from x; None where the search does not end."""
    return _ActiveSet(problem, x).solved()


def rational_minimum(problem: ExactProblem, x: Vector) -> RationalMinimum | None:
    """The minimum of a problem without norms, looked for from x; None where the search does not end."""
    if (found := rational_point(problem, x)) is None:
        return None
    if not found.has_end:
        if problem.far:  # lines of far rows may fall for ever where the rows do not
            raise Inexact
        return RationalMinimum(x, -math.inf, math.inf)
    return problem.bracket(found.value, found.x)


class _ActiveSet:
    """Where the search is."""

    def __init__(self, problem: ExactProblem, x: Vector) -> None:
        self.problem, self.size, self.rows = problem, problem.size, problem.rows
        self.line, self.matrix = problem.line, problem.matrix
        self.x = [Fraction(float(v)) for v in x]
        self.working: dict[int, int] = {}  # rows at rest, and on which of their knots
        self._begin()

    # -- Where to begin -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Rows close to a kink are put on it, steep ones first, as far as they are independent."""
        close = []
        for k, row in enumerate(self.rows):
            z = row.position(self.x)
            size = sum((abs(a * v) for a, v in zip(row.entries, self.x, strict=True)), abs(row.offset))
            for j, knot in enumerate(row.knots):
                low, high = row.kink(j)
                if high > low and abs(z - knot) <= Fraction(_BEGINS_AT_REST) * (size + abs(knot)):
                    close.append((-row.steepness(j), k, j))
        close.sort()
        chosen, equations = independent((self._equation(k, j) for _, k, j in close), self.size)
        self.working.update(close[i][1:] for i in chosen)
        self.x = meet(self.x, equations)
        self.z = [row.position(self.x) for row in self.rows]
        self.piece = [bisect_right(row.knots, z) for row, z in zip(self.rows, self.z, strict=True)]

    def _equation(self, k: int, j: int) -> tuple[Numbers, Fraction]:
        """That a row is on a knot."""
        return self.rows[k].entries, self.rows[k].knots[j] - self.rows[k].offset

    # -- The search ---------------------------------------------------------------------------------------------------

    def solved(self) -> RationalPoint | None:
        """Search; None where that does not end."""
        for step in range(_RATIONAL_STEPS):
            tick()
            gradient, matrix = self._derivatives()
            held = sorted(self.working)
            direction, duals = _step(gradient, matrix, [self.rows[k].entries for k in held])  # (1)
            if any(direction):
                if not self._move(gradient, matrix, direction):
                    return RationalPoint(self.x, ZERO, [], has_end=False)
            elif not self._release(known := dict(zip(held, duals, strict=True)), in_order=step > _WANDERING):
                return RationalPoint(self.x, self.problem.value(self.x), self._of_rows(known))
        return None

    def _of_rows(self, duals: dict[int, Fraction]) -> Numbers:
        """The derivatives of all rows, of which those of the working set are known."""
        placed = enumerate(zip(self.rows, self.piece, self.z, strict=True))
        return [duals[k] if k in duals else row.derivative(piece, z) for k, (row, piece, z) in placed]

    def _derivatives(self) -> tuple[Numbers, list[Numbers]]:
        gradient = [g + dot(row, self.x) for g, row in zip(self.line, self.matrix, strict=True)]
        matrix = [list(row) for row in self.matrix]
        for k, row in enumerate(self.rows):
            if k in self.working:
                continue
            derivative, second = row.derivative(self.piece[k], self.z[k]), 2 * row.pieces[self.piece[k]][2]
            for i, a in enumerate(row.entries):
                if not a:
                    continue
                gradient[i] += derivative * a
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
        derivative = dot(direction, gradient)
        second = dot(direction, [dot(row, direction) for row in matrix])
        along = [ZERO if k in self.working else dot(direction, row.entries) for k, row in enumerate(self.rows)]
        end, joined = ZERO, None
        moving = [k for k, r in enumerate(along) if r]
        while True:
            tick()
            least = end - derivative / second if second > 0 else None  # where the derivative would vanish
            events = [(t, k) for k in moving if (t := self._next_knot(k, along[k])) is not None]
            t, k = min(events, default=(None, -1), key=lambda e: (e[0], e[1]))
            if t is None or (least is not None and least <= t):
                if least is None:
                    return False  # for ever
                end = least
                break
            derivative += second * (t - end)
            end, up = t, along[k] > 0
            knot = self.piece[k] if up else self.piece[k] - 1
            low, high = self.rows[k].kink(knot)
            jump = (high - low) * abs(along[k])
            if jump and derivative + jump >= 0:
                joined = (k, knot)
                break
            before = self.rows[k].pieces[self.piece[k]][2]
            self.piece[k] += 1 if up else -1
            derivative += jump
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


def _step(gradient: Numbers, matrix: list[Numbers], held: list[Numbers]) -> tuple[Numbers, Numbers]:
    """(1): the step and the subgradients; or a direction without curvature in which the objective falls."""
    size, count = len(gradient), len(held)
    system = [[*matrix[i], *(row[i] for row in held), -gradient[i]] for i in range(size)]
    system += [[*row, *([ZERO] * count), ZERO] for row in held]
    order = reduced(system)
    if size + count in order:  # no solution
        null = next(v for v in _null_vectors(system, order, size + count) if dot(v[:size], gradient))
        falls = dot(null[:size], gradient) < 0
        return [v if falls else -v for v in null[:size]], []
    solution = [ZERO] * (size + count)
    for row, pivot in enumerate(order):
        solution[pivot] = system[row][-1]
    return solution[:size], solution[size:]


def _null_vectors(system: list[Numbers], order: list[int], width: int) -> list[Numbers]:
    """Vectors that the matrix, reduced, makes zero."""
    pivots = [c for c in order if c < width]
    vectors = []
    for free in (c for c in range(width) if c not in pivots):
        vector = [ZERO] * width
        vector[free] = Fraction(1)
        for row, pivot in enumerate(pivots):
            vector[pivot] = -system[row][free]
        vectors.append(vector)
    return vectors
