r"""The bracket of a kernel machine in arithmetic that knows its rounding.

For coefficients that add up to zero exactly, with ``v_n = -beta_n / a_n`` within the subgradients of ``w_n rho``, and a
kernel that is positive semidefinite,

    f >= -1/2 beta'K beta + sum_n v_n d_n - sum_n (w_n rho)^*(v_n).                                                 (1)

``K beta`` is given with a bound of all its rounding, that of the kernel too. Coefficients are rounded to multiples of a
power of two, of which sums are exact, and some take what these leave. Where weights are large, positions near a kink
count to far more digits than a double has: they are pairs, and all that is added up is added up exactly.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import PAIR_SHARE, SLACK, TINY, UNIT, Pair, down, length, two_product, up
from varopt.certificates.enclosures import dual_interval
from varopt.solvers.kernel._kernel_machine import KernelProblem

__all__ = ["Enclosed", "Side", "balanced_coefficients", "is_beyond", "proved_bracket", "sides"]

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

_GRID_BITS = 53  # of the largest coefficient
_HALVED = 2.0**990  # up to which numbers are parted into halves without overflow


class Enclosed(NamedTuple):
    """Numbers known up to a radius each: ``|exact - value| <= radius``."""

    value: Pair
    radius: Vector

    def replaced(self, rows: Any, found: Enclosed) -> Enclosed:
        """With what was found of some rows in their place."""
        high, low, radius = (part.copy() for part in (*self.value, self.radius))
        high[rows], low[rows], radius[rows] = *found.value, found.radius
        return Enclosed(Pair(high, low), radius)


def balanced_coefficients(problem: KernelProblem, beta: Vector) -> Vector | None:
    """Coefficients near the given ones, in their intervals, that add up to zero exactly; None where they underflow."""
    low, high = dual_interval(problem.term, problem.weights)
    v = np.clip(-problem.scale * beta, low, high)
    largest = float(np.abs(v).max(initial=0.0))
    if largest == 0.0:
        return v
    grid = math.ldexp(1.0, math.frexp(largest)[1] - _GRID_BITS)
    if not TINY <= grid < math.inf:
        return None
    rounded = np.asarray(np.trunc(-problem.scale * v / grid) * grid)  # towards zero, which is in all intervals
    while left := math.fsum(rounded):  # exact: a multiple of the grid
        for i in np.argsort(-math.copysign(1.0, left) * rounded).tolist():  # those that add to it, the largest first
            taken = math.copysign(min(abs(left), abs(float(rounded[i]))), left)
            rounded[i] -= taken
            left -= taken
            if left == 0.0:
                break
    return rounded


def proved_bracket(
    problem: KernelProblem, values: Enclosed, offset: Pair, beta: Pair, b: float, distance: float = 0.0
) -> tuple[float, float]:
    """Bounds of the optimum, the upper one that of the point, for `values` that enclose ``K beta``.

    They hold for every positive semidefinite kernel at that `distance` from K, in the spectral norm. The lower one is
    zero, which squares and losses are not below, unless the coefficients are doubles that balance. `offset` is what the
    offsets of the problem are rounded from. The term is zero between its kinks, and has slopes of one beyond.
    """
    with np.errstate(all="ignore"):
        sizes, reach = np.abs(beta.high) + np.abs(beta.low), length(beta.high) + length(beta.low)
        square = [*two_product(beta.high, values.value.high), *two_product(beta.low, values.value.high)]
        square += [beta.high * values.value.low, beta.low * values.value.low]
        spread = float(sizes @ (values.radius + UNIT * np.abs(values.value.low))) + distance * reach**2
        half, off_half = [0.5 * part for part in square], 0.5 * spread * SLACK + TINY * np.count_nonzero(sizes)
        losses, lost = _losses(problem, values, offset, b, distance * reach)
        upper, added = _total([*half, *losses])
        upper += (off_half + lost + added) * SLACK
        v = -problem.scale * beta.high
        left, right = _kinks(problem)
        reached = [
            -part for knot, own in ((left, v < 0.0), (right, v > 0.0)) for part in _product(v[own], knot[own])
        ]  # of the conjugates, each reached on the kink on its side
        along = [*_product(v, offset.high), v * offset.low]
        lower, off = _total([*along, *reached, *(-part for part in half)])
        off += off_half + UNIT * float(np.abs(v) @ np.abs(offset.low)) + 4.0 * TINY * np.count_nonzero(v)
    upper, lower = float(up(upper * (1.0 + 4.0 * UNIT))) if upper else 0.0, float(down(lower - off * SLACK))
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return 0.0, upper if math.isfinite(upper) else math.inf
    return max(lower, 0.0) if not beta.low.any() and math.fsum(beta.high) == 0.0 else 0.0, upper


def is_beyond(problem: KernelProblem, values: Enclosed, offset: Pair, b: float) -> Mask:
    """Samples that cost nothing for certain."""
    found = np.ones(problem.size, dtype=bool)
    with np.errstate(all="ignore"):
        for side in sides(problem, values, offset, b):
            found &= side.beyond.value.high + side.beyond.radius < 0.0
    return found


def _product(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """The rounded product and its error; the second factor may be near the largest number, whose halves overflow."""
    large = np.abs(b) > _HALVED
    if not large.any():
        product, error = two_product(a, b)
        return product, error
    unit = np.where(large, 2.0**60, 1.0)
    product, error = two_product(a, b / unit)
    return product * unit, error * unit


def _total(parts: list[Vector]) -> tuple[float, float]:
    """The sum of all numbers, rounded once, and a bound of what that is."""
    numbers = np.concatenate(parts)
    try:
        value = math.fsum(numbers[numbers != 0.0].tolist())
    except (OverflowError, ValueError):
        return math.nan, math.nan
    return value, UNIT * abs(value)


class Side(NamedTuple):
    """How far samples are beyond an end of where the term is zero: ``sign (z - knot)``, and what a unit of it costs."""

    sign: float
    knot: Vector
    beyond: Enclosed
    cost: Vector


def sides(problem: KernelProblem, values: Enclosed, offset: Pair, b: float) -> list[Side]:
    """Both ends of where the term is zero, or the one that there is."""
    at = values.value.plus(Pair.of(np.full(problem.size, b)))
    at = Pair(problem.scale * at.high, problem.scale * at.low).plus(offset)
    sizes = np.abs(values.value.high) + abs(b) + np.abs(offset.high)
    found = []
    for sign, knot, gradient in zip((-1.0, 1.0), _kinks(problem), problem.term.subgradient_range, strict=True):
        if np.any(gradient):
            beyond = Pair(sign * at.high, sign * at.low).plus(Pair.of(-sign * knot))
            radius = (values.radius + 4.0 * PAIR_SHARE * (sizes + np.abs(knot)) + np.abs(beyond.low)) * SLACK
            found.append(Side(sign, knot, Enclosed(beyond, radius), problem.weights * np.abs(gradient)))
    return found


def _kinks(problem: KernelProblem) -> tuple[Vector, Vector]:
    """The ends of where the term is zero."""
    left, right = (np.asarray(problem.term.knots[end], dtype=np.float64) for end in (0, -1))
    return np.broadcast_to(left, (problem.size,)), np.broadcast_to(right, (problem.size,))


def _losses(
    problem: KernelProblem, values: Enclosed, offset: Pair, b: float, moved: float
) -> tuple[list[Vector], float]:
    """What samples cost, as numbers to add up, and how much more it may be, where values move by a length too."""
    parts: list[Vector] = []
    lost = 0.0
    for _, _, beyond, cost in sides(problem, values, offset, b):
        costs = beyond.value.high + beyond.radius + moved >= 0.0
        parts += _product(cost, np.maximum(beyond.value.high, 0.0))
        lost += (float(cost[costs] @ beyond.radius[costs]) + moved * length(cost[costs])) * SLACK
        lost += TINY * np.count_nonzero(costs & (beyond.radius > 0.0))
    return parts, lost
