"""Several objectives: a set of distributions, each descending what the others leave of the dominated volume [T19].

T19: C. Toure, N. Hansen, A. Auger and D. Brockhoff, *Uncrowded hypervolume improvement: COMO-CMA-ES and the Sofomore
framework*, GECCO 2019. Each of several distributions moves along the natural gradient of the hypervolume that its
samples would add to what the others hold. Ours: what a distribution holds is its best sample and not its mean, which
would have to be evaluated, and depth takes the place of distance where a sample adds nothing (`improvement`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.search.goals._constrained import violations
from varopt.search.goals._hypervolume import hypervolume, improvement, nondominated
from varopt.solvers.natural_gradient import Update

__all__ = ["Archive", "Front", "FrontUpdate"]

Array = NDArray[np.float64]

CORNER = 1.1  # the reference point, where the front spans 0 to 1 in every objective
HUGE = 1e100  # farther is no farther
BROKEN = 1e6  # what breaks a constraint is behind all that does not
SETTLED = 1e-6  # a spread so small that a distribution has nothing more to give


@dataclass(frozen=True)
class Front:
    """The points that no other point is better than in every objective.

    Attributes
    ----------
    x : batch of points
        An array for a Box, a list of points otherwise, by their first objective.
    fun : array of shape (n, m)
        Their objectives.
    """

    x: Any
    fun: Array

    def __len__(self) -> int:
        return len(self.fun)

    def hypervolume(self, reference: Any) -> float:
        """The volume that it dominates up to a reference point, where all objectives are minimised.

        Parameters
        ----------
        reference : array of shape (m,)
            The corner.
        """
        return hypervolume(self.fun, reference)


class Archive:
    """Rows that are not dominated, with their objectives; smaller is better."""

    def __init__(self, objectives: int) -> None:
        self.rows: list[Array] = []
        self.values = np.empty((0, objectives))

    def see(self, row: Array, values: Array) -> bool:
        """Take note of an evaluation; whether it belongs to the front."""
        known = self.values
        if (known <= values).all(axis=1).any():
            return False
        keep = np.atleast_1d(~(known >= values).all(axis=1))
        if not keep.all():
            self.rows = [kept for kept, stays in zip(self.rows, keep, strict=True) if stays]
        self.rows.append(np.array(row))
        self.values = np.vstack((known[keep], values))
        return True

    def compromise(self) -> int:
        """The one nearest to the best of everything, where every objective spans 0 to 1."""
        return int(np.argmin((np.minimum(scaled(self.values, self.values), HUGE) ** 2).sum(axis=1)))


def scaled(values: Array, front: Array) -> Array:
    """Objectives in units in which a front spans 0 to 1."""
    low, high = front.min(axis=0), front.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.nan_to_num((values - low) / np.where(high > low, high - low, 1.0)))


@dataclass
class Kernel:
    """One of the distributions: what it was told of its generation, and the best it has seen."""

    update: Update
    points: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    handed: int = 0
    held: Array | None = None  # the objectives of its best sample


class FrontUpdate(Update):
    """Distributions that share a front.

    Parameters
    ----------
    factory : callable
        From a mean and a sigma to the update of one distribution.
    starts : array of shape (kernels, d)
        Where they begin.
    sigma : float
        How wide they begin.
    objectives : int
        How many of the numbers that are told are objectives; the rest are constraints.
    known : pair of arrays, optional
        Points and numbers from before.
    """

    def __init__(
        self, factory: Callable[[Array, float], Update], starts: Array, sigma: float, objectives: int,
        known: tuple[Array, Array] | None = None,
    ) -> None:  # fmt: skip
        self._factory, self._sigma, self._objectives = factory, sigma, objectives
        self.kernels = [Kernel(factory(start, sigma)) for start in starts]
        self._turn = 0
        self._drawn: dict[bytes, int] = {}  # which kernel drew a point that is under way
        self.archive = Archive(objectives)  # of latent points
        if known is not None:
            self._see(*known)

    @property
    def population(self) -> int:  # type: ignore[override]
        """How many samples complete the generation of the distribution whose turn it is."""
        kernel = self.kernels[self._turn]
        return max(1, kernel.update.population - kernel.handed)

    def refresh(self, rng: np.random.Generator) -> None:
        for kernel in self.kernels:
            kernel.update.refresh(rng)
            if kernel.update.spread < SETTLED or kernel.update.exhausted():
                self._begin_anew(kernel, rng)

    def _begin_anew(self, kernel: Kernel, rng: np.random.Generator) -> None:
        """Somewhere on the front, narrower than at first."""
        if self.archive.rows:
            start = self.archive.rows[int(rng.integers(len(self.archive.rows)))]
            kernel.update = self._factory(start, self._sigma * 10.0 ** rng.uniform(-2.0, -0.5))
            kernel.handed = 0

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        found: list[Array] = []
        while len(found) < count:
            kernel = self.kernels[self._turn]
            drawn = kernel.update.sample(rng, min(count - len(found), self.population))
            kernel.handed += len(drawn)
            self._drawn.update((point.tobytes(), self._turn) for point in drawn)
            found.extend(drawn)
            if kernel.handed >= kernel.update.population:
                kernel.handed = 0
                self._turn = (self._turn + 1) % len(self.kernels)
        return np.array(found)

    def tell(self, points: Array, values: Array) -> None:
        self._see(points, values)
        for point, numbers in zip(points, values, strict=True):
            number = self._drawn.pop(point.tobytes(), self._turn)
            kernel = self.kernels[number]
            kernel.points.append(point)
            kernel.values.append(numbers)
            if len(kernel.points) >= kernel.update.population:
                self._move(kernel)

    def _see(self, points: Array, values: Array) -> None:
        broken = violations(values, self._objectives)
        for point, numbers, excess in zip(points, values, broken, strict=True):
            if excess == 0.0:
                self.archive.see(point, numbers[: self._objectives])

    def _move(self, kernel: Kernel) -> None:
        """Tell a distribution what its generation is worth beside what the others hold."""
        points, values = np.array(kernel.points), np.array(kernel.values)
        kernel.points, kernel.values = [], []
        objectives = values[:, : self._objectives]
        broken = violations(values, self._objectives)
        seen = self.archive.values if len(self.archive.values) > 1 else objectives[np.isfinite(objectives).all(axis=1)]
        if not len(seen):
            if np.isfinite(broken).any():
                kernel.update.tell(points, broken)
            return
        held = [other.held for other in self.kernels if other is not kernel and other.held is not None]
        others = scaled(np.array(held).reshape(-1, self._objectives), seen)
        others, corner = others[nondominated(others)], np.full(self._objectives, CORNER)

        def cost(numbers: Array) -> float:
            return -improvement(scaled(numbers, seen), others, corner)

        costs = np.full(len(points), math.inf)
        for i in np.flatnonzero(np.isfinite(broken)):
            costs[i] = cost(objectives[i]) if broken[i] == 0.0 else BROKEN + broken[i]
        best = int(np.argmin(costs))
        if costs[best] < BROKEN and (kernel.held is None or costs[best] < cost(kernel.held)):
            kernel.held = objectives[best]
        if np.isfinite(costs).any():
            kernel.update.tell(points, costs)

    def average(self, values: Array) -> Array | float:
        return math.nan  # several objectives have no average

    @property
    def mean(self) -> Array:
        return self.kernels[self._turn].update.mean

    @property
    def spread(self) -> float:
        return float(np.median([kernel.update.spread for kernel in self.kernels]))
