r"""The expectation of blocks of bits and choices, in closed form or by enumeration.

A part gives value, gradient and Hessian in the mean. A quadratic needs mean and covariance alone, whatever the family,
and with :math:`\Sigma = C C^T` of its real variables

    dE/dsigma = sigma tr(H)  (scalar)     dE/dsigma_i = sigma_i H_ii  (vector)     dE/dC = tril(H C)  (Cholesky factor)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.bounds._bound import NoClosedForm
from varopt.bounds._enumeration import MAX_STATES, Enumeration, count_states
from varopt.bounds._gap import is_quadratic, quadratic_diagonal
from varopt.bounds._hessian import same_choice
from varopt.bounds._layout import Component, Layout, marginals
from varopt.bounds._target import block_values
from varopt.composite import Congruence, pick
from varopt.model import Variable
from varopt.model.blocks import AffineBlock, Block, NormBlock, PolynomialBlock, QuadraticBlock, TermBlock
from varopt.model.maps import Selection

__all__ = ["Part", "part_of", "refusal_of", "refuse"]

Vector = NDArray[np.float64]
Variables = tuple[Variable, ...]

_ANY = "method='quadrature' (up to 4 real coordinates and 18 bits) or method='sampled'"


def refuse(block: Block, why: str, alternative: str = _ANY) -> NoClosedForm:
    """The refusal: it names the block, the reason and what to use instead."""
    return NoClosedForm(f"{block.describe()} has no closed form: {why}. Use {alternative}.")


def part_of(layout: Layout, block: Block, method: str) -> Part:
    """The expectation of a block with bits or choices in it, or the refusal."""
    components = layout.of(block.variables)
    discrete = [c for c in components if c.is_discrete]
    if method == "quadrature" and len(discrete) == len(components):
        states = count_states(marginals(layout, block.variables))
        if states > MAX_STATES:
            exact = "method='closed_form' or " if _is_polynomial(block) else ""
            raise NoClosedForm(
                f"{block.describe()} cannot be enumerated: it has {states:.3g} states, of which quadrature takes "
                f"at most {MAX_STATES}. Use {exact}method='sampled'."
            )
        return EnumeratedPart(layout, block)
    if isinstance(block, PolynomialBlock):
        return PolynomialPart(layout, block)
    if isinstance(block, QuadraticBlock):
        return QuadraticPart(layout, block)
    if isinstance(block, TermBlock) and _is_polynomial(block):
        return SquarePart(layout, block)
    if isinstance(block, TermBlock):
        names = ", ".join(str(v) for c in discrete for v in c.variables)
        raise refuse(block, f"{block.term.name} of the discrete {names} is no polynomial")
    raise refusal_of(block)


def refusal_of(block: Block) -> NoClosedForm:
    """The refusal of a block that is neither a term, a quadratic nor a norm of an affine map."""
    if isinstance(block, NormBlock):
        return refuse(block, "the group norm has one only where its entries are independent Gaussians of one variance")
    return refuse(block, f"it is a term of {getattr(block, 'argument', block)}, which is not affine")


def _is_polynomial(block: Block) -> bool:
    """Whether a block of bits and choices is a polynomial of them, in closed form."""
    quadratic = isinstance(block, TermBlock) and is_quadratic(block.term)
    return quadratic or isinstance(block, (AffineBlock, PolynomialBlock, QuadraticBlock))


class Part(ABC):
    """The expectation of one block; what is asked for is computed once."""

    def __init__(self, layout: Layout, block: Any) -> None:
        self.layout, self.block = layout, block
        self.components = layout.of(block.variables)

    @property
    @abstractmethod
    def value(self) -> float:
        """The expectation."""

    @property
    @abstractmethod
    def gap(self) -> float:
        """The expectation minus the block at the mean, without cancellation; of real variables."""

    @property
    @abstractmethod
    def gradient(self) -> Vector:
        """Derivatives in the mean, flat, of all variables of the objective."""

    @abstractmethod
    def curvature(self, variables: Variables) -> Congruence | None:
        """Second derivatives in the mean of some variables, up to what only choices see; None where they are zero."""

    def diagonal(self, c: Component) -> Vector:
        """Diagonal of the curvature in a component."""
        curvature = self.curvature(c.variables)
        return np.zeros(c.size) if curvature is None else curvature.diagonal

    def trace(self, c: Component) -> float:
        """Trace of the curvature in a component."""
        return float(self.diagonal(c).sum())

    def spread(self, c: Component) -> Any:
        """Derivative in the factor C of the covariance ``C C'`` of a real component, in the shape of C."""
        curvature = self.curvature(c.variables) if c in self.components else None
        if curvature is None:
            return np.zeros(c.factor.shape)
        if c.factor.ndim == 2:
            return np.tril(curvature.matrix() @ c.factor)
        return c.factor * (self.diagonal(c) if c.factor.ndim else self.trace(c))

    def _transpose(self, values: Vector) -> Vector:
        linear = self.block.argument.stacked(self.layout.objective.variables)
        return np.asarray(linear.transpose_apply(values), dtype=np.float64)

    @cached_property
    def _at_mean(self) -> Vector:
        return np.asarray(self.block.argument.values(self.layout.points), dtype=np.float64)


