"""Runs over bits and choices subject to linear constraints."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._display import Progress
from varopt._domains import as_finite, as_generator
from varopt._threads import one_thread
from varopt.certificates import Certificate, Exhaustive, Infeasible, NoCertificate, NoState, Relaxation, floor
from varopt.composite import NotComposite, composite
from varopt.model import Constraint, Objective, Variable, as_objective, ordered, quad_form, slices, split
from varopt.model.blocks import AffineBlock
from varopt.optimize._composite import STOPPED, stopped, watch
from varopt.optimize._discrete import ends
from varopt.optimize._result import Result, Status, final_line
from varopt.optimize.constrained import minimize_constrained
from varopt.solvers import State
from varopt.solvers.discrete import energy_of
from varopt.solvers.discrete.constrained import (
    branched,
    convexified,
    enumerated,
    limits_of,
    mixed_integer,
    plain_points,
    propagated,
    searched,
)

__all__ = ["minimize_constrained_bits"]

Vector = NDArray[np.float64]

_PLAIN_SHARE = 0.2  # of a time limit, for points that cost little
_RELAXATION_SHARE = 0.5  # of a time limit, for the relaxation that comes before the search
_SEARCH_SHARE = 0.1  # share of them that a search takes before branching
_LEAST_HIGHS_SECONDS = 0.05  # seconds below which HiGHS is not asked
_WAY_SECONDS = 4.0  # that each way may take where no time limit is given
_HIGHS_TOLERANCE = 1e-6  # to which it works
_BY_HIGHS = "HiGHS, which computes in floating point, is right to its tolerance of 1e-6"


def minimize_constrained_bits(
    objective: Objective, constraints: tuple[Constraint, ...], *, tol: float, method: Any, x0: Any, callback: Any,
    progress: bool, time_limit: float | None, target: float | None = None, seed: Any = 0, device: Any = None,
) -> Result:  # fmt: skip
    """Minimise a polynomial in bits and choices subject to linear constraints; see `varopt.minimize`."""
    if method != "auto" or device is not None:
        raise ValueError("method and device do not apply to discrete variables with constraints.")
    variables = ordered([*objective.variables, *(v for c in constraints for v in c.variables)])
    start = None
    if x0 is not None:
        point = split(variables, (x0,))
        start = np.concatenate([as_finite("x0", point[v]).astype(np.float64) for v in variables])
    run = _Run(objective, constraints, variables, tol, math.inf if time_limit is None else float(time_limit), target)
    line = Progress(progress)
    watched = watch(line, callback, time_limit)
    with one_thread():
        try:
            status = run.solve(as_generator(seed), watched, start)
        except STOPPED as reason:
            status = stopped(reason)
    result = run.conclude(status)
    line.end(final_line(result))
    return result


class _Enough(Exception):
    """The search has found what was wanted, or had its time."""


class _Run:
    def __init__(
        self, objective: Objective, constraints: tuple[Constraint, ...], variables: tuple[Variable, ...], tol: float,
        limit: float, target: float | None,
    ) -> None:  # fmt: skip
        self.started = time.perf_counter()
        self.variables, self.constraints, self.limit = variables, constraints, limit
        self.target = -math.inf if target is None else float(target)
        silent = [AffineBlock(v.summed().scale(0.0)) for v in variables if v not in objective.variables]
        self.objective = Objective([*objective.blocks, *silent]) if silent else objective
        self.energy, self.tol = energy_of(self.objective), tol
        self.limits = limits_of(constraints, variables)
        self.state = State(np.zeros(self.energy.size), sigma=0.0, proof=Relaxation)
        self.proof: Any = None
        self.assumption, self.infeasible = "", False
        self.kind: type[Certificate] = Relaxation

    def see(self, x: Vector, value: float) -> None:
        """A better point that satisfies all constraints."""
        if value < self.state.upper:
            self.state.x, self.state.upper = x, value
            self.state.record()

    def solve(self, rng: np.random.Generator, check: Any, start: Vector | None) -> Status | None:
        """Look at all states where they are few; else search, and ask for a bound."""
        state = self.state
        exhaustive = enumerated(self.energy, self.limits)
        if exhaustive is not None:
            state.runs(["enumeration"])
            x, value = exhaustive
            if x is None:
                return Status.INFEASIBLE
            self.see(x, value)
            state.lower, self.kind = value - self.energy.value_rounding, Exhaustive
            return Status.PROVED
        state.lower = self._floor()
        search = partial(searched, self.energy, self.limits, rng, self.see)
        points = partial(plain_points, self.energy, self.limits, self.see)
        self._until(state.elapsed + _PLAIN_SHARE * (self.limit - state.elapsed), check, points)
        state.runs(["linear-relaxation"])
        if self._relaxed() or self.limits.is_indivisible:
            return Status.INFEASIBLE
        if start is None and math.isfinite(state.upper):
            start = state.x
        if self._open():  # a good point first: the less is left to branch on
            state.runs(["tabu"])
            self._until(
                state.elapsed + _SEARCH_SHARE * min(_WAY_SECONDS, self.limit), check, lambda c: search(c, start)
            )
        self._until(state.elapsed + min(_WAY_SECONDS, 0.5 * (self.limit - state.elapsed)), check, self._branched)
        if not self.infeasible and math.isinf(state.upper):
            self._until(state.elapsed + min(_WAY_SECONDS, 0.5 * (self.limit - state.elapsed)), check, self._propagated)
        if self.infeasible:
            return Status.INFEASIBLE
        if self._open():
            self._convexified()
        if self._open():
            self._by_highs()
        if self._open():
            last = state.x if math.isfinite(state.upper) else start
            end = state.elapsed + (_WAY_SECONDS if math.isinf(self.limit) else math.inf)
            self._until(end, check, lambda c: search(c, last))
        if state.upper <= self.target:
            return Status.TARGET
        if self._closed():
            return Status.ASSUMED if self.assumption else Status.PROVED
        return Status.SETTLED if math.isfinite(state.upper) else Status.NOT_FOUND

    def _open(self) -> bool:
        return not (self._closed() or self.state.upper <= self.target)

    def _until(self, end: float, check: Any, way: Callable[[Callable[[], None]], Any]) -> None:
        """Search, for as long as it may take."""
        with contextlib.suppress(_Enough):
            way(lambda: self._checked(check, end))

    def _branched(self, check: Callable[[], None]) -> None:
        """All that is below the best known value, where that is little; and a bound."""
        if not self._open():
            return
        self.state.runs(["branch-and-bound"])
        done = branched(self.energy, self.limits, self.state.upper, self.see, self._bounded, check)
        self.infeasible = done and not math.isfinite(self.state.upper)

    def _propagated(self, check: Callable[[], None]) -> None:
        """A point that satisfies the constraints, where the search has found none; or that there is none."""
        self.state.runs(["propagation"])
        found = propagated(self.energy, self.limits, check)
        self.infeasible = found.complete
        if found.x is not None:
            self.see(found.x, float(self.energy.value(found.x)))

    def _bounded(self, lower: float) -> None:
        self.state.lower = max(self.state.lower, min(self.energy.round_up(lower), self.state.upper))

    def _checked(self, check: Any, until: float) -> None:
        check(self.state)
        if self.state.upper <= self.target or self._closed() or self.state.elapsed > until:
            raise _Enough

    def _closed(self) -> bool:
        lower, upper = self.state.lower, self.state.upper
        return math.isfinite(upper) and upper - lower <= self.energy.tolerance(self.tol, upper)

    def _by_highs(self) -> None:
        """A point and a bound by branch and bound, for as long as it may take."""
        seconds = min(_WAY_SECONDS, self.limit - self.state.elapsed)
        found = mixed_integer(self.energy, self.limits, seconds) if seconds > _LEAST_HIGHS_SECONDS else None
        if found is None:
            return
        self.state.runs(["mixed-integer"])
        if found.x is not None and not self.limits.excess(found.x).any():
            self.see(found.x, float(self.energy.value(found.x)))
        if not math.isfinite(found.lower):
            return
        upper, rounding = self.state.upper, _HIGHS_TOLERANCE * max(self.energy.unit, abs(found.lower))
        if found.lower > upper + rounding:  # which the known point refutes
            return
        lower = upper if found.lower >= upper - rounding else self.energy.round_up(found.lower - rounding)
        if lower > self.state.lower:
            self.state.lower, self.assumption = min(lower, upper), _BY_HIGHS

    def _floor(self) -> float:
        """What is known without a run: squares are not negative, nor is the sum less than its negative coefficients."""
        energy = self.energy
        try:
            known = float(floor(composite(self.objective, multiplied=False)))
        except NotComposite:
            known = -math.inf
        known = max(known, energy.least_above_floor)
        if energy.products:
            return known
        quadratic = energy.quadratic.data if sp.issparse(energy.quadratic) else energy.quadratic
        below = float(np.minimum(energy.linear, 0.0).sum()) + 0.5 * float(np.minimum(quadratic, 0.0).sum())
        return max(known, energy.constant + below - 1e-12 * (abs(energy.constant) - below))

    def _relaxed(self) -> bool:
        """Whether not even numbers between zero and one satisfy the constraints, with proof; else a bound by them.

        The bound is that of a linear energy: of others only what contradicts itself is asked.
        """
        x, energy = Variable(self.energy.size), self.energy
        linear = energy.degree <= 1
        cost = as_objective(energy.linear @ x + energy.constant if linear else 0.0)
        seconds = min(_WAY_SECONDS, max(_RELAXATION_SHARE * self.limit, 0.01))
        result = self._in_real_numbers(cost, x, seconds)
        self.proof = result.proof if result.status is Status.INFEASIBLE else None
        if linear and math.isfinite(result.lower) and not result.certificate.assumption:
            self.state.lower = max(self.state.lower, energy.round_up(result.lower))
        return self.proof is not None

    def _convexified(self) -> None:
        """A bound by real numbers between zero and one, of a convex function that is the energy where they are bits."""
        seconds = min(_WAY_SECONDS, self.limit - self.state.elapsed)
        form = convexified(self.energy, self.limits) if seconds > _LEAST_HIGHS_SECONDS else None
        if form is None:
            return
        self.state.runs(["convex-relaxation"])
        x = Variable(self.energy.size)
        cost = quad_form(x, form.matrix) + form.vector @ x + form.constant
        result = self._in_real_numbers(as_objective(cost), x, seconds)
        if math.isfinite(result.lower) and not result.certificate.assumption:
            self._bounded(result.lower - form.rounding)

    def _in_real_numbers(self, cost: Objective, x: Variable, seconds: float) -> Result:
        """The minimum over real numbers between zero and one; an interrupt of it is one of the whole."""
        result = minimize_constrained(cost, self._relaxation(x), time_limit=seconds)
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return result

    def _relaxation(self, x: Variable) -> list[Constraint]:
        """The constraints for real numbers between zero and one."""
        relaxed = [x >= 0.0, x <= 1.0]
        for rows, equal in ((self.limits.equal, True), (~self.limits.equal, False)):
            if rows.any():
                side = self.limits.matrix[np.flatnonzero(rows)] @ x
                bound = -self.limits.offset[rows]
                relaxed.append(side == bound if equal else side <= bound)
        widths = np.bincount(self.energy.site)
        if np.any(widths > 1):
            sites = sp.csr_array((np.ones(x.size), (self.energy.site, np.arange(x.size))))
            relaxed.append(sites[np.flatnonzero(widths > 1)] @ x == 1.0)
        return relaxed

    def conclude(self, status: Status | None) -> Result:
        """The result."""
        state, infeasible = self.state, status is Status.INFEASIBLE
        value, lower, upper = ends(self.energy, state)
        certificate: Certificate
        if infeasible:
            certificate = (NoState if self.proof is None else Infeasible)(math.inf, math.inf)
        elif math.isfinite(lower):
            certificate = self.kind(lower, upper, self.assumption)
        else:
            certificate = NoCertificate(lower, upper)
        names = ("time", "steps", "sigma", "upper", "lower")
        history = {key: np.array([row[key] for row in state.history]) for key in names}
        x = state.x
        return Result(
            x, value, certificate, status or Status.SETTLED, " > ".join(state.ran), 0.0,
            state.steps, state.elapsed, history, slices(self.variables), 0, state, self.limits.violation(x), {},
            self.proof,
        )  # fmt: skip
