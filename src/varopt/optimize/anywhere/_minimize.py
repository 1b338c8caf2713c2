"""`minimize` for data that are not in memory: the options, the clock, and the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._display import Progress, duration
from varopt.certificates import DualGap, NoCertificate, floor
from varopt.composite import composite
from varopt.model import Objective, Variable
from varopt.optimize._composite import minimize_composite
from varopt.optimize._result import Result, Status, final_line
from varopt.optimize.anywhere._engine import RunOptions, Solve, read_small, run, solve, value_of
from varopt.optimize.anywhere._memory import bytes_of
from varopt.optimize.anywhere._problem import Problem
from varopt.optimize.anywhere._scale import solve_scaled
from varopt.optimize.anywhere._scale_bound import ScaledHuber
from varopt.places import DataPart, OnDevice
from varopt.solvers import State

__all__ = ["METHOD", "enclosed_stored", "minimize_huber_stored", "minimize_stored", "small_part"]

Vector = NDArray[np.float64]

METHOD = "freezing"


class _Stop(BaseException):
    """The run ends with what is known by now."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


def minimize_stored(
    objectives: Sequence[Objective], states: Sequence[State], *, tol: float, memory: Any,
    callback: Callable[[State], Any] | None, progress: bool, time_limit: float | None, seed: int = 0,
) -> list[Result]:  # fmt: skip
    """Minimise objectives on the same data together, each to its own bracket."""
    problems = [Problem(objective) for objective in objectives]
    return _run(problems, states, tol, memory, callback, progress, time_limit, seed, solve)


def minimize_huber_stored(
    losses: Objective, coefficients: Variable, *, epsilon: float, alpha: float, tol: float, memory: Any,
    progress: bool, time_limit: float | None, seed: int = 0,
) -> Result:  # fmt: skip
    """Minimise Huber's regression with its scale, given the sum of ``huber(r, 1)``; the scale is the last of ``x``."""
    problem = ScaledHuber(losses, coefficients, epsilon, alpha)
    state = State(np.zeros(problem.size + 1))
    return _run([problem], [state], tol, memory, None, progress, time_limit, seed, solve_scaled)[0]


def _run(
    problems: Sequence[Problem], states: Sequence[State], tol: float, memory: Any,
    callback: Callable[[State], Any] | None, progress: bool, time_limit: float | None, seed: int, way: Solve,
) -> list[Result]:  # fmt: skip
    limit, line, passes = bytes_of(memory), Progress(progress), 0.0
    before = states[0].elapsed

    def left() -> float | None:
        return None if time_limit is None else time_limit - (states[0].elapsed - before)

    def tick(done: float) -> None:
        nonlocal passes
        passes = done
        gap = max(state.gap for state in states)
        known = f"gap {gap:.2e}" if math.isfinite(gap) else ""
        line.show("  ".join(filter(None, [f"pass {done:.2f}", known, duration(states[0].elapsed)])))
        if callback is not None:
            for state in states:
                callback(state)
        check()

    def check() -> None:
        if (seconds := left()) is not None and seconds <= 0.0:
            raise _Stop(Status.TIME_LIMIT)

    def within(objective: Objective, **options: Any) -> Result:
        """A problem in memory, in the time that is left."""
        seconds = left()
        check()
        result = minimize_composite(objective, time_limit=seconds, **options)
        if result.status in (Status.TIME_LIMIT, Status.INTERRUPTED):
            raise _Stop(result.status)
        return result

    status = None
    for state in states:
        state.ran = [METHOD]
    try:
        passes = run(problems, states, RunOptions(tol, limit, within, check, seed), tick, way)
    except _Stop as stop:
        status = stop.status
    except (KeyboardInterrupt, StopIteration, RuntimeError) as reason:
        if isinstance(reason, RuntimeError) and not isinstance(reason.__cause__, StopIteration):
            raise  # what a generator makes of a callback's StopIteration
        status = Status.INTERRUPTED
    results = [_concluded(p, s, tol, status, math.ceil(passes)) for p, s in zip(problems, states, strict=True)]
    line.end(final_line(results[0]))
    return results


def small_part(values: Sequence[Any], memory: Any = None) -> DataPart | None:
    """All rows of what is not in memory, where they are few."""
    return read_small(values, bytes_of(memory))


def enclosed_stored(objective: Objective, x: Vector, memory: Any = None) -> tuple[float, float]:
    """The value of an objective whose rows are not in memory, and an upper bound of it, by one pass."""
    return value_of(Problem(objective), x, bytes_of(memory))


def _concluded(problem: Problem, state: State, tol: float, status: Status | None, passes: int) -> Result:
    objective = problem.objective
    x = state.x if math.isfinite(state.upper) or state.latest is None else state.latest
    # No lower bound is above a value: one that came out so would be the sign of a mistake, and is not passed on.
    lower = max(state.lower if state.lower <= state.upper else -math.inf, _floor(problem))
    assumption = state.assumption if lower == state.lower else ""
    if status is None:
        reached = state.upper - lower <= state.allowed(tol)
        status = Status.UNBOUNDED if state.falls else Status.GAP_OPEN
        if reached:
            status = Status.ASSUMED if assumption or objective.assumption else Status.OPTIMAL
    lower = -math.inf if status is Status.UNBOUNDED else lower
    assumption = "; ".join(part for part in (objective.assumption, assumption) if part)
    known = math.isfinite(lower)
    certificate = DualGap(lower, state.upper, assumption) if known else NoCertificate(lower, state.upper)
    names = ("time", "steps", "sigma", "upper", "lower", "bound")
    history = {name: np.array([row[name] for row in state.history]) for name in names}
    fun = state.bound if math.isfinite(state.upper) and math.isfinite(state.bound) else state.upper
    return Result(
        x + 0.0, min(fun, state.upper), certificate, status, " > ".join(state.ran), 0.0, state.steps, state.elapsed,
        history, objective.slices, state.evaluations, state, passes=passes,
        place=problem.table.bring if isinstance(problem.table, OnDevice) else None,
    )  # fmt: skip


def _floor(problem: Problem) -> float:
    """A lower bound that needs no data: of losses and penalties that are not negative, zero."""
    if any(float(np.min(block.term.infimum)) < 0.0 for block in problem.blocks):
        return -math.inf
    if not problem.others:
        return 0.0
    least = floor(composite(Objective(problem.others)))
    return least if least == 0.0 else -math.inf
