"""All states of bits and choices: expectations by enumeration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._layout import Component

__all__ = ["MAX_STATES", "Enumeration", "count_states"]

Vector = NDArray[np.float64]

MAX_STATES = 1 << 18


def _states_of(c: Component) -> list[int]:
    """Number of states of each bit or choice."""
    return [2 if c.is_bits else c.choices] * c.family.noise_size


def count_states(components: Sequence[Component]) -> float:
    """Number of states of discrete components together; may be infinite."""
    return math.prod(float(k) for c in components for k in _states_of(c))


class Enumeration:
    """The states of discrete components side by side, as a grid with one axis for each bit or choice.

    An expectation is a contraction of the grid of values with the probabilities along every axis; leaving out an axis
    gives the conditional expectations, from which derivatives follow, at probabilities 0 and 1 too.
    """

    def __init__(self, components: Sequence[Component]) -> None:
        self.components = components
        axes = [(c, i) for c in components for i in range(c.family.noise_size)]
        self.shape = tuple(k for c in components for k in _states_of(c))
        self.probabilities = [_probabilities(c, i) for c, i in axes]
        # Conditional expectations to derivatives: E(1) - E(0) for a bit, along the simplex for a choice.
        self.differences = [
            np.array([[-1.0], [1.0]]) if c.is_bits else np.eye(c.choices) - np.outer(p, np.ones(c.choices))
            for (c, _), p in zip(axes, self.probabilities, strict=True)
        ]
        values = [np.arange(2.0)[:, None] if c.is_bits else np.eye(c.choices) for c, _ in axes]
        grids = np.meshgrid(*(np.arange(k) for k in self.shape), indexing="ij", sparse=True)
        blocks = [np.broadcast_to(v[g], (*self.shape, v.shape[1])) for v, g in zip(values, grids, strict=True)]
        self.states = np.concatenate(blocks, axis=-1).reshape(math.prod(self.shape), -1)
        ends = np.cumsum([0, *(v.shape[1] for v in values)])
        self.parts = [slice(int(a), int(b)) for a, b in pairwise(ends)]

    @property
    def weights(self) -> Vector:
        """The probability of every state."""
        total: Any = np.ones(())
        for p in self.probabilities:
            total = np.multiply.outer(total, p)
        return np.ravel(total)

    def _contract(self, values: Vector, kept: tuple[int, ...] = ()) -> Vector:
        grid = values.reshape(self.shape)
        for axis in reversed(range(len(self.shape))):
            if axis not in kept:
                grid = np.tensordot(grid, self.probabilities[axis], axes=(axis, 0))
        return np.asarray(grid)

    def expectation(self, values: Vector) -> float:
        """The expectation of a function with these values at `states`."""
        return float(self._contract(values))

    def gradient(self, values: Vector) -> Vector:
        """Its derivatives in the probabilities, flat."""
        total = np.zeros(self.parts[-1].stop)
        for i, (part, change) in enumerate(zip(self.parts, self.differences, strict=True)):
            total[part] = change.T @ self._contract(values, (i,))
        return total

    def hessian(self, values: Vector) -> Vector:
        """Its second derivatives in the probabilities; zero within a choice."""
        total = np.zeros((self.parts[-1].stop,) * 2)
        for j, (columns, right) in enumerate(zip(self.parts, self.differences, strict=True)):
            for i, (rows, left) in enumerate(zip(self.parts[:j], self.differences[:j], strict=True)):
                total[rows, columns] = left.T @ self._contract(values, (i, j)) @ right
                total[columns, rows] = total[rows, columns].T
        return total


def _probabilities(c: Component, i: int) -> Vector:
    p: Vector = c.family.probability[i]  # type: ignore[attr-defined]
    return np.array([1.0 - p, p]) if c.is_bits else np.asarray(p)
