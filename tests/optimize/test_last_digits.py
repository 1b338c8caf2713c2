"""Brackets that are right to the last digit: each of these was wrong by one, or taken for wrong by the fuzzing."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import varopt as vo
from fuzz.constraints import clarabel_answer, constraints, exact_point, program, random_limits
from fuzz.oracle import complaints
from fuzz.problems import random_problem
from fuzz.report import Report
from varopt.certificates import enclosed_at
from varopt.solvers.finish import exact_minimum

TOL = 1e-9


def constrained(seed):
    """A problem with constraints as the fuzzing draws it, and its result."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, extreme=False)
    line = tuple(block for block in problem.blocks if block.term == "linear")
    if line and rng.random() < 0.3:
        problem = replace(problem, blocks=line)
    limits, _ = random_limits(rng, problem, feasible=bool(rng.random() < 0.85))
    names = {}
    exec(program(problem, limits), names)
    return problem, limits, names["limits"], vo.minimize(names["f"], subject_to=names["limits"], tol=TOL)


def fractions(x):
    return [Fraction(float(v)) for v in x]


# -- Constraints ------------------------------------------------------------------------------------------------------


def test_a_form_that_rounding_makes_curve_down_is_not_called_optimal():
    """Its least value is taken for zero, but along (0.6, 1.3) it falls for ever, if by squares times 1e-18."""
    matrix = np.array([[1.3 * 1.3, -0.78], [-0.78, 0.36]])
    assert Fraction(matrix[0, 0]) * Fraction(matrix[1, 1]) < Fraction(matrix[0, 1]) ** 2
    w = vo.Variable(2)
    r = vo.minimize(vo.quad_form(w, matrix) + 100.0 * vo.sum(vo.hinge(w)), subject_to=[w >= np.array([6.0, 13.0])])
    assert r.status is not vo.Status.OPTIMAL
    assert r.certificate.assumption or r.lower == -np.inf


def test_parts_at_their_least_values_prove_nothing_where_one_may_have_none():
    problem, _, _, r = constrained(1230070020)
    assert r.status is vo.Status.ASSUMED
    assert Fraction(r.lower) <= problem.value(r.x)[0] <= Fraction(r.upper)


def test_an_optimum_of_zero_is_met_within_the_tolerance_of_the_unit():
    """Another point has the value zero exactly; ours, 1e-16 above it, is within what OPTIMAL claims of its own."""
    problem, limits, _, r = constrained(117182)
    assert r.status is vo.Status.OPTIMAL
    better = exact_point(limits, clarabel_answer(problem, limits)[1])
    assert better is not None
    assert problem.value(better)[0] == 0
    assert Fraction(r.lower) <= 0 <= problem.value(r.x)[0] <= Fraction(r.upper)
    assert r.upper - r.lower <= TOL * r.state.unit


def test_multipliers_balance_but_for_rounding_where_the_objective_is_silent():
    """At w = 1.5 the objective is flat: whatever the multipliers are, their rows add up to nothing."""
    _, limits, given, r = constrained(1220030020)
    assert r.status is vo.Status.OPTIMAL
    total, size = Fraction(0), Fraction(0)
    for limit, constraint in zip(limits, given, strict=True):
        # The sign of a row as it is written: rows are normalised to "at most zero".
        rows = np.atleast_2d(limit.matrix)[:, 0].tolist()
        for y, a in zip(fractions(np.atleast_1d(r.multipliers[constraint])), rows, strict=True):
            total, size = total + y * Fraction(a), size + abs(y * Fraction(a))
    assert abs(total) <= Fraction(1, 10**15) * size


def test_zeros_that_a_constraint_rests_on_are_kept():
    w = vo.Variable(2)
    f = 5.0 + vo.sum(vo.abs(w - np.array([3.0, 0.0]))) + vo.sum(vo.abs(w))
    r = vo.minimize(f, subject_to=[w[1] - 1e-12 * w[0] >= 0])
    first, second = fractions(r.x)
    assert r.status is vo.Status.OPTIMAL
    assert second - Fraction(1e-12) * first >= 0
    assert r.violation == 0.0
    value = 5 + abs(first - 3) + abs(first) + 2 * abs(second)
    assert Fraction(r.lower) <= 8 <= value <= Fraction(r.upper)  # |a - 3| + |a| is 3 at least


