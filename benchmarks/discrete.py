"""Bits: how good, how fast, and how well bracketed, one thread, default settings, beside other samplers at equal time.

The instances are public files in the folder that ``VAROPT_DATA`` names; where they are absent their rows are skipped,
and say so.
"""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import varopt as vo
from benchmarks._measure import Timing, peak_memory
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite._data import SHARED
from varopt.discrete import max_cut, max_sat, qubo, read_cnf, read_gset, read_qubo

DATA = SHARED
SEEDS = 3
BUDGET = 60.0  # seconds for each G-set graph and seed


def one_thread(function: Callable[[Config], Iterator[Row]]) -> Callable[[Config], Iterator[Row]]:
    """Hold the BLAS to one thread: the rivals have one."""

    def limited(config: Config) -> Iterator[Row]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1):
            yield from function(config)

    limited.__module__, limited.__name__, limited.__doc__ = function.__module__, function.__name__, function.__doc__
    return limited


def table(name: str, *columns: str) -> list[tuple[str, float]]:
    """Names and best known values of a folder; nothing where the data are absent."""
    path = DATA / name
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return [(row[columns[0]], float(row[columns[1]])) for row in rows if row.get("copied_here", "True") == "True"]


def absent(problem: str) -> Row:
    """The row of a problem whose data are not here."""
    return Row(problem, "varopt", "", 0.0, np.inf, skipped="the data are not in the folder that VAROPT_DATA names")


@dataclass(frozen=True)
class Outcome:
    """The best value of a run, and the seconds until it was there."""

    value: float
    seconds: float
    upper: float = np.inf


def reached(result: vo.Result) -> Outcome:
    """The value of a maximisation, and when it was first known."""
    first = int(np.argmax(result.history["lower"] >= result.fun))
    return Outcome(result.fun, float(result.history["time"][first]), result.upper)


# -- Cuts beside other samplers ---------------------------------------------------------------------------------------


def annealed(graph: Any, seed: int, budget: float, best: float) -> Outcome:
    """D-Wave's simulated annealing: the best of three numbers of sweeps on a tenth of the time, then all of it."""
    from dwave.samplers import SimulatedAnnealingSampler

    linear, quadratic = couplings(graph)
    total = graph.sum() / 2.0
    sampler, started = SimulatedAnnealingSampler(), time.perf_counter()
    found, at = -np.inf, 0.0

    def run(sweeps: int, seconds: float, seed: int) -> float:
        nonlocal found, at
        own, end, k = -np.inf, time.perf_counter() + seconds, 0
        while time.perf_counter() < end:
            first = sampler.sample_ising(linear, quadratic, num_reads=1, num_sweeps=sweeps, seed=seed + 1000 * k)
            own = max(own, 0.5 * (total - float(first.first.energy)))
            if own > found:
                found, at = own, time.perf_counter() - started
            if found >= best:
                break
            k += 1
        return own

    pilots = {sweeps: run(sweeps, budget / 30.0, seed) for sweeps in (1_000, 5_000, 25_000)}
    run(max(pilots, key=lambda sweeps: pilots[sweeps]), budget - (time.perf_counter() - started), seed + 7)
    return Outcome(found, at)


def tabu(graph: Any, seed: int, budget: float, best: float) -> Outcome:
    """D-Wave's tabu search, restarted until its time is up."""
    from dwave.samplers import TabuSampler

    linear, quadratic = couplings(graph)
    started = time.perf_counter()
    milliseconds, total = int(1000 * budget), graph.sum() / 2.0
    result = TabuSampler().sample_ising(linear, quadratic, timeout=milliseconds, seed=seed)
    return Outcome(0.5 * (total - float(result.first.energy)), time.perf_counter() - started)


def bifurcated(graph: Any, seed: int, budget: float, best: float) -> Outcome:
    """Simulated bifurcation on PyTorch, by its own stopping rule, repeated until its time is up."""
    import simulated_bifurcation as sb
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    matrix = torch.tensor(graph.toarray(), dtype=torch.float32)
    started, found, at, total = time.perf_counter(), -np.inf, 0.0, graph.sum() / 2.0
    while time.perf_counter() - started < budget and found < best:
        _, energy = sb.minimize(
            matrix, domain="spin", agents=64, best_only=True, verbose=False,
            timeout=budget - (time.perf_counter() - started),
        )  # fmt: skip
        if (cut := 0.5 * (total - 0.5 * float(energy))) > found:
            found, at = cut, time.perf_counter() - started
    return Outcome(found, at)


