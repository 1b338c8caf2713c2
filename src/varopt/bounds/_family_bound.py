r"""The bound of an objective under a family: that of its composite form, and of its blocks of bits and choices.

For Gaussian noise the derivative in the covariance is half the Hessian in the mean (Bonnet and Price), so with
:math:`\Sigma = C C^T`

    dE/dsigma = sigma tr(H)  (scalar)     dE/dsigma_i = sigma_i H_ii  (vector)     dE/dC = tril(H C)  (Cholesky factor)

For a quadratic the same holds under any noise, in terms of its standard deviation.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._bound import Bound, Form, Gradient, assemble, check_form
from varopt.bounds._composite_bound import CompositeBound, SmoothedRows
from varopt.bounds._discrete_parts import Part, part_of, refusal_of, refuse
from varopt.bounds._family_noise import FamilyNoise, TurnedNoise
from varopt.bounds._gap import is_isotropic, is_quadratic
from varopt.bounds._hessian import Hessian, to_simplex
from varopt.bounds._layout import Component, Layout
from varopt.bounds._target import objective_target
from varopt.composite import Composite, Congruence, columns_of, composite
from varopt.families import LocationScale
from varopt.model import Objective, Variable
from varopt.model.blocks import AffineBlock, Block, NormBlock, QuadraticBlock, TermBlock
from varopt.model.maps import Map, kept_products, products_are_kept

__all__ = ["FamilyBound"]

Vector = NDArray[np.float64]
Rule = list[tuple[Any, NDArray[np.intp]]]

# The composite form of an objective's real blocks: the same for all bounds of it, and nothing of the data is copied.
_forms: WeakKeyDictionary[Objective, Composite] = WeakKeyDictionary()


class FamilyBound(CompositeBound):
    """The bound of an objective under a family; `NoClosedForm` where a block has no expectation of its own.

    Parameters
    ----------
    layout : Layout
        The objective, and which family rules which of its variables.
    method : str
        "closed_form", or "quadrature" of the rows.
    nodes : int
        Gauss nodes of each panel.
    """

    def __init__(self, layout: Layout, method: str, nodes: int) -> None:
        Bound.__init__(self, objective_target(layout), method)
        objective = layout.objective
        blocks = [block for block in objective.blocks if _is_real(block)]
        rules = [_rule(layout, block, method) for block in blocks]
        terms = [rule for block, rule in zip(blocks, rules, strict=True) if _is_row(block)]
        self._layout = layout
        self._discrete: list[Part] = [part_of(layout, b, method) for b in objective.blocks if not _is_real(b)]
        if objective not in _forms:
            _forms[objective] = composite(objective, multiplied=False, blocks=blocks, absolute=False)
        super().__init__(_forms[objective], layout.mean, FamilyNoise(layout, terms, nodes))
        self.method = method

    def _locate(self) -> list[Vector]:
        return [r.positions(self.mean) for r in self.problem.rows]  # kept by no one: the form outlives the bound

    @cached_property
    def value(self) -> float:
        """E."""
        with nullcontext() if products_are_kept() else kept_products():  # as of K, in x'Kx and in terms of Kx
            smooth = super().value
        return smooth + sum(part.value for part in self._discrete)

    @cached_property
    def gap(self) -> float:
        """E minus f at the mean (at the mode, for bits)."""
        if any(c.is_discrete for c in self._layout.components):
            return self.value - self._target.at_centre()
        return super().gap

    @cached_property
    def mean_gradient(self) -> Vector:
        """The gradient in the mean; for choices along the simplex."""
        location = super().mean_gradient
        for part in self._discrete:
            location += part.gradient
        for c in self._layout.components:
            location[c.part] = to_simplex(c, location[c.part])
        return location

    @cached_property
    def gradient(self) -> Gradient:
        """The gradient in every parameter of the family."""
        return assemble(self._layout.components, self.mean_gradient, self._dispersion)

    def _dispersion(self, c: Component) -> Vector:
        rows = sum((self._of_rows(part, c) for part in self.rows), np.zeros(c.factor.shape))
        others = [*(form.curvature for form in self.problem.forms), *(part.curvature for part in self.groups)]
        total = sum((_spread(part, c) for part in others), rows)
        return np.asarray(c.unit * sum((part.spread(c) for part in self._discrete), total))

    def _of_rows(self, part: SmoothedRows, c: Component) -> Any:
        """What a block of rows adds to the derivative in the factor of a component."""
        by_sigma = part.expectations.sigma
        if by_sigma is None or c.is_gaussian or is_quadratic(part.rows.term):
            return _spread(part.curvature, c)
        linear = columns_of(part.rows.linear, c.part)
        if linear is None:
            return np.zeros(c.factor.shape)
        # One coordinate a row: s_k = |a_kj| sd_j, so dE/dsd_j = sum_k |a_kj| dE/ds_k.
        own = np.ravel(abs(linear.explicit()).T @ (part.rows.weights * by_sigma))
        return own if c.factor.ndim else np.asarray(own.sum())

    def hessian(self, form: Form = "dense") -> Any:
        """Second derivatives of E in the mean; for bits and choices in the probabilities, along the simplex."""
        if not any(c.is_discrete for c in self._layout.components):
            return super().hessian(form)
        check_form(form)
        return getattr(self._mixed_hessian, form)()

    @cached_property
    def _mixed_hessian(self) -> Hessian:
        whole = self._layout.objective.variables

        def curvature(variables: tuple[Variable, ...]) -> list[Congruence]:
            concerned = [p for p in self._discrete if any(v in variables for v in p.block.variables)]
            found = [own for part in concerned if (own := part.curvature(variables)) is not None]
            return found + (self.curvatures() if variables == whole else [])  # real parts see no bits

        return Hessian(self._layout.objective.size, self._layout.components, curvature)

    max_gap, convex, concave, __repr__ = Bound.max_gap, Bound.convex, Bound.concave, Bound.__repr__


def _is_real(block: Block) -> bool:
    """Whether a block needs no expectation over bits or choices: an affine one needs their mean alone."""
    return isinstance(block, AffineBlock) or all(v.kind == "real" for v in block.variables)


def _is_row(block: Block) -> bool:
    return isinstance(block, TermBlock) and bool(block.variables)


def _spread(curvature: Congruence, c: Component) -> Any:
    """Derivative in the factor C of the covariance ``C C'`` of a component, in the shape of C."""
    if c.factor.ndim < 2 and "diagonal" in curvature.__dict__:  # of a quadratic form, which keeps it
        own_diagonal = curvature.diagonal[c.part]
        return c.factor * (own_diagonal if c.factor.ndim else own_diagonal.sum())
    own = curvature.of_columns(c.part)
    if own is None:
        return np.zeros(c.factor.shape)
    if c.factor.ndim == 2:
        whole = own.matrix() @ c.factor
        return np.tril(whole) if c.is_triangular else whole
    return c.factor * (own.diagonal if c.factor.ndim else own.trace())


