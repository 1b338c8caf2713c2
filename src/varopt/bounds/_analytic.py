r"""Bounds by expectations of every block: in closed form, and by one-dimensional quadrature.

Everything in theta follows from three things: the value, the gradient in the mean, and the Hessian in the mean. For a Gaussian the derivative
in the covariance is half that Hessian (Bonnet and Price), so with :math:`\Sigma = C C^T`

    dE/dsigma = sigma tr(H)   (scalar)      dE/dsigma_i = sigma_i H_ii   (vector)      dE/dC = tril(H C)   (Cholesky factor)

For a quadratic the same holds under any noise of variance one. Rows under other noise bring their own derivative in s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.bounds._hessian import Hessian
from varopt.bounds._layout import Component, Layout
from varopt.bounds._rows import closed_form_rows, quadrature_rows
from varopt.model._affine import Affine
from varopt.model._blocks import AffineBlock, Block, ComposedBlock, NormBlock, PolynomialBlock, QuadraticBlock, TermBlock
from varopt.model._maps import Map, Matrix, Operator, Scaled, Selection, Sparse
from varopt.model._points import unflatten
from varopt.terms import PiecewisePolynomial, _norm

__all__ = ["Expectation", "NoClosedForm", "expectation", "gap_bound"]

Vector = NDArray[np.float64]


class NoClosedForm(ValueError):
    """A block that has no closed form under the family; the message names it and the alternative."""


@dataclass
class Expectation:
    """What the blocks add up to."""

    size: int
    value: float = 0.0
    gap: float = 0.0  # expectation minus value at the mean, summed without cancellation
    mean_gradient: Vector = field(default_factory=lambda: np.empty(0))
    # Derivatives in the standard deviation of each coordinate that do not come from the Hessian (noise that is not Gaussian).
    own_sigma: Vector = field(default_factory=lambda: np.empty(0))
    hessian: Hessian = field(default_factory=lambda: Hessian(0))  # all of it
    heat: Hessian = field(default_factory=lambda: Hessian(0))  # the part that also rules the dispersion


def refuse(block: Block, why: str, alternative: str) -> NoClosedForm:
    """The refusal: it names the block, the reason and what to use instead."""
    return NoClosedForm(f"{block.describe()} has no closed form: {why}. Use {alternative}.")


_ANY = "method='quadrature' (up to 4 coordinates) or method='sampled'"


def expectation(layout: Layout, method: str, nodes: int) -> Expectation:
    """Sum of the expectations of all blocks under the layout's family."""
    size = layout.objective.size
    total = Expectation(size, mean_gradient=np.zeros(size), own_sigma=np.zeros(size), hessian=Hessian(size), heat=Hessian(size))
    labels = _choice_labels(layout)
    total.hessian.choices = labels if np.any(labels >= 0) else None
    mean = layout.mean
    for block in layout.objective.blocks:
        if isinstance(block, AffineBlock):
            _add_affine(total, layout, block, mean)
        elif isinstance(block, TermBlock):
            _add_term(total, layout, block, mean, method, nodes)
        elif isinstance(block, QuadraticBlock):
            _add_quadratic(total, layout, block, mean)
        elif isinstance(block, NormBlock):
            _add_norm(total, layout, block, mean)
        elif isinstance(block, PolynomialBlock):
            _add_polynomial(total, layout, block, mean)
        else:
            raise refuse(block, block.shape_curvature[1] if isinstance(block, ComposedBlock) else "its kind is unknown", _ANY)
    return total


def _choice_labels(layout: Layout) -> NDArray[np.intp]:
    """A label per choice of a discrete component (a bit is a choice of its own), -1 for real coordinates."""
    labels = np.full(layout.objective.size, -1, dtype=np.intp)
    for c in layout.components:
        if c.is_discrete:
            labels[c.part] = c.part.start + np.arange(c.part.stop - c.part.start) // c.choices
    return labels


def _add_affine(total: Expectation, layout: Layout, block: AffineBlock, mean: Vector) -> None:
    points = unflatten(layout.objective.variables, mean)
    total.value += float(block.value(points))
    linear = block.argument.stacked(layout.objective.variables)
    total.mean_gradient += block.weights * linear.transpose_apply(np.ones(1))


def _deviation(layout: Layout, argument: Affine) -> Vector:
    """Standard deviation of every row; independent components add their variances."""
    variance = np.zeros(argument.rows)
    for c in layout.of(argument.variables):
        variance += argument.stacked(c.variables).row_variance(c.factor)
    return np.sqrt(variance)


def _is_quadratic(term: PiecewisePolynomial) -> bool:
    return not term.knots and term.degree <= 2


