"""Levels and strengths that share work: each fit is that of its own problem."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import varopt as vo
from varopt import learn
from varopt.learn._data import DataMemory  # what fits share
from varopt.learn._lassos import additive  # an additive model by itself
from varopt.learn._least_squares import Squares, homotopy  # paths by themselves
from varopt.solvers import interior_along
from varopt.solvers.finish import best_vertex
from varopt.solvers.quantile import quantile_process


def rows(kind, rng, n=3000):
    X = rng.standard_normal((n, 3))
    y = X[:, 0] + (1.0 + 0.4 * X[:, 1] ** 2) * rng.standard_t(3, n)
    weight = rng.choice([0.0, 0.5, 2.0], n) if kind == "weights" else np.ones(n)
    if kind == "ties":
        y = np.round(y)
    if kind == "whole numbers":
        X, y = np.round(X), np.round(y)
    if kind == "far from zero":
        X = X + 1e5
    if kind == "equal rows":
        X[n // 2 :], y[n // 2 :] = X[: n // 2], y[: n // 2]
    return X, y, weight


@pytest.mark.parametrize("kind", ["plain", "weights", "ties", "whole numbers", "far from zero", "equal rows"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_process_is_its_levels_one_by_one(kind, intercept, rng):
    X, y, weight = rows(kind, rng, 900 if kind == "whole numbers" else 3000)
    levels = np.concatenate([np.linspace(0.02, 0.98, 25), [0.001]])
    settings = {"alpha": 0.0, "fit_intercept": intercept}
    process = learn.QuantileRegressor(quantile=levels, **settings).fit(X, y, weight)
    assert np.all(process.gap_ <= 1e-9 * process.objective_)
    for k in [0, 7, 12, 24, 25]:
        one = learn.QuantileRegressor(quantile=levels[k], **settings).fit(X, y, weight)
        np.testing.assert_allclose(process.objective_[k], one.objective_, rtol=1e-11)
        residual = y - process.predict(X)[:, k]
        loss = np.average(np.maximum(levels[k] * residual, (levels[k] - 1.0) * residual), weights=weight)
        assert process.lower_bound_[k] <= loss * (1.0 + (1e-12 if kind == "far from zero" else 0.0))  # X is moved
        np.testing.assert_allclose(process.objective_[k], loss, rtol=1e-9)


def test_the_process_does_take_its_short_way(rng):
    """Nearly all levels follow from their neighbours, and what is proved is below what any point has."""
    X, y, _ = rows("plain", rng)
    X = np.column_stack([X, np.ones(y.size)])
    share, levels = np.full(y.size, 1.0 / y.size), np.linspace(0.5, 0.95, 19)
    middle = learn.QuantileRegressor(quantile=0.5, alpha=0.0, fit_intercept=False).fit(X, y)
    found = list(quantile_process(X, y, share, levels[1:], (0.5, middle.coef_), lambda: False))
    assert len(found) == 18
    for level, fit in zip(levels[1:], found, strict=True):
        assert fit.gap <= 1e-11 * fit.value
        for _ in range(5):
            residual = y - X @ (fit.coef + 1e-6 * rng.standard_normal(4))
            assert fit.value - fit.gap <= share @ np.maximum(level * residual, (level - 1.0) * residual)
    assert next(quantile_process(X, y, share, [0.55], (0.5, middle.coef_), lambda: True)) is None  # out of time


def test_nineteen_levels_of_features_in_their_own_units_share_their_work(rng, monkeypatch):
    """Far apart, and with digits lost in the last place of their differences; three or so are fitted by themselves."""
    n, units = 6000, np.array([1e4, 1.0, 1e-3, 1.0])
    X = rng.uniform(0.5, 1.0, (n, 4)) * units
    y = 1e5 * (X / units) @ [2.0, 1.0, 1.0, 0.5] + 3e4 * (X[:, 1] + 0.5) * rng.exponential(size=n)
    levels, alone = np.round(np.arange(0.05, 0.96, 0.05), 2), []
    one = learn.QuantileRegressor._fit_problem
    monkeypatch.setattr(
        learn.QuantileRegressor, "_fit_problem", lambda *given, **options: alone.append(0) or one(*given, **options)
    )
    model = learn.QuantileRegressor(quantile=levels, alpha=0.0).fit(X, y)
    assert len(alone) <= 6
    assert np.all(model.gap_ <= 1e-9 * model.objective_)
    for k in (0, 9, 18):
        single = learn.QuantileRegressor(quantile=levels[k], alpha=0.0).fit(X, y)
        assert model.lower_bound_[k] <= single.objective_ + single.gap_
        np.testing.assert_allclose(model.objective_[k], single.objective_, rtol=1e-12)


def test_what_the_process_proves_holds_in_fractions(rng):
    """The mean loss at the vertex, exactly; and the optimum, by the dual programme."""
    n, units = 400, np.array([3e4, 1.0, 1e-4])
    X = np.column_stack([rng.uniform(0.5, 1.0, (n, 2)), np.ones(n)]) * units
    y = 1e4 * rng.standard_t(3, n) + X[:, 0]
    share, levels = np.full(n, 2.0**-8) * 0.64, [0.55, 0.6, 0.65, 0.7]
    starts = [(q, np.append((m := learn.QuantileRegressor(quantile=q, alpha=0.0).fit(X[:, :2], y)).coef_, m.intercept_)
               / [1.0, 1.0, units[2]]) for q in (0.5, 0.45)]  # fmt: skip
    found = list(quantile_process(X, y, share, levels, starts[0], lambda: False, starts[1]))
    assert [fit is not None for fit in found] == [True] * 4
    for level, fit in zip(levels, found, strict=True):
        coef, q = [Fraction(c) for c in fit.coef.tolist()], Fraction(level)
        exact = Fraction(0)
        for row, target, v in zip(X.tolist(), y.tolist(), share.tolist(), strict=True):
            r = Fraction(target) - sum(Fraction(a) * c for a, c in zip(row, coef, strict=True))
            exact += Fraction(v) * max(q * r, (q - 1) * r)
        assert Fraction(fit.value) - Fraction(fit.gap) <= exact <= Fraction(fit.value) + Fraction(fit.gap)
        dual = linprog(
            -y, A_eq=X.T / units[:, None], b_eq=np.zeros(3), bounds=np.outer(share, [level - 1.0, level]),
        )  # fmt: skip
        np.testing.assert_allclose(fit.value, -dual.fun, rtol=1e-9)
        assert fit.gap <= 1e-10 * fit.value


def test_a_process_that_is_out_of_time_keeps_brackets(rng):
    X, y, _ = rows("plain", rng)
    with pytest.warns(UserWarning, match="time_limit"):
        model = learn.QuantileRegressor(quantile=np.linspace(0.05, 0.95, 19), alpha=0.0, time_limit=1e-4).fit(X, y)
    assert np.all(model.lower_bound_ <= model.objective_)
    assert model.coef_.shape == (19, 3)


# -- Strengths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("level", [0.2, 0.5])
@pytest.mark.parametrize("intercept", [False, True])
def test_quantiles_along_strengths_are_optimal(whole, level, intercept, rng):
    X, y = rng.standard_normal((60, 4)) + 3.0, rng.standard_normal(60)
    X, y = (np.round(X), np.round(y)) if whole else (X, y + X[:, 0])
    weight = rng.uniform(0.5, 2.0, 60)
    path = [{"alpha": alpha} for alpha in np.geomspace(1.0, 1e-3, 12)]
    model = learn.QuantileRegressor(quantile=level, fit_intercept=intercept)
    coefs, levels = model._along(path, (X, y, weight), DataMemory(), model._clock())
    found = np.isfinite(levels)
    assert found.sum() >= (6 if whole else 12)
    for settings, coef, b in zip(path, coefs[found], levels[found], strict=False) if not whole else ():
        residual = y - X @ coef - b
        loss = np.average(np.maximum(level * residual, (level - 1.0) * residual), weights=weight)
        best = model.set_params(**settings).fit(X, y, weight).objective_
        np.testing.assert_allclose(loss + settings["alpha"] * np.abs(coef).sum(), best, rtol=1e-10)


def test_fused_lassos_along_strengths_are_optimal(rng):
    X = rng.standard_normal((40, 6))
    y = X @ [1.0, 1.0, 1.0, 0.0, 0.0, 2.0] + rng.standard_normal(40)
    path = [{"alpha": a, "fusion": f} for a in [0.0, 0.01, 0.3] for f in [0.0, 0.02, 0.5]]
    model = learn.FusedLasso()
    coefs, levels = model._along(path, (sp.csr_array(X), y, np.ones(40)), DataMemory(), model._clock())
    for settings, coef, level in zip(path, coefs, levels, strict=True):
        one = model.set_params(**settings).fit(X, y)
        np.testing.assert_allclose(coef, one.coef_, atol=1e-7)
        np.testing.assert_allclose(level, one.intercept_, atol=1e-7)


@pytest.mark.parametrize("kind", ["fewer rows than features", "a feature twice", "a constant", "raw units"])
def test_a_singular_matrix_along_fusions(rng, kind):
    """Each bracket is right, by the engine's, and closed."""
    X = rng.standard_normal((6 if kind.startswith("fewer") else 30, 8))
    X[:, 1] = X[:, 0] if kind == "a feature twice" else 1.0 if kind == "a constant" else X[:, 1]
    X *= 10.0 ** np.arange(-4, 4) if kind == "raw units" else 1.0
    y = rng.standard_normal(len(X))
    path = [{"alpha": a, "fusion": f} for a in [1e-3, 0.05] for f in [0.0, 1e-3, 0.3]]
    model = learn.FusedLasso()
    coefs, levels = model._along(path, (X, y, np.ones(len(X))), DataMemory(), model._clock())
    for settings, coef, level in zip(path, coefs, levels, strict=True):
        one = model.set_params(**settings).fit(X, y)
        value = 0.5 * np.mean((y - X @ coef - level) ** 2) + settings["alpha"] * np.abs(coef).sum()
        value += settings["fusion"] * np.abs(np.diff(coef)).sum()
        np.testing.assert_allclose(value, one.objective_, rtol=3e-9)


