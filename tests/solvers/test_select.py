"""What `auto` takes, what goes on where a method ends without a proof, and what `Result.method` tells of it."""

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt._clock import left  # a method that looks at the clock
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import METHODS, Auto, BlockDescent, GaveUp, InteriorPoint, Method, Newton, Pivoting, State, settle


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """On a busy machine the seconds of rational arithmetic are few."""
    monkeypatch.setattr("varopt.solvers._select._EXACT_SECONDS", 100.0)


@pytest.fixture
def data(rng):
    X = rng.standard_normal((60, 5))
    return X, X @ np.arange(5.0) + rng.standard_t(2, 60)


@pytest.fixture
def deviations(data):
    X, y = data
    return vo.sum(vo.huber(y - X @ vo.Variable(5)))  # lines alone would be a linear programme


@pytest.fixture
def lasso(data):
    X, y = data
    w = vo.Variable(5)
    return vo.sum_squares(y - X @ w) + 3.0 * vo.norm1(w)


def test_one_method_is_all_that_ran(deviations, lasso):
    assert vo.minimize(deviations).method == "newton"
    assert vo.minimize(lasso).method == "pivoting"


def test_a_start_that_is_optimal_needs_no_method():
    assert vo.minimize(vo.norm1(vo.Variable(3))).method == "none"


@pytest.mark.parametrize("gives_up", [False, True])
def test_the_next_goes_on_where_one_ends_without_a_proof(deviations, gives_up, monkeypatch):
    expected = vo.minimize(deviations).fun

    def ends(self, problem, state, tol, check):
        if gives_up:
            raise GaveUp

    monkeypatch.setattr(Newton, "solve", ends)
    r = vo.minimize(deviations)
    assert (r.method, r.status) == ("newton > rational", Status.OPTIMAL)  # there are few variables
    assert r.fun == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr("varopt.solvers._select.is_small", lambda problem: False)
    r = vo.minimize(deviations)
    assert (r.method, r.status) == ("newton > interior-point", Status.OPTIMAL)
    assert r.fun == pytest.approx(expected, rel=1e-9)


def test_a_method_that_gives_up_is_not_believed_in_small_units(lasso, monkeypatch):
    """Any bracket is within the tolerance there, but the point is not the optimum."""
    small = 1e-12 * lasso
    expected = vo.minimize(lasso).x

    def gives_up(self, problem, state, tol, check):
        state.see(state.x, problem.value(state.x), problem.value(state.x))
        raise GaveUp

    monkeypatch.setattr(Pivoting, "solve", gives_up)
    r = vo.minimize(small)
    assert r.method.startswith("pivoting > rational")  # since there are few variables
    np.testing.assert_allclose(r.x, expected, atol=1e-5)


def test_every_method_begins_its_path_where_the_first_began(deviations, monkeypatch):
    """At the best point, but not at the sigma or the latest point that another left behind."""
    begun = []
    solve = Newton.solve

    def astray(self, problem, state, tol, check):
        state.latest, state.sigma = np.full(problem.size, 1e9), 1e-30
        state.see(np.ones(problem.size), problem.value(np.ones(problem.size)))

    def ends(self, problem, state, tol, check):
        begun.append((self.thorough, state.latest, state.sigma, *state.x))
        if self.thorough:
            solve(self, problem, state, tol, check)

    monkeypatch.setattr("varopt.solvers._select.is_small", lambda problem: False)
    monkeypatch.setattr(InteriorPoint, "solve", astray)
    monkeypatch.setattr(Newton, "solve", ends)
    r = vo.minimize(deviations)
    assert (r.method, r.status) == ("newton > interior-point", Status.OPTIMAL)
    assert begun == [(False, None, np.inf, *np.zeros(5)), (True, None, np.inf, *np.ones(5))]


@pytest.mark.parametrize("name", ["diagonal-newton", "lbfgs"])
def test_others_go_on_after_the_paper_s_methods(name, deviations, monkeypatch):
    """What `auto` would take, and what comes after it; exact arithmetic first where variables are few."""
    monkeypatch.setattr(type(METHODS[name]), "solve", lambda self, problem, state, tol, check: None)
    r = vo.minimize(deviations, method=name)
    assert (r.method, r.status) == (f"{name} > rational", Status.OPTIMAL)
    monkeypatch.setattr("varopt.solvers._select.is_small", lambda problem: False)
    r = vo.minimize(deviations, method=name)
    assert (r.method, r.status) == (f"{name} > newton", Status.OPTIMAL)


