"""What a dual point is made of: subgradients of the terms of rows, and points of quadratic parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._array import repeated
from varopt._verified import UNIT, Ball
from varopt.certificates.enclosures._conjugate import dual_interval
from varopt.certificates.enclosures._enclosure import Norms, coordinates, entries, transposed
from varopt.model.maps import Map
from varopt.terms import PiecewisePolynomial

__all__ = ["DualQuadratic", "DualRows"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
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
        rows = replace(self, dual=dual)
        rows.__dict__.update((k, v) for k, v in self.__dict__.items() if k in ("ends", "single", "_latest"))
        return rows

    def clipped(self, dual: Vector) -> Vector:
        """Subgradients of the weighted terms that are certainly inside."""
        return np.clip(self.weights * dual, *self.ends)

    def room(self, v: Vector, index: Any = slice(None)) -> Vector:
        """How far weighted duals are from the ends of their intervals; where there are none, about their own size."""
        low, high = (end[index] for end in self.ends)
        room = np.minimum(v[index] - low, high - v[index])
        return np.asarray(np.where(np.isinf(room), 1.0 + np.abs(v[index]), room))

    def width(self, v: Vector) -> Vector:
        """What room is measured by: the width of the interval, or about the dual's own size where it has none."""
        width = self.ends[1] - self.ends[0]
        return np.where(np.isfinite(width) & (width > 0.0), width, 1.0 + np.abs(v))

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

    def gradient(self, v: Vector, norms: Norms) -> Ball:
        """``A'v``, enclosed; the latest is kept."""
        known = self.__dict__.get("_latest")
        if known is None or not np.array_equal(known[0], v):
            known = self.__dict__["_latest"] = (v, transposed(self.linear, Ball.exact(v), norms))
        return Ball(*known[1])

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
