"""Bounds by quadrature: one dimension at a time where the objective allows, else a product rule or enumeration."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._analytic import NoClosedForm
from varopt.bounds._bound import AnalyticBound, Bound
from varopt.bounds._layout import Component, Layout
from varopt.bounds._points_bound import PointsBound
from varopt.bounds._target import Target, objective_target
from varopt.families import LocationScale, Product

__all__ = ["product_rule_bound", "quadrature_bound"]

Vector = NDArray[np.float64]

_MAX_POINTS = 1 << 18
_MAX_REAL = 4  # coordinates of a product rule


def quadrature_bound(layout: Layout, nodes: int) -> Bound:
    """Row by row where every row is one-dimensional, else a product rule over all coordinates."""
    try:
        return AnalyticBound(layout, "quadrature", nodes)
    except NoClosedForm as refusal:
        try:
            return product_rule_bound(objective_target(layout))
        except ValueError as too_large:
            raise NoClosedForm(f"{str(refusal).split('. Use')[0]}; {too_large}") from None


def product_rule_bound(target: Target) -> Bound:
    """Gauss-Legendre panels in every real coordinate, all states of every discrete one."""
    real = sum(c.family.size for c in target.components if not c.is_discrete)
    states = [c.choices if c.choices > 1 else 2 for c in target.components if c.is_discrete for _ in range(c.family.noise_size)]
    count = int(np.prod([float(s) for s in states])) if sum(np.log2(states)) <= 18 else _MAX_POINTS + 1
    if real > _MAX_REAL or count * _points_per_dimension(real) ** real > _MAX_POINTS:
        raise ValueError(
            f"a product rule over {real} real and {len(states)} discrete coordinates has too many points: use method='sampled'."
        )
    rules = [_component_rule(c, real) for c in target.components]
    # The product of the components' rules, in the order of the function, then back in the order of the family.
    points = np.array([np.concatenate(combination) for combination in itertools.product(*(p for p, _ in rules))])
    weights = np.array([np.prod(combination) for combination in itertools.product(*(w for _, w in rules))])
    if isinstance(target.family, Product):
        order = np.concatenate([np.arange(points.shape[1])[c.part] for k in target.family.families for c in target.components if c.key == k])
        points = points[:, order]
    return PointsBound(target, "quadrature", points, weights / weights.sum(), 0, _estimator(target))


def _estimator(target: Target) -> str:
    return "score" if target.family.has_score or target.slopes is None else "reparameterized"


def _points_per_dimension(dimensions: int) -> int:
    panels, nodes = _panels(dimensions)
    return (panels.size - 1) * nodes


def _panels(dimensions: int) -> tuple[Vector, int]:
    if dimensions <= 1:
        return np.array([-40, -20, -12, -8, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 20, 40], dtype=float), 24
    return np.array([-20, -9, -5, -3, -1.5, 0, 1.5, 3, 5, 9, 20], dtype=float), {2: 24, 3: 6, 4: 2}[dimensions]


def _component_rule(c: Component, real: int) -> tuple[Vector, Vector]:
    if isinstance(c.family, LocationScale):
        panels, nodes = _panels(real)
        low, high = c.family.noise_support
        inner = panels[(panels > low) & (panels < high)]
        edges = np.concatenate([[max(low, panels[0])], inner[(inner > panels[0]) & (inner < panels[-1])], [min(high, panels[-1])]])
        x, w = np.polynomial.legendre.leggauss(nodes)
        half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
        e = (middle + half * x).ravel()
        q = (half * w).ravel() * c.family.noise_density(e)
        grid = np.stack([g.ravel() for g in np.meshgrid(*[e] * c.family.size, indexing="ij")], axis=1)
        weights = np.prod([g.ravel() for g in np.meshgrid(*[q] * c.family.size, indexing="ij")], axis=0)
        return c.family.transform(grid), weights
    k = c.choices
    if k == 1:
        states = np.array(list(itertools.product([0.0, 1.0], repeat=c.family.size)))
    else:
        choices = np.array(list(itertools.product(range(k), repeat=c.family.noise_size)))
        states = np.eye(k)[choices].reshape(choices.shape[0], -1)
    weights = np.exp(c.family.log_density(states))
    possible = weights > 0.0  # the score of an impossible state does not exist, and it has no part in the average
    return states[possible], weights[possible]