def couplings(graph: Any) -> tuple[dict[int, float], dict[tuple[int, int], float]]:
    """A graph as fields and couplings of spins: the cut is half of what the couplings' sum exceeds their energy."""
    pairs = sp.triu(graph, 1, format="coo")
    return dict.fromkeys(range(graph.shape[0]), 0.0), {
        (int(i), int(j)): float(w) for i, j, w in zip(pairs.row, pairs.col, pairs.data, strict=True)
    }


RIVALS: dict[str, tuple[Callable[[Any, int, float, float], Outcome], str, str]] = {
    "dwave SA": (annealed, "dwave.samplers", "dwave-samplers"),
    "dwave tabu": (tabu, "dwave.samplers", "dwave-samplers"),
    "simulated bifurcation": (bifurcated, "simulated_bifurcation", "simulated-bifurcation"),
}


def is_absent(module: str) -> bool:
    """Whether a rival is not installed."""
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:
        return True


def cut_row(name: str, best: float, solver: str, outcomes: list[Outcome]) -> Row:
    """One graph and solver: the median gap, all cuts, and for ours the bound."""
    values, upper = [o.value for o in outcomes], min(o.upper for o in outcomes)
    median, ours = statistics.median(values), solver == "varopt"
    cuts = f"cuts {', '.join(f'{v:g}' for v in values)}"
    package = "" if ours else RIVALS[solver][2]
    return Row(
        problem=f"{name}, best known {best:g}",
        solver=solver,
        ratio_of="(best known - cut) / best known, median",
        ratio=(best - median) / best,
        target=0.002 if ours else np.inf,
        timing=Timing(outcomes[0].seconds, tuple(o.seconds for o in outcomes)),
        objective=median,
        gap=upper - max(values) if ours else None,
        note=f"{cuts}; none exceeds {upper:g}" if ours else cuts,
        versions={} if ours else {package: importlib.metadata.version(package)},
    )


@benchmark
@one_thread
def g_set(config: Config) -> Iterator[Row]:
    """Max-Cut: the gap to the best known cut, median of three seeds; then totals against the rivals."""
    graphs = table("gset/best_known.csv", "instance", "best_known")
    if not graphs:
        yield absent("G-set")
        return
    graphs, budget, seeds = graphs[: config.pick(None, 2)], config.pick(BUDGET, 1.0), range(config.pick(SEEDS, 1))
    runs: dict[str, dict[str, list[Outcome]]] = {"varopt": {}}
    runs |= {name: {} for name, (_, module, _) in RIVALS.items() if not is_absent(module)}
    for name, best in graphs:
        graph = read_gset(DATA / "gset" / f"{name}.txt")
        for solver, outcomes in runs.items():
            outcomes[name] = [
                reached(max_cut(graph, time_limit=budget, target=best, seed=seed))
                if solver == "varopt"
                else RIVALS[solver][0](graph, seed, budget, best)
                for seed in seeds
            ]
            yield cut_row(name, best, solver, outcomes[name])
    gaps = {
        solver: sum(best - statistics.median(o.value for o in outcomes[name]) for name, best in graphs)
        for solver, outcomes in runs.items()
    }
    hits = sum(statistics.median(o.value for o in runs["varopt"][name]) >= best for name, best in graphs)
    wanted = config.pick(5, 1)
    yield Row(
        "G-set",
        "varopt",
        f"{wanted} / graphs at their best known cut",
        wanted / max(hits, 1e-9),
        1.0,
        note=f"{hits} of {len(graphs)}",
    )
    for solver in runs.keys() - {"varopt"}:
        yield Row("G-set", "varopt", f"total gap / that of {solver}", (gaps["varopt"] + 1e-9) / (gaps[solver] + 1e-9),
                  1.0, note=f"{gaps['varopt']:g} against {gaps[solver]:g}")  # fmt: skip
    for name, (_, module, _) in RIVALS.items():
        if is_absent(module):
            yield Row("G-set", name, "", 0.0, np.inf, skipped="not installed")


# -- Time to the optimum ----------------------------------------------------------------------------------------------


