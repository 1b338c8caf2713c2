"""The run: weights, the penalised problem, weights that were too small, and what cannot be satisfied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, deadline
from varopt._display import Progress
from varopt.certificates import (
    DualGap,
    Infeasible,
    NoCertificate,
    Verified,
    Verifier,
    enclosed_at,
    falls_for_ever,
    floor,
    never_broken,
    rests,
    verified,
)
from varopt.composite import Composite, NotComposite
from varopt.model import Constraint, Objective, flattened, unflatten
from varopt.model.maps import latest_products
from varopt.optimize._composite import (
    MORE_ENTRIES,
    STOPPED,
    Refused,
    chosen,
    conclude,
    concluded,
    is_closed,
    left_to_prove,
    start,
    stopped,
    threads,
    watch,
)
from varopt.optimize._result import Result, Status, final_line
from varopt.optimize.constrained._exactly import solved_exactly
from varopt.optimize.constrained._multipliers import apart, are_multipliers, of_method
from varopt.optimize.constrained._nearest import contradicted
from varopt.optimize.constrained._one_side import on_one_side
from varopt.optimize.constrained._penalty import Penalised, reach
from varopt.optimize.constrained._proofs import Contradiction, Ray
from varopt.optimize.constrained._repair import repaired
from varopt.solvers import Auto, State, Way, is_small, settle

__all__ = ["minimize_constrained"]

Vector = NDArray[np.float64]
Check = Callable[[State], None]

_WEIGHT_ROUNDS = 7  # in which weights that were too small are raised,
_WEIGHTS_RAISED = 100.0  # by this
_WEIGHT_ROOM = 2.0  # times its multiplier, what a weight is in the proof: subgradients have room on either side
_LEAST_SHARE = 1e-3  # of the weight of the run, which that of the proof is at least
_SHARED_WEIGHTS = 1000  # rows that may share a weight in the proof, a power of two, which costs them nothing
# Share of the value that a point may lose by being moved onto its constraints, where weights suffice.
_MOST_LOST_BY_MOVING = 1e-3
_ROUNDED = 1e-10  # relative error of a value beyond which its bound is told in place of it
_CANCELLED_UNIT = 2.0**-20  # share of the sizes of what cancels that counts as their unit: room for its rounding
_BOUND = 1e-6  # share of its weight within which a multiplier is at it


@np.errstate(all="ignore")  # numbers that are not finite prove nothing, and are no news to a user
def minimize_constrained(
    objective: Objective, constraints: Sequence[Constraint], *, tol: float = 1e-9, method: str | Way | Auto = "auto",
    x0: Any = None, resume: State | Result | None = None, callback: Any = None, progress: bool = False,
    time_limit: float | None = None,
) -> Result:  # fmt: skip
    """Minimise a composite objective subject to affine constraints; see `varopt.minimize`."""
    penalised = Penalised(objective, constraints)
    try:
        weights = penalised.first_weights()
        problem = penalised.problem(weights)
        solver = chosen(method, problem)
    except (NotComposite, Refused) as refusal:
        raise NotComposite(f"{refusal} See f.explain().") from None
    state = start(penalised.objective(weights), x0, resume)
    line = Progress(progress)
    before = state.elapsed
    check = watch(line, callback, time_limit, before)
    run = _Run(penalised, solver, tol, check, state, weights, problem)
    with threads(problem), latest_products():
        try:
            with deadline(time_limit):
                outcome = run.solve()
        except STOPPED as reason:
            outcome = stopped(reason)
            settle(run.problem, run.state, left_to_prove(time_limit, run.state.elapsed - before, outcome))
        result = concluded(
            run.conclude, outcome, lambda how: left_to_prove(time_limit, run.state.elapsed - before, how)
        )
    line.end(final_line(result))
    return result


@dataclass
class _Run:
    """One run: what is known so far, and of which weights."""

    penalised: Penalised
    solver: Auto
    tol: float
    check: Check
    state: State
    weights: list[Vector]
    problem: Composite
    proof: Contradiction | Ray | None = None
    lower: float = -math.inf  # the best bound of earlier rounds, which holds for any weights
    ended: Status | None = None  # what has stopped it

    def __post_init__(self) -> None:
        self.state.unit = self.penalised.own.unit

    # -- The rounds ---------------------------------------------------------------------------------------------------

    def solve(self) -> Status | None:
        """Raise weights until the constraints hold; the status, where the bracket is not all there is to say."""
        if self._falls():
            return self._unbounded()
        slow = bool(self.problem.groups or self.problem.not_convex)
        feasible = self.penalised.holds(self.state.x)
        if slow and not feasible:  # what takes long is not tried in vain
            if self._contradicts():
                return Status.INFEASIBLE
            feasible = True
        for k in range(_WEIGHT_ROUNDS):
            self._descend()
            if self._settles():
                return None
            if not feasible and self._contradicts():
                return Status.INFEASIBLE
            feasible = True
            if self.state.falls and self.problem.not_convex:
                if self._recedes():
                    return Status.UNBOUNDED
                self.penalised.add_squares()  # f may fall as a square does, which no line holds back
            if k + 1 < _WEIGHT_ROUNDS:
                self._raise_weights()
        return None if self.problem.not_convex and self.penalised.holds(self.state.x) else Status.NOT_FOUND

    def _contradicts(self) -> bool:
        """Whether no point satisfies all constraints; else one that does is where to go on."""
        self.proof, nearest = self._contradiction()
        if self.proof is not None or not np.all(np.isfinite(self.state.x)) or not math.isfinite(self.state.upper):
            self.state.x = nearest
        return self.proof is not None

    def _descend(self) -> None:
        """Minimise the penalised objective."""
        problem, state = self.problem, self.state
        if rests(problem, state.x):  # zero is a subgradient of all there is
            dual = [np.zeros(r.count) for r in problem.rows] if not problem.groups else None
            state.see(state.x, problem.value(state.x), 0.0, dual=dual)
            state.record()
        else:
            self.solver.solve(problem, state, self.tol, self.check)
        self.lower = max(self.lower, state.lower) if not state.assumption else self.lower

    def _settles(self) -> bool:
        """Whether the point, or one that is as good but for the tolerance, satisfies all constraints."""
        state, penalised = self.state, self.penalised
        if state.falls or not np.all(np.isfinite(state.x)):  # weights below the multipliers may let F fall for ever
            return False
        x = repaired(penalised, state.x)
        if not penalised.holds(x):
            return False
        if np.array_equal(x, state.x) and math.isfinite(state.upper):
            return True
        value = self.problem.value(x)
        if value > state.upper + self._inaccuracy():
            return False
        state.x, state.upper = x, value
        return True

    def _inaccuracy(self) -> float:
        """By how much the point may be off without its weights being too small."""
        state, size = self.state, max(self.state.unit, abs(self.state.upper))
        if self.problem.not_convex or self._rests_inside():
            return _MOST_LOST_BY_MOVING * size
        return max(state.allowed(self.tol), 4.0 * state.gap if math.isfinite(state.gap) else 0.0)

    def _rests_inside(self) -> bool:
        """Whether every multiplier is less than its weight: what is missed is then inaccuracy."""
        dual = self._dual()
        return dual is not None and all(bool(np.all(np.abs(u) < 1.0 - _BOUND)) for u in dual)

    def _raise_weights(self) -> None:
        """Of constraints with rows that are missed or whose multipliers are at their weights, else of all.

        All rows of such a constraint: what some cannot bear, their neighbours would have to.
        """
        penalised, x, dual = self.penalised, self.state.x, self._dual()
        finite = bool(np.all(np.isfinite(x))) and math.isfinite(self.state.lower)
        short = [False] * len(self.weights)
        if finite:
            pairs = zip(penalised.excesses(x), penalised.allowed(x), strict=True)
            short = [bool(np.any(missed > allowed)) for missed, allowed in pairs]
            if dual is not None:
                short = [s or bool(np.any(np.abs(u) >= 1.0 - _BOUND)) for s, u in zip(short, dual, strict=True)]
        every = not any(short)
        self.weights = [_WEIGHTS_RAISED * w if s or every else w for s, w in zip(short, self.weights, strict=True)]
        self.problem = penalised.problem(self.weights)
        before = self.state
        for row in before.history:
            row["upper"] = math.inf  # what was reached violates constraints
        kept = finite or (self.problem.not_convex and penalised.holds(x))
        x = before.x if kept else np.zeros_like(before.x)
        self.state = State(
            x, started=before.started, ran=before.ran, history=before.history, steps=before.steps, unit=before.unit,
            evaluations=before.evaluations,
        )  # fmt: skip

    def _dual(self) -> list[Vector] | None:
        """The subgradients of the constraints, where the method tells."""
        dual, count = self.state.dual, len(self.penalised.own.rows)
        mine = list(dual or ())[count : count + len(self.weights)]
        known = [u for u in mine if u is not None]
        return known if len(known) == len(self.weights) else None

    # -- No optimum ---------------------------------------------------------------------------------------------------

    def _falls(self, *most: int) -> bool:
        """Whether f, if of few or at `most` entries, falls for ever along a direction that breaks no constraint."""
        own = self.penalised.own
        if own.not_convex or floor(own) > -math.inf:
            return False
        direction = falls_for_ever(self.penalised.squared(), *most)
        if direction is None:
            return False
        self.proof = Ray(direction, self.penalised.objective(self.weights).slices)
        return True

    def _recedes(self) -> bool:
        """Whether F falls for ever from a point that satisfies the constraints, along a direction that breaks none."""
        state, penalised = self.state, self.penalised
        if state.ray is None or not penalised.holds(state.x):
            return False
        ray = np.ldexp(state.ray, -int(np.frexp(np.abs(state.ray).max())[1]))
        if not never_broken(penalised.rows, [c.is_equality for c in penalised.constraints], ray):
            return False
        self.proof = Ray(ray, penalised.objective(self.weights).slices)
        return True

    def _unbounded(self) -> Status:
        """F falls for ever from any point that satisfies the constraints, if there is one."""
        ray, (self.proof, self.state.x) = self.proof, self._contradiction()
        if self.proof is not None:
            return Status.INFEASIBLE
        if not self.penalised.holds(self.state.x):
            return Status.NOT_FOUND
        self.proof = ray
        return Status.UNBOUNDED

    def _contradiction(self, *, within_rounding: bool = True) -> tuple[Contradiction | None, Vector]:
        """A proof that no point satisfies all constraints, where there is one; and the point that misses them least."""
        tol = min(self.tol, 1e-9)
        return contradicted(self.penalised, self.state, tol, self.check, within_rounding=within_rounding)

    # -- The outcome --------------------------------------------------------------------------------------------------

    def conclude(self, status: Status | None) -> Result:
        """The result, with weights just above the multipliers, for which a proof loses least."""
        if status in (Status.INFEASIBLE, Status.UNBOUNDED):
            return self._without_optimum(status)
        self.ended = status if status in (Status.TIME_LIMIT, Status.INTERRUPTED) else None
        penalised, state = self.penalised, replace(self.state, lower=max(self.state.lower, self.lower))
        if status is None:
            of_a_lasso = on_one_side(penalised, self.weights, self.problem, state, self.tol)
            if of_a_lasso is not None:
                return of_a_lasso
        multipliers = of_method(penalised, self.problem, self.weights, state, self._dual())
        weights = self._closest_weights(multipliers)
        objective, problem = penalised.objective(weights), penalised.problem(weights)
        dual = list(state.dual) if state.dual is not None else None
        if dual is not None:
            first = len(penalised.own.rows)
            dual[first : first + len(weights)] = [y / w for y, w in zip(multipliers, weights, strict=True)]
        state = replace(state, dual=dual, falls=False, objective=objective)
        if not np.all(np.isfinite(state.x)):
            state.upper = math.inf
        elif any(e.any() for e in penalised.excesses(state.x)):  # else it is that of f, whatever the weights
            state.upper = problem.value(state.x)
        method = " > ".join(state.ran) or "none"
        ended = partial(conclude, objective, problem, state, self.tol, method=method, violation=penalised.violation)
        if status is None and dual is not None and math.isfinite(state.upper) and not problem.not_convex:
            claimed = ended(Status.OPTIMAL, proved=False, value=state.upper)
            if (proved := self._proved_apart(claimed, objective, problem, dual, multipliers)) is not None:
                return self._told(proved, dual)
        result = ended(status)
        if result.status is Status.GAP_OPEN and np.all(np.isfinite(result.x)):
            self.state.unit = state.unit = max(state.unit, _CANCELLED_UNIT * reach(penalised.own, result.x))
        closed_by_others = not self._closes(state.lower, state.upper) and self._closes(result.lower, result.upper)
        if closed_by_others or result.status is Status.ASSUMED:  # then rounding may have hidden what balances
            multipliers = self._found_apart(result.x, multipliers)
        finished = self._finished(result, multipliers, partial(verified, objective, state.x, dual))
        unknown = finished.status in (Status.GAP_OPEN, Status.NOT_FOUND) and not problem.not_convex
        return self._told(self._more_digits(finished) if unknown and self.ended is None else finished, dual)

    def _more_digits(self, result: Result) -> Result:
        """The result, or what a longer look finds: a contradiction, no end, the optimum of few variables."""
        x, few, found = self.state.x, is_small(self.problem), result.status is Status.GAP_OPEN
        try:
            if result.violation > 0.0 and (few or found):  # near zero: far out rounding hides what constraints miss
                self.state.x = np.zeros_like(x)
                self.proof, self.state.x = self._contradiction(within_rounding=found)
                if self.proof is not None:
                    return self._without_optimum(Status.INFEASIBLE)
                self.state.x = x
            if found and result.lower == -math.inf and self._falls(MORE_ENTRIES):
                status = self._unbounded()
                return replace(result, status=status) if status is Status.NOT_FOUND else self._without_optimum(status)
            exact = solved_exactly(self.penalised, self.weights, result, self.tol, self.state.unit) if few else None
            return exact or result
        except STOPPED as reason:
            self.state.x = x
            return replace(result, status=stopped(reason)) if found else result

    def _told(self, result: Result, dual: Sequence[Vector | None] | None) -> Result:
        """The result, with multipliers at an optimum that were seen to be such, of it or found apart, else NaN."""
        if result.status not in (Status.OPTIMAL, Status.ASSUMED) or not is_small(self.problem):
            return result
        check = partial(are_multipliers, self.penalised, x=result.x, gap=result.gap)
        try:
            given = [np.ravel(result.multipliers[c]) for c in self.penalised.constraints]
            if check(given, dual=dual):
                return result
            others = self._found_apart(result.x, given)
            if check(others, dual=None):
                return replace(result, multipliers=self.penalised.by_constraint(others))
        except (TimeUp, ValueError):  # pieces beyond degree two
            pass
        unknown = [np.full(w.size, math.nan) for w in self.weights]  # of an optimum they would be false
        return replace(result, multipliers=self.penalised.by_constraint(unknown))

    def _found_apart(self, x: Vector, multipliers: list[Vector]) -> list[Vector]:
        """Multipliers at an optimum that was proved without those of the method; NaN where none are found."""
        weights = [_WEIGHTS_RAISED * w for w in self.weights]  # those of a run that was stopped may be too small
        found = apart(self.penalised, weights, x)
        return multipliers if found is None else found

    def _proved_apart(
        self, result: Result, objective: Objective, problem: Composite, dual: Sequence[Vector | None],
        multipliers: Sequence[Vector],
    ) -> Result | None:  # fmt: skip
        """The result, where f at its point and a lower bound of the penalised objective are within the tolerance.

        The rounding of the penalised objective at the point is that of constraints times their weights, of which f has
        none.
        """
        penalised, x = self.penalised, result.x
        own = flattened(penalised.f.variables, unflatten(tuple(result.slices), x))
        value = float(penalised.f.at(own))
        if penalised.f.assumption or not penalised.holds(x) or not math.isfinite(value):
            return None
        verifier = Verifier(objective, x, problem=problem)
        lower = verifier.lower(dual, value - 0.5 * self.tol * max(self.state.unit, abs(value)))
        upper = self._upper(own, value, x, multipliers, verifier)
        if not self._closes(lower, upper):
            return None
        value = _of_a_point(value, lower, upper)
        bracket = DualGap(min(lower, value), max(upper, value))
        return replace(
            result, fun=value, certificate=bracket, status=Status.OPTIMAL, violation=penalised.violation(x),
            multipliers=self.penalised.by_constraint(multipliers),
        )  # fmt: skip

    def _closest_weights(self, multipliers: Sequence[Vector]) -> list[Vector]:
        """Weights with room for the multipliers: of each row its own where some are missed, else one for all."""
        weights = []
        missed = self.penalised.excesses(self.state.x) if np.all(np.isfinite(self.state.x)) else self.weights
        for y, w, excess in zip(multipliers, self.weights, missed, strict=True):
            own = np.where(np.isnan(y), w, np.maximum(_WEIGHT_ROOM * np.abs(y), _LEAST_SHARE * w))
            shared = y.size >= _SHARED_WEIGHTS and not excess.any()
            weights.append(np.broadcast_to(2.0 ** np.ceil(np.log2(own.max())), own.shape) if shared else own)
        return weights

    def _finished(self, result: Result, multipliers: Sequence[Vector], proof: Callable[[], Verified]) -> Result:
        penalised = self.penalised
        x = repaired(penalised, result.x) if np.all(np.isfinite(result.x)) else result.x  # which was rounded since
        moved = not np.array_equal(x, result.x)
        own = flattened(penalised.f.variables, unflatten(tuple(result.slices), x))
        value, lower, upper, status = float(penalised.f.at(own)), result.lower, result.upper, result.status
        violation = penalised.violation(x)
        if violation > 0.0 and not penalised.holds(x):
            upper = math.inf
            status = self.ended or Status.NOT_FOUND  # of a run that was stopped it is not known what it would find
        else:
            if status is Status.NOT_FOUND and not self.problem.not_convex:
                status = Status.GAP_OPEN  # a point was found all the same
            if moved or violation > 0.0 or status is Status.GAP_OPEN:  # else it is that of F, which is f there
                upper = self._upper(own, value, x, multipliers)
            value = value if result.certificate.assumption else _of_a_point(value, lower, upper)
            upper = max(upper, value)
            met = is_closed(lower, upper, self.tol, max((result.state or self.state).unit, self.state.unit))
            if status is Status.UNBOUNDED or (status in (Status.OPTIMAL, Status.ASSUMED) and not met):
                # Of these weights only; or of F and not of f, whose rounding may be larger.
                status = self.ended or Status.GAP_OPEN
            if status is Status.GAP_OPEN and self._closes(lower, upper):
                status = Status.ASSUMED if result.certificate.assumption else Status.OPTIMAL
            if status is Status.ASSUMED and not self.problem.not_convex:
                # The rounding of F is that of constraints times their weights, of which f has none.
                apart = self._upper(own, value, x, multipliers)
                if self._closes(least := proof().lower, apart):
                    lower, upper, status = least, apart, Status.OPTIMAL
                    result = replace(result, certificate=DualGap(lower, upper))
        least = floor(penalised.own)  # parts at their least values may prove it, if they have such for certain
        if self._closes(least, upper) and not penalised.f.assumption:
            lower, status = least, Status.OPTIMAL if status in (Status.GAP_OPEN, Status.ASSUMED) else status
            result = replace(result, certificate=DualGap(lower, upper))
        lower = min(lower, value)
        known = math.isfinite(lower) and math.isfinite(upper)
        bracket = replace(result.certificate, lower=lower, upper=upper) if known else NoCertificate(lower, upper)
        return replace(
            result, x=x, fun=value, certificate=bracket, status=status, violation=violation,
            multipliers=self.penalised.by_constraint(multipliers),
        )  # fmt: skip

    def _closes(self, lower: float, upper: float) -> bool:
        """Whether a bracket is within the tolerance."""
        return is_closed(lower, upper, self.tol, self.state.unit)

    def _upper(
        self, own: Vector, value: float, x: Vector, multipliers: Sequence[Vector], known: Verifier | None = None
    ) -> float:
        """The value of f at the point with its rounding, and what the constraints are missed by, as they are worth."""
        f, form = self.penalised.f, self.penalised.own if own.size == x.size else None  # which is in all variables
        inside, error = Verifier(f, own, problem=form, other=known).value if own.size else (value, 0.0)
        missed = sum(
            float(np.abs(y) @ e) for y, e in zip(multipliers, self.penalised.excesses(x), strict=True) if np.any(e)
        )
        rounded = inside + error if math.isfinite(error) else enclosed_at(f, own)[1]
        rounded = rounded if math.isfinite(rounded) else value
        return max(value, rounded) + (_WEIGHT_ROOM * missed if math.isfinite(missed) else 0.0)

    def _without_optimum(self, status: Status) -> Result:
        penalised, state = self.penalised, self.state
        infeasible = status is Status.INFEASIBLE
        names = ("time", "steps", "sigma", "upper", "lower", "bound")
        history = {name: np.array([row[name] for row in state.history]) for name in names}
        whole = penalised.objective(self.weights)
        value = float(penalised.f.at(flattened(penalised.f.variables, unflatten(whole.variables, state.x))))
        certificate = Infeasible(math.inf, math.inf) if infeasible else NoCertificate(-math.inf, value)
        return Result(
            state.x, math.inf if infeasible else value, certificate, status, " > ".join(state.ran) or "none",
            state.sigma, state.steps, state.elapsed, history, whole.slices, state.evaluations, state,
            penalised.violation(state.x), {}, self.proof,
        )  # fmt: skip


def _of_a_point(value: float, lower: float, upper: float) -> float:
    """A value that floating point gives, or where parts cancel so that no point has it, the upper end for it."""
    known = math.isfinite(lower) and lower <= upper < math.inf
    return upper if known and abs(value - upper) > _ROUNDED * abs(upper) and not lower <= value <= upper else value
