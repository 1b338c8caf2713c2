"""One run on a composite objective in memory: a start, a method, a clock, and what is known at its end.

What is known is the bracket that is proved, or the one that is claimed, and the status.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt import certificates
from varopt._clock import TimeUp, budget, deadline
from varopt._display import Progress
from varopt._domains import as_finite
from varopt._threads import one_thread
from varopt.certificates import (
    NEARBY,
    ROUNDING,
    Certificate,
    DualGap,
    NoCertificate,
    Verifier,
    enclosed_at,
    floor,
    rests,
)
from varopt.composite import Composite, NotComposite, composite
from varopt.model import Objective, split
from varopt.model.blocks import AffineBlock
from varopt.model.maps import latest_products
from varopt.optimize._result import Result, Status, final_line, progress_line
from varopt.solvers import METHODS, Auto, State, Way, exact_minimum, is_small, settle

__all__ = [
    "STOPPED",
    "Descent",
    "Falls",
    "Refused",
    "chosen",
    "conclude",
    "concluded",
    "is_closed",
    "left_to_prove",
    "minimize_composite",
    "start",
    "stopped",
    "threads",
    "watch",
]

STOPPED = (TimeUp, KeyboardInterrupt, StopIteration)  # what ends a run with what is known by then

Vector = NDArray[np.float64]

_TO_SETTLE = 1.0  # seconds at most in which a stopped run looks for its bracket
_THREADED = 1500  # rows and columns beyond which factorisations of all kinds gain from threads
_DEEP = 100.0  # times the sizes at zero, or the value at the last look, below which a direction is looked at
_MUCH_WIDER = 2.0  # times the gap that is claimed under an assumption, up to which the one that is proved is reported
MORE_ENTRIES = 400_000  # of all rows, up to which a direction is looked for where a run has ended without a bound
_STEEP = 1e5  # ratio of gradients beyond which steep terms may hide what others do far away
_UNIT_SHARE = 2.0**-12  # of the sizes of parts that counts as their unit, here as at zero
_SHARE_INSIDE = 2.0**-20  # of the sizes of what cancels in a part: room for its rounding, and for little more
_LAST_DIGITS = 2.0**-51  # relative difference of values that rounding alone may make: then zeros are zeros
_EXACT_OPEN = 2.0  # seconds at most for the exact optimum of few variables, where nothing else has closed the gap
_EXACT_LATE = 0.1  # seconds, or share of the time, where time is up
_EXACT_ASSUMED = 0.3, 12  # and where it is closed under an assumption: seconds, and variables
_ROUNDED = 1e-10  # relative error of a value beyond which its bound is told in place of it
_DOUBTFUL = 1e-3  # relative gap without an assumption beyond which one that closes it is not believed


@np.errstate(over="ignore", invalid="ignore")  # numbers that are not finite prove nothing, and are no news to a user
def minimize_composite(
    objective: Objective, *, tol: float = 1e-9, method: str | Way | Auto = "auto", x0: Any = None,
    resume: State | Result | None = None, callback: Callable[[Any], Any] | None = None, progress: bool = False,
    time_limit: float | None = None, proved: bool = True,
) -> Result:  # fmt: skip
    """Minimise an objective without constraints; see `varopt.minimize`.

    Without `proved` the bracket is what the method claims: enough for a part of a problem that is proved as a whole.
    """
    state = start(objective, x0, resume)
    try:
        problem = composite(objective)
        solver = chosen(method, problem)
    except (NotComposite, Refused) as refusal:
        raise NotComposite(f"{refusal} See f.explain().") from None
    before, state.unit, line = state.elapsed, problem.unit, Progress(True) if progress else None

    descent, watched = Descent(objective, problem), watch(line, callback, time_limit, before)

    def check(current: State) -> None:
        descent.look(current)
        watched(current)

    status: Status | None = None
    with threads(problem), latest_products():
        try:
            if rests(problem, state.x):
                state.see(state.x, float(objective(state.x)), 0.0)
                state.record()
            elif _is_unbounded(objective, problem):
                state.falls = True
                state.see(state.x, float(objective(state.x)))
                state.record()
            else:
                with deadline(None if time_limit is None else time_limit - (state.elapsed - before)):
                    solver.solve(problem, state, tol, check)
        except Falls:
            state.falls = True
        except STOPPED as reason:
            status = stopped(reason)
            settle(problem, state, left_to_prove(time_limit, state.elapsed - before, status))
        ended = partial(conclude, objective, problem, state, tol, method=" > ".join(state.ran) or "none", proved=proved)
        result = concluded(ended, status, lambda how: left_to_prove(time_limit, state.elapsed - before, how))
        if line is not None:
            line.end(final_line(result))
        return result


def watch(
    line: Progress | None, callback: Any, time_limit: float | None, before: float = 0.0
) -> Callable[[State], None]:
    """What sees the state after every level: shows progress, tells the caller, and ends the run when time is up."""

    def check(current: State) -> None:
        if line is not None and line.shown:
            line.show(progress_line(current))
        if callback is not None:
            callback(current)
        if time_limit is not None and current.elapsed - before > time_limit:
            raise TimeUp

    return check


def left_to_prove(time_limit: float | None, elapsed: float, status: Status | None) -> float:
    """Seconds for the bracket of a run: what goes beyond them ends within a tenth of one, or a fifth, all the same."""
    most = math.inf if status is None else _TO_SETTLE
    return most if time_limit is None else min(most, max(time_limit + max(0.04, 0.1 * time_limit) - elapsed, 0.0))


def concluded(
    conclude: Callable[[Status | None], Result], status: Status | None, left: Callable[[Status | None], float]
) -> Result:
    """The result of a run, in the seconds that are left; one interrupt of it is one of the run, and loses nothing."""
    try:
        with deadline(left(status), late=0.0):
            return conclude(status)
    except KeyboardInterrupt:
        with deadline(left(Status.INTERRUPTED), late=0.0):
            return conclude(Status.INTERRUPTED)


def stopped(reason: BaseException) -> Status:
    """How a run has ended that something has stopped."""
    return Status.TIME_LIMIT if isinstance(reason, TimeUp) else Status.INTERRUPTED


def threads(problem: Composite) -> Any:
    """One thread for small problems, which lose by more."""
    return nullcontext() if _is_large(problem) else one_thread()


def _is_unbounded(objective: Objective, problem: Composite) -> bool:
    """Whether a direction shows it, where one is quickly found."""
    if problem.not_convex:
        return problem.indefinite and certificates.curves_down(objective) is not None
    if floor(problem) > -math.inf:
        return False
    return (
        certificates.falls_along(objective, -np.asarray(problem.vector))
        or certificates.falls_for_ever(objective) is not None
    )


def _is_large(problem: Composite) -> bool:
    """Whether whatever is done with the data, which are dense, gains from threads."""
    parts = [r for r in (*problem.rows, *problem.squares) if r.single is None and r.linear.storage != "sparse"]
    return min(sum(r.count for r in parts), problem.size) > _THREADED


class Refused(ValueError):
    """A method does not take the problem; the message says why."""


def chosen(method: str | Way | Auto, problem: Composite) -> Auto:
    """What to begin with, and what goes on after it."""
    solver = method if isinstance(method, Auto) else Auto(METHODS.get(method) if isinstance(method, str) else method)
    if reason := solver.refusal(problem):
        who = "No method takes" if solver.first is None else f"method {solver.first.name!r} does not take"
        raise Refused(f"{who} this objective: {reason}")
    return solver


def start(objective: Objective, x0: Any, resume: Any) -> State:
    if resume is None:
        if x0 is None:
            return State(np.zeros(objective.size), objective=objective)
        values = split(objective.variables, (x0,))
        x = np.concatenate([as_finite("x0", values[v]).astype(np.float64) for v in objective.variables])
        return State(x, objective=objective)
    if x0 is not None:
        raise ValueError("x0 and resume both say where to start; give one of them.")
    state = resume.state if isinstance(resume, Result) else resume
    if not isinstance(state, State):
        raise ValueError(f"resume must be a Result or its state; got {type(resume).__name__}.")
    if state.x.size != objective.size:
        raise ValueError(f"resume has {state.x.size} coordinates, but the objective has {objective.size}.")
    return state.resumed(objective)


class Falls(Exception):
    """The objective falls without bound along a direction that was checked."""


class Descent:
    """Looks whether a run that has come far down goes on for ever in the direction it has taken.

    A pass over the data each time that the value has fallen a hundredfold.
    """

    def __init__(self, objective: Objective, problem: Composite) -> None:
        self.objective = objective
        self.bounded = bool(problem.not_convex) or floor(problem) > -math.inf
        self.below = -_DEEP * max(problem.unit * 2.0**12, 1e-300)

    def look(self, state: State) -> None:
        """Raise `Falls` where the direction of the best point shows it."""
        if self.bounded or not state.upper < self.below or math.isfinite(state.lower):
            return
        self.below = _DEEP * state.upper
        if certificates.falls_along(self.objective, state.x):
            raise Falls


def conclude(
    objective: Objective, problem: Composite, state: State, tol: float, status: Status | None, method: str, *,
    proved: bool = True, value: float | None = None, violation: Callable[[Vector], float] = lambda _: 0.0,
) -> Result:  # fmt: skip
    """The result of a run; without `proved` the bracket is what the method claims. `value`: at x, where it is known."""
    x = state.x
    if not math.isfinite(state.upper) and state.latest is not None and np.all(np.isfinite(state.latest)):
        x = state.latest
    # As the user's own objective gives it, not as the reduced problem does.
    value = float(objective.at(x)) if value is None else value
    sizes = np.abs(x)
    faint = (sizes <= 1e-11 * sizes.max(initial=0.0)) & (sizes > 0.0)  # zeros that are zeros but for rounding
    if faint.any() and violation(tidy := np.where(faint, 0.0, x)) <= violation(x):
        tidied = float(objective.at(tidy))
        x, value = (tidy, tidied) if tidied <= value + _LAST_DIGITS * abs(value) else (x, value)
    x = x + 0.0  # no zero is negative
    bracket = _bracket(objective, problem, state, x, value, tol) if proved else _claimed(problem, state, value)
    hidden = objective.assumption
    if hidden and not problem.not_convex and Verifier(objective, x).is_convex:
        hidden = ""  # of the sum it is known
    is_open = proved and (hidden or bracket.assumption or not bracket.within(tol))
    if is_open and not state.falls and not state.alone and is_small(problem):
        seconds, most = _EXACT_ASSUMED if bracket.within(tol) else (_EXACT_OPEN, problem.size)
        if status is Status.TIME_LIMIT:  # soon after it
            seconds = min(seconds, max(_EXACT_LATE, _EXACT_LATE * state.elapsed))
        exact = _exact(objective, x, value, bracket, seconds) if problem.size <= most else None
        if exact is not None:
            (x, value, bracket), hidden = exact, ""  # which only what is convex for certain has
    lower, upper, assumption, proof, state.unit = bracket
    if status is Status.TIME_LIMIT and bracket.within(tol):
        status = None  # there was time enough
    if status is None:
        status = _status(objective, problem, state, bracket, tol, hidden)
        lower = -math.inf if status is Status.UNBOUNDED else lower
    assumption = "; ".join(part for part in (hidden, assumption) if part)
    certificate = (proof if math.isfinite(lower) else NoCertificate)(lower, upper, assumption)
    names = ("time", "steps", "sigma", "upper", "lower", "bound")
    history = {name: np.array([row[name] for row in state.history]) for name in names}
    return Result(
        x, value, certificate, status, method, state.sigma, state.steps, state.elapsed, history, objective.slices,
        state.evaluations, state,
    )  # fmt: skip


def is_closed(lower: float, upper: float, tol: float, unit: float) -> bool:
    """Whether a bracket is within the relative tolerance, which none is with an end that is not known."""
    gap = upper - lower
    return math.isfinite(gap) and gap <= tol * max(unit, abs(upper))


class _Bracket(NamedTuple):
    """Bounds of the optimum, what they assume, and how they came about."""

    lower: float
    upper: float
    assumption: str
    proof: type[Certificate]
    unit: float = 1.0

    def within(self, tol: float) -> bool:
        """Whether the bracket is within the relative tolerance."""
        return is_closed(self.lower, self.upper, tol, self.unit)


def _bracket(objective: Objective, problem: Composite, state: State, x: Vector, value: float, tol: float) -> _Bracket:
    """What is proved where that is enough, or all there is; else what the method claims, with its assumption."""
    claimed = _claimed(problem, state, value)
    if not math.isfinite(value):
        return claimed
    if problem.not_convex:
        return _with_rounding(objective, x, claimed, floor(problem))
    verifier = Verifier(objective, x, problem=problem)
    # Where the method has closed its own gap, it is worth while to try more than one way to prove that; none of them
    # proves more than its dual has.
    allowed, own = tol * max(state.unit, abs(value)), claimed.upper - claimed.lower
    gap = 0.5 * (allowed + min(max(own, 0.0), allowed)) if claimed.within(tol) else math.inf
    proved = _proved(verifier, state, value, state.dual, gap)
    if proved.within(tol):
        return proved
    if claimed._replace(lower=floor(problem)).within(tol):
        # Parts that are at their least values prove it without any subgradient.
        at_rest = [np.zeros(r.count) for r in problem.rows]
        at_rest += [np.zeros(int(g.sizes[g.weights > 0.0].sum())) for g in problem.groups if np.any(g.weights > 0.0)]
        proved = max(proved, _proved(verifier, state, value, at_rest, gap), key=lambda b: b.lower)
        if _is_never_negative(objective):
            proved = proved._replace(lower=max(proved.lower, min(0.0, value)))
    # Of parts that cancel at x no digit may be left: then their own size is what the rounding is measured by.
    unit = max(state.unit, _unit_at(problem, x))
    proved, claimed = proved._replace(unit=unit), claimed._replace(unit=unit)
    if proved.within(tol) or (
        not claimed.within(tol) and proved.upper - proved.lower <= _MUCH_WIDER * (claimed.upper - claimed.lower)
    ):
        return proved
    if claimed.assumption and math.isfinite(proved.lower) and not proved.within(_DOUBTFUL) and _is_steep(problem):
        return proved  # steep terms may hide a far optimum: the assumption is not believed
    if claimed.lower > sum(verifier.value):
        return proved  # since the value at x refutes what is claimed
    upper = max(claimed.upper, proved.upper) if math.isfinite(proved.upper) else claimed.upper
    if claimed.assumption == NEARBY and claimed.within(tol) and math.isfinite(proved.upper):
        lower, near = verifier.near(state.dual, value - 0.5 * tol * max(unit, abs(value)))
        if (known := claimed._replace(lower=min(lower, value), upper=upper, assumption=near)).within(tol):
            return known
    # The bound is the rounded value less a gap: what rounding may have added to the one is in the other.
    lower = claimed.lower - error if math.isfinite(error := verifier.value[1]) else claimed.lower
    return claimed._replace(lower=lower, upper=upper, assumption=claimed.assumption or ROUNDING)


def _is_never_negative(objective: Objective) -> bool:
    """Whether no part is, each by itself: nothing is added up whose rounding counts."""
    if objective.assumption or any(isinstance(block, AffineBlock) for block in objective.blocks):
        return False
    whole = composite(objective, multiplied=False)
    return floor(whole) == whole.scalar == 0.0


def _with_rounding(objective: Objective, x: Vector, claimed: _Bracket, least: float) -> _Bracket:
    """What is claimed of an objective that is not convex, with the rounding of its value, and of the gap, charged.

    Where the value cannot be enclosed, as of a position within rounding of a jump, that is assumed to be small.
    """
    low, high = enclosed_at(objective, x)
    if not math.isfinite(high):
        return claimed._replace(assumption=claimed.assumption or ROUNDING)
    lower, upper = claimed.lower, max(claimed.upper, high)
    if lower < claimed.upper:  # the value less a gap, which is the value less the bound
        lower = max(lower - _LAST_DIGITS * (abs(lower) + abs(claimed.upper)), least)
    return claimed._replace(lower=min(lower, low), upper=upper)


def _exact(
    objective: Objective, x: Vector, value: float, bracket: _Bracket, seconds: float
) -> tuple[Vector, float, _Bracket] | None:
    """The exact optimum of few variables, rounded, and its value as a lower bound; None where it is not known."""
    with budget(seconds):
        found = exact_minimum(objective, x)
    if found is None or not math.isfinite(found.lower):
        return None
    point, lower, upper = found
    if not bracket.assumption:
        lower = max(lower, bracket.lower)
    known = bracket.upper if not bracket.assumption else max(bracket.upper, enclosed_at(objective, x)[1])
    if not upper < known:  # rounded, it may lie higher on steep terms than another point
        point, upper = x, known
    best = value if point is x else float(objective.at(point))
    if abs(best - upper) > _ROUNDED * abs(upper) and not lower <= best <= upper:
        best = upper  # where parts cancel, floating point may give a value that no point has
    return point, best, _Bracket(min(lower, best), max(upper, best), "", DualGap, bracket.unit)


def _unit_at(problem: Composite, x: Vector) -> float:
    """A share of the sizes of the parts at x, and of what cancels in each, as in ``1 - z`` where that is zero."""
    parts, inside = float(np.abs(problem.gradient_at_zero) @ np.abs(x)), 0.0
    for r, z in zip(problem.rows, problem.positions(x), strict=True):
        low, high = r.term.subdifferential(z)
        products = np.maximum(np.abs(low), np.abs(high)) * np.abs(z)
        parts += abs(r.total(z))
        inside += float(np.abs(r.weights) @ np.where(np.isfinite(products), products, 0.0))
    return max(_UNIT_SHARE * parts, _SHARE_INSIDE * inside)


def _is_steep(problem: Composite) -> bool:
    """Whether the gradients of some parts are many orders above those of others."""
    sizes = np.concatenate([np.abs(problem.gradient_at_zero), *(r.largest_gradient for r in problem.rows)])
    sizes = sizes[sizes > 0.0]
    return bool(sizes.size and sizes.max() > _STEEP * sizes.min())


def _claimed(problem: Composite, state: State, value: float) -> _Bracket:
    """The bracket of the method, or of parts at their least values, but for rounding."""
    # Within rounding a lower bound may come out above the value; farther above, the assumption behind it is refuted.
    refuted = state.lower > value + 1e-9 * max(state.unit, abs(value))
    lower = -math.inf if refuted else min(state.lower, value)
    claimed = _Bracket(lower, value, state.assumption, state.proof, state.unit)
    least = floor(problem)
    return _Bracket(min(least, value), value, "", DualGap, state.unit) if least > claimed.lower else claimed


def _proved(
    verifier: Verifier, state: State, value: float, dual: Sequence[Vector | None] | None, gap: float
) -> _Bracket:
    """The bracket with all rounding charged; the value as the objective gives it is inside."""
    lower, upper, _ = verifier.bracket(dual, gap)
    return _Bracket(min(lower, value), max(upper, value), "", DualGap, state.unit)


def _status(
    objective: Objective, problem: Composite, state: State, bracket: _Bracket, tol: float, hidden: str
) -> Status:
    """How a run that was not stopped has ended."""
    if state.falls:
        return Status.UNBOUNDED
    if bracket.within(tol):
        return Status.ASSUMED if hidden or bracket.assumption else Status.OPTIMAL
    if problem.not_convex:
        return Status.LOCAL
    # A lower bound that assumes nothing settles it, as do parts that each have a least value; a quadratic form that was
    # taken for convex, and may not be, has none for sure.
    least = not objective.assumption and floor(problem) > -math.inf
    bounded = (math.isfinite(bracket.lower) and not bracket.assumption) or least
    return Status.UNBOUNDED if not bounded and _falls(objective, state.x) else Status.GAP_OPEN


def _falls(objective: Objective, x: Vector) -> bool:
    """Whether it falls for ever, far along x or where a quadratic form that was taken for convex curves down."""
    return (
        certificates.falls_along(objective, x)
        or certificates.falls_for_ever(objective, MORE_ENTRIES) is not None
        or (bool(objective.assumption) and certificates.curves_down(objective) is not None)
    )
