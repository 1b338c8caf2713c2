r"""Convex and concave regression: the linear spline whose kinks all have one sign.

A sum of hinge functions at the knots with coefficients, the kinks, that must not be negative: non-negative least
squares with a column for each place, few of which are used. Knots are added where the dual is farthest beyond zero, one
in each stretch; where least squares would turn a kink around, the spline goes there until the first vanishes, and that
knot is dropped. The squares fall with every round, so that no knots come back [GJW08, sect. 3; LH74, ch. 23].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.signals._linear_spline import LinearSpline
from varopt.solvers.signals._trend_filtering import TrendFiltering

__all__ = ["ConvexSpline", "convex_spline"]

Vector = NDArray[np.float64]
Places = NDArray[np.intp]

_KNOT_ROUNDS = 200  # after which knots are taken not to settle; ten do for 100,000 places
_PAST_ZERO = 1e-12  # share of the largest dual by which one may be beyond zero, as rounding


class ConvexSpline(NamedTuple):
    """The points, counted from the mean of the targets, and the dual point."""

    points: Vector
    dual: Vector


def convex_spline(
    signal: TrendFiltering, peaks: Callable[[Vector, NDArray[np.bool_]], Places], seen: Callable[[], None]
) -> ConvexSpline | None:
    """The optimum where one end of the dual's range is zero and the other is never reached; else None.

    Parameters
    ----------
    signal : TrendFiltering
    peaks : callable
        Where a number is largest, in every stretch in which it is positive and a mask does not change.
    seen : callable
        Called in every round; it may raise.
    """
    sign = 1.0 if not np.any(signal.high) else -1.0 if not np.any(signal.low) else 0.0
    if sign == 0.0 or not signal.rows.hard:
        return None
    last = signal.weights.size - 1
    spline = LinearSpline(signal, np.concatenate([[0], np.flatnonzero(signal.free) + 1, [last]]))
    values = spline.minimiser(np.zeros(spline.inner.size))
    for _ in range(_KNOT_ROUNDS):
        seen()
        points = spline.points(values)
        dual = spline.dual(points, np.zeros(spline.inner.size))
        beyond = sign * dual
        beyond[spline.inner] = 0.0
        size = float(np.abs(dual).max(initial=0.0))
        joining = peaks(beyond / size, beyond > 0.0) if size > 0.0 else np.zeros(0, dtype=np.intp)
        joining = joining[beyond[joining] > _PAST_ZERO * size]
        if not joining.size:
            reached = np.any(dual < signal.low - _PAST_ZERO * size) or np.any(dual > signal.high + _PAST_ZERO * size)
            return None if reached else ConvexSpline(points, dual)
        spline, values = _least_squares(signal, spline, values, joining + 1, sign)
    return None


def _least_squares(
    signal: TrendFiltering, spline: LinearSpline, values: Vector, joining: Places, sign: float
) -> tuple[LinearSpline, Vector]:
    """The best spline with the given knots and more, less those whose kinks vanish on the way [LH74]."""
    knots = np.union1d(spline.knots, joining)
    at = np.interp(knots, spline.knots, values) if signal.even else spline.points(values)[knots]
    while True:
        spline = LinearSpline(signal, knots)
        best = spline.minimiser(np.zeros(spline.inner.size))
        kinks = sign * spline.kinks(best)
        wrong = (kinks < 0.0) & ~signal.free[spline.inner]
        if not wrong.any():
            return spline, best
        before = np.maximum(sign * spline.kinks(at), 0.0)
        steps = np.where(wrong, before / np.where(wrong, before - kinks, 1.0), 1.0)
        share = float(steps.min())
        at = at + share * (best - at)
        kept = np.concatenate([[True], ~(wrong & (steps <= share)), [True]])
        knots, at = knots[kept], at[kept]
