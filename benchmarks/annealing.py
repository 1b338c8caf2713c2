"""Cuts of graphs made afresh, beside D-Wave's simulated annealing in the same processor time, one thread.

Graphs are of the kinds of the G-set's generator: random with unit and with +-1 weights, toroidal grids of +-1, unions
of two grids with diagonals (nearly planar), and dense ones. The rival has the best of four numbers of sweeps, each of
which is given all of the time. `gpu` compares the search on a GPU with that of NumPy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp

from benchmarks._cut_rivals import annealed
from benchmarks._registry import Config, Row, benchmark
from benchmarks.discrete import DATA, is_absent, one_thread, table
from varopt.discrete import max_cut, read_gset

KINDS = ("random", "random +-1", "torus +-1", "planar", "dense +-1")
SHARES = (1, 4, 16, 64)  # the rival's sweeps: all that fit in the time at once, a quarter of them, ...


def graph_of(kind: str, n: int, rng: np.random.Generator) -> Any:
    """A graph of about n nodes, as a symmetric matrix."""
    if kind == "dense +-1":
        half = np.triu(rng.choice([-1.0, 1.0], (n, n)), 1)
        return half + half.T
    side = int(np.sqrt(n))
    nodes = np.arange(side * side).reshape(side, side)
    if kind == "torus +-1":
        pairs = [(nodes, np.roll(nodes, 1, 0)), (nodes, np.roll(nodes, 1, 1))]
    elif kind == "planar":
        order = rng.permutation(nodes.ravel()).reshape(side, side)
        pairs = [
            (a, b)
            for grid in (nodes, order)
            for a, b in ((grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1]), (grid[1:, 1:], grid[:-1, :-1]))
        ]
    else:
        ends = rng.integers(n, size=(2, 3 * n))
        pairs = [(ends[0], ends[1])]
    rows, columns = (np.concatenate([np.ravel(p[k]) for p in pairs]) for k in range(2))
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    low, high = np.unique(np.stack([low, high])[:, low != high], axis=1)
    weights = rng.choice([-1.0, 1.0], low.size) if "+-1" in kind else np.ones(low.size)
    half = sp.csr_array((weights, (low, high)), shape=(n, n))
    return sp.csr_array(half + half.T)


@contextmanager
def processor_clock() -> Iterator[None]:
    """Seconds are those of the processor: what else runs on the machine does not count."""
    with mock.patch("time.perf_counter", time.process_time):
        yield


@benchmark
@one_thread
def cuts(config: Config) -> Iterator[Row]:
    """The rival's cut over ours: at most one where ours is not behind."""
    if is_absent("dwave.samplers"):
        yield Row("cuts", "dwave SA", "", 0.0, np.inf, skipped="not installed")
        return
    for n in config.pick((50, 200, 800, 2_000, 5_000, 10_000, 20_000), (100,)):
        for kind in KINDS:
            if kind == "dense +-1" and n > 2_000:
                continue  # the rival takes minutes to begin
            for seconds in config.pick((1.0, 5.0), (0.2,)) + ((20.0,) if not config.quick and n >= 5_000 else ()):
                yield row(kind, n, seconds, config.pick(3, 1))


def row(kind: str, n: int, seconds: float, seeds: int) -> Row:
    """Medians over graphs made of different seeds."""
    ours, theirs, shares = [], [], []
    for seed in range(seeds):
        graph = graph_of(kind, n, np.random.default_rng([n, seed]))
        with processor_clock():
            ours.append(max_cut(graph, time_limit=seconds, seed=seed).fun)
        tried = [annealed(graph, seconds, seed, share) for share in SHARES]
        theirs.append(max(tried).value)
        shares.append(max(tried).setting)
    ahead, level = sum(a > b for a, b in zip(ours, theirs, strict=True)), sum(np.equal(ours, theirs))
    return Row(
        f"{kind}, n = {n}, {seconds:g} s", "varopt", "cut of dwave SA / ours, median",
        statistics.median(b / a for a, b in zip(ours, theirs, strict=True)), 1.0, objective=statistics.median(ours),
        note=f"{ours} : {theirs} (best of {len(SHARES)} numbers of sweeps, {shares}); ahead {ahead}, level {level}",
    )  # fmt: skip


@benchmark
def gpu(config: Config) -> Iterator[Row]:
    """The search on a GPU beside one thread of NumPy: cuts in the same seconds, and seconds to the best known cut."""
    if is_absent("torch"):
        yield Row("device", "varopt", "", 0.0, np.inf, skipped="PyTorch is not installed")
        return
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not config.quick:
        yield Row("device", "varopt", "", 0.0, np.inf, skipped="no GPU is here")
        return
    for n in config.pick((1_000, 10_000, 100_000), (100,)):
        for kind in config.pick(("random", "torus +-1"), ("random",)):
            graph = graph_of(kind, n, np.random.default_rng(n))
            for seconds in config.pick((2.0, 8.0), (0.5,)):
                plain = max_cut(graph, time_limit=seconds)
                moved = max_cut(graph, time_limit=seconds, device=device)
                yield Row(
                    f"{kind}, n = {n}, {seconds:g} s", f"varopt, {device}", "cut of NumPy / that on the device",
                    plain.fun / moved.fun, 1.0, objective=moved.fun, note=f"{moved.fun:g} after {moved.nit} sweeps, "
                    f"NumPy {plain.fun:g} after {plain.nit}",
                )  # fmt: skip
    for name, best in config.pick(table("gset/best_known.csv", "instance", "best_known"), []):
        if name in ("G1", "G22"):
            yield _until(name, best, device)


def _until(name: str, best: float, device: str) -> Row:
    """Seconds to the best known cut, the median of three seeds after a first run that sets the device up."""
    graph = read_gset(DATA / "gset" / f"{name}.txt")
    times: dict[str | None, list[float]] = {device: [], None: []}
    for seed in range(-1, 3):
        for where, taken in times.items():
            began = time.perf_counter()
            found = max_cut(graph, target=best, time_limit=60.0, seed=seed + 1, device=where)
            taken.append(time.perf_counter() - began if found.fun >= best else np.inf)
    moved, plain = (statistics.median(times[where][1:]) for where in (device, None))
    return Row(
        f"{name} to {best:g}", f"varopt, {device}", "seconds on the device / of NumPy", moved / plain, 1.0,
        note=f"{moved:.2g} s : {plain:.2g} s",
    )  # fmt: skip
