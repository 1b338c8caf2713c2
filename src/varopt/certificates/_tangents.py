r"""Affine minorants of convex terms, summed over rows with a bound of all rounding.

At a position z a convex term lies above the line of a subgradient there: ``c rho(y) >= v y - (c rho)^*(v)`` for every y
and every v in its domain. So rows that are replaced by such lines make a problem whose optimum is below that of the
whole, wherever z was; what is proved of the small problem is proved of the large one. Of a piecewise linear term the
line is the piece on which z lies, and nothing is lost as long as the row stays on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._verified import SLACK, TINY, UNIT, Ball, gamma
from varopt.certificates.enclosures import Norms, applied, conjugate_above, dual_interval, enclosed_terms, transposed
from varopt.composite import Rows
from varopt.terms import PiecewisePolynomial

__all__ = ["EnclosedSum", "Lines", "lines", "piece_table", "positions", "values"]

Vector = NDArray[np.float64]

_LONG_UNIT = float(np.finfo(np.longdouble).eps) / 2.0
_SUMMED = 256  # numbers that are added up at once; such sums are then added up in extended precision


@dataclass(frozen=True)
class EnclosedSum:
    """A sum of numbers, or of vectors, in extended precision, and what bounds its error; sums add up."""

    value: Any
    size: Any  # of absolute values
    error: Any
    count: int = 1

    def __add__(self, other: EnclosedSum) -> EnclosedSum:
        return EnclosedSum(
            self.value + other.value, self.size + other.size, self.error + other.error, self.count + other.count
        )

    def times(self, share: float) -> EnclosedSum:
        """A share of it, between zero and one."""
        return EnclosedSum(self.value * share, self.size * share * SLACK, self.error * share * SLACK, self.count + 1)

    def ball(self) -> Ball:
        """The sum in double precision."""
        middle = np.asarray(self.value, dtype=np.float64)
        radius = self.error + gamma(self.count, _LONG_UNIT) * self.size + 2.0 * UNIT * np.abs(middle)
        return Ball(middle, np.asarray(radius, dtype=np.float64) * SLACK)

    @classmethod
    def zeros(cls, *shape: int) -> EnclosedSum:
        """Of nothing."""
        return cls(np.zeros(shape, dtype=np.longdouble), np.zeros(shape), np.zeros(shape), 0)

    @classmethod
    def of(cls, ball: Ball) -> EnclosedSum:
        """Of what is known up to a radius."""
        return cls(np.asarray(ball.middle, dtype=np.longdouble), np.abs(ball.middle), np.asarray(ball.radius))

    @classmethod
    def over(cls, values: Vector, spread: float = 0.0, rounding: float = 0.0) -> EnclosedSum:
        """Of the entries of a vector, known up to `spread` in all and a share `rounding` of each."""
        whole = values.size // _SUMMED * _SUMMED
        parts = np.append(values[:whole].reshape(-1, _SUMMED).sum(axis=1), values[whole:].sum()).astype(np.longdouble)
        size = float(np.abs(values).sum()) * SLACK
        share = gamma(_SUMMED) + gamma(parts.size, _LONG_UNIT) + rounding
        return cls(parts.sum(), size, (share * size + spread + values.size * TINY) * SLACK)


@dataclass(frozen=True)
class Lines:
    """The minorants of some rows, added up: ``gradient'x + constant``."""

    gradient: EnclosedSum
    offsets: EnclosedSum  # duals times the offsets of the rows
    conjugates: EnclosedSum  # what conjugates take away, below zero where they are above
    there: EnclosedSum = field(default_factory=EnclosedSum.zeros)  # duals times positions, where these are enclosed

    @property
    def constant(self) -> EnclosedSum:
        """At x of zero."""
        return self.offsets + self.conjugates

    def __add__(self, other: Lines) -> Lines:
        return Lines(
            self.gradient + other.gradient,
            self.offsets + other.offsets,
            self.conjugates + other.conjugates,
            self.there + other.there,
        )

    def times(self, share: float) -> Lines:
        """A share of them, between zero and one: minorants too, of terms that are not negative."""
        parts = (self.gradient, self.offsets, self.conjugates, self.there)
        return Lines(*(part.times(share) for part in parts))


def positions(rows: Rows, x: Vector, norms: Norms) -> Ball:
    """``A x + d``, enclosed."""
    return applied(rows.linear, Ball.exact(x), norms).plus(Ball.exact(rows.offset)).rounded()


