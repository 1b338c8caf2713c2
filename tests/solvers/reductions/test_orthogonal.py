"""Columns that are nearly dependent, or exactly: coordinates in which they are orthogonal."""

import numpy as np
import pytest

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import METHODS, Orthogonal


def regression(X, y, level=0.5):
    w, b = vo.Variable(X.shape[1]), vo.Variable()
    return vo.sum(vo.pinball(y - X @ w - b, level))


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("rows", [2000, 8000, 16_599])
def test_elevators(shared_data, rows, scaled, level):
    """A condition number of 5e5; of the first rows, two features are constant beside the intercept."""
    data = np.loadtxt(shared_data / "regression" / "elevators.csv.gz", delimiter=",", max_rows=rows)
    X, y = data[:, :-1], data[:, -1]
    if scaled:
        X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 1e-12 * np.abs(X).max(axis=0), X.std(axis=0), 1.0)
    r = vo.minimize(regression(X, y, level))
    assert r.method.startswith("orthogonal > newton")
    assert r.status is Status.OPTIMAL
    assert r.certificate.assumption == ""
    known = {(2000, 0.5): 85.2844360, (2000, 0.95): 25.4661388, (8000, 0.5): 343.3808311, (8000, 0.95): 104.7529216,
             (16_599, 0.5): 709.3590834, (16_599, 0.95): 215.1633775}  # fmt: skip
    assert r.fun == pytest.approx(known[rows, level], rel=1e-8)  # of HiGHS, on columns of length one


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_polynomial_of_degree_fourteen(level, rng):
    t = np.sort(rng.uniform(-1.0, 1.0, 300))
    y = np.sin(3.0 * t) + 0.1 * rng.standard_normal(300)
    powers = np.vander(t, 15, increasing=True)[:, 1:]
    r = vo.minimize(regression(powers, y, level))
    assert r.method.startswith("orthogonal > ")
    assert r.status is Status.OPTIMAL
    smooth = vo.minimize(regression(np.polynomial.legendre.legvander(t, 14)[:, 1:], y, level))
    assert not smooth.method.startswith("orthogonal")
    assert r.lower <= smooth.upper
    assert smooth.lower <= r.upper


DEPENDENT = {
    "a constant feature": lambda X: np.c_[X, np.full(len(X), 0.1)],
    "constant features of many sizes": lambda X: np.c_[X, np.full(len(X), 1e-17), np.full(len(X), 3e5)],
    "a feature given twice": lambda X: np.c_[X, X[:, 0]],
    "a multiple": lambda X: np.c_[np.round(X * 1024.0), 3.0 * np.round(X[:, 0] * 1024.0)],
    "zeros": lambda X: np.c_[X, np.zeros(len(X))],
    "one-hot codes": lambda X: np.c_[X, np.eye(3)[np.arange(len(X)) % 3]],
    "far from zero": lambda X: X + 1e7,
}


@pytest.mark.parametrize("kind", DEPENDENT)
def test_dependent_columns(kind, rng):
    X = rng.standard_normal((80, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.standard_normal(80)
    f = regression(DEPENDENT[kind](X), y, 0.3)
    r = vo.minimize(f)
    assert r.method.startswith("orthogonal > ")
    assert r.status is Status.OPTIMAL
    independent = np.round(X * 1024.0) if kind == "a multiple" else X
    if kind != "one-hot codes":
        assert r.fun == pytest.approx(vo.minimize(regression(independent, y, 0.3)).fun, rel=1e-6)


def test_squares_and_several_blocks(rng):
    t = rng.uniform(0.9, 1.1, (60, 1))
    X = t ** np.arange(1, 5)
    w, b = vo.Variable(4), vo.Variable()
    y = np.sin(20.0 * t[:, 0]) + 0.1 * rng.standard_normal(60)
    f = 0.3 * vo.sum_squares(y - X @ w - b) + vo.norm1(X[:20] @ w - b) + 0.1 * (X[0] @ w)
    r = vo.minimize(f)
    assert r.method.startswith("orthogonal > ")
    assert r.status is Status.OPTIMAL
    assert explicit_optimum(f) == pytest.approx(r.fun, rel=1e-6)


def test_well_conditioned_data_and_what_it_does_not_take(rng):
    X, y = rng.standard_normal((100, 5)), rng.standard_normal(100)
    f = regression(X, y)
    assert not Orthogonal().suits(composite(f))
    assert vo.minimize(f, method="orthogonal").fun == pytest.approx(vo.minimize(f).fun, rel=1e-10)
    w = f.variables[0]
    assert "single variables" in METHODS["orthogonal"].refusal(composite(f + vo.norm1(w)))
    assert "as a matrix" in METHODS["orthogonal"].refusal(composite(f + vo.quad_form(w, np.eye(5))))
    wide = regression(X[:3], y[:3])
    assert "fewer rows" in METHODS["orthogonal"].refusal(composite(wide))
