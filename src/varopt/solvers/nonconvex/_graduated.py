r"""`graduated`: objectives that are not convex. The bound is descended while sigma falls, then exact moves polish.

x ~ N(mu, sigma^2 C C'), with C chosen so that the rows vary alike in all directions. While sigma is large the bound
has few minima, and while it falls they are followed to good ones of the objective; several starts, some of them random,
make up for those that are lost on the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from varopt.composite import Composite
from varopt.solvers._method import Check, Method, State
from varopt.solvers.descent import Geometric, Schedule

__all__ = ["Graduated"]

_USUAL_EFFORT = 1.5


@dataclass(frozen=True)
class Graduated(Method):
    """Descend the bound from several starts while sigma falls, then polish by exact moves.

    Parameters
    ----------
    starts : int
        How many: the given point, the optimum of a convex relaxation, and random ones.
    effort : float
        How long to look for better cells of objectives that jump: rows visited by line searches, in millions. Sums of
        steps with so few cells that this is enough to look at all of them (ten times cheaper) end with a proof. With
        ``math.inf`` the run goes on, by more starts, more moves and more cells in turn, until there is a proof, or a
        time limit or an interrupt ends it.
    schedule : Schedule
        How sigma falls. At 1 a standard deviation is the distance of a typical row from its farthest knot.
    seed : int
        Chooses the random starts and moves; the result is the same for the same seed.

    Notes
    -----
    A level costs some tens of products with the data and their transpose, a line search one product and a sort of the
    rows. Memory: two copies of the data, and p x p numbers for p <= 1000 variables.
    """

    starts: int = 8
    effort: float = _USUAL_EFFORT
    schedule: Schedule = field(default_factory=lambda: Geometric(4.0, 0.5))
    seed: int = 0

    name: ClassVar[str] = "graduated"

    def __post_init__(self) -> None:
        if self.starts < 1:
            raise ValueError(f"starts must be at least 1; got {self.starts!r}.")
        if not self.effort >= 0.0:
            raise ValueError(f"effort must be a number >= 0; got {self.effort!r}.")

    @property
    def usual_effort(self) -> float:
        """The effort of a run that ends by itself, or after which one without an end goes on."""
        return self.effort if self.effort < math.inf else _USUAL_EFFORT

    def lacks(self, problem: Composite) -> str:
        """What the problem lacks."""
        return "it has group norms (norm2), which only convex objectives may have." if problem.groups else ""

    def suits(self, problem: Composite) -> bool:
        """Whether it is not convex; other problems only where no other method takes them."""
        return bool(problem.not_convex)

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        from varopt.solvers.nonconvex._run import Run  # most objectives are convex, and wait for less without it

        with np.errstate(over="ignore", invalid="ignore"):  # paths along which it is flat may lead far out
            Run(problem, state, tol, check, self).solve()
