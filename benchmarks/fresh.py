"""Black boxes on instances that nothing was tuned on, beside pycma, Optuna and nevergrad: ranks, and targets reached.

Runs go seed by seed, all solvers on all functions, until ``MINUTES`` are over (30): what is shown is what every solver
has finished. ``python -c "from benchmarks.fresh import main; main()" --keep FILE`` keeps every run in a file, goes
on from it, and prints the tables in Markdown, with what ours loses in bold.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

import varopt as vo
from benchmarks import _search_rivals as rivals
from benchmarks import small_budgets as small
from benchmarks._registry import Config, Row, benchmark

FIRST_INSTANCE = 501  # of BBOB, and seeds of shifts: nothing before saw them
BUDGET = 60  # evaluations of an expensive function
FUNCTIONS = ("Branin", "Hartmann 6", "Ackley 5", "Rosenbrock 5", "Levy 5", "tree 6")
TARGETED = (1, 2, 8, 10, 13, 21)  # of BBOB, in 5 dimensions, 1000 d evaluations


def _tree(seed: int) -> Callable[[str, dict[str, Any]], float]:
    """Two models to choose from, each with parameters of its own, as tuning has it; optima by the seed."""
    rng = np.random.default_rng(seed)
    a, b, c, d = rng.uniform(0.2, 0.8, 4)

    def f(kind: str, p: dict[str, Any]) -> float:
        if kind == "one":
            return float((p["u"] - a) ** 2 + 3 * abs(p["v"] - b) + 0.1)
        return float(4 * (p["s"] - c) ** 2 + (p["t"] - d) ** 2 + 0.3 * abs(p["k"] - 3))

    return f


def _expensive(solver: str, name: str, seed: int) -> float:
    """The best value of a run."""
    if name == "tree 6":
        return _on_tree(solver, seed)
    f, d = small._problem(name, seed)
    solve = {**small.SOLVERS, "BIPOP": _bipop, "NGOpt": _nevergrad}[solver]
    endless = solver in ("lq-CMA", "BIPOP")
    counted = rivals.Counted(f, 0.0, -np.inf, BUDGET if endless else BUDGET + 1)
    return rivals.run(solve, counted, d, seed, BUDGET).best


def _bipop(f: Any, d: int, seed: int, budget: int) -> None:
    import cma

    rng = np.random.default_rng(seed)
    options = {"verbose": -9, "seed": seed + 1, "bounds": [0, 1]}
    while True:
        cma.fmin2(f, lambda: rng.uniform(0.1, 0.9, d), 0.2, options, bipop=True, restarts=9)


def _nevergrad(f: Any, d: int, seed: int, budget: int) -> None:
    import nevergrad as ng

    parameters = ng.p.Array(shape=(d,), lower=0.0, upper=1.0)
    parameters.random_state.seed(seed)
    optimizer = ng.optimizers.NGOpt(parameters, budget=budget)
    for _ in range(budget):
        candidate = optimizer.ask()
        optimizer.tell(candidate, f(candidate.value))


def _on_tree(solver: str, seed: int) -> float:
    """A conditional space: ours has it, Optuna's samplers suggest what exists; others are given every part."""
    f = _tree(seed)
    seen: list[float] = []

    def value(kind: str, p: dict[str, Any]) -> float:
        seen.append(f(kind, p))
        return seen[-1]

    if solver == "varopt":
        box = vo.Box(0, 1)
        parts: dict[str, Any] = {"kind": ["one", "two"], "u": box, "v": box, "s": box, "t": box, "k": vo.Integer(1, 8)}
        ones, twos = {"kind": "one"}, {"kind": "two"}
        space = vo.Space(parts, when={"u": ones, "v": ones, "s": twos, "t": twos, "k": twos})
        vo.minimize(lambda p: value(p["kind"], p), space, budget=BUDGET, seed=seed)
    elif solver in ("TPE", "GPSampler"):
        import optuna

        def objective(trial: Any) -> float:
            kind = trial.suggest_categorical("kind", ["one", "two"])
            names = ("u", "v") if kind == "one" else ("s", "t")
            p: dict[str, Any] = {name: trial.suggest_float(name, 0, 1) for name in names}
            if kind == "two":
                p["k"] = trial.suggest_int("k", 1, 8)
            return value(kind, p)

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = {"TPE": optuna.samplers.TPESampler, "GPSampler": optuna.samplers.GPSampler}[solver]
        optuna.create_study(sampler=sampler(seed=seed)).optimize(objective, n_trials=BUDGET)
    else:

        def flat(u: Any) -> float:
            p = dict(zip("uvst", u[1:5], strict=True))
            return value("one" if u[0] < 0.5 else "two", {**p, "k": 1 + min(7, int(8 * u[5]))})

        solve = {**small.SOLVERS, "BIPOP": _bipop, "NGOpt": _nevergrad}[solver]
        counted = rivals.Counted(flat, 0.0, -np.inf, BUDGET if solver in ("lq-CMA", "BIPOP") else BUDGET + 1)
        rivals.run(solve, counted, 6, seed, BUDGET)
    return min(seen[:BUDGET])


