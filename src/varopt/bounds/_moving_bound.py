"""The bound of a composite as its mean moves, for descents whose steps take less time than making objects would.

On a lasso it is E of [SB12, eq. 15], with the derivatives of eq. 16; on a kernel machine that of eq. 29 to 32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._composite_bound import quadratic_diagonal
from varopt.bounds._noise import RowNoise, one_if_equal
from varopt.composite import Composite, Rows, SharedMatrix, shared_matrix
from varopt.model.maps import Map, Selection

__all__ = ["MovingBound"]

Vector = NDArray[np.float64]
Product = Callable[[Any], Any]

_UNTHREADED_ENTRIES = (
    1 << 20
)  # entries of a matrix up to which threads and kept products are not worth asking for at every product
_THIN = 4  # columns that may be made explicit


class MovingBound:
    """The bound at one mean after another, for a descent that asks for little and asks often.

    The same numbers as those of `CompositeBound`, for rows alone, in arrays that are made once: on a few hundred
    variables making objects and arrays at every step would take longer than the step. Each call writes over what the
    last returned.

    Parameters
    ----------
    problem : Composite
        Without norms.
    noise : RowNoise
    """

    def __init__(self, problem: Composite, noise: RowNoise) -> None:
        self._problem, self._noise = problem, noise
        self._gradient = problem.gradient_function()
        self._start = problem.structure(quadratic_diagonal)
        shared = problem.structure(shared_matrix)
        self._rows = [
            _RowsWithQuadratic(r, length, shared) if shared and shared.block == b else _MovingRows(r, length)
            for b, (r, length) in enumerate(zip(problem.rows, noise.lengths, strict=True))
        ]
        self._diagonal = np.empty(problem.size)
        self._quadratic = problem.quadratic_and_gradient if shared is None else self._linear
        self._sigma, self._excess = math.nan, 0.0

    def _linear(self, mean: Vector) -> tuple[float, Vector]:
        """What is left of a quadratic whose matrix goes with the rows."""
        return self._problem.scalar + float(self._problem.vector.dot(mean)), self._problem.vector

    @property
    def always_curved(self) -> bool:
        """Whether the quadratic alone curves up along every variable, so that with convex rows E does."""
        return bool(np.all(self._start > 0.0))

    def value_and_gradient(self, mean: Vector, sigma: float) -> tuple[float, Vector]:
        """E and its gradient in the mean."""
        if sigma != self._sigma:
            self._sigma, self._excess = sigma, self._noise.at(sigma).excess(self._problem)
            for rows in self._rows:
                rows.smooth(sigma)
        value, gradient = self._quadratic(mean)
        value += self._excess  # the quadratic, with tr(H Sigma) / 2 [SB12, eq. 15]
        for rows in self._rows:
            more, own = rows.value_and_gradient(mean)
            value, gradient = value + more, gradient + own
        return value, gradient if self._rows else np.array(gradient)

    def gradient_and_diagonal(self, mean: Vector, sigma: float) -> tuple[Vector, Vector]:
        """The gradient in the mean, and the diagonal of the Hessian."""
        gradient, diagonal = self._gradient(mean), self._start
        for rows in self._rows:
            first, second = rows.gradient_and_diagonal(mean, sigma)
            gradient = np.add(gradient, first, gradient)
            diagonal = np.add(diagonal, second, self._diagonal)
        return gradient, diagonal


class _MovingRows:
    """What one block of rows adds."""

    def __init__(self, rows: Rows, length: Any) -> None:
        self._term, self._linear, self._weights, self._length = rows.term, rows.linear, rows.weights, length
        self._offset = rows.offset if rows.offset.any() else None
        self._common = one_if_equal(rows.weights)
        self._out = np.empty(rows.count), np.empty(rows.count)
        self._direct = isinstance(rows.linear, Selection) and rows.linear.index is None  # the variables themselves

    def _locate(self, mean: Vector) -> Any:
        z = self._linear.apply(mean)
        return z if self._offset is None else z + self._offset

    def smooth(self, sigma: float) -> None:
        """Set the sigma of the values and gradients to come."""
        self._sum = self._term.weighted_sum(sigma * self._length, self._weights)

    def value_and_gradient(self, mean: Vector) -> tuple[float, Any]:
        value, first = self._sum(self._locate(mean))  # sum_n w_n <rho(z_n)> [SB12, eq. 15, 29], w_n <rho'(z_n)>
        return value, self._linear.transpose_apply(first)  # A'(w <rho'>) [SB12, eq. 31, 32]

    def gradient_and_diagonal(self, mean: Vector, sigma: float) -> tuple[Any, Any]:
        z, s = self._locate(mean), sigma * self._length
        first, second = self._term.slope_and_curvature(z, s, self._common, self._out)
        if self._direct:
            return first, second
        # A'(w <rho'>), and the diagonal of A' Diag(w <rho''>) A [SB12, eq. 16]
        return self._linear.transpose_apply(first), self._linear.gram_diagonal(second)


class _RowsWithQuadratic(_MovingRows):
    """The same with the quadratic: of ``weight b'Kb`` and terms of ``K b + ...`` both gradients are products with K."""

    def __init__(self, rows: Rows, length: Any, shared: SharedMatrix) -> None:
        super().__init__(rows, length)
        self._part, self._weight, kernel = shared.part, shared.weight, shared.matrix
        self._times: Product = kernel.array.dot if kernel.array.size < _UNTHREADED_ENTRIES else kernel.apply
        self._others = [(part, *_products(inner)) for part, inner in shared.others]

    def value_and_gradient(self, mean: Vector) -> tuple[float, Any]:
        own = mean[self._part]
        image = self._times(own)
        z = image if self._offset is None else image + self._offset
        for part, apply, _ in self._others:
            z = z + apply(mean[part])
        value, first = self._sum(z)
        gradient = np.zeros(mean.size)
        gradient[self._part] = self._times((2.0 * self._weight) * own + first)  # K (2 mu + w <rho'>) [SB12, eq. 31]
        for part, _, transpose_apply in self._others:
            gradient[part] = transpose_apply(first)
        return value + self._weight * float(own.dot(image)), gradient


def _products(linear: Map) -> tuple[Product, Product]:
    """With the map and with its transpose; a few columns, of an intercept say, as an array."""
    if linear.shape[1] > _THIN:
        return linear.apply, linear.transpose_apply
    columns = np.asarray(linear.dense(), dtype=np.float64)
    return columns.dot, columns.T.dot
