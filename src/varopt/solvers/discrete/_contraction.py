r"""Bits that can be taken out exactly: a smaller problem with the same minimum, and the way back.

In spins, E = constant + sum J_ij s_i s_j, fields being couplings to a reference spin. Given its neighbours the best s_i
is -sign(sum_j J_ij s_j), at the cost -|sum_j J_ij s_j|. Two things make that quadratic again:

- at most three neighbours: -|a s_1 + b s_2 + c s_3| is the same when all spins are flipped, so that it has four values,
  as many as a constant and three couplings have (the star-triangle transformation);
- one neighbour that outweighs the others together, |J_ij| >= sum of the rest: then s_i = -sign(J_ij) s_j at the
  minimum, and i is merged into j.

Random graphs with two edges a node shrink to a tenth, cubic ones to less than half [DDJMRR95, LAS19].

DDJMRR95: C. De Simone, M. Diehl, M. Juenger, P. Mutzel, G. Reinelt and G. Rinaldi, *Exact ground states of Ising spin
glasses*, Journal of Statistical Physics 80, 1995. LAS19: J.-H. Lange, B. Andres and P. Swoboda, *Combinatorial
persistency criteria for multicut and max-cut*, CVPR 2019.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy

__all__ = ["Contraction", "contract"]

Vector = NDArray[np.float64]
Row = dict[int, float]

_MOST_NEIGHBORS = 3  # of a spin that can be taken out whatever its couplings are


@dataclass(frozen=True)
class Contraction:
    """An energy of fewer bits, and what was decided about the others."""

    energy: Energy
    kept: NDArray[np.intp]  # bits of the whole that are left
    decisions: tuple[tuple[int, tuple[tuple[int, float], ...]], ...]  # spin, its couplings: 0 is the reference
    size: int
    rounding: float  # by which the minimum may be off

    @classmethod
    def none(cls, energy: Energy) -> Contraction:
        """The energy as it is."""
        return cls(energy, np.arange(energy.size), (), energy.size, 0.0)

    def lift(self, x: Vector) -> Vector:
        """Bits of the whole, with those that were taken out at their best: of one point, or of columns."""
        if not self.decisions:
            return x
        if x.ndim > 1:
            return self._lift_columns(x)
        s = [0.0] * (self.size + 1)
        s[0] = 1.0
        for k, bit in zip(self.kept.tolist(), x.tolist(), strict=True):
            s[k + 1] = 2.0 * bit - 1.0
        for spin, couplings in reversed(self.decisions):
            total = sum([weight * s[other] for other, weight in couplings])
            s[spin] = -1.0 if total > 0.0 else 1.0
        return np.array([0.5 * (1.0 + value) for value in s[1:]])

    def _lift_columns(self, x: Vector) -> Vector:
        s = np.ones((self.size + 1, x.shape[1]))
        s[self.kept + 1] = 2.0 * x - 1.0
        for spin, couplings in reversed(self.decisions):
            total = sum(weight * s[other] for other, weight in couplings)
            s[spin] = np.where(np.asarray(total) > 0.0, -1.0, 1.0)
        return np.asarray(0.5 * (1.0 + s[1:]))

    def restrict(self, x: Vector) -> Vector:
        """What is left of the bits of the whole."""
        return x[self.kept]


def contract(energy: Energy, expired: Callable[[], bool] = lambda: False) -> Contraction:
    """Take out all bits that can be; the energy itself where it is dense, has choices or products.

    Cost: linear in what is taken out and its neighbours, in Python: some ten microseconds a bit. Once `expired`, what
    was taken out by then stays so.
    """
    whole = Contraction.none(energy)
    if energy.products or not energy.is_binary or not sp.issparse(energy.quadratic) or energy.size < 2:
        return whole
    couplings = _Couplings(energy)
    decisions = couplings.shrink(expired)
    if not decisions:
        return whole
    eps = float(np.finfo(np.float64).eps)
    reduced, kept = couplings.energy()
    return Contraction(
        reduced, kept, tuple(decisions), energy.size, 16.0 * eps * len(decisions) * max(energy.magnitude, 1e-300)
    )


class _Couplings:
    """The rows of J: of spins that were touched as dictionaries, of others as they came."""

    def __init__(self, energy: Energy) -> None:
        self._whole = energy
        quadratic = sp.csr_array(energy.quadratic)
        sums = np.asarray(quadratic.sum(axis=1)).ravel()
        # b'x + x'Qx/2 with x = (1 + s)/2
        self._fields = 0.5 * energy.linear + 0.25 * sums
        self.constant = energy.constant + 0.5 * float(energy.linear.sum()) + 0.125 * float(sums.sum())
        self._start, self._other, self._weight = quadratic.indptr, quadratic.indices, 0.25 * quadratic.data
        self._rows: dict[int, Row] = {}  # spins are counted from 1; the reference has no row, and is in others'
        self._gone = np.zeros(energy.size + 1, dtype=bool)

    def _row(self, spin: int) -> Row:
        row = self._rows.get(spin)
        if row is None:
            a, b = self._start[spin - 1], self._start[spin]
            row = dict(zip((self._other[a:b] + 1).tolist(), self._weight[a:b].tolist(), strict=True))
            if (field := float(self._fields[spin - 1])) != 0.0:
                row[0] = field
            self._rows[spin] = row
        return row

    def shrink(self, expired: Callable[[], bool]) -> list[tuple[int, tuple[tuple[int, float], ...]]]:
        """Take spins out until none can be; what decides each."""
        waiting = deque(self._candidates())
        queued = set(waiting)
        decisions = []
        while waiting and not expired():
            spin = waiting.popleft()
            queued.discard(spin)
            if self._gone[spin]:
                continue
            row = self._row(spin)
            strongest = max(row, key=lambda k: abs(row[k]), default=-1)
            dominated = row and 2.0 * abs(row[strongest]) >= sum(map(abs, row.values()))
            if not dominated and len(row) > _MOST_NEIGHBORS:
                continue
            touched = self._merge(spin, strongest) if dominated else self._replace(spin)
            decisions.append((spin, ((strongest, row[strongest]),) if dominated else tuple(row.items())))
            self._gone[spin] = True
            for other in touched:
                if other and other not in queued:
                    queued.add(other)
                    waiting.append(other)
        return decisions

    def _candidates(self) -> list[int]:
        degree = np.diff(self._start) + (self._fields != 0.0)
        size = np.abs(self._weight)
        rows = np.repeat(np.arange(degree.size), np.diff(self._start))
        total = np.bincount(rows, weights=size, minlength=degree.size) + np.abs(self._fields)
        largest = np.abs(self._fields)
        np.maximum.at(largest, rows, size)
        able = (degree <= _MOST_NEIGHBORS) | (2.0 * largest >= total * (1.0 - 1e-12))
        return (1 + np.flatnonzero(able)).tolist()

    def _merge(self, spin: int, into: int) -> list[int]:
        """``s_spin = -sign(J) s_into``: its couplings become those of the other, with that sign."""
        row = self._row(spin)
        sign = -1.0 if row[into] > 0.0 else 1.0
        self.constant -= abs(row[into])
        for other, weight in row.items():
            if other:
                del self._row(other)[spin]
            if other != into:
                self._couple(other, into, sign * weight)
        return list(row)

    def _replace(self, spin: int) -> list[int]:
        """``-|a s_1 + b s_2 + c s_3|`` as a constant and couplings of its neighbours."""
        row = self._row(spin)
        near = list(row)
        a, b, c = ([row[k] for k in near] + [0.0] * 3)[:3]
        together, first, second, third = abs(a + b + c), abs(b + c - a), abs(a + c - b), abs(a + b - c)
        for other in near:
            if other:
                del self._row(other)[spin]
        self.constant -= 0.25 * (together + first + second + third)
        for (i, j), alike, apart in (
            ((0, 1), together + third, first + second),
            ((0, 2), together + second, first + third),
            ((1, 2), together + first, second + third),
        ):
            if j < len(near):
                self._couple(near[i], near[j], 0.25 * (apart - alike))
        return near

    def _couple(self, i: int, j: int, weight: float) -> None:
        if weight == 0.0:
            return
        for this, other in ((i, j), (j, i)):
            if this:
                row = self._row(this)
                total = row.get(other, 0.0) + weight
                if total == 0.0:
                    row.pop(other, None)
                else:
                    row[other] = total

    def energy(self) -> tuple[Energy, NDArray[np.intp]]:
        """What is left, as an energy of bits, and which bits."""
        kept = np.flatnonzero(~self._gone[1:])
        place = np.full(self._gone.size, -1)
        place[kept + 1] = np.arange(kept.size)
        fields = self._fields.copy()
        rows, columns, weights = [], [], []
        for spin, row in self._rows.items():
            if self._gone[spin]:
                continue
            fields[spin - 1] = row.pop(0, 0.0)
            rows.append(np.full(len(row), spin))
            columns.append(np.array([*row], dtype=np.intp))
            weights.append(np.array([*row.values()], dtype=np.float64))
        touched = np.zeros(self._gone.size, dtype=bool)
        touched[[*self._rows]] = True
        row_of = np.repeat(np.arange(1, self._gone.size), np.diff(self._start))
        plain = ~touched[row_of]
        r = place[np.concatenate([row_of[plain], *rows]).astype(np.intp)]
        c = place[np.concatenate([self._other[plain] + 1, *columns]).astype(np.intp)]
        w = np.concatenate([self._weight[plain], *weights])
        quadratic = sp.csr_array((4.0 * w, (r, c)), shape=(kept.size, kept.size))
        return _in_bits(replace(self._whole, widths=None), quadratic, fields[kept], self.constant), kept


def _in_bits(whole: Energy, quadratic: Any, fields: Vector, constant: float) -> Energy:
    """``constant + fields's + s'Qs / 8`` with s = 2x - 1."""
    sums = np.asarray(quadratic.sum(axis=1)).ravel()
    return replace(
        whole,
        constant=constant - float(fields.sum()) + 0.125 * float(sums.sum()),
        linear=2.0 * fields - 0.5 * sums,
        quadratic=quadratic,
    )
