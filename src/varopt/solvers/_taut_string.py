r"""`taut-string`: total variation of a signal, and other chains, solved directly.

Add up the targets of a chain from the left: the sums of the optimum stay within a tube around those of the data, from
low_i below them to high_i above, and meet them at both ends. Of all such courses theirs is the shortest, a string
pulled taut [DK01]. One pass finds it, which keeps the shortest courses to either wall of the tube, as the two sides of
a funnel [LP84].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._chain import Chain
from varopt.solvers._composite import Composite
from varopt.solvers._duality import dual_gap
from varopt.solvers._interior_point import InteriorPoint
from varopt.solvers._method import Method
from varopt.solvers._state import Check, State

__all__ = ["TautString"]

Vector = NDArray[np.float64]

_CHUNK = 1 << 14  # points that are Python numbers at a time, which take four times the memory of an array's


@dataclass(frozen=True)
class TautString(Method):
    """The taut string of a chain, and the dual point that comes with it.

    Notes
    -----
    One pass over the points, about a microsecond each, and a dozen vectors of their number.
    """

    name: ClassVar[str] = "taut-string"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        if reason := problem.not_convex or problem.not_quadratic:
            return reason
        return "" if problem.chain else "it is no chain, of a square for each variable and a kink between neighbours."

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        if problem.chain:
            _show(problem, problem.chain, state)
        state.steps, state.sigma = state.steps + 1, 0.0
        state.record()
        check(state)
        if not state.reached(tol):
            InteriorPoint().solve(problem, state, tol, check)


def _show(problem: Composite, chain: Chain, state: State) -> None:
    """The optimum with the dual point that comes with it: the tension of the ties, and what the kinks shrink it by."""
    kinks, _ = problem.kinks
    tied, tension = _solved(chain)
    x, push = tied, np.broadcast_to(0.0, tied.shape)
    if not np.all(kinks.free):
        push = np.clip(chain.weights * (tied - kinks.rest), kinks.low, kinks.high)
        x = np.where((kinks.low < push) & (push < kinks.high), kinks.rest, tied - push / chain.weights)
    slopes = []
    for r in problem.rows:
        if r is not chain.ties and r.single is not None:
            share, sign = _share(push, kinks.low, kinks.high)[r.single[0]], np.sign(r.single[1])
        else:
            share, sign = _share(tension, chain.low, chain.high)[chain.place], chain.sign
        left, right = r.term.slopes
        slopes.append(np.clip(np.where(sign > 0, left, right) + sign * share * (right - left), left, right))
    del tied, tension, push, share  # before the bracket takes as much again
    positions = problem.positions(x)
    gap, assumption = dual_gap(problem, x, positions, slopes)
    state.see(x, problem.value(x, positions), gap, assumption, dual=slopes)


def _share(force: Vector, low: Vector, high: Vector) -> Vector:
    """How far from its lowest value to its highest a force is."""
    return np.divide(force - low, high - low, out=np.zeros_like(force), where=high > low)


def _solved(chain: Chain) -> tuple[Vector, Vector]:
    """The optimum but for kinks of single variables, and the tension of every tie."""
    weights = chain.weights
    middle = -float(chain.slope.sum()) / float(weights.sum())  # a mean: sums of what is centred lose no digits
    pulls = -middle * weights
    pulls -= chain.slope
    top = np.cumsum(pulls)
    top[-1] = 0.0
    bottom = top.copy()
    top[:-1] += chain.high
    bottom[:-1] += chain.low
    knots, above = _taut(np.cumsum(weights), bottom, top)
    del top, bottom
    # Between the knots, where it touches a wall, the string is straight. Its slope is the value there.
    starts, inner = np.append(0, knots[:-1] + 1), knots[:-1]
    held = np.append(np.where(above[:-1], chain.high[inner], chain.low[inner]), 0.0)
    before = np.append(0.0, held[:-1])
    lengths = np.diff(starts, append=weights.size)
    values = (np.add.reduceat(pulls, starts) + held - before) / np.add.reduceat(weights, starts)
    away = np.repeat(values, lengths)
    # What the sums of the optimum exceed those of the data by is the tension; after a knot it is known anew.
    course = np.subtract(weights * away, pulls, out=pulls)
    np.cumsum(course, out=course)
    course += np.repeat(before - np.append(0.0, course[inner]), lengths)
    away += middle
    return away, np.clip(course[:-1], chain.low, chain.high, out=course[:-1])


def _taut(abscissae: Vector, low: Vector, high: Vector) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The points where the shortest course from zero touches a wall, with the last point, and whether the upper one.

    A side of the funnel is a list of points, each with the slope that leads to it; slopes rise along the upper side and
    fall along the lower. Both begin at the latest knot; what lies before it in the lists is done with.
    """
    knots, above = [], []
    upper, lower = [(0.0, 0.0, -np.inf)], [(0.0, 0.0, np.inf)]
    u = v = 1  # where the sides go on after the knot
    for start in range(0, abscissae.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        points = zip(abscissae[part].tolist(), low[part].tolist(), high[part].tolist(), strict=True)
        for x, bottom, top in points:
            at, height, steepness = upper[-1]
            slope = (top - height) / (x - at)
            while steepness >= slope:  # the upper side would turn down: a straight line is shorter
                upper.pop()
                at, height, steepness = upper[-1]
                slope = (top - height) / (x - at)
            if steepness == -np.inf and v < len(lower) and lower[v][2] > slope:  # it has to bend around the lower side
                while v < len(lower) and lower[v][2] > slope:
                    at, height, _ = lower[v]
                    slope = (top - height) / (x - at)
                    knots.append(at)
                    above.append(False)
                    v += 1
                upper, u = [(at, height, -np.inf)], 1
                lower[v - 1] = (at, height, np.inf)
            upper.append((x, top, slope))

            at, height, steepness = lower[-1]  # all of it again, upside down
            slope = (bottom - height) / (x - at)
            while steepness <= slope:
                lower.pop()
                at, height, steepness = lower[-1]
                slope = (bottom - height) / (x - at)
            if steepness == np.inf and u < len(upper) and upper[u][2] < slope:
                while u < len(upper) and upper[u][2] < slope:
                    at, height, _ = upper[u]
                    slope = (bottom - height) / (x - at)
                    knots.append(at)
                    above.append(True)
                    u += 1
                lower, v = [(at, height, np.inf)], 1
                upper[u - 1] = (at, height, -np.inf)
            lower.append((x, bottom, slope))
    return np.append(np.searchsorted(abscissae, knots), abscissae.size - 1), np.array([*above, True])