# -- Quadratics: mean and covariance suffice, under every family ------------------------------------------------------


class MomentsPart(Part):
    """A quadratic with Hessian H: its value at the mean plus ``tr(H V) / 2`` for the covariance V of each component."""

    @abstractmethod
    def curvature(self, variables: Variables) -> Congruence: ...

    @property
    @abstractmethod
    def _value_at_mean(self) -> float: ...

    @property
    @abstractmethod
    def _gradient_at_mean(self) -> Vector: ...

    @cached_property
    def value(self) -> float:
        return self._value_at_mean + sum(self._excess(c) for c in self.components)

    @cached_property
    def gap(self) -> float:
        return sum(self._excess(c) for c in self.components)

    @cached_property
    def gradient(self) -> Vector:
        total = np.array(self._gradient_at_mean)
        for c in self.components:
            if c.is_discrete:
                total[c.part] += self._excess_gradient(c)
        return total

    def _excess(self, c: Component) -> float:
        """``tr(H V) / 2``."""
        if c.is_bits:  # V = diag(p (1 - p))
            return 0.5 * float(self.diagonal(c) @ c.family.variance)
        if c.is_discrete:  # V has blocks diag(p) - p p' over the categories of a choice
            p = c.family.mean
            return 0.5 * float(self.diagonal(c) @ p - p @ self._within(c))
        return 0.5 * float(np.sum(c.factor * self.spread(c)))

    def _excess_gradient(self, c: Component) -> Vector:
        if c.is_bits:
            return 0.5 * self.diagonal(c) * (1.0 - 2.0 * c.family.mean)
        return 0.5 * self.diagonal(c) - self._within(c)

    def _within(self, c: Component) -> Vector:
        """``H p`` with the entries of H between different choices left out."""
        blocks = pick(self.curvature(c.variables).matrix(), *same_choice(c))
        return np.ravel(np.einsum("nij,nj->ni", blocks, c.family.mean.reshape(-1, c.choices)))


class QuadraticPart(MomentsPart):
    """``weight z'Az``."""

    @cached_property
    def _image(self) -> Vector:
        matrix, z = self.block.matrix, self._at_mean
        return np.asarray(matrix.apply(z) + matrix.transpose_apply(z))

    @property
    def _value_at_mean(self) -> float:
        return float(self.block.weights * 0.5 * (self._at_mean @ self._image))

    @property
    def _gradient_at_mean(self) -> Vector:
        return float(self.block.weights) * self._transpose(self._image)

    def curvature(self, variables: Variables) -> Congruence:
        return Congruence(self.block.argument.stacked(variables), self.block.matrix, 2.0 * float(self.block.weights))

    def diagonal(self, c: Component) -> Vector:
        return quadratic_diagonal(self.block, c)


