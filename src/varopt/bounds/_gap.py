"""How far a bound can be from its objective, over all means: section 3 of the mathematics."""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._hessian import Congruence
from varopt.bounds._layout import Component, Layout
from varopt.bounds._rows import deviation
from varopt.model._blocks import AffineBlock, Block, NormBlock, QuadraticBlock, TermBlock
from varopt.model._maps import Map, Scaled, Selection
from varopt.terms import PiecewisePolynomial, _norm

__all__ = ["GapBound", "gap_bound", "is_isotropic", "is_quadratic", "quadratic_diagonal"]

Vector = NDArray[np.float64]

_ROUNDING = 1e-12  # relative, within which variances are equal


class GapBound(NamedTuple):
    """Parts of a bound, over all means, on ``|E - f|``: from jumps, from kinks and from curvature.

    Scaling the dispersion by c leaves the first, multiplies the second by c and the third by c^2.
    """

    jumps: float = 0.0
    kinks: float = 0.0
    bends: float = 0.0
    signed: float = 0.0  # the gap of quadratics, the same at every mean and of either sign: it may cancel

    @property
    def total(self) -> float:
        """The bound."""
        return self.jumps + self.kinks + self.bends + abs(self.signed)


def gap_bound(layout: Layout) -> GapBound:
    """The sum over all blocks."""
    if any(c.is_discrete for c in layout.components):
        raise ValueError("max_gap needs families over real variables: for bits the mean is not a point.")
    each = [gap_of(layout, block) for block in layout.objective.blocks]
    return GapBound(*(math.fsum(parts) for parts in zip(*each, strict=True)))


def gap_of(layout: Layout, block: Block) -> GapBound:
    """What one block adds."""
    components = layout.of(block.variables)
    if isinstance(block, AffineBlock):
        return GapBound()
    if isinstance(block, QuadraticBlock):
        return GapBound(signed=sum(_excess(block, c) for c in components))
    if isinstance(block, TermBlock):
        return _gap_of_term(block, deviation(block.argument, components), all(c.is_gaussian for c in components))
    if isinstance(block, NormBlock):
        s = deviation(block.argument, components)
        if is_isotropic(layout, block):
            first, sizes = (np.array([g[k] if k == 0 else g.size for g in block.groups]) for k in (0, 1))
            worst = _norm.worst_gap(s[first], sizes)
        else:  # ||m + e|| - ||m|| <= ||e||, and <||e||>^2 <= <||e||^2>
            worst = np.array([math.hypot(*s[g]) for g in block.groups])
        return GapBound(kinks=float(np.sum(np.abs(block.weights) * worst)))
    raise ValueError(
        f"no bound on the gap of {block.describe()} is known, and so neither max_gap nor sigma_for; "
        "see E.gap at the means of interest."
    )


def _gap_of_term(block: TermBlock, sigma: Vector, gaussian: bool) -> GapBound:
    weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), sigma.shape)
    if is_quadratic(block.term):
        return GapBound(signed=float(weights @ block.term.gap(0.0 * sigma, sigma)))
    jumps, kinks, bends = block.term.gap_coefficients()
    if not gaussian:
        kinks = kinks * math.sqrt(2.0 * math.pi) / 2.0  # a kink j costs j <|noise|> / 2, at most j s / 2
    size = np.where(sigma > 0, np.abs(weights), 0.0)
    with np.errstate(invalid="ignore", over="ignore"):  # an infinite bend of weight zero
        bent = np.where(size > 0, size * bends * sigma**2, 0.0)
    return GapBound(float(np.sum(size * jumps)), float(np.sum(size * kinks * sigma)), float(np.sum(bent)))


def _excess(block: QuadraticBlock, c: Component) -> float:
    """``tr(A V)`` for the covariance V of a component."""
    if c.factor.ndim < 2:
        return 0.5 * float(np.sum(quadratic_diagonal(block, c) * c.factor**2))
    curvature = Congruence(block.argument.stacked(c.variables), block.matrix, float(block.weights))
    return float(np.sum(c.factor * (curvature.matrix() @ c.factor)))


# Diagonals of quadratics by block and variable: the same at every mean, and of a LinearOperator one product each.
_diagonals: WeakKeyDictionary[QuadraticBlock, dict[int, Vector]] = WeakKeyDictionary()


def quadratic_diagonal(block: QuadraticBlock, c: Component) -> Vector:
    """Second derivatives of a quadratic in each coordinate of a component, remembered by block."""
    known = _diagonals.setdefault(block, {})
    own = list(block.argument.maps.items())
    for i, (variable, linear) in enumerate(own):
        if variable in c.variables and i not in known:
            known[i] = Congruence(linear, block.matrix, 2.0 * float(block.weights)).diagonal()
    found = {variable: known[i] for i, (variable, _) in enumerate(own) if i in known}
    return np.concatenate([found.get(v, np.zeros(v.size)) for v in c.variables])


def is_quadratic(term: PiecewisePolynomial) -> bool:
    """Whether mean and variance of the argument suffice for the expectation."""
    return not term.knots and term.degree <= 2


def is_isotropic(layout: Layout, block: NormBlock) -> bool:
    """Whether the entries of z are, within each group, independent Gaussians of one variance."""
    components, argument = layout.of(block.variables), block.argument
    if not all(c.is_gaussian for c in components):
        return False
    if all(g.size == 1 for g in block.groups):
        return True
    maps = list(argument.maps.values())
    bare = [m.inner if isinstance(m, Scaled) and np.ndim(m.scale) == 0 else m for m in maps]
    if len(bare) != 1 or not isinstance(bare[0], Selection):
        return False
    chosen = np.arange(bare[0].shape[1]) if bare[0].index is None else bare[0].index
    sizes = np.array([g.size for g in block.groups])
    starts = np.cumsum(sizes) - sizes
    entries = np.concatenate(block.groups)
    named = np.stack([np.repeat(np.arange(sizes.size), sizes), chosen[entries]])
    if np.unique(named, axis=1).shape[1] < entries.size:  # a coordinate twice in a group
        return False
    sigma = deviation(argument, components)
    lowest, highest = (extreme.reduceat(sigma[entries], starts) for extreme in (np.minimum, np.maximum))
    if np.any(highest - lowest > _ROUNDING * highest):
        return False
    (c,) = components
    return c.factor.ndim < 2 or all(_uncorrelated(argument.stacked(c.variables).rows(g), c) for g in block.groups)


def _uncorrelated(linear: Map, c: Component) -> bool:
    spread = linear.apply(c.factor.T)  # its columns are rows of A C
    covariance = spread.T @ spread
    variances = np.diagonal(covariance)
    return bool(np.abs(covariance - np.diag(variances)).max() <= _ROUNDING * variances.max())
