"""How many evaluations black boxes need, beside pycma, cmaes, nevergrad and classic algorithms, and what ours cost."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import os
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import varopt as vo
from benchmarks import _search_rivals as rivals
from benchmarks._registry import Config, Row, benchmark

ON_THE_BOUND = 5
BENT = 12  # about half the runs linger on its bend: three seeds do not tell how many
UNIMODAL = (1, 2, 5, 6, 8, 9, 10, 11, 12, 13, 14)
TARGETS = 10.0 ** np.arange(2, -9, -1)
REAL: dict[str, Callable[..., None]] = {
    "varopt": rivals.varopt_box,
    "pycma": rivals.pycma_bipop,
    "pycma, bounds": rivals.pycma_in_the_box,
}
BITS: dict[str, Callable[..., None]] = {
    "varopt": rivals.varopt_bits,
    "(1+1)-EA": rivals.one_plus_one,
    "PBIL": rivals.varopt_method("pbil"),
    "UMDA": rivals.varopt_method("umda"),
    "nevergrad": rivals.nevergrad_discrete,
}
MIXED: dict[str, Callable[..., None]] = {
    "varopt": rivals.varopt_mixed,
    "pycma": rivals.pycma_integers,
    "cmaes": rivals.catcma,
}
PACKAGES = {"pycma": "cma", "cmaes": "cmaes", "nevergrad": "nevergrad"}


def present(solvers: dict[str, Any]) -> list[str]:
    """The solvers whose packages are installed."""
    return [name for name in solvers if name not in PACKAGES or importlib.util.find_spec(PACKAGES[name]) is not None]


def versions(*names: str) -> dict[str, str]:
    """The versions of rivals and of the packages that make the problems."""
    return {name: importlib.metadata.version(PACKAGES.get(name, name)) for name in names}


def _real(job: tuple[str, int, int, int, int]) -> tuple[float, int, bool]:
    name, function, instance, dimension, repetition = job
    warnings.simplefilter("ignore")  # pycma's, on its way to a restart
    done = rivals.run(REAL[name], rivals.bbob(function, instance, dimension), dimension, instance + 100 * repetition)
    return done.best, done.evaluations, done.solved


def _bits(job: tuple[str, int, int, int]) -> tuple[float, int]:
    name, function, instance, budget = job
    warnings.simplefilter("ignore")
    done = rivals.run(BITS[name], rivals.pbo(function, instance, budget), instance)
    return -done.best, done.best_at


def _mixed(job: tuple[str, int, int, int, int]) -> float:
    name, function, instance, dimension, repetition = job
    warnings.simplefilter("ignore")
    objective, mixed = rivals.mixint(function, instance, dimension, 1000 * dimension)
    return rivals.run(MIXED[name], objective, mixed, instance + 100 * repetition).best


def spread(function: Callable[[Any], Any], jobs: list[Any]) -> dict[Any, Any]:
    """The results of independent jobs, on all cores."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(function, jobs), strict=True))


def absent(package: str, problem: str) -> Row:
    """A row that says what could not be run."""
    return Row(problem, "varopt", "not run", 0.0, 0.0, status=f"{package} is not installed")


@benchmark
def reals(config: Config) -> Iterator[Row]:
    """BBOB f1 to f14 of `ioh`, precision 1e-8 within 1000 d evaluations, beside pycma's BIPOP-CMA-ES."""
    if importlib.util.find_spec("ioh") is None or importlib.util.find_spec("cma") is None:
        yield absent("ioh or cma", "BBOB")
        return
    dimensions, instances = config.pick([2, 5, 10], [2]), config.pick(range(1, 6), range(1, 2))
    functions, seeds = config.pick(range(1, 15), range(1, 3)), config.pick(range(3), range(1))
    repeated = {f: range(5 * len(seeds)) if f == BENT else seeds for f in functions}
    jobs = [
        (s, f, i, d, k) for s in REAL for d in dimensions for f in functions for i in instances for k in repeated[f]
    ]
    done = spread(_real, [job for job in jobs if job[0] != "pycma, bounds" or job[1] == ON_THE_BOUND])

    def runtime(name: str, function: int, dimension: int) -> float:
        """Expected evaluations to the target: all that were spent, over the runs that reached it."""
        runs: list[tuple[float, int, bool]] = [
            done[name, function, i, dimension, k] for i in instances for k in repeated[function]
        ]
        return sum(evaluations for _, evaluations, _ in runs) / max(1, sum(solved for _, _, solved in runs))

    for function in (f for f in UNIMODAL if f in functions):
        # The optimum of f5 is a corner of the box; beyond the box it is another, flat problem, shown as well.
        for rival in ("pycma, bounds", "pycma") if function == ON_THE_BOUND else ("pycma",):
            ratios = [runtime("varopt", function, d) / runtime(rival, function, d) for d in dimensions]
            yield Row(
                f"BBOB f{function}, d = {', '.join(map(str, dimensions))}, {len(repeated[function])} seeds, {rival}",
                "varopt",
                "expected evaluations to 1e-8 / rival's, geometric mean over d", statistics.geometric_mean(ratios), 1.2,
                versions=versions("pycma", "ioh"),
            )  # fmt: skip
    for chosen in [*([d] for d in dimensions), dimensions]:
        reached = dict.fromkeys(REAL, 0)
        for (s, _, _, d, k), (best, _, _) in done.items():  # of as many seeds of every function
            reached[s] += int((best <= TARGETS).sum()) if d in chosen and k in seeds else 0
        yield Row(
            f"BBOB, all functions, d = {', '.join(map(str, chosen))}, {len(seeds)} seeds: {reached['varopt']} targets, "
            f"pycma {reached['pycma']}", "varopt",
            "pycma's targets reached / ours", reached["pycma"] / reached["varopt"], 1.0,
            versions=versions("pycma", "ioh"),
        )  # fmt: skip


