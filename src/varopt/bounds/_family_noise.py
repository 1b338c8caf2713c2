r"""The noise of a family over the variables of an objective, which `varopt.bound` averages over, by rows.

A row is one-dimensional, :math:`z_k = \nu_k + s_k e` with noise e of mean zero and variance one. `quadrature_rows`
gives the same numbers as `closed_form_rows`, so that everything above them is the same for every method.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._layout import Component, Layout
from varopt.bounds._noise import Expectations, closed_form_rows
from varopt.composite import Composite, Groups, QuadraticForm, Rows, columns_of, squared_norms
from varopt.families import LocationScale
from varopt.model.maps import Map
from varopt.terms import PiecewisePolynomial

__all__ = ["FamilyNoise", "TurnedNoise", "quadrature_rows", "row_deviation"]

Vector = NDArray[np.float64]

_QUADRATURE_PIECE = 1 << 18  # numbers of a temporary
_PANELS = (-20.0, -12.0, -8.0, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
_FAR_END = 40.0  # densities are below 1e-17 beyond
_BY_ROWS = 1 << 18  # numbers of a temporary where deviations under a matrix are computed by rows


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
    low, high = (float(np.clip(end, -_FAR_END, _FAR_END)) for end in family.noise_support)
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
        inside = moves & (np.abs(knot) < _FAR_END)
        at = np.where(inside, knot, 0.0)
        density = np.where(inside, family.noise_density(at), 0.0) / safe
        first += height * density
        second += kink * density
        by_scale += height * at * density
        if np.any(np.asarray(height) != 0.0) and family.has_score:  # else q is constant but for its ends
            # d/dnu q((t - nu)/s) / s = -q' / s^2, and q' = -score q
            second += height * density * family.noise_score(at) / safe
    return at_mean + gap, first, second, by_scale, gap


class FamilyNoise:
    """The noise of a family over real variables: independent components, each with a scale, vector or Cholesky factor.

    Parameters
    ----------
    layout : Layout
        Which family rules which coordinates.
    rules : sequence
        For each block of rows None where the closed form holds, else pairs of a family and the rows under its noise.
    nodes : int
        Gauss nodes of each panel, for blocks with such rules.
    """

    def __init__(self, layout: Layout, rules: Sequence[list[tuple[Any, NDArray[np.intp]]] | None], nodes: int) -> None:
        self.components = tuple(c for c in layout.components if not c.is_discrete)
        self.rules, self.nodes = rules, nodes

    def of_rows(self, block: int, rows: Rows) -> Vector:
        """Standard deviations of the rows of a block."""
        return row_deviation(rows.linear, self.components)

    def of_groups(self, block: int, groups: Groups) -> Vector:
        """Standard deviation of the rows of each group: they are the same, or the norm has no closed form."""
        return row_deviation(groups.linear, self.components)[groups.starts]

    def excess(self, problem: Composite) -> float:
        """``tr(H V) / 2`` of the quadratic forms, V the covariance."""
        return sum(self._form_excess(form, c) for form in problem.forms for c in self.components)

    def _form_excess(self, form: QuadraticForm, c: Component) -> float:
        if c.factor.ndim < 2:
            return 0.5 * float(np.sum(form.curvature.diagonal[c.part] * c.factor**2))
        own = form.curvature.of_columns(c.part)
        return 0.0 if own is None else 0.5 * float(np.sum(c.factor * (own.matrix() @ c.factor)))

    def expectations(self, block: int, rows: Rows, z: Vector, s: Any) -> Expectations:
        """In closed form, or by the quadrature of the block's rules."""
        rule = self.rules[block]
        if rule is None:
            return closed_form_rows(rows.term, z, s)
        if len(rule) == 1:
            return quadrature_rows(rows.term, z, s, rule[0][0], self.nodes)
        whole = [np.empty(z.shape) for _ in Expectations._fields]
        for family, index in rule:
            part = quadrature_rows(rows.term.take(index), z[index], s[index], family, self.nodes)
            for entries, own in zip(whole, part, strict=True):
                entries[index] = own
        return Expectations(*whole)


def row_deviation(linear: Map, components: Sequence[Component]) -> Vector:
    """Standard deviation of every row under independent real components."""
    spreads = []
    for c in components:
        own = columns_of(linear, c.part)
        if own is None:
            continue
        if c.factor.ndim == 0:
            spreads.append(float(c.factor) * np.sqrt(squared_norms(own)))
        else:
            largest = float(np.abs(c.factor).max()) or 1.0  # so that squares neither overflow nor vanish
            spreads.append(largest * np.sqrt(_row_variance(own, c.factor / largest)))
    return reduce(np.hypot, spreads) if spreads else np.zeros(linear.shape[0])


def _row_variance(linear: Map, factor: Vector) -> Vector:
    if factor.ndim < 2 or linear.storage != "dense":
        return np.asarray(linear.row_variance(factor), dtype=np.float64)
    total = np.empty(linear.shape[0])
    step = max(1, _BY_ROWS // linear.shape[1])
    for start in range(0, linear.shape[0], step):  # by rows: a block and its product stay in the cache
        part = slice(start, start + step)
        spread = np.asarray(linear.rows(part).dense(), dtype=np.float64) @ factor
        total[part] = np.einsum("ij,ij->i", spread, spread)
    return total
