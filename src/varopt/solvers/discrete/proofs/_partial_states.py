r"""Branch and bound over groups of which exactly one bit is on, thousands of partial states at once.

With some groups decided, o a bit of an open group R, S the quadratic and c what the decided ones make of it,

    E >= E_decided + sum_{g in R} min_{o in g} ( c_o + 1/2 sum_{h in R} min_{p in h} S_op ),                         (1)

as each pair of open groups is met from both sides [Gilmore62, Lawler63]. Bits that are not allowed together have an
infinite S. What is not below the best known value is left out; what remains is all there is.

[Gilmore62] P. C. Gilmore. Optimal and suboptimal algorithms for the quadratic assignment problem. SIAM Journal on
Applied Mathematics 10, 1962. [Lawler63] E. L. Lawler. The quadratic assignment problem. Management Science 9, 1963.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy

__all__ = ["Bounded", "are_branched", "partial_states"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_STATE_ENTRIES_AT_ONCE = 1 << 20  # entries of what is known of the partial states that are looked at together
_MOST_STATE_BITS = 2000  # bits


class _Partial(NamedTuple):
    """Partial states of one length."""

    value: Vector  # of what is decided
    field: Vector  # what each bit would add to it: a row for each state
    chosen: Index
    lower: float  # of all that they may become


class Bounded(NamedTuple):
    """What is known after a step: a bound of all states, and a better one where there is one."""

    lower: float
    x: Vector | None = None


def are_branched(energy: Energy, groups: list[Index]) -> bool:
    """Whether groups hold all coordinates, so few that partial states of them can be looked at, and no products."""
    held = sum(group.size for group in groups) == energy.size <= _MOST_STATE_BITS
    return held and energy.degree <= 2 and not energy.products


def partial_states(
    energy: Energy, groups: list[Index], pairs: Vector, upper: float,
    is_allowed: Callable[[Vector], bool] = lambda x: True, slack: float = 0.0,
) -> Iterator[Bounded]:  # fmt: skip
    """Rising bounds of all states, and better states; it ends when none is left below the best value less `slack`."""
    # Sums of at most so many numbers, none of which is larger.
    count, largest = len(groups), float(np.abs(np.where(np.isfinite(pairs), pairs, 0.0)).max(initial=0.0))
    sizes = abs(energy.constant) + count * float(np.abs(energy.linear).max(initial=0.0)) + count**2 * largest
    rounding = 4.0 * float(np.finfo(np.float64).eps) * (count + 2) ** 2 * sizes
    slack = max(slack, rounding)
    halves = [_half(pairs, groups[k:]) for k in range(len(groups) + 1)]
    root = _Partial(np.array([energy.constant]), energy.linear[None, :].copy(), np.zeros((1, 0), np.intp), -np.inf)
    lower = float(_bounds(root, groups, halves[0])[0]) - rounding
    waiting = [root._replace(lower=lower)]
    yield Bounded(lower)
    while waiting:
        part = waiting.pop()
        k = part.chosen.shape[1]
        if k == len(groups):
            best = _best(energy, part, upper, is_allowed)
            if best is not None:
                upper = float(energy.value(best))
                yield Bounded(lower, best)
            continue
        part = _decided(part, groups[k], pairs)
        least = _bounds(part, groups[k + 1 :], halves[k + 1])
        order = np.argsort(-least, kind="stable")  # the best last: it is looked at first
        order = order[least[order] < upper - slack]
        step = max(1, _STATE_ENTRIES_AT_ONCE // (energy.size * (groups[k + 1].size if k + 1 < len(groups) else 1)))
        for start in range(0, order.size, step):
            some = order[start : start + step]
            below = max(part.lower, float(least[some].min()) - rounding)
            waiting.append(_Partial(part.value[some], part.field[some], part.chosen[some], below))
        # What was left out is not below the best by more than the slack.
        lower = max(lower, min([upper - slack - rounding, *(other.lower for other in waiting)]))
        yield Bounded(lower)
    yield Bounded(max(lower, upper - slack - rounding))


def _best(energy: Energy, part: _Partial, upper: float, is_allowed: Callable[[Vector], bool]) -> Vector | None:
    """The best of whole states that is better than what is known."""
    for j in np.argsort(part.value, kind="stable"):
        if part.value[j] >= upper:
            return None
        x = np.zeros(energy.size)
        x[part.chosen[j]] = 1.0
        if is_allowed(x):
            return x
    return None


def _decided(part: _Partial, group: Index, pairs: Vector) -> _Partial:
    """Partial states with one more group decided, in all ways that are allowed."""
    more = part.value[:, None] + part.field[:, group]
    state, option = np.nonzero(np.isfinite(more))
    bits = group[option]
    chosen = np.column_stack([part.chosen[state], bits])
    return _Partial(more[state, option], part.field[state] + pairs[bits], chosen, part.lower)


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
