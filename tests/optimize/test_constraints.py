"""Constraints: what is solved is the constrained problem, what is claimed is proved, and what cannot be is said."""

import cProfile
import math
import pstats
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog, lsq_linear, nnls
from scipy.sparse.linalg import aslinearoperator

import varopt as vo
from fuzz.constraints import complaints, constraints, program, random_case, random_limits
from fuzz.problems import random_problem
from fuzz.report import Report
from varopt import Status
from varopt.optimize.constrained import Contradiction, Ray
from varopt.optimize.constrained._multipliers import are_multipliers  # numbers that no run gives for certain
from varopt.optimize.constrained._penalty import Penalised  # likewise


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6))
    return X, X @ np.array([1.0, -1.0, 0.5, 0.0, 2.0, -0.3]) + rng.standard_normal(40)


@pytest.fixture
def w():
    return vo.Variable(6, name="w")


def steep(seed):
    """The names of a program that builds a problem of extreme scales."""
    problem, limits, *_ = random_case(np.random.default_rng(seed), extreme=True)
    names = {}
    exec(program(problem, limits), names)  # our own text
    return names


def closed(r, tol=1e-9):
    return r.status.name == "OPTIMAL" and r.gap <= tol * max(1.0, abs(r.fun)) and r.lower <= r.fun <= r.upper


# -- Against others ---------------------------------------------------------------------------------------------------


def test_non_negative_least_squares_is_that_of_scipy(data, w):
    X, y = data
    r = vo.minimize(vo.sum_squares(y - X @ w), subject_to=[w >= 0])
    x, residual = nnls(X, y)
    assert closed(r)
    np.testing.assert_allclose(r[w], x, atol=1e-10)
    assert r.fun == pytest.approx(residual**2, rel=1e-12)
    assert r.violation == 0.0
    assert np.all(r[w] >= 0.0)


def test_bounded_least_squares_is_that_of_scipy(data, w):
    X, y = data
    r = vo.minimize(vo.sum_squares(y - X @ w), subject_to=[w >= -0.2, w <= 0.5])
    assert closed(r)
    np.testing.assert_allclose(r[w], lsq_linear(X, y, (-0.2, 0.5), tol=1e-14).x, atol=1e-8)
    assert r.violation == 0.0


def test_a_linear_programme_is_that_of_highs():
    rng = np.random.default_rng(1)
    A, x0 = rng.standard_normal((30, 8)), rng.standard_normal(8)
    b, c = A @ x0 + rng.random(30), A.T @ rng.random(30)
    x = vo.Variable(8)
    limit = A @ x <= b
    r = vo.minimize(-c @ x, subject_to=[limit])
    highs = linprog(-c, A_ub=A, b_ub=b, bounds=(None, None))
    assert closed(r)
    assert r.fun == pytest.approx(highs.fun, rel=1e-9)
    np.testing.assert_allclose(r.multipliers[limit], -highs.ineqlin.marginals, atol=1e-8)


@pytest.mark.parametrize("seed", range(24))
def test_linear_programmes_end_as_those_of_highs(seed):
    """Optimal, without a point, or without end: small ones, and such as no rational arithmetic takes on."""
    rng = np.random.default_rng(seed)
    n, m = (int(rng.integers(*sizes)) for sizes in (((2, 8), (1, 12)) if seed % 2 else ((20, 50), (10, 60))))
    A, c = rng.standard_normal((m, n)), rng.standard_normal(n)
    b = np.abs(rng.standard_normal(m)) if seed % 3 else rng.standard_normal(m)
    x, low = vo.Variable(n), 0.0 if seed % 4 else -1.0
    r = vo.minimize(c @ x, subject_to=[A @ x <= b, x >= low])
    highs = linprog(c, A, b, bounds=(low, None))
    known = {0: ("OPTIMAL",), 2: ("INFEASIBLE",), 3: ("UNBOUNDED",), 4: ("INFEASIBLE", "UNBOUNDED")}
    assert r.status.name in known[highs.status]  # of the last HiGHS says that it is either
    if highs.status == 0:
        assert r.fun == pytest.approx(highs.fun, rel=1e-8, abs=1e-8)
        assert r.violation <= 1e-12 * max(1.0, np.abs(r.x).max())
    if highs.status == 3:
        d = r.proof[x]
        assert c @ d < 0.0
        assert np.all(d >= 0.0)
        assert np.all(A @ d <= 1e-15 * np.abs(A) @ d)


