"""The data of a fit as a weighted set of distinct rows, in an order that their content alone decides.

A weight of zero is an absent row and a weight of two is a row given twice. Where an optimum is not unique, a solver's
choice among the optimal points may hang on the order and the number of the rows it is given; so rows are merged and
sorted before it sees them, and equivalent data give the same fit, bit for bit. Very large dense data without equal rows
are left as they are: there, the memory and the time of a copy count for more than the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["DataMemory", "WeightedRows", "distinct_rows"]

Vector = NDArray[np.float64]

_HASHED_ENTRIES = 1 << 16  # entries hashed at a time: they stay in the cache
_SORTED_ENTRIES = 1 << 24  # entries beyond which dense data without equal rows are not sorted
_NOTHING_TO_GAIN = 32, 1 << 16  # features, and entries with the zeros, up to which a sparse matrix has nothing to gain
_SPARSE_ENTRY_COST = 2.0  # entries of a sparse matrix take half as much again as dense ones, for their indices


@dataclass(frozen=True)
class WeightedRows:
    """A weighted set of rows; the first of each set of equal ones is at `index` of the data they come from."""

    X: Any
    y: Any
    weight: Vector
    index: NDArray[np.intp]

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return float(self.weight.sum())


class DataMemory:
    """The latest data of a sequence of fits, and what was made of them: fits of the very same arrays share it."""

    def __init__(self) -> None:
        self._read: tuple[tuple[Any, ...], Any] | None = None
        self._rows: tuple[Any, Any, Vector, WeightedRows] | None = None

    def read(self, data: tuple[Any, ...], read: Callable[[], Any]) -> Any:
        """What reading the data gives, or gave where they are the very objects that were read before."""
        if self._read is None or any(one is not other for one, other in zip(self._read[0], data, strict=True)):
            self._read = data, read()
        return self._read[1]

    def rows(self, X: Any, y: NDArray[Any], weight: Vector) -> WeightedRows:
        """Their distinct rows."""
        latest = self._rows
        if latest is None or latest[0] is not X or not _equal(latest[1], y) or not _equal(latest[2], weight):
            latest = self._rows = X, y, weight, distinct_rows(X, y, weight)
        return latest[3]


def _equal(one: Any, other: Any) -> bool:
    return one is other or np.array_equal(one, other)


def distinct_rows(X: Any, y: NDArray[Any], weight: Vector | None = None) -> WeightedRows:
    """Rows without weight left out, equal rows merged, the rest sorted by a hash of their content.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, p)
    y : ndarray of shape (n,) or (n, k)
    weight : ndarray of shape (n,), optional

    Notes
    -----
    O(n p + n log n) time, one copy of the data, or none of very large dense data without equal rows. The hash is 64
    bits of integer arithmetic, so that it does not depend on how rows are laid out in memory; rows are merged only
    after they were compared.
    """
    weight = np.ones(X.shape[0]) if weight is None else np.asarray(weight, dtype=np.float64)
    targets = np.asarray(y, dtype=np.float64).reshape(X.shape[0], -1)
    codes = _codes(X) + _dense_codes(targets, salt=1)
    order = np.argsort(codes)
    if not np.all(weight > 0.0):
        order = order[weight[order] > 0.0]
    codes = codes[order]
    same = np.flatnonzero(codes[1:] == codes[:-1]) + 1
    if same.size:
        before = order[same - 1]
        equal = (targets[order[same]] == targets[before]).all(axis=1)
        same = same[equal & _equal_rows(X, order[same], before)]
    if not same.size and order.size == X.shape[0] and not sp.issparse(X) and X.size > _SORTED_ENTRIES:
        return WeightedRows(X, y, weight, np.arange(X.shape[0]))
    kept, merged = order, weight[order]
    if same.size:
        starts = np.delete(np.arange(order.size), same)
        kept, merged = np.minimum.reduceat(order, starts), np.add.reduceat(merged, starts)
    return WeightedRows(_compact(X[kept]) if sp.issparse(X) else _taken(X, kept), y[kept], merged, kept)


def _taken(X: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Selected rows, column by column where that is how they lie in memory."""
    return np.take(X.T, rows, axis=1).T if X.flags.f_contiguous else np.take(X, rows, axis=0)


def _compact(X: Any) -> Any:
    """Sparse rows, or dense ones where they are few, or take at most a third more memory: dense methods are faster."""
    size = X.shape[0] * X.shape[1]
    few = X.shape[1] <= _NOTHING_TO_GAIN[0] and size <= _NOTHING_TO_GAIN[1]
    return X.toarray() if few or size <= _SPARSE_ENTRY_COST * X.nnz else X


def _constants(count: int, salt: int) -> NDArray[np.uint64]:
    """Odd factors, one per column."""
    rng = np.random.default_rng([salt, 64])
    return rng.integers(1 << 63, size=count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def _mixed(values: NDArray[Any], factors: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The bits of numbers, scrambled: whole numbers leave the low bits of a float empty, the shifts fill them."""
    bits = (values + 0.0).astype(np.float64, copy=False).view(np.uint64)  # -0.0 is 0.0
    bits ^= bits >> np.uint64(32)
    bits *= factors
    bits ^= bits >> np.uint64(32)
    return np.asarray(bits)


def _codes(X: Any) -> NDArray[np.uint64]:
    if not sp.issparse(X):
        return _dense_codes(X, salt=0)
    # One product with random numbers. In the order of the columns its sums do not hang on how a row is laid out, and a
    # stored zero adds nothing to them.
    entries = X.tocsr()
    if not entries.has_canonical_format:
        entries = entries.copy()
        entries.sum_duplicates()
    factors = np.random.default_rng(64).uniform(1.0, 2.0, X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        return _mixed(entries @ factors, np.ones(1, dtype=np.uint64))


def _dense_codes(values: NDArray[Any], salt: int) -> NDArray[np.uint64]:
    factors = _constants(values.shape[1], salt)
    codes = np.empty(values.shape[0], dtype=np.uint64)
    step = max(1, _HASHED_ENTRIES // values.shape[1])
    for start in range(0, values.shape[0], step):
        # As `sum(axis=1)`, in a quarter of the time where rows are short.
        codes[start : start + step] = np.einsum("ij->i", _mixed(values[start : start + step], factors))
    return codes


def _equal_rows(X: Any, first: NDArray[np.intp], second: NDArray[np.intp]) -> NDArray[np.bool_]:
    if not first.size:
        return np.zeros(0, dtype=bool)
    if sp.issparse(X):
        one, other = X[first], X[second]
        if np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices):
            differs = np.concatenate([[0], np.cumsum(one.data != other.data)])  # entries up to each
            return np.asarray(differs[one.indptr[1:]] == differs[one.indptr[:-1]])
        return np.asarray(np.diff(sp.csr_array(one != other).indptr) == 0)
    return np.asarray((X[first] == X[second]).all(axis=1))
