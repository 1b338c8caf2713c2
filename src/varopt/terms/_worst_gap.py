"""The largest gap between a term's expectation under a Gaussian and its value, over all means."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from varopt._array import BLOCK, Array
from varopt._domains import as_finite
from varopt.terms.polynomials import Polynomial, differentiate, real_roots

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = ["worst_gap"]


def worst_gap(term: PiecewisePolynomial, sigma: Array) -> tuple[Array, Array]:
    """Supremum over the mean of expectation minus value, and where it is reached (NumPy only).

    For a convex piecewise linear term the gap is convex between knots, so one of the knots is the place: K evaluations.
    Otherwise grids around and between the knots are refined: about 250 evaluations a knot and row.
    """
    s = as_finite("sigma", sigma).astype(np.float64)
    if np.any(s < 0):
        raise ValueError("sigma must be >= 0.")
    shape = np.broadcast_shapes(s.shape, term.shape)
    s = np.broadcast_to(s, shape)
    best, where = np.full(shape, -np.inf), np.zeros(shape)

    def consider(gap: Array, mean: Array) -> None:
        nonlocal best, where
        better = gap > best + 1e-12 * np.where(np.isfinite(best), np.abs(best), 0.0)  # prefer the first of equals
        best, where = np.where(better, gap, best), np.where(better, mean, where)

    with np.errstate(over="ignore", invalid="ignore"):  # a grid may leave the floating range; NaN is never better
        for j, knot in enumerate(term.knots or (0.0,)):
            mean = np.broadcast_to(np.asarray(knot, dtype=float), shape)
            consider(term.gap(mean, s) + (_step_down(term, j) * (s > 0) if term.knots else 0.0), mean)
        if not (term.curvature.is_convex and term.degree <= 1):
            for end in (-1.0, 1.0):
                consider(*np.broadcast_arrays(_gap_at_infinity(term, s, end), end * np.inf))
            for means in _lattices(term, s):
                _refine(term, means, s, consider)
    return best, where


def _step_down(term: PiecewisePolynomial, knot: int) -> Array:
    """How far the term falls just beside a knot: the supremum of the gap may be the limit from there."""
    jump = np.asarray(term.jumps[knot][0])
    return np.maximum(jump if term.at_knot == "right" else -jump, 0.0)


def _gap_at_infinity(term: PiecewisePolynomial, s: Array, end: float) -> Array:
    """The limit of the gap: zero for a line, ``c s^2`` for a parabola, infinite for higher powers."""
    limit = np.zeros_like(s)
    for m, c in enumerate(term.pieces[0 if end < 0 else -1]):
        if m == 2:
            limit = np.asarray(c * s * s)
        elif m > 2:
            sign = np.asarray(c) * end**m * (s > 0)
            limit = np.where(sign == 0, limit, np.copysign(np.inf, sign))
    return limit


def _lattices(term: PiecewisePolynomial, s: Array) -> Iterator[Array]:
    """Means among which the largest gap is looked for, as arrays of points by rows."""
    for knot in term.knots:
        yield np.asarray(knot) + np.multiply.outer(np.linspace(-9.0, 9.0, 145), s)
    for left, right in itertools.pairwise(term.knots):  # close knots: curvature on a scale below sigma
        width = np.broadcast_to(np.asarray(right) - np.asarray(left), s.shape)
        yield np.asarray(left) + np.multiply.outer(np.linspace(0.0, 1.0, 33), width)
    # More than 9 sigma from the knots the gap is that of a polynomial, sum_k s^2k / (2^k k!) P^(2k), which is flat or
    # linear up to degree 3.
    for polynomial, centre in zip(term.pieces, term.centres, strict=True):
        total: Polynomial = (0.0,) * max(len(polynomial) - 2, 1)
        derivative, factor = polynomial, np.ones_like(s)
        for k in range(1, (len(polynomial) + 1) // 2):
            derivative, factor = differentiate(differentiate(derivative)), factor * s * s / (2 * k)
            total = tuple(t + factor * c for t, c in itertools.zip_longest(total, derivative, fillvalue=0.0))
        roots = real_roots(differentiate(total)) if len(polynomial) > 4 else []
        if roots:
            yield np.stack([np.broadcast_to(np.asarray(centre + r, dtype=float), s.shape) for r in roots])


def _refine(term: PiecewisePolynomial, means: Array, s: Array, consider: Callable[[Array, Array], None]) -> None:
    """Take the best of `means`, row by row, and look on finer and finer grids around it."""
    step = np.maximum(s / 8.0, np.max(np.abs(np.diff(means, axis=0)), axis=0, initial=0.0))
    for _ in range(15):
        gap, mean = _best_of(term, means, s)
        consider(gap, mean)
        means = mean + np.multiply.outer(np.linspace(-1.0, 1.0, 9), step)
        step = step / 4.0


def _best_of(term: PiecewisePolynomial, means: Array, s: Array) -> tuple[Array, Array]:
    """For each row the largest gap among the means, and which it was; as many means at once as rows are few."""
    gap, mean = np.full(s.shape, -np.inf), np.zeros(s.shape)
    count = max(1, BLOCK // max(s.size, 1))
    for start in range(0, len(means), count):
        some = means[start : start + count]
        gaps = term.gap(some, s)
        gaps = np.where(np.isnan(gaps), -np.inf, gaps)
        at = np.argmax(gaps, axis=0)[None]
        largest, place = (np.take_along_axis(array, at, axis=0)[0] for array in (gaps, some))
        mean, gap = np.where(largest > gap, place, mean), np.maximum(largest, gap)
    return gap, mean
