"""Independent sets of sites: what may be updated at once, as exactly as one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._matrices import count_nonzero

__all__ = ["colour"]

_CROWDED_GRAPH = 0.3  # share of neighbours from which colours hardly save anything


def colour(graph: Any) -> NDArray[np.intp]:
    """A colour for each node of a graph, a square matrix, such that neighbours differ: greedy, largest degree first.

    Sites of one colour share no term, so that their updates do not see each other: updating them together is the same
    as one after the other. It takes at most one colour more than the largest degree. Cost: linear in the edges.
    """
    n = graph.shape[0]
    if count_nonzero(graph) > _CROWDED_GRAPH * n * n:
        return np.arange(n)
    graph = sp.csr_array(graph)
    starts, neighbours = graph.indptr, graph.indices
    degree = np.diff(starts)
    colours = [-1] * n
    for i in np.argsort(-degree, kind="stable").tolist():
        taken = {colours[j] for j in neighbours[starts[i] : starts[i + 1]].tolist()}
        free = 0
        while free in taken:
            free += 1
        colours[i] = free
    return np.array(colours, dtype=np.intp)
