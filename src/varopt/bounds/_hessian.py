"""The Hessian of a bound in the mean, in the form it has: a sum of ``A' H A`` with H diagonal, block or dense."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._maps import Map

__all__ = ["Hessian"]

Vector = NDArray[np.float64]


@dataclass
class Hessian:
    """Parts of a symmetric matrix of order `size`, each acting on the coordinates of a map.

    ``diagonal_parts`` are ``(A, h)`` for ``A' diag(h) A``; ``matrix_parts`` are ``(A, M)`` for ``A' M A``, M symmetric, dense, sparse or a map.
    `choices` marks coordinates whose own second derivative is zero because the bound is linear in each (bits, choices): entries of
    equal label are removed; a negative label removes nothing.
    """

    size: int
    diagonal_parts: list[tuple[Map, Vector]] = field(default_factory=list)
    matrix_parts: list[tuple[Map, Any]] = field(default_factory=list)
    choices: NDArray[np.intp] | None = None

    def dense(self) -> Vector:
        """The matrix; O(rows x size^2) time, O(size^2) memory."""
        total = np.zeros((self.size, self.size))
        for linear, weights in self.diagonal_parts:
            total += _dense(linear.gram(weights))
        for linear, matrix in self.matrix_parts:
            explicit = linear.explicit()
            total += _dense(explicit.T @ (_dense(matrix) @ explicit if not sp.issparse(explicit) else _dense(matrix) @ explicit.toarray()))
        total = 0.5 * (total + total.T)
        if self.choices is not None:
            total[self._same_choice()] = 0.0
        return total

    def _same_choice(self) -> NDArray[np.bool_]:
        assert self.choices is not None
        return (self.choices[:, None] == self.choices[None, :]) & (self.choices >= 0)[:, None]

    def diagonal(self) -> Vector:
        """The diagonal, without the matrix."""
        total = np.zeros(self.size)
        for linear, weights in self.diagonal_parts:
            total += linear.gram_diagonal(weights)
        for linear, matrix in self.matrix_parts:
            explicit = linear.explicit()
            if sp.issparse(explicit) and sp.issparse(matrix):
                total += (matrix @ explicit).multiply(explicit).sum(axis=0)
            else:
                thick = _dense(explicit)
                total += np.einsum("ij,ij->j", thick, _dense(matrix) @ thick)
        if self.choices is not None:
            total[self.choices >= 0] = 0.0
        return total

    def apply(self, direction: Vector) -> Vector:
        """The matrix times a vector, without the matrix."""
        total = np.zeros(self.size)
        for linear, weights in self.diagonal_parts:
            total += linear.transpose_apply(weights * linear.apply(direction))
        for linear, matrix in self.matrix_parts:
            inner = linear.apply(direction)
            total += linear.transpose_apply(np.asarray(matrix.apply(inner) if isinstance(matrix, Map) else matrix @ inner))
        if self.choices is not None:
            # Subtract what the removed entries contribute: they only couple coordinates of one choice.
            full = Hessian(self.size, self.diagonal_parts, self.matrix_parts)
            total -= (full.dense() * self._same_choice()) @ direction
        return total

    def operator(self) -> Any:
        """A `scipy.sparse.linalg.LinearOperator`."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator((self.size, self.size), matvec=self.apply, rmatvec=self.apply, dtype=np.float64)


def _dense(matrix: Any) -> Vector:
    if isinstance(matrix, Map):
        return matrix.dense()
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)
