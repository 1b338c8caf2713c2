"""Black boxes on instances that nothing was tuned on, beside pycma, Optuna and nevergrad: ranks, and targets reached.

Runs go seed by seed, all solvers on all problems, until ``MINUTES`` are over (30): what is shown is what every solver
has finished. ``python -m benchmarks.fresh --keep FILE`` keeps every run in a file, goes on from it, and prints the
tables in Markdown, with what ours loses in bold.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import numpy as np

from benchmarks._registry import Config, Row, benchmark
from benchmarks.fresh import _bbob, _noisy, _ranks
from benchmarks.fresh._kept import BBOB_RIVALS, RIVALS, gathered

FIRST_INSTANCE = 501  # of BBOB, and seeds of shifts and splits: nothing before saw them


def seeds(count: int) -> range:
    """Numbers of instances."""
    return range(FIRST_INSTANCE, FIRST_INSTANCE + count)


def _minutes() -> float:
    return float(os.environ.get("MINUTES", "30"))


def _absent(*packages: str) -> Iterator[Row]:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            yield Row("instances nobody tuned on", "varopt", "not run", 0.0, 0.0, status=f"{package} is not installed")


@benchmark
def few_evaluations(config: Config) -> Iterator[Row]:
    """Mean ranks at 30 to 500 evaluations of functions and tunings, beside Optuna, nevergrad, pycma and chance."""
    if missing := list(_absent("optuna", "nevergrad", "cma", "sklearn")):
        yield from missing
        return
    few = [(solver, "Branin", FIRST_INSTANCE, 30) for solver in _ranks.RANKED]
    jobs = config.pick(list(_ranks.jobs(_ranks.RANKED, seeds(10))), few)
    done = gathered(_ranks.run, jobs, _minutes(), known=config.pick(RIVALS, None))
    for budget in _ranks.BUDGETS:
        if not (found := _ranks.mean_ranks(done, budget)):
            continue
        count, mean = found[""]
        told = ", ".join(f"{s} {r:.2f}" for s, r in zip(_ranks.RANKED, mean, strict=True))
        name = f"{budget} evaluations, {count} runs: mean ranks {told}"
        target = config.pick(1.0, np.inf)
        yield Row(name, "varopt", "our mean rank / the best rival's", float(mean[0] / mean[1:].min()), target)


@benchmark
def smooth_functions(config: Config) -> Iterator[Row]:
    """BBOB, 1000 d evaluations: expected ones to 1e-8 and targets, beside pycma's BIPOP and lq-CMA-ES."""
    if missing := list(_absent("ioh", "cma")):
        yield from missing
        return
    few = [(solver, 1, 2, FIRST_INSTANCE) for solver in _bbob.SOLVERS]
    jobs = config.pick(list(_bbob.jobs(seeds(10))), few)
    done = gathered(_bbob.run, jobs, _minutes(), known=config.pick(BBOB_RIVALS, None))
    for (function, d), (count, told) in _bbob.evaluations(done).items():
        best = min(told[s][1] for s in list(told)[1:])
        words = ", ".join(f"{s} {solved}/{count} {spent:.0f}" for s, (solved, spent) in told.items())
        yield Row(f"BBOB f{function}, d = {d}: {words}", "varopt", "expected evaluations / the better rival's",
                  told["varopt"][1] / best, config.pick(1.0, np.inf))  # fmt: skip
    for d, (count, reached) in _bbob.targets(done).items():
        best = max(n for s, n in reached.items() if s != "varopt")
        words = ", ".join(f"{s} {n}" for s, n in reached.items())
        ratio, target = best / max(reached["varopt"], 1), config.pick(1.0, np.inf)
        name = f"BBOB f1 to f24, d = {d}, {count} runs: targets {words}"
        yield Row(name, "varopt", "targets of the better rival / ours", ratio, target)


@benchmark
def noisy_functions(config: Config) -> Iterator[Row]:
    """Targets that recommended points reach on BBOB with noise, 5,000 evaluations, beside pycma's NoiseHandler."""
    if missing := list(_absent("ioh", "cma")):
        yield from missing
        return
    few = [(solver, 1, noise, FIRST_INSTANCE) for noise in _noisy.NOISES for solver in _noisy.SOLVERS]
    done = gathered(_noisy.run, config.pick(list(_noisy.jobs(seeds(10))), few), _minutes())
    for noise in _noisy.NOISES:
        runs, (ours, theirs) = (found := _noisy.reached(done, noise))[0], found[1].values()
        name = f"BBOB times exp({noise:g} z), {runs} runs: {ours} targets, NoiseHandler {theirs}"
        target = config.pick(1.0, np.inf)
        yield Row(name, "varopt", "pycma's targets reached / ours", theirs / max(ours, 1), target)
