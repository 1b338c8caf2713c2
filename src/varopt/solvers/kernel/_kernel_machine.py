r"""Kernel machines: a quadratic in the coefficients of kernel functions, and a term a sample.

    f(beta, b) = 1/2 beta'K beta + sum_n w_n rho(a_n (K_n beta + b) + d_n)

rho convex and piecewise linear. At the optimum ``beta_n = -w_n a_n u_n`` with a subgradient ``u_n`` of rho, so a sample
away from every kink has a coefficient that is known ([SB12], section 3: where the bound is linear, the Newton system
decouples). Only the samples that rest on a kink form a system of equations, and only columns of samples with
``beta_n != 0`` are ever computed. From a feasible start, such as an SMO code gives (Platt, 1998), this finishes exactly
and certifies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import cholesky
from varopt.solvers._method import Check, State
from varopt.solvers.finish import box_by_active_set, box_by_interior_point
from varopt.terms import PiecewisePolynomial

__all__ = ["KernelProblem", "bordered", "solve_kernel"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

_ACTIVE_SET_SAMPLES = 400  # samples up to which the programme goes to the active set
_KERNEL_ENTRY_OPERATIONS = 100.0  # operations that an entry of the kernel takes
_KERNEL_ENTRIES = 1 << 21  # entries of the kernel matrix computed at a time
_KEPT_ENTRIES = 1 << 23  # and kept
_FINISH_ROUNDS = 40
# Share of its range below which a multiplier is small, and how far it keeps inside.
_SMALL_MULTIPLIER, _MULTIPLIER_INSIDE = 0.05, 5e-16
_ROUNDS_TO_STAY = 6  # rounds after which samples that were solved for stay so


@dataclass(frozen=True)
class KernelProblem:
    """The problem; ``block(rows, columns)`` is the kernel between the samples of two index arrays."""

    block: Callable[[Index, Index], Vector]
    term: PiecewisePolynomial
    scale: Vector  # a, nowhere zero
    offset: Vector  # d
    weights: Vector  # w, positive

    @property
    def size(self) -> int:
        """Number of samples."""
        return int(self.scale.size)

    def take(self, index: Index, times: float = 1.0) -> KernelProblem:
        """Some of the samples, with their weights multiplied."""
        return KernelProblem(
            lambda rows, columns: self.block(index[rows], index[columns]),
            self.term.take(index), self.scale[index], self.offset[index], times * self.weights[index],
        )  # fmt: skip

    def positions(self, values: Vector, b: float) -> Vector:
        """The argument of the term at values of ``K beta``."""
        return np.asarray(self.scale * (values + b) + self.offset)

    def coefficients(self, gradients: Any) -> Vector:
        """``beta`` that belongs to gradients of the term."""
        return np.asarray(-self.weights * self.scale * gradients)

    def product(self, rows: Index, columns: Index, coefficients: Vector) -> Vector:
        """``K[rows, columns] coefficients``, a part of the rows at a time."""
        total = np.zeros(rows.size)
        step = max(1, _KERNEL_ENTRIES // max(columns.size, 1))
        for start in range(0, rows.size if columns.size else 0, step):
            part = slice(start, start + step)
            total[part] = self.block(rows[part], columns) @ coefficients
        return total


@dataclass(frozen=True)
class KernelPoint:
    """A point: ``K beta`` at every sample, the intercept, and the coefficients."""

    values: Vector
    b: float
    beta: Vector


def solve_kernel(problem: KernelProblem, beta: Vector, b: float, state: State, tol: float, check: Check) -> None:
    """Minimise to a certified gap from coefficients that are feasible: within their intervals, and adding up to zero.

    Each round solves exactly for the samples that rest on a kink or whose coefficient does not fit where they lie, with
    all others as they are: the dual value never falls. The x of `state` holds the coefficients and then the intercept.

    Costs the kernel between all samples and those with a coefficient, once, and factorisations of the order of the
    samples that rest on a kink; memory is the square of their number.
    """
    kept = _KeptColumns(problem, beta)
    machine = KernelPoint(kept.product(np.flatnonzero(beta), beta[beta != 0.0]), b, beta)
    live = np.zeros(problem.size, dtype=bool)
    for count in range(_FINISH_ROUNDS):
        _show(problem, machine, state)
        state.record()
        check(state)
        if state.reached(tol):
            return
        wanted = _inside(problem, machine.beta) | _left(problem, machine)
        live = live | wanted if count > _ROUNDS_TO_STAY else wanted
        index = np.flatnonzero(live)
        if not index.size:
            return
        tick(_KERNEL_ENTRY_OPERATIONS * float(index.size) * (index.size + problem.size))
        part, kernel, own = problem.take(index), kept.among(index), machine.beta[index]
        outside = machine.values[index] - kernel @ own
        z = part.positions(machine.values[index], machine.b)
        found, b = _rest(part, kernel, outside, own, z)
        changed = np.flatnonzero(found != own)
        if not changed.size and b == machine.b:
            return
        beta = machine.beta.copy()
        beta[index] = found
        values = machine.values + kept.product(index[changed], (found - own)[changed])
        machine = KernelPoint(values, b, beta)
        state.steps += 1


class _KeptColumns:
    """The kernel between all samples and some: those whose coefficients are to be solved for are asked for again.

    All that have a coefficient, where these are computed at a time anyway.
    """

    def __init__(self, problem: KernelProblem, beta: Vector) -> None:
        columns = np.flatnonzero(beta)
        if problem.size * columns.size > _KERNEL_ENTRIES:
            columns = np.flatnonzero(_inside(problem, beta))[: _KEPT_ENTRIES // problem.size]
        self.problem, self.every = problem, np.arange(problem.size)
        self.matrix = problem.block(self.every, columns) if columns.size else np.zeros((problem.size, 0))
        self.place = np.full(problem.size, -1)
        self.place[columns] = np.arange(columns.size)

    def product(self, columns: Index, coefficients: Vector) -> Vector:
        """``K[:, columns] coefficients``."""
        known, full = self.place[columns] >= 0, np.zeros(self.matrix.shape[1])
        full[self.place[columns[known]]] = coefficients[known]
        return self.matrix @ full + self.problem.product(self.every, columns[~known], coefficients[~known])

    def among(self, index: Index) -> Vector:
        """The kernel among some of the samples."""
        if np.any(self.place[index] < 0):
            return self.problem.block(index, index)
        return np.asarray(self.matrix[np.ix_(index, self.place[index])])


def _inside(problem: KernelProblem, beta: Vector) -> Mask:
    """Samples whose coefficient lies strictly between two gradients: they rest on a kink."""
    ends = problem.coefficients(1.0)[:, None] * _piece_gradients(problem)
    return np.asarray(np.min(np.abs(beta[:, None] - ends), axis=1) > _margin(beta))


def _margin(beta: Vector) -> float:
    """What counts as rounding in a coefficient."""
    return 1e-10 * float(np.abs(beta).max(initial=0.0))


def _left(problem: KernelProblem, machine: KernelPoint) -> Mask:
    """Samples whose coefficient is not a subgradient where they lie."""
    z = problem.positions(machine.values, machine.b)
    u = -machine.beta / (problem.weights * problem.scale)
    low, high = problem.term.subdifferential(z)
    margin = _margin(machine.beta) / (problem.weights * np.abs(problem.scale))
    return np.asarray((u < low - margin) | (u > high + margin))


def _show(problem: KernelProblem, machine: KernelPoint, state: State) -> None:
    """Value and dual gap: the Fenchel-Young gaps of the terms.

    The coefficients have to balance; what rounding leaves is charged with an intercept of twice the size.
    """
    term, beta, b = problem.term, machine.beta, machine.b
    z = problem.positions(machine.values, b)
    u = np.clip(-beta / (problem.weights * problem.scale), *term.subgradient_range)
    young = np.maximum(term.value(z) + term.conjugate(u) - u * z, 0.0)
    value = 0.5 * float(beta @ machine.values) + float(problem.weights @ term.value(z))
    charge = float(np.abs(beta - problem.coefficients(u)) @ np.abs(machine.values + b)) + 2.0 * abs(b * beta.sum())
    state.see(np.append(beta, b), value, float(problem.weights @ young) + charge)


def _rest(part: KernelProblem, kernel: Vector, outside: Vector, beta: Vector, z: Vector) -> tuple[Vector, float]:
    """The optimum of some samples, each on the kink it is nearest to or in a piece beside it: coefficients, intercept.

    `outside` is the value there of all other samples' function; the sum of the coefficients stays what it is.
    """
    kinks = _kinks(part, beta, z)
    for precise in (True, False):
        found = _settle(part, kernel, outside, float(beta.sum()), kinks, beta)
        if found is not None:
            return found
        if precise:  # the guess of who rests was too far off: a method that needs none
            knot, high, base, other = kinks
            linear = knot - part.offset - part.scale * (kernel @ base + outside)
            inner, total = part.scale[:, None] * kernel * part.scale, float((beta - base).sum())
            v = None
            if part.size <= _ACTIVE_SET_SAMPLES:
                v = box_by_active_set(inner, linear, -part.scale[None, :], np.array([total]), np.zeros_like(high), high)
            if v is None:
                v, _ = box_by_interior_point(inner, linear, high, -part.scale, total)
            beta = np.clip(base - part.scale * v, np.minimum(base, other), np.maximum(base, other))
    return beta, _intercept(part, kernel @ beta + outside, kinks, beta)


def _intercept(part: KernelProblem, values: Vector, kinks: tuple[Vector, ...], beta: Vector) -> float:
    """The intercept that puts the samples at rest on their kinks, as well as one number can."""
    knot, high, base, other = kinks
    inside = np.minimum(np.abs(base - beta), np.abs(other - beta)) / np.abs(high * part.scale)
    index = np.argsort(inside)[-5:]
    return float(np.median(((knot - part.offset) / part.scale - values)[index]))


def _settle(
    part: KernelProblem, kernel: Vector, outside: Vector, total: float, kinks: tuple[Vector, ...], beta: Vector
) -> tuple[Vector, float] | None:
    """An active set from the samples that rest in the guess; None where it does not settle."""
    knot, high, base, other = kinks
    low, most = np.minimum(base, other), np.maximum(base, other)
    margin = np.minimum(1e-6 * high, 1e4 * _margin(beta))
    resting, right = (beta > low + margin) & (beta < most - margin), np.abs(beta - other) < np.abs(beta - base)
    # Where a weight is far larger than what it takes, rounding beyond the kink would cost as much: it stays inside.
    near = np.where(right, other, base)
    rounding = _MULTIPLIER_INSIDE * (1.0 + np.abs(knot) + np.abs(outside) + np.abs(kernel) @ np.abs(beta))
    inside = rounding * np.where(right, 1.0, -1.0) * (np.abs(beta - near) < _SMALL_MULTIPLIER * high)
    for _ in range(_FINISH_ROUNDS):
        rest, fixed = np.flatnonzero(resting), np.flatnonzero(~resting)
        tick(float(rest.size) ** 3 / 3.0)
        exact = np.where(right, other, base)
        target = (knot + inside - part.offset)[rest] / part.scale[rest] - outside[rest]
        target -= kernel[np.ix_(rest, fixed)] @ exact[fixed]
        found = bordered(kernel[np.ix_(rest, rest)], target, total - float(exact[fixed].sum()), beta[rest])
        if found is None:
            return None
        exact[rest], b = found
        z = part.positions(kernel @ exact + outside, b)
        gone = resting & ((exact < low - 1e-3 * margin) | (exact > most + 1e-3 * margin))
        off = np.abs(z - knot) > 1e-10 * (1.0 + np.abs(z).max()) + 8.0 * rounding
        passed = ~resting & ((z >= knot) != right) & off
        slipped = resting & ~gone & off  # more rest than the rank of K allows
        if not (gone.any() or passed.any() or slipped.any()):
            return np.clip(exact, low, most), b
        beyond = np.abs(exact - other) < np.abs(exact - base)
        right = np.where(gone, beyond, np.where(slipped, z >= knot, right))
        resting = (resting & ~gone & ~slipped) | passed
    return None


def bordered(matrix: Vector, target: Vector, total: float, guess: Vector) -> tuple[Vector, float] | None:
    """``K x + b = target`` with ``sum x = total``, by proximal steps from the guess where K is singular."""
    if not target.size:
        return None
    ridge = 1e-11 * float(np.trace(matrix)) / target.size
    try:
        factor = cholesky(matrix + ridge * np.eye(target.size), overwrite=True)
    except np.linalg.LinAlgError:
        return None
    ones = scipy.linalg.cho_solve(factor, np.ones(target.size), check_finite=False)
    if not ones.sum() > 0.0:
        return None
    x, b = guess, 0.0
    for _ in range(4):
        y = scipy.linalg.cho_solve(factor, target + ridge * x, check_finite=False)
        b = (float(y.sum()) - total) / float(ones.sum())
        x = y - b * ones
    return x, b


def _kinks(problem: KernelProblem, beta: Vector, z: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """For each sample a kink: its knot, the range of its multiplier, and the coefficients before and beyond it.

    The kink whose gradients enclose the sample's own, or the nearest where that is one of the term's gradients.
    """
    every, gradients = np.arange(problem.size), _piece_gradients(problem)
    knots = np.stack([np.broadcast_to(np.asarray(t, dtype=np.float64), z.shape) for t in problem.term.knots], axis=1)
    u = (-beta / (problem.weights * problem.scale))[:, None]
    margin = (_margin(beta) / (problem.weights * np.abs(problem.scale)))[:, None]
    encloses = (gradients[:, :-1] + margin < u) & (u < gradients[:, 1:] - margin)
    at = np.where(encloses.any(axis=1), encloses.argmax(axis=1), np.abs(z[:, None] - knots).argmin(axis=1))
    low, high = gradients[every, at], gradients[every, at + 1]
    return knots[every, at], problem.weights * (high - low), problem.coefficients(low), problem.coefficients(high)


def _piece_gradients(problem: KernelProblem) -> Vector:
    """The gradient of each linear piece, for each sample."""
    parts = [p[1] if len(p) > 1 else 0.0 for p in problem.term.pieces]
    return np.stack([np.broadcast_to(np.asarray(p, dtype=np.float64), (problem.size,)) for p in parts], axis=1)
