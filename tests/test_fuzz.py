"""A short part of `make fuzz`, and that the harness sees what it is there to see."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import varopt as vo
from fuzz.bits import bits
from fuzz.choices import choices
from fuzz.compositions import compositions
from fuzz.constraints import Limit, constraints
from fuzz.constraints import _contradiction as contradiction_complaints
from fuzz.constraints import complaints as constrained_complaints
from fuzz.estimators import NAMES, estimators
from fuzz.estimators import _judge as judged
from fuzz.gather import gathered
from fuzz.kernels import kernel_bracket
from fuzz.oracle import clarabel_point, complaints
from fuzz.problems import Block, Problem, random_problem
from fuzz.report import COLUMNS, Finding, Report
from fuzz.run import check, composite, shrunk
from varopt import learn


def shown(report):
    return [f"{f.text}\n{f.program}" for f in report.serious()]


@pytest.mark.parametrize("seed", range(8))
def test_ordinary_problems(seed):
    report = Report()
    composite(seed, report, extreme=False, shrink=False)
    assert not shown(report)


@pytest.mark.parametrize("seed", range(60))
def test_bits(seed):
    report = Report()
    bits(seed, report)
    assert not shown(report)


@pytest.mark.parametrize("seed", range(len(NAMES)))
def test_estimators(seed):
    report = Report()
    estimators(seed, report, extreme=False)
    assert not shown(report)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("convex", [True, False])
def test_exact_values_agree_with_the_objective(seed, convex):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, extreme=seed % 2 == 0, convex=convex)
    f = problem.build()
    for x in (np.zeros(problem.dimension), rng.standard_normal(problem.dimension)):
        exact, size = problem.value(x)
        assert abs(exact - Fraction(f(x) if problem.dimension > 1 or len(f.variables) > 1 else f([x[0]]))) <= (
            size * Fraction(1, 10**13)
        )


@pytest.mark.parametrize("seed", range(12))
def test_the_second_solver_solves_the_same_problem(seed):
    problem = random_problem(np.random.default_rng(seed), extreme=False)
    status, x = clarabel_point(problem)
    result = vo.minimize(problem.build(), time_limit=1.0)
    if status == "Solved" and result.status is vo.Status.OPTIMAL:
        assert float(problem.value(x)[0]) == pytest.approx(result.fun, rel=1e-5, abs=1e-5)


STEEP = Problem(
    2,
    (
        Block("abs", 1e12, matrix=[[1.0, 1.0]]),
        Block("linear", 1.0, matrix=[[0.0, 1e-4]]),
        Block("pos", 2e-4, matrix=[[0.0, -1.0]], offset=np.array([-1e6])),
    ),
)


def test_a_false_bound_is_seen_where_steep_terms_are_silent():
    """``1e12 |w + b| + 1e-4 b + 2e-4 (-b - 1e6)_+``: whoever claims a bound of about zero is contradicted."""
    result = vo.minimize(STEEP.build())
    false = replace(result, x=np.zeros(2), fun=0.0, certificate=vo.certificates.DualGap(-1e-10, 0.0))
    found = [*complaints(STEEP, false, 1e-9, np.random.default_rng(0))]
    assert any(text.startswith("UNSOUND:") for text in found)
    right = replace(result, x=np.array([1e6, -1e6]), fun=-100.0, certificate=vo.certificates.DualGap(-100.1, -100.0))
    assert not [t for t in complaints(STEEP, right, 1e-2, np.random.default_rng(0)) if "UNSOUND" in t]


def test_failures_shrink():
    problem = random_problem(np.random.default_rng(5), extreme=False)
    bent = replace(problem, blocks=(*problem.blocks, Block("huber", 1.0, "identity", parameters=(0.5,))))
    small = shrunk(bent, lambda p: any(b.term == "huber" for b in p.blocks))
    assert [b.term for b in small.blocks] == ["huber"]
    assert check(small, "auto", 0)[1] == "OPTIMAL"


@pytest.mark.parametrize("seed", range(3000, 3020))
def test_constraints(seed):
    report = Report()
    constraints(seed, report)
    assert not shown(report)
    assert not [f.text for f in report.findings if f.kind in ("gap open", "NOT PROVED")]


@pytest.mark.parametrize("seed", [1210040009, 1220070000])
def test_constraints_whose_parts_cancel_or_whose_norms_hide_multipliers(seed):
    """A value that no point has, two above that at x; and multipliers of a point that another method had found."""
    report = Report()
    constraints(seed, report)
    assert not report.findings, report.programs()


@pytest.mark.parametrize("seed", range(6))
def test_choices(seed):
    report = Report()
    choices(seed, report)
    assert not report.findings, report.programs()


@pytest.mark.parametrize("seed", [*range(12), 70, 200023])  # the last two rest at zero, which norms hid
def test_compositions(seed):
    report = Report()
    compositions(seed, report)
    assert not report.findings, report.programs()


def test_values_in_floating_point_are_about_the_exact_ones():
    """They decide which points are worth rational arithmetic."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, extreme=seed % 2 == 0, convex=seed % 3 > 0)
        points = rng.standard_normal((3, problem.dimension))
        for x, value, size in zip(points, *problem.about(points), strict=True):
            assert abs(Fraction(value) - problem.value(x)[0]) <= Fraction(1e-12) * Fraction(size)


