"""BBOB with noise that multiplies, as the noisy suite has it: what the recommended point is worth without the noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import varopt as vo

__all__ = ["SOLVERS", "TARGETS", "jobs", "run"]

FUNCTIONS = (1, 2, 8, 10, 14, 21)
NOISES = (0.01, 1.0)  # of the logarithm: moderate and severe
DIMENSION, BUDGET = 5, 5000
TARGETS = 10.0 ** np.arange(2, -9, -1)
Job = tuple[str, int, float, int]  # a solver, a function, the noise, an instance


def _ours(f: Callable[[Any], float], seed: int) -> Any:
    return vo.minimize(f, vo.Box(-5, 5, size=DIMENSION), budget=BUDGET, seed=seed, noisy=True).x


def _pycma(f: Callable[[Any], float], seed: int) -> Any:
    import cma

    start = np.random.default_rng(seed).uniform(-4.0, 4.0, DIMENSION)
    options = {"verbose": -9, "seed": seed, "maxfevals": BUDGET, "bounds": [-5, 5]}
    found = cma.fmin2(f, start, 2.0, options, noise_handler=cma.NoiseHandler(DIMENSION))
    return found[1].result.xfavorite


SOLVERS: dict[str, Callable[..., Any]] = {"varopt": _ours, "NoiseHandler": _pycma}


def jobs(instances: range) -> Iterator[Job]:
    """Instance by instance, what is to be run."""
    for instance in instances:
        yield from ((s, f, noise, instance) for f in FUNCTIONS for noise in NOISES for s in SOLVERS)


def run(job: Job) -> list[float]:
    """How far the recommended point is above the optimum."""
    import ioh

    solver, function, noise, instance = job
    problem = ioh.get_problem(function, instance, DIMENSION, ioh.ProblemClass.BBOB)
    optimum, rng = problem.optimum.y, np.random.default_rng(instance)

    def noisy(x: Any) -> float:
        return float((problem(x) - optimum) * np.exp(noise * rng.normal()))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [float(problem(SOLVERS[solver](noisy, instance)) - optimum)]


def reached(done: dict[Any, list[float]], noise: float) -> tuple[int, dict[str, int]]:
    """Instances that all have finished with this noise, and how many targets each solver reached on them."""
    keys = {(f, i) for _, f, n, i in done if n == noise}
    whole = [(f, i) for f, i in sorted(keys) if all((s, f, noise, i) in done for s in SOLVERS)]
    count = {s: sum(int((done[s, f, noise, i][0] <= TARGETS).sum()) for f, i in whole) for s in SOLVERS}
    return len(whole), count