@pytest.mark.parametrize("name", ["diagonal-newton", "lbfgs"])
def test_the_paper_s_methods_close_the_gap_that_their_steps_leave(name):
    """The objective is flat in neither variable, but single steps of each do not lead to its vertex."""
    w = vo.Variable(2)
    A = np.array([[1.0, 1.0], [1.0, 1.1], [1.0, -0.9], [2.0, 1.7]])
    f = vo.norm1(A @ w - np.array([1.0, 0.2, -0.7, 0.4]))
    r = vo.minimize(f, method=name)
    assert r.status is Status.OPTIMAL
    assert r.fun == pytest.approx(vo.minimize(f).fun, rel=1e-9)
    alone = vo.minimize(f, method=type(METHODS[name])(most=5))
    assert (alone.method, alone.status) == (name, Status.GAP_OPEN)


def test_a_number_of_steps_is_all_there_is(deviations):
    """Who says how many steps to take has these, as the paper's figures need them."""
    r = vo.minimize(deviations, method=vo.solvers.DiagonalNewton(most=7))
    assert (r.method, r.nit, r.status) == ("diagonal-newton", 7, Status.GAP_OPEN)


def test_a_method_by_name_is_followed_by_others_too(lasso, monkeypatch):
    monkeypatch.setattr(Pivoting, "solve", lambda self, problem, state, tol, check: None)
    assert vo.minimize(lasso, method="pivoting").method == "pivoting > rational"
    monkeypatch.setattr("varopt.solvers._select.is_small", lambda problem: False)
    assert vo.minimize(lasso, method="pivoting").method.startswith("pivoting > newton")


def test_a_method_can_be_left_out(lasso):
    r = vo.minimize(lasso, method=Auto(but=("pivoting",)))
    assert (r.method, r.status) == ("program", Status.OPTIMAL)


@pytest.mark.parametrize(
    ("rows", "variables", "entries", "method"),
    [(40, 5, 2, "program"), (900, 30, 3, "newton"), (3000, 40, 12, "newton"), (300, 100, 3, "interior-point"),
     (20_000, 320, 30, "newton")],
)  # fmt: skip
def test_sparse_rows_that_are_many_or_long_beside_the_variables_go_to_dense_methods(
    rows, variables, entries, method, rng
):
    S = sp.random(rows, variables, density=entries / variables, rng=rng, format="csr")
    f = vo.sum(vo.pinball(S @ np.ones(variables) + rng.standard_normal(rows) - S @ vo.Variable(variables), 0.3))
    r = vo.minimize(f)
    assert (r.method, r.status) == (method, Status.OPTIMAL)
    assert vo.minimize(f, method="interior-point").fun == pytest.approx(r.fun, rel=1e-9)


def test_a_convex_problem_is_not_left_to_what_proves_nothing(deviations):
    r = vo.minimize(deviations, method=Auto(but=("newton",)))
    assert (r.method, r.status) == ("interior-point", Status.OPTIMAL)


def test_a_method_left_out_is_left_out_of_smaller_problems_too(rng):
    w = vo.Variable(400)
    f = vo.sum_squares(rng.standard_normal(20) - rng.standard_normal((20, 400)) @ w) + 3.0 * vo.norm1(w)
    assert vo.minimize(f).method == "working-set > pivoting"
    left = vo.minimize(f, method=Auto(but=("pivoting",)))
    assert left.method.startswith("working-set > ")
    assert "pivoting" not in left.method
    assert left.status is Status.OPTIMAL


def test_what_is_left_out_must_be_a_method(lasso):
    with pytest.raises(ValueError, match=r"but must name some of 'taut-string', .*; got 'simplex'"):
        vo.minimize(lasso, method=Auto(but=("simplex",)))


def test_where_nothing_is_left_the_reasons_are_told(rng):
    w = vo.Variable(6)
    f = vo.sum_squares(rng.standard_normal(9) - rng.standard_normal((9, 6)) @ w) + vo.norm2(w)
    assert vo.minimize(f).method == "group-descent"
    with pytest.raises(ValueError, match=r"No method takes this objective: .*group norms"):
        vo.minimize(f, method=Auto(but=("group-descent", "conic", "group-newton", "working-set")))


def test_a_large_dense_problem_is_not_handed_to_what_would_form_its_matrix(rng, monkeypatch):
    monkeypatch.setattr("varopt.solvers._select.is_small", lambda problem: False)
    monkeypatch.setattr("varopt.solvers._select._FORMED", 4)
    monkeypatch.setattr(Pivoting, "solve", lambda self, problem, state, tol, check: None)
    w = vo.Variable(5)
    f = vo.sum_squares(rng.standard_normal(9) - rng.standard_normal((9, 5)) @ w) + vo.norm1(w)
    assert vo.minimize(f).method == "pivoting"