def values(rows: Rows, z: Ball) -> EnclosedSum:
    """The weighted sum of the terms at enclosed positions."""
    term, weights = rows.term, rows.weights
    if term.degree > 1 or term.rows is not None:
        value, error = enclosed_terms(term, np.asarray(weights, dtype=np.float64), z)
        return EnclosedSum(np.longdouble(value), abs(value), error)
    entries = np.asarray(term.value(z.middle)) * weights
    size = _size(term)  # of what is added up in a value: below size[0] + size[1] |z|
    weights = _not_flat(term, z, weights)
    rounding = 16.0 * UNIT * (size[0] * float(weights.sum()) + size[1] * float(weights @ np.abs(z.middle)))
    spread = size[1] * float(weights @ z.radius) + 2.0 * rounding
    return EnclosedSum.over(entries, spread * (1.0 + gamma(weights.size)), UNIT)


def _not_flat(term: PiecewisePolynomial, z: Ball, weights: Vector) -> Vector:
    """Weights, zero for rows on a flat piece for certain: of these there is nothing to round."""
    steep = np.array([len(piece) > 1 and piece[1] != 0.0 for piece in term.pieces])
    if steep.all():
        return weights
    piece = np.zeros(z.middle.shape, dtype=np.min_scalar_type(len(term.knots)))
    close = np.zeros(z.middle.shape, dtype=bool)
    for knot in term.knots:
        piece += z.middle >= knot
        close |= np.abs(z.middle - knot) <= z.radius * (1.0 + 2.0**-20)
    return np.where(steep[piece] | close, weights, 0.0)


def _size(term: PiecewisePolynomial) -> tuple[float, float]:
    """Bounds of the coefficients of lines, written around zero."""
    steepest = max((abs(float(piece[1])) for piece in term.pieces if len(piece) > 1), default=0.0)
    farthest = max(abs(float(c)) for c in term.centres)
    return max(abs(float(piece[0])) for piece in term.pieces) + steepest * farthest, steepest


def lines(rows: Rows, z: Vector, weights: Vector, norms: Norms, radius: Vector | None = None) -> Lines:
    """The minorants at positions z, added up; rows without a weight are left out.

    With the `radius` of the positions, duals times positions are added up as well: lines as they are at the point,
    where targets far from zero have cancelled.
    """
    term = rows.term
    if term.degree > 1 or term.rows is not None:
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            duals = np.clip(weights * term.derivative(z), *dual_interval(term, weights))
            conjugates = np.where(weights > 0.0, conjugate_above(term, weights, duals), 0.0)
        duals, rounding = Ball.exact(np.where(weights > 0.0, duals, 0.0)), 0.0
    else:
        duals, conjugates = _pieces(term, z, weights)
        rounding = UNIT
    gradient = transposed(rows.linear, duals, norms)
    spread = float(duals.radius @ np.abs(rows.offset)) * (1.0 + gamma(weights.size))
    offsets = EnclosedSum.over(duals.middle * rows.offset, spread, UNIT)
    below = EnclosedSum.over(-conjugates, 0.0, rounding) if np.any(conjugates) else EnclosedSum.zeros()
    if radius is None:
        return Lines(EnclosedSum.of(gradient), offsets, below)
    spread = float(duals.radius @ np.abs(z) + (np.abs(duals.middle) + duals.radius) @ radius) * (
        1.0 + gamma(weights.size)
    )
    there = EnclosedSum.over(duals.middle * z, spread * SLACK, UNIT)
    return Lines(EnclosedSum.of(gradient), offsets, below, there)


def piece_table(term: PiecewisePolynomial) -> tuple[Vector, Vector]:
    """The slopes of the pieces of a piecewise linear term, and what its conjugate is not above there."""
    table = np.array([float(piece[1]) if len(piece) > 1 else 0.0 for piece in term.pieces])
    return table, conjugate_above(term, 1.0, table)


def _pieces(term: PiecewisePolynomial, z: Vector, weights: Vector) -> tuple[Ball, Vector]:
    """Weighted duals of the pieces of a piecewise linear term, and conjugates there, from a table of its pieces."""
    table, below = piece_table(term)
    piece = np.zeros(z.shape, dtype=np.min_scalar_type(len(term.knots)))
    for knot in term.knots:
        piece += z >= knot
    middle = weights * table[piece]
    exact = bool(np.all((weights == 1.0) | (weights == 0.0))) or bool(np.all(np.abs(table) == 1.0))
    radius = np.zeros(z.size) if exact else UNIT * np.abs(middle) + TINY
    return Ball(middle, radius), weights * below[piece] if np.any(below) else np.zeros(1)
