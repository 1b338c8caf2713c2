"""What a method is: a configuration that can refuse a problem in a sentence, or lower the bracket of a state.

A state is what a run knows: it can be looked at, kept, and handed back to go on. What methods need of a problem is said
once: a need is a function that says what is missing, or nothing; a method lists its needs (`Way.needs`), and its
refusal is the first that is not met. From how many variables on it pays is a number that it states (`Way.fewest`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._linalg import is_diagonal
from varopt.certificates import Certificate, DualGap
from varopt.composite import Composite, separable_kinks

__all__ = [
    "Check",
    "GaveUp",
    "Method",
    "Need",
    "Nested",
    "Solver",
    "State",
    "Way",
    "convex",
    "explicit_matrix",
    "kinks",
    "no_matrix",
    "no_single_variables",
    "only_kinks",
    "piecewise_quadratic",
    "quadratic_part",
    "ridge",
    "separable_norms",
    "signal",
]

Vector = NDArray[np.float64]
Need = Callable[[Composite], str]

_CANCELLED_GAP = 2.0**-44  # share of a value that its difference from a gap as large may have lost to rounding


@dataclass(eq=False)
class State:
    """The best point so far, its bracket, and the way there."""

    x: Vector
    upper: float = np.inf
    lower: float = -np.inf
    sigma: float = np.inf
    steps: int = 0
    evaluations: int = 0
    latest: Vector | None = None  # where the path stands; its value is not known yet
    assumption: str = ""
    proof: type[Certificate] = DualGap
    dual: Sequence[Vector | None] | None = None  # of rows, then norms, that proves the lower bound, where it is known
    bound: float = np.nan  # the value of the bound at this sigma, where the method looks at it
    falls: bool = False  # whether the objective was seen to fall for ever
    ray: Vector | None = None  # and along which direction, where that is told
    alone: bool = False  # whether nothing goes on after the method, a proof or not
    exact: bool = True  # whether the point should be exact, where a method can make it so, and not only its bracket
    unit: float = 1.0  # values below it count as this much where a gap is relative
    ran: list[str] = field(default_factory=list)  # the names of the methods, in the order in which they began
    history: list[dict[str, float]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    objective: Any = field(default=None, repr=False)  # what the lower bound was proved for
    pool: list[Vector] = field(default_factory=list, repr=False)  # of bits, the best different points, best first

    def resumed(self, objective: Any) -> State:
        """A state to go on from; the bracket is kept only where `objective` is the one it was proved for."""
        same = self.objective is objective
        return replace(
            self,
            upper=self.upper if same else np.inf,
            lower=self.lower if same else -np.inf,
            falls=self.falls and same,
            alone=False,
            started=time.perf_counter() - self.spent,
            ran=[],
            history=list(self.history),
            objective=objective,
        )

    @property
    def whole_dual(self) -> list[Vector] | None:
        """The dual where it is known of every row."""
        known = [u for u in self.dual or () if u is not None]
        return known if self.dual and len(known) == len(self.dual) else None

    @property
    def resumes(self) -> bool:
        """Whether the run goes on from an earlier one."""
        return self.latest is not None

    def begin(self, sigma: float) -> tuple[Vector, float]:
        """Where to begin: at x and the given sigma, or where the earlier run stood."""
        return (self.x, sigma) if self.latest is None else (self.latest, self.sigma)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    @property
    def gap(self) -> float:
        """Width of the bracket."""
        return self.upper - self.lower

    def reached(self, tol: float) -> bool:
        """Whether the bracket is within the relative tolerance."""
        return bool(np.isfinite(self.upper)) and self.gap <= self.allowed(tol)

    def allowed(self, tol: float) -> float:
        """The gap that is within the relative tolerance."""
        return tol * max(self.unit, abs(self.upper))

    def runs(self, names: Iterable[str]) -> None:
        """Note the methods that run; one that ran before is not named again."""
        self.ran.extend(name for name in names if name not in self.ran)

    def see(
        self, x: Vector, value: float, gap: float = np.inf, assumption: str = "",
        dual: Sequence[Vector | None] | None = None, proof: type[Certificate] = DualGap,
    ) -> None:  # fmt: skip
        """A point with its value and the gap that is proved for it, by the dual `dual` of the rows."""
        if value < self.upper:
            self.x, self.upper = x, value
        lower = value - gap
        if 0.0 < abs(lower) <= _CANCELLED_GAP * abs(value):  # what is left of two large numbers is rounding
            lower -= _CANCELLED_GAP * abs(value)
        if lower > self.lower:
            self.lower, self.assumption, self.proof, self.dual = lower, assumption, proof, dual

    @property
    def spent(self) -> float:
        """Seconds up to the last record."""
        return self.history[-1]["time"] if self.history else 0.0

    def record(self, value: float = np.inf) -> None:
        """Append to the history; `value` is that of the latest point, where it is known."""
        upper = min(self.upper, value)
        self.history.append(
            {
                "time": time.perf_counter() - self.started,
                "steps": self.steps,
                "sigma": self.sigma,
                "upper": upper,
                "lower": self.lower,
                "bound": self.bound,
            }
        )

    def __getstate__(self) -> dict[str, Any]:
        """Keep the time spent, not the clock of the process that spent it; the objective stays behind."""
        return {**self.__dict__, "started": 0.0, "objective": None}


Check = Callable[[State], None]  # sees the state after every level, and may raise to stop the run


def convex(problem: Composite) -> str:
    """Convexity, as far as it is known."""
    return problem.not_convex


def piecewise_quadratic(problem: Composite) -> str:
    """Pieces of degree two at most, and no norms."""
    return problem.not_quadratic


def separable_norms(problem: Composite) -> str:
    """Pieces of degree two at most, and no norms but of groups of variables that share none."""
    if not problem.groups:
        return problem.not_quadratic
    if any(r.term.degree > 2 for r in problem.rows):
        return replace(problem, groups=()).not_quadratic
    if problem.structure(separable_kinks)[0].balls is None:
        return "it has norms of something else than groups of variables that share none."
    return ""


def quadratic_part(problem: Composite) -> str:
    """A quadratic, whatever its matrix."""
    return "" if problem.squares or problem.matrix is not None else "it has no quadratic part."


def explicit_matrix(problem: Composite) -> str:
    """A quadratic that is given as a matrix, and not by squares of rows."""
    return "its quadratic is not given as a matrix." if problem.matrix is None or problem.squares else ""


def no_matrix(problem: Composite) -> str:
    """A quadratic, if any, that is given by squares of rows."""
    return "" if problem.matrix is None else "its quadratic is given as a matrix."


def no_single_variables(problem: Composite) -> str:
    """Terms that each see several variables."""
    if any(r.single is not None for r in (*problem.rows, *problem.squares)):
        return "it has terms of single variables, so that it sees all of them."
    return ""


def kinks(problem: Composite) -> str:
    """Kinks of single variables, as of the L1 norm, or of groups of them."""
    found, _ = problem.structure(separable_kinks)
    return "it has no kinks of single variables." if np.all(found.free) else ""


def only_kinks(problem: Composite) -> str:
    """No rows beside one kink for each variable."""
    others = any(r.single is None for r in problem.rows) or problem.structure(separable_kinks)[1]
    return "it has rows other than one kink for each variable." if others else ""


def ridge(problem: Composite) -> str:
    """A diagonal quadratic, and no kinks of single variables."""
    if not np.all(problem.structure(separable_kinks)[0].free):
        return "it has kinks of single variables."
    if problem.matrix is not None and not (sp.issparse(problem.matrix) and is_diagonal(problem.matrix)):
        return "its quadratic form couples variables."
    if problem.matrix is None and all(r.single is None for r in problem.squares):
        return "it has no ridge."
    return ""


def signal(problem: Composite) -> str:
    """A square for each variable, as where a signal is fitted point by point, and sparse rows."""
    sparse = all(r.linear.storage == "sparse" for r in problem.rows)
    if not sparse or quadratic_part(problem) or any(r.single is None for r in problem.squares):
        return "it is no chain of variables with a square for each, and differences of neighbours."
    return ""


Solver = Callable[[Composite, State, float, Check], None]  # lowers the bracket of a state, by whatever suits


class GaveUp(Exception):
    """A method has not done its work, whatever bracket there is by now: another is to take over.

    In small units any bracket is within a tolerance that counts values below one as one.
    """


class Way(ABC):
    """A way to minimise a composite. Subclasses are frozen dataclasses: their fields are the configuration."""

    name: ClassVar[str]
    needs: ClassVar[tuple[Need, ...]] = ()  # in the order in which they are told
    fewest: ClassVar[int] = 1  # variables for which `auto` may take it: of fewer, others take less time

    @property
    def alone(self) -> bool:
        """Whether nothing goes on after it, a proof or not, as where it was told how many steps to take."""
        return False

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks for this method, as a sentence; empty where it fits."""
        missing = (reason for need in self.needs if (reason := need(problem)))
        return next(missing, "") or self.lacks(problem)

    def lacks(self, problem: Composite) -> str:
        """What the problem lacks beside the needs, as a sentence; empty where it fits."""
        return ""

    def suits(self, problem: Composite) -> bool:
        """Whether `auto` may take the method where it does not refuse and there are enough variables."""
        return True


class Method(Way):
    """A way that asks nobody: it lowers the bracket by itself, or ends."""

    @abstractmethod
    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Go on from `state` until its bracket is within `tol` or nothing more can be gained.

        A method that gains nothing more returns, or raises `GaveUp`: what takes over then is no concern of its own.
        `check` sees the state after every level and may raise; the state must be valid whenever it is called.
        """


class Nested(Way):
    """A way that has smaller problems solved on its own."""

    @abstractmethod
    def solve(self, problem: Composite, state: State, tol: float, check: Check, solver: Solver) -> None:
        """As `Method.solve`, with what solves the smaller problems."""
