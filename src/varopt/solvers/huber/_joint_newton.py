"""Newton's method in coefficients, intercept and scale together, for few features and more rows.

Within epsilon scales a residual costs ``r^2 / s``, whose Hessian is ``2 / s`` times the outer product of the row's
features and, for the scale, ``r / s``; beyond, it has none. The Gram matrix of the rows within changes only by those
that cross.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.huber._problem import HuberProblem, Overflow

__all__ = ["JointNewton"]

Vector = NDArray[np.float64]

_OFF_SCALE = 0.3  # share of the weights that the derivative in the scale may be; beyond, the best scale is solved for
_MOST_JOINT_STEPS = 150  # those that were damped and taken anew among them
# Shares of a step below which it is cut to a tenth instead of a half, and no more. Where columns nearly repeat others,
# the rows within may say nothing of a direction, and a step lead far beyond all others.
_SHORT_JOINT_STEP, _SHORTEST_JOINT_STEP = 1e-3, 1e-9
_LEAST_DAMPING = 1e-6
_GATHERED_DATA_ENTRIES = 1 << 14  # gathered at once: in memory that is new they take several times as long


class JointNewton:
    """Newton's method from a point, which is kept up to date; `vanishes` says that the scale fell to nothing."""

    def __init__(self, problem: HuberProblem, x: Vector) -> None:
        self.problem, self.x, self.steps, self.vanishes = problem, x, 0, False
        self.inside = np.zeros(problem.y.size, dtype=bool)
        self.gram = np.zeros((x.size, x.size))  # the last row and column are for the scale, and stay empty
        self._squares: Vector | None = None  # weighted squares of the columns

    def descend(self, least: float, check: Callable[[], None]) -> bool:
        """Go down to where steps gain nothing more; False where the scale falls below `least`, or steps fail.

        `check` is called after every step and may raise. Raises `Overflow` where products of the data do.
        """
        p, total = self.problem, self.problem.total
        residual = p.residual(self.x)
        value, gained, damping = p.value(self.x, residual), np.inf, 0.0
        for self.steps in range(1, _MOST_JOINT_STEPS):
            gradient, hessian = self._derivatives(residual)
            if abs(gradient[-1]) > _OFF_SCALE * total and (best := p.best_scale(residual)) > 0.0:
                self.x = np.append(self.x[:-1], best)
                value = p.value(self.x, residual)
                gradient, hessian = self._derivatives(residual)
            step = self._damped(gradient, hessian, damping)
            if step is None and damping < 1.0:
                damping = _more(damping)
                continue
            if step is None:
                return False
            gain, rounding = -float(gradient @ step), 1e-12 * total * float(self.x[-1])
            length, new, moved, found = self._searched(step, residual, value, gain, rounding)
            if gain <= rounding and gain >= 0.1 * gained:
                return True
            falls = found <= value + rounding
            if damping < 1.0 and not (falls and length >= _SHORT_JOINT_STEP):
                damping = _more(damping)
                continue
            self.vanishes = bool(new[-1] < least)
            if self.vanishes or not falls:
                return False
            self.x, residual, value, gained, damping = new, moved, found, gain, _less(damping)
            check()
        return False

    def _damped(self, gradient: Vector, hessian: NDArray[np.float64], damping: float) -> Vector | None:
        """Newton's step, or one as if all rows were within, in that share; None where there is none.

        Where fewer rows are within than there are coordinates, they say nothing of some direction, along which
        Newton's step goes on until other rows stop it. Levenberg and Marquardt's damping keeps it short [Ma63].
        """
        if damping:
            hessian = hessian + damping * np.diag(self._within())
        if np.any(empty := np.diag(hessian) == 0.0):  # columns of zeros, without a ridge: nothing moves along them
            hessian = hessian + np.diag((empty & (gradient == 0.0)).astype(np.float64))
        try:
            step = np.asarray(np.linalg.solve(hessian, -gradient), dtype=np.float64)
        except np.linalg.LinAlgError:
            return None
        return step if np.all(np.isfinite(step)) else None

    def _within(self) -> Vector:
        """The diagonal of the Hessian if all rows were within epsilon scales, and on their border for the scale."""
        p = self.problem
        if self._squares is None:
            squares = np.einsum("i,ij,ij->j", p.weight, p.X, p.X)
            self._squares = np.concatenate([squares, [p.total, p.total * p.epsilon**2]])
        return self._squares * (2.0 / float(self.x[-1]))

    def _searched(
        self, step: Vector, residual: Vector, value: float, gain: float, rounding: float
    ) -> tuple[float, Vector, Vector, float]:
        """The share of the step that a line search takes, the point, its residuals and value; scales stay positive."""
        p, scale = self.problem, float(self.x[-1])
        ahead = p.X @ step[:-2] + step[-2]
        length = 1.0 if step[-1] > -0.5 * scale else -0.5 * scale / float(step[-1])
        while True:
            new, moved = self.x + length * step, residual - length * ahead
            found = p.value(new, moved)
            # What is to be gained below the rounding of values shows in the gradient alone: a whole step.
            if found <= value - 1e-4 * length * gain or length < _SHORTEST_JOINT_STEP or gain <= rounding:
                return length, new, moved, found
            length *= 0.5 if length > _SHORT_JOINT_STEP else 0.1

    def _derivatives(self, residual: Vector) -> tuple[Vector, Vector]:
        """Gradient and Hessian; where there is no intercept, its row of the Hessian is that of the identity."""
        p, coef, scale = self.problem, self.x[:-2], float(self.x[-1])
        relative = residual / scale
        clipped = np.clip(relative, -p.epsilon, p.epsilon)
        inside = clipped == relative
        self._cross(np.flatnonzero(inside != self.inside), inside)
        pulls = p.weight * clipped  # half of the weighted dual variables
        held = pulls * inside
        intercept = float(p.intercept)
        gradient = np.concatenate([
            2.0 * (p.alpha * coef - p.X.T @ pulls),
            [-2.0 * intercept * pulls.sum(), p.total - pulls @ clipped],
        ])  # fmt: skip
        hessian = self.gram.copy()
        hessian[-1] = hessian[:, -1] = np.concatenate([p.X.T @ held, [intercept * held.sum(), held @ clipped]])
        hessian *= 2.0 / scale
        hessian[np.diag_indices(coef.size)] += 2.0 * p.alpha
        if not p.intercept:
            hessian[-2, -2] = 1.0
        return gradient, hessian

    def _cross(self, rows: NDArray[np.intp], inside: NDArray[np.bool_]) -> None:
        """Add the rows that are within by now to the Gram matrix, and take away those that are no longer."""
        p, self.inside = self.problem, inside
        few = max(1, _GATHERED_DATA_ENTRIES // self.gram.shape[0])
        for start in range(0, rows.size, few):
            part = rows[start : start + few]
            features = np.hstack([np.take(p.X, part, axis=0), np.full((part.size, 1), float(p.intercept))])
            weight = np.where(inside[part], p.weight[part], -p.weight[part])
            with np.errstate(over="ignore", invalid="ignore"):
                self.gram[:-1, :-1] += features.T @ (weight[:, None] * features)
        if not np.all(np.isfinite(self.gram)):
            raise Overflow


def _more(damping: float) -> float:
    return max(10.0 * damping, _LEAST_DAMPING)


def _less(damping: float) -> float:
    return 0.1 * damping if damping > _LEAST_DAMPING else 0.0
