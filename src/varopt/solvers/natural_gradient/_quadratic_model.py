"""A linear-quadratic model of a black box, fitted to its evaluations by weighted least squares [Ha19].

With z the coordinates from the best point, in units of the data's deviations,

    q(x) = c + g'z + z'Hz / 2,    H zero, diagonal or full, with 1 + d, 1 + 2 d or 1 + d (d + 3) / 2 unknowns,       (1)
    sum_k w_k (q(x_k) - f_k)^2  least,    w_k falling evenly from 20, at the best rank, to 1, at the worst.          (2)

The richest is taken that has 1.1 times as many data as unknowns. Under a Gaussian its average is known: where the model
is right, the bound is closed, and its minimum is a step of Newton's method. Within so many deviations of the Gaussian
q is least at the x of (4): S a root of the covariance, l and V the eigenvalues and vectors of S'HS, g = grad q(mean).

    <q(x)> = q(mean) + trace(H Sigma) / 2                                                                            (3)
    x = mean - S V (V'S'g / (l + m)),    m >= 0 the least that makes the step short enough                           (4)

How far a model can be trusted is told by the order of n pairs (a_k, b_k) of its values and those of the function:

    tau = sum_{j, k} sign(a_j - a_k) sign(b_j - b_k) / (n (n - 1))                                                   (5)

Of a large model most equations, A, are those of the fit before: they are factored once, and the others, B, are added

    |A y - a|^2 + |B y - b|^2 = |R y - Q'a|^2 + |B y - b|^2 + what no y changes,    A = Q R.                         (6)

Ha19: N. Hansen, *A global surrogate assisted CMA-ES*, GECCO 2019.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import lapack, solve_triangular

from varopt.solvers.natural_gradient._update import Array

__all__ = ["LatestModel", "QuadraticModel", "kendall", "unknowns"]

ENOUGH_DATA = 1.1  # data for each unknown, from which the next richer model is fitted
HEAVIEST = 20.0  # weight of the best point beside that of the worst, (2)
FACTORED = 250  # unknowns from which on a factorisation is kept: below, a fit takes a millisecond
KEPT_FOR = 1 / 16  # new data for each unknown, for which it is kept: a fit in 40 dimensions then takes a fifth
PANEL = 32  # columns that LAPACK adds rows to at once; 16 to 64 take as long


def unknowns(size: int, kind: str) -> int:
    """How many coefficients a model has: "linear", "diagonal" or "full"."""
    # (1)
    return {"linear": 1 + size, "diagonal": 1 + 2 * size, "full": 1 + size * (size + 3) // 2}[kind]


@dataclass(frozen=True)
class QuadraticModel:
    """q(x) = c + g'z + z'Hz / 2 of z = (x - center) / scale, (1)."""

    center: Array
    scale: Array
    constant: float
    gradient: Array
    hessian: Array  # zero where the model is linear
    kind: str

    @classmethod
    def fit(cls, points: Array, values: Array, *, richest: str = "full") -> Self:
        """The richest model that there are enough data for, with weights that fall with the rank.

        Parameters
        ----------
        points, values : array of shape (n, d) and (n,)
            What was evaluated; all values finite.
        richest : str
            "linear", "diagonal" or "full".
        """
        n, d = points.shape
        kind, units = _affordable(n, d, richest), _Units.of(points, values)
        return cls._of(units, _least_squares(_equations(units, points, values, _roots(values), kind)), kind)  # (2)

    @classmethod
    def _of(cls, units: _Units, found: Array, kind: str) -> Self:
        """From the coefficients, in the order of `_equations`."""
        center, scale, lowest = units
        d = center.size
        above = np.triu_indices(d, 1)
        hessian = np.zeros((d, d))
        if kind != "linear":
            np.fill_diagonal(hessian, found[1 + d : 1 + 2 * d])
        if kind == "full":
            hessian[above] = found[1 + 2 * d :]
            hessian.T[above] = found[1 + 2 * d :]
        return cls(center, scale, lowest + float(found[0]), found[1 : 1 + d], hessian, kind)

    def __call__(self, points: Array) -> Array:
        """Its values at points, of shape (n, d)."""
        z = (points - self.center) / self.scale
        return np.asarray(self.constant + z @ self.gradient + 0.5 * np.vecdot(z @ self.hessian, z))  # (1)

    def average(self, mean: Array, covariance: Array) -> float:
        """Its average under N(mean, covariance), in closed form."""
        scaled = self.hessian / np.outer(self.scale, self.scale)
        return float(self(mean[None])[0] + 0.5 * (scaled * covariance).sum())  # (3)

    def minimum(self, mean: Array, root: Array, radius: float) -> Array:
        """Where it is lowest among all ``mean + root z`` with ``|z| <= radius``: a step of a trust region.

        Parameters
        ----------
        mean : array of shape (d,)
            The centre of the region.
        root : array of shape (d, k)
            Its shape: a root of a covariance.
        radius : float
            How many deviations it reaches.
        """
        axes = root / self.scale[:, None]
        gradient = axes.T @ (self.gradient + self.hessian @ ((mean - self.center) / self.scale))
        curvatures, vectors = np.linalg.eigh(axes.T @ self.hessian @ axes)
        along = vectors.T @ gradient
        size = float(np.abs(curvatures).max() + np.linalg.norm(along)) or 1.0
        least = max(0.0, -float(curvatures[0])) + 1e-14 * size
        shift = _shift(along, curvatures, least, radius)
        return np.asarray(mean - root @ (vectors @ (along / (curvatures + shift))))  # (4)

    def minimum_in_box(self, mean: Array, root: Array, radius: float) -> Array:
        """The same in the unit box: coordinates that the step takes beyond a bound stay on it, and the others go on.

        Otherwise steep coordinates that are at a bound already would use up the radius. Where correlations put the
        bounds themselves out of reach, the step ends at the box.
        """
        held, target = np.zeros(mean.size, dtype=bool), mean
        center, free, room = mean, root, radius
        while True:
            found = self.minimum(center, free, room)
            target = np.where(held, target, np.clip(found, 0.0, 1.0))
            beyond = ~held & (target != found)
            held |= beyond
            if not beyond.any() or held.all():
                return target
            # start + basis y: all that take what is held to its bounds, the shortest first.
            count = int(held.sum())
            axes, triangle = np.linalg.qr(root[held].T, mode="complete")
            start = axes[:, :count] @ solve_triangular(triangle[:count], (target - mean)[held], trans=1)
            left = radius**2 - float(start @ start)
            if left <= 0.0:
                return target
            center, free, room = mean + root @ start, root @ axes[:, count:], math.sqrt(left)


def _shift(along: Array, curvatures: Array, least: float, radius: float) -> float:
    """The m of (4), the multiplier of ``|z| <= radius``: the least that makes the step short enough, by bisection."""

    def length(shift: float) -> float:
        return float(np.linalg.norm(along / (curvatures + shift)))

    if length(least) <= radius:
        return least
    low, high = least, least + float(np.linalg.norm(along)) / radius
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if length(middle) > radius else (low, middle)
    return high


def _affordable(n: int, d: int, richest: str) -> str:
    """The richest kind that `n` data are enough for."""
    kinds: tuple[str, ...] = ("linear", "diagonal", "full")
    kinds = kinds[: kinds.index(richest) + 1]
    return next((k for k in reversed(kinds) if n >= ENOUGH_DATA * unknowns(d, k)), "linear")


class _Units(NamedTuple):
    """What data are measured from, and in."""

    center: Array  # the best point
    scale: Array
    lowest: float

    @classmethod
    def of(cls, points: Array, values: Array) -> Self:
        spread = points.std(axis=0)
        return cls(points[values.argmin()], np.where(spread > 0.0, spread, 1.0), float(values.min()))


def _roots(values: Array) -> Array:
    """The roots of the weights of (2)."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.asarray(np.sqrt(np.linspace(HEAVIEST, 1.0, values.size))[ranks])


