"""How rivals are run and judged: with solvers made up here, so that no rival needs to be installed."""

import math
import subprocess
import time

import numpy as np
import pytest

import varopt as vo
from benchmarks import _isolate, _registry, _rivals
from benchmarks.composite import _data, _problem, _signals
from benchmarks.composite.rivals import lasso, programs, quantile, svm, total_variation

QUICK = _registry.Config(quick=True)


def square(name="a square"):
    def build():
        x = vo.Variable(3)
        return vo.sum_squares(x - np.array([1.0, -2.0, 0.05])) + 0.2 * vo.norm1(x)

    return _problem.Problem(name, build, (np.array([0.9, -1.9, 0.0]),), 24)


def rival(fit, ladder=({},), **changes):
    return _rivals.Rival("rival", lambda optimum: lambda **setting: fit(optimum, **setting), ladder, **changes)


@pytest.fixture(scope="module")
def contest():
    return _problem.certify(square(), None, 1.0, QUICK)


def test_isolated_returns_what_was_yielded_after_the_preparations():
    assert _isolate.isolated(lambda: iter(["prepared", 1, 2]), 60.0) == ([1, 2], "")


def test_isolated_names_the_error_and_keeps_what_came_before():
    def work():
        yield from (None, 1)
        raise KeyError("lost")

    assert _isolate.isolated(work, 60.0) == ([1], "KeyError: 'lost'")


@pytest.mark.skipif(not _isolate.FORKS, reason="limits need a fork")
def test_isolated_ends_the_work_and_what_it_started():
    def work():
        yield None
        sleeper = subprocess.Popen(["sleep", "600"])
        yield sleeper.pid
        time.sleep(600)

    (pid,), reason = _isolate.isolated(work, 0.5)
    assert reason == "stopped after 0.5 s"
    # a killed child of a killed parent is a zombie until the system collects it; either way it runs no more
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    assert state.strip()[:1] in ("", "Z")


@pytest.mark.skipif(not _isolate.FORKS, reason="in this process a death would be ours")
def test_isolated_survives_a_death():
    import os

    def work():
        yield None
        os._exit(3)

    assert _isolate.isolated(work, 60.0) == ([], "the process died with code 3")


def test_choice_is_the_cheapest_of_the_accurate():
    trials = [_rivals.Trial({"k": k}, s, v) for k, s, v in [(1, 1.0, 11.0), (2, 9.0, 10.0), (3, 5.0, 10.0 + 5e-9)]]
    assert _rivals.choose(trials, 10.0).setting == {"k": 3}  # accurate enough, and cheaper than the exact one
    assert _rivals.choose(trials[:1], 10.0).setting == {"k": 1}
    assert _rivals.choose([*trials[:1], _rivals.Trial({"k": 4}, 9.0, 10.5)], 10.0).setting == {"k": 4}


def test_certified_row_has_a_closed_gap_and_its_memory(contest):
    row = contest.row
    assert row.status == "ok"
    assert row.lower <= row.objective
    assert row.ratio == row.relative_gap / 1e-9 <= 1.0
    assert row.timing is not None
    assert row.memory > 0


def test_rival_is_judged_by_our_objective_at_its_point(contest):
    (row,) = contest.against([(rival(lambda optimum: optimum), 1.0)])
    assert row.objective == pytest.approx(contest.row.objective, abs=1e-12)
    (row,) = contest.against([(rival(lambda optimum: optimum + np.array([0.0, 0.0, 0.5])), 1.0)])
    assert row.gap == pytest.approx(0.5**2 - 2 * 0.5 * 0.05 + 0.1, abs=1e-9)


def test_ladder_is_climbed_until_it_is_accurate(contest):
    ladder = ({"off": 1.0}, {"off": 1e-3}, {"off": 0.0}, {"off": math.nan})
    (row,) = contest.against([(rival(lambda optimum, off: optimum + off, ladder), 1.0)])
    assert row.relative_gap <= 1e-9
    assert row.note == "off 0"
    (row,) = contest.against([(rival(lambda optimum, off: optimum + off, ladder[:2]), 1.0)])
    assert row.note == "off 0.001"


@pytest.mark.skipif(not _isolate.FORKS, reason="limits need a fork")
def test_rival_out_of_time_bounds_the_ratio(contest, monkeypatch):
    monkeypatch.setattr(_registry.Config, "pick", lambda self, full, quick: full)
    (row,) = contest.against([(rival(lambda optimum: time.sleep(600)), 0.5)], limit=0.5)
    assert row.note == "stopped after 0.5 s"
    assert row.ratio == pytest.approx(contest.our_seconds / 0.5)
    assert "at most" in row.ratio_of
    monkeypatch.setattr(_problem, "LONGEST", 0.5)
    (row,) = contest.against([(rival(lambda optimum: time.sleep(600)), 1e-9)], limit=0.5)
    assert row.skipped == "too early to tell"


def test_failing_rival_is_no_failure_of_ours(contest):
    (row,) = contest.against([(rival(lambda optimum: 1 / 0), 0.5)])
    assert row.skipped == "it failed"
    assert "ZeroDivisionError" in row.note
    assert row.passed


@pytest.mark.parametrize(
    "absent",
    [
        _rivals.Rival("rival", int, modules=("no_such_module",)),
        _rivals.Rival("rival", int, missing=lambda: "not installed: no_such_module"),
    ],
)
def test_absent_rival_is_a_row_that_says_so(contest, absent):
    (row,) = contest.against([(absent, 0.5)])
    assert row.skipped == "not installed: no_such_module"
    assert row.passed
    assert row.ran


def test_without_rscript_r_is_absent(monkeypatch):
    monkeypatch.setattr(quantile.shutil, "which", lambda name: None)
    assert quantile.FRISCH_NEWTON.absent == "not installed: Rscript"


RIVALS = {
    "quantile": (quantile.SCIKIT_LEARN, quantile.STATSMODELS, quantile.FRISCH_NEWTON, quantile.PREPROCESSED),
    "svm": (svm.LIBLINEAR, svm.REHLINE),
    "lasso": (lasso.GRAM, lasso.PLAIN, lasso.CELER),
    "signal": (programs.CLARABEL, programs.OSQP, total_variation.CONDAT),
}


def small(kind):
    """A problem for each kind of rival."""
    from benchmarks.composite import _lasso, _quantile, _svm

    if kind == "quantile":
        return _quantile.problem(*_data.heavy_tails(200, 3))
    if kind == "svm":
        return _svm.problem("svm", *_data.two_gaussians(100, 3), 1.0)
    if kind == "lasso":
        return _lasso.problem("lasso", *_data.autoregressive(100, 5, 0.5), 10.0)
    return _signals.filtered(_data.steps(60), 1, 2.0, "signal")


@pytest.mark.parametrize(
    ("kind", "which"),
    [(kind, r) for kind, rs in RIVALS.items() for r in rs],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.filterwarnings("ignore")
def test_rival_solves_the_same_problem(kind, which):
    # with its own parametrisation undone, a rival's point is nearly ours
    if absent := which.absent:
        pytest.skip(absent)
    problem = small(kind)
    best = vo.minimize(problem.build())
    point = which.prepare(*problem.data)(**which.ladder[min(4, len(which.ladder) - 1)])
    assert _rivals.excess(problem.build()(point), best.lower) == pytest.approx(0.0, abs=1e-3)
