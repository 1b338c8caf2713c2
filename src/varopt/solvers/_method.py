"""What a method is: a configuration that can refuse a problem in a sentence, or lower the bracket of a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from varopt.solvers._composite import Composite
from varopt.solvers._state import Check, State

__all__ = ["Method"]


class Method(ABC):
    """A way to minimise a composite. Subclasses are frozen dataclasses: their fields are the configuration."""

    name: ClassVar[str]

    @abstractmethod
    def refusal(self, problem: Composite) -> str:
        """What the problem lacks for this method, as a sentence; empty where it fits."""

    def suits(self, problem: Composite) -> bool:
        """Whether `auto` may take the method where it does not refuse."""
        return True

    @abstractmethod
    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Go on from `state` until its bracket is within `tol` or nothing more can be gained.

        `check` sees the state after every level and may raise; the state must be valid whenever it is called.
        """
