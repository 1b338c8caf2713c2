"""Polynomials in bits and one-hot choices: products of discrete variables, of any degree.

A bit is its own square and two categories of one choice exclude each other, so every polynomial is multilinear; its
expectation under a factorised distribution is the same polynomial of the probabilities [SB12, section 4].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._affine import Affine, Expression, Variable, select
from varopt.model._blocks import AffineBlock, Block, ComposedBlock, PolynomialBlock, QuadraticBlock, TermBlock, written
from varopt.model._maps import Map, Scaled, Selection, Sparse, as_vector
from varopt.model._objective import Elementwise, Objective
from varopt.model._points import flattened, ordered, slices
from varopt.terms import AFFINE, UNKNOWN, Curvature

__all__ = ["Polynomial", "as_polynomial", "combined", "multiply"]

# rows (M,), coordinates (M, d), coefficients (M,): coordinates in the flat order of the polynomial's variables
Monomials = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]

_MANY = 256  # addends a sum keeps before it is expanded


class Polynomial(Expression):
    """A vector, or scalar, of multilinear polynomials: monomials by degree, each once per row.

    A sum keeps its addends and is expanded when it is first used, so that Python's `sum` of many is not quadratic.
    """

    lowest = -np.inf  # of the entries; not worth a search here

    def __init__(self, used: tuple[Variable, ...], monomials: Mapping[int, Monomials], shape: tuple[int, ...]) -> None:
        self.used, self.monomials, self.shape = used, dict(monomials), shape
        self._kept: tuple[Polynomial, ...] = ()

    @classmethod
    def sum_of(cls, polynomials: Iterable[Polynomial], shape: tuple[int, ...]) -> Polynomial:
        """The sum of polynomials of this shape, or of scalars."""
        lazy = cls.__new__(cls)
        lazy.shape, lazy._kept = shape, tuple(addend for p in polynomials for addend in p._addends)
        # Expanded now and then, so that no list grows long.
        return lazy if len(lazy._kept) < _MANY else Polynomial(lazy.used, lazy.monomials, shape)

    @property
    def _addends(self) -> tuple[Polynomial, ...]:
        return (self,) if "monomials" in self.__dict__ else self._kept

    @cached_property
    def used(self) -> tuple[Variable, ...]:
        """The variables, in the order of the coordinates."""
        return ordered(v for addend in self._kept for v in addend.used)

    @cached_property
    def monomials(self) -> dict[int, Monomials]:
        """By degree d: rows (M,), coordinates (M, d) and coefficients (M,)."""
        aligned = [addend.broadcast(self.shape).over(self.used) for addend in self._kept]
        return _merged(item for polynomial in aligned for item in polynomial.monomials.items())

    @classmethod
    def from_affine(cls, affine: Affine) -> Polynomial:
        """An affine expression of discrete variables, entry by entry."""
        affine.check()
        offset = np.array(np.broadcast_to(np.asarray(affine.offset, dtype=np.float64), affine.rows))
        parts: list[tuple[int, Monomials]] = [
            (0, (np.arange(affine.rows), np.empty((affine.rows, 0), np.intp), offset))
        ]
        for variable, part in slices(affine.variables).items():
            rows, columns, values = _entries(affine.maps[variable])
            parts.append((1, (rows, columns[:, None] + part.start, values)))
        return cls(affine.variables, _merged(parts), affine.shape)

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.used

    @property
    def degree(self) -> int:
        """Largest number of factors of a monomial."""
        return max(self.monomials, default=0)

    @property
    def curvature(self) -> Curvature:
        """Affine up to degree one, else unknown; of a vector, for every entry."""
        return AFFINE if self.degree <= 1 else UNKNOWN

    def over(self, used: tuple[Variable, ...]) -> Polynomial:
        """The same polynomial, written with more variables."""
        if used == self.used:
            return self
        where = slices(used)
        table = np.concatenate([np.arange(where[v].start, where[v].stop) for v in self.used] or [np.empty(0, np.intp)])
        moved = {d: (rows, table[k] if d else k, c) for d, (rows, k, c) in self.monomials.items()}
        return Polynomial(used, moved, self.shape)

    def scale(self, factor: Any) -> Polynomial:
        factor = as_vector("the factor", factor)
        wide = self.broadcast(_common_shape(self.shape, factor.shape))
        scaled = [
            (d, (r, k, c * (factor[r] if factor.ndim else float(factor)))) for d, (r, k, c) in wide.monomials.items()
        ]
        return Polynomial(wide.used, _merged(scaled) if np.any(factor == 0) else dict(scaled), wide.shape)

    def broadcast(self, shape: tuple[int, ...]) -> Polynomial:
        """A scalar repeated to a vector."""
        if self.shape == shape:
            return self
        n = shape[0]
        repeated = {
            d: (np.repeat(np.arange(n), c.size), np.tile(k, (n, 1)), np.tile(c, n))
            for d, (_, k, c) in self.monomials.items()
        }
        return Polynomial(self.used, repeated, shape)

    def add(self, other: Any) -> Any:
        if not isinstance(other, Expression):
            other = Affine({}, 0.0, ()).add(other)
        polynomial = as_polynomial(other) if isinstance(other, (Affine, Polynomial)) else None
        if polynomial is not None:
            shape = _common_shape(self.shape, polynomial.shape)
            return Polynomial.sum_of([self, polynomial], shape)
        if self.shape == ():
            return self.total().add(other)
        raise ValueError(f"{self} and {other} cannot be added entry by entry; sum each with vo.sum first.")

    def times(self, other: Polynomial, *, summed: bool = False) -> Polynomial:
        """The product entry by entry, or the sum of its entries."""
        left, right = _aligned(self, other)
        choice = _choices(left.used)
        parts: list[tuple[int, Monomials]] = []
        for rows_a, codes_a, values_a in left.monomials.values():
            for rows_b, codes_b, values_b in right.monomials.values():
                # Of scalars, every monomial meets every other.
                i, j = (
                    _join(rows_a, rows_b)
                    if left.shape
                    else np.divmod(np.arange(rows_a.size * rows_b.size), rows_b.size)
                )
                rows = np.zeros_like(i) if summed else rows_a[i]
                parts += _reduced(choice, (rows, np.hstack([codes_a[i], codes_b[j]]), values_a[i] * values_b[j]))
        return Polynomial(left.used, _merged(parts), () if summed else left.shape)

    def transform(self, outer: Map, shape: tuple[int, ...]) -> Polynomial:
        outer.check("the matrix before @")
        rows, columns, entries = _entries(outer)
        parts = []
        for degree, (inner, codes, values) in self.monomials.items():
            i, j = _join(columns, inner)
            parts.append((degree, (rows[i], codes[j], entries[i] * values[j])))
        return Polynomial(self.used, _merged(parts), shape)

    def total(self) -> Objective:
        summed = dict(self.monomials)
        if self.shape:
            summed = _merged((d, (np.zeros_like(r), k, c)) for d, (r, k, c) in summed.items())
        constant = float(summed.pop(0)[2].sum()) if 0 in summed else 0.0
        monomials = {d: (k, c) for d, (_, k, c) in summed.items()}
        return Objective([PolynomialBlock(self.used, monomials, constant)])

    def __getitem__(self, index: Any) -> Polynomial:
        kept, shape = select(self, index)
        kept = np.arange(self.rows)[kept]
        parts = []
        for degree, (rows, codes, values) in self.monomials.items():
            i, j = _join(kept, rows)
            parts.append((degree, (i, codes[j], values[j])))
        return Polynomial(self.used, _merged(parts), shape)

    def values(self, points: Mapping[Variable, NDArray[Any]]) -> NDArray[Any]:
        flat = flattened(self.used, points)
        total = np.zeros((*flat.shape[:-1], self.rows))
        for rows, codes, values in self.monomials.values():
            products = flat[..., codes].prod(axis=-1) * values
            spread = sp.csr_array((np.ones(rows.size), (rows, np.arange(rows.size))), shape=(self.rows, rows.size))
            total += Sparse(spread).apply(products)
        return total

    def check(self) -> None:
        """Data were checked when the polynomial was expanded."""

    def __str__(self) -> str:
        if self.shape:
            return f"polynomials(degree {self.degree} in {', '.join(map(str, self.used))})"
        monomials = {d: (k, c) for d, (_, k, c) in self.monomials.items() if d}
        return written(self.used, monomials, float(sum(self.monomials[0][2])) if 0 in self.monomials else 0.0)

    def __repr__(self) -> str:
        return f"<polynomial of shape {self.shape}: {self}>"


def combined(blocks: Iterable[PolynomialBlock]) -> PolynomialBlock:
    """The sum of polynomial blocks as one."""
    (block,) = Polynomial.sum_of(map(_from_block, blocks), ()).total().blocks
    return block  # type: ignore[return-value]


def _from_block(block: PolynomialBlock) -> Polynomial:
    monomials: dict[int, Monomials] = {
        d: (np.zeros(len(c), np.intp), k, np.asarray(block.weights * c, dtype=np.float64))
        for d, (k, c) in block.monomials.items()
    }
    constant = np.array([block.weights * block.constant])
    monomials[0] = (np.zeros(1, np.intp), np.empty((1, 0), np.intp), constant)
    return Polynomial(block.used, monomials, ())


def as_polynomial(expression: Any) -> Polynomial | None:
    """An expression as a polynomial in discrete variables, where it is one."""
    if isinstance(expression, Polynomial):
        return expression
    if isinstance(expression, Affine):
        return Polynomial.from_affine(expression) if _is_discrete(expression) else None
    if isinstance(expression, Elementwise):
        parts = [_block_entries(part) for part in expression.parts]
        parts += [] if expression.rest is None else [as_polynomial(expression.rest)]
    elif isinstance(expression, Objective):
        parts = [_block_total(block) for block in expression.blocks]
    else:
        return None
    polynomials = [part for part in parts if part is not None]
    return Polynomial.sum_of(polynomials, expression.shape) if len(polynomials) == len(parts) else None


def _block_total(block: Block) -> Polynomial | None:
    if isinstance(block, PolynomialBlock):
        return _from_block(block)
    if isinstance(block, AffineBlock):
        return as_polynomial(block.argument.scale(block.weights))
    if isinstance(block, QuadraticBlock):
        z = as_polynomial(block.argument)
        return None if z is None else z.times(z.transform(block.matrix, z.shape), summed=True).scale(block.weights)
    if isinstance(block, (TermBlock, ComposedBlock)):
        entries = _block_entries(block)
        return None if entries is None else as_polynomial(entries.total())
    return None


def _block_entries(block: TermBlock | ComposedBlock) -> Polynomial | None:
    """A term without knots, a square say, entry by entry."""
    z = None if block.term.knots else as_polynomial(block.argument)
    if z is None:
        return None
    (coefficients,), (centre,) = block.term.pieces, block.term.centres
    shifted = z.add(-1.0 * np.asarray(centre))
    total = shifted.scale(0.0).add(coefficients[-1])
    for coefficient in coefficients[-2::-1]:  # Horner's rule
        total = total.times(shifted).add(coefficient)
    return total.scale(block.weights)  # type: ignore[no-any-return]


def multiply(left: Expression, right: Expression, *, summed: bool = False) -> Polynomial:
    """The product of two expressions, or the sum of its entries, where it is a polynomial in discrete variables."""
    factors = []
    for expression in (left, right):
        factor = as_polynomial(expression)
        if factor is None:
            raise TypeError(
                f"a product of expressions must be a polynomial in Binary or Categorical variables, and {expression} "
                "is none: for real variables use sum_squares or quad_form, or hand vo.bound a callable."
            )
        factors.append(factor)
    return factors[0].times(factors[1], summed=summed)


# -- Helpers ----------------------------------------------------------------------------------------------------------


def _is_discrete(affine: Affine) -> bool:
    return all(v.kind != "real" for v in affine.variables)


def _common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a and b and a != b:
        raise ValueError(f"polynomials and their factors must have one length; got {a[0]} and {b[0]}.")
    return a or b


def _aligned(left: Polynomial, right: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Two polynomials in the same variables and of the same length."""
    shape, used = _common_shape(left.shape, right.shape), ordered([*left.used, *right.used])
    return left.broadcast(shape).over(used), right.broadcast(shape).over(used)


