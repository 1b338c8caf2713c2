"""The benchmarks' own arithmetic; the speeds themselves are for `make bench`."""

import itertools
import json
import re
import tracemalloc
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import datasets

from benchmarks import _measure, _registry, _report, learn, methods
from benchmarks._cut_rivals import Cut, bifurcated
from benchmarks.annealing import graph_of
from benchmarks.composite import _data
from benchmarks.cuts._runs import Job, Kept
from benchmarks.versions import _turns
from benchmarks.versions.__main__ import main as compare_versions
from varopt.solvers import METHODS


def row(**changes):
    return _registry.Row(
        **({"problem": "p", "solver": "s", "ratio_of": "a / b", "ratio": 0.5, "target": 1.0} | changes)
    )


def test_compare_alternates_the_order():
    calls = []
    timed = _measure.compare(lambda: calls.append("c"), lambda: calls.append("b"), rounds=3)
    assert "".join(calls) == "bc" + "bc" + "cb" + "bc"
    assert len(timed.candidate.warm) == len(timed.baseline.warm) == 3


def test_ratio_pairs_the_rounds():
    # one slow spell that hits both calls of a round leaves the ratio alone
    timed = _measure.Comparison(_measure.Timing(9.0, (2.0, 200.0, 2.0)), _measure.Timing(9.0, (1.0, 100.0, 1.0)))
    assert timed.ratio == 2.0


def test_compare_refuses_no_rounds():
    with pytest.raises(ValueError, match="rounds must be at least 1; got 0"):
        _measure.compare(int, int, rounds=0)


def test_peak_memory_counts_an_array_and_stops_tracing():
    assert 8e6 <= _measure.peak_memory(lambda: np.ones(10**6)) < 9e6
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize(
    ("changes", "passed"), [({}, True), ({"ratio": 2.0}, False), ({"status": "loads torch"}, False)]
)
def test_row_passes_only_within_target_and_without_complaint(changes, passed):
    assert row(**changes).passed is passed


def test_skipped_row_neither_passes_a_target_nor_fails_the_run():
    absent = row(ratio=float("nan"), skipped="not installed: celer")
    assert (absent.verdict, absent.passed, absent.ran) == ("skipped", True, True)
    assert absent.remarks == "a / b; not installed: celer"
    assert _report.record(absent)["ratio"] is None


def test_memory_has_a_target_of_its_own():
    assert row(peak_bytes=29, data_bytes=10, memory_target=3.0).verdict == "ok"
    heavy = row(peak_bytes=31, data_bytes=10, memory_target=3.0)
    assert (heavy.verdict, heavy.remarks) == ("MISSED", "a / b; memory above 3 times the data")
    assert not heavy.passed
    assert heavy.ran


def test_gap_is_relative_to_a_large_objective_only():
    assert row(gap=1.0, objective=-100.0).relative_gap == 0.01
    assert row(gap=1.0, objective=0.5).relative_gap == 1.0


def test_allowance_is_forgiven_in_every_round():
    timed = _measure.Comparison(_measure.Timing(9.0, (2.0, 4.0, 0.5)), _measure.Timing(9.0, (1.0, 1.0, 1.0)))
    assert timed.ratio_beyond(1.0) == 1.0


def test_table_is_aligned_and_says_what_missed():
    header, first, second = _report.table([row(), row(problem="a longer problem", ratio=2.0)]).splitlines()
    assert header.index("ratio of") == first.index("a / b") == second.index("a / b")
    assert "MISSED" in second
    assert "MISSED" not in first


def test_record_is_complete_json(tmp_path):
    pytest.importorskip("threadpoolctl", reason="the bench extra is not installed")
    timing = _measure.Timing(2.0, (1.0, 3.0, 1.5))
    content = json.loads(_report.write([row(timing=timing)], "suite", True, tmp_path).read_text())
    assert content["machine"]["cores"] >= 1
    (entry,) = content["rows"]
    assert (entry["seconds_cold"], entry["seconds_warm_best"], entry["seconds_warm_median"]) == (2.0, 1.0, 1.5)
    assert {"varopt", "numpy", "scipy", "python"} <= set(entry["versions"])


def test_every_suite_has_benchmarks():
    assert {suite: bool(_registry.load(suite)) for suite in _registry.suites()} == dict.fromkeys(
        _registry.suites(), True
    )


def test_unknown_suite_is_named():
    with pytest.raises(ValueError, match="suite must be one of"):
        _registry.load("nonsense")


def test_every_method_behind_auto_has_a_problem_of_its_own():
    """The paper's two are the only ones that `auto` does not take, and so cannot be missed by it."""
    named = [case.method for case in methods.cases(_registry.Config(quick=True))]
    assert sorted([*named, "diagonal-newton", "lbfgs"]) == sorted(METHODS)


