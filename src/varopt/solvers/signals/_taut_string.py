r"""`taut-string`: total variation of a signal, and its like, solved directly.

With R_i the running sums of c_i (y_i - mean), the running sums S_i of c_i (x_i - mean) of the optimum are the shortest
course within a tube around R, a string pulled taut [DK01]:

    R_i + low_i <= S_i <= R_i + high_i,    S_0 = R_0 = 0,  S_n = R_n,                                               (1)
    x_i = mean + (S_i - S_{i-1}) / c_i,                                                                             (2)
    q_i = S_i - R_i,                                                                                                (3)

x the derivative of the string in the running sums of the weights, and q the dual point, one number for each difference
of neighbours. One pass finds the string: it keeps the shortest courses to either wall of the tube, as the two sides of
a funnel whose apex is the last point that is certain [LP84]. Kinks of single variables, the same for all, shrink the
optimum without them [FHHT07]:

    x_i = argmin c_i (x - x_i')^2 / 2 + psi(x).                                                                     (4)

Where one wall is R itself and the other is out of reach, as in monotone regression, the string is the greatest convex
minorant of R or the least concave majorant. Its values are the means of neighbours that are pooled until they are in
order [ABERS55].                                                                                                    (5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt._array import repeated
from varopt.certificates import dual_gap
from varopt.composite import Composite, separable_kinks
from varopt.solvers._method import Check, GaveUp, Method, State, convex, piecewise_quadratic, signal

if TYPE_CHECKING:
    from varopt.solvers.signals._total_variation import TotalVariation

__all__ = ["TautString"]

Vector = NDArray[np.float64]

_POINTS_AT_ONCE = 1 << 14  # as Python numbers, which take four times the memory of those of an array


@dataclass(frozen=True)
class TautString(Method):
    """The taut string of a signal, and the dual point that comes with it.

    Notes
    -----
    One pass over the points, about a microsecond each, and a dozen vectors of their number.
    """

    name: ClassVar[str] = "taut-string"
    needs = (convex, piecewise_quadratic, signal)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks."""
        from varopt.solvers.signals._total_variation import total_variation  # most problems are no signals

        if problem.structure(total_variation) is None:
            return "it is no chain, of a square for each variable and a kink between neighbours."
        return ""

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        from varopt.solvers.signals._total_variation import total_variation  # as above

        if signal := problem.structure(total_variation):
            try:
                _show(problem, signal, state)
            except ZeroDivisionError:  # weights so uneven that their sums do not rise
                raise GaveUp from None
        state.steps, state.sigma = state.steps + 1, 0.0
        state.record()
        check(state)


def _show(problem: Composite, signal: TotalVariation, state: State) -> None:
    """The optimum with the dual point that comes with it: of the differences, and of the kinks of single variables."""
    kinks, _ = problem.structure(separable_kinks)
    fused, dual = _solved(signal)
    x, own = fused, repeated(0.0, fused.shape)
    if not np.all(kinks.free):  # (4) [FHHT07]
        own = np.clip(signal.weights * (fused - kinks.rest), kinks.low, kinks.high)
        x = np.where((kinks.low < own) & (own < kinks.high), kinks.rest, fused - own / signal.weights)
    subgradients = []
    for r in problem.rows:
        if r is not signal.differences and r.single is not None:
            share, sign = _share(own, kinks.low, kinks.high)[r.single[0]], np.sign(r.single[1])
        else:
            share, sign = _share(dual, signal.low, signal.high)[signal.place], signal.sign
        left, right = r.term.subgradient_range
        subgradients.append(np.clip(np.where(sign > 0, left, right) + sign * share * (right - left), left, right))
    del fused, dual, own, share  # before the bracket takes as much again
    positions = problem.positions(x)
    gap, assumption = dual_gap(problem, x, positions, subgradients)
    state.see(x, problem.value(x, positions), gap, assumption, dual=subgradients)


def _share(dual: Vector, low: Vector, high: Vector) -> Vector:
    """How far from its lowest value to its highest a dual variable is."""
    return np.divide(dual - low, high - low, out=np.zeros_like(dual), where=high > low)


