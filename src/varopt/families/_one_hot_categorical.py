"""Independent choices, one-hot encoded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from varopt._domains import PROBABILITY, Domain, Seed, as_generator
from varopt.families._family import SMALLEST_UNIFORM, Builder, Elementary, FloatArray, as_sharpening

__all__ = ["OneHotCategorical"]

# Rows this far from summing to one are refused; single-precision rows pass.
_SUM_TOLERANCE = 1e-6


class OneHotCategorical(Elementary):
    """Independent choices among k categories each, x the one-hot blocks laid end to end.

    Parameters
    ----------
    probability : array of shape (n, k)
        Probability of each of k categories for each of n choices; a vector is one choice. Every row sums to one
        within 1e-6 and is divided by its sum.

    Notes
    -----
    Points have ``size = n * k`` coordinates, of which each block of k holds a single one.

    Probabilities move on the simplex. The score is the gradient of log(p_x / sum p), which is x / p - 1: it agrees
    with every derivative along the simplex and has mean zero. Its covariance, the Fisher matrix, is
    diag(1 / p) - 1 1^T in each block, singular along p. The natural gradient p (g - <p, g>) stays on the simplex and
    solves ``fisher() @ natural = g - <p, g>``.

    A category of probability zero has a score of -1 where it is not chosen (the limit); where it is chosen the score
    is refused with a ValueError. Its Fisher information is infinite and its natural gradient zero.

    Examples
    --------
    >>> from varopt.families import OneHotCategorical
    >>> p = OneHotCategorical([[0.5, 0.25, 0.25], [0.0, 0.2, 0.8]])
    >>> p.size, p.mode
    (6, array([1., 0., 0., 0., 0., 1.]))
    >>> p.sample(2, seed=0)
    array([[0., 1., 0., 0., 0., 1.],
           [1., 0., 0., 0., 1., 0.]])
    >>> float(p.log_density(p.mode))
    -0.916290731874155
    """

    domains: ClassVar[Mapping[str, Domain]] = MappingProxyType({"probability": PROBABILITY})
    expectation_affine: ClassVar[bool] = False
    has_score: ClassVar[bool] = True

    def __init__(self, probability: ArrayLike) -> None:
        p = np.array(self.domains["probability"].validate("probability", probability), dtype=np.float64)
        if p.ndim not in {1, 2}:
            raise ValueError(f"probability must have shape (n, k), or (k,) for one choice; got {p.shape}.")
        if p.size == 0:
            raise ValueError("probability must not be empty.")
        p = np.atleast_2d(p)
        total = p.sum(axis=1, keepdims=True)
        error = np.abs(total - 1.0)
        if error.max() > _SUM_TOLERANCE:
            row = int(error.argmax())
            raise ValueError(f"probability must have rows that sum to one; row {row} sums to {total[row, 0]:.9g}.")
        # Rows that sum to one up to rounding stay as they are, so that replace() and pickle change nothing.
        rounding = p.shape[1] * np.finfo(np.float64).eps
        self._declare(probability=np.where(error > rounding, p / total, p))

    @classmethod
    def unchecked(cls, probability: FloatArray) -> Self:
        """The family of rows that are known to be probabilities: of shape (n, k), summing to one up to rounding.

        For those who make one in every generation of a search, where checks would take longer than the samples.
        """
        family = cls.__new__(cls)
        family._declare(probability=np.array(probability))
        return family

    @property
    def probability(self) -> FloatArray:
        """Probability of each category, of shape (n, k)."""
        return self._arrays["probability"].view()

    @property
    def size(self) -> int:
        return self._arrays["probability"].size

    @property
    def noise_size(self) -> int:
        """One uniform for each choice."""
        return len(self._arrays["probability"])

    @property
    def mean(self) -> FloatArray:
        return self.probability.reshape(-1)

    @property
    def variance(self) -> FloatArray:
        p = self.mean
        return p * (1.0 - p)

    @property
    def covariance(self) -> FloatArray:
        """Covariance diag(p) - p p^T of each block, of shape (n, k, k); different blocks are uncorrelated."""
        p = self._arrays["probability"]
        own = np.eye(p.shape[1], dtype=bool)
        return np.where(own, (p * (1.0 - p))[:, :, None], -p[:, :, None] * p[:, None, :])

    @property
    def mode(self) -> FloatArray:
        """The most probable category of each choice; the first of several."""
        return self._one_hot(self._arrays["probability"].argmax(axis=1))

    def entropy(self) -> float:
        return float(entr(self._arrays["probability"]).sum())

    @np.errstate(over="ignore", divide="ignore")
    def sharpen(self, factor: float) -> Self:
        """Raise the probabilities to the power 1 / `factor` and renormalise: a temperature in (0, 1].

        The total variance of each choice falls; that of a category on its way past one half may rise.
        """
        p = self._arrays["probability"]
        # Relative to the largest, so that it survives whatever the power.
        power = np.exp(np.log(p / p.max(axis=1, keepdims=True)) / as_sharpening(factor))
        return self.replace(probability=power / power.sum(axis=1, keepdims=True))

    def choices(self, n: int, seed: Seed = None) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        """Draw `n` points as the categories chosen, of shape (n, number of choices): `sample` before its encoding."""
        # Zero, once in 2^53 draws, would fall below a category of probability zero at the lower end.
        return self._chosen(np.maximum(as_generator(seed).random((n, self.noise_size)), SMALLEST_UNIFORM))

    def from_uniform(self, u: ArrayLike) -> FloatArray:
        return self._one_hot(self._chosen(self._uniforms(u)))

    def _chosen(self, u: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        return np.asarray((u[..., None] > self._edges).sum(axis=-1))

    @cached_property
    def _edges(self) -> FloatArray:
        """Where one category ends and the next begins, of shape (n, k - 1)."""
        cumulative = np.cumsum(self._arrays["probability"], axis=1)
        # Divided by its end, the sum is exactly one from the last possible category on: none of probability zero,
        # at either end or between, is ever drawn.
        return np.asarray(cumulative[:, :-1] / cumulative[:, -1:])

    def log_density(self, x: ArrayLike) -> FloatArray:
        blocks = self._blocks(x)
        with np.errstate(divide="ignore"):
            logs = np.log(self._arrays["probability"])
        chosen = np.where(blocks == 1.0, logs, 0.0).sum(axis=(-2, -1))
        return np.where(_is_one_hot(blocks), chosen, -np.inf)

    def score(self, x: ArrayLike) -> dict[str, FloatArray]:
        blocks = self._blocks(x)
        p = self._arrays["probability"]
        if not (_is_one_hot(blocks).all() and np.all((blocks == 0.0) | (p > 0.0))):
            raise ValueError("x has probability zero under OneHotCategorical, so its score does not exist.")
        with np.errstate(divide="ignore", over="ignore"):
            return {"probability": np.where(blocks == 1.0, 1.0 / p, 0.0) - 1.0}

    def fisher(self) -> dict[str, FloatArray]:
        p = self._arrays["probability"]
        n, k = p.shape
        with np.errstate(divide="ignore", over="ignore"):
            precision = np.diag(1.0 / p.reshape(-1))
        return {"probability": precision - np.kron(np.eye(n), np.ones((k, k)))}

    def natural_gradient(self, gradient: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
        p = self._arrays["probability"]
        return {name: p * (g - (p * g).sum(axis=-1, keepdims=True)) for name, g in self._gradients(gradient).items()}

    def _blocks(self, x: ArrayLike) -> FloatArray:
        points = self._points(x)
        return points.reshape(*points.shape[:-1], *self._arrays["probability"].shape)

    def _one_hot(self, choices: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> FloatArray:
        k = self._arrays["probability"].shape[1]
        hot = np.equal(choices[..., None], np.arange(k)).reshape(*choices.shape[:-1], self.size)
        return np.asarray(hot, dtype=np.float64)

    @classmethod
    def examples(cls) -> dict[str, Builder]:
        def build(n: int, rng: np.random.Generator) -> OneHotCategorical:
            weights = rng.uniform(*PROBABILITY.typical, (n, 3))
            return cls(weights / weights.sum(axis=1, keepdims=True))

        return {"categorical": build}


def _is_one_hot(blocks: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    bits = ((blocks == 0.0) | (blocks == 1.0)).all(axis=(-2, -1))
    return np.asarray(bits & (blocks.sum(axis=-1) == 1.0).all(axis=-1))
