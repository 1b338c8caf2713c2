"""Many more variables than rows: working sets of variables, and never a matrix of variables by variables."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import Composite, composite, restricted
from varopt.optimize import Status
from varopt.solvers import WorkingSet


def wide(n, p, g, kind="plain"):
    X = g.standard_normal((n, p)) + g.standard_normal((n, 1))
    if kind == "ties":
        X = np.round(X)
    if kind == "duplicate and zero columns":
        X[:, p // 2 :] = X[:, : p - p // 2]
        X[:, ::7] = 0.0
    y = X @ np.where(g.random(p) < 5 / p, 2.0, 0.0) + g.standard_normal(n)
    return X, np.round(y) if kind == "ties" else y, np.where(y > np.median(y), 1.0, -1.0)


LOSSES = {
    "squares": lambda X, y, t, w, b: vo.sum_squares(y - X @ w - b),
    "pinball": lambda X, y, t, w, b: vo.sum(vo.pinball(y - X @ w - b, 0.3)),
    "absolute": lambda X, y, t, w, b: vo.norm1(y - X @ w - b),
    "epsilon-insensitive": lambda X, y, t, w, b: vo.sum(vo.epsilon_insensitive(y - X @ w - b, 0.2)),
    "hinge": lambda X, y, t, w, b: vo.sum(vo.hinge(t * (X @ w + b))),
    "squares and pinball": lambda X, y, t, w, b: vo.sum(vo.pinball(y - X @ w - b, 0.3)) + vo.sum_squares(X[:5] @ w),
}
PENALTIES = {
    "lasso": lambda w, lam, g: lam * vo.norm1(w),
    "weights": lambda w, lam, g: (lam * g.uniform(0.5, 1.5, w.shape[0])) @ vo.abs(w),
    "elastic net": lambda w, lam, g: lam * vo.norm1(w) + 0.1 * lam * vo.sum_squares(w),
    "towards a point": lambda w, lam, g: lam * vo.norm1(w - 0.1 * g.standard_normal(w.shape[0])),
    "asymmetric": lambda w, lam, g: lam * vo.sum(vo.pinball(w, 0.4)),
}


@pytest.mark.parametrize("kind", ["plain", "ties", "duplicate and zero columns"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_bracket_holds_the_optimum_of_the_explicit_programme(loss, penalty, kind):
    g = np.random.default_rng([list(LOSSES).index(loss), list(PENALTIES).index(penalty)])
    X, y, t = wide(12, 210, g, kind)
    w, b = vo.Variable(210), vo.Variable()
    for lam in (3.0, 0.3):
        f = LOSSES[loss](X, y, t, w, b) + PENALTIES[penalty](w, lam, g)
        r, optimum = vo.minimize(f), explicit_optimum(f)
        slack = 1e-7 * max(1.0, abs(optimum))  # of the reference, not of ours
        assert r.method.startswith("working-set > ")
        assert r.status is Status.OPTIMAL
        assert r.lower - slack <= optimum <= r.upper + slack


@pytest.mark.parametrize("lam", [1.0, 0.1])
def test_curved_losses(lam, rng):
    X, y, _ = wide(12, 210, rng)
    w, b, v = vo.Variable(210), vo.Variable(), vo.Variable(12)
    f = vo.sum(vo.huber(y - X @ w - b, 0.4)) + lam * vo.norm1(w)
    split = 0.5 * vo.sum_squares(y - X @ w - b - v) + 0.4 * vo.norm1(v) + lam * vo.norm1(w)
    r, optimum = vo.minimize(f), explicit_optimum(split)
    assert r.method.startswith("working-set > ")
    assert r.status is Status.OPTIMAL
    assert r.lower - 1e-7 <= optimum <= r.upper + 1e-7


@pytest.mark.parametrize("first", [1, 10, 1000])
def test_the_size_of_the_set_does_not_matter(first, rng):
    X, y, _ = wide(15, 250, rng)
    w = vo.Variable(250)
    f = vo.sum_squares(y - X @ w) + 2.0 * vo.norm1(w)
    r = vo.minimize(f, method=WorkingSet(first=first))
    assert r.status is Status.OPTIMAL
    np.testing.assert_allclose(r.fun, vo.minimize(f, method="pivoting").fun, rtol=1e-10)


@pytest.mark.parametrize("loss", ["squares", "pinball", "hinge"])
def test_dual_points_of_a_few_variables_bound_the_whole(loss, rng):
    # Soundness at every round, not only at the last.
    X, y, t = wide(20, 300, rng)
    w, b = vo.Variable(300), vo.Variable()
    f = LOSSES[loss](X, y, t, w, b) + 0.5 * vo.norm1(w)
    seen = []
    r = vo.minimize(f, method=WorkingSet(first=3), callback=lambda s: seen.append((s.lower, s.upper)))
    optimum = explicit_optimum(f)
    slack = 1e-7 * max(1.0, abs(optimum))
    assert len(seen) > 3
    assert all(low - slack <= optimum <= up + slack for low, up in seen)
    assert r.status is Status.OPTIMAL


@pytest.mark.parametrize("n", [1, 2])
def test_one_row_is_enough(n, rng):
    X, y, t = wide(n, 300, rng)
    w, b = vo.Variable(300), vo.Variable()
    for loss in ("squares", "pinball", "hinge"):
        for intercept in (b, 0.0):
            r = vo.minimize(LOSSES[loss](X, y, t, w, intercept) + 0.1 * vo.norm1(w))
            assert r.status is Status.OPTIMAL


def test_a_tolerance_of_zero_ends(rng):
    X, y, _ = wide(50, 300, rng)
    w = vo.Variable(300)
    r = vo.minimize(vo.sum_squares(y - X @ w) + 0.37 * vo.norm1(w), tol=0.0)
    assert r.gap <= 1e-12 * r.fun


def test_no_matrix_of_variables_by_variables(rng, monkeypatch):
    monkeypatch.setattr(Composite, "hessian", property(lambda self: pytest.fail("the Hessian was formed")))
    X, y, _ = wide(10, 400, rng)
    w = vo.Variable(400)
    assert vo.minimize(vo.sum_squares(y - X @ w) + 2.0 * vo.norm1(w)).status is Status.OPTIMAL


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_memory_is_a_small_multiple_of_the_data(form, rng):
    X = sp.random_array((200, 20_000), density=0.01, rng=rng, format="csc")
    y = X @ np.where(np.arange(20_000) < 20, 3.0, 0.0) + 0.1 * rng.standard_normal(200)
    size = X.data.nbytes + X.indices.nbytes
    if form == "dense":
        X = X.toarray()
        size = X.nbytes
    w = vo.Variable(20_000)
    lam = 0.05 * np.abs(X.T @ y).max()
    tracemalloc.start()
    r = vo.minimize(vo.sum_squares(y - X @ w) + lam * vo.norm1(w))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert r.status is Status.OPTIMAL
    # Beside the data: vectors of one number for each variable, those of the proof too, and the columns of the set.
    assert peak < 2 * size + 42 * 8 * 20_000


def test_the_kind_of_matrix_does_not_matter(rng):
    X, y, _ = wide(12, 220, rng)
    X[rng.random(X.shape) < 0.6] = 0.0
    w, b = vo.Variable(220), vo.Variable()
    results = [
        vo.minimize(vo.sum(vo.pinball(y - A @ w - b, 0.4)) + 0.5 * vo.norm1(w))
        for A in (X, np.asfortranarray(X), sp.csr_array(X), sp.csc_array(X), aslinearoperator(X))
    ]
    for r in results:
        assert r.method.startswith("working-set > ")
        np.testing.assert_allclose(r.fun, results[0].fun, rtol=1e-9)
    assert [r.status for r in results[:-1]] == [Status.OPTIMAL] * 4
    assert results[-1].status is Status.ASSUMED  # the entries of an operator are not known


def test_a_start_is_used_and_time_limits_hold(rng):
    X, y, _ = wide(30, 500, rng)
    w = vo.Variable(500)
    f = vo.sum_squares(y - X @ w) + 1.0 * vo.norm1(w)
    cold = vo.minimize(f)
    warm = vo.minimize(f, x0=cold.x)
    assert warm.history["time"].size < cold.history["time"].size
    assert warm.status is Status.OPTIMAL
    short = vo.minimize(f, time_limit=1e-9)
    assert short.status is Status.TIME_LIMIT
    assert short.lower <= cold.fun <= short.upper


def test_what_lacks_kinks_is_refused(rng):
    X, y, _ = wide(5, 300, rng)
    w = vo.Variable(300)
    with pytest.raises(ValueError, match="no kinks of single variables"):
        vo.minimize(vo.sum_squares(y - X @ w), method="working-set")


@pytest.mark.parametrize("share", [10, 100, 1000])
def test_riboflavin(shared_data, share):
    data = np.load(shared_data / "highdim" / "riboflavin.npz")
    X, y = data["X"] - data["X"].mean(axis=0), data["y"] - data["y"].mean()
    lam = 2 * np.abs(X.T @ y).max() / share
    w, b = vo.Variable(X.shape[1]), vo.Variable()
    r = vo.minimize(vo.sum_squares(y - X @ w) + lam * vo.norm1(w))
    residual = y - X @ r.x
    theta = residual * min(1.0, lam / (2 * np.abs(X.T @ residual).max()))
    assert r.status is Status.OPTIMAL
    assert r.fun - (2 * theta @ y - theta @ theta) <= 1.1e-9 * max(1.0, r.fun)
    assert np.count_nonzero(r.x) <= y.size
    # An intercept on raw data does what centring does.
    raw = vo.minimize(vo.sum_squares(data["y"] - data["X"] @ w - b) + lam * vo.norm1(w))
    assert raw.status is Status.OPTIMAL
    np.testing.assert_allclose(raw.fun, r.fun, rtol=1e-7)


@pytest.mark.parametrize("loss", ["pinball", "epsilon-insensitive", "hinge"])
def test_colon(shared_data, loss):
    data = np.load(shared_data / "highdim" / "alon_colon.npz")
    X, y = data["X"].astype(float), data["y"].astype(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    t = np.where(y == y.max(), 1.0, -1.0)
    w, b = vo.Variable(X.shape[1]), vo.Variable()
    r = vo.minimize(LOSSES[loss](X, t, t, w, b) + 1.0 * vo.norm1(w))
    assert r.method.startswith("working-set > ")
    assert r.status is Status.OPTIMAL


RIDGES = {
    "ridge": lambda w, g: 0.3 * vo.sum_squares(w),
    "weights": lambda w, g: g.uniform(0.01, 3.0, w.shape[0]) @ vo.square(w),
    "towards a point, with a linear part": lambda w, g: (
        vo.sum_squares(w - 0.1 * g.standard_normal(w.shape[0])) + g.standard_normal(w.shape[0]) @ w
    ),
    "as a form": lambda w, g: vo.quad_form(w, sp.diags_array(g.uniform(0.1, 1.0, w.shape[0]))),
    "not on all": lambda w, g: vo.sum_squares(w[3:]) + 0.2 * vo.sum_squares(w[100:]),
}


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("penalty", RIDGES)
@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "squares"])
def test_a_ridge_is_solved_in_the_range_of_the_rows(loss, penalty, form):
    g = np.random.default_rng([list(LOSSES).index(loss), list(RIDGES).index(penalty)])
    X, y, t = wide(14, 240, g, "duplicate and zero columns")
    X[3] = X[2]  # the rows are dependent
    w, b = vo.Variable(240), vo.Variable()
    f = LOSSES[loss](sp.csr_array(X) if form == "sparse" else X, y, t, w, b) + RIDGES[penalty](w, g)
    r, optimum = vo.minimize(f), explicit_optimum(f)
    slack = 1e-7 * max(1.0, abs(optimum))
    assert r.method.startswith("range > ")
    assert r.status is Status.OPTIMAL
    assert r.lower - slack <= optimum <= r.upper + slack


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", ["dense", "sparse", "operator"])
def test_ridge_regression_has_a_closed_form(form, intercept, rng):
    X, y, _ = wide(15, 300, rng)
    kinds = {"dense": X, "sparse": sp.csr_array(X), "operator": aslinearoperator(X)}
    w, b = vo.Variable(300), vo.Variable()
    f = vo.sum_squares(y - kinds[form] @ w - (b if intercept else 0.0)) + 0.7 * vo.sum_squares(w)
    r = vo.minimize(f)
    centre = np.eye(15) - intercept / 15
    exact = X.T @ centre @ np.linalg.solve(centre @ X @ X.T @ centre + 0.7 * np.eye(15), centre @ y)
    assert r.method.startswith("range > ")
    # Of an operator the entries are not known, and so not how its products round.
    assert r.status is (Status.ASSUMED if form == "operator" else Status.OPTIMAL)
    np.testing.assert_allclose(r[w], exact, atol=1e-9)


def test_curved_losses_with_a_ridge(rng):
    X, y, t = wide(15, 300, rng)
    w, b = vo.Variable(300), vo.Variable()
    for loss in (vo.sum(vo.huber(y - X @ w - b, 0.4)), vo.sum(vo.squared_hinge(t * (X @ w + b)))):
        r = vo.minimize(loss + 0.05 * vo.sum_squares(w))
        assert r.method.startswith("range > ")
        assert r.status is Status.OPTIMAL


def test_the_range_is_refused_in_a_sentence(rng):
    X, y, _ = wide(5, 300, rng)
    w = vo.Variable(300)
    loss = vo.norm1(y - X @ w)
    for f, words in (
        (loss + vo.norm1(w) + vo.sum_squares(w), "kinks of single variables"),
        (loss + vo.quad_form(w, np.eye(300) + 0.1), "couples variables"),
        (loss, "no ridge"),
    ):
        with pytest.raises(ValueError, match=words):
            vo.minimize(f, method="range")


def test_a_ridge_on_many_sparse_columns_stays_sparse(rng):
    X = sp.random_array((100, 30_000), density=0.01, rng=rng, format="csr")
    t = np.where(rng.random(100) < 0.5, 1.0, -1.0)
    w, b = vo.Variable(30_000), vo.Variable()
    tracemalloc.start()
    r = vo.minimize(0.5 * vo.sum_squares(w) + vo.sum(vo.hinge(t * (X @ w + b))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert r.status is Status.OPTIMAL
    assert peak < 60 * 8 * 30_000


@pytest.mark.parametrize("weight", [1e-9, 1e-6, 1.0, 1e3])
@pytest.mark.parametrize("loss", ["pinball", "epsilon-insensitive", "hinge"])
def test_colon_in_raw_units_with_a_ridge(shared_data, loss, weight):
    # From weights that bind every row to weights seven orders beyond what the separable rows call for.
    data = np.load(shared_data / "highdim" / "alon_colon.npz")
    X, y = data["X"].astype(float), data["y"].astype(float)
    t = np.where(y == y.max(), 1.0, -1.0)
    w, b = vo.Variable(X.shape[1]), vo.Variable()
    r = vo.minimize(weight * LOSSES[loss](X, t, t, w, b) + 0.5 * vo.sum_squares(w))
    assert r.method.startswith("range > ")
    assert r.status is Status.OPTIMAL
    assert r.gap <= 1e-3 * r.fun  # the optimum is far below one, to which tol is relative


def test_restriction_keeps_the_value(rng):
    X, y, _ = wide(6, 20, rng)
    w = vo.Variable(20)
    f = (
        vo.sum_squares(y - X @ w) + vo.norm1(w - 0.5) + 0.3 * vo.sum_squares(2.0 * w - 1.0) + vo.norm1(X @ w)
        + vo.quad_form(w, np.diag(np.arange(20.0))) + np.arange(20.0) @ w
    )  # fmt: skip
    index = np.array([0, 3, 4, 11])
    fixed = rng.standard_normal(20)
    fixed[index] = 0.0
    small, point = restricted(composite(f), index, fixed).problem, rng.standard_normal(4)
    whole = fixed.copy()
    whole[index] = point
    np.testing.assert_allclose(small.value(point), f(whole))


def test_sums_of_neighbours_beside_squares_of_all_variables():
    """A quadratic whose matrix is a diagonal, of a format that cannot be indexed."""
    w = vo.Variable(12)
    f = vo.norm1(vo.diff(w) + w[:11]) + vo.sum_squares(w - np.arange(12.0) ** 2)
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL
    assert abs(r.fun - explicit_optimum(f)) <= 1e-6 * r.fun
