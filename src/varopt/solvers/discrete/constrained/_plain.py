"""Points that cost little to find: nothing or everything is taken, and then what gains most where there is room.

Who packs may take nothing, and who covers may take everything. From there one bit after the other changes, the first
that which gains most beside the share of the room that it takes, as in the greedy rule for knapsacks [Dantzig57].

[Dantzig57] G. B. Dantzig. Discrete-variable extremum problems. Operations Research 5, 1957.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.constrained._limits import Limits

__all__ = ["plain_points"]

Vector = NDArray[np.float64]

_FULL = 1e-9  # of its largest coefficient: the room that a row is taken to have where it has none


def plain_points(
    energy: Energy, limits: Limits, see: Callable[[Vector, float], None], check: Callable[[], None]
) -> None:
    """Show `see` some points that satisfy all constraints, where there are such; `check` may raise to end it.

    Of each group the first bit is on, or another one each, as in a permutation; the other bits are all off, or all on,
    and then filled up. Costs a look at every bit and at the rows that it is in.
    """
    groups = limits.groups(energy)
    free = np.ones(energy.size, dtype=bool)
    for group in groups:
        free[group] = False
    for others in (0.0, 1.0):
        for turn in (0, 1):
            x = np.full(energy.size, others)
            for k, group in enumerate(groups):
                x[group] = 0.0
                x[group[turn * k % group.size]] = 1.0
            if limits.excess(x).any():
                continue
            see(x, float(energy.value(x)))
            check()
            filled = _filled(energy, limits, x, np.flatnonzero(free), check)
            if not limits.excess(filled).any():
                see(filled, float(energy.value(filled)))
            if not groups:  # there is no other
                break


def _filled(energy: Energy, limits: Limits, x: Vector, free: NDArray[np.intp], check: Callable[[], None]) -> Vector:
    """The point after each bit, one by one, has changed if that gains and all constraints still hold."""
    if energy.products:
        return x
    x, columns = x.copy(), sp.csc_array(limits.matrix)
    sums = limits.matrix @ x + limits.offset
    fields = energy.linear + energy.quadratic @ x
    for j in free[_worth(limits, columns, sums, fields, x)[free].argsort(kind="stable")[::-1]].tolist():
        check()
        turn = 1.0 - 2.0 * x[j]
        if turn * fields[j] >= 0.0:
            continue
        part = slice(columns.indptr[j], columns.indptr[j + 1])
        rows = columns.indices[part]
        moved = sums[rows] + turn * columns.data[part]
        if np.any(np.where(limits.equal[rows], np.abs(moved), moved) > limits.allowed[rows]):
            continue
        x[j] += turn
        sums[rows] = moved
        _add_row(fields, energy.quadratic, j, turn)
    return x


def _worth(limits: Limits, columns: sp.csc_array, sums: Vector, fields: Vector, x: Vector) -> Vector:
    """What each bit gains by its change, over the shares of the room of its rows that it takes."""
    turn = 1.0 - 2.0 * x
    largest = np.asarray(abs(limits.matrix).max(axis=1).toarray()).ravel()
    room = np.maximum(np.where(limits.equal, 0.0, -sums), _FULL * largest)
    taken = sp.csc_array(columns @ sp.diags_array(turn)).maximum(0.0)
    shares = np.asarray((1.0 / np.where(room > 0.0, room, 1.0)) @ taken).ravel()
    return np.asarray(-turn * fields / (shares + _FULL))


def _add_row(fields: Vector, quadratic: sp.csr_array | Vector, j: int, turn: float) -> None:
    if isinstance(quadratic, np.ndarray):
        fields += turn * quadratic[j]
        return
    part = slice(quadratic.indptr[j], quadratic.indptr[j + 1])
    fields[quadratic.indices[part]] += turn * quadratic.data[part]