@benchmark
def bits(config: Config) -> Iterator[Row]:
    """Pseudo-Boolean problems of `ioh`, 64 bits."""
    if importlib.util.find_spec("ioh") is None:
        yield absent("ioh", "PBO")
        return
    instances = config.pick(range(1, 6), range(1, 2))
    for function, name, limit in ((1, "OneMax", 450), (2, "LeadingOnes", 4000)):
        done = spread(_bits, [("varopt", function, i, 3 * limit) for i in instances])
        solved = all(best >= rivals.pbo_optimum(function, i) for (_, _, i, _), (best, _) in done.items())
        yield Row(
            f"PBO {name}, n = 64", "varopt", f"mean evaluations to the optimum / {limit}",
            statistics.mean(at for _, at in done.values()) / limit, 1.0,
            status="ok" if solved else "the optimum was not found", versions=versions("ioh"),
        )  # fmt: skip
    names, budget = present(BITS), config.pick(20_000, 500)
    functions = config.pick(range(1, 24), range(1, 3))
    done = spread(_bits, [(s, f, i, budget) for s in names for f in functions for i in instances])
    shares: dict[str, list[float]] = defaultdict(list)
    for f in functions:
        for i in instances:
            values = {s: done[s, f, i, budget][0] for s in names}
            best, scale = max(values.values()), max(map(abs, values.values())) or 1.0
            for s in names:  # 1 for the best known value; the stated optima are not to be trusted
                shares[s].append(1.0 - (best - values[s]) / scale)
    ours = statistics.mean(shares["varopt"])
    for s in names[1:]:
        theirs = statistics.mean(shares[s])
        yield Row(
            f"PBO F1-F23, {budget} evaluations: {ours:.4f}, {s} {theirs:.4f}", "varopt",
            "rival's mean normalised best value / ours", theirs / ours, 1.0,
            versions=versions("ioh", *(n for n in (s,) if n in PACKAGES)),
        )  # fmt: skip


@benchmark
def mixed_integers(config: Config) -> Iterator[Row]:
    """The bbob-mixint problems of `cocoex`, 1000 d evaluations."""
    if importlib.util.find_spec("cocoex") is None:
        yield absent("coco-experiment", "bbob-mixint")
        return
    names, instances = present(MIXED), config.pick(range(1, 4), range(1, 2))
    functions, seeds = config.pick(range(1, 25), range(1, 3)), config.pick(range(3), range(1))
    for d in config.pick([5, 10], [5]):
        done = spread(_mixed, [(s, f, i, d, k) for s in names for f in functions for i in instances for k in seeds])
        reached = {s: sum(int((best <= TARGETS).sum()) for job, best in done.items() if job[0] == s) for s in names}
        for s in names[1:]:
            yield Row(
                f"bbob-mixint, d = {d}, {len(seeds)} seeds: {reached['varopt']} targets, {s} {reached[s]}", "varopt",
                "rival's targets reached / ours", reached[s] / reached["varopt"], 1.0,
                versions=versions(s, "coco-experiment"),
            )  # fmt: skip


MANY = 1000  # dimensions
LARGE: dict[str, Callable[[Any], Any]] = {
    "sphere": lambda x: (x * x).sum(axis=1),
    "ellipsoid": lambda x: ((10.0 ** (6.0 * np.arange(MANY) / (MANY - 1))) * x * x).sum(axis=1),
}


