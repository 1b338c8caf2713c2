"""Sparse matrices, and those whose entries are known without being stored: differences, selections."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import is_double
from varopt.model.maps._base import Map
from varopt.model.maps._text import formatted, wrapped

__all__ = ["Difference", "Selection", "Sparse"]

Vector = NDArray[np.floating[Any]]


class Sparse(Map):
    """A scipy.sparse matrix or array, by reference where it is CSR or CSC and of floating point."""

    storage = "sparse"

    def __init__(self, array: Any, form: str = "") -> None:
        kept = array if array.format in ("csr", "csc") else array.tocsr()
        if kept.dtype.kind != "f":  # whole numbers that double precision rounds are told from others by their dtype
            kept = kept.astype(np.float64 if is_double(kept) else np.longdouble)
        # One interface for both of SciPy's: the array types, which share the data of the matrix types.
        self.array = (sp.csr_array if kept.format == "csr" else sp.csc_array)(kept)
        self.shape = array.shape
        self.form = form

    def apply(self, points: Vector) -> Vector:
        return _times_points(self.array, points)

    def transpose_apply(self, values: Vector) -> Vector:
        return _times_points(self.array.T, values)

    def rows(self, index: Any) -> Map:
        return Sparse(self.array[index])

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Sparse(self._by_column[:, index])

    @cached_property
    def _by_column(self) -> Any:
        return self.array.tocsc()

    def explicit(self) -> Any:
        return self.array if self.array.dtype.itemsize <= 8 else self.array.astype(np.float64)

    @property
    def given(self) -> Any:
        return self.array

    def check(self, name: str) -> None:
        if not self._finite:
            entries = self.array.tocoo()
            k = int(np.flatnonzero(~np.isfinite(entries.data))[0])
            row, column = (int(c[k]) for c in entries.coords)
            raise ValueError(f"{name} must be finite; got {entries.data[k]} in row {row}, column {column}.")

    @cached_property
    def _finite(self) -> bool:
        return bool(np.isfinite(self.array.data).all())

    def __str__(self) -> str:
        return f"S[{self.shape[0]} x {self.shape[1]}]"

    def of(self, name: str) -> str:
        return formatted(self.form, name) if self.form else super().of(name)


class Difference(Sparse):
    """Finite differences of neighbours, `order` times; a matrix of them is made where one is asked for."""

    def __init__(self, size: int, order: int) -> None:
        self.shape = (size - order, size)
        self.order = order
        self.form = "diff({})" if order == 1 else f"diff({{}}, {order})"
        self.row = np.ones(1)  # what all rows are, each a place on from the one before
        for _ in range(order):
            self.row = np.convolve(self.row, [-1.0, 1.0])

    @cached_property
    def array(self) -> Any:
        count, length = self.shape[0], self.row.size
        columns = np.arange(count, dtype=np.int32)[:, None] + np.arange(length, dtype=np.int32)
        starts = np.arange(0, length * count + 1, length, dtype=np.int32)
        return sp.csr_array((np.tile(self.row, count), columns.ravel(), starts), shape=self.shape)

    def rows(self, index: Any) -> Map:
        if isinstance(index, slice) or 2 * len(index) > self.shape[0] or "array" in self.__dict__:
            return super().rows(index)
        count, length = len(index), self.row.size  # a few of them need no matrix of all
        columns = np.asarray(index)[:, None] + np.arange(length)
        entries = (np.tile(self.row, count), columns.ravel(), np.arange(0, length * count + 1, length))
        return Sparse(sp.csr_array(entries, shape=(count, self.shape[1])))

    def apply(self, points: Vector) -> Vector:
        return np.diff(points, n=self.order, axis=-1)

    def transpose_apply(self, values: Vector) -> Vector:
        out = np.zeros((*values.shape[:-1], self.shape[1]), dtype=values.dtype)
        for start, entry in enumerate(self.row):
            part = out[..., start : start + self.shape[0]]
            if abs(entry) == 1.0:
                (np.add if entry > 0 else np.subtract)(part, values, out=part)
            else:
                part += entry * values
        return out

    def gram_diagonal(self, weights: Vector) -> Vector:
        out = np.zeros(self.shape[1])
        for start, entry in enumerate(self.row):
            out[start : start + self.shape[0]] += entry**2 * weights
        return out

    def _squares_times(self, vector: Vector) -> Vector:
        out = np.zeros(self.shape[0])
        for start, entry in enumerate(self.row):
            out += entry**2 * vector[start : start + self.shape[0]]
        return out

    def balanced(self, gradient: Vector) -> Vector:
        """The y with ``D'y`` closest to a gradient: sums of it, once what no difference sees is taken out."""
        y = gradient - gradient.mean()
        if self.order > 1:
            unseen = np.linalg.qr(np.vander(np.linspace(-1.0, 1.0, y.size), self.order))[0]  # polynomials of low degree
            y = y - unseen @ (unseen.T @ y)
        for _ in range(self.order):
            y = -np.cumsum(y)[:-1]
        return np.asarray(y)

    @cached_property
    def _finite(self) -> bool:
        return True