def test_steps_keep_to_rows_of_several_variables():
    """A fair support vector machine takes about the steps that one without the constraint takes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 8))
    group = rng.random(3000) < 0.4
    t = np.where(X @ np.ones(8) + group + rng.standard_normal(3000) > 0.0, 1.0, -1.0)
    row = (group - group.mean()) @ X / 3000
    row = row + 0.05 * X[group].mean(axis=0) + 0.02
    w = vo.Variable(8)
    f = 0.5 * vo.sum_squares(w) + vo.sum(vo.hinge(t * (X @ w)))
    fair, positive = row @ w <= 0.01, w[:2] >= 0.1
    free, r = vo.minimize(f), vo.minimize(f, subject_to=[fair, positive, vo.sum(w) == 2.0])
    assert row @ free[w] > 0.01
    assert closed(r)
    assert r.method == "newton"
    assert r.nit <= 2 * free.nit
    assert row @ r[w] <= 0.01 + 1e-14
    assert abs(r[w].sum() - 2.0) <= 1e-14
    # In exact arithmetic: the Lagrangian of the multipliers has no smaller value.
    y = r.multipliers
    gradient = y[fair] * row
    gradient[:2] -= y[positive]
    held = f + gradient @ w + (0.1 * y[positive].sum() - 0.01 * y[fair])
    total = next(value for c, value in y.items() if c.is_equality)
    again = vo.minimize(held + total * (vo.sum(w) - 2.0))
    assert again.fun == pytest.approx(r.fun, rel=1e-9)


@pytest.mark.parametrize("kind", ["dense", "sparse", "operator", "float32"])
def test_matrices_of_every_kind(kind, data, w):
    X, y = data
    A, b = np.round(np.random.default_rng(2).standard_normal((4, 6)), 2), np.full(4, 0.25)
    given = {
        "dense": A, "sparse": sp.csr_array(A), "operator": aslinearoperator(A), "float32": A.astype(np.float32),
    }[kind]  # fmt: skip
    limit = given @ w <= b
    r = vo.minimize(vo.sum_squares(y - X @ w), subject_to=[limit])
    reference = vo.minimize(vo.sum_squares(y - X @ w), subject_to=[A @ w <= b])
    assert r.fun == pytest.approx(reference.fun, rel=1e-6 if kind == "float32" else 1e-9)
    assert r.violation <= 1e-12
    assert r.status.name in ("OPTIMAL", *(("ASSUMED",) if kind == "operator" else ()))


# -- Multipliers ------------------------------------------------------------------------------------------------------


def test_multipliers_are_what_slack_is_worth(data, w):
    X, y = data
    f = vo.sum_squares(y - X @ w)

    def solved(total, low):
        bounds, budget = w >= low, vo.sum(w) == total
        r = vo.minimize(f, subject_to=[bounds, budget], tol=1e-12)
        return r, bounds, budget

    r, bounds, budget = solved(1.0, 0.0)
    h = 1e-4
    equality = (solved(1.0 + h, 0.0)[0].fun - solved(1.0 - h, 0.0)[0].fun) / (2 * h)
    assert r.multipliers[budget] == pytest.approx(-equality, rel=1e-5)
    slack = (solved(1.0, -h)[0].fun - r.fun) / h
    assert -slack == pytest.approx(r.multipliers[bounds].sum(), rel=1e-2)
    assert np.all(r.multipliers[bounds] >= 0.0)
    assert np.all(r.multipliers[bounds] * r[w] <= 1e-9)


def test_multipliers_do_not_depend_on_how_a_constraint_is_written(data, w):
    X, y = data
    f = vo.norm1(y - X @ w)
    below, above = w <= 0.1, w <= 0.1
    mirrored = -w >= -0.1
    values = [vo.minimize(f, subject_to=[c]).multipliers[c] for c in (below, above, mirrored)]
    np.testing.assert_allclose(values[1], values[0], atol=1e-9)
    np.testing.assert_allclose(values[2], values[0], atol=1e-9)


CHOSEN = [*range(6), *range(12, 24)]
BOXES = {
    "indexed": lambda w, u: [w[CHOSEN] <= 0.4],
    "sparse": lambda w, u: [sp.csr_array(np.eye(24)[CHOSEN]) @ w <= 0.4],
    "sparse in other units": lambda w, u: [sp.csr_array(0.3 * np.eye(24)[CHOSEN]) @ w <= 0.12],
    "joined": lambda w, u: [vo.concatenate([w[:6], w[12:]]) <= 0.4],
    "joined beside another": lambda w, u: [vo.concatenate([w[:6], u, w[12:]]) <= 0.4],
    "added": lambda w, u: [w[CHOSEN] + 0.0 * w[CHOSEN] <= 0.4],
    "a matrix": lambda w, u: [sp.csr_array(np.eye(18)) @ w[CHOSEN] <= 0.4],
}


@pytest.mark.parametrize("name", BOXES)
def test_multipliers_of_bounds_do_not_depend_on_how_they_are_written(name):
    w, u = vo.Variable(24), vo.Variable(2)
    limits = BOXES[name](w, u)
    r = vo.minimize(vo.sum_squares(w - 1.0) + vo.sum_squares(2.0 * w - 1.0) + vo.sum_squares(u), subject_to=limits)
    assert closed(r)
    unit = 0.3 if name == "sparse in other units" else 1.0
    expected = np.full(limits[0].rows, 2.0 / unit)  # -f' at 0.4: 1.2 + 0.8
    if name == "joined beside another":
        expected[6:8] = 0.0
    np.testing.assert_allclose(r.multipliers[limits[0]], expected, atol=1e-9)


def test_multipliers_of_bounds_of_a_matrix_times_a_sparse_one():
    W = vo.Variable((12, 2))
    limit = sp.csr_array(np.eye(12)[:9]) @ W <= 0.4
    r = vo.minimize(vo.sum_squares(W - 1.0) + vo.sum_squares(2.0 * W - 1.0), subject_to=[limit])
    assert closed(r)
    np.testing.assert_allclose(r.multipliers[limit], np.full((9, 2), 2.0), atol=1e-9)


def test_maximising_has_multipliers_of_the_same_sign(w):
    limit = w <= np.arange(6.0)
    r = vo.maximize(np.arange(1.0, 7.0) @ w, subject_to=[limit])
    assert r.fun == pytest.approx(np.arange(1.0, 7.0) @ np.arange(6.0))
    np.testing.assert_allclose(r.multipliers[limit], np.arange(1.0, 7.0))
    assert r.lower <= r.fun <= r.upper


# -- What does no harm ------------------------------------------------------------------------------------------------


def test_dependent_redundant_and_empty_rows_do_no_harm(data, w):
    X, y = data
    f = vo.sum(vo.pinball(y - X @ w, 0.3))
    total = vo.sum(w) == 1.0
    plain = vo.minimize(f, subject_to=[total, w >= 0])
    many = vo.minimize(
        f,
        subject_to=[
            total, vo.sum(w) == 1.0, 2.0 * vo.sum(w) == 2.0, w >= 0, w >= -1.0, 3 * w >= 0, vo.sum(w) <= 1.0,
            np.zeros((2, 6)) @ w <= [0.0, 1.0], np.zeros(6) @ w == 0.0,
        ],
    )  # fmt: skip
    assert closed(plain)
    assert closed(many)
    assert many.fun == pytest.approx(plain.fun, rel=1e-10)


def test_equal_bounds_and_an_empty_interior_do_no_harm(data, w):
    X, y = data
    fixed = np.array([0.5, -0.5, 0.0, 1.0, 1.0, 0.0])
    r = vo.minimize(vo.norm1(y - X @ w), subject_to=[w >= fixed, w <= fixed])
    np.testing.assert_array_equal(r[w], fixed)
    assert closed(r)
    thin = vo.minimize(vo.sum_squares(y - X @ w), subject_to=[vo.sum(w) <= 1.0, vo.sum(w) >= 1.0, w[0] == w[1]])
    same = vo.minimize(vo.sum_squares(y - X @ w), subject_to=[vo.sum(w) == 1.0, w[0] - w[1] == 0.0])
    assert closed(thin)
    assert thin.fun == pytest.approx(same.fun, rel=1e-10)


def test_variables_of_constraints_alone_are_variables(w):
    t = vo.Variable(name="t")
    r = vo.minimize(t, subject_to=[t >= w - 1.0, t >= 1.0 - w, w[0] == 3.0])
    assert r[t] == pytest.approx(2.0)
    assert r.x.size == 7


def test_without_an_objective_any_point_will_do(w):
    r = vo.minimize(0.0, subject_to=[vo.sum(w) == 1.0, w >= 0.1])
    assert r.status.name == "OPTIMAL"
    assert r.fun == 0.0
    assert r.violation <= 1e-15


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_units_do_not_matter(unit, data, w):
    X, y = data
    budget = vo.sum(w) == 1.0
    r = vo.minimize(vo.sum_squares(y - X @ w), subject_to=[w >= 0, budget])
    other = vo.minimize(unit * vo.sum_squares(y - (X / unit) @ w), subject_to=[w >= 0, 1e3 * vo.sum(w) == 1e3 * unit])
    assert closed(r)
    assert other.status.name == "OPTIMAL"
    assert other.fun == pytest.approx(unit * r.fun, rel=1e-9)
    np.testing.assert_allclose(other[w] / unit, r[w], atol=1e-9)


def test_small_weights_are_raised_until_they_do():
    """The multiplier is far above the gradients of f at zero: the first weights are too small."""
    x = vo.Variable(2, name="x")
    limit = x[0] + 1e-5 * x[1] >= 1.0
    f = 1e-3 * vo.sum(vo.square(x[:1])) + 1e6 * vo.norm1(x[1:]) + 1e6 * vo.sum(vo.pos(x[:1]))
    r = vo.minimize(f, subject_to=[limit])
    assert closed(r)
    assert r.violation <= 1e-12
    assert r.fun == pytest.approx(1e6 + 1e-3, rel=1e-9)


# -- No optimum -------------------------------------------------------------------------------------------------------


def test_what_cannot_be_satisfied_is_proved(w):
    limits = [w >= 0, vo.sum(w) == 1.0, w[0] >= 0.75, w[1] >= 0.5]
    r = vo.minimize(vo.norm1(w), subject_to=limits)
    assert r.status.name == "INFEASIBLE"
    assert math.isinf(r.fun)
    assert r.lower == r.upper == math.inf
    assert isinstance(r.proof, Contradiction)
    total, value = np.zeros(6), 0.0
    for c in limits:
        y = np.atleast_1d(r.proof.multipliers[c])
        assert c.is_equality or np.all(y >= 0.0)
        total += y @ c.normal.stacked((w,)).dense()
        value += float(y @ np.broadcast_to(c.normal.offset, c.rows))
    np.testing.assert_allclose(total, 0.0, atol=1e-12)
    assert value >= r.proof.least > 0.0
    assert "no point" in str(r)
    assert "contradict" in str(r.proof)
    assert vo.maximize(-vo.norm1(w), subject_to=limits).upper == -math.inf


@pytest.mark.parametrize(("size", "count"), [(50, 20), (300, 60), (400, 4), (60, 30)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_whose_sum_is_contradicted_are_proved_to_be(size, count, weighted, rng):
    """Of more variables than equations are solved for in rational numbers."""
    A = rng.integers(-5, 6, (count, size)).astype(float)
    shares = rng.integers(1, 9, count) / 8.0 if weighted else np.ones(count)
    x = vo.Variable(size)
    least, most = A @ x >= 1, (shares @ A) @ x <= shares.sum() - 0.5
    r = vo.minimize(vo.norm1(x), subject_to=[least, most])
    assert r.status is Status.INFEASIBLE
    first, second = r.proof.multipliers[least], r.proof.multipliers[most]
    np.testing.assert_allclose(first, second * shares, rtol=1e-9)
    assert r.proof.least == pytest.approx(0.5 * second, rel=1e-9)


def test_a_contradiction_is_told_by_as_few_rows_as_make_it(rng):
    """Fifty pairs of equations contradict each other, and any mixture of them; so does more demand than supply."""
    A, x = rng.standard_normal((50, 300)), vo.Variable(300)
    b = rng.integers(-9, 10, 50).astype(float)
    pair = A @ x == b, A @ x == b + 1.0
    r = vo.minimize(vo.norm1(x), subject_to=[*pair])
    assert r.status is Status.INFEASIBLE
    first, second = (r.proof.multipliers[c] for c in pair)
    assert np.count_nonzero(first) == 1
    np.testing.assert_array_equal(first, -second)
    supply = rng.integers(1, 9, 20).astype(float)
    demand = supply[::-1] + np.eye(20)[0]
    F = vo.Variable((20, 20))
    limits = [vo.sum(F, axis=1) <= supply, vo.sum(F, axis=0) >= demand, F >= 0]
    r = vo.minimize(vo.sum(rng.random((20, 20)) * F), subject_to=limits)
    assert r.status is Status.INFEASIBLE
    least = r.proof.multipliers[limits[0]][0]
    np.testing.assert_allclose(np.r_[r.proof.multipliers[limits[0]], r.proof.multipliers[limits[1]]], least, rtol=1e-9)
    assert r.proof.least == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("count", [1, 3])
def test_rows_without_an_entry_that_nothing_satisfies_are_proved_so(count):
    """All rows of such constraints are zeros, which have no orthonormal coordinates."""
    w = vo.Variable(2)
    limits = [np.zeros((count, 2)) @ w <= 0.25, np.zeros(2) @ w >= 1.125, np.zeros((count, 2)) @ w <= 0.25]
    r = vo.minimize(vo.sum(vo.abs(w)), subject_to=limits)
    assert r.status.name == "INFEASIBLE"
    assert r.proof is not None


def test_rows_that_rounding_alone_makes_contradict_are_satisfied_but_for_it(data, w):
    X, y = data
    r = vo.minimize(vo.sum_squares(y - X @ w), subject_to=[vo.sum(w) == 0.3, 0.1 * vo.sum(w) == 0.03])
    assert r.status.name == "OPTIMAL"
    assert r.violation <= 1e-15


def test_a_direction_without_end_is_shown(w):
    r = vo.minimize(-vo.sum(w), subject_to=[w[:3] == 0.0, vo.diff(w) >= 0.0])
    assert r.status.name == "UNBOUNDED"
    assert isinstance(r.proof, Ray)
    d = r.proof[w]
    assert np.all(np.diff(d) >= 0.0)
    assert np.all(d[:3] == 0.0)
    assert d.sum() > 0.0
    assert r.violation <= 1e-12


def test_a_direction_without_end_is_found_among_many_variables(rng):
    """In larger problems it is looked for once nothing else has bounded them from below."""
    A, x = rng.standard_normal((50, 500)), vo.Variable(500)
    r = vo.minimize(vo.sum(vo.hinge(A @ x)) - vo.sum(x[:3]), subject_to=[x[:3] >= 0])
    assert r.status is Status.UNBOUNDED
    d = r.proof[x]
    assert d[:3].min() >= 0.0
    assert d[:3].sum() > np.maximum(-A @ d, 0.0).sum()


def test_a_direction_without_end_needs_a_point_to_start_from(w):
    r = vo.minimize(-vo.sum(w), subject_to=[w[0] >= 1.0, w[0] <= 0.0])
    assert r.status.name == "INFEASIBLE"


@pytest.mark.parametrize("seed", range(12))
def test_rows_written_entry_by_entry_end_as_in_highs(seed):
    rng = np.random.default_rng(seed)
    w, c = vo.Variable(4), rng.integers(-2, 3, 4)
    A = np.array([[1, 1, 0, 0], [0, 1, -1, 0], [0, 0, 2, -3], [-1, 0, 0, 1]]) * rng.choice([-1, 1], (4, 1))
    b = rng.integers(-1, 3, 4)
    sides = [sum(int(a) * w[j] for j, a in enumerate(row) if a) for row in A]
    r = vo.minimize(c @ w, subject_to=[side <= int(v) for side, v in zip(sides, b, strict=True)])
    other = linprog(c, A, b, bounds=(None, None))
    assert r.status.name == {0: "OPTIMAL", 2: "INFEASIBLE", 3: "UNBOUNDED"}[other.status]
    if other.status == 3:
        d = r.proof[w]
        assert np.all(A @ d <= 0.0)
        assert c @ d < 0.0
    elif other.status == 0:
        assert r.fun == pytest.approx(other.fun, abs=1e-9)


# -- Other kinds of run -----------------------------------------------------------------------------------------------


def test_norms_of_groups_and_terms_of_all_kinds(data, w):
    X, y = data
    f = vo.sum(vo.huber(y - X @ w, 0.5)) + vo.norm2(w, groups=3) + vo.sum(vo.squared_hinge(w))
    r = vo.minimize(f, subject_to=[w >= 0, vo.sum(w) <= 1.0])
    assert r.success
    assert r.violation <= 1e-12
    for _ in range(50):
        other = np.random.default_rng(_).dirichlet(np.ones(6)) * 0.99
        assert f(other) >= r.lower


def test_what_is_not_convex_keeps_to_the_constraints(data, w):
    X, y = data
    f = vo.sum(vo.capped_abs(y[:12] - X[:12] @ w, 0.5))
    r = vo.minimize(f, subject_to=[w >= 0, vo.sum(w) == 2.0], method=vo.solvers.Graduated(starts=1))
    assert r.status.name in ("LOCAL", "OPTIMAL")
    assert r.violation <= 1e-12
    assert r.fun == pytest.approx(f(r[w]))
    assert r.lower <= r.fun


@pytest.mark.parametrize("seed", range(6))
def test_what_falls_as_a_square_keeps_to_the_constraints(seed):
    rng = np.random.default_rng(seed)
    w = vo.Variable(3)
    Q, a = rng.standard_normal((3, 3)), rng.standard_normal(3)
    Q = -Q @ Q.T - 0.1 * np.eye(3)  # concave: the optimum is at a corner
    r = vo.minimize(vo.quad_form(w, Q) + a @ w, subject_to=[w >= -1.0, w <= 1.0])
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T
    assert r.status.name == "LOCAL"
    assert r.violation == 0.0
    assert r.fun == pytest.approx(min(x @ Q @ x + a @ x for x in corners), rel=1e-9)
    assert r.lower <= r.fun


def test_what_is_not_convex_and_falls_for_ever_says_so():
    w = vo.Variable(3)
    for f, limits in ((-vo.sum_squares(w), [w >= 1.0]), (-vo.norm1(w), [w >= -1.0, w[0] <= 2.0])):
        r = vo.minimize(f, subject_to=limits)
        assert r.status.name == "UNBOUNDED"
        assert np.all(r.proof[w] >= 0.0)
        assert f(r[w] + 1e6 * r.proof[w]) < f(r[w]) - 1e5
    r = vo.minimize(-vo.sum_squares(w), subject_to=[w >= 1.0, w <= 2.0])
    assert r.fun == -12.0


def test_a_path_with_the_parameter_in_a_constraint(data, w):
    X, y = data
    budget = vo.Parameter(name="budget")
    limit = vo.sum(w) <= budget
    p = vo.path(vo.norm1(y - X @ w), budget, [0.5, 1.0, 1.5], subject_to=[w >= 0, limit])
    assert p.success
    for total, r in zip([0.5, 1.0, 1.5], p, strict=True):
        again = vo.minimize(vo.norm1(y - X @ w), subject_to=[w >= 0, vo.sum(w) <= total])
        assert r.fun == pytest.approx(again.fun, rel=1e-9)
        assert r.multipliers[limit] >= 0.0
    assert np.all(np.diff(p.fun) <= 0.0)


def test_a_time_limit_and_an_interrupt_return_what_is_known(data, w):
    X, y = data

    def stop(state):
        raise KeyboardInterrupt

    r = vo.minimize(vo.norm1(y - X @ w), subject_to=[vo.sum(w) == 1.0], callback=stop)
    assert r.status.name == "INTERRUPTED"
    assert r.lower <= vo.minimize(vo.norm1(y - X @ w), subject_to=[vo.sum(w) == 1.0]).fun <= r.upper
    rng, v = np.random.default_rng(0), vo.Variable(30)  # too large to be solved before the clock is looked at
    f = vo.norm1(rng.standard_normal(2000) - rng.standard_normal((2000, 30)) @ v)
    assert vo.minimize(f, subject_to=[vo.sum(v) == 1.0], time_limit=1e-9).status.name == "TIME_LIMIT"


def test_a_result_shows_what_it_violates(data, w):
    X, y = data
    r = vo.minimize(vo.norm1(y - X @ w), subject_to=[w >= 0])
    assert "violation" in str(r)
    assert "violation" in r._repr_html_()
    assert "violation" not in str(vo.minimize(vo.norm1(y - X @ w)))


# -- Bad input --------------------------------------------------------------------------------------------------------


def test_what_is_no_constraint_is_refused_in_a_sentence(w):
    f = vo.norm1(w)
    for given, message in (
        ([True], r"got True; a comparison of numbers"),
        (["w >= 0"], r"such as w >= 0; got 'w >= 0'"),
        (w, r"a list of constraints"),
        ([w], r"must hold constraints"),
    ):
        with pytest.raises(ValueError, match=message):
            vo.minimize(f, subject_to=given)
    with pytest.raises(TypeError, match="two constraints, w >= 0 and w <= 1"):
        vo.minimize(f, subject_to=[0 <= w <= 1])
    with pytest.raises(TypeError, match="affine expressions"):
        _ = vo.norm1(w) <= 1.0
    with pytest.raises(TypeError, match="strict"):
        _ = w > 0
    with pytest.raises(ValueError, match="one length"):
        _ = w >= np.zeros(3)
    with pytest.raises(ValueError, match=r"NaN|finite"):
        _ = w >= np.full(6, np.nan)
    with pytest.raises(ValueError, match=r"NaN|finite"):
        vo.minimize(f, subject_to=[np.full((2, 6), np.inf) @ w <= 1.0])


def test_black_boxes_name_the_alternative(w):
    with pytest.raises(ValueError, match=r"subject_to of a black box must be a function of the point"):
        vo.minimize(lambda x: x[0], vo.Box(-1, 1, size=1), subject_to=[w >= 0])
    with pytest.raises(ValueError, match="must be a function of the point"):
        vo.maximize(lambda x: x[0], vo.Box(-1, 1, size=1), subject_to=[w >= 0])


def test_a_constraint_alone_is_a_list_of_one(data, w):
    X, y = data
    assert closed(vo.minimize(vo.norm1(y - X @ w), subject_to=w >= 0))
    assert closed(vo.minimize(vo.norm1(y - X @ w), subject_to=()))


def test_multipliers_balance_where_rational_arithmetic_has_solved():
    """It tells no subgradients: those that balance are looked for."""
    w = vo.Variable(1)
    f = 0.096 * vo.sum(vo.pos(w - 1.5707925860010972)) - 0.12188644746061217 * w[0]
    limits = [w >= -1.0, np.array([[0.0], [-1.5], [-1.125]]) @ w <= [0.5, 0.25, 0.0],
              np.array([[-1.125], [1.5], [0.5], [-0.625]]) @ w <= [0.0, 0.25, 0.0, 0.0]]  # fmt: skip
    r = vo.minimize(f, subject_to=limits)
    assert r.status is vo.Status.OPTIMAL
    gradient = -0.12188644746061217
    for c in limits:
        y = np.atleast_1d(r.multipliers[c])
        assert np.all(y >= 0.0)
        np.testing.assert_allclose(y * c.normal.values({w: r[w]}), 0.0, atol=1e-12)
        gradient += float(y @ np.ravel(c.normal.maps[w].dense()))
    assert gradient == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_multipliers_are_those_of_the_optimum_where_a_stopped_run_is_finished_exactly(seed):
    rng = np.random.default_rng(seed)
    A, v = rng.standard_normal((8, 3)), vo.Variable(3)
    f = vo.norm2(A @ v - 1.0) + 0.3 * vo.sum(vo.abs(v)) + vo.sum_squares(A[:3] @ v)
    limits = [v <= 0.1, vo.sum(v) == 0.05]

    def stop(_):
        raise StopIteration

    stopped, whole = (vo.minimize(f, subject_to=limits, callback=callback) for callback in (stop, None))
    assert stopped.status is Status.INTERRUPTED
    assert stopped.gap <= 1e-9
    assert whole.status is Status.OPTIMAL
    for c in limits:
        assert np.allclose(stopped.multipliers[c], whole.multipliers[c], atol=1e-6)


def test_multipliers_are_found_where_a_zero_of_many_digits_is_rounded():
    """The optimum rests on bounds at zero and on a norm; rounded from many digits it is a last digit off them."""
    report = Report()
    constraints(2103710137, report)
    assert report.runs["constraints"] == 1
    assert not report.findings


def test_without_constraints_nothing_of_them_runs(data, w):
    """What a problem without constraints pays for them: one call of thousands."""
    X, y = data
    f = vo.sum(vo.pinball(y - X @ w, 0.3))
    for none in (None, [], ()):
        profile = cProfile.Profile()
        profile.runcall(vo.minimize, f, subject_to=none)
        calls = pstats.Stats(profile).stats
        places = ((file.rpartition("varopt")[2], name, count) for (file, _, name), (_, count, *_) in calls.items())
        theirs = sum(count for file, name, count in places if "constrain" in f"{file} {name}")
        assert theirs <= 1
        assert sum(count for _, count, *_ in calls.values()) > 1000


def test_linear_programmes_of_many_held_variables_go_to_interior_points(rng):
    """Mean and conditional value at risk, with few scenarios for each asset."""
    returns = 0.001 + 0.02 * rng.standard_normal((500, 210))
    x, mean = vo.Variable(210), returns.mean(axis=0)
    asked = float(np.quantile(mean, 0.6))
    limits = [x >= 0, vo.sum(x) == 1, mean @ x >= asked]
    f = vo.cvar(-(returns @ x), 0.9)
    r = vo.minimize(f, subject_to=limits)
    assert r.method == "interior-point"
    assert r.status is vo.Status.OPTIMAL
    assert r.fun == pytest.approx(vo.minimize(f, subject_to=limits, method="newton").fun, rel=1e-8)
    bounds = [(0, None)] * 210 + [(None, None)] + [(0, None)] * 500
    rows = np.block([[-returns, -np.ones((500, 1)), -np.eye(500)], [-mean, np.zeros(501)]])
    whole = linprog(
        np.r_[np.zeros(210), 1.0, np.full(500, 1.0 / 50.0)], rows, np.r_[np.zeros(500), -asked],
        np.r_[np.ones(210), np.zeros(501)][None, :], [1.0], bounds,
    )  # fmt: skip
    assert r.fun == pytest.approx(whole.fun, rel=1e-7)


@pytest.mark.parametrize("seed", [13, 19, 20])
def test_a_run_that_was_stopped_at_once_says_so(seed):
    """Not that no point was found: with too small weights of the constraints the penalised optimum breaks them."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, extreme=False)
    names = {}
    exec(program(problem, random_limits(rng, problem, feasible=True)[0]), names)  # our own text
    r = vo.minimize(names["f"], subject_to=names["limits"], time_limit=1e-9)
    assert r.status in (Status.TIME_LIMIT, Status.OPTIMAL)
    assert r.lower <= r.upper


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_zeros_but_for_rounding_are_not_made_zeros_against_a_constraint(shift):
    """Coordinates far below the largest are set to zero where f hardly rises: not where a constraint rests on them."""
    w = vo.Variable(2)
    f = shift + vo.abs(w[0] - 1.0) + 0.01 * vo.abs(w[1] - 5e-12)
    r = vo.minimize(f, subject_to=[w[1] - 5e-12 * w[0] >= 0])
    assert r.status is Status.OPTIMAL
    assert r.violation <= 1e-18


