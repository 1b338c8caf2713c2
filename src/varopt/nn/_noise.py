"""Noise for `smooth`: points from uniform numbers, and log densities that are differentiable in the parameters."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from varopt._array import Array

__all__ = ["DISCRETE", "NOISES", "Noise", "first_order_only", "one_hot_rows", "outcomes", "shifted_sobol", "sobol"]


@dataclass(frozen=True)
class Noise:
    """A law of z: its quantile function and log density, up to a constant, of arrays of any library."""

    quantile: Callable[[Any, Array], Array]
    log_density: Callable[[Any, Array], Array]


@dataclass(frozen=True)
class _Sign:
    """The slope of |z|, which has none itself."""

    def value(self, z: Array) -> Array:
        return (z > 0) * 1.0 - (z < 0) * 1.0 + 0.0 * z

    def partials(self, apply: Any, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        raise NotImplementedError(_ONCE.format("laplace"))


@dataclass(frozen=True)
class _Abs:
    def value(self, z: Array) -> Array:
        return abs(z)

    def partials(self, apply: Any, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        return (apply(_Sign(), *at),)


_ONCE = (
    "noise '{}' gives first derivatives only: its density has a kink or a jump, and second derivatives of the average "
    "would be those of fn. Use 'gaussian', 'logistic' or 'gumbel'."
)


@dataclass(frozen=True)
class _Slope:
    """The slope of `_Line`: itself not to be differentiated."""

    def value(self, x: Array, derivative: Array) -> Array:
        return derivative + 0.0 * x

    def partials(self, apply: Any, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        raise NotImplementedError(_ONCE.format("uniform"))


@dataclass(frozen=True)
class _Line:
    """Zero, with a given slope in x."""

    def value(self, x: Array, derivative: Array) -> Array:
        return 0.0 * x

    def partials(self, apply: Any, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        return apply(_Slope(), *at), 0.0 * at[1]


def first_order_only(lib: Any, x: Array, derivative: Array) -> Array:
    """Zeros with the given derivative in x, and a refusal of the second."""
    return lib.elementwise(_Line(), x, lib.hold(derivative))


NOISES = {
    "gaussian": Noise(lambda lib, u: lib.ndtri(u), lambda lib, z: -0.5 * z * z),
    "laplace": Noise(
        lambda lib, u: -lib.xp.sign(u - 0.5) * lib.xp.log1p(-2.0 * lib.xp.abs(u - 0.5)),
        lambda lib, z: -lib.elementwise(_Abs(), z),
    ),
    "logistic": Noise(
        lambda lib, u: lib.xp.log(u) - lib.xp.log1p(-u),
        lambda lib, z: -z - 2.0 * lib.xp.logaddexp(lib.xp.zeros_like(z), -z),
    ),
    "gumbel": Noise(lambda lib, u: -lib.xp.log(-lib.xp.log(u)), lambda lib, z: -z - lib.xp.exp(-z)),
    "uniform": Noise(lambda lib, u: 2.0 * u - 1.0, lambda lib, z: 0.0 * z),
}
DISCRETE = ("bernoulli", "categorical")


@lru_cache(maxsize=64)
def sobol(count: int, d: int) -> Any:
    """Scrambled Sobol points as integers of 30 bits."""
    import warnings

    from scipy.stats import qmc

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a number of points that is no power of two is the caller's wish
        keyword = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"  # its name before SciPy 1.15
        points = qmc.Sobol(d, scramble=True, **{keyword: np.random.default_rng(0)}).random(count)
    return np.minimum(points * 2.0**30, 2.0**30 - 1).astype(np.int32)


def shifted_sobol(lib: Any, shifts: Array, count: int) -> Array:
    """For each row of shifts, SciPy's Sobol points with their digits changed by it: every point alone is uniform."""
    xp, d = lib.xp, shifts.shape[-1]
    digits = xp.astype(shifts * 2.0**30, xp.int32)
    base = lib.sobol(count, d, shifts)
    mixed = xp.bitwise_xor(xp.broadcast_to(base, (shifts.shape[0], count, d)), digits[:, None, :])
    points = (xp.astype(mixed, shifts.dtype) + 0.5) / 2.0**30
    return xp.reshape(points, (shifts.shape[0] * count, d))


def outcomes(classes: int, n: int) -> Any:
    """All n-tuples of classes, as rows of integers."""
    return np.array(list(itertools.product(range(classes), repeat=n)), dtype=np.int64).reshape(-1, n)


def one_hot_rows(indices: Any, classes: int) -> Any:
    """Integers as unit vectors along a new last axis."""
    return np.eye(classes)[indices]


def log_ratio(lib: Any, log_density: Array) -> Array:
    """``p / p`` with the denominator held: one, with every derivative of p over p."""
    return lib.xp.exp(log_density - lib.hold(log_density))


def clipped(lib: Any, u: Array) -> Array:
    """Uniform numbers kept off zero and one, where quantiles are infinite."""
    smallest = 2.0**-24 if "32" in str(u.dtype) else 2.0**-53
    return lib.xp.clip(u, 0.5 * smallest, 1.0 - smallest)