class Selection(Map):
    """The identity, or chosen coordinates of it; a coordinate may be chosen more than once."""

    storage = "sparse"

    def __init__(self, index: NDArray[np.intp] | None, columns: int) -> None:
        self.index = index
        self.shape = (columns if index is None else int(index.size), columns)

    @classmethod
    def repeat(cls, rows: int) -> Selection:
        """One coordinate repeated, for a scalar among vectors: an index without memory of its own."""
        return cls(np.broadcast_to(np.zeros(1, dtype=np.intp), rows), 1)

    def apply(self, points: Vector) -> Vector:
        return points if self.index is None else points[..., self.index]

    def transpose_apply(self, values: Vector) -> Vector:
        if self.index is None:
            return values
        if self.shape[1] == 1:
            return np.asarray(values.sum(axis=-1, keepdims=True))
        return _times_points(self.explicit().T, values)

    def rows(self, index: Any) -> Map:
        kept = np.arange(self.shape[1]) if self.index is None else self.index
        return Selection(kept[index], self.shape[1])

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        if self.shape[1] == 1 and np.size(np.arange(1)[index]) == 1:  # an intercept, once for each row
            return self
        return Sparse(self.explicit().tocsc()[:, index])

    def explicit(self) -> Any:
        columns = np.arange(self.shape[1]) if self.index is None else np.ascontiguousarray(self.index)
        return sp.csr_array((np.ones(self.shape[0]), columns, np.arange(self.shape[0] + 1)), shape=self.shape)

    def _squares_times(self, vector: Vector) -> Vector:
        return np.array(self.apply(vector))

    def gram(self, weights: Vector) -> Any:
        diagonal = self.gram_diagonal(weights)
        return diagonal[:, None] if diagonal.size == 1 else sp.diags_array(diagonal)

    def gram_diagonal(self, weights: Vector) -> Vector:
        return np.array(self.transpose_apply(np.asarray(weights, dtype=np.float64)))

    def __str__(self) -> str:
        return f"I[{self.shape[0]} of {self.shape[1]}]"

    def of(self, name: str) -> str:
        if self.index is None or self.shape[1] == 1:
            return name
        first, last = int(self.index[0]), int(self.index[-1])
        if self.index.size == 1:
            inside = str(first)
        else:
            step = int(self.index[1]) - first
            inside = f"{first}:{last + 1}" if step == 1 else f"{first}:{last + 1}:{step}"
            if step < 1 or np.any(np.diff(self.index) != step):
                inside = f"{self.index.size} entries"
        return f"{wrapped(name)}[{inside}]"


def _times_points(matrix: Any, points: Vector) -> Vector:
    """A sparse matrix times points along the last axis."""
    if points.ndim == 1:
        return np.asarray(matrix @ points)
    flat = points.reshape(-1, points.shape[-1])
    return np.ascontiguousarray((matrix @ flat.T).T).reshape(*points.shape[:-1], matrix.shape[0])
