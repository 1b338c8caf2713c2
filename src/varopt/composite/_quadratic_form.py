"""A quadratic form of an affine map, which is not multiplied out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.composite._congruence import Congruence
from varopt.model.maps import Map, Matrix

__all__ = ["QuadraticForm"]

Vector = NDArray[np.float64]

_COMPARED = 256  # rows and columns of a matrix that are compared at once, in the cache


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """``weight z'Qz`` of ``z = A x + d``; Q is held by reference, and only its symmetric part matters."""

    linear: Map
    offset: Vector
    matrix: Map
    weight: float
    symmetric: bool = False  # whether Q is known to be: one product then suffices

    def positions(self, x: Vector) -> Vector:
        """``z = A x + d``."""
        return np.asarray(self.linear.apply(x) + self.offset, dtype=np.float64)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether Q is symmetric: known, or seen in a dense array."""
        return self.symmetric or (isinstance(self.matrix, Matrix) and _equals_transpose(self.matrix.array))

    def _image(self, z: Vector) -> Vector:
        """``weight (Q + Q') z``."""
        if self.is_symmetric:
            return np.asarray(2.0 * self.weight * self.matrix.apply(z))
        return np.asarray(self.weight * (self.matrix.apply(z) + self.matrix.transpose_apply(z)))

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """Both at x: one product with Q and one with its transpose, or one where it is symmetric."""
        z = self.positions(x)
        image = self._image(z)
        return 0.5 * float(z @ image), np.asarray(self.linear.transpose_apply(image), dtype=np.float64)

    @cached_property
    def curvature(self) -> Congruence:
        """The second derivatives in x."""
        return Congruence(self.linear, self.matrix, 2.0 * self.weight)

    @cached_property
    def multiplied(self) -> tuple[Any, Vector, float]:
        """The matrix M, the vector v and the constant s of ``1/2 x'Mx + v'x + s``."""
        inner, outer = self.matrix.explicit(), self.linear.explicit()
        symmetric = self.weight * (inner + inner.T)
        image = np.asarray(symmetric @ self.offset)
        line = np.asarray(self.linear.transpose_apply(image), dtype=np.float64)
        return outer.T @ symmetric @ outer, line, 0.5 * float(self.offset @ image)


def _equals_transpose(array: NDArray[Any]) -> bool:
    """Whether a square array is symmetric, entry by entry; the first block that is not ends it."""
    starts = range(0, array.shape[0], _COMPARED)
    blocks = ((slice(i, i + _COMPARED), slice(j, j + _COMPARED)) for i in starts for j in starts if j >= i)
    return all(np.array_equal(array[rows, columns], array[columns, rows].T) for rows, columns in blocks)
