"""What a method is: a configuration that can refuse a problem in a sentence, or lower the bracket of a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from varopt.composite import Composite
from varopt.solvers._needs import Need
from varopt.solvers._state import Check, State

__all__ = ["GaveUp", "Method", "Nested", "Solver", "Way"]

Solver = Callable[[Composite, State, float, Check], None]  # lowers the bracket of a state, by whatever suits


class GaveUp(Exception):
    """A method has not done its work, whatever bracket there is by now: another is to take over.

    In small units any bracket is within a tolerance that counts values below one as one.
    """


class Way(ABC):
    """A way to minimise a composite. Subclasses are frozen dataclasses: their fields are the configuration."""

    name: ClassVar[str]
    needs: ClassVar[tuple[Need, ...]] = ()  # in the order in which they are told

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks for this method, as a sentence; empty where it fits."""
        missing = (reason for need in self.needs if (reason := need(problem)))
        return next(missing, "") or self.lacks(problem)

    def lacks(self, problem: Composite) -> str:
        """What the problem lacks beside the needs, as a sentence; empty where it fits."""
        return ""

    def suits(self, problem: Composite) -> bool:
        """Whether `auto` may take the method where it does not refuse."""
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
