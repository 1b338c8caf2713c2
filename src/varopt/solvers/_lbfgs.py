"""`lbfgs`: the paper's method for support vector machines [SB12], on SciPy's L-BFGS-B."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.solvers._composite import Composite
from varopt.solvers._duality import bracket
from varopt.solvers._loop import Path, follow, isotropic
from varopt.solvers._method import Method
from varopt.solvers._schedules import Geometric, Schedule
from varopt.solvers._state import Check, State

__all__ = ["LBFGS", "value_and_slope"]

_TRIALS = 100  # of one line search: just after a cut of sigma the first step is far too long
_FLOOR = 1e-12  # share of the first sigma below which nothing more is to be gained


@dataclass(frozen=True)
class LBFGS(Method):
    """Quasi-Newton steps on the bound, for a number of iterations at every sigma.

    The defaults are the paper's: variance 0.001, a tenth of it every 250 iterations (sooner where L-BFGS has converged;
    its memory starts anew at each cut).

    Parameters
    ----------
    schedule : Schedule
        How sigma falls, the standard deviation of every variable.
    iterations : int
        Most iterations at one sigma.
    memory : int
        Pairs that L-BFGS remembers.
    most : int
        Most iterations in all.

    Notes
    -----
    An iteration costs one or two evaluations: a product with the Hessian of the quadratic and one with the rows and
    their transpose. Memory is `memory` pairs of points.
    """

    schedule: Schedule = field(default_factory=lambda: Geometric(math.sqrt(1e-3), math.sqrt(0.1)))
    iterations: int = 250
    memory: int = 10
    most: int = 50_000

    name: ClassVar[str] = "lbfgs"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        return problem.not_quadratic or problem.not_convex

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        from scipy.optimize import minimize

        def level(path: Path) -> int:
            def seen(x: NDArray[np.float64]) -> None:
                state.latest, state.sigma, state.steps = np.array(x), path.sigma, state.steps + 1
                check(state)

            found = minimize(
                value_and_slope, path.x, args=(path,), jac=True, method="L-BFGS-B", callback=seen,
                options={"maxiter": self.iterations, "maxcor": self.memory, "maxfun": 100 * self.iterations,
                         "maxls": _TRIALS, "ftol": 0.0, "gtol": 0.0},
            )  # fmt: skip
            path.x = found.x
            state.evaluations += found.nfev
            return int(found.nit)

        def stop(path: Path) -> bool:
            state.latest = path.x
            bracket(problem, path.x, path.deviations, state)
            state.record()
            check(state)
            return state.reached(tol) or path.steps >= self.most or path.sigma < _FLOOR * self.schedule.start

        follow(isotropic(problem, *state.begin(self.schedule.start)), level, self.schedule, stop)


def value_and_slope(x: NDArray[np.float64], path: Path) -> tuple[float, Any]:
    """The bound at mean x and its gradient, but for the constant that the quadratic adds."""
    problem = path.problem
    value, slope = problem.quadratic(x), problem.quadratic_slope(x).copy()
    for r, deviation in zip(problem.rows, path.deviations, strict=True):
        smoothed, first, _ = r.term.derivatives(r.positions(x), deviation)
        value += float(r.weights @ smoothed)
        slope += r.linear.transpose_apply(r.weights * first)
    return value, slope