@pytest.mark.parametrize("options", [{}, {"penalize_intercept": True}, {"fit_intercept": False}], ids=str)
def test_squared_hinges_along_strengths(rng, options):
    """Three classes in units far apart, one feature constant, weights of classes: as one fit after the other."""
    X = rng.standard_normal((40, 4)) * [1.0, 100.0, 0.01, 0.0] + [0.0, 30.0, 0.0, 2.0]
    y = np.argmax(X[:, :3] / [1.0, 100.0, 0.01] + rng.standard_normal((40, 3)), axis=1)
    weight = rng.integers(0, 3, 40).astype(float)
    model = learn.LinearSVC(class_weight={0: 2.0}, **options)
    path = [{"C": C} for C in np.geomspace(1e-4, 1e3, 6)]
    coefs, levels = model._along(path, (X, y, weight), DataMemory(), model._clock())
    for settings, coef, level in zip(path, coefs, levels, strict=True):
        one = model.set_params(**settings).fit(X, y, weight)
        np.testing.assert_allclose(X @ coef.T + level, one.decision_function(X), atol=1e-5)


def test_no_gap_where_nothing_curves():
    """Without a norm of the variables, a singular matrix proves nothing."""
    x, gaps = interior_along(
        np.ones((2, 2)), np.ones(2), 0.5, np.array([[-1.0, 1.0]]), np.zeros(3), np.ones(3), lambda: False
    )
    assert x.shape == (3, 2)
    assert np.all(gaps == np.inf)


