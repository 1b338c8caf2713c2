r"""Terms split into elementary functions, and the part of a primal-dual iterate that belongs to each.

Between its knots a convex term of degree two has slopes that rise by jumps (kinks) and at a rate (quadratic pieces).
Both are one kind of function of the distance y from a knot,

    phi(y) = max { u y - r u^2 / 2 :  0 <= u <= h },

with r = 0 for a kink of height h, and r = 1 / curvature for a quadratic piece along which the slope rises by h,
infinite for an outermost one. A term is a line plus a sum of these; the multipliers u are what the slope of the line
lacks of the slope of the term. Optimal is ``y - r u = p - q`` with ``p (h - u) = q u = 0``; an interior point has both
products near mu. All of this is elementwise, and runs through chunks of the arrays that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._composite import Rows

__all__ = ["Piece", "line_slope", "split"]

Vector = NDArray[np.float64]

_CHUNK = 1 << 14  # entries of each array that are worked on at a time: a dozen such chunks fit a cache


def line_slope(r: Rows) -> Any:
    """The slope of the line in the split of a term: that on the left of its first knot."""
    return r.term.subdifferential(np.asarray(r.term.knots[0], dtype=np.float64))[0]


def split(r: Rows) -> list[Piece]:
    """The elementary functions of the rows of a block; rows of weight zero have none."""
    knots, ends = r.term.knots, (*r.term.knots[1:], None)
    curvatures = [2.0 * np.asarray(piece[2]) if len(piece) > 2 else np.zeros(()) for piece in r.term.pieces]
    found = [] if not curvatures[0].any() else [_piece(-1.0, knots[0], None, r.weights * curvatures[0])]
    for knot, end, jump, curvature in zip(knots, ends, r.term.jumps, curvatures[1:], strict=True):
        if len(jump) > 1 and np.any(jump[1]):
            found.append(_piece(1.0, knot, r.weights * jump[1], None))
        if curvature.any():
            bend = r.weights * curvature
            found.append(_piece(1.0, knot, None if end is None else bend * (end - knot), bend))
    return [piece for piece in found if piece.u.size]


def _piece(sign: float, knot: Any, high: Vector | None, bend: Vector | None) -> Piece:
    size = next(v for v in (high, bend) if v is not None)
    index = None if np.all(size > 0) else np.flatnonzero(size > 0)
    part = slice(None) if index is None else index
    return Piece(
        sign,
        knot if np.ndim(knot) == 0 else knot[part],
        None if high is None else high[part],
        None if bend is None else 1.0 / bend[part],
        index,
    )


class Piece:
    """One elementary function on rows of a block: its multipliers and slacks, and the step they are about to make.

    Parameters
    ----------
    sign : float
        The distance y is ``sign * (z - knot)``: -1 where the piece lies on the left of its knot.
    knot : float or array
        Where it begins.
    high : array or None
        The h of each row; None where it is infinite.
    resistance : array or None
        The r of each row; None for a kink.
    index : array or None
        The rows of the block where the piece occurs; None for all.
    """

    def __init__(self, sign: float, knot: Any, high: Vector | None, resistance: Any, index: Any) -> None:
        self.sign, self.knot, self.high, self.resistance, self.index = sign, knot, high, resistance, index
        size = np.size(high if high is not None else resistance)
        self.products = size if high is None else 2 * size  # that tend to zero
        self.u = np.zeros(size) if high is None else 0.5 * high
        self.q, self.du, self.dq, self.stiffness, self.pull = (np.empty(size) for _ in range(5))
        # Where nothing bounds u from above, p = 0.
        self.p, self.dp, self.s = (np.empty(0 if high is None else size) for _ in range(3))

    def distance(self, z: Vector) -> Vector:
        """The y of the piece's rows, from the z of the block's."""
        return np.asarray(self.sign * (self._local(z) - self.knot))

    def _local(self, rows: Vector) -> Vector:
        return rows if self.index is None else rows[self.index]

    def add_to(self, rows: Vector, values: Vector, power: int = 1) -> None:
        """Add values of the piece's rows, times ``sign ** power``, to the block's."""
        part = slice(None) if self.index is None else self.index
        if self.sign**power > 0:
            rows[part] += values
        else:
            rows[part] -= values

    def _chunks(self) -> Iterator[slice]:
        return (slice(k, k + _CHUNK) for k in range(0, self.u.size, _CHUNK))

    def _resistance(self, part: slice) -> Any:
        return 0.0 if self.resistance is None else self.resistance[part]

    # -- Where the iterate begins -------------------------------------------------------------------------------------

    def soften(self, z: Vector, width: float) -> None:
        """As if the function were a parabola of the given width: its stiffness, and the pull at z."""
        if self.high is None:
            np.reciprocal(self.resistance, out=self.stiffness)
        else:
            np.divide(self.high, 2.0 * width, out=self.stiffness)
        np.multiply(-self.stiffness, self.distance(z), out=self.pull)

    def begin(self, z: Vector, width: float, *, guess: bool) -> float:
        """Slacks for rows at z with ``y - r u = p - q``, and multipliers by that parabola if `guess` is set.

        Returns the sum of the products.
        """
        y, self.width = self.distance(z), width
        if self.high is None:
            self.u[:] = (np.maximum(y, 0.0) + width) / self.resistance
            self.q[:] = np.maximum(-y, 0.0) + width
            return float(self.q @ self.u)
        if guess:
            self.u += np.clip(y / (2.0 * width), -0.4, 0.4) * self.high
        np.subtract(self.high, self.u, out=self.s)
        excess = y - self._resistance(slice(None)) * self.u
        self.p[:] = np.maximum(excess, 0.0) + width
        self.q[:] = np.maximum(-excess, 0.0) + width
        return float(self.q @ self.u + self.p @ self.s)

    # -- One step: predict, correct, measure, move --------------------------------------------------------------------

    def linearise(self) -> None:
        """``du = stiffness * dy - pull`` for a step that aims at products of zero."""
        for k in self._chunks():
            slack, pull = self.q[k] / self.u[k], self.q[k].copy()
            if self.resistance is not None:
                slack += self.resistance[k]
            if self.high is not None:
                slack += self.p[k] / self.s[k]
                pull -= self.p[k]
            np.reciprocal(slack, out=self.stiffness[k])
            np.multiply(self.stiffness[k], pull, out=self.pull[k])

    def predict(self, dz: Vector) -> tuple[float, float]:
        """The step towards products of zero: 1 / the longest that keeps all positive, and the sum of du (dy - r du).

        The relative changes of the slacks follow from those of the multipliers: ``dp / p = du / s - 1`` and
        ``dq / q = -du / u - 1``.
        """
        reach, bend = 1.0, 0.0
        dz = self._local(dz)
        for k in self._chunks():
            dy = self.sign * dz[k]
            du = self.stiffness[k] * dy
            du -= self.pull[k]
            self.du[k] = du
            bend += float(du @ (dy - self._resistance(k) * du))
            change = du / self.u[k]
            reach = max(reach, -float(change.min()), 1.0 + float(change.max()))
            if self.high is not None:
                np.divide(du, self.s[k], out=change)
                reach = max(reach, float(change.max()), 1.0 - float(change.min()))
        return reach, bend

    def correct(self, mu: float) -> None:
        """Aim at products of mu, and account for the products of changes that the prediction leaves out."""
        for k in self._chunks():
            u, q, du = self.u[k], self.q[k], self.du[k]
            change = du / u
            aim = change + 1.0
            aim *= change
            aim -= 1.0
            aim *= q
            aim += mu / u
            self.dq[k] = aim
            pull = -aim
            if self.high is not None:
                s, p = self.s[k], self.p[k]
                np.divide(du, s, out=change)
                aim = change - 1.0
                aim *= change
                aim -= 1.0
                aim *= p
                aim += mu / s
                self.dp[k] = aim
                pull += aim
            np.multiply(self.stiffness[k], pull, out=self.pull[k])

    def measure(self, dz: Vector) -> float:
        """The step: 1 / the longest that keeps all positive."""
        reach = 0.0
        dz = self._local(dz)
        for k in self._chunks():
            u, q, du, dq = self.u[k], self.q[k], self.du[k], self.dq[k]
            np.multiply(self.stiffness[k], dz[k], out=du)
            if self.sign < 0:
                np.negative(du, out=du)
            du -= self.pull[k]
            change = du / u
            reach = max(reach, -float(change.min()))
            change *= q
            dq -= change
            np.divide(dq, q, out=change)
            reach = max(reach, -float(change.min()))
            if self.high is not None:
                p, dp = self.p[k], self.dp[k]
                np.divide(du, self.s[k], out=change)
                reach = max(reach, float(change.max()))
                change *= p
                dp += change
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
        if self.high is None or self.resistance is not None:
            return np.zeros(self.u.size, dtype=bool)
        return np.asarray((self.p < share * self.width) & (self.q < share * self.width))
