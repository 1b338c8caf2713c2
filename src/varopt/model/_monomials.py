"""Monomials of discrete variables as arrays, by degree: joined, reduced and added up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import denominator
from varopt.model.maps import Map

__all__ = ["Monomials", "Sizes", "join", "merged", "reduced"]

# rows (M,), coordinates (M, d), coefficients (M,): coordinates in the flat order of the polynomial's variables
Monomials = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]


class Sizes(NamedTuple):
    """How large the numbers are that coefficients were added up from, entry by entry, before anything cancelled.

    They lie on the grid of one over `finest`, infinity where none is known, and a coefficient has taken `additions`
    operations. That bounds what rounding has cost.
    """

    entries: NDArray[np.float64]
    finest: float
    additions: float

    @classmethod
    def of_coefficients(cls, monomials: Iterable[Monomials], rows: int) -> Sizes:
        """Of coefficients that are what was stated."""
        entries, finest = np.zeros(rows), 1.0
        for at, _, values in monomials:
            entries += np.bincount(at, weights=np.abs(values), minlength=rows)
            finest = max(finest, denominator(values))
        return cls(entries, finest, 0.0)

    @classmethod
    def of_rows(cls, maps: Sequence[Map], offset: NDArray[np.float64]) -> Sizes:
        """Of affine maps, each of another variable, and an offset."""
        entries, finest, additions = np.abs(offset), denominator(offset), 1.0
        for linear in maps:
            leaves = [_numbers(leaf) for leaf in linear.leaves()]
            entries = entries + linear.absolute_row_sums()
            finest = max(finest, math.prod(map(denominator, leaves)))
            additions += sum(max(np.shape(leaf), default=1) for leaf in leaves)
        return cls(entries, finest, additions)

    def plus(self, *others: Sizes) -> Sizes:
        """Of a sum."""
        every = (self, *others)
        total = np.asarray(sum(one.entries for one in every))
        return Sizes(total, max(one.finest for one in every), max(one.additions for one in every) + len(every))

    def scaled(self, factor: Any) -> Sizes:
        """Of a multiple, of all entries or of each its own."""
        return Sizes(self.entries * np.abs(factor), self.finest * denominator(factor), self.additions + 1.0)

    def times(self, other: Sizes, degree: int) -> Sizes:
        """Of a product entry by entry: a monomial of d factors is one of at most 3^d pairs."""
        additions = self.additions + other.additions + 3.0**degree + 1.0
        return Sizes(self.entries * other.entries, self.finest * other.finest, additions)

    def transformed(self, outer: Map) -> Sizes:
        """Of a matrix times the entries."""
        leaves = [_numbers(leaf) for leaf in outer.leaves()]
        entries = np.asarray(abs(outer.explicit()) @ self.entries)
        additions = self.additions + sum(max(np.shape(leaf), default=1) for leaf in leaves) + outer.shape[1]
        return Sizes(entries, self.finest * math.prod(map(denominator, leaves)), additions)

    def at(self, kept: NDArray[np.intp]) -> Sizes:
        """Of some of the entries."""
        return self._replace(entries=self.entries[kept])

    def summed(self) -> Sizes:
        """Of the sum of the entries."""
        return Sizes(self.entries.sum(keepdims=True), self.finest, self.additions + self.entries.size)


def _numbers(leaf: Any) -> Any:
    """The entries of what a map is made of."""
    values = leaf.explicit() if isinstance(leaf, Map) else leaf
    return values.tocsr().data if hasattr(values, "tocsr") else values


def join(left: NDArray[np.intp], right: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index pairs ``(i, j)`` with ``left[i] == right[j]``."""
    order = np.argsort(right, kind="stable")
    start = np.searchsorted(right[order], left, side="left")
    count = np.searchsorted(right[order], left, side="right") - start
    i = np.repeat(np.arange(left.size), count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return i, order[np.repeat(start, count) + within]


def reduced(choice: NDArray[np.intp], monomials: Monomials) -> list[tuple[int, Monomials]]:
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


def merged(parts: Iterable[tuple[int, Monomials]]) -> dict[int, Monomials]:
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
