"""Paths, rules of choice, several targets: each against what it is made of, one by one."""

import inspect
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.linear_model as theirs
from sklearn.base import clone
from sklearn.datasets import load_diabetes

from varopt import learn
from varopt.learn._data import distinct_rows  # rows as a fit has them
from varopt.learn._least_squares import Squares, _tasks  # a rival that gives up is feigned

SEVERAL = [
    learn.Lasso(0.05),
    learn.ElasticNet(0.05, positive=True),
    learn.LADRegressor(0.01),
    learn.LinearSVR(C=0.1, epsilon=0.1),
    learn.HuberRegressor(),
    learn.QuantileRegressor(quantile=0.3, alpha=0.01),
    learn.FusedLasso(0.01, 0.1),
    learn.GroupLasso(0.05, groups=[0, 0, 1, 1]),
    learn.GeneralizedLasso(0.1),
    learn.CompositeRegressor("absolute_error", "l2", alpha=0.01),
]


@pytest.fixture
def tasks(rng):
    X = rng.standard_normal((60, 4)) + 1.0
    Y = X @ np.array([[1.0, 0.5, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    return X, Y + 0.3 * rng.standard_normal(Y.shape), rng.uniform(0.1, 2.0, 60)


@pytest.mark.parametrize("model", SEVERAL, ids=lambda model: type(model).__name__)
def test_several_targets_are_fitted_each_on_its_own(model, tasks):
    X, Y, weight = tasks
    together = model.fit(X, Y, weight)
    coef, intercept, predicted = together.coef_, together.intercept_, together.predict(X)
    gaps, objectives = together.gap_, together.objective_
    assert coef.shape == (3, 4)
    assert predicted.shape == Y.shape
    assert gaps.shape == (3,)
    for k, y in enumerate(Y.T):
        one = model.fit(X, y, weight)
        np.testing.assert_allclose(objectives[k], one.objective_, rtol=1e-8)
        np.testing.assert_allclose(coef[k], one.coef_, atol=1e-4)
        np.testing.assert_allclose(intercept[k], np.ravel(one.intercept_)[0], atol=1e-4)


def test_many_levels_are_of_one_target(tasks):
    X, Y, _ = tasks
    with pytest.raises(ValueError, match="quantile must be one level where y has several targets, 3 here"):
        learn.QuantileRegressor(quantile=[0.1, 0.9]).fit(X, Y)
    one = learn.QuantileRegressor(quantile=[0.1, 0.9], alpha=0.0).fit(X, Y[:, :1])
    np.testing.assert_array_equal(
        one.coef_, learn.QuantileRegressor(quantile=[0.1, 0.9], alpha=0.0).fit(X, Y[:, 0]).coef_
    )


# -- Multi-task lassos -------------------------------------------------------------------------------------------------


def multi_task_objective(coef, intercept, X, Y, weight, alpha, ratio):
    squares = weight @ (Y - X @ coef.T - intercept) ** 2
    lengths = np.linalg.norm(coef, axis=0)
    return squares.sum() / (2 * weight.sum()) + alpha * (ratio * lengths.sum() + 0.5 * (1 - ratio) * (lengths**2).sum())


@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("sparse", [False, True])
def test_multi_task_elastic_net_is_scikit_learns_and_that_of_groups(ratio, sparse, tasks):
    X, Y, weight = tasks
    model = learn.MultiTaskElasticNet(0.2, l1_ratio=ratio).fit(sp.csr_array(X) if sparse else X, Y, weight)
    root = np.sqrt(weight / weight.mean())[:, None]
    moved, shifted = (root * (part - np.average(part, axis=0, weights=weight)) for part in (X, Y))
    peer = theirs.MultiTaskElasticNet(0.2, l1_ratio=ratio, fit_intercept=False, tol=1e-10).fit(moved, shifted)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-5)
    assert np.array_equal(model.coef_ == 0.0, peer.coef_ == 0.0)
    assert not model.coef_[:, 2].any()
    value = multi_task_objective(model.coef_, model.intercept_, X, Y, weight, 0.2, ratio)
    assert model.lower_bound_ <= value * (1 + 1e-14)
    assert model.gap_ <= 1e-9 * value
    # without the pilot: one problem with a norm for each feature
    joint = model._joint(distinct_rows(X, Y, weight), np.zeros((3, 4)), model._clock())
    np.testing.assert_allclose(joint[0].solved.objective, model.objective_, rtol=1e-9)


def test_a_multi_task_lasso_wants_several_targets(tasks):
    X, Y, _ = tasks
    with pytest.raises(ValueError, match="mono-task outputs, use Lasso"):
        learn.MultiTaskLasso().fit(X, Y[:, 0])


# -- Paths -------------------------------------------------------------------------------------------------------------


def their_path(X, y, number, **options):
    """Scikit-learn's, of which releases differ in the name of the number of strengths."""
    older = inspect.signature(theirs.enet_path).parameters["alphas"].default is None
    return theirs.enet_path(X, y, **{"n_alphas" if older else "alphas": number}, **options)


@pytest.mark.parametrize("ratio", [1.0, 0.3])
@pytest.mark.parametrize("positive", [False, True])
def test_path_is_that_of_scikit_learn(ratio, positive):
    X, y = load_diabetes(return_X_y=True)
    y = y - y.mean()
    alphas, coefs, gaps, steps = learn.ElasticNet.path(
        X, y, l1_ratio=ratio, alphas=30, positive=positive, return_n_iter=True
    )
    grid, peer, _ = their_path(X, y, 30, l1_ratio=ratio, positive=positive, tol=1e-12, max_iter=100_000)
    np.testing.assert_allclose(alphas, grid)
    np.testing.assert_allclose(coefs, peer, atol=1e-4 * np.abs(peer).max())
    assert len(steps) == gaps.size == 30
    assert np.all(gaps <= 1e-9 * 0.5 * np.mean(y**2))


def test_path_of_several_targets(tasks):
    X, Y, _ = tasks
    alphas, coefs, gaps = learn.Lasso.path(X, Y, l1_ratio=1.0, alphas=6)
    peer = their_path(X, Y, 6, l1_ratio=1.0, tol=1e-10)
    np.testing.assert_allclose(alphas, peer[0])
    np.testing.assert_allclose(coefs, peer[1], atol=1e-4)
    assert coefs.shape == (3, 4, 6)
    assert np.all(gaps <= 1e-9 * np.mean(Y**2))


def test_path_says_what_it_does_not_take(tasks):
    X, Y, _ = tasks
    with pytest.raises(ValueError, match="path takes tol, sample_weight and max_iter"):
        learn.Lasso.path(X, Y[:, 0], fit_intercept=True)
    with pytest.raises(ValueError, match="l1_ratio=0"):
        learn.ElasticNet.path(X, Y[:, 0], l1_ratio=0.0)
    with pytest.raises(ValueError, match="positive=True is not allowed for multi-output"):
        learn.ElasticNet.path(X, Y, positive=True)


@pytest.mark.parametrize("scale", [1.0, 1e40, 1e-40])
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("ratio", [1.0, 0.5, 1e-9])
def test_brackets_hold_in_exact_arithmetic(scale, offset, ratio, rng):
    """At coefficients near the optimum and far from it, with steep weights: the lower end is below any value."""
    X, weight = rng.standard_normal((12, 3)) + offset, 10.0 ** rng.uniform(-8, 8, 12)
    y = scale * (X @ [1.0, 0.0, -1.0] + rng.standard_normal(12))
    squares = Squares(X, y, weight, True)
    alpha = np.full(7, 0.05 * float(np.abs(squares.gradient).max()))
    l1, l2 = alpha * ratio, alpha * (1.0 - ratio) / scale
    best = squares.minimisers(l1, l2, False, lambda: False)
    coefs = best * (1.0 + rng.standard_normal(best.shape) * 10.0 ** np.arange(-16.0, 5.0, 3.0)[:, None])
    values, gaps = squares.brackets(coefs, l1, l2)
    exact = [_exact(X, y, weight, w, float(b), l1[0], l2[0]) for w, b in zip(coefs, squares.levels(coefs), strict=True)]
    assert np.all(values - gaps <= float(min(exact)) * (1.0 + 1e-15))
    if offset == 0.0:
        assert gaps[0] <= 1e-9 * squares.null


def _exact(X, y, weight, w, b, l1, l2):
    weights = [Fraction(float(v)) for v in weight]
    rows = [sum(Fraction(float(a)) * Fraction(float(c)) for a, c in zip(row, w, strict=True)) for row in X]
    errors = [Fraction(float(t)) - Fraction(b) - line for t, line in zip(y, rows, strict=True)]
    squares = sum(v * e * e for v, e in zip(weights, errors, strict=True)) / sum(weights)
    sizes = [abs(Fraction(float(c))) for c in w]
    return squares / 2 + Fraction(float(l1)) * sum(sizes) + Fraction(float(l2)) * sum(s * s for s in sizes) / 2


# -- The rule, and the picture -----------------------------------------------------------------------------------------


def test_one_standard_error_takes_the_strongest_penalty_within_it(rng):
    X = rng.standard_normal((80, 10))
    y = X[:, 0] + rng.standard_normal(80)
    model = learn.LassoCV(rule="1se").fit(X, y)
    mean, error = model.mse_path_.mean(axis=1), model.mse_path_.std(axis=1, ddof=1) / np.sqrt(5)
    best = int(np.argmin(mean))
    within = [k for k in range(100) if mean[k] <= mean[best] + error[best]]
    assert model.alpha_ == model.alphas_[within[0]] > model.alphas_[best] == learn.LassoCV().fit(X, y).alpha_


@pytest.mark.parametrize(
    "search", [learn.LassoCV(), learn.FusedLassoCV(), learn.QuantileRegressorCV(), learn.TrendFilterCV()]
)
def test_folds_without_a_weight_are_left_out(search, rng):
    X, y = rng.standard_normal((50, 2)), rng.standard_normal(50)
    weight = (np.arange(50) >= 10) * 1.0
    folds = [(np.setdiff1d(np.arange(50), test), test) for test in np.arange(50).reshape(5, 10)]
    one = clone(search).set_params(cv=5).fit(X, y, sample_weight=weight)
    other = clone(search).set_params(cv=folds[1:]).fit(X, y, sample_weight=weight)
    assert one.objective_ == other.objective_
    with pytest.raises(ValueError, match="None of the 1 folds has rows with a weight"):
        clone(search).set_params(cv=folds[:1]).fit(X, y, sample_weight=weight)


def test_curve_is_drawn(rng):
    pytest.importorskip("matplotlib").use("Agg")
    X = rng.standard_normal((40, 3))
    y = X[:, 0] + rng.standard_normal(40)
    axes = learn.ElasticNetCV(l1_ratio=[0.5, 1.0], alphas=5, cv=3).fit(X, y).plot()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0].startswith("l1_ratio = 0.5")
    assert labels[-1].startswith("chosen")
    assert axes.get_xlabel() == "alpha"
    assert axes.get_ylabel() == "mean squared error"
    assert axes.get_xscale() == "log"


@pytest.mark.parametrize("ratio", [0.0, 0.4])
def test_the_grid_of_groups_begins_where_nothing_is_left(ratio, rng):
    X, groups = rng.standard_normal((50, 6)) + 2.0, [0, 0, 0, 1, 2, 2]
    y = X @ rng.standard_normal(6)
    largest = learn.GroupLassoCV(groups=groups, l1_ratio=ratio, alphas=2, cv=2).fit(X, y).alphas_[0]
    settings = {"groups": groups, "l1_ratio": ratio}
    assert not learn.GroupLasso(largest * 1.0001, **settings).fit(X, y).coef_.any()
    assert learn.GroupLasso(largest * 0.999, **settings).fit(X, y).coef_.any()


@pytest.mark.parametrize(("order", "rows"), [(0, 40), (1, 40), (2, 40), (0, 400), (1, 400)])
def test_the_grid_of_trends_begins_where_functions_are_polynomials(order, rows, rng):
    X = np.sort(rng.uniform(size=(rows, 1)), axis=0) if rows > 300 else rng.uniform(size=(rows, 2))
    y = np.sin(9.0 * X).sum(axis=1)
    largest = learn.TrendFilterCV(order, alphas=[1.0], cv=2)
    largest.alphas = 1
    (path,) = largest._paths(X, y, np.ones(rows))

    def bends(alpha):
        model = learn.TrendFilter(alpha, order).fit(X, y)
        fits = [
            np.polynomial.Polynomial.fit(x, f, order)(x) - f for x, f in zip(model.knots_, model.values_, strict=True)
        ]
        return max(np.abs(left).max() for left in fits)

    assert bends(path[0]["alpha"] * 1.001) < 1e-6 < bends(path[0]["alpha"] * 0.98)


@pytest.mark.parametrize("columns", [1, 2])
def test_trends_of_sparse_positions_are_those_of_dense_ones(columns, rng):
    X = rng.integers(0, 5, size=(60, columns)) * 1.0
    y = X.sum(axis=1) ** 2 + rng.standard_normal(60)
    dense, sparse = learn.TrendFilter(0.1).fit(X, y), learn.TrendFilter(0.1).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.predict(sp.csr_matrix(X)), dense.predict(X), rtol=1e-9)


