"""Lassos on sparse data: equations by conjugate gradients, and no Gram matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import Composite, composite
from varopt.optimize import Status
from varopt.solvers.lasso._normal_columns import (  # products and solutions are checked against dense ones
    Columns,
    has_columns,
)


def data(n, p, g, density=0.02):
    X = sp.random_array((n, p), density=density, rng=g, data_sampler=g.standard_normal, format="csr")
    return X, X @ np.where(g.random(p) < 0.1, g.standard_normal(p), 0.0) + 0.1 * g.standard_normal(n)


PENALTIES = {
    "lasso": lambda w, lam, g: lam * vo.norm1(w),
    "elastic net": lambda w, lam, g: lam * vo.norm1(w) + 0.3 * vo.sum_squares(w),
    "towards a point": lambda w, lam, g: lam * vo.norm1(w - np.round(g.standard_normal(w.shape[0]))),
    "asymmetric": lambda w, lam, g: lam * vo.sum(vo.pinball(w, 0.3)),
}


HESSIAN = Composite.hessian.func


def small_hessian(self):
    return HESSIAN(self) if self.size <= 300 else pytest.fail("a large Gram matrix was formed")


@pytest.mark.parametrize("shape", [(700, 310), (310, 330), (120, 400)])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_bracket_holds_the_optimum_of_the_explicit_programme(penalty, shape, monkeypatch):
    g = np.random.default_rng([list(PENALTIES).index(penalty), shape[0]])
    X, y = data(*shape, g)
    weights = np.where(g.random(shape[0]) < 0.1, 0.0, g.uniform(0.5, 2.0, shape[0]))
    w, b = vo.Variable(shape[1]), vo.Variable()
    for share in (0.3, 0.01):
        lam = share * float(np.abs(X.T @ y).max())
        f = weights @ vo.square(y - X @ w - b) + PENALTIES[penalty](w, lam, g)
        optimum = explicit_optimum(f)
        with monkeypatch.context() as patch:
            patch.setattr(Composite, "hessian", property(small_hessian))
            r = vo.minimize(f)
        slack = 1e-7 * max(1.0, abs(optimum))  # of the reference, not of ours
        assert r.status is Status.OPTIMAL
        assert r.lower - slack <= optimum <= r.upper + slack


def test_duplicate_and_empty_columns_do_no_harm():
    g = np.random.default_rng(0)
    X, y = data(500, 320, g)
    X = sp.hstack([X, X[:, :50], sp.csr_array((500, 10))]).tocsr()
    w = vo.Variable(380)
    f = vo.sum_squares(y - X @ w) + 0.05 * vo.norm1(w)
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL
    assert r.fun == pytest.approx(explicit_optimum(f), rel=1e-7)


def test_columns_multiply_and_solve_as_their_matrix_does():
    g = np.random.default_rng(1)
    X, y = data(400, 310, g)
    w = vo.Variable(310)
    problem = composite(3.0 * vo.sum_squares(y - X @ w) + 0.5 * vo.sum_squares(w) + vo.norm1(w))
    columns, matrix = Columns(problem), problem.hessian.toarray()
    x, index = g.standard_normal(310), np.flatnonzero(g.random(310) < 0.5)
    np.testing.assert_allclose(columns @ x, matrix @ x, rtol=1e-12)
    np.testing.assert_allclose(columns.diagonal(), matrix.diagonal(), rtol=1e-12)
    for rhs in (x[index], 1e-9 * x[index]):  # the second starts from the first
        solution = columns.solve(None, index, rhs)
        np.testing.assert_allclose(solution, np.linalg.solve(matrix[np.ix_(index, index)], rhs), rtol=1e-9)


def test_a_singular_matrix_is_noticed():
    g = np.random.default_rng(2)
    X, y = data(100, 310, g)
    w = vo.Variable(310)
    columns = Columns(composite(vo.sum_squares(y - X @ w) + vo.norm1(w)))
    assert columns.solve(None, np.arange(310), g.standard_normal(310)) is None


def test_a_start_in_a_direction_that_does_not_bend_does_no_harm():
    g = np.random.default_rng(4)
    X, y = data(1700, 800, g)
    X = sp.hstack([X[:, [0, 1, 1]], X[:, 3:]]).tocsr()
    y[X[:, [1]].nonzero()[0]] = 0.0
    w, start = vo.Variable(800), np.zeros(800)
    start[1], start[2] = 1.0, -1.0
    r = vo.minimize(vo.sum_squares(y - X @ w) + 0.01 * vo.norm1(w), x0=start)
    assert r.status is Status.OPTIMAL


def test_fewer_rows_than_variables_that_move():
    g = np.random.default_rng(0)
    X = sp.random(500, 900, density=0.02, random_state=1, format="csr")
    w = vo.Variable(900)
    r = vo.minimize(vo.sum_squares(g.normal(size=500) - X @ w) + 0.1 * vo.norm1(w))
    assert r.status is Status.OPTIMAL
    assert r.nit < 100


def test_narrow_bands_keep_their_factors():
    w = vo.Variable(400)
    banded = sp.diags_array([np.ones(400), np.ones(399)], offsets=[0, 1], format="csr")
    assert not has_columns(composite(vo.sum_squares(banded @ w - 1.0) + vo.norm1(w)))
    scattered = banded[:, np.random.default_rng(3).permutation(400)]
    assert has_columns(composite(vo.sum_squares(scattered @ w - 1.0) + vo.norm1(w)))
