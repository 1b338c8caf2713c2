"""Linear constraints of bits, and the groups of bits of which they ask for exactly one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model import Constraint, Variable
from varopt.solvers.discrete._energy import Energy

__all__ = ["Limits", "limits_of"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_SUM_ROUNDING = 1e-9  # share of its size by which a sum of coefficients may be off


@dataclass(frozen=True)
class Limits:
    """``A x + d``, at most zero, or zero where `equal`; x the coordinates of an energy."""

    matrix: sp.csr_array
    offset: Vector
    equal: NDArray[np.bool_]

    @cached_property
    def allowed(self) -> Vector:
        """What rounding may make of a row."""
        return _SUM_ROUNDING * (np.asarray(abs(self.matrix).sum(axis=1)).ravel() + np.abs(self.offset))

    def excess(self, x: NDArray[Any]) -> NDArray[Any]:
        """By how much each row is missed at points (size,) or (size, R); zero where it holds but for rounding."""
        columns = x[:, None] if x.ndim == 1 else x
        z = self.matrix @ columns + self.offset[:, None]
        missed = np.where(self.equal[:, None], np.abs(z), np.maximum(z, 0.0))
        missed = np.where(missed <= self.allowed[:, None], 0.0, missed)
        return missed[:, 0] if x.ndim == 1 else missed

    def violation(self, x: Vector) -> float:
        """The largest excess."""
        return float(self.excess(x).max(initial=0.0))

    def groups(self, energy: Energy) -> list[Index]:
        """Disjoint groups of coordinates of which exactly one is on: sites of choices, and rows that ask for it."""
        widths = np.bincount(energy.site)
        found = [np.flatnonzero(energy.site == s) for s in np.flatnonzero(widths > 1)]
        taken = np.zeros(energy.size, dtype=bool)
        for group in found:
            taken[group] = True
        for k in range(self.offset.size):
            row = self.matrix[[k]]
            one = self.equal[k] and row.nnz > 1 and np.all(row.data == -self.offset[k]) and self.offset[k] != 0.0
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
