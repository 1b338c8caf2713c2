"""Linear constraints of bits, and the groups of bits of which they ask for exactly one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import gamma
from varopt.model import Constraint, Variable
from varopt.solvers.discrete._energy import Energy

__all__ = ["Limits", "limits_of"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_EIGHTHS, _EXACTLY_ADDED = 8.0, 2.0**53  # eighths, and how many of them a sum may have that is not rounded


@dataclass(frozen=True)
class Limits:
    """``A x + d``, at most zero, or zero where `equal`; x the coordinates of an energy."""

    matrix: sp.csr_array
    offset: Vector
    equal: NDArray[np.bool_]

    @cached_property
    def allowed(self) -> Vector:
        """What rounding may make of a row, of its sum and of its numbers, such as tenths: of whole ones nothing."""
        sizes = np.asarray(abs(self.matrix).sum(axis=1)).ravel() + np.abs(self.offset)
        share = np.array([4.0 * gamma(count + 2) for count in np.diff(self.matrix.indptr)])
        return np.where(self._whole, 0.0, share * sizes)

    @cached_property
    def _whole(self) -> NDArray[np.bool_]:
        """Which rows are of whole numbers, or eighths, that are added up exactly."""
        off = sp.csr_array((np.abs(_EIGHTHS * self.matrix.data % 1.0), *self._structure), shape=self.matrix.shape)
        sizes = np.asarray(abs(self.matrix).sum(axis=1)).ravel() + np.abs(self.offset)
        broken = np.asarray(off.sum(axis=1)).ravel() + np.abs(_EIGHTHS * self.offset % 1.0)
        return np.asarray((broken == 0.0) & (_EIGHTHS * sizes < _EXACTLY_ADDED))

    @property
    def _structure(self) -> tuple[Any, Any]:
        return self.matrix.indices, self.matrix.indptr

    @property
    def is_indivisible(self) -> bool:
        """Whether an equation of whole numbers has no solution in any: what divides all but the constant [Bezout]."""
        for k in np.flatnonzero(self.equal & self._whole):
            divisor = math.gcd(*(int(_EIGHTHS * a) for a in self.matrix[[k]].data))
            constant = int(_EIGHTHS * self.offset[k])
            if constant % divisor if divisor else constant:
                return True
        return False

    def excess(self, x: NDArray[Any]) -> NDArray[Any]:
        """By how much each row is missed at points (size,) or (size, R); zero where it holds but for rounding."""
        columns = x[:, None] if x.ndim == 1 else x
        z = self.matrix @ columns + self.offset[:, None]
        missed = np.where(self.equal[:, None], np.abs(z), np.maximum(z, 0.0))
        missed = np.where(missed <= self.allowed[:, None], 0.0, missed)
        return missed[:, 0] if x.ndim == 1 else missed

    def violation(self, x: Vector) -> float:
        """The most by which a row is missed, rounding included."""
        z = self.matrix @ x + self.offset
        return float(np.where(self.equal, np.abs(z), np.maximum(z, 0.0)).max(initial=0.0))

    def groups(self, energy: Energy) -> list[Index]:
        """Disjoint groups of coordinates of which exactly one is on: sites of choices, and rows that ask for it."""
        widths = np.bincount(energy.site)
        found = [np.flatnonzero(energy.site == s) for s in np.flatnonzero(widths > 1)]
        taken = np.zeros(energy.size, dtype=bool)
        for group in found:
            taken[group] = True
        for k in np.flatnonzero(self.equal & (self.offset != 0.0)):
            row = self.matrix[[k]]
            one = row.nnz > 1 and np.all(row.data == -self.offset[k])
            if one and not taken[row.indices].any():
                found.append(np.sort(row.indices).astype(np.intp))
                taken[row.indices] = True
        return found


def limits_of(constraints: Sequence[Constraint], variables: tuple[Variable, ...]) -> Limits:
    """Constraints in all coordinates of some variables."""
    rows, offsets, equal = [], [], []
    for c in constraints:
        rows.append(sp.csr_array(c.normal.stacked(variables).explicit()))
        offsets.append(np.broadcast_to(np.asarray(c.normal.offset, dtype=np.float64), (c.rows,)))
        equal.append(np.full(c.rows, c.is_equality))
    matrix = sp.csr_array(sp.vstack(rows, format="csr"))
    matrix.eliminate_zeros()
    return Limits(matrix, np.concatenate(offsets), np.concatenate(equal))