# -- Not convex -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1300030004, 1300030011, 1300030016, 1300030018, 1300030044, 1300030049])
def test_the_upper_end_is_not_below_the_exact_value_of_what_is_not_convex(seed):
    problem = random_problem(np.random.default_rng(seed), extreme=False, convex=False)
    r = vo.minimize(problem.build(), time_limit=0.2)
    assert Fraction(r.lower if np.isfinite(r.lower) else -1e300) <= problem.value(r.x)[0] <= Fraction(r.upper)
    assert r.upper == pytest.approx(r.fun, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_values_are_enclosed_whatever_their_shape(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, extreme=False, convex=False)
    f = problem.build()
    for x in (rng.standard_normal(problem.dimension), np.rint(3.0 * rng.standard_normal(problem.dimension))):
        low, high = enclosed_at(f, x)
        exact, size = problem.value(x)
        assert not np.isfinite(high) or Fraction(low) <= exact <= Fraction(high)
        assert not np.isfinite(high) or Fraction(high) - Fraction(low) <= size * Fraction(1, 10**12)


def test_errors_that_are_counted_are_counted_exactly():
    w = vo.Variable(2)
    X = np.array([[1.0, 2.0], [-1.0, 1.0], [0.5, -3.0], [2.0, 0.0]])
    assert enclosed_at(vo.sum(vo.zero_one(X @ w)), np.array([0.3, 0.7])) == (1.0, 1.0)


# -- Without constraints ----------------------------------------------------------------------------------------------


def test_an_objective_that_falls_for_ever_does_so_in_fractions():
    """Rounded, its direction lets a square rise; the direction itself, along which that rests, does not."""
    problem = random_problem(np.random.default_rng(1310030018), extreme=True)
    r = vo.minimize(problem.build())
    assert r.status is vo.Status.UNBOUNDED
    assert not [*complaints(problem, r, TOL, np.random.default_rng(0), ("Solved", r.x))]


def test_an_exact_optimum_far_out_along_equal_columns_is_found_near_zero_too(rng):
    """Where a run has gone 1e15 along a direction that nothing sees, no number next to the optimum is close to it."""
    X, w = np.repeat(rng.standard_normal((6, 2)), 2, axis=1), vo.Variable(4)
    f = vo.sum(vo.huber(X @ w - rng.standard_normal(6), 0.5))
    near, far = (exact_minimum(f, reach * np.array([1.0, -1.0, 1.0, -1.0]) / 3.0) for reach in (0.0, 1e15))
    assert far.upper - far.lower <= 1e-12 * far.upper
    assert far.lower == pytest.approx(near.lower, rel=1e-12)


def test_an_optimum_of_zero_is_optimal_where_all_parts_are_zero_at_zero():
    """Of no size at zero, what is added up is of one where the constraint holds, and rounding is measured by it."""
    w, b = vo.Variable(3), vo.Variable()
    r = vo.minimize(vo.sum(vo.abs(vo.diff(w) + b)), subject_to=[vo.sum(w) == -1.0])
    assert r.status is vo.Status.OPTIMAL
    assert r.lower <= 0.0 <= r.upper <= 1e-15


def test_a_proof_that_nothing_is_allowed_is_one_where_curvatures_are_orders_apart():
    """Weights of constraints are, too: what they are multiplied by is small, and no rounding."""
    w = vo.Variable(4)
    f = vo.sum_squares(np.array([[1e-6, 0.0, 0.0, 0.0], [0.0, 2.0, 1.0, -1.0]]) @ w) + 1e-12 * vo.sum_squares(w)
    low, high, row = np.array([0.25, -1.0, -1.75, 0.0]), np.array([1.0, -1.0, -0.25, 0.75]), [-1.75, -0.25, -2.5, -1.25]
    limits = [w >= low, w <= high, np.array(row) @ w >= 68.1875]
    r = vo.minimize(f, subject_to=limits)
    assert r.status is vo.Status.INFEASIBLE
    above, below, share = (fractions(np.atleast_1d(r.proof.multipliers[limit])) for limit in limits)
    assert min(*above, *below, *share) >= 0
    total = [b - a - share[0] * Fraction(v) for a, b, v in zip(above, below, row, strict=True)]
    assert max(map(abs, total)) <= Fraction(1, 10**15)
    least = sum(a * Fraction(v) for a, v in zip(above, low, strict=True)) + share[0] * Fraction(68.1875)
    least -= sum(b * Fraction(v) for b, v in zip(below, high, strict=True))
    assert 0 < r.proof.least <= float(least) * (1.0 + 1e-15)


def test_multipliers_of_an_optimum_that_was_proved_without_them_balance():
    """Found by interior points they left 8e-8 of a gradient that nothing but one constraint has; active sets do not."""
    w, line = vo.Variable(4), np.array([0.087, 0.0, 0.087, -0.087])
    box, ends = np.vstack([np.eye(4), -np.eye(4)]), np.array([0.25, -0.75, -0.5, -0.75, 0.25, 1.25, 0.5, 1.0])
    limits = [box @ w <= ends, vo.diff(w) >= np.array([-2.0, -1.25, -0.25])]
    r = vo.minimize(line @ w, subject_to=limits)
    sides, steps = (r.multipliers[limit] for limit in limits)
    assert r.status is vo.Status.OPTIMAL
    np.testing.assert_allclose(line + box.T @ sides, np.diff(np.eye(4), axis=0).T @ steps, rtol=0.0, atol=1e-15)
    assert min(*sides, *steps) >= 0.0


def test_the_upper_end_is_enclosed_where_rows_that_see_zeros_rest_on_a_jump():
    """Their positions are their offsets; charged with an underflow that there was not, they had no value."""
    w = vo.Variable()
    f = vo.sum(vo.step(0.9 * w)) + 1.19 * vo.sum(vo.ramp(np.array([-0.8, 0.9, -0.5]) * w + np.array([0.4, 0.0, -1.0])))
    low, high = enclosed_at(f, np.zeros(1))
    exact = Fraction(1.19) * (1 - Fraction(0.4) + 1 + 1) + Fraction(float(vo.sum(vo.step(w))(0.0)))
    assert Fraction(low) <= exact <= Fraction(high)
    assert high - low <= 1e-13
    tiny = np.array([1e-16])
    rests = vo.sum(vo.zero_one(1.06 * (np.array([0.0, -0.0, 1.0]) * w)))
    assert enclosed_at(rests, tiny) == (2.0, 2.0)


@pytest.mark.parametrize("seed", [3090030008, 3110000080, 3120030064, 3190010042])
def test_multipliers_that_were_off_by_rounding_are_of_their_signs_and_balance(seed):
    report = Report()
    constraints(seed, report)
    assert not report.findings


def test_what_no_point_satisfies_is_told_where_the_objective_falls_far_away():
    """At 1e16 rounding is more than what constraints are missed by: it ended GAP_OPEN, with a violation of 0.25."""
    report = Report()
    constraints(4550010005, report)
    assert not report.findings
