"""Rows far from their knots, as the lines that they are there: summed exactly, whatever their number.

A convex term is nowhere below the line of one of its pieces, so that a lower bound of what is left is one of the whole.
At a point where these rows are still on their pieces, nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import gamma, is_double
from varopt.certificates.enclosures import entries
from varopt.composite import Rows
from varopt.model.maps import Composition, HStack, Map, Matrix, Scaled, Selection, Sparse

__all__ = ["FarRows", "exact_total", "near_and_far"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_PIECES = 64  # different pieces and weights in a block, at most
_HALF = 27  # bits of half a mantissa


class FarRows(NamedTuple):
    """Rows of one weight on one piece, without curvature: the explicit matrix, the offsets, and the piece's ends."""

    matrix: Vector
    offset: Vector
    first: int  # of the rows in their block
    piece: int
    ends: tuple[float, float]

    def stay(self, x: Vector) -> bool:
        """Whether all rows are on their piece at x, for certain."""
        z = self.matrix @ x + self.offset
        error = gamma(x.size + 4) * (np.abs(self.matrix) @ np.abs(x) + np.abs(self.offset))
        return bool(np.all((z - error >= self.ends[0]) & (z + error <= self.ends[1])))


def near_and_far(blocks: Sequence[Rows], x: Vector, most: int) -> list[tuple[Index, list[FarRows]]]:
    """Of each block the rows that stay, `most` or more in all, and the others by pieces.

    Rows stay that are close to a knot, in units of the median distance of their block, or on a curved piece.
    """
    if sum(r.count for r in blocks) <= most:
        return [(np.arange(r.count), []) for r in blocks]
    ranks = [_rank(r, x) for r in blocks]
    limit = float(np.partition(np.concatenate(ranks), most - 1)[most - 1])
    return [_split(r, x, rank, limit) for r, rank in zip(blocks, ranks, strict=True)]


def _rank(r: Rows, x: Vector) -> Vector:
    """How far rows are from a knot; minus one where they have to stay, as those with terms of their own."""
    if not r.term.knots or r.term.rows is not None:
        return np.full(r.count, -1.0)
    z = r.positions(x)
    distance = r.knot_distance(z)
    stays = (r.term.derivative(z, 2) != 0.0) if r.term.degree > 1 else np.zeros(r.count, dtype=bool)
    middle = float(np.median(distance))
    return np.asarray(np.where(stays, -1.0, distance / middle if middle > 0.0 else distance))


def _split(r: Rows, x: Vector, rank: Vector, limit: float) -> tuple[Index, list[FarRows]]:
    everything: tuple[Index, list[FarRows]] = np.arange(r.count), []
    far = np.flatnonzero((rank > limit) & (r.weights != 0.0))
    if not far.size or not _is_read(r.linear):
        return everything
    matrix, radius = entries(r.linear.rows(far), {})
    if radius.any():
        return everything
    piece = np.searchsorted(np.array(r.term.knots, dtype=np.float64), r.positions(x)[far], side="right")
    kinds, kind = np.unique(np.stack([piece, r.weights[far]]), axis=1, return_inverse=True)
    if kinds.shape[1] > _PIECES:
        return everything
    ends = [-np.inf, *(float(knot) for knot in r.term.knots), np.inf]
    parts = []
    for k in range(kinds.shape[1]):
        mine, j = np.flatnonzero(np.ravel(kind) == k), int(kinds[0, k])
        parts.append(FarRows(matrix[mine], r.offset[far[mine]], int(far[mine[0]]), j, (ends[j], ends[j + 1])))
    return np.setdiff1d(np.arange(r.count), far), parts


def _is_read(linear: Map) -> bool:
    """Whether the entries of a map are read, and not found by products with unit vectors."""
    if isinstance(linear, HStack):
        return all(_is_read(part) for _, part in linear.live())
    if isinstance(linear, Scaled):
        return _is_read(linear.inner)
    if isinstance(linear, Composition):
        return isinstance(linear.outer, Selection) and _is_read(linear.inner)
    return isinstance(linear, Selection) or (isinstance(linear, (Matrix, Sparse)) and is_double(linear.array))


def exact_total(values: Vector) -> Fraction:
    """The sum of numbers in double precision, without rounding: mantissas are added up as whole numbers."""
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    result = Fraction(0)
    for e in np.unique(exponent).tolist():
        part = whole[exponent == e]
        high, low = int((part >> _HALF).sum()), int((part & ((1 << _HALF) - 1)).sum())
        result += Fraction((high << _HALF) + low) * Fraction(2) ** (e - 53)
    return result