def _add_term(total: Expectation, layout: Layout, block: TermBlock, mean: Vector, method: str, nodes: int) -> None:
    components = layout.of(block.variables)
    points = unflatten(layout.objective.variables, mean)
    nu = np.asarray(block.argument.values(points), dtype=np.float64)
    weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), nu.shape)
    linear = block.argument.stacked(layout.objective.variables)
    if any(c.is_discrete for c in components):
        if not _is_quadratic(block.term):
            what = ", ".join(str(v) for c in components if c.is_discrete for v in c.variables)
            raise refuse(block, f"{block.term.name} of the discrete {what} is no polynomial of low degree", _ANY)
        _add_discrete_square(total, layout, block.term, nu, weights, linear, components)
        return
    sigma = _deviation(layout, block.argument)
    gaussian = all(c.is_gaussian for c in components)
    heat = gaussian or _is_quadratic(block.term)  # then only mean and variance of a row matter
    if heat and (method == "closed_form" or not gaussian or not components):
        rows = closed_form_rows(block.term, nu, sigma)
        total.gap += float(weights @ block.term.gap(nu, sigma))
    else:
        family = components[0].family if gaussian else _single_noise(block, components, linear, method)
        rows = quadrature_rows(block.term, nu, sigma, family, nodes)
        total.gap += float(weights @ (rows.value - block.term.value(nu)))
    total.value += float(weights @ rows.value)
    total.mean_gradient += linear.transpose_apply(weights * rows.first)
    total.hessian.diagonal_parts.append((linear, weights * rows.second))
    if heat:
        total.heat.diagonal_parts.append((linear, weights * rows.second))
    else:
        # One coordinate a row: s_k = |a_kj| sd_j, so dE/dsd_j = sum_k |a_kj| dE/ds_k.
        explicit = linear.explicit()
        total.own_sigma += np.asarray(abs(explicit).T @ (weights * rows.sigma)).ravel()


def _single_noise(block: TermBlock, components: list[Component], linear: Map, method: str) -> Any:
    names = ", ".join(sorted({type(c.family).__name__ for c in components}))
    if method == "closed_form":
        raise refuse(block, f"under {names} the expectation of {block.term.name} is not elementary", _ANY)
    explicit = linear.explicit()
    per_row = np.diff(explicit.tocsr().indptr) if sp.issparse(explicit) else np.count_nonzero(explicit, axis=1)
    if np.any(per_row > 1) or len({type(c.family) for c in components}) > 1:
        raise refuse(block, f"a sum of several {names} coordinates has no one-dimensional rule", "method='sampled'")
    return components[0].family


def _add_discrete_square(
    total: Expectation, layout: Layout, term: PiecewisePolynomial, nu: Vector, weights: Vector, linear: Map, components: list[Component]
) -> None:
    """``<c0 + c1 z + c2 z^2>`` where z has discrete parts: mean and covariance suffice."""
    bend = term.derivative(nu, 2)  # 2 c2, row by row
    total.value += float(weights @ term.value(nu))
    total.mean_gradient += linear.transpose_apply(weights * term.derivative(nu))
    total.hessian.diagonal_parts.append((linear, weights * bend))
    scaled = weights * bend
    for c in components:
        part = _columns(linear, c.part)
        _add_covariance(total, layout, c, part.gram_diagonal(scaled), lambda part=part: part.gram(scaled))


def _columns(linear: Map, part: slice) -> Map:
    explicit = linear.explicit()
    if sp.issparse(explicit):
        return Sparse(explicit.tocsc()[:, part].tocsr())
    return Matrix(np.asarray(explicit)[:, part])


def _add_covariance(total: Expectation, layout: Layout, c: Component, diagonal: Vector, matrix: Any) -> None:
    """Add ``tr(H V) / 2`` for the covariance V of one component and H the Hessian of a quadratic, with its derivatives.

    `diagonal` is that of H; `matrix` gives H itself, and is only called where off-diagonal entries matter.
    """
    if not c.is_discrete:
        factor = np.asarray(c.factor)
        if factor.ndim == 2:
            dense = _densify(matrix())
            extra = 0.5 * float(np.sum(factor * (dense @ factor)))
        else:
            extra = 0.5 * float(np.sum(diagonal * factor**2))
        total.value += extra
        total.gap += extra
        size = c.part.stop - c.part.start
        selection = Selection(np.arange(c.part.start, c.part.stop), total.size)
        explicit: Any = matrix() if factor.ndim == 2 else sp.diags_array(diagonal) if size else diagonal
        total.heat.matrix_parts.append((selection, explicit))
        return
    p = c.family.mean
    if c.choices == 1:  # V = diag(p (1 - p))
        total.value += 0.5 * float(diagonal @ (p * (1.0 - p)))
        total.mean_gradient[c.part] += 0.5 * diagonal * (1.0 - 2.0 * p)
        return
    # V has blocks diag(p) - p p' over the categories of a choice.
    dense = _densify(matrix())
    n, k = p.size // c.choices, c.choices
    index = np.arange(p.size).reshape(n, k)
    blocks = dense[index[:, :, None], index[:, None, :]]
    rows = p.reshape(n, k)
    inner = np.einsum("nij,nj->ni", blocks, rows)
    total.value += 0.5 * float(diagonal @ p - np.sum(rows * inner))
    total.mean_gradient[c.part] += 0.5 * diagonal - inner.ravel()


