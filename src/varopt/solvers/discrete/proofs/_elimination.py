"""Exact minimisation by eliminating one site after another: dynamic programming over all states of its neighbours.

The cost is exponential in the width of the order of elimination only, not in the number of sites: a grid of 100 x 8 is
as easy as 20 bits. With phi the factors that a site x is in, and y the other sites of these [Dechter99],

    h(y) = min over x of  sum_phi phi(x, y)                                                                          (1)

takes their place.

CM69: E. Cuthill and J. McKee, *Reducing the bandwidth of sparse symmetric matrices*, ACM National Conference, 1969.
Dechter99: R. Dechter, *Bucket elimination: a unifying framework for reasoning*, Artificial Intelligence 113, 1999.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import NEGATED, SPIN, Energy
from varopt.solvers.discrete._matrices import count_nonzero

__all__ = ["ENTRIES", "eliminate", "elimination_order"]

ENTRIES = 1 << 22  # of the largest table: 32 MiB
_TOTAL = 1 << 29  # of all tables together: a few seconds,
_TABLE_ENTRY_SECONDS = 2e-8  # at so much for each,
_ELIMINATION_SHARE = 0.5  # within this share of the time that there is: what does not end leaves nothing
_STRIPS_ONLY, _WIDEST_STRIP = 3000, 200  # sites from which on only strips are tried, and how wide these may be


class _Factor(NamedTuple):
    """A function of some sites, as a table with one axis per site, sites ascending."""

    scope: tuple[int, ...]
    table: NDArray[np.float64]


class _Choice:
    """The best state of a site for every state of its neighbours; of a bit, in one bit each."""

    def __init__(self, best: NDArray[np.intp], width: int) -> None:
        self._shape, self._packed = best.shape, width == 1
        self._table = np.packbits(best.astype(bool)) if self._packed else best.astype(np.uint16).ravel()

    def __getitem__(self, state: NDArray[np.intp]) -> int:
        at = int(np.ravel_multi_index(tuple(state), self._shape)) if self._shape else 0
        return int(self._table[at >> 3] >> (7 - (at & 7)) & 1) if self._packed else int(self._table[at])


def elimination_order(
    energy: Energy, entries: int = ENTRIES, expired: Callable[[], bool] = lambda: False, seconds: float = math.inf
) -> list[int] | None:
    """An order of the sites with small tables; None where one would exceed `entries`, or all of them a few seconds.

    Under a time limit of so many `seconds`, there is none where the tables would take more than half of it.

    Two orders are tried: least degree in what is left of the graph, good where it is irregular, and along the
    graph's breadth [CM69], good where it is a strip. Cost: n times the square of the width, in Python. Once
    `expired`, there is none.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # slow to load: with it `import varopt` takes 3 % longer

    graph = energy.neighbours
    # Whichever is next has fewer neighbours left than its table has axes: pairs that many for each site at most.
    if count_nonzero(graph) > 2.0 * np.log2(entries) * graph.shape[0]:
        return None
    graph = sp.csr_array(graph)
    if (
        graph.shape[0] and np.diff(graph.indptr).min() > np.log2(entries) + 1.0
    ):  # whichever is first has too many neighbours
        return None
    strip = reverse_cuthill_mckee(sp.csr_matrix(graph), symmetric_mode=True)
    large = graph.shape[0] > _STRIPS_ONLY
    if large and _bandwidth(graph, strip) > _WIDEST_STRIP:
        return None
    logs = np.log2(_states(np.bincount(energy.site, minlength=graph.shape[0]))).tolist()
    attempts = [
        _walk(graph, logs, entries, given, expired)
        for given in ((strip.tolist(),) if large else (None, strip.tolist()))
    ]
    most = min(_TOTAL, _ELIMINATION_SHARE * seconds / _TABLE_ENTRY_SECONDS)
    return min((a for a in attempts if a[1] <= most), key=lambda a: a[1], default=(None, 0.0))[0]


def _bandwidth(graph: Any, order: NDArray[np.intp]) -> int:
    """How far apart neighbours are in an order, at most."""
    place = np.empty(order.size, dtype=np.intp)
    place[order] = np.arange(order.size)
    pairs = sp.coo_array(graph)
    return int(np.abs(place[pairs.row] - place[pairs.col]).max(initial=0))


