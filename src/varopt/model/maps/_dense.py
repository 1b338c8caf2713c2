"""Dense arrays, and their products, which are computed once for several fits of the same data where that is asked for.

What is kept is hidden state, in a context variable: between who knows that data will come again (a cross-validation)
and who multiplies with them (a matrix, deep inside a method) stand scikit-learn's `fit` and `clone`, through which no
argument of ours passes. A context variable, unlike a global one, is not seen by other threads.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt._threads import FETCH, all_threads
from varopt.model.maps._base import Map, is_finite, slices
from varopt.model.maps._text import formatted

__all__ = [
    "KeptProducts",
    "Matrix",
    "additions",
    "kept_products",
    "latest_products",
    "no_latest_products",
    "products_are_kept",
    "products_of",
]

Vector = NDArray[np.floating[Any]]


class KeptProducts:
    """The latest products of an array, by what it was multiplied with."""

    _most: ClassVar[dict[str, int]] = {"gram": 1, "apply": 2, "transpose_apply": 4}

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array  # which keeps its id taken
        self.known: dict[str, list[tuple[Vector, Any]]] = {name: [] for name in self._most}

    @cached_property
    def finite(self) -> bool:
        return is_finite(self.array)

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


_KEPT: ContextVar[dict[int, KeptProducts] | None] = ContextVar("products of arrays", default=None)
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


def products_of(array: NDArray[Any]) -> KeptProducts | None:
    """What is known of the products of an array, where they are kept."""
    kept = _KEPT.get()
    if kept is None:
        return None
    if id(array) not in kept:
        while len(kept) >= _KEPT_ARRAYS:  # the oldest, which may be a part of the data of no use any more
            kept.pop(next(iter(kept)))
        kept[id(array)] = KeptProducts(array)
    return kept[id(array)]


class _Latest:
    """What one run knows of an array: its latest products, and the squares of the lengths of its columns."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = weakref.ref(array)  # a copy of some rows is not to outlive its use
        self.product: tuple[Vector, Vector] | None = None
        self.transposed: tuple[Vector, Vector] | None = None
        self.squares: Vector | None = None

    @property
    def size(self) -> int:
        """Entries of the array; none where it is gone."""
        array = self.array()
        return 0 if array is None else array.size


# Hidden state as well, and for one run only, since arrays may change between runs: the method's last look, the value of
# the objective and its proof multiply with the same point, and between them stand blocks, maps and methods.
_LATEST: ContextVar[dict[int, _Latest] | None] = ContextVar("latest products", default=None)
_LATEST_ARRAYS = 4  # of which that is known at a time
_WORTH_KEEPING = 1 << 12  # entries of an array whose products are
# Columns from which on a copy of what the transpose was multiplied with costs little beside the product, or entries up
# to which it costs little anyway.
_WIDE_COLUMNS, _COPIED_ENTRIES = 16, 1 << 20
_BY_LENGTHS = 1 << 20  # entries beyond which lengths of columns, that proofs ask for, tell whether all are finite


@contextmanager
def latest_products() -> Iterator[None]:
    """Within it a product with the latest point, and lengths of columns, are computed once; these are for reading."""
    if _LATEST.get() is not None:
        yield
        return
    token = _LATEST.set({})
    try:
        yield
    finally:
        _LATEST.reset(token)


@contextmanager
def no_latest_products() -> Iterator[None]:
    """Within it nothing of a run is known: for functions of the user, whose own arrays may change from call to call."""
    token = _LATEST.set(None)
    try:
        yield
    finally:
        _LATEST.reset(token)


def products_at_hand() -> bool:
    """Whether the run has kept a product with the transpose of an array."""
    return any(latest.transposed is not None for latest in (_LATEST.get() or {}).values())


def _latest_of(array: NDArray[Any]) -> _Latest | None:
    known = _LATEST.get()
    if known is None or array.size < _WORTH_KEEPING:
        return None
    latest = known.get(id(array))
    if latest is None or latest.array() is not array:
        known.pop(id(array), None)
        while len(known) >= _LATEST_ARRAYS:  # what is gone, or costs least to compute again
            known.pop(min(known, key=lambda k: known[k].size))
        latest = known[id(array)] = _Latest(array)
    return latest


def _column_squares(array: NDArray[Any]) -> Vector:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.einsum("ij,ij->j", array, array))


# Rows at a time of sums over rows, of up to so many columns, or more.
_NARROW_COLUMNS, _FEW_SUMMED_ROWS, _SUMMED_ROWS = 128, 1 << 10, 1 << 12


def _at_a_time(columns: int) -> int:
    """Rows whose products are added up at a time: BLAS would waste its threads on more, and these sums round less."""
    return _FEW_SUMMED_ROWS if columns <= _NARROW_COLUMNS else _SUMMED_ROWS


def additions(rows: int, columns: int) -> int:
    """How many additions no number of a Gram matrix with equal weights, or transposed product, has more of, in C order.

    Blocks of rows are added up by BLAS, in whatever order, and then one after another.
    """
    few = _at_a_time(columns)
    return rows if rows <= 2 * few else few + rows // few + 1


