"""Second derivatives of a bound in the mean, in the form they have: a sum of ``A' H A``, H diagonal or a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.bounds._layout import Component
from varopt.model._maps import HStack, Map, Operator, Scaled, Selection

__all__ = ["Congruence", "Hessian", "as_dense", "pick", "same_choice", "to_simplex"]

Vector = NDArray[np.float64]

_CHUNK = 1 << 18  # entries of a dense temporary when a matrix is walked by rows


def as_dense(matrix: Any) -> Vector:
    """A sparse matrix or an array as an array."""
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def pick(matrix: Any, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Vector:
    """Entries of an array or sparse array, in the shape of the indices."""
    if sp.issparse(matrix):
        return np.reshape(as_dense(matrix.tocsr()[rows.ravel(), columns.ravel()]), rows.shape)
    return np.asarray(matrix[rows, columns])


@dataclass(frozen=True)
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

    def diagonal(self) -> Vector:
        """The diagonal of `matrix`."""
        if self._is_diagonal:
            return self.factor * np.asarray(self.linear.gram_diagonal(self.inner), dtype=np.float64)
        linear = self.linear
        if isinstance(linear, HStack):
            total = np.zeros(linear.shape[1])
            for part, inner in linear.live():
                total[part] = Congruence(inner, self.inner, self.factor).diagonal()
            return total
        if isinstance(linear, Scaled) and np.ndim(linear.scale) == 0:
            return Congruence(linear.inner, self.inner, self.factor * float(linear.scale) ** 2).diagonal()
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
    step = max(1, _CHUNK // linear.shape[1])
    for start in range(0, active.size, step):
        part = active[start : start + step]
        total += as_dense(linear.rows(part).gram(weights[part]))
    return total


# -- Choices ----------------------------------------------------------------------------------------------------------


def to_simplex(c: Component, gradient: Vector) -> Vector:
    """``J' g`` along the last axis, ``J = I - p 1'`` for every choice of a Categorical: g less its average under p."""
    if c.is_bits or not c.is_discrete:
        return gradient
    p = c.family.mean.reshape(-1, c.choices)
    g = gradient.reshape(*gradient.shape[:-1], *p.shape)
    return np.reshape(g - (p * g).sum(axis=-1, keepdims=True), gradient.shape)


def _from_simplex(c: Component, direction: Vector) -> Vector:
    """``J d``: the part of a change of probabilities that stays on the simplex."""
    if c.is_bits:
        return direction
    p = c.family.mean.reshape(-1, c.choices)
    d = direction.reshape(p.shape)
    return np.ravel(d - p * d.sum(axis=-1, keepdims=True))


def same_choice(c: Component) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of all pairs of coordinates of one choice, within the component, of shape (choices, k, k)."""
    index = np.arange(c.size).reshape(-1, c.choices)
    rows, columns = np.broadcast_arrays(index[:, :, None], index[:, None, :])
    return rows, columns


class Hessian:
    """The Hessian of a bound in the mean, as a matrix, its diagonal or an operator.

    ``curvature(variables)`` gives the parts as functions of these variables. In discrete components the bound is linear
    in each bit or choice: there, derivatives are taken along the simplex and entries of one choice are zero.
    """

    def __init__(
        self, size: int, components: tuple[Component, ...], curvature: Callable[[Any], list[Congruence]]
    ) -> None:
        self.size, self.curvature = size, curvature
        self.all = curvature(tuple(v for c in components for v in c.variables))
        self.discrete = [c for c in components if c.is_discrete]

    def dense(self) -> Vector:
        """The matrix; O(rows x size^2) time, O(size^2) memory."""
        total = np.zeros((self.size, self.size))
        for part in self.all:
            total += as_dense(part.matrix())
        for c in self.discrete:
            total[c.part] = to_simplex(c, total[c.part].T).T
            total[:, c.part] = to_simplex(c, total[:, c.part])
            total[c.part, c.part][same_choice(c)] = 0.0
        return total

    def diagonal(self) -> Vector:
        """The diagonal, without the matrix."""
        total = np.zeros(self.size)
        for part in self.all:
            total += part.diagonal()
        for c in self.discrete:
            total[c.part] = 0.0
        return total

    @cached_property
    def _own(self) -> list[Vector]:
        """The entries of one choice before they are set to zero, along the simplex, of shape (choices, k, k)."""
        result = []
        for c in self.discrete:
            parts = self.curvature(c.variables)
            if c.is_bits:
                result.append(sum((p.diagonal() for p in parts), np.zeros(c.size))[:, None, None])
                continue
            rows, columns = same_choice(c)
            blocks = np.zeros(rows.shape)
            for part in parts:
                blocks += pick(part.matrix(), rows, columns)
            p = c.family.mean.reshape(-1, c.choices)
            blocks -= np.einsum("ni,nij->nj", p, blocks)[:, None, :]
            blocks -= np.einsum("nij,nj->ni", blocks, p)[:, :, None]
            result.append(blocks)
        return result

    def apply(self, direction: Vector) -> Vector:
        """The matrix times a vector, without the matrix."""
        moved = np.array(direction, dtype=np.float64).reshape(self.size)
        for c in self.discrete:
            moved[c.part] = _from_simplex(c, moved[c.part])
        total = np.zeros(self.size)
        for part in self.all:
            total += part.apply(moved)
        for c, own in zip(self.discrete, self._own, strict=True):
            mine = moved[c.part].reshape(-1, c.choices)
            total[c.part] = to_simplex(c, total[c.part]) - np.einsum("nij,nj->ni", own, mine).ravel()
        return total

    def operator(self) -> Any:
        """A `scipy.sparse.linalg.LinearOperator`."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator((self.size, self.size), matvec=self.apply, rmatvec=self.apply, dtype=np.float64)