def _walk(
    graph: Any, logs: list[float], entries: int, given: list[int] | None, expired: Callable[[], bool]
) -> tuple[list[int], float]:
    """The order, given or by least degree, and the entries of all its tables; infinity where one is too large."""
    n = graph.shape[0]
    limit, total = float(np.log2(entries)), 0.0
    near = [set(graph.indices[graph.indptr[i] : graph.indptr[i + 1]].tolist()) - {i} for i in range(n)]
    heap = [(len(near[i]), i) for i in range(n)] if given is None else [(k, i) for k, i in enumerate(given)]
    heapq.heapify(heap)
    order: list[int] = []
    gone = [False] * n
    while heap:
        degree, i = heapq.heappop(heap)
        if gone[i] or (given is None and degree != len(near[i])):
            continue  # its degree has changed since: it is in the heap again
        size = logs[i] + sum(logs[j] for j in near[i])
        if size > limit or expired():
            return [], np.inf
        total += 2.0**size
        if total > _TOTAL:
            return [], np.inf
        gone[i] = True
        order.append(i)
        for j in near[i]:
            near[j] |= near[i]
            near[j] -= {i, j}
            if given is None:
                heapq.heappush(heap, (len(near[j]), j))
    return order, total


def eliminate(
    energy: Energy, order: list[int], check: Callable[[], None] = lambda: None
) -> tuple[NDArray[np.float64], float]:
    """A minimiser and the minimum.

    Cost and memory: the tables, with one entry per state of a site and its neighbours when it is eliminated. `check` is
    called before every site and may raise.
    """
    widths = np.bincount(energy.site)
    buckets: dict[int, list[_Factor]] = {i: [] for i in order}
    place = {site: k for k, site in enumerate(order)}
    constant = energy.constant

    def add(factor: _Factor) -> None:
        nonlocal constant
        if factor.scope:
            buckets[min(factor.scope, key=place.__getitem__)].append(factor)
        else:
            constant += float(factor.table)

    for factor in _factors(energy, widths):
        add(factor)
    choices: list[tuple[int, tuple[int, ...], _Choice]] = []
    for site in order:
        check()
        # (1)
        scope = tuple(sorted({site, *itertools.chain.from_iterable(f.scope for f in buckets[site])}))
        table = _total(buckets.pop(site), scope, widths)
        axis = scope.index(site)
        rest = scope[:axis] + scope[axis + 1 :]
        choices.append((site, rest, _Choice(table.argmin(axis=axis), int(widths[site]))))
        add(_Factor(rest, table.min(axis=axis)))
    chosen = np.zeros(widths.size, dtype=np.intp)
    for site, rest, best in reversed(choices):  # backwards, every site to its best given those after it
        chosen[site] = best[chosen[list(rest)]]
    return _point(energy, chosen, widths), constant


def _total(factors: list[_Factor], scope: tuple[int, ...], widths: NDArray[np.intp]) -> NDArray[np.float64]:
    states = _states(widths).tolist()
    total: Any = np.zeros((1,) * len(scope))
    for factor in sorted(factors, key=lambda f: f.table.size):  # small tables meet before they grow
        total = total + factor.table.reshape([states[i] if i in factor.scope else 1 for i in scope])
    return np.broadcast_to(total, tuple(states[i] for i in scope))


def _states(widths: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.where(widths == 1, 2, widths)


def _factors(energy: Energy, widths: NDArray[np.intp]) -> Iterator[_Factor]:
    """The terms of the energy, as tables; of bits and one-hot sites alike."""
    starts = np.cumsum(widths) - widths
    size = energy.size
    for site, (start, width) in enumerate(zip(starts.tolist(), widths.tolist(), strict=True)):
        values = energy.linear[start : start + width]
        yield _Factor((site,), np.array([0.0, values[0]]) if width == 1 else values)
    pairs = sp.triu(sp.coo_array(energy.quadratic), format="coo")
    codes = np.stack([pairs.row, pairs.col], axis=1)
    for kind, coordinate, weights in [
        (np.zeros_like(codes), codes, pairs.data),
        *((*p.split(size), p.weights) for p in energy.products),
    ]:
        for kinds, coordinates, weight in zip(kind.tolist(), coordinate.tolist(), weights.tolist(), strict=True):
            by_site = sorted(zip(energy.site[coordinates].tolist(), coordinates, kinds, strict=True))
            tables = [_literal(k, c - int(starts[s]), int(widths[s])) for s, c, k in by_site]
            table = weight * tables[0]
            for other in tables[1:]:
                table = table[..., None] * other
            yield _Factor(tuple(s for s, _, _ in by_site), table)


def _literal(kind: int, category: int, width: int) -> NDArray[np.float64]:
    x = np.array([0.0, 1.0]) if width == 1 else np.eye(width)[category]
    return 1.0 - x if kind == NEGATED else 1.0 - 2.0 * x if kind == SPIN else x


def _point(energy: Energy, chosen: NDArray[np.intp], widths: NDArray[np.intp]) -> NDArray[np.float64]:
    starts = np.cumsum(widths) - widths
    x = np.zeros(energy.size)
    bits = widths == 1
    x[starts[bits]] = chosen[bits]
    x[(starts + chosen)[~bits]] = 1.0
    return x