def test_a_bracket_that_rounding_widens_is_no_longer_within_the_tolerance():
    """Far out along a direction of next to no curvature f is rounded far more than the penalised optimum is."""
    matrix = np.array([
        [4.805141087740812, 2.6606831133447795, 1.1665697901981602, -0.004109578992977699],
        [2.6606831133447795, 1.6331390721717105, 0.017594513913818256, 0.08241544843427996],
        [1.1665697901981602, 0.017594513913818256, 2.7527986676832574, -0.33385404917415523],
        [-0.004109578992977699, 0.08241544843427996, -0.33385404917415523, 0.0448666712140273],
    ])  # fmt: skip
    slope = np.array([-0.7488671125109657, 0.7861945819570293, 0.33231003573017137, 0.013281112739190477])
    w = vo.Variable(4)
    row = np.array([1.25, -0.375, 2.125, 0.0]) @ w
    r = vo.minimize(vo.quad_form(w, matrix) + slope @ w, subject_to=[row <= 2.71875, row <= 2.71875])
    met = r.upper - r.lower <= 1e-9 * max(r.state.unit, abs(r.upper))
    assert met or r.status not in (Status.OPTIMAL, Status.ASSUMED)


# -- In units that are far apart --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1e-9, None])
@pytest.mark.parametrize("seed", range(6))
def test_a_variable_far_away_excuses_no_constraint_of_others(seed, limit):
    """The rounding of a variable at 1e18 is 128, of which constraints that do not see it know nothing."""
    rng = np.random.default_rng(seed)
    w, b = vo.Variable(3), vo.Variable()
    rows = rng.integers(-4, 5, (2, 3)).astype(float)
    f = vo.abs(b - 1e18) + vo.sum_squares(w - rng.integers(-9, 9, 3))
    r = vo.minimize(f, subject_to=[rows @ w == np.array([1.0, 2.0]), w <= 1.0], time_limit=limit)
    assert r.violation <= 1e-14
    assert np.max(np.abs(rows @ r[w] - [1.0, 2.0])) <= 1e-14


