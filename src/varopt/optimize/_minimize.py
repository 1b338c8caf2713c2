"""`minimize` and `maximize`: an objective in, a point and a bracket of the optimum out."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from varopt.bounds import Bound
from varopt.composite import NotComposite
from varopt.model import (
    Affine,
    Constraint,
    Expression,
    Objective,
    Parametric,
    Variable,
    as_constraints,
    as_objective,
    ordered,
)
from varopt.model.blocks import LargestBlock
from varopt.model.maps import latest_products, no_latest_products
from varopt.optimize._composite import minimize_composite, start
from varopt.optimize._largest_entries import LargestEntries
from varopt.optimize._result import Result
from varopt.solvers import METHODS, Auto, State, Way

__all__ = ["check_options", "maximize", "minimize", "minimize_together"]

_BOUND_OPTIONS = ("tol", "callback", "progress", "time_limit", "parameters", "schedule", "iterations")
# What users of SciPy and CVXPY write first, and what does the same here.
_ELSEWHERE_CALLED = {
    "constraints": "subject_to=[...]",
    "bounds": "subject_to=[low <= w, w <= high]",
    "verbose": "progress=True",
    "disp": "progress=True",
    "solver": "method=...",
    "eps": "tol=...",
    "max_seconds": "time_limit=...",
    "timeout": "time_limit=...",
}
_REAL_OPTIONS = ("tol", "method", "x0", "resume", "callback", "progress", "time_limit", "subject_to", "memory")
_DISCRETE_OPTIONS = ("tol", "method", "x0", "callback", "progress", "time_limit", "target", "seed", "device", "beta")


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
        Where to search for the minimum of a callable; `tol` and `resume` then do not apply. SciPy's bounds are a box
        too: a list of pairs ``(low, high)``, or `scipy.optimize.Bounds`.
    tol : float
        Relative: stop when ``upper - lower <= tol * max(unit, |upper|)``. The unit is about a 4,000th of the sizes of
        all parts at zero or, where they cancel, at x, so that it changes with the units of f and nothing else does.
    method : str, Method or Auto
        ``"auto"`` chooses, and other methods go on where one ends without a proof, of at most sixteen variables exact
        arithmetic first (``rational``, or ``decimal`` beside norms); `Result.method` says what ran. By
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
        Called with the state after every level, of a black box with the `Search` after every generation; it may raise
        `StopIteration` to end the run with what is known.
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
        ``device``, to search on PyTorch. For both: ``beta``, the schedule of a free-energy search: from progress in
        [0, 1] to the beta of ``<log p> + beta <f>``, such as `varopt.solvers.Cooling`. For a bound: ``parameters``, the
        names of those that move (all by default), ``schedule``, how its family is sharpened between descents, and
        ``iterations``.

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
    shared: dict[str, Any] = {"callback": callback, "progress": progress, "time_limit": time_limit}
    if isinstance(f, Bound):
        others = {"space": space, "x0": x0, "resume": resume, "subject_to": subject_to, "memory": memory,
                  "method": None if method == "auto" else method}  # fmt: skip
        return _bound(f, others, {"tol": tol, **shared, **black_box})
    shared |= {"method": method, "x0": x0}
    if space is not None:
        return _black_box(space, "minimize", f, {**shared, **black_box}, tol, resume, subject_to)
    constraints = () if subject_to is None else as_constraints(subject_to)
    if callable(callback):
        shared["callback"] = _apart(callback)
    try:
        with latest_products():
            return _checked(f, constraints, tol, resume, memory, shared, black_box)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(
            "varopt has no answer to give: it was interrupted before it had a point, or again at its end."
        )
        raise


def _apart(callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A callback that sees none of the products of its run: what it computes may be of arrays that it changes."""

    def called(state: Any) -> Any:
        with no_latest_products():
            return callback(state)

    return called


def _checked(
    f: Any, constraints: tuple[Constraint, ...], tol: float, resume: Any, memory: Any, shared: dict[str, Any],
    black_box: dict[str, Any],
) -> Result:  # fmt: skip
    """Minimise an objective, once it is seen to be admissible."""
    objective = _admissible(f, constraints)
    if all(v.kind != "real" for v in _variables(objective, constraints)):
        return _discrete(objective, {"tol": tol, **shared, **black_box}, resume, constraints)
    if black_box:
        raise ValueError(_unknown_option(next(iter(black_box)), _REAL_OPTIONS))
    tol, time_limit = check_options(tol, shared["method"], shared["time_limit"], shared["callback"])
    shared |= {"tol": tol, "time_limit": time_limit, "resume": resume}
    if any(isinstance(block, LargestBlock) for block in objective.blocks):
        lifted = LargestEntries(objective, constraints)
        shared["x0"] = lifted.start(shared["x0"])
        return lifted.told(_real(lifted.objective, constraints, memory, shared))
    return _real(objective, constraints, memory, shared)


def _unknown_option(name: str, accepted: Sequence[str]) -> str:
    """What to say to an option that an objective does not take."""
    if name in _ELSEWHERE_CALLED:
        return f"minimize has no option {name!r} for an objective: write {_ELSEWHERE_CALLED[name]}."
    return (
        f"minimize has no option {name!r} for this objective; accepted: {', '.join(accepted)}. Others, such as budget, "
        "are for a callable and a space."
    )