def _densify(matrix: Any) -> Vector:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def _add_quadratic(total: Expectation, layout: Layout, block: QuadraticBlock, mean: Vector) -> None:
    points = unflatten(layout.objective.variables, mean)
    z = np.asarray(block.argument.values(points), dtype=np.float64)
    slope = block.matrix.apply(z) + block.matrix.transpose_apply(z)
    linear = block.argument.stacked(layout.objective.variables)
    total.value += float(block.weights * 0.5 * (z @ slope))
    total.mean_gradient += block.weights * linear.transpose_apply(slope)
    total.hessian.matrix_parts.append((linear, _SymmetricPart(block.matrix, 2.0 * float(block.weights))))
    for c in layout.of(block.variables):
        part = block.argument.stacked(c.variables)

        def matrix(part: Map = part) -> Any:
            explicit, inner = part.explicit(), _symmetric(block.matrix)
            return 2.0 * float(block.weights) * (explicit.T @ inner @ explicit)

        if isinstance(part, Selection) and part.index is None:
            diagonal = 2.0 * float(block.weights) * _diagonal(block.matrix)
        else:
            diagonal = np.asarray(_densify(matrix()).diagonal())
        _add_covariance(total, layout, c, diagonal, matrix)


def _symmetric(matrix: Map) -> Any:
    explicit = matrix.explicit()
    return 0.5 * (explicit + explicit.T)


def _diagonal(matrix: Map) -> Vector:
    if isinstance(matrix, Operator):
        return np.concatenate([np.diagonal(block[part]) for part, block in matrix._columns()])
    explicit = matrix.explicit()
    return np.array(explicit.diagonal(), dtype=np.float64)


class _SymmetricPart(Map):
    """``scale (A + A') / 2``, without forming it."""

    def __init__(self, matrix: Map, scale: float) -> None:
        self.matrix, self.factor, self.shape = matrix, scale, matrix.shape

    def apply(self, points: Vector) -> Vector:
        return 0.5 * self.factor * (self.matrix.apply(points) + self.matrix.transpose_apply(points))

    transpose_apply = apply

    def rows(self, index: Any) -> Map:
        return Matrix(self.dense()[index])

    def explicit(self) -> Any:
        return self.factor * _symmetric(self.matrix)

    def __str__(self) -> str:
        return str(self.matrix)


