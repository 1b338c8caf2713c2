"""Second derivatives in the form they have: ``A' H A`` with H diagonal or a matrix, which is formed only if need be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._linalg import as_dense
from varopt.model.maps import HStack, Map, Operator, Scaled, Selection

__all__ = ["Congruence", "columns_of", "gram", "pick", "squared_norms"]

Vector = NDArray[np.float64]

_GRAM_PIECE = 1 << 18  # entries of a dense temporary when a matrix is walked by rows


def columns_of(linear: Map, part: slice) -> Map | None:
    """The map of some coordinates, the very map of a variable where they are its own; None where it is zero."""
    if part == slice(0, linear.shape[1]):
        return linear
    if isinstance(linear, HStack) and part in linear.slices:
        return linear.parts[linear.slices.index(part)][0]
    return linear.columns(part)


def pick(matrix: Any, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Vector:
    """Entries of an array or sparse array, in the shape of the indices."""
    if sp.issparse(matrix):
        return np.reshape(as_dense(matrix.tocsr()[rows.ravel(), columns.ravel()]), rows.shape)
    return np.asarray(matrix[rows, columns])


def squared_norms(linear: Map) -> Vector:
    """``||a_k||^2`` of every row: one pass over the data, kept by the maps of single variables."""
    if isinstance(linear, HStack):
        return sum((squared_norms(inner) for _, inner in linear.live()), np.zeros(linear.shape[0]))
    return np.asarray(linear.row_variance(1.0), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Congruence:
    """``factor A' H A``: A a map of some coordinates, H a diagonal (a vector) or a square array, sparse array or map.

    H is held by reference, and only its symmetric part matters.
    """

    linear: Map
    inner: Any
    factor: float = 1.0

    @property
    def _is_diagonal(self) -> bool:
        return isinstance(self.inner, np.ndarray) and self.inner.ndim == 1

    @property
    def _is_whole(self) -> bool:
        """Whether A is the identity."""
        return isinstance(self.linear, Selection) and self.linear.index is None

    def matrix(self) -> Any:
        """The product, an array or a sparse array: one weighted Gram matrix."""
        if self._is_diagonal:
            return self.factor * gram(self.linear, self.inner)
        if self._is_whole:
            total = _explicit(self.inner)
        else:
            a = self.linear.explicit()
            if isinstance(self.inner, Operator) or (isinstance(self.inner, Map) and not sp.issparse(a)):
                columns = np.asarray(as_dense(a), dtype=np.float64)
                total = self.linear.transpose_apply(self.inner.apply(columns.T))
            else:
                total = a.T @ (_explicit(self.inner) @ a)
        total = total.astype(np.float64, copy=False)
        return (0.5 * self.factor) * (total + total.T)

    def of_columns(self, part: slice) -> Congruence | None:
        """That of some coordinates; None where it is zero."""
        linear = columns_of(self.linear, part)
        if linear is self.linear:
            return self
        return None if linear is None else Congruence(linear, self.inner, self.factor)

    def trace(self) -> float:
        """The trace of `matrix`."""
        if self._is_diagonal:
            return self.factor * float(self.inner @ squared_norms(self.linear))
        return float(self.diagonal.sum())

    @cached_property
    def diagonal(self) -> Vector:
        """The diagonal of `matrix`, without forming it where that can be avoided."""
        if self._is_diagonal:
            return self.factor * np.asarray(self.linear.gram_diagonal(self.inner), dtype=np.float64)
        linear = self.linear
        if isinstance(linear, HStack):
            total = np.zeros(linear.shape[1])
            for part, inner in linear.live():
                total[part] = Congruence(inner, self.inner, self.factor).diagonal
            return total
        if isinstance(linear, Scaled) and np.ndim(linear.scale) == 0:
            return Congruence(linear.inner, self.inner, self.factor * float(linear.scale) ** 2).diagonal
        if isinstance(linear, Selection) and (linear.index is None or np.bincount(linear.index).max() == 1):
            return self.factor * np.asarray(linear.transpose_apply(_diagonal(self.inner)), dtype=np.float64)
        return np.array(self.matrix().diagonal(), dtype=np.float64)

    def apply(self, direction: Vector) -> Vector:
        """The product with a vector, without the matrix."""
        z = self.linear.apply(direction)
        if self._is_diagonal:
            inner = self.inner * z
        elif isinstance(self.inner, Map):
            inner = 0.5 * (self.inner.apply(z) + self.inner.transpose_apply(z))
        else:
            inner = 0.5 * (self.inner @ z + self.inner.T @ z)
        return self.factor * np.asarray(self.linear.transpose_apply(np.asarray(inner)), dtype=np.float64)


def _explicit(matrix: Any) -> Any:
    return matrix.explicit() if isinstance(matrix, Map) else matrix


def _diagonal(matrix: Any) -> Vector:
    if isinstance(matrix, Operator):
        return np.concatenate([np.asarray(np.diagonal(b[part]), dtype=np.float64) for part, b in matrix._columns()])
    return np.array(_explicit(matrix).diagonal(), dtype=np.float64)


def gram(linear: Map, weights: Vector) -> Any:
    """``A' diag(weights) A``; where most weights are zero, of the other rows alone."""
    active = np.flatnonzero(weights)
    if linear.storage != "dense" or 2 * active.size > weights.size:
        return linear.gram(weights)
    total = np.zeros((linear.shape[1],) * 2)
    step = max(1, _GRAM_PIECE // linear.shape[1])
    for start in range(0, active.size, step):
        part = active[start : start + step]
        total += as_dense(linear.rows(part).gram(weights[part]))
    return total
