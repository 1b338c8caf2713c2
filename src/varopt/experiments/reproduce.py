"""The one command: run what is missing, write the results, write the report."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from varopt.experiments._environment import environment
from varopt.experiments._kept import compare, kept_run, write_verdicts
from varopt.experiments._store import Store
from varopt.experiments._tasks import Experiment
from varopt.experiments.corrections import Corrections
from varopt.experiments.examples import Examples
from varopt.experiments.figures import Figure1, Figure2, Figure3
from varopt.experiments.fused import Fused
from varopt.experiments.report import Page, html_page, markdown_page
from varopt.experiments.svm import SupportVectors
from varopt.experiments.table1 import Table1

__all__ = ["EXPERIMENTS", "SEED", "reproduce"]

SEED = 2012
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Table1(), Fused(), SupportVectors(), Figure1(), Figure2(), Figure3(), Examples(), Corrections()
    )
}  # fmt: skip
_NEEDED = {"matplotlib": "matplotlib", "sklearn": "scikit-learn", "piqp": "piqp", "rich": "rich"}
_LEAD = (
    "Joe Staines and David Barber's *Variational Optimization* (arXiv:1212.4507, 2012) replaces an objective without a "
    "useful gradient by its average under a distribution: a differentiable bound on the optimum. This page runs the "
    "paper's experiments again and sets each of its claims beside what was measured. Where the two differ it says so; "
    "nothing was tuned to agree."
)


def reproduce(
    folder: Path, *, full: bool = False, only: Sequence[str] = (), seed: int = SEED, jobs: int | None = None,
    fresh: bool = False, minutes: float | None = None,
) -> int:  # fmt: skip
    """Run the experiments and write the report; 1 if a check failed, 130 after an interrupt.

    Parameters
    ----------
    folder : Path
        Where ``report.html``, ``report.md``, ``figures``, ``results.csv``, ``results.json`` and ``verdicts.json`` go,
        and where ``results.jsonl`` keeps every finished repetition.
    full : bool
        The paper's numbers of repetitions instead of a few.
    only : sequence of str
        Names of experiments; all by default.
    seed : int
        Seeds every repetition.
    jobs : int, optional
        Worker processes, by default one per core.
    fresh : bool
        Forget what an earlier run left in the folder.
    minutes : float, optional
        Begin no repetition after so many minutes, and report on those there are.

    Raises
    ------
    ValueError
        For an unknown experiment, and for a missing package.
    """
    chosen = _choose(only)
    _check(seed, jobs, minutes)
    from rich.console import Console  # an extra, as is what shows its progress: named above where it is missing

    from varopt.experiments._runner import run

    started = time.perf_counter()
    console = Console(stderr=True)
    store = Store(folder / "results.jsonl", environment())
    if fresh:
        store.clear()
    if store.foreign:
        console.print(f"Leaving {store.foreign} rows aside: they come from another machine, version or source.")
    plans = {experiment: experiment.full if full else experiment.quick for experiment in chosen}
    tasks = {experiment: experiment.tasks(plan, seed) for experiment, plan in plans.items()}
    waiting = [
        (experiment, task, missing)
        for experiment, repetitions in tasks.items()
        for task in repetitions
        if (missing := store.missing(task, experiment.methods))
    ]
    total = sum(map(len, tasks.values()))
    workers = min(jobs or os.cpu_count() or 1, max(len(waiting), 1))
    try:
        if total:
            console.print(f"{total} repetitions, {total - len(waiting)} of them done before.")
        run(waiting, store, workers, console, minutes)
    except KeyboardInterrupt:
        console.print("Interrupted. What finished is kept: run the same command again to go on from there.")
        return 130
    sections, ran = [], {}
    for experiment, plan in plans.items():
        rows = store.rows(tasks[experiment])
        if minutes is None or rows or not plan.repetitions:
            done = plan if minutes is None else plan.done(rows)
            sections.append(experiment.section(rows, done, seed))
            ran[experiment.name] = str(done)
    if not full:
        compare(sections, kept_run())
    mode = "full" if full else "quick"
    known = store.environment
    facts = {
        "mode": mode,
        "seed": str(seed),
        "jobs": str(jobs or os.cpu_count() or 1),
        "machine": str(known["machine"]),
        "versions": ", ".join(f"{name} {version}" for name, version in known["versions"].items()),
        "source": str(known["source"]),
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "again": " ".join(["varopt reproduce", f"--{mode}", f"--seed {seed}", *(f"--only {name}" for name in only)]),
    }
    page = Page("Variational Optimization, reproduced", _LEAD, facts, sections)
    _write(page, folder)
    write_verdicts(sections, ran, facts, folder)
    store.export(store.rows(task for repetitions in tasks.values() for task in repetitions), folder, facts)
    _conclude(page, folder, time.perf_counter() - started)
    return 1 if page.failures else 0


def _choose(only: Sequence[str]) -> list[Experiment]:
    for name in only:
        if name not in EXPERIMENTS:
            raise ValueError(f"there is no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}.")
    absent = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if absent:
        raise ValueError(f"reproducing the paper needs {', '.join(absent)}: pip install 'varopt[experiments]'.")
    return [experiment for name, experiment in EXPERIMENTS.items() if not only or name in only]


def _check(seed: int, jobs: int | None, minutes: float | None) -> None:
    if seed < 0:
        raise ValueError(f"seed must be an integer >= 0; got {seed}.")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be an integer >= 1; got {jobs}.")
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes must be a positive number; got {minutes}.")


def _write(page: Page, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(html_page(page), encoding="utf-8")
    (folder / "report.md").write_text(markdown_page(page, folder), encoding="utf-8")


def _conclude(page: Page, folder: Path, seconds: float) -> None:
    out = sys.stdout
    width = max((len(verdict.outcome.value) for _, verdict in page.verdicts), default=0)
    for _, verdict in page.verdicts:
        out.write(f"{verdict.outcome.value:>{width}}  {verdict.claim} {verdict.kept}".rstrip() + "\n")
    for failure in page.failures:
        out.write(f"FAILED  {failure}\n")
    out.write(f"\nThe report is {folder / 'report.html'} (and report.md); it took {seconds:.0f} s.\n")
