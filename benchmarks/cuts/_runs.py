"""What is run, with which settings, and what came out: kept in a file of JSON lines as it comes."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks._cut_rivals import Cut, annealed, bifurcated, cp_sat, tabu
from benchmarks.annealing import KINDS, SHARES, graph_of, processor_clock
from benchmarks.discrete import DATA, table
from varopt.discrete import max_cut, read_gset

__all__ = ["GRAPHS", "SOLVERS", "Job", "Kept", "best_known", "graph_named", "plan", "run"]

GRAPHS = (*(f"{kind} {n}" for n in (5_000, 20_000) for kind in KINDS[:4]), "dense +-1 800", "dense +-1 2000")
SOLVERS = ("varopt", "annealing", "tabu", "bifurcation", "CP-SAT")
_SEED = 77  # of the graphs: none that was looked at while the search was made
_BIFURCATIONS = (4.0, -4.0)  # ballistic and discrete
_RIVALS: dict[str, tuple[Callable[..., Cut], tuple[float, ...]]] = {
    "annealing": (annealed, tuple(map(float, SHARES))),
    "tabu": (tabu, (0.0,)),
    "bifurcation": (bifurcated, _BIFURCATIONS),
    "CP-SAT": (cp_sat, (0.0,)),
}


class Job(NamedTuple):
    """A solver, a graph, the time and a seed, of the solver and of a graph made afresh."""

    solver: str
    graph: str
    seconds: float
    seed: int = 0


class Kept:
    """Cuts by job, one for each setting that was tried."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._done: dict[Job, list[Cut]] = {}
        if path is not None and path.exists():
            for job, cuts in map(json.loads, path.read_text().splitlines()):
                self._done[Job(*job)] = [Cut(*cut) for cut in cuts]

    def __contains__(self, job: Job) -> bool:
        return job in self._done

    def jobs(self) -> Iterator[Job]:
        """What was run."""
        yield from self._done

    def add(self, job: Job, cuts: list[Cut]) -> None:
        """What came out; written at once."""
        self._done[job] = cuts
        if self._path is not None:
            with self._path.open("a") as stream:
                stream.write(json.dumps([job, cuts]) + "\n")

    def best(self, job: Job) -> Cut:
        """The best of its settings; of equal ones that of the longest runs."""
        return max(self._done[job], key=lambda cut: (cut.value, -abs(cut.setting)))

    def best_within(self, job: Job) -> Cut:
        """The best in its time or in a shorter one, where four settings had a quarter of this time each."""
        alike = [k for k in self._done if k._replace(seconds=job.seconds) == job and k.seconds <= job.seconds]
        return max((self.best(k) for k in alike), key=lambda cut: cut.value)

    def settings(self, job: Job, every: tuple[float, ...]) -> tuple[float, ...]:
        """Which to try: all in the shortest time; then the one that was best in the time before."""
        before = [k.seconds for k in self._done if k._replace(seconds=job.seconds) == job and k.seconds < job.seconds]
        return (self.best(job._replace(seconds=max(before))).setting,) if before else every


def best_known(name: str) -> float:
    """Of a graph of the G-set; infinite for others."""
    return dict(table("gset/best_known.csv", "instance", "best_known")).get(name, np.inf)


def graph_named(name: str, seed: int = 0) -> Any:
    """A graph of the G-set, or one made afresh by a seed."""
    if name[0] == "G":
        return read_gset(DATA / "gset" / f"{name}.txt")
    kind, n = name.rsplit(" ", 1)
    return graph_of(kind, int(n), np.random.default_rng([int(n), _SEED + seed]))


def plan(
    graphs: Iterable[str], times: Iterable[float], solvers: Iterable[str], seeds: Iterable[int] = (0,)
) -> Iterator[Job]:
    """Jobs, the shortest first, as settings for the longer come from them."""
    for seconds, graph, seed, solver in itertools.product(sorted(times), graphs, seeds, solvers):
        yield Job(solver, graph, seconds, seed)


def run(job: Job, kept: Kept) -> None:
    """Run a job with every setting that it has."""
    graph, best = graph_named(job.graph, job.seed), best_known(job.graph)
    if job.solver == "varopt":
        began = time.process_time()
        with processor_clock():
            target = None if np.isinf(best) else best
            found = max_cut(graph, time_limit=job.seconds, seed=job.seed, target=target)
        kept.add(job, [Cut(found.fun, 0.0, found.upper, time.process_time() - began)])
        return
    solve, every = _RIVALS[job.solver]
    cuts: list[Cut] = []
    for setting in kept.settings(job, every):
        cuts.append(solve(graph, job.seconds, job.seed, setting, best))
        if cuts[-1].value >= best:
            break
    kept.add(job, cuts)
