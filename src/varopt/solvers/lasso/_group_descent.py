r"""`group-descent`: a quadratic, norms of groups of variables that share none, and kinks of single variables.

    1/2 x'Hx + g'x + sum_g radius_g ||x_g - rest_g|| + kinks

Groups in turn move by a proximal gradient step of their own curvature, which soon settles which of them vanish [QSG13];
then the rest is smooth, and Newton's method ends it.

.. [QSG13] Z. Qin, K. Scheinberg, D. Goldfarb. Efficient block-coordinate descent algorithms for the group lasso.
   Mathematical Programming Computation 5, 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._linalg import solve_definite
from varopt.certificates import prove
from varopt.composite import Composite, separable_kinks
from varopt.solvers._method import Check, GaveUp, Method, State, convex, only_kinks, quadratic_part, separable_norms

__all__ = ["GroupDescent"]

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Over the groups before Newton's method is tried; twice as many each time that it does not end it.
_FIRST_GROUP_SWEEPS = 4
_MOST_SWEEPS = 64  # in one round
_SWEEP_ROUNDS = 40  # of sweeps and Newton steps before the method gives up
_NEWTON_STEPS_IN_ROUND = 12  # most Newton steps in a round
_SHORTEST_NEWTON_STEP = 1e-4  # share of a Newton step below which it is not taken
_VANISHING = 1e-3  # share of its norm below which a step leads a group to zero
_AS_GOOD = 1e-14  # relative size of a step beyond which rounding allows no more


@dataclass(frozen=True)
class GroupDescent(Method):
    """Proximal steps of one group after another, then Newton's method on those that do not vanish.

    Notes
    -----
    A sweep over the groups costs a product with the matrix of the quadratic, a Newton step a factorisation of the order
    of the variables that do not rest. Memory: p x p numbers for p variables.
    """

    name: ClassVar[str] = "group-descent"
    needs = (convex, separable_norms, only_kinks, quadratic_part)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks."""
        return "" if problem.groups else "it has no group norms."

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            run, sweeps = _Run(problem, state.x), _FIRST_GROUP_SWEEPS
            for _ in range(_SWEEP_ROUNDS):
                run.sweep(sweeps)
                state.steps += 1 + run.newton()
                if not np.all(np.isfinite(run.x)):
                    break
                state.see(*prove(problem, run.x.copy(), ())[0])
                state.latest, state.sigma = run.x.copy(), 0.0
                state.record()
                check(state)
                if state.reached(tol):
                    return
                sweeps = min(2 * sweeps, _MOST_SWEEPS)
        raise GaveUp


