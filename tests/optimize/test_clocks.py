"""Time limits: what cannot look at the clock is not begun where it would end late, and no limit is an error."""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

import varopt as vo
from varopt import learn
from varopt._clock import TimeUp, deadline  # a deadline around a part of a run
from varopt._linalg import InverseEnergy, factorised_sparse, solve_definite  # what cannot be stopped on the way
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import State, settle


def wide(scale=1.0):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((72, 2000))
    return scale * X, X[:, :5] @ np.arange(1.0, 6.0) + rng.standard_t(2, 72)


WIDE = ["FusedLasso", "FusedLassoCV", "HuberRegressor", "LinearSVR", "GroupLassoCV", "CompositeRegressor"]


@pytest.mark.parametrize("limit", [0.05, 0.1])
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("scale", [1.0, 1e150])
def test_wide_data_keep_to_small_limits(name, scale, limit):
    """A tenth of a second late is in time: the least of a few, on the clock or of a processor, as others may work."""
    X, y = wide(scale)
    model, spent = getattr(learn, name)(time_limit=limit), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            started, cpu = time.perf_counter(), time.process_time()
            model.fit(X, y)
            spent += [time.perf_counter() - started, time.process_time() - cpu]  # two threads count twice
    assert min(spent) <= limit + 0.1
    assert np.isfinite(model.objective_)


@pytest.mark.parametrize("name", ["HuberRegressor", "HuberRegressorCV"])
def test_a_limit_before_the_first_step_is_no_overflow(name):
    """20,000 rows have a pilot: where time is up before its first step, the start is the answer."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 20))
    model = getattr(learn, name)(time_limit=1e-6)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, X[:, 0] + rng.standard_t(2, 20_000))
    assert model.lower_bound_ <= model.objective_ < np.inf


def test_steps_in_the_scale_look_at_the_clock_where_all_rows_are_one_part():
    """Far from zero columns are counted from what they have in common, and no pass over rows tells the time."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 12)) + 1e7
    model = learn.HuberRegressor(fit_intercept=False, time_limit=1e-3)
    with pytest.warns(ConvergenceWarning, match="time"):
        model.fit(X, X[:, 0] - 1e7 + rng.standard_normal(60) + 1e8)
    assert model.gap_ > 1.0  # it ends in a tenth of a second at 7e-5: stopped, it knows next to nothing
    assert model.lower_bound_ <= model.objective_ < np.inf


def test_sparse_factors_that_fill_up_are_not_begun():
    """A Gram matrix of random rows is full after a few pivots: nine seconds of a limit of a tenth."""
    rng = np.random.default_rng(0)
    X = sp.random_array((8000, 3000), density=0.004, rng=rng, format="csr")
    gram = sp.csr_array(X.T @ X + sp.eye_array(3000))
    with deadline(0.05, late=0.0), pytest.raises(TimeUp):
        factorised_sparse(gram)
    blocks = sp.csr_array(sp.kron(sp.eye_array(600), np.ones((100, 100)) + 100.0 * np.eye(100)))
    with deadline(30.0, late=0.0):  # 6e4 variables, though 2e14 operations were it full
        solved = factorised_sparse(blocks[::-1][:, ::-1])(np.ones(60_000))
    np.testing.assert_allclose(solved, 1.0 / 200.0)
    w = vo.Variable(3000)
    started = time.process_time()
    r = vo.minimize(vo.norm1(X @ w - rng.standard_normal(8000)) + 0.1 * vo.norm1(w), time_limit=0.1)
    assert r.status is Status.TIME_LIMIT
    assert r.lower <= r.upper
    assert time.process_time() - started < 1.0


def test_dense_factors_that_end_late_are_not_begun():
    matrix = np.eye(3000)
    with deadline(0.01, late=0.0):
        with pytest.raises(TimeUp):
            solve_definite(matrix, np.ones(3000))
        with pytest.raises(TimeUp):
            InverseEnergy(matrix)(np.ones(3000))
    np.testing.assert_array_equal(solve_definite(matrix[:400, :400], np.ones(400)), 1.0)


