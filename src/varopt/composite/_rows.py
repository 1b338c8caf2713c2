"""Rows: one term applied to the rows of an affine map, with weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model.maps import Difference, HStack, Map, Matrix, Scaled, Selection, Sparse
from varopt.terms import PiecewisePolynomial

__all__ = ["Rows", "single_variables"]

Vector = NDArray[np.float64]

_GATHERED = 1 << 16  # entries of a matrix that are gathered at once: half a megabyte


@dataclass(frozen=True)
class Rows:
    """One term applied to the rows of an affine map."""

    linear: Map
    offset: Vector
    term: PiecewisePolynomial
    weights: Vector
    hard: bool = False  # whether it stands for a constraint: no optimum is beyond its kink

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.offset.size)

    @property
    def is_direct(self) -> bool:
        """Whether products with the map cost little more than with its matrix, so that a copy would not pay."""
        return _is_direct(self.linear)

    def positions(self, x: Vector) -> Vector:
        """``z = A x + d``."""
        if not np.count_nonzero(x):
            return self.offset.copy()
        return np.asarray(self.linear.apply(x) + self.offset, dtype=np.float64)

    def total(self, z: Vector) -> float:
        """The weighted sum of the terms at z."""
        return float(self.weights @ self.term.value(z))

    def gradient(self, z: Vector) -> Vector:
        """The gradient in x at rows z, of the right-hand derivatives on a knot."""
        return np.asarray(self.linear.transpose_apply(self.weights * self.term.derivative(z)))

    def take(self, index: NDArray[np.intp]) -> Rows:
        """Selected rows, as explicit data."""
        return Rows(_gathered(self.linear, index), self.offset[index], self.term.take(index), self.weights[index])

    def knot_distance(self, z: Vector) -> Vector:
        """Distance from the nearest knot: a few standard deviations beyond it the row is a polynomial."""
        return np.asarray(np.min([np.abs(z - t) for t in self.term.knots], axis=0))

    def left_piece(self, z: Vector, before: Vector) -> NDArray[np.bool_]:
        """Rows that lie in another piece than before."""
        left = np.zeros(z.shape, dtype=bool)
        for t in self.term.knots:
            left |= (z >= t) != (before >= t)
        return left

    @cached_property
    def single(self) -> tuple[NDArray[np.intp], Vector] | None:
        """Where every row is of one variable: of which, and times what; else None."""
        return single_variables(self.linear)

    @property
    def differences(self) -> tuple[float, Difference] | None:
        """Where the rows are differences of neighbours times a number, as constraints have them: both; else None."""
        linear, scale = self.linear, 1.0
        while isinstance(linear, Scaled) and np.ndim(linear.scale) == 0:
            scale, linear = scale * float(linear.scale), linear.inner
        return (scale, linear) if isinstance(linear, Difference) and scale != 0.0 else None

    @property
    def curvature(self) -> Vector:
        """The second derivatives of rows of one quadratic piece, with their weights."""
        return np.asarray(2.0 * self.term.pieces[0][2] * self.weights)

    @cached_property
    def hessian(self) -> Any:
        """The matrix of rows of one quadratic piece, multiplied out; for reading only, as proofs rest on it."""
        if self.single is not None:
            return sp.diags_array(self.hessian_diagonal)
        return _for_reading(self.linear.gram(self.curvature))

    @property
    def hessian_diagonal(self) -> Vector:
        """The diagonal of that matrix, all that there is of it where every row is of one variable."""
        if self.single is None:
            return np.asarray(self.hessian.diagonal())
        index, factor = self.single
        return np.asarray(
            np.bincount(index, self.curvature * factor**2, minlength=self.linear.shape[1]), dtype=np.float64
        )

    @cached_property
    def gradient_at_zero(self) -> Vector:
        """The gradient at zero, for reading only."""
        return np.asarray(_for_reading(self.gradient(self.offset)))

    @cached_property
    def size_at_zero(self) -> float:
        """The sum of the sizes of the terms at zero."""
        return float(np.abs(self.weights) @ np.abs(self.term.value(self.offset)))

    @cached_property
    def largest_gradient(self) -> Vector:
        """For each variable, how large the gradients of the rows may be: the scale of what cancels at an optimum."""
        steepest = self.term.subgradient_range if self.term.is_continuous else (np.inf, np.inf)
        ends = [np.where(np.isfinite(end), np.abs(end), 1.0) for end in steepest]
        return np.sqrt(self.count * self.linear.gram_diagonal((self.weights * np.maximum(*ends)) ** 2))

    @property
    def kinks(self) -> list[tuple[Any, Any]]:
        """The knots at which the derivative jumps, and by how much: only there can a row come to rest."""
        jumps = ((t, jump[1]) for t, jump in zip(self.term.knots, self.term.jumps, strict=True) if len(jump) > 1)
        return [(t, jump) for t, jump in jumps if np.any(jump)]


def _for_reading(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        values.flags.writeable = False
    return values


def single_variables(whole: Map) -> tuple[NDArray[np.intp], Vector] | None:
    """Where every row of a map is of one variable: of which, and times what; else None."""
    count = whole.shape[0]
    scale: Any = 1.0
    start, linear = 0, whole
    while isinstance(linear, (Scaled, HStack)):
        if isinstance(linear, Scaled):
            scale, linear = scale * linear.scale, linear.inner
            continue
        live = linear.live()
        if len(live) != 1:
            break
        start, linear = start + live[0][0].start, live[0][1]
    if isinstance(linear, Selection):
        index = np.arange(count) if linear.index is None else linear.index
        return start + index, np.broadcast_to(scale, (count,))
    if whole.storage != "sparse" or isinstance(whole, Difference):
        return None
    # The first row tells most problems apart without a copy of the data.
    if count and np.count_nonzero(whole.rows(np.arange(1)).dense()) > 1:
        return None
    explicit = sp.csr_array(whole.explicit(), copy=True)  # what follows changes it
    explicit.sum_duplicates()
    if np.any(np.diff(explicit.indptr) != 1):
        return None
    return explicit.indices, explicit.data


def _is_direct(linear: Map) -> bool:
    if isinstance(linear, Scaled):
        return _is_direct(linear.inner)
    if isinstance(linear, HStack):
        return all(part is None or _is_direct(part) for part, _ in linear.parts)
    return isinstance(linear, (Matrix, Sparse, Selection)) or linear.shape[1] == 1  # one column: an intercept


def _gathered(linear: Map, index: NDArray[np.intp]) -> Map:
    """Selected rows of a map as a matrix.

    A map may be an expression with a copy of the rows at every node, so that dense rows are made a few at a time, in
    the processor's cache: the matrix itself is all that is written to main memory.
    """
    few = max(1, _GATHERED // linear.shape[1])
    part = linear.rows(index[:few]).explicit()
    if sp.issparse(part):
        return Sparse(sp.csr_array(part if index.size <= few else linear.rows(index).explicit()))
    out = np.empty((index.size, linear.shape[1]))
    out[:few] = part
    for start in range(few, index.size, few):
        out[start : start + few] = linear.rows(index[start : start + few]).explicit()
    return Matrix(out)
