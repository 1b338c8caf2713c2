"""Bits, choices and orders around the best point: a product distribution whose mode is tied to the incumbent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.natural_gradient._update import Array, Update

__all__ = ["LocalSearch"]


class LocalSearch(Update):
    """Each coordinate keeps the incumbent's value with probability 1 - r, and takes another one otherwise.

    For bits this is the Bernoulli family with ``theta = x + r (1 - 2 x)`` around the incumbent x: variational
    optimisation with its mean tied to the best point, sharp, and never quite certain. The rate r is drawn anew for
    every sample from a power law [D17], so that most samples differ in one or two coordinates and a few in many;
    samples equal to the incumbent are not drawn. A permutation is changed by as many random moves.

    Parameters
    ----------
    options : integer array of shape (columns,)
        Options of every column; 0 for columns of permutations.
    permutations : sequence of slice
        The columns of each permutation.
    population : int, optional
        Samples of a generation.
    start : array, optional
        The first incumbent.
    """

    def __init__(
        self, options: NDArray[np.intp], permutations: Sequence[slice], population: int | None, start: Array | None
    ) -> None:
        self._options, self._permutations = options, list(permutations)
        self._choices = np.flatnonzero(options)
        self.population = population or 2
        self._incumbent = start
        self._value = math.inf
        self._size = options.size
        powers = np.arange(1, self._size + 1.0) ** -2.0
        self._cumulative = np.cumsum(powers) / powers.sum()

    def _uniform(self, rng: np.random.Generator, count: int) -> Array:
        points = np.empty((count, self._size))
        points[:, self._choices] = rng.integers(0, self._options[self._choices], (count, self._choices.size))
        for where in self._permutations:
            points[:, where] = rng.permuted(np.tile(np.arange(where.stop - where.start), (count, 1)), axis=1)
        return points

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        if self._incumbent is None:
            return self._uniform(rng, count)
        points = np.tile(self._incumbent, (count, 1))
        sizes = 1 + np.searchsorted(self._cumulative, rng.random(count))
        for point, size in zip(points, sizes, strict=True):
            columns = rng.choice(self._size, min(int(size), self._size), replace=False)
            chosen = columns[self._options[columns] > 0]
            shifts = rng.integers(1, self._options[chosen])
            point[chosen] = (point[chosen] + shifts) % self._options[chosen]
            for where in self._permutations:
                moves = int(((columns >= where.start) & (columns < where.stop)).sum())
                for _ in range(moves):
                    _move(rng, point[where])
        return points

    def tell(self, points: Array, values: Array) -> None:
        best = len(values) - 1 - int(np.argmin(values[::-1]))  # the latest of equals, so that plateaus are crossed
        if values[best] <= self._value:
            self._incumbent, self._value = points[best].copy(), float(values[best])

    @property
    def mean(self) -> Array:
        return np.zeros(self._size) if self._incumbent is None else self._incumbent

    @property
    def spread(self) -> float:
        return 1.0 if self._incumbent is None else 1.0 / self._size


def _move(rng: np.random.Generator, order: Array) -> None:
    """Exchange two, move one elsewhere, or reverse a stretch, in place."""
    i, j = np.sort(rng.choice(order.size, 2, replace=False))
    match rng.integers(3):
        case 0:
            order[[i, j]] = order[[j, i]]
        case 1:
            order[i : j + 1] = np.roll(order[i : j + 1], 1 if rng.integers(2) else -1)
        case _:
            order[i : j + 1] = order[i : j + 1][::-1]