def _solved(signal: TotalVariation) -> tuple[Vector, Vector]:
    """The optimum but for kinks of single variables, and the dual point of the differences."""
    weights = signal.weights
    mean = -float(signal.gradient.sum()) / float(weights.sum())  # sums of what is centred lose no digits
    targets = -mean * weights  # c (y - mean)
    targets -= signal.gradient
    top = np.cumsum(targets)  # (1): R, and the walls of the tube
    top[-1] = 0.0
    if side := _one_wall(signal, top):
        knots = _pooled(targets, weights, side)
        above = np.full(knots.size, side < 0)
    else:
        bottom = top.copy()
        top[:-1] += signal.high
        bottom[:-1] += signal.low
        knots, above = _taut(np.cumsum(weights), bottom, top)
        del bottom
    del top
    # Between the knots, where it touches a wall, the string is straight.
    starts, inner = np.append(0, knots[:-1] + 1), knots[:-1]
    dual_at = np.append(np.where(above[:-1], signal.high[inner], signal.low[inner]), 0.0)
    before = np.append(0.0, dual_at[:-1])
    lengths = np.diff(starts, append=weights.size)
    values = (np.add.reduceat(targets, starts) + dual_at - before) / np.add.reduceat(weights, starts)  # (2)
    x = np.repeat(values, lengths)
    dual = np.subtract(weights * x, targets, out=targets)  # (3): after a knot it is known anew
    np.cumsum(dual, out=dual)
    dual += np.repeat(before - np.append(0.0, dual[inner]), lengths)
    x += mean
    return x, np.clip(dual[:-1], signal.low, signal.high, out=dual[:-1])


def _one_wall(signal: TotalVariation, sums: Vector) -> int:
    """1 where the string can only touch the lower wall, which are the sums; -1 for the upper one; else 0.

    A minorant or majorant that begins and ends with the sums is as far from them as their range, at most.
    """
    reach = max(float(sums.max()), 0.0) - min(float(sums.min()), 0.0)
    if not np.any(signal.low) and float(signal.high.min(initial=np.inf)) > reach:
        return 1
    return -1 if not np.any(signal.high) and float(signal.low.max(initial=-np.inf)) < -reach else 0


def _pooled(targets: Vector, weights: Vector, side: int) -> NDArray[np.intp]:
    """(5): the last points of the pools; values fall where the lower wall is touched, and rise where the upper is."""
    from scipy.optimize import isotonic_regression

    values = isotonic_regression(targets / weights, weights=weights, increasing=side < 0).x
    return np.append(np.flatnonzero(np.diff(values)), weights.size - 1)


def _taut(abscissae: Vector, low: Vector, high: Vector) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The points where the shortest course from zero touches a wall, with the last point, and whether the upper one.

    A side of the funnel [LP84] is a list of points, each with the value of the course's derivative that leads to it;
    values rise along the upper side and fall along the lower. Both begin at the latest knot, the apex; what lies before
    it in the lists is done with.
    """
    knots, above = [], []
    first, final = -math.inf, math.inf  # values at the apex: no other is below the one, or above the other
    upper, lower = [(0.0, 0.0, first)], [(0.0, 0.0, final)]
    u = v = 1  # where the sides go on after the knot
    for start in range(0, abscissae.size, _POINTS_AT_ONCE):
        part = slice(start, start + _POINTS_AT_ONCE)
        points = zip(abscissae[part].tolist(), low[part].tolist(), high[part].tolist(), strict=True)
        for x, bottom, top in points:
            at, height, last = upper[-1]
            value = (top - height) / (x - at)
            while last >= value:  # [LP84]: the upper side would turn down, and a straight line is shorter
                upper.pop()
                at, height, last = upper[-1]
                value = (top - height) / (x - at)
            if last == first and v < len(lower) and lower[v][2] > value:  # [LP84]: the apex moves to the lower side
                while v < len(lower) and lower[v][2] > value:
                    at, height, _ = lower[v]
                    value = (top - height) / (x - at)
                    knots.append(at)
                    above.append(False)
                    v += 1
                upper, u = [(at, height, first)], 1
                lower[v - 1] = (at, height, final)
            upper.append((x, top, value))

            at, height, last = lower[-1]  # all of it again, upside down
            value = (bottom - height) / (x - at)
            while last <= value:
                lower.pop()
                at, height, last = lower[-1]
                value = (bottom - height) / (x - at)
            if last == final and u < len(upper) and upper[u][2] < value:
                while u < len(upper) and upper[u][2] < value:
                    at, height, _ = upper[u]
                    value = (bottom - height) / (x - at)
                    knots.append(at)
                    above.append(True)
                    u += 1
                lower, v = [(at, height, final)], 1
                upper[u - 1] = (at, height, first)
            lower.append((x, bottom, value))
    return np.append(np.searchsorted(abscissae, knots), abscissae.size - 1), np.array([*above, True])