def _many(job: tuple[str, str, int, int]) -> list[float]:
    """The best value after every tenth of the budget; both begin in the middle, as wide."""
    solver, name, seed, budget = job
    import cma

    shift = np.random.default_rng(7000 + seed).uniform(-2.0, 2.0, MANY)
    best: list[float] = []
    search = vo.Search(vo.Box(-5, 5, size=MANY), seed=seed)
    options = {"verbose": -9, "seed": seed + 1, "CMA_diagonal": True}
    strategy = cma.CMAEvolutionStrategy(np.zeros(MANY), 2.0, options)
    told, lowest = 0, np.inf
    while told < budget:
        points = search.ask() if solver == "varopt" else np.array(strategy.ask())
        values = LARGE[name](points - shift)
        told, lowest = told + len(points), min(lowest, float(values.min()))
        if solver == "varopt":
            search.tell(points, values)
        else:
            strategy.tell(list(points), values.tolist())
        best += [lowest] * (told * 10 // budget - len(best))
    return best


@benchmark
def many_dimensions(config: Config) -> Iterator[Row]:
    """A thousand separable dimensions beside pycma's sep-CMA-ES: values after 40,000 evaluations."""
    if importlib.util.find_spec("cma") is None:
        yield absent("cma", f"d = {MANY}")
        return
    seeds, budget = config.pick(range(3), range(1)), config.pick(40_000, 500)
    done = spread(_many, [(s, n, k, budget) for s in ("varopt", "pycma") for n in LARGE for k in seeds])
    for name in LARGE:
        ours, theirs = (statistics.median(done[s, name, k, budget][-1] for k in seeds) for s in ("varopt", "pycma"))
        yield Row(
            f"{name}, d = {MANY}, {len(seeds)} seeds: {ours:.2g}, sep-CMA {theirs:.2g}", "varopt",
            f"value after {budget} evaluations / sep-CMA-ES's", ours / theirs, config.pick(1.5, np.inf),
            versions=versions("pycma"),
        )  # fmt: skip


def _ours(generations: int) -> int:
    search = vo.Search(vo.Box(-5, 5, size=20), seed=0, method="cma")  # what auto comes to where evaluations are many
    for _ in range(generations):
        xs = search.ask()
        search.tell(xs, (xs * xs).sum(axis=1))
    return search.evaluations


def _pycma(generations: int) -> int:
    import cma

    strategy = cma.CMAEvolutionStrategy(20 * [1.0], 2.0, {"verbose": -9, "seed": 1})
    for _ in range(generations):
        xs = strategy.ask()
        strategy.tell(xs, [float(x @ x) for x in xs])
    return int(strategy.countevals)


def _nevergrad(generations: int) -> int:
    import nevergrad as ng

    optimizer = ng.optimizers.CMA(ng.p.Array(shape=(20,)), budget=12 * generations)
    for _ in range(12 * generations):
        candidate = optimizer.ask()
        optimizer.tell(candidate, float(candidate.value @ candidate.value))
    return 12 * generations


@benchmark
def overhead(config: Config) -> Iterator[Row]:
    """What a candidate costs beside its evaluation, in 20 dimensions: processor time, best of several rounds."""
    generations, rounds = config.pick((300, 7), (20, 2))
    best: dict[str, float] = {}
    for name, call in {"varopt": _ours, "pycma": _pycma, "nevergrad": _nevergrad}.items():
        if name in PACKAGES and importlib.util.find_spec(PACKAGES[name]) is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(20)
            for _ in range(rounds if name != "nevergrad" else 1):
                began = time.process_time()
                count = call(generations if name != "nevergrad" else 20)
                best[name] = min(best.get(name, np.inf), 1e6 * (time.process_time() - began) / count)
    told = ", ".join(f"{name} {value:.0f}" for name, value in best.items())
    yield Row(
        f"ask and tell, d = 20, microseconds a candidate: {told}", "varopt", "ours / 20 microseconds",
        best["varopt"] / 20.0, config.pick(1.0, np.inf), versions=versions(*(n for n in best if n in PACKAGES)),
    )  # fmt: skip


@benchmark
def nothing_lost(config: Config) -> Iterator[Row]:
    """What must be the same: a run stopped and resumed, and with 1, 2 and 4 workers. What must be kept: failures."""

    def f(x: Any) -> float:
        return float((x * x).sum() + np.cos(9.0 * x).sum())

    box, budget = vo.Box(-5, 5, size=5), config.pick(2000, 200)
    whole = vo.minimize(f, box, budget=budget, seed=0, batch=8)  # what an executor gets for five coordinates

    def differences(other: Any) -> float:
        names = ("best", "mean", "standard_error", "sigma")
        return float(
            sum(not np.array_equal(whole.history[n], other.history[n]) for n in names) + (whole.fun != other.fun)
        )

    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "run.db"
        vo.minimize(f, box, budget=budget // 3, seed=0, journal=journal, batch=8)
        resumed = vo.minimize(f, box, budget=budget, seed=0, journal=journal, batch=8)
    yield Row("resumed run, bit for bit", "varopt", "histories that differ", differences(resumed), 0.0)
    for workers in (1, 2, 4):
        with ThreadPoolExecutor(workers) as pool:
            other = vo.minimize(f, box, budget=budget, seed=0, executor=pool)
        yield Row(f"{workers} workers", "varopt", "histories that differ", differences(other), 0.0)

    count = itertools.count()

    def failing(x: Any) -> float:
        if next(count) % 5 == 0:
            raise RuntimeError("injected")
        return f(x)

    seen: list[vo.Search] = []
    vo.minimize(failing, box, budget=budget // 2, seed=0, callback=seen.append)
    told = seen[-1].records
    failed = sum(record.error is not None for record in told)
    yield Row(
        f"{budget // 10} injected failures in {budget // 2} evaluations", "varopt",
        "evaluations or errors not recorded", float(abs(budget // 2 - len(told)) + abs(budget // 10 - failed)), 0.0,
    )  # fmt: skip
