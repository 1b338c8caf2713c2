r"""A quadratic with L1 norms of the variables and of rows of them: interior points for many strengths at once.

    min 1/2 |r|^2 + l |x|_1 + h |Dx|_1,    1/2 |r|^2 = c + g'x + 1/2 x'Mx,                                          (1)

has multipliers v in [-s, s], s = (l, h), of the positions Ax = p - q, A = (I, D), with

    Mx + g + A'v = 0,    (s - v) p = (s + v) q = mu -> 0.                                                           (2)

Newton's equations have one small matrix for each pair of strengths, M + A'WA, and one call solves them all. What a
point leaves of the first equation, the multipliers of x take: for these w, shrunk by t until they are allowed,

    s |Ax| - t w'Ax + 1/2 (1 - t)^2 |r|^2                                                                           (3)

is how far the point is from the optimum at most. Where l = 0 and M is regular, 1/2 e'M^{-1}e takes what is left, e.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.lasso._sides import is_singular

__all__ = ["interior_along"]

Vector = NDArray[np.float64]
Array = NDArray[np.float64]

_ROUNDS = 60
_BOUNDARY = 0.995  # share of the way to the nearest end
_ROUNDING_RULES = 1e-14  # gap, as a share of the value, below which rounding rules
_STALLS = 3  # rounds after the last in which any gap fell


def interior_along(
    matrix: Array, gradient: Vector, null: float, rows: Array, l1: Vector, strength: Vector, stop: Callable[[], bool]
) -> tuple[Array, Vector]:
    """Minimise (1) for many pairs of strengths.

    Parameters
    ----------
    matrix, gradient, null : array, array, float
        M, which may be singular, g, and c, the value at zero.
    rows : array of shape (m, p)
        D.
    l1, strength : array of shape (k,)
        l and h.
    stop : callable
        Whether to end with what there is.

    Returns
    -------
    x : array of shape (k, p)
    gap : array of shape (k,)
        How far each is from the optimum at most, but for rounding; infinite where that is not known.
    """
    with np.errstate(all="ignore"):  # one that ends at rounding goes on beside the others, and its best is kept
        return _Together(matrix, gradient, null, rows, l1, strength).solve(stop)


class _Together:
    """The problems in units in which M has a unit diagonal, and the value at zero is a half."""

    def __init__(self, matrix: Array, gradient: Vector, null: float, rows: Array, l1: Vector, strength: Vector) -> None:
        p, count = gradient.size, l1.size
        self.scale, self.size = 1.0 / np.sqrt(np.where(matrix.diagonal() > 0.0, matrix.diagonal(), 1.0)), 2.0 * null
        root = np.sqrt(self.size)
        self.units = root * self.scale
        self.matrix, self.gradient = matrix * self.scale * self.scale[:, None], gradient * self.scale / root
        self.rows = np.vstack([np.eye(p), rows]) * self.scale
        self.high = np.repeat(np.column_stack([l1, strength]) / root, [p, len(rows)], axis=1)
        self.kinked = self.high > 0.0
        products = np.einsum("mi,mj->mij", self.rows, self.rows).reshape(len(self.rows), -1)
        self.products = sp.csr_array(products)  # of a row of A with itself
        self.z, self.v = np.zeros((count, p)), np.zeros_like(self.high)
        self.p = np.broadcast_to(np.abs(self.rows).sum(axis=1), self.high.shape).copy()
        self.q = self.p.copy()

    def solve(self, stop: Callable[[], bool]) -> tuple[Array, Vector]:
        best, gaps, idle = self.z, np.full(len(self.z), np.inf), 0
        for _ in range(_ROUNDS):
            value, gap = self._bracket()
            better = gap < gaps
            best, gaps = np.where(better[:, None], self.z, best), np.where(better, gap, gaps)
            idle = 0 if better.any() else idle + 1
            going = ~(gaps <= _ROUNDING_RULES * value)
            if not going.any() or idle > _STALLS or stop() or not self._step(going):
                break
        return best * self.units, gaps * self.size

    def _bracket(self) -> tuple[Vector, Vector]:
        """The values, and (3)."""
        self.positions, image = self.z @ self.rows.T, self.z @ self.matrix
        self.left = image + self.gradient + self.v @ self.rows
        squares = np.maximum(1.0 + 2.0 * (self.z @ self.gradient) + np.sum(self.z * image, axis=1), 0.0)
        absorbed = self.v.copy()
        absorbed[:, : self.scale.size] -= self.left / self.scale
        over = np.max(np.where(self.kinked, np.abs(absorbed) / self.high, 0.0), axis=1)
        shrunk = np.minimum(1.0, 1.0 / over)
        penalty = np.sum(self.high * np.abs(self.positions), axis=1)
        gap = penalty - shrunk * np.sum(absorbed * self.positions, axis=1) + 0.5 * (1.0 - shrunk) ** 2 * squares
        free = ~self.kinked[:, 0]  # no norm of x that could take anything
        if free.any():
            gap[free] = penalty[free] - np.sum(self.v * self.positions, axis=1)[free] + self._unabsorbed(free)
        return 0.5 * squares + penalty, np.where(np.isnan(gap), np.inf, gap)

    def _unabsorbed(self, which: NDArray[np.bool_]) -> Vector | float:
        if self._factor is None:
            return np.inf
        part = scipy.linalg.solve_triangular(self._factor, self.left[which].T, trans=1, check_finite=False)
        return np.asarray(0.5 * np.sum(part**2, axis=0))

    @cached_property
    def _factor(self) -> Array | None:
        factor, info = scipy.linalg.lapack.dpotrf(self.matrix, lower=False)
        return None if info or is_singular(factor, self.matrix.diagonal()) else factor

    def _step(self, going: NDArray[np.bool_]) -> bool:
        """One step of Mehrotra's for the problems that go on; whether there was one."""
        above, below = self.high - self.v, self.high + self.v
        weight = np.where(self.kinked, 1.0 / (self.p / above + self.q / below), 0.0)
        system = self.matrix + (weight @ self.products).reshape(len(self.z), *self.matrix.shape)
        aim_p, aim_q = np.zeros_like(above), np.zeros_like(below)  # what the products of (2) are steered to
        for corrected in (False, True):
            by_p, by_q = aim_p / above - self.p, aim_q / below - self.q
            shift = np.where(self.kinked, self.positions - self.p + self.q - by_p + by_q, 0.0)
            try:
                dz = np.linalg.solve(system, -(self.left + (weight * shift) @ self.rows)[:, :, None])[:, :, 0]
            except np.linalg.LinAlgError:
                return False
            dv = weight * (dz @ self.rows.T + shift)
            dp, dq = by_p + self.p / above * dv, by_q - self.q / below * dv
            ends = ((above, -dv), (below, dv), (self.p, dp), (self.q, dq))
            longest = np.min([np.where(self.kinked & (d < 0.0), -x / d, np.inf).min(axis=1) for x, d in ends], axis=0)
            if not corrected:
                a = np.minimum(1.0, longest)[:, None]
                now = np.where(self.kinked, above * self.p + below * self.q, 0.0).sum(axis=1)
                then = (above - a * dv) * (self.p + a * dp) + (below + a * dv) * (self.q + a * dq)
                share = np.clip(np.where(self.kinked, then, 0.0).sum(axis=1) / now, 0.0, 1.0)
                centre = (share**3 * now / (2 * self.kinked.sum(axis=1)))[:, None]
                aim_p, aim_q = centre + dv * dp, centre - dv * dq
        length = np.where(going, np.minimum(1.0, _BOUNDARY * longest), 0.0)[:, None]
        self.z, self.v, self.p, self.q = (
            np.where(np.isfinite(x + length * d), x + length * d, x)
            for x, d in ((self.z, dz), (self.v, dv), (self.p, dp), (self.q, dq))
        )
        return True
