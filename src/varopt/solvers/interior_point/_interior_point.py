r"""`interior-point`: a primal-dual method whose steps cost one factorisation of a banded or sparse matrix.

With every term a line and linear-quadratic functions (equations (1) to (6) of `_linear_quadratic_terms`), whose
multipliers add up to A'u and whose right-hand sides to A'r, a step of Mehrotra's predictor and corrector [Mehrotra92;
for quadratic programmes NW06, Algorithm 16.4] is

    residual = H x + g + A'u,                                                                                       (7)
    (H + A'DA) dx = -residual + A'r,                                                                                (8)
    mu' = (1 - a) mu - a^2 sum du' (dp' - dq') / n,    a the longest step of the predictor,                         (9)
    sigma = (mu' / mu)^3,                                                                                          (10)
    step = min(1, 0.995 times the longest that keeps all positive).                                                (11)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt._clock import tick
from varopt.certificates import dual_gap
from varopt.composite import Composite
from varopt.solvers._method import Check, GaveUp, Method, State, convex, piecewise_quadratic
from varopt.solvers.finish import cross_over
from varopt.solvers.interior_point._active_manifold import onto_active_manifold
from varopt.solvers.interior_point._linear_quadratic_terms import (
    LinearQuadratic,
    leftmost_derivative,
    linear_quadratic_terms,
)
from varopt.solvers.interior_point._normal_equations import normal

__all__ = ["InteriorPoint"]

Vector = NDArray[np.float64]

_RIDGES = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)  # shares of the diagonal, tried in turn where a matrix is singular
_BOUNDARY_SHARE = 0.995  # of the way to the boundary that a step may take, as is usual [Wright97, ch. 10]
_ZERO_PRODUCTS = 1e-13  # share of the objective below which the products count as zero
# Share of the gradient at zero beyond which what is left of it at the end has cost digits of x. A hundred times less or
# more changes trend filtering, total variation with absolute residuals and of an image by one step at most.
_LOST_DIGITS = 1e-7
# Shares of the rows' distance from a kink at which one may count as at rest; the first that fits.
_REST_DISTANCES = (1e-6, 1e-9)
_CROSSOVER = (1e-6, 1e-3)  # shares of it within which a row may rest, where the multipliers prove too little
_CROSSOVER_VARIABLES = 600  # up to which that is tried
_MANY_VARIABLES = 200  # variables of dense linear programmes beyond which they suit,
_FEW_ROWS_PER_VARIABLE = 8  # and rows for each up to which they do
_ENOUGH_FOR_SPARSE = 33  # variables; of fewer, dense methods take 0.3 to 0.95 of the time on six kinds of problems
_DUAL_REFINEMENTS = 4  # attempts at a dual point that is feasible to rounding
_STALLED_INTERIOR_STEPS = 12  # steps without progress after which the method gives up


@dataclass(frozen=True)
class InteriorPoint(Method):
    r"""Mehrotra's predictor and corrector [Mehrotra92] on the kinks and quadratic pieces of the terms.

    The step solves with ``H + A'DA``, D diagonal: a band for differences (total variation, trend filtering), a sparse
    or a small dense matrix, or conjugate gradients where the product of sparse matrices would be dense. For trend
    filtering this is the method of [KKBG09], for quantile regression that of [PK97]. The multipliers stay inside the
    domains of the conjugates, so that every iterate has a dual point; the last steps converge so fast that a few more
    than the tolerance asks for make the point exact.

    Parameters
    ----------
    most : int
        Most steps.
    exact : bool
        Whether to go on, once the tolerance is met, until the steps gain nothing more, and to cross over to the
        optimum where it is not met.

    Notes
    -----
    The steps are 15 to 40 on most problems, whatever their size. Memory: a dozen vectors of the size of the rows, the
    matrices and their factor. A start `x0` is of no use to interior points, and is only kept as a first upper bound.
    """

    most: int = 200
    exact: bool = True

    name: ClassVar[str] = "interior-point"
    fewest = _ENOUGH_FOR_SPARSE
    needs = (piecewise_quadratic, convex)

    def suits(self, problem: Composite) -> bool:
        """Whether the matrices of the rows are sparse; that of the quadratic need not be, as in a fused lasso.

        Tall ones are faster by Newton's method, which takes few of the rows. Dense ones suit as those of a linear
        programme of many variables, within bounds, and few rows for each: most variables end at a bound, which steps
        of Newton's method find out one by one.
        """
        if problem.is_sparse or (bool(problem.rows) and all(r.linear.storage == "sparse" for r in problem.rows)):
            return not problem.is_tall
        return problem.size > _MANY_VARIABLES and _is_linear(problem) and _is_held(problem)

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # along a direction of unbounded descent
            exact = self.exact and state.exact
            state.see(state.x, problem.value(state.x))
            iterate = _Iterate(problem, tick)
            try:
                _descend(iterate, state, tol, check, self.most, exact)
            except BaseException:  # whatever ends the run, the bracket is what is known by then
                iterate.show(state)
                raise
            if exact and not state.reached(tol) and problem.size <= _CROSSOVER_VARIABLES:
                iterate.cross_over(state, tol)


def _is_linear(problem: Composite) -> bool:
    """Whether nothing is curved."""
    curved = problem.matrix is not None or problem.squares or problem.forms or problem.groups
    return not curved and all(r.term.degree <= 1 for r in problem.rows)


def _is_held(problem: Composite) -> bool:
    """Whether there are constraints of several variables and bounds of most, and few rows beside them."""
    several = any(r.hard and r.single is None for r in problem.rows)
    bounds = sum(r.count for r in problem.rows if r.hard and r.single is not None)
    rows = sum(r.count for r in problem.rows if not r.hard and r.single is None)
    return several and 2 * bounds >= problem.size and rows < _FEW_ROWS_PER_VARIABLE * problem.size


def _descend(iterate: _Iterate, state: State, tol: float, check: Check, most: int, exact: bool) -> None:
    iterate.value(state)
    first, before, stalled = max(iterate.total, 1e-300), np.inf, 0
    looks = [1e-3]  # shares of the objective at which the bracket is worth a look
    least = 0 if iterate.products else 3  # a quadratic takes a step, and singular ones two more
    for k in range(most):
        if not np.isfinite(iterate.total):  # products overflow
            raise GaveUp
        state.sigma, state.latest = iterate.total / first, iterate.x
        share = iterate.total / max(abs(state.upper), 1e-3 * first)  # the optimum may be zero
        due = iterate.total <= state.allowed(tol) and not state.reached(tol)
        if due or (looks and share <= looks[0]):
            iterate.show(state)
            looks = [look for look in looks if look < share]
        state.record()
        check(state)
        settled = state.reached(tol) and (not exact or (share <= tol and iterate.total > 0.5 * before))
        if k >= least and (settled or share <= _ZERO_PRODUCTS) and not iterate.augments():
            break
        before = iterate.total
        try:
            stalled = 0 if iterate.step() else stalled + 1
        except np.linalg.LinAlgError:  # beyond what rounding allows
            break
        state.steps += 1
        if stalled >= _STALLED_INTERIOR_STEPS or not np.isfinite(iterate.total):
            break
    iterate.show(state)
    iterate.identify(state)
    state.sigma = 0.0 if state.reached(tol) else state.sigma
    state.record()


class _Iterate:
    """A point, the multipliers and slacks of every linear-quadratic function, and their next step."""

    def __init__(self, problem: Composite, look: Callable[[], None] = lambda: None) -> None:
        self.problem, self.matrices = problem, normal(problem)
        look()  # at the clock: matrices may take long
        self.blocks: list[list[LinearQuadratic]] = [linear_quadratic_terms(r) for r in problem.rows]
        self.products = sum(term.products for block in self.blocks for term in block)
        self.gradient = problem.gradient_at_zero.copy()  # g: of the quadratic and the lines, at zero
        for b, r in enumerate(problem.rows):
            self.matrices.add_transpose(b, r.weights * leftmost_derivative(r), self.gradient)
        diagonal = None if problem.hessian is None else problem.hessian.diagonal()
        self.hessian_diagonal = diagonal if diagonal is not None and np.all(diagonal > 0) else None
        self.expected = np.inf  # what a step should leave of the residual
        self.has_factor = False  # whether some matrix was not singular
        self._start(look)

    def _start(self, look: Callable[[], None]) -> None:
        """Multipliers in the middle of their range and the point where they are feasible, if there is one."""
        problem = self.problem
        self.x = np.zeros(problem.size)
        try:
            self.matrices.factorise([])
            self.has_factor = True
            self.x = self.matrices.solve(-self._residual(self._multipliers()))
        except np.linalg.LinAlgError:
            pass
        left = np.abs(self._residual(self._multipliers())).max(initial=0.0)
        feasible = bool(np.isfinite(left)) and left <= 1e-9 * max(np.abs(self.gradient).max(initial=0.0), 1e-300)
        if not feasible:
            self.x = np.zeros(problem.size)
        positions = self._positions()
        look()
        if not feasible:
            widths = self._widths(positions)
            for block, z, width in zip(self.blocks, positions, widths, strict=True):
                for term in block:
                    term.approximate(z, width)
            try:
                self._factorise()
                x, _ = self.matrices.step(self._residual(self._multipliers()), self._right_hand_sides())
                self.x = x if np.all(np.isfinite(x)) else self.x
            except np.linalg.LinAlgError:  # nothing holds the variables
                pass
            positions = self._positions()
        widths = self._widths(positions)
        self.total = sum(
            term.begin(z, width, guess=not feasible)
            for block, z, width in zip(self.blocks, positions, widths, strict=True)
            for term in block
        )

    def _positions(self) -> list[Vector]:
        return [self.matrices.apply(b, self.x) + r.offset for b, r in enumerate(self.problem.rows)]

    def _widths(self, positions: list[Vector]) -> list[float]:
        """How far the rows of each block are from their knots, typically; where they are all on them, the largest x."""
        lengths = self.matrices.lengths
        spreads = [
            max((float(np.mean(np.abs(term.distance(z)))) for term in block), default=0.0)
            for block, z in zip(self.blocks, positions, strict=True)
        ]
        seen = [s / n for s, n in zip(spreads, lengths, strict=True) if n > 0.0]  # rows of zeros say nothing of x
        unit = max([*seen, float(np.abs(self.x).max())])
        return [max(s, 1e-3 * unit * n) or 1.0 for s, n in zip(spreads, lengths, strict=True)]

    # -- Sums over the functions of the rows of a block ---------------------------------------------------------------

    def _gathered(self, block: int, values: Callable[[LinearQuadratic], Vector], power: int) -> Vector:
        terms = self.blocks[block]
        if len(terms) == 1 and terms[0].index is None and terms[0].sign ** power > 0:
            return values(terms[0])
        rows = np.zeros(self.problem.rows[block].count)
        for term in terms:
            term.add_to(rows, values(term), power)
        return rows

    def _multipliers(self) -> list[Vector]:
        return [self._gathered(b, lambda term: term.u, 1) for b in range(len(self.blocks))]

    def _residual(self, multipliers: list[Vector]) -> Vector:
        """(7), the gradient of the Lagrangian in x: what is missing to dual feasibility."""
        out = self.matrices.hessian_times(self.x)
        out += self.gradient
        for b, u in enumerate(multipliers):
            self.matrices.add_transpose(b, u, out)
        return out

    def _right_hand_sides(self) -> list[Vector]:
        return [self._gathered(b, lambda term: term.rhs, 1) for b in range(len(self.blocks))]

    def _factorise(self) -> None:
        weights = [self._gathered(b, lambda term: term.curvature, 2) for b in range(len(self.blocks))]
        for ridge in _RIDGES:
            try:
                self.matrices.factorise(weights, ridge)
            except np.linalg.LinAlgError:
                continue
            except BaseException:  # an interrupt, which leaves half of one
                self.has_factor = False
                raise
            self.has_factor = True
            return None
        if self.matrices.augment():
            self.has_factor = False
            return self._factorise()
        raise np.linalg.LinAlgError("the matrix of a step is singular")

    # -- A step -------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Predict, correct and move; False where that was too little to matter."""
        terms = [(b, term) for b, block in enumerate(self.blocks) for term in block]
        residual = self._residual(self._multipliers())
        size = float(np.linalg.norm(residual))
        if size > 2.0 * self.expected and self._harm(residual) > 0.01 * self.total:
            self.matrices.augment()  # what is left of the residual is rounding, and it matters
        for _, term in terms:
            term.linearise()
        self._factorise()
        _, moves = self.matrices.step(residual, self._right_hand_sides())  # (8), the predictor
        reach, second = 1.0, 0.0
        for b, term in terms:
            far, products = term.predict(moves[b])
            reach, second = max(reach, far), second + products
        length = 1.0 / reach
        left = max((1.0 - length) * self.total - length**2 * second, 0.0)  # (9), times n
        mu = (left / self.total) ** 3 * self.total / self.products if self.total > 0 else 0.0  # (10): sigma mu
        for _, term in terms:
            term.correct(mu)
        dx, moves = self.matrices.step(residual, self._right_hand_sides())  # (8), the corrector
        reach = max((term.measure(moves[b]) for b, term in terms), default=0.0)
        length = 1.0 if reach <= _BOUNDARY_SHARE else _BOUNDARY_SHARE / reach  # (11)
        self.x, self.expected = self.x + length * dx, (1.0 - length) * size
        before, self.total = self.total, sum(term.move(length) for _, term in terms)
        return self.total < 0.99 * before or length > 0.01

    def augments(self) -> bool:
        """Treat multipliers as unknowns where large weights have cost digits of the point: a step finds them anew."""
        left = np.abs(self._residual(self._multipliers())).max(initial=0.0)
        return bool(left > _LOST_DIGITS * np.abs(self.gradient).max(initial=0.0)) and self.matrices.augment()

    def _harm(self, residual: Vector) -> float:
        """What the residual costs the dual value, roughly."""
        if self.hessian_diagonal is None:
            return float(np.abs(residual) @ np.abs(self.x))
        return float(residual @ (residual / self.hessian_diagonal))

    # -- What is known ------------------------------------------------------------------------------------------------

    def value(self, state: State) -> None:
        """Show `state` the point, without a gap."""
        state.see(self.x, self.problem.value(self.x))

    def show(self, state: State) -> None:
        """Show `state` the point, with the gap that its multipliers prove."""
        problem = self.problem
        if not np.all(np.isfinite(self.x)):
            return
        positions = problem.positions(self.x)
        value = problem.value(self.x, positions)
        multipliers = self._multipliers()
        for attempt in range(_DUAL_REFINEMENTS):
            dual = self._dual(positions, multipliers)
            gap, assumption = dual_gap(problem, self.x, positions, dual)
            state.see(self.x, value, gap, assumption, dual=dual)
            if gap <= 2.0 * self.total or attempt + 1 == _DUAL_REFINEMENTS or not self.has_factor:
                return
            # The larger D, the coarser what rounding leaves of dual feasibility: the last matrix restores it.
            _, moves = self.matrices.step(self._residual(multipliers), [np.zeros_like(u) for u in multipliers])
            multipliers = [
                u + self._gathered(b, lambda term: term.curvature, 2) * move
                for b, (u, move) in enumerate(zip(multipliers, moves, strict=True))
            ]

    def _dual(self, positions: list[Vector], multipliers: list[Vector]) -> list[Vector]:
        """Subgradients of the terms from the sums of the multipliers of each row."""
        dual = []
        for r, z, u in zip(self.problem.rows, positions, multipliers, strict=True):
            weights = np.where(r.weights > 0, r.weights, 1.0)
            subgradient = np.where(r.weights > 0, leftmost_derivative(r) + u / weights, r.term.derivative(z))
            dual.append(np.clip(subgradient, *r.term.subgradient_range))
        return dual

    def cross_over(self, state: State, tol: float) -> None:
        """Show `state` the exact optimum near the point: rounding may spoil multipliers before they prove enough."""
        x = self.x if np.all(np.isfinite(self.x)) else state.x
        widths = self._widths(self.problem.positions(x))
        for share in _CROSSOVER:
            exact = cross_over(self.problem, x, [share * width for width in widths], tol)
            if exact is not None:
                state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.dual)
            if state.reached(tol):
                state.sigma = 0.0
                state.record()
                return

    def identify(self, state: State) -> None:
        """Show `state` the point with what rests on a kink at zero exactly there, where that is no worse."""
        for share in _REST_DISTANCES:
            resting = [np.zeros(r.count, dtype=bool) for r in self.problem.rows]
            for block, rests in zip(self.blocks, resting, strict=True):
                for term in block:
                    if not np.any(term.knot):
                        rests[slice(None) if term.index is None else term.index] = term.rests(share)
            x = onto_active_manifold(self.problem, self.x, resting)
            value = self.problem.value(x)
            if value <= state.upper + _ZERO_PRODUCTS * abs(state.upper):
                state.x, state.upper = x, value
                return
