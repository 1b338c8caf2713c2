r"""Descent in the probabilities themselves: the analytic bound by gradients, the sampled bound by its special cases.

For independent sites the bound is the energy at the probabilities, E(p), and its gradient is the field. In the mean
parameters p the natural gradient is p (1 - p) g of a bit and p (g - <p, g>) of a choice. Estimated from samples x_k
with values f_k it is <w(f) (x - p)>, whatever f is, and

    p  <-  p + rate * sum_k w_k (x_k - p)

is, with the weights w that go with it, each of the classics below [SB12, IGO].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete._free_energy import Geometric, anneal, typical_field
from varopt.solvers.discrete._population import Found
from varopt.solvers.discrete._sweeps import Sweeper

__all__ = [
    "PBIL",
    "UMDA",
    "Berny",
    "Distribution",
    "MeanField",
    "NaturalGradient",
    "ProjectedGradient",
    "SampledNaturalGradient",
]

Vector = NDArray[np.float64]

_REPLICAS = 16
_STEPS = 300
_SURE = 1e-3  # distance from 0 and 1 at which probabilities are kept, so that no value is lost for good


class Distribution(ABC):
    """A search in which the distribution is what moves; every epoch starts afresh with twice the steps.

    Whatever the probabilities are, they are rounded site by site, which never makes a replica worse than its bound.
    """

    name: ClassVar[str]

    def search(
        self, energy: Energy, rng: np.random.Generator, start: Vector | None = None,
        expired: Callable[[], bool] = lambda: False,
    ) -> Iterator[Found]:  # fmt: skip
        """Points from the distributions of every epoch, rounded and descended."""
        sweeper = Sweeper(energy, _REPLICAS, rng, np.float64)
        middle = 1.0 / np.maximum(2, np.bincount(energy.site))[energy.site]
        epoch, total = 0, 0
        while True:
            p = np.repeat(
                (0.5 * (start + middle) if start is not None and epoch == 0 else middle)[:, None], _REPLICAS, 1
            )
            p = _feasible(energy, p + 0.05 * rng.standard_normal(p.shape))
            steps = _STEPS * 2**epoch
            p = self.descend(energy, p, steps, rng, expired)
            total += steps
            state = sweeper.state(p)
            sweeper.descend(state)
            x = sweeper.points(state).astype(np.float64)
            value = energy.value(x)
            k = int(value.argmin())
            yield Found(x[:, k].copy(), float(value[k]), epoch, total)
            epoch += 1

    @abstractmethod
    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Probabilities of shape (size, replicas), improved."""


# -- The analytic bound -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanField(Distribution):
    """Free-energy annealing with the analytic bound: every independent set to its minimiser given the others [FEM]."""

    name: ClassVar[str] = "mean-field"

    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Anneal the probabilities."""
        sweeper = Sweeper(energy, p.shape[1], rng, np.float64)
        state = sweeper.state(p)
        anneal(sweeper, state, Geometric(1.0, 0.05), steps, typical_field(energy, rng), analytic=True, expired=expired)
        return sweeper.points(state).astype(np.float64)


@dataclass(frozen=True)
class ProjectedGradient(Distribution):
    """Gradient steps on E(p), projected onto the probabilities; the step is the inverse of the largest eigenvalue.

    With it no step overshoots: dense problems of one sign, on which a fixed step oscillates, descend too.
    """

    name: ClassVar[str] = "projected-gradient"

    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Move along the projected gradient."""
        step = 1.0 / _largest_curvature(energy, rng)
        for _ in range(steps):
            if expired():
                break
            moved = _projected(energy, p - step * energy.gradient(p))
            if np.array_equal(moved, p):
                break
            p = moved
        return p


@dataclass(frozen=True)
class NaturalGradient(Distribution):
    """Natural gradient steps on E(p): multiplicative weights, which stay inside; the step is as above."""

    name: ClassVar[str] = "natural-gradient"

    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Move along the natural gradient, in the natural parameters."""
        step = 1.0 / _largest_curvature(energy, rng)
        single = (np.bincount(energy.site) == 1)[energy.site][:, None]
        for _ in range(steps):
            if expired():
                break
            g = energy.gradient(p)
            # d log p = -step (g - <p, g>): of a bit, d logit p = -step g.
            g = g - _site_sums(energy, p * g)[energy.site] if not energy.is_binary else g
            power = p * np.exp(np.clip(-step * g, -30.0, 30.0))
            p = np.where(single, power / (power + 1.0 - p), power)
            p = _feasible(energy, p)
        return p


def _largest_curvature(energy: Energy, rng: np.random.Generator) -> float:
    """An upper bound on the norm of the matrix of second derivatives over the cube: by rows, as Gershgorin's."""
    rows = np.asarray(abs(energy.quadratic).sum(axis=1)).ravel()
    for products in energy.products:
        kind, coordinate = products.split(energy.size)
        slopes = np.where(kind == 2, 2.0, 1.0)
        for i in range(products.degree):
            others = slopes.sum(axis=1) - slopes[:, i]
            weights = np.abs(products.weights) * slopes[:, i] * others
            rows = rows + np.bincount(coordinate[:, i], weights=weights, minlength=energy.size)
    return float(rows.max(initial=0.0)) or 1.0


