"""Few evaluations: ranks at 30 to 200 of them beside Optuna, pycma and chance, and what smooth functions take."""

from __future__ import annotations

import importlib.util
import statistics
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import rankdata

import varopt as vo
from benchmarks import _search_rivals as rivals
from benchmarks._registry import Config, Row, benchmark
from benchmarks.search import absent, spread, versions

CHECKPOINTS = (30, 50, 100, 200)
SMOOTH = (1, 2, 8, 10)
Function = Callable[[Any], float]


def _branin(u: Any) -> float:
    a, b = 15.0 * u[0] - 5.0, 15.0 * u[1]
    ridge = (b - 5.1 / (4.0 * np.pi**2) * a * a + 5.0 / np.pi * a - 6.0) ** 2
    return float(ridge + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(a) + 10.0)


def _ackley(x: Any) -> float:
    return float(20.0 - 20.0 * np.exp(-0.2 * np.sqrt((x * x).mean())) + np.e - np.exp(np.cos(2 * np.pi * x).mean()))


def _rosenbrock(x: Any) -> float:
    return float((100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum())


def _levy(x: Any) -> float:
    w = 1.0 + (x - 1.0) / 4.0
    inner = ((w[:-1] - 1.0) ** 2 * (1.0 + 10.0 * np.sin(np.pi * w[:-1] + 1.0) ** 2)).sum()
    return float(np.sin(np.pi * w[0]) ** 2 + inner + (w[-1] - 1.0) ** 2 * (1.0 + np.sin(2 * np.pi * w[-1]) ** 2))


HARTMANN = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
                     [17, 8, 0.05, 10, 0.1, 14]])  # fmt: skip
PEAKS = 1e-4 * np.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                         [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])  # fmt: skip


def _hartmann(u: Any) -> float:
    return float(-(np.array([1.0, 1.2, 3.0, 3.2]) * np.exp(-(HARTMANN * (u - PEAKS) ** 2).sum(axis=1))).sum())


SHIFTED: dict[str, tuple[Function, float]] = {"Ackley": (_ackley, 5.0), "Rosenbrock": (_rosenbrock, 2.0),
                                              "Levy": (_levy, 8.0)}  # fmt: skip


def _problem(name: str, seed: int) -> tuple[Function, int]:
    """A function on the unit box, shifted by the seed where it can be, and its number of coordinates."""
    if name == "Branin":
        return _branin, 2
    if name == "Hartmann 6":
        return _hartmann, 6
    kind, _, d = name.partition(" ")
    function, half = SHIFTED[kind]
    shift = np.random.default_rng(1000 + seed).uniform(-0.2, 0.2, int(d))
    return lambda u: function(2.0 * half * (np.asarray(u) - 0.5 - shift)), int(d)


def _ours(f: Function, d: int, seed: int, budget: int) -> None:
    vo.minimize(f, vo.Box(0, 1, size=d), budget=budget, seed=seed)


def _chance(f: Function, d: int, seed: int, budget: int) -> None:
    for u in np.random.default_rng(seed).random((budget, d)):
        f(u)


def _optuna(sampler: str) -> Callable[..., None]:
    def solve(f: Function, d: int, seed: int, budget: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(seed=seed))
        study.optimize(lambda t: f(np.array([t.suggest_float(f"x{i}", 0, 1) for i in range(d)])), n_trials=budget)

    return solve


def _lq(f: Function, d: int, seed: int, budget: int) -> None:
    import cma

    rng = np.random.default_rng(seed)
    options = {"verbose": -9, "seed": seed + 1, "bounds": [0, 1], "tolfun": 1e-11}
    while True:
        cma.fmin_lq_surr2(f, rng.uniform(0.1, 0.9, d), 0.2, options)


SOLVERS: dict[str, Callable[..., None]] = {
    "varopt": _ours, "TPE": _optuna("TPESampler"), "GPSampler": _optuna("GPSampler"), "lq-CMA": _lq, "random": _chance,
}  # fmt: skip


