"""The bracket of a kernel machine with all rounding charged, and with as many digits as that takes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, deadline
from varopt._verified import PAIR_SHARE, SLACK, Pair, two_sum
from varopt.learn._kernel_rounding import KernelValues
from varopt.solvers import State
from varopt.solvers.kernel import (
    Enclosed,
    KernelProblem,
    balanced_coefficients,
    best_intercept,
    is_beyond,
    proved_bracket,
    refinement,
)

__all__ = ["Machine", "prove"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_SEMIDEFINITE = "the kernel is positive semidefinite"
_REFINEMENTS = 12
_SLOW = 0.5  # share of a gap that a refinement should leave less than
_ROUNDED_POINT = 1e-6  # share of an objective that rounding of its coefficients to doubles may cost
_SLOW_REFINEMENTS = 3  # that may leave more


@dataclass(frozen=True)
class Machine:
    """One machine between samples: a pair of classes, or a regression."""

    problem: KernelProblem
    samples: Index
    beta: Vector
    b: float
    offset: Pair  # what the offsets of the problem are rounded from
    shift: float = 0.0  # what was taken from the targets, and is missing in the intercept
    rounded: float = 0.0  # share of the weights of the problem that they are off by at most


@dataclass
class _Proof:
    """The closest bounds that were proved, and the point of the upper one."""

    machine: Machine
    lower: float = -np.inf
    upper: float = np.inf
    point: tuple[Enclosed, Pair, float] | None = None

    def look(self, at: Enclosed, beta: Pair, b: float, distance: float = 0.0) -> float:
        """Narrow the bracket by what values of ``K beta`` prove; the upper bound of the point."""
        machine = self.machine
        lower, upper = proved_bracket(machine.problem, at, machine.offset, beta, b, distance)
        # Weights that are a share more, or less, make the optimum no more than that share more, or less.
        self.lower = max(self.lower, lower * (1.0 - machine.rounded))
        upper *= 1.0 + machine.rounded
        if upper < self.upper:
            self.upper, self.point = upper, (at, beta, b)
        return upper

    def closed(self, tol: float, unit: float) -> bool:
        """Whether the bounds are as close as is asked."""
        return self.point is not None and self.upper - self.lower <= tol * max(unit, abs(self.upper))


def prove(values: KernelValues, machine: Machine, state: State, tol: float, seconds: float | None) -> None:
    """Put a bracket that is proved in place of that of a fit, and a better point where one is needed for it.

    That it is proved in double precision takes the kernel between all samples and the support vectors once more. Where
    that leaves more than the tolerance, the coefficients are refined by values of twice the digits, while time is left.
    """
    # What is within the tolerance of its own value has to stay so.
    unit = 0.0 if state.gap <= tol * abs(state.upper) else state.unit
    state.lower, state.assumption = -np.inf, "" if values.is_semidefinite else _SEMIDEFINITE
    proof, problem, b = _Proof(machine), machine.problem, float(state.x[-1])
    balanced = balanced_coefficients(problem, state.x[:-1])
    beta = state.x[:-1] if balanced is None else balanced
    at = values.of(machine.samples, beta)
    if at is not None:
        proof.look(at, Pair.of(beta), b)
    with contextlib.suppress(TimeUp, KeyboardInterrupt), deadline(seconds):
        _refine(values, proof, at, beta, b, tol, unit)
    if proof.point is None:
        return
    if values.is_given and proof.closed(tol, unit):
        nearest = _Proof(machine)
        nearest.look(*proof.point, values.distance)
        if nearest.closed(tol, unit):
            proof, state.assumption = nearest, ""
    if proof.point is not None:
        _, coefficients, b = proof.point
        state.x, state.lower, state.upper = np.append(coefficients.high, b), proof.lower, proof.upper


def _refine(
    values: KernelValues, proof: _Proof, at: Enclosed | None, beta: Vector, b: float, tol: float, unit: float
) -> None:
    """Refine a point until its bracket is closed, or hardly narrows."""
    machine, gap, slow, finer = proof.machine, np.inf, 0, np.inf
    problem, offset, samples = machine.problem, machine.offset, machine.samples
    for _ in range(_REFINEMENTS):
        if proof.closed(tol, unit):
            return
        beyond = np.zeros(problem.size, dtype=bool) if at is None else is_beyond(problem, at, offset, b)
        rows = np.flatnonzero(~beyond | (beta != 0.0))
        if (found := values.precisely(samples, rows, beta)) is None:
            return
        at = found if at is None else at.replaced(rows, found)
        b = best_intercept(problem, at, offset, b)
        if (
            proof.look(at, Pair.of(beta), b) <= (1.0 + _ROUNDED_POINT) * finer < np.inf
        ):  # the same point, rounded to doubles
            proof.upper, proof.point = finer, (at, Pair.of(beta), b)
        if proof.closed(tol, unit) or (step := refinement(problem, at, offset, beta, b)) is None:
            return
        last, gap = gap, proof.upper - proof.lower
        if not gap < _SLOW * last:  # it may be that doubles have no more digits
            slow, finer = slow + 1, min(proof.upper, _unrounded(values, machine, at, beta, step, b))
        balanced = balanced_coefficients(problem, beta + step)
        if slow == _SLOW_REFINEMENTS or balanced is None:
            return
        beta = balanced
        at = values.of(samples, beta)


def _unrounded(values: KernelValues, machine: Machine, at: Enclosed, beta: Vector, step: Vector, b: float) -> float:
    """An upper bound of the value of coefficients that are sums of two doubles, the second of which is a step."""
    changed = values.of(machine.samples, step)
    if changed is None:
        return np.inf
    sizes = np.abs(at.value.high) + np.abs(changed.value.high)
    radius = (at.radius + changed.radius + PAIR_SHARE * sizes) * SLACK
    there, point = Enclosed(at.value.plus(changed.value), radius), Pair(*two_sum(beta, step))
    b = best_intercept(machine.problem, there, machine.offset, b)
    return _Proof(machine).look(there, point, b)
