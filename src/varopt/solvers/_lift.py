r"""Terms like Huber's, quadratic in the middle and linear beyond, as a square and a kink of a variable of their own.

    rho(z) = min_v 1/2 g (z - v)^2 + psi(v),        psi with one kink, where the quadratic has its vertex

What is left has no curved terms, so that methods for quadratics with kinks apply.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from varopt.model._maps import HStack, Map, Scaled, Selection
from varopt.solvers._composite import Composite, Rows
from varopt.terms import PiecewisePolynomial

__all__ = ["is_like_huber", "lifted"]

Vector = NDArray[np.float64]


def lifted(problem: Composite) -> Composite:
    """The problem with more variables, behind its own, and no terms like Huber's; itself where there are none."""
    bent = [r for r in problem.rows if is_like_huber(r.term)]
    if not bent:
        return problem
    more = sum(r.count for r in bent)
    size = problem.size + more

    def wider(r: Rows) -> Rows:
        return Rows(HStack(r.count, [(r.linear, problem.size), (None, more)]), r.offset, r.term, r.weights)

    rows = [wider(r) for r in problem.rows if not is_like_huber(r.term)]
    squares, scalar, position = [wider(r) for r in problem.squares], problem.scalar, 0
    for r in bent:
        constant, slope, half = r.term.pieces[1]
        vertex = r.term.centres[1] - slope / (2.0 * half)
        scalar += float(np.sum(r.weights * (constant - slope**2 / (4.0 * half))))
        own = Selection(np.arange(position, position + r.count), more)
        linear: Map = HStack(r.count, [(r.linear, problem.size), (Scaled(-1.0, own), more)])
        squares.append(Rows(linear, r.offset, PiecewisePolynomial((), ((0.0, 0.0, half),)), r.weights))
        kink = PiecewisePolynomial((vertex,), tuple((0.0, end) for end in _ends(r.term)), (vertex, vertex))
        at = Selection(np.arange(problem.size + position, problem.size + position + r.count), size)
        rows.append(Rows(at, np.zeros(r.count), kink, r.weights))
        position += r.count
    matrix = problem.matrix
    if matrix is not None:
        import scipy.sparse as sp

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


def _ends(term: PiecewisePolynomial) -> list[Vector | float]:
    """The slopes of the first and the last piece."""
    return [piece[1] if len(piece) > 1 else 0.0 for piece in (term.pieces[0], term.pieces[-1])]
