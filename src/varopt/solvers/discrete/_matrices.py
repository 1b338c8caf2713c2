"""Symmetric matrices of pairs, kept as they are best multiplied with: sparse, or dense where a quarter is there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._threads import FETCH, all_threads
from varopt.solvers.discrete._rounding import lost_by_adding, lost_in_pairs

__all__ = [
    "as_dense", "count_nonzero", "permuted", "pieces", "pieces_among", "product", "row_norms", "row_sizes",
    "signed_row_sums", "stored", "symmetrised",
]  # fmt: skip

Vector = NDArray[np.float64]

_DENSE_SHARE = 0.25  # share of entries from which a dense product is faster
_TILE = 256  # rows and columns that stay in cache together with their mirror image
_PIECE = 1 << 20  # entries looked at together


def stored(matrix: Any) -> Any:
    """A square matrix in the kind that is faster to multiply with, whichever it came in; no zero is stored sparsely."""
    if sp.issparse(matrix):
        matrix = sp.csr_array(matrix)
        matrix.eliminate_zeros()
    if count_nonzero(matrix) > _DENSE_SHARE * matrix.shape[0] ** 2:
        return as_dense(matrix)
    return sp.csr_array(matrix)


def symmetrised(matrix: Any, site: NDArray[np.intp], weight: float) -> tuple[Any, float]:
    """``weight (M + M')`` without the entries within a site, and what it has lost to rounding, added up over pairs.

    The weight is a power of two, of either sign. Cost: a few passes; of a full M, one copy.
    """
    n = matrix.shape[0]
    if sp.issparse(matrix) or 2 * np.count_nonzero(matrix) <= _DENSE_SHARE * n**2:
        pairs = sp.coo_array(matrix)
        keep = site[pairs.row] != site[pairs.col]
        data = weight * pairs.data[keep].astype(np.float64)
        half = sp.csr_array((data, (pairs.row[keep], pairs.col[keep])), shape=(n, n))
        return stored(half + half.T), lost_in_pairs(half)
    result, lost = np.empty((n, n)), 0.0
    tiles = [slice(k, k + _TILE) for k in range(0, n, _TILE)]
    for a, b in itertools.combinations_with_replacement(tiles, 2):
        here, there = (part.astype(np.float64, copy=False) for part in (matrix[a, b], matrix[b, a].T))
        if not np.array_equal(here, there):  # twice the same is exact
            lost += (0.5 if a == b else 1.0) * abs(weight) * lost_by_adding(here, there)
        tile = weight * (here + there)
        result[a, b], result[b, a] = tile, tile.T
    starts = np.flatnonzero(np.r_[True, site[1:] != site[:-1]])
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), n], strict=True):
        result[start:stop, start:stop] = 0.0
    return stored(result), lost


def as_dense(matrix: Any) -> Vector:
    """An array, whichever it is; without a copy where it is one."""
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def product(matrix: Any, columns: Any) -> Any:
    """``M x`` for the columns of x, or for one."""
    work = matrix.shape[0] ** 2 * max(FETCH, np.size(columns) // matrix.shape[0])
    with all_threads("numpy", 0 if sp.issparse(matrix) else work):
        return matrix @ columns


def permuted(matrix: Any, order: NDArray[np.intp]) -> Any:
    """Rows and columns in another order; without a copy where it is their own."""
    if np.array_equal(order, np.arange(order.size)):
        return matrix
    matrix = matrix[order][:, order]
    if sp.issparse(matrix):
        matrix.sort_indices()
    return matrix


def count_nonzero(matrix: Any) -> int:
    """Number of entries that are not zero."""
    return int(matrix.count_nonzero() if sp.issparse(matrix) else np.count_nonzero(matrix))


def pieces(matrix: Any) -> Iterator[Vector]:
    """The entries, some at a time: what is computed of them takes no memory of their size."""
    entries = matrix.data if sp.issparse(matrix) else matrix.ravel()
    return (entries[k : k + _PIECE] for k in range(0, entries.size, _PIECE))


def pieces_among(matrix: Any, chosen: NDArray[np.intp]) -> Iterator[Vector]:
    """The entries between chosen coordinates, some at a time."""
    rows = max(1, chosen.size if sp.issparse(matrix) else _PIECE // matrix.shape[0])
    for start in range(0, chosen.size, rows):
        block = matrix[chosen[start : start + rows]][:, chosen]
        yield block.data if sp.issparse(block) else block.ravel()


def row_sizes(matrix: Any) -> Vector:
    """The sums of the sizes of the entries, row by row."""
    if sp.issparse(matrix):
        return np.asarray(abs(matrix).sum(axis=1)).ravel()
    return np.array([np.abs(row).sum() for row in matrix])


def row_norms(matrix: Any) -> Vector:
    """The Euclidean lengths of the rows."""
    if sp.issparse(matrix):
        return np.asarray(np.sqrt(matrix.multiply(matrix).sum(axis=1))).ravel()
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", matrix, matrix)))


def signed_row_sums(matrix: Any) -> tuple[Vector, Vector]:
    """The sums of the negative entries and of the positive ones, row by row."""
    if sp.issparse(matrix):
        return tuple(np.asarray(part.sum(axis=1)).ravel() for part in (matrix.minimum(0.0), matrix.maximum(0.0)))  # type: ignore[return-value]
    negative = np.array([np.minimum(row, 0.0).sum() for row in matrix])
    return negative, np.asarray(matrix.sum(axis=1)) - negative
