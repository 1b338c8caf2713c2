"""`lbfgs`: the paper's method for support vector machines [SB12, section 3.2], on SciPy's L-BFGS-B.

E is that of [SB12, eq. 29] and its gradient that of [SB12, eq. 31 and 32], for terms of any kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.bounds import MovingBound, PointNoise
from varopt.certificates import bracket
from varopt.composite import Composite
from varopt.solvers._method import Check, Method, State, convex, piecewise_quadratic
from varopt.solvers.descent._path import Geometric, Path, Schedule, follow

__all__ = ["LBFGS"]

Vector = NDArray[np.float64]

_TRIALS = 100  # of one line search: just after a cut of sigma the first step is far too long
_LAST_SHARE = 1e-12  # share of the first sigma below which nothing more is to be gained
_MOST_LBFGS_ITERATIONS = 50_000  # iterations, where nobody says how many


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
    most : int, optional
        Most iterations in all, after which the run ends, whatever its gap. By default 50,000, after which
        other methods go on.

    Notes
    -----
    An iteration costs one or two evaluations: a product with the Hessian of the quadratic and one with the rows and
    their transpose; where the quadratic is of the matrix of the rows, as for a kernel machine, one of these is both.
    Memory is `memory` pairs of points.
    """

    schedule: Schedule = field(default_factory=lambda: Geometric(math.sqrt(1e-3), math.sqrt(0.1)))
    iterations: int = 250
    memory: int = 10
    most: int | None = None

    name: ClassVar[str] = "lbfgs"
    needs = (piecewise_quadratic, convex)

    @property
    def alone(self) -> bool:
        """Whether it was told how many steps to take: these, and no other method after them."""
        return self.most is not None

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        from scipy.optimize import minimize

        def level(path: Path) -> int:
            def seen(x: Vector) -> None:
                state.latest, state.sigma, state.steps = np.array(x), path.sigma, state.steps + 1
                check(state)

            found = minimize(  # E [SB12, eq. 29] and its gradient [SB12, eq. 31 and 32]
                bound.value_and_gradient, path.x, args=(path.sigma,), jac=True, method="L-BFGS-B", callback=seen,
                options={"maxiter": self.iterations, "maxcor": self.memory, "maxfun": 100 * self.iterations,
                         "maxls": _TRIALS, "ftol": 0.0, "gtol": 0.0},
            )  # fmt: skip
            path.x = found.x
            state.evaluations += found.nfev
            return int(found.nit)

        def stop(path: Path) -> bool:
            state.latest = path.x
            ends = path.steps >= most or path.sigma < _LAST_SHARE * self.schedule.start
            if ends or tol > 0.0:  # to prove a gap costs as much as many steps; one of zero is not waited for
                state.see(*bracket(path.whole()))
            else:
                state.see(path.x, problem.value(path.x))
            state.record()
            check(state)
            return ends or state.reached(tol)

        most = _MOST_LBFGS_ITERATIONS if self.most is None else self.most
        x, sigma = state.begin(self.schedule.start)
        noise = PointNoise.of(problem, sigma)
        bound = MovingBound(problem, noise)
        with np.errstate(over="ignore", invalid="ignore"):  # a trial of a line search may be far out
            follow(Path(problem, x, noise, sigma), level, self.schedule, stop)
