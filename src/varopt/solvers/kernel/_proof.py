r"""The bracket of a kernel machine in arithmetic that knows its rounding.

For coefficients that add up to zero exactly, with ``v_n = -beta_n / a_n`` within the subgradients of ``w_n rho``, and a
kernel that is positive semidefinite,

    f >= -1/2 beta'K beta + sum_n v_n d_n - sum_n (w_n rho)^*(v_n).                                                 (1)

``K beta`` is given with a bound of all its rounding, that of the kernel too. Coefficients are rounded to multiples of a
power of two, of which sums are exact, and one takes what these leave.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from varopt._verified import SLACK, TINY, UNIT, Ball, dot, down, total, up
from varopt.certificates.enclosures import conjugate_above, dual_interval, enclosed_terms
from varopt.solvers.kernel._kernel_machine import KernelProblem

__all__ = ["balanced_coefficients", "proved_bracket"]

Vector = NDArray[np.float64]

_GRID_BITS = 50  # of the largest coefficient


def balanced_coefficients(problem: KernelProblem, beta: Vector) -> Vector | None:
    """Coefficients near the given ones, in their intervals, that add up to zero exactly; None where none is found."""
    if not np.all(np.abs(problem.scale) == 1.0):
        return None
    low, high = dual_interval(problem.term, problem.weights)
    v = np.clip(-problem.scale * beta, low, high)
    largest = float(np.abs(v).max(initial=0.0))
    if not 0.0 < largest < math.inf or np.any(low > 0.0) or np.any(high < 0.0):
        return v if largest == 0.0 else None
    grid = math.ldexp(1.0, math.frexp(largest)[1] - _GRID_BITS)
    if grid < TINY:
        return None
    rounded = np.trunc(-problem.scale * v / grid) * grid  # towards zero, which is in all intervals
    left = math.fsum(rounded)  # exact: a multiple of the grid, and small
    if left == 0.0:
        return rounded
    ends = np.sort(np.stack([-problem.scale * low, -problem.scale * high]), axis=0)
    room = rounded - ends[0] if left > 0.0 else ends[1] - rounded
    most = int(np.argmax(room * (rounded != 0.0)))
    if not room[most] >= 2.0 * abs(left) or abs(rounded[most]) + abs(left) > 2.0 * largest:
        return None
    rounded[most] -= left
    return rounded if math.fsum(rounded) == 0.0 else None


def proved_bracket(problem: KernelProblem, values: Ball, offset: Ball, beta: Vector, b: float) -> tuple[float, float]:
    """Bounds of the optimum, the upper one that of the point, for `values` that enclose ``K beta`` and balanced beta.

    `offset` encloses what the offsets of the problem are rounded from.
    """
    with np.errstate(all="ignore"):
        v = -problem.scale * beta
        z = values.shifted(np.full(beta.size, b)).scaled(problem.scale).plus(offset).rounded()
        loss, lost = (0.0, 0.0) if _is_flat(problem, z) else enclosed_terms(problem.term, problem.weights, z)
        live = np.flatnonzero(beta)
        square, off = dot(beta[live], values.middle[live])
        half = 0.5 * square
        spread = 0.5 * (off + float(np.abs(beta[live]) @ values.radius[live]) * SLACK)
        along, missed = dot(v[live], offset.middle[live])
        missed += float(np.abs(v[live]) @ offset.radius[live]) * SLACK
        above = conjugate_above(problem.term, problem.weights, v)
        cost, more = total(np.asarray(above, dtype=np.float64))
        value = half + spread + loss + lost
        upper = float(up(value * (1.0 + 8.0 * UNIT) + TINY)) if value else 0.0
        error = (spread + missed + more + 4.0 * UNIT * (half + abs(along) + abs(cost))) * SLACK + TINY
        lower = float(down(along - half - cost - error))
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return -math.inf, math.inf
    return max(lower, 0.0), upper  # squares and losses are not negative


def _is_flat(problem: KernelProblem, z: Ball) -> bool:
    """Whether all samples are where the term is zero for certain."""
    low, high = (
        problem.term.subdifferential(z.middle - z.radius)[0],
        problem.term.subdifferential(z.middle + z.radius)[1],
    )
    return not (np.any(low) or np.any(high) or np.any(problem.term.value(z.middle)))
