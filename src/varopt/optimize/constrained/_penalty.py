"""The penalised objective, its weights, and how far a point is from satisfying the constraints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._linalg import column_exponents, row_bandwidth, solve_definite
from varopt.certificates import gradient_units
from varopt.composite import Composite, Rows, composite
from varopt.model import Constraint, Objective
from varopt.model.blocks import TermBlock
from varopt.model.maps import Map
from varopt.terms import PiecewisePolynomial, abs_, pos, square, squared_hinge

__all__ = ["Penalised", "reach", "spread"]

Vector = NDArray[np.float64]
Weights = Sequence[Vector]  # of each constraint, one for each of its rows

FIRST_WEIGHT = 8.0  # times the estimate of a multiplier, which the first weights are
_FEWEST_CHAIN_ROWS, _WIDEST_CHAIN_ROW = 50, 8  # rows from which on a chain is one, and the widest of its rows
_SUMS = 2.0  # times what they may add up to
_MEASURED_ROWS = 10_000  # rows that tell how long those of a block are
_RANDOM_VECTORS = 8  # random vectors that stand in for the rows of an operator
_ZERO_COORDINATE = 4 * float(np.finfo(np.float64).eps)  # share of the largest coordinate that counts as zero
VIOLATION_ROUNDING = 1e-12  # share of the size of what is compared by which rounding may violate a constraint


class Penalised:
    """``f + sum w max(g, 0) + sum w |h|``, for any weights."""

    def __init__(self, objective: Objective, constraints: Sequence[Constraint]) -> None:
        self.f, self.constraints = objective, tuple(constraints)
        self.ones = [np.ones(c.rows) for c in constraints]
        self.squares = 0.0  # of what is missed, beside it: for objectives that fall as squares do
        self._latest: tuple[Vector, list[Vector]] | None = None

    def objective(self, weights: Weights) -> Objective:
        """The penalised objective as the model has it."""
        return Objective([*self.f.blocks, *self.penalties(weights)])

    def penalties(self, weights: Weights) -> list[TermBlock]:
        """What the constraints add to it."""
        return [TermBlock(self._term(c), c.normal, w) for c, w in zip(self.constraints, weights, strict=True)]

    def _term(self, c: Constraint) -> PiecewisePolynomial:
        """``max(z, 0)`` or ``|z|``, and so many squares of it."""
        if not self.squares:
            return abs_() if c.is_equality else pos()
        outside = (0.0, 1.0, self.squares)
        return PiecewisePolynomial((0.0,), ((0.0, -1.0, self.squares) if c.is_equality else (0.0,), outside))

    def add_squares(self) -> None:
        """What is missed costs twice as much where it is as large as all that is compared."""
        lengths = max(float(spread(r.linear, np.ones(r.linear.shape[1])).max(initial=0.0)) for r in self.rows)
        self.squares = 1.0 / ((lengths or 1.0) * (self._distance() or 1.0))

    def squared(self) -> Objective:
        """With squares of what constraints are missed by: far out it is finite just along directions that satisfy them.

        That is all a proof looks at that f falls for ever.
        """
        more = [
            TermBlock(square() if c.is_equality else squared_hinge(), c.normal if c.is_equality else 1.0 - c.normal)
            for c in self.constraints
        ]
        return Objective([*self.f.blocks, *more])

    @cached_property
    def _form(self) -> Composite:
        return composite(self.objective(self.ones))

    @cached_property
    def rows(self) -> tuple[Rows, ...]:
        """The constraints as rows, in their order, with weights of one."""
        return self._form.rows[len(self._form.rows) - len(self.constraints) :]

    @cached_property
    def own(self) -> Composite:
        """The objective without the constraints, in all variables."""
        return replace(self._form, rows=self._form.rows[: len(self._form.rows) - len(self.constraints)])

    @cached_property
    def gradient_units(self) -> Vector:
        """Times what entries of gradients compare."""
        return gradient_units(self._form)

    def problem(self, weights: Weights) -> Composite:
        """The penalised objective as the solvers see it; what is computed of the data is kept for other weights."""
        triples = zip(self.rows, self.constraints, weights, strict=True)
        rows = [replace(r, term=self._term(c), weights=w, hard=True) for r, c, w in triples]
        return replace(self._form, rows=(*self.own.rows, *rows))

    def by_constraint(self, values: Sequence[Vector]) -> dict[Constraint, Any]:
        """Vectors in the shapes of their constraints."""
        pairs = zip(self.constraints, values, strict=True)
        return {c: float(y[0]) + 0.0 if c.shape == () else y.reshape(c.shape) + 0.0 for c, y in pairs}

    # -- Weights ------------------------------------------------------------------------------------------------------

    def first_weights(self) -> list[Vector]:
        """About `FIRST_WEIGHT` times what multipliers may be: the gradients of f, in units of the constraints' rows."""
        sums = [self._summed(r) for r in self.rows]
        if all(s > 0.0 and not r.offset.any() for r, s in zip(self.rows, sums, strict=True)):  # chains tell it all
            return [np.broadcast_to(s, r.offset.shape) for r, s in zip(self.rows, sums, strict=True)]
        gradient = self._gradient_sizes()
        weights = []
        for r, summed in zip(self.rows, sums, strict=True):
            lengths = spread(r.linear, np.divide(1.0, gradient, out=np.zeros_like(gradient), where=gradient > 0.0))
            own = np.where(lengths > 0.0, FIRST_WEIGHT / np.where(lengths > 0.0, lengths, 1.0), np.nan)
            weights.append(np.maximum(own, summed))
        known = np.concatenate(weights)
        if np.all(np.isfinite(known)):
            return weights
        default = float(np.median(known[np.isfinite(known)])) if np.any(np.isfinite(known)) else 1.0
        return [np.where(np.isfinite(w), w, default) for w in weights]

    def _summed(self, r: Rows) -> float:
        """About what multipliers of a chain of rows may add up to: those that balance the gradient by these rows alone.

        Along differences they are sums of it, and sums of sums, which no single row tells.
        """
        if r.single is not None or r.linear.storage != "sparse" or r.count < _FEWEST_CHAIN_ROWS:
            return 0.0
        gradient = self.own.gradient_at_zero + sum(part.gradient_at_zero for part in self.own.rows)
        if (differences := r.differences) is not None:
            return _SUMS * float(np.abs(differences[1].balanced(gradient)).max()) / abs(differences[0])
        matrix = sp.csr_array(r.linear.explicit())
        if row_bandwidth(matrix) > _WIDEST_CHAIN_ROW:
            return 0.0
        return _SUMS * float(np.abs(solve_definite(sp.csr_array(matrix @ matrix.T), matrix @ gradient)).max())

    def _gradient_sizes(self) -> Vector:
        """How large the gradients of f may be, by variable; where f does not see one, by what it is compared with."""
        problem = self.own
        far = self._distance()
        size = np.abs(problem.gradient_at_zero)
        for r in problem.squares:
            if r.linear.storage != "operator":
                diagonal = r.linear.gram_diagonal(r.curvature)
                size = size + np.sqrt(diagonal * max(2.0 * r.total(r.offset), 0.0)) + diagonal * far
        if problem.matrix is not None:
            size = size + np.abs(np.asarray(problem.matrix.diagonal())) * far
        at_zero = problem.gradient_at_zero
        for r in problem.rows:
            at_zero = at_zero + r.gradient_at_zero
            if r.linear.storage != "operator":
                size = size + _added_up(r)
        size = np.maximum(size, np.abs(at_zero))
        for group in problem.groups:
            weights = np.broadcast_to(group.spread(group.weights), (group.offset.size,))
            size = size + np.sqrt(group.linear.gram_diagonal(weights**2))
        if not size.any():
            return np.ones(problem.size)
        if np.all(size > 0.0):
            return size
        columns = np.sqrt(sum(r.linear.gram_diagonal(np.ones(r.count)) for r in self.rows if _is_explicit(r.linear)))
        columns = np.broadcast_to(columns, size.shape)
        seen = (size > 0.0) & (columns > 0.0)
        ratio = float(np.median(size[seen] / columns[seen])) if seen.any() else float(np.median(size[size > 0.0]))
        return np.where(size > 0.0, size, ratio * columns)

    def _distance(self) -> float:
        """How far from zero the constraints lie."""
        far = 0.0
        for r in self.rows:
            lengths = spread(r.linear, np.ones(r.linear.shape[1]))
            away = np.abs(r.offset[lengths > 0.0]) / lengths[lengths > 0.0]
            far = max(far, float(away.max(initial=0.0)))
        return far

    # -- Points -------------------------------------------------------------------------------------------------------

    def excesses(self, x: Vector) -> list[Vector]:
        """By how much each row of each constraint is missed; zero where it holds. Those of the latest are kept."""
        if self._latest is None or self._latest[0] is not x:
            pairs = zip((r.positions(x) for r in self.rows), self.constraints, strict=True)
            self._latest = x, [self._missed(z, c) for z, c in pairs]
        return self._latest[1]

    @staticmethod
    def _missed(z: Vector, c: Constraint) -> Vector:
        return np.abs(z) if c.is_equality else np.maximum(z, 0.0)

    def allowed(self, x: Vector) -> list[Vector]:
        """What rounding may make of that, for each row: a share of the sizes of what is compared.

        A coordinate that should be zero is so but for the rounding of the largest one that constraints tie it to, as
        it is and in units in which they compare.
        """
        size = np.abs(x) + _ZERO_COORDINATE / VIOLATION_ROUNDING * _largest_tied(x, *self._tied)
        allowed = [VIOLATION_ROUNDING * (spread(r.linear, size) + np.abs(r.offset)) for r in self.rows]
        return [np.where(np.isfinite(a), a, 0.0) for a in allowed]  # sizes that overflow excuse nothing

    @cached_property
    def _tied(self) -> tuple[NDArray[np.intp], Vector]:
        """Which variables rows of constraints tie together, directly or by others: a number for all of a kind.

        And the exponents of the powers of two that are their units.
        """
        from scipy.sparse.csgraph import connected_components  # slow to load: with it `import varopt` takes 3 % longer

        if not all(_is_explicit(r.linear) for r in self.rows):
            return np.zeros(self.own.size, dtype=np.intp), np.zeros(self.own.size)
        matrix = sp.csr_array(sp.vstack([sp.csr_array(r.linear.explicit()) for r in self.rows]))
        seen = matrix.astype(bool)
        count, size = seen.shape
        graph = sp.block_array([[None, seen], [sp.csr_array((size, count)), None]])  # rows, then variables
        tied = np.asarray(connected_components(graph, directed=False)[1][count:], dtype=np.intp)
        return tied, column_exponents(matrix)

    def violation(self, x: Vector) -> float:
        """The largest excess."""
        return max(float(e.max(initial=0.0)) for e in self.excesses(x))

    def holds(self, x: Vector) -> bool:
        """Whether x satisfies all constraints but for rounding."""
        excesses = self.excesses(x)
        if not any(e.any() for e in excesses):
            return True
        return all(bool(np.all(e <= a)) for e, a in zip(excesses, self.allowed(x), strict=True))


