"""Second derivatives of a bound in the mean, in the form they have: a sum of ``A' H A``, H diagonal or a matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._linalg import as_dense
from varopt.bounds._layout import Component
from varopt.composite import Congruence, pick

__all__ = ["Hessian", "same_choice", "to_simplex"]

Vector = NDArray[np.float64]

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
            total += part.diagonal
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
                result.append(sum((p.diagonal for p in parts), np.zeros(c.size))[:, None, None])
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
