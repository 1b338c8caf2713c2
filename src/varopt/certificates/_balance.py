r"""A lower bound that assumes nothing: dual points that balance exactly, by a verified correction.

For slopes v of weighted convex terms, with r the residual of the balance,

    f(y) = g'y + s + sum_k c_k rho_k(a_k'y + d_k) >= s + sum_k (v_k d_k - (c rho)_k^*(v_k)) + r'y,   r = g + A'v,

which bounds f only if r is zero: exactly, as y may be anything. Floating-point slopes leave a rounding error in r. It
is moved into a few slopes that lie inside their intervals: those of rows of one coordinate take what is left of that
coordinate's equation; for the other equations as many rows are chosen, and the solution of their linear system is
enclosed [Krawczyk 1969; Rump 1983]: if ``|I - R M| < 1`` for an approximate inverse R, M is regular and
``|x - y| <= |R (b - M y)| / (1 - |I - R M|)``. The exact slopes are never known, but that they lie in their intervals
is, and the bound holds for all of the enclosure.

A quadratic part ``1/2 z'Sz`` with S positive semidefinite lies above ``p'S z - 1/2 p'S p`` for every point p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import (
    SLACK,
    TINY,
    UNIT,
    Ball,
    Definiteness,
    definiteness,
    difference_is_zero,
    dot,
    down,
    gamma,
    smallest_eigenvalue_bound,
    total,
)
from varopt.certificates._conjugate import conjugate_above, slope_ends
from varopt.certificates._enclosure import (
    AT_ONCE,
    Norms,
    NotEnclosed,
    annihilates,
    coordinates,
    entries,
    entries_times,
    transposed,
)
from varopt.model.maps import Map, as_map
from varopt.terms import PiecewisePolynomial

__all__ = ["DualQuadratic", "DualRows", "Proof", "verified_lower"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_LARGEST = 2000  # equations that are solved at once, densely
_CANDIDATES = 8  # rows looked at for every equation
_SMALL = 1 << 28  # operations that an interior point of our own may take
_STRENGTHS = (1e-2, 1e-5, 1e-8)  # shares of its size by which a quadratic part may be strongly convex
_LEAST = 1e-14  # share of an interior dual point that is mixed in first
_NONE, _CURVED = -1, -2  # in place of a block: no row takes an equation, a quadratic part does
_PLENTY, _ENOUGH = 1e-2, 1e-9  # shares of its slope that a row of one coordinate needs as room: at first, and at last
_INTEGERS = range(1, 13)  # by which a relation of columns is multiplied to make it one of whole numbers


@dataclass(frozen=True)
class DualRows:
    """Weighted convex terms of the rows of an affine map, and a slope for each: ``u_k`` of ``rho_k``, not of ``c rho``.

    Attributes
    ----------
    linear, offset : Map, array
        ``z = A x + d``.
    term : PiecewisePolynomial
        Convex, with pieces of degree at most two.
    weights, slopes : array
        c, not negative, and u, about in the closed interval of the slopes.
    interior : array, optional
        Slopes strictly inside their intervals that balance about, as of terms smoothed by a large sigma: mixed in where
        the given ones have no room.
    """

    linear: Map
    offset: Vector
    term: PiecewisePolynomial
    weights: Vector
    slopes: Vector
    interior: Vector | None = None

    @cached_property
    def ends(self) -> tuple[Vector, Vector]:
        """Smallest and largest slopes of the weighted terms."""
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.strides == (0,) and self.term.rows is None:  # one number for all
            weights = weights[:1]
        low, high = slope_ends(self.term, weights)
        return np.broadcast_to(low, self.offset.shape), np.broadcast_to(high, self.offset.shape)

    def clipped(self, slopes: Vector) -> Vector:
        """Slopes of the weighted terms that are certainly inside."""
        return np.clip(self.weights * slopes, *self.ends)

    @cached_property
    def single(self) -> tuple[Index, Ball] | None:
        """The coordinates where every row is of one, and their factors."""
        return coordinates(self.linear)

    def dense(self, index: Index, columns: Index, norms: Norms) -> Ball:
        """Some columns of rows of the matrix, enclosed."""
        count, width = self.linear.shape
        if columns.size == width:
            return entries(self.linear.rows(index), norms)
        if columns.size * count < index.size * width:  # the smaller copy first
            return entries(self.linear.columns(columns).rows(index), norms)
        return entries(self.linear.rows(index).columns(columns), norms)


@dataclass(frozen=True)
class DualQuadratic:
    """``c/2 z'S z`` of an affine z, S symmetric and positive semidefinite, and a point p of the space of z."""

    linear: Map
    offset: Vector
    matrix: Any
    point: Vector
    weight: float = 1.0  # c, positive

    @cached_property
    def coordinates(self) -> Index | None:
        """The coordinates that z is made of, each once and times one; else None."""
        known = coordinates(self.linear)
        if known is None or np.any(known[1].middle != 1.0) or known[1].radius.any():
            return None
        return known[0] if np.unique(known[0]).size == known[0].size else None

    def distance(self, x: Vector) -> Vector:
        """Bounds of ``|p - z(x)|``, where z is made of coordinates."""
        z = x[self.coordinates] + self.offset
        rounding = 4.0 * UNIT * (np.abs(self.point) + np.abs(x[self.coordinates]) + np.abs(self.offset))
        return np.asarray(np.abs(self.point - z) + rounding)


