"""Ranks of the best value at 30 to 500 evaluations; ``python -m benchmarks.fresh`` keeps runs and shows tables."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks._search_rivals import Spent
from benchmarks.fresh._problems import FUNCTIONS, Problem, function
from benchmarks.fresh._solvers import SOLVERS, WITH_A_BUDGET
from benchmarks.fresh._tasks import TASKS, task

__all__ = ["BUDGETS", "RANKED", "jobs", "mean_ranks", "run"]

BUDGETS = (30, 50, 100, 200, 500)
RANKED = ("varopt", "TPE", "CMA", "NGOpt", "lq-CMA", "random")
PROCESS, PROCESS_BUDGETS = "GPSampler", (30, 50, 100)  # slower than all the others together: fewer seeds, up to 100
PROBLEMS = (*FUNCTIONS, *TASKS)
Job = tuple[str, str, int, int]  # a solver, a problem, a seed, and a budget
Done = dict[Job, list[float]]  # the best values after each of the budgets up to its own


def problem(name: str, seed: int) -> Problem:
    """A function or a task."""
    return task(name, seed) if name in TASKS else function(name, seed)


def run(job: Job) -> list[float]:
    """The best values after each budget up to the job's."""
    solver, name, seed, budget = job
    posed = problem(name, seed)
    seen: list[float] = []

    def evaluate(point: Any) -> float:
        seen.append(posed.cost(point))
        if len(seen) > budget:
            raise Spent
        return seen[-1]

    with warnings.catch_warnings(), suppress(Spent):
        warnings.simplefilter("ignore")
        SOLVERS[solver](posed, evaluate, seed, budget)
    return [min(seen[:b]) for b in BUDGETS if b <= budget]


def jobs(solvers: tuple[str, ...], seeds: range, names: tuple[str, ...] = PROBLEMS) -> Iterator[Job]:
    """Seed by seed, what is to be run."""
    for seed in seeds:
        for name in names:
            for solver in solvers:
                if solver == PROCESS:
                    yield solver, name, seed, PROCESS_BUDGETS[-1]
                else:
                    yield from ((solver, name, seed, b) for b in (BUDGETS if solver in WITH_A_BUDGET else BUDGETS[-1:]))


def values(done: Done, solvers: tuple[str, ...], budget: int) -> dict[tuple[str, int], list[float]]:
    """By problem and seed: what each solver came to with a budget, where all have."""
    place = BUDGETS.index(budget)
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for (solver, name, seed, own), best in done.items():
        if own == budget if solver in WITH_A_BUDGET else len(best) > place:
            found[name, seed][solver] = best[place]
    return {key: [by[s] for s in solvers] for key, by in found.items() if set(by) >= set(solvers)}


def mean_ranks(done: Done, budget: int) -> dict[str, tuple[int, Any]]:
    """Of every problem, and of all (``""``): how many runs, and the mean ranks of the solvers; equals share theirs."""
    by_problem: dict[str, list[Any]] = defaultdict(list)
    for (name, _), found in values(done, RANKED, budget).items():
        ranked = rankdata(found)
        by_problem[name].append(ranked)
        by_problem[""].append(ranked)
    return {name: (len(rows), np.mean(rows, axis=0)) for name, rows in by_problem.items()}


def beside_a_process(done: Done, budget: int) -> tuple[int, int, int]:
    """Runs in which ours, Optuna's Gaussian process, and neither was better."""
    pairs = values(done, ("varopt", PROCESS), budget).values()
    wins, losses = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return wins, losses, len(pairs) - wins - losses
