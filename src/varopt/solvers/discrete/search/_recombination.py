"""Recombination of two local minima by clusters: the best of exponentially many offspring at once.

Where two points differ, the sites that differ fall into connected clusters of the graph of interactions. Clusters do
not see each other, so each may be taken over or not on its own merit: the child is the best of 2^clusters mixtures and
never worse than its parent. [Houdayer01] moves clusters so to sample spin glasses, [Whitley09] to cross over tours.

Houdayer01: J. Houdayer, *A cluster Monte Carlo algorithm for 2-dimensional spin glasses*, European Physical Journal B
22, 2001. Whitley09: D. Whitley, D. Hains and A. Howe, *Tunneling between optima*, GECCO 2009.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy

__all__ = ["is_symmetric", "largest_cluster", "recombine"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]


def is_symmetric(energy: Energy) -> bool:
    """Whether E is the same when all bits are flipped, as cuts are."""
    if not energy.is_binary or energy.products:
        return False
    centre = energy.linear + 0.5 * np.asarray(energy.quadratic.sum(axis=1)).ravel()
    return bool(np.all(np.abs(centre) <= 1e-12 * (energy.unit + np.abs(energy.linear))))


def recombine(energy: Energy, x: Vector, partner: Vector, rng: np.random.Generator) -> Vector:
    """Each column of x, with the clusters of its partner that lower E; those that change nothing, half the time.

    Cost: a product with all columns and one search for components, linear in terms times columns. Memory is the same
    where Q is sparse, and a few columns where it is dense. Products of three and more factors are not handled; the
    columns are then returned as they are.
    """
    if energy.products:
        return x
    differs = partner != x
    at, label, count = _clusters(energy, differs)
    if not at.size:
        return x
    # E(x + d_C) - E(x) = sum_{i in C} d_i (g_i + (Q d)_i / 2), and (Q d)_i sees its own cluster only: fields half way.
    middle = energy.gradient(0.5 * (x + partner)).ravel()[at]
    change = (partner - x).ravel()[at] * middle
    gain = np.bincount(label, weights=change, minlength=count)
    scale = np.bincount(label, weights=np.abs(change), minlength=count)
    tie = np.abs(gain) <= 1e-9 * scale
    taken = np.where(tie, rng.random(gain.size) < 0.5, gain < 0.0)[label]
    child = x.copy()
    child.ravel()[at[taken]] = partner.ravel()[at[taken]]
    return child


def largest_cluster(energy: Energy, x: Vector, partner: Vector) -> float:
    """The share of the entries that differ which the largest cluster of a column has, on average over columns.

    Near one there is nothing to choose from: a child is one of its parents, but for a few entries.
    """
    differs = partner != x
    at, label, count = _clusters(energy, differs)
    if not at.size:
        return 1.0
    column = np.zeros(count, dtype=np.intp)
    column[label] = at % x.shape[1]
    largest = np.zeros(x.shape[1])
    np.maximum.at(largest, column, np.bincount(label, minlength=count))
    total = differs.sum(axis=0)
    return float(np.mean(largest[total > 0] / total[total > 0]))


def _clusters(energy: Energy, differs: NDArray[np.bool_]) -> tuple[Index, NDArray[np.int32], int]:
    """The entries that differ, in the order of rows, the cluster of each, and how many clusters there are at most."""
    from scipy.sparse.csgraph import connected_components  # slow to load: with it `import varopt` takes 3 % longer

    at = np.flatnonzero(differs)
    if not at.size:
        return at, np.zeros(0, dtype=np.int32), 0
    # Nodes are the sites that differ, of all columns: a site changes as a whole.
    sites = differs if energy.is_binary else _any(differs, energy.site)
    node = np.cumsum(sites.ravel(), dtype=np.int32).reshape(sites.shape) - np.int32(1)
    count = int(node[-1, -1]) + 1
    row, other, column = _links(energy.quadratic, differs)
    ends = node[energy.site[row], column], node[energy.site[other], column]
    graph = sp.csr_array((np.ones(row.size, dtype=np.int8), ends), shape=(count, count))
    _, cluster = connected_components(graph, directed=False)
    replicas = differs.shape[1]
    return at, cluster[node[energy.site[at // replicas], at % replicas]], count


def _any(differs: NDArray[np.bool_], site: Index) -> NDArray[np.bool_]:
    starts = np.flatnonzero(np.r_[True, site[1:] != site[:-1]])
    return np.asarray(np.logical_or.reduceat(differs, starts, axis=0))


def _links(quadratic: Any, differs: NDArray[np.bool_]) -> tuple[Index, Index, Index]:
    """Pairs of coordinates that differ in a column, and the column: all that Q couples, or as many as connect them."""
    if sp.issparse(quadratic):
        pairs = sp.triu(sp.csr_array(quadratic), format="coo")
        edge, columns = np.nonzero(differs[pairs.row] & differs[pairs.col])
        return pairs.row[edge], pairs.col[edge], columns
    links = [np.empty((3, 0), dtype=np.intp)]
    for column in range(differs.shape[1]):
        left = np.flatnonzero(differs[:, column])
        reached: list[np.intp] = []
        while left.size:  # whoever is reached takes all that are left and coupled to it along: soon none is left
            if not reached:
                reached, left = [left[0]], left[1:]
            row = reached.pop()
            near = quadratic[row, left] != 0.0
            links.append(np.stack(np.broadcast_arrays(row, left[near], column)))
            reached.extend(left[near])
            left = left[~near]
    rows, others, columns = np.concatenate(links, axis=1)
    return rows, others, columns
