"""Uncertainty from repetitions, and the rule by which it decides: agrees, contradicts, or undecided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t

from varopt.experiments.report import Agreement, number

__all__ = ["Interval", "mean", "opposite", "ratio", "unpaired_ratio"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval that holds what it estimates with 95 % confidence, as its repetitions tell."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return f"{number(self.estimate)} (too few repetitions for an interval)"
        return f"{number(self.estimate)} [{number(self.low)}, {number(self.high)}]"

    def inside(self, low: float, high: float) -> Agreement:
        """Agrees where all of the interval lies between two numbers, contradicts where none of it does."""
        if low <= self.low and self.high <= high:
            return Agreement.AGREES
        return Agreement.CONTRADICTS if self.high < low or self.low > high else Agreement.OPEN

    def below(self, limit: float) -> Agreement:
        """Agrees where all of the interval lies below a number, contradicts where all of it lies above."""
        return self.inside(-math.inf, limit)

    def above(self, limit: float) -> Agreement:
        """Agrees where all of the interval lies above a number, contradicts where all of it lies below."""
        return self.inside(limit, math.inf)


def mean(values: ArrayLike) -> Interval:
    """The mean of independent repetitions, with the interval of Student's t."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return Interval(math.nan, -math.inf, math.inf)
    estimate = float(array.mean())
    if array.size < 2:
        return Interval(estimate, -math.inf, math.inf)
    reach = float(t.ppf(0.5 + 0.5 * CONFIDENCE, array.size - 1) * array.std(ddof=1) / math.sqrt(array.size))
    return Interval(estimate, estimate - reach, estimate + reach)


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """The geometric mean of ratios of positive numbers that were measured on the same repetitions."""
    return _exponential(mean(np.log(numerators) - np.log(denominators)))


def unpaired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """The ratio of two geometric means of repetitions that have nothing in common (Welch)."""
    first, second = np.log(numerators), np.log(denominators)
    apart = float(np.mean(first) - np.mean(second))
    if min(first.size, second.size) < 2:
        return Interval(math.exp(apart), 0.0, math.inf)
    parts = np.array([first.var(ddof=1) / first.size, second.var(ddof=1) / second.size])
    error = float(parts.sum())
    freedom = error**2 / float(parts @ (parts / (np.array([first.size, second.size]) - 1.0))) if error else 1.0
    reach = float(t.ppf(0.5 + 0.5 * CONFIDENCE, freedom)) * math.sqrt(error)
    return _exponential(Interval(apart, apart - reach, apart + reach))


def _exponential(interval: Interval) -> Interval:
    with np.errstate(over="ignore"):
        return Interval(*(float(np.exp(end)) for end in (interval.estimate, interval.low, interval.high)))


def opposite(outcome: Agreement) -> Agreement:
    """What a rule says of the contrary of a claim."""
    return {Agreement.AGREES: Agreement.CONTRADICTS, Agreement.CONTRADICTS: Agreement.AGREES}.get(outcome, outcome)
