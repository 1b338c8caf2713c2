"""One map for every column of a matrix, whose entries are in the order of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model.maps._base import Map
from varopt.model.maps._dense import Matrix
from varopt.model.maps._sparse import Sparse

__all__ = ["Columnwise"]

Vector = NDArray[np.floating[Any]]


class Columnwise(Map):
    """``A W`` for matrices W with so many columns: the Kronecker product of A with an identity, seldom formed."""

    def __init__(self, inner: Map, count: int) -> None:
        self.inner, self.count = inner, count
        self.shape = (inner.shape[0] * count, inner.shape[1] * count)
        self.storage = inner.storage

    def leaves(self) -> Iterator[Any]:
        yield from self.inner.leaves()

    def _each(self, entries: NDArray[Any]) -> NDArray[Any]:
        """The columns as vectors: (..., rows * count) to (..., count, rows)."""
        return np.swapaxes(entries.reshape(*entries.shape[:-1], -1, self.count), -1, -2)

    def _together(self, columns: Vector) -> Vector:
        return np.swapaxes(columns, -1, -2).reshape(*columns.shape[:-2], -1)

    def apply(self, points: Vector) -> Vector:
        return self._together(self.inner.apply(self._each(points)))

    def transpose_apply(self, values: Vector) -> Vector:
        return self._together(self.inner.transpose_apply(self._each(values)))

    def rows(self, index: Any) -> Map:
        if isinstance(index, slice) and index == slice(None):
            return self
        kept = np.arange(self.shape[0])[index]
        inner = self.inner.rows(kept // self.count).explicit()
        if sp.issparse(inner):
            entries = sp.coo_array(inner)
            row, column = entries.coords
            moved = (entries.data, (row, column * self.count + kept[row] % self.count))
            return Sparse(sp.csr_array(moved, shape=(kept.size, self.shape[1])))
        dense = np.zeros((kept.size, inner.shape[1], self.count))
        dense[np.arange(kept.size), :, kept % self.count] = inner
        return Matrix(dense.reshape(kept.size, self.shape[1]))

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        kept = np.arange(self.shape[1])[index]
        inner = self.inner.columns(kept // self.count).explicit()
        if sp.issparse(inner):
            entries = sp.coo_array(inner)
            row, column = entries.coords
            moved = (entries.data, (row * self.count + kept[column] % self.count, column))
            return Sparse(sp.csr_array(moved, shape=(self.shape[0], kept.size)))
        dense = np.zeros((inner.shape[0], self.count, kept.size))
        dense[:, kept % self.count, np.arange(kept.size)] = inner
        return Matrix(dense.reshape(self.shape[0], kept.size))

    def explicit(self) -> Any:
        inner = self.inner.explicit()
        if sp.issparse(inner):
            return sp.csr_array(sp.kron(inner, sp.eye_array(self.count), format="csr"))
        return np.kron(inner, np.eye(self.count))

    def check(self, name: str) -> None:
        self.inner.check(name)

    def _squares_times(self, vector: Vector) -> Vector:
        return self._together(np.stack([self.inner._squares_times(v) for v in self._each(vector)]))

    def gram(self, weights: Vector) -> Any:
        parts = [self.inner.gram(w) for w in self._each(np.broadcast_to(weights, self.shape[:1]))]
        if sp.issparse(parts[0]):
            order = self._each(np.arange(self.shape[1])).ravel()
            stacked = sp.coo_array(sp.block_diag(parts))
            row, column = (order[k] for k in stacked.coords)
            return sp.csr_array((stacked.data, (row, column)), shape=stacked.shape)
        total = np.zeros((self.shape[1], self.shape[1]))
        for k, part in enumerate(parts):
            total[k :: self.count, k :: self.count] = part
        return total

    def gram_diagonal(self, weights: Vector) -> Vector:
        each = self._each(np.broadcast_to(weights, self.shape[:1]))
        return self._together(np.stack([self.inner.gram_diagonal(w) for w in each]))

    def __str__(self) -> str:
        return str(self.inner)

    def of(self, name: str) -> str:
        return self.inner.of(name)
