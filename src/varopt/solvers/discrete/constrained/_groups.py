"""Groups of bits of which constraints ask for exactly one: all states below a value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete._matrices import as_dense
from varopt.solvers.discrete.constrained._limits import Limits
from varopt.solvers.discrete.proofs import are_branched, partial_states

__all__ = ["branched"]

Vector = NDArray[np.float64]


def branched(
    energy: Energy, limits: Limits, upper: float, see: Callable[[Vector, float], None],
    bound: Callable[[float], None], check: Callable[[], None],
) -> bool:  # fmt: skip
    """Look at all states below an upper bound; whether it was done, which `check` may end by raising.

    Parameters
    ----------
    energy, limits
        What is minimised, and subject to what.
    upper : float
        The value of a state that is known, or infinity.
    see, bound : callable
        Told of better states with their values, and of lower bounds of all.
    check : callable
        Called between steps.

    Returns
    -------
    bool
        False where groups do not hold all bits, or there are products of three.
    """
    groups = limits.groups(energy)
    if not are_branched(energy, groups):
        return False
    for step in partial_states(energy, groups, _pairs(energy, limits), upper, lambda x: not limits.excess(x).any()):
        if step.x is not None:
            see(step.x, float(energy.value(step.x)))
        bound(step.lower)
        check()
    return True


def _pairs(energy: Energy, limits: Limits) -> Vector:
    """The quadratic, infinite for bits that cannot be on together."""
    pairs = np.array(as_dense(energy.quadratic), dtype=np.float64)
    for k in range(limits.offset.size):
        row = limits.matrix[[k]]
        if row.nnz < 2 or np.any(row.data < 0.0):
            continue
        both = row.data[:, None] + row.data[None, :] + limits.offset[k] > limits.allowed[k]
        np.fill_diagonal(both, False)
        place = np.ix_(row.indices, row.indices)
        pairs[place] = np.where(both, np.inf, pairs[place])
    return pairs