class _Run:
    """The point, counted from where the variables rest, and the gradient of the quadratic there."""

    def __init__(self, problem: Composite, x: Vector) -> None:
        self.kinks, _ = problem.structure(separable_kinks)
        self.hessian = _dense(problem)
        self.free = np.flatnonzero(self.kinks.free)
        self.kinked = self.kinks.low < self.kinks.high
        self.away = x - self.kinks.rest
        self.start = problem.gradient_at_zero + self.hessian @ self.kinks.rest
        balls = self.kinks.balls
        members = [np.flatnonzero(balls.label == g) for g in range(balls.radius.size)] if balls is not None else []
        alone = np.flatnonzero(self.kinked & (balls.label < 0)) if balls is not None else np.flatnonzero(self.kinked)
        self.groups = [*members, *alone[:, None]]
        self.radius = np.concatenate([balls.radius if balls is not None else np.zeros(0), np.zeros(alone.size)])
        self.label = np.full(x.size, -1)
        for g, index in enumerate(self.groups):
            self.label[index] = g
        self._eliminate()

    def _eliminate(self) -> None:
        """The quadratic of the variables with a kink or a norm, the others always at their best."""
        H, free = self.hessian, self.free
        self.inner = H
        if free.size:
            self.inner = H - H[:, free] @ np.linalg.lstsq(H[np.ix_(free, free)], H[free], rcond=1e-13)[0]
        blocks = [self.inner[np.ix_(index, index)] for index in self.groups]
        self.columns = [np.ascontiguousarray(self.inner[:, index]) for index in self.groups]
        self.curvature = [float(np.linalg.eigvalsh(block)[-1]) for block in blocks]

    @property
    def x(self) -> Vector:
        """The point."""
        return np.asarray(self.kinks.rest + self.away)

    def gradient(self) -> Vector:
        """Of the quadratic."""
        return np.asarray(self.start + self.hessian @ self.away)

    # -- Proximal steps -----------------------------------------------------------------------------------------------

    def sweep(self, count: int) -> None:
        """Steps of all groups in turn, so many times; then the free variables at their best."""
        self._settle()
        away, gradient = self.away, self.gradient()
        for _ in range(count):
            moved = 0.0
            for g, index in enumerate(self.groups):
                before = away[index]
                after = self._proximal(g, index, before, gradient[index])
                if after is None or np.array_equal(after, before):
                    continue
                step = after - before
                away[index] = after
                gradient += self.columns[g] @ step
                moved = max(moved, float(np.abs(step).max()) / max(float(np.abs(after).max()), 1e-300))
            if moved <= _AS_GOOD:
                break
        self._settle()

    def _proximal(self, g: int, index: NDArray[np.intp], before: Vector, gradient: Vector) -> Vector | None:
        """The proximal step of one group: kinks first, then the norm, as both are homogeneous."""
        curvature = self.curvature[g]
        if curvature <= 0.0:
            return None
        target = before - gradient / curvature
        if self.kinked[index[0]]:
            target = target - np.clip(target, self.kinks.low[index] / curvature, self.kinks.high[index] / curvature)
        if self.radius[g] > 0.0:
            size = float(np.sqrt(target @ target))
            target = target * (max(0.0, 1.0 - self.radius[g] / (curvature * size)) if size > 0.0 else 0.0)
        return np.asarray(target)

    def _settle(self) -> None:
        """Move the free variables to their best."""
        if self.free.size:
            gradient = self.gradient()[self.free]
            block = self.hessian[np.ix_(self.free, self.free)]
            self.away[self.free] -= np.linalg.lstsq(block, gradient, rcond=1e-13)[0]

    # -- Newton's method ----------------------------------------------------------------------------------------------

    def newton(self) -> int:
        """Steps on the variables that do not rest until rounding allows no more, or one leads to where others rest."""
        for steps in range(_NEWTON_STEPS_IN_ROUND):
            live = self._live()
            if not live.size:
                return steps
            gradient, matrix = self._smooth(live)
            step = np.zeros(self.away.size)
            step[live] = solve_definite(matrix, -gradient)
            value, length, after = self._value(self.away), 1.0, self._kept(step)
            while not self._value(after) <= value + 1e-15 * abs(value):
                length *= 0.5
                if length < _SHORTEST_NEWTON_STEP:
                    return steps
                after = self._kept(length * step)
            size = float(np.abs(after - self.away).max(initial=0.0))
            self.away = after
            if size <= _AS_GOOD * float(np.abs(after).max(initial=0.0)):
                return steps + 1
        return _NEWTON_STEPS_IN_ROUND

    def _live(self) -> NDArray[np.intp]:
        """The variables that do not rest: free ones, and of groups that do not vanish those off their kinks."""
        grouped = np.flatnonzero(self.radius > 0.0)
        vanished = [g for g in grouped if not self.away[self.groups[g]].any()]
        resting = np.isin(self.label, vanished) | (self.kinked & (self.away == 0.0))
        return np.flatnonzero(~resting)

    def _smooth(self, live: NDArray[np.intp]) -> tuple[Vector, Vector]:
        """Gradient and Hessian there: of the quadratic, of kinks on their side, and of norms."""
        away, label = self.away[live], self.label[live]
        gradient, matrix = self.gradient()[live], self.hessian[np.ix_(live, live)]
        side = np.where(away > 0.0, self.kinks.high[live], self.kinks.low[live])
        gradient = gradient + np.where(self.kinked[live], side, self.kinks.high[live])
        radius = np.where(label >= 0, self.radius[label], 0.0)
        sizes = np.sqrt(np.bincount(label + 1, away**2, minlength=self.radius.size + 1))[label + 1]
        bent = radius > 0.0
        curvature = np.divide(radius, sizes, out=np.zeros_like(sizes), where=bent)
        direction = np.divide(away, sizes, out=np.zeros_like(sizes), where=bent)
        gradient += radius * direction
        # radius / size (I - direction direction') in each group
        matrix -= np.where(label[:, None] == label, (curvature * direction)[:, None] * direction, 0.0)
        matrix[np.diag_indices_from(matrix)] += curvature
        return gradient, matrix

    def _kept(self, step: Vector) -> Vector:
        """The point after a step, with what passed its kink or shrank to nothing at rest."""
        after = self.away + step
        after[self.kinked & (after * self.away < 0.0)] = 0.0
        for g in np.flatnonzero(self.radius > 0.0):
            index = self.groups[g]
            now, then = self.away[index], after[index]
            if now @ then <= 0.0 or then @ then <= _VANISHING**2 * (now @ now):
                after[index] = 0.0
        return after

    def _value(self, away: Vector) -> float:
        """The objective but for a constant."""
        quadratic = float(away @ (self.start + 0.5 * (self.hessian @ away)))
        kinks = float(np.sum(np.maximum(self.kinks.high * away, self.kinks.low * away)))
        balls = self.kinks.balls
        return quadratic + kinks + (float(balls.radius @ balls.norms(away)) if balls is not None else 0.0)


def _dense(problem: Composite) -> Vector:
    hessian = problem.hessian
    return np.array(hessian.toarray() if sp.issparse(hessian) else hessian, dtype=np.float64)
