"""Restarts with two regimes of population size: BIPOP [Ha09].

With lambda_0 and sigma_0 the first population and spread, i doublings so far, and U, V uniform on [0, 1],

    lambda_large = 2^i lambda_0,    sigma_large = sigma_0                                                            (1)
    lambda_small = lambda_0 (lambda_large / (2 lambda_0))^(U^2),    sigma_small = sigma_0 10^(-2 V),                 (2)

where a small run may use half of what the latest large one did.

Ha09: N. Hansen, *Benchmarking a BI-population CMA-ES on the BBOB-2009 function testbed*, GECCO 2009 companion; it has
the two regimes. What ends a run besides (plateaus, hopeless ones), keeps the best from its end, or goes back to it, and
the scouts that say where small runs begin, are ours.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np

from varopt.solvers.natural_gradient._update import Array, Update

__all__ = ["Restarts"]

MOST_DOUBLINGS = 9  # of the population; beyond, a generation is longer than most budgets
WORTH_IT = 0.01  # of what a run gained: by so much a point must be better than where the run ended to go back to it
NARROWER = 0.1  # how a run begins that goes back to the best point: of the deviation with which it was found
BARREN = 2  # generations without a single value, after which a run begins elsewhere
SCOUTS = 10  # points for each coordinate, at the best of which a small run begins: far fewer than the run has

Factory = Callable[[Array, float, int], Update]


class Scouts(Update):
    """Points all over the unit box, less a margin at every side, of which the best is kept.

    Parameters
    ----------
    size : int
        Coordinates.
    margin : float
        What is left out at every side.
    """

    learns_from_failures = True

    def __init__(self, size: int, margin: float) -> None:
        self._size, self._margin = size, margin
        self.population = SCOUTS * size
        self.best, self.best_point = math.inf, np.full(size, 0.5)
        self.told = 0

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return np.asarray(self._margin + (1.0 - 2.0 * self._margin) * rng.random((count, self._size)))

    def tell(self, points: Array, values: Array) -> None:
        self.told += values.size
        if (lowest := float(values.min())) < self.best:
            self.best, self.best_point = lowest, np.clip(points[values.argmin()], 0.0, 1.0)

    def generation_of(self, values: Array) -> None:
        return None

    @property
    def mean(self) -> Array:
        return np.full(self._size, 0.5)

    @property
    def spread(self) -> float:
        return (1.0 - 2.0 * self._margin) / math.sqrt(12.0)  # the deviation of a uniform distribution


class Restarts(Update):
    """A local update, begun anew somewhere else whenever it has nothing more to give.

    One regime doubles the population with every restart and sees the coarse structure; the other keeps it small, with
    a narrower start, and searches many places. The one that has used fewer evaluations goes next. Where a value tells
    how good a place is (`exact`), a small run begins at the best of some points, and so more often in a deep basin.

    Parameters
    ----------
    factory : callable
        From a mean, a sigma and a population to an update.
    mean : array of shape (d,)
        The first start; later ones are uniform in the unit box, less a tenth at every side unless
        there are integers or choices [Ha09].
    sigma : float
        The first standard deviation.
    population : int
        The first population.
    discrete : bool
        Whether plateaus are to be expected (integers, choices). Otherwise a run ends as soon as the better quarter of
        two generations in turn agree in their values.
    exact : bool
        Whether values are those of a function of reals, without noise, so that the best is no lucky one: small runs
        begin at the best of some scouts, and one that left the best point for a worse optimum is followed by one that
        goes back there.
    """

    learns_from_failures = True

    def __init__(
        self,
        factory: Factory,
        mean: Array,
        sigma: float,
        population: int,
        *,
        discrete: bool = False,
        exact: bool = False,
    ) -> None:
        self._flat_for = 30 if discrete else 2
        self._margin = 0.0 if discrete else 0.1
        self._factory, self._sigma, self._first_population = factory, sigma, population
        self._size = mean.size
        self._exact = exact
        self._best, self._best_point, self._best_spread = math.inf, mean, sigma
        self._doublings = 0
        self._small_regime = False
        self._used = {False: 0, True: 0}
        self._large_budget = 0
        self._begin(mean, sigma, population, math.inf)

    def _begin(self, mean: Array, sigma: float, population: int, budget: float) -> None:
        self.current = self._factory(mean, sigma, population)
        self._prepare(population, budget)

    def _prepare(self, generation: int, budget: float) -> None:
        self._generation = generation
        self.epoch += 1
        self._budget, self._run_used = budget, 0
        self._run_best, self._run_worst = math.inf, -math.inf  # the latter of the best of generations
        self._ended = ""
        self._recent: deque[float] = deque(maxlen=10 + math.ceil(30 * self._size / generation))
        self._flat = 0

    def refresh(self, rng: np.random.Generator) -> None:
        if isinstance(self.current, Scouts):
            if math.isfinite(self.current.best):
                self._follow(self.current)
            return
        if not self._ended:
            return
        self._used[self._small_regime] += self._run_used
        if not self._small_regime:
            self._large_budget = max(self._large_budget if self._exact else 0, self._run_used)
        if self._left_the_best():
            self._small_regime = True
            start = np.clip(self._best_point, 0.0, 1.0)
            self._begin(start, NARROWER * self._best_spread, self._first_population, math.inf)
            return
        self._small_regime = self.epoch > 1 and self._used[True] < self._used[False]
        mean = self._margin + (1.0 - 2.0 * self._margin) * rng.random(self._size)
        if self._small_regime:
            u = rng.random()
            ratio = 0.5 * 2.0**self._doublings
            population = int(self._first_population * max(1.0, ratio) ** (u * u))  # (2)
            sigma, budget = self._sigma * 10.0 ** (-2.0 * rng.random()), self._large_budget / 2  # (2)
            if self._exact:
                self._scout(sigma, population, budget)
            else:
                self._begin(mean, sigma, population, budget)
        else:
            self._doublings = min(self._doublings + 1, MOST_DOUBLINGS)
            self._begin(mean, self._sigma, self._first_population * 2**self._doublings, math.inf)  # (1)

    def _scout(self, sigma: float, population: int, budget: float) -> None:
        """Look around before a run begins."""
        self.current = scouts = Scouts(self._size, self._margin)
        self._next = (sigma, population, budget)
        self._prepare(scouts.population, math.inf)

    def _follow(self, scouts: Scouts) -> None:
        """Begin a run at the best of the scouts, which count as part of it."""
        self._begin(scouts.best_point, *self._next)
        self._run_used, self._run_best = scouts.told, scouts.best

    def _left_the_best(self) -> bool:
        """Whether the run had the best point of all, and is where values are far worse."""
        if not self._exact or self._run_best > self._best or not self._recent:
            return False
        newest, oldest = min(self._recent), max(self._recent)
        return newest - self._best > max(oldest - newest, WORTH_IT * (self._run_worst - newest))

    @property
    def population(self) -> int:  # type: ignore[override]
        """How many samples the next `tell` expects."""
        return self.current.population

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return self.current.sample(rng, count)

    def tell(self, points: Array, values: Array) -> None:
        lowest = self._see(points, values)
        told = math.isfinite(lowest) or self.current.learns_from_failures
        if told:
            self.current.tell(points, values)
        self._run_used += values.size
        if not math.isfinite(self._run_best) and self._run_used >= BARREN * self._generation:
            self._ended = "all fails where it began"
        generation = self.current.generation_of(values) if told else None
        if generation is None:
            return
        if generation is not values:
            lowest = float(generation.min())
        self._recent.append(lowest)
        self._run_worst = max(self._run_worst, lowest)
        many = 2 * generation.size >= self._generation  # enough of it was evaluated to tell a plateau
        flat = many and np.count_nonzero(generation == lowest) > max(1, generation.size // 4)
        self._flat = self._flat + 1 if flat else 0
        self._ended = self._why_end()

    def _see(self, points: Array, values: Array) -> float:
        """Remember the best, and with which deviation it was found; the lowest of these values."""
        where = values.argmin()
        lowest = float(values[where])
        if lowest < self._best:
            self._best, self._best_point = lowest, points[where].copy()
            self._best_spread = self._next[0] if isinstance(self.current, Scouts) else self.current.spread
        self._run_best = min(self._run_best, lowest)
        return lowest

    def _why_end(self) -> str:
        if self._run_used >= self._budget and self._run_best > self._best:  # what has the best value goes on
            return "its share of the budget is spent"
        if self._flat >= self._flat_for:
            return "it stands on a plateau"
        if len(self._recent) == self._recent.maxlen:
            newest, oldest = min(self._recent), max(self._recent)
            if oldest - newest <= 1e-12 * max(1.0, abs(newest)) or not math.isfinite(newest):
                return "the best of a generation no longer changes"
            # What the last generations brought would have to be repeated many times over to reach the best value:
            # this run is on its way to a worse optimum.
            reached = newest if self._left_the_best() else self._run_best
            if oldest - newest < 1e-3 * (reached - self._best):
                return "it converges to a worse value than the best"
        if self.current.spread < 1e-13:
            return "the distribution has become a point"
        return self.current.exhausted()

    @property
    def mean(self) -> Array:
        return self.current.mean

    @property
    def spread(self) -> float:
        return self.current.spread

    def average(self, values: Array) -> Array | float:
        return self.current.average(values)

    def exhausted(self) -> str:
        return ""