def _equations(units: _Units, points: Array, values: Array, roots: Array, kind: str) -> Array:
    """The columns of a model at points, and the values as the last, rows times `roots`; stored by columns."""
    n, d = points.shape
    count = unknowns(d, kind)
    columns = np.empty((count + 1, n))
    across = np.ascontiguousarray(((points - units.center) / units.scale).T)
    columns[0] = 1.0
    columns[1 : 1 + d] = across
    if kind != "linear":
        columns[1 + d : 1 + 2 * d] = 0.5 * across * across
    if kind == "full":
        start = 1 + 2 * d
        for i in range(d - 1):  # in the order of `np.triu_indices`
            np.multiply(across[i], across[i + 1 :], out=columns[start : start + d - 1 - i])
            start += d - 1 - i
    columns[count] = values - units.lowest
    columns *= roots
    return columns.T


def _least_squares(matrix: Array) -> Array:
    """The combination of the other columns nearest to the last, or the shortest of all where it is not unique."""
    n, m = matrix.shape[0], matrix.shape[1] - 1
    if n >= m:
        found = _solved(_triangle(matrix))
        if found is not None:
            return found
    return np.asarray(np.linalg.lstsq(matrix[:, :m], matrix[:, m], rcond=None)[0])


def _triangle(matrix: Array) -> Array:
    """R, above the diagonal. Its last column is Q' times the last of the matrix: Q would cost twice as much."""
    return np.asarray(lapack.dgeqrf(matrix, lwork=_workspace(*matrix.shape))[0][: matrix.shape[1]])


