r"""Dual points that balance exactly, by a verified correction.

With v the subgradients of weighted rows, a dual point proves a bound only if ``r = g + A'v`` is zero: exactly, as the
points that it bounds may lie anywhere. Floating-point duals leave a rounding error in r. It is moved into a few duals
that lie inside their intervals: those of rows of one coordinate take what is left of that coordinate's equation; for
the other equations as many rows are chosen, and the solution of their linear system is enclosed. The exact duals are
never known, but that they lie in their intervals is.

A quadratic part ``1/2 z'Sz`` with S positive semidefinite lies above ``p'S z - 1/2 p'S p`` for every point p.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._verified import (
    FEW_COLUMNS,
    SLACK,
    TINY,
    UNIT,
    Ball,
    Definiteness,
    definiteness,
    difference_is_zero,
    dot,
    down,
    enclosed_solution,
    gamma,
    inverse_size,
    smallest_eigenvalue_bound,
)
from varopt.certificates._column_relations import ColumnRelations
from varopt.certificates.enclosures import (
    AT_ONCE,
    DualQuadratic,
    DualRows,
    Norms,
    entries_times,
    transposed,
)
from varopt.model.maps import as_map

__all__ = ["ENOUGH_ROOM", "PLENTY", "Balance", "DualMove", "NoProof", "Private"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

PLENTY, ENOUGH_ROOM = 1e-2, 1e-9  # shares of its dual that a row of one coordinate needs as room: at first, and at last
_DENSE_EQUATIONS = 2000  # equations that are solved at once, densely
_DEAR_EQUATION = 1e-12  # share of all products below which the rounding of an equation is of no account
_EXTENDED_PRODUCTS = 1 << 22  # products that are added up in extended precision, where that is of use
_SHARP_PRODUCTS = 1 << 26  # the same where a proof hangs on them
_TERM_BY_TERM = 50  # sets of equations up to which those that seem to hold are looked at term by term
_RATIONAL_PRODUCTS = 64  # products in an equation up to which they are added up in rational arithmetic
_SELDOM, _SELDOM_ROWS = 32, 4  # columns of few entries that are looked for, and rows of each
_ENTRY_OPERATIONS = 400.0  # that an entry takes which is copied, enclosed and weighted
_CANDIDATES = 8  # rows looked at for every equation
_STRENGTHS = (1e-2, 1e-5, 1e-8)  # shares of its size by which a quadratic part may be strongly convex
_NO_ROW, _QUADRATIC_PART = -1, -2  # in place of a block: no row takes an equation, a quadratic part does


class NoProof(Exception):
    """Why the duals could not be made to balance; `short`: how many times the room they have they need, if known."""

    def __init__(self, reason: str, short: float = math.inf) -> None:
        super().__init__(reason)
        self.short = short


class DualMove(NamedTuple):
    """Moves of some duals of one block of rows; or of no rows, and what they cost."""

    rows: DualRows | None
    block: int
    places: Index
    move: Ball
    position: Ball  # z of these rows at x
    cost: float = 0.0

    @classmethod
    def costing(cls, cost: float) -> DualMove:
        """A move of a quadratic part's point."""
        nothing = Ball.exact(np.zeros(0))
        return cls(None, -1, np.zeros(0, dtype=np.intp), nothing, nothing, cost)


class Private(NamedTuple):
    """For each coordinate the row of that coordinate alone with the most room: its block, place and room."""

    block: Index  # below zero where there is none
    place: Index
    room: Vector


