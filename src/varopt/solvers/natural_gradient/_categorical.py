"""Probabilities of choices: Berny's update, PBIL and UMDA are one formula, with different weights and steps.

In the mean parameters of an exponential family the natural gradient of a weighted average is ``<w (x - theta)>``, with
x the indicator of the choice. So every method here is ``theta += eta sum_i w_i (x_i - theta)``, and then a margin that
keeps every choice possible.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.natural_gradient._update import Array, Update
from varopt.solvers.natural_gradient._weights import log_weights, raw_weights, truncation_weights

__all__ = ["Categorical", "berny", "pbil", "umda"]


class Categorical(Update):
    """Independent choices, column j among ``options[j]``; samples are indices.

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
    """

    def __init__(
        self, options: NDArray[np.intp], population: int, weights: Array | None, rate: float | None, margin: float
    ) -> None:
        self.population, self._weights, self._rate = population, weights, rate
        self._options = np.asarray(options)
        self._exists = np.arange(self._options.max()) < self._options[:, None]  # (c, K): rows padded with nothing
        self._least = np.where(self._exists, margin / (self._options - 1.0)[:, None], 0.0)
        self.theta = self._exists / self._options[:, None]
        # The state of the adaptive step.
        self._freedom = float((self._options - 1).sum())
        self._path, self._normalizer, self._slowness = np.zeros(self.theta.shape), 0.0, 1.0

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        cumulative = self.theta.cumsum(axis=1)[:, :-1]
        drawn = rng.random((count, self._options.size))
        chosen = (drawn[:, :, None] >= cumulative).sum(axis=2)
        return np.asarray(np.minimum(chosen, self._options - 1), dtype=np.float64)

    def tell(self, points: Array, values: Array) -> None:
        order = np.argsort(values, kind="stable")[: self.population]
        weights = raw_weights(values[order]) if self._weights is None else self._weights[: len(order)]
        chosen = points[order][:, :, None] == np.arange(self.theta.shape[1])
        gradient = np.tensordot(weights, chosen, axes=1) - weights.sum() * self.theta  # natural: <w (x - theta)>
        self.theta = self.theta + (self._adapted(gradient) if self._rate is None else self._rate) * gradient
        self._keep_possible()

    def _adapted(self, gradient: Array) -> float:
        """A step of constant length in the Fisher metric; shorter while successive steps disagree [A19]."""
        whitened = gradient / np.sqrt(np.maximum(self.theta, 1e-12))  # sum over a row of g^2 / theta is its length
        length = math.sqrt(float((whitened * whitened).sum()))
        if length == 0.0:
            return 0.0
        delta = 1.0 / self._slowness
        beta = delta / math.sqrt(self._freedom)
        self._path = (1.0 - beta) * self._path + math.sqrt(beta * (2.0 - beta)) * whitened / length
        self._normalizer = (1.0 - beta) ** 2 * self._normalizer + beta * (2.0 - beta)
        agreement = float((self._path * self._path).sum())
        self._slowness = max(1.0, self._slowness * math.exp(beta * (self._normalizer - agreement / 1.5)))
        return min(1.0, delta / length)

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


def adaptive(options: NDArray[np.intp], population: int, margin: float) -> Categorical:
    """Log weights and an adaptive step: what goes beside a Gaussian in a mixed space."""
    return Categorical(options, population, log_weights(population), None, margin)


def pbil(options: NDArray[np.intp], population: int | None = None, rate: float = 0.1) -> Categorical:
    """Population-based incremental learning: a short step towards the few best [B94]."""
    population = population or 50
    return Categorical(
        options, population, truncation_weights(population, max(1, population // 10)), rate, 1.0 / options.size
    )


def umda(options: NDArray[np.intp], population: int | None = None) -> Categorical:
    """The univariate marginal distribution algorithm: all the way to the average of the better half [MP96]."""
    population = population or 10 * max(4, math.ceil(math.sqrt(options.size)))
    return Categorical(options, population, truncation_weights(population, population // 2), 1.0, 1.0 / options.size)


def berny(options: NDArray[np.intp], population: int | None = None, rate: float = 0.3) -> Categorical:
    """Berny's selection learning: the natural gradient of E(theta) itself, values as weights [Be00]."""
    return Categorical(options, population or 20, None, rate, 1.0 / options.size)
