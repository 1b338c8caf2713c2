"""Columns that depend on others exactly: their equations of a balance follow from those of the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import Ball, difference_is_zero, equal_products
from varopt.certificates.enclosures import DualQuadratic, DualRows, Norms, annihilates

__all__ = ["ColumnRelations"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_INTEGERS = range(1, 13)  # by which a relation of columns is multiplied to make it one of whole numbers


class ColumnRelations(NamedTuple):
    """What relations of columns are checked in: the rows with their duals, the quadratic parts, and the linear part."""

    rows: tuple[DualRows, ...]
    quadratics: tuple[DualQuadratic, ...]
    vector: Ball  # of the objective
    fixed: Ball  # with the tangents of its quadratic parts
    duals: list[Vector]
    norms: Norms

    def depends(self, kept: Index, column: int, shares: Vector) -> bool:
        """Whether a column is, exactly, a combination of others with ratios of small whole numbers, or of one.

        Rows whose dual is zero and stays so see no column.
        """
        for factor in _INTEGERS:
            whole = np.round(factor * shares)
            if np.all(np.abs(factor * shares - whole) < 1e-5):
                relation = np.zeros(self.vector.middle.size)
                relation[kept], relation[column] = -whole, factor
                if self._is_relation(relation):
                    return True
        sizes = np.abs(shares) / np.abs(shares).max(initial=0.0)
        others = np.flatnonzero(sizes > 1e-5)
        return others.size == 1 and self._are_multiples(np.array([column, kept[int(others[0])]]))

    def _are_multiples(self, pair: Index) -> bool:
        """Whether one of two columns is, exactly, a multiple of the other, as a constant feature of an intercept."""
        if self.fixed.size[pair].any():
            return False
        first: tuple[float, float] | None = None
        for r, v in zip(self.rows, self.duals, strict=True):
            live = np.flatnonzero((v != 0.0) | (r.room(v) > 0.0))
            a, b = (matrix := r.dense(live, pair, self.norms)).middle.T
            seen = np.flatnonzero((a != 0.0) | (b != 0.0))
            if first is None and seen.size:
                first = float(a[seen[0]]), float(b[seen[0]])
            if matrix.radius.any() or (first is not None and not equal_products(a, first[1], b, first[0])):
                return False
        return True

    def _is_relation(self, relation: Vector) -> bool:
        """Whether a combination of the columns is zero in every row that is in play, and in the equation itself."""
        used = np.flatnonzero(relation)
        if np.any(self.vector.radius[used] > 0.0):
            return False
        if not difference_is_zero(zip(relation[used], self.vector.middle[used], strict=True)):
            return False
        for r, v in zip(self.rows, self.duals, strict=True):
            live = np.flatnonzero((v != 0.0) | (r.room(v) > 0.0))
            if live.size and not annihilates(r.linear if live.size == v.size else r.linear.rows(live), relation):
                return False
        return all(annihilates(q.linear, relation) for q in self.quadratics)
