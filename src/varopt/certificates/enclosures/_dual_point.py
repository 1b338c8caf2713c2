r"""What a dual point is made of: subgradients of the terms of rows, and points of quadratic parts.

Its value needs the conjugates of weighted terms, bounded from above: :math:`(c \rho)^*(v) = \sup_z v z - c \rho(z)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._array import repeated
from varopt._verified import EXTENDED, SLACK, TINY, UNIT, Ball, length
from varopt.certificates.enclosures._enclosure import (
    Norms,
    column_lengths,
    coordinates,
    entries,
    transposed,
    transposed_at_hand,
)
from varopt.model.maps import Map, Scaled, Selection
from varopt.terms import PiecewisePolynomial

__all__ = ["DualQuadratic", "DualRows", "conjugate_above", "dual_interval"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]


def dual_interval(term: PiecewisePolynomial, weights: Vector) -> tuple[Vector, Vector]:
    """The closed interval of the subgradients of weighted terms, rounded inwards: smallest and largest."""
    low, high = (np.asarray(end, dtype=np.float64) for end in term.subgradient_range)
    if weights.size == low.size == high.size == 1 and term.rows is None:
        return _one_interval(float(low), float(high), float(weights[0]))
    with np.errstate(invalid="ignore"):  # 0 * inf, where the weight decides
        ends = [np.where(weights == 0.0, 0.0, weights * end) for end in (low, high)]
    exact = np.abs(np.frexp(weights)[0]) == 0.5  # a power of two
    inside = [np.nextafter(end, towards) for end, towards in zip(ends, (np.inf, -np.inf), strict=True)]
    kept = [
        np.where(exact | (end == 0.0) | ~np.isfinite(end) | (np.abs(given) == 1.0), end, moved)
        for end, moved, given in zip(ends, inside, (low, high), strict=True)
    ]
    return kept[0], kept[1]


def _one_interval(low: float, high: float, weight: float) -> tuple[Vector, Vector]:
    """The same for all rows at once, where one number is all there is."""
    ends = []
    for given, towards in ((low, math.inf), (high, -math.inf)):
        end = 0.0 if weight == 0.0 else weight * given
        exact = end == 0.0 or not math.isfinite(end) or abs(given) == 1.0 or abs(math.frexp(weight)[0]) == 0.5
        ends.append(np.array([end if exact else math.nextafter(end, towards)]))
    return ends[0], ends[1]


def conjugate_above(term: PiecewisePolynomial, weights: Any, v: Vector) -> Vector:
    """A number that the conjugate of ``c rho`` at v is not above, row by row; v within the subgradients of ``c rho``.

    The supremum over each piece is reached on a knot or where the piece has derivative v; that of a parabola on all of
    the line is above that on its piece.
    """
    if term.rows is None and (short := _of_few_numbers(term, weights, v)) is not None:
        return short
    best = np.full(v.shape, -np.inf)
    for i, (piece, centre) in enumerate(zip(term.pieces, term.centres, strict=True)):
        for knot in term.knots[max(i - 1, 0) : i + 1]:  # the ends of the piece, as the piece itself sees them
            reach = np.asarray(knot - centre)
            value = sum(coefficient * reach**m for m, coefficient in enumerate(piece))
            size = sum(abs(coefficient) * np.abs(reach) ** m for m, coefficient in enumerate(piece))
            # knot - centre rounds too: by a unit of its size, which the derivative of the piece magnifies.
            size = size + sum(m * abs(c) * np.abs(reach) ** m for m, c in enumerate(piece))
            reached = v * knot - weights * value
            best = np.maximum(best, reached + 8.0 * UNIT * SLACK * (np.abs(v * knot) + weights * size) + _lost(reached))
        if len(piece) == 3:
            best = np.maximum(best, _parabola(term, i, weights, v))
        elif not term.knots:
            reached = v * centre - weights * piece[0]
            best = np.maximum(best, reached + 4.0 * UNIT * (np.abs(v * centre) + abs(weights * piece[0])))
    return best


def _between_lines(term: PiecewisePolynomial, weights: Any, v: Vector) -> Vector | None:
    """The same for ``a z^2`` between two lines, as of Huber's loss: that of the parabola, and what lines are below it.

    Derivatives of the lines are those of the ends of v, so that each has its supremum on its knot.
    """
    left, middle, right = term.pieces
    if len(middle) != 3 or term.centres[1] != 0.0 or middle[0] != 0.0 or middle[1] != 0.0 or not middle[2] > 0.0:
        return None
    if max(len(left), len(right)) > 2 or not np.all(weights > 0.0):
        return None
    from fractions import Fraction  # slow to load, and seldom needed

    below = Fraction(0)
    for piece, centre, knot in zip((left, right), term.centres[::2], term.knots, strict=True):
        place, reach = Fraction(float(knot)), Fraction(float(knot)) - Fraction(float(centre))
        line = sum((Fraction(float(a)) * reach**m for m, a in enumerate(piece)), Fraction(0))
        below = max(below, Fraction(float(middle[2])) * place * place - line)
    lost = math.nextafter(float(below), math.inf) if below else 0.0
    parabola = v * v / (4.0 * middle[2] * weights) * (1.0 + 16.0 * UNIT) + 4.0 * TINY
    return np.asarray(parabola if lost == 0.0 else (parabola + weights * lost) * (1.0 + 4.0 * UNIT))


def _of_few_numbers(term: PiecewisePolynomial, weights: Any, v: Vector) -> Vector | None:
    """The same for two lines that meet in zero on the knot, and for a square without an offset; else None."""
    if len(term.pieces) == 3:
        return _between_lines(term, weights, v)
    if len(term.pieces) > 2 or any(piece[0] != 0.0 for piece in term.pieces):
        return None
    if term.degree == 1 and len(term.knots) == 1 and all(centre == term.knots[0] for centre in term.centres):
        knot = term.knots[0]
        if knot == 0.0:
            return np.zeros(v.shape)
        reached = v * knot
        return (
            reached
            if abs(float(knot)) == 1.0
            else np.asarray(reached + 8.0 * UNIT * SLACK * np.abs(reached) + _lost(reached))
        )
    if not term.knots and term.degree == 2 and term.centres[0] == 0.0 and term.pieces[0][1] == 0.0:
        if not np.all(weights > 0.0) or not term.pieces[0][2] > 0.0:
            return None
        # v^2 / (4 w a): a few operations, each rounded by a unit of what it is.
        return np.asarray(v * v / (4.0 * term.pieces[0][2] * weights) * (1.0 + 16.0 * UNIT) + 4.0 * TINY)
    return None


def _lost(value: Vector) -> Any:
    """What underflow may have taken: nothing of a zero, which is exact for all but numbers of no interest."""
    return np.where(value == 0.0, 0.0, 4.0 * TINY)


def _parabola(term: PiecewisePolynomial, i: int, weights: Any, v: Vector) -> Vector:
    """``v c - w p_0 + (v - w p_1)^2 / (4 w p_2)`` where the vertex lies in the piece or close to it."""
    p0, p1, p2 = term.pieces[i]
    centre = term.centres[i]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rest = v - weights * p1
        curvature = 2.0 * weights * p2
        vertex = centre + rest / curvature
        value = v * centre - weights * p0 + rest * rest / (2.0 * curvature)
        size = np.abs(v * centre) + np.abs(weights * p0)
        size = size + (np.abs(v) + np.abs(weights * p1)) ** 2 / (2.0 * curvature)
        near = 1e-12 * (np.abs(vertex) + np.abs(np.asarray(centre)))
        inside = np.ones(v.shape, dtype=bool)
        if i > 0:
            inside &= vertex >= term.knots[i - 1] - near
        if i < len(term.knots):
            inside &= vertex <= term.knots[i] + near
        above = value + 16.0 * UNIT * SLACK * size + _lost(value)
    curved = np.asarray(weights * p2) > 0.0
    return np.where(inside & curved, above, np.where(curved, -np.inf, _flat(weights, p0, p1, centre, v)))


def _flat(weights: Any, p0: Any, p1: Any, centre: Any, v: Vector) -> Vector:
    """A row whose parabola has no curvature is a line: without knots only its own derivative is in the domain."""
    reached = v * centre - weights * p0
    return np.where(v == weights * p1, reached + 4.0 * UNIT * (np.abs(v * centre) + np.abs(weights * p0)), -np.inf)


@dataclass(frozen=True, eq=False)
class DualRows:
    """Weighted convex terms of the rows of an affine map, and a dual of each: a subgradient u of ``rho`` itself.

    Attributes
    ----------
    linear, offset : Map, array
        ``z = A x + d``.
    term : PiecewisePolynomial
        Convex, with pieces of degree at most two.
    weights, dual : array
        c, not negative, and u, about in the closed interval of the subgradients.
    interior : array, optional
        Duals strictly inside their intervals that balance about, as of terms smoothed by a large sigma: mixed in where
        the given ones have no room.
    """

    linear: Map
    offset: Vector
    term: PiecewisePolynomial
    weights: Vector
    dual: Vector
    interior: Vector | None = None

    @cached_property
    def ends(self) -> tuple[Vector, Vector]:
        """Smallest and largest subgradients of the weighted terms."""
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.strides == (0,) and self.term.rows is None:  # one number for all
            weights = weights[:1]
        low, high = dual_interval(self.term, weights)
        if low.shape == high.shape == (1,):
            low, high = low[0], high[0]
        return repeated(low, self.offset.shape), repeated(high, self.offset.shape)

    def at(self, dual: Vector) -> DualRows:
        """The rows with other subgradients; what is known of them for all is not computed again."""
        rows = DualRows(self.linear, self.offset, self.term, self.weights, dual, self.interior)
        rows.__dict__.update((k, v) for k, v in self.__dict__.items() if k in ("ends", "single", "is_own", "_latest"))
        return rows

    def clipped(self, dual: Vector) -> Vector:
        """Subgradients of the weighted terms that are certainly inside."""
        return np.clip(self.weights * dual, *self.ends)

    def room(self, v: Vector, index: Any = slice(None)) -> Vector:
        """How far weighted duals are from the ends of their intervals; where there are none, about their own size."""
        low, high = (end[index] for end in self.ends)
        room = np.minimum(v[index] - low, high - v[index])
        if self._width is not None:
            return np.asarray(room)
        return np.asarray(np.where(np.isinf(room), 1.0 + np.abs(v[index]), room))

    def width(self, v: Vector) -> Vector:
        """What room is measured by: the width of the interval, or about the dual's own size where it has none."""
        if self._width is not None:
            return np.asarray(repeated(self._width, v.shape))
        width = self.ends[1] - self.ends[0]
        return np.where(np.isfinite(width) & (width > 0.0), width, 1.0 + np.abs(v))

    @property
    def _width(self) -> float | None:
        """The width of all intervals, where it is one number that is finite and positive; else None."""
        low, high = self.ends
        if not low.size or low.strides != (0,) or high.strides != (0,):
            return None
        width = float(high[0] - low[0])
        return width if 0.0 < width < math.inf else None

    def snapped(self, v: Vector) -> Vector:
        """Weighted duals with those that are close to an end of their interval, or to zero, on it."""
        low, high = self.ends
        reach = 1e-9 * np.where(np.isfinite(high - low), high - low, 1.0 + np.abs(v))
        v = np.where(v - low <= reach, low, np.where(high - v <= reach, high, v))
        return np.where((np.abs(v) <= reach) & (low <= 0.0) & (high >= 0.0), 0.0, v)

    @cached_property
    def single(self) -> tuple[Index, Ball] | None:
        """The coordinates where every row is of one, and their factors."""
        return coordinates(self.linear)

    @cached_property
    def is_own(self) -> bool:
        """Whether each row is a variable of its own, or its negative, plus a number."""
        linear = self.linear
        while isinstance(linear, Scaled) and np.ndim(linear.scale) == 0 and abs(linear.scale) == 1.0:
            linear = linear.inner
        if isinstance(linear, Selection) and linear.index is None:
            return True
        if self.single is None:
            return False
        index, factor = self.single
        one = np.abs(factor.middle) == 1.0
        return bool(one.all()) and not factor.radius.any() and int(np.bincount(index).max(initial=0)) <= 1

    def gradient(self, v: Vector, norms: Norms) -> Ball:
        """``A'v``, enclosed; the latest is kept."""
        known = self.__dict__.get("_latest")
        if known is None or not np.array_equal(known[0], v):
            known = self.__dict__["_latest"] = (v, transposed(self.linear, Ball.exact(v), norms))
        return Ball(*known[1])

    def gradient_at_hand(self, v: Vector, norms: Norms) -> Ball | None:
        """The same, of as many digits as it takes, where the run has multiplied these duals already; else None."""
        return transposed_at_hand(self.linear, v, norms)

    def shrunk(self, v: Vector, gradient: Ball, share: float, norms: Norms) -> tuple[Vector, Ball]:
        """A share of weighted duals, below one, and of their gradient: without a product where lengths are known."""
        less, (count, size) = np.clip(share * v, *self.ends), self.linear.shape
        lengths = column_lengths(self.linear, norms) if count * size > EXTENDED and share > 0.0 else None
        if lengths is None or np.any(self.ends[0] > 0.0) or np.any(self.ends[1] < 0.0):  # clipped, it is no share
            return less, self.gradient(less, norms)
        lost = lengths * (2.0 * UNIT * length(less) + math.sqrt(v.size) * TINY)  # as every product is rounded
        part = gradient.scaled(share)
        return less, Ball(part.middle, (part.radius + lost) * SLACK)

    def dense(self, index: Index, columns: Index, norms: Norms) -> Ball:
        """Some columns of rows of the matrix, enclosed."""
        count, width = self.linear.shape
        if columns.size == width:
            return entries(self.linear.rows(index), norms)
        if columns.size * count < index.size * width:  # the smaller copy first
            return entries(self.linear.columns(columns).rows(index), norms)
        return entries(self.linear.rows(index).columns(columns), norms)


@dataclass(frozen=True, eq=False)
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
