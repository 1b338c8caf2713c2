"""Matrices that are only known by their products."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.model.maps._base import Map
from varopt.model.maps._combinations import Composition
from varopt.model.maps._dense import Matrix
from varopt.model.maps._sparse import Selection

__all__ = ["Operator"]

Vector = NDArray[np.floating[Any]]


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
        if not self._has_transpose:
            raise ValueError(f"{self} must define rmatvec: its transpose is needed here.")
        if values.ndim == 1:
            return np.asarray(self.operator.rmatvec(values))
        flat = values.reshape(-1, self.shape[0])
        return np.asarray(self.operator.rmatmat(flat.T)).T.reshape(*values.shape[:-1], self.shape[1])

    @cached_property
    def _has_transpose(self) -> bool:
        # Asked of one vector: of many, SciPy fails in a sentence of Python's, as would what is wrong within rmatvec.
        try:
            self.operator.rmatvec(np.zeros(self.shape[0]))
        except NotImplementedError:
            return False
        return True

    def rows(self, index: Any) -> Map:
        return Composition(Selection(np.arange(self.shape[0])[index], self.shape[0]), self)

    def columns(self, index: NDArray[np.intp] | slice) -> Map:
        return Matrix(self.apply(np.eye(self.shape[1])[index]).T)

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
