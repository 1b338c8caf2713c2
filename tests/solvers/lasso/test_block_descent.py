"""Large lassos block by block: the exact optimum without a Gram matrix, and other methods where blocks do not do."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import Composite, composite
from varopt.optimize import Status
from varopt.solvers import BlockDescent, Pivoting


def data(n, p, g, kind="plain"):
    X = g.standard_normal((n, p))
    if kind == "correlated":
        X += 3.0 * g.standard_normal((n, 1))
    if kind == "duplicate, constant and zero columns":
        X[:, p // 2 :] = X[:, : p - p // 2]
        X[:, 0], X[:, 1] = 1.0, 0.0
    if kind == "Fortran":
        X = np.asfortranarray(X)
    if kind == "float32":
        X = X.astype(np.float32)
    w = np.where(g.random(p) < 0.3, g.standard_normal(p), 0.0) / np.sqrt(np.mean(X.astype(float) ** 2, axis=0) + 1e-9)
    return X, X @ w + 0.5 * g.standard_normal(n)


PENALTIES = {
    "lasso": lambda w, lam, g: lam @ vo.abs(w),
    "elastic net": lambda w, lam, g: lam @ vo.abs(w) + 0.3 * vo.sum_squares(w),
    "towards a point": lambda w, lam, g: lam @ vo.abs(w - g.standard_normal(w.shape[0])),
    "asymmetric": lambda w, lam, g: lam @ vo.pinball(w, 0.3),
    "a few only": lambda w, lam, g: lam[:9] @ vo.abs(w[:9]),
}
KINDS = ["plain", "correlated", "duplicate, constant and zero columns", "Fortran", "float32"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_bracket_holds_the_optimum_of_the_explicit_programme(penalty, kind, monkeypatch):
    monkeypatch.setattr("varopt.solvers.lasso._block_descent._ROUND", 0.1)  # other methods would be asked at once
    g = np.random.default_rng([list(PENALTIES).index(penalty), KINDS.index(kind)])
    X, y = data(60, 21, g, kind)
    weights = np.where(g.random(60) < 0.1, 0.0, g.uniform(0.5, 2.0, 60))
    w, b = vo.Variable(21), vo.Variable()
    for share in (0.3, 0.01):
        lam = share * np.abs(y @ X).clip(1e-3)
        f = weights @ vo.square(y - X @ w - b) + PENALTIES[penalty](w, lam, g)
        r, optimum = vo.minimize(f, method=BlockDescent(block=4)), explicit_optimum(f)
        slack = 1e-7 * max(1.0, abs(optimum))  # of the reference, not of ours
        assert r.status is Status.OPTIMAL
        assert r.lower - slack <= optimum <= r.upper + slack


def test_the_units_of_the_columns_do_not_matter(monkeypatch):
    monkeypatch.setattr("varopt.solvers.lasso._block_descent._ROUND", 0.1)
    g = np.random.default_rng(4)
    X, y = data(60, 21, g)
    units = 10.0 ** g.uniform(-6, 6, 21)
    w, b = vo.Variable(21), vo.Variable()
    for lam in (20.0, 0.2):
        f = vo.sum_squares(y - X @ w - b) + lam * vo.norm1(w)
        scaled = vo.sum_squares(y - (X * units) @ w - 1e6 * b) + (lam * units) @ vo.abs(w)
        r = vo.minimize(scaled, method=BlockDescent(block=4))
        assert r.status is Status.OPTIMAL
        assert r.nit > 1
        assert r.fun == pytest.approx(explicit_optimum(f), rel=1e-7)


def test_squares_of_several_matrices_and_of_single_variables_add_up():
    g = np.random.default_rng(0)
    X, y = data(80, 30, g)
    w = vo.Variable(30)
    f = vo.sum_squares(y[:50] - X[:50] @ w) + 2.0 * vo.sum_squares(y[50:] - X[50:] @ w) + vo.sum_squares(w[3:7])
    f = f + 5.0 * vo.norm1(w)
    r = vo.minimize(f, method=BlockDescent(block=7))
    assert r.status is Status.OPTIMAL
    assert r.x == pytest.approx(vo.minimize(f, method="pivoting").x, abs=1e-4)
    assert r.fun == pytest.approx(explicit_optimum(f), rel=1e-8)


def test_rounds_end_the_sooner_for_extrapolation(monkeypatch):
    g = np.random.default_rng(1)
    X, y = data(70, 60, g)
    w = vo.Variable(60)
    f = vo.sum_squares(y - X @ w) + 0.5 * vo.norm1(w)
    monkeypatch.setattr("varopt.solvers.lasso._block_descent._ROUND", 1e-9)  # no other method
    fast = vo.minimize(f, method=BlockDescent(block=6))
    monkeypatch.setattr("varopt.solvers.lasso._blocks.Blocks.extrapolate", lambda self: None)
    slow = vo.minimize(f, method=BlockDescent(block=6))
    assert fast.status is slow.status is Status.OPTIMAL
    assert fast.nit < slow.nit


def large(n=1200, p=1000, correlation=0.0):
    g = np.random.default_rng(2)
    X = g.standard_normal((n, p)) + correlation * g.standard_normal((n, 1))
    w = vo.Variable(p)
    return vo.sum_squares(X[:, 0] + X[:, 1] - X @ w + g.standard_normal(n)) + 300.0 * vo.norm1(w)


def test_large_lassos_are_solved_so_and_their_gram_matrix_is_not_formed(monkeypatch):
    monkeypatch.setattr(Composite, "hessian", property(lambda self: pytest.fail("the Gram matrix was formed")))
    r = vo.minimize(large())
    assert (r.method, r.status) == ("block-descent", Status.OPTIMAL)
    assert r.gap <= 1e-9 * r.fun


def test_the_data_are_not_copied():
    f = large(4000)
    tracemalloc.start()
    vo.minimize(f)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * 8 * 4000 * 1000


def test_correlated_columns_are_left_to_another_method_which_goes_on_from_there(monkeypatch):
    taken = []
    solve = Pivoting.solve
    monkeypatch.setattr(Pivoting, "solve", lambda self, problem, state, *rest: (
        taken.append(state.x.any()), solve(self, problem, state, *rest)))  # fmt: skip
    r = vo.minimize(large(correlation=30.0))
    assert r.status is Status.OPTIMAL
    assert taken == [True]


def test_what_blocks_cannot_do_is_not_handed_back_and_forth(monkeypatch):
    monkeypatch.setattr(BlockDescent, "fewest", 50)
    monkeypatch.setattr("varopt.solvers.reductions._working_set._FORMED", 60)
    g = np.random.default_rng(5)
    X = g.standard_normal((150, 100)) + 30.0 * g.standard_normal((150, 1))
    w = vo.Variable(100)
    for lam in (1e-3, 1.0):
        r = vo.minimize(vo.sum_squares(X[:, 0] + g.standard_normal(150) - X @ w) + lam * vo.norm1(w))
        assert r.status is Status.OPTIMAL


def test_a_tolerance_of_zero_ends():
    r = vo.minimize(large(), tol=0.0)
    assert r.state.gap <= 1e-12 * r.fun


def test_a_path_forms_the_gram_matrix_once_instead():
    n, p = 1100, 1000
    g = np.random.default_rng(3)
    X = g.standard_normal((n, p))
    w, lam = vo.Variable(p), vo.Parameter("lam")
    f = vo.sum_squares(X[:, 0] - X @ w) + lam * vo.norm1(w)
    assert [r.method for r in vo.path(f, lam, [800.0, 400.0])] == ["pivoting", "pivoting"]


def test_a_run_that_is_stopped_has_a_bracket_and_goes_on():
    f = large()

    def stop(state):
        raise StopIteration

    stopped = vo.minimize(f, callback=stop)
    assert stopped.status is Status.INTERRUPTED
    assert -np.inf < stopped.lower <= f(stopped.x) <= stopped.upper
    resumed = vo.minimize(f, resume=stopped)
    assert resumed.status is Status.OPTIMAL
    assert stopped.lower <= resumed.fun <= stopped.upper  # the upper end has its own rounding added


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda w: vo.norm1(np.eye(3) @ w - 1.0) + vo.norm1(w), "rows other than one kink"),
        (lambda w: vo.sum_squares(np.ones((4, 3)) @ w - 1.0), "no kinks"),
        (lambda w: vo.sum_squares(w) + vo.norm1(w), "no squares of rows"),
        (lambda w: vo.quad_form(w, np.ones((3, 3))) + vo.sum_squares(np.ones((4, 3)) @ w) + vo.norm1(w), "a matrix"),
    ],
)
def test_what_it_cannot_do_it_says(make, why):
    f = make(vo.Variable(3))
    assert why in BlockDescent().refusal(composite(f))
    with pytest.raises(ValueError, match=why):
        vo.minimize(f, method="block-descent")
