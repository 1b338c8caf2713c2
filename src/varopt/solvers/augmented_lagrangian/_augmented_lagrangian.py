r"""The augmented Lagrangian of rows with kinks, in coordinates in which the ridge is half a squared length.

A convex piecewise term is a smooth one and kinks, and a kink of height h at t has the augmented Lagrangian

    h max_u { u (z - t) - width / 2 (u - centre)^2,  0 <= u <= 1 },                                                 (1)
    u = clip(centre + (z - t) / width, 0, 1),                                                                       (2)

that is, up to a constant, its Moreau envelope at ``z + width centre``; and also its average under uniform noise of that
width whose mean is shifted by ``width (centre - 1/2)``: the bound of [SB12] with a mean of its own for every row. Where
the centre is the multiplier at an optimum, the minimiser is an optimum of the problem itself, and the width need not
vanish (the method of multipliers, [Rockafellar76]).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.composite import Composite, Rows
from varopt.model.maps import HStack, Map, Scaled

__all__ = ["AugmentedLagrangian", "RowDerivatives", "at", "smooth_derivative", "split_columns"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_DENSE_COLUMNS = 8  # of a part up to which they are treated as dense ones
_FEASIBILITY_STEPS = 8  # in which multipliers are moved until they are dual feasible
_DUAL_RESIDUAL = 1e-14  # share of what cancels that counts as feasible


class RowDerivatives(NamedTuple):
    """Rows at a point: multipliers (kinks by rows), derivatives and curvatures, and the Fenchel-Young gaps."""

    multipliers: Vector
    gradient: Vector
    curvature: Vector
    young: float


@dataclass(frozen=True)
class AugmentedLagrangian:
    """Some rows of a problem, the others a constant gradient.

    A point is ``(t, b)``: t the variables of sparse columns, each times the root of its curvature, and b those of a few
    dense columns, an intercept say, whose curvature may be zero. The rows are ``scale (matrix t + dense b)``.
    """

    matrix: Any  # (n, m) CSR, the user's own where it can be
    scale: Any  # a number, or one a row
    root: Vector  # (m,)
    dense: Vector  # (n, f)
    dense_curvature: Vector  # (f,)
    offset: Vector
    knots: Vector  # (kinks, n)
    heights: Vector  # (kinks, n), zero where a row has fewer kinks
    unit: Any  # width at a relative width of one: a number, or one a row
    constant_gradient: Vector  # (m + f), of all else at zero
    idle: Vector  # (kinks, n), multipliers of the smallest subgradients
    curved: tuple[tuple[slice, Rows], ...]  # rows with pieces that are not linear, and where they are

    @classmethod
    def of(cls, problem: Composite) -> tuple[AugmentedLagrangian, Index]:
        """All rows of a problem whose quadratic is diagonal, and the order of the variables in a point."""
        diagonal = problem.matrix.diagonal()
        scale, matrix, columns, order = _factors([r.linear for r in problem.rows], np.flatnonzero(diagonal <= 0.0))
        m, n, diagonal = matrix.shape[1], problem.row_count, diagonal[order]
        most = max(len(r.kinks) for r in problem.rows)
        knots, heights, lines, curved, start = np.zeros((most, n)), np.zeros((most, n)), np.zeros(n), [], 0
        for r in problem.rows:
            part = slice(start, start + r.count)
            for j, (knot, jump) in enumerate(r.kinks):
                knots[j, part], heights[j, part] = knot, r.weights * jump
            if r.term.degree > 1:
                curved.append((part, r))
            else:
                lines[part] = r.weights * r.term.subgradient_range[0]
            start = part.stop
        idle, subgradient = np.zeros((most, n)), lines.copy()
        for j, height in enumerate(heights):
            idle[j] = np.clip(np.divide(-subgradient, height, out=np.zeros(n), where=height > 0.0), 0.0, 1.0)
            subgradient += height * idle[j]
        root = np.sqrt(diagonal[:m])
        if m and np.all(root == root[0]):
            scale, columns = scale / root[0], columns * root[0]
        elif m:
            matrix = sp.csr_array((matrix.data / root[matrix.indices], matrix.indices, matrix.indptr), matrix.shape)
        offset = np.concatenate([r.offset for r in problem.rows])
        constant = np.concatenate([problem.vector[order[:m]] / root, problem.vector[order[m:]]])
        rows = cls(
            matrix, scale, root, columns, diagonal[m:], offset, knots, heights, 1.0, constant, idle, tuple(curved)
        )  # fmt: skip
        return replace(rows, unit=rows._units(problem), constant_gradient=constant + rows.transpose_apply(lines)), order

    def _units(self, problem: Composite) -> Any:
        """How far a row is moved by a multiplier of its own, on average over its block."""
        narrow = np.square(self.dense) @ np.where(self.dense_curvature > 0.0, self.dense_curvature, np.inf) ** -1.0
        units, start, pointers = [], 0, self.matrix.indptr
        for r in problem.rows:
            part = slice(start, start + r.count)
            entries = self.matrix.data[pointers[part.start] : pointers[part.stop]]
            square = np.square(np.broadcast_to(self.scale, self.count)[part]).mean() / r.count
            moved = float(square * (entries @ entries + narrow[part].sum()))
            units.append(max(float(self.heights[:, part].sum(axis=0).mean()) * moved, 1e-300))
            start = part.stop
        if not np.all(np.isfinite(units)):
            raise np.linalg.LinAlgError("products of the data overflow")
        return units[0] if len(units) == 1 else np.repeat(units, [r.count for r in problem.rows])

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.offset.size)

    @cached_property
    def _transpose(self) -> Any:
        return self.matrix.T

    def take(self, index: Index, row_gradient: Vector) -> AugmentedLagrangian:
        """Some of the rows, none with curved pieces; the others keep their gradient."""
        rest = row_gradient.copy()
        rest[index] = 0.0
        return replace(
            self, matrix=self.matrix[index], scale=at(self.scale, index), dense=self.dense[index],
            offset=self.offset[index], knots=self.knots[:, index], heights=self.heights[:, index],
            unit=at(self.unit, index), constant_gradient=self.constant_gradient + self.transpose_apply(rest),
        )  # fmt: skip

    def move(self, step: Vector) -> Vector:
        """How far the rows move with a step."""
        m = self.root.size
        moved = self.matrix @ step[:m]
        for column, length in zip(self.dense.T, step[m:], strict=True):
            moved += length * column
        moved *= self.scale
        return np.asarray(moved)

    def transpose_apply(self, row_gradient: Vector) -> Vector:
        """The gradient in the point that derivatives of the rows give."""
        scaled = self.scale * row_gradient
        return np.concatenate([self._transpose @ scaled, self.dense.T @ scaled])

    def gradient(self, x: Vector, row_gradient: Vector) -> Vector:
        """The gradient of all there is, with the given derivatives of the rows."""
        m = self.root.size
        gradient = self.transpose_apply(row_gradient)
        gradient += self.constant_gradient
        gradient[:m] += x[:m]
        gradient[m:] += self.dense_curvature * x[m:]
        return gradient

    def multipliers(self, z: Vector, centres: Vector, width: float) -> Vector:
        """(2) without the bounds."""
        out = z - self.knots
        out /= width * self.unit
        out += centres
        return np.asarray(out)

    def row_gradient(self, z: Vector, multipliers: Vector) -> Vector:
        """The derivatives of the rows at z, given the multipliers of their kinks."""
        gradient: Vector = np.einsum("kn,kn->n", self.heights, multipliers)
        for part, r in self.curved:
            gradient[part] += r.weights * smooth_derivative(r, z[part])
        return gradient

    def at(self, z: Vector, centres: Vector, width: float) -> RowDerivatives:
        """The rows at z."""
        free = self.multipliers(z, centres, width)
        u = np.clip(free, 0.0, 1.0)
        curvature = np.einsum("kn,kn->n", self.heights, free == u) / (width * self.unit)
        for part, r in self.curved:
            curvature[part] += r.weights * r.term.derivative(z[part], 2)
        away = z - self.knots
        young = np.einsum("kn,kn,kn->", self.heights, (away >= 0.0) - u, away)
        return RowDerivatives(u, self.row_gradient(z, u), curvature, float(young))

    def balanced(self, z: Vector, multipliers: Vector) -> Vector:
        """Multipliers near the given ones that are dual feasible: no gradient is left where there is no ridge."""
        flat = np.flatnonzero(self.dense_curvature == 0.0)
        columns = np.reshape(self.scale, (-1, 1)) * self.dense[:, flat]
        constant = self.constant_gradient[self.root.size + flat]
        size = np.abs(constant) + np.abs(columns).T @ np.abs(self.row_gradient(z, multipliers))
        for _ in range(_FEASIBILITY_STEPS if flat.size else 0):
            residual = constant + columns.T @ self.row_gradient(z, multipliers)
            if np.all(np.abs(residual) <= _DUAL_RESIDUAL * size):
                break
            room = np.minimum(multipliers, 1.0 - multipliers)  # none is moved beyond its bounds
            matrix = columns.T @ (np.einsum("kn,kn->n", self.heights, room)[:, None] * columns)
            shift = np.linalg.lstsq(matrix, -residual, rcond=1e-13)[0]
            multipliers = multipliers + room * np.clip(columns @ shift, -0.9, 0.9)
        return multipliers


def smooth_derivative(r: Rows, z: Vector) -> Vector:
    """The derivative of a term without its kinks."""
    derivative = np.array(r.term.derivative(z))
    for knot, jump in r.kinks:
        derivative -= np.where(z >= knot, jump, 0.0)
    return derivative


def at(values: Any, index: Index) -> Any:
    return values[index] if np.ndim(values) else values


def _factors(maps: list[Map], flat: Index) -> tuple[Any, Any, Vector, Index]:
    """Rows as ``diag(scale) [A, dense columns]``, A the user's own matrix where it can be, and the order of columns.

    The variables in `flat` come as dense columns, whatever they are.
    """
    scale, matrix, dense, columns = split_columns(maps[0])
    if len(maps) > 1 or np.setdiff1d(flat, columns).size or not np.all(scale):
        matrix = sp.vstack([sp.csr_array(linear.explicit()) for linear in maps], format="csc")
        scale, dense, columns = 1.0, matrix[:, flat].toarray(), flat
        matrix = matrix[:, np.setdiff1d(np.arange(matrix.shape[1]), flat)]
    others = np.delete(np.arange(maps[0].shape[1]), columns)
    return (
        scale,
        sp.csr_array(matrix, dtype=np.float64),
        dense / np.reshape(scale, (-1, 1)),
        np.concatenate([others, columns]),
    )


def split_columns(linear: Map) -> tuple[Any, Any, Vector, Index]:
    """A map as a scale of its rows, a sparse matrix, dense columns, and which columns these are."""
    if isinstance(linear, Scaled):
        scale, matrix, dense, columns = split_columns(linear.inner)
        return linear.scale * scale, matrix, np.reshape(linear.scale, (-1, 1)) * dense, columns
    parts = list(zip(linear.slices, linear.parts, strict=True)) if isinstance(linear, HStack) else []
    wide = [(part.start, inner) for part, (inner, size) in parts if size > _DENSE_COLUMNS]
    start, inner = wide[0] if len(wide) == 1 else (0, None)
    if inner is None:
        return 1.0, linear.explicit(), np.zeros((linear.shape[0], 0)), np.zeros(0, dtype=np.intp)
    scale, matrix, dense, columns = split_columns(inner)
    blocks: list[Any] = [dense]
    index = [start + columns]
    for part, (narrow, size) in parts:
        if part.start != start:
            blocks.append(np.zeros((linear.shape[0], size)) if narrow is None else narrow.dense())
            index.append(np.arange(part.start, part.stop))
    return scale, matrix, np.hstack(blocks), np.concatenate(index)