@pytest.mark.parametrize("power", [20, 30, 35])
def test_multipliers_of_a_contradiction_contradict_though_rows_are_faint(power):
    """A faint row needs a multiplier that is nothing beside its weight: without it the combination proves nothing."""
    w, faint = vo.Variable(2), 2.0**-power
    rows = np.array([[-0.75, -1.375], [0.75 + faint, 1.375]])
    thin, beyond = rows @ w <= np.array([5.75, -1.75]), faint * w[0] >= 4.5
    r = vo.minimize(vo.norm1(w), subject_to=[thin, beyond])
    assert r.status is Status.INFEASIBLE
    first, second = r.proof.multipliers[thin]
    third = r.proof.multipliers[beyond]
    assert min(first, second, third) > 0.0
    np.testing.assert_allclose([second / first, third / first], 1.0, rtol=1e-12)
    assert 0.0 < r.proof.least <= first * (4.5 - 4.0) * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", [71050004, 71010000])
def test_steep_constraints(seed):
    report = Report()
    constraints(seed, report, extreme=True)
    assert not report.serious(), report.programs()


def test_an_interrupt_of_the_last_look_for_a_contradiction_keeps_the_result():
    """It came after the bracket was found, and took all of it away, as did a time limit that ended there."""
    names, calls = steep(71010002), []
    whole = vo.minimize(names["f"], subject_to=names["limits"], callback=lambda _: calls.append(0))
    assert whole.method.endswith("rational")  # which comes after it
    last = len(calls)

    def interrupt(_):
        calls.append(0)
        if len(calls) == 2 * last:
            raise KeyboardInterrupt

    r = vo.minimize(names["f"], subject_to=names["limits"], callback=interrupt)
    assert len(calls) == 2 * last
    assert r.status is Status.INTERRUPTED
    assert -np.inf < r.lower <= whole.fun <= r.upper < np.inf