def _add_norm(total: Expectation, layout: Layout, block: NormBlock, mean: Vector) -> None:
    """``<||z_g||>`` for groups of coordinates under an isotropic Gaussian: functions of r = ||mean of z_g|| alone."""
    deviation, linear = _isotropic(layout, block)
    points = unflatten(layout.objective.variables, mean)
    z = np.asarray(block.argument.values(points), dtype=np.float64)
    r = np.atleast_1d(block.norms(z))
    sizes = np.array([g.size for g in block.groups])
    s = np.array([deviation[g[0]] for g in block.groups])
    weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), r.shape)
    value, _, second = _norm.derivatives(r, s, sizes)
    radial = _norm.radial(r, s, sizes)
    total.value += float(weights @ value)
    total.gap += float(weights @ _norm.gap(r, s, sizes))
    slope, rows, columns, entries = np.zeros(z.size), [], [], []
    for group, weight, norm, tangential, along in zip(block.groups, weights, r, radial, second, strict=True):
        slope[group] += weight * tangential * z[group]
        unit = z[group] / norm if norm > 0 else np.zeros(group.size)
        # Hessian of a radial function: (E'/r)(I - uu') + E'' uu'
        entries.append(weight * (tangential * np.eye(group.size) + (along - tangential) * np.outer(unit, unit)).ravel())
        rows.append(np.repeat(group, group.size))
        columns.append(np.tile(group, group.size))
    inner = sp.coo_array((np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=(z.size, z.size)).tocsr()
    total.mean_gradient += linear.transpose_apply(slope)
    total.hessian.matrix_parts.append((linear, inner))
    total.heat.matrix_parts.append((linear, inner))


def _isotropic(layout: Layout, block: NormBlock) -> tuple[Vector, Map]:
    """Standard deviations of the entries of z, if within each group they are equal and independent; else the refusal."""
    components = layout.of(block.variables)
    linear = block.argument.stacked(layout.objective.variables)
    if any(not c.is_gaussian for c in components):
        raise refuse(block, "the group norm has one under a Gaussian only", "method='sampled'")
    deviation = _deviation(layout, block.argument)
    if all(g.size == 1 for g in block.groups):
        return deviation, linear
    bare = [m.inner if isinstance(m, Scaled) and np.ndim(m.scale) == 0 else m for m in block.argument.maps.values()]
    if len(bare) != 1 or not isinstance(bare[0], Selection):
        raise refuse(block, "the group norm has one for coordinates of one variable only, not for a matrix of it", "method='sampled'")
    chosen = bare[0].index
    for group in block.groups:
        repeated = chosen is not None and np.unique(chosen[group]).size < group.size
        if repeated or np.ptp(deviation[group]) > 1e-12 * deviation[group].max() or any(np.ndim(c.factor) == 2 for c in components):
            raise refuse(block, "the group norm has one only where the Gaussian is isotropic within each group", "method='sampled'")
    return deviation, linear


def _add_polynomial(total: Expectation, layout: Layout, block: PolynomialBlock, mean: Vector) -> None:
    """The multilinear extension at the probabilities: monomials have distinct, independent coordinates."""
    where = np.concatenate([np.arange(layout.objective.size)[layout.objective.slices[v]] for v in block.used])
    theta = mean[where]
    total.value += float(block.multilinear(theta))
    np.add.at(total.mean_gradient, where, block.multilinear_gradient(theta))
    if block.degree >= 2:
        selection = Selection(where, layout.objective.size)
        total.hessian.matrix_parts.append((selection, _LazyHessian(block, theta)))


class _LazyHessian(Map):
    """Second derivatives of a multilinear polynomial, formed when asked for."""

    def __init__(self, block: PolynomialBlock, theta: Vector) -> None:
        self.block, self.theta, self.shape = block, theta, (theta.size, theta.size)

    def apply(self, points: Vector) -> Vector:
        return points @ self.explicit()

    transpose_apply = apply

    def rows(self, index: Any) -> Map:
        return Matrix(self.explicit()[index])

    def explicit(self) -> Any:
        return self.block.multilinear_hessian(self.theta)

    def __str__(self) -> str:
        return "second derivatives of a polynomial"


# -- A priori gaps ----------------------------------------------------------------------------------------------------


def gap_bound(layout: Layout) -> tuple[float, float, float]:
    """Parts of a bound, over all means, on ``|E - f|``: from jumps, from kinks and from curvature.

    Scaling the dispersion by c leaves the first, multiplies the second by c and the third by c^2.
    """
    if any(c.is_discrete for c in layout.components):
        raise ValueError("max_gap needs families over real variables: for bits the mean is not a point.")
    constant, linear, quadratic, signed = 0.0, 0.0, 0.0, 0.0
    for block in layout.objective.blocks:
        if isinstance(block, TermBlock):
            sigma = _deviation(layout, block.argument)
            if _is_quadratic(block.term):  # the same gap at every mean, of either sign: blocks may cancel
                signed += float(np.broadcast_to(block.weights, sigma.shape) @ block.term.gap(0.0 * sigma, sigma))
                continue
            weights = np.abs(np.broadcast_to(np.asarray(block.weights, dtype=np.float64), sigma.shape))
            jumps, kinks, bends = block.term.gap_coefficients()
            if not all(c.is_gaussian for c in layout.of(block.variables)):
                kinks = kinks * math.sqrt(2.0 * math.pi) / 2.0  # a kink j costs j <|noise|> / 2, at most j s / 2
            moving = sigma > 0
            constant += float(weights @ (jumps * moving))
            linear += float(weights @ (kinks * sigma))
            quadratic += float(weights @ (np.where(moving, bends, 0.0) * sigma**2))
        elif isinstance(block, QuadraticBlock):
            size = layout.objective.size
            alone = Expectation(size, mean_gradient=np.zeros(size), hessian=Hessian(size), heat=Hessian(size))
            _add_quadratic(alone, layout, block, np.zeros(size))
            signed += alone.gap
        elif isinstance(block, NormBlock):
            deviation, _ = _isotropic(layout, block)
            s = np.array([deviation[g[0]] for g in block.groups])
            worst = _norm.worst_gap(s, np.array([g.size for g in block.groups]))
            linear += float(np.abs(np.broadcast_to(block.weights, s.shape)) @ worst)
        elif not isinstance(block, AffineBlock):
            raise refuse(block, "no bound on its smoothing gap is known", "E.value - f(mean) at the points of interest")
    return constant, linear, quadratic + abs(signed)
