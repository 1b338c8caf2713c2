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

Ha19: N. Hansen, *A global surrogate assisted CMA-ES*, GECCO 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular

from varopt.solvers.natural_gradient._update import Array

__all__ = ["QuadraticModel", "kendall", "unknowns"]

ENOUGH_DATA = 1.1  # data for each unknown, from which the next richer model is fitted
HEAVIEST = 20.0  # weight of the best point beside that of the worst, (2)


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
        kinds: tuple[str, ...] = ("linear", "diagonal", "full")
        kinds = kinds[: kinds.index(richest) + 1]
        kind = next((k for k in reversed(kinds) if n >= ENOUGH_DATA * unknowns(d, k)), "linear")
        ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
        roots = np.sqrt(np.linspace(HEAVIEST, 1.0, n))[ranks]  # of the weights of (2)
        center = points[ranks.argmin()]
        spread = points.std(axis=0)
        scale = np.where(spread > 0.0, spread, 1.0)
        z = (points - center) / scale
        above = np.triu_indices(d, 1)
        columns = [np.ones((n, 1)), z]
        if kind != "linear":
            columns.append(0.5 * z * z)
        if kind == "full":
            columns.extend(z[:, i, None] * z[:, i + 1 :] for i in range(d - 1))  # in the order of `above`
        lowest = float(values.min())
        columns.append((values - lowest)[:, None])
        found = _least_squares(np.hstack(columns) * roots[:, None])  # (2)
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


def _least_squares(matrix: Array) -> Array:
    """The combination of the other columns nearest to the last, or the shortest of all where it is not unique."""
    n, m = matrix.shape[0], matrix.shape[1] - 1
    if n >= m:
        # The last column of R is Q' times the last of the matrix: Q itself would cost twice as much.
        triangle = np.asarray(np.linalg.qr(matrix, mode="r"))
        pivots = np.abs(triangle.diagonal()[:m])
        if pivots.min() > 1e-12 * pivots.max():
            return np.asarray(solve_triangular(triangle[:m, :m], triangle[:m, m]))
    return np.asarray(np.linalg.lstsq(matrix[:, :m], matrix[:, m], rcond=None)[0])


def kendall(one: Array, other: Array) -> float:
    """Kendall's rank correlation: the share of pairs in the same order, less that of pairs in the opposite order."""
    if one.size < 2:
        return math.nan
    agree = np.sign(one[:, None] - one) * np.sign(other[:, None] - other)
    return float(agree.sum() / (one.size * (one.size - 1)))  # (5)
