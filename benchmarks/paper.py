"""The paper's own descents beside the same arithmetic in a few lines of NumPy: what the library adds to it."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ndtr

import varopt as vo
from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark
from varopt.bounds import MovingBound, PointNoise
from varopt.composite import Composite, composite
from varopt.experiments import problems
from varopt.model import as_objective
from varopt.solvers import State

Vector = NDArray[np.float64]

MOST = 1.2  # of the plain arithmetic
ROUNDS = 9
ITERATIONS = 50  # of L-BFGS at the first sigma: later the two part, by rounding, and where they end is another matter
SIGMA = math.sqrt(1e-3)  # the first of the paper's, for support vector machines


def plain_lasso(X: Vector, y: Vector, penalty: float) -> Vector:
    """Table 1 as printed: a tenth of the diagonal Newton step, covariance 0.1 I, times 0.9 an iteration."""
    gram, start = 2.0 * X.T @ X, 2.0 * X.T @ y
    diagonal, w, variance = np.diag(gram).copy(), np.zeros(X.shape[1]), 0.1
    while True:
        u = w / math.sqrt(variance)
        gradient = gram @ w - start + penalty * (2.0 * ndtr(u) - 1.0)
        curvature = diagonal + 2.0 * penalty / math.sqrt(2.0 * math.pi * variance) * np.exp(-0.5 * u * u)
        step = 0.1 * gradient / curvature
        w = w - step
        if np.abs(step).sum() < 1e-15 * np.abs(w).sum():
            return np.asarray(w)
        variance *= 0.9


def library_lasso(lasso: problems.Regression) -> Vector:
    """The same by the library, from building the objective to where the printed rule stops and the bracket is known."""
    state = State(np.zeros(lasso.X.shape[1]))
    vo.solvers.DiagonalNewton().solve(composite(as_objective(lasso.objective())), state, 0.0, lambda _: None)
    return np.asarray(state.latest)


def plain_machine(machine: problems.KernelMachine, sigma: float) -> Callable[[Vector], tuple[float, Vector]]:
    """Value and gradient of the bound of a kernel machine: two products with K."""
    K, y, C, n = machine.K, machine.y, machine.cost, machine.y.size
    spread, trace = sigma * np.sqrt(1.0 + np.einsum("ij,ij->i", K, K)), float(np.trace(K))

    def value_and_gradient(point: Vector) -> tuple[float, Vector]:
        beta, outputs = point[:-1], K @ point[:-1]
        nu = 1.0 - outputs - point[-1] * y
        u = nu / spread
        tail, density = ndtr(u), np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
        gradient = np.empty(n + 1)
        gradient[:-1], gradient[-1] = K @ (2.0 * beta - C * tail), -C * (y @ tail)
        return float(beta @ outputs + sigma**2 * trace + C * (nu @ tail + spread @ density)), gradient

    return value_and_gradient


def plain_descent(machine: problems.KernelMachine) -> Vector:
    """SciPy's L-BFGS-B on it, for a number of iterations."""
    options = {"maxiter": ITERATIONS, "maxcor": 10, "maxls": 100, "ftol": 0.0, "gtol": 0.0}
    found = minimize(plain_machine(machine, SIGMA), machine.start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


def library_descent(form: Composite, start: Vector) -> Vector:
    """The same by the library, watched at every iteration as a time limit or a callback watches it."""
    state = State(start)

    def check(state: State) -> None:
        if state.steps >= ITERATIONS:
            raise StopIteration

    with contextlib.suppress(StopIteration):
        vo.solvers.LBFGS().solve(form, state, 0.0, check)
    return np.asarray(state.latest)


def _in_turns(ours: Callable[[], Any], plain: Callable[[], Any], rounds: int) -> tuple[Timing, Timing]:
    """Processor seconds of both, a round of each in turn."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(1 + rounds):
        for own, call in zip(times, (ours, plain), strict=True):
            began = time.process_time()
            call()
            own.append(time.process_time() - began)
    first, second = (Timing(own[0], tuple(own[1:])) for own in times)
    return first, second


def _at_all(function: Callable[[Vector], Any], points: list[Vector]) -> None:
    for x in points:
        function(x)


def _row(problem: str, method: str, ours: Timing, plain: Timing, target: float, **more: Any) -> Row:
    pairs = zip(ours.warm, plain.warm, strict=True)
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    return Row(problem, method, "processor time / plain NumPy", ratio, target, timing=ours, baseline=plain, **more)


@benchmark
def diagonal_newton(config: Config) -> Iterator[Row]:
    """The lasso of Table 1, from X and y to where the printed rule stops."""
    for dimension in config.pick((50, 200), (10,)):
        lasso = problems.lasso(np.random.default_rng(0), dimension)
        ours, plain = _in_turns(
            partial(library_lasso, lasso),
            partial(plain_lasso, lasso.X, lasso.y, lasso.sparsity),
            config.pick(ROUNDS, 1),
        )
        found = lasso.value(library_lasso(lasso))
        same = math.isclose(found, lasso.value(plain_lasso(lasso.X, lasso.y, lasso.sparsity)), rel_tol=1e-12)
        yield _row(f"lasso, D = {dimension}", "diagonal-newton", ours, plain, MOST,
                   objective=found, status="ok" if same else "the two end at different values")  # fmt: skip


@benchmark
def lbfgs(config: Config) -> Iterator[Row]:
    """The machine of Figure 4: its value and gradient, and the first iterations with all that is around them.

    That K is positive semidefinite is decided before, and the bracket proved after: neither is part of the descent.
    """
    for n in config.pick((250, 1000, 2000), (60,)):
        machine = problems.kernel_machine(np.random.default_rng(0), n)
        form = composite(as_objective(machine.objective()))
        bound = partial(MovingBound(form, PointNoise.of(form, 1.0)).value_and_gradient, sigma=SIGMA)
        points = [machine.start * (1.0 + 1e-6 * k) for k in range(20)]
        plainly = plain_machine(machine, SIGMA)
        rounds = config.pick(ROUNDS, 1)
        ours, plain = _in_turns(partial(_at_all, bound, points), partial(_at_all, plainly, points), rounds)
        same = math.isclose(bound(points[0])[0], plainly(points[0])[0], rel_tol=1e-11)
        yield _row(f"machine, N = {n}, 20 gradients", "lbfgs", ours, plain, MOST,
                   status="ok" if same else "the two differ")  # fmt: skip
        ours, plain = _in_turns(partial(library_descent, form, machine.start), partial(plain_descent, machine), rounds)
        ends = [plainly(x)[0] for x in (library_descent(form, machine.start), plain_descent(machine))]
        yield _row(f"machine, N = {n}, {ITERATIONS} iterations", "lbfgs", ours, plain, MOST, objective=ends[0],
                   status="ok" if math.isclose(*ends, rel_tol=1e-2) else "the two end at different values")  # fmt: skip
