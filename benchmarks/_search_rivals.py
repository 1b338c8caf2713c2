"""What the suite `search` runs: problems with counters, our search, and rivals at their own best defaults.

Every function here takes an objective that raises `Spent` when the run is over, and so never returns by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import chdir, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo

Objective = Callable[[Any], float]
Array = NDArray[np.float64]


class Spent(Exception):
    """The target was reached, or the budget was spent."""


@dataclass
class Counted:
    """An objective that counts, remembers its best value and ends the run."""

    function: Callable[[Any], float]
    optimum: float
    precision: float
    budget: int
    sign: float = 1.0
    evaluations: int = 0
    best: float = field(default=np.inf)  # above the optimum
    best_at: int = 0

    def __call__(self, x: Any) -> float:
        value = self.sign * self.function(x) - self.optimum
        self.evaluations += 1
        if value < self.best:
            self.best, self.best_at = value, self.evaluations
        if value <= self.precision or self.evaluations >= self.budget:
            raise Spent
        return value

    @property
    def solved(self) -> bool:
        """Whether the target precision was reached."""
        return self.best <= self.precision


def run(solver: Callable[..., None], objective: Counted, *arguments: Any) -> Counted:
    """The objective after a run."""
    with suppress(Spent):
        solver(objective, *arguments)
    return objective


# Reals ---------------------------------------------------------------------------------------------------------------


def bbob(function: int, instance: int, dimension: int) -> Counted:
    """A BBOB problem of `ioh`, to a precision of 1e-8 within 1000 d evaluations."""
    import ioh

    problem = ioh.get_problem(function, instance, dimension, ioh.ProblemClass.BBOB)
    return Counted(problem, problem.optimum.y, 1e-8, 1000 * dimension)


def varopt_box(objective: Objective, dimension: int, seed: int) -> None:
    """Ours, given the box and nothing else."""
    vo.minimize(_passing(objective), vo.Box(-5, 5, size=dimension), seed=seed, budget=10**9)


def pycma_bipop(objective: Objective, dimension: int, seed: int, *, bounds: bool = False) -> None:
    """BIPOP-CMA-ES of pycma, as its author runs it on this suite: uniform starts in [-4, 4], sigma 2.

    Without bounds, which is its best setting here: the functions are defined outside the box as well.
    """
    import cma

    rng = np.random.default_rng(seed)
    options = {"verbose": -9, "seed": seed + 1, "tolfun": 1e-11, "bounds": [-5, 5] if bounds else None}
    while True:
        cma.fmin2(objective, lambda: rng.uniform(-4.0, 4.0, dimension), 2.0, options, bipop=True, restarts=9)


def pycma_in_the_box(objective: Objective, dimension: int, seed: int) -> None:
    """The same, kept inside the box as ours is."""
    pycma_bipop(objective, dimension, seed, bounds=True)


def _passing(objective: Callable[[Any], float]) -> Callable[[Any], float]:
    """The objective, with the end of a run passed through our handling of failures."""

    def evaluate(x: Any) -> float:
        try:
            return objective(x)
        except Spent:
            raise KeyboardInterrupt from None

    return evaluate


# Bits ----------------------------------------------------------------------------------------------------------------


def pbo(function: int, instance: int, budget: int) -> Counted:
    """A pseudo-Boolean problem of `ioh` with 64 bits, maximised, for the whole budget: its stated optima are unsure."""
    import ioh

    problem = ioh.get_problem(function, instance, 64, ioh.ProblemClass.PBO)
    return Counted(lambda x: float(problem(x.tolist())), 0.0, -np.inf, budget, sign=-1.0)


def pbo_optimum(function: int, instance: int) -> float:
    """The optimum that `ioh` states, to rounding: to be trusted for OneMax and LeadingOnes."""
    import ioh

    optimum = float(ioh.get_problem(function, instance, 64, ioh.ProblemClass.PBO).optimum.y)
    return optimum - 1e-9 * abs(optimum)


def varopt_bits(objective: Objective, seed: int) -> None:
    """Ours, by default."""
    vo.minimize(_passing(lambda x: objective(x.astype(int))), vo.Boolean(64), seed=seed, budget=10**9)


def varopt_method(method: str) -> Callable[[Objective, int], None]:
    """A classic configuration of ours."""

    def solve(objective: Objective, seed: int) -> None:
        evaluate = _passing(lambda x: objective(x.astype(int)))
        vo.minimize(evaluate, vo.Boolean(64), seed=seed, budget=10**9, method=method)

    return solve


def one_plus_one(objective: Objective, seed: int) -> None:
    """The (1+1)-EA with rate 1/n, without samples equal to the parent."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, 64)
    value = objective(x)
    while True:
        flips = rng.random(64) < 1 / 64
        if not flips.any():
            continue
        child = x ^ flips
        if (found := objective(child)) <= value:
            x, value = child, found


