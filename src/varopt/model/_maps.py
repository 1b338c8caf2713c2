"""Linear maps between coordinate spaces: the matrices of an objective, held by reference.

Each kind knows five things: apply itself to points, apply its transpose, select rows, and from these, or faster where it can, the sums that
bounds and solvers need: ``diag(A V A')`` and ``A' diag(d) A``. No kind copies or changes the user's data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["HStack", "Map", "Matrix", "Operator", "Product", "Scaled", "Selection", "Sparse", "Sum", "as_map", "difference"]

Vector = NDArray[np.floating[Any]]

_CHUNK = 1 << 16  # entries of a dense temporary when a matrix is walked by rows
_EAGER = 1 << 20  # matrices up to this many entries are checked for NaN when handed over, larger ones at first use


class Map(ABC):
    """A linear map ``A`` from R^columns to R^rows."""

    shape: tuple[int, int]

    @abstractmethod
    def apply(self, points: Vector) -> Vector:
        """``A x`` for points x along the last axis: (..., columns) to (..., rows)."""

    @abstractmethod
    def transpose_apply(self, values: Vector) -> Vector:
        """``A' y``: (..., rows) to (..., columns)."""

    @abstractmethod
    def rows(self, index: Any) -> Map:
        """The map of the selected rows (a slice or an integer array)."""

    @abstractmethod
    def __str__(self) -> str: ...

    def check(self, name: str) -> None:
        """Raise a `ValueError` if the data are not finite."""

    def explicit(self) -> Any:
        """The matrix: a dense array or a sparse matrix, whichever the map is made of."""
        return self.apply(np.eye(self.shape[1])).T

    def dense(self) -> Vector:
        """The matrix as a dense array."""
        explicit = self.explicit()
        return explicit.toarray() if sp.issparse(explicit) else np.asarray(explicit)

    def _chunks(self) -> Iterator[tuple[slice, Vector]]:
        step = max(1, _CHUNK // max(1, self.shape[1]))
        for start in range(0, self.shape[0], step):
            part = slice(start, min(start + step, self.shape[0]))
            yield part, self.rows(part).dense()

    def row_variance(self, factor: Any) -> Vector:
        """``diag(A V A')`` where ``V = C C'`` and `factor` is C: a number, a vector (its diagonal) or a matrix."""
        factor = np.asarray(factor, dtype=np.float64)
        out = np.empty(self.shape[0])
        for part, block in self._chunks():
            spread = block @ factor if factor.ndim == 2 else block * factor
            out[part] = np.einsum("ij,ij->i", spread, spread)
        return out

    def gram(self, weights: Vector) -> Any:
        """``A' diag(weights) A``, dense or sparse."""
        total = np.zeros((self.shape[1], self.shape[1]))
        for part, block in self._chunks():
            total += block.T @ (weights[part, None] * block)
        return total

    def gram_diagonal(self, weights: Vector) -> Vector:
        """The diagonal of `gram`, without forming it."""
        total = np.zeros(self.shape[1])
        for part, block in self._chunks():
            total += weights[part] @ (block * block)
        return total


class Matrix(Map):
    """A dense array, by reference."""

    def __init__(self, array: Vector) -> None:
        self.array = array
        self.shape = (array.shape[0], array.shape[1])

    def apply(self, points: Vector) -> Vector:
        return points @ self.array.T

    def transpose_apply(self, values: Vector) -> Vector:
        return values @ self.array

    def rows(self, index: Any) -> Map:
        return Matrix(self.array[index])

    def explicit(self) -> Any:
        return self.array

    def check(self, name: str) -> None:
        if not self._finite:
            i, j = (int(k) for k in np.argwhere(~np.isfinite(self.array))[0])
            raise ValueError(f"{name} must be finite; got {self.array[i, j]} in row {i}, column {j}.")

    @cached_property
    def _finite(self) -> bool:
        # A finite sum proves finite entries in one pass without a temporary; overflow of the sum needs the slow look.
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(np.sum(self.array))) or bool(np.isfinite(self.array).all())

    def row_variance(self, factor: Any) -> Vector:
        if np.ndim(factor) == 0:
            return np.einsum("ij,ij->i", self.array, self.array) * float(factor) ** 2
        return super().row_variance(factor)

    def __str__(self) -> str:
        return f"A[{self.shape[0]} x {self.shape[1]}] @ "


