"""Others that look for cuts, each until so much processor time is spent, at the settings that it is given.

A setting is a number: of annealing and of bifurcation the share of the time that one run has (1: all of it, 4: a
quarter, and four runs), for bifurcation negative where forces are discrete.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks._cp_sat import solved

__all__ = ["Cut", "annealed", "bifurcated", "cp_sat", "tabu"]

_STEP, _DETUNING, _START = 1.25, 1.0, 0.1  # of bifurcation, as published [Goto21]
_ENTRIES = 1 << 17  # nodes times agents of bifurcation, about, that stay in the cache


class Cut(NamedTuple):
    """The best cut, the setting that found it, the bound where there is one, and the processor time of the run."""

    value: float
    setting: float
    upper: float
    seconds: float


def _model(graph: Any) -> tuple[Any, float]:
    """The graph as spins for D-Wave's samplers, and the sum of its weights."""
    import dimod

    pairs = sp.triu(sp.csr_array(graph), 1, format="coo")
    ends = pairs.row, pairs.col, pairs.data
    fields = np.zeros(graph.shape[0])
    return dimod.BinaryQuadraticModel.from_numpy_vectors(fields, ends, 0.0, dimod.SPIN), float(pairs.data.sum())


def annealed(graph: Any, seconds: float, seed: int, share: float, best: float = np.inf) -> Cut:
    """D-Wave's simulated annealing, again and again with as many sweeps as the share of the time holds."""
    from dwave.samplers import SimulatedAnnealingSampler

    model, total = _model(graph)
    sampler = SimulatedAnnealingSampler()

    def run(sweeps: int, k: int) -> tuple[float, float]:
        began = time.process_time()
        found = sampler.sample(model, num_reads=1, num_sweeps=sweeps, seed=seed + 1000 * k)
        return 0.5 * (total - float(found.first.energy)), time.process_time() - began

    # What a sweep takes, from runs so long that a clock of coarse steps tells it.
    few, tried, took = run(20, 0)[1], 100, 0.0
    while took < 0.05 * seconds + few:
        tried *= 2
        took = run(tried, 0)[1]
    pace = (took - few) / (tried - 20)
    sweeps, value, spent, k = max(20, int(max(0.1 * seconds, seconds - few) / pace / share)), -np.inf, 0.0, 0
    while spent < 0.8 * seconds and value < best:
        cut, took = run(sweeps, k)
        value, spent, k = max(value, cut), spent + took, k + 1
    return Cut(value, share, np.inf, spent)


def tabu(graph: Any, seconds: float, seed: int, setting: float = 0.0, best: float = np.inf) -> Cut:
    """D-Wave's tabu search. Its own limit is one of the wall: it goes on from its best until the time is spent."""
    from dwave.samplers import TabuSampler

    model, total = _model(graph)
    began, value, k = time.process_time(), -np.inf, 0
    start: dict[str, Any] = {}
    while (left := seconds - (time.process_time() - began)) > 0.02 * seconds and value < best:
        found = TabuSampler().sample(model, timeout=max(1, int(1000 * left)), seed=seed + 1000 * k, **start)
        value, k = max(value, 0.5 * (total - float(found.first.energy))), k + 1
        start["initial_states"] = found.first.sample
    return Cut(value, setting, np.inf, time.process_time() - began)


def bifurcated(graph: Any, seconds: float, seed: int, setting: float, best: float = np.inf) -> Cut:
    """Simulated bifurcation, ballistic or discrete, some agents at once, again and again.

    The equations, the step and the unit of the couplings are those of [Goto21]: H. Goto et al., *High-performance
    combinatorial optimization based on classical mechanics*, Science Advances 7, 2021.
    """
    n, rng = graph.shape[0], np.random.default_rng(seed)
    agents = int(np.clip(_ENTRIES // n, 4, 64))
    norm = float(np.sqrt((graph * graph).sum()))  # of J over all pairs
    unit = np.float32(-0.5 * np.sqrt(n - 1.0) / norm)  # -J / (2 sqrt(n) <J>), as a cut wants its ends apart
    matrix = unit * (sp.csr_matrix(graph).astype(np.float32) if sp.issparse(graph) else graph.astype(np.float32))
    total = 0.5 * float(graph.sum())
    signs = np.empty((n, agents), dtype=np.float32)

    def run(steps: int) -> float:
        x = np.zeros((n, agents), dtype=np.float32)
        y = rng.uniform(-_START, _START, (n, agents)).astype(np.float32)
        for k in range(steps):
            force = matrix @ (np.sign(x, out=signs) if setting < 0 else x)
            force -= np.float32(_DETUNING * (1.0 - k / steps)) * x
            force *= np.float32(_STEP)
            y += force
            x += np.float32(_STEP) * y
            outside = np.abs(x) > 1.0
            np.clip(x, -1.0, 1.0, out=x)
            y[outside] = 0.0
        spins = np.where(x > 0.0, 1.0, -1.0)
        return float(0.5 * (total - 0.5 * np.einsum("ij,ij->j", spins, graph @ spins).min()))

    began = time.process_time()
    run(10)
    pace = (time.process_time() - began) / 11.0
    steps, value, spent = max(20, int(seconds / pace / abs(setting))), -np.inf, 0.0
    while spent < 0.8 * seconds and value < best:
        began = time.process_time()
        value = max(value, run(steps))
        spent += time.process_time() - began
    return Cut(value, setting, np.inf, spent)


def cp_sat(graph: Any, seconds: float, seed: int, setting: float = 0.0, best: float = np.inf) -> Cut:
    """CP-SAT with one worker: a bit for each node and for each edge, which is cut where its ends differ."""
    from ortools.sat.python import cp_model

    model, solver = cp_model.CpModel(), cp_model.CpSolver()
    bits = [model.new_bool_var("") for _ in range(graph.shape[0])]
    pairs = sp.triu(sp.csr_array(graph), 1, format="coo")
    terms = []
    for i, j, weight in zip(pairs.row.tolist(), pairs.col.tolist(), pairs.data.tolist(), strict=True):
        cut = model.new_bool_var("")
        if weight > 0:
            model.add_bool_or(cut.negated(), bits[i], bits[j])
            model.add_bool_or(cut.negated(), bits[i].negated(), bits[j].negated())
        else:
            model.add_bool_or(cut, bits[i].negated(), bits[j])
            model.add_bool_or(cut, bits[i], bits[j].negated())
        terms.append(round(weight) * cut)
    model.maximize(sum(terms))
    solver.parameters.random_seed = seed
    status, spent = solved(solver, model, seconds)
    value = solver.objective_value if status in ("OPTIMAL", "FEASIBLE") else -np.inf
    return Cut(value, setting, solver.best_objective_bound, spent)
