r"""`pivoting`: a quadratic and a kink for each variable, as the lasso and the elastic net, solved exactly.

Every variable rests on its kink or is left or right of it. For fixed sides the optimum is a linear system in the
variables that do not rest; all that its solution shows on the wrong side change sides at once [HIK02, KP11]. On the
Gram matrix that takes a handful of Cholesky factors of shrinking size. Where the quadratic is singular, or the sides do
not settle, the dual is solved instead: the point of a polyhedron closest to the data, by a dual active set [DAQP].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers._box import EQUAL, active
from varopt.solvers._columns import Columns, has_columns
from varopt.solvers._composite import Composite
from varopt.solvers._definite import solve_definite
from varopt.solvers._interior_point import InteriorPoint
from varopt.solvers._kinks import Kinks
from varopt.solvers._method import Method
from varopt.solvers._newton import Newton
from varopt.solvers._scaled import prove
from varopt.solvers._state import Check, State

__all__ = ["Pivoting", "is_singular", "pivoted", "pivoted_along"]

Vector = NDArray[np.float64]
Solve = Callable[[Any, NDArray[np.intp], Vector], Vector | None]

_LARGEST = 5000  # variables up to which the matrix of the quadratic is formed
_ROUNDS = (0, 20, 60, 200)  # over blocks of sparse columns, before sides are changed again that did not settle
_SMALL = 1000  # rows or variables up to which the dual of a sparse problem is solved as a dense one
_MARGIN = 1e-12  # share of a kink by which a variable has to be on the wrong side of it
_DEPENDENT = 1e-7  # share of a column's length that the columns before it leave, below which it is made of them
_REFINEMENTS = 3  # corrections of a point by the rows, where the matrix is too inaccurate
_ROUNDING = 8 * float(np.finfo(np.float64).eps)


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

    patience: int = 6

    name: ClassVar[str] = "pivoting"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        if reason := problem.not_convex or problem.not_quadratic:
            return reason
        kinks, others = problem.kinks
        if others:
            return "it has rows other than one kink for each variable."
        if np.all(kinks.free):
            return "it has no kinks."
        return "" if problem.squares or problem.matrix is not None else "it has no quadratic part."

    def suits(self, problem: Composite) -> bool:
        """Whether the matrix is of a size to be formed, or need not be."""
        return problem.size <= _LARGEST or has_columns(problem)

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        if has_columns(problem):
            self._by_columns(problem, state, tol, check)
        elif problem.size <= _LARGEST and (problem.matrix is not None or _row_count(problem) >= problem.size):
            self._primal(problem, problem.hessian, _solved, state.x, state, tol)
        if not state.reached(tol) and not (problem.is_sparse and _is_large(problem)):
            _dual(problem, state)
        state.sigma = 0.0
        state.record()
        check(state)
        if not state.reached(tol) and (problem.size <= _LARGEST or problem.is_sparse):
            (InteriorPoint() if problem.is_sparse else Newton()).solve(problem, state, tol, check)

    def _by_columns(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Without a matrix, and from closer by where sides do not settle."""
        from varopt.solvers._block_descent import approached

        columns, x = Columns(problem), state.x
        for rounds in _ROUNDS if _is_large(problem) else _ROUNDS[:1]:
            x = approached(problem, x, rounds, state, check) if rounds else x
            self._primal(problem, columns, columns.solve, x, state, tol)
            if state.reached(tol):
                return

    def _primal(self, problem: Composite, matrix: Any, solve: Solve, start: Vector, state: State, tol: float) -> None:
        """Change sides until all are right, or until it is clear that they do not settle."""
        kinks, _ = problem.kinks
        slope = problem.slope + matrix @ kinks.rest if kinks.rest.any() else problem.slope
        side = _first_sides(matrix, solve, slope, kinks, start - kinks.rest)
        settled = pivoted(matrix, slope, kinks, side, self.patience, solve)
        if settled is None:
            return
        state.steps += settled.rounds
        x = kinks.rest + settled.away
        for _ in range(_REFINEMENTS):
            pull = prove(problem, x, (), state)
            if state.reached(tol):
                return
            # The matrix is too inaccurate for the tolerance: what the rows say is not.
            correction = solve(matrix, settled.moving, -(pull[settled.moving] + settled.push))
            if correction is None:
                return
            x = x.copy()
            x[settled.moving] += correction


def _row_count(problem: Composite) -> int:
    return sum(r.count for r in problem.squares)


def _is_large(problem: Composite) -> bool:
    """Whether a dual as a dense problem would take longer than other ways."""
    return min(_row_count(problem), problem.size) > _SMALL


class Settled(NamedTuple):
    """Variables on the right side of their kinks."""

    away: Vector  # from the kinks
    moving: NDArray[np.intp]  # those that do not rest,
    push: Vector  # and the slopes of their kinks
    rounds: int


