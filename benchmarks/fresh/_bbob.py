"""BBOB: targets reached on all 24 functions, and evaluations to 1e-8 where a quadratic model pays or may mislead."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import _search_rivals as rivals

__all__ = ["DIMENSIONS", "SOLVERS", "evaluations", "jobs", "run", "targets"]

FUNCTIONS = tuple(range(1, 25))
DIMENSIONS = (2, 3, 5, 10, 20, 40)
TIMED = (1, 2, 8, 10, 13, 21)  # the last two: a ridge with a kink, and many optima
TIMED_DIMENSIONS = (5, 10)
LARGE = 20  # dimensions from which on an instance takes as long as all the smaller ones together
PRECISIONS = 10.0 ** np.arange(2, -9, -1)  # a run's eleven targets
Job = tuple[str, int, int, int]  # a solver, a function, its dimensions, an instance
Done = dict[Any, list[float]]


def _lq(objective: Any, dimension: int, seed: int) -> None:
    import cma

    rng = np.random.default_rng(seed)
    while True:
        start = rng.uniform(-4.0, 4.0, dimension)
        cma.fmin_lq_surr2(objective, start, 2.0, {"verbose": -9, "seed": seed + 1, "tolfun": 1e-11})


SOLVERS: dict[str, Callable[..., None]] = {"varopt": rivals.varopt_box, "BIPOP": rivals.pycma_bipop, "lq-CMA": _lq}


def jobs(instances: range) -> Iterator[Job]:
    """Instance by instance, what is to be run: large ones once for every five instances of the small."""
    for instance in instances:
        for d in DIMENSIONS:
            if d < LARGE or instance % 5 == instances.start % 5:
                yield from ((s, f, d, instance) for f in FUNCTIONS for s in SOLVERS)


def run(job: Job) -> list[float]:
    """The precision reached, and the evaluations."""
    solver, function, d, instance = job
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pycma's, on its way to a restart
        done = rivals.run(SOLVERS[solver], rivals.bbob(function, instance, d), d, instance)
    return [max(done.best, 0.0), float(done.evaluations)]


def _complete(done: Done) -> Iterator[tuple[int, int, dict[str, list[float]]]]:
    """The function, the dimensions, and what every solver came to, where all have."""
    by_instance: dict[Any, dict[str, list[float]]] = defaultdict(dict)
    for (solver, function, d, instance), found in done.items():
        by_instance[function, d, instance][solver] = found
    for (function, d, _), found_by in sorted(by_instance.items()):
        if set(found_by) == set(SOLVERS):
            yield function, d, found_by


def evaluations(done: Done) -> dict[tuple[int, int], tuple[int, dict[str, tuple[int, float]]]]:
    """Of some functions: how many runs, and of every solver how many reached 1e-8 and the expected evaluations."""
    runs: dict[tuple[int, int], list[dict[str, list[float]]]] = defaultdict(list)
    for function, d, found_by in _complete(done):
        if function in TIMED and d in TIMED_DIMENSIONS:
            runs[function, d].append(found_by)
    table = {}
    for key, several in runs.items():
        told = {}
        for solver in SOLVERS:
            solved = sum(one[solver][0] <= PRECISIONS[-1] for one in several)
            spent = sum(one[solver][1] for one in several)
            told[solver] = (solved, spent / solved if solved else np.inf)
        table[key] = (len(several), told)
    return table


def targets(done: Done, functions: tuple[int, ...] = FUNCTIONS) -> dict[int, tuple[int, dict[str, int]]]:
    """By dimensions: how many runs, and how many targets from 100 to 1e-8 every solver reached in them."""
    table: dict[int, tuple[int, dict[str, int]]] = {}
    for function, d, found_by in _complete(done):
        if function in functions:
            count, told = table.get(d, (0, dict.fromkeys(SOLVERS, 0)))
            reached = {s: told[s] + int((found_by[s][0] <= PRECISIONS).sum()) for s in SOLVERS}
            table[d] = (count + 1, reached)
    return dict(sorted(table.items()))
