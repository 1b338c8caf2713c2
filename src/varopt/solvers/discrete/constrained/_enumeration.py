"""All states, where they are few."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.constrained._limits import Limits

__all__ = ["enumerated"]

Vector = NDArray[np.float64]

_MOST_LOOKED_AT = 1 << 18  # states that are looked at
_STATES_AT_ONCE = 1 << 12  # whose energies are computed together


def enumerated(energy: Energy, limits: Limits) -> tuple[Vector | None, float] | None:
    """The best state and its value, (None, infinity) where none satisfies the constraints; None where there are many.

    A group of which exactly one is on has as many states as bits.
    """
    groups = limits.groups(energy)
    grouped = np.zeros(energy.size, dtype=bool)
    for group in groups:
        grouped[group] = True
    digits = [group.size for group in groups] + [2] * int(np.count_nonzero(~grouped))
    total = math.prod(map(float, digits))  # infinite of many, without a word
    if total > _MOST_LOOKED_AT:
        return None
    free = np.flatnonzero(~grouped)
    best: tuple[Vector | None, float] = (None, np.inf)
    for start in range(0, int(total), _STATES_AT_ONCE):
        code = np.arange(start, min(start + _STATES_AT_ONCE, int(total)))
        x = np.zeros((energy.size, code.size))
        columns = np.arange(code.size)
        for group in groups:
            code, choice = np.divmod(code, group.size)
            x[group[choice], columns] = 1.0
        for j in free:
            code, x[j] = np.divmod(code, 2)
        allowed = np.flatnonzero(~np.any(limits.excess(x) > 0.0, axis=0))
        if allowed.size:
            values = np.asarray(energy.value(x[:, allowed]))
            k = int(np.argmin(values))
            if values[k] < best[1]:
                best = x[:, allowed[k]].copy(), float(values[k])
    return best