def _run(job: tuple[str, str, int, int]) -> float:
    """The best value of a run."""
    solver, name, seed, budget = job
    warnings.simplefilter("ignore")
    f, d = _problem(name, seed)
    counted = rivals.Counted(f, 0.0, -np.inf, budget + 1)  # the budget's own end is the solver's, and lq-CMA has none
    if solver == "lq-CMA":
        counted.budget = budget
    return rivals.run(SOLVERS[solver], counted, d, seed, budget).best


@benchmark
def small_budgets(config: Config) -> Iterator[Row]:
    """Mean ranks of the best value; losses are shown as they are."""
    if importlib.util.find_spec("optuna") is None or importlib.util.find_spec("cma") is None:
        yield absent("optuna or cma", "small budgets")
        return
    names = config.pick(["Branin", "Hartmann 6", *(f"{k} {d}" for k in SHIFTED for d in (2, 5, 10))], ["Branin"])
    seeds, checkpoints = config.pick(range(10), range(1)), config.pick(CHECKPOINTS, (30,))
    solvers = list(SOLVERS) if config.pick(True, False) else ["varopt", "TPE", "random"]
    done = spread(_run, [(s, n, k, b) for b in checkpoints for s in solvers for n in names for k in seeds])
    for budget in checkpoints:
        ranks = np.mean([rankdata([done[s, n, k, budget] for s in solvers]) for n in names for k in seeds], axis=0)
        told = ", ".join(f"{s} {r:.2f}" for s, r in zip(solvers, ranks, strict=True))
        yield Row(
            f"{len(names)} functions, {budget} evaluations, {len(seeds)} seeds: mean ranks {told}", "varopt",
            "our mean rank / the best rival's", float(ranks[0] / min(ranks[1:])), config.pick(1.0, np.inf),
            versions=versions("optuna", "pycma"),
        )  # fmt: skip


def _lq_bbob(objective: Any, dimension: int, seed: int) -> None:
    import cma

    rng = np.random.default_rng(seed)
    while True:
        start = rng.uniform(-4.0, 4.0, dimension)
        cma.fmin_lq_surr2(objective, start, 2.0, {"verbose": -9, "seed": seed + 1, "tolfun": 1e-11})


def _smooth(job: tuple[str, int, int, int]) -> float:
    name, function, instance, d = job
    warnings.simplefilter("ignore")
    solver = rivals.varopt_box if name == "varopt" else _lq_bbob
    done = rivals.run(solver, rivals.bbob(function, instance, d), d, instance + 100)
    return float(done.evaluations) if done.solved else np.inf


@benchmark
def smooth_functions(config: Config) -> Iterator[Row]:
    """Evaluations to 1e-8 on BBOB f1, f2, f8 and f10, beside pycma's lq-CMA-ES."""
    if importlib.util.find_spec("ioh") is None or importlib.util.find_spec("cma") is None:
        yield absent("ioh or cma", "BBOB")
        return
    instances, dimensions = config.pick(range(1, 11), range(1, 2)), config.pick((5, 10), (2,))
    functions = config.pick(SMOOTH, (1,))
    jobs = [(s, f, i, d) for s in ("varopt", "lq-CMA") for d in dimensions for f in functions for i in instances]
    done = spread(_smooth, jobs)
    for d in dimensions:
        for f in functions:
            ours, theirs = (statistics.median(done[s, f, i, d] for i in instances) for s in ("varopt", "lq-CMA"))
            yield Row(
                f"BBOB f{f}, d = {d}, {len(instances)} instances: {ours:.0f}, lq-CMA {theirs:.0f}", "varopt",
                "our median evaluations to 1e-8 / pycma's lq-CMA-ES's", ours / theirs, config.pick(1.0, np.inf),
                versions=versions("pycma", "ioh"),
            )  # fmt: skip
