r"""The expectation of every kind of block, in closed form, by one-dimensional quadrature or by enumeration.

A part gives value, gradient and Hessian in the mean; the rest follows. For a Gaussian the derivative in the covariance
is half the Hessian in the mean (Bonnet and Price), so with :math:`\Sigma = C C^T`

    dE/dsigma = sigma tr(H)  (scalar)     dE/dsigma_i = sigma_i H_ii  (vector)     dE/dC = tril(H C)  (Cholesky factor)

For a quadratic the same holds under any noise, in terms of its standard deviation.
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
from varopt.bounds._gap import is_isotropic, is_quadratic, quadratic_diagonal
from varopt.bounds._hessian import Congruence, pick, same_choice
from varopt.bounds._layout import Component, Layout, marginals
from varopt.bounds._rows import Rows, closed_form_rows, deviation, quadrature_rows, squared_norms
from varopt.bounds._target import block_values
from varopt.model import Variable
from varopt.model._blocks import AffineBlock, Block, NormBlock, PolynomialBlock, QuadraticBlock, TermBlock
from varopt.model._maps import Map, Selection
from varopt.terms import _norm

__all__ = ["Part", "part_of"]

Vector = NDArray[np.float64]
Variables = tuple[Variable, ...]

_ANY = "method='quadrature' (up to 4 real coordinates and 18 bits) or method='sampled'"


def refuse(block: Block, why: str, alternative: str = _ANY) -> NoClosedForm:
    """The refusal: it names the block, the reason and what to use instead."""
    return NoClosedForm(f"{block.describe()} has no closed form: {why}. Use {alternative}.")


def part_of(layout: Layout, block: Block, method: str, nodes: int) -> Part:
    """The expectation of one block, or the refusal."""
    components = layout.of(block.variables)
    discrete = [c for c in components if c.is_discrete]
    if isinstance(block, AffineBlock):
        return AffinePart(layout, block)
    if method == "quadrature" and discrete and len(discrete) == len(components):
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
    if isinstance(block, TermBlock):
        if not discrete:
            return RowsPart(layout, block, method, nodes)
        if _is_polynomial(block):
            return SquarePart(layout, block)
        names = ", ".join(str(v) for c in discrete for v in c.variables)
        raise refuse(block, f"{block.term.name} of the discrete {names} is no polynomial")
    if isinstance(block, NormBlock):
        if not is_isotropic(layout, block):
            raise refuse(
                block, "the group norm has one only where its entries are independent Gaussians of one variance"
            )
        return NormPart(layout, block)
    culprit = getattr(block, "argument", block)
    raise refuse(block, f"it is a term of {culprit}, which is not affine")


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
        return np.zeros(c.size) if curvature is None else curvature.diagonal()

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

    def _transpose(self, slopes: Vector) -> Vector:
        linear = self.block.argument.stacked(self.layout.objective.variables)
        return np.asarray(linear.transpose_apply(slopes), dtype=np.float64)

    @cached_property
    def _at_mean(self) -> Vector:
        return np.asarray(self.block.argument.values(self.layout.points), dtype=np.float64)


class AffinePart(Part):
    """An affine block: its expectation is its value at the mean."""

    @cached_property
    def value(self) -> float:
        return float(self.block.value(self.layout.points))

    gap = 0.0

    @cached_property
    def gradient(self) -> Vector:
        return self._transpose(np.array([float(self.block.weights)]))

    def curvature(self, variables: Variables) -> None:
        return None


# -- Terms of rows ----------------------------------------------------------------------------------------------------


class RowsPart(Part):
    """``sum_k w_k <rho_k(z_k)>`` of real variables: z_k is one-dimensional."""

    def __init__(self, layout: Layout, block: TermBlock, method: str, nodes: int) -> None:
        super().__init__(layout, block)
        self._nodes = nodes
        gaussian = all(c.is_gaussian for c in self.components)
        # Gaussian rows and quadratics depend on the dispersion through the curvature alone.
        self._heat = gaussian or is_quadratic(block.term)
        self._closed = method == "closed_form" or not self.components or (is_quadratic(block.term) and not gaussian)
        if method == "closed_form" and not self._heat:
            raise refuse(
                block, f"under {_names(self.components)} the expectation of {block.term.name} is not elementary"
            )
        self._noise = [] if self._closed else _noise_of_rows(self)

    @cached_property
    def _sigma(self) -> Vector:
        return deviation(self.block.argument, self.components)

    @cached_property
    def _rows(self) -> Rows:
        term, nu, sigma = self.block.term, self._at_mean, self._sigma
        if self._closed:
            return closed_form_rows(term, nu, sigma)
        if len(self._noise) == 1:
            return quadrature_rows(term, nu, sigma, self._noise[0][0], self._nodes)
        rows = [np.empty(nu.shape) for _ in Rows._fields]
        for family, index in self._noise:
            part = quadrature_rows(term.take(index), nu[index], sigma[index], family, self._nodes)
            for whole, entries in zip(rows, part, strict=True):
                whole[index] = entries
        return Rows(*rows)

    def _weighted(self, entries: Vector) -> Vector:
        return np.asarray(self.block.weights * entries, dtype=np.float64)

    @cached_property
    def value(self) -> float:
        return float(self._weighted(self._rows.value).sum())

    @cached_property
    def gap(self) -> float:
        gap = self._rows.gap if self._rows.gap is not None else self.block.term.gap(self._at_mean, self._sigma)
        return float(self._weighted(gap).sum())

    @cached_property
    def gradient(self) -> Vector:
        return self._transpose(self._weighted(self._rows.first))

    @cached_property
    def _bends(self) -> Vector:
        return self._weighted(self._rows.second)

    def curvature(self, variables: Variables) -> Congruence:
        return Congruence(self.block.argument.stacked(variables), self._bends)

    def trace(self, c: Component) -> float:
        return float(self._bends @ squared_norms(self.block.argument, c.variables))

    def spread(self, c: Component) -> Any:
        if self._heat or c.is_gaussian or c not in self.components:
            return super().spread(c)
        # One coordinate a row: s_k = |a_kj| sd_j, so dE/dsd_j = sum_k |a_kj| dE/ds_k.
        explicit = self.block.argument.stacked(c.variables).explicit()
        own = np.ravel(abs(explicit).T @ self._weighted(np.asarray(self._rows.sigma)))
        return own if c.factor.ndim else np.asarray(own.sum())


def _names(components: list[Component]) -> str:
    return ", ".join(sorted({type(c.family).__name__ for c in components}))


def _noise_of_rows(part: RowsPart) -> list[tuple[Any, NDArray[np.intp]]]:
    """Families, each with the rows under its noise: Gaussian coordinates add up, others must be alone in a row."""
    components, argument = part.components, part.block.argument
    everything = np.arange(argument.rows)
    if all(c.is_gaussian for c in components):
        return [(components[0].family, everything)]
    counts = np.stack([_nonzeros(argument.stacked(c.variables)) for c in components])
    alone = counts.sum(axis=0) <= 1
    added = np.stack([n for n, c in zip(counts, components, strict=True) if not c.is_gaussian]).sum(axis=0) == 0
    if not np.all(alone | added):
        raise refuse(part.block, f"a sum of several coordinates under {_names(components)} has no one-dimensional rule")
    owner = np.argmax(counts > 0, axis=0)
    return [(c.family, everything[owner == i]) for i, c in enumerate(components) if np.any(owner == i)]


def _nonzeros(linear: Map) -> NDArray[np.intp]:
    """Number of entries of each row that are not zero."""
    return np.ravel((linear.explicit() != 0).sum(axis=1))


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
    def _slope(self) -> Vector:
        matrix, z = self.block.matrix, self._at_mean
        return np.asarray(matrix.apply(z) + matrix.transpose_apply(z))

    @property
    def _value_at_mean(self) -> float:
        return float(self.block.weights * 0.5 * (self._at_mean @ self._slope))

    @property
    def _gradient_at_mean(self) -> Vector:
        return float(self.block.weights) * self._transpose(self._slope)

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
        bends = np.asarray(self.block.weights * self.block.term.derivative(self._at_mean, 2), dtype=np.float64)
        return Congruence(self.block.argument.stacked(variables), bends)


# -- Group norms ------------------------------------------------------------------------------------------------------


class NormPart(Part):
    """``sum_g w_g <||z_g||>`` under an isotropic Gaussian: functions of the norm of the mean of z_g alone."""

    def __init__(self, layout: Layout, block: NormBlock) -> None:
        super().__init__(layout, block)
        first = np.array([g[0] for g in block.groups])
        self._s = deviation(block.argument, self.components)[first]
        self._sizes = np.array([g.size for g in block.groups])
        self._r = np.atleast_1d(block.norms(self._at_mean))
        self._weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), self._r.shape)

    @cached_property
    def _rows(self) -> tuple[Vector, Vector, Vector]:
        """Expectation, tangential curvature E'/r and radial curvature E'' of every group."""
        value, _, second = _norm.derivatives(self._r, self._s, self._sizes)
        return value, _norm.radial(self._r, self._s, self._sizes), second  # type: ignore[return-value]

    @cached_property
    def value(self) -> float:
        return float(self._weights @ self._rows[0])

    @cached_property
    def gap(self) -> float:
        return float(self._weights @ _norm.gap(self._r, self._s, self._sizes))

    def _by_size(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Groups of one size together: their positions, (m,), and entries, (m, size)."""
        kinds = [np.flatnonzero(self._sizes == size) for size in np.unique(self._sizes)]
        return [(at, np.stack([self.block.groups[k] for k in at])) for at in kinds]

    @cached_property
    def gradient(self) -> Vector:
        z = self._at_mean
        slope = np.zeros(z.shape)
        for at, entries in self._by_size():
            np.add.at(slope, entries, (self._weights[at] * self._rows[1][at])[:, None] * z[entries])
        return self._transpose(slope)

    @cached_property
    def _inner(self) -> Any:
        """Hessian in z, sparse: of a radial function it is ``(E'/r)(I - uu') + E'' uu'``, u the direction of z."""
        z, blocks, rows, columns = self._at_mean, [], [], []
        for at, entries in self._by_size():
            unit = z[entries] / np.where(self._r[at] > 0, self._r[at], 1.0)[:, None]
            tangential, along = (self._weights[at] * each[at] for each in self._rows[1:])
            block = (along - tangential)[:, None, None] * unit[:, :, None] * unit[:, None, :]
            block += tangential[:, None, None] * np.eye(entries.shape[1])
            blocks.append(block.ravel())
            pairs = np.broadcast_arrays(entries[:, :, None], entries[:, None, :])
            rows.append(pairs[0].ravel())
            columns.append(pairs[1].ravel())
        index = (np.concatenate(rows), np.concatenate(columns))
        return sp.coo_array((np.concatenate(blocks), index), shape=(z.size, z.size)).tocsr()

    def curvature(self, variables: Variables) -> Congruence:
        return Congruence(self.block.argument.stacked(variables), self._inner)


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
