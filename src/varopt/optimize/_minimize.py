"""`minimize` and `maximize`: an objective in, a point and a bracket of the optimum out."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, deadline
from varopt._display import Progress
from varopt._domains import as_finite
from varopt._threads import one_thread
from varopt.bounds import Bound
from varopt.certificates import (
    ROUNDING,
    Certificate,
    DualGap,
    NoCertificate,
    Verifier,
    curves_down,
    falls_along,
    falls_for_ever,
    floor,
    rests,
)
from varopt.composite import Composite, NotComposite, composite
from varopt.model import Constraint, Expression, Objective, Parametric, Variable, as_constraints, as_objective
from varopt.model.blocks import LargestBlock
from varopt.model.points import ordered, split
from varopt.optimize._descent import Descent, Falls
from varopt.optimize._result import Result, Status, final_line, progress_line
from varopt.solvers import METHODS, Auto, State, Way, settle

__all__ = ["maximize", "minimize", "minimize_together"]

Vector = NDArray[np.float64]


_MUCH_WIDER = 2.0  # times the gap that is claimed under an assumption, up to which the one that is proved is reported
_MORE_ENTRIES = 400_000  # of all rows, up to which a direction is looked for where a run has ended without a bound
_STEEP = 1e5  # ratio of gradients beyond which steep terms may hide what others do far away
_SHARE = 2.0**-12  # of the sizes of parts that counts as their unit, here as at zero
_DOUBTFUL = 1e-3  # relative gap without an assumption beyond which one that closes it is not believed
_TO_SETTLE = 1.0  # seconds at most in which a stopped run looks for its bracket
_LARGE = 1500  # rows and columns beyond which factorisations of all kinds gain from threads


STOPPED = (TimeUp, KeyboardInterrupt, StopIteration)  # what ends a run with what is known by then


def minimize(
    f: Any, space: Any = None, *, tol: float = 1e-9, method: str | Way | Auto = "auto", x0: Any = None,
    resume: State | Result | None = None, callback: Callable[[Any], Any] | None = None, progress: bool = False,
    time_limit: float | None = None, subject_to: Any = None, memory: int | str | None = None, **black_box: Any,
) -> Result:  # fmt: skip
    r"""Minimise a composite objective to a certified gap, or a black box within a budget.

    Parameters
    ----------
    f : objective, callable or bound
        A sum of quadratics and piecewise linear-quadratic terms of affine maps of real variables; or a polynomial, of
        any degree, in Binary and Categorical variables. With a `space`, any function of a point in it. A bound of
        `varopt.bound` is minimised over the parameters of its family, the dispersion among them: a `BoundResult`.
    space : Box, Space, a dictionary of dimensions or another dimension, optional
        Where to search for the minimum of a callable; `tol` and `resume` then do not apply.
    tol : float
        Relative: stop when ``upper - lower <= tol * max(unit, |upper|)``. The unit is about a 4,000th of the sizes of
        all parts at zero or, where they cancel, at x, so that it changes with the units of f and nothing else does.
    method : str, Method or Auto
        ``"auto"`` chooses, and other methods go on where one ends without a proof; `Result.method` says what ran. By
        name: ``"newton"`` (path following, then an exact
        crossover), ``"pivoting"`` (lassos), ``"block-descent"`` (large ones), ``"working-set"`` and ``"range"`` (more
        variables than rows), ``"low-rank"`` (few combinations of many variables), ``"orthogonal"`` (columns that are
        nearly dependent), ``"program"`` (small problems),
        ``"taut-string"`` (total variation of a signal), ``"knots"`` (trend filtering), ``"multipliers"`` (sparse rows
        and a ridge), ``"interior-point"`` (other banded and sparse problems), ``"group-descent"`` (group lassos),
        ``"conic"`` and ``"group-newton"`` (other norms, of few rows and of many), ``"graduated"`` (what is not
        convex), ``"freezing"`` (data that are not in memory), ``"diagonal-newton"`` and ``"lbfgs"`` (the paper's), with
        their defaults; or a configuration such as ``vo.solvers.Newton(schedule=vo.solvers.Adaptive())``.
        For discrete variables: ``"free-energy"`` and the others in `varopt.solvers.discrete.SEARCHES`.
    x0 : point, optional
        Where to start: a flat array or a mapping from variables. Zero by default.
    resume : State or Result, optional
        Go on from where an earlier run stopped, at its point and its sigma. Its lower bound is kept where `f` is the
        very objective it was proved for.
    callback : callable, optional
        Called with the state after every level; it may raise `StopIteration` to end the run with what is known.
    progress : bool
        Show a live line on standard error.
    time_limit : float, optional
        Seconds after which the best so far is returned with its bracket.
    subject_to : constraint, or list of them, optional
        Comparisons of affine expressions, such as ``[w >= 0, vo.sum(w) == 1, A @ w <= b]``. The result has
        ``multipliers`` and says by how much rounding violates them (``violation``). Of a black box: functions of the
        point, true or at most zero where it is allowed.
    memory : int or str, optional
        Bytes that a run on data that are not in memory (`varopt.rows`, `numpy.memmap`) may take beyond what the caller
        holds, or text such as ``"2GB"``; by default a quarter of what is free.
    **black_box
        For a callable: ``budget``, ``seed``, ``executor``, ``journal`` and the other options of
        `varopt.search.minimize_black_box`. For discrete variables: ``target``, a value to stop at, ``seed``, and
        ``device``, to search on PyTorch, and ``beta``, the schedule of a free-energy search: from progress in [0, 1] to
        the beta of ``<log p> + beta <f>``. For a bound: ``parameters``, the names of those that move (all by default),
        ``schedule``, how its family is sharpened between descents, and ``iterations``.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        For what is not handled, naming the part and the reason.

    Notes
    -----
    On tall data the path starts on samples of the rows, so that few passes touch all of them; far rows are frozen as
    sigma falls. Memory: up to one copy of the data. The dense Hessian is p x p for p variables, where they are
    fewer than the rows, and n x n for n rows otherwise.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w = vo.Variable(3, name="w")
    >>> X = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    >>> y = np.array([3.0, 1.0, 2.0, 2.0])
    >>> r = vo.minimize(vo.norm1(y - X @ w) + 0.1 * vo.norm1(w))
    >>> r.status.name, bool(r.lower <= r.fun <= r.upper), bool(r.gap <= 1e-9)
    ('OPTIMAL', True, True)
    >>> r[w].round(6)
    array([2., 0., 1.])
    >>> r = vo.minimize(vo.norm1(y - X @ w), subject_to=[w >= 0, vo.sum(w) == 2])
    >>> r[w].round(6), r.fun, r.violation
    (array([2., 0., 0.]), 2.0, 0.0)
    >>> vo.minimize(lambda x: abs(x[0] - 1) + x[1] ** 2, vo.Box(-5, 5, size=2), budget=1000, seed=0).x.round(4) + 0.0
    array([1., 0.])
    """
    if isinstance(f, Bound):
        others = {"space": space, "x0": x0, "resume": resume, "subject_to": subject_to, "memory": memory,
                  "method": None if method == "auto" else method}  # fmt: skip
        own = {"tol": tol, "callback": callback, "progress": progress, "time_limit": time_limit}
        return _bound(f, others, {**own, **black_box})
    if space is not None:
        shared = {"method": method, "x0": x0, "callback": callback, "progress": progress, "time_limit": time_limit}
        return _black_box(space, "minimize", f, {**shared, **black_box}, tol, resume, subject_to)
    constraints = as_constraints(subject_to)
    objective = _admissible(f, constraints)
    if all(v.kind != "real" for v in _variables(objective, constraints)):
        shared = {"method": method, "x0": x0, "callback": callback, "progress": progress, "time_limit": time_limit}
        return _discrete(objective, {"tol": tol, **shared, **black_box}, resume, constraints)
    if black_box:
        raise ValueError(f"{', '.join(map(repr, black_box))} applies to a black box only: give a callable and a space.")
    tol, time_limit = _check_options(tol, method, time_limit, callback)
    if any(isinstance(block, LargestBlock) for block in objective.blocks):
        from varopt.optimize._lifted import minimize_lifted  # which minimises what it makes of them

        return minimize_lifted(
            objective, constraints, tol=tol, method=method, x0=x0, resume=resume, callback=callback, progress=progress,
            time_limit=time_limit,
        )  # fmt: skip
    stored = any(block.stored for block in objective.blocks)
    if constraints:
        if stored:
            raise NotComposite("subject_to needs data in memory: the rows of this objective are elsewhere.")
        from varopt.optimize.constrained import minimize_constrained  # most problems have none

        return minimize_constrained(
            objective, constraints, tol=tol, method=method, x0=x0, resume=resume, callback=callback, progress=progress,
            time_limit=time_limit,
        )  # fmt: skip
    state = start(objective, x0, resume)
    if stored:
        options = {"callback": callback, "progress": progress, "time_limit": time_limit, "memory": memory}
        return _elsewhere([objective], [state], method, tol, **options)[0]
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
    left = _TO_SETTLE
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
            left = _TO_SETTLE if time_limit is None else min(_TO_SETTLE, 0.04 + 0.08 * time_limit)
            settle(problem, state, left)
        with deadline(None if status is None else left):
            result = conclude(objective, problem, state, tol, status, " > ".join(state.ran) or "none")
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


def stopped(reason: BaseException) -> Status:
    """How a run has ended that something has stopped."""
    return Status.TIME_LIMIT if isinstance(reason, TimeUp) else Status.INTERRUPTED


def threads(problem: Composite) -> Any:
    """One thread for small problems, which lose by more."""
    return nullcontext() if _is_large(problem) else one_thread()


def minimize_together(
    objectives: Sequence[Any], *, tol: float = 1e-9, memory: int | str | None = None, progress: bool = False,
    time_limit: float | None = None,
) -> list[Result]:  # fmt: skip
    """Minimise objectives whose rows are the same and not in memory: they share the passes over the data."""
    tol, time_limit = _check_options(tol, "auto", time_limit, None)
    admissible = [_admissible(f) for f in objectives]
    states = [start(objective, None, None) for objective in admissible]
    options = {"callback": None, "progress": progress, "time_limit": time_limit, "memory": memory}
    return _elsewhere(admissible, states, "auto", tol, **options)


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


def maximize(f: Any, space: Any = None, **options: Any) -> Result:
    """Maximise a composite objective or a black box: `minimize` of ``-f``, mirrored, with its options."""
    if isinstance(f, Bound):
        return minimize(f.mirrored(), space, **options).mirrored()
    if space is not None:
        return _black_box(space, "maximize", f, options, subject_to=options.pop("subject_to", None))
    if options.get("target") is not None:
        options["target"] = -options["target"]
    return minimize(-as_objective(f), **options).mirrored()


_BOUND_OPTIONS = ("tol", "callback", "progress", "time_limit", "parameters", "schedule", "iterations")


def _bound(f: Bound, others: dict[str, Any], options: dict[str, Any]) -> Result:
    """Descend a bound in the parameters of its family."""
    from varopt.optimize._bound_descent import minimize_bound

    unknown = [name for name, value in others.items() if value is not None]
    unknown += [name for name in options if name not in _BOUND_OPTIONS]
    if unknown:
        raise ValueError(
            f"{unknown[0]} does not apply to a bound, whose family says where to begin; accepted: "
            f"{', '.join(_BOUND_OPTIONS)}."
        )
    _check_options(options["tol"], "auto", options["time_limit"], options["callback"])
    return minimize_bound(f, **options)


def _black_box(
    space: Any, sense: str, f: Any, options: dict[str, Any], tol: float = 1e-9, resume: Any = None,
    subject_to: Any = None,
) -> Result:  # fmt: skip
    """Hand over to the space, which knows how to be searched: a layer above may be asked, but not imported."""
    if subject_to is not None:
        options["subject_to"] = subject_to
    if isinstance(space, Mapping) and callable(f) and not isinstance(f, Objective):
        space = importlib.import_module("varopt.search").Space(space)
    if not hasattr(space, sense) or isinstance(f, Objective):
        raise ValueError(f"minimize needs a callable and a space, such as vo.Box(low, high); got {f!r} and {space!r}.")
    if tol != 1e-9 or resume is not None:
        raise ValueError("tol and resume do not apply to a black box: use budget and target, journal or Search.load.")
    result: Result = getattr(space, sense)(f, **options)
    return result


def _elsewhere(
    objectives: Sequence[Objective], states: Sequence[State], method: Any, tol: float, **options: Any
) -> list[Result]:
    """Hand over to what reads data part by part; it solves problems in memory by `minimize`."""
    from varopt.optimize.anywhere import METHOD, minimize_stored

    if method not in ("auto", METHOD):
        name = method if isinstance(method, str) else getattr(method, "name", type(method).__name__)
        where = next(block.stored[0].where for block in objectives[0].blocks if block.stored)
        raise NotComposite(f"method {name!r} does not take this objective: its rows are {where}; {METHOD!r} does.")
    return minimize_stored(objectives, minimize, states, tol=tol, **options)


class Refused(ValueError):
    """A method does not take the problem; the message says why."""


def chosen(method: str | Way | Auto, problem: Composite) -> Auto:
    """What to begin with, and what goes on after it."""
    solver = method if isinstance(method, Auto) else Auto(METHODS.get(method) if isinstance(method, str) else method)
    if reason := solver.refusal(problem):
        who = "No method takes" if solver.first is None else f"method {solver.first.name!r} does not take"
        raise Refused(f"{who} this objective: {reason}")
    return solver


def _variables(objective: Objective, constraints: tuple[Constraint, ...]) -> tuple[Variable, ...]:
    return ordered([*objective.variables, *(v for c in constraints for v in c.variables)])


def _admissible(f: Any, constraints: tuple[Constraint, ...] = ()) -> Objective:
    if callable(f) and not isinstance(f, (Expression, Parametric)):
        raise ValueError("minimize needs a space for a black box, as in vo.minimize(f, vo.Box(low, high)).")
    objective = as_objective(f).checked
    variables = _variables(objective, constraints)
    if not variables:
        raise ValueError("minimize needs an objective with variables; this one is a constant.")
    discrete = [str(v) for v in variables if v.kind != "real"]
    if discrete and len(discrete) < len(variables):
        raise ValueError(
            f"minimize needs variables that are all real or all discrete; {', '.join(discrete)} is discrete, others "
            "are real. Search mixed spaces with a callable and a vo.Space."
        )
    return objective


def _discrete(
    objective: Objective, options: dict[str, Any], resume: Any, constraints: tuple[Constraint, ...]
) -> Result:
    """Hand over to the solver of bits and choices."""
    from varopt.optimize._discrete import minimize_discrete  # bits bring forty modules along

    unknown = [name for name in options if name not in _DISCRETE_OPTIONS]
    if unknown or resume is not None:
        raise ValueError(f"{unknown[0] if unknown else 'resume'} does not apply to discrete variables.")
    _check_options(options["tol"], "auto", options["time_limit"], options["callback"])
    if constraints:
        from varopt.optimize._discrete_constrained import minimize_constrained_bits

        return minimize_constrained_bits(objective, constraints, **options)
    return minimize_discrete(objective, **options)


_DISCRETE_OPTIONS = ("tol", "method", "x0", "callback", "progress", "time_limit", "target", "seed", "device", "beta")


def _check_options(tol: Any, method: Any, time_limit: Any, callback: Any) -> tuple[float, float | None]:
    if not _is_number(tol) or not 0.0 <= float(tol) < math.inf:
        raise ValueError(f"tol must be a number >= 0; got {tol!r}.")
    if not isinstance(method, (Way, Auto)) and method not in ("auto", "freezing", *METHODS):
        names = ", ".join(map(repr, ("auto", *METHODS)))
        raise ValueError(f"method must be one of {names}, or a vo.solvers.Method; got {method!r}.")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of the state; got {callback!r}.")
    if time_limit is not None and not (_is_number(time_limit) and float(time_limit) > 0):
        raise ValueError(f"time_limit must be a positive number of seconds; got {time_limit!r}.")
    return float(tol), None if time_limit is None else float(time_limit)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


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


def conclude(
    objective: Objective, problem: Composite, state: State, tol: float, status: Status | None, method: str
) -> Result:
    x = state.x
    if not math.isfinite(state.upper) and state.latest is not None and np.all(np.isfinite(state.latest)):
        x = state.latest
    value = float(objective.at(x))  # as the user's own objective gives it, not as the reduced problem does
    tidy = np.where(np.abs(x) <= 1e-11 * np.abs(x).max(initial=0.0), 0.0, x)  # zeros that are zeros but for rounding
    if not np.array_equal(x, tidy) and (tidied := float(objective.at(tidy))) <= value:
        x, value = tidy, tidied
    x = x + 0.0  # no zero is negative
    bracket = _bracket(objective, problem, state, x, value, tol)
    lower, upper, assumption, proof, state.unit = bracket
    if status is None:
        status = _status(objective, problem, state, bracket, tol)
        lower = -math.inf if status is Status.UNBOUNDED else lower
    if objective.assumption:
        assumption = "; ".join(part for part in (objective.assumption, assumption) if part)
    certificate = proof(lower, upper, assumption) if math.isfinite(lower) else NoCertificate(lower, upper)
    names = ("time", "steps", "sigma", "upper", "lower", "bound")
    history = {name: np.array([row[name] for row in state.history]) for name in names}
    return Result(
        x, value, certificate, status, method, state.sigma, state.steps, state.elapsed, history, objective.slices,
        state.evaluations, state,
    )  # fmt: skip


class _Bracket(NamedTuple):
    """Bounds of the optimum, what they assume, and how they came about."""

    lower: float
    upper: float
    assumption: str
    proof: type[Certificate]
    unit: float = 1.0

    def within(self, tol: float) -> bool:
        """Whether the bracket is within the relative tolerance."""
        return math.isfinite(self.lower) and self.upper - self.lower <= tol * max(self.unit, abs(self.upper))


def _bracket(objective: Objective, problem: Composite, state: State, x: Vector, value: float, tol: float) -> _Bracket:
    """What is proved where that is enough, or all there is; else what the method claims, with its assumption."""
    claimed = _claimed(problem, state, value)
    if problem.not_convex or not math.isfinite(value):
        return claimed
    verifier = Verifier(objective, x)
    # Where the method has closed its own gap, it is worth while to try more than one way to prove that.
    gap = 0.5 * tol * max(state.unit, abs(value)) if claimed.within(tol) else math.inf
    proved = _proved(verifier, state, value, state.dual, gap)
    if proved.within(tol):
        return proved
    if claimed._replace(lower=floor(problem)).within(tol):
        # Parts that are at their least values prove it without any subgradient.
        at_rest = [np.zeros(r.count) for r in problem.rows]
        at_rest += [np.zeros(int(g.sizes[g.weights > 0.0].sum())) for g in problem.groups if np.any(g.weights > 0.0)]
        proved = max(proved, _proved(verifier, state, value, at_rest, gap), key=lambda b: b.lower)
    # Of parts that cancel at x no digit may be left: then their own size is what the rounding is measured by.
    unit = max(state.unit, _SHARE * _sizes(problem, x))
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
    return claimed._replace(upper=upper, assumption=claimed.assumption or ROUNDING)


def _sizes(problem: Composite, x: Vector) -> float:
    """The sizes of the parts at x, added up."""
    rows = (abs(r.total(z)) for r, z in zip(problem.rows, problem.positions(x), strict=True))
    return float(np.abs(problem.gradient_at_zero) @ np.abs(x)) + sum(rows)


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


def _status(objective: Objective, problem: Composite, state: State, bracket: _Bracket, tol: float) -> Status:
    """How a run that was not stopped has ended."""
    if state.falls:
        return Status.UNBOUNDED
    if bracket.within(tol):
        convex = not problem.not_convex
        assumed = objective.assumption or (bracket.assumption and (convex or problem.indefinite))
        return Status.ASSUMED if assumed else Status.OPTIMAL
    if problem.not_convex:
        return Status.LOCAL
    # A lower bound that assumes nothing settles it.
    bounded = math.isfinite(bracket.lower) and not bracket.assumption
    falls = not bounded and (falls_along(objective, state.x) or falls_for_ever(objective, _MORE_ENTRIES) is not None)
    return Status.UNBOUNDED if falls else Status.GAP_OPEN
