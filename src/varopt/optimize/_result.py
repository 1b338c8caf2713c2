"""The outcome of a run: a point, a bracket of the optimum, and how it came about."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from varopt._display import Panels, bracket_drawing, bracket_words, card, curves, duration, fold, plain, table
from varopt._elsewhere import Hinting
from varopt.certificates import Certificate
from varopt.model import Constraint, Variable
from varopt.solvers import State

__all__ = ["Result", "Status"]

Vector = NDArray[np.float64]


class Status(Enum):
    """How a run ended; the value is the sentence that is shown."""

    OPTIMAL = "The certified gap is within the tolerance."
    PROVED = "No point is better."
    INFEASIBLE = "Proved: no point satisfies all that is required."
    NOT_FOUND = (
        "No point was found that satisfies all constraints, and it was not proved that there is none; the lower bound "
        "holds all the same."
    )
    SETTLED = "The search has stopped improving; the bracket holds all the same. Give time_limit to search on."
    GAP_OPEN = "The certified gap is wider than the tolerance; the bracket holds all the same."
    ASSUMED = (
        "The gap is within the tolerance under the assumption that the certificate names, which rounding hides from "
        "proof."
    )
    LOCAL = (
        "The best of several starts; the optimum may be better, up to the other end of the bracket. "
        "Raise starts or effort of vo.solvers.Graduated to look longer."
    )
    UNBOUNDED = "The objective is unbounded: it falls for ever along a direction (rises, when maximising)."
    TIME_LIMIT = "The time limit was reached; the bracket is what was known by then. Raise time_limit to narrow it."
    INTERRUPTED = "The run was interrupted; the bracket is what was known by then."
    BUDGET = "The budget of evaluations is spent. Raise budget to go on."
    TARGET = "A value at least as good as the target was found."
    NO_VALUE = "No evaluation gave a value; Result.errors says why. Fix the objective."
    FAILURES = "Too many evaluations failed in a row; Result.errors says how. Fix the objective, or raise max_failures."


@dataclass(frozen=True)
class Result(Hinting):
    """The outcome of `minimize` or `maximize`. ``r.x`` is flat; ``r[w]`` is the value of a variable.

    Attributes
    ----------
    x : ndarray
        The best point found, in the order of the objective's variables.
    fun : float
        The objective there.
    lower, upper : float
        ``lower <= optimum <= upper``, rounding included: for a minimum `fun` is `upper`, or less than it by rounding.
    gap : float
        ``upper - lower``.
    certificate : Certificate
        How the bracket came about and what it assumes.
    status : Status
        How the run ended; ``str(r.status.value)`` is a sentence.
    method : str
        What ran, in the order in which it began: ``"working-set > pivoting"`` where a method has smaller problems
        solved, ``"newton > interior-point"`` where another went on after it had ended without a proof,
        ``"none"`` where the start is seen to be optimal, or the objective to fall for ever.
    sigma : float
        The last dispersion: for ``newton`` relative to the spread of the rows, and where the exact solver took over.
    nit : int
        Steps of the method.
    nfev : int
        Evaluations of the objective or its bound, where the method counts them; else 0.
    time : float
        Seconds.
    history : dict of ndarray
        ``time``, ``steps``, ``sigma``, ``upper`` and ``lower`` after every level; for ``graduated`` also ``bound``, the
        value of the bound there, itself no lower than the optimum (NaN for other methods).
    state : State
        What the solver knew at the end: look at it, keep it, or hand it to ``minimize(f, resume=r.state)`` to go on.
    violation : float
        By how much x misses its constraints at most: rounding, unless the status says otherwise.
    multipliers : mapping from constraints
        ``r.multipliers[c]`` has the shape of c. They are those of the Lagrangian ``f + multipliers' g`` of the normal
        form ``g <= 0``, where g is ``left - right`` for ``<=`` and ``==``, and ``right - left`` for ``>=``: for
        inequalities what a unit of slack is worth, never negative, when minimising and when maximising (then of -f).
        NaN where they are not known.
    proof : Contradiction, Ray or None
        Where no point satisfies the constraints (INFEASIBLE), a combination of them that contradicts itself; where the
        objective is unbounded on them, the direction.
    passes : int
        How often data that are not in memory were read; 0 where all are.
    place : callable or None
        What takes an array to the device of the data, where they are on one: ``r[w]`` is there, and `x` on the host.
    """

    _hints = MappingProxyType(dict.fromkeys(("value", "objective"), "the value found is r.fun"))

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
    nfev: int = 0
    state: State | None = None
    violation: float = 0.0
    multipliers: Mapping[Constraint, Any] = field(default_factory=dict, repr=False)
    proof: Any = None
    passes: int = 0
    pool: Any = None
    place: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)

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
        """Whether the tolerance or the target was reached."""
        return self.status in (Status.OPTIMAL, Status.ASSUMED, Status.PROVED, Status.TARGET)

    @property
    def message(self) -> str:
        """The sentence of the status; where the tolerance was missed, also what was reached and what to change."""
        if self.status is not Status.GAP_OPEN:
            return str(self.status.value)
        gap = self.gap / max(1.0 if self.state is None else self.state.unit, abs(self.upper))
        reached = f"Reached: {gap:.1e}" if math.isfinite(gap) else "One end is not known"
        advice = (
            "method='auto' finishes exactly"
            if self.method in ("diagonal-newton", "lbfgs")
            else "vo.minimize(f) of the objective itself finishes exactly"
            if self.method.startswith("bound descent")
            else "raise tol, or measure the variables in comparable units"
        )
        return f"{self.status.value} {reached}; to change it, {advice}."

    def mirrored(self) -> Self:
        """The outcome of maximising minus the objective."""
        history = {**self.history, "upper": -self.history["lower"], "lower": -self.history["upper"]}
        if "bound" in history:
            history["bound"] = -history["bound"]
        pool = None if self.pool is None else self.pool.mirrored()
        return replace(self, fun=0.0 - self.fun, certificate=self.certificate.mirrored(), history=history, pool=pool)

    def to_json(self, **options: Any) -> str:
        """The outcome as JSON: value, bracket, how it came about, and the point; a number that is not finite is null.

        Parameters
        ----------
        **options
            Of `json.dumps`, such as ``indent=2``.

        Examples
        --------
        >>> import json
        >>> import varopt as vo
        >>> r = vo.minimize(vo.sum(vo.square(vo.Variable(2) - 1.0)))
        >>> json.loads(r.to_json())["status"]
        'OPTIMAL'
        """
        record = {
            "value": _plain_value(self.fun),
            "lower": _plain_value(self.lower),
            "upper": _plain_value(self.upper),
            "status": self.status.name,
            "message": self.message,
            "proof": str(self.certificate),
            "method": self.method,
            "seconds": self.time,
            "steps": self.nit,
            "x": _plain_value(self.x),
        }
        return json.dumps(record, **options)

    def __getitem__(self, variable: Variable) -> Any:
        if not isinstance(variable, Variable):
            raise KeyError(f"r[...] takes a variable itself, as in r[w], and r.x is the whole point; got {variable!r}")
        if variable not in self.slices:
            raise KeyError(f"{variable!r} does not occur in the objective")
        part = self._here(variable)
        return part if self.place is None or isinstance(part, float) else self.place(part)

    def _here(self, variable: Variable) -> Any:
        """The value of a variable, on the host."""
        part = self.x[self.slices[variable]]
        return float(part[0]) if variable.dimensions == () else part.reshape(variable.dimensions)

    def __repr__(self) -> str:
        rows = [
            ("value", f"{self.fun:.12g}"),
            ("optimum", self._optimum),
            *self._rows(),
        ]
        width = max(8, *(len(name) for name, _ in rows))
        return "\n".join([f"{self.status.name}: {self.message}", *(f"  {name:<{width}} {text}" for name, text in rows)])

    @property
    def _optimum(self) -> str:
        """Where it lies, in words."""
        if self.status is Status.UNBOUNDED:
            return "none, as there is no end to it"
        return bracket_words(self.lower, self.upper, self.fun)

    def _rows(self) -> list[tuple[str, str]]:
        """What is shown below value and bracket: the point, and what ran."""
        violation = [("violation", f"{self.violation:.2g}")] if self.multipliers or self.violation else []
        return [("x", _in_short(self)), *violation, ("method", self._way)]

    @property
    def _way(self) -> str:
        steps = f", {self.nit} step{'s' * (self.nit > 1)}" if self.nit else ""
        passes = f", {self.passes} pass{'es' * (self.passes > 1)}" if self.passes else ""
        return f"{self.method}{steps}{passes}, {duration(self.time)}"

    def explain(self) -> str:
        """What the bracket rests on: how it was proved, what that assumes, and how the run went.

        Examples
        --------
        >>> import varopt as vo
        >>> x = vo.Variable(2, name="x")
        >>> print(vo.minimize(vo.sum_squares(x) + vo.norm1(x - 1.0)).explain())
        OPTIMAL: The certified gap is within the tolerance.
        The optimum lies in [1.5..., 1.5...]; the value found is 1.5. The gap is ...
        Proof: DualGap, by weak duality, with subgradients of the terms as the dual point.
        It assumes nothing.
        Way: ...
        """
        return "\n".join(
            [
                f"{self.status.name}: {self.message}",
                self._bracket,
                self.certificate.explain(),
                f"Way: {self._way}{self._sigmas}.",
            ]
        )

    @property
    def _bracket(self) -> str:
        """The bracket in a sentence."""
        if not np.isfinite(self.gap):
            return f"The value found is {self.fun:.15g}. Optimum: {self._optimum}."
        return (
            f"The optimum lies in [{self.lower:.15g}, {self.upper:.15g}]; the value found is {self.fun:.15g}. "
            f"The gap is {self.gap:.2g}{self._share}."
        )

    @property
    def _share(self) -> str:
        """The gap relative to the value, where that says something."""
        return f", {self.gap / abs(self.fun):.1g} of the value" if 0.0 < self.gap < 0.5 * abs(self.fun) else ""

    @property
    def _sigmas(self) -> str:
        first, last = self.history.get("sigma", np.empty(0))[:1], self.sigma
        if not np.isfinite(last) or (not last and not (first.size and first[0])):
            return ""
        return (
            f", sigma from {first[0]:.2g} to {last:.2g}" if first.size and first[0] != last else f", sigma {last:.2g}"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("value", f"{self.fun:.12g}"),
            ("optimum", self._optimum),
            *self._rows(),
        ]
        return card(
            f"{self.status.name}: {self.message}",
            rows,
            "" if self.status is Status.UNBOUNDED else bracket_drawing(self.lower, self.upper),
            fold("how it went", self._course()),
            fold("what this rests on", plain(self.explain())),
        )

    def _course(self) -> str:
        """The history as a drawing and a table, in HTML."""
        history = self.history
        shown = {name: history[name] for name in ("steps", "time", "sigma", "lower", "upper")}
        drawing = curves(shown["steps"], {"upper": shown["upper"], "lower": shown["lower"]})
        return drawing + table(shown)

    def plot(self, axes: Any = None) -> Any:
        """Bracket and sigma, against steps and against seconds. Needs Matplotlib (the extra `plot`); returns the axes.

        Where nothing was smoothed, there is no sigma, and the relative gap takes its place.

        Parameters
        ----------
        axes : 2 x 2 array of Matplotlib axes, optional
            Where to draw: the bracket in the first row, sigma or the gap in the second; by steps left, by time right.
        """
        import matplotlib.pyplot as plt

        if axes is None:
            axes = plt.subplots(2, 2, figsize=(8.5, 5), layout="constrained", sharex="col", sharey="row")[1]
        history = {name: np.where(np.isfinite(values), values, np.nan) for name, values in self.history.items()}
        below, label_below, color = history["sigma"], "sigma", "C2"
        if not np.any(below > 0.0):
            size = max(abs(self.upper), np.finfo(float).tiny) if np.isfinite(self.upper) else 1.0
            below, label_below, color = (history["upper"] - history["lower"]) / size, "relative gap", "C3"
        below = np.where(below > 0.0, below, np.nan)
        for column, (name, label) in zip(np.asarray(axes).T, (("steps", "steps"), ("time", "seconds")), strict=True):
            bracket, dispersion = column
            for side in ("upper", "lower"):
                bracket.plot(history[name], history[side], "o-", ms=3, label=side)
            dispersion.semilogy(history[name], below, "o-", ms=3, color=color)
            dispersion.set_xlabel(label)
        axes[1][0].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)  # half a step is none
        axes[0][0].set_ylabel("objective")
        if self.passes:  # on the right: on the left is what Matplotlib takes from the numbers of the axis
            passes = f"{self.passes} pass{'es' * (self.passes > 1)} over the data"
            axes[0][0].set_title(passes, loc="right", fontsize="medium")
        axes[1][0].set_ylabel(label_below)
        axes[0][0].legend(title="bracket of the optimum")
        return Panels.of(axes)


def _plain_value(value: Any) -> Any:
    """A value as JSON has it: null for what is not finite, and text for options that are objects."""
    if isinstance(value, Mapping):
        return {str(name): _plain_value(part) for name, part in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain_value(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain_value(part) for part in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def progress_line(state: State) -> str:
    """Where a run is: its steps, and what is left of the gap as soon as both sides are known."""
    gap = f"gap {state.gap:.2e}" if np.isfinite(state.gap) else f"sigma {state.sigma:.2e}" if state.sigma else ""
    return "  ".join(filter(None, [f"step {state.steps}", gap, duration(state.elapsed)]))


def final_line(result: Result) -> str:
    """How a run ended, with its gap; of an unknown side nothing."""
    gap = f"gap {result.gap:.2g}, " if np.isfinite(result.gap) else ""
    return f"{result.status.name}: {gap}{duration(result.time)}"


def _in_short(result: Result) -> str:
    """The point: short values of variables by name, of long ones the length."""
    named = {str(variable): result._here(variable) for variable in result.slices}
    if not named:
        return _value(result.x)
    shown = [f"{name} = {_value(value)}" for name, value in list(named.items())[:4]]
    return ", ".join(shown + ["..."] * (len(named) > 4))


def _value(value: Any) -> str:
    array = np.asarray(value)
    if array.size > 8 or array.dtype.kind not in "fiub":
        return f"{array.size} numbers" if array.dtype.kind in "fiub" else str(value)
    return np.array2string(array, precision=5, separator=", ").replace("\n", "")
