r"""Values of kernel functions, with a bound of all rounding: that of the kernel, and that of the sums.

A squared distance is computed as ``|x|^2 + |y|^2 - 2 x'y``, off by at most ``(p + 4) u (|x| + |y|)^2`` [Higham 2002,
chapter 3], which an exponential turns into a relative error. In extended precision it is a sum of squares of
differences, of which no digit cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import SLACK, TINY, UNIT, Ball, gamma
from varopt.certificates.enclosures import NotEnclosed, applied, transposed
from varopt.model.maps import as_map

__all__ = ["KernelValues"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_LONG_UNIT = float(np.finfo(np.longdouble).eps) / 2.0
_FUNCTION_DIGITS = 16.0  # units by which functions of libraries may be off
_SMALL_ERROR = 0.01  # relative error of a kernel up to which that of an exponential, or a power, is as its argument's
_ENTRIES_AT_ONCE = 1 << 20
_EXTENDED_KERNEL_ENTRIES = 1 << 22  # entries, times features, of kernels that are computed in extended precision


@dataclass(frozen=True)
class KernelValues:
    """``K beta`` for samples X; `block` computes the kernel from `near`, X that may be counted from its mean."""

    kernel: Any
    X: Any
    near: Any
    block: Callable[[Index, Index], Vector]
    gamma: float
    degree: float
    coef0: float

    def of(self, samples: Index, beta: Vector, effort: int) -> Ball | None:
        """At some samples, which have the coefficients; None where it cannot be told, or takes too long.

        Sums are added up in double precision, with an `effort` of one in extended precision; with two the kernel is
        computed in that too.
        """
        live = np.flatnonzero(beta)
        if not live.size:
            return Ball.exact(np.zeros(samples.size))
        if self.kernel == "linear":
            return self._linear(samples, live, beta) if effort == 0 else None
        if effort == 2:
            return self._extended(samples, live, beta) if self.kernel == "rbf" else None
        return self._computed(samples, live, beta, effort)

    def _linear(self, samples: Index, live: Index, beta: Vector) -> Ball | None:
        """``X (X' beta)``."""
        try:
            coefficients = transposed(as_map("X", self.X[samples[live]]), Ball.exact(beta[live]), {})
            return applied(as_map("X", self.X[samples]), coefficients, {}).rounded()
        except NotEnclosed:
            return None

    def _computed(self, samples: Index, live: Index, beta: Vector, effort: int) -> Ball | None:
        """By the kernel as it is computed elsewhere, whose error is bounded."""
        own = self.kernel in ("rbf", "poly")
        squares = self._squares(samples) if own else np.zeros(samples.size)
        share, spread = self._shares() if own else (0.0, 0.0)
        if not share + 2.0 * spread * float(squares.max(initial=0.0)) <= _SMALL_ERROR:
            return None
        sizes = np.stack([np.abs(beta[live]), np.abs(beta[live]) * squares[live]], axis=1)
        kind = np.longdouble if effort else np.float64
        middle: Any = np.empty(samples.size, dtype=kind)
        error = np.empty(samples.size)
        summed = gamma(live.size + 2, _LONG_UNIT if effort else UNIT)
        step = max(1, _ENTRIES_AT_ONCE // max(1, live.size))
        for start in range(0, samples.size, step):
            part = slice(start, start + step)
            kernel = self.block(samples[part], samples[live])
            middle[part] = kernel.astype(kind, copy=False) @ beta[live].astype(kind, copy=False)
            of_sizes = self._majorant(kernel, squares[part], squares[live], sizes)
            error[part] = (summed + share + spread * squares[part]) * of_sizes[:, 0] + spread * of_sizes[:, 1]
        return Ball(middle, (error + float(sizes.sum() + live.size) * TINY) * SLACK).rounded()

    def _squares(self, samples: Index) -> Vector:
        rows = self.near[samples]
        squares = rows.multiply(rows).sum(axis=1) if sp.issparse(rows) else np.einsum("ij,ij->i", rows, rows)
        return np.asarray(squares, dtype=np.float64).ravel() * SLACK

    def _majorant(self, kernel: Vector, rows: Vector, columns: Vector, sizes: Vector) -> Vector:
        """What the errors of the kernel are shares of, times sizes: itself, or the power of what it adds up.

        Of that the lengths of both rows tell a bound, ``((r + c) / 2)^d <= (r^d + c^d) / 2``.
        """
        if self.kernel != "poly":
            return np.asarray((kernel if self.kernel == "rbf" else np.abs(kernel)) @ sizes) * SLACK
        high, low = ((self.gamma * part + abs(self.coef0)) ** self.degree for part in (rows, columns))
        return np.asarray(0.5 * (high[:, None] * sizes.sum(axis=0) + low @ sizes)) * SLACK

    def _shares(self) -> tuple[float, float]:
        """The relative error of entries: a number, and a multiple of the squares of the lengths of both rows."""
        features = self.near.shape[1] + 8  # and roundings of features that were counted from their means
        if self.kernel == "poly":
            return (2.0 * self.degree * features + _FUNCTION_DIGITS) * UNIT, 0.0
        return 2.0 * _FUNCTION_DIGITS * UNIT, 4.0 * features * UNIT * self.gamma

    def _extended(self, samples: Index, live: Index, beta: Vector) -> Ball | None:
        """Of an RBF kernel in extended precision: differences of numbers are exact but for their last digit."""
        features = self.X.shape[1]
        if sp.issparse(self.X) or samples.size * live.size * (features + 8) > _EXTENDED_KERNEL_ENTRIES:
            return None
        rows = self.X[samples].astype(np.longdouble)
        distances = np.zeros((samples.size, live.size), dtype=np.longdouble)
        for column in rows.T:
            distances += np.square(column[:, None] - column[live])
        arguments = np.longdouble(self.gamma) * distances
        kernel = np.exp(-arguments)
        middle = kernel @ beta[live].astype(np.longdouble)
        share = (features + 8) * _LONG_UNIT * arguments.astype(np.float64) + 2.0 * _FUNCTION_DIGITS * _LONG_UNIT
        share += gamma(live.size + 2, _LONG_UNIT)
        error = (kernel.astype(np.float64) * share) @ np.abs(beta[live])
        lost = float(np.abs(beta[live]).sum() + live.size) * TINY
        return Ball(middle, (error + lost) * SLACK).rounded()