def test_conic_programmes_of_many_variables_are_refused(rng):
    """By name it took all memory."""
    X, w = rng.standard_normal((20_000, 3)), vo.Variable(3)
    f = vo.sum(vo.huber(X @ w - 1.0)) + vo.norm2(w)
    with pytest.raises(ValueError, match=r"conic.*variables.*dense matrices"):
        vo.minimize(f, method="conic")
    few = vo.sum(vo.huber(X[:1000] @ w - 1.0)) + vo.norm2(w)
    assert vo.minimize(few, method="conic", time_limit=1e-3).state.steps <= 1


def test_the_first_steps_of_a_small_level_are_taken_whatever_the_limit(rng):
    X, w = rng.standard_normal((200, 8)), vo.Variable(8)  # of fewer rows the crossover takes every kink on at once
    r = vo.minimize(vo.sum(vo.huber(X @ w - rng.standard_t(1, 200), 0.01)), method="newton", time_limit=1e-9)
    assert r.status is Status.TIME_LIMIT
    assert 1 <= r.state.steps <= 10


def test_a_range_of_many_rows_is_refused():
    """By name it made a matrix of 80 GB out of a signal."""
    u = vo.Variable(100_000)
    with pytest.raises(ValueError, match=r"range.*rows"):
        vo.minimize(vo.sum_squares(u - 1.0) + vo.norm1(vo.diff(u)), method="range")


def test_a_polynomial_that_is_solved_exactly_at_last_keeps_to_its_limit(rng):
    t = np.linspace(0.0, 1.0, 400)
    f = vo.sum(
        vo.pinball(t[:, None] ** np.arange(15) @ vo.Variable(15) - np.sin(6.0 * t) - rng.standard_normal(400), 0.5)
    )
    spent = []
    for _ in range(4):
        started, cpu = time.perf_counter(), time.process_time()
        r = vo.minimize(f, time_limit=0.3)
        spent += [time.perf_counter() - started, time.process_time() - cpu]
        assert r.lower <= r.upper
    assert min(spent) <= 0.4


@pytest.mark.parametrize("seed", range(40))
def test_small_problems_that_fall_for_ever_need_no_method(seed):
    """One linear programme, here HiGHS's, tells whether they do; ours is asked before anything else is tried."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(2, 12)), int(rng.integers(1, 6))
    X, line, w = np.rint(2.0 * rng.standard_normal((n, p))), rng.standard_normal(p), vo.Variable(p)
    weight = 10.0 ** rng.uniform(-1.5, 0.5)
    r = vo.minimize(weight * vo.sum(vo.pos(X @ w - 1.0)) + line @ w)
    # min c't + g'w with t >= Xw, t >= 0: unbounded, or zero at zero.
    cost, above = np.r_[weight * np.ones(n), line], np.c_[-np.eye(n), X]
    falls = linprog(cost, A_ub=above, b_ub=np.zeros(n), bounds=[(0, None)] * n + [(None, None)] * p).status == 3
    assert (r.status is Status.UNBOUNDED) is falls
    assert not falls or r.method == "none"


@pytest.mark.parametrize("seed", range(40))
def test_small_problems_with_norms_are_solved_in_time(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(3, 12)), 2 * int(rng.integers(1, 4))
    X, w = np.rint(2.0 * rng.standard_normal((n, p))), vo.Variable(p)
    loss = (vo.abs, vo.huber, vo.hinge)[seed % 3]
    r = vo.minimize(vo.sum(loss(X @ w - rng.standard_normal(n))) + 0.5 * vo.norm2(w, groups=2), time_limit=10.0)
    assert r.status in (Status.OPTIMAL, Status.ASSUMED)


def test_low_rank_without_a_matrix_is_refused_in_a_sentence(rng):
    f = vo.norm1(rng.standard_normal((30, 4)) @ vo.Variable(4) - 1.0)
    with pytest.raises(ValueError, match="'low-rank' does not take this objective: its quadratic is not given"):
        vo.minimize(f, method="low-rank")


def test_the_bracket_of_a_small_stopped_run_has_a_budget(rng, monkeypatch):
    """Of many blocks three dual points that are to balance took a tenth of a second, after time was up."""
    X, w = rng.standard_normal((20, 3)), vo.Variable(3)
    problem = composite(vo.sum(vo.abs(X @ w - 1.0)))
    state = State(np.zeros(3))
    settle(problem, state)
    assert np.isfinite(state.lower)
    monkeypatch.setattr("varopt.solvers._stopped._QUICK_SECONDS", -1.0)
    state = State(np.zeros(3))
    settle(problem, state)
    assert state.lower == -np.inf