class Sparse(Map):
    """A scipy.sparse matrix or array, by reference where it is CSR or CSC."""

    def __init__(self, array: Any) -> None:
        self.array = array if array.format in ("csr", "csc") else array.tocsr()
        self.shape = array.shape

    def apply(self, points: Vector) -> Vector:
        return np.asarray((self.array @ points.T).T)

    def transpose_apply(self, values: Vector) -> Vector:
        return np.asarray((self.array.T @ values.T).T)

    def rows(self, index: Any) -> Map:
        return Sparse(self.array[index])

    def explicit(self) -> Any:
        return self.array

    def check(self, name: str) -> None:
        if not self._finite:
            entries = self.array.tocoo()
            k = int(np.flatnonzero(~np.isfinite(entries.data))[0])
            raise ValueError(f"{name} must be finite; got {entries.data[k]} in row {entries.row[k]}, column {entries.col[k]}.")

    @cached_property
    def _finite(self) -> bool:
        return bool(np.isfinite(self.array.data).all())

    def row_variance(self, factor: Any) -> Vector:
        factor = np.asarray(factor, dtype=np.float64)
        if factor.ndim == 2:
            return super().row_variance(factor)
        squares = self.array.multiply(self.array)
        return np.asarray(squares @ np.broadcast_to(factor**2, self.shape[1]))

    def gram(self, weights: Vector) -> Any:
        return self.array.T @ sp.diags_array(weights) @ self.array

    def gram_diagonal(self, weights: Vector) -> Vector:
        return np.asarray(self.array.multiply(self.array).T @ weights)

    def __str__(self) -> str:
        return f"S[{self.shape[0]} x {self.shape[1]}, sparse] @ "


