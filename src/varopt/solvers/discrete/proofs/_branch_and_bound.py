"""Branch and bound on the tightened semidefinite relaxation: proofs of optimality for small dense problems."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._matrices import as_dense
from varopt.solvers.discrete.bounds import Spins, TriangleDual, tighten

__all__ = ["ProofProgress", "branch_and_bound"]

Vector = NDArray[np.float64]


class ProofProgress(NamedTuple):
    """A lower bound that holds for all points, the best spins seen, and the nodes so far."""

    lower: float
    spins: Vector | None
    value: float
    nodes: int


@dataclass(frozen=True)
class _Node:
    """A problem with some spins merged into the reference: spin k of the whole is ``sign[k] * s[label[k]]``."""

    matrix: Vector
    constant: float
    label: NDArray[np.intp]
    sign: Vector
    dual: TriangleDual | None

    def merge(self, spin: int, sign: float) -> _Node:
        """The node with ``s_spin = sign * s_0``."""
        matrix = self.matrix.copy()
        constant = self.constant + sign * float(matrix[0, spin])
        matrix[0] += sign * matrix[spin]
        matrix[:, 0] += sign * matrix[:, spin]
        matrix = np.delete(np.delete(matrix, spin, 0), spin, 1)
        matrix[0, 0] = 0.0
        merged = self.label == spin
        label = np.where(merged, 0, self.label - (self.label > spin))
        dual = None if self.dual is None else self.dual.without(spin)
        return _Node(matrix, constant, label, np.where(merged, sign * self.sign, self.sign), dual)

    def whole(self, s: Vector) -> Vector:
        """Spins of the whole problem from those of the node."""
        return np.asarray(self.sign * s[self.label])


def branch_and_bound(spins: Spins, value: float, slack: float, expired: Any = lambda: False) -> Iterator[ProofProgress]:
    """Rising lower bounds on the energy, and better points where they turn up; it ends when the optimum is proved.

    Parameters
    ----------
    spins : Spins
        The problem.
    value : float
        The energy of the best point known.
    slack : float
        A node is closed when its bound exceeds the best value less this: just below the granularity of the energy, or
        a rounding.
    expired : callable
        Asked often; True ends the run early, and what was yielded holds.

    Notes
    -----
    Best first. It branches on the spin whose product with the reference is the least decided, merging it into the
    reference either way: the child is a problem of the same form with one spin fewer, and inherits the multipliers.
    """
    root = _Node(as_dense(spins.matrix()), spins.constant, np.arange(spins.size), np.ones(spins.size), None)
    count = itertools.count()
    best: Vector | None = None
    queue: list[tuple[float, int, _Node]] = []
    nodes = 0

    def bound(node: _Node, inherited: float) -> tuple[float, _Node]:
        nonlocal best, value
        if node.matrix.shape[0] <= 2:
            s = np.array([1.0, -np.sign(node.matrix[0, 1]) or 1.0])[: node.matrix.shape[0]]
            exact = node.constant + 0.5 * float(s @ node.matrix @ s)
            if exact < value:
                best, value = node.whole(s), exact
            return np.inf, node
        dual = tighten(node.matrix, value - slack - node.constant, node.dual, expired)
        if node.constant + dual.value < value:
            best, value = node.whole(dual.spins), node.constant + dual.value
        closer = _Node(node.matrix, node.constant, node.label, node.sign, dual)
        return max(inherited, node.constant + dual.lower), closer

    lower, node = bound(root, -np.inf)
    nodes += 1
    if lower < value - slack:
        heapq.heappush(queue, (lower, next(count), node))
    yield ProofProgress(min(lower, value), best, value, nodes)
    while queue and not expired():
        lower, _, node = heapq.heappop(queue)
        if lower >= value - slack:
            break
        dual = node.dual
        decided = np.abs(dual.primal[0, 1:]) if dual is not None else np.zeros(node.matrix.shape[0] - 1)
        spin = 1 + int(decided.argmin())
        for sign in (1.0, -1.0):
            below, child = bound(node.merge(spin, sign), lower)
            nodes += 1
            if below < value - slack:
                heapq.heappush(queue, (below, next(count), child))
        if expired():
            # A node whose children were cut short is still bounded by itself.
            heapq.heappush(queue, (lower, next(count), node))
        least = min((entry[0] for entry in queue), default=np.inf)
        yield ProofProgress(min(least, value), best, value, nodes)
    if not expired():
        yield ProofProgress(value, best, value, nodes)
