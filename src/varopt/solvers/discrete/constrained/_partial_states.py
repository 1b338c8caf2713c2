r"""Branch and bound over groups of which exactly one bit is on, thousands of partial states at once.

With some groups decided, o a bit of an open group R, S the quadratic and c what the decided ones make of it,

    E >= E_decided + sum_{g in R} min_{o in g} ( c_o + 1/2 sum_{h in R} min_{p in h} S_op ),                         (1)

as each pair of open groups is met from both sides [Gilmore62, Lawler63]. Bits that no constraint allows together have
an infinite S. What is not below the best known value is left out; what remains is all there is.

[Gilmore62] P. C. Gilmore. Optimal and suboptimal algorithms for the quadratic assignment problem. SIAM Journal on
Applied Mathematics 10, 1962. [Lawler63] E. L. Lawler. The quadratic assignment problem. Management Science 9, 1963.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.constrained._limits import Limits

__all__ = ["branched"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_AT_ONCE = 1 << 20  # entries of what is known of the partial states that are looked at together
_LARGEST = 2000  # bits


class _Partial(NamedTuple):
    """Partial states of one length."""

    value: Vector  # of what is decided
    field: Vector  # what each bit would add to it: a row for each state
    chosen: Index


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
    held = sum(group.size for group in groups) == energy.size <= _LARGEST
    if not held or energy.degree > 2 or energy.products:
        return False
    pairs = _pairs(energy, limits)
    # Sums of at most so many numbers, none of which is larger.
    count, largest = len(groups), float(np.abs(np.where(np.isfinite(pairs), pairs, 0.0)).max(initial=0.0))
    sizes = abs(energy.constant) + count * float(np.abs(energy.linear).max(initial=0.0)) + count**2 * largest
    rounding = 4.0 * float(np.finfo(np.float64).eps) * (count + 2) ** 2 * sizes
    halves = [_half(pairs, groups[k:]) for k in range(len(groups) + 1)]
    root = _Partial(np.array([energy.constant]), energy.linear[None, :].copy(), np.zeros((1, 0), dtype=np.intp))
    bound(float(_bounds(root, groups, halves[0])[0]) - rounding)
    waiting = [root]
    while waiting:
        check()
        part = waiting.pop()
        k = part.chosen.shape[1]
        if k == len(groups):
            for j in np.argsort(part.value, kind="stable"):
                x = np.zeros(energy.size)
                x[part.chosen[j]] = 1.0
                if part.value[j] < upper and not limits.excess(x).any():
                    upper = float(energy.value(x))
                    see(x, upper)
                    break
            continue
        part = _decided(part, groups[k], pairs)
        least = _bounds(part, groups[k + 1 :], halves[k + 1])
        order = np.argsort(-least, kind="stable")  # the best last: it is looked at first
        order = order[least[order] < upper - rounding]
        step = max(1, _AT_ONCE // (energy.size * (groups[k + 1].size if k + 1 < len(groups) else 1)))
        for start in range(0, order.size, step):
            some = order[start : start + step]
            waiting.append(_Partial(part.value[some], part.field[some], part.chosen[some]))
    bound(upper - 2.0 * rounding)
    return True


def _decided(part: _Partial, group: Index, pairs: Vector) -> _Partial:
    """Partial states with one more group decided, in all ways that are allowed."""
    more = part.value[:, None] + part.field[:, group]
    state, option = np.nonzero(np.isfinite(more))
    bits = group[option]
    return _Partial(more[state, option], part.field[state] + pairs[bits], np.column_stack([part.chosen[state], bits]))


def _pairs(energy: Energy, limits: Limits) -> Vector:
    """The quadratic, infinite for bits that cannot be on together."""
    matrix = energy.quadratic
    pairs = np.array(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)
    for k in range(limits.offset.size):
        row = limits.matrix[[k]]
        if row.nnz < 2 or np.any(row.data < 0.0):
            continue
        both = row.data[:, None] + row.data[None, :] + limits.offset[k] > limits.allowed[k]
        np.fill_diagonal(both, False)
        place = np.ix_(row.indices, row.indices)
        pairs[place] = np.where(both, np.inf, pairs[place])
    return pairs


def _half(pairs: Vector, groups: list[Index]) -> Vector:
    """Of (1): half of the least that each bit has to do with the open groups; its own counts for nothing."""
    half = np.zeros(len(pairs))
    for group in groups:
        least = pairs[:, group].min(axis=1)
        least[group] = 0.0
        half += 0.5 * least
    return half


def _bounds(part: _Partial, groups: list[Index], half: Vector) -> Vector:
    """(1), for every partial state."""
    total = part.value.copy()
    for group in groups:
        total += (part.field[:, group] + half[group]).min(axis=1)
    return total