# -- The sampled bound ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sampled(Distribution):
    """``p + rate * sum_k w_k (x_k - p)`` with weights from the values of the samples."""

    rate: float = 0.05
    samples: int = 40

    def weights(self, values: Vector) -> Vector:
        """Weights of samples with values of shape (samples, replicas); they sum to one, or to zero with a baseline."""
        raise NotImplementedError

    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Sample, weigh, move."""
        size, replicas = p.shape
        for _ in range(steps):
            if expired():
                break
            x = _samples(energy, np.repeat(p, self.samples, axis=1), rng)
            values = energy.value(x).reshape(replicas, self.samples).T
            w = self.weights(values)
            moved = np.einsum("irk,kr->ir", x.reshape(size, replicas, self.samples), w)
            p = _feasible(energy, p + self.rate * (moved - w.sum(axis=0) * p))
        return p


@dataclass(frozen=True)
class Berny(_Sampled):
    """Plain score-function gradient with the mean as baseline: ``w_k`` proportional to ``mean(f) - f_k`` [Berny00]."""

    name: ClassVar[str] = "berny"
    rate: float = 0.2

    def weights(self, values: Vector) -> Vector:
        """Advantages in units of their spread."""
        spread = values.std(axis=0)
        return np.asarray((values.mean(axis=0) - values) / (np.where(spread > 0.0, spread, 1.0) * len(values)))


@dataclass(frozen=True)
class SampledNaturalGradient(_Sampled):
    """Natural gradient of the expected rank: centred weights by rank, blind to the scale of f [NES, IGO]."""

    name: ClassVar[str] = "sampled-natural-gradient"
    rate: float = 0.2

    def weights(self, values: Vector) -> Vector:
        """Linear in the rank, from best to worst, summing to zero."""
        ranks = values.argsort(axis=0).argsort(axis=0)
        return np.asarray((1.0 - 2.0 * ranks / (len(values) - 1)) / len(values))


@dataclass(frozen=True)
class PBIL(_Sampled):
    """Population-based incremental learning: weights on the best samples, a learning rate below one [PBIL]."""

    name: ClassVar[str] = "pbil"
    share: float = 0.1

    def weights(self, values: Vector) -> Vector:
        """Equal weights on the best share."""
        best = max(1, round(self.share * len(values)))
        return np.asarray((values.argsort(axis=0).argsort(axis=0) < best) / best)


@dataclass(frozen=True)
class UMDA(PBIL):
    """Univariate marginal distribution algorithm: the best samples' own frequencies, that is rate one [UMDA]."""

    name: ClassVar[str] = "umda"
    rate: float = 1.0
    samples: int = 100
    share: float = 0.5


# -- Probabilities ----------------------------------------------------------------------------------------------------


def _site_sums(energy: Energy, columns: Vector) -> Vector:
    starts = np.flatnonzero(np.r_[True, energy.site[1:] != energy.site[:-1]])
    return np.asarray(np.add.reduceat(columns, starts, axis=0))


def _feasible(energy: Energy, p: Vector) -> Vector:
    """Away from the ends, and choices normalised."""
    p = np.clip(p, _SURE, 1.0 - _SURE)
    if energy.is_binary:
        return p
    single = (np.bincount(energy.site) == 1)[energy.site][:, None]
    return np.where(single, p, p / _site_sums(energy, p)[energy.site])


def _projected(energy: Energy, p: Vector) -> Vector:
    """The nearest probabilities: bits clipped, choices projected onto their simplex."""
    result = np.clip(p, 0.0, 1.0)
    widths = np.bincount(energy.site)
    for width in np.unique(widths[widths > 1]).tolist():
        at = np.flatnonzero((widths == width)[energy.site])
        y = p[at].reshape(-1, width, p.shape[1])
        descending = -np.sort(-y, axis=1)
        excess = (np.cumsum(descending, axis=1) - 1.0) / np.arange(1, width + 1)[None, :, None]
        last = (descending > excess).sum(axis=1, keepdims=True) - 1
        result[at] = np.maximum(y - np.take_along_axis(excess, last, axis=1), 0.0).reshape(at.size, -1)
    return result


def _samples(energy: Energy, p: Vector, rng: np.random.Generator) -> Vector:
    """One sample of each column."""
    x = np.asarray(rng.random(p.shape) < p, dtype=np.float64)
    widths = np.bincount(energy.site)
    for width in np.unique(widths[widths > 1]).tolist():
        at = np.flatnonzero((widths == width)[energy.site])
        with np.errstate(divide="ignore"):
            noisy = np.log(p[at]) + rng.gumbel(size=(at.size, p.shape[1]))
        chosen = noisy.reshape(-1, width, p.shape[1]).argmax(axis=1)
        x[at] = (chosen[:, None, :] == np.arange(width)[None, :, None]).reshape(at.size, -1)
    return x
