r"""`diagonal-newton`: the paper's update for the lasso [SB12, section 2.2].

    mu_i <- mu_i - step E'_i / E''_ii,    x ~ N(mu, sigma^2 I),    sigma falls at every iteration    [SB12, eq. 20]

E and its derivatives are those of [SB12, eq. 15 and 16], for terms of any kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from varopt.bounds import MovingBound, PointNoise
from varopt.certificates import bracket
from varopt.composite import Composite
from varopt.solvers._method import Check, Method, State, convex, piecewise_quadratic
from varopt.solvers.descent._path import Geometric, Path, Schedule, follow

__all__ = ["DiagonalNewton"]

_FIRST_LOOK = 64  # iterations before the first look at the bracket; the next are twice as far each
_MOST_NEWTON_ITERATIONS = 10_000  # iterations, where nobody says how many


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
    most : int, optional
        Most iterations, after which the run ends, whatever its gap. By default 10,000, after which
        other methods go on.

    Notes
    -----
    An iteration costs one product with the Hessian of the quadratic and one with the rows and their transpose.
    """

    step: float = 0.1
    schedule: Schedule = field(default_factory=lambda: Geometric(math.sqrt(0.1), math.sqrt(0.9)))
    change: float = 1e-15
    most: int | None = None

    name: ClassVar[str] = "diagonal-newton"
    needs = (piecewise_quadratic, convex)

    @property
    def alone(self) -> bool:
        """Whether it was told how many steps to take: these, and no other method after them."""
        return self.most is not None

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""

        def stop(path: Path) -> bool:
            state.sigma, state.latest, state.steps = path.sigma, path.x, state.steps + 1
            done = path.moved < self.change or path.steps >= most
            if done or (tol > 0.0 and path.steps >= _FIRST_LOOK and path.steps.bit_count() == 1):
                state.see(*bracket(path.whole()))
            state.record()
            check(state)
            return done

        if sum(r.count for r in problem.squares) > problem.size:
            _ = problem.hessian  # multiplied out once: an iteration is then one product with it
        most = _MOST_NEWTON_ITERATIONS if self.most is None else self.most
        x, sigma = state.begin(self.schedule.start)
        noise = PointNoise.of(problem, sigma)
        bound = MovingBound(problem, noise)
        curved = bound.always_curved

        def update(path: Path) -> int:
            gradient, curvature = bound.gradient_and_diagonal(path.x, path.sigma)
            if not (curved or np.minimum.reduce(curvature) > 0.0):  # a flat coordinate rests
                gradient, curvature = np.where(curvature > 0.0, (gradient, curvature), ((0.0,), (1.0,)))
            # mu_i <- mu_i - step E'_i / E''_ii  [SB12, eq. 20]
            step = np.divide(gradient, curvature, gradient)
            path.x = path.x - np.multiply(step, self.step, step)
            return 1

        with np.errstate(over="ignore", invalid="ignore"):  # too tight a coupling makes steps grow for ever
            follow(Path(problem, x, noise, sigma), update, self.schedule, stop)
