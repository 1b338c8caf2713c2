"""BBOB: evaluations to a precision of 1e-8, where a quadratic model pays and where it may mislead."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import _search_rivals as rivals

__all__ = ["SOLVERS", "evaluations", "jobs", "run"]

FUNCTIONS = (1, 2, 8, 10, 13, 21)  # the last two: a ridge with a kink, and many optima
DIMENSIONS = (5, 10)
Job = tuple[str, int, int, int]  # a solver, a function, its dimensions, an instance


def _lq(objective: Any, dimension: int, seed: int) -> None:
    import cma

    rng = np.random.default_rng(seed)
    while True:
        start = rng.uniform(-4.0, 4.0, dimension)
        cma.fmin_lq_surr2(objective, start, 2.0, {"verbose": -9, "seed": seed + 1, "tolfun": 1e-11})


SOLVERS: dict[str, Callable[..., None]] = {"varopt": rivals.varopt_box, "BIPOP": rivals.pycma_bipop, "lq-CMA": _lq}


def jobs(instances: range) -> Iterator[Job]:
    """Instance by instance, what is to be run."""
    for instance in instances:
        yield from ((s, f, d, instance) for d in DIMENSIONS for f in FUNCTIONS for s in SOLVERS)


def run(job: Job) -> list[float]:
    """The precision reached, and the evaluations."""
    solver, function, d, instance = job
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pycma's, on its way to a restart
        done = rivals.run(SOLVERS[solver], rivals.bbob(function, instance, d), d, instance)
    return [max(done.best, 0.0), float(done.evaluations)]


def evaluations(done: dict[Any, list[float]]) -> dict[tuple[int, int], tuple[int, dict[str, tuple[int, float]]]]:
    """Of every function: how many runs, and of every solver how many reached 1e-8 and the expected evaluations."""
    by_instance: dict[Any, dict[str, list[float]]] = defaultdict(dict)
    for (solver, function, d, instance), found in done.items():
        by_instance[function, d, instance][solver] = found
    runs: dict[tuple[int, int], list[dict[str, list[float]]]] = defaultdict(list)
    for (function, d, _), found_by in sorted(by_instance.items()):
        if set(found_by) == set(SOLVERS):
            runs[function, d].append(found_by)
    table = {}
    for key, several in runs.items():
        told = {}
        for solver in SOLVERS:
            solved = sum(one[solver][0] <= 1e-8 for one in several)
            spent = sum(one[solver][1] for one in several)
            told[solver] = (solved, spent / solved if solved else np.inf)
        table[key] = (len(several), told)
    return table