def _largest_tied(x: Vector, tied: NDArray[np.intp], exponents: Vector) -> Vector:
    """The largest coordinate among those that each is tied to, as it is or in the unit of each: whichever is less."""
    found = []
    with np.errstate(divide="ignore", over="ignore"):
        for units in (np.zeros(x.size), exponents):
            sizes = np.log2(np.abs(x)) - units
            largest = np.full(tied.max(initial=0) + 1, -np.inf)
            np.maximum.at(largest, tied, sizes)
            found.append(np.exp2(largest[tied] + units))
    return np.minimum(*found)


def _added_up(r: Rows) -> Vector:
    """The sizes of the gradients of single rows, added up as of random signs; of many rows, about."""
    stride = 1 + r.count // _MEASURED_ROWS
    some = r if stride == 1 else r.take(np.arange(0, r.count, stride))
    return np.asarray(some.largest_gradient * np.sqrt(stride / max(some.count, 1)))


def _is_explicit(linear: Map) -> bool:
    return linear.storage != "operator"


def spread(linear: Map, scale: Vector) -> Vector:
    """The lengths of the rows with columns times `scale`; of an operator, about."""
    if _is_explicit(linear):
        largest = float(np.max(scale, initial=0.0))
        unit = largest if 0.0 < largest < math.inf else 1.0  # without which squares may overflow
        with np.errstate(over="ignore", invalid="ignore"):  # beyond what any point is worth
            return np.asarray(unit * np.sqrt(linear.row_variance(scale / unit)))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (_RANDOM_VECTORS, linear.shape[1]))
    return np.asarray(np.sqrt(np.mean(np.square(linear.apply(signs * scale)), axis=0)))


def reach(problem: Composite, x: Vector) -> float:
    """The sizes of all that is added up in an objective at x, if nothing of it cancelled."""
    size = float(np.abs(problem.vector) @ np.abs(x))
    for r in (*problem.rows, *problem.squares):
        z = spread(r.linear, np.abs(x)) + np.abs(r.offset)
        size += float(np.abs(r.weights) @ np.maximum(np.abs(r.term.value(z)), np.abs(r.term.value(-z))))
    if problem.matrix is not None:
        size += 0.5 * float(np.abs(x) @ (abs(problem.matrix) @ np.abs(x)))
    for group in problem.groups:
        size += float(np.abs(group.weights) @ group.norms(spread(group.linear, np.abs(x)) + np.abs(group.offset)))
    return size
