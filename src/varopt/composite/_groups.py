r"""Group norms of a composite, ``sum_g w_g ||A_g x + d_g||_2``: their values and their subgradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model.maps import Map, Matrix, Sparse

__all__ = ["Groups", "groups_of"]

Vector = NDArray[np.float64]

_WORTH_SPARSE = 1 << 16  # entries up to which a sparse matrix is not worth its overhead


@dataclass(frozen=True, eq=False)
class Groups:
    """Norms of groups of rows; the rows of a group follow one another, and overlapping groups repeat them."""

    linear: Map
    offset: Vector
    sizes: NDArray[np.intp]
    weights: Vector  # one for each group, not negative

    @classmethod
    def stacked(cls, parts: Sequence[Groups]) -> Groups:
        """The groups of several as one, with a sparse matrix."""
        matrix = sp.vstack([sp.csr_array(part.linear.explicit()) for part in parts], format="csr")
        fields = ([getattr(part, name) for part in parts] for name in ("offset", "sizes", "weights"))
        return cls(Sparse(matrix), *map(np.concatenate, fields))

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where each group begins."""
        return np.asarray(np.cumsum(self.sizes) - self.sizes)

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """One number for each group as one for each row."""
        return np.repeat(values, self.sizes)

    def summed(self, rows: Vector) -> Vector:
        """The sums over the rows of each group."""
        return np.asarray(np.add.reduceat(rows, self.starts))

    def positions(self, x: Vector) -> Vector:
        """``z = A x + d``."""
        return np.asarray(self.linear.apply(x) + self.offset, dtype=np.float64)

    def norms(self, z: Vector) -> Vector:
        """The norm of each group, scaled so that squares neither overflow nor vanish."""
        unit = self.spread(np.maximum.reduceat(np.abs(z), self.starts))
        unit = np.where(unit > 0.0, unit, 1.0)
        return np.asarray(unit[self.starts] * np.sqrt(self.summed((z / unit) ** 2)))

    def total(self, z: Vector) -> float:
        """The weighted sum of the norms."""
        return float(self.weights @ self.norms(z))

    def directions(self, z: Vector) -> Vector:
        """``z / ||z||`` in each group, zero where the norm is."""
        norms = self.spread(self.norms(z))
        return np.asarray(np.divide(z, norms, out=np.zeros_like(z), where=norms > 0.0))

    def young(self, z: Vector, v: Vector) -> float:
        """The Fenchel-Young gap ``w ||z|| - v'z`` of dual vectors v in the balls of radius w, summed."""
        return float(np.sum(np.maximum(self.weights * self.norms(z) - self.summed(v * z), 0.0)))

    def feasible(self, v: Vector) -> Vector:
        """The dual vectors scaled into their balls."""
        norms = self.norms(v)
        shrink = np.divide(self.weights, norms, out=np.ones_like(norms), where=norms > self.weights)
        return np.asarray(v * self.spread(shrink))

    def across(self, directions: Vector) -> Any:
        """For each group the row ``direction' A_g``: the derivative of its norm."""
        matrix = self.linear.explicit()
        if not sp.issparse(matrix):
            return np.add.reduceat(directions[:, None] * matrix, self.starts)
        labels = np.repeat(np.arange(self.sizes.size), self.sizes)
        return sp.csr_array((directions, (labels, np.arange(directions.size)))) @ matrix

    def radial_hessian(self, directions: Vector, tangential: Vector, radial: Vector) -> Any:
        """``sum_g A_g' (t_g (I - e e') + r_g e e') A_g`` with e the direction of a group: the Hessian of the norms."""
        along, less = self.across(directions), radial - tangential
        inward = along.T @ (sp.diags_array(less) @ along if sp.issparse(along) else less[:, None] * along)
        outward = self.linear.gram(self.spread(tangential))
        return outward + inward if sp.issparse(outward) or not sp.issparse(inward) else outward + inward.toarray()

    def explicit(self) -> Groups:
        """The same with a matrix in place of an expression of matrices; a dense one where it is small."""
        matrix = self.linear.explicit()
        if sp.issparse(matrix) and matrix.shape[0] * matrix.shape[1] > _WORTH_SPARSE:
            return replace(self, linear=Sparse(sp.csr_array(matrix)))
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        return replace(self, linear=Matrix(np.asarray(dense, dtype=np.float64)))

    def take(self, live: NDArray[np.bool_]) -> Groups:
        """Some of the groups."""
        rows = np.flatnonzero(self.spread(live))
        return Groups(self.linear.rows(rows), self.offset[rows], self.sizes[live], self.weights[live])


def groups_of(linear: Map, offset: Vector, index: Sequence[NDArray[np.intp]], weights: Any) -> Groups:
    """Groups of rows of an affine map, by the positions of their rows."""
    rows = np.concatenate(index)
    sizes = np.array([g.size for g in index], dtype=np.intp)
    factor = np.array(np.broadcast_to(np.asarray(weights, dtype=np.float64), sizes.shape))
    return Groups(linear.rows(rows), np.asarray(offset, dtype=np.float64)[rows], sizes, factor)
