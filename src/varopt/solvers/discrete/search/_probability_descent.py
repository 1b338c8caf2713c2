r"""Descent in the probabilities themselves: the analytic bound by gradients, the sampled bound by its special cases.

For independent sites the bound is the energy at the probabilities, E(p), and its gradient g is the field. Steps are of
the inverse of L, a bound of the norm of the second derivatives; P takes to the nearest probabilities:

    p  <-  P(p - g / L)                                                                                              (1)

In the mean parameters p the natural gradient is p (1 - p) g of a bit and p (g - <p, g>) of a choice, a step in the
natural parameters: multiplicative weights, which stay inside.

    logit p  <-  logit p - g / L  of a bit,    log p  <-  log p - (g - <p, g>) / L  of a choice                      (2)

Estimated from samples x_k with values f_k the natural gradient is <w(f) (x - p)>, whatever f is, and

    p  <-  p + rate * sum_k w_k (x_k - p)                                                                            (3)

is, with the weights w that go with it, one of the classics: Berny's update, PBIL, UMDA [SB12, IGO]. A rate that adapts
to how well successive steps agree [A19] is written out in `varopt.solvers.natural_gradient._categorical`.

The analytic descents move a batch of replicas: arrays of shape (size, replicas) whose columns are the means of as many
products of `varopt.families`, `Bernoulli` for bits and `OneHotCategorical` for choices. The sampled ones draw from
these families themselves, by the updates of `varopt.solvers.natural_gradient`.

A19: Y. Akimoto et al., *Adaptive stochastic natural gradient method for one-shot neural architecture search*, 2019.
FEM: Z.-S. Shen et al., *Free-energy machine for combinatorial optimization*, Nature Computational Science 5, 2025. IGO:
Y. Ollivier et al., *Information-geometric optimization algorithms*, JMLR 18(18), 2017. SB12: J. Staines and D. Barber,
*Variational Optimization*, arXiv:1212.4507, 2012.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import LITERAL_DERIVATIVE, Energy
from varopt.solvers.discrete._matrices import row_sizes
from varopt.solvers.discrete.search._annealing import GeometricTemperature, anneal, temperatures_of, typical_field
from varopt.solvers.discrete.search._population import Found
from varopt.solvers.discrete.search._sweeps import Sweeper
from varopt.solvers.natural_gradient import CategoricalUpdate, adaptive, berny, pbil, umda

__all__ = [
    "DESCENTS",
    "MeanFieldDescent",
    "NaturalGradientDescent",
    "ProbabilityDescent",
    "ProjectedGradientDescent",
    "SampledDescent",
]

Vector = NDArray[np.float64]

_DESCENT_REPLICAS = 16
_SAMPLED_FAMILIES = 4
_DESCENT_STEPS = 150  # of the first epoch
_MEAN_FIELD = GeometricTemperature(
    1.0, 0.05
)  # from where all probabilities are near one half to where they have settled
_OFF_CERTAIN = 1e-3  # distance from 0 and 1 at which probabilities are kept, so that no value is lost for good


class ProbabilityDescent(ABC):
    """A search that moves probabilities, of a batch of replicas; every epoch starts afresh with twice the steps.

    Whatever the probabilities are, they are rounded site by site, which never makes a replica worse than its bound.
    """

    name: ClassVar[str]

    def search(
        self, energy: Energy, rng: np.random.Generator, start: Vector | None = None,
        expired: Callable[[], bool] = lambda: False, left: Callable[[], float] = lambda: math.inf,
    ) -> Iterator[Found]:  # fmt: skip
        """Points from the distributions of every epoch, rounded and descended."""
        sweeper = Sweeper(energy, _DESCENT_REPLICAS, rng, np.float64)
        middle = 1.0 / np.maximum(2, np.bincount(energy.site))[energy.site]
        epoch, total = 0, 0
        while True:
            p = np.repeat(
                (0.5 * (start + middle) if start is not None and epoch == 0 else middle)[:, None], _DESCENT_REPLICAS, 1
            )
            p = _feasible(energy, p + 0.05 * rng.standard_normal(p.shape))
            steps = _DESCENT_STEPS * 2**epoch
            p = self.descend(energy, p, steps, rng, expired)
            total += steps
            state = sweeper.state(p)
            sweeper.descend(state, expired=expired)
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
class MeanFieldDescent(ProbabilityDescent):
    """Free-energy annealing with the analytic bound: every independent set to its minimiser given the others [FEM]."""

    beta: Callable[[float], float] | None = None  # of progress in [0, 1]; the temperatures that are set here without

    name: ClassVar[str] = "mean-field"

    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Anneal the probabilities."""
        sweeper = Sweeper(energy, p.shape[1], rng, np.float64)
        state = sweeper.state(p)
        unit = typical_field(energy, rng)
        schedule = _MEAN_FIELD if self.beta is None else temperatures_of(self.beta, unit)
        anneal(sweeper, state, schedule, steps, unit, analytic=True, expired=expired)
        return sweeper.points(state).astype(np.float64)