def nevergrad_discrete(objective: Objective, seed: int) -> None:
    """DiscreteOnePlusOne of nevergrad."""
    import nevergrad as ng

    parameters = ng.p.TransitionChoice(range(2), repetitions=64)
    parameters.random_state.seed(seed)
    optimizer = ng.optimizers.DiscreteOnePlusOne(parameters, budget=20_000)
    while True:
        candidate = optimizer.ask()
        optimizer.tell(candidate, objective(np.array(candidate.value)))


# Mixed integer -------------------------------------------------------------------------------------------------------


@dataclass
class Mixed:
    """A bbob-mixint problem: integers first, then reals."""

    low: Array
    high: Array
    integers: int


def mixint(function: int, instance: int, dimension: int, budget: int) -> tuple[Counted, Mixed]:
    """A bbob-mixint problem of `cocoex`, to a precision of 1e-8."""
    import cocoex

    filters = f"dimensions:{dimension} function_indices:{function} instance_indices:{instance}"
    problem = cocoex.Suite("bbob-mixint", "", filters)[0]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # the library tells its optimum in a file only
        problem._best_parameter("print")
        optimum = problem(np.loadtxt("._bbob_problem_best_parameter.txt"))
    mixed = Mixed(problem.lower_bounds, problem.upper_bounds, problem.number_of_integer_variables)
    return Counted(problem, optimum, 1e-8, budget), mixed


def varopt_mixed(objective: Objective, mixed: Mixed, seed: int) -> None:
    """Ours, by default."""
    k = mixed.integers
    parts: dict[str, Any] = {f"z{i}": vo.Integer(int(mixed.low[i]), int(mixed.high[i])) for i in range(k)}
    space = vo.Space({**parts, "x": vo.Box(mixed.low[k:], mixed.high[k:])})

    def evaluate(point: dict[str, Any]) -> float:
        return objective(np.array([*(point[f"z{i}"] for i in range(k)), *point["x"]]))

    vo.minimize(_passing(evaluate), space, seed=seed, budget=10**9)


def pycma_integers(objective: Objective, mixed: Mixed, seed: int) -> None:
    """CMA-ES of pycma with its integer handling, bounds, BIPOP restarts, and a fifth of every range to start with."""
    import cma

    k, rng = mixed.integers, np.random.default_rng(seed)
    low, high = mixed.low.copy(), mixed.high.copy()
    low[:k] -= 0.5 - 1e-9
    high[:k] += 0.5 - 1e-9

    def rounded(x: Array) -> float:
        return objective(np.clip(np.r_[np.round(x[:k]), x[k:]], mixed.low, mixed.high))

    options = {
        "verbose": -9, "seed": seed + 1, "integer_variables": list(range(k)), "bounds": [list(low), list(high)],
        "CMA_stds": list((high - low) / 5),
    }  # fmt: skip
    while True:
        cma.fmin2(rounded, lambda: rng.uniform(low, high), 1.0, options, bipop=True, restarts=9)


def catcma(objective: Objective, mixed: Mixed, seed: int) -> None:
    """CatCMA with margin of `cmaes`, begun anew when it says that it should stop."""
    from cmaes import CatCMAwM

    k = mixed.integers
    reals = np.stack((mixed.low[k:], mixed.high[k:]), axis=1)
    grids = [list(range(int(a), int(b) + 1)) for a, b in zip(mixed.low[:k], mixed.high[:k], strict=True)]
    while True:
        optimizer = CatCMAwM(x_space=reals, z_space=grids, seed=seed)
        seed += 1000
        while not optimizer.should_stop():
            solutions = []
            for _ in range(optimizer.population_size):
                solution = optimizer.ask()
                solutions.append((solution, objective(np.r_[solution.z, solution.x])))
            optimizer.tell(solutions)
