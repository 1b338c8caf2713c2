r"""`diagonal-newton`: the paper's update for the lasso [SB12].

mu_i <- mu_i - step E'_i / E''_ii,      x ~ N(mu, sigma^2 I),      sigma falls at every iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from varopt.solvers._composite import Composite
from varopt.solvers._duality import bracket
from varopt.solvers._loop import Path, follow, isotropic
from varopt.solvers._method import Method
from varopt.solvers._schedules import Geometric, Schedule
from varopt.solvers._state import Check, State

__all__ = ["DiagonalNewton"]

_LOOK = 50  # iterations between two looks at the bracket


@dataclass(frozen=True)
class DiagonalNewton(Method):
    """A damped Newton step with the diagonal of the Hessian, and a sigma that falls at every iteration.

    The defaults are those of the paper's Table 1: a tenth of the step, covariance 0.1 I, times 0.9 an iteration, until
    the mean absolute change of the point is below 1e-15 of its mean absolute value.

    Parameters
    ----------
    step : float
        Share of the Newton step that is taken.
    schedule : Schedule
        How sigma falls, the standard deviation of every variable.
    change : float
        Relative mean absolute change of the point below which to stop.
    most : int
        Most iterations.

    Notes
    -----
    An iteration costs one product with the Hessian of the quadratic and one with the rows and their transpose.
    """

    step: float = 0.1
    schedule: Schedule = field(default_factory=lambda: Geometric(math.sqrt(0.1), math.sqrt(0.9)))
    change: float = 1e-15
    most: int = 10_000

    name: ClassVar[str] = "diagonal-newton"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        return problem.not_quadratic or problem.not_convex

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""

        def stop(path: Path) -> bool:
            state.sigma, state.latest, state.steps = path.sigma, path.x, state.steps + 1
            done = path.moved < self.change or path.steps >= self.most
            if done or path.steps % _LOOK == 0:
                bracket(problem, path.x, path.deviations, state)
            state.record()
            check(state)
            return done

        follow(isotropic(problem, *state.begin(self.schedule.start)), self._update, self.schedule, stop)

    def _update(self, path: Path) -> int:
        problem, x = path.problem, path.x
        slope = problem.quadratic_slope(x).copy()
        bend = np.zeros(x.size) if problem.hessian is None else np.array(problem.hessian.diagonal())
        for r, deviation in zip(problem.rows, path.deviations, strict=True):
            _, first, second = r.term.derivatives(r.positions(x), deviation)
            slope += r.linear.transpose_apply(r.weights * first)
            bend += r.linear.gram_diagonal(r.weights * second)
        path.x = x - self.step * np.divide(slope, bend, out=np.zeros_like(x), where=bend > 0)
        return 1