@dataclass(frozen=True)
class ProjectedGradientDescent(ProbabilityDescent):
    """Gradient steps on E(p), projected onto the probabilities; the step is the inverse of the largest eigenvalue.

    With it no step overshoots: dense problems of one sign, on which a fixed step oscillates, descend too.
    """

    name: ClassVar[str] = "projected-gradient"

    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Move along the projected gradient."""
        step = 1.0 / _largest_curvature(energy)
        for _ in range(steps):
            if expired():
                break
            moved = _projected(energy, p - step * energy.gradient(p))  # (1)
            if np.array_equal(moved, p):
                break
            p = moved
        return p


@dataclass(frozen=True)
class NaturalGradientDescent(ProbabilityDescent):
    """Natural gradient steps on E(p): multiplicative weights, which stay inside; the step is as above."""

    name: ClassVar[str] = "natural-gradient"

    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Move along the natural gradient, in the natural parameters."""
        step = 1.0 / _largest_curvature(energy)
        single = (np.bincount(energy.site) == 1)[energy.site][:, None]
        for _ in range(steps):
            if expired():
                break
            g = energy.gradient(p)
            # (2)
            g = g - _site_sums(energy, p * g)[energy.site] if not energy.is_binary else g
            power = p * np.exp(np.clip(-step * g, -30.0, 30.0))
            p = np.where(single, power / (power + 1.0 - p), power)
            p = _feasible(energy, p)
        return p


def _largest_curvature(energy: Energy) -> float:
    """An upper bound on the norm of the matrix of second derivatives over the cube: by rows, as Gershgorin's."""
    rows = row_sizes(energy.quadratic)
    for products in energy.products:
        kind, coordinate = products.split(energy.size)
        derivatives = np.abs(LITERAL_DERIVATIVE)[kind]
        for i in range(products.degree):
            others = derivatives.sum(axis=1) - derivatives[:, i]
            weights = np.abs(products.weights) * derivatives[:, i] * others
            rows = rows + np.bincount(coordinate[:, i], weights=weights, minlength=energy.size)
    return float(rows.max(initial=0.0)) or 1.0


# -- The sampled bound ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledDescent(ProbabilityDescent):
    """Samples of the sites, weighed by their energies: one of the updates in `varopt.solvers.natural_gradient`.

    Parameters
    ----------
    name : str
        What it is called.
    update : callable
        From the number of states of each site to the distribution: ``berny``, ``pbil``, ``umda``, or an adaptive one.
    """

    name: str  # type: ignore[misc]  # of each instance
    update: Callable[[NDArray[np.intp]], CategoricalUpdate]

    def descend(
        self, energy: Energy, p: Vector, steps: int, rng: np.random.Generator, expired: Callable[[], bool]
    ) -> Vector:
        """Sample, weigh, move; every replica has its own distribution, which starts uniform."""
        widths = np.bincount(energy.site)
        starts = np.cumsum(widths) - widths
        category = np.arange(energy.size) - starts[energy.site] + (widths[energy.site] == 1)  # of a bit, its value one
        models = [self.update(np.where(widths == 1, 2, widths)) for _ in range(_SAMPLED_FAMILIES)]
        for _ in range(steps):
            if expired():
                break
            for model in models:
                chosen = model.sample(rng, model.population)
                x = (chosen[:, energy.site] == category).astype(np.float64)
                model.tell(chosen, energy.value(x.T))  # (3)
        thetas = [model.theta[energy.site, category] for model in models]
        return np.repeat(np.stack(thetas, axis=1), -(-p.shape[1] // _SAMPLED_FAMILIES), axis=1)[:, : p.shape[1]]


def _adaptive(options: NDArray[np.intp]) -> CategoricalUpdate:
    """Natural gradient of the expected rank, with a step that adapts to how well successive steps agree [A19]."""
    return adaptive(options, 4 + int(3.0 * np.log(options.size + 1.0)), 1.0 / options.size)


DESCENTS: tuple[ProbabilityDescent, ...] = (
    MeanFieldDescent(),
    ProjectedGradientDescent(),
    NaturalGradientDescent(),
    SampledDescent("sampled-natural-gradient", _adaptive),
    SampledDescent("berny", berny),
    SampledDescent("pbil", pbil),
    SampledDescent("umda", umda),
)
"""All of them, the analytic ones first."""


# -- Probabilities ----------------------------------------------------------------------------------------------------


def _site_sums(energy: Energy, columns: Vector) -> Vector:
    starts = np.flatnonzero(np.r_[True, energy.site[1:] != energy.site[:-1]])
    return np.asarray(np.add.reduceat(columns, starts, axis=0))


def _feasible(energy: Energy, p: Vector) -> Vector:
    """Away from the ends, and choices normalised."""
    p = np.clip(p, _OFF_CERTAIN, 1.0 - _OFF_CERTAIN)
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