def test_multipliers_that_rounding_hides_are_not_told():
    """Where the bracket rests on an assumption they are found apart, or not at all: once they were wrong."""
    w = vo.Variable(2)
    A = np.array([[-5.7220458984375e-06, 28.0], [1.71661376953125e-05, -20.0]])
    limits = [
        A @ w <= np.array([27.999998584389687, -19.999995708463757]),
        np.diag([-0.0001220703125, -549755813888.0]) @ w <= np.array([-2.86102294921875e-05, -549755813887.99805]),
    ]
    r = vo.minimize(np.array([-1e-12, 0.0]) @ w, subject_to=limits)
    left = np.array([-1e-12, 0.0]) + sum(c.normal.maps[w].transpose_apply(np.ravel(r.multipliers[c])) for c in limits)
    assert np.all(np.isnan(left)) or np.abs(left).max() <= 1e-20


@pytest.mark.parametrize("seed", [8000270047, 9100120004, 9100270000, 9300610002, 9300840010])
def test_what_rounding_hides_of_steep_rows_and_far_points_is_not_told(seed):
    """Two knots of a steep row within rounding; a point so far out that squares overflow; one beside its kinks.

    Multipliers of 10^16 that hide what they leave of f; a proof with a faint multiplier beside a large one of the same
    row.
    """
    report = Report()
    constraints(seed, report, extreme=True)
    assert report.runs["steep"] == 1
    assert not [f.text for f in report.findings if not f.kind.startswith(("gap open", "late"))]


