"""`program`: a small problem with few rows for its variables, solved at once as a linear or quadratic programme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from varopt.composite import Composite
from varopt.solvers._method import Method
from varopt.solvers._needs import convex, piecewise_quadratic
from varopt.solvers._state import Check, State
from varopt.solvers.finish import cross_over

__all__ = ["Program"]

_LARGEST = 2000  # kinks up to which all are taken at once
_LARGEST_CURVED = 500  # the same with a quadratic part
# Kinks times variables up to which a linear problem goes from vertex to vertex at once: at 500 x 20 that takes two
# thirds of the time of a path in sigma, at 2,000 x 40 four times as long.
_FEW = 12_000


@dataclass(frozen=True)
class Program(Method):
    """The crossover from the start, with every kink in play: HiGHS without a quadratic part, DAQP with one.

    The path in sigma finds out which kinks matter. With more variables than rows most of them do, and it would only
    delay the exact solution; where there are few kinks and no curvature, vertices are tried as fast as it gets there,
    and faster from a vertex nearby.

    Notes
    -----
    Memory is that of a dense matrix of as many rows as kinks, and of columns as variables.
    """

    name: ClassVar[str] = "program"
    needs = (piecewise_quadratic, convex)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks."""
        return "" if problem.rows else "it has no kinks."

    def suits(self, problem: Composite) -> bool:
        """Whether it is small, has no curved terms, and few rows: for its variables, or, without curvature, at all."""
        curved = problem.matrix is not None or bool(problem.squares)
        count = sum(len(r.kinks) * r.count for r in problem.rows)
        rows = sum(r.count for r in problem.rows if r.single is None)
        return (
            count <= (_LARGEST_CURVED if curved else _LARGEST)
            and (rows < problem.size or (not curved and count * problem.size <= _FEW))
            and all(r.term.degree == 1 for r in problem.rows)
        )

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        start, _ = state.begin(0.0)
        exact = cross_over(problem, start, [np.inf] * len(problem.rows), tol, most=_LARGEST)
        if exact is not None:
            state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.dual)
        state.sigma, state.steps = 0.0, state.steps + 1
        state.record()
        check(state)