# -- Which rule a block of rows has -----------------------------------------------------------------------------------


def _rule(layout: Layout, block: Block, method: str) -> Rule | None:
    """None where the closed form holds, else families with the rows under their noise; or the refusal."""
    if isinstance(block, (AffineBlock, QuadraticBlock)) or (
        isinstance(block, NormBlock) and is_isotropic(layout, block)
    ):
        return None
    if not isinstance(block, TermBlock):
        raise refusal_of(block)
    components = layout.of(block.variables)
    gaussian = all(c.is_gaussian for c in components)
    if method == "closed_form" and not (gaussian or is_quadratic(block.term)):
        why = f"under {_names(components)} the expectation of {block.term.name} is not elementary"
        raise refuse(block, why)
    if method == "closed_form" or not components or (is_quadratic(block.term) and not gaussian):
        return None
    return _noise_of_rows(block, components)


def _names(components: list[Component]) -> str:
    return ", ".join(sorted({type(c.family).__name__ for c in components}))


def _noise_of_rows(block: TermBlock, components: list[Component]) -> Rule:
    """Families, each with the rows under its noise: Gaussian coordinates add up, others must be alone in a row."""
    everything = np.arange(block.argument.rows)
    if all(c.is_gaussian for c in components):
        return [(components[0].family, everything)]
    if any(not c.is_gaussian and c.factor.ndim == 2 for c in components):
        raise refuse(block, f"a matrix mixes the coordinates of the noise of {_names(components)}")
    counts = np.stack([_nonzeros(block.argument.stacked(c.variables)) for c in components])
    alone = counts.sum(axis=0) <= 1
    added = np.stack([n for n, c in zip(counts, components, strict=True) if not c.is_gaussian]).sum(axis=0) == 0
    if not np.all(alone | added):
        raise refuse(block, f"a sum of several coordinates under {_names(components)} has no one-dimensional rule")
    owner = np.argmax(counts > 0, axis=0)
    rules: Rule = []
    for i, c in enumerate(components):
        mine = everything[owner == i]
        if mine.size and (c.is_gaussian or c.family.noise_symmetric):  # type: ignore[attr-defined]
            rules.append((c.family, mine))
        elif mine.size:  # a negative coefficient turns the noise round
            signs = np.ravel(block.argument.stacked(c.variables).explicit().sum(axis=1))[mine]
            turned = [(c.family, mine[signs >= 0.0]), (TurnedNoise(cast(LocationScale, c.family)), mine[signs < 0.0])]
            rules += [(law, rows) for law, rows in turned if rows.size]
    return rules


def _nonzeros(linear: Map) -> NDArray[np.intp]:
    """Number of entries of each row that are not zero."""
    return np.ravel((linear.explicit() != 0).sum(axis=1))
