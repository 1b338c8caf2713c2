"""What every sampled update is: a rule that moves a family p(x|theta) towards its better samples.

The distributions are those of `varopt.families`; what is here says how theta moves. Where a rule draws from no family,
as a local search does, it is an `Update` and no `FamilyUpdate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.families import Family, RootedGaussian

__all__ = ["AroundUpdate", "Array", "FamilyUpdate", "GaussianUpdate", "Root", "Update"]

Array = NDArray[np.float64]
Root = Callable[[Array], Array]
"""A linear map S of vectors z, of shape (..., size): ``root(z)`` is S z."""


class Update(ABC):
    """A rule that proposes vectors and moves towards the better ones.

    The state is a function of the start, of the samples it is told and of their values alone: there is no hidden
    random state, so that a run is reproduced by telling it the same things again.

    Attributes
    ----------
    population : int
        How many samples the next `tell` expects.
    epoch : int
        Counts fresh starts: samples of an earlier epoch say nothing about this one.
    learns_from_failures : bool
        Whether `tell` may be given values of which none is finite. Most move by the better of several samples, and are
        not told what failed as a whole; who proposes single points has to hear of each.
    """

    population: int
    epoch: int = 0
    learns_from_failures: bool = False

    def refresh(self, rng: np.random.Generator) -> None:  # noqa: B027 -- most are always ready
        """Get ready for the next generation; called before it is sampled. The place where a search starts anew."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Draw `count` points from the current distribution, of shape (count, size)."""

    @abstractmethod
    def tell(self, points: Array, values: Array) -> None:
        """Move the distribution, given points and what they cost (smaller is better, infinite where it failed)."""

    @property
    @abstractmethod
    def mean(self) -> Array:
        """The centre of the distribution."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """One number for how wide the distribution is; zero where it has become a point."""

    def average(self, values: Array) -> Array | float:
        """What estimates the average of f under the distribution: the values just told, if they are of fair samples."""
        return values

    def generation_of(self, values: Array) -> Array | None:
        """The evaluations of the generation that the last `tell` completed; ``None`` if it is still under way."""
        return values

    def exhausted(self) -> str:
        """Why nothing more is to be expected from going on, or an empty string."""
        return ""


class AroundUpdate(Update):
    """An update around another, and like it in all that it does not say otherwise."""

    inner: Update

    @property
    def population(self) -> int:  # type: ignore[override]
        """How many samples the next `tell` expects."""
        return self.inner.population

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """Counts fresh starts."""
        return self.inner.epoch

    @property
    def learns_from_failures(self) -> bool:  # type: ignore[override]
        """Whether it may be told what failed as a whole."""
        return self.inner.learns_from_failures

    def refresh(self, rng: np.random.Generator) -> None:
        self.inner.refresh(rng)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return self.inner.sample(rng, count)

    @property
    def mean(self) -> Array:
        return self.inner.mean

    @property
    def spread(self) -> float:
        return self.inner.spread

    def average(self, values: Array) -> Array | float:
        return self.inner.average(values)

    def generation_of(self, values: Array) -> Array | None:
        return self.inner.generation_of(values)

    def exhausted(self) -> str:
        return self.inner.exhausted()


class FamilyUpdate(Update):
    """An update of a family, from which it draws."""

    @property
    @abstractmethod
    def family(self) -> Family:
        """p(x|theta) as it is now: the next samples are drawn from it."""

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return self.family.sample(count, rng)


class GaussianUpdate(FamilyUpdate):
    """An update of a Gaussian: a root of its covariance, a deviation for each coordinate, and a mean to hold."""

    _mean: Array

    @property
    def mean(self) -> Array:
        return self._mean

    @property
    def family(self) -> RootedGaussian:
        return RootedGaussian(self._mean, self.root())

    @abstractmethod
    def root(self) -> Root:
        """S of x = mean + S z as it is now, z ~ N(0, I): it stays what it is when the update moves."""

    @property
    @abstractmethod
    def deviations(self) -> Array:
        """The standard deviation of every coordinate."""

    def hold(self, columns: NDArray[np.intp] | slice, farthest: float) -> None:
        """Keep the mean at most `farthest` deviations outside the unit interval in some coordinates."""
        held = self._mean[columns]
        if held.min() < 0.0 or held.max() > 1.0:
            beyond = farthest * self.deviations[columns]
            self._mean = self._mean.copy()
            self._mean[columns] = np.clip(held, -beyond, 1.0 + beyond)