class SquarePart(MomentsPart):
    """``sum_k w_k (c0 + c1 z_k + c2 z_k^2)`` where z_k has discrete parts."""

    @property
    def _value_at_mean(self) -> float:
        return float(np.sum(self.block.weights * self.block.term.value(self._at_mean)))

    @property
    def _gradient_at_mean(self) -> Vector:
        return self._transpose(np.asarray(self.block.weights * self.block.term.derivative(self._at_mean)))

    def curvature(self, variables: Variables) -> Congruence:
        second = np.asarray(self.block.weights * self.block.term.derivative(self._at_mean, 2), dtype=np.float64)
        return Congruence(self.block.argument.stacked(variables), second)


# -- Discrete blocks --------------------------------------------------------------------------------------------------


class DiscretePart(Part):
    """A block of discrete variables alone, as a function of their probabilities side by side."""

    gap = 0.0  # of no use: the mean of bits is not a point

    @cached_property
    def _where(self) -> NDArray[np.intp]:
        return _coordinates(self.layout, self.block.variables)

    def _scatter(self, own: Vector) -> Vector:
        total = np.zeros(self.layout.objective.size)
        total[self._where] = own
        return total

    @property
    @abstractmethod
    def _inner(self) -> Any:
        """Second derivatives in the block's own coordinates."""

    def curvature(self, variables: Variables) -> Congruence | None:
        given = _coordinates(self.layout, variables)
        position = np.full(self.layout.objective.size, -1)
        position[given] = np.arange(given.size)
        index = position[self._where]
        kept = index >= 0  # of a product, perhaps not all variables of the block
        inner = self._inner if kept.all() else self._inner[kept][:, kept]
        return Congruence(Selection(index[kept], given.size), inner)


def _coordinates(layout: Layout, variables: Variables) -> NDArray[np.intp]:
    slices = layout.objective.slices
    return np.concatenate([np.arange(slices[v].start, slices[v].stop) for v in variables])


class PolynomialPart(DiscretePart):
    """The multilinear extension at the probabilities: monomials have distinct, independent coordinates."""

    @cached_property
    def _theta(self) -> Vector:
        return self.layout.mean[self._where]

    @cached_property
    def value(self) -> float:
        return float(self.block.multilinear(self._theta))

    @cached_property
    def gradient(self) -> Vector:
        return self._scatter(self.block.multilinear_gradient(self._theta))

    @cached_property
    def _inner(self) -> Any:
        """Second derivatives, sparse."""
        size, rows, columns, entries = self._theta.size, [], [], []
        for degree, (coordinates, coefficients) in self.block.monomials.items():
            factors = self._theta[coordinates]
            for i in range(degree):
                for j in set(range(degree)) - {i}:
                    rest = np.delete(factors, [i, j], axis=1).prod(axis=1)
                    entries.append(self.block.weights * coefficients * rest)
                    rows.append(coordinates[:, i])
                    columns.append(coordinates[:, j])
        index = (np.concatenate(rows), np.concatenate(columns))
        return sp.coo_array((np.concatenate(entries), index), shape=(size, size)).tocsr()

    def curvature(self, variables: Variables) -> Congruence | None:
        return super().curvature(variables) if self.block.degree > 1 else None


class EnumeratedPart(DiscretePart):
    """Any block of bits and choices, by its values at all states."""

    @cached_property
    def _states(self) -> Enumeration:
        return Enumeration(marginals(self.layout, self.block.variables))

    @cached_property
    def _values(self) -> Vector:
        return block_values(self.block, self.block.variables, self._states.states)

    @cached_property
    def value(self) -> float:
        return self._states.expectation(self._values)

    @cached_property
    def gradient(self) -> Vector:
        return self._scatter(self._states.gradient(self._values))

    @cached_property
    def _inner(self) -> Vector:
        return self._states.hessian(self._values)
