"""Brackets of Huber's regression with its scale: in fractions, with nothing assumed."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from varopt.learn import HuberRegressor
from varopt.solvers.huber import HuberProblem
from varopt.solvers.huber._proof import proved_bracket  # the proof by itself, of points that no fit ends at


def value(X, y, weight, epsilon, alpha, x):
    """The objective in rational arithmetic."""
    *w, b, s = (Fraction(float(v)) for v in x)
    total = Fraction(alpha) * sum(v * v for v in w)
    for row, target, c in zip(X.tolist(), y.tolist(), weight.tolist(), strict=True):
        r = abs(Fraction(target) - b - sum(Fraction(a) * v for a, v in zip(row, w, strict=True)))
        eps = Fraction(epsilon)
        total += Fraction(c) * (s + (r * r / s if r <= eps * s else 2 * eps * r - eps * eps * s))
    return total


def data(seed, kind):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 3))
    y = X @ np.array([1.0, -1.0, 0.5]) + rng.standard_t(2, 30)
    if kind == "whole":
        X, y = np.round(X), np.round(y)
    if kind == "units":
        X = X * np.array([1e-4, 1.0, 1e4])
    return X, y, rng.choice([0.3, 1.0, 2.0], 30) if kind == "weights" else np.ones(30)


@pytest.mark.parametrize("kind", ["plain", "whole", "units", "weights"])
@pytest.mark.parametrize(("alpha", "intercept"), [(1e-4, True), (1e-10, True), (100.0, False), (0.0, True)])
def test_nothing_is_assumed_and_both_ends_hold_in_fractions(kind, alpha, intercept):
    X, y, weight = data(3, kind)
    model = HuberRegressor(alpha=alpha, fit_intercept=intercept).fit(X, y, sample_weight=weight)
    assert not model.certificate_.assumption
    assert model.gap_ <= 1e-9 * model.objective_
    x = np.concatenate([model.coef_, [model.intercept_, model.scale_]])
    best = value(X, y, weight, 1.35, alpha, x)
    assert Fraction(model.lower_bound_) <= best
    assert best <= Fraction(model.objective_) * (1 + Fraction(1, 10**14))  # the mean of the targets was added again


@pytest.mark.parametrize("seed", range(8))
def test_the_ends_at_any_point_and_dual_hold_in_fractions(seed):
    X, y, weight = data(seed, "weights")
    problem = HuberProblem(X, y, weight, 1.35, 1.0, True)
    model = HuberRegressor(alpha=1.0).fit(X, y, sample_weight=weight)
    best = np.concatenate([model.coef_, [model.intercept_, model.scale_]])
    x = best * (1.0 + 1e-4 * np.random.default_rng(seed).standard_normal(5))
    lower, upper = proved_bracket(problem, x, 2.0 * problem.residual(x) / x[-1], 1e-9)
    exact = value(X, y, weight, 1.35, 1.0, x)
    assert exact <= Fraction(upper) <= exact * (1 + Fraction(1, 10**12))
    assert lower >= 0.0
    for share in (0.0, 0.5, 0.99, 1.0):  # towards the optimum
        assert Fraction(lower) <= value(X, y, weight, 1.35, 1.0, x + share * (best - x))


def test_what_a_ridge_or_a_dual_cannot_take_up_is_charged():
    """Duals that do not balance prove less, and never too much."""
    X, y, weight = data(0, "plain")
    problem = HuberProblem(X, y, weight, 1.35, 1.0, True)
    model = HuberRegressor(alpha=1.0).fit(X, y)
    x = np.concatenate([model.coef_, [model.intercept_, model.scale_]])
    dual = np.clip(2.0 * problem.residual(x) / x[-1], -2.7, 2.7)
    best, _ = proved_bracket(problem, x, dual, 1e-9)
    assert best == pytest.approx(model.objective_, rel=1e-9)
    rng = np.random.default_rng(1)
    for size in (1e-6, 1e-3, 0.1):
        lower, _ = proved_bracket(problem, x, dual + size * rng.standard_normal(30), 1e-9)
        assert lower <= best + 1e-12 * abs(best)


@pytest.mark.parametrize("size", [(300, 6), (6000, 4)])
def test_sparse_data_and_many_rows_are_proved(size):
    rng = np.random.default_rng(0)
    X = np.where(rng.random(size) < 0.4, rng.standard_normal(size), 0.0)
    y = X[:, 0] + rng.standard_t(2, size[0])
    for given in (X, sp.csr_array(X)):
        model = HuberRegressor().fit(given, y)
        assert not model.certificate_.assumption
        assert model.gap_ <= 1e-9 * model.objective_


def test_a_scale_of_zero_is_proved():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = X @ np.array([1.0, 2.0])
    y[:4] += 50.0
    model = HuberRegressor().fit(X, y)
    assert model.scale_ < 1e-6
    assert not model.certificate_.assumption
    assert model.gap_ <= 1e-9 * model.objective_
