r"""`low-rank`: many variables that the objective sees only through a few combinations of them.

    f(x) = g(B'x),        B with orthonormal columns, far fewer than there are variables

as of a kernelised machine whose kernel matrix has a low rank. Moving x out of the range of B changes nothing, so that
the problem in t, with x = B t, is the same problem. It goes to whatever method suits it, and is proved on the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._maps import Matrix
from varopt.solvers._composite import Composite, Rows
from varopt.solvers._duality import dual_gap
from varopt.solvers._method import Method
from varopt.solvers._state import Check, State

__all__ = ["LowRank"]

Vector = NDArray[np.float64]

_SMALL = 300  # variables up to which nothing is to be gained
_TALL = 2  # rows for each variable beyond which a look at the rank would cost as much as it saves


@dataclass(frozen=True)
class LowRank(Method):
    """As many variables as the rank of the quadratic and the rows together.

    Notes
    -----
    The rank is found from products with random vectors [HMT11], an eighth as many as there are variables. Memory: a
    copy of the rows, an eighth as wide.
    """

    name: ClassVar[str] = "low-rank"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        if reason := problem.not_quadratic or problem.not_convex:
            return reason
        if any(r.single is not None for r in (*problem.rows, *problem.squares)):
            return "it has terms of single variables, so that it sees all of them."
        return ""

    def suits(self, problem: Composite) -> bool:
        """Whether a matrix couples many variables, in few combinations."""
        rows = sum(r.count for r in problem.rows)
        coupled = problem.matrix is not None and not sp.issparse(problem.matrix) and not problem.squares
        return coupled and problem.size > _SMALL and rows <= _TALL * problem.size and problem.span is not None

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        from varopt.solvers._choose import choose

        basis = problem.span
        if basis is None:
            choose(problem, but=(self.name,)).solve(problem, state, tol, check)
            return
        rows = tuple(
            Rows(Matrix(np.ascontiguousarray(r.linear.apply(basis.T).T)), r.offset, r.term, r.weights)
            for r in problem.rows
        )
        small = Composite(basis.T @ (problem.matrix @ basis), basis.T @ problem.vector, problem.scalar, rows)
        part = State(basis.T @ state.x)
        choose(small, but=(self.name,)).solve(small, part, 0.1 * tol, lambda _: check(state))
        x = basis @ part.x
        positions = problem.positions(x)
        slopes = part.dual or [r.term.derivative(z) for r, z in zip(problem.rows, positions, strict=True)]
        state.see(x, problem.value(x, positions), *dual_gap(problem, x, positions, slopes), dual=slopes)
        state.steps, state.sigma = state.steps + part.steps, part.sigma
        state.record()
        check(state)