class Operator(Map):
    """A `scipy.sparse.linalg.LinearOperator`; what needs its entries costs one product per column."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.shape = operator.shape

    def apply(self, points: Vector) -> Vector:
        if points.ndim == 1:
            return np.asarray(self.operator.matvec(points))
        flat = points.reshape(-1, self.shape[1])
        return np.asarray(self.operator.matmat(flat.T)).T.reshape(*points.shape[:-1], self.shape[0])

    def transpose_apply(self, values: Vector) -> Vector:
        if values.ndim == 1:
            return np.asarray(self.operator.rmatvec(values))
        flat = values.reshape(-1, self.shape[0])
        return np.asarray(self.operator.rmatmat(flat.T)).T.reshape(*values.shape[:-1], self.shape[1])

    def rows(self, index: Any) -> Map:
        return Product(Selection(np.arange(self.shape[0])[index], self.shape[0]), self)

    def _columns(self) -> Iterator[tuple[slice, Vector]]:
        step = max(1, _CHUNK // max(1, self.shape[0]))
        for start in range(0, self.shape[1], step):
            part = slice(start, min(start + step, self.shape[1]))
            unit = np.zeros((self.shape[1], part.stop - part.start))
            unit[np.arange(part.start, part.stop), np.arange(part.stop - part.start)] = 1.0
            yield part, np.asarray(self.operator.matmat(unit))

    def row_variance(self, factor: Any) -> Vector:
        factor = np.asarray(factor, dtype=np.float64)
        if factor.ndim == 2:
            spread = self.apply(factor.T).T
            return np.asarray(np.einsum("ij,ij->i", spread, spread))
        scale = np.broadcast_to(factor**2, self.shape[1])
        total = np.zeros(self.shape[0])
        for part, block in self._columns():
            total += (block * block) @ scale[part]
        return total

    def gram(self, weights: Vector) -> Any:
        total = np.empty((self.shape[1], self.shape[1]))
        for part, block in self._columns():
            total[:, part] = self.transpose_apply((weights[:, None] * block).T).T
        return total

    def gram_diagonal(self, weights: Vector) -> Vector:
        total = np.empty(self.shape[1])
        for part, block in self._columns():
            total[part] = weights @ (block * block)
        return total

    def __str__(self) -> str:
        return f"L[{self.shape[0]} x {self.shape[1]}, operator] @ "


class Selection(Map):
    """The identity, or chosen coordinates of it."""

    def __init__(self, index: NDArray[np.intp] | None, columns: int) -> None:
        self.index = index
        self.shape = (columns if index is None else int(index.size), columns)

    def apply(self, points: Vector) -> Vector:
        return points if self.index is None else points[..., self.index]

    def transpose_apply(self, values: Vector) -> Vector:
        if self.index is None:
            return values
        out = np.zeros((*values.shape[:-1], self.shape[1]), dtype=values.dtype)
        np.add.at(out, (..., self.index), values)
        return out

    def rows(self, index: Any) -> Map:
        kept = np.arange(self.shape[1]) if self.index is None else self.index
        return Selection(kept[index], self.shape[1])

    def explicit(self) -> Any:
        rows = np.arange(self.shape[0])
        columns = rows if self.index is None else self.index
        return sp.csr_array((np.ones(self.shape[0]), (rows, columns)), shape=self.shape)

    def row_variance(self, factor: Any) -> Vector:
        factor = np.asarray(factor, dtype=np.float64)
        variance = np.einsum("ij,ij->i", factor, factor) if factor.ndim == 2 else factor**2
        return self.apply(np.array(np.broadcast_to(variance, self.shape[1])))

    def gram(self, weights: Vector) -> Any:
        return sp.diags_array(self.gram_diagonal(weights))

    def gram_diagonal(self, weights: Vector) -> Vector:
        return self.transpose_apply(np.asarray(weights, dtype=np.float64))

    def __str__(self) -> str:
        return "" if self.index is None else f"[{self.shape[0]} of {self.shape[1]}] "


class Scaled(Map):
    """Rows of another map times a number, or times one number each."""

    def __init__(self, scale: float | Vector, inner: Map) -> None:
        self.scale, self.inner, self.shape = scale, inner, inner.shape

    def apply(self, points: Vector) -> Vector:
        return self.scale * self.inner.apply(points)

    def transpose_apply(self, values: Vector) -> Vector:
        return self.inner.transpose_apply(self.scale * values)

    def rows(self, index: Any) -> Map:
        return Scaled(self.scale if np.ndim(self.scale) == 0 else np.asarray(self.scale)[index], self.inner.rows(index))

    def explicit(self) -> Any:
        inner = self.inner.explicit()
        if np.ndim(self.scale) == 0:
            return self.scale * inner
        return sp.diags_array(self.scale) @ inner if sp.issparse(inner) else np.asarray(self.scale)[:, None] * inner

    def check(self, name: str) -> None:
        self.inner.check(name)

    def row_variance(self, factor: Any) -> Vector:
        return np.square(self.scale) * self.inner.row_variance(factor)

    def gram(self, weights: Vector) -> Any:
        return self.inner.gram(np.square(self.scale) * weights)

    def gram_diagonal(self, weights: Vector) -> Vector:
        return self.inner.gram_diagonal(np.square(self.scale) * weights)

    def __str__(self) -> str:
        if np.ndim(self.scale) == 0:
            return f"-{self.inner}" if self.scale == -1.0 else f"{float(self.scale):g} * {self.inner}"
        return f"t * {self.inner}"


class Product(Map):
    """One map after another: differences of predictions, for example."""

    def __init__(self, outer: Map, inner: Map) -> None:
        self.outer, self.inner = outer, inner
        self.shape = (outer.shape[0], inner.shape[1])

    def apply(self, points: Vector) -> Vector:
        return self.outer.apply(self.inner.apply(points))

    def transpose_apply(self, values: Vector) -> Vector:
        return self.inner.transpose_apply(self.outer.transpose_apply(values))

    def rows(self, index: Any) -> Map:
        return Product(self.outer.rows(index), self.inner)

    def explicit(self) -> Any:
        if isinstance(self.inner, Operator):
            return self.inner.transpose_apply(self.outer.dense())
        return self.outer.explicit() @ self.inner.explicit()

    def check(self, name: str) -> None:
        self.outer.check(name)
        self.inner.check(name)

    def gram(self, weights: Vector) -> Any:
        explicit = self.explicit()
        return Sparse(explicit).gram(weights) if sp.issparse(explicit) else super().gram(weights)

    def __str__(self) -> str:
        return f"{self.outer}{self.inner}"


class Sum(Map):
    """The sum of maps of one shape, where a variable occurs more than once."""

    def __init__(self, parts: Sequence[Map]) -> None:
        self.parts, self.shape = tuple(parts), parts[0].shape

    def apply(self, points: Vector) -> Vector:
        return np.asarray(sum(p.apply(points) for p in self.parts))

    def transpose_apply(self, values: Vector) -> Vector:
        return np.asarray(sum(p.transpose_apply(values) for p in self.parts))

    def rows(self, index: Any) -> Map:
        return Sum([p.rows(index) for p in self.parts])

    def explicit(self) -> Any:
        parts = [p.explicit() for p in self.parts]
        if all(map(sp.issparse, parts)):
            return sum(parts[1:], parts[0])
        return np.sum([p.toarray() if sp.issparse(p) else p for p in parts], axis=0)

    def check(self, name: str) -> None:
        for part in self.parts:
            part.check(name)

    def __str__(self) -> str:
        return f"({' + '.join(str(p).removesuffix(' @ ') or 'I' for p in self.parts)}) @ "


class HStack(Map):
    """Maps side by side: one variable after another; None stands for a zero block."""

    def __init__(self, rows: int, parts: Sequence[tuple[Map | None, int]]) -> None:
        self.parts = tuple(parts)
        ends = np.cumsum([0, *(columns for _, columns in parts)])
        self.slices = [slice(int(a), int(b)) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        self.shape = (rows, int(ends[-1]))

    def _live(self) -> Iterator[tuple[slice, Map]]:
        return ((s, m) for s, (m, _) in zip(self.slices, self.parts, strict=True) if m is not None)

    def apply(self, points: Vector) -> Vector:
        total: Any = None
        for part, inner in self._live():
            value = inner.apply(points[..., part])
            total = value if total is None else total + value
        return np.zeros((*points.shape[:-1], self.shape[0])) if total is None else total

    def transpose_apply(self, values: Vector) -> Vector:
        out = np.zeros((*values.shape[:-1], self.shape[1]))
        for part, inner in self._live():
            out[..., part] = inner.transpose_apply(values)
        return out

    def rows(self, index: Any) -> Map:
        parts = [(m if m is None else m.rows(index), columns) for m, columns in self.parts]
        return HStack(np.arange(self.shape[0])[index].size, parts)

    def explicit(self) -> Any:
        parts = [sp.csr_array((self.shape[0], c)) if m is None else m.explicit() for m, c in self.parts]
        if all(map(sp.issparse, parts)):
            return sp.hstack(parts, format="csr")
        return np.hstack([p.toarray() if sp.issparse(p) else p for p in parts])

    def check(self, name: str) -> None:
        for _, inner in self._live():
            inner.check(name)

    def row_variance(self, factor: Any) -> Vector:
        factor = np.asarray(factor, dtype=np.float64)
        if factor.ndim == 2:
            return super().row_variance(factor)
        total = np.zeros(self.shape[0])
        for part, inner in self._live():
            total += inner.row_variance(factor if factor.ndim == 0 else factor[part])
        return total

    def gram(self, weights: Vector) -> Any:
        live = list(self._live())
        if len(live) == 1 and len(self.parts) == 1:
            return live[0][1].gram(weights)
        explicit = self.explicit()
        return Sparse(explicit).gram(weights) if sp.issparse(explicit) else super().gram(weights)

    def gram_diagonal(self, weights: Vector) -> Vector:
        out = np.zeros(self.shape[1])
        for part, inner in self._live():
            out[part] = inner.gram_diagonal(weights)
        return out

    def __str__(self) -> str:
        return " | ".join(str(m) for m, _ in self.parts)


def as_map(name: str, value: Any) -> Map:
    """A user's matrix as a map, without copying floating-point data; a `ValueError` that names it otherwise."""
    if sp.issparse(value):
        if value.ndim != 2:
            raise ValueError(f"{name} must be a matrix; got a sparse array of shape {value.shape}.")
        mapped: Map = Sparse(value if value.dtype.kind == "f" else _as_float_matrix(name, value))
    elif hasattr(value, "matvec") and hasattr(value, "shape"):
        return Operator(value)
    else:
        array = np.asarray(value)
        if array.ndim != 2:
            raise ValueError(f"{name} must be a matrix; got an array of shape {array.shape}.")
        mapped = Matrix(array if array.dtype.kind == "f" else _as_float_matrix(name, array))
    if 0 in mapped.shape:
        raise ValueError(f"{name} must not be empty; got shape {mapped.shape}.")
    if mapped.shape[0] * mapped.shape[1] <= _EAGER:
        mapped.check(name)
    return mapped


def _as_float_matrix(name: str, value: Any) -> Any:
    if value.dtype.kind not in "biu":
        raise ValueError(f"{name} must be real numbers; got dtype {value.dtype}.")
    return value.astype(np.float64)


def difference(size: int, order: int) -> Map:
    """The matrix of finite differences, ``order + 1`` entries a row."""
    row = np.ones(1)
    for _ in range(order):
        row = np.convolve(row, [-1.0, 1.0][::-1])
    return Sparse(sp.diags_array(list(row[::-1]), offsets=list(range(order + 1)), shape=(size - order, size)).tocsr())
