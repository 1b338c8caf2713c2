"""The active manifold that an iterate identifies: what rests on a kink but for rounding rests on it exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.composite import Composite

__all__ = ["onto_active_manifold"]

Vector = NDArray[np.float64]


def onto_active_manifold(problem: Composite, x: Vector, resting: Sequence[NDArray[np.bool_]]) -> Vector:
    """The point with variables fused or pinned as the resting rows say.

    Rows of two variables with opposite coefficients and no offset fuse them into their mean, and rows of one variable
    pin it, with all that is fused to it. Other rows are left as they are. O(nonzeros) time and memory.

    Parameters
    ----------
    problem : Composite
    x : array
    resting : sequence of arrays of bool
        For each block, the rows that rest on a kink at ``z = 0``.
    """
    heads, tails, pinned = [], [], np.zeros(x.size, dtype=bool)
    for r, rests in zip(problem.rows, resting, strict=True):
        if r.linear.storage != "sparse" or not rests.any():
            continue
        a = sp.csr_array(r.linear.explicit())
        lengths = np.diff(a.indptr)
        starts = a.indptr[:-1][rests & (lengths == 2) & (r.offset == 0.0)]
        starts = starts[a.data[starts] == -a.data[starts + 1]]
        heads.append(a.indices[starts])
        tails.append(a.indices[starts + 1])
        pinned[a.indices[a.indptr[:-1][rests & (lengths == 1) & (r.offset == 0.0)]]] = True
    if not heads:
        return x
    head, tail = np.concatenate(heads), np.concatenate(tails)
    label = _components(head, tail, x.size)
    sizes = np.bincount(label)
    values = np.bincount(label, weights=x) / sizes
    values[label[pinned]] = 0.0
    # A mean of one is the value itself, and has to stay so to the last digit.
    return np.where((sizes[label] > 1) | pinned, values[label], x)


def _components(head: NDArray[np.intp], tail: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """A label for every variable, the same for those that are joined."""
    if np.all(np.abs(tail - head) == 1):  # neighbours: no graph is needed
        joined = np.zeros(size, dtype=bool)
        joined[np.maximum(head, tail)] = True
        return np.cumsum(~joined) - 1
    from scipy.sparse.csgraph import connected_components

    graph = sp.csr_array((np.ones(head.size, dtype=np.int8), (head, tail)), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1])