def test_vertices_with_ties_are_those_of_a_linear_programme(rng):
    """Whole numbers, where many more rows rest than there are variables."""
    for _ in range(20):
        a, d = rng.integers(-2, 3, (25, 3)).astype(float), rng.integers(-2, 3, 25).astype(float)
        high, gradient = rng.integers(1, 4, 25).astype(float), np.zeros(3)
        gradient = -(rng.uniform(0.0, 1.0, 25) * high) @ a  # bounded below
        found = best_vertex(gradient, a, d, high, np.abs(d), 200)
        if found is None:
            continue
        x, u = found
        peer = linprog(
            np.concatenate([gradient, high]), A_ub=np.hstack([a, -np.eye(25)]), b_ub=-d,
            bounds=[(None, None)] * 3 + [(0.0, None)] * 25,
        )  # fmt: skip
        np.testing.assert_allclose(gradient @ x + high @ np.maximum(a @ x + d, 0.0), peer.fun, atol=1e-9)
        np.testing.assert_allclose(u @ a, -gradient, atol=1e-9)


def test_a_warm_start_takes_no_more_steps_than_a_cold_one(rng):
    X, y = rng.integers(0, 4, (16, 2)).astype(float), rng.integers(0, 5, 16).astype(float)
    steps = {}
    for warm in (False, True):
        model = learn.QuantileRegressor(quantile=0.5, warm_start=warm)
        steps[warm] = sum(model.set_params(alpha=a).fit(X, y).n_iter_ for a in np.geomspace(1.0, 1e-3, 10))
    assert steps[True] <= steps[False]


