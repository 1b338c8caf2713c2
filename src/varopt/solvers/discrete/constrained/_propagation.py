"""Whether constraints of bits can be satisfied at all, by what they leave of each other's bits.

A row is at least what it is with all bits that are free at their better values; where one more bit at its worse value
is too much, the bit is decided, and with it other rows see less room [Sa94]. Depth first, two ways for the
bit that counts most where nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.constrained._limits import Limits

__all__ = ["Propagated", "propagated"]

Vector = NDArray[np.float64]

_UNDECIDED = np.int8(-1)
_MOST_CASES = 50_000
_MOST_ROW_ENTRIES = 1 << 20  # of the rows, all of which a node goes through several times


class Propagated(NamedTuple):
    """A point that satisfies all constraints, if one was found, and whether all were looked at."""

    x: Vector | None
    complete: bool


def propagated(energy: Energy, limits: Limits, check: Callable[[], None]) -> Propagated:
    """A point that satisfies all constraints, or that there is none; neither where that takes too many cases.

    Costs a few passes over all rows, as a dense matrix, for each case; `check` is called between these, and may end it
    by raising.
    """
    rows = _rows(energy, limits)
    if rows is None:
        return Propagated(None, complete=False)
    stack = [np.full(energy.size, _UNDECIDED)]
    for _ in range(_MOST_CASES):
        if not stack:
            return Propagated(None, complete=True)
        check()
        x = rows.decided(stack.pop())
        if x is None:
            continue
        free = np.flatnonzero(x == _UNDECIDED)
        if not free.size:
            point = x.astype(np.float64)
            if not limits.excess(point).any():  # as it is computed elsewhere
                return Propagated(point, complete=False)
            continue
        j, first = rows.branch(x, free)
        for value in (1 - first, first):  # the last is taken next
            x[j] = value
            stack.append(x.copy())
    return Propagated(None, complete=False)


class _Rows(NamedTuple):
    """``A x <= b`` of bits: equations are two rows each, and b has room for rounding on both sides."""

    A: Vector
    b: Vector

    def decided(self, x: NDArray[np.int8]) -> NDArray[np.int8] | None:
        """The bits with those that follow from them, or None where a row cannot hold."""
        steps = np.abs(self.A)
        while True:
            free = x == _UNDECIDED
            least = self.A @ (x == 1) + np.minimum(self.A[:, free], 0.0).sum(axis=1)
            if np.any(least > self.b):
                return None
            tight = (steps > (self.b - least)[:, None]) & free
            zero, one = np.any(tight & (self.A > 0.0), axis=0), np.any(tight & (self.A < 0.0), axis=0)
            if np.any(zero & one):
                return None
            if not np.any(zero | one):
                return x
            x[zero], x[one] = 0, 1

    def branch(self, x: NDArray[np.int8], free: NDArray[np.intp]) -> tuple[int, int]:
        """A free bit that counts most beside the room of its rows, and the value that leaves them more."""
        A = self.A[:, free]
        most = self.A @ (x == 1) + np.maximum(A, 0.0).sum(axis=1)
        room = self.b - (self.A @ (x == 1) + np.minimum(A, 0.0).sum(axis=1))
        open_rows = most > self.b
        if not open_rows.any():
            return int(free[0]), 0
        shares = A[open_rows] / np.maximum(room[open_rows], np.abs(A[open_rows]).max(axis=1, initial=0.0))[:, None]
        k = int(np.abs(shares).max(axis=0).argmax())
        return int(free[k]), int(shares[:, k].sum() <= 0.0)


def _rows(energy: Energy, limits: Limits) -> _Rows | None:
    """All that is asked of the bits, choices of exactly one among them; None of more than fits."""
    widths = np.bincount(energy.site)
    sites = np.flatnonzero(widths > 1)
    equal = np.flatnonzero(limits.equal)
    if (limits.offset.size + equal.size + 2 * sites.size) * energy.size > _MOST_ROW_ENTRIES:
        return None
    A = limits.matrix.toarray()
    # What is allowed is what rounding makes of a sum: a sum by other ways may be off by as much again.
    bound = 2.0 * limits.allowed
    parts, bounds = [A, -A[equal]], [bound - limits.offset, bound[equal] + limits.offset[equal]]
    if sites.size:
        chosen = sp.csr_array((np.ones(energy.size), (energy.site, np.arange(energy.size)))).toarray()[sites]
        parts += [chosen, -chosen]
        bounds += [np.ones(sites.size), -np.ones(sites.size)]
    return _Rows(np.vstack(parts), np.concatenate(bounds))
