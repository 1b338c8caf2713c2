"""Updates of probabilities of choices: Berny's, PBIL and UMDA are one formula, with different weights and steps.

In the mean parameters of an exponential family the natural gradient of a weighted average is ``<w (x - theta)>``, with
x the indicator of the choice. So every method here is, and then a margin keeps every choice possible,

    theta <- theta + eta g,    g = sum_k w_k (x_k - theta).                                                          (1)

In [IGO] it is the step of every exponential family. A step whose length adapts [A19] is measured by the Fisher matrix F
of one choice: F is diag(1 / theta) on the g that sum to zero, as these do, so that the step changes the distribution by
a divergence of about ``(eta |g|_F)^2 / 2``. With n free parameters, steps are of length delta = 1 / Delta, and Delta
grows as long as they agree less than independent ones would, whose path s has ``<|s|^2> = gamma``:

    |g|_F^2 = g'Fg = sum over all entries of g^2 / theta,    eta = delta / |g|_F                                     (2)
    beta = delta / n^(1/2)                                                                                           (3)
    s <- (1 - beta) s + sqrt(beta (2 - beta)) F^(1/2) g / |g|_F                                                      (4)
    gamma <- (1 - beta)^2 gamma + beta (2 - beta)                                                                    (5)
    Delta <- max(1, Delta exp(beta (gamma - |s|^2 / alpha))),    alpha = 1.5                                         (6)

The free energy ``<f> + <log p> / beta`` of a bound that cools has the score function of f itself, as <grad log p> = 0,
so that it is the same step with other values:

    f_k + log p(x_k | theta) / beta                                                                                  (7)

A19: Y. Akimoto et al., *Adaptive stochastic natural gradient method for one-shot neural architecture search*, 2019.
B94: S. Baluja, *Population-based incremental learning*, CMU-CS-94-163, 1994. Be00: A. Berny, *Selection and
reinforcement learning for combinatorial optimization*, PPSN 2000. IGO: Y. Ollivier, L. Arnold, A. Auger and N. Hansen,
*Information-geometric optimization algorithms*, JMLR 18(18), 2017. MP96: H. Muehlenbein and G. Paass, *From
recombination of genes to the estimation of distributions I*, PPSN 1996.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.families import OneHotCategorical
from varopt.solvers.natural_gradient._update import Array, FamilyUpdate
from varopt.solvers.natural_gradient._weights import log_weights, raw_weights, truncation_weights

__all__ = ["CategoricalUpdate", "adaptive", "berny", "free_energy", "growing_beta", "pbil", "umda"]


class CategoricalUpdate(FamilyUpdate):
    """An update of independent choices, column j among ``options[j]``; samples are indices.

    Parameters
    ----------
    options : integer array of shape (c,)
        Options of every column.
    population : int
        Samples of a generation.
    weights : array of shape (population,), optional
        By rank, the best first; without them samples are weighed by their values (`raw_weights`).
    rate : float, optional
        The step eta; without it the step adapts to how well successive steps agree, as in ASNG [A19].
    margin : float
        The least probability of any choice other than the one in front, times the number of these.
    beta : callable, optional
        From the number of samples told so far to beta: then the free energy ``<f> + <log p> / beta`` is descended.
    """

    def __init__(
        self, options: NDArray[np.intp], population: int, weights: Array | None, rate: float | None, margin: float,
        beta: Callable[[int], float] | None = None,
    ) -> None:  # fmt: skip
        self.population, self._weights, self._rate = population, weights, rate
        self.beta, self._told, self._unit = beta, 0, 1.0
        self._options = np.asarray(options)
        self._exists = np.arange(self._options.max()) < self._options[:, None]  # (c, K): rows padded with nothing
        margin = min(margin, 0.4)  # of one column alone: half would leave nothing to move between two options
        self._least = np.where(self._exists, margin / (self._options - 1.0)[:, None], 0.0)
        self.theta = self._exists / self._options[:, None]
        self._family: OneHotCategorical | None = None  # of these probabilities, once it is asked for
        # The state of the adaptive step.
        self._freedom = float((self._options - 1).sum())
        self._path, self._normalizer, self._slowness = np.zeros(self.theta.shape), 0.0, 1.0

    @property
    def family(self) -> OneHotCategorical:
        """The probabilities as a family; options that a column does not have are there with probability zero."""
        if self._family is None:
            self._family = OneHotCategorical.unchecked(self.theta)
        return self._family

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return np.asarray(self.family.choices(count, rng), dtype=np.float64)

    def tell(self, points: Array, values: Array) -> None:
        if self.beta is not None:
            values = self._with_entropy(points, values)
        order = np.argsort(values, kind="stable")[: self.population]
        weights = raw_weights(values[order]) if self._weights is None else self._weights[: len(order)]
        chosen = points[order][:, :, None] == np.arange(self.theta.shape[1])
        gradient = np.tensordot(weights, chosen, axes=1) - weights.sum() * self.theta  # (1)
        # (1) is the step of [Be00], [B94] or [MP96], by its weights and its eta.
        self.theta = self.theta + (self._adapted(gradient) if self._rate is None else self._rate) * gradient
        self._keep_possible()
        self._family = None

    def _with_entropy(self, points: Array, values: Array) -> Array:
        """The values of (7), whose average is the free energy."""
        if not self._told and self.beta is growing_beta:  # in units of how much the first values differ
            finite = values[np.isfinite(values)]
            self._unit = float(finite.std()) or 1.0 if finite.size else 1.0
        self._told += values.size
        beta = float(self.beta(self._told)) / self._unit  # type: ignore[misc]
        if not (math.isfinite(beta) and beta > 0.0):
            raise ValueError(f"beta must return a positive number; got {beta!r} after {self._told} evaluations.")
        chosen = np.take_along_axis(self.theta[None], points.astype(np.intp)[:, :, None], axis=2)[:, :, 0]
        return np.asarray(values + np.log(np.maximum(chosen, 1e-300)).sum(axis=1) / beta)  # (7)

    def _adapted(self, gradient: Array) -> float:
        """A step of constant length in the Fisher metric; shorter while successive steps disagree [A19]."""
        whitened = gradient / np.sqrt(np.maximum(self.theta, 1e-12))  # F^(1/2) g
        length = math.sqrt(float((whitened * whitened).sum()))  # |g|_F, (2)
        if length == 0.0:
            return 0.0
        delta = 1.0 / self._slowness
        beta = delta / math.sqrt(self._freedom)  # (3)
        self._path = (1.0 - beta) * self._path + math.sqrt(beta * (2.0 - beta)) * whitened / length  # (4)
        self._normalizer = (1.0 - beta) ** 2 * self._normalizer + beta * (2.0 - beta)  # (5)
        agreement = float((self._path * self._path).sum())  # |s|^2
        self._slowness = max(1.0, self._slowness * math.exp(beta * (self._normalizer - agreement / 1.5)))  # (6)
        return min(1.0, delta / length)  # eta, (2)

    def _keep_possible(self) -> None:
        """Raise what fell below the margin and take it from the rest, in proportion."""
        theta = np.maximum(self.theta, self._least)
        excess = theta - self._least
        room = 1.0 - self._least.sum(axis=1, keepdims=True)
        self.theta = self._least + excess * (room / excess.sum(axis=1, keepdims=True))

    @property
    def mean(self) -> Array:
        return np.asarray(self.theta.argmax(axis=1), dtype=np.float64)

    @property
    def spread(self) -> float:
        return float((1.0 - self.theta.max(axis=1)).max())


def adaptive(options: NDArray[np.intp], population: int, margin: float) -> CategoricalUpdate:
    """Log weights and an adaptive step: what goes beside a Gaussian in a mixed space."""
    return CategoricalUpdate(options, population, log_weights(population), None, margin)


def pbil(options: NDArray[np.intp], population: int | None = None, rate: float = 0.1) -> CategoricalUpdate:
    """Population-based incremental learning: a short step towards the few best [B94]."""
    population = population or 50
    return CategoricalUpdate(
        options, population, truncation_weights(population, max(1, population // 10)), rate, 1.0 / options.size
    )


def umda(options: NDArray[np.intp], population: int | None = None) -> CategoricalUpdate:
    """The univariate marginal distribution algorithm: all the way to the average of the better half [MP96]."""
    population = population or 10 * max(4, math.ceil(math.sqrt(options.size)))
    return CategoricalUpdate(
        options, population, truncation_weights(population, population // 2), 1.0, 1.0 / options.size
    )


def berny(options: NDArray[np.intp], population: int | None = None, rate: float = 0.3) -> CategoricalUpdate:
    """Berny's selection learning: the natural gradient of E(theta) itself, values as weights [Be00]."""
    return CategoricalUpdate(options, population or 20, None, rate, 1.0 / options.size)


def free_energy(
    options: NDArray[np.intp], population: int | None = None, rate: float = 0.3,
    beta: Callable[[int], float] | None = None,
) -> CategoricalUpdate:  # fmt: skip
    """Berny's update of the free energy ``<f> + <log p> / beta`` instead of E, while beta grows [SB12, eq. 46]."""
    return CategoricalUpdate(options, population or 20, None, rate, 0.1 / options.size, beta or growing_beta)


def growing_beta(evaluations: int) -> float:
    """The default of `free_energy`, in units of the spread of the first values: in proportion to the evaluations."""
    return 0.01 * max(evaluations, 1)
