"""Linear maps between coordinate spaces: the matrices of an objective, held by reference.

A map applies itself and its transpose to points, and selects rows. From these three, or faster where its kind allows,
follow the sums that bounds and solvers need: ``diag(A V A')`` and ``A' diag(d) A``. No map copies or changes the user's
data when it is made; dense temporaries are walked in pieces, and what is sparse is never made dense.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._domains import as_finite
from varopt._threads import FETCH, all_threads

__all__ = [
    "Difference",
    "HStack",
    "Map",
    "Matrix",
    "Operator",
    "Product",
    "Scaled",
    "Selection",
    "Sparse",
    "Sum",
    "as_map",
    "as_real",
    "as_vector",
]

Vector = NDArray[np.floating[Any]]

_CHUNK = 1 << 20  # entries of a dense temporary where matrices are multiplied piece by piece
_CACHED = 1 << 16  # the same where vectors are, and the piece should stay in the cache
_TALL = 1 << 12  # rows at a time of a transposed product, on which BLAS would waste its threads
_EAGER = 1 << 20  # matrices up to this many entries are checked for NaN when handed over, larger ones at first use


class Map(ABC):
    """A linear map ``A`` from R^columns to R^rows."""

    shape: tuple[int, int]
    #: Whether `explicit` is a dense array, a sparse one, or costs one product per column and is best avoided.
    storage: Literal["dense", "sparse", "operator"] = "dense"

    @abstractmethod
    def apply(self, points: Vector) -> Vector:
        """``A x`` for points x along the last axis: (..., columns) to (..., rows)."""

    @abstractmethod
    def transpose_apply(self, values: Vector) -> Vector:
        """``A' y``: (..., rows) to (..., columns)."""

    @abstractmethod
    def rows(self, index: Any) -> Map:
        """The map of the selected rows (a slice or an integer array)."""

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        """The map of selected coordinates of its argument: increasing integers, or a slice, which is no copy."""
        if self.storage == "sparse":
            return Sparse(self.explicit().tocsc()[:, index])
        return Matrix(self.apply(np.eye(self.shape[1])[index]).T)

    @abstractmethod
    def __str__(self) -> str: ...

    def of(self, name: str) -> str:
        """How the map of something called `name` is written."""
        return f"{self} @ {_wrapped(name)}"

    def check(self, name: str) -> None:  # noqa: B027  (most kinds hold no data of the user)
        """Raise a `ValueError` that calls the matrix `name` if the data are not finite."""

    def explicit(self) -> Any:
        """The matrix, in floating point: a dense array or a sparse one, as `storage` says."""
        return self.apply(np.eye(self.shape[1])).T

    def dense(self) -> Vector:
        """The matrix as a dense array."""
        if self.shape[1] == 1:
            return np.asarray(self.apply(np.ones(1)))[:, None]
        explicit = self.explicit()
        return explicit.toarray() if sp.issparse(explicit) else np.asarray(explicit)

    def _row_blocks(self, at_least: int = 1) -> Iterator[tuple[slice, Vector]]:
        """The matrix by rows, in dense float64 pieces."""
        for part in _parts(self.shape[0], max(at_least, _CACHED // self.shape[1])):
            yield part, np.asarray(self.rows(part).dense(), dtype=np.float64)

    def _columns(self) -> Iterator[tuple[slice, Vector]]:
        """The matrix by columns, in dense pieces: the map of unit vectors."""
        for part in _parts(self.shape[1], _CHUNK // self.shape[0]):
            yield part, self.apply(np.eye(part.stop - part.start, self.shape[1], k=part.start)).T

    @cached_property
    def _row_squares(self) -> Vector:
        return self._squares_times(np.ones(self.shape[1]))

    def _squares_times(self, vector: Vector) -> Vector:
        """``(A * A) v`` with the square entry by entry."""
        if self.storage == "sparse":
            return np.asarray(_squares(self.explicit()) @ vector)
        total = np.zeros(self.shape[0])
        if self.storage == "operator":
            for part, block in self._columns():
                total += (block * block) @ vector[part]
        else:
            for part, block in self._row_blocks():
                total[part] = (block * block) @ vector
        return total

    def row_variance(self, factor: Any) -> Vector:
        """``diag(A V A')`` where ``V = C C'`` and `factor` is C: a number, a vector (its diagonal) or a matrix."""
        factor = np.asarray(factor, dtype=np.float64)
        if factor.ndim == 0:
            return np.asarray(factor**2 * self._row_squares)
        if factor.ndim == 1:
            return self._squares_times(factor**2)
        total = np.zeros(self.shape[0])
        for part in _parts(factor.shape[1], max(32, _CHUNK // self.shape[0])):
            total += np.square(self.apply(factor[:, part].T)).sum(axis=0)
        return total

    def gram(self, weights: Vector) -> Any:
        """``A' diag(weights) A``, dense or sparse."""
        if self.shape[1] == 1:  # an intercept, say
            return self.transpose_apply(weights * self.apply(np.ones(1)))[:, None]
        if self.storage == "sparse":
            explicit = self.explicit()
            return explicit.T @ (sp.diags_array(np.asarray(weights)) @ explicit)
        total = np.zeros((self.shape[1], self.shape[1]))
        if self.storage == "operator":
            _add_cross(total, self, self, weights)
        else:
            # With roots of the weights it is a matrix times itself, which is half the work. So many rows that the
            # addition to `total` is cheap beside the product.
            roots = np.sqrt(weights) if np.min(weights) >= 0.0 else None
            with all_threads("numpy", self.shape[0] * self.shape[1] ** 2):
                for part, block in self._row_blocks(at_least=4096):
                    scaled = (weights if roots is None else roots)[part, None] * block
                    total += scaled.T @ (block if roots is None else scaled)
        return total

    def gram_diagonal(self, weights: Vector) -> Vector:
        """The diagonal of `gram`, without forming it."""
        if self.shape[1] == 1:
            return np.asarray(weights @ np.square(self.dense()))
        if self.storage == "sparse":
            return np.asarray(_squares(self.explicit()).T @ weights)
        total = np.zeros(self.shape[1])
        if self.storage == "operator":
            for part, block in self._columns():
                total[part] = weights @ (block * block)
        else:
            for part, block in self._row_blocks():
                total += weights[part] @ (block * block)
        return total


class _Products:
    """The latest products of an array, by what it was multiplied with."""

    _most: ClassVar[dict[str, int]] = {"gram": 1, "apply": 2, "transpose_apply": 4}

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array  # which keeps its id taken
        self.known: dict[str, list[tuple[Vector, Any]]] = {name: [] for name in self._most}

    @cached_property
    def finite(self) -> bool:
        return _is_finite(self.array)

    def get(self, name: str, vector: Vector, compute: Callable[[Vector], Any]) -> Any:
        latest = self.known[name]
        for k, (other, product) in enumerate(latest):
            if other.dtype == vector.dtype and np.array_equal(other, vector):
                latest.insert(0, latest.pop(k))
                return product.copy()
        product = compute(vector)
        latest.insert(0, (vector.copy(), product))
        del latest[self._most[name] :]
        return product.copy()


_KEPT: ContextVar[dict[int, _Products] | None] = ContextVar("products of arrays", default=None)
_KEPT_ARRAYS = 2  # whose products are kept at a time


@contextmanager
def kept_products() -> Iterator[None]:
    """Within it, products of dense arrays are computed once: their Gram matrices, and those with the latest vectors."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def products_are_kept() -> bool:
    """Whether a product will be of use again."""
    return _KEPT.get() is not None


class Matrix(Map):
    """A dense array of any real dtype, by reference. All but float64 are converted piece by piece in every product."""

    def __init__(self, array: NDArray[Any], form: str = "") -> None:
        self.array = array
        self.shape = (array.shape[0], array.shape[1])
        self.form = form

    def _fits(self, points: Vector) -> bool:
        return self.array.dtype == np.float64 or self.array.dtype == points.dtype == np.float32

    @property
    def _kept(self) -> _Products | None:
        kept = _KEPT.get()
        if kept is None:
            return None
        if id(self.array) not in kept:
            while len(kept) >= _KEPT_ARRAYS:  # the oldest, which may be a part of the data of no use any more
                kept.pop(next(iter(kept)))
            kept[id(self.array)] = _Products(self.array)
        return kept[id(self.array)]

    def _product(self, name: str, vector: Vector, compute: Callable[[Vector], Any]) -> Any:
        kept = self._kept if vector.ndim == 1 else None
        return compute(vector) if kept is None else kept.get(name, vector, compute)

    def apply(self, points: Vector) -> Vector:
        return np.asarray(self._product("apply", points, self._apply))

    def _apply(self, points: Vector) -> Vector:
        if self._fits(points):
            with all_threads("numpy", FETCH * self.array.size):
                return np.asarray(points @ self.array.T)
        out = np.empty((*points.shape[:-1], self.shape[0]))
        for part, block in self._row_blocks():
            out[..., part] = points @ block.T
        return out

    def transpose_apply(self, values: Vector) -> Vector:
        return np.asarray(self._product("transpose_apply", values, self._transpose_apply))

    def _transpose_apply(self, values: Vector) -> Vector:
        if self._fits(values):
            if values.ndim > 1 or self.shape[0] <= 2 * _TALL or not self.array.flags.c_contiguous:
                return np.asarray(values @ self.array)
            return np.asarray(sum(values[part] @ self.array[part] for part in _parts(self.shape[0], _TALL)))
        out = np.zeros((*values.shape[:-1], self.shape[1]))
        for part, block in self._row_blocks():
            out += values[..., part] @ block
        return out

    def rows(self, index: Any) -> Map:
        return Matrix(self.array[index])

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Matrix(self.array[:, index])

    def gram(self, weights: Vector) -> Any:
        scale = float(weights.max(initial=0.0)) if self._kept is not None else 0.0
        if not 0.0 < scale < np.inf:
            return self._product("gram", weights, self._gram)
        total = self._product("gram", weights / scale, self._gram)  # in other units it is the same
        total *= scale
        return total

    def _gram(self, weights: Vector) -> Any:
        if self.array.dtype != np.float64 or np.ptp(weights) > 0.0:
            return super().gram(weights)
        with all_threads("numpy", self.shape[0] * self.shape[1] ** 2):
            total = self.array.T @ self.array  # equal weights: nothing is copied
        total *= weights[0]
        return total

    def explicit(self) -> Any:
        return self.array if self.array.dtype.kind == "f" else self.array.astype(np.float64)

    def dense(self) -> Vector:
        return np.asarray(self.explicit())

    def _columns(self) -> Iterator[tuple[slice, Vector]]:
        for part in _parts(self.shape[1], _CHUNK // self.shape[0]):
            yield part, np.asarray(self.array[:, part], dtype=np.float64)

    def check(self, name: str) -> None:
        if not self._finite:
            i, j = (int(k) for k in np.argwhere(~np.isfinite(self.array))[0])
            raise ValueError(f"{name} must be finite; got {self.array[i, j]} in row {i}, column {j}.")

    @cached_property
    def _finite(self) -> bool:
        kept = self._kept
        return _is_finite(self.array) if kept is None else kept.finite

    def __str__(self) -> str:
        return f"A[{self.shape[0]} x {self.shape[1]}]"

    def of(self, name: str) -> str:
        return _formatted(self.form, name) if self.form else super().of(name)


class Sparse(Map):
    """A scipy.sparse matrix or array, by reference where it is CSR or CSC and of floating point."""

    storage = "sparse"

    def __init__(self, array: Any, form: str = "") -> None:
        kept = array if array.format in ("csr", "csc") else array.tocsr()
        if kept.dtype.kind != "f":
            kept = kept.astype(np.float64)
        # One interface for both of SciPy's: the array types, which share the data of the matrix types.
        self.array = (sp.csr_array if kept.format == "csr" else sp.csc_array)(kept)
        self.shape = array.shape
        self.form = form

    def apply(self, points: Vector) -> Vector:
        return _by_columns(self.array, points)

    def transpose_apply(self, values: Vector) -> Vector:
        return _by_columns(self.array.T, values)

    def rows(self, index: Any) -> Map:
        return Sparse(self.array[index])

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Sparse(self._by_column[:, index])

    @cached_property
    def _by_column(self) -> Any:
        return self.array.tocsc()

    def explicit(self) -> Any:
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
        return _formatted(self.form, name) if self.form else super().of(name)


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

    @cached_property
    def _finite(self) -> bool:
        return True


class Operator(Map):
    """A `scipy.sparse.linalg.LinearOperator`; what needs its entries costs one product per column."""

    storage = "operator"

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.shape = (int(operator.shape[0]), int(operator.shape[1]))

    def apply(self, points: Vector) -> Vector:
        if points.ndim == 1:
            return np.asarray(self.operator.matvec(points))
        flat = points.reshape(-1, self.shape[1])
        return np.asarray(self.operator.matmat(flat.T)).T.reshape(*points.shape[:-1], self.shape[0])

    def transpose_apply(self, values: Vector) -> Vector:
        try:
            if values.ndim == 1:
                return np.asarray(self.operator.rmatvec(values))
            flat = values.reshape(-1, self.shape[0])
            return np.asarray(self.operator.rmatmat(flat.T)).T.reshape(*values.shape[:-1], self.shape[1])
        except NotImplementedError:
            raise ValueError(f"{self} must define rmatvec: its transpose is needed here.") from None

    def rows(self, index: Any) -> Map:
        return Product(Selection(np.arange(self.shape[0])[index], self.shape[0]), self)

    def check(self, name: str) -> None:
        if not self._finite:
            raise ValueError(f"{name} must be finite; its product with a vector of ones is not.")

    @cached_property
    def _finite(self) -> bool:
        # No entry that is NaN or infinite can cancel in a sum of its row.
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(self.apply(np.ones(self.shape[1]))).all())

    def __str__(self) -> str:
        return f"L[{self.shape[0]} x {self.shape[1]}]"


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
        return _by_columns(self.explicit().T, values)

    def rows(self, index: Any) -> Map:
        kept = np.arange(self.shape[1]) if self.index is None else self.index
        return Selection(kept[index], self.shape[1])

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
        return f"{_wrapped(name)}[{inside}]"


class Scaled(Map):
    """Rows of another map times a number, or times one number each."""

    def __init__(self, scale: float | NDArray[Any], inner: Map) -> None:
        self.scale, self.inner, self.shape = scale, inner, inner.shape
        self.storage = inner.storage

    @property
    def _squared(self) -> Any:
        return np.square(self.scale, dtype=np.float64)  # by reference means: perhaps of small integers

    def apply(self, points: Vector) -> Vector:
        return self.scale * self.inner.apply(points)

    def transpose_apply(self, values: Vector) -> Vector:
        return self.inner.transpose_apply(self.scale * values)

    def rows(self, index: Any) -> Map:
        return Scaled(self.scale if np.ndim(self.scale) == 0 else np.asarray(self.scale)[index], self.inner.rows(index))

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Scaled(self.scale, self.inner.columns(index))

    def explicit(self) -> Any:
        inner = self.inner.explicit()
        if np.ndim(self.scale) == 0:
            return self.scale * inner
        if not sp.issparse(inner):
            return np.asarray(self.scale)[:, None] * inner
        rows = sp.csr_array(inner)
        scaled = rows.data * np.repeat(self.scale, np.diff(rows.indptr))
        return sp.csr_array((scaled, rows.indices, rows.indptr), shape=rows.shape)

    def dense(self) -> Vector:
        return np.asarray(np.asarray(self.scale)[..., None] * self.inner.dense())

    def check(self, name: str) -> None:
        self.inner.check(name)

    @cached_property
    def _row_squares(self) -> Vector:
        return np.asarray(self._squared * self.inner._row_squares)

    def _squares_times(self, vector: Vector) -> Vector:
        return np.asarray(self._squared * self.inner._squares_times(vector))

    def gram(self, weights: Vector) -> Any:
        return self.inner.gram(self._squared * weights)

    def gram_diagonal(self, weights: Vector) -> Vector:
        return self.inner.gram_diagonal(self._squared * weights)

    def __str__(self) -> str:
        return f"{'t' if np.ndim(self.scale) else f'{float(self.scale):g}'} * {self.inner}"

    def of(self, name: str) -> str:
        inner = self.inner.of(name)
        if np.ndim(self.scale):
            return f"t * {_wrapped(inner)}"
        return times(float(self.scale), inner)


class Product(Map):
    """One map after another: differences of predictions, for example."""

    def __init__(self, outer: Map, inner: Map) -> None:
        self.outer, self.inner = outer, inner
        self.shape = (outer.shape[0], inner.shape[1])
        self.storage = _common_storage([outer, inner])

    def apply(self, points: Vector) -> Vector:
        return self.outer.apply(self.inner.apply(points))

    def transpose_apply(self, values: Vector) -> Vector:
        return self.inner.transpose_apply(self.outer.transpose_apply(values))

    def rows(self, index: Any) -> Map:
        return Product(self.outer.rows(index), self.inner)

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Product(self.outer, self.inner.columns(index))

    def explicit(self) -> Any:
        if self.storage == "operator":
            return super().explicit()
        outer, inner = self.outer.explicit(), self.inner
        if not sp.issparse(outer):
            return self.inner.transpose_apply(outer)
        # A few rows of a sparse matrix, a difference say, need a few rows of the inner map only.
        used = np.unique(outer.tocsr().indices)
        if used.size < outer.shape[1]:
            outer, inner = outer.tocsc()[:, used], inner.rows(used)
        return outer @ inner.explicit()

    def check(self, name: str) -> None:
        self.outer.check(name)
        self.inner.check(name)

    def __str__(self) -> str:
        return f"{self.outer} @ {_wrapped(str(self.inner))}"

    def of(self, name: str) -> str:
        return self.outer.of(self.inner.of(name))


class Sum(Map):
    """The sum of maps of one shape, where a variable occurs more than once."""

    def __init__(self, parts: Sequence[Map]) -> None:
        self.parts, self.shape = tuple(parts), parts[0].shape
        self.storage = _common_storage(parts)

    def apply(self, points: Vector) -> Vector:
        return np.asarray(sum(p.apply(points) for p in self.parts))

    def transpose_apply(self, values: Vector) -> Vector:
        return np.asarray(sum(p.transpose_apply(values) for p in self.parts))

    def rows(self, index: Any) -> Map:
        return Sum([p.rows(index) for p in self.parts])

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Sum([p.columns(index) for p in self.parts])

    def explicit(self) -> Any:
        if self.storage == "sparse":
            first, *others = (p.explicit() for p in self.parts)
            return sum(others, first)
        return sum(p.dense() for p in self.parts)

    def check(self, name: str) -> None:
        for part in self.parts:
            part.check(name)

    def __str__(self) -> str:
        return f"({signed_sum(map(str, self.parts))})"

    def of(self, name: str) -> str:
        return signed_sum(p.of(name) for p in self.parts)


class HStack(Map):
    """Maps side by side: one variable after another; None stands for a zero block."""

    def __init__(self, rows: int, parts: Sequence[tuple[Map | None, int]]) -> None:
        self.parts = tuple(parts)
        ends = accumulate((columns for _, columns in parts), initial=0)
        self.slices = [slice(a, b) for a, b in pairwise(ends)]
        self.shape = (rows, sum(columns for _, columns in parts))
        kinds = [(m.storage, columns) for m, columns in parts if m is not None]
        if any(kind == "operator" for kind, _ in kinds):
            self.storage = "operator"
        # A few dense columns, of an intercept say, beside many sparse or empty ones do not make them dense.
        elif 4 * sum(columns for kind, columns in kinds if kind == "dense") <= self.shape[1]:
            self.storage = "sparse"

    def live(self) -> list[tuple[slice, Map]]:
        """The blocks that are not zero, and the columns that each of them takes."""
        return [(s, m) for s, (m, _) in zip(self.slices, self.parts, strict=True) if m is not None]

    def apply(self, points: Vector) -> Vector:
        total: Any = np.zeros((*points.shape[:-1], self.shape[0]))
        return sum((inner.apply(points[..., part]) for part, inner in self.live()), total)

    def transpose_apply(self, values: Vector) -> Vector:
        out = np.zeros((*values.shape[:-1], self.shape[1]))
        for part, inner in self.live():
            out[..., part] = inner.transpose_apply(values)
        return out

    def rows(self, index: Any) -> Map:
        parts = [(m if m is None else m.rows(index), columns) for m, columns in self.parts]
        count = len(range(self.shape[0])[index]) if isinstance(index, slice) else len(index)
        return HStack(count, parts)

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        parts: list[tuple[Map | None, int]] = []
        for part, (inner, _) in zip(self.slices, self.parts, strict=True):
            inside: NDArray[np.intp] | slice
            if isinstance(index, slice):
                first, last = max(index.start, part.start), min(index.stop, part.stop)
                inside, count = slice(first - part.start, last - part.start), max(last - first, 0)
            else:
                inside = index[(index >= part.start) & (index < part.stop)] - part.start
                count = inside.size
            parts.append((None if inner is None or not count else inner.columns(inside), count))
        return HStack(self.shape[0], parts)

    def explicit(self) -> Any:
        if self.storage == "sparse":
            return sp.hstack(
                [sp.csr_array((self.shape[0], c)) if m is None else sp.csr_array(m.explicit()) for m, c in self.parts],
                format="csr",
            )
        out = np.zeros(self.shape)
        for part, inner in self.live():
            out[:, part] = inner.dense()
        return out

    def check(self, name: str) -> None:
        for _, inner in self.live():
            inner.check(name)

    @cached_property
    def _row_squares(self) -> Vector:
        return np.asarray(sum((m._row_squares for _, m in self.live()), np.zeros(self.shape[0])))

    def _squares_times(self, vector: Vector) -> Vector:
        return np.asarray(sum((m._squares_times(vector[s]) for s, m in self.live()), np.zeros(self.shape[0])))

    def gram(self, weights: Vector) -> Any:
        live = self.live()
        if self.storage != "sparse":
            total = np.zeros((self.shape[1], self.shape[1]))
            for k, (s, m) in enumerate(live):
                block = m.gram(weights)
                total[s, s] = block.toarray() if sp.issparse(block) else block
                for r, n in live[:k]:
                    _add_cross(total[s, r], m, n, weights)
                    total[r, s] = total[s, r].T
            return total
        blocks = [[sp.csr_array((s.stop - s.start, r.stop - r.start)) for r in self.slices] for s in self.slices]
        position = {s.start: i for i, s in enumerate(self.slices)}
        for k, (s, m) in enumerate(live):
            i = position[s.start]
            blocks[i][i] = sp.csr_array(m.gram(weights))
            for r, n in live[:k]:
                if m.storage == n.storage == "sparse":
                    cross = m.explicit().T @ (sp.diags_array(np.asarray(weights)) @ n.explicit())
                else:
                    cross = np.zeros((m.shape[1], n.shape[1]))
                    _add_cross(cross, m, n, weights)
                j = position[r.start]
                blocks[i][j] = sp.csr_array(cross)
                blocks[j][i] = blocks[i][j].T
        return sp.block_array(blocks, format="csr")

    def gram_diagonal(self, weights: Vector) -> Vector:
        out = np.zeros(self.shape[1])
        for part, inner in self.live():
            out[part] = inner.gram_diagonal(weights)
        return out

    def __str__(self) -> str:
        return f"[{' | '.join('0' if m is None else str(m) for m, _ in self.parts)}]"


# -- What a user hands over -------------------------------------------------------------------------------------------


def as_real(name: str, value: Any) -> NDArray[Any]:
    """`value` as an array of real numbers, of whatever dtype it has and without a copy, or a `ValueError` naming it."""
    if sp.issparse(value) or hasattr(value, "matvec"):
        raise ValueError(f"{name} must be a number or a dense array; got {type(value).__name__}. Did you mean @?")
    array = np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else as_finite(name, value)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be real numbers; got dtype {array.dtype}.")
    return array


def as_vector(name: str, value: Any) -> NDArray[Any]:
    """A finite number or a non-empty finite vector, without a copy."""
    array = as_real(name, value)
    if array.ndim > 1:
        raise ValueError(f"{name} must be a number or a vector; got shape {array.shape}.")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty.")
    if array.dtype.kind == "f":
        as_finite(name, array)
    return array


def as_map(name: str, value: Any) -> Map:
    """A user's matrix as a map, without copying the data; a `ValueError` that names it otherwise.

    Matrices of up to a million entries are checked for NaN and infinity at once; see `Map.check` for larger ones.
    """
    kind: type[Map] = Operator if hasattr(value, "matvec") else Sparse if sp.issparse(value) else Matrix
    if kind is Matrix:
        value = as_real(name, value)
    elif np.dtype(getattr(value, "dtype", None) or np.float64).kind not in "biuf":
        raise ValueError(f"{name} must be real numbers; got dtype {value.dtype}.")
    if len(value.shape) != 2:
        raise ValueError(f"{name} must be a matrix; got an array of shape {value.shape}.")
    if 0 in value.shape:
        raise ValueError(f"{name} must not be empty; got shape {value.shape}.")
    mapped: Map = kind(value)  # type: ignore[call-arg]
    if kind is not Operator and mapped.shape[0] * mapped.shape[1] <= _EAGER:
        mapped.check(name)
    return mapped


# -- Helpers ----------------------------------------------------------------------------------------------------------


def _parts(length: int, step: int) -> Iterator[slice]:
    """Cut `length` into pieces."""
    step = max(1, step)
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _by_columns(matrix: Any, points: Vector) -> Vector:
    """A sparse matrix times points along the last axis."""
    if points.ndim == 1:
        return np.asarray(matrix @ points)
    flat = points.reshape(-1, points.shape[-1])
    return np.ascontiguousarray((matrix @ flat.T).T).reshape(*points.shape[:-1], matrix.shape[0])


def _squares(matrix: Any) -> Any:
    """The squares of the entries, as float64, of the same pattern."""
    if not matrix.has_canonical_format:  # entries may be stored in parts, and the square of a sum is wanted
        matrix = matrix.copy()
        matrix.sum_duplicates()
    squares = np.square(matrix.data, dtype=np.float64)
    return type(matrix)((squares, matrix.indices, matrix.indptr), shape=matrix.shape)


def _is_finite(array: NDArray[Any]) -> bool:
    """Whether no entry is NaN or infinite."""
    if array.dtype.kind != "f":
        return True
    # A finite sum proves finite entries in one pass without a temporary; overflow of the sum needs the slow look.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(array))) or bool(np.isfinite(array).all())


def _add_cross(total: Vector, left: Map, right: Map, weights: Vector) -> None:
    """Add ``left' diag(weights) right`` to `total`, walking the columns of the narrower one."""
    if left.shape[1] < right.shape[1]:
        left, right, total = right, left, total.T
    if right.shape[1] == 1:  # as of an intercept
        total[:, 0] += left.transpose_apply(weights * right.dense()[:, 0])
        return
    for part, block in right._columns():
        total[:, part] += left.transpose_apply((weights[:, None] * block).T).T


def _common_storage(maps: Sequence[Map]) -> Literal["dense", "sparse", "operator"]:
    kinds = {m.storage for m in maps}
    return "operator" if "operator" in kinds else "dense" if "dense" in kinds else "sparse"


def _operators(text: str) -> set[str]:
    """The operators of an expression that no bracket encloses."""
    depth, found = 0, set()
    for k, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if depth == 0 and character == " ":
            found.add(text[k + 1])
    return found


def _wrapped(text: str) -> str:
    return f"({text})" if _operators(text) or text.startswith("-") else text


def _formatted(form: str, name: str) -> str:
    return form.format(name if "({}" in form else _wrapped(name))


def times(factor: float, text: str) -> str:
    """A number times an expression, written plainly."""
    if factor == 1.0:
        return text
    inner = f"({text})" if _operators(text) & {"+", "-"} or text.startswith("-") else text
    return f"-{inner}" if factor == -1.0 else f"{factor:g} * {inner}"


def signed_sum(texts: Any) -> str:
    """Summands joined by their signs."""
    joined = ""
    for text in texts:
        if not joined:
            joined = text
        else:
            joined += f" - {text[1:]}" if text.startswith("-") else f" + {text}"
    return joined
