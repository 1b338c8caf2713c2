r"""One-dimensional projections: their standard deviations, and expectations of terms of them, row by row.

A row is :math:`z_k = \nu_k + s_k e` with noise e of mean zero and variance one. `closed_form_rows` and
`quadrature_rows` both return the expectation and its derivatives in :math:`\nu` and s, so that everything above them is
the same for every method.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.families import LocationScale
from varopt.terms import PiecewisePolynomial

__all__ = ["Expectations", "TurnedNoise", "closed_form_rows", "quadrature_rows"]

Vector = NDArray[np.float64]

_QUADRATURE_PIECE = 1 << 18  # numbers of a temporary


class Expectations(NamedTuple):
    """Expectation and derivatives of every row."""

    value: Vector
    first: Vector  # derivatives in the mean
    second: Vector
    sigma: Vector | None = None  # derivative in s; None where it is s times the second derivative
    gap: Vector | None = None  # expectation minus value at the mean, where it comes for free


def closed_form_rows(term: PiecewisePolynomial, mean: Vector, sigma: Vector) -> Expectations:
    """Gaussian rows, or a quadratic under any noise: only mean and variance matter then."""
    return Expectations(*term.derivatives_of_few(mean, sigma))


_PANELS = (-20.0, -12.0, -8.0, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
_END = 40.0  # densities are below 1e-17 beyond


class TurnedNoise:
    """The noise of a family, turned round: that of a row whose coefficient is negative."""

    def __init__(self, family: LocationScale) -> None:
        self._family = family
        self.noise_variance, self.has_score = family.noise_variance, family.has_score
        low, high = family.noise_support
        self.noise_support = (-high, -low)

    def noise_density(self, z: Vector) -> Vector:
        """q(-z)."""
        return self._family.noise_density(-z)

    def noise_score(self, z: Vector) -> Vector:
        """Its score."""
        return -self._family.noise_score(-z)


def quadrature_rows(
    term: PiecewisePolynomial, mean: Vector, sigma: Vector, family: LocationScale | TurnedNoise, nodes: int
) -> Expectations:
    """Rows under any location-scale noise, by Gauss-Legendre between the knots and the panels of the density.

    Independent of the closed form: polynomials are integrated as functions, and jumps add the density at the knot.
    """
    spread = np.sqrt(family.noise_variance)
    mean, scale = np.broadcast_arrays(mean, sigma / spread)  # z = mean + scale * e with the family's own noise e
    step = max(1, _QUADRATURE_PIECE // (nodes * (len(_PANELS) + 1 + len(term.knots))))
    parts = []
    for start in range(0, mean.size, step):
        part = slice(start, start + step)
        parts.append(_integrate(term.take(part), mean[part], scale[part], family, nodes))
    value, first, second, by_scale, gap = (np.concatenate(entries) for entries in zip(*parts, strict=True))
    return Expectations(value, first, second, by_scale / spread, gap)


def _integrate(
    term: PiecewisePolynomial, mean: Vector, scale: Vector, family: LocationScale | TurnedNoise, nodes: int
) -> tuple[Vector, ...]:
    moves = scale > 0
    safe = np.where(moves, scale, 1.0)
    low, high = (float(np.clip(end, -_END, _END)) for end in family.noise_support)
    with np.errstate(over="ignore"):
        knots = [np.where(moves, (np.asarray(t) - mean) / safe, np.inf) for t in term.knots]
    edges = np.stack([*(np.full(mean.shape, p) for p in (low, *_PANELS, high)), *knots])
    edges = np.sort(np.clip(edges, low, high), axis=0)[:, None, :]
    x, w = (a[:, None] for a in np.polynomial.legendre.leggauss(nodes))
    half = 0.5 * np.diff(edges, axis=0)
    e = 0.5 * (edges[1:] + edges[:-1]) + half * x  # (panels, nodes, rows)
    q = half * w * family.noise_density(e)
    q /= q.sum(axis=(0, 1))
    z = mean + scale * e
    derivative = term.derivative(z)
    at_mean = term.value(mean)
    gap = (q * (term.value(z) - at_mean)).sum(axis=(0, 1))
    first = (q * derivative).sum(axis=(0, 1))
    second = (q * term.derivative(z, 2)).sum(axis=(0, 1))
    by_scale = (q * derivative * e).sum(axis=(0, 1))
    for knot, jump in zip(knots, term.jumps, strict=True):
        height, kink = jump[0], jump[1] if len(jump) > 1 else 0.0
        inside = moves & (np.abs(knot) < _END)
        at = np.where(inside, knot, 0.0)
        density = np.where(inside, family.noise_density(at), 0.0) / safe
        first += height * density
        second += kink * density
        by_scale += height * at * density
        if np.any(np.asarray(height) != 0.0) and family.has_score:  # else q is constant but for its ends
            # d/dnu q((t - nu)/s) / s = -q' / s^2, and q' = -score q
            second += height * density * family.noise_score(at) / safe
    return at_mean + gap, first, second, by_scale, gap
