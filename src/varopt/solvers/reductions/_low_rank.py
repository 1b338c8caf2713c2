r"""`low-rank`: many variables that the objective sees only through a few combinations of them.

    f(x) = g(B'x),        B with orthonormal columns, far fewer than there are variables

as of a kernelised machine whose kernel matrix has a low rank. Moving x out of the range of B changes nothing, so that
the problem in t, with x = B t, is the same problem. Its answer is proved on the whole.

.. [HMT11] N. Halko, P. G. Martinsson, J. A. Tropp. Finding structure with randomness. SIAM Review 53(2), 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.composite import Composite, Rows
from varopt.model.maps import Matrix
from varopt.solvers._method import State, convex, explicit_matrix, no_single_variables, piecewise_quadratic
from varopt.solvers.reductions._column_space import spanned
from varopt.solvers.reductions._reduction import Lifted, Reduction, Smaller

__all__ = ["LowRank"]

Vector = NDArray[np.float64]

# The paper's kernelised SVM of rank 11, one thread: a tenth of the time at 300 variables, a fifth at 200.
_LEAST_COUPLED = 301  # variables from which on a look is taken at the rank
_MOST_ROWS_PER_VARIABLE = 2  # rows for each variable beyond which a look at the rank would cost as much as it saves


@dataclass(kw_only=True, eq=False)
class Spanned(Smaller):
    """The problem in few combinations of the variables."""

    basis: Vector  # orthonormal columns


@dataclass(frozen=True)
class LowRank(Reduction[Spanned]):
    """As many variables as the rank of the quadratic and the rows together.

    Notes
    -----
    The rank is found from products with random vectors [HMT11], an eighth as many as there are variables. Memory: a
    copy of the rows, an eighth as wide.
    """

    name: ClassVar[str] = "low-rank"
    fewest = _LEAST_COUPLED
    needs = (piecewise_quadratic, convex, no_single_variables, explicit_matrix)

    def suits(self, problem: Composite) -> bool:
        """Whether a matrix couples many variables, in few combinations."""
        coupled = not sp.issparse(problem.matrix)
        short = problem.row_count <= _MOST_ROWS_PER_VARIABLE * problem.size
        return coupled and short and problem.structure(spanned) is not None

    def apply(self, problem: Composite, state: State, before: Spanned | None) -> Spanned | None:
        """The problem in t, once; None where the combinations are many."""
        basis = problem.structure(spanned)
        if basis is None or before is not None:
            return None
        rows = tuple(
            Rows(Matrix(np.ascontiguousarray(r.linear.apply(basis.T).T)), r.offset, r.term, r.weights)
            for r in problem.rows
        )
        small = Composite(basis.T @ (problem.matrix @ basis), basis.T @ problem.vector, problem.scalar, rows)
        return Spanned(problem=small, start=basis.T @ state.x, basis=basis)

    def invert(self, problem: Composite, smaller: Spanned, answer: State) -> Lifted:
        """The point B t; the rows are the same, and so are their subgradients."""
        x = smaller.basis @ answer.x
        dual = answer.whole_dual or [r.term.derivative(r.positions(x)) for r in problem.rows]
        return Lifted(x, dual)
