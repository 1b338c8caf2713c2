"""Conformal intervals: methods against their definitions, coverage against what is promised; in MAPIE and skpro."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsRegressor

from varopt import learn
from varopt.learn._intervals._weighted import upper_quantile  # against a sort


def draw(rng, n):
    X = rng.uniform(size=(n, 2))
    return X, X[:, 0] + (0.2 + X[:, 1]) * rng.standard_normal(n)


def covered(interval, y):
    return float(np.mean((interval[:, 0] <= y) & (y <= interval[:, 1])))


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.99])
def test_quantiles_with_one_more_value(level, rng):
    """Without weights the ``ceil(level (n + 1))``-th smallest, and infinite beyond the last."""
    values = rng.standard_normal((3, 19))
    place = math.ceil(level * 20 - 1e-9)
    expected = np.sort(values, axis=1)[:, place - 1] if place <= 19 else np.full(3, np.inf)
    np.testing.assert_array_equal(upper_quantile(values, np.ones(19), np.ones(3), level), expected)
    np.testing.assert_array_equal(upper_quantile(values[:1], np.ones(19), np.ones(3), level), expected[[0, 0, 0]])


def test_weights_of_values_are_repetitions(rng):
    values, weight = rng.standard_normal((2, 12)), rng.integers(1, 4, 12)
    repeated = np.repeat(values, weight, axis=1)
    for level in (0.3, 0.7, 0.95):
        np.testing.assert_array_equal(
            upper_quantile(values, weight.astype(float), np.ones(2), level),
            upper_quantile(repeated, np.ones(repeated.shape[1]), np.ones(2), level),
        )


@pytest.mark.parametrize("model", [Ridge(), learn.Lasso(0.01), learn.QuantileRegressor(alpha=0.0), None])
@pytest.mark.parametrize("method", ["cv+", "jackknife+"])
def test_plus_methods_are_what_they_are_defined_as(model, method, rng):
    X, y = draw(rng, 24)
    new, _ = draw(rng, 5)
    folds = list(KFold(4).split(X)) if method == "cv+" else [(np.delete(np.arange(24), i), [i]) for i in range(24)]
    conformal = learn.ConformalIntervals(model, alpha=0.2, method=method, cv=folds if method == "cv+" else None)
    found = conformal.fit(X, y).predict_interval(new)
    low, high = [], []
    for train, test in folds:
        one = clone(model) if model is not None else learn.QuantileRegressor(alpha=0.0)
        if "quantile" in one.get_params():
            one.set_params(quantile=[0.1, 0.9])
        one.fit(X[train], y[train])
        ends = [part.reshape(len(part), -1)[:, [0, -1]] for part in (one.predict(X[test]), one.predict(new))]
        scores = np.maximum(ends[0][:, 0] - y[test], y[test] - ends[0][:, 1])
        low += [ends[1][:, 0] - score for score in scores]
        high += [ends[1][:, 1] + score for score in scores]
    place = math.ceil(0.8 * 25)
    np.testing.assert_allclose(found[:, 0], np.sort(low, axis=0)[24 - place], atol=1e-6)
    np.testing.assert_allclose(found[:, 1], np.sort(high, axis=0)[place - 1], atol=1e-6)


def test_split_covers_as_often_as_it_says(rng):
    """With 19 rows of calibration and 0.8: exactly 16 of 20 in the mean over data sets, whatever the model."""
    hits = []
    for _ in range(120):
        X, y = draw(rng, 76)
        new, target = draw(rng, 20)
        model = learn.ConformalIntervals(Ridge(), alpha=0.2, random_state=int(rng.integers(2**31))).fit(X, y)
        assert model.scores_.size == 19
        hits.append(covered(model.predict_interval(new), target))
    error = np.std(hits) / math.sqrt(len(hits))
    assert abs(np.mean(hits) - 0.8) < 4.0 * error


@pytest.mark.parametrize("method", ["split", "cv+", "jackknife+"])
def test_intervals_of_quantiles_cover_and_follow_the_spread(method, rng):
    X, y = draw(rng, 200 if method == "jackknife+" else 400)
    new, target = draw(rng, 2000)
    intervals = learn.ConformalIntervals(method=method).fit(X, y).predict_interval(new)
    assert 0.86 < covered(intervals, target) < 0.94
    width = np.ptp(intervals, axis=1)
    assert np.median(width[new[:, 1] > 0.8]) > 2.0 * np.median(width[new[:, 1] < 0.2])


@pytest.mark.parametrize("method", ["split", "cv+", "jackknife+"])
def test_weights_are_repetitions(method, rng):
    X, y = draw(rng, 30)
    weight = rng.integers(0, 3, 30)
    settings = {"estimator": learn.QuantileRegressor(alpha=0.001), "method": method}
    one = learn.ConformalIntervals(**settings).fit(X, y, sample_weight=weight).predict_interval(X)
    repeated = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    np.testing.assert_allclose(one, learn.ConformalIntervals(**settings).fit(*repeated).predict_interval(X), atol=1e-6)


def test_weights_make_up_for_rows_that_are_unlike(rng):
    """New rows come from where targets spread more: without weights they are covered too rarely."""
    X, y = draw(rng, 4000)
    new, target = draw(rng, 20_000)
    kept = rng.uniform(size=20_000) < new[:, 1] ** 4
    new, target = new[kept], target[kept]
    model = learn.ConformalIntervals(Ridge(), alpha=0.1)
    plain = covered(model.fit(X, y).predict_interval(new), target)
    weighted = covered(model.fit(X, y, sample_weight=X[:, 1] ** 4).predict_interval(new, new[:, 1] ** 4), target)
    assert plain < 0.82
    assert 0.87 < weighted < 0.93


def test_too_few_rows_leave_intervals_without_ends(rng):
    X, y = draw(rng, 12)
    assert np.all(np.isinf(learn.ConformalIntervals(Ridge(), alpha=0.1).fit(X, y).predict_interval(X)))


def test_sparse_rows_and_own_folds(rng):
    X, y = draw(rng, 60)
    settings = {"method": "cv+", "cv": KFold(3)}
    dense = learn.ConformalIntervals(**settings).fit(X, y)
    sparse = learn.ConformalIntervals(**settings).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.predict_interval(sp.csr_array(X)), dense.predict_interval(X), atol=1e-7)
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), atol=1e-7)
    assert len(learn.ConformalIntervals(method="cv+", cv=4).fit(sp.csr_array(X), y).estimators_) == 4


@pytest.mark.parametrize("method", ["split", "cv+", "jackknife+"])
@pytest.mark.parametrize(
    ("one", "pair"),
    [
        (linear_model.QuantileRegressor(alpha=0.0), learn.QuantileRegressor(alpha=0.0)),
        (learn.CompositeRegressor(loss="quantile", penalty="l1", alpha=0.01), learn.QuantileRegressor(alpha=0.01)),
    ],
)
def test_models_of_one_level_are_fitted_at_both(method, one, pair, rng):
    X, y = draw(rng, 41)  # levels of which rows are no whole number have one optimum
    weight = rng.uniform(0.5, 2.0, 41)
    ends = [learn.ConformalIntervals(m, alpha=0.3, method=method).fit(X, y, weight) for m in (one, pair)]
    np.testing.assert_allclose(ends[0].predict_interval(X), ends[1].predict_interval(X), atol=1e-6)


@pytest.mark.parametrize("model", [HistGradientBoostingRegressor(max_iter=5), learn.CompositeRegressor(alpha=0.01)])
def test_a_level_that_the_loss_does_not_use_is_left_alone(model, rng):
    X, y = draw(rng, 60)
    intervals = learn.ConformalIntervals(model).fit(X, y).predict_interval(X)
    np.testing.assert_allclose(np.ptp(intervals, axis=1), np.ptp(intervals[0]), rtol=1e-9)


@pytest.mark.parametrize("method", ["split", "cv+", "jackknife+"])
def test_targets_that_do_not_vary_have_intervals_without_width(method, rng):
    X, _ = draw(rng, 80)
    intervals = learn.ConformalIntervals(method=method).fit(X, np.full(80, 3.0)).predict_interval(X)
    np.testing.assert_allclose(intervals, 3.0, atol=1e-12)


def test_what_is_refused_is_said(rng):
    X, y = draw(rng, 30)
    with pytest.raises(ValueError, match="sample_weight was given, and the fit of KNeighborsRegressor takes none"):
        learn.ConformalIntervals(KNeighborsRegressor()).fit(X, y, sample_weight=y**2)
    with pytest.raises(ValueError, match="one number or two quantiles a row; got 3"):
        learn.ConformalIntervals(_Three()).fit(X, y)
    with pytest.raises(ValueError, match="at least two rows"):
        learn.ConformalIntervals().fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="method"):
        learn.ConformalIntervals(method="cv").fit(X, y)
    with pytest.raises(ValueError, match="LinearSVC predicts classes"):
        learn.ConformalIntervals(learn.LinearSVC()).fit(X, y > 0.0)


class _Three(Ridge):
    def predict(self, X):
        return np.column_stack([super().predict(X)] * 3)


# -- Other libraries, where they are installed -------------------------------------------------------------------------


def test_inside_mapie(rng):
    regression = pytest.importorskip("mapie.regression")
    X, y = draw(rng, 900)
    new, target = draw(rng, 2000)
    fits = [
        regression.ConformalizedQuantileRegressor(learn.QuantileRegressor(alpha=0.0), confidence_level=0.9)
        .fit(X[:450], y[:450]).conformalize(X[450:], y[450:]),
        regression.SplitConformalRegressor(learn.LADRegressor(), confidence_level=0.9, prefit=False)
        .fit(X[:450], y[:450]).conformalize(X[450:], y[450:]),
        regression.CrossConformalRegressor(learn.HuberRegressor(), confidence_level=0.9, cv=5).fit_conformalize(X, y),
    ]  # fmt: skip
    for fit in fits:
        assert 0.86 < covered(fit.predict_interval(new)[1][:, :, 0], target) < 0.94


def test_inside_skpro(rng):
    multiquantile = pytest.importorskip("skpro.regression.multiquantile")
    pandas = pytest.importorskip("pandas")
    X, y = draw(rng, 600)
    new, target = draw(rng, 2000)
    frame, targets, news = pandas.DataFrame(X), pandas.DataFrame({"y": y}), pandas.DataFrame(new)
    model = multiquantile.MultipleQuantileRegressor(
        mean_regressor=learn.LADRegressor(), quantile_regressor=learn.QuantileRegressor(alpha=0.0),
        alpha=[0.05, 0.5, 0.95], alpha_name="quantile",
    ).fit(frame, targets)  # fmt: skip
    assert 0.86 < covered(model.predict_interval(news, coverage=0.9).to_numpy(), target) < 0.94


@pytest.mark.filterwarnings("ignore:The certified gap")  # at 1e-12, rounding is all there is
def test_columns_that_nearly_repeat_others(rng):
    """Refits from neighbours have no Hessian there, and are fits of their own."""
    X = rng.standard_normal((60, 3))
    X = np.column_stack([X, X[:, 0] + 1e-12 * rng.standard_normal(60)])
    y = X[:, 0] + rng.standard_normal(60)
    low, high = learn.ConformalIntervals(alpha=0.2, method="cv+").fit(X, y).predict_interval(X).T
    assert np.all(low <= high)
