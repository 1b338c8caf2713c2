"""Quadratics with a kink for each variable: the lasso, the elastic net and their kin, solved by pivoting."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import Pivoting


def lasso_bracket(X, y, lam, w) -> tuple[float, float]:
    """Value of ``|y - Xw|^2 + lam |w|_1`` at w and a dual value, in extended precision.

    The dual point is the residual after corrections of w in which its last digits, too few where columns are nearly
    the same, are found anew.
    """
    X, y, w = (np.asarray(v, dtype=np.longdouble) for v in (X, y, w))
    r = y - X @ w
    value = r @ r + lam * np.abs(w).sum()
    live = w != 0
    rows = np.asarray(X[:, live], dtype=np.float64)
    for _ in range(4 if live.any() else 0):
        missing = X[:, live].T @ r - 0.5 * lam * np.sign(w[live])
        w[live] += np.linalg.lstsq(rows.T @ rows, missing.astype(np.float64))[0]
        r = y - X @ w
    theta = r * min(1.0, lam / max(2 * np.abs(X.T @ r).max(), 1e-300))
    return float(value), float(2 * theta @ y - theta @ theta)


def correlated(n, p, rho, g):
    X = g.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    w = np.where(g.random(p) < 0.2, g.standard_normal(p), 0.0)
    return X, X @ w + 0.3 * g.standard_normal(n)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.05, 5e-3, 5e-4, 1e-6])
@pytest.mark.parametrize("rho", [0.0, 0.95, 0.999])
@pytest.mark.parametrize(("n", "p"), [(300, 40), (60, 60), (20, 70), (1, 5), (7, 1), (1, 1)])
def test_the_lasso_is_exact_on_all_shapes(n, p, rho, share):
    X, y = correlated(n, p, rho, np.random.default_rng([n, p]))
    lam = share * 2 * np.abs(X.T @ y).max()
    w = vo.Variable(p)
    r = vo.minimize(vo.sum_squares(y - X @ w) + lam * vo.norm1(w))
    value, dual = lasso_bracket(X, y, lam, r.x)
    assert r.method.split(" > ")[0] == "pivoting"
    assert r.status is Status.OPTIMAL
    assert r.certificate.assumption == ""
    assert value - dual <= 1.1e-9 * max(1.0, value)
    np.testing.assert_allclose(r.fun, value, rtol=1e-12)
    assert r.lower <= value * (1 + 1e-14)
    assert share < 1.0 or not r.x.any()


KINDS = ("plain", "ties", "duplicate columns", "opposite columns", "zero column", "constant column", "fewer rows")


def awkward(kind, g):
    n, p = int(g.integers(8, 40)), int(g.integers(2, 12))
    if kind == "fewer rows":
        n = int(g.integers(1, p))
    X, y = g.standard_normal((n, p)), 3 * g.standard_normal(n)
    if kind == "ties":
        X, y = np.round(X), np.round(y)
    if kind == "duplicate columns":
        X[:, g.integers(0, p, p // 2 + 1)] = X[:, :1]
    if kind == "opposite columns":
        X[:, -1] = -X[:, 0]
    if kind == "zero column":
        X[:, 0] = 0.0
    if kind == "constant column":
        X[:, 0] = 1.0
    return X, y


PENALTIES = {
    "lasso": lambda w, g: g.uniform(0.01, 10.0) * vo.norm1(w),
    "weights": lambda w, g: (g.random(w.shape[0]) * (g.random(w.shape[0]) < 0.7) * 5) @ vo.abs(w),
    "elastic net": lambda w, g: g.uniform(0.01, 10.0) * vo.norm1(w) + g.uniform(0.01, 2.0) * vo.sum_squares(w),
    "one-sided": lambda w, g: g.uniform(0.1, 10.0) * vo.sum(vo.pos(-w)),
    "towards a point": lambda w, g: 2.0 * vo.norm1(w - g.standard_normal(w.shape[0])),
    "scaled and twice": lambda w, g: vo.norm1(-3.0 * w) + vo.sum(vo.pinball(2.0 * w, 0.3)),
    "with a linear part": lambda w, g: 2.0 * vo.norm1(w) + g.uniform(-1.9, 1.9, w.shape[0]) @ w,
    "with a form": lambda w, g: 2.0 * vo.norm1(w) + vo.quad_form(w, np.ones((w.shape[0],) * 2)),
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_bracket_holds_the_optimum_of_the_explicit_programme(penalty, kind, intercept):
    g = np.random.default_rng([list(PENALTIES).index(penalty), KINDS.index(kind), intercept])
    for _ in range(3):
        X, y = awkward(kind, g)
        w, b = vo.Variable(X.shape[1]), vo.Variable()
        f = vo.sum_squares(y - X @ w - b if intercept else y - X @ w) + PENALTIES[penalty](w, g)
        r, optimum = vo.minimize(f), explicit_optimum(f)
        slack = 1e-7 * max(1.0, abs(optimum))  # of the reference, not of ours
        assert r.method.split(" > ")[0] == "pivoting"
        assert r.status is Status.OPTIMAL
        assert r.lower - slack <= optimum <= r.upper + slack


def test_kinks_in_two_places_go_to_the_general_solver(rng):
    X, y, w = rng.standard_normal((20, 4)), rng.standard_normal(20), vo.Variable(4)
    f = vo.sum_squares(y - X @ w) + vo.norm1(w) + vo.norm1(w - 1.0) + vo.sum(vo.huber(w, 0.5))
    r = vo.minimize(f)
    assert r.method == "newton"
    assert r.status is Status.OPTIMAL
    with pytest.raises(ValueError, match="rows other than one kink for each variable"):
        vo.minimize(f, method="pivoting")
    with pytest.raises(ValueError, match="no quadratic part"):
        vo.minimize(vo.norm1(w), method="pivoting")
    with pytest.raises(ValueError, match="no kinks"):
        vo.minimize(vo.sum_squares(y - X @ w), method="pivoting")


def test_methods_agree(rng):
    X, y = correlated(60, 8, 0.9, rng)
    w, b = vo.Variable(8), vo.Variable()
    f = vo.sum_squares(y - X @ w - b) + 2.0 * vo.norm1(w)
    exact, path = vo.minimize(f), vo.minimize(f, method="newton")
    np.testing.assert_allclose(exact.x, path.x, atol=1e-7)
    np.testing.assert_allclose(exact.fun, path.fun, rtol=1e-10)


@pytest.mark.parametrize("n", [40, 5])
@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e9])
def test_units_do_not_matter(scale, n, rng):
    X, y = correlated(n, 10, 0.9, rng)
    w = vo.Variable(10)
    plain = vo.minimize(vo.sum_squares(y - X @ w) + 0.7 * vo.norm1(w))
    responses = vo.minimize(vo.sum_squares(scale * y - X @ w) + 0.7 * scale * vo.norm1(w), tol=0.0)
    columns = vo.minimize(vo.sum_squares(y - (scale * X) @ w) + 0.7 * scale * vo.norm1(w))
    np.testing.assert_allclose(responses.x / scale, plain.x, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(columns.x * scale, plain.x, rtol=1e-7, atol=1e-9)
    assert columns.status is Status.OPTIMAL
    mixed = scale ** np.linspace(-0.5, 0.5, 10)
    columns = vo.minimize(vo.sum_squares(y - (X * mixed) @ w) + 0.7 * mixed @ vo.abs(w))
    np.testing.assert_allclose(columns.x * mixed, plain.x, rtol=1e-6, atol=1e-8)


def test_the_kind_of_matrix_does_not_matter(rng):
    X, y = correlated(30, 9, 0.5, rng)
    X[rng.random(X.shape) < 0.5] = 0.0
    w, b = vo.Variable(9), vo.Variable()
    results = [
        vo.minimize(vo.sum_squares(y - A @ w - b) + 2.0 * vo.norm1(w))
        for A in (X, np.asfortranarray(X), X.astype(np.float32).astype(float), sp.csr_array(X), aslinearoperator(X))
    ]
    for r in results:
        assert r.method.split(" > ")[0] == "pivoting"
        np.testing.assert_allclose(r.fun, results[0].fun, rtol=1e-6)
    assert [r.status for r in results[:-1]] == [Status.OPTIMAL] * 4
    assert results[-1].status is Status.ASSUMED  # the entries of an operator are not known


def test_a_start_near_the_optimum_is_used(rng):
    X, y = correlated(200, 60, 0.95, rng)
    w = vo.Variable(60)
    f = vo.sum_squares(y - X @ w) + 5.0 * vo.norm1(w)
    cold = vo.minimize(f)
    warm = vo.minimize(f, x0=cold.x)
    assert warm.nit == 1 < cold.nit
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-9)


@pytest.mark.parametrize("patience", [1, 6])
def test_the_dual_takes_over_where_sides_do_not_settle(patience, rng):
    X, y = correlated(80, 50, 0.999, rng)
    w, lam = vo.Variable(50), 0.01
    r = vo.minimize(vo.sum_squares(y - X @ w) + lam * vo.norm1(w), method=Pivoting(patience=patience))
    value, dual = lasso_bracket(X, y, lam, r.x)
    assert r.status is Status.OPTIMAL
    assert value - dual <= 1.1e-9 * max(1.0, value)


def test_soft_thresholding_many_variables_stays_sparse(rng):
    y, w = rng.standard_normal(4000), vo.Variable(4000)
    f = vo.sum_squares(y - w) + vo.norm1(w)
    assert sp.issparse(composite(f).hessian)
    r = vo.minimize(f)
    np.testing.assert_allclose(r.x, np.sign(y) * np.maximum(np.abs(y) - 0.5, 0.0), atol=1e-15)
    assert r.status is Status.OPTIMAL


def test_squares_are_not_multiplied_out_before_they_have_to(rng):
    X, y, w = rng.standard_normal((6, 30)), rng.standard_normal(6), vo.Variable(30)
    f = vo.sum_squares(y - X @ w) + 0.3 * vo.norm1(w)
    problem, x = composite(f), rng.standard_normal(30)
    value, slope = problem.value(x), problem.quadratic_gradient(x)
    assert "hessian" not in vars(problem)
    np.testing.assert_allclose(problem.hessian, 2 * X.T @ X)
    np.testing.assert_allclose([problem.value(x), f(x)], value)
    np.testing.assert_allclose(problem.quadratic_gradient(x), slope)
    np.testing.assert_allclose(slope, -2 * X.T @ (y - X @ x))


def test_an_unbounded_lasso_is_named():
    w = vo.Variable(2)
    f = vo.sum_squares(w[:1] - 1.0) + vo.norm1(w) + np.array([0.0, 2.0]) @ w
    assert vo.minimize(f).status is Status.UNBOUNDED
