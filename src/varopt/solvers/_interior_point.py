r"""`interior-point`: a primal-dual method whose steps cost one factorisation of a banded or sparse matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._composite import Composite
from varopt.solvers._crossover import cross_over
from varopt.solvers._duality import dual_gap
from varopt.solvers._method import Method
from varopt.solvers._normal import normal
from varopt.solvers._pieces import Piece, line_slope, split
from varopt.solvers._snap import snapped
from varopt.solvers._state import Check, State

__all__ = ["InteriorPoint"]

Vector = NDArray[np.float64]

_RIDGES = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)  # shares of the diagonal, tried in turn where a matrix is singular
_SHARE = 0.995  # of the way to the boundary that a step may take
_EXACT = 1e-13  # share of the objective below which the products count as zero
_ROUGH = 1e-7  # share of the gradient at zero beyond which what is left of it at the end has cost digits of the point
_REST = (1e-6, 1e-9)  # shares of the rows' distance from a kink at which one may count as at rest; the first that fits
_NEAR = (1e-6, 1e-3)  # shares of it within which a row may rest, where the multipliers prove too little
_SMALL = 600  # variables up to which that is tried
_REFINEMENTS = 4  # attempts at a dual point that is feasible to rounding
_STALLED = 12  # steps without progress after which the method gives up


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

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        return problem.not_quadratic or problem.not_convex

    def suits(self, problem: Composite) -> bool:
        """Whether the matrices of the rows are sparse; that of the quadratic need not be, as in a fused lasso."""
        return problem.is_sparse or (bool(problem.rows) and all(r.linear.storage == "sparse" for r in problem.rows))

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # along a direction of unbounded descent
            iterate = _Iterate(problem)
            try:
                _descend(iterate, state, tol, check, self.most, self.exact)
            except BaseException:  # whatever ends the run, the bracket is what is known by then
                iterate.show(state)
                raise
            if self.exact and not state.reached(tol) and problem.size <= _SMALL:
                iterate.cross_over(state, tol)


def _descend(iterate: _Iterate, state: State, tol: float, check: Check, most: int, exact: bool) -> None:
    iterate.value(state)
    first, before, stalled = max(iterate.total, 1e-300), np.inf, 0
    looks = [1e-3]  # shares of the objective at which the bracket is worth a look
    least = 0 if iterate.products else 3  # a quadratic takes a step, and singular ones two more
    for k in range(most):
        state.sigma, state.latest = iterate.total / first, iterate.x
        share = iterate.total / max(abs(state.upper), 1e-3 * first)  # the optimum may be zero
        due = iterate.total <= tol * max(1.0, abs(state.upper)) and not state.reached(tol)
        if due or (looks and share <= looks[0]):
            iterate.show(state)
            looks = [look for look in looks if look < share]
        state.record()
        check(state)
        settled = state.reached(tol) and (not exact or (share <= tol and iterate.total > 0.5 * before))
        if k >= least and (settled or share <= _EXACT) and not iterate.augments():
            break
        before = iterate.total
        try:
            stalled = 0 if iterate.step() else stalled + 1
        except np.linalg.LinAlgError:  # beyond what rounding allows
            break
        state.steps += 1
        if stalled >= _STALLED or not np.isfinite(iterate.total):
            break
    iterate.show(state)
    iterate.snap(state)
    state.sigma = 0.0 if state.reached(tol) else state.sigma
    state.record()


class _Iterate:
    """A point, the multipliers and slacks of every elementary function, and their next step."""

    def __init__(self, problem: Composite) -> None:
        self.problem, self.matrices = problem, normal(problem)
        self.blocks: list[list[Piece]] = [split(r) for r in problem.rows]
        self.products = sum(piece.products for block in self.blocks for piece in block)
        self.slope = problem.slope.copy()
        for b, r in enumerate(problem.rows):
            self.matrices.add_transpose(b, r.weights * line_slope(r), self.slope)
        diagonal = None if problem.hessian is None else problem.hessian.diagonal()
        self.curvature = diagonal if diagonal is not None and np.all(diagonal > 0) else None
        self.expected = np.inf  # what a step should leave of the residual
        self.has_factor = False  # whether some matrix was not singular
        self._start()

    def _start(self) -> None:
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
        feasible = bool(np.isfinite(left)) and left <= 1e-9 * max(np.abs(self.slope).max(initial=0.0), 1e-300)
        if not feasible:
            self.x = np.zeros(problem.size)
        positions = self._positions()
        if not feasible:
            widths = self._widths(positions)
            for block, z, width in zip(self.blocks, positions, widths, strict=True):
                for piece in block:
                    piece.soften(z, width)
            try:
                self._factorise()
                x, _ = self.matrices.step(self._residual(self._multipliers()), self._pulls())
                self.x = x if np.all(np.isfinite(x)) else self.x
            except np.linalg.LinAlgError:  # nothing holds the variables
                pass
            positions = self._positions()
        widths = self._widths(positions)
        self.total = sum(
            piece.begin(z, width, guess=not feasible)
            for block, z, width in zip(self.blocks, positions, widths, strict=True)
            for piece in block
        )

    def _positions(self) -> list[Vector]:
        return [self.matrices.apply(b, self.x) + r.offset for b, r in enumerate(self.problem.rows)]

    def _widths(self, positions: list[Vector]) -> list[float]:
        """How far the rows of each block are from their knots, typically; where they are all on them, the largest x."""
        lengths = self.matrices.lengths
        spreads = [
            max((float(np.mean(np.abs(piece.distance(z)))) for piece in block), default=0.0)
            for block, z in zip(self.blocks, positions, strict=True)
        ]
        unit = max([s / max(n, 1e-300) for s, n in zip(spreads, lengths, strict=True)] + [np.abs(self.x).max()])
        return [max(s, 1e-3 * unit * n) or 1.0 for s, n in zip(spreads, lengths, strict=True)]

    # -- Sums over the pieces of the rows of a block ------------------------------------------------------------------

    def _gathered(self, block: int, values: Callable[[Piece], Vector], power: int) -> Vector:
        pieces = self.blocks[block]
        if len(pieces) == 1 and pieces[0].index is None and pieces[0].sign ** power > 0:
            return values(pieces[0])
        rows = np.zeros(self.problem.rows[block].count)
        for piece in pieces:
            piece.add_to(rows, values(piece), power)
        return rows

    def _multipliers(self) -> list[Vector]:
        return [self._gathered(b, lambda piece: piece.u, 1) for b in range(len(self.blocks))]

    def _residual(self, multipliers: list[Vector]) -> Vector:
        """The gradient of the Lagrangian in x: what is missing to dual feasibility."""
        out = self.matrices.curve(self.x)
        out += self.slope
        for b, u in enumerate(multipliers):
            self.matrices.add_transpose(b, u, out)
        return out

    def _pulls(self) -> list[Vector]:
        return [self._gathered(b, lambda piece: piece.pull, 1) for b in range(len(self.blocks))]

    def _factorise(self) -> None:
        weights = [self._gathered(b, lambda piece: piece.stiffness, 2) for b in range(len(self.blocks))]
        for ridge in _RIDGES:
            try:
                self.matrices.factorise(weights, ridge)
            except np.linalg.LinAlgError:
                continue
            self.has_factor = True
            return None
        if self.matrices.augment():
            return self._factorise()
        raise np.linalg.LinAlgError("the matrix of a step is singular")

    # -- A step -------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Predict, correct and move; False where that was too little to matter."""
        pieces = [(b, piece) for b, block in enumerate(self.blocks) for piece in block]
        residual = self._residual(self._multipliers())
        size = float(np.linalg.norm(residual))
        if size > 2.0 * self.expected and self._harm(residual) > 0.01 * self.total:
            self.matrices.augment()  # what is left of the residual is rounding, and it matters
        for _, piece in pieces:
            piece.linearise()
        self._factorise()
        _, moves = self.matrices.step(residual, self._pulls())
        reach, bend = 1.0, 0.0
        for b, piece in pieces:
            far, bent = piece.predict(moves[b])
            reach, bend = max(reach, far), bend + bent
        length = 1.0 / reach
        left = max((1.0 - length) * self.total - length**2 * bend, 0.0)
        mu = (left / self.total) ** 3 * self.total / self.products if self.total > 0 else 0.0
        for _, piece in pieces:
            piece.correct(mu)
        dx, moves = self.matrices.step(residual, self._pulls())
        reach = max((piece.measure(moves[b]) for b, piece in pieces), default=0.0)
        length = 1.0 if reach <= _SHARE else _SHARE / reach
        self.x, self.expected = self.x + length * dx, (1.0 - length) * size
        before, self.total = self.total, sum(piece.move(length) for _, piece in pieces)
        return self.total < 0.99 * before or length > 0.01

    def augments(self) -> bool:
        """Treat multipliers as unknowns where stiff rows have cost digits of the point: a step finds them anew."""
        left = np.abs(self._residual(self._multipliers())).max(initial=0.0)
        return bool(left > _ROUGH * np.abs(self.slope).max(initial=0.0)) and self.matrices.augment()

    def _harm(self, residual: Vector) -> float:
        """What the residual costs the dual value, roughly."""
        if self.curvature is None:
            return float(np.abs(residual) @ np.abs(self.x))
        return float(residual @ (residual / self.curvature))

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
        pulls = self._multipliers()
        for attempt in range(_REFINEMENTS):
            slopes = self._slopes(positions, pulls)
            gap, assumption = dual_gap(problem, self.x, positions, slopes)
            state.see(self.x, value, gap, assumption, dual=slopes)
            if gap <= 2.0 * self.total or attempt + 1 == _REFINEMENTS or not self.has_factor:
                return
            # The stiffer the rows, the coarser what rounding leaves of dual feasibility: the last matrix restores it.
            _, moves = self.matrices.step(self._residual(pulls), [np.zeros_like(pull) for pull in pulls])
            pulls = [
                pull + self._gathered(b, lambda piece: piece.stiffness, 2) * move
                for b, (pull, move) in enumerate(zip(pulls, moves, strict=True))
            ]

    def _slopes(self, positions: list[Vector], pulls: list[Vector]) -> list[Vector]:
        """Slopes of the terms from the sums of the multipliers of each row."""
        slopes = []
        for r, z, pull in zip(self.problem.rows, positions, pulls, strict=True):
            weights = np.where(r.weights > 0, r.weights, 1.0)
            slope = np.where(r.weights > 0, line_slope(r) + pull / weights, r.term.derivative(z))
            slopes.append(np.clip(slope, *r.term.slopes))
        return slopes

    def cross_over(self, state: State, tol: float) -> None:
        """Show `state` the exact optimum near the point: rounding may spoil multipliers before they prove enough."""
        x = self.x if np.all(np.isfinite(self.x)) else state.x
        widths = self._widths(self.problem.positions(x))
        for share in _NEAR:
            exact = cross_over(self.problem, x, [share * width for width in widths], tol)
            if exact is not None:
                state.see(exact.x, exact.value, exact.gap, exact.assumption, dual=exact.slopes)
            if state.reached(tol):
                state.sigma = 0.0
                state.record()
                return

    def snap(self, state: State) -> None:
        """Show `state` the point with what rests on a kink at zero exactly there, where that is no worse."""
        for share in _REST:
            resting = [np.zeros(r.count, dtype=bool) for r in self.problem.rows]
            for block, rests in zip(self.blocks, resting, strict=True):
                for piece in block:
                    if not np.any(piece.knot):
                        rests[slice(None) if piece.index is None else piece.index] = piece.rests(share)
            x = snapped(self.problem, self.x, resting)
            value = self.problem.value(x)
            if value <= state.upper + _EXACT * abs(state.upper):
                state.x, state.upper = x, value
                return
