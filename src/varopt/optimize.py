"""`minimize` and `maximize`: an objective in, a point and a bracket of the optimum out."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_finite
from varopt.certificates import Certificate, DualGap, NoCertificate
from varopt.model import Objective, Variable, as_objective
from varopt.model._points import split
from varopt.solvers import Composite, NotComposite, State, composite, falls_for_ever, solve
from varopt.solvers._crossover import cross_over

__all__ = ["Result", "Status", "maximize", "minimize"]

Vector = NDArray[np.float64]


class Status(Enum):
    """How a run ended; the value is the sentence that is shown."""

    OPTIMAL = "The certified gap is within the tolerance."
    GAP_OPEN = "The certified gap is wider than the tolerance; the bracket holds all the same. Raise tol or rescale x."
    UNBOUNDED = "The objective is unbounded: it falls for ever along a direction (rises, when maximising)."
    TIME_LIMIT = "The time limit was reached; the bracket is what was known by then. Raise time_limit to narrow it."
    INTERRUPTED = "The run was interrupted; the bracket is what was known by then."


@dataclass(frozen=True)
class Result:
    """The outcome of `minimize` or `maximize`. ``r.x`` is flat; ``r[w]`` is the value of a variable.

    Attributes
    ----------
    x : ndarray
        The best point found, in the order of the objective's variables.
    fun : float
        The objective there.
    lower, upper : float
        ``lower <= optimum <= upper``; one of them is `fun`.
    gap : float
        ``upper - lower``.
    certificate : Certificate
        How the bracket came about and what it assumes.
    status : Status
        How the run ended; ``str(r.status.value)`` is a sentence.
    method : str
        The solver that ran.
    sigma : float
        The relative dispersion at which the exact solver took over.
    nit : int
        Newton steps.
    time : float
        Seconds.
    history : dict of ndarray
        ``time``, ``steps``, ``sigma``, ``upper`` and ``lower`` after every level.
    """

    x: Vector
    fun: float
    certificate: Certificate
    status: Status
    method: str
    sigma: float
    nit: int
    time: float
    history: dict[str, Vector]
    slices: dict[Variable, slice]

    @property
    def lower(self) -> float:
        """A lower bound on the optimum."""
        return self.certificate.lower

    @property
    def upper(self) -> float:
        """An upper bound on the optimum."""
        return self.certificate.upper

    @property
    def gap(self) -> float:
        """``upper - lower``."""
        return self.certificate.gap

    @property
    def success(self) -> bool:
        """Whether the tolerance was reached."""
        return self.status is Status.OPTIMAL

    @property
    def message(self) -> str:
        """The sentence of the status."""
        return self.status.value

    def __getitem__(self, variable: Variable) -> Any:
        if variable not in self.slices:
            raise KeyError(f"{variable!r} does not occur in the objective")
        part = self.x[self.slices[variable]]
        return float(part[0]) if variable.dimensions == () else part.reshape(variable.dimensions)

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"{self.status.name}: {self.status.value}",
                f"  objective  {self.fun:.12g}",
                f"  bracket    [{self.lower:.12g}, {self.upper:.12g}], gap {self.gap:.3g}",
                f"  proof      {self.certificate}",
                f"  method     {self.method}: {self.nit} Newton steps, sigma {self.sigma:.2g}, {self.time:.3g} s",
            ]
        )

    def plot(self, axes: Any = None) -> Any:
        """Bracket and sigma against time. Needs Matplotlib (the extra `plot`); returns the axes."""
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")[1] if axes is None else axes
        seconds = self.history["time"]
        for name in ("upper", "lower"):
            axes[0].plot(
                seconds, np.where(np.isfinite(self.history[name]), self.history[name], np.nan), "o-", ms=3, label=name
            )
        axes[0].set(xlabel="seconds", ylabel="objective", title="bracket of the optimum")
        axes[0].legend()
        axes[1].semilogy(seconds, self.history["sigma"], "o-", ms=3)
        axes[1].set(xlabel="seconds", ylabel="relative sigma", title="dispersion")
        return axes


class _TimeUp(Exception):
    """The time limit was reached."""


def minimize(
    f: Any, *, tol: float = 1e-9, method: str = "auto", x0: Any = None, callback: Callable[[State], Any] | None = None,
    progress: bool = False, time_limit: float | None = None,
) -> Result:  # fmt: skip
    r"""Minimise a convex composite objective to a certified gap.

    Parameters
    ----------
    f : objective
        A convex sum of quadratics and piecewise linear-quadratic terms of affine maps of real variables.
    tol : float
        Relative: stop when ``upper - lower <= tol * max(1, |upper|)``.
    method : {"auto", "newton"}
        Newton's method on the bound while sigma falls, then an exact crossover; ``auto`` chooses it.
    x0 : point, optional
        Where to start: a flat array or a mapping from variables. Zero by default.
    callback : callable, optional
        Called with the state after every level; it may raise `StopIteration` to end the run with what is known.
    progress : bool
        Show a live line on standard error.
    time_limit : float, optional
        Seconds after which the best so far is returned with its bracket.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        For what is not handled, naming the part and the reason: terms that are not convex, group norms, discrete
        variables.

    Notes
    -----
    On tall data the path starts on samples of the rows, so that few passes touch all of them; far rows are frozen as
    sigma falls. Memory: up to one copy of the data. The dense Hessian is p x p for p variables; nothing is n x n for n
    rows.

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
    """
    objective = _admissible(f)
    tol, time_limit = _check_options(tol, method, time_limit, callback)
    start = np.zeros(objective.size) if x0 is None else _start(objective, x0)
    state = State(start)
    try:
        problem = composite(objective)
    except NotComposite as refusal:
        raise NotComposite(
            f"minimize handles convex piecewise linear-quadratic objectives: {refusal} See f.explain()."
        ) from None

    def check(current: State) -> None:
        if progress:
            gap = current.upper - current.lower
            sys.stderr.write(
                f"\r  step {current.steps:4d}  sigma {current.sigma:8.2e}  gap {gap:8.2e}  {current.elapsed:6.1f} s "
            )
        if callback is not None:
            callback(current)
        if time_limit is not None and current.elapsed > time_limit:
            raise _TimeUp

    status: Status | None = None
    try:
        _run(problem, state, tol, check)
    except _TimeUp:
        status = Status.TIME_LIMIT
    except (KeyboardInterrupt, StopIteration):
        status = Status.INTERRUPTED
    finally:
        if progress:
            sys.stderr.write("\n")
    return _conclude(objective, problem, state, tol, status)


def maximize(f: Any, **options: Any) -> Result:
    """Maximise a concave composite objective to a certified gap: `minimize` of ``-f``, mirrored, with its options."""
    objective = as_objective(f)
    result = minimize(-objective, **options)
    history = {**result.history, "upper": -result.history["lower"], "lower": -result.history["upper"]}
    return Result(
        result.x, 0.0 - result.fun, result.certificate.mirrored(), result.status, result.method, result.sigma,
        result.nit, result.time, history, result.slices,
    )  # fmt: skip


def _admissible(f: Any) -> Objective:
    if callable(f) and not hasattr(f, "shape"):
        raise ValueError("minimize needs an objective of variables: black boxes are not handled yet.")
    objective = as_objective(f).checked
    discrete = [str(v) for v in objective.variables if v.kind != "real"]
    if discrete:
        raise ValueError(f"minimize needs real variables: {', '.join(discrete)} is discrete, which is not handled yet.")
    if not objective.variables:
        raise ValueError("minimize needs an objective with variables; this one is a constant.")
    return objective


def _check_options(tol: Any, method: Any, time_limit: Any, callback: Any) -> tuple[float, float | None]:
    if not _is_number(tol) or not 0.0 <= float(tol) < math.inf:
        raise ValueError(f"tol must be a number >= 0; got {tol!r}.")
    if method not in ("auto", "newton"):
        raise ValueError(f"method must be 'auto' or 'newton'; got {method!r}.")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of the state; got {callback!r}.")
    if time_limit is not None and not (_is_number(time_limit) and float(time_limit) > 0):
        raise ValueError(f"time_limit must be a positive number of seconds; got {time_limit!r}.")
    return float(tol), None if time_limit is None else float(time_limit)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _start(objective: Objective, x0: Any) -> Vector:
    values = split(objective.variables, (x0,))
    return np.concatenate([as_finite("x0", values[v]).astype(np.float64) for v in objective.variables])


def _run(problem: Composite, state: State, tol: float, check: Callable[[State], None]) -> None:
    if problem.rows:
        with np.errstate(over="ignore", invalid="ignore"):  # along a direction of unbounded descent
            solve(problem, state, tol, check)
    elif problem.hessian is None and not problem.slope.any():
        state.see(state.x, problem.constant, 0.0)  # a constant: every point is optimal
        state.record()
    else:
        exact = cross_over(problem, state.x, [], tol) if problem.hessian is not None else None
        if exact is not None:
            state.see(exact.x, exact.value, exact.gap, exact.assumption)
        state.sigma = 0.0
        state.record()


def _conclude(objective: Objective, problem: Composite, state: State, tol: float, status: Status | None) -> Result:
    x = state.x
    if not math.isfinite(state.upper) and state.latest is not None and np.all(np.isfinite(state.latest)):
        x = state.latest
    value = float(objective.at(x))  # as the user's own objective gives it, not as the reduced problem does
    tidy = np.where(np.abs(x) <= 1e-11 * np.abs(x).max(initial=0.0), 0.0, x)  # zeros that are zeros but for rounding
    if (tidied := float(objective.at(tidy))) <= value:
        x, value = tidy, tidied
    # Within rounding a lower bound may come out above the value; farther above, the assumption behind it is refuted.
    refuted = state.lower > value + 1e-9 * max(1.0, abs(value))
    upper, lower = value, -math.inf if refuted else min(state.lower, value)
    if status is None:
        status = Status.OPTIMAL if upper - lower <= tol * max(1.0, abs(upper)) else Status.GAP_OPEN
        if status is Status.GAP_OPEN and falls_for_ever(problem) is not None:
            status, lower = Status.UNBOUNDED, -math.inf
    certificate = DualGap(lower, upper, state.assumption) if math.isfinite(lower) else NoCertificate(lower, upper)
    names = ("time", "steps", "sigma", "upper", "lower")
    history = {name: np.array([row[name] for row in state.history]) for name in names}
    return Result(
        x, value, certificate, status, "newton", state.sigma, state.steps, state.elapsed, history, objective.slices
    )