def _targeted(solver: str, function: int, instance: int) -> tuple[float, int]:
    """The precision of a run on BBOB, and its evaluations."""
    solve = {"varopt": rivals.varopt_box, "BIPOP": rivals.pycma_bipop, "lq-CMA": small._lq_bbob}[solver]
    done = rivals.run(solve, rivals.bbob(function, instance, 5), 5, instance)
    return max(done.best, 0.0), done.evaluations


EXPENSIVE = ("varopt", "TPE", "NGOpt", "BIPOP", "lq-CMA", "random")
PROCESS = "GPSampler"  # takes longer than all of these together: compared with ours alone, after the first seeds
CHEAP = ("varopt", "BIPOP", "lq-CMA")
Job = tuple[str, str, Any, int]  # its kind, the solver, the function, and the seed or instance


def _jobs(seeds: int) -> Iterator[Job]:
    numbers = range(FIRST_INSTANCE, FIRST_INSTANCE + seeds)
    for seed in numbers:
        yield from (("cheap", solver, f, seed) for f in TARGETED for solver in CHEAP)
        yield from (("expensive", solver, name, seed) for name in FUNCTIONS for solver in EXPENSIVE)
        for earlier in numbers[:: max(1, seeds // 3)]:
            if earlier + 2 == seed:
                yield from (("expensive", PROCESS, name, earlier) for name in FUNCTIONS)


def gathered(path: Path | None, minutes: float, jobs: Iterable[Job]) -> dict[Job, list[float]]:
    """What every job came to, as far as the time allows; those in the file are not run again."""
    done: dict[Job, list[float]] = {}
    if path is not None and path.exists():
        done = {tuple(job): found for job, found in map(json.loads, path.read_text().splitlines())}
    deadline = time.monotonic() + 60.0 * minutes
    for job in jobs:
        if job in done:
            continue
        if time.monotonic() > deadline:
            break
        kind, solver, problem, seed = job
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _targeted(solver, problem, seed) if kind == "cheap" else (_expensive(solver, problem, seed),)
        done[job] = list(found)
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps([job, found]) + "\n")
    return done


def _complete(done: dict[Any, list[float]], kind: str, solvers: tuple[str, ...]) -> dict[Any, dict[str, list[float]]]:
    """By problem and seed, what every solver came to, where all have finished."""
    found: dict[Any, dict[str, list[float]]] = defaultdict(dict)
    for (which, solver, problem, seed), numbers in done.items():
        if which == kind:
            found[problem, seed][solver] = numbers
    return {key: by_solver for key, by_solver in found.items() if set(by_solver) >= set(solvers)}


def ranks(done: dict[Any, list[float]]) -> dict[Any, tuple[int, np.ndarray[Any, Any]]]:
    """Of every function, and of all (``""``): how many runs, and the mean ranks of the solvers."""
    by_function: dict[Any, list[Any]] = defaultdict(list)
    for (name, _), found in _complete(done, "expensive", EXPENSIVE).items():
        ranked = rankdata([found[solver][0] for solver in EXPENSIVE])
        by_function[name].append(ranked)
        by_function[""].append(ranked)
    return {name: (len(rows), np.mean(rows, axis=0)) for name, rows in by_function.items()}


def evaluations(done: dict[Any, list[float]]) -> dict[int, tuple[int, dict[str, tuple[int, float]]]]:
    """Of every BBOB function: how many runs, and of every solver how many reached 1e-8 and the expected evaluations."""
    by_function: dict[int, list[dict[str, list[float]]]] = defaultdict(list)
    for (function, _), found in _complete(done, "cheap", CHEAP).items():
        by_function[function].append(found)
    table = {}
    for function, runs in sorted(by_function.items()):
        told = {}
        for solver in CHEAP:
            solved = sum(run[solver][0] <= 1e-8 for run in runs)
            spent = sum(run[solver][1] for run in runs)
            told[solver] = (solved, spent / solved if solved else np.inf)
        table[function] = (len(runs), told)
    return table


def beside_a_process(done: dict[Any, list[float]]) -> tuple[int, int, int]:
    """Runs in which ours, Optuna's Gaussian process, and neither was better."""
    pairs = [(by["varopt"][0], by[PROCESS][0]) for by in _complete(done, "expensive", ("varopt", PROCESS)).values()]
    wins, losses = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return wins, losses, len(pairs) - wins - losses


@benchmark
def fresh(config: Config) -> Iterator[Row]:
    """Mean ranks at 60 evaluations, and expected evaluations to 1e-8, on instances that nothing was tuned on."""
    minutes = float(os.environ.get("MINUTES", "30"))
    jobs = config.pick(_jobs(10), iter([("cheap", solver, 1, FIRST_INSTANCE) for solver in CHEAP]))
    done = gathered(None, minutes, jobs)
    if "" in (ranked := ranks(done)):
        count, mean = ranked[""]
        told = ", ".join(f"{s} {r:.2f}" for s, r in zip(EXPENSIVE, mean, strict=True))
        name = f"{BUDGET} evaluations, {count} runs: mean ranks {told}"
        yield Row(name, "varopt", "our mean rank / the best rival's", float(mean[0] / mean[1:].min()), 1.0)
    for function, (count, told_by) in evaluations(done).items():
        best = min(told_by[s][1] for s in CHEAP[1:])
        words = ", ".join(f"{s} {solved}/{count} {spent:.0f}" for s, (solved, spent) in told_by.items())
        yield Row(f"BBOB f{function}, d = 5: {words}", "varopt", "expected evaluations / the better rival's",
                  told_by["varopt"][1] / best, config.pick(1.0, np.inf))  # fmt: skip


def _bold(text: str, lost: bool) -> str:
    return f"**{text}**" if lost else text


def main() -> int:
    """Run, and print the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks.fresh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="a file of runs, to go on from")
    options = parser.parse_args()
    done = gathered(options.keep, options.minutes, _jobs(options.seeds))
    print(f"| function, {BUDGET} evaluations | runs | {' | '.join(EXPENSIVE)} |\n|---|---:|{'---:|' * len(EXPENSIVE)}")
    for name, (count, mean) in sorted(ranks(done).items(), key=lambda item: item[0] or "~"):
        cells = [_bold(f"{r:.2f}", i == 0 and r > mean[1:].min()) for i, r in enumerate(mean)]
        print(f"| {name or 'all, mean rank'} | {count} | {' | '.join(cells)} |")
    wins, losses, equal = beside_a_process(done)
    print(
        f"\nOptuna's GPSampler: ours better in {wins} runs, it in {_bold(str(losses), losses > wins)}, equal {equal}."
    )
    print(f"\n| BBOB, d = 5, 5,000 evaluations | runs | {' | '.join(CHEAP)} |\n|---|---:|{'---:|' * len(CHEAP)}")
    for function, (count, told) in evaluations(done).items():
        better = min(told[s][1] for s in CHEAP[1:])
        cells = [
            _bold(f"{spent:.0f} ({solved})" if solved else "none", s == "varopt" and (not solved or spent > better))
            for s, (solved, spent) in told.items()
        ]
        print(f"| f{function} | {count} | {' | '.join(cells)} |")
    return 0
