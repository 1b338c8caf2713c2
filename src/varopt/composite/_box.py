"""Bounds of single variables among the rows: steep kinks that no step should cross, and none has to smooth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._linalg import solve_definite
from varopt.composite._form import Composite

__all__ = ["Bounds", "bounded"]

Vector = NDArray[np.float64]

_BOX_EXCHANGES = 12  # in which variables on the wrong side of their bounds, or held there in vain, change


@dataclass(frozen=True, eq=False)
class Bounds:
    """``low <= x <= high``, and the problem without the rows that say so."""

    low: Vector
    high: Vector
    inside: Composite
    places: tuple[int, ...]  # of the rows of bounds, in the problem

    def clip(self, x: Vector) -> Vector:
        """The nearest point of the box."""
        return np.clip(x, self.low, self.high)

    def step(self, matrix: Any, gradient: Vector, x: Vector) -> Vector:
        """The Newton step within the box: the minimum there of the quadratic model, by exchanges of all at once.

        A variable at a bound is held while the gradient of the model pushes it out; one that would pass a bound stops.
        """
        if matrix is None:
            return np.zeros_like(x)
        held = ((x <= self.low) & (gradient > 0.0)) | ((x >= self.high) & (gradient < 0.0))
        at_high = x >= self.high
        step = np.zeros_like(x)
        for _ in range(_BOX_EXCHANGES):
            free = np.flatnonzero(~held)
            step = np.where(held, np.where(at_high, self.high, self.low) - x, 0.0)
            residual = gradient + (matrix @ step if step.any() else 0.0)
            step[free] = solve_definite(_part(matrix, free), -residual[free]) if free.size else 0.0
            reached, model = x + step, gradient + matrix @ step
            above, below = ~held & (reached > self.high), ~held & (reached < self.low)
            freed = held & np.where(at_high, model > 0.0, model < 0.0) & (self.low < self.high)
            if not (above | below | freed).any():
                break
            at_high = np.where(above, True, np.where(below, False, at_high))
            held = (held & ~freed) | above | below
        return self.clip(x + step) - x

    def dual(self, problem: Composite, x: Vector, residual: Vector, inner: Sequence[Vector]) -> list[Vector]:
        """Subgradients of all rows of `problem`: those given, and of bounds that are reached what these leave."""
        left, rest, dual = residual.copy(), iter(inner), []
        for b, r in enumerate(problem.rows):
            if b not in self.places or r.single is None:
                dual.append(next(rest))
                continue
            index, factor = r.single
            z = r.positions(x)
            low, high = r.term.subdifferential(z)
            scale = r.weights * factor
            u = np.clip(np.divide(-left[index], scale, out=np.zeros(index.size), where=scale != 0.0), low, high)
            np.add.at(left, index, scale * u)
            dual.append(u)
        return dual

    def reaches(self, problem: Composite, x: Vector, inner: Sequence[float], *, every: bool) -> list[float]:
        """How near each row of `problem` may rest: what is given for those inside; bounds where they are, or all."""
        rest = iter(inner)
        return [(np.inf if every else 0.0) if b in self.places else next(rest) for b in range(len(problem.rows))]


def bounded(problem: Composite) -> Bounds | None:
    """The bounds among the rows that are said to be hard; None where there are none, or nothing is between them."""
    places = tuple(b for b, r in enumerate(problem.rows) if r.hard and r.single is not None)
    if not places:
        return None
    low, high = np.full(problem.size, -np.inf), np.full(problem.size, np.inf)
    for b in places:
        r = problem.rows[b]
        index, factor = r.single or (np.zeros(0, dtype=np.intp), np.zeros(0))
        live = np.flatnonzero((factor != 0.0) & (r.weights > 0.0))
        at, equal = -r.offset[live] / factor[live], r.term.subgradient_range[0] < 0.0
        upper, lower = live[(factor[live] > 0.0) | equal], live[(factor[live] < 0.0) | equal]
        bound = np.zeros(r.count)
        bound[live] = at
        np.minimum.at(high, index[upper], bound[upper])
        np.maximum.at(low, index[lower], bound[lower])
    if np.any(low > high):
        return None
    rows = tuple(r for b, r in enumerate(problem.rows) if b not in places)
    return Bounds(low, high, replace(problem, rows=rows), places)


def _part(matrix: Any, index: NDArray[np.intp]) -> Any:
    if index.size == matrix.shape[0]:
        return matrix
    return sp.csr_array(matrix)[index][:, index] if sp.issparse(matrix) else matrix[np.ix_(index, index)]
