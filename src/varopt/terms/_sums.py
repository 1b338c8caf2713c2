"""Weighted sums of the averages of lines, and their gradients, for descents that ask for them over and over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc

from varopt.terms._few_calls import DENSITY_AT_ZERO, ROOT_TWO, SHORT_ROWS, Kink, kink_gradient

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = ["weighted_sum"]

Vector = NDArray[np.float64]

_WIDE_DISTANCES = 1e4  # distances of two knots up to which what cancels is below any tolerance of a descent


def weighted_sum(term: PiecewisePolynomial, sigma: Any, weights: Vector) -> Callable[[Vector], tuple[float, Vector]]:
    """``sum_n w_n <rho(z_n)>`` and its gradient, as a function of the positions z."""

    def general(z: Vector) -> tuple[float, Vector]:
        value, first, _ = term.derivatives(z, sigma)
        return float(weights @ value), weights * first

    short: Any = None
    if not np.min(sigma, initial=math.inf) > 0.0:
        return general
    if term.kink is not None:
        short = _SumOfKinks(term.kink, float(term.value(np.asarray(term.knots[0]))), sigma, weights)
    elif _is_short(term, sigma, weights):
        short = _SumOfLines(term, sigma, weights)
    if short is None:
        return general

    def checked(z: Vector) -> tuple[float, Vector]:
        found = short(z)
        return found if math.isfinite(found[0]) else general(z)  # zero times infinity, below the smallest sigmas

    return checked


class _SumOfKinks:
    """That of a kink: what the deviations decide is computed once, and so are the arrays."""

    def __init__(self, kink: Kink, at_knot: float, sigma: Any, weights: Vector) -> None:
        knot, left, right = kink
        self._kink, self._knot, self._weights = kink, knot, weights
        self._constant = at_knot * float(weights.sum())
        self._rate = 1.0 / (ROOT_TWO * sigma)
        self._density = weights * ((right - left) * DENSITY_AT_ZERO * sigma)
        self._distance, self._u, self._first = (np.empty(weights.shape) for _ in range(3))

    def __call__(self, z: Vector) -> tuple[float, Vector]:
        """Value and gradient: ``w (rho(t) + (z - t) E' + s^2 E'')`` and ``w E'``."""
        distance, u, first = self._distance, self._u, self._first
        np.multiply(np.subtract(z, self._knot, distance), self._rate, u)
        np.multiply(kink_gradient(self._kink, u, first), self._weights, first)
        np.exp(np.negative(np.square(u, u), u), u)
        return self._constant + float(distance.dot(first) + self._density.dot(u)), first


def _is_short(term: PiecewisePolynomial, sigma: Any, weights: Vector) -> bool:
    """Whether it is of a few lines, for few rows, and smoothed so little that jumps hardly cancel."""
    if term.rows is not None or not term.knots or term.degree > 1 or weights.size > SHORT_ROWS:
        return False
    return bool(np.max(sigma, initial=0.0) <= _WIDE_DISTANCES * np.diff(np.array(term.knots)).min(initial=math.inf))


class _SumOfLines:
    """That of several lines, with kinks and jumps: what the piece has, and beyond each knot the tail of its jump."""

    def __init__(self, term: PiecewisePolynomial, sigma: Any, weights: Vector) -> None:
        jumps = np.array([[*jump, 0.0, 0.0][:2] for jump in term.jumps], dtype=np.float64)
        self._steps, self._kinks = jumps[:, 0].copy(), jumps[:, 1].copy()
        self._constants, self._slopes = np.array([[*piece, 0.0][:2] for piece in term.pieces], dtype=np.float64).T
        self._knots, self._centres = np.array(term.knots, dtype=np.float64), np.array(term.centres)
        self._rate, self._sigma, self._weights = 1.0 / sigma, sigma, weights
        self._jumps = bool(self._steps.any())

    def __call__(self, z: Vector) -> tuple[float, Vector]:
        """Value and gradient; their errors are of the size of rounding, not of that of a small tail."""
        piece = np.searchsorted(self._knots, z, side="right")
        slope = self._slopes[piece]
        u = (z - self._knots[:, None]) * self._rate
        size = np.abs(u)
        tail = 0.5 * erfc(size / ROOT_TWO)
        density = DENSITY_AT_ZERO * np.exp(-0.5 * (u * u))
        beyond = np.copysign(tail, -u)
        value = self._constants[piece] + slope * (z - self._centres[piece])
        value += self._sigma * (self._kinks @ (density - size * tail))
        gradient = slope + self._kinks @ beyond
        if self._jumps:
            value += self._steps @ beyond
            gradient += self._rate * (self._steps @ density)
        return float(self._weights @ value), self._weights * gradient