class Proof(NamedTuple):
    """What was proved: no point has a value below `lower`; where nothing was, it is minus infinity, and why."""

    lower: float
    reason: str = ""


class _NoProof(Exception):
    """Why the slopes could not be made to balance; `short` says how many times the room they have they need."""

    def __init__(self, reason: str, short: float = 100.0) -> None:
        super().__init__(reason)
        self.short = short


def verified_lower(
    rows: Sequence[DualRows], vector: Vector | Ball, scalar: float = 0.0, quadratics: Sequence[DualQuadratic] = (),
    x: Vector | None = None, norms: Norms | None = None,
) -> Proof:  # fmt: skip
    r"""A number below ``g'y + s + sum_k c_k rho_k(a_k'y + d_k) + sum 1/2 z'Sz`` for every y, in exact arithmetic.

    Parameters
    ----------
    rows : sequence of DualRows
        The terms, with their slopes: at an optimum they balance, and the bound is its value but for rounding.
    vector : array or Ball
        g, exact or enclosed.
    scalar : float
        s.
    quadratics : sequence of DualQuadratic
        Quadratic parts, with points: the optimum.
    x : array, optional
        Near an optimum: it makes the bound sharper where offsets are large, and nothing depends on it.
    norms : dict, optional
        Keeps the lengths of columns for others to use.

    Returns
    -------
    Proof

    Notes
    -----
    Two passes over dense data, about one product with the transpose each; for q equations that no row of one coordinate
    takes, matrices of q x q and a pivoted QR factor of a few times as many rows.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import terms
    >>> from varopt.certificates import DualRows, verified_lower
    >>> from varopt.model.maps import Matrix
    >>> A, y = np.ones((3, 1)), np.array([1.0, 2.0, 4.0])   # a median: slopes 1, 0 and -1 balance
    >>> rows = DualRows(Matrix(A), -y, terms.abs_(), np.ones(3), np.array([1.0, 0.0, -1.0]))
    >>> round(verified_lower([rows], np.zeros(1)).lower, 12)
    3.0
    """
    with np.errstate(all="ignore"):
        try:
            return _Balance(tuple(rows), vector, scalar, tuple(quadratics), x, norms).prove()
        except (_NoProof, NotEnclosed) as reason:
            return Proof(-math.inf, str(reason))
        except np.linalg.LinAlgError:
            return Proof(-math.inf, "a factorisation failed.")


class _Correction(NamedTuple):
    """Moves of some slopes of one block; or of no block, and what they cost."""

    block: int
    places: Index
    move: Ball
    position: Ball  # z of these rows at x
    cost: float = 0.0


