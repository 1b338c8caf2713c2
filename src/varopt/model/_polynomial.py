"""Polynomials in bits and one-hot choices: products of discrete variables, of any degree.

A bit is its own square and two categories of one choice exclude each other, so every polynomial is multilinear; its expectation under a
factorised distribution is the same polynomial of the probabilities [SB12, section 4].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_finite
from varopt.model._affine import Affine, Expression, Variable
from varopt.model._blocks import PolynomialBlock, TermBlock
from varopt.model._points import slices
from varopt.terms import PiecewisePolynomial

__all__ = ["Polynomial", "multiply", "power"]

# rows (M,), codes (M, d), coefficients (M,): a code is the variable's position, shifted, plus the coordinate
Monomials = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
_SHIFT = 32


class Polynomial(Expression):
    """A vector, or scalar, of multilinear polynomials: monomials by degree."""

    def __init__(self, used: Mapping[int, Variable], monomials: Mapping[int, Monomials], shape: tuple[int, ...]) -> None:
        self.used, self.monomials, self.shape = dict(used), dict(monomials), shape

    @classmethod
    def from_affine(cls, affine: Affine) -> Polynomial:
        """An affine expression of discrete variables, entry by entry."""
        rows, codes, coefficients = [], [], []
        for variable, linear in affine.maps.items():
            linear.check(f"the matrix of {variable}")
            entries = _coordinates(linear.explicit())
            rows.append(entries[0])
            codes.append((variable.position << _SHIFT) + entries[1])
            coefficients.append(entries[2])
        used = {v.position: v for v in affine.maps}
        linear_part = (np.concatenate(rows), np.concatenate(codes)[:, None], np.concatenate(coefficients))
        offset = np.broadcast_to(np.asarray(affine.offset, dtype=np.float64), affine.rows)
        constant = (np.arange(affine.rows), np.empty((affine.rows, 0), dtype=np.int64), np.array(offset))
        return cls(used, _merge({0: [constant], 1: [linear_part]}), affine.shape)

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(self.used[p] for p in sorted(self.used))

    def scale(self, factor: Any) -> Polynomial:
        factor = as_finite("the factor", factor)
        if factor.ndim and factor.shape != self.shape:
            raise ValueError(f"the factor must have length {self.shape}; got shape {factor.shape}.")
        scaled = {d: (r, k, c * (factor if factor.ndim == 0 else factor[r])) for d, (r, k, c) in self.monomials.items()}
        return Polynomial(self.used, scaled, self.shape)

    def add(self, other: Any) -> Any:
        if not isinstance(other, Expression):
            other = Affine({}, 0.0, self.shape).add(other)
        if isinstance(other, Affine) and _is_discrete(other):
            other = _as_polynomial(other if other.maps else Affine(other.maps, other.offset, other.shape))
        if isinstance(other, Polynomial):
            if other.shape != self.shape:
                raise ValueError(f"expressions must have one length to be added; got {self.shape} and {other.shape}.")
            parts: dict[int, list[Monomials]] = {}
            for polynomial in (self, other):
                for degree, monomials in polynomial.monomials.items():
                    parts.setdefault(degree, []).append(monomials)
            return Polynomial({**self.used, **other.used}, _merge(parts), self.shape)
        if self.shape == ():
            from varopt.model._objective import as_objective

            return as_objective(self).add(other)
        raise ValueError(f"a vector of polynomials in bits cannot be added to {type(other).__name__}; sum both first.")

    def times(self, other: Polynomial) -> Polynomial:
        """The product entry by entry."""
        if self.shape != other.shape:
            raise ValueError(f"expressions must have one length to be multiplied; got {self.shape} and {other.shape}.")
        used = {**self.used, **other.used}
        parts: dict[int, list[Monomials]] = {}
        for rows_a, codes_a, values_a in self.monomials.values():
            for rows_b, codes_b, values_b in other.monomials.values():
                i, j = _join(rows_a, rows_b)
                product = (rows_a[i], np.hstack([codes_a[i], codes_b[j]]), values_a[i] * values_b[j])
                for degree, monomials in _reduce(used, product):
                    parts.setdefault(degree, []).append(monomials)
        return Polynomial(used, _merge(parts), self.shape)

    def total(self) -> Any:
        """The sum of the entries."""
        flat = {d: [(np.zeros_like(r), k, c)] for d, (r, k, c) in self.monomials.items()}
        return Polynomial(self.used, _merge(flat), ())._objective()

    def __rmatmul__(self, other: Any) -> Any:
        weights = as_finite("the vector before @", other)
        if weights.shape != self.shape:
            raise ValueError(f"the vector before @ must have length {self.shape}; got shape {weights.shape}.")
        return self.scale(weights).total()

    __matmul__ = __rmatmul__

    def __getitem__(self, index: Any) -> Polynomial:
        kept = np.arange(self.shape[0])[index]
        selected = {}
        for degree, (rows, codes, values) in self.monomials.items():
            i, j = _join(np.atleast_1d(kept), rows)
            selected[degree] = [(i, codes[j], values[j])]
        return Polynomial(self.used, _merge(selected), () if np.ndim(kept) == 0 else (kept.size,))

    def block(self) -> PolynomialBlock:
        """A scalar polynomial as a block, with coordinates in the flat order of its variables."""
        starts = np.zeros(max(self.used, default=0) + 1, dtype=np.int64)
        for variable, part in slices(self.variables).items():
            starts[variable.position] = part.start
        constant, monomials = 0.0, {}
        for degree, (_, codes, values) in self.monomials.items():
            if degree == 0:
                constant = float(values.sum())
            elif values.size:
                monomials[degree] = (starts[codes >> _SHIFT] + (codes & ((1 << _SHIFT) - 1)), values)
        return PolynomialBlock(self.variables, monomials, constant)

    def values(self, points: Any) -> NDArray[Any]:
        """Entry by entry at points of shape (..., size)."""
        flat = np.concatenate([points[v] for v in self.variables], axis=-1)
        total = np.zeros((*flat.shape[:-1], self.shape[0] if self.shape else 1))
        block_of = Polynomial(self.used, self.monomials, ())
        starts = block_of.block().monomials
        for degree, (rows, _, values) in self.monomials.items():
            product = values if degree == 0 else values * flat[..., starts[degree][0]].prod(axis=-1) if degree in starts else 0.0
            np.add.at(total, (..., rows), product)
        return total

    def check(self) -> None:
        """Data were checked when the polynomial was expanded."""

    def __str__(self) -> str:
        degree = max(self.monomials, default=0)
        return f"polynomial of degree {degree} in {', '.join(map(str, self.variables))}"

    def __repr__(self) -> str:
        return f"<{self} of shape {self.shape}>"


def _coordinates(matrix: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    if hasattr(matrix, "tocoo"):
        entries = matrix.tocoo()
        return entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data.astype(np.float64)
    rows, columns = np.nonzero(matrix)
    return rows.astype(np.int64), columns.astype(np.int64), np.asarray(matrix[rows, columns], dtype=np.float64)


def _join(left: NDArray[np.int64], right: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Index pairs ``(i, j)`` with ``left[i] == right[j]``."""
    order = np.argsort(right, kind="stable")
    start = np.searchsorted(right[order], left, side="left")
    count = np.searchsorted(right[order], left, side="right") - start
    i = np.repeat(np.arange(left.size), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return i, order[np.repeat(start, count) + within]


def _reduce(used: Mapping[int, Variable], monomials: Monomials) -> list[tuple[int, Monomials]]:
    """Monomials with distinct coordinates: ``x * x = x``, and two categories of one choice give zero."""
    rows, codes, values = monomials
    if codes.shape[1] <= 1:
        return [(codes.shape[1], monomials)]
    codes = np.sort(codes, axis=1)
    # One choice is one block of `categories` coordinates; a bit is a block of one.
    categories = {p: v.dimensions[1] if v.kind == "categorical" else 1 for p, v in used.items()}
    width = np.ones(max(categories) + 1, dtype=np.int64)
    width[list(categories)] = list(categories.values())
    choice = (codes & ((1 << _SHIFT) - 1)) // width[codes >> _SHIFT] + (codes >> _SHIFT << _SHIFT)
    same = codes[:, 1:] == codes[:, :-1]
    keep = ~((choice[:, 1:] == choice[:, :-1]) & ~same).any(axis=1)
    rows, codes, values, same = rows[keep], codes[keep], values[keep], same[keep]
    first = np.hstack([np.ones((same.shape[0], 1), dtype=bool), ~same])
    degree = first.sum(axis=1)
    result = []
    for d in np.unique(degree):
        at = degree == d
        result.append((int(d), (rows[at], codes[at][first[at]].reshape(-1, int(d)), values[at])))
    return result


def _merge(parts: Mapping[int, list[Monomials]]) -> dict[int, Monomials]:
    """Equal monomials of a row added up; those that cancel dropped."""
    merged = {}
    for degree, pieces in parts.items():
        rows, codes, values = (np.concatenate([p[k] for p in pieces]) for k in range(3))
        keys = np.hstack([rows[:, None], codes])
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        sums = np.bincount(inverse.ravel(), weights=values, minlength=unique.shape[0])
        kept = sums != 0.0
        merged[degree] = (unique[kept, 0], unique[kept, 1:], sums[kept])
    return merged


def _is_discrete(affine: Affine) -> bool:
    return all(v.kind != "real" for v in affine.variables)


def _as_polynomial(expression: Any) -> Polynomial | None:
    if isinstance(expression, Polynomial):
        return expression
    if isinstance(expression, Affine) and _is_discrete(expression):
        if not expression.maps:
            constant = (
                np.arange(expression.rows), np.empty((expression.rows, 0), dtype=np.int64),
                np.array(np.broadcast_to(np.asarray(expression.offset, dtype=np.float64), expression.rows)),
            )  # fmt: skip
            return Polynomial({}, {0: constant}, expression.shape)
        return Polynomial.from_affine(expression)
    from varopt.model._objective import Objective

    if isinstance(expression, Objective) and all(isinstance(b, PolynomialBlock) for b in expression.blocks):
        return _from_blocks(expression)
    return None


def _from_blocks(objective: Any) -> Polynomial:
    total: Any = None
    for block in objective.blocks:
        parts = slices(block.used)
        owner = np.empty(sum(v.size for v in block.used), dtype=np.int64)
        for variable, part in parts.items():
            owner[part] = (variable.position << _SHIFT) + np.arange(variable.size)
        monomials = {
            d: (np.zeros(len(c), dtype=np.int64), owner[k], block.weights * c) for d, (k, c) in block.monomials.items()
        }
        monomials[0] = (np.zeros(1, dtype=np.int64), np.empty((1, 0), dtype=np.int64), np.array([block.weights * block.constant]))
        polynomial = Polynomial({v.position: v for v in block.used}, monomials, ())
        total = polynomial if total is None else total.add(polynomial)
    return total  # type: ignore[no-any-return]


def multiply(left: Expression, right: Expression) -> Any:
    """The product of two expressions, where it is a polynomial in discrete variables."""
    a, b = _as_polynomial(left), _as_polynomial(right)
    if a is None or b is None:
        culprit = left if a is None else right
        raise TypeError(
            f"a product of expressions must be a polynomial in Binary or Categorical variables, and {culprit} is not: "
            "for real variables use sum_squares or quad_form, or hand vo.bound a callable."
        )
    if a.shape != b.shape and () in (a.shape, b.shape):
        wide = a.shape or b.shape
        a, b = (p if p.shape == wide else _repeat(p, wide) for p in (a, b))
    product = a.times(b)
    return product


def _repeat(polynomial: Polynomial, shape: tuple[int, ...]) -> Polynomial:
    repeated = {}
    for degree, (_, codes, values) in polynomial.monomials.items():
        rows = np.repeat(np.arange(shape[0]), len(values))
        repeated[degree] = (rows, np.tile(codes, (shape[0], 1)), np.tile(values, shape[0]))
    return Polynomial(polynomial.used, repeated, shape)


def power(expression: Expression, exponent: Any) -> Any:
    """A whole power: a polynomial of bits, or the term ``z^k`` of a real affine expression."""
    if isinstance(exponent, bool) or not isinstance(exponent, (int, np.integer)) or exponent < 1:
        raise ValueError(f"the exponent must be a positive integer; got {exponent!r}.")
    polynomial = _as_polynomial(expression)
    if polynomial is not None:
        result = polynomial
        for _ in range(int(exponent) - 1):
            result = result.times(polynomial)
        return result
    if not isinstance(expression, Affine):
        raise TypeError(f"a power must be of an affine expression or a polynomial in bits; got {expression}.")
    from varopt.model._objective import Elementwise

    name = "square" if exponent == 2 else f"power {exponent}"
    term = PiecewisePolynomial((), ((*([0.0] * int(exponent)), 1.0),), name=name)
    return Elementwise([TermBlock(term, expression)], None, expression.shape)
