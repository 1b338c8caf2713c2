r"""Convex problems below one that is not, of all points that are as good as the best one known.

Where the quadratic and the convex rows alone have their minimum at c with a value L, a point with a value of at most U
has ``(x - c)'H(x - c) <= 2 (U - L)``: strong convexity. That encloses every row whose coefficients lie in the range of
H, and an intercept, which does not, is enclosed by what rows cost far out. Between the ends of such an enclosure a term
is replaced by its convex envelope, the lower hull of its corners; the minimum of that is a higher L, the enclosures
shrink, and so on, until L is U or little is gained.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.composite import Composite, Rows
from varopt.terms import PiecewisePolynomial

__all__ = ["Enclosure", "enclosure", "radius"]

Vector = NDArray[np.float64]

_MOST_DECOMPOSED = 200  # variables up to which the Hessian is decomposed
_MEASURED_ENTRIES = 1 << 24  # of rows by variables up to which they are measured
_FLAT_EIGENVALUE = 1e-8  # share of the largest eigenvalue below which a direction counts as one without curvature
_ROUNDED_WIDER = 1.0 + 1e-6  # makes up for rounding in what is enclosed
_OFF_CORNERS = 1e-6  # share of an enclosure by which its ends are kept off the corners
_LOST = 1e-13  # share of what a term may come to that rounding of a hull loses
_FARTHEST_END = 1e15  # units of a row beyond which no end of an enclosure is looked for


@dataclass(frozen=True)
class Enclosure:
    """How far rows reach, by the length of a step in the metric of the Hessian and by one direction that has none."""

    problem: Composite
    lengths: tuple[Vector, ...]  # of rows, in the metric of the inverse Hessian
    free: tuple[Vector, ...]  # products of rows with the direction without curvature; zeros where there is none
    drift: tuple[Vector, ...]  # by which these products, and the direction, may be rounded
    opens: bool  # whether there is one

    def below(self, centre: Vector, radius: float, upper: float) -> Composite | None:
        """A convex problem that is nowhere above this one where that is less than `upper`; None where none is known."""
        positions = self.problem.positions(centre)
        reach = [_ROUNDED_WIDER * radius * length for length in self.lengths]
        if not all(np.all(np.isfinite(width)) for width in reach):
            return None  # numbers overflow
        along = self._along(positions, reach, upper) if self.opens else (0.0, 0.0)
        if along is None:
            return None
        constant, rows = self.problem.constant, []
        far = max(map(abs, along))
        for r, z, width, free, drift in zip(self.problem.rows, positions, reach, self.free, self.drift, strict=True):
            if r.term.curvature.is_convex:
                rows.append(r)
                continue
            ends = free * along[0], free * along[1]
            low, high = z - width + np.minimum(*ends), z + width + np.maximum(*ends)
            slack = _LOST * (1.0 + np.abs(z) + np.abs(r.offset)) + far * drift
            for part, lost in _hulls(r, low - slack, high + slack):
                rows.append(part)
                constant -= lost
        convex = Composite(self.problem.hessian, self.problem.gradient_at_zero, constant, tuple(rows))
        kinked = [np.full(r.count, bool(r.term.knots)) for r in rows]
        return convex if all(map(np.all, kinked)) else convex.freeze(convex.positions(centre), kinked)

    def _along(self, positions: list[Vector], reach: list[Vector], upper: float) -> tuple[float, float] | None:
        """The interval of the direction without curvature outside of which rows alone cost `upper` or more."""
        ends = []
        limit = upper - self.problem.constant
        for sign in (-1.0, 1.0):

            def least(step: float, sign: float = sign) -> float:
                """What rows cost at least from `step` on."""
                return sum(
                    float(r.weights @ _least_beyond(r.term, z, width, sign * free, drift, step))
                    for r, z, width, free, drift in zip(
                        self.problem.rows, positions, reach, self.free, self.drift, strict=True
                    )
                )

            size = max(float(np.abs(free).max(initial=0.0)) for free in self.free) or 1.0
            inside, beyond = 0.0, 1.0 / size
            while not least(beyond) >= limit:
                inside, beyond = beyond, 4.0 * beyond
                if beyond * size > _FARTHEST_END:
                    return None
            for _ in range(12):
                middle = 0.5 * (inside + beyond)
                inside, beyond = (inside, middle) if least(middle) >= limit else (middle, beyond)
            ends.append(sign * beyond)
        return ends[0], ends[1]


def enclosure(problem: Composite) -> Enclosure | None:
    """How rows of a problem are enclosed; None unless what is not convex is lines that meet, below few variables."""
    bent = [r.term for r in problem.rows if not r.term.curvature.is_convex]
    if problem.hessian is None or problem.indefinite or problem.size > _MOST_DECOMPOSED or problem.groups:
        return None
    if problem.row_count * problem.size > _MEASURED_ENTRIES or not all(t.is_continuous and t.degree <= 1 for t in bent):
        return None
    hessian = problem.hessian.toarray() if sp.issparse(problem.hessian) else np.asarray(problem.hessian)
    if not np.all(np.isfinite(hessian)):
        return None
    values, vectors = np.linalg.eigh(hessian)
    flat = values <= _FLAT_EIGENVALUE * values[-1]
    if flat.sum() > 1 or values[-1] <= 0.0 or (flat.any() and problem.gradient_at_zero.any()):
        return None
    rows = [np.asarray(r.linear.dense(), dtype=np.float64) for r in problem.rows]
    scaled = vectors[:, ~flat] / np.sqrt(values[~flat])
    lengths = tuple(np.linalg.norm(row @ scaled, axis=1) for row in rows)
    free = tuple(row @ vectors[:, flat].sum(axis=1) for row in rows)
    drift = tuple(_LOST * np.linalg.norm(row, axis=1) for row in rows)
    return Enclosure(problem, lengths, free, drift, bool(flat.any()))


def _least_beyond(
    term: PiecewisePolynomial, z: Vector, width: Vector, free: Vector, drift: Vector, step: float
) -> Vector:
    """The least value that a term has, row by row, where its direction is followed by `step` or more.

    A row that moves by no more than rounding may move either way, or not at all.
    """
    ahead = free > 0.0
    end = z + step * free + np.where(ahead, -width - step * drift, width + step * drift)
    least = np.array(term.value(end))
    for knot in term.knots:
        t = np.broadcast_to(np.asarray(knot, dtype=np.float64), z.shape)
        least = np.where(np.where(ahead, t > end, t < end), np.minimum(least, term.value(t)), least)
    first, last = (np.broadcast_to(np.asarray(p[1] if len(p) > 1 else 0.0), z.shape) for p in _outer(term))
    falls = np.where(ahead, last < 0.0, first > 0.0) | (np.abs(free) <= drift) | (term.degree > 1)
    return np.where(falls, np.broadcast_to(term.infimum, z.shape), least)


def _outer(term: PiecewisePolynomial) -> tuple[Any, Any]:
    return term.pieces[0], term.pieces[-1]


def _hulls(r: Rows, low: Vector, high: Vector) -> Iterator[tuple[Rows, float]]:
    """Rows with their convex envelopes between `low` and `high`, those with the same corners together, and a slack."""
    knots = [np.broadcast_to(np.asarray(t, dtype=np.float64), low.shape) for t in r.term.knots]
    for t in knots:  # no end is so near to a corner that a slope would be rounding
        apart = _OFF_CORNERS * (high - low)
        low, high = (
            np.where(np.abs(t - low) < apart, t - apart, low),
            np.where(np.abs(t - high) < apart, t + apart, high),
        )
    at = np.stack([low, *knots, high])
    inside = (at > low) & (at < high)
    at = np.clip(at, low, high)
    value = np.stack([np.asarray(r.term.value(t), dtype=np.float64) for t in at])
    lost = _LOST * np.abs(value).max(axis=0)
    corner = inside.copy()
    for j in range(1, len(at) - 1):
        for a, b in itertools.product(range(j), range(j + 1, len(at))):
            width = at[b] - at[a]
            share = np.divide(at[j] - at[a], width, out=np.zeros_like(width), where=width > 0.0)
            corner[j] &= (width <= 0.0) | (value[j] < value[a] + share * (value[b] - value[a]) - lost)
    corner[[0, -1]] = True
    codes = 2 ** np.arange(len(at)) @ corner
    for code in np.unique(codes):
        index = np.flatnonzero(codes == code)
        kept = np.flatnonzero(corner[:, index[0]])
        term = _through(at[np.ix_(kept, index)], value[np.ix_(kept, index)])
        yield replace(r.take(index), term=term), 4.0 * float(r.weights[index] @ lost[index])


def _through(at: Vector, value: Vector) -> PiecewisePolynomial:
    """Lines through points, columns a row each; the first and the last go on."""
    derivatives = np.maximum.accumulate(np.diff(value, axis=0) / np.diff(at, axis=0), axis=0)
    if len(at) == 2:
        return PiecewisePolynomial((), ((value[0], derivatives[0]),), (at[0],), name="envelope")
    pieces = [(value[1], derivatives[0])]
    for j in range(1, len(derivatives)):
        start = value[1] if j == 1 else pieces[-1][0] + (at[j] - at[j - 1]) * derivatives[j - 1]
        pieces.append((start, derivatives[j]))
    return PiecewisePolynomial(tuple(at[1:-1]), tuple(pieces), (at[1], *at[1:-1]), name="envelope")


def radius(upper: float, lower: float, reached: float) -> float:
    """From a point of value `reached`: how far all points are that are at most `upper`, the minimum above `lower`."""
    return math.sqrt(2.0 * max(upper - lower, 0.0)) + math.sqrt(2.0 * max(reached - lower, 0.0))