class _Balance:
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
        self.least_room = _PLENTY
        self.moved = np.zeros(self.size)  # by how much points of quadratic parts are moved, at most
        self.fixed, self.base = self.vector, scalar
        for q in quadratics:
            self._add(q)

    def _add(self, q: DualQuadratic) -> None:
        """The tangent of a quadratic part: ``p'S z - 1/2 p'S p`` with z = L y + d."""
        if definiteness(q.matrix) is not Definiteness.POSITIVE:
            raise _NoProof("a quadratic part is not known to be convex.")
        slope = transposed(_matrix(q.matrix), Ball.exact(q.point), self.norms).scaled(q.weight)
        self.fixed = self.fixed.plus(transposed(q.linear, slope, self.norms))
        half, error = dot(slope.middle, q.offset - 0.5 * q.point)
        size = float((np.abs(q.offset) + np.abs(q.point)) @ (slope.radius + 2.0 * UNIT * np.abs(slope.middle)))
        self.base += half
        self.base = float(down(self.base - (error + size) * SLACK - 2.0 * UNIT * abs(self.base)))

    # -- The steps ----------------------------------------------------------------------------------------------------

    def prove(self) -> Proof:
        slopes = [r.clipped(r.slopes) for r in self.rows]
        share, growth, reason = 0.0, 4.0, ""
        for snaps, self.least_room in ((False, _PLENTY), (False, _ENOUGH), (True, _PLENTY)):
            pairs = zip(self.rows, slopes, strict=True)
            tried = [_snapped(r, v) for r, v in pairs] if snaps else slopes
            try:
                return Proof(self._value(tried, *self._corrected(tried)))
            except _NoProof as failure:
                reason = reason or str(failure)
        self.least_room = _PLENTY
        while share < 1.0 and self.interior is not None:
            share = _LEAST if share == 0.0 else min(share * growth, 1.0)
            mixed = self._mixed(slopes, share)
            try:
                return Proof(self._value(mixed, *self._corrected(mixed)))
            except _NoProof as failure:
                growth = min(max(2.0 * failure.short, 4.0), 1e4)
        raise _NoProof(reason)

    def _mixed(self, slopes: list[Vector], share: float) -> list[Vector]:
        pairs = zip(self.rows, slopes, self.interior or slopes, strict=True)
        return [np.clip(v + share * (inner - v), *r.ends) for r, v, inner in pairs]

    def _corrected(self, slopes: list[Vector]) -> tuple[Ball, list[_Correction]]:
        """What the slopes leave, and the moves that balance it exactly."""
        residual = self.fixed
        for r, v in zip(self.rows, slopes, strict=True):
            residual = residual.plus(transposed(r.linear, Ball.exact(v), self.norms))
        if not np.all(np.isfinite(residual.size)):
            raise _NoProof("numbers overflow.")
        residual = self._refined(slopes, residual)
        left = ~self._is_balanced(slopes, residual)
        if not left.any():
            return residual, []
        private = self._private(slopes)
        private[0][self.curved[0]] = _CURVED
        shared = private[0] == _NONE
        if not np.any(left & shared):
            return residual, [*self._absorb(residual, private), *self._bent(residual)]
        # Equations that balance already, as where one-sided terms are all at rest, need not be touched: rows that do
        # not see them are tried first.
        try:
            core, still = np.flatnonzero(left & shared), np.flatnonzero(~left & shared)
            corrections, rest = self._solve_core(slopes, residual, core, still, private)
        except _NoProof:
            if not still.size:
                raise
            core = np.flatnonzero(shared)
            corrections, rest = self._solve_core(slopes, residual, core, still[:0], private)
        return residual, [*corrections, *self._absorb(rest, private), *self._bent(rest)]

    def _is_balanced(self, slopes: list[Vector], residual: Ball) -> NDArray[np.bool_]:
        """Which equations hold exactly: no row with a slope sees them, nor does anything else."""
        balanced = residual.middle == 0.0
        columns = np.flatnonzero(balanced)
        if columns.size:
            balanced[columns] = self.fixed.size[columns] == 0.0
            for r, v in zip(self.rows, slopes, strict=True):
                if not v.any():
                    continue
                few = max(1, AT_ONCE // max(1, v.size))
                for start in range(0, columns.size, few):
                    part = columns[start : start + few]
                    balanced[part] &= ~np.any(np.asarray(r.linear.columns(part).dense())[v != 0.0] != 0.0, axis=0)
        return np.asarray(balanced)

    def _refined(self, slopes: list[Vector], residual: Ball) -> Ball:
        """The residual, with extended precision for the few coordinates, as intercepts, whose rounding costs most."""
        cost = residual.radius * np.abs(self.x)
        few = np.flatnonzero(cost > 4.0 * max(float(cost.mean()), TINY))
        if not 0 < few.size <= 4 or self.size <= 4:
            return residual
        sharp = Ball(self.fixed.middle[few], self.fixed.radius[few])
        for r, v in zip(self.rows, slopes, strict=True):
            sharp = sharp.plus(transposed(r.linear.columns(few), Ball.exact(v), {}))
        middle, radius = residual.middle.copy(), residual.radius.copy()
        middle[few], radius[few] = sharp
        return Ball(middle, radius)

    def _private(self, slopes: list[Vector]) -> tuple[Index, Index]:
        """For each coordinate the row of that coordinate alone with the most room: block (-1 for none) and position."""
        block, place = np.full(self.size, _NONE), np.zeros(self.size, dtype=np.intp)
        most = np.zeros(self.size)
        for b, (r, v) in enumerate(zip(self.rows, slopes, strict=True)):
            if r.single is None:
                continue
            index, factor = r.single
            room = self._room(r, v, slice(None)) * np.abs(factor.middle)
            wide = np.isinf(r.ends[1]) & np.isinf(r.ends[0]) | (room > self.least_room * np.abs(factor.middle * v))
            room = np.where(wide & (factor.middle != 0.0), room, 0.0)
            order = np.argsort(room, kind="stable")  # the last of a coordinate is the one with the most
            best = np.zeros(self.size)
            best[index[order]] = room[order]
            better = best > most
            at = np.zeros(self.size, dtype=np.intp)
            at[index[order]] = order
            block[better], place[better], most = b, at[better], np.maximum(best, most)
        return block, place

    @staticmethod
    def _room(r: DualRows, v: Vector, index: Any) -> Vector:
        """How far slopes are from the ends of their intervals; where there are none, about their own size."""
        low, high = (end[index] for end in r.ends)
        room = np.minimum(v[index] - low, high - v[index])
        return np.asarray(np.where(np.isinf(room), 1.0 + np.abs(v[index]), room))

    # -- Equations that several rows share ----------------------------------------------------------------------------

    def _solve_core(
        self, slopes: list[Vector], residual: Ball, core: Index, still: Index, private: tuple[Index, Index]
    ) -> tuple[list[_Correction], Ball]:
        """Moves that balance some equations exactly and leave others as they are, and what all of them come to."""
        if core.size > _LARGEST:
            raise _NoProof(f"{core.size} equations are too many to be solved with proof; at most {_LARGEST} are.")
        columns = np.union1d(core, still)
        chosen, room, wide = self._candidates(slopes, private, core, columns)
        if still.size:
            other = np.searchsorted(columns, still)
            kept = np.flatnonzero(~np.any(wide.middle[:, other] != 0.0, axis=1) & ~wide.radius[:, other].any(axis=1))
            chosen, room, wide = [chosen[k] for k in kept], room[kept], Ball(wide.middle[kept], wide.radius[kept])
        if not room.size:
            raise _NoProof("no slope lies inside its interval.")
        narrow = wide.middle[:, np.searchsorted(columns, core)]
        scale = _inverse_size(np.max(np.abs(narrow), axis=0))
        weighted = narrow * scale  # equations of size one, and rows of the size of their share of room
        weighted *= (room * _inverse_size(np.max(np.abs(weighted), axis=1)))[:, None]
        core, picked = self._independent(weighted, core, scale, slopes)
        place = np.ix_(picked, np.searchsorted(columns, core))
        move = _enclosed_solution(
            Ball(wide.middle[place], wide.radius[place]), Ball(-residual.middle[core], residual.radius[core])
        )
        return self._moves(chosen, picked, move, residual)

    def _moves(
        self, chosen: list[tuple[int, int]], picked: Index, move: Ball, residual: Ball
    ) -> tuple[list[_Correction], Ball]:
        """Moves of rows, block by block, and what they make of all equations."""
        moves = []
        for b in {chosen[j][0] for j in picked}:
            mine = [k for k, j in enumerate(picked) if chosen[j][0] == b]
            index = np.array([chosen[picked[k]][1] for k in mine])
            own = Ball(move.middle[mine], move.radius[mine])
            if b < _CURVED:
                q = self.quadratics[_CURVED - 1 - b]
                matrix = self._curved_rows(q, index)
                change = own.middle @ matrix.middle
                spread = own.radius @ matrix.size + np.abs(own.middle) @ matrix.radius
                spread += gamma(len(mine) + 2) * (np.abs(own.middle) @ np.abs(matrix.middle)) + TINY * len(mine)
                residual = residual.plus(Ball(change, spread * SLACK))
                moves.append(self._moved_point(q, index, own.size, matrix.middle))
                continue
            r = self.rows[b]
            linear = r.linear.rows(index)
            residual = residual.plus(transposed(linear, own, {}))
            position = entries_times(linear, self.x, self.norms).plus(Ball.exact(np.asarray(r.offset)[index]))
            moves.append(_Correction(b, index, own, position))
        return moves, residual

    def _curved_rows(self, q: DualQuadratic, index: Index) -> Ball:
        """Rows of the matrix of a quadratic part, in all coordinates."""
        part = q.matrix[index]
        dense = Ball.exact(part.toarray() if sp.issparse(part) else part).scaled(q.weight)
        rows = Ball(np.zeros((index.size, self.size)), np.zeros((index.size, self.size)))
        rows.middle[:, q.coordinates], rows.radius[:, q.coordinates] = dense
        return rows

    def _candidates(
        self, slopes: list[Vector], private: tuple[Index, Index], core: Index, columns: Index
    ) -> tuple[list[tuple[int, int]], Vector, Ball]:
        """Rows that may move: where they are, the share of their interval that is room, and entries of some columns."""
        most = _CANDIDATES * core.size + 64
        chosen: list[tuple[int, int]] = []
        rooms, parts = [], []
        for b, (r, v) in enumerate(zip(self.rows, slopes, strict=True)):
            room = self._room(r, v, slice(None))
            room[private[1][private[0] == b]] = 0.0
            shares = room / self._width(r, v)
            index = np.flatnonzero(room > 0.0)
            if r.single is not None:
                index = index[np.isin(r.single[0][index], core)]
            if index.size > most:
                index = np.sort(index[_spread_out(shares[index], most)])
            if index.size:
                chosen += [(b, int(i)) for i in index]
                rooms.append(shares[index])
                parts.append(r.dense(index, columns, self.norms))
        for k, q in enumerate(self.quadratics):  # a move of its point by h moves the balance by S h
            if q.coordinates is not None and self.size <= _LARGEST:
                count = q.coordinates.size
                whole = self._curved_rows(q, np.arange(count))
                dense = Ball(whole.middle[:, columns], whole.radius[:, columns])
                chosen += [(_CURVED - 1 - k, i) for i in range(count)]
                rooms.append(np.full(count, 0.5))
                parts.append(dense)
        if not parts:
            return [], np.zeros(0), Ball.exact(np.zeros((0, columns.size)))
        return (
            chosen,
            np.concatenate(rooms),
            Ball(np.concatenate([p.middle for p in parts]), np.concatenate([p.radius for p in parts])),
        )

    @staticmethod
    def _width(r: DualRows, v: Vector) -> Vector:
        """What room is measured by: the width of the interval, or of about the slope's own size where it has none."""
        width = r.ends[1] - r.ends[0]
        return np.where(np.isfinite(width) & (width > 0.0), width, 1.0 + np.abs(v))

    def _independent(self, weighted: Vector, core: Index, scale: Vector, slopes: list[Vector]) -> tuple[Index, Index]:
        """Equations that imply the others, and as many rows whose matrix is far from singular."""
        if weighted.shape[0] >= core.size:
            factor, order = scipy.linalg.qr(weighted.T, mode="r", pivoting=True, check_finite=False)
            pivots = np.abs(np.diagonal(factor))
            if pivots[-1] > 1e-11 * pivots[0]:
                return core, order[: core.size]
        # Columns that depend on others, for certain: their equations follow from those of the others.
        factor, order = scipy.linalg.qr(weighted, mode="r", pivoting=True, check_finite=False)
        pivots = np.abs(np.diagonal(factor))
        rank = int(np.count_nonzero(pivots > 1e-9 * pivots[0])) if pivots.size and pivots[0] > 0.0 else 0
        kept, dropped = np.sort(order[:rank]), np.sort(order[rank:])
        if rank == 0:
            raise _NoProof("no slope lies inside its interval.")
        for j in dropped:
            shares = np.linalg.lstsq(weighted[:, kept], weighted[:, j], rcond=None)[0] * scale[kept] / scale[j]
            if not self._depends(core[kept], int(core[j]), shares, slopes):
                raise _NoProof(
                    "the slopes inside their intervals do not determine the balance, and the columns are not "
                    "dependent for certain."
                )
        rows = scipy.linalg.qr(weighted[:, kept].T, mode="r", pivoting=True, check_finite=False)[1]
        return core[kept], rows[:rank]

    def _depends(self, kept: Index, column: int, shares: Vector, slopes: list[Vector]) -> bool:
        """Whether a column is, exactly, a combination of others with ratios of small whole numbers.

        Rows whose slope is zero and stays so see no column.
        """
        for factor in _INTEGERS:
            whole = np.round(factor * shares)
            if np.all(np.abs(factor * shares - whole) < 1e-5):
                relation = np.zeros(self.size)
                relation[kept], relation[column] = -whole, factor
                return self._is_relation(relation, slopes)
        return False

    def _is_relation(self, relation: Vector, slopes: list[Vector]) -> bool:
        used = np.flatnonzero(relation)
        if np.any(self.vector.radius[used] > 0.0):
            return False
        if not difference_is_zero(zip(relation[used], self.vector.middle[used], strict=True)):
            return False
        for r, v in zip(self.rows, slopes, strict=True):
            live = np.flatnonzero((v != 0.0) | (self._room(r, v, slice(None)) > 0.0))
            if live.size and not annihilates(r.linear if live.size == v.size else r.linear.rows(live), relation):
                return False
        return all(annihilates(q.linear, relation) for q in self.quadratics)

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

    def _moved_point(self, q: DualQuadratic, index: Index, move: Vector, matrix: Vector) -> _Correction:
        """What it costs that a tangent is taken at p + h: ``h'S(p - z) + 1/2 h'S h`` at most, in sizes."""
        far = q.distance(self.x)
        far[index] += 0.5 * move
        self.moved[np.asarray(q.coordinates)[index]] += move
        cost = float(move @ (np.abs(matrix[:, q.coordinates]) @ far)) * SLACK + TINY
        empty = Ball.exact(np.zeros(0))
        return _Correction(_CURVED, np.zeros(0, dtype=np.intp), empty, empty, cost)

    def _bent(self, rest: Ball) -> list[_Correction]:
        """What a strongly convex part charges: ``r'h + 1/2 h'Sh >= -|r|^2 / (2 lambda)``, h the way from its point."""
        index, units, least, far = self.curved
        if not index.size:
            return []
        size = rest.size[index]
        cost = float(np.square(units * size).sum()) / (2.0 * least) + float(size @ (far + self.moved[index]))
        empty = Ball.exact(np.zeros(0))
        return [_Correction(_CURVED, np.zeros(0, dtype=np.intp), empty, empty, cost * SLACK + TINY)]

    # -- Rows of one coordinate ---------------------------------------------------------------------------------------

    def _absorb(self, rest: Ball, private: tuple[Index, Index]) -> list[_Correction]:
        """Moves of rows of one coordinate that take what is left of its equation."""
        corrections = []
        for b, r in enumerate(self.rows):
            mine = np.flatnonzero((private[0] == b) & (rest.size > 0.0))
            if not mine.size or r.single is None:
                continue
            index = private[1][mine]
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
            corrections.append(_Correction(b, index, Ball(move, radius), Ball(position, spread)))
        return corrections

    # -- The value ----------------------------------------------------------------------------------------------------

    def _value(self, slopes: list[Vector], residual: Ball, corrections: list[_Correction]) -> float:
        """The dual value of the exact slopes, from that of the given ones.

        With delta the moves, ``A'delta = -r``, so that the change of ``sum v d`` is ``sum delta (a'x + d) + r'x``: of
        rows that rest, small numbers times small numbers, however large the offsets.
        """
        value, error = self.base, 0.0
        parts, sizes = [np.array([self.base])], abs(self.base)
        for r, v in zip(self.rows, slopes, strict=True):
            products = v.astype(np.longdouble) * r.offset
            above = conjugate_above(r.term, np.asarray(r.weights, dtype=np.float64), v)
            products -= above
            parts.append(products)
            sizes += 2.0 * float(np.abs(v) @ np.abs(r.offset) + np.abs(above).sum()) * SLACK
        whole = np.concatenate([np.asarray(p, dtype=np.longdouble) for p in parts])
        value, error = total(whole, sizes)
        error += 4.0 * float(np.finfo(np.longdouble).eps) * sizes + TINY * whole.size
        error += float(residual.size @ np.abs(self.x))
        for c in corrections:
            error += self._lost(c, slopes[max(c.block, 0)]) if self.rows else c.cost
        lower = value - error * SLACK
        if not math.isfinite(lower):
            raise _NoProof("numbers overflow.")
        return float(down(lower))

    def _lost(self, c: _Correction, slopes: Vector) -> float:
        """The most that the moves take from the dual value, along r'x aside: it is concave in each, so at an end."""
        if c.block == _CURVED:
            return c.cost
        r, v = self.rows[c.block], slopes[c.places]
        # Rounding of v + move is inside the interval that is one unit wider.
        radius = (c.move.radius + 2.0 * UNIT * (np.abs(v) + np.abs(c.move.middle)) + TINY) * SLACK
        low, high = v + c.move.middle - radius, v + c.move.middle + radius
        ends = tuple(end[c.places] for end in r.ends)
        if not (np.all(low >= ends[0]) and np.all(high <= ends[1])):
            short = (np.abs(c.move.middle) + radius) / self._room(r, slopes, c.places)
            raise _NoProof("the slopes have too little room.", float(np.max(short)))
        term, weights = r.term.take(c.places), np.asarray(r.weights, dtype=np.float64)[c.places]
        z, spread = c.position
        # The conjugate of the given slopes went into the value as it is bounded above, and so it cancels.
        before = conjugate_above(term, weights, v)
        losses = []
        for end in (low, high):
            after = conjugate_above(term, weights, end)
            rounding = 4.0 * UNIT * (np.abs(end * z) + np.abs(v * z) + np.abs(after) + np.abs(before))
            losses.append((after - before) - (end - v) * z + np.abs(end - v) * spread + rounding)
        return float(np.maximum(np.maximum(*losses), 0.0).sum()) * SLACK

    # -- A dual point with room everywhere ----------------------------------------------------------------------------

    @cached_property
    def interior(self) -> list[Vector] | None:
        """Weighted slopes strictly inside their intervals that about balance: given, or found; None where neither."""
        if all(r.interior is not None for r in self.rows):
            return [r.clipped(np.asarray(r.interior)) for r in self.rows]
        if sum(r.offset.size for r in self.rows) * self.size**2 > _SMALL:
            return None
        return self._centred()

    def _centred(self) -> list[Vector] | None:
        """From the middles of all intervals, moved by shares of the room until they balance."""
        slopes = []
        for r in self.rows:
            low, high = r.ends
            given = r.clipped(r.slopes)
            finite = np.isfinite(low) & np.isfinite(high)
            slopes.append(np.where(finite, 0.5 * low + 0.5 * high, given))
        matrices = [np.asarray(r.linear.dense(), dtype=np.float64) for r in self.rows]
        for _ in range(60):
            residual = self.fixed.middle + sum(m.T @ v for m, v in zip(matrices, slopes, strict=True))
            rooms = [self._room(r, v, slice(None)) for r, v in zip(self.rows, slopes, strict=True)]
            roots = np.concatenate([room[:, None] * m for room, m in zip(rooms, matrices, strict=True)])
            step = np.linalg.lstsq(roots.T, -residual, rcond=1e-13)[0]  # the least in units of the rooms
            reach = float(np.abs(step).max(initial=0.0))
            share = min(1.0, 0.7 / reach) if reach > 0.0 else 1.0
            start = 0
            for b, room in enumerate(rooms):
                slopes[b] = slopes[b] + share * room * step[start : start + room.size]
                start += room.size
            if share == 1.0:
                return slopes
        return None


def _matrix(array: Any) -> Map:
    return as_map("the matrix of a quadratic part", array)


def _snapped(r: DualRows, v: Vector) -> Vector:
    """Slopes with those that are close to an end of their interval, or to zero, on it."""
    low, high = r.ends
    reach = 1e-9 * np.where(np.isfinite(high - low), high - low, 1.0 + np.abs(v))
    v = np.where(v - low <= reach, low, np.where(high - v <= reach, high, v))
    return np.where((np.abs(v) <= reach) & (low <= 0.0) & (high >= 0.0), 0.0, v)


def _spread_out(shares: Vector, count: int) -> Index:
    """Half of the entries the largest, half drawn at random: large ones may all be of one kind."""
    largest = np.argpartition(shares, -(count // 2))[-(count // 2) :]
    drawn = np.random.default_rng(0).choice(shares.size, count // 2, replace=False)
    return np.union1d(largest, drawn)


def _inverse_size(sizes: Vector) -> Vector:
    """Powers of two near the inverses of numbers; one for zero."""
    return np.where(sizes > 0.0, np.ldexp(1.0, -np.frexp(sizes)[1]), 1.0)


def _enclosed_solution(system: Ball, right: Ball) -> Ball:
    """The solution m of ``M'm = b`` for every matrix and right-hand side of the enclosures."""
    # Equations and unknowns of size one, by powers of two: what is solved does not depend on units.
    scale = _inverse_size(np.max(np.abs(system.middle), axis=0))
    unit = _inverse_size(np.max(np.abs(system.middle) * scale, axis=1))
    middle, radius = ((unit[:, None] * part * scale).T for part in (system.middle, system.radius))
    wanted, spread = scale * right.middle, scale * right.radius
    size = len(unit)
    inverse = np.linalg.inv(middle)
    solution = inverse @ wanted
    solution += inverse @ (wanted - middle @ solution)
    rounding = gamma(size + 3)
    bulk = np.abs(inverse) @ np.abs(middle)
    distance = np.abs(np.eye(size) - inverse @ middle) + 2.0 * rounding * bulk + np.abs(inverse) @ radius
    norm = float(distance.sum(axis=1).max()) * SLACK
    if not norm < 0.5:
        raise _NoProof("the columns are nearly dependent.")
    left = np.abs(wanted - middle @ solution) + rounding * (np.abs(middle) @ np.abs(solution) + np.abs(wanted))
    left += spread + radius @ np.abs(solution) + size * TINY
    first = np.abs(inverse) @ left * SLACK
    # |x - y| <= |R d| + |I - RM| |x - y|, and |x - y| <= max |R d| / (1 - norm) in the second place.
    error = first + distance.sum(axis=1) * float(first.max(initial=0.0)) / (1.0 - norm)
    return Ball(unit * solution, unit * error * SLACK)