def test_a_report_counts_by_part_and_run(tmp_path):
    report = gathered({"bits": 1.0}, seed=3, seconds=0.0, workers=1)
    assert report.problems == {"bits": 1}
    found = [("UNSOUND", 1), ("UNSOUND", 1), ("gap open", 2), ("gap open without a warning", 2), ("late", 3)]
    other = Report(findings=[Finding(kind, "auto", "", seed, "pass\n", "bits") for kind, seed in found])
    report.add(other)
    assert {f.column for f in report.serious()} == {"unsound", "wrong status", "late"}
    assert "1 (100.00 %)" in report.table().splitlines()[1]
    report.write(tmp_path / "record.json", seed=3)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["columns"] == {"bits: unsound": 1, "bits: gap open": 1, "bits: wrong status": 1, "bits: late": 1}
    assert set(COLUMNS) >= {key.removeprefix("bits: ") for key in record["columns"]}


def test_exact_objectives_of_estimators_see_a_false_bound():
    X, y = np.arange(6.0)[:, None], np.arange(6.0) ** 2
    model = learn.Lasso(alpha=0.1).fit(X, y)
    findings = []
    judged(model, X, y, None, False, lambda what, text: findings.append(what), Report())
    assert not findings
    model.lower_bound_ = model.objective_ * (1.0 + 1e-13)
    model.objective_ = model.lower_bound_
    model.coef_ = model.coef_ * 1.001
    judged(model, X, y, None, False, lambda what, text: findings.append(what), Report())
    assert findings[0].startswith("fun")


def test_brackets_of_kernel_machines_are_seen_to_be_false():
    X, y = np.arange(9.0)[:, None], np.sin(np.arange(9.0))
    model, findings = learn.SVR(C=10.0).fit(X, y), []
    lower, upper = model.lower_bound_, model.objective_
    for model.lower_bound_, model.objective_, seen in (
        (lower, upper, []),
        (upper * (1.0 + 1e-11), upper * (1.0 + 2e-11), ["UNSOUND"]),
        (lower * (1.0 - 2e-11), lower * (1.0 - 1e-11), ["UNSOUND"]),
        (lower * 0.98, lower * 0.99, ["UNSOUND", "fun: objective_ is not that of the coefficients"]),
    ):
        findings.clear()
        kernel_bracket(model, X, y, None, lambda what, text: findings.append(what))
        assert findings == seen


@pytest.mark.parametrize("seed", [900140007, 940010006])
def test_forms_that_rounding_bends_down_are_unbounded_in_fractions(seed):
    """A second solver stops where the quadratic form was convex before it was rounded; far out the values fall."""
    problem = random_problem(np.random.default_rng(seed), extreme=True)
    result = vo.minimize(problem.build(), time_limit=30.0)
    assert result.status is vo.Status.UNBOUNDED
    assert clarabel_point(problem)[0] == "Solved"
    assert not [*complaints(problem, result, 1e-9, np.random.default_rng(seed), clarabel_point(problem))]


@pytest.mark.parametrize("seed", [610020001, 610200041, 610370037, 610760026, 610980015, 611040006, 611050054])
def test_multipliers_that_balance_but_for_rounding_of_steep_rows_are_not_called_wrong(seed):
    """Near an optimum of zero nothing is added up; where the Lagrangian is compared with it, large numbers are."""
    report = Report()
    constraints(seed, report, extreme=True)
    assert not shown(report)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 2e10])
@pytest.mark.parametrize("share", [1e-3, -1e-3])
def test_false_multipliers_are_seen(unit, share):
    blocks = (Block("linear", 1.0, matrix=np.array([[-3.0 * unit]])), Block("abs", unit, matrix=np.eye(1)))
    problem, w = Problem(1, blocks), vo.Variable(1)
    rows, bound = np.array([[1.0], [-1.0]]), np.array([1.0, 0.0])
    f, given = unit * (-3.0 * w[0] + vo.norm1(w)), [rows @ w <= bound]
    result = vo.minimize(f, subject_to=given)

    def wrong(result):
        told = {"inside": np.zeros(1), "feasible": True}
        return [*constrained_complaints(problem, [Limit("", rows, bound)], result, given, f, **told)]

    assert not wrong(result)
    tilted = {given[0]: result.multipliers[given[0]] + np.array([share * unit, 0.0])}
    assert "the Lagrangian falls" in wrong(replace(result, multipliers=tilted))[-1]


@pytest.mark.parametrize("seed", [117182, 1220030020, 1230070020, 91050074, 92140049])
def test_results_under_constraints_that_are_right_are_not_called_wrong(seed):
    """Optima of zero, and multipliers that balance but for rounding: the harness was stricter than its own digits."""
    report = Report()
    constraints(seed, report)
    assert not shown(report)


def test_a_run_ends_after_so_many_problems_and_tells_of_each_chunk(monkeypatch):
    monkeypatch.setattr("fuzz.gather.CHUNK", 0.0)  # one problem each
    told = []
    report = gathered(
        {"bits": 0.5, "constraints": 0.5}, 0, 600.0, 1, 3, lambda r: told.append(sum(r.problems.values()))
    )
    assert report.problems == {"bits": 3, "constraints": 3}
    assert told == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("seed", range(72000000, 72000008))
def test_steep_constraints(seed):
    report = Report()
    constraints(seed, report, extreme=True)
    assert not shown(report)


def test_a_false_proof_of_contradictions_is_seen():
    """Without the multiplier of a faint row the combination proves nothing; sums in floating point do not tell."""
    w, faint = vo.Variable(2), 2.0**-30
    rows = np.array([[-0.75, -1.375], [0.75 + faint, 1.375]])
    given = [rows @ w <= np.array([5.75, -1.75]), faint * w[0] >= 4.5]
    limits = [Limit("", rows, np.array([5.75, -1.75])), Limit("", np.array([[-faint, 0.0]]), np.array([-4.5]))]
    proof = vo.minimize(vo.norm1(w), subject_to=given).proof
    assert not [*contradiction_complaints(limits, proof, given)]
    false = replace(proof, multipliers={given[0]: np.ones(2), given[1]: 0.0})
    assert [*contradiction_complaints(limits, false, given)]
