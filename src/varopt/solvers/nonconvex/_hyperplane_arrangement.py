r"""The exact optimum of steps of affine forms, by looking at every cell that their hyperplanes cut space into.

Lifted by one coordinate the hyperplanes pass through the origin of R^P, and a cell is a cone with a two-dimensional
face. That face lies in the plane on which some P - 2 independent hyperplanes vanish; there the others cut the circle of
directions into arcs, and one sort gives the value of each arc. What vanishes on the whole plane is on the sides that
are best for it, found by the same search in P - 2 dimensions (in general position: each on its better side). So
``binomial(m, P - 2)`` sorts of m numbers find the optimum and prove it [HL23].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varopt.composite import Composite

__all__ = ["ASSUMPTION", "HyperplaneArrangement", "arrangement"]

Vector = NDArray[np.float64]

_LEAST_SINE = 1e-9  # sine of an angle below which a direction lies in a hyperplane
_SHORTEST_ARC = 1e-10  # arcs shorter than this are rounding of one direction
_LARGEST_COTANGENT = 1e150  # it stands for an angle of zero
_NUMBERS_AT_ONCE = 1 << 20  # that are worked on: some tens of megabytes
ASSUMPTION = "no two different directions on which hyperplanes meet are closer than 1e-10"


@dataclass(frozen=True)
class HyperplaneArrangement:
    """Hyperplanes through the origin, and what it costs to be on the positive and on the negative side of each."""

    normals: Vector  # (m, P), of length one, no two parallel, of rank P
    positive: Vector
    negative: Vector
    constant: float
    basis: Vector  # (P, coordinates): from these coordinates to those of the problem, lifted or not
    lifted: bool

    @property
    def work(self) -> float:
        """Numbers to sort: families of directions times hyperplanes."""
        count, rank = self.normals.shape
        return float(math.comb(count, max(rank - 2, 0)) * count)

    def optimum(self, tick: Callable[[], None] = lambda: None) -> tuple[float, Vector]:
        """The least value of any cell, and a point in such a cell; `tick` is called from time to time.

        Time: `work` times the cost of sorting a number. Memory: some tens of megabytes.
        """
        best = math.inf, np.zeros(0)
        for cell in self.cells(tick):
            best = cell
            tick()
        return best

    def cells(self, tick: Callable[[], None] = lambda: None) -> Iterator[tuple[float, Vector]]:
        """The same bit by bit: the least value so far and its point, after every chunk of cells, at last of all."""
        for value, direction in self._lowest(tick):
            point = direction @ self.basis
            yield value + self.constant, point[:-1] / point[-1] if self.lifted else point

    def _lowest(self, tick: Callable[[], None]) -> Iterator[tuple[float, Vector]]:
        count, rank = self.normals.shape
        if rank == 0:
            yield 0.0, np.zeros(0)
            return
        if rank == 1:
            ends = [float(np.sum(np.where(sign * self.normals[:, 0] > 0, self.positive, self.negative)))
                    for sign in (1.0, -1.0)]  # fmt: skip
            yield min(ends), np.array([1.0 if ends[0] <= ends[1] else -1.0])
            return
        best, where = math.inf, np.zeros(rank)
        families = itertools.combinations(range(count), rank - 2)
        while chunk := list(itertools.islice(families, max(1, _NUMBERS_AT_ONCE // count))):
            planes, values, angles, pinned = self._arcs(np.array(chunk, dtype=np.intp).reshape(len(chunk), rank - 2))
            for k in np.argsort(values):
                if not values[k] < best:
                    break
                local, inside = self._pinned(planes[k], pinned[k], tick)
                value = float(values[k] - np.minimum(self.positive, self.negative) @ pinned[k]) + local
                if value < best:
                    ahead = math.cos(angles[k]) * planes[k, 0] + math.sin(angles[k]) * planes[k, 1]
                    best, where = value, self._between(ahead, inside, pinned[k])
            yield best, where

    def _arcs(self, chosen: NDArray[np.intp]) -> tuple[Vector, Vector, Vector, NDArray[np.bool_]]:
        """For each choice of hyperplanes, the lowest arc of the plane on which they vanish.

        Returns bases of the planes, values with pinned hyperplanes on their better sides, angles, and what is pinned.
        """
        rank = self.normals.shape[1]
        _, sizes, vectors = np.linalg.svd(self.normals[chosen])
        planes = vectors[:, rank - 2 :]
        u, v = (planes @ self.normals.T).transpose(1, 0, 2)  # the sign of u cos + v sin is the side
        pinned = np.hypot(u, v) < _LEAST_SINE
        with np.errstate(divide="ignore", invalid="ignore"):  # minus the cotangent of the angle at which it changes
            key = np.where(pinned, np.inf, np.clip(v / u, -_LARGEST_COTANGENT, _LARGEST_COTANGENT))
        order = np.argsort(key, axis=1)
        key = np.take_along_axis(key, order, axis=1)
        before = np.where(np.signbit(u), self.negative, self.positive)
        rise = np.where(pinned, 0.0, self.positive + self.negative - 2.0 * before)
        start = np.sum(before, axis=1, where=~pinned)[:, None]
        steps = np.cumsum(np.take_along_axis(rise, order, axis=1), axis=1)
        value = np.concatenate([start, start + steps], axis=1)
        short = self._short(key, self.normals.shape[0] - pinned.sum(axis=1))
        total = np.sum(np.where(pinned, 0.0, self.positive + self.negative), axis=1)
        low, high = value.copy(), value.copy()  # on the opposite arcs all sides are changed: total - value
        low[short], high[short] = np.inf, -np.inf
        rows = np.arange(len(chosen))
        first, last = np.argmin(low, axis=1), np.argmax(high, axis=1)
        straight, opposite = low[rows, first], total - high[rows, last]
        pick = np.where(straight <= opposite, first, last)
        angles = np.where(straight <= opposite, 0.0, np.pi) + _middle(key, pick)
        values = np.minimum(straight, opposite) + np.minimum(self.positive, self.negative) @ pinned.T
        dependent = sizes[:, -1] < _LEAST_SINE if rank > 2 else np.zeros(len(chosen), dtype=bool)
        return planes, np.where(dependent, np.inf, values), angles, pinned

    @staticmethod
    def _short(key: Vector, live: NDArray[np.intp]) -> NDArray[np.bool_]:
        """The arcs before, between and after the sorted keys that are only rounding; the first `live` keys count."""
        place = np.arange(key.shape[1] + 1)
        short = np.zeros((key.shape[0], place.size), dtype=bool)
        with np.errstate(invalid="ignore"):  # tan(b - a) = (cot a - cot b) / (1 + cot a cot b)
            short[:, 1:-1] = key[:, 1:] - key[:, :-1] <= _SHORTEST_ARC * (1.0 + key[:, 1:] * key[:, :-1])
        short &= place < live[:, None]
        # The first and the last are one arc and its opposite.
        last = np.take_along_axis(key, np.maximum(live - 1, 0)[:, None], axis=1)[:, 0]
        around = np.arctan2(1.0, -key[:, 0]) + np.arctan2(1.0, last) <= _SHORTEST_ARC
        short[:, 0] = around
        return short | (around[:, None] & (place >= live[:, None]))

    def _pinned(self, plane: Vector, pinned: NDArray[np.bool_], tick: Callable[[], None]) -> tuple[float, Vector]:
        """What the hyperplanes that hold the plane cost at least, and a direction off the plane where they do."""
        rank = self.normals.shape[1]
        if not pinned.any():
            return 0.0, np.zeros(rank)
        across = np.linalg.svd(plane)[2][2:]  # a basis of what is orthogonal to the plane
        inner = HyperplaneArrangement(
            self.normals[pinned] @ across.T, self.positive[pinned], self.negative[pinned], 0.0, across, False
        )
        return inner.optimum(tick)

    def _between(self, ahead: Vector, inside: Vector, pinned: NDArray[np.bool_]) -> Vector:
        """A direction in the open cell: so little off the plane that no hyperplane is passed that is not pinned."""
        along, off = self.normals[~pinned] @ ahead, self.normals[~pinned] @ inside
        against = along * off < 0.0
        room = float(np.min(np.abs(along[against] / off[against]), initial=1.0))
        return np.asarray(ahead + 0.5 * room * inside)


def _middle(key: Vector, pick: NDArray[np.intp]) -> Vector:
    """The angles in the middle of the chosen arcs, between the sorted keys before and after."""
    rows = np.arange(pick.size)
    padded = np.concatenate([np.full((pick.size, 1), -np.inf), key, np.full((pick.size, 1), np.inf)], axis=1)
    ends = [np.arctan2(1.0, -padded[rows, pick + side]) for side in (0, 1)]
    return np.asarray(0.5 * (ends[0] + ends[1]))


def arrangement(problem: Composite) -> HyperplaneArrangement | None:
    """The hyperplanes of a problem; None where it is not a sum of steps, or is lowest on a hyperplane itself."""
    if problem.hessian is not None or problem.gradient_at_zero.any() or not problem.rows:
        return None
    normals, offsets, jumps, passed, constant = [], [], [], [], problem.constant
    for r in problem.rows:
        term = r.term
        if term.degree or not term.knots:
            return None
        up = np.array([np.all(np.asarray(jump[0]) >= 0.0) for jump in term.jumps])
        down = np.array([np.all(np.asarray(jump[0]) <= 0.0) for jump in term.jumps])
        if not (up if term.at_knot == "right" else down).all():
            return None
        constant += float(np.sum(r.weights * term.pieces[0][0]))
        dense = np.asarray(r.linear.dense(), dtype=np.float64)
        for knot, jump in zip(term.knots, term.jumps, strict=True):
            normals.append(dense)
            offsets.append(r.offset - knot)
            jumps.append(r.weights * jump[0])
            passed.append(np.full(r.count, term.at_knot == "right"))
    normal, offset, positive = np.vstack(normals), np.concatenate(offsets), np.concatenate(jumps)
    still = ~normal.any(axis=1) & (offset == 0.0)  # without coefficients, always on the knot
    constant += float(positive[still & np.concatenate(passed)].sum())
    normal, offset, positive = normal[~still], offset[~still], positive[~still]
    if not len(normal):
        return None
    lifted = bool(offset.any())
    if lifted:  # with a last hyperplane that nothing may be behind
        normal = np.vstack([np.column_stack([normal, offset]), np.eye(1, normal.shape[1] + 1, normal.shape[1])])
        positive = np.append(positive, -1.0 - np.abs(positive).sum())
        constant -= positive[-1]
    return _tidy(normal, positive, constant, lifted)


def _tidy(normal: Vector, positive: Vector, constant: float, lifted: bool) -> HyperplaneArrangement | None:
    """In as many coordinates as there are, with normals of length one and parallel ones merged."""
    size = np.abs(normal).max(axis=0)
    scale = np.where(size > 0.0, size, 1.0)
    normal = normal / scale
    lengths = np.linalg.norm(normal, axis=1)
    if not lengths.all():  # they underflow
        return None
    normal = normal / lengths[:, None]
    # In coordinates of equal spread, so that angles are as even as the data allow.
    _, spread, vectors = np.linalg.svd(normal, full_matrices=False)
    kept = spread > 1e-10 * spread[0]
    basis = vectors[kept] / spread[kept, None]
    normal = normal @ basis.T
    normal /= np.linalg.norm(normal, axis=1)[:, None]
    sign = np.where(normal[np.arange(len(normal)), np.argmax(np.abs(normal) > 1e-7, axis=1)] > 0, 1.0, -1.0)
    same = np.unique(np.round(sign[:, None] * normal, 9) + 0.0, axis=0, return_index=True, return_inverse=True)
    first, group = same[1], same[2].ravel()
    ahead, behind = (
        np.asarray(np.bincount(group, np.where(side, positive, 0.0), first.size), dtype=np.float64)
        for side in (sign > 0, sign < 0)
    )
    return HyperplaneArrangement(normal[first] * sign[first, None], ahead, behind, constant, basis / scale, lifted)