def _entries(linear: Map) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """The nonzero entries of a matrix: rows, columns, values."""
    if isinstance(linear, Scaled):
        rows, columns, values = _entries(linear.inner)
        return rows, columns, values * (linear.scale if np.ndim(linear.scale) == 0 else np.asarray(linear.scale)[rows])
    if isinstance(linear, Selection):  # by far the most frequent, and many times faster than by SciPy
        rows = np.arange(linear.shape[0])
        return rows, rows if linear.index is None else linear.index, np.ones(rows.size)
    entries = sp.coo_array(linear.explicit())
    return entries.row.astype(np.intp), entries.col.astype(np.intp), entries.data.astype(np.float64)


def _join(left: NDArray[np.intp], right: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index pairs ``(i, j)`` with ``left[i] == right[j]``."""
    order = np.argsort(right, kind="stable")
    start = np.searchsorted(right[order], left, side="left")
    count = np.searchsorted(right[order], left, side="right") - start
    i = np.repeat(np.arange(left.size), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return i, order[np.repeat(start, count) + within]


def _choices(used: tuple[Variable, ...]) -> NDArray[np.intp]:
    """For every coordinate the choice it belongs to: categories of one choice share theirs, a bit has its own."""
    widths = [v.dimensions[1] if v.kind == "categorical" else 1 for v in used]
    starts = slices(used).values()
    labels = [part.start + np.arange(part.stop - part.start) // w for part, w in zip(starts, widths, strict=True)]
    return np.concatenate(labels) if labels else np.empty(0, np.intp)


def _reduced(choice: NDArray[np.intp], monomials: Monomials) -> list[tuple[int, Monomials]]:
    """Monomials with distinct coordinates: ``x * x = x``, and two categories of one choice give zero."""
    rows, codes, values = monomials
    if codes.shape[1] <= 1:
        return [(codes.shape[1], monomials)]
    codes = np.sort(codes, axis=1)
    same = codes[:, 1:] == codes[:, :-1]
    labels = choice[codes]
    keep = ~((labels[:, 1:] == labels[:, :-1]) & ~same).any(axis=1)
    rows, codes, values, same = rows[keep], codes[keep], values[keep], same[keep]
    first = np.hstack([np.ones((same.shape[0], 1), dtype=bool), ~same])
    degree = first.sum(axis=1)
    result = []
    for d in np.unique(degree).tolist():
        at = degree == d
        result.append((d, (rows[at], codes[at][first[at]].reshape(-1, d), values[at])))
    return result


def _merged(parts: Iterable[tuple[int, Monomials]]) -> dict[int, Monomials]:
    """Equal monomials of a row added up, by degree; those that cancel dropped."""
    by_degree: dict[int, list[Monomials]] = {}
    for degree, monomials in parts:
        by_degree.setdefault(degree, []).append(monomials)
    merged = {}
    for degree in sorted(by_degree):
        pieces = by_degree[degree]
        rows, codes, values = (np.concatenate([p[k] for p in pieces]) for k in range(3))
        at, sums = np.arange(values.size), values
        if values.size > 1:
            order, first = _sorted([rows, *codes.T])
            at, sums = order[first], np.add.reduceat(values[order], first)
        at, sums = at[sums != 0.0], sums[sums != 0.0]
        if at.size:
            merged[degree] = (rows[at], codes[at], sums)
    return merged


def _sorted(keys: list[NDArray[np.intp]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The order that sorts rows of keys, first key first, and where in it a new row begins."""
    sizes = [int(key.max()) + 1 for key in keys]
    if math.prod(sizes) < 2**62:  # one number says it all, and sorts many times faster
        packed = keys[0]
        for key, size in zip(keys[1:], sizes[1:], strict=True):
            packed = packed * size + key
        order = np.argsort(packed, kind="stable")
        changes = np.diff(packed[order]) != 0
    else:
        order = np.lexsort(keys[::-1])
        changes = np.logical_or.reduce([np.diff(key[order]) != 0 for key in keys])
    return order, np.flatnonzero(np.concatenate([[True], changes]))