@pytest.mark.parametrize("seed", [42000110019, 42000000027, 42000180002, 42000010085])
def test_wedges_and_contradictions_that_floating_point_hides_are_settled_in_fractions(seed):
    """Multipliers of 10^11, and rows that leave no point by 10^-12 of what they compare; gaps were open."""
    problem, rows, inside, feasible = random_case(np.random.default_rng(seed), extreme=True)
    names = steep(seed)
    r = vo.minimize(names["f"], subject_to=names["limits"])
    assert r.status is (Status.OPTIMAL if feasible else Status.INFEASIBLE)
    assert not [*complaints(problem, rows, r, names["limits"], names["f"], inside=inside, feasible=feasible)]


@pytest.mark.parametrize("thin", [2.0**-20, 2.0**-30, 2.0**-33, 2.0**-36])
def test_a_wedge_is_as_thin_as_its_numbers_say(thin):
    """Between two rows that are all but parallel ``w[1] <= 1/2`` holds, and in floating point so does much else."""
    w = vo.Variable(2)
    wedge = [0.5 * w[0] + 0.75 * w[1] <= 1.0, -0.5 * w[0] - (0.75 - thin) * w[1] <= thin / 2.0 - 1.0]
    r = vo.minimize(vo.sum_squares(w - np.array([0.0, 4.0])), subject_to=wedge)
    assert closed(r)
    np.testing.assert_allclose(r[w], [1.25, 0.5], atol=1e-12)
    # They balance (2.5, -7): first - second = -5, and 3/4 (first - second) + thin second = 7.
    np.testing.assert_allclose([r.multipliers[c] for c in wedge], [10.75 / thin - 5.0, 10.75 / thin], rtol=1e-6)


