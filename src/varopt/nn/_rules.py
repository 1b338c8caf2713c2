"""Elementwise functions and their derivatives: each derivative is made of functions of this file, at every order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from varopt._array import Array
from varopt.nn._library import library
from varopt.terms import PiecewisePolynomial, expectations_of

__all__ = ["CDF", "LOG_CDF", "MILLS", "Expectation"]

Apply = Callable[..., Array]


@dataclass(frozen=True)
class Expectation:
    """``sigma^power`` times the derivative of an expectation in the mean.

    The heat equation [SB12]: dE/dsigma = sigma E'', so d/dsigma of it is p (k, p - 1) + (k + 2, p + 1).
    """

    term: PiecewisePolynomial
    order: int = 0
    power: int = 0

    def value(self, mean: Array, sigma: Array) -> Array:
        xp = library(mean).xp
        term = self.term.on(xp, mean) if self.term.shape else self.term
        return expectations_of(xp, term, mean, sigma, ((self.order, self.power),))[0]

    def partials(self, apply: Apply, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        k, p = self.order, self.power
        by_mean = apply(Expectation(self.term, k + 1, p), *at) if wanted[0] else None
        if not wanted[1]:
            return by_mean, None
        by_sigma = apply(Expectation(self.term, k + 2, p + 1), *at)
        return by_mean, by_sigma + p * apply(Expectation(self.term, k, p - 1), *at) if p else by_sigma


@dataclass(frozen=True)
class _Density:
    """phi(u); its derivative is -u phi(u)."""

    def value(self, u: Array) -> Array:
        lib = library(u)
        return lib.xp.exp(-0.5 * u * u) * (1.0 / math.sqrt(2.0 * math.pi))

    def partials(self, apply: Apply, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        return (-at[0] * out,)


@dataclass(frozen=True)
class _Cdf:
    """Phi(u); its derivative is phi(u)."""

    def value(self, u: Array) -> Array:
        return library(u).ndtr(u)

    def partials(self, apply: Apply, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        return (apply(DENSITY, *at),)


@dataclass(frozen=True)
class _Mills:
    """r(u) = phi(u) / Phi(u); its derivative is -r (u + r)."""

    def value(self, u: Array) -> Array:
        return math.sqrt(2.0 / math.pi) / library(u).erfcx(-math.sqrt(0.5) * u)

    def partials(self, apply: Apply, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        return (-out * (at[0] + out),)


@dataclass(frozen=True)
class _LogCdf:
    """Log Phi(u); its derivative is r(u)."""

    def value(self, u: Array) -> Array:
        return library(u).log_ndtr(u)

    def partials(self, apply: Apply, at: tuple[Array, ...], out: Array, wanted: Sequence[bool]) -> tuple[Any, ...]:
        return (apply(MILLS, *at),)


DENSITY, CDF, MILLS, LOG_CDF = _Density(), _Cdf(), _Mills(), _LogCdf()
