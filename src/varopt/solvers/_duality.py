"""The bracket at a point: a dual value from the slopes of the terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._composite import Composite, Rows, add
from varopt.solvers._definite import solve_definite
from varopt.solvers._state import State

__all__ = ["NEARBY", "STATIONARY", "balanced", "bracket", "charge", "dual_gap", "young"]

Vector = NDArray[np.float64]

STATIONARY = 1e-12  # share of what cancels in a residual below which it counts as rounding
_CHUNK = 1 << 15  # rows at a time where each needs a few numbers that the cache should hold
_CORRECTIONS = 8  # rounds in which slopes are moved until they balance
NEARBY = (
    "an optimum lies within twice the coordinates of the point found (which absorbs that it is stationary to rounding)"
)


def dual_gap(
    problem: Composite, x: Vector, positions: Sequence[Vector], slopes: Sequence[Vector], cancelling: Any = 0.0
) -> tuple[float, str]:
    r"""``f(x)`` minus the dual value of `slopes`, summed without cancellation, and what it assumes.

    With r the gradient of the quadratic plus :math:`A^T(w u)`, for every y

        f(y) >= f(x) - sum_k w_k (rho(z_k) + rho*(u_k) - u_k z_k) + r'(y - x) + 1/2 (y - x)'H(y - x).

    Each summand is a Fenchel-Young gap, not negative, and zero where u is the slope at z. Where H is positive definite
    on the variables that it touches, their rest is at least :math:`-r'H^{-1}r/2`. For the others, as unpenalised
    intercepts, or for all, r has to vanish: where it is more than rounding the gap is infinite; as rounding it is
    charged with the distance to an optimum, assumed to be no farther from the point than twice its own coordinates.
    `cancelling` is the size of what has cancelled in the slope of the quadratic already.
    """
    residual, gap = _residual(problem, x, slopes), 0.0
    for r, z, u in zip(problem.rows, positions, slopes, strict=True):
        for start in range(0, r.count, _CHUNK):
            part = slice(start, start + _CHUNK)
            open_rows = start + np.flatnonzero(
                (u[part] != r.term.take(part).derivative(z[part])) & (r.weights[part] > 0)
            )
            if open_rows.size:
                gap += float(r.weights[open_rows] @ young(r, z, u, open_rows))
    energy, flat = problem.inverse_energy(residual)
    gap += 0.5 * energy
    if not flat.any():
        return gap, ""
    residual = np.where(flat, residual, 0.0)
    if np.any(np.abs(residual) > STATIONARY * (_cancelling(problem, x) + cancelling)):
        return np.inf, ""
    return gap + charge(residual, x), NEARBY


def _residual(problem: Composite, x: Vector, slopes: Sequence[Vector]) -> Vector:
    """What the slopes leave unbalanced."""
    residual = problem.quadratic_slope(x).copy()
    for r, u in zip(problem.rows, slopes, strict=True):
        residual += r.linear.transpose_apply(r.weights * u)
    return residual


def _cancelling(problem: Composite, x: Vector) -> Vector:
    """The size of what cancels in the residual, for its rounding."""
    size = np.abs(problem.slope) + np.abs(problem.quadratic_slope(x))
    if problem.hessian is not None:
        # Targets of mean zero pull on an intercept with forces that cancel before they are added up: a sum of squares
        # q has forces whose sizes add up to at most sqrt(2 q H_jj), by Cauchy and Schwarz.
        squares = np.asarray(problem.hessian.diagonal()) * max(2.0 * problem.quadratic(x), 0.0)
        size = size + np.sqrt(np.maximum(squares, 0.0))
    return sum((r.largest_pull for r in problem.rows), size)


def young(r: Rows, z: Vector, u: Vector, index: NDArray[np.intp] | slice = slice(None)) -> Vector:
    """Fenchel-Young gaps ``rho(z) + rho*(u) - u z`` of some rows, not negative."""
    term = r.term.take(index)
    return np.asarray(np.maximum(term.value(z[index]) + term.conjugate(u[index]) - u[index] * z[index], 0.0))


def bracket(problem: Composite, x: Vector, deviations: Sequence[Any], state: State, *, balance: bool = True) -> None:
    """Show `state` a point of the bound's descent, with what the slopes of the smoothed terms prove.

    They are a dual point where the quadratic is definite. Otherwise they have to balance exactly, and with `balance`
    they are moved within their intervals until they do; that costs a weighted Gram matrix or a few.
    """
    positions = problem.positions(x)
    slopes = [r.term.derivatives(z, s)[1] for r, z, s in zip(problem.rows, positions, deviations, strict=True)]
    gap, assumption = dual_gap(problem, x, positions, slopes)
    if balance and not np.isfinite(gap):
        slopes = balanced(problem, x, slopes)
        gap, assumption = dual_gap(problem, x, positions, slopes)
    state.see(x, problem.value(x, positions), gap, assumption, dual=slopes)


def balanced(problem: Composite, x: Vector, slopes: Sequence[Vector]) -> list[Vector]:
    """Slopes near the given ones that balance the quadratic: each moves by a share of its distance from the ends."""
    slopes, size = list(slopes), _cancelling(problem, x)
    for _ in range(_CORRECTIONS):
        residual = _residual(problem, x, slopes)
        if np.all(np.abs(residual) <= 0.1 * STATIONARY * size):
            break
        room, matrix = [], None
        for r, u in zip(problem.rows, slopes, strict=True):
            low, high = r.term.slopes
            room.append(np.minimum(np.minimum(u - low, high - u), 1.0))
            matrix = add(matrix, r.linear.gram(r.weights * room[-1]))
        shift = solve_definite(matrix, -residual)
        for b, (r, share) in enumerate(zip(problem.rows, room, strict=True)):
            slopes[b] = slopes[b] + share * np.clip(r.linear.apply(shift), -0.9, 0.9)
    return slopes


def charge(residual: Vector, x: Vector) -> float:
    """The most that ``r'(y - x)`` can be for the points y of the assumption `NEARBY`."""
    reach = np.abs(x)
    return float(np.abs(residual) @ (2.0 * reach + 1e-6 * reach.max(initial=1.0)))
