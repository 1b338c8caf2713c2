"""What a reduction is: a smaller problem, and the way back from its answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import dual_gap
from varopt.composite import Composite
from varopt.solvers._method import Check, Nested, Solver, State

__all__ = ["Lifted", "Reduction", "Smaller"]

Vector = NDArray[np.float64]


@dataclass(kw_only=True, eq=False)
class Smaller:
    """A smaller problem, where to begin, and how well it has to be solved. Subclasses keep what the way back needs."""

    problem: Composite
    start: Vector
    share: float = 0.1  # of the tolerance of the whole


class Lifted(NamedTuple):
    """What an answer of the smaller problem is to the whole: a point, and subgradients of the rows as dual point."""

    x: Vector
    dual: Sequence[Vector]


S = TypeVar("S", bound=Smaller)


class Reduction(Nested, Generic[S]):
    """A smaller problem in place of a large one, or several, one after another.

    Subclasses are frozen dataclasses: their fields are the configuration. They solve nothing themselves.
    """

    @abstractmethod
    def apply(self, problem: Composite, state: State, before: S | None) -> S | None:
        """The first smaller problem, or the one after `before`; None where there is none (any more)."""

    @abstractmethod
    def invert(self, problem: Composite, smaller: S, answer: State) -> Lifted:
        """The way back: the answer of the smaller problem as one of the whole."""

    def prove(self, problem: Composite, smaller: S, lifted: Lifted, state: State) -> None:
        """Show the state the point, if it is one, with what its dual point proves on the whole of the data."""
        x, dual = lifted
        if not np.all(np.isfinite(x)):
            return
        positions = problem.positions(x)
        state.see(x, problem.value(x, positions), *dual_gap(problem, x, positions, dual), dual=dual)

    def solve(self, problem: Composite, state: State, tol: float, check: Check, solver: Solver) -> None:
        """Lower the bracket of `state`: there and back until it is within the tolerance, or no problem is left."""
        smaller = self.apply(problem, state, None)
        while smaller is not None and not state.reached(tol):
            answer = State(smaller.start, unit=state.unit)
            try:
                solver(smaller.problem, answer, smaller.share * tol, lambda _: check(state))
            finally:
                state.runs(answer.ran)
            self.prove(problem, smaller, self.invert(problem, smaller, answer), state)
            state.steps, state.sigma = state.steps + max(answer.steps, 1), 0.0
            state.record()
            check(state)
            smaller = None if state.reached(tol) else self.apply(problem, state, smaller)
