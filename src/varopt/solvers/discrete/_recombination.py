"""Recombination of two local minima by clusters: the best of exponentially many offspring at once.

Where two points differ, the sites that differ fall into connected clusters of the graph of interactions. Clusters do
not see each other, so each may be taken over or not on its own merit: the child is the best of 2^clusters mixtures and
never worse than its parent. [Houdayer01] moves clusters so to sample spin glasses, [Whitley09] to cross over tours.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from varopt.solvers.discrete._energy import Energy

__all__ = ["is_symmetric", "recombine"]

Vector = NDArray[np.float64]


def is_symmetric(energy: Energy) -> bool:
    """Whether E is the same when all bits are flipped, as cuts are."""
    if not energy.is_binary or energy.products:
        return False
    centre = energy.linear + 0.5 * np.asarray(energy.quadratic.sum(axis=1)).ravel()
    return bool(np.all(np.abs(centre) <= 1e-12 * (1.0 + np.abs(energy.linear))))


def recombine(energy: Energy, x: Vector, partner: Vector, rng: np.random.Generator) -> Vector:
    """Each column of x, with the clusters of its partner that lower E; those that change nothing, half the time.

    Cost: a few sparse products with all columns and one search for components, linear in terms times columns. Memory
    is the same. Products of three and more factors are not handled; the columns are then returned as they are.
    """
    if energy.products:
        return x
    size, replicas = x.shape
    difference = partner - x
    differs = difference != 0
    # E(x + d_C) - E(x) = sum_{i in C} d_i (g_i + (Q d)_i / 2), and (Q d)_i sees its own cluster only.
    change = difference * (energy.gradient(x) + 0.5 * (energy.quadratic @ difference))
    ends = _edges(energy)
    edge, column = np.nonzero(differs[ends[0]] & differs[ends[1]])
    first, second = (end[edge] * replicas + column for end in ends)
    graph = sp.coo_array((np.ones(first.size, dtype=np.int8), (first, second)), shape=(x.size, x.size))
    _, label = connected_components(graph, directed=False)
    gain = np.bincount(label, weights=change.ravel())
    size_of = np.bincount(label, weights=np.abs(change).ravel())
    tie = np.abs(gain) <= 1e-9 * size_of
    taken = np.where(tie, rng.random(gain.size) < 0.5, gain < 0.0)
    return np.where(taken[label].reshape(size, replicas) & differs, partner, x)


def _edges(energy: Energy) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of coordinates that interact, or that belong to one site."""
    upper = sp.triu(energy.quadratic, format="coo")
    chain = np.flatnonzero(energy.site[1:] == energy.site[:-1])
    return np.r_[upper.row, chain], np.r_[upper.col, chain + 1]
