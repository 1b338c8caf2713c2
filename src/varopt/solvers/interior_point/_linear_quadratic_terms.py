r"""Terms as sums of linear-quadratic functions, and the part of a primal-dual iterate that belongs to each.

The derivative of a convex term of degree two rises by jumps, at kinks, and at a rate, along quadratic pieces. Both are
one kind of function of the distance y from a knot (a monitoring function of extended linear-quadratic programming),

    phi(y) = max { u y - r u^2 / 2 :  0 <= u <= h },                                                                (1)

with r = 0 for a kink of height h, and r = 1 / curvature for a quadratic piece along which the derivative rises by h,
infinite for an outermost one. A term is a line plus a sum of these; the multipliers u are what the derivative of the
line lacks of that of the term. Optimal is

    y - r u = p - q,    p s = q u = 0,    s = h - u,    p, q, s, u >= 0,                                            (2)

and on the central path both products are mu. Newton's step for (2), at products of zero, is

    dq = -q - (q / u) du,    dp = -p + (p / s) du,                                                                  (3)
    du = D dy - D (q - p),   D = 1 / (r + q / u + p / s).                                                           (4)

Mehrotra's corrector [Mehrotra92] aims at mu, and adds the products of changes du', dq', dp' that (3) leaves out:

    dq = mu / u - q - (du' dq') / u - (q / u) du,    dp = mu / s - p + (du' dp') / s + (p / s) du,                  (5)
    du = D dy - D (dp0 - dq0),                                                                                      (6)

where dq0 and dp0 are those of (5) without their last terms. All of this is elementwise, and runs through chunks of the
arrays that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.composite import Rows

__all__ = ["LinearQuadratic", "leftmost_derivative", "linear_quadratic_terms"]

Vector = NDArray[np.float64]

_CACHED_ROWS = 1 << 14  # that are worked on at a time: a dozen arrays of so many fit a cache


def leftmost_derivative(r: Rows) -> Any:
    """The derivative of the line in the sum that a term is: that on the left of its first knot."""
    return r.term.subdifferential(np.asarray(r.term.knots[0], dtype=np.float64))[0]


def linear_quadratic_terms(r: Rows) -> list[LinearQuadratic]:
    """The functions (1) of the rows of a block; rows of weight zero have none."""
    knots, ends = r.term.knots, (*r.term.knots[1:], None)
    curvatures = [2.0 * np.asarray(piece[2]) if len(piece) > 2 else np.zeros(()) for piece in r.term.pieces]
    found = [] if not curvatures[0].any() else [_term(-1.0, knots[0], None, r.weights * curvatures[0])]
    for knot, end, jump, curvature in zip(knots, ends, r.term.jumps, curvatures[1:], strict=True):
        if len(jump) > 1 and np.any(jump[1]):
            found.append(_term(1.0, knot, r.weights * jump[1], None))
        if curvature.any():
            weighted = r.weights * curvature
            found.append(_term(1.0, knot, None if end is None else weighted * (end - knot), weighted))
    return [term for term in found if term.u.size]


def _term(sign: float, knot: Any, high: Vector | None, curvature: Vector | None) -> LinearQuadratic:
    size = next(v for v in (high, curvature) if v is not None)
    index = None if np.all(size > 0) else np.flatnonzero(size > 0)
    part = slice(None) if index is None else index
    return LinearQuadratic(
        sign,
        knot if np.ndim(knot) == 0 else knot[part],
        None if high is None else high[part],
        None if curvature is None else 1.0 / curvature[part],
        index,
    )


class LinearQuadratic:
    """One function (1) on rows of a block: its multipliers and slacks, and the step they are about to make.

    Parameters
    ----------
    sign : float
        The distance y is ``sign * (z - knot)``: -1 where it acts on the left of its knot.
    knot : float or array
        Where it begins.
    high : array or None
        The h of each row; None where it is infinite.
    inverse_curvature : array or None
        The r of each row; None for a kink.
    index : array or None
        The rows of the block where it occurs; None for all.
    """

    def __init__(self, sign: float, knot: Any, high: Vector | None, inverse_curvature: Any, index: Any) -> None:
        self.sign, self.knot, self.high, self.index = sign, knot, high, index
        self.inverse_curvature = inverse_curvature
        size = np.size(high if high is not None else inverse_curvature)
        self.products = size if high is None else 2 * size  # that tend to zero
        self.u = np.zeros(size) if high is None else 0.5 * high
        self.q, self.du, self.dq, self.curvature, self.rhs = (np.empty(size) for _ in range(5))
        # Where nothing bounds u from above, p = 0.
        self.p, self.dp, self.s = (np.empty(0 if high is None else size) for _ in range(3))

    def distance(self, z: Vector) -> Vector:
        """The y of its rows, from the z of the block's."""
        return np.asarray(self.sign * (self._local(z) - self.knot))

    def _local(self, rows: Vector) -> Vector:
        return rows if self.index is None else rows[self.index]

    def add_to(self, rows: Vector, values: Vector, power: int = 1) -> None:
        """Add values of its rows, times ``sign ** power``, to the block's."""
        part = slice(None) if self.index is None else self.index
        if self.sign**power > 0:
            rows[part] += values
        else:
            rows[part] -= values

    def _chunks(self) -> Iterator[slice]:
        return (slice(k, k + _CACHED_ROWS) for k in range(0, self.u.size, _CACHED_ROWS))

    def _r(self, part: slice) -> Any:
        return 0.0 if self.inverse_curvature is None else self.inverse_curvature[part]

    # -- Where the iterate begins -------------------------------------------------------------------------------------

    def approximate(self, z: Vector, width: float) -> None:
        """As if the function were a parabola of the given width: its curvature, and the right-hand side at z."""
        if self.high is None:
            np.reciprocal(self.inverse_curvature, out=self.curvature)
        else:
            np.divide(self.high, 2.0 * width, out=self.curvature)
        np.multiply(-self.curvature, self.distance(z), out=self.rhs)

    def begin(self, z: Vector, width: float, *, guess: bool) -> float:
        """Slacks for rows at z by (2), and multipliers by that parabola if `guess` is set.

        Returns the sum of the products.
        """
        y, self.width = self.distance(z), width
        if self.high is None:
            self.u[:] = (np.maximum(y, 0.0) + width) / self.inverse_curvature
            self.q[:] = np.maximum(-y, 0.0) + width
            return float(self.q @ self.u)
        if guess:
            self.u += np.clip(y / (2.0 * width), -0.4, 0.4) * self.high
        np.subtract(self.high, self.u, out=self.s)
        excess = y - self._r(slice(None)) * self.u
        self.p[:] = np.maximum(excess, 0.0) + width
        self.q[:] = np.maximum(-excess, 0.0) + width
        return float(self.q @ self.u + self.p @ self.s)

    # -- One step: predict, correct, measure, move --------------------------------------------------------------------

    def linearise(self) -> None:
        """(4): ``du = D dy - rhs`` for a step that aims at products of zero."""
        for k in self._chunks():
            inverse, rhs = self.q[k] / self.u[k], self.q[k].copy()
            if self.inverse_curvature is not None:
                inverse += self.inverse_curvature[k]
            if self.high is not None:
                inverse += self.p[k] / self.s[k]
                rhs -= self.p[k]
            np.reciprocal(inverse, out=self.curvature[k])  # D
            np.multiply(self.curvature[k], rhs, out=self.rhs[k])

    def predict(self, dz: Vector) -> tuple[float, float]:
        """The step towards products of zero: 1 / the longest that keeps all positive, and the sum of du (dp - dq).

        The relative changes of the slacks follow from those of the multipliers by (3): ``dp / p = du / s - 1`` and
        ``dq / q = -du / u - 1``.
        """
        reach, second = 1.0, 0.0
        dz = self._local(dz)
        for k in self._chunks():
            dy = self.sign * dz[k]
            du = self.curvature[k] * dy  # (4)
            du -= self.rhs[k]
            self.du[k] = du
            second += float(du @ (dy - self._r(k) * du))  # dp - dq, by (2)
            change = du / self.u[k]
            reach = max(reach, -float(change.min()), 1.0 + float(change.max()))
            if self.high is not None:
                np.divide(du, self.s[k], out=change)
                reach = max(reach, float(change.max()), 1.0 - float(change.min()))
        return reach, second

    def correct(self, mu: float) -> None:
        """(5) and (6): aim at products of mu, and account for the products of changes that (3) leaves out."""
        for k in self._chunks():
            u, q, du = self.u[k], self.q[k], self.du[k]
            change = du / u
            aim = change + 1.0
            aim *= change
            aim -= 1.0
            aim *= q
            aim += mu / u
            self.dq[k] = aim  # (5): dq0, as -du' dq' / u = q (du' / u) (1 + du' / u)
            rhs = -aim
            if self.high is not None:
                s, p = self.s[k], self.p[k]
                np.divide(du, s, out=change)
                aim = change - 1.0
                aim *= change
                aim -= 1.0
                aim *= p
                aim += mu / s
                self.dp[k] = aim  # (5): dp0, as du' dp' / s = p (du' / s) (du' / s - 1)
                rhs += aim
            np.multiply(self.curvature[k], rhs, out=self.rhs[k])  # (6): D (dp0 - dq0)

    def measure(self, dz: Vector) -> float:
        """The step: 1 / the longest that keeps all positive."""
        reach = 0.0
        dz = self._local(dz)
        for k in self._chunks():
            u, q, du, dq = self.u[k], self.q[k], self.du[k], self.dq[k]
            np.multiply(self.curvature[k], dz[k], out=du)  # (6)
            if self.sign < 0:
                np.negative(du, out=du)
            du -= self.rhs[k]
            change = du / u
            reach = max(reach, -float(change.min()))
            change *= q
            dq -= change  # (5)
            np.divide(dq, q, out=change)
            reach = max(reach, -float(change.min()))
            if self.high is not None:
                p, dp = self.p[k], self.dp[k]
                np.divide(du, self.s[k], out=change)
                reach = max(reach, float(change.max()))
                change *= p
                dp += change  # (5)
                np.divide(dp, p, out=change)
                reach = max(reach, -float(change.min()))
        return reach

    def move(self, length: float) -> float:
        """Take the step; the sum of the products after it."""
        total = 0.0
        for k in self._chunks():
            du = length * self.du[k]
            self.u[k] += du
            self.q[k] += length * self.dq[k]
            total += float(self.q[k] @ self.u[k])
            if self.high is not None:
                self.s[k] -= du
                self.p[k] += length * self.dp[k]
                total += float(self.p[k] @ self.s[k])
        return total

    def rests(self, share: float) -> NDArray[np.bool_]:
        """Rows at a kink: both slacks are below a share of the distance that rows had from it at the start."""
        if self.high is None or self.inverse_curvature is not None:
            return np.zeros(self.u.size, dtype=bool)
        return np.asarray((self.p < share * self.width) & (self.q < share * self.width))
