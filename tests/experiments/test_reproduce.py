"""The one command: what it writes, that it resumes, what it refuses, and that a wrong number makes it fail."""

import csv
import io
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

import varopt as vo
from varopt.experiments import _runner  # its console is replaced
from varopt.experiments import reproduce as module
from varopt.experiments._kept import compare, kept_run  # what is kept is compared by hand
from varopt.experiments._store import Store  # results are kept by hand
from varopt.experiments._tasks import ExperimentTask, Plan  # tasks are made by hand
from varopt.experiments.corrections import CORRECTIONS
from varopt.experiments.examples import all_states, box_relaxation
from varopt.experiments.problems import binary_quadratic
from varopt.experiments.report import Agreement, Check, ClaimVerdict, Section
from varopt.experiments.reproduce import EXPERIMENTS, reproduce
from varopt.experiments.statistics import (  # fitted by hand  # from numbers made here
    Growth,
    Interval,
    growth,
    mean,
    ratio,
    unpaired_ratio,
)
from varopt.experiments.svm import faster, is_separable
from varopt.experiments.table1 import PRINTED, RIVALS, place, relative_errors

ENVIRONMENT = {"machine": "m", "versions": {}}


def test_a_small_reproduction_holds_every_check_and_writes_everything(reproduction):
    folder, status = reproduction
    page = (folder / "report.html").read_text("utf-8")
    assert status == 0, re.findall(r'class="failed">(.*?)</li>', page)
    for name in EXPERIMENTS:
        assert f'<section id="{name}">' in page
    markdown = (folder / "report.md").read_text("utf-8")
    for figure in re.findall(r"\]\((figures/[^)]+)\)", markdown):
        assert (folder / figure).read_text("utf-8").count("<svg") == 1
    assert len(list((folder / "figures").iterdir())) == 9  # 3 + 1 + 4 panels, and Figure 4


def test_results_are_complete_in_csv_and_json(reproduction, small_plans):
    folder, _ = reproduction
    content = json.loads((folder / "results.json").read_text("utf-8"))
    assert {"machine", "versions", "seed", "mode", "source", "rows"} <= set(content)
    assert {"varopt", "numpy", "scipy", "python"} <= set(content["versions"])
    expected = sum(
        count * len(EXPERIMENTS[name].methods)
        for name, plan in small_plans.items()
        for count in plan.repetitions.values()
    )
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(content["rows"]) == expected
    assert {row["method"] for row in rows if row["experiment"] == "table1"} == set(EXPERIMENTS["table1"].methods)


def test_a_second_run_repeats_nothing_and_a_changed_seed_everything(reproduction, small_plans, monkeypatch, tmp_path):
    folder = shutil.copytree(reproduction[0], tmp_path / "again")
    before = (folder / "results.jsonl").read_bytes()
    asked = []
    monkeypatch.setattr(_runner, "run", lambda jobs, *rest: asked.extend(jobs))
    assert reproduce(folder, only=["table1"]) == 0
    assert asked == []
    assert (folder / "results.jsonl").read_bytes() == before
    with pytest.raises((KeyError, ValueError)):  # nothing ran, so there is nothing to report
        reproduce(folder, only=["table1"], seed=7)
    assert len(asked) == sum(small_plans["table1"].repetitions.values())


