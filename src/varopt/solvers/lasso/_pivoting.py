r"""`pivoting`: a quadratic and a kink for each variable, as the lasso and the elastic net, solved exactly.

Every variable rests on its kink or is left or right of it; all that are on the wrong side change at once (`_sides`). On
the Gram matrix that takes a handful of Cholesky factors of shrinking size. Where the quadratic is singular, or the
sides do not settle, the dual is solved instead: the point of a polyhedron closest to the data, by a dual active set
[DAQP]. Sparse columns need no Gram matrix (`_normal_columns`); where their sides do not settle, blocks of variables
come closer first (`_blocks`).

.. [DAQP] D. Arnström, A. Bemporad, D. Axehill. A dual active-set solver for embedded quadratic programming using
   recursive LDL updates. IEEE Transactions on Automatic Control 67(8), 2022. The package DAQP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.certificates import prove
from varopt.composite import Composite, separable_kinks
from varopt.solvers._method import Check, Method, State, convex, kinks, only_kinks, piecewise_quadratic, quadratic_part
from varopt.solvers.finish import EQUAL, active, by_dual_active_set
from varopt.solvers.lasso._blocks import approached
from varopt.solvers.lasso._normal_columns import Columns, has_columns
from varopt.solvers.lasso._sides import PATIENCE, Solve, first_sides, pivoted, solved

__all__ = ["Pivoting"]

Vector = NDArray[np.float64]

_FORMED = 5000  # variables up to which the matrix of the quadratic is formed
_APPROACHES = (0, 20, 60, 200)  # over blocks of sparse columns, before sides are changed again that did not settle
_DENSE_DUAL = 1000  # rows or variables up to which the dual of a sparse problem is solved as a dense one
_DUAL_STEPS = 50_000  # at most, of which one changes one side
_CORRECTIONS_BY_ROWS = 3  # corrections of a point by the rows, where the matrix is too inaccurate


@dataclass(frozen=True)
class Pivoting(Method):
    """All variables on the wrong side of their kink change sides at once, until none is.

    Parameters
    ----------
    patience : int
        Rounds without fewer variables on the wrong side after which the dual is solved instead, or a large sparse
        problem approached block by block before sides are changed again.

    Notes
    -----
    One Gram matrix, then Cholesky factors of the variables that do not rest on their kink, usually less than ten.
    Memory is that of the Gram matrix. With fewer rows than variables no Gram matrix is formed, nor for sparse data as
    long as conjugate gradients do: they take some dozen products with the data for each of these factors.
    """

    patience: int = PATIENCE

    name: ClassVar[str] = "pivoting"
    needs = (convex, piecewise_quadratic, only_kinks, kinks, quadratic_part)

    def suits(self, problem: Composite) -> bool:
        """Whether the matrix is of a size to be formed, or need not be."""
        return problem.size <= _FORMED or (problem.is_sparse and has_columns(problem))

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        if problem.is_sparse and has_columns(problem):
            self._by_columns(problem, state, tol, check)
        elif problem.size <= _FORMED and (problem.matrix is not None or _row_count(problem) >= problem.size):
            self._primal(problem, problem.hessian, solved, state.x, state, tol)
        if not state.reached(tol) and not (problem.is_sparse and _is_large(problem)):
            _dual(problem, state)
        state.sigma = 0.0
        state.record()
        check(state)

    def _by_columns(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Without a matrix, and from closer by where sides do not settle."""
        columns, x = Columns(problem), state.x
        for rounds in _APPROACHES if _is_large(problem) else _APPROACHES[:1]:
            x = approached(problem, x, rounds, state, check) if rounds else x
            self._primal(problem, columns, columns.solve, x, state, tol)
            if state.reached(tol):
                return

    def _primal(self, problem: Composite, matrix: Any, solve: Solve, start: Vector, state: State, tol: float) -> None:
        """Change sides until all are right, or until it is clear that they do not settle."""
        kinks, _ = problem.structure(separable_kinks)
        gradient = problem.gradient_at_zero + matrix @ kinks.rest if kinks.rest.any() else problem.gradient_at_zero
        side = first_sides(matrix, solve, gradient, kinks, start - kinks.rest)
        settled = pivoted(matrix, gradient, kinks, side, self.patience, solve)
        if settled is None:
            return
        state.steps += settled.rounds
        x = kinks.rest + settled.away
        for _ in range(_CORRECTIONS_BY_ROWS):
            proof, gradient = prove(problem, x, ())
            state.see(*proof)
            if not state.reached(tol) and not isinstance(matrix, Columns):  # whose matrix is never formed
                state.see(*_by_curvature(problem, x, proof.value, gradient))
            if state.reached(tol):
                return
            # The matrix is too inaccurate for the tolerance: what the rows say is not.
            correction = solve(matrix, settled.moving, -(gradient[settled.moving] + settled.subgradient))
            if correction is None:
                return
            x = x.copy()
            x[settled.moving] += correction