def test_small_linear_problems_go_from_vertex_to_vertex(rng):
    X, y = rng.standard_normal((200, 5)), rng.standard_normal(200)
    w = vo.Variable(5)
    assert vo.minimize(vo.sum(vo.pinball(y - X @ w, 0.3)) + 3.0 * vo.norm1(w)).method == "program"


@pytest.mark.parametrize("kind", ["whole numbers", "heavy tails", "from zeros"])
def test_a_warm_start_takes_no_more_steps(kind):
    """Along ten strengths; from a point where rows rest on their kinks it once took sixty steps for three.

    And from one where all coefficients are zero, forty for nine.
    """
    rng = np.random.default_rng(1 if kind == "from zeros" else 0)
    if kind == "whole numbers":
        X, y = rng.integers(0, 4, (16, 2)).astype(float), rng.integers(0, 5, 16).astype(float)
    else:
        X = rng.standard_normal((3000, 20))
        y = X @ rng.standard_normal(20) + rng.standard_t(2, 3000)
    steps = {}
    for warm in (True, False):
        model, steps[warm] = learn.QuantileRegressor(quantile=0.5, warm_start=warm), 0
        for alpha in np.geomspace(1.0, 1e-3, 10):
            steps[warm] += model.set_params(alpha=alpha).fit(X, y).n_iter_
    assert steps[True] <= steps[False]


@pytest.mark.parametrize(("order", "features"), [(0, 1), (1, 1), (2, 1), (1, 3)])
def test_trends_of_all_strengths_together_are_those_one_by_one(order, features):
    rng = np.random.default_rng(order)
    X = rng.uniform(-2.0, 2.0, (45, features)).round(2)
    y, weight = np.sin(3.0 * X[:, 0]) + 0.3 * rng.standard_normal(45), rng.integers(0, 3, 45).astype(float)
    alphas = np.geomspace(0.5, 1e-3, 8)
    model = learn.TrendFilter(order=order)
    found = model._along([{"alpha": a} for a in alphas], (X, y, weight), DataMemory(), model._clock())
    assert found is not None
    assert np.isfinite(found[1]).sum() >= 6  # what is left is fitted on its own
    ends = np.cumsum([knots.size for knots in model.knots_])[:-1]
    for alpha, values, level in zip(alphas, *found, strict=True):
        if np.isfinite(level):
            one = learn.TrendFilter(alpha=alpha, order=order).fit(X, y, sample_weight=weight)
            np.testing.assert_allclose(
                level + additive(X, model.knots_, np.split(values, ends), order), one.predict(X), atol=2e-5
            )


def test_homotopy_of_dependent_columns_is_not_taken_for_a_minimiser():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 5))
    squares = Squares(np.hstack([X, X, X.sum(axis=1, keepdims=True)]), X[:, 0] - X[:, 1], np.ones(30), False)
    l1 = np.geomspace(0.5, 1e-3, 10)
    coefs = homotopy(squares, l1)
    values, gaps = squares.brackets(coefs, l1, np.zeros(10))
    for strength, value, gap in zip(l1, values, gaps, strict=True):
        best = learn.Lasso(alpha=strength, fit_intercept=False).fit(squares.X, squares.y[:, 0]).objective_
        assert value - gap <= best * (1.0 + 1e-9)