def pivoted(
    matrix: Any, slope: Vector, kinks: Kinks, side: NDArray[Any], patience: int, solve: Solve
) -> Settled | None:
    """Minimise ``1/2 v'Mv + slope'v`` and the kinks of v by changing sides; None where they do not settle.

    Parameters
    ----------
    matrix : array, sparse array or Columns
        Positive semidefinite.
    slope : array
        The gradient of the quadratic at rest.
    kinks : Kinks
    side : array
        Those to begin with: -1 and 1, and 0 at rest.
    patience : int
        Rounds without fewer variables on the wrong side after which they are taken not to settle.
    solve : callable
        Solves with some rows and columns of the matrix, or says None where they are singular.
    """
    diagonal = np.asarray(matrix.diagonal())
    fewest, left, rounds = side.size + 1, patience, 0
    while left:
        moving = np.flatnonzero(side)
        away = np.zeros(side.size)
        push = np.where(side > 0, kinks.high, kinks.low)[moving]
        solution = solve(matrix, moving, -(slope[moving] + push))
        if solution is None:
            return None
        away[moving] = solution
        bend = matrix @ away
        pull = slope + bend
        # What the variables at rest see, less what rounding may have done to it.
        margin = _MARGIN * (kinks.high - kinks.low)
        margin += _ROUNDING * (np.abs(slope) + np.sqrt(diagonal * max(float(away @ bend), 0.0)))
        up, down = (side == 0) & (-pull > kinks.high + margin), (side == 0) & (-pull < kinks.low - margin)
        back = (side * away < 0.0) & ~kinks.free
        wrong = int(np.count_nonzero(up | down | back))
        rounds += 1
        if not wrong:
            return Settled(away, moving, push, rounds)
        left = patience if wrong < fewest else left - 1
        fewest = min(fewest, wrong)
        side = np.where(back, 0, np.where(up, 1, np.where(down, -1, side)))
    return None


def pivoted_along(
    quadratic: Composite, free: NDArray[np.bool_], strengths: Iterable[tuple[float, float]], start: Vector
) -> Iterator[Vector | None]:
    """Minimisers of a quadratic and ``l1 |x|_1 + l2 |x|^2 / 2`` for pairs of strengths, each from the one before.

    Variables that are `free` are not penalised. There is no bracket: a minimiser is as accurate as the matrix allows,
    and None where sides do not settle. Costs a Cholesky factor of the variables that move or two for each pair. The
    matrix of the quadratic is changed.
    """
    matrix, slope, diagonal = quadratic.hessian, quadratic.slope, np.arange(quadratic.size)
    ridgeless, x = matrix.diagonal().copy(), start
    for l1, l2 in strengths:
        matrix[diagonal, diagonal] = ridgeless + np.where(free, 0.0, l2)
        ends = np.where(free, 0.0, l1)
        kinks = Kinks(np.broadcast_to(0.0, x.shape), -ends, ends)
        side = _first_sides(matrix, _solved, slope, kinks, x)
        settled = pivoted(matrix, slope, kinks, side, Pivoting.patience, _solved)
        x = x if settled is None else settled.away
        yield None if settled is None else x


def _first_sides(matrix: Any, solve: Solve, slope: Vector, kinks: Kinks, away: Vector) -> NDArray[np.int8]:
    """Those of the start; else the variables that are pulled off their kinks, or all as if there were none."""
    side = np.sign(away)
    if not side.any():
        side = np.where(-slope > kinks.high, 1, np.where(-slope < kinks.low, -1, 0))
        if 2 * np.count_nonzero(side) > side.size:
            everything = np.arange(side.size)
            unpenalised = solve(matrix, everything, -slope)
            side = side if unpenalised is None else np.sign(unpenalised)
    return np.where(kinks.free, 1, side).astype(np.int8)


def _solved(matrix: Any, index: NDArray[np.intp], rhs: Vector) -> Vector | None:
    """Solve with the rows and columns `index` of a positive definite matrix; None where they are singular."""
    if not index.size:
        return rhs
    if sp.issparse(matrix):
        return solve_definite(sp.csr_array(matrix)[index][:, index], rhs)
    block = matrix.T if index.size == rhs.size == matrix.shape[0] else matrix[np.ix_(index, index)].T
    factor, solution, info = scipy.linalg.lapack.dposv(block, rhs, lower=False)
    return None if info or is_singular(factor, block.diagonal()) else np.asarray(solution)


def is_singular(factor: Vector, diagonal: Vector) -> bool:
    """Whether a column is but for rounding made of those before it, by a Cholesky factor; whatever their units."""
    return not bool(np.all(np.diagonal(factor) > _DEPENDENT * np.sqrt(diagonal)))


def _dual(problem: Composite, state: State) -> None:
    """Show the point behind ``min 1/2 |theta - b|^2`` with ``low <= F'theta - v <= high``.

    F is a factor of the quadratic, ``1/2 |F(x - rest) - b|^2 + v'(x - rest)`` up to a constant.
    """
    import daqp

    kinks, _ = problem.kinks
    factor, target = _factor(problem, kinks.rest)
    lengths = np.linalg.norm(factor, axis=0)
    live = lengths > 0.0
    unit = max(float(np.abs(target).max(initial=0.0)), 1e-300)
    shape = lengths[live] * unit  # constraints of length one and a target of size one: DAQP's tolerances are absolute
    low, high = ((end + problem.vector)[live] / shape for end in (kinks.low, kinks.high))
    # Variables that are off their kinks already are the constraints to begin with.
    kinds = np.where(kinks.free, EQUAL, active(np.sign(state.x - kinks.rest)))[live].astype(np.int32)
    constraints = np.ascontiguousarray((factor[:, live] / lengths[live]).T)
    _, _, flag, info = daqp.solve(
        np.eye(target.size), -target / unit, constraints, high, low, kinds, primal_tol=1e-11, dual_tol=1e-13,
        iter_limit=50_000,
    )  # fmt: skip
    if flag >= 1:
        x = kinks.rest.copy()
        x[live] += info["lam"] * unit / lengths[live]
        prove(problem, x, (), state)


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
        pull = r.weights * r.term.derivative(z)
        factors.append(root[:, None] * r.linear.dense())
        targets.append(-np.divide(pull, root, out=np.zeros_like(pull), where=root > 0.0))
    factor, target = np.vstack(factors), np.concatenate(targets)
    if factor.shape[0] > problem.size + 1:
        compressed = np.asarray(np.linalg.qr(np.column_stack([factor, target]), mode="r"))
        factor, target = compressed[:, :-1], compressed[:, -1]
    return factor, target
