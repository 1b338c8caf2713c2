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

from varopt._verified import SLACK, UNIT, gamma, total
from varopt.solvers.discrete._colouring import colour
from varopt.solvers.discrete._matrices import count_nonzero, pieces, pieces_among, product, stored, symmetrised
from varopt.solvers.discrete._rounding import added_rounding, exact_grid, lost_by_adding

__all__ = ["BIT", "LITERAL_DERIVATIVE", "NEGATED", "SPIN", "Energy", "Products"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

# What a factor of a product may be, as a function of its coordinate x: x, 1 - x, or the spin 1 - 2 x.
BIT, NEGATED, SPIN = 0, 1, 2
LITERAL_DERIVATIVE = np.array([1.0, -1.0, -2.0])  # of each, in x

_WIDEST = 8  # degree up to which a polynomial is tried in spins


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
    rounding : float
        By how much it may differ from what was stated, at any x: what its coefficients lost when they were added up.

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
    rounding: float = 0.0

    @classmethod
    def quadratic_form(
        cls,
        matrix: Any,
        linear: Any = 0.0,
        constant: float = 0.0,
        widths: Index | None = None,
        weight: float = 1.0,
    ) -> Energy:
        """``constant + linear'x + weight x'Mx`` for any M: symmetrised, with squares and exclusions carried out.

        The weight is a power of two, of either sign, so that nothing is lost by it.
        """
        matrix = matrix if sp.issparse(matrix) else np.asarray(matrix)
        size = matrix.shape[0]
        given = np.broadcast_to(np.asarray(linear, dtype=np.float64), (size,))
        diagonal = weight * np.asarray(matrix.diagonal(), dtype=np.float64)
        pairs, lost = symmetrised(matrix, _site_of(size, widths), weight)
        return cls(constant, given + diagonal, pairs, (), widths, rounding=lost + lost_by_adding(given, diagonal))

    @classmethod
    def spin_form(cls, matrix: Any, fields: Vector, constant: float = 0.0, weight: float = 1.0) -> Energy:
        """``constant + fields's + weight sum_{i != j} M_ij s_i s_j`` with ``s = 2x - 1``; the weight as above."""
        # M s t = M (4 x y - 2 x - 2 y + 1)
        pairs = cls.quadratic_form(matrix, weight=4.0 * weight)
        sums, lost = pairs.row_sums()
        lost += added_rounding([constant, sums, fields], 4, 4.0, 8.0)
        constant = math.fsum([constant, *(0.125 * sums).tolist(), *(-fields).tolist()])
        linear = 2.0 * fields - 0.5 * sums
        return replace(pairs, constant=constant, linear=linear, rounding=pairs.rounding + lost)

    def row_sums(self) -> tuple[Vector, float]:
        """The sums of the rows of pairs, and what these have lost to rounding, added up."""
        pairs = self.quadratic
        longest = int(np.diff(pairs.indptr).max(initial=0)) if sp.issparse(pairs) else pairs.shape[0]
        return np.asarray(pairs.sum(axis=1)).ravel(), added_rounding(pieces(pairs), longest)

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
        double precision to count, and so must have been their sums.
        """
        if self.rounding:
            return 0.0
        parts = [self.linear, *pieces(self.quadratic), *(p.weights for p in self.products)]
        scale = exact_grid(parts)
        if not scale:
            return 0.0
        divisor = 0
        for part in parts:
            divisor = int(np.gcd.reduce(np.abs(scale * part).astype(np.int64), initial=divisor))
        return (divisor or 1) / scale  # of a constant, anything

    @cached_property
    def is_exact(self) -> bool:
        """Whether values are those of what was stated, to the last digit, in whatever order they are added up."""
        if not self.granularity:
            return False
        # Sizes may add up to whole numbers where values do not.
        return bool(exact_grid([self.constant, self.granularity, self.magnitude - abs(self.constant)]))

    @property
    def value_rounding(self) -> float:
        """What `value` is off by at most, from the energy as it is stored."""
        if self.is_exact:
            return 0.0
        longest = max([self.size, *(p.weights.size + p.degree for p in self.products)])
        return gamma(longest + len(self.products) + 4) * self.magnitude * SLACK

    def enclosed(self, x: Vector) -> tuple[float, float]:
        """The value of what was stated at a point of zeros and ones, and a bound of its error. Cost: one pass."""
        on = np.flatnonzero(x)
        sums = [(self.constant, 0.0), total(self.linear[on])]
        for entries in pieces_among(self.quadratic, on):
            value, error = total(entries)
            sums.append((0.5 * value, 0.5 * error))
        point = np.asarray(x, dtype=np.float64)[:, None]
        sums += [total(p.weights * p.factors(point).prod(axis=0)[:, 0]) for p in self.products]
        value = math.fsum(v for v, _ in sums)
        return value, (math.fsum(e for _, e in sums) + self.rounding + UNIT * abs(value)) * SLACK

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
        linear, quadratic = self.linear.copy(), self.quadratic
        constants = [self.constant, *merged[0][1].tolist()]
        if 1 in merged:  # s = 1 - 2 x
            codes, weight = merged[1]
            constants += weight.tolist()
            np.add.at(linear, codes[:, 0], -2.0 * weight)
        if 2 in merged:  # s t = 1 - 2 x - 2 y + 4 x y
            codes, weight = merged[2]
            constants += weight.tolist()
            for j in range(2):
                np.add.at(linear, codes[:, j], -2.0 * weight)
            half = sp.csr_array((4.0 * weight, (codes[:, 0], codes[:, 1])), shape=quadratic.shape)
            quadratic = stored(quadratic + half + half.T)
        # Each size is multiplied by nine at most, on the way to spins and back; what `_merge` drops is a hundred
        # roundings of it.
        occurrences = np.bincount(np.concatenate([p.split(self.size)[1].ravel() for p in self.products]))
        additions = 100 + 2**self.degree * (int(occurrences.max()) + len(self.products))
        parts = [self.constant, self.linear, *(p.weights for p in self.products)]
        lost = added_rounding(parts, additions, 10.0, 2.0**self.degree)
        return replace(
            self, constant=math.fsum(constants), linear=linear, quadratic=quadratic, products=long,
            rounding=self.rounding + lost,
        )  # fmt: skip


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