def _solved(triangle: Array) -> Array | None:
    """The combination of the other columns nearest to the last; None where it is not unique."""
    m = triangle.shape[1] - 1
    pivots = np.abs(triangle.diagonal()[:m])
    if pivots.min() <= 1e-12 * pivots.max():
        return None
    return np.asarray(solve_triangular(triangle[:m, :m], triangle[:m, m]))


@functools.cache
def _workspace(rows: int, columns: int) -> int:
    """The numbers that LAPACK needs to work in blocks."""
    return int(lapack.dgeqrf_lwork(rows, columns)[0])


class LatestModel:
    """Models of the latest data, again and again, where all but a few equations are those of the model before.

    Those that stay for a while are factored, with the units and weights that they have then; others are added, (6).

    Parameters
    ----------
    richest : str
        "linear", "diagonal" or "full".
    """

    def __init__(self, richest: str) -> None:
        self._richest = richest
        self._kind = ""
        self._factored = range(0)  # which of all data

    def fit(self, points: Array, values: Array, told: int) -> QuadraticModel:
        """The model of the latest `points` and their `values`, where `told` is how many there were in all."""
        n, d = points.shape
        kind = _affordable(n, d, self._richest)
        first, kept_for = told - n, int(KEPT_FOR * unknowns(d, kind))
        if not FACTORED <= unknowns(d, kind) < n - kept_for:
            return QuadraticModel.fit(points, values, richest=self._richest)
        roots = _roots(values)
        if kind != self._kind or told - self._factored.stop > kept_for:
            self._kind, self._factored = kind, range(first + kept_for, told)
            self._units = _Units.of(points, values)
            stay = slice(kept_for, None)
            self._triangle = _triangle(_equations(self._units, points[stay], values[stay], roots[stay], kind))
        others = np.r_[: self._factored.start - first, self._factored.stop - first : n]
        rows = _equations(self._units, points[others], values[others], roots[others], kind)
        found = _solved(lapack.dtpqrt(0, PANEL, self._triangle, rows)[0])  # (6)
        if found is None:
            return QuadraticModel.fit(points, values, richest=self._richest)
        return QuadraticModel._of(self._units, found, kind)


def kendall(one: Array, other: Array) -> float:
    """Kendall's rank correlation: the share of pairs in the same order, less that of pairs in the opposite order."""
    if one.size < 2:
        return math.nan
    agree = np.sign(one[:, None] - one) * np.sign(other[:, None] - other)
    return float(agree.sum() / (one.size * (one.size - 1)))  # (5)