def _real(objective: Objective, constraints: tuple[Constraint, ...], memory: Any, options: dict[str, Any]) -> Result:
    """Hand over to what minimises in real variables: with constraints, with data elsewhere, or neither."""
    stored = any(block.stored for block in objective.blocks)
    if constraints:
        if stored:
            raise NotComposite("subject_to needs data in memory: the rows of this objective are elsewhere.")
        from varopt.optimize.constrained import minimize_constrained  # most problems have none, and load sooner

        return _placed(minimize_constrained(objective, constraints, **options), objective)
    if stored:
        state = start(objective, options.pop("x0"), options.pop("resume"))
        return _elsewhere([objective], [state], options.pop("method"), memory=memory, **options)[0]
    return _placed(minimize_composite(objective, **options), objective)


def _placed(result: Result, objective: Objective) -> Result:
    """Values of variables where the data came from: of PyTorch, CuPy or JAX, as arrays of these."""
    arguments = (getattr(block, "argument", None) for block in objective.blocks)
    place = next((a.place for a in arguments if isinstance(a, Affine) and a.place is not None), None)
    return result if place is None else replace(result, place=place)


def minimize_together(
    objectives: Sequence[Any], *, tol: float = 1e-9, memory: int | str | None = None, progress: bool = False,
    time_limit: float | None = None,
) -> list[Result]:  # fmt: skip
    """Minimise objectives whose rows are the same and not in memory: they share the passes over the data."""
    tol, time_limit = check_options(tol, "auto", time_limit, None)
    admissible = [_admissible(f) for f in objectives]
    states = [start(objective, None, None) for objective in admissible]
    options = {"callback": None, "progress": progress, "time_limit": time_limit, "memory": memory}
    return _elsewhere(admissible, states, "auto", tol=tol, **options)


def maximize(f: Any, space: Any = None, **options: Any) -> Result:
    """Maximise a composite objective or a black box: `minimize` of ``-f``, mirrored, with its options."""
    if isinstance(f, Bound):
        return minimize(f.mirrored(), space, **options).mirrored()
    if space is not None:
        return _black_box(space, "maximize", f, options, subject_to=options.pop("subject_to", None))
    if options.get("target") is not None:
        options["target"] = -options["target"]
    return minimize(-as_objective(f), **options).mirrored()


def _bound(f: Bound, others: dict[str, Any], options: dict[str, Any]) -> Result:
    """Descend a bound in the parameters of its family."""
    unknown = [name for name, value in others.items() if value is not None]
    unknown += [name for name in options if name not in _BOUND_OPTIONS]
    if unknown:
        raise ValueError(
            f"{unknown[0]} does not apply to a bound, whose family says where to begin; accepted: "
            f"{', '.join(_BOUND_OPTIONS)}."
        )
    check_options(options["tol"], "auto", options["time_limit"], options["callback"])
    from varopt.optimize._bound_descent import minimize_bound  # brings families along, which most problems do without

    return minimize_bound(f, **options)


def _black_box(
    space: Any, sense: str, f: Any, options: dict[str, Any], tol: float = 1e-9, resume: Any = None,
    subject_to: Any = None,
) -> Result:  # fmt: skip
    """Hand over to the space, which knows how to be searched: a layer above may be asked, but not imported."""
    if subject_to is not None:
        options["subject_to"] = subject_to
    if isinstance(f, (Expression, Parametric)):
        raise ValueError(
            f"{sense} takes a space for a callable only, and {f} is an objective: its constraints are given by name, "
            f"as in vo.{sense}(f, subject_to=[w >= 0]); got {space!r}."
        )
    if not hasattr(space, sense):
        space = importlib.import_module("varopt.search").as_space(space)
    if tol != 1e-9 or resume is not None:
        raise ValueError("tol and resume do not apply to a black box: use budget and target, journal or Search.load.")
    result: Result = getattr(space, sense)(f, **options)
    return result


def _elsewhere(objectives: Sequence[Objective], states: Sequence[State], method: Any, **options: Any) -> list[Result]:
    """Hand over to what reads data part by part."""
    from varopt.optimize.anywhere import METHOD, minimize_stored  # a tenth of the time to load, for few problems

    if method not in ("auto", METHOD):
        name = method if isinstance(method, str) else getattr(method, "name", type(method).__name__)
        where = next(block.stored[0].where for block in objectives[0].blocks if block.stored)
        raise NotComposite(f"method {name!r} does not take this objective: its rows are {where}; {METHOD!r} does.")
    return minimize_stored(objectives, states, **options)


def _variables(objective: Objective, constraints: tuple[Constraint, ...]) -> tuple[Variable, ...]:
    return ordered([*objective.variables, *(v for c in constraints for v in c.variables)])


def _admissible(f: Any, constraints: tuple[Constraint, ...] = ()) -> Objective:
    if callable(f) and not isinstance(f, (Expression, Parametric)):
        raise ValueError(
            "minimize needs a space for a black box: where to search is its second argument, as in "
            "vo.minimize(f, vo.Box(low, high)) or vo.minimize(f, [(low, high), ...])."
        )
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
    from varopt.optimize._discrete_constrained import minimize_constrained_bits  # likewise

    unknown = [name for name in options if name not in _DISCRETE_OPTIONS]
    if unknown or resume is not None:
        raise ValueError(_unknown_option(unknown[0] if unknown else "resume", (*_DISCRETE_OPTIONS, "subject_to")))
    check_options(options["tol"], "auto", options["time_limit"], options["callback"])
    if constraints:
        return minimize_constrained_bits(objective, constraints, **options)
    return minimize_discrete(objective, **options)


def check_options(tol: Any, method: Any, time_limit: Any, callback: Any) -> tuple[float, float | None]:
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
