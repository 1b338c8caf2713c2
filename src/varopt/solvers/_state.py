"""What a solver knows while it runs: it can be looked at, kept, and handed back to go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import Certificate, DualGap

__all__ = ["Check", "State"]

Vector = NDArray[np.float64]

_CANCELLED = 2.0**-44  # share of a value that its difference from a gap as large may have lost to rounding


@dataclass
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
        if 0.0 < abs(lower) <= _CANCELLED * abs(value):  # what is left of two large numbers is rounding
            lower -= _CANCELLED * abs(value)
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