def _by_curvature(problem: Composite, x: Vector, value: float, gradient: Vector) -> tuple[Vector, float, float]:
    """The point, its value and a gap where no scale makes a dual point feasible, as of variables that are not negative.

    What rounding leaves of the gradient in those that move is charged with the curvature: ``r'H^-1 r / 2``.
    """
    kinks, _ = problem.structure(separable_kinks)
    inside = np.clip(-gradient, kinks.low, kinks.high)
    energy, flat = problem.inverse_energy(gradient + inside)
    return x, value, np.inf if flat.any() else kinks.young(x, inside) + 0.5 * energy


def _row_count(problem: Composite) -> int:
    return sum(r.count for r in problem.squares)


def _is_large(problem: Composite) -> bool:
    """Whether a dual as a dense problem would take longer than other ways."""
    return min(_row_count(problem), problem.size) > _DENSE_DUAL


def _dual(problem: Composite, state: State) -> None:
    """Show the point behind ``min 1/2 |theta - b|^2`` with ``low <= F'theta - v <= high``.

    F is a factor of the quadratic, ``1/2 |F(x - rest) - b|^2 + v'(x - rest)`` up to a constant.
    """
    kinks, _ = problem.structure(separable_kinks)
    factor, target = _factor(problem, kinks.rest)
    lengths = np.linalg.norm(factor, axis=0)
    live = lengths > 0.0
    unit = max(float(np.abs(target).max(initial=0.0)), 1e-300)
    shape = lengths[live] * unit  # constraints of length one and a target of size one: DAQP's tolerances are absolute
    low, high = ((end + problem.vector)[live] / shape for end in (kinks.low, kinks.high))
    # Variables that are off their kinks already are the constraints to begin with.
    kinds = np.where(kinks.free, EQUAL, active(np.sign(state.x - kinks.rest)))[live].astype(np.int32)
    constraints = (factor[:, live] / lengths[live]).T
    found = by_dual_active_set(np.eye(target.size), -target / unit, constraints, high, low, kinds, steps=_DUAL_STEPS)
    if found is not None:
        x = kinks.rest.copy()
        x[live] += found[1] * unit / lengths[live]
        state.see(*prove(problem, x, ())[0])


def _factor(problem: Composite, rest: Vector) -> tuple[Vector, Vector]:
    """F and b of the quadratic, with no more rows than one beyond the variables."""
    factors, targets = [np.zeros((0, problem.size))], [np.zeros(0)]
    if problem.matrix is not None:
        matrix = problem.matrix.toarray() if sp.issparse(problem.matrix) else problem.matrix
        triangle, order, rank, _ = scipy.linalg.lapack.dpstrf(matrix, lower=1)
        factors.append(np.tril(triangle)[np.argsort(order), :rank].T)
        targets.append(-factors[-1] @ rest)
    for r in problem.squares:
        z = r.positions(rest)
        root = np.sqrt(r.curvature)
        gradient = r.weights * r.term.derivative(z)
        factors.append(root[:, None] * r.linear.dense())
        targets.append(-np.divide(gradient, root, out=np.zeros_like(gradient), where=root > 0.0))
    factor, target = np.vstack(factors), np.concatenate(targets)
    if factor.shape[0] > problem.size + 1:
        compressed = np.asarray(np.linalg.qr(np.column_stack([factor, target]), mode="r"))
        factor, target = compressed[:, :-1], compressed[:, -1]
    return factor, target
