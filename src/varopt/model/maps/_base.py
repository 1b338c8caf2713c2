"""What every linear map can do: apply itself and its transpose to points, and select rows and columns.

From these follow, or faster where its kind allows, the sums that bounds and solvers need: ``diag(A V A')`` and
``A' diag(d) A``. No map copies or changes the user's data when it is made; dense temporaries are walked in pieces, and
what is sparse is never made dense.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._threads import all_threads
from varopt.model.maps._text import wrapped

__all__ = ["Map", "add_cross", "common_storage", "is_finite", "slices"]

Vector = NDArray[np.floating[Any]]

_DENSE_ENTRIES = 1 << 20  # of a dense temporary where matrices are multiplied piece by piece
_CACHED_ENTRIES = 1 << 16  # the same where vectors are, and the piece should stay in the cache


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

    @abstractmethod
    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        """The map of selected coordinates of its argument: increasing integers, or a slice, which is no copy."""

    @abstractmethod
    def __str__(self) -> str: ...

    def of(self, name: str) -> str:
        """How the map of something called `name` is written."""
        return f"{self} @ {wrapped(name)}"

    def leaves(self) -> Iterator[Any]:
        """The matrices and vectors that it is made of."""
        yield self

    def check(self, name: str) -> None:  # noqa: B027  (most kinds hold no data of the user)
        """Raise a `ValueError` that calls the matrix `name` if the data are not finite."""

    def explicit(self) -> Any:
        """The matrix, in floating point: a dense array or a sparse one, as `storage` says."""
        return self.apply(np.eye(self.shape[1])).T

    @property
    def given(self) -> Any:
        """The matrix as it was handed over, whose whole numbers or longer ones `explicit` may have rounded."""
        return self.explicit()

    def dense(self) -> Vector:
        """The matrix as a dense array."""
        if self.shape[1] == 1:
            return np.asarray(self.apply(np.ones(1)))[:, None]
        explicit = self.explicit()
        return explicit.toarray() if sp.issparse(explicit) else np.asarray(explicit)

    def absolute_row_sums(self) -> Vector:
        """At least ``|A| 1``, of the matrices that it is made of: what rows are measured by before anything cancels."""
        return np.asarray(abs(self.explicit()).sum(axis=1), dtype=np.float64).ravel()

    def _row_blocks(self, at_least: int = 1) -> Iterator[tuple[slice, Vector]]:
        """The matrix by rows, in dense float64 pieces."""
        for part in slices(self.shape[0], max(at_least, _CACHED_ENTRIES // self.shape[1])):
            yield part, np.asarray(self.rows(part).dense(), dtype=np.float64)

    def _column_slices(self) -> Iterator[slice]:
        """So many columns at a time that a dense temporary of them is not large."""
        return slices(self.shape[1], _DENSE_ENTRIES // self.shape[0])

    def _columns(self) -> Iterator[tuple[slice, Vector]]:
        """The matrix by columns, in dense pieces: the map of unit vectors."""
        for part in self._column_slices():
            yield part, self.apply(np.eye(part.stop - part.start, self.shape[1], k=part.start)).T

    @cached_property
    def _row_squares(self) -> Vector:
        return self._squares_times(np.ones(self.shape[1]))

    def _squares_times(self, vector: Vector) -> Vector:
        """``(A * A) v`` with the square entry by entry."""
        if self.storage == "sparse":
            return np.asarray(_squared_entries(self.explicit()) @ vector)
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
        for part in slices(factor.shape[1], max(32, _DENSE_ENTRIES // self.shape[0])):
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
            add_cross(total, self, self, weights)
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
            return np.asarray(_squared_entries(self.explicit()).T @ weights)
        total = np.zeros(self.shape[1])
        if self.storage == "operator":
            for part, block in self._columns():
                total[part] = weights @ (block * block)
        else:
            for part, block in self._row_blocks():
                total += weights[part] @ (block * block)
        return total


def slices(length: int, step: int) -> Iterator[slice]:
    """Cut `length` into pieces of `step`, the last perhaps shorter."""
    step = max(1, step)
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _squared_entries(matrix: Any) -> Any:
    """The squares of the entries, as float64, of the same pattern."""
    if not matrix.has_canonical_format:  # entries may be stored in parts, and the square of a sum is wanted
        matrix = matrix.copy()
        matrix.sum_duplicates()
    squares = np.square(matrix.data, dtype=np.float64)
    return type(matrix)((squares, matrix.indices, matrix.indptr), shape=matrix.shape)


def add_cross(total: Vector, left: Map, right: Map, weights: Vector) -> None:
    """Add ``left' diag(weights) right`` to `total`, walking the columns of the narrower one."""
    if left.shape[1] < right.shape[1]:
        left, right, total = right, left, total.T
    if right.shape[1] == 1:  # as of an intercept
        total[:, 0] += left.transpose_apply(weights * right.dense()[:, 0])
        return
    for part, block in right._columns():
        total[:, part] += left.transpose_apply((weights[:, None] * block).T).T


def common_storage(maps: Sequence[Map]) -> Literal["dense", "sparse", "operator"]:
    kinds = {m.storage for m in maps}
    return "operator" if "operator" in kinds else "dense" if "dense" in kinds else "sparse"


def is_finite(array: NDArray[Any]) -> bool:
    """Whether no entry is NaN or infinite."""
    if array.dtype.kind != "f":
        return True
    # A finite sum proves finite entries in one pass without a temporary; overflow of the sum needs the slow look.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(array))) or bool(np.isfinite(array).all())
