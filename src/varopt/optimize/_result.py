"""The outcome of a run: a point, a bracket of the optimum, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import Certificate
from varopt.model import Variable
from varopt.solvers import State

__all__ = ["Result", "Status"]

Vector = NDArray[np.float64]


class Status(Enum):
    """How a run ended; the value is the sentence that is shown."""

    OPTIMAL = "The certified gap is within the tolerance."
    PROVED = "Proved: no point is better."
    SETTLED = "The search has stopped improving; the bracket holds all the same. Give time_limit to search on."
    GAP_OPEN = "The certified gap is wider than the tolerance; the bracket holds all the same."
    LOCAL = (
        "The best of several starts: the optimum is no higher, and how much lower it may be is what the bracket says. "
        "Raise starts or effort of vo.solvers.Graduated to look longer."
    )
    UNBOUNDED = "The objective is unbounded: it falls for ever along a direction (rises, when maximising)."
    TIME_LIMIT = "The time limit was reached; the bracket is what was known by then. Raise time_limit to narrow it."
    INTERRUPTED = "The run was interrupted; the bracket is what was known by then."
    BUDGET = "The budget of evaluations is spent. Raise budget to go on."
    TARGET = "A value at least as good as the target was found."
    FAILURES = "Too many evaluations failed in a row; Result.errors says how. Fix the objective, or raise max_failures."


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
    nfev: int = 0
    state: State | None = None

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
        return self.status in (Status.OPTIMAL, Status.PROVED, Status.TARGET)

    @property
    def message(self) -> str:
        """The sentence of the status; where the tolerance was missed, also what was reached and what to change."""
        if self.status is not Status.GAP_OPEN:
            return str(self.status.value)
        reached = self.gap / max(1.0, abs(self.upper))
        advice = (
            "method='auto' finishes exactly"
            if self.method in ("diagonal-newton", "lbfgs")
            else "raise tol, or measure the variables in comparable units"
        )
        return f"{self.status.value} Reached: {reached:.1e}; to change it, {advice}."

    def mirrored(self) -> Self:
        """The outcome of maximising minus the objective."""
        history = {**self.history, "upper": -self.history["lower"], "lower": -self.history["upper"]}
        if "bound" in history:
            history["bound"] = -history["bound"]
        return replace(self, fun=0.0 - self.fun, certificate=self.certificate.mirrored(), history=history)

    def __getitem__(self, variable: Variable) -> Any:
        if variable not in self.slices:
            raise KeyError(f"{variable!r} does not occur in the objective")
        part = self.x[self.slices[variable]]
        return float(part[0]) if variable.dimensions == () else part.reshape(variable.dimensions)

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"{self.status.name}: {self.message}",
                f"  objective  {self.fun:.12g}",
                f"  bracket    [{self.lower:.12g}, {self.upper:.12g}], gap {self.gap:.3g}",
                f"  proof      {self.certificate}",
                f"  method     {self.method}: {self.nit} steps, sigma {self._sigmas}, {self.time:.3g} s",
            ]
        )

    @property
    def _sigmas(self) -> str:
        first, last = self.history["sigma"][:1], self.sigma
        return f"{first[0]:.2g} -> {last:.2g}" if first.size and first[0] != last else f"{last:.2g}"

    def plot(self, axes: Any = None) -> Any:
        """Bracket and sigma, against steps and against seconds. Needs Matplotlib (the extra `plot`); returns the axes.

        Parameters
        ----------
        axes : 2 x 2 array of Matplotlib axes, optional
            Where to draw: the bracket in the first row, sigma in the second; by steps left, by time right.
        """
        import matplotlib.pyplot as plt

        if axes is None:
            axes = plt.subplots(2, 2, figsize=(8.5, 5), layout="constrained", sharex="col", sharey="row")[1]
        history = {name: np.where(np.isfinite(values), values, np.nan) for name, values in self.history.items()}
        for column, (name, label) in zip(np.asarray(axes).T, (("steps", "steps"), ("time", "seconds")), strict=True):
            bracket, dispersion = column
            for side in ("upper", "lower"):
                bracket.plot(history[name], history[side], "o-", ms=3, label=side)
            dispersion.semilogy(
                history[name], np.where(history["sigma"] > 0, history["sigma"], np.nan), "o-", ms=3, color="C2"
            )
            dispersion.set_xlabel(label)
        axes[0][0].set_ylabel("objective")
        axes[1][0].set_ylabel("sigma")
        axes[0][0].legend(title="bracket of the optimum")
        return axes