class Balance:
    """One proof: the problem, and what is computed of it once."""

    def __init__(
        self, rows: tuple[DualRows, ...], vector: Vector | Ball, scalar: float,
        quadratics: tuple[DualQuadratic, ...], x: Vector | None, norms: Norms | None = None,
    ) -> None:  # fmt: skip
        self.rows, self.scalar, self.quadratics = rows, scalar, quadratics
        self.vector = vector if isinstance(vector, Ball) else Ball.exact(vector)
        self.size = self.vector.middle.size
        self.x = np.zeros(self.size) if x is None or not np.all(np.isfinite(x)) else np.asarray(x, dtype=np.float64)
        self.norms: Norms = {} if norms is None else norms
        self.least_room = PLENTY
        self.singular = 1e-9  # share of the first pivot below which columns are looked at as dependent
        self.sharp = False  # whether all equations are added up in extended precision
        self.moved = np.zeros(self.size)  # by how much points of quadratic parts are moved, at most
        self.fixed, self.base = self.vector, scalar
        for q in quadratics:
            self._add(q)

    def _add(self, q: DualQuadratic) -> None:
        """The tangent of a quadratic part: ``p'S z - 1/2 p'S p`` with z = L y + d."""
        if definiteness(q.matrix) is not Definiteness.POSITIVE:
            raise NoProof("a quadratic part is not known to be convex.")
        gradient = transposed(
            as_map("the matrix of a quadratic part", q.matrix), Ball.exact(q.point), self.norms
        ).scaled(q.weight)
        self.fixed = self.fixed.plus(transposed(q.linear, gradient, self.norms))
        half, error = dot(gradient.middle, q.offset - 0.5 * q.point)
        size = float((np.abs(q.offset) + np.abs(q.point)) @ (gradient.radius + 2.0 * UNIT * np.abs(gradient.middle)))
        self.base += half
        self.base = float(down(self.base - (error + size) * SLACK - 2.0 * UNIT * abs(self.base)))

    def corrected(self, duals: list[Vector]) -> tuple[Ball, list[DualMove]]:
        """What the duals leave, and the moves that balance it exactly."""
        tick()
        residual = self._refined(duals, self.residual(duals))
        if not (residual.middle.any() or residual.radius.any()):
            return residual, []
        private = self.private(duals)
        private.block[self.curved[0]] = _QUADRATIC_PART
        shared = private.block == _NO_ROW
        left = ~self._is_balanced(duals, residual, shared)
        if not left.any():
            return residual, []
        if not np.any(left & shared):
            return residual, [*self._absorb(residual, private), *self._charged(residual)]
        # Equations that balance already, as where one-sided terms are all at rest, need not be touched: rows that do
        # not see them are tried first.
        try:
            core, still = np.flatnonzero(left & shared), np.flatnonzero(~left & shared)
            corrections, rest = self._solve_core(duals, residual, core, still, private)
        except NoProof:
            if not still.size:
                raise
            core = np.flatnonzero(shared)
            corrections, rest = self._solve_core(duals, residual, core, still[:0], private)
        return residual, [*corrections, *self._absorb(rest, private), *self._charged(rest)]

    def residual(self, duals: list[Vector]) -> Ball:
        """What the duals leave of the equations."""
        residual = self.fixed
        for r, v in zip(self.rows, duals, strict=True):
            residual = residual.plus(r.gradient(v, self.norms))
        if not np.all(np.isfinite(residual.size)):
            raise NoProof("numbers overflow.")
        return residual

    def _is_balanced(self, duals: list[Vector], residual: Ball, shared: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which equations hold exactly: nothing that is not zero is in them, or what is cancels without rounding.

        What is left of equations that a row of their own, or a curved one, can take costs next to nothing: these are
        not looked at term by term.
        """
        nothing = residual.middle == 0.0
        balanced = nothing & (residual.radius == 0.0)
        columns = np.flatnonzero(nothing & ~balanced & shared)
        few = max(1, AT_ONCE // max(1, sum(v.size for v in duals)))
        if columns.size > _TERM_BY_TERM * few:
            return np.asarray(balanced)
        for start in range(0, columns.size, few):
            part = columns[start : start + few]
            balanced[part] = self._cancel(duals, part)
        return np.asarray(balanced)

    def _cancel(self, duals: list[Vector], columns: Index) -> list[bool]:
        """Whether the products that are added up in some equations come to zero, exactly."""
        known = self.fixed.radius[columns] == 0.0
        products = [[(1.0, value)] if value else [] for value in self.fixed.middle[columns].tolist()]
        for r, v in zip(self.rows, duals, strict=True):
            live = np.flatnonzero(v)
            if not live.size:
                continue
            dense = np.asarray(r.linear.columns(columns).dense())[live]
            seen = np.count_nonzero(dense, axis=0)
            for k in np.flatnonzero(seen):
                if seen[k] > _RATIONAL_PRODUCTS or columns.size > _RATIONAL_PRODUCTS:
                    known[k] = False
                elif known[k]:
                    used = live[np.flatnonzero(dense[:, k])]
                    matrix = r.dense(used, columns[[k]], self.norms)
                    known[k] = not matrix.radius.any()
                    products[k] += zip(matrix.middle[:, 0].tolist(), v[used].tolist(), strict=True)
        pairs = zip(known.tolist(), products, strict=True)
        return [sure and (not terms or difference_is_zero(terms)) for sure, terms in pairs]

    def sharpen(self) -> bool:
        """Add up all equations in extended precision from now on; whether that is new, and does not take too long."""
        affordable = self.size * sum(r.offset.size for r in self.rows) <= _SHARP_PRODUCTS
        before, self.sharp = self.sharp, affordable
        return self.sharp and not before

    def _refined(self, duals: list[Vector], residual: Ball) -> Ball:
        """The residual, with extended precision for the coordinates, as intercepts, whose rounding costs most."""
        pairs = list(zip(self.rows, duals, strict=True))
        chosen = np.flatnonzero(residual.radius) if self.sharp else self._dear(pairs, residual)
        if not chosen.size:
            return residual
        middle, radius = residual.middle.copy(), residual.radius.copy()
        for start in range(0, chosen.size, FEW_COLUMNS):
            tick()
            part = chosen[start : start + FEW_COLUMNS]
            sharp = Ball(self.fixed.middle[part], self.fixed.radius[part])
            for r, v in pairs:
                sharp = sharp.plus(transposed(r.linear.columns(part), Ball.exact(v), {}))
            middle[part], radius[part] = sharp
        return Ball(middle, radius)

    def _dear(self, pairs: list[tuple[DualRows, Vector]], residual: Ball) -> Index:
        """The equations whose rounding costs most."""
        cost = residual.radius * np.abs(self.x)
        dear = np.flatnonzero(cost > _DEAR_EQUATION * sum((_products(r, v) for r, v in pairs), TINY))
        if dear.size * sum(v.size for _, v in pairs) > _EXTENDED_PRODUCTS:
            dear = dear[cost[dear] > 4.0 * float(cost.mean())]
            dear = dear if dear.size <= 4 < self.size else dear[:0]
        return np.asarray(dear)

    def private(self, duals: list[Vector]) -> Private:
        """The rows of one coordinate that may take what is left of its equation."""
        block, place = np.full(self.size, _NO_ROW), np.zeros(self.size, dtype=np.intp)
        most = np.zeros(self.size)
        for b, (r, v) in enumerate(zip(self.rows, duals, strict=True)):
            if r.single is None:
                continue
            index, factor = r.single
            room = r.room(v) * np.abs(factor.middle)
            wide = np.isinf(r.ends[1]) & np.isinf(r.ends[0]) | (room > self.least_room * np.abs(factor.middle * v))
            room = np.where(wide & (factor.middle != 0.0), room, 0.0)
            order = np.argsort(room, kind="stable")  # the last of a coordinate is the one with the most
            best = np.zeros(self.size)
            best[index[order]] = room[order]
            better = best > most
            at = np.zeros(self.size, dtype=np.intp)
            at[index[order]] = order
            block[better], place[better], most = b, at[better], np.maximum(best, most)
        return Private(block, place, most)

    # -- Equations that several rows share ----------------------------------------------------------------------------

    def _solve_core(
        self, duals: list[Vector], residual: Ball, core: Index, still: Index, private: Private
    ) -> tuple[list[DualMove], Ball]:
        """Moves that balance some equations exactly and leave others as they are, and what all of them come to."""
        if core.size > _DENSE_EQUATIONS:
            raise NoProof(
                f"{core.size} equations are too many to be solved with proof; at most {_DENSE_EQUATIONS} are."
            )
        columns = np.union1d(core, still) if still.size else core
        chosen, room, wide = self._candidates(duals, private, core, columns)
        if still.size:
            other = np.searchsorted(columns, still)
            kept = np.flatnonzero(~np.any(wide.middle[:, other] != 0.0, axis=1) & ~wide.radius[:, other].any(axis=1))
            chosen, room, wide = [chosen[k] for k in kept], room[kept], Ball(wide.middle[kept], wide.radius[kept])
        if not room.size:
            raise NoProof("no subgradient lies inside its interval.")
        narrow = wide.middle[:, np.searchsorted(columns, core)]
        scale = inverse_size(np.max(np.abs(narrow), axis=0))
        weighted = narrow * scale  # equations of size one, and rows of the size of their share of room
        weighted *= (room * inverse_size(np.max(np.abs(weighted), axis=1)))[:, None]
        tick(8.0 * weighted.size * core.size)  # a factor with pivoting is slow
        core, picked = self._independent(weighted, core, scale, duals)
        place = np.ix_(picked, np.searchsorted(columns, core))
        system = Ball(wide.middle[place], wide.radius[place])
        try:
            move = enclosed_solution(system, Ball(-residual.middle[core], residual.radius[core]))
        except np.linalg.LinAlgError:
            raise NoProof("the columns are nearly dependent.") from None
        whole = Ball(wide.middle[picked], wide.radius[picked]) if columns.size == self.size else None
        return self._moves([chosen[j] for j in picked], move, residual, whole)

    def _moves(
        self, chosen: list[tuple[int, int]], move: Ball, residual: Ball, entries: Ball | None
    ) -> tuple[list[DualMove], Ball]:
        """Moves of rows, block by block, and what they make of all equations; `entries`: of these rows, if known."""
        moves = []
        for b in {block for block, _ in chosen}:
            mine = [k for k, (block, _) in enumerate(chosen) if block == b]
            index = np.array([chosen[k][1] for k in mine])
            own = Ball(move.middle[mine], move.radius[mine])
            if b < _QUADRATIC_PART:
                q = self.quadratics[_QUADRATIC_PART - 1 - b]
                matrix = self._curved_rows(q, index)
                residual = residual.plus(_combined(own, matrix))
                moves.append(self._moved_point(q, index, own.size, matrix.middle))
                continue
            r = self.rows[b]
            if entries is None:
                linear = r.linear.rows(index)
                change, position = transposed(linear, own, {}), entries_times(linear, self.x, self.norms)
            else:
                matrix = Ball(entries.middle[mine], entries.radius[mine])
                change = _combined(own, matrix)
                position = _combined(Ball.exact(self.x), Ball(matrix.middle.T, matrix.radius.T))
            residual = residual.plus(change)
            moves.append(DualMove(r, b, index, own, position.plus(Ball.exact(np.asarray(r.offset)[index]))))
        return moves, residual

    def _curved_rows(self, q: DualQuadratic, index: Index) -> Ball:
        """Rows of the matrix of a quadratic part, in all coordinates."""
        part = q.matrix[index]
        dense = Ball.exact(part.toarray() if sp.issparse(part) else part).scaled(q.weight)
        rows = Ball(np.zeros((index.size, self.size)), np.zeros((index.size, self.size)))
        rows.middle[:, q.coordinates], rows.radius[:, q.coordinates] = dense
        return rows

    def _candidates(
        self, duals: list[Vector], private: Private, core: Index, columns: Index
    ) -> tuple[list[tuple[int, int]], Vector, Ball]:
        """Rows that may move: where they are, the share of their interval that is room, and entries of some columns."""
        most = _CANDIDATES * core.size + 64
        chosen: list[tuple[int, int]] = []
        rooms, parts = [], []
        for b, (r, v) in enumerate(zip(self.rows, duals, strict=True)):
            room = r.room(v)
            room[private.place[private.block == b]] = 0.0
            shares = room / r.width(v)
            index = np.flatnonzero(room > 0.0)
            if r.single is not None:
                index = index[np.isin(r.single[0][index], core)]
            if index.size > most:
                few = np.sort(index[_spread_out(shares[index], most)])
                index = np.union1d(few, self._seldom_seen(r, index, few, shares, columns))
            if index.size:
                tick(_ENTRY_OPERATIONS * index.size * columns.size)
                chosen += [(b, int(i)) for i in index]
                rooms.append(shares[index])
                parts.append(r.dense(index, columns, self.norms))
        for k, q in enumerate(self.quadratics):  # a move of its point by h moves the balance by S h
            if q.coordinates is not None and self.size <= _DENSE_EQUATIONS:
                count = q.coordinates.size
                whole = self._curved_rows(q, np.arange(count))
                dense = Ball(whole.middle[:, columns], whole.radius[:, columns])
                chosen += [(_QUADRATIC_PART - 1 - k, i) for i in range(count)]
                rooms.append(np.full(count, 0.5))
                parts.append(dense)
        if not parts:
            return [], np.zeros(0), Ball.exact(np.zeros((0, columns.size)))
        return (
            chosen,
            np.concatenate(rooms),
            Ball(np.concatenate([p.middle for p in parts]), np.concatenate([p.radius for p in parts])),
        )

    def _seldom_seen(self, r: DualRows, index: Index, few: Index, shares: Vector, columns: Index) -> Index:
        """Of columns that few of the rows see, and those that were drawn do not, the rows that see them best."""
        seen = np.asarray(r.linear.rows(few).columns(columns).dense()).any(axis=0)
        rare = columns[~seen][:_SELDOM]
        if not rare.size:
            return few[:0]
        sizes = np.abs(np.asarray(r.linear.columns(rare).dense())[index]) * shares[index][:, None]
        best = np.argsort(-sizes, axis=0, kind="stable")[:_SELDOM_ROWS]
        return np.asarray(np.unique(index[best[np.take_along_axis(sizes, best, axis=0) > 0.0]]))

    def _independent(self, weighted: Vector, core: Index, scale: Vector, duals: list[Vector]) -> tuple[Index, Index]:
        """Equations that imply the others, and as many rows whose matrix is far from singular."""
        if weighted.shape[0] >= core.size:
            pivots, order = _pivots(weighted.T)
            if pivots[-1] > 1e-2 * self.singular * pivots[0]:
                return core, order[: core.size]
        # Columns that depend on others, for certain: their equations follow from those of the others. Rows with next to
        # no room count little, but they may be the only ones that tell two columns apart.
        relations = ColumnRelations(self.rows, self.quadratics, self.vector, self.fixed, duals, self.norms)
        for matrix in (weighted, weighted * inverse_size(np.max(np.abs(weighted), axis=1))[:, None]):
            pivots, order = _pivots(matrix)
            rank = int(np.count_nonzero(pivots > self.singular * pivots[0])) if pivots.size and pivots[0] > 0.0 else 0
            if rank == 0:
                raise NoProof("no subgradient lies inside its interval.")
            kept, dropped = np.sort(order[:rank]), np.sort(order[rank:])
            shares = np.linalg.lstsq(matrix[:, kept], matrix[:, dropped], rcond=None)[0]
            shares = shares * scale[kept][:, None] / scale[dropped]
            if all(relations.depends(core[kept], int(core[j]), c) for j, c in zip(dropped, shares.T, strict=True)):
                return core[kept], _pivots(weighted[:, kept].T)[1][:rank]
        raise NoProof(
            "the subgradients inside their intervals do not determine the balance, and the columns are not "
            "dependent for certain."
        )

    # -- Quadratic parts ----------------------------------------------------------------------------------------------

    @cached_property
    def curved(self) -> tuple[Index, Vector, float, Vector]:
        """Coordinates along which a quadratic part is strongly convex: which, their units, how strongly, how far x."""
        for q in self.quadratics:
            if q.coordinates is None:
                continue
            diagonal = np.asarray(q.matrix.diagonal(), dtype=np.float64)
            index = np.flatnonzero(diagonal > 0.0)
            if not index.size:
                continue
            units = np.ldexp(1.0, -((np.frexp(diagonal[index])[1] + 1) // 2))
            part = q.matrix[index][:, index]
            scaled = (
                (part.multiply(units).T.multiply(units)).tocsr() if sp.issparse(part) else units * part * units[:, None]
            )
            least = smallest_eigenvalue_bound(scaled, _STRENGTHS) * q.weight / SLACK
            if least > 0.0:
                return q.coordinates[index], units, least, q.distance(self.x)[index]
        return np.zeros(0, dtype=np.intp), np.zeros(0), 1.0, np.zeros(0)

    def _moved_point(self, q: DualQuadratic, index: Index, move: Vector, matrix: Vector) -> DualMove:
        """What it costs that a tangent is taken at p + h: ``h'S(p - z) + 1/2 h'S h`` at most, in sizes."""
        far = q.distance(self.x)
        far[index] += 0.5 * move
        self.moved[np.asarray(q.coordinates)[index]] += move
        cost = float(move @ (np.abs(matrix[:, q.coordinates]) @ far)) * SLACK + TINY
        return DualMove.costing(cost)

    def _charged(self, rest: Ball) -> list[DualMove]:
        """What a strongly convex part charges: ``r'h + 1/2 h'Sh >= -|r|^2 / (2 lambda)``, h the way from its point."""
        index, units, least, far = self.curved
        if not index.size:
            return []
        size = rest.size[index]
        cost = float(np.square(units * size).sum()) / (2.0 * least) + float(size @ (far + self.moved[index]))
        return [DualMove.costing(cost * SLACK + TINY)]

    # -- Rows of one coordinate ---------------------------------------------------------------------------------------

    def _absorb(self, rest: Ball, private: Private) -> list[DualMove]:
        """Moves of rows of one coordinate that take what is left of its equation."""
        corrections = []
        for b, r in enumerate(self.rows):
            mine = np.flatnonzero((private.block == b) & (rest.size > 0.0))
            if not mine.size or r.single is None:
                continue
            index = private.place[mine]
            factor = Ball(r.single[1].middle[index], r.single[1].radius[index])
            needed = Ball(-rest.middle[mine], rest.radius[mine])
            move = needed.middle / factor.middle
            least = np.abs(factor.middle) - factor.radius
            # |(n + dn) / (f + df) - m| <= (|n - f m| + dn + |m| df) / (|f| - df)
            error = np.abs(needed.middle - factor.middle * move) + 2.0 * UNIT * np.abs(needed.middle)
            radius = (error + needed.radius + np.abs(move) * factor.radius + TINY) / least * SLACK
            position = np.asarray(r.offset)[index] + factor.middle * self.x[mine]
            size = np.abs(np.asarray(r.offset)[index]) + np.abs(factor.middle * self.x[mine])
            spread = (4.0 * UNIT * size + factor.radius * np.abs(self.x[mine]) + TINY) * SLACK
            corrections.append(DualMove(r, b, index, Ball(move, radius), Ball(position, spread)))
        return corrections


def _combined(factors: Ball, rows: Ball) -> Ball:
    """The sum of rows times factors."""
    count, sizes = factors.middle.size, np.abs(factors.middle)
    spread = factors.radius @ rows.size + sizes @ rows.radius
    spread += gamma(count + 2) * (sizes @ np.abs(rows.middle)) + TINY * count
    return Ball(factors.middle @ rows.middle, spread * SLACK)


def _products(r: DualRows, v: Vector) -> float:
    """The size of what duals are multiplied with in the bound: offsets and knots."""
    farthest = max((float(np.max(np.abs(knot), initial=0.0)) for knot in r.term.knots), default=0.0)
    return float(np.abs(v) @ (np.abs(r.offset) + farthest))


def _pivots(matrix: Vector) -> tuple[Vector, Index]:
    """The sizes of the pivots of a QR factor, and the columns in their order."""
    factor, order, *_ = scipy.linalg.lapack.dgeqp3(np.asfortranarray(matrix))
    return np.abs(np.diagonal(factor)), order - 1


def _spread_out(shares: Vector, count: int) -> Index:
    """Half of the entries the largest, half drawn at random: large ones may all be of one kind."""
    largest = np.argpartition(shares, -(count // 2))[-(count // 2) :]
    drawn = np.random.default_rng(0).choice(shares.size, count // 2, replace=False)
    return np.union1d(largest, drawn)
