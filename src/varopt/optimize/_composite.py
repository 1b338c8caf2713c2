"""One run on a composite objective in memory: a start, a method, a clock, and what is known at its end."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from varopt._clock import TimeUp, deadline
from varopt._display import Progress
from varopt._domains import as_finite
from varopt._threads import one_thread
from varopt.certificates import curves_down, falls_along, falls_for_ever, floor, rests
from varopt.composite import Composite, NotComposite, composite
from varopt.model import Objective
from varopt.model.points import split
from varopt.optimize._conclude import conclude
from varopt.optimize._descent import Descent, Falls
from varopt.optimize._result import Result, Status, final_line, progress_line
from varopt.solvers import METHODS, Auto, State, Way, settle

__all__ = ["STOPPED", "Refused", "chosen", "minimize_composite", "start", "stopped", "threads", "watch"]

_TO_SETTLE = 1.0  # seconds at most in which a stopped run looks for its bracket
_LARGE = 1500  # rows and columns beyond which factorisations of all kinds gain from threads

STOPPED = (TimeUp, KeyboardInterrupt, StopIteration)  # what ends a run with what is known by then


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
    before, state.unit, line = state.elapsed, problem.unit, Progress(progress)

    descent, watched = Descent(objective, problem), watch(line, callback, time_limit, before)

    def check(current: State) -> None:
        descent.look(current)
        watched(current)

    status: Status | None = None
    with threads(problem):
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
            settle(problem, state, min(_left(time_limit, state.elapsed - before), _TO_SETTLE))
        left = _left(time_limit, state.elapsed - before)
        with deadline(left if status is None else min(left, _TO_SETTLE), late=0.0):
            result = conclude(objective, problem, state, tol, status, " > ".join(state.ran) or "none", proved=proved)
        line.end(final_line(result))
        return result


def watch(line: Progress, callback: Any, time_limit: float | None, before: float = 0.0) -> Callable[[State], None]:
    """What sees the state after every level: shows progress, tells the caller, and ends the run when time is up."""

    def check(current: State) -> None:
        if line.shown:
            line.show(progress_line(current))
        if callback is not None:
            callback(current)
        if time_limit is not None and current.elapsed - before > time_limit:
            raise TimeUp

    return check


def _left(time_limit: float | None, elapsed: float) -> float:
    """Seconds for the bracket of a run: what goes beyond them ends within a tenth of one, or a fifth, all the same."""
    if time_limit is None:
        return math.inf
    return max(time_limit + max(0.04, 0.1 * time_limit) - elapsed, 0.0)


def stopped(reason: BaseException) -> Status:
    """How a run has ended that something has stopped."""
    return Status.TIME_LIMIT if isinstance(reason, TimeUp) else Status.INTERRUPTED


def threads(problem: Composite) -> Any:
    """One thread for small problems, which lose by more."""
    return nullcontext() if _is_large(problem) else one_thread()


def _is_unbounded(objective: Objective, problem: Composite) -> bool:
    """Whether a direction shows it, where one is quickly found."""
    if problem.not_convex:
        return problem.indefinite and curves_down(objective) is not None
    if floor(problem) > -math.inf:
        return False
    return falls_along(objective, -np.asarray(problem.vector)) or falls_for_ever(objective) is not None


def _is_large(problem: Composite) -> bool:
    """Whether whatever is done with the data, which are dense, gains from threads."""
    parts = [r for r in (*problem.rows, *problem.squares) if r.single is None and r.linear.storage != "sparse"]
    return min(sum(r.count for r in parts), problem.size) > _LARGE


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