def test_the_page_tells_what_every_method_behind_auto_is_worth():
    """In the order of the suite, and never less than a method has to be worth."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "methods.md").read_text("utf-8")
    table = page.split("\n## What each method is worth\n")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| `([a-z-]+)` \|.*\| ([^|]*) \|$", table)
    assert [name for name, _ in rows] == [case.method for case in methods.cases(_registry.Config(quick=True))]
    times = [re.match(r"([\d.]+) times", without) for _, without in rows]
    assert all(float(found[1]) >= methods.WORTH for found in times if found)
    assert sum(found is None for found in times) == sum(("gap" in text or "no method" in text) for _, text in rows)


def test_a_method_that_is_missed_passes_and_one_that_is_not_does_not(monkeypatch):
    """The ratio is that of the times with and without, and a gap that stays open without it counts as missed."""
    case = methods.Case("newton", "a problem", lambda: None)

    def runs(seconds, gap):
        return [methods.Run("newton", seconds, 1.0, 1.0 - gap)] * 2, ""

    outcomes = iter([runs(1.0, 0.0), runs(1.2, 0.0), runs(1.0, 0.0), runs(3.0, 0.0), runs(1.0, 0.0), runs(0.5, 1.0)])
    monkeypatch.setattr(methods, "_solved", lambda *arguments: next(outcomes))
    rows = [methods.earned(case, _registry.Config()) for _ in range(3)]
    assert [row.ratio for row in rows] == [pytest.approx(1.0 / 1.2), pytest.approx(1.0 / 3.0), 0.0]
    assert [row.verdict for row in rows] == ["MISSED", "ok", "ok"]


def test_data_that_are_not_at_hand_are_downloaded_once_or_skipped_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(_data, "SHARED", tmp_path)
    X = sp.csr_matrix(np.eye(3))
    monkeypatch.setattr(datasets, "fetch_openml", lambda name, **_: (X, np.array(["-1", "1", "-1"])))
    found, labels = learn._fits._sparse("a9a.bz2")
    assert (found != X).nnz == 0
    assert labels.tolist() == [-1.0, 1.0, -1.0]

    def unreachable(*_, **__):
        raise URLError("no network")

    for name in ("fetch_openml", "fetch_california_housing"):
        monkeypatch.setattr(datasets, name, unreachable)
    assert (
        learn._fits._sparse("a9a.bz2") is learn._fits._sparse("reuters.bz2") is learn._fits.california_housing() is None
    )
    assert _data.absent("a9a.bz2").endswith("VAROPT_DATA names and cannot be downloaded")
    assert _data.absent("reuters.bz2").endswith("VAROPT_DATA names")


@pytest.mark.parametrize("setting", [4.0, -4.0])
def test_bifurcation_finds_small_cuts(setting):
    graph = graph_of("dense +-1", 12, np.random.default_rng(0))
    found = bifurcated(graph, 0.1, 0, setting)
    x = np.array(list(itertools.product([-1.0, 1.0], repeat=12)))
    cuts = 0.25 * (graph.sum() - np.einsum("ki,ij,kj->k", x, graph, x))
    assert found.value == cuts.max()


def test_runs_are_kept_and_settings_are_those_that_were_best(tmp_path):
    path = tmp_path / "runs.jsonl"
    kept = Kept(path)
    short, long = Job("annealing", "planar 100", 5.0), Job("annealing", "planar 100", 20.0)
    assert kept.settings(short, (1.0, 4.0)) == (1.0, 4.0)
    kept.add(short, [Cut(7.0, 1.0, np.inf, 5.0), Cut(9.0, 4.0, np.inf, 5.0), Cut(9.0, 16.0, np.inf, 5.0)])
    assert kept.settings(long, (1.0, 4.0)) == (4.0,)  # of equal ones the longer runs
    kept.add(long, [Cut(8.0, 4.0, np.inf, 20.0)])
    again = Kept(path)
    assert list(again.jobs()) == [short, long]
    assert again.best(long).value == 8.0
    assert again.best_within(long).value == 9.0


def test_versions_are_compared_on_the_same_calls_and_values():
    source = _turns.ROOT / "src"
    (turns,) = _turns.compared(source, source, "total variation", quick=True, rounds=2)
    assert turns.name == "total variation of 300 points"
    assert turns.values[0] == turns.values[1] != 0.0
    assert len(turns.before) == len(turns.after) == 2
    assert min(*turns.before, *turns.after) > 0.0


def test_versions_are_apart_by_their_fewest_seconds_and_noise_is_within_the_quartiles():
    turns = _turns.Turns("p", (1.0, 2.0, 1.0), (2.0, 2.0, 3.0), (0.0, 0.0))
    assert turns.ratio == 2.0
    assert turns.spread == (1.5, 2.5)


def test_another_version_must_be_a_checkout(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["versions", str(tmp_path)])
    with pytest.raises(SystemExit):
        compare_versions()
    assert "must be a checkout of the project" in capsys.readouterr().err
