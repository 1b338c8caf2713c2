r"""Terms like Huber's, quadratic in the middle and linear beyond, as a square and a kink of a variable of their own.

    rho(z) = min_v 1/2 g (z - v)^2 + psi(v),        psi with one kink, where the quadratic has its vertex

What is left has no curved terms, so that methods for quadratics with kinks apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.composite import Composite, Rows
from varopt.model.maps import HStack, Map, Scaled, Selection
from varopt.solvers._method import State
from varopt.solvers.reductions._reduction import Lifted, Reduction, Smaller
from varopt.terms import PiecewisePolynomial

__all__ = ["HuberSplitting", "Split", "is_like_huber"]

Vector = NDArray[np.float64]


@dataclass(kw_only=True, eq=False)
class Split(Smaller):
    """The problem without terms like Huber's."""

    whole: Composite


@dataclass(frozen=True)
class HuberSplitting(Reduction[Split]):
    """A variable more for each row of a term like Huber's; the smaller problem has more variables, but simpler rows.

    It pays where another reduction has left few rows, and is not among the methods: that other applies it.
    """

    name: ClassVar[str] = "huber-splitting"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks: nothing, since one without such terms stays as it is."""
        return problem.not_quadratic or problem.not_convex

    def apply(self, problem: Composite, state: State, before: Split | None = None) -> Split:
        """The problem with a variable more for each such row, which begins at zero; with norms, as it is."""
        split = problem if problem.groups else _split(problem)
        start = np.concatenate([state.x, np.zeros(split.size - problem.size)])
        return Split(problem=split, start=start, whole=problem)

    def invert(self, problem: Composite, smaller: Split, answer: State) -> Lifted:
        """The variables of the problem, and subgradients: those of the answer, and gradients of the terms split."""
        x = answer.x[: problem.size]
        known = iter(() if answer.whole_dual is None else answer.whole_dual)  # the rows that were not split come first
        whole = smaller.problem is problem
        own = [answer.whole_dual is None or (is_like_huber(r.term) and not whole) for r in problem.rows]
        dual = [r.term.derivative(r.positions(x)) if o else next(known) for r, o in zip(problem.rows, own, strict=True)]
        return Lifted(x, dual)


def _split(problem: Composite) -> Composite:
    """The problem with more variables, behind its own, and no terms like Huber's; itself where there are none."""
    curved = [r for r in problem.rows if is_like_huber(r.term)]
    if not curved:
        return problem
    more = sum(r.count for r in curved)
    size = problem.size + more

    def wider(r: Rows) -> Rows:
        return Rows(HStack(r.count, [(r.linear, problem.size), (None, more)]), r.offset, r.term, r.weights)

    rows = [wider(r) for r in problem.rows if not is_like_huber(r.term)]
    squares, scalar, position = [wider(r) for r in problem.squares], problem.scalar, 0
    for r in curved:
        constant, gradient, half = r.term.pieces[1]
        vertex = r.term.centres[1] - gradient / (2.0 * half)
        scalar += float(np.sum(r.weights * (constant - gradient**2 / (4.0 * half))))
        own = Selection(np.arange(position, position + r.count), more)
        linear: Map = HStack(r.count, [(r.linear, problem.size), (Scaled(-1.0, own), more)])
        squares.append(Rows(linear, r.offset, PiecewisePolynomial((), ((0.0, 0.0, half),)), r.weights))
        kink = PiecewisePolynomial((vertex,), tuple((0.0, end) for end in _outer_gradients(r.term)), (vertex, vertex))
        at = Selection(np.arange(problem.size + position, problem.size + position + r.count), size)
        rows.append(Rows(at, np.zeros(r.count), kink, r.weights))
        position += r.count
    matrix = problem.matrix
    if matrix is not None:
        matrix = sp.block_diag([sp.csr_array(matrix), sp.csr_array((more, more))], format="csr")
    vector = np.concatenate([problem.vector, np.zeros(more)])
    return Composite(matrix, vector, scalar, tuple(rows), squares=tuple(squares))


def is_like_huber(term: PiecewisePolynomial) -> bool:
    """Linear, quadratic, linear, without a kink."""
    return (
        [len(piece) for piece in term.pieces] in ([2, 3, 2], [1, 3, 2], [2, 3, 1])
        and bool(np.all(np.asarray(term.pieces[1][2]) > 0.0))
        and all(np.all(np.asarray(jump[1]) == 0.0) for jump in term.jumps)
    )


def _outer_gradients(term: PiecewisePolynomial) -> list[Vector | float]:
    """The gradients of the first and the last piece."""
    return [piece[1] if len(piece) > 1 else 0.0 for piece in (term.pieces[0], term.pieces[-1])]
