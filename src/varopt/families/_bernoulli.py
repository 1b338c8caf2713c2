"""Independent bits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, xlog1py, xlogy

from varopt._domains import PROBABILITY, Domain
from varopt.families._family import Builder, Elementary, FloatArray, as_sharpening, as_vector

__all__ = ["Bernoulli"]


class Bernoulli(Elementary):
    """Independent bits x in {0, 1}^size that are one with the given probabilities.

    Parameters
    ----------
    probability : float or array of shape (size,)
        Probability that each bit is one, in [0, 1], ends included; a number is a vector of one.

    Notes
    -----
    The mean parameters of this exponential family are `probability` itself, so the natural gradient is p (1 - p) g,
    and that of <f> estimated by scores is <f(x) (x - p)>: Berny's update, PBIL, UMDA.

    At p = 0 and p = 1 the score of the certain value is its limit (-1 and 1), and the score of the impossible one is
    refused with a ValueError; the Fisher information is infinite and the natural gradient zero.

    Examples
    --------
    >>> from varopt.families import Bernoulli
    >>> p = Bernoulli([0.25, 1.0])
    >>> p.variance, p.mode
    (array([0.1875, 0.    ]), array([0., 1.]))
    >>> p.log_density([[0, 1], [0, 0]])
    array([-0.28768207,        -inf])
    >>> p.sharpen(0.5).mean
    array([0.1, 1. ])
    """

    domains: ClassVar[Mapping[str, Domain]] = MappingProxyType({"probability": PROBABILITY})
    expectation_affine: ClassVar[bool] = False
    has_score: ClassVar[bool] = True

    def __init__(self, probability: ArrayLike) -> None:
        self._declare(probability=as_vector("probability", probability, self.domains["probability"]))

    @property
    def probability(self) -> FloatArray:
        """Probability that each bit is one, of shape (size,)."""
        return self._arrays["probability"].view()

    @property
    def size(self) -> int:
        return self._arrays["probability"].size

    @property
    def noise_size(self) -> int:
        return self.size

    @property
    def mean(self) -> FloatArray:
        return self.probability

    @property
    def variance(self) -> FloatArray:
        p = self._arrays["probability"]
        return p * (1.0 - p)

    @property
    def mode(self) -> FloatArray:
        """The more probable value of each bit; 0 at probability one half."""
        return np.where(self._arrays["probability"] > 0.5, 1.0, 0.0)

    def entropy(self) -> float:
        p = self._arrays["probability"]
        return -float((xlogy(p, p) + xlog1py(1.0 - p, -p)).sum())  # log1p keeps the second term for tiny p

    @np.errstate(over="ignore")
    def sharpen(self, factor: float) -> Self:
        """Raise p and 1 - p to the power 1 / `factor` and renormalise: a temperature in (0, 1]."""
        # p^(1/t) / (p^(1/t) + (1 - p)^(1/t)) = expit(logit(p) / t)
        return self.replace(probability=expit(logit(self._arrays["probability"]) / as_sharpening(factor)))

    def from_uniform(self, u: ArrayLike) -> FloatArray:
        return np.where(self._uniforms(u) > 1.0 - self._arrays["probability"], 1.0, 0.0)

    def log_density(self, x: ArrayLike) -> FloatArray:
        x = self._points(x)
        p = self._arrays["probability"]
        with np.errstate(divide="ignore"):
            one, zero = np.log(p), np.log1p(-p)
        return np.asarray(np.where(x == 1.0, one, np.where(x == 0.0, zero, -np.inf)).sum(axis=-1))

    def score(self, x: ArrayLike) -> dict[str, FloatArray]:
        # d log p / dp = 1/p where x = 1, -1/(1 - p) where x = 0
        x = self._points(x)
        p = self._arrays["probability"]
        if not np.all(((x == 1.0) & (p > 0.0)) | ((x == 0.0) & (p < 1.0))):
            raise ValueError("x has probability zero under Bernoulli, so its score does not exist.")
        with np.errstate(divide="ignore", over="ignore"):
            return {"probability": np.where(x == 1.0, 1.0 / p, -1.0 / (1.0 - p))}

    def fisher(self) -> dict[str, FloatArray]:
        p = self._arrays["probability"]
        with np.errstate(divide="ignore", over="ignore"):
            return {"probability": np.diag(1.0 / (p * (1.0 - p)))}

    def natural_gradient(self, gradient: Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
        return {name: self.variance * g for name, g in self._gradients(gradient).items()}

    @classmethod
    def examples(cls) -> dict[str, Builder]:
        return {"bernoulli": lambda n, rng: cls(rng.uniform(*PROBABILITY.typical, n))}