def test_a_point_that_a_run_has_ended_at_is_found():
    """It satisfies the constraints once rounding is repaired, and its bracket was closed: NOT_FOUND was told of it."""
    names = steep(42200000129)
    r = vo.minimize(names["f"], subject_to=names["limits"])
    assert closed(r)
    assert r.violation == 0.0


def test_bounds_of_zero_as_rows_of_a_matrix_hold():
    """A row that compares nothing but a zero is missed by whatever rounding leaves of it: no point was found."""
    report = Report()
    constraints(42000190007, report)
    assert report.runs["constraints"] == 1
    assert not report.findings


def test_multipliers_leave_out_rows_whose_slack_looks_like_rounding():
    """A row of 2 10^11 is an eighth from its bound: that rounds to nothing, and others balance alone."""
    w, b = vo.Variable(2), vo.Variable()
    steep = vo.sum(vo.squared_hinge(1e9 * vo.diff(w) - np.array([13.0])))
    f = steep + 725190784.2533871 * vo.sum(vo.pinball(vo.diff(w) + b, 0.82))
    thin = np.array([[-0.375, -0.875], [1.625, 0.875], [0.37500762939453125, 0.875], [-1.6249923706054688, -0.875]])
    large = np.array([[68719476736.0, 206158430208.0], [-0.0234375, 0.013671875]])
    bounds = np.array([[0.0, 536870912.0], [32768.0, 0.0], [0.0, 0.015625]])
    limits = [
        thin @ w <= np.array([-1.25, 2.5, 1.2500076293945312, -2.4999923706054688]),
        large @ w <= np.array([274877906944.125, -0.009765148162841797]),
        bounds @ w <= np.array([536870912.0, 32768.0, 0.015625]),
    ]
    r = vo.minimize(f, subject_to=limits)
    assert r.fun == pytest.approx(196.0, rel=1e-9)
    for c in limits:
        slack = np.abs(c.normal.values({v: np.atleast_1d(r[v]) for v in r.slices}))
        assert r.multipliers[c] @ slack <= 1e-6 * r.fun


def test_multipliers_that_hide_in_their_own_size_are_none():
    """Two faint rows that hold w up and down: their forces of 10^6 cancel but for what balances f."""
    w, faint = vo.Variable(1), 2.0**-40
    limits = [faint * w <= faint * 0.25, -faint * w <= -faint * 0.25]
    x, force = np.array([0.25]), 2.0**20
    f = 1.5 * vo.norm1(w)
    penalised = Penalised(f, limits)
    for missed, holds in ((0.0, True), (1e-12, True), (1e-4, False), (1.0, False)):
        y = [np.array([force / faint]), np.array([(force + 1.5 + missed) / faint])]
        for dual in (None, [np.array([1.0])]):
            assert are_multipliers(penalised, y, x, dual, 0.0) is holds
    assert not are_multipliers(penalised, [np.array([-1.5 / faint]), np.zeros(1)], x, None, 0.0)


