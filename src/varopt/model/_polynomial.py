"""Polynomials in bits and one-hot choices: products of discrete variables, of any degree.

A bit is its own square and two categories of one choice exclude each other, so every polynomial is multilinear; its
expectation under a factorised distribution is the same polynomial of the probabilities [SB12, section 4].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._affine import Affine, Variable
from varopt.model._expression import Expression, flattened, ordered, select, slices
from varopt.model._generic import as_polynomial
from varopt.model._monomials import Monomials, Sizes, join, merged, reduced
from varopt.model._objective import Elementwise, Objective
from varopt.model.blocks import (
    AffineBlock,
    Block,
    ComposedBlock,
    PolynomialBlock,
    QuadraticBlock,
    TermBlock,
    block_sizes,
    written,
)
from varopt.model.maps import Map, Scaled, Selection, Sparse, as_vector
from varopt.terms import AFFINE, UNKNOWN, Curvature

__all__ = ["Polynomial", "as_polynomial"]

_KEPT_ADDENDS = 256  # of a sum, before it is expanded


class Polynomial(Expression):
    """A vector, or scalar, of multilinear polynomials: monomials by degree, each once per row.

    A sum keeps its addends and is expanded when it is first used, so that Python's `sum` of many is not quadratic.
    """

    lowest: float  # what no entry falls below, as far as the way it was built tells: a square is not negative

    def __init__(
        self, used: tuple[Variable, ...], monomials: Mapping[int, Monomials], shape: tuple[int, ...],
        lowest: float = -np.inf, sized: Callable[[], Sizes] | None = None,
    ) -> None:  # fmt: skip
        self.used, self.monomials, self.shape, self.lowest = used, dict(monomials), shape, lowest
        self._kept: tuple[Polynomial, ...] = ()
        self._sized = sized

    @classmethod
    def sum_of(cls, polynomials: Iterable[Polynomial], shape: tuple[int, ...]) -> Polynomial:
        """The sum of polynomials of this shape, or of scalars."""
        lazy = cls.__new__(cls)
        lazy._sized = None
        lazy.shape, lazy._kept = shape, tuple(addend for p in polynomials for addend in p._addends)
        lazy.lowest = sum((addend.lowest for addend in lazy._kept), 0.0)
        # Expanded now and then, so that no list grows long.
        if len(lazy._kept) < _KEPT_ADDENDS:
            return lazy
        return Polynomial(lazy.used, lazy.monomials, shape, lazy.lowest, partial(getattr, lazy, "sizes"))

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
        return merged(item for polynomial in aligned for item in polynomial.monomials.items())

    @cached_property
    def sizes(self) -> Sizes:
        """What the coefficients were added up from: asked for when it is to be known what rounding has cost."""
        if self._sized is not None:
            return self._sized()
        if self._kept:
            first, *others = (addend.broadcast(self.shape).sizes for addend in self._kept)
            return first.plus(*others)
        return Sizes.of_coefficients(self.monomials.values(), self.rows)

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
        lowest = offset.copy()
        for _, (rows, _, values) in parts[1:]:
            lowest += np.bincount(rows, weights=np.minimum(values, 0.0), minlength=affine.rows)
        sized = partial(Sizes.of_rows, [affine.maps[v] for v in affine.variables], offset)
        return cls(affine.variables, merged(parts), affine.shape, float(lowest.min(initial=np.inf)), sized)

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
        return Polynomial(used, moved, self.shape, self.lowest, partial(getattr, self, "sizes"))

    def scale(self, factor: Any) -> Polynomial:
        factor = as_vector("the factor", factor)
        wide = self.broadcast(_common_shape(self.shape, factor.shape))
        scaled = [
            (d, (r, k, c * (factor[r] if factor.ndim else float(factor)))) for d, (r, k, c) in wide.monomials.items()
        ]
        lowest = -np.inf
        if np.all(factor >= 0.0) and np.isfinite(self.lowest):
            lowest = float(np.min(factor * self.lowest, initial=np.inf))
        kept = merged(scaled) if np.any(factor == 0) else dict(scaled)
        return Polynomial(wide.used, kept, wide.shape, lowest, partial(_scaled_sizes, wide, factor))

    def broadcast(self, shape: tuple[int, ...]) -> Polynomial:
        """A scalar repeated to a vector."""
        if self.shape == shape:
            return self
        n = shape[0]
        repeated = {
            d: (np.repeat(np.arange(n), c.size), np.tile(k, (n, 1)), np.tile(c, n))
            for d, (_, k, c) in self.monomials.items()
        }
        return Polynomial(self.used, repeated, shape, self.lowest, partial(_selected_sizes, self, np.zeros(n, np.intp)))

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
                    join(rows_a, rows_b) if left.shape else np.divmod(np.arange(rows_a.size * rows_b.size), rows_b.size)
                )
                rows = np.zeros_like(i) if summed else rows_a[i]
                parts += reduced(choice, (rows, np.hstack([codes_a[i], codes_b[j]]), values_a[i] * values_b[j]))
        known = other is self or (self.lowest >= 0.0 and other.lowest >= 0.0) or _are_equal(left, right)
        lowest = 0.0 if known else -np.inf
        sized = partial(_product_sizes, left, right, summed)
        return Polynomial(left.used, merged(parts), () if summed else left.shape, lowest, sized)

    def transform(self, outer: Map, shape: tuple[int, ...]) -> Polynomial:
        outer.check("the matrix before @")
        rows, columns, entries = _entries(outer)
        parts = []
        for degree, (inner, codes, values) in self.monomials.items():
            i, j = join(columns, inner)
            parts.append((degree, (rows[i], codes[j], entries[i] * values[j])))
        return Polynomial(self.used, merged(parts), shape, sized=partial(_transformed_sizes, self, outer))

    def total(self) -> Objective:
        summed = dict(self.monomials)
        if self.shape:
            summed = merged((d, (np.zeros_like(r), k, c)) for d, (r, k, c) in summed.items())
        constant = float(summed.pop(0)[2].sum()) if 0 in summed else 0.0
        monomials = {d: (k, c) for d, (_, k, c) in summed.items()}
        sized = partial(_summed_sizes, self)
        return Objective([PolynomialBlock(self.used, monomials, constant, 1.0, self.rows * self.lowest, sized)])

    def __getitem__(self, index: Any) -> Polynomial:
        kept, shape = select(self, index)
        kept = np.arange(self.rows)[kept]
        parts = []
        for degree, (rows, codes, values) in self.monomials.items():
            i, j = join(kept, rows)
            parts.append((degree, (i, codes[j], values[j])))
        return Polynomial(self.used, merged(parts), shape, self.lowest, partial(_selected_sizes, self, kept))

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


# What `Polynomial.sizes` calls when it is first asked: functions by name, so that objectives can be sent to workers.


def _scaled_sizes(polynomial: Polynomial, factor: Any) -> Sizes:
    return polynomial.sizes.scaled(factor)


def _product_sizes(left: Polynomial, right: Polynomial, summed: bool) -> Sizes:
    sizes = left.sizes.times(right.sizes, left.degree + right.degree)
    return sizes.summed() if summed else sizes


def _transformed_sizes(polynomial: Polynomial, outer: Map) -> Sizes:
    return polynomial.sizes.transformed(outer)


def _selected_sizes(polynomial: Polynomial, kept: NDArray[np.intp]) -> Sizes:
    return polynomial.sizes.at(kept)


def _summed_sizes(polynomial: Polynomial) -> Sizes:
    return polynomial.sizes.summed()


def _from_block(block: PolynomialBlock) -> Polynomial:
    monomials: dict[int, Monomials] = {
        d: (np.zeros(len(c), np.intp), k, np.asarray(block.weights * c, dtype=np.float64))
        for d, (k, c) in block.monomials.items()
    }
    constant = np.array([block.weights * block.constant])
    monomials[0] = (np.zeros(1, np.intp), np.empty((1, 0), np.intp), constant)
    lowest = block.weights * block.lowest if block.weights > 0.0 else -np.inf
    return Polynomial(block.used, monomials, (), lowest, partial(block_sizes, block))


@as_polynomial.register(Polynomial)
def _(expression: Polynomial) -> Polynomial:
    return expression


@as_polynomial.register(Affine)
def _(expression: Affine) -> Polynomial | None:
    return Polynomial.from_affine(expression) if _is_discrete(expression) else None


@as_polynomial.register(Elementwise)
def _(expression: Elementwise) -> Polynomial | None:
    rest = () if expression.rest is None else (as_polynomial(expression.rest),)
    return _sum([*map(_block_entries, expression.parts), *rest], expression.shape)


@as_polynomial.register(Objective)
def _(expression: Objective) -> Polynomial | None:
    return _sum([*map(_block_total, expression.blocks)], ())


def _sum(parts: Sequence[Polynomial | None], shape: tuple[int, ...]) -> Polynomial | None:
    """The sum of polynomials; None where one of the parts is none."""
    polynomials = [part for part in parts if part is not None]
    return Polynomial.sum_of(polynomials, shape) if len(polynomials) == len(parts) else None


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


def _are_equal(left: Polynomial, right: Polynomial) -> bool:
    """Whether two polynomials in the same variables have the same coefficients: their product is a square."""
    mine, other = left.monomials, right.monomials
    return mine.keys() == other.keys() and all(all(map(np.array_equal, mine[d], other[d])) for d in mine)


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


def _choices(used: tuple[Variable, ...]) -> NDArray[np.intp]:
    """For every coordinate the choice it belongs to: categories of one choice share theirs, a bit has its own."""
    widths = [v.dimensions[1] if v.kind == "categorical" else 1 for v in used]
    starts = slices(used).values()
    labels = [part.start + np.arange(part.stop - part.start) // w for part, w in zip(starts, widths, strict=True)]
    return np.concatenate(labels) if labels else np.empty(0, np.intp)
