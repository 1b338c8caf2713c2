r"""The linear relaxation of sparse couplings, with the odd-cycle inequalities that it needs.

An edge is cut, x_e = 1, where its two spins differ: s_i s_j = 1 - 2 x_e, and E = constant + sum_e J_e (1 - 2 x_e).
Around a cycle an even number of edges is cut: for every cycle C and every F in C of odd size [BM86]

    x(F) - x(C \ F)  <=  |F| - 1.                                                                                    (1)

Of planar graphs, and all others that K5 is no minor of, these are all there is: the bound is the optimum. The most
violated one comes from shortest paths in two copies of the graph, from a node to its other copy [BM86]:

    an edge within a copy is x_e long, one that changes over, for the edges of F, 1 - x_e,                           (2)

so that a way shorter than 1 is a violated inequality.

With multipliers lambda >= 0 of the inequalities A x <= b, every x with low <= x <= high has

    c'x  >=  sum_e min over [low_e, high_e] of (c + A'lambda)_e x_e  -  b'lambda,                                    (3)

so whatever the solver of the programme returns is a proof, up to the rounding of that sum.

BM86: F. Barahona and A. R. Mahjoub, *On the cut polytope*, Mathematical Programming 36, 1986.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete.bounds._spins import Spins

__all__ = ["CycleBound", "OddCycles"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_VIOLATED_CYCLE = 1e-4  # by which a way is shorter than 1, at least
_HOP = 1e-6  # what an edge is longer than it is: of equal ways, the one of fewer edges
_SOURCES = 64  # nodes from which ways are looked for together
_ENOUGH = 1000  # inequalities found in a search, after which no more are looked for
_IDLE_SLACK = 0.1  # slack from which on an inequality is idle,
_IDLE_ROUNDS = 4  # and dropped after so many rounds of it
_OPTIONS = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


class CycleBound(NamedTuple):
    """What a round proved, and about where the relaxation has its optimum."""

    lower: float  # of the energy
    cut: Vector  # x_e
    spins: Vector  # by the edges that are nearest to decided
    is_closed: bool  # whether no inequality is violated


class _Inequality(NamedTuple):
    edges: tuple[int, ...]
    signs: tuple[int, ...]  # 1 for those of F, else -1


@dataclass(frozen=True)
class _Programme:
    """``A x <= b``: one row for each inequality."""

    rows: Any
    sides: Vector
    idle: Index  # rounds since it was tight

    @classmethod
    def empty(cls, edges: int) -> _Programme:
        return cls(sp.csr_array((0, edges)), np.zeros(0), np.zeros(0, dtype=np.intp))

    def extended(self, found: list[_Inequality]) -> _Programme:
        lengths = [len(inequality.edges) for inequality in found]
        columns = np.concatenate([inequality.edges for inequality in found])
        signs = np.concatenate([inequality.signs for inequality in found]).astype(np.float64)
        fresh = sp.csr_array((signs, columns, np.r_[0, np.cumsum(lengths)]), shape=(len(found), self.rows.shape[1]))
        sides = [inequality.signs.count(1) - 1.0 for inequality in found]
        idle = np.r_[self.idle, np.zeros(len(found), dtype=np.intp)]
        return _Programme(sp.vstack([self.rows, fresh], format="csr"), np.r_[self.sides, sides], idle)

    def tight(self, cut: Vector) -> _Programme:
        """Without what the points of some rounds were far from."""
        idle = np.where(self.sides - self.rows @ cut < _IDLE_SLACK, 0, self.idle + 1)
        keep = idle < _IDLE_ROUNDS
        return _Programme(self.rows[keep], self.sides[keep], idle[keep])


class OddCycles:
    """The relaxation, and the inequalities found so far; those that were found for one box hold for every other.

    Parameters
    ----------
    spins : Spins
        The problem, of a sparse matrix: every entry is a variable.
    rng : numpy.random.Generator
        Where searches begin.
    """

    def __init__(self, spins: Spins, rng: np.random.Generator) -> None:
        pairs = sp.coo_array(sp.triu(spins.matrix(), 1))
        self.size, self._rng = spins.size, rng
        # In 32 bits: searches of graphs took no others before SciPy 1.15.
        self.tails, self.heads = pairs.row.astype(np.int32), pairs.col.astype(np.int32)
        self.couplings = pairs.data
        self._unit = spins.unit
        self._constant = spins.constant
        self._programme = _Programme.empty(self.edges)
        self._tilt = np.zeros(self.edges)
        self._place = {
            pair: e
            for e, (i, j) in enumerate(zip(self.tails.tolist(), self.heads.tolist(), strict=True))
            for pair in ((i, j), (j, i))
        }

    @property
    def edges(self) -> int:
        """Their number."""
        return int(self.couplings.size)

    def value(self, spins: Vector) -> float:
        """The energy of spins."""
        return self._constant + float((self.couplings * spins[self.tails] * spins[self.heads]).sum())

    def favour(self, spins: Vector, total: float) -> None:
        """Tilt the costs towards the cut of these spins, by so much in all: where it is optimal, then it alone is.

        Programmes of whole numbers have faces of optima, on which one inequality after another is found in vain. What
        is proved is proved of the costs as they are: it falls short by the tilt at most.
        """
        is_cut = spins[self.tails] != spins[self.heads]
        size = self._rng.uniform(0.5, 1.0, self.edges)
        self._tilt = np.where(is_cut, -1.0, 1.0) * size * (total / size.sum())

    def bound(self, low: Vector, high: Vector, expired: Callable[[], bool] = lambda: False) -> CycleBound | None:
        """One round: the programme within a box, then inequalities that its optimum violates. None: the box is empty.

        Cost: a linear programme in as many variables as there are edges, and shortest paths from all nodes at worst.
        """
        solved = self._solve(low, high)
        if solved is None:
            return None
        cut, lower = solved
        found = self._separate(cut, expired)
        self._programme = self._programme.tight(cut)
        if found:
            self._programme = self._programme.extended(found)
        return CycleBound(lower, cut, self._rounded(cut), not (found or expired()))

    def _solve(self, low: Vector, high: Vector) -> tuple[Vector, float] | None:
        """A point and the bound that its multipliers prove; None where no point is within."""
        costs = -2.0 * self.couplings
        if not self._programme.sides.size:
            return np.where(costs < 0.0, high, low), self._proved(np.zeros(0), low, high)
        from scipy.optimize import linprog  # slow to load, and only proofs need it

        solved = linprog(
            (costs + self._tilt) / self._unit,
            A_ub=self._programme.rows,
            b_ub=self._programme.sides,
            bounds=np.stack([low, high], axis=1),
            method="highs-ds",
            options=_OPTIONS,
        )
        if solved.status == 2 and self._is_impossible(low, high):
            return None
        if solved.x is None:
            return np.clip(np.where(costs < 0.0, high, low), low, high), self._proved(np.zeros(0), low, high)
        multipliers = self._unit * np.maximum(0.0, -solved.ineqlin.marginals)
        if multipliers.size != self._programme.sides.size:
            multipliers = np.zeros(self._programme.sides.size)
        return np.clip(solved.x, low, high), self._proved(multipliers, low, high)

    def _is_impossible(self, low: Vector, high: Vector) -> bool:
        """Whether an inequality excludes the whole box by itself; what only the solver claims is not believed."""
        positive, negative = self._programme.rows.maximum(0.0), self._programme.rows.minimum(0.0)
        return bool(np.any(positive @ low + negative @ high > self._programme.sides + 0.5))

    def _proved(self, multipliers: Vector, low: Vector, high: Vector) -> float:
        """The energy that multipliers prove, whatever they are: by (3), rounding subtracted."""
        costs = -2.0 * self.couplings
        rows, sides = self._programme.rows, self._programme.sides
        if not multipliers.size:
            rows, sides = sp.csr_array((0, self.edges)), np.zeros(0)
        reduced = costs + rows.T @ multipliers
        least = np.minimum(reduced * low, reduced * high)  # (3)
        total = math.fsum([self._constant, *self.couplings, *least, *(-sides * multipliers)])
        size = abs(self._constant) + 2.0 * float(np.abs(costs).sum() + (abs(rows).T @ multipliers).sum())
        terms = 8.0 + float(np.bincount(rows.indices, minlength=1).max(initial=0))
        return total - 2.0 * float(np.finfo(np.float64).eps) * terms * (size + float(np.abs(sides) @ multipliers))

    def _separate(self, cut: Vector, expired: Callable[[], bool]) -> list[_Inequality]:
        """Violated inequalities: of each source the most violated, of one node at most one."""
        from scipy.sparse.csgraph import dijkstra  # slow to load: with it `import varopt` takes 3 % longer

        n = self.size
        i, j = self.tails, self.heads
        same, across = np.maximum(cut, 0.0) + _HOP, np.maximum(1.0 - cut, 0.0) + _HOP  # (2)
        rows = np.concatenate([i, j, i + n, j + n, i, j, i + n, j + n])
        columns = np.concatenate([j, i, j + n, i + n, j + n, i + n, j, i])
        graph = sp.csr_array((np.r_[np.tile(same, 4), np.tile(across, 4)], (rows, columns)), shape=(2 * n, 2 * n))
        waiting = self._rng.permutation(np.unique(np.concatenate([i, j])))
        found: dict[frozenset[tuple[int, int]], _Inequality] = {}
        for k in range(0, waiting.size, _SOURCES):
            sources = waiting[k : k + _SOURCES]
            length, before = dijkstra(graph, indices=sources, limit=1.0, return_predecessors=True)
            near = length[np.arange(sources.size), sources + n] < 1.0 - _VIOLATED_CYCLE
            for source, way in zip(sources[near].tolist(), before[near], strict=True):
                inequality = self._inequality(_odd_cycle(way, source, n), cut)
                if inequality is not None:
                    found.setdefault(frozenset(zip(*inequality, strict=True)), inequality)
            if len(found) >= _ENOUGH or expired():
                break
        return [*found.values()]

    def _inequality(self, cycle: list[int], cut: Vector) -> _Inequality | None:
        n = self.size
        edges = tuple(self._place[a % n, b % n] for a, b in itertools.pairwise(cycle))
        signs = tuple(1 if (a < n) != (b < n) else -1 for a, b in itertools.pairwise(cycle))
        distinct = len(set(edges)) == len(edges) and signs.count(1) % 2 == 1
        # (1): edges that change over are those of F.
        violation = float(np.array(signs) @ cut[list(edges)]) - (signs.count(1) - 1)
        return _Inequality(edges, signs) if distinct and violation > 0.5 * _VIOLATED_CYCLE else None

    def _rounded(self, cut: Vector) -> Vector:
        """Spins that agree with a spanning tree of the edges that are nearest to decided, after one-flip descent."""
        from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

        doubt = 1.0 + np.minimum(cut, 1.0 - cut)  # not zero, as zeros are no edges
        tree = minimum_spanning_tree(sp.csr_array((doubt, (self.tails, self.heads)), shape=(self.size, self.size)))
        s = np.ones(self.size)
        for root in np.unique(connected_components(tree, directed=False)[1], return_index=True)[1].tolist():
            order, before = breadth_first_order(tree, root, directed=False)
            for node in order[1:].tolist():
                i = int(before[node])
                s[node] = s[i] if cut[self._place[i, node]] < 0.5 else -s[i]
        return self._descended(s)

    def _descended(self, s: Vector) -> Vector:
        whole = sp.csr_array((self.couplings, (self.tails, self.heads)), shape=(self.size, self.size))
        matrix = whole + whole.T
        fields = matrix @ s
        while (gain := s * fields).max() > 1e-9 * self._unit:
            k = int(gain.argmax())
            s[k] = -s[k]
            row = slice(matrix.indptr[k], matrix.indptr[k + 1])
            fields[matrix.indices[row]] += 2.0 * s[k] * matrix.data[row]
        return s


def _odd_cycle(before: Any, source: int, n: int) -> list[int]:
    """The nodes of a cycle on the way from a source to its other copy that changes over an odd number of times."""
    place: dict[int, int] = {}
    way, node = [], source + n
    while node >= 0:
        way.append(node)
        if node % n in place:  # in the other copy: between the two is an odd number of changes
            return way[place[node % n] :]
        place[node % n] = len(way) - 1
        node = int(before[node])
    return way