def test_multipliers_where_a_constraint_leaves_one_point_are_its_slope():
    """A run that was stopped had numbers of 10^12 for it, though the point was proved to be optimal without them."""
    w = vo.Variable(1)
    f = 1e6 * vo.norm2(np.array([[1.0], [0.0], [-1.0], [-1.0]]) @ w + np.array([100.0, 300.0, 400.0, -700.0]), groups=2)
    fixed = 2.0**-10 * w == 2.0**-12
    first, second = np.array([100.25, 300.0]), np.array([399.75, -700.25])
    slope = 1e6 * (first[0] / np.linalg.norm(first) - second.sum() / np.linalg.norm(second))
    penalised, x = Penalised(f, [fixed]), np.array([0.25])
    assert are_multipliers(penalised, [np.array([-slope * 2.0**10])], x, None, 0.0)
    assert not are_multipliers(penalised, [np.array([-2.975e12])], x, None, 0.0)
    r = vo.minimize(f, subject_to=[fixed])
    np.testing.assert_allclose(r.multipliers[fixed], -slope * 2.0**10, rtol=1e-9)


UNITS_APART = {
    "rows and columns": (
        [[0.0, -(2.0**44)], [0.0234375, -(2.0**43)], [2.0**-57, -(2.0**-7)], [-14.0, 1.3510798882111488e16]],
        [-6291456.0, -2097152.0, -(2.0**-29), 4026531840.000244],
    ),
    "columns": (
        [[-1.2e-100, -6e29], [6e-101, -9e29], [-1.8e-100, -3e29], [1.2e-100, -9e29], [1.2e-100, 6e30]],
        [7.0, 7.0, 10.0, 13.0, -87.0],
    ),
}


def test_a_bound_is_kept_to_where_rows_hardly_see_its_variable():
    """In units of such rows the rounding of others is a millionth of the variable, by which no bound may be missed."""
    w = vo.Variable(3)
    A = np.array([[-2.1e-6, 0.75, -393216.0], [-4.3e-6, -2.5, 196608.0], [2.4e-6, -1.0, 524288.0]])
    b = np.array([196606.7, -98299.6, -262142.2])
    penalised = Penalised(vo.sum(w), [A @ w <= b, w >= np.array([-1.25, -3.25, -0.5])])
    assert penalised.holds(np.array([-1.25, -1.75, -0.5]))
    assert not penalised.holds(np.array([-1.250002, -1.75, -0.5]))


@pytest.mark.parametrize("name", UNITS_APART)
def test_variables_in_units_far_apart_are_no_excuse_for_missing_a_row(name):
    """The rounding of the largest coordinate is that of others only in units in which rows compare them."""
    matrix, bound = map(np.array, UNITS_APART[name])
    w = vo.Variable(2)
    r = vo.minimize(-5.4569682106375694e-12 * w[0] - 4096 * w[1] + 1e9, subject_to=matrix @ w <= bound)
    assert r.status is Status.INFEASIBLE


def test_multipliers_balance_every_entry_of_a_gradient_in_its_unit():
    """Beside an entry of 1e66, one of 1e-99 that is off by a sixth is no rounding."""
    columns = np.array([2.28597478256455e-100, 3.36999333339383e66])
    matrix = np.array([[-2.0, -2.0], [-3.0, -2.0], [-2.0, 0.0], [3.0, 3.0], [2.0, -2.0]]) * columns
    w, slope = vo.Variable(2), np.array([3.0, 2.0]) * columns
    rows = matrix @ w <= np.array([0.0, 2.0, 4.0, 2.0, -6.0])
    r = vo.minimize(slope @ w, subject_to=rows)
    y = r.multipliers[rows]
    assert r.status is Status.OPTIMAL
    assert np.all(y >= 0.0)
    np.testing.assert_allclose((slope + matrix.T @ y) / columns, 0.0, atol=1e-8)


def test_a_reduced_problem_whose_point_lifts_to_no_number_is_no_error():
    """In units of 1e-105 what falls for ever is beyond all numbers, which LAPACK's wrapper refuses."""
    columns = np.array([2.3945242826029513e52, 8.720301752336693e-106, 3.1082702275611665e85])
    matrix = np.array([[3.0, -3.0, -2.0], [3.0, 3.0, 3.0], [0.0, 1.0, 1.0], [-2.0, -3.0, -2.0], [3.0, -2.0, -3.0]])
    w = vo.Variable(3)
    rows = matrix * columns @ w <= np.array([-15.0, 12.0, 6.0, -10.0, -15.0])
    r = vo.minimize(np.array([0.0, -2.2323972485981933e-103, 0.0]) @ w + 0.1, subject_to=rows)
    assert r.lower == -np.inf
    assert np.all(np.isfinite(r.x))


@pytest.mark.parametrize("exponents", [(300, -500), (0, -900), (900, 0)])
def test_numbers_that_overflow_are_no_news_to_a_user(data, exponents):
    X, y = data
    unit, scale = np.ldexp(1.0, exponents)
    w = vo.Variable(6)

    def solved(unit, v):
        return vo.minimize(unit * (vo.norm1(X @ v - y) + vo.norm2(v)), subject_to=[v >= 0, vo.sum(v) == 1])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = solved(unit, w / scale)
    best = solved(1.0, w)
    assert r.lower / unit <= best.upper
    assert r.upper / unit >= best.lower


def test_where_the_value_is_no_number_nothing_is_optimal():
    """The squares of what must be at least 1e300 are none: the bracket ended at infinity, within any tolerance."""
    w = vo.Variable(2)
    r = vo.minimize(vo.sum_squares(w), subject_to=[w >= 1e300])
    assert not r.success
    assert r.upper == np.inf