class Matrix(Map):
    """A dense array of any real dtype, by reference. All but float64 are converted piece by piece in every product."""

    place: Callable[[Any], Any] | None = None  # takes an array to the device that this one came from

    def __init__(self, array: NDArray[Any], form: str = "") -> None:
        self.array = array
        self.shape = (array.shape[0], array.shape[1])
        self.form = form

    def _fits(self, points: Vector) -> bool:
        return self.array.dtype == np.float64 or self.array.dtype == points.dtype == np.float32

    @property
    def _kept(self) -> KeptProducts | None:
        return products_of(self.array)

    def _product(self, name: str, vector: Vector, compute: Callable[[Vector], Any]) -> Any:
        kept = self._kept if vector.ndim == 1 else None
        return compute(vector) if kept is None else kept.get(name, vector, compute)

    def apply(self, points: Vector) -> Vector:
        latest = _latest_of(self.array) if points.ndim == 1 and points.dtype == np.float64 else None
        if latest is None:
            return np.asarray(self._product("apply", points, self._apply))
        if latest.product is None or not np.array_equal(latest.product[0], points):
            product = np.asarray(self._product("apply", points, self._apply))
            product.flags.writeable = False
            latest.product = points.copy(), product
        return latest.product[1]

    def _apply(self, points: Vector) -> Vector:
        if not np.count_nonzero(points):  # where many runs begin, and some end
            dtype = np.result_type(points, self.array) if self._fits(points) else np.float64
            return np.zeros((*points.shape[:-1], self.shape[0]), dtype=dtype)
        if self._fits(points):
            with all_threads("numpy", FETCH * self.array.size):
                return np.asarray(points @ self.array.T)
        out = np.empty((*points.shape[:-1], self.shape[0]))
        for part, block in self._row_blocks():
            out[..., part] = points @ block.T
        return out

    def transpose_apply(self, values: Vector) -> Vector:
        worth = self.shape[1] >= _WIDE_COLUMNS or self.array.size <= _COPIED_ENTRIES
        plain = values.ndim == 1 and values.dtype == self.array.dtype == np.float64
        latest = _latest_of(self.array) if worth and plain else None
        known = latest.transposed if latest is not None else None
        if known is not None and known[0][0] == values[0] and np.array_equal(known[0], values):
            return known[1].copy()
        product = np.asarray(self._product("transpose_apply", values, self._transpose_apply))
        if latest is not None:
            kept = product.copy()
            kept.flags.writeable = False
            copy = np.empty(values.shape) if known is None else known[0]  # memory that is new takes longer than to copy
            latest.transposed = (
                None  # the numbers are not to stand beside the product of others, if this is interrupted
            )
            copy[:] = values
            latest.transposed = copy, kept
        return product

    def known_transposed(self) -> tuple[Vector, Vector, int] | None:
        """The run's latest y and ``A'y``, for reading, and the additions that none of its numbers exceeds."""
        latest = _latest_of(self.array)
        if latest is None or latest.transposed is None:
            return None
        return *latest.transposed, self.transposed_additions

    @property
    def transposed_additions(self) -> int:
        """Additions that no number of a product with the transpose has more of."""
        return additions(*self.shape) if self.array.flags.c_contiguous else self.shape[0]

    def _transpose_apply(self, values: Vector) -> Vector:
        if self._fits(values):
            few = _at_a_time(self.shape[1])
            if values.ndim > 1 or self.shape[0] <= 2 * few or not self.array.flags.c_contiguous:
                return np.asarray(values @ self.array)
            return np.asarray(sum(values[part] @ self.array[part] for part in slices(self.shape[0], few)))
        out = np.zeros((*values.shape[:-1], self.shape[1]))
        for part, block in self._row_blocks():
            out += values[..., part] @ block
        return out

    def rows(self, index: Any) -> Map:
        if isinstance(index, np.ndarray) and index.dtype == np.intp and self.array.flags.c_contiguous:
            return Matrix(np.take(self.array, index, axis=0))  # in a third of the time where rows are short
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
            total, few = None, _at_a_time(self.shape[1])
            for part in slices(self.shape[0], few if self.shape[0] > 2 * few else self.shape[0]):
                block = self.array[part]
                product = block.T @ block  # equal weights: nothing is copied
                total = product if total is None else np.add(total, product, out=total)
        total = np.zeros((self.shape[1],) * 2) if total is None else total
        total *= weights[0]
        return total

    @property
    def column_squares(self) -> Vector:
        """The squares of the lengths of its columns, of double precision, added up in any order."""
        latest = _latest_of(self.array)
        if latest is None:
            return _column_squares(self.array)
        if latest.squares is None:
            latest.squares = _column_squares(self.array)
        return latest.squares

    def gram_diagonal(self, weights: Vector) -> Vector:
        equal = weights.size and (weights.strides == (0,) or np.ptp(weights) == 0.0)
        if self.array.dtype != np.float64 or not equal:
            return super().gram_diagonal(weights)
        return np.asarray(weights[0] * self.column_squares)

    def explicit(self) -> Any:
        known = self.array.dtype.kind == "f" and self.array.dtype.itemsize <= 8  # by linear algebra
        return self.array if known else self.array.astype(np.float64)

    @property
    def given(self) -> Any:
        return self.array

    def dense(self) -> Vector:
        return np.asarray(self.explicit())

    def _columns(self) -> Iterator[tuple[slice, Vector]]:
        for part in self._column_slices():
            yield part, np.asarray(self.array[:, part], dtype=np.float64)

    def check(self, name: str) -> None:
        if not self._finite:
            i, j = (int(k) for k in np.argwhere(~np.isfinite(self.array))[0])
            raise ValueError(f"{name} must be finite; got {self.array[i, j]} in row {i}, column {j}.")

    @cached_property
    def _finite(self) -> bool:
        kept = self._kept
        if kept is None and self.array.dtype == np.float64 and self.array.size > _BY_LENGTHS:
            latest = _latest_of(self.array)
            if latest is not None and np.all(np.isfinite(self.column_squares)):
                return True
        return is_finite(self.array) if kept is None else kept.finite

    def __str__(self) -> str:
        return f"A[{self.shape[0]} x {self.shape[1]}]"

    def of(self, name: str) -> str:
        return formatted(self.form, name) if self.form else super().of(name)
