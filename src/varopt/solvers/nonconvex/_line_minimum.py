r"""The exact minimum along a line.

Along ``x + t d`` a row is the polynomial of its piece until t carries it over a knot; there the jump polynomial of that
knot is added. Sorted by t, the running sums of these are the objective between every two knots: n rows cost one sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.terms import PiecewisePolynomial
from varopt.terms.polynomials import Polynomial, differentiate, evaluate, real_roots, shift

__all__ = ["RowsOnLine", "Step", "best_step"]

Vector = NDArray[np.float64]

_STILL = 1e-13  # share of the fastest row's speed below which a row counts as still
_JUMP_MARGIN = 1e-9  # how far from a jump to stay, relative to the step: on which side a row lands must not be rounding
_SHORTEST_INTERVAL = 1e-12  # intervals of t narrower than this are rounding of one point


@dataclass(frozen=True)
class RowsOnLine:
    """Rows on a line: ``z + t speed``, weighted."""

    term: PiecewisePolynomial
    weights: Vector
    z: Vector
    speed: Vector


@dataclass(frozen=True)
class Step:
    """A step along the line, and by how much the objective changes; minus infinity where it falls for ever."""

    length: float
    change: float


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # knots at infinity have no interval between them
def best_step(
    gradient: float, curvature: float, parts: Sequence[RowsOnLine], rng: np.random.Generator | None = None
) -> Step:
    """Minimise ``gradient t + curvature t^2 / 2`` plus the rows exactly.

    Where the objective is flat the middle of the widest of the lowest intervals is taken; with `rng`, any of them.
    Cost: a sort of the n knots that are passed; memory: n times the degree.
    """
    knots, changes, start = _polynomials(gradient, curvature, parts)
    if not knots.size:
        return _between(np.array([-np.inf]), np.array([np.inf]), start[:, None], rng, False)
    order = np.argsort(knots, kind="stable")
    knots = knots[order]
    pieces = np.empty((start.size, knots.size + 1))
    pieces[:, 0] = start
    np.cumsum(changes[:, order], axis=1, out=pieces[:, 1:])
    pieces[:, 1:] += start[:, None]
    jumps = any(not part.term.is_continuous for part in parts)
    return _between(np.append(-np.inf, knots), np.append(knots, np.inf), pieces, rng, jumps)


def _polynomials(gradient: float, curvature: float, parts: Sequence[RowsOnLine]) -> tuple[Vector, Vector, Vector]:
    """The steps at which knots are passed, the polynomial in t added at each, and the one before the first."""
    degree = max([2 if curvature else 1 if gradient else 0, *(part.term.degree for part in parts)])
    start = np.zeros(degree + 1)
    start[1 : min(degree, 2) + 1] = (gradient, 0.5 * curvature)[:degree]
    knots, changes = [np.zeros(0)], [np.zeros((degree + 1, 0))]
    for part in parts:
        term, z, speed = part.term, part.z, part.speed
        fast = np.abs(speed) > _STILL * np.abs(speed).max(initial=0.0)
        if not fast.all():
            index = np.flatnonzero(fast)
            term, z, speed = term.take(index), z[index], speed[index]
            part = RowsOnLine(term, part.weights[index], z, speed)
        if not z.size:
            continue
        right = speed > 0.0
        for end, side in ((0, right), (-1, ~right)):  # where the rows come from as t rises from minus infinity
            for power, c in enumerate(_in_t(part, term.pieces[end], term.centres[end])):
                start[power] += float(np.sum(c * side))
        sign = np.where(right, 1.0, -1.0)
        for knot, jump in zip(term.knots, term.jumps, strict=True):
            knots.append((knot - z) / speed)
            rows = np.zeros((degree + 1, z.size))
            for power, c in enumerate(_in_t(part, jump, knot)):
                rows[power] = sign * c
            changes.append(rows)
    origin = sum(float(part.weights @ part.term.value(part.z)) for part in parts)
    start[0] -= origin  # the change against t = 0
    return np.concatenate(knots), np.concatenate(changes, axis=1), start


def _in_t(part: RowsOnLine, polynomial: Polynomial, centre: Any) -> list[Vector]:
    """Coefficients in powers of t of the polynomial of ``z + t speed - centre``, row by row, weighted."""
    scale = part.weights
    coefficients = []
    for c in shift(polynomial, part.z - centre) if len(polynomial) > 1 else polynomial:
        coefficients.append(scale * c)
        scale = scale * part.speed
    return coefficients


def _between(low: Vector, high: Vector, pieces: Vector, rng: np.random.Generator | None, jumps: bool) -> Step:
    """The lowest point of polynomials (a column each) on intervals."""
    span = max(1.0, *(float(np.abs(end[np.isfinite(end)]).max(initial=0.0)) for end in (low, high)))
    wide = high - low > _SHORTEST_INTERVAL * span
    low, high, pieces = low[wide], high[wide], pieces[:, wide]
    if not low.size:  # everything overflows
        return Step(0.0, math.inf)
    while pieces.shape[0] > 1 and not pieces[-1].any():
        pieces = pieces[:-1]
    inner_low, inner_high = np.maximum(low, np.minimum(high, 0.0) - span), np.minimum(high, np.maximum(low, 0.0) + span)
    middle = 0.5 * (inner_low + inner_high)
    if pieces.shape[0] == 1:
        return _choose(middle, pieces[0], inner_high - inner_low, rng)
    for end, sign in ((0, -1.0), (-1, 1.0)):
        leading = next((p for p in range(pieces.shape[0] - 1, 0, -1) if pieces[p, end]), 0)
        if leading and pieces[leading, end] * sign**leading < -1e-12 * np.abs(pieces[leading]).max():
            return Step(sign * np.inf, -np.inf)
    polynomial: Polynomial = tuple(pieces)
    # Ends of intervals at jumps are approached, not reached.
    margin = np.minimum(_JUMP_MARGIN * span, 0.25 * (inner_high - inner_low)) if jumps else 0.0
    candidates = [inner_low + margin, inner_high - margin, middle]
    roots = real_roots(differentiate(polynomial)) if pieces.shape[0] != 3 else [_vertex(pieces)]
    candidates += [np.where((root > low) & (root < high), root, middle) for root in roots]
    values = [evaluate(polynomial, t) for t in candidates]
    lowest = reduce(np.minimum, values)
    chosen = middle  # where it is flat
    for t, value in zip(candidates, values, strict=True):
        chosen = np.where((value == lowest) & (values[2] > lowest), t, chosen)
    return _choose(chosen, lowest, inner_high - inner_low, rng)


def _vertex(pieces: Vector) -> Vector:
    return np.asarray(-pieces[1] / (2.0 * pieces[2]))


def _choose(steps: Vector, values: Vector, widths: Vector, rng: np.random.Generator | None) -> Step:
    best = float(values.min())
    tied = np.flatnonzero(values <= best + 1e-12 * max(1.0, abs(best)))
    if not tied.size:  # everything overflows
        return Step(0.0, math.inf)
    k = int(tied[np.argmax(widths[tied])] if rng is None or tied.size == 1 else rng.choice(tied))
    return Step(float(steps[k]), float(values[k]))
