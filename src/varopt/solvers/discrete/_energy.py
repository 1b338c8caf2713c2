"""The normal form of discrete problems: a polynomial in bits and one-hot choices, to be minimised."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model import Objective, as_polynomial
from varopt.model.blocks import AffineBlock, Block, PolynomialBlock, QuadraticBlock, TermBlock
from varopt.solvers.discrete._colouring import colour
from varopt.solvers.discrete._matrices import count_nonzero, pieces, product, stored, symmetrised

__all__ = ["BIT", "LITERAL_DERIVATIVE", "NEGATED", "SPIN", "Energy", "NotPolynomial", "Products", "energy_of"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

# What a factor of a product may be, as a function of its coordinate x: x, 1 - x, or the spin 1 - 2 x.
BIT, NEGATED, SPIN = 0, 1, 2
LITERAL_DERIVATIVE = np.array([1.0, -1.0, -2.0])  # of each, in x

_WIDEST = 8  # degree up to which a polynomial is tried in spins


class NotPolynomial(ValueError):
    """The objective is no polynomial in Binary and Categorical variables."""


@dataclass(frozen=True)
class Products:
    """``sum_m weight_m prod_j literal_mj`` with d factors each.

    A factor is coded as ``kind * size + coordinate``, so that a clause stays one product of negated bits, and a
    correlation one product of spins, instead of the 2^d monomials they expand to.
    """

    codes: Index  # (M, d)
    weights: Vector  # (M,)

    @property
    def degree(self) -> int:
        """Number of factors."""
        return int(self.codes.shape[1])

    def split(self, size: int) -> tuple[Index, Index]:
        """Kinds and coordinates of the factors."""
        kind, coordinate = np.divmod(self.codes, size)
        return kind, coordinate

    def factors(self, x: NDArray[Any]) -> NDArray[Any]:
        """The factors at points of shape (size, R), as (d, M, R)."""
        return literals(x)[self.codes.T]


def literals(x: NDArray[Any]) -> NDArray[Any]:
    """What codes select rows of."""
    return np.concatenate([x, 1.0 - x, 1.0 - 2.0 * x])


@dataclass(frozen=True)
class Energy:
    """``constant + linear'x + x'Qx / 2 + products``, over x made of one-hot sites.

    Parameters
    ----------
    constant : float
        Added to everything.
    linear : ndarray of shape (size,)
        Coefficients of single coordinates.
    quadratic : sparse array, or ndarray where a quarter of the entries or more are there, of shape (size, size)
        Q, symmetric with an empty diagonal: a bit is its own square. No entries within a site.
    products : tuple of Products
        Of three factors and more, on distinct sites.
    widths : ndarray of int
        Coordinates of each site: 1 for a bit, k for a choice among k.
    floor : float
        What the energy is known not to fall below by the way it was stated, as a sum of squares is not below zero.

    Notes
    -----
    E is linear in every site, so its mean under independent sites is E itself at the probabilities. Memory is linear
    in the number of terms.
    """

    constant: float
    linear: Vector
    quadratic: Any
    products: tuple[Products, ...] = ()
    widths: Index | None = None
    floor: float = -math.inf

    @classmethod
    def quadratic_form(
        cls,
        matrix: Any,
        linear: Any = 0.0,
        constant: float = 0.0,
        widths: Index | None = None,
        weight: float = 1.0,
    ) -> Energy:
        """``constant + linear'x + weight x'Mx`` for any M: symmetrised, with squares and exclusions carried out."""
        matrix = matrix if sp.issparse(matrix) else np.asarray(matrix)
        size = matrix.shape[0]
        coefficients = np.broadcast_to(np.asarray(linear, dtype=np.float64), (size,)) + weight * matrix.diagonal()
        return cls(constant, coefficients, symmetrised(matrix, _site_of(size, widths), weight), (), widths)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return int(self.linear.size)

    @property
    def is_binary(self) -> bool:
        """Whether every site is a bit."""
        return self.widths is None or bool(np.all(self.widths == 1))

    @property
    def degree(self) -> int:
        """Most factors of a term."""
        return max((p.degree for p in self.products), default=2 if count_nonzero(self.quadratic) else 1)

    @cached_property
    def site(self) -> Index:
        """The site of each coordinate."""
        return _site_of(self.size, self.widths)

    @cached_property
    def neighbours(self) -> Any:
        """The graph of sites: a matrix that is not zero where two occur in one term. Of pairs of bits, Q itself."""
        if self.is_binary and not self.products:
            return self.quadratic
        count = int(self.site[-1]) + 1 if self.size else 0
        pairs = sp.coo_array(self.quadratic)
        rows, columns = [self.site[pairs.row]], [self.site[pairs.col]]
        for products in self.products:
            where = self.site[products.split(self.size)[1]]
            for i, j in itertools.permutations(range(products.degree), 2):
                rows.append(where[:, i])
                columns.append(where[:, j])
        r, c = np.concatenate(rows), np.concatenate(columns)
        graph = sp.csr_array((np.ones(r.size, dtype=np.float32), (r, c)), shape=(count, count))
        return graph.astype(bool)

    @cached_property
    def colours(self) -> Index:
        """A colour for each site such that those of one colour share no term."""
        return colour(self.neighbours)

    def value(self, x: NDArray[Any]) -> Any:
        """E at one point (size,) or at the columns of (size, R), in double precision."""
        x = np.asarray(x, dtype=np.float64)
        columns = x.reshape(self.size, -1)
        fields = 0.5 * product(self.quadratic, columns) + self.linear[:, None]
        total = self.constant + np.einsum("ir,ir->r", fields, columns)
        for products in self.products:
            total = total + products.weights @ products.factors(columns).prod(axis=0)
        return float(total[0]) if x.ndim == 1 else total

    def gradient(self, x: NDArray[Any]) -> NDArray[Any]:
        """Derivatives at the columns of (size, R): what each coordinate adds to E, the other sites held."""
        total = product(self.quadratic, x) + self.linear[:, None]
        for products in self.products:
            kind, coordinate = products.split(self.size)
            factors = products.factors(x)
            for j in range(products.degree):
                others = np.delete(factors, j, axis=0).prod(axis=0)
                derivatives = products.weights * LITERAL_DERIVATIVE[kind[:, j]]
                shape = (self.size, products.weights.size)
                total += (
                    sp.csr_array((derivatives, (coordinate[:, j], np.arange(derivatives.size))), shape=shape) @ others
                )
        return np.asarray(total)

    @cached_property
    def granularity(self) -> float:
        """Values differ by multiples of this: the greatest common divisor of the coefficients; 0 where none is known.

        Coefficients are taken for integers after a multiplication by 1, 2, 4 or 8; larger ones must be exact in
        double precision to count.
        """
        parts = (self.linear, *pieces(self.quadratic), *(p.weights for p in self.products))
        for denominator in (1.0, 2.0, 4.0, 8.0):
            divisor, total = 0, 0.0
            for part in parts:
                scaled = np.abs(denominator * part)
                total += float(scaled.sum())
                if total >= 2**52 or not np.all(scaled == np.rint(scaled)):
                    break
                divisor = int(np.gcd.reduce(scaled.astype(np.int64), initial=divisor))
            else:
                return (divisor or 1) / denominator  # of a constant, anything
        return 0.0

    @cached_property
    def magnitude(self) -> float:
        """The sum of the sizes of all terms: no partial sum of them is larger."""
        pairs = math.fsum(float(np.abs(part).sum()) for part in pieces(self.quadratic))
        longer = sum(float(np.abs(p.weights).sum()) for p in self.products)
        return abs(self.constant) + float(np.abs(self.linear).sum()) + 0.5 * pairs + longer

    @cached_property
    def unit(self) -> float:
        """The largest coefficient in size: what tolerances of values near zero are relative to; 1 where all are 0."""
        parts = (self.linear, *pieces(self.quadratic), *(p.weights for p in self.products))
        return float(max(np.abs(part).max(initial=0.0) for part in parts)) or 1.0

    def tolerance(self, tol: float, value: float) -> float:
        """What a relative tolerance is at a value, so that a change of units changes nothing but the units.

        Values near zero are measured by the steps between values, where there are any, else by the coefficients.
        """
        return tol * max(self.granularity or self.unit, abs(value))

    @cached_property
    def least_above_floor(self) -> float:
        """The least value not below `floor` that E can take: exactly, as the floor is exact."""
        if not (self.granularity and math.isfinite(self.floor)):
            return self.floor
        step, constant = Fraction(self.granularity), Fraction(self.constant)
        return float(constant + step * math.ceil((Fraction(self.floor) - constant) / step))

    def round_up(self, lower: float) -> float:
        """The least value not below a lower bound that E can take, where its values lie on a grid."""
        if not (self.granularity and math.isfinite(lower)):
            return lower
        steps = (lower - self.constant) / self.granularity
        slack = 1e-9 + 1e-12 * abs(steps)  # the bound's own last digits must not carry it past a value
        return self.constant + self.granularity * math.ceil(steps - slack)

    def in_spins(self) -> Energy:
        """The same energy with its products in spins, where that is shorter: correlations are."""
        if not self.products or not self.is_binary or self.degree > _WIDEST:
            return self
        terms: dict[int, list[tuple[Index, Vector]]] = {}
        for products in self.products:
            kind, coordinate = products.split(self.size)
            # x = (1 - s)/2, 1 - x = (1 + s)/2: every subset of the factors becomes a product of spins.
            sign = np.where(kind == BIT, -0.5, 0.5)
            offset = np.where(kind == SPIN, 0.0, 0.5)
            sign = np.where(kind == SPIN, 1.0, sign)
            for count in range(products.degree + 1):
                for chosen in itertools.combinations(range(products.degree), count):
                    rest = [j for j in range(products.degree) if j not in chosen]
                    weight = products.weights * sign[:, chosen].prod(axis=1) * offset[:, rest].prod(axis=1)
                    terms.setdefault(count, []).append((np.sort(coordinate[:, chosen], axis=1), weight))
        merged = {d: _merge(parts) for d, parts in terms.items()}
        long = tuple(Products(codes + SPIN * self.size, w) for d, (codes, w) in merged.items() if d > 2 and w.size)
        if sum(p.codes.size for p in long) >= sum(p.codes.size for p in self.products):
            return self
        constant = self.constant + float(merged[0][1].sum())
        linear, quadratic = self.linear.copy(), self.quadratic
        if 1 in merged:  # s = 1 - 2 x
            codes, weight = merged[1]
            constant += float(weight.sum())
            np.add.at(linear, codes[:, 0], -2.0 * weight)
        if 2 in merged:  # s t = 1 - 2 x - 2 y + 4 x y
            codes, weight = merged[2]
            constant += float(weight.sum())
            for j in range(2):
                np.add.at(linear, codes[:, j], -2.0 * weight)
            half = sp.csr_array((4.0 * weight, (codes[:, 0], codes[:, 1])), shape=quadratic.shape)
            quadratic = stored(quadratic + half + half.T)
        return replace(self, constant=constant, linear=linear, quadratic=quadratic, products=long)


def _site_of(size: int, widths: Index | None) -> Index:
    return np.arange(size) if widths is None else np.repeat(np.arange(widths.size), widths)


def _merge(parts: Iterable[tuple[Index, Vector]]) -> tuple[Index, Vector]:
    """Equal rows added up; what cancels, up to rounding, dropped."""
    listed = list(parts)
    codes, weights = np.concatenate([c for c, _ in listed]), np.concatenate([w for _, w in listed])
    if codes.shape[1] == 0:
        return codes[:1], np.array([weights.sum()])
    unique, inverse = np.unique(codes, axis=0, return_inverse=True)
    sums = np.bincount(inverse.ravel(), weights=weights, minlength=len(unique))
    sizes = np.bincount(inverse.ravel(), weights=np.abs(weights), minlength=len(unique))
    keep = np.abs(sums) > 1e-14 * sizes
    return np.asarray(unique[keep], dtype=np.intp), np.asarray(sums[keep], dtype=np.float64)


# -- From objectives --------------------------------------------------------------------------------------------------


def energy_of(objective: Objective) -> Energy:
    """An objective of discrete variables as an energy; raises `NotPolynomial` naming the block that is none."""
    real = [str(v) for v in objective.variables if v.kind == "real"]
    if real:
        raise NotPolynomial(f"{', '.join(real)} is real, and a polynomial in bits has discrete variables only.")
    widths = np.concatenate(
        [
            np.full(v.size // w, w)
            for v in objective.variables
            for w in [v.dimensions[1] if v.kind == "categorical" else 1]
        ]
    )
    size = objective.size
    matrix: Any = sp.csr_array((size, size))
    linear, constant = np.zeros(size), 0.0
    polynomials: list[Block] = []
    for block in objective.blocks:
        if not block.variables:
            constant += float(block.value({}))
        elif isinstance(block, AffineBlock):
            linear += block.weights * block.argument.stacked(objective.variables).transpose_apply(np.ones(1))
            constant += block.weights * float(np.ravel(block.argument.offset)[0])
        elif isinstance(block, (QuadraticBlock, TermBlock)) and (pair := _second_order(block)) is not None:
            inner, first = pair
            # z'Mz + first'z with z = Lx + d
            outer = block.argument.stacked(objective.variables).explicit()
            offset = np.broadcast_to(np.asarray(block.argument.offset, dtype=np.float64), (outer.shape[0],))
            matrix = matrix + stored(outer.T @ (inner @ outer))
            linear += np.asarray(outer.T @ (inner @ offset + inner.T @ offset + first)).ravel()
            constant += float(offset @ (inner @ offset) + first @ offset)
            constant += _at_zero(block, outer.shape[0])
        else:
            polynomials.append(block)
    energy = Energy.quadratic_form(matrix, linear, constant, widths)
    energy = _with_polynomial(energy, objective, polynomials) if polynomials else energy
    return replace(energy, floor=math.fsum(map(_block_floor, objective.blocks)))


def _block_floor(block: Block) -> float:
    """What a block is known not to fall below, rounding included; minus infinity where nothing is known."""
    if not block.variables:
        low = float(block.value({}))
    elif isinstance(block, PolynomialBlock):
        low = block.weights * block.lowest if block.weights > 0.0 else -math.inf
    elif isinstance(block, TermBlock):
        low = float(np.broadcast_to(block.lowest, (block.argument.rows,)).sum())
    else:
        return -math.inf
    return low - 1e-12 * abs(low) if math.isfinite(low) else low


def _second_order(block: QuadraticBlock | TermBlock) -> tuple[Any, Vector] | None:
    """M and the linear part of a block ``z'Mz + first'z + const``; None where it is of another kind."""
    rows = block.argument.rows
    if isinstance(block, QuadraticBlock):
        return block.weights * block.matrix.explicit(), np.zeros(rows)
    if block.term.knots or block.term.degree > 2:
        return None
    weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), (rows,))
    zero = np.zeros(rows)
    second = 0.5 * weights * block.term.derivative(zero, 2)
    return sp.dia_array((second[None], [0]), shape=(rows, rows)).tocsr(), weights * block.term.derivative(zero)


def _at_zero(block: QuadraticBlock | TermBlock, rows: int) -> float:
    if isinstance(block, QuadraticBlock):
        return 0.0
    return float(np.sum(block.weights * block.term.value(np.zeros(rows))))


def _with_polynomial(energy: Energy, objective: Objective, blocks: list[Block]) -> Energy:
    whole = as_polynomial(Objective(blocks))
    if whole is None:
        culprit = next(b for b in blocks if as_polynomial(Objective([b])) is None)
        raise NotPolynomial(f"{culprit.describe()} is no polynomial in Binary and Categorical variables.")
    (block,) = whole.over(objective.variables).total().blocks
    if not isinstance(block, PolynomialBlock):
        raise NotPolynomial(f"{block.describe()} is no polynomial in Binary and Categorical variables.")
    linear, constant, quadratic = energy.linear.copy(), energy.constant + block.constant, energy.quadratic
    products = []
    for degree, (codes, coefficients) in block.monomials.items():
        weights = np.asarray(block.weights * coefficients, dtype=np.float64)
        if degree == 1:
            linear += np.bincount(codes[:, 0], weights=weights, minlength=energy.size)
        elif degree == 2:
            half = sp.csr_array((weights, (codes[:, 0], codes[:, 1])), shape=quadratic.shape)
            quadratic = stored(quadratic + half + half.T)
        else:
            products.append(Products(codes, weights))
    return replace(energy, constant=constant, linear=linear, quadratic=quadratic, products=tuple(products)).in_spins()