def test_seeds_reproduce_what_is_measured(reproduction, small_plans):
    folder, _ = reproduction
    rows = json.loads((folder / "results.json").read_text("utf-8"))["rows"]
    row = next(row for row in rows if row["experiment"] == "table1" and row["method"] == "Shooting")
    task = ExperimentTask("table1", row["size"], row["seed"], row["repetition"])
    (again,) = EXPERIMENTS["table1"].run(task, ["Shooting"])
    assert again["value"] == row["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ["nonsense"]}, "there is no experiment 'nonsense'; choose from table1, fused, figure4"),
        ({"seed": -1}, "seed must be an integer >= 0; got -1"),
        ({"jobs": 0}, "jobs must be an integer >= 1; got 0"),
        ({"minutes": 0.0}, "minutes must be a positive number; got 0.0"),
    ],
)
def test_bad_options_are_refused_before_any_work(options, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        reproduce(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_NEEDED", {"no_such_module": "no-such-package"})
    with pytest.raises(ValueError, match=r"needs no-such-package: pip install 'varopt\[experiments\]'"):
        reproduce(tmp_path)


def test_a_wrong_library_fails_the_run_with_a_sentence(monkeypatch, tmp_path, capsys):
    corrected = vo.sigma_for
    monkeypatch.setattr(vo, "sigma_for", lambda f, tolerance: 100.0 * corrected(f, tolerance))
    assert reproduce(tmp_path, only=["corrections"]) == 1
    assert "FAILED  Corrections to the paper: σ for a tolerance, lasso" in capsys.readouterr().out
    assert 'class="failed"' in (tmp_path / "report.html").read_text("utf-8")


def test_a_wrong_gradient_fails_the_step_example(monkeypatch, tmp_path, capsys):
    bound = vo.bound
    monkeypatch.setattr(vo, "bound", lambda f, family, **o: bound(f, _wider(family), **o))
    assert reproduce(tmp_path, only=["examples"]) == 1
    assert "contradicts  The bound of a step" in capsys.readouterr().out


def _wider(family):
    return family.replace(sigma=1.001 * family.sigma) if isinstance(family, vo.Gaussian) else family


# The store ----------------------------------------------------------------------------------------------------------


def test_rows_survive_a_torn_last_line_and_another_machine(tmp_path):
    path = tmp_path / "results.jsonl"
    task = ExperimentTask("e", 1, 0, 0)
    Store(path, ENVIRONMENT).add([task.row("a", seconds=1.0), task.row("b", seconds=2.0)])
    with path.open("a") as file:
        file.write('{"experiment": "e", "si')  # the power goes
    resumed = Store(path, ENVIRONMENT)
    assert resumed.missing(task, ["a", "b", "c"]) == ["c"]
    resumed.add([task.row("c", seconds=3.0)])
    assert [row["seconds"] for row in Store(path, ENVIRONMENT).rows([task])] == [1.0, 2.0, 3.0]
    other = Store(path, {"machine": "another", "versions": {}})
    assert other.foreign == 3
    assert other.missing(task, ["a", "b", "c"]) == ["a", "b", "c"]
    other.clear()
    assert not path.exists()


def test_rows_of_another_budget_or_seed_are_not_those_asked_for(tmp_path):
    store = Store(tmp_path / "results.jsonl", ENVIRONMENT)
    store.add([ExperimentTask("e", 1, 0, 0, budget=10).row("a")])
    assert store.missing(ExperimentTask("e", 1, 0, 0, budget=20), ["a"]) == ["a"]
    assert store.missing(ExperimentTask("e", 1, 1, 0, budget=10), ["a"]) == ["a"]
    assert store.missing(ExperimentTask("e", 1, 0, 0, budget=10, cost=9.0), ["a"]) == []


# The runner ---------------------------------------------------------------------------------------------------------


def test_a_run_of_limited_time_reports_on_what_there_is(small_plans, tmp_path, capsys):
    assert reproduce(tmp_path, only=["table1"], jobs=1, minutes=1e-6) == 0  # not one repetition was begun
    assert "Table 1" not in (tmp_path / "report.md").read_text("utf-8")
    plan = Plan({10: 5, 50: 5}, 7)
    rows = [{"size": 10, "repetition": k} for k in (0, 0, 1)]
    assert plan.done(rows) == Plan({10: 2}, 7)


def test_without_a_terminal_a_line_a_minute_says_how_far_it_is(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=False, width=200)
    progress = _runner._bar(console)
    progress.advance(progress.add_task("table1", total=4.0), 1.0)
    assert _runner._say(console, progress, time.monotonic()) <= time.monotonic()
    assert console.file.getvalue() == ""  # the last line was just now
    _runner._say(console, progress, time.monotonic() - 61.0)
    assert "table1 25 %" in console.file.getvalue()


def test_a_short_run_is_compared_with_the_long_one():
    section = Section("table1", "t")
    section.verdict("a", "m", True, rule="r")
    section.verdict("b", "m", True, rule="r")
    section.verdict("c", "m", True, rule="r")
    found = [{"claim": "a", "outcome": "agrees"}, {"claim": "b", "outcome": "contradicts"}]
    compare([section], {"table1": {"repetitions": "500", "verdicts": found}})
    assert [verdict.kept for verdict in section.of_kind(ClaimVerdict)] == [
        "The same in the full run that is kept (500).", "Not so: contradicts in the full run that is kept (500).", "",
    ]  # fmt: skip


def test_the_kept_run_judges_claims_that_are_still_made(reproduction):
    folder, _ = reproduction
    made = json.loads((folder / "verdicts.json").read_text("utf-8"))
    kept = kept_run()
    assert set(kept) <= set(EXPERIMENTS)
    for name in kept:
        run = kept[name]
        claims = {found["claim"] for found in made[name]["verdicts"]}
        # A small run has sizes of its own; what it claims without a size it has to share with the kept one.
        assert claims & {found["claim"] for found in run["verdicts"]}


def test_an_error_in_a_worker_is_raised_and_what_finished_is_kept(tmp_path):
    store = Store(tmp_path / "results.jsonl", ENVIRONMENT)
    experiment = EXPERIMENTS["table1"]
    jobs = [
        (experiment, ExperimentTask("table1", 5, 0, 0), ["Shooting"]),
        (experiment, ExperimentTask("table1", 5, 0, 1, cost=0.1), ["nonsense"]),
    ]
    with pytest.raises(KeyError, match="nonsense"):
        _runner.run(jobs, store, 1, Console(quiet=True))
    assert store.missing(ExperimentTask("table1", 5, 0, 0), ["Shooting"]) == []


def test_an_interrupt_says_how_to_go_on_and_keeps_what_finished(tmp_path):
    code = (  # the handler: whatever runs in the background of a shell inherits that interrupts are ignored
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import sys; from pathlib import Path; from varopt.experiments.reproduce import reproduce\n"
        "if __name__ == '__main__': sys.exit(reproduce(Path(sys.argv[1]), only=['figure4'], jobs=1))"
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    command = [sys.executable, script, tmp_path / "out"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert "repetitions, 0 of them done before" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=600)  # a guard: what runs is allowed to end, on however busy a machine
    assert process.returncode == 130
    assert "run the same command again to go on from there" in " ".join(error.split())
    assert "Traceback" not in error


# Arithmetic of the sections -----------------------------------------------------------------------------------------


def test_printed_values_cover_every_method_of_the_paper():
    for table in PRINTED.values():
        assert set(table) == {"Variational optimization", *RIVALS}


def test_relative_errors_are_against_the_best_of_the_same_repetition():
    rows = [
        {"repetition": 0, "method": "a", "value": 2.0},
        {"repetition": 0, "method": "b", "value": 1.0},
        {"repetition": 1, "method": "a", "value": 10.0},
        {"repetition": 1, "method": "b", "value": 11.0},
    ]
    assert relative_errors(rows) == {"a": [1.0, 0.0], "b": [0.0, pytest.approx(0.1)]}


def test_growth_recovers_an_exponent_and_leaves_out_what_did_not_arrive(rng):
    sizes = [100, 200, 400, 800]
    rows = [
        {"method": "m", "size": n, "seconds": 1e-6 * n**1.7 * math.exp(0.01 * rng.standard_normal())}
        for n in sizes
        for _ in range(5)
    ]
    fit = growth(rows, "m")
    assert fit.exponent == pytest.approx(1.7, abs=0.03)
    assert 0.0 < fit.error < 0.02
    assert (fit.sizes, fit.first) == (4, 100)
    assert str(fit).startswith("1.7")
    rows.append({"method": "m", "size": 100, "seconds": None})
    assert (growth(rows, "m").sizes, growth(rows, "m").first) == (3, 200)
    assert str(growth(rows, "m")) == "unknown"  # three sizes are too few


def test_growths_are_compared_by_the_interval_of_their_difference():
    slow, fast, vague = Growth(1.0, 0.1, 4, 1, 8), Growth(2.0, 0.1, 4, 1, 8), Growth(2.0, 1.0, 4, 1, 8)
    assert Growth(1.0, 0.1, 4, 1, 1).against(fast) is Agreement.OPEN  # too few repetitions to tell
    assert slow.against(fast) is Agreement.AGREES
    assert fast.against(slow) is Agreement.CONTRADICTS
    assert slow.against(vague) is Agreement.OPEN
    assert slow.against(Growth(math.nan, math.nan, 2, 1)) is Agreement.OPEN


def test_intervals_hold_what_they_estimate_as_often_as_they_say(rng):
    hits = [found.low <= 3.0 <= found.high for found in (mean(rng.normal(3.0, 2.0, 5)) for _ in range(2000))]
    assert 0.93 < np.mean(hits) < 0.97
    factors = [ratio(np.exp(rng.normal(1.0, 0.3, 6)), np.exp(rng.normal(0.0, 0.3, 6))) for _ in range(2000)]
    assert 0.93 < np.mean([found.low <= math.e <= found.high for found in factors]) < 0.97
    apart = [unpaired_ratio(np.exp(rng.normal(1.0, 0.5, 4)), np.exp(rng.normal(0.0, 0.1, 9))) for _ in range(2000)]
    assert 0.92 < np.mean([found.low <= math.e <= found.high for found in apart]) < 0.98


def test_an_interval_decides_only_where_it_can():
    assert Interval(2.0, 1.5, 2.5).inside(1.0, 3.0) is Agreement.AGREES
    assert Interval(2.0, 0.5, 2.5).inside(1.0, 3.0) is Agreement.OPEN
    assert Interval(2.0, 1.5, 2.5).below(1.0) is Agreement.CONTRADICTS
    assert mean([1.0]).below(100.0) is Agreement.OPEN  # one repetition decides nothing
    assert ratio([2.0, 2.0], [1.0, 1.0]).above(1.0) is Agreement.AGREES
    assert "too few" in str(mean([1.0]))


def test_places_follow_from_intervals():
    sooner, later, unclear = Interval(-0.5, -0.6, -0.4), Interval(2.0, 1.5, 3.0), Interval(0.0, -0.5, 0.5)
    assert place([sooner, sooner]) == (1, 1)
    assert place([sooner, later]) == (2, 2)
    assert place([sooner, later, unclear]) == (2, 3)


def test_who_is_faster_counts_who_does_not_arrive():
    def rows(**times):
        return [
            {"method": m, "size": 9, "repetition": k, "seconds": t} for m, ts in times.items() for k, t in enumerate(ts)
        ]

    assert faster(rows(a=[1.0, 1.1, 0.9], b=[5.0, 6.0, 5.5]), "a", "b", 9) is Agreement.AGREES
    assert faster(rows(a=[1.0, 9.0], b=[2.0, 1.0]), "a", "b", 9) is Agreement.OPEN
    assert faster(rows(a=[1.0, 1.0], b=[None, None]), "a", "b", 9) is Agreement.AGREES
    assert faster(rows(a=[None, None], b=[1.0, 1.0]), "a", "b", 9) is Agreement.CONTRADICTS
    assert faster(rows(a=[None, 1.0], b=[1.0, 1.0]), "a", "b", 9) is Agreement.OPEN


def test_separability_by_a_linear_programme(rng):
    y = np.where(np.arange(60) % 2, 1.0, -1.0)
    X = rng.normal(size=(60, 3)) + 2.0 * np.outer(y, [1.0, 0.0, 0.0])
    X[:, 0] = np.where(y > 0, np.abs(X[:, 0]) + 0.01, -np.abs(X[:, 0]) - 0.01)
    assert is_separable(X, y)
    X[0, 0] = 50.0  # of the other class, far inside this one
    assert not is_separable(X, y)


@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_every_correction_holds_on_other_draws(correction, seed):
    found = correction(np.random.default_rng([99, seed]))
    assert found.printed_fails, found.evidence
    assert found.corrected_holds, found.evidence


def test_box_relaxation_is_above_the_maximum_and_exact_where_bits_do_not_interact(rng):
    for _ in range(10):
        p = binary_quadratic(rng, 6)
        f = p.objective()
        assert max(f(x) for x in all_states(6)) <= box_relaxation(p.A, p.b)
    assert box_relaxation(np.zeros((3, 3)), np.array([1.0, -2.0, 3.0])) == pytest.approx(4.0)


def test_not_a_number_fails_a_check():
    section = Section("s", "S")
    section.equal("equal", np.nan, np.nan)
    section.check("below", np.array([0.0, np.nan]) <= 1.0)
    assert [check.holds for check in section.of_kind(Check)] == [False, False]


def test_plans_follow_the_paper():
    assert EXPERIMENTS["table1"].full.repetitions == {50: 500, 200: 500}
    assert EXPERIMENTS["fused"].full.repetitions == {500: 1000}
    assert set(EXPERIMENTS["figure4"].full.repetitions.values()) == {50}
    assert str(Plan({50: 2, 200: 1})) == "2 of size 50, 1 of size 200"
    assert str(Plan({50: 3, 200: 1, 400: 3, 800: 3})) == "3 of each size 50, 400 and 800, 1 of size 200"
    assert Agreement.CONTRADICTS.value == "contradicts"