def test_it_is_handed_to_a_reduction_all_the_same(rng, monkeypatch):
    monkeypatch.setattr("varopt.solvers._select._FORMED", 60)
    monkeypatch.setattr("varopt.solvers.reductions._working_set._FORMED", 60)
    monkeypatch.setattr(BlockDescent, "fewest", 50)
    monkeypatch.setattr(BlockDescent, "solve", lambda self, problem, state, tol, check: None)
    w = vo.Variable(250)
    f = vo.sum_squares(rng.standard_normal(300) - rng.standard_normal((300, 250)) @ w) + 30.0 * vo.norm1(w)
    r = vo.minimize(f)
    assert (r.method, r.status) == ("block-descent > working-set > pivoting", Status.OPTIMAL)


def test_a_user_s_method_runs_alone(lasso):
    @dataclass(frozen=True)
    class Guess(Method):
        name: ClassVar[str] = "guess"

        def refusal(self, problem):
            return ""

        def solve(self, problem, state, tol, check):
            state.see(np.ones(problem.size), problem.value(np.ones(problem.size)))

    r = vo.minimize(lasso, method=Guess())
    assert (r.method, r.status) == ("guess", Status.GAP_OPEN)
    np.testing.assert_array_equal(r.x, np.ones(5))


def test_what_ran_is_told_anew_by_a_run_that_goes_on(deviations):
    first = vo.minimize(deviations, tol=1e-2)
    assert vo.minimize(deviations, resume=first).method == "newton"


def test_every_method_has_its_name():
    assert all(method.name == name for name, method in METHODS.items())
    assert len({type(method) for method in METHODS.values()}) == len(METHODS)


def test_methods_that_are_not_loaded_pay_from_as_many_variables_as_they_state():
    """The table and the methods say the same, and to be asked from how many on loads none."""
    unseen = type(METHODS)(METHODS.homes)
    told = {name: unseen.fewest(name) for name in unseen}
    assert told == {name: type(way).fewest for name, way in METHODS.items()}
    assert min(told.values()) == 1 < max(told.values())
    with pytest.raises(KeyError):
        METHODS["nonsense"]


def test_a_problem_is_solved_without_the_front_end(deviations):
    problem, state = composite(deviations.checked), State(np.zeros(5))
    Auto().solve(problem, state, 1e-9, lambda _: None)
    assert state.reached(1e-9)
    assert state.ran == ["newton"]


def test_exact_arithmetic_leaves_time_for_others(monkeypatch, rng):
    """Of a time limit it takes a share: the methods after it may find what it does not."""
    given: list[float] = []
    monkeypatch.setattr("varopt.solvers._select.exact_minimum", lambda *_: given.append(left()))
    x, matrix = vo.Variable(16), rng.normal(size=(290, 16))
    steep = 1e14 * vo.abs(np.ones(5) @ x[:5] - 1.0 / 3.0) + 1e-9 * vo.norm1(x)
    vo.minimize(vo.sum(vo.huber(matrix @ x - rng.normal(size=290), 1.0 / 3.0)) + steep, time_limit=2.0)
    assert 0.0 < given[0] <= 0.5


@pytest.mark.parametrize("power", [14, 150, 160, 300])
def test_a_run_that_was_stopped_far_out_is_settled_without_overflow(power):
    """Along a path that falls for ever values overflow, to minus infinity even: no word of it, and no such bound."""
    w = vo.Variable(2)
    problem = composite(vo.quad_form(w, np.array([[0.1, 0.3], [0.3, 0.9]])) + vo.sum(vo.pos(w)) - w[0])
    state = State(np.zeros(2), latest=10.0**power * np.array([3.1, -1.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settle(problem, state)
    assert not np.isneginf(state.upper)


def test_methods_for_many_variables_are_not_asked_about_few(lasso, monkeypatch):
    for_many = [way for way in METHODS.values() if way.fewest > 5]
    assert {way.name for way in for_many} >= {"block-descent", "knots", "working-set", "range", "low-rank"}
    asked = []
    for way in for_many:
        monkeypatch.setattr(type(way), "suits", lambda self, problem: asked.append(self.name))
    assert vo.minimize(lasso).method == "pivoting"
    assert asked == []
    monkeypatch.setattr(BlockDescent, "fewest", 5)
    vo.minimize(lasso)
    assert asked == ["block-descent"]
