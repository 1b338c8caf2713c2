r"""Values of kernel functions, with a bound of all rounding: that of the kernel, and that of the sums.

In double precision a squared distance is ``|x|^2 + |y|^2 - 2 x'y``, off by at most ``(p + 4) u (|x| + |y|)^2`` [Higham
2002, chapter 3], which an exponential turns into a relative error. Where coefficients are large that is too much: then
products of rows are sums of slices that BLAS adds up without rounding, and all that follows is done on pairs of
numbers, for about a hundred times the price of an entry.

What is enclosed is the kernel itself, a function of the data, which is positive semidefinite where its matrix as
computed may not be. A matrix that is given may lack so much itself:
how far it is from a positive semidefinite one is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._verified import (
    EXPONENTIAL_SHARE,
    PAIR_SHARE,
    SLACK,
    TINY,
    UNIT,
    Ball,
    Pair,
    Slices,
    exponential,
    gamma,
    gram,
    sliced,
    smallest_eigenvalue_bound,
    squared_lengths,
    two_product,
    two_sum,
)
from varopt.certificates.enclosures import NotEnclosed, applied, transposed
from varopt.model.maps import as_map
from varopt.solvers.kernel import Enclosed

__all__ = ["KernelValues", "centred"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_FUNCTION_DIGITS = 16.0  # units by which functions of libraries may be off
_SMALL_ERROR = 0.01  # relative error of a kernel up to which that of an exponential, or a power, is as its argument's
_ENTRIES_AT_ONCE = 1 << 20
_COLUMNS_AT_ONCE = 64  # products that are added up by BLAS, in whatever order
_PAIRS_AT_ONCE = 1 << 14  # entries whose pairs stay in the cache
_LARGEST_SCALE = 2.0**500
_SLICED_ENTRIES = 1 << 23  # of data that are cut into slices
_PAIR_OPERATIONS = 1e3  # that each entry counts as for the clock
_FAR_MEANS = 1e3  # times the variances of features, the squares of means above which three digits and more would cancel
_PROVED_ROWS = 600  # rows of a given matrix up to which that it is semidefinite is proved


def centred(X: Any, kernel: Any) -> tuple[Any, Vector]:
    """Features less their means, where they are dense or far from zero, and these, where they change no machine.

    Distances stay as they are; inner products change by what coefficients that add up to zero, and an intercept, make
    up for. Far from zero both would be differences of large numbers; near it, where many coefficients may be best, a
    machine with a linear kernel is that of the same features in a sparse matrix.
    """
    if callable(kernel):  # of whatever it takes
        return X, np.zeros(0)
    none = np.zeros(X.shape[1])
    if kernel not in ("rbf", "linear"):
        return X, none
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        mean = np.where(np.isfinite(mean), mean, 0.0)
        squares = abs(X).power(2).sum() / X.shape[0] if sp.issparse(X) else np.square(X).mean(axis=0).sum()
        is_far = mean @ mean > _FAR_MEANS * (squares - mean @ mean)
    if sp.issparse(X):
        if is_far and 2 * X.nnz > X.shape[0] * X.shape[1]:  # few entries are zero where all columns are far from it
            return X.toarray() - mean, mean
        return X, mean if kernel == "rbf" else none
    return (X, none) if kernel == "linear" and not is_far else (X - mean, mean)


@dataclass(frozen=True)
class KernelValues:
    """``K beta`` for samples X; `block` computes the kernel from `near`: X, or X less `mean`, rounded."""

    kernel: Any
    X: Any
    near: Any
    mean: Vector
    block: Callable[[Index, Index], Vector]
    gamma: float
    degree: float
    coef0: float

    @property
    def is_given(self) -> bool:
        """Whether the kernel is a matrix, or whatever a function of the user's returns."""
        return callable(self.kernel) or self.kernel == "precomputed"

    def of(self, samples: Index, beta: Vector) -> Enclosed | None:
        """At some samples, which have the coefficients, in double precision; None where nothing is known of it."""
        live = np.flatnonzero(beta)
        with np.errstate(all="ignore"):
            if not live.size:
                found: Ball | None = Ball.exact(np.zeros(samples.size))
            elif self.kernel == "linear":
                found = self._linear(samples, live, beta)
            else:
                found = self._computed(samples, live, beta)
        if found is None or not np.all(np.isfinite(found.radius)):
            return None
        return Enclosed(Pair(found.middle, np.zeros(samples.size)), found.radius)

    def _linear(self, samples: Index, live: Index, beta: Vector) -> Ball | None:
        """``X (X' beta)``, of features that were counted from their means with a rounding each."""
        rows, columns = self.near[samples], self.near[samples[live]]
        try:
            coefficients = transposed(as_map("X", columns), Ball.exact(beta[live]), {})
            found = applied(as_map("X", rows), coefficients, {}).rounded()
        except NotEnclosed:
            return None
        if not self.mean.any():
            return found
        moved = np.abs(rows) @ (np.abs(columns).T @ np.abs(beta[live])) + self.mean.size * TINY
        return Ball(found.middle, (found.radius + 3.0 * UNIT * moved) * SLACK)

    def _computed(self, samples: Index, live: Index, beta: Vector) -> Ball | None:
        """By the kernel as it is computed elsewhere, whose error is bounded."""
        squares = np.zeros(samples.size) if self.is_given else self._squares(samples)
        share, spread = self._shares()
        if not share + 2.0 * spread * float(squares.max(initial=0.0)) <= _SMALL_ERROR:
            return None
        sizes = np.stack([np.abs(beta[live]), np.abs(beta[live]) * squares[live]], axis=1)
        middle, error = np.empty(samples.size), np.empty(samples.size)
        step = max(1, _ENTRIES_AT_ONCE // max(1, live.size))
        summed = gamma(_COLUMNS_AT_ONCE + 2) + gamma(live.size // _COLUMNS_AT_ONCE + 2) * 4.0 * UNIT
        for start in range(0, samples.size, step):
            part = slice(start, start + step)
            kernel = self.block(samples[part], samples[live])
            middle[part] = _sums(kernel, beta[live])
            of_sizes = self._majorant(kernel, squares[part], squares[live], sizes)
            error[part] = (summed + share + spread * squares[part]) * of_sizes[:, 0]
            error[part] += spread * of_sizes[:, 1]
        error += float(sizes.sum() + live.size) * TINY
        return Ball(middle, error * SLACK)

    def _squares(self, samples: Index) -> Vector:
        rows = self.near[samples]
        squares = rows.multiply(rows).sum(axis=1) if sp.issparse(rows) else np.einsum("ij,ij->i", rows, rows)
        return np.asarray(squares, dtype=np.float64).ravel() * SLACK

    def _majorant(self, kernel: Vector, rows: Vector, columns: Vector, sizes: Vector) -> Vector:
        """What the errors of the kernel are shares of, times sizes: itself, or the power of what it adds up.

        Of that the lengths of both rows tell a bound, ``((r + c) / 2)^d <= (r^d + c^d) / 2``.
        """
        if self.kernel not in ("poly", "linear"):
            return np.asarray((kernel if self.kernel == "rbf" else np.abs(kernel)) @ sizes) * SLACK
        scale, shift, degree = self._polynomial
        high, low = ((scale * part + abs(shift)) ** degree for part in (rows, columns))
        return np.asarray(0.5 * (high[:, None] * sizes.sum(axis=0) + low @ sizes)) * SLACK

    @property
    def _polynomial(self) -> tuple[float, float, int]:
        """Scale, shift and degree of a kernel that is a power of a multiple of inner products."""
        return (1.0, 0.0, 1) if self.kernel == "linear" else (self.gamma, self.coef0, int(self.degree))

    def _shares(self) -> tuple[float, float]:
        """The relative error of entries: a number, and a multiple of the squares of the lengths of both rows."""
        if self.is_given:
            return 0.0, 0.0
        features = self.near.shape[1] + 8  # and roundings of features that were counted from their means
        if self.kernel == "rbf":
            return 2.0 * _FUNCTION_DIGITS * UNIT, 2.0 * features * UNIT * self.gamma
        return (2.0 * self._polynomial[2] * features + _FUNCTION_DIGITS) * UNIT, 0.0

    @property
    def is_semidefinite(self) -> bool:
        """Whether the kernel is for certain, by what function of the data it is."""
        return self.kernel in ("linear", "rbf") or (self.kernel == "poly" and self.coef0 >= 0.0)

    @cached_property
    def distance(self) -> float:
        """How far from a given matrix a positive semidefinite one is, in the spectral norm; infinite if not known."""
        count = self.X.shape[0]
        if not self.is_given or count > _PROVED_ROWS:
            return math.inf
        matrix = self.block(np.arange(count), np.arange(count))
        with np.errstate(all="ignore"):
            symmetric = 0.5 * matrix + 0.5 * matrix.T
            norm = float(np.abs(symmetric).sum(axis=1).max()) * SLACK
            moved = float(np.abs(0.5 * matrix - 0.5 * matrix.T).sum(axis=1).max()) * SLACK + 2.0 * UNIT * norm
            # What a factorisation leaves in doubt [Rump06], and a matrix that rounding made indefinite lacks.
            for shift in (0.0, 3.0 * gamma(count + 8) * (float(np.trace(symmetric)) + norm)):
                shifted = symmetric + shift * np.eye(count)
                if smallest_eigenvalue_bound(shifted) > 2.0 * UNIT * (norm + shift):
                    return (moved + shift) * SLACK
        return 0.0 if norm == 0.0 else math.inf

    # -- Pairs of numbers ---------------------------------------------------------------------------------------------

    def precisely(self, samples: Index, rows: Index, beta: Vector) -> Enclosed | None:
        """The same at some of the samples, of twice the digits; None where data are too large."""
        live = np.flatnonzero(beta)
        if self.kernel == "linear" and live.size:
            return self._linear_precisely(samples[rows], samples[live], beta[live])
        slices = None if self.is_given else self._sliced
        if slices is None and not self.is_given:
            return None
        coefficients, sizes = beta[live], np.abs(beta[live])
        value, radius = Pair(np.zeros(rows.size), np.zeros(rows.size)), np.zeros(rows.size)
        lost = 64.0 * TINY * float(sizes.sum() + live.size)
        step = max(1, _PAIRS_AT_ONCE // max(1, live.size))
        for start in range(0, rows.size if live.size else 0, step):
            tick(_PAIR_OPERATIONS * step * live.size)
            part = slice(start, start + step)
            with np.errstate(all="ignore"):
                kernel, error = self._entries(slices, samples[rows[part]], samples[live])
                product, rest = two_product(kernel.high, coefficients)
                value.high[part], value.low[part] = Pair(product, rest + kernel.low * coefficients).summed()
                radius[part] = error @ sizes + _summed(live.size) * (np.abs(kernel.high) @ sizes) + lost
        radius *= SLACK
        return Enclosed(value, radius) if np.all(np.isfinite(value.high)) and np.all(np.isfinite(radius)) else None

    def _linear_precisely(self, rows: Index, columns: Index, beta: Vector) -> Enclosed | None:
        """``X (X' beta)`` in pairs."""
        width = self.mean.size
        step, share = max(1, _PAIRS_AT_ONCE // max(1, width)), 2.0 * PAIR_SHARE
        parts, sizes = [], np.zeros(width)
        value, radius = Pair(np.zeros(rows.size), np.zeros(rows.size)), np.zeros(rows.size)
        with np.errstate(all="ignore"):
            for start in range(0, columns.size, step):
                tick()
                near, own = self._counted(columns[start : start + step]), beta[start : start + step, None]
                products = near.times(Pair(own, 0.0))
                parts.append(Pair(products.high.T, products.low.T).summed())
                sizes += np.abs(own[:, 0]) @ np.abs(near.high)
            w = Pair(*(np.stack(part, axis=1) for part in zip(*parts, strict=True))).summed()
            off = (share + _summed(step) + _summed(len(parts))) * sizes + 8.0 * columns.size * TINY
            for start in range(0, rows.size, step):
                tick()
                part = slice(start, start + step)
                near = self._counted(rows[part])
                value.high[part], value.low[part] = near.times(w).summed()
                each = (off + (share + _summed(width)) * np.abs(w.high)) * SLACK
                radius[part] = (np.abs(near.high) @ each + 8.0 * width * TINY) * SLACK
        return Enclosed(value, radius) if np.all(np.isfinite(value.high)) and np.all(np.isfinite(radius)) else None

    def _counted(self, index: Index) -> Pair:
        """Samples less the means, without rounding."""
        rows = self.X[index]
        dense = rows.toarray() if sp.issparse(rows) else rows
        return Pair(*two_sum(np.asarray(dense, dtype=np.float64), -self.mean))

    @cached_property
    def _sliced(self) -> Slices | None:
        """The samples, less their means without rounding and in a unit near their size, in slices."""
        if math.prod(self.X.shape) > _SLICED_ENTRIES:
            return None
        with np.errstate(all="ignore"):
            near = self._counted(np.arange(self.X.shape[0]))
            return sliced(Pair(*(np.ldexp(part, -self._exponent) for part in near)))

    @cached_property
    def _exponent(self) -> int:
        """Of the unit in which data are cut into slices, a power of two, of which products stay far from overflow."""
        return math.frexp(float(abs(self.X).max(initial=0.0) if not sp.issparse(self.X) else abs(self.X).max()))[1]

    def _entries(self, slices: Slices | None, rows: Index, columns: Index) -> tuple[Pair, Vector]:
        """The kernel between samples, and by how much it is off at most."""
        if slices is None:
            kernel = np.asarray(self.block(rows, columns), dtype=np.float64)
            return Pair(kernel, np.zeros_like(kernel)), np.zeros_like(kernel)
        products = gram([part[rows] for part in slices.parts], [part[columns] for part in slices.parts])
        tops, others = slices.tops[rows][:, None], slices.tops[columns]
        own, theirs = (Pair(*(part[index] for part in self._norms)) for index in (rows, columns))
        own = Pair(own.high[:, None], own.low[:, None])
        if self.kernel != "rbf":
            off = slices.share * tops * others
            return self._power(products, off, np.sqrt(own.high * theirs.high) * SLACK + off)
        distances = own.plus(theirs).plus(Pair(-2.0 * products.high, -2.0 * products.low))
        off = 2.0 * self._scale * slices.share * np.square(tops + others)
        if self._scale == _LARGEST_SCALE:  # all but zero for certain, and for the number that stands for gamma
            off = np.maximum(off, 1.0)
        if np.any(off > EXPONENTIAL_SHARE):
            off[self._alike[rows][:, None] == self._alike[columns]] = 0.0
        return self._radial(distances, off)

    @cached_property
    def _norms(self) -> Pair:
        return squared_lengths(self._sliced.parts) if self._sliced else Pair.of(np.zeros(0))

    @cached_property
    def _scale(self) -> float:
        """gamma, in the unit of the slices; not so large that products overflow."""
        return min(float(np.ldexp(self.gamma, 2 * self._exponent)), _LARGEST_SCALE)

    @cached_property
    def _alike(self) -> Index:
        """A number for each sample, the same for samples that are the same, of which distances are zero exactly."""
        near = self._counted(np.arange(self.X.shape[0]))
        return np.asarray(np.unique(np.hstack(near), axis=0, return_inverse=True)[1]).ravel()

    def _radial(self, distances: Pair, off: Vector) -> tuple[Pair, Vector]:
        """``exp(-gamma D)`` of squared distances, where gamma D is off by so much before it is rounded."""
        positive = distances.high > 0.0
        exponents = Pair(np.where(positive, -distances.high, 0.0), np.where(positive, -distances.low, 0.0))
        exponents = exponents.times(Pair(self._scale, 0.0))
        off = (off - PAIR_SHARE * exponents.high) * SLACK
        kernel = exponential(exponents)
        share = 1.02 * np.minimum(off, _SMALL_ERROR) + EXPONENTIAL_SHARE
        most = np.exp(np.minimum(exponents.high + off, 0.0))  # which both are not above, but for a last digit
        return kernel, np.where(off <= _SMALL_ERROR, share * kernel.high, SLACK * most) + 2.0 * TINY

    def _power(self, products: Pair, off: Vector, lengths: Vector) -> tuple[Pair, Vector]:
        """``(gamma x'y + c)^d`` of inner products that are off by so much, which are below lengths."""
        scale, shift, degree = self._polynomial
        scale = math.ldexp(scale, 2 * self._exponent)
        base = products.times(Pair(scale, 0.0)).plus(Pair(shift, 0.0))
        size = (scale * lengths + abs(shift)) * SLACK
        share = np.where(size > 0.0, (scale * off + 4.0 * PAIR_SHARE * size) / size, 0.0)
        power, times = None, degree
        while times:  # by squares
            if times % 2:
                power = base if power is None else power.times(base)
            times //= 2
            base = base.times(base) if times else base
        if power is None:
            power = Pair(np.ones_like(off), np.zeros_like(off))
        share = 2.0 * degree * (share + 2.0 * PAIR_SHARE)
        return power, np.where(share <= _SMALL_ERROR, share, 4.0) * size**degree  # which none of both is above


def _summed(count: int) -> float:
    """The share of the sizes of so many pairs by which their sum may be off."""
    return (math.log2(count + 1) + 4.0) ** 2 * PAIR_SHARE


def _sums(kernel: Vector, beta: Vector) -> Vector:
    """``K beta``, a few products at a time by BLAS, whose sums are added up with what that rounds."""
    high, low = np.zeros(kernel.shape[0]), np.zeros(kernel.shape[0])
    for start in range(0, beta.size, _COLUMNS_AT_ONCE):
        part = slice(start, start + _COLUMNS_AT_ONCE)
        high, error = two_sum(high, kernel[:, part] @ beta[part])
        low += error
    return np.asarray(high + low)