def timed(
    problem: str, solve: Callable[[int], vo.Result], best: float, limit: float, seeds: int, sign: float = 1.0
) -> Row:
    """The slowest of some seeds to a value, in units of the time allowed for it."""
    outcomes = []
    for seed in range(seeds):
        result = solve(seed)
        first = result.history["lower" if sign > 0 else "upper"]
        at = float(result.history["time"][int(np.argmax(sign * first >= sign * best))])
        outcomes.append(Outcome(result.fun, at, result.upper if sign > 0 else result.lower))
    reached_all = all(sign * o.value >= sign * best for o in outcomes)
    slowest = max(o.seconds for o in outcomes)
    return Row(
        f"{problem}, best known {best:g}", "varopt", f"slowest of {seeds} seeds / {limit:g} s", slowest / limit, 1.0,
        timing=Timing(outcomes[0].seconds, tuple(o.seconds for o in outcomes)), objective=outcomes[0].value,
        status="ok" if reached_all else "the best known value was not reached",
        note=f"bracketed by {outcomes[0].upper:.8g}",
    )  # fmt: skip


@benchmark
@one_thread
def quadratic_problems(config: Config) -> Iterator[Row]:
    """Beasley's QUBOs and the rudy graphs: seconds to the best known value."""
    problems = table("bqp/best_known.csv", "file", "max_xQx_best_known")[: config.pick(None, 4)]
    for name, best in problems:
        Q = read_qubo(DATA / "bqp" / name)
        yield timed(
            name, lambda seed, Q=Q, best=best: qubo(Q, maximize=True, target=best, time_limit=20.0, seed=seed),  # type: ignore[misc]
            best, 5.0, config.pick(SEEDS, 1),
        )  # fmt: skip
    graphs = table("rudy/optimum.csv", "instance", "max_cut")
    for name, best in graphs:
        graph = read_gset(DATA / "rudy" / name)
        yield timed(
            name, lambda seed, graph=graph, best=best: max_cut(graph, target=best, time_limit=20.0, seed=seed),  # type: ignore[misc]
            best, 5.0, config.pick(SEEDS, 1),
        )  # fmt: skip
    if not problems or not graphs:
        yield absent("bqp and rudy")


@benchmark
@one_thread
def satisfiability(config: Config) -> Iterator[Row]:
    """MaxSAT 2016 random and SATLIB: seconds to the proven optimum."""
    formulas = table("maxsat/optimum.csv", "instance", "unsatisfied_at_optimum")
    for name, violated in formulas:
        formula = read_cnf(DATA / "maxsat" / f"{name}.cnf")
        best = len(formula.clauses) - violated
        yield timed(
            name, lambda seed, formula=formula, best=best: max_sat(*formula, target=best, time_limit=20.0, seed=seed),  # type: ignore[misc]
            best, 5.0 if "uf250" in name else 2.0, config.pick(SEEDS, 1),
        )  # fmt: skip
    if not formulas:
        yield absent("maxsat")


@benchmark
@one_thread
def low_autocorrelation(config: Config) -> Iterator[Row]:
    """Binary sequences of low autocorrelation, a polynomial of degree four, unreduced: seconds to the optimum."""
    length, best = config.pick((30, 59.0), (15, 15.0))
    s = 1.0 - 2.0 * vo.Binary(length)
    f = sum((vo.sum(s[: length - k] * s[k:]) ** 2 for k in range(2, length)), start=vo.sum(s[:-1] * s[1:]) ** 2)
    yield timed(
        f"LABS {length}", lambda seed: vo.minimize(f, target=best, time_limit=120.0, seed=seed), best, 60.0,
        config.pick(SEEDS, 1), sign=-1.0,
    )  # fmt: skip


# -- The other side ---------------------------------------------------------------------------------------------------


