"""Rules over all coordinates at once: Gauss nodes in every real coordinate, all states of every discrete one."""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._bound import Bound, Form, Gradient, NoClosedForm, assemble, check_form, in_form
from varopt.bounds._enumeration import MAX_STATES, Enumeration, count_states
from varopt.bounds._layout import Component
from varopt.bounds._points_bound import PointsBound
from varopt.bounds._target import Target
from varopt.families import LocationScale

__all__ = ["product_rule_bound"]

Vector = NDArray[np.float64]

_MAX_REAL = 4
_NEGLIGIBLE_WEIGHT = 1e-36  # of the largest weight: such points cannot change a digit

# Probabilities that cut the law of a coordinate into cells, and Gauss nodes in each, by number of real coordinates.
_CELLS = {
    1: (1e-9, 1e-4, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0 - 1e-4, 1.0 - 1e-9),
    2: (1e-4, 0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99, 1.0 - 1e-4),
    3: (0.05, 0.25, 0.5, 0.75, 0.95),
    4: (0.15, 0.5, 0.85),
}
_NODES_BY_DIMENSION = {0: 0, 1: 24, 2: 20, 3: 10, 4: 5}
_EDGES = np.array([-40, -20, -12, -8, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 20, 40], dtype=np.float64)


class EnumeratedBound(Bound):
    """A bound over bits and choices by the values at all states."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, "quadrature")
        self._states = Enumeration(target.components)
        self._values = target.values(self._states.states)

    @cached_property
    def value(self) -> float:
        return self._states.expectation(self._values)

    @cached_property
    def gradient(self) -> Gradient:
        return assemble(self._target.components, self._states.gradient(self._values), None)

    def hessian(self, form: Form = "dense") -> Any:
        check_form(form)
        return in_form(self._states.hessian(self._values), form)


def product_rule_bound(target: Target, nodes: int | None) -> Bound:
    """The bound by a rule over all coordinates at once.

    Every coordinate has the Gauss rules of its own law, restricted to cells: exact for polynomials, and fine enough
    where the mass is that a kink costs some digits and a jump not all of them.
    """
    discrete = [c for c in target.components if c.is_discrete]
    real = [c for c in target.components if not c.is_discrete]
    dimensions = sum(c.family.noise_size for c in real)
    if dimensions > _MAX_REAL:
        raise NoClosedForm(
            f"{target.name} has {dimensions} real coordinates, and a product rule takes at most {_MAX_REAL}. "
            "Use method='sampled'."
        )
    nodes = _NODES_BY_DIMENSION[dimensions] if nodes is None else nodes
    per_coordinate = (len(_CELLS.get(dimensions, ())) + 1) * nodes
    count = count_states(discrete) * float(per_coordinate) ** dimensions
    if count > MAX_STATES:
        raise NoClosedForm(
            f"{target.name} needs {count:.3g} points for a product rule over {dimensions} real coordinates and "
            f"{count_states(discrete):.3g} states, of which {MAX_STATES} are allowed. Use method='sampled'."
        )
    if not real:
        return EnumeratedBound(target)
    points, weights = np.zeros((1, target.size)), np.ones(1)
    for c in target.components:
        own, mass = _component_rule(c, dimensions, nodes)
        rows, copies = len(points), len(own)
        points = np.repeat(points, copies, axis=0)
        points[:, c.part] = np.tile(own, (rows, 1))
        weights = np.repeat(weights, copies) * np.tile(mass, rows)
        kept = weights > _NEGLIGIBLE_WEIGHT * weights.max()
        points, weights = points[kept], weights[kept]
    return PointsBound(target, "quadrature", points, weights / weights.sum(), 0, target.estimator)


def _component_rule(c: Component, dimensions: int, nodes: int) -> tuple[Vector, Vector]:
    if not isinstance(c.family, LocationScale):
        states = Enumeration([c])
        return states.states, states.weights
    x, w = _rule(c.family.law, dimensions, nodes)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[x] * c.family.noise_size, indexing="ij")], axis=1)
    weights = np.prod([g.ravel() for g in np.meshgrid(*[w] * c.family.noise_size, indexing="ij")], axis=0)
    return c.family.transform(grid), weights


@lru_cache(maxsize=64)
def _rule(family: Any, dimensions: int, nodes: int) -> tuple[Vector, Vector]:
    """Nodes and weights for the noise of a family."""
    ends = family.noise_quantile(np.array([2.0**-53, *_CELLS[dimensions], 1.0 - 2.0**-53]))
    ends[[0, -1]] = np.clip(family.noise_support, _EDGES[0], _EDGES[-1])
    x, w = np.polynomial.legendre.leggauss(nodes + 24)
    rules = []
    for low, high in pairwise(ends):
        edges = np.unique(np.clip([low, *_EDGES, high], low, high))
        half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
        e = (middle + half * x).ravel()
        rules.append(_gauss_rule(e, (half * w).ravel() * family.noise_density(e), nodes))
    e, q = (np.concatenate(parts) for parts in zip(*rules, strict=True))
    return e, q


def _gauss_rule(x: Vector, w: Vector, nodes: int) -> tuple[Vector, Vector]:
    """The rule of few nodes that is exact for the polynomials of highest degree under a discrete measure (Lanczos)."""
    from scipy.linalg import eigh_tridiagonal

    basis = [np.sqrt(w / w.sum())]
    alpha, beta = [], []
    for _ in range(nodes):
        v = x * basis[-1]
        alpha.append(float(v @ basis[-1]))
        q = np.array(basis)
        for _ in range(2):  # twice is enough to stay orthogonal
            v = v - (q @ v) @ q
        beta.append(float(np.linalg.norm(v)))
        basis.append(v / beta[-1])
    e, vectors = eigh_tridiagonal(np.array(alpha), np.array(beta[:-1]))
    return e, w.sum() * vectors[0] ** 2
