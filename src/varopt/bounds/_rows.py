r"""Expectations of terms of one-dimensional projections, row by row: in closed form and by quadrature.

A row is :math:`z_k = \nu_k + s_k e` with noise e of mean zero and variance one. Both functions return the expectation, its first and second
derivative in :math:`\nu`, and its derivative in s, so that everything above them is the same for every method.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.families import LocationScale
from varopt.terms import PiecewisePolynomial

__all__ = ["Rows", "closed_form_rows", "quadrature_rows"]

Vector = NDArray[np.float64]


class Rows(NamedTuple):
    """Expectation and derivatives of every row."""

    value: Vector
    first: Vector
    second: Vector
    sigma: Vector


def closed_form_rows(term: PiecewisePolynomial, mean: Vector, sigma: Vector) -> Rows:
    """Gaussian rows, or a quadratic under any noise: only mean and variance matter then."""
    value, first, second = term.derivatives(mean, sigma)
    return Rows(value, first, second, sigma * second)


def quadrature_rows(term: PiecewisePolynomial, mean: Vector, sigma: Vector, family: LocationScale, nodes: int = 24) -> Rows:
    """Rows under any location-scale noise, by Gauss-Legendre between the knots and the panels of the density.

    Independent of the closed form: polynomials are integrated as functions, and jumps add the density at the knot.
    """
    spread = math.sqrt(family.noise_variance)
    scale = sigma / spread  # z = mean + scale * e with the family's own standard noise e
    mean, scale = np.broadcast_arrays(mean, scale)
    low, high = family.noise_support
    low, high = max(low, -40.0), min(high, 40.0)
    panels = [-20.0, -12.0, -8.0, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        knots = [np.where(scale > 0, (np.asarray(t) - mean) / scale, np.inf) for t in term.knots]
    columns = [np.full(mean.shape, low), *(np.full(mean.shape, p) for p in panels), *knots, np.full(mean.shape, high)]
    edges = np.sort(np.clip(np.stack(columns), low, high), axis=0)
    x, w = np.polynomial.legendre.leggauss(nodes)
    value, first, second, by_scale, mass = (np.zeros(mean.shape) for _ in range(5))
    for left, right in zip(edges[:-1], edges[1:], strict=True):
        half, middle = 0.5 * (right - left), 0.5 * (right + left)
        for node, weight in zip(x, w, strict=True):
            e = middle + half * node
            q = weight * half * family.noise_density(e)
            z = mean + scale * e
            slope = term.derivative(z)
            value += q * term.value(z)
            first += q * slope
            second += q * term.derivative(z, 2)
            by_scale += q * slope * e
            mass += q
    for j, jump in enumerate(term.jumps):
        e = knots[j]
        inside = np.isfinite(e) & (np.abs(e) < 1e150) & (scale > 0)
        at = np.where(inside, e, 0.0)
        safe = np.where(scale > 0, scale, 1.0)
        q = np.where(inside, family.noise_density(at), 0.0)
        height, kink = jump[0], jump[1] if len(jump) > 1 else 0.0
        first += height * q / safe
        second += kink * q / safe
        by_scale += height * at * q / safe
        if not _all_zero(height):
            second += height * q * family.noise_slope(at) / safe**2  # d/dnu q((t - nu)/s) / s = -q' / s^2, q' = -slope q
    return Rows(value / mass, first / mass, second / mass, by_scale / mass / spread)


def _all_zero(value: Any) -> bool:
    return bool(np.all(np.asarray(value) == 0.0))