@benchmark
@one_thread
def proofs(config: Config) -> Iterator[Row]:
    """Optimality proved from scratch: seconds, in minutes."""
    rng = np.random.default_rng(0)
    problems: dict[str, Callable[[], vo.Result]] = {}
    for n in config.pick((40, 50, 60, 70, 80), (20,)):
        Q = rng.integers(-100, 101, (n, n)).astype(np.float64)
        problems[f"dense QUBO, n = {n}"] = lambda Q=Q: qubo(Q, time_limit=300.0)  # type: ignore[misc]
    for n in config.pick((100, 120, 140), (30,)):
        graph = regular(n, rng)
        problems[f"3-regular graph, n = {n}"] = lambda graph=graph: max_cut(graph, time_limit=300.0)  # type: ignore[misc]
    for side in config.pick((10, 16, 20), (5,)):
        line = sp.diags_array([np.ones(side - 1)], offsets=[1], shape=(side, side))
        grid = sp.kron(sp.eye_array(side), line) + sp.kron(line, sp.eye_array(side))
        signs = sp.csr_array(grid)
        signs.data = rng.choice([-1.0, 1.0], signs.nnz)
        problems[f"+-1 grid, n = {side**2}"] = lambda signs=signs: max_cut(signs, time_limit=300.0)  # type: ignore[misc]
    asked = ("dense QUBO, n = 40", "3-regular graph, n = 100", "+-1 grid, n = 100")
    for name, solve in problems.items():
        result = solve()
        proved = result.status is vo.Status.PROVED
        yield Row(
            name, "varopt", "time to the proof / 60 s", result.time / 60.0, 1.0 if name in asked else np.inf,
            timing=Timing(result.time, (result.time,)), objective=result.fun, gap=result.gap,
            status="ok" if proved or name not in asked else result.message,
            note=str(result.certificate) if proved else f"not proved: gap {result.gap:g}",
        )  # fmt: skip


def regular(n: int, rng: np.random.Generator) -> Any:
    """A random 3-regular graph: three points a node, paired until no loop or double edge is left."""
    while True:
        a, b = rng.permutation(np.repeat(np.arange(n), 3)).reshape(2, -1)
        pairs = set(zip(np.minimum(a, b).tolist(), np.maximum(a, b).tolist(), strict=True))
        if np.all(a != b) and len(pairs) == a.size:
            half = sp.csr_array((np.ones(a.size), (a, b)), shape=(n, n))
            return half + half.T


@benchmark
@one_thread
def upper_bounds(config: Config) -> Iterator[Row]:
    """Semidefinite bounds with their proofs: the bound against what is asked for, and seconds."""
    from varopt.solvers.discrete import Energy
    from varopt.solvers.discrete.bounds import semidefinite_bound, spins_of

    for name, wanted in config.pick((("G22", 14140.0), ("G1", 12090.0), ("G35", 8020.0)), (("G1", 12090.0),)):
        if not (DATA / "gset" / f"{name}.txt").is_file():
            yield absent(name)
            continue
        graph = read_gset(DATA / "gset" / f"{name}.txt")
        spins = spins_of(Energy.quadratic_form(graph, -np.asarray(graph.sum(axis=1)).ravel()))
        started = time.perf_counter()
        lower, _, _ = semidefinite_bound(spins, np.random.default_rng(0))
        seconds = time.perf_counter() - started
        timing = Timing(seconds, (seconds,))
        yield Row(
            f"{name}, n = {spins.size - 1}", "varopt", f"bound / {wanted:g}", -lower / wanted, 1.0, timing, lower=-lower
        )
        yield Row(f"{name}, n = {spins.size - 1}", "varopt", "seconds / 5 s", seconds / 5.0, 1.0, timing)


@benchmark
@one_thread
def memory(config: Config) -> Iterator[Row]:
    """Twice the entries must not take more than twice the memory, nor a dense matrix that of three."""
    sizes: list[int] = []
    for n in config.pick((10_000, 20_000), (2_000, 4_000)):
        rng = np.random.default_rng(0)
        Q: NDArray[np.float64] | Any = sp.coo_array(
            (rng.standard_normal(10 * n), rng.integers(n, size=(2, 10 * n))), shape=(n, n)
        )
        sizes.append(peak_memory(lambda Q=Q: qubo(Q, time_limit=config.pick(20.0, 1.0))))  # type: ignore[misc]
    n = config.pick(10_000, 2_000)
    yield Row(
        f"sparse QUBO, n = {n}, {10 * n} entries, and twice that", "varopt", "peak memory / twice that of half",
        sizes[1] / (2.0 * sizes[0]), 1.1, peak_bytes=sizes[0], data_bytes=12 * 10 * n,
    )  # fmt: skip
    dense = np.random.default_rng(0).standard_normal((config.pick(3_000, 500),) * 2)
    peak = peak_memory(lambda: qubo(dense, time_limit=config.pick(20.0, 1.0)))
    yield Row(
        f"dense QUBO, n = {len(dense)}", "varopt", "peak memory / three times the matrix",
        peak / (3.0 * dense.nbytes), 1.0, peak_bytes=peak, data_bytes=dense.nbytes,
    )  # fmt: skip
