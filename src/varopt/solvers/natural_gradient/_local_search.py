"""Bits, choices and orders around the best point: a local search, whose samples are tied to the incumbent.

How many coordinates a sample changes in the mean is drawn from a power law [D17]:

    P(r) in proportion to r^-beta,    r = 1, ..., size / 2,    beta = 1.5                                            (1)

D17: B. Doerr, H. P. Le, R. Makhmara and T. D. Nguyen, *Fast genetic algorithms*, GECCO 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.natural_gradient._update import Array, Update

__all__ = ["LocalSearch"]


@dataclass
class IncumbentRun:
    """An incumbent on its way."""

    incumbent: Array | None = None
    value: float = math.inf
    stagnant: int = 0  # evaluations since the last improvement
    used: int = 0

    def tell(self, points: Array, values: Array) -> None:
        """Take the best sample unless it is worse; the latest of equals, so that plateaus are crossed."""
        best = len(values) - 1 - int(np.argmin(values[::-1]))
        self.used += len(values)
        self.stagnant = 0 if values[best] < self.value else self.stagnant + len(values)
        if values[best] <= self.value:
            self.incumbent, self.value = points[best].copy(), float(values[best])


class LocalSearch(Update):
    """Each coordinate keeps the incumbent's value with probability 1 - r, and takes another one otherwise.

    For bits this is nearly the Bernoulli family with ``theta = x + r (1 - 2 x)`` around the incumbent x: variational
    optimisation with its mean tied to the best point, sharp, and never quite certain. It is no family, as one
    coordinate changes in any case, so that no evaluation is wasted on the incumbent. While it improves, r is mostly
    zero; when it stagnates, r is drawn from a power law for every sample [D17], so that a few samples go far. A
    permutation is changed by as many random moves as it has coordinates that change.

    A run that has stagnated for long takes turns with fresh ones, which it is replaced by if they become better; both
    get the same number of evaluations.

    Parameters
    ----------
    options : integer array of shape (columns,)
        Options of every column; 0 for columns of permutations.
    permutations : sequence of slice
        The columns of each permutation.
    population : int, optional
        Samples of a generation; 4 by default.
    start : array, optional
        The first incumbent.
    exists : callable, optional
        Which columns of points matter, where not all of them always do: others stay as they are.

    Notes
    -----
    A sample costs O(columns), and so does the memory.
    """

    QUIET = 0.75  # the share of samples that change one coordinate only, while it improves
    STAGNANT = 2.0  # evaluations a coordinate without improvement, after which all samples follow the power law
    PATIENCE = 8.0  # the same, after which the run gives way
    EXPONENT = 1.5  # beta of (1)

    def __init__(
        self, options: NDArray[np.intp], permutations: Sequence[slice], population: int | None, start: Array | None,
        exists: Callable[[Array], NDArray[np.bool_]] | None = None,
    ) -> None:  # fmt: skip
        self._options, self._permutations = options, list(permutations)
        self._choices = np.flatnonzero(options)
        self._size, self._exists = options.size, exists
        self.population = population or 4
        powers = np.arange(1.0, max(2.0, self._size / 2 + 1.0)) ** -self.EXPONENT  # (1)
        self._cumulative = np.cumsum(powers) / powers.sum()
        self._deep, self._broad = IncumbentRun(start), IncumbentRun()
        self._current = self._deep

    def refresh(self, rng: np.random.Generator) -> None:
        deep, broad = self._deep, self._broad
        if self._current.stagnant < self.PATIENCE * self._size:
            return
        if self._current is broad and broad.value < deep.value:
            deep.incumbent, deep.value = broad.incumbent, broad.value
        deep.stagnant = 0
        if deep.used <= broad.used:
            self._current = deep
        else:
            self._current = self._broad = IncumbentRun(used=broad.used)
            self.epoch += 1

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        run = self._current
        if run.incumbent is None:
            return self._uniform(rng, count)
        rate = (1.0 + np.searchsorted(self._cumulative, rng.random(count))) / self._size
        if run.stagnant < self.STAGNANT * self._size:
            rate = np.where(rng.random(count) < self.QUIET, 0.0, rate)
        u = rng.random((count, self._size))
        if self._exists is not None:
            u[:, ~self._exists(run.incumbent[None])[0]] = 1.0
        changed = (u < rate[:, None]) | (u == u.min(axis=1, keepdims=True))
        points = np.tile(run.incumbent, (count, 1))
        if self._choices.size:
            options = self._options[self._choices]
            shift = 1.0 + np.floor(rng.random((count, options.size)) * (options - 1))
            old = points[:, self._choices]
            points[:, self._choices] = np.where(changed[:, self._choices], (old + shift) % options, old)
        for where in self._permutations:
            for point, moves in zip(points[:, where], changed[:, where].sum(axis=1), strict=True):
                for _ in range(int(moves)):
                    _move(rng, point)
        return points

    def _uniform(self, rng: np.random.Generator, count: int) -> Array:
        points = np.empty((count, self._size))
        points[:, self._choices] = rng.integers(0, self._options[self._choices], (count, self._choices.size))
        for where in self._permutations:
            points[:, where] = rng.permuted(np.tile(np.arange(where.stop - where.start), (count, 1)), axis=1)
        return points

    def tell(self, points: Array, values: Array) -> None:
        self._current.tell(points, values)

    @property
    def mean(self) -> Array:
        return np.zeros(self._size) if self._current.incumbent is None else self._current.incumbent

    @property
    def spread(self) -> float:
        return 1.0 if self._current.incumbent is None else 1.0 / self._size


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
