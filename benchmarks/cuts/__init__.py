"""Cuts in 1 to 60 s of one thread's processor time, beside annealing, tabu search, bifurcation and CP-SAT.

``python -m benchmarks.cuts --keep FILE --minutes M`` runs what is not in the file yet, as far as the time goes, and
prints the tables. The graphs are those of the suite `annealing`, of seeds that nothing was tuned on, and those of the
G-set where they are here. A small part of it is the suite `cuts`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks._registry import Config, Row, benchmark
from benchmarks.cuts._bounds import upper_bounds
from benchmarks.cuts._runs import Kept, graph_named, plan, run
from benchmarks.discrete import is_absent, one_thread


@benchmark
@one_thread
def beside_others(config: Config) -> Iterator[Row]:
    """The best cut of the others over ours, in the same processor time: at most one where ours is not behind."""
    if is_absent("dwave.samplers"):
        yield Row("cuts", "dwave", "", 0.0, np.inf, skipped="not installed")
        return
    for name, seconds in config.pick((("planar 5000", 20.0), ("random 5000", 20.0)), (("torus +-1 100", 0.2),)):
        kept = Kept(None)
        for job in plan([name], (seconds / 4.0, seconds), ("varopt", "annealing", "tabu", "bifurcation")):
            run(job, kept)
        cuts = {job.solver: kept.best(job)[0] for job in kept.jobs() if job.seconds == seconds}
        ours = cuts.pop("varopt")
        yield Row(
            f"{name}, {seconds:g} s", "varopt", "best cut of the others / ours", max(cuts.values()) / ours, 1.0,
            objective=ours, note=", ".join(f"{solver} {value:g}" for solver, value in cuts.items()),
        )  # fmt: skip


__all__ = ["Kept", "beside_others", "graph_named", "plan", "run", "upper_bounds"]