def test_huber_is_chosen_by_absolute_errors(rng):
    X = rng.standard_normal((60, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(60)
    y[::9] += 5.0
    model = learn.HuberRegressorCV(epsilon=[1.1, 3.0], alphas=[0.1, 10.0], cv=3).fit(X, y)
    one = learn.HuberRegressor(epsilon=model.epsilon_, alpha=model.alpha_).fit(X, y)
    np.testing.assert_allclose(model.coef_, one.coef_)
    np.testing.assert_allclose(model.scale_, one.scale_)
    assert model.loss_path_.shape == (2, 2, 3)
    with pytest.raises(ValueError, match="epsilon must be a number of at least 1"):
        learn.HuberRegressorCV(epsilon=[0.5]).fit(X, y)


@pytest.mark.parametrize("estimator", [learn.LassoCV(cv=2), learn.HuberRegressorCV(cv=2)])
def test_a_grid_that_overflows_is_refused_in_a_sentence(estimator, rng):
    X = 1e200 * rng.standard_normal((20, 2))
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match="smaller units"):
        estimator.fit(X, 1e200 * rng.standard_normal(20))


def test_a_grid_of_large_features_does_not_overflow(rng):
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    plain, large = (learn.LassoCV(cv=2, alphas=5).fit(scale * X, y) for scale in (1.0, 1e170))
    np.testing.assert_allclose(1e170 * large.coef_, plain.coef_, rtol=1e-6, atol=1e-9)


def test_tasks_end_where_coordinate_descent_does_not_improve(monkeypatch, tasks):
    """As it does not on targets that are constant to rounding, before scikit-learn 1.7."""
    X, Y, weight = tasks
    called = []

    def exhausted(X, y, *, coef_init, max_iter, **options):
        called.append(max_iter)
        return None, coef_init[..., None], None, [max_iter]

    monkeypatch.setattr(_tasks, "enet_path", exhausted)
    start = np.zeros((X.shape[1], Y.shape[1]))
    fit = _tasks.fit_tasks(Squares(X, Y, weight, True), 0.1, 0.1, start, lambda value: 0.0, lambda: False)
    assert 1 <= len(called) < 20
    np.testing.assert_array_equal(fit.coef, start)
