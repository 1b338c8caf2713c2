"""What a user of scikit-learn expects beyond the checks: many levels, order, sparse data, warnings, pipelines."""

import itertools
import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import HuberRegressor as SciKitHuber
from sklearn.linear_model import Lasso as SciKitLasso
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import varopt as vo
from varopt import learn
from varopt.learn import _base  # its clock is replaced
from varopt.optimize import Status
from varopt.solvers.descent import _newton  # a level is interrupted
from varopt.solvers.huber import _solve  # one of its two ways is switched off

VERSION = tuple(map(int, sklearn.__version__.split(".")[:2]))

ESTIMATORS = [name for name in learn.__all__ if hasattr(getattr(learn, name), "fit")]


def needs_names_of(library):
    """Skip where this scikit-learn does not read the names of this library's frames, whoever's estimator asks."""
    frame = library.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.0, 1.0, 0.0]})
    if not hasattr(SciKitLasso().fit(frame, [1.0, 2.0, 3.0]), "feature_names_in_"):
        pytest.skip(f"scikit-learn {sklearn.__version__} reads no names of {library.__name__} {library.__version__}")


@pytest.fixture
def crossing(rng):
    """Few rows, many levels: fitted one by one, some quantiles cross."""
    X = rng.standard_normal((40, 3))
    return X, X @ [1.0, 0.0, -1.0] + rng.standard_t(2, 40) * (1.0 + np.abs(X[:, 0]))


LEVELS = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9]


def test_many_levels_are_the_single_ones(crossing):
    X, y = crossing
    many = learn.QuantileRegressor(quantile=LEVELS, alpha=0.01).fit(X, y)
    assert many.predict(X).shape == (40, 7)
    assert many.coef_.shape == (7, 3)
    for k, level in enumerate(LEVELS):
        single = learn.QuantileRegressor(quantile=level, alpha=0.01).fit(X, y)
        assert many.objective_[k] == pytest.approx(single.objective_, rel=1e-9)
        assert many.gap_[k] <= 1e-9 * many.objective_[k]
    assert 0.0 < many.score(X, y) < 1.0


def test_quantiles_do_not_cross_when_they_must_not(crossing):
    X, y = crossing
    free = learn.QuantileRegressor(quantile=LEVELS, alpha=0.0).fit(X, y)
    assert np.diff(free.predict(X), axis=1).min() < -1e-6, "these data make a test"
    tied = learn.QuantileRegressor(quantile=LEVELS, alpha=0.0, non_crossing=True).fit(X, y)
    assert np.diff(tied.predict(X), axis=1).min() >= 0.0
    assert tied.gap_ <= 1e-9 * tied.objective_
    assert free.objective_.sum() <= tied.objective_ <= 1.1 * free.objective_.sum()
    residuals = y[:, None] - tied.predict(X)
    losses = np.where(residuals > 0, np.array(LEVELS) * residuals, (np.array(LEVELS) - 1) * residuals)
    assert losses.mean(axis=0).sum() == pytest.approx(tied.objective_, rel=1e-9)


def test_levels_need_not_be_sorted(crossing):
    X, y = crossing
    up = learn.QuantileRegressor(quantile=LEVELS, alpha=0.0, non_crossing=True).fit(X, y)
    down = learn.QuantileRegressor(quantile=LEVELS[::-1], alpha=0.0, non_crossing=True).fit(X, y)
    assert down.objective_ == pytest.approx(up.objective_, rel=1e-8)


@pytest.mark.parametrize("quantile", [0.0, 1.0, [0.5, 1.5], [], "half"])
def test_bad_levels_are_refused(quantile, crossing):
    with pytest.raises(ValueError, match="'quantile' parameter of QuantileRegressor must be"):
        learn.QuantileRegressor(quantile=quantile).fit(*crossing)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "ConformalIntervals"])  # which solves nothing
def test_bad_parameters_are_refused_as_scikit_learn_refuses_them(name):
    X, y = make_regression(20, 3, random_state=0)
    model = getattr(learn, name)(tol=-1.0)
    with pytest.raises(ValueError, match=rf"The 'tol' parameter of {name} must be a float in the range \[0.0, inf\)"):
        model.fit(X, y > 0)


@pytest.mark.parametrize(
    "model",
    [
        learn.Lasso(0.1),
        learn.QuantileRegressor(alpha=0.1),
        learn.LinearSVR(),
        learn.HuberRegressor(),
        learn.LinearSVC(),
        learn.CompositeClassifier(penalty="l1", alpha=0.01),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.coo_array])
def test_sparse_is_dense_and_float32_is_kept(model, container, rng):
    X = rng.standard_normal((60, 5)) * (rng.random((60, 5)) < 0.4)
    y = (X[:, 0] + 0.3 * rng.standard_normal(60) > 0).astype(float)
    dense, sparse = clone(model).fit(X, y), clone(model).fit(container(X), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-6, atol=1e-8)
    single = clone(model).fit(container(X.astype(np.float32)), y)
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(single.coef_, dense.coef_, rtol=1e-3, atol=1e-4)


def test_sparse_data_are_never_made_dense():
    X = sp.random_array((2000, 20_000), density=2e-4, rng=np.random.default_rng(0), format="csr")
    X = sp.hstack([X, sp.csr_array(np.ones((2000, 1)))], format="csr")
    y = np.sign(X @ np.random.default_rng(1).standard_normal(X.shape[1]) + 1e-3)
    import tracemalloc

    tracemalloc.start()
    try:
        learn.Lasso(alpha=0.01, max_iter=50).fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2000 * 20_000 * 8 / 4


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        (learn.QuantileRegressor(max_iter=1, alpha=0.01), "Raise max_iter, now 1."),
        (learn.QuantileRegressor(time_limit=1e-9, alpha=0.01), "Raise time_limit, now 1e-09 s."),
        (learn.LinearSVC(max_iter=1, loss="hinge"), "Raise max_iter, now 1."),
        (learn.LinearSVR(max_iter=1), "Raise max_iter, now 1."),
    ],
    ids=["max_iter", "time_limit", "LinearSVC", "LinearSVR"],
)
def test_the_warning_states_both_gaps_and_one_argument(model, advice):
    X, y = make_classification(2000, random_state=0)  # too many for vertices at once
    pattern = r"^The certified gap is \S+ at an objective of \S+; tol=1e-09 asks for \S+\. "
    with pytest.warns(ConvergenceWarning, match=pattern) as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert caught[0].message.args[0].endswith(advice)
    assert np.all(np.isfinite(model.coef_))


def test_a_fit_is_stopped_soundly_where_no_matrix_could_be_factorised():
    X = 1e4 + np.array([[0.8, -1.9, 0.5, -1.9, 0.8], [0.4, -0.9, 0.9, -0.6, -0.3]])
    y, weight = [1000001.2, 1000000.9], [1e-6, 1.0]
    model = learn.FusedLasso(alpha=1e12, fusion=0.01, time_limit=1e-6)
    with warnings.catch_warnings():  # few variables may be solved exactly before the clock is looked at
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y, sample_weight=weight)
    null = 0.5 * np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)  # such an alpha leaves nothing
    assert 0.0 <= model.lower_bound_ <= null <= model.objective_ * (1.0 + 1e-6)


def test_warm_start_takes_up_the_last_fit():
    X, y = make_regression(3000, 5, noise=3.0, random_state=0)  # too many for vertices at once
    model = learn.QuantileRegressor(alpha=0.1, warm_start=True).fit(X, y)
    cold = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ < cold
    assert model.gap_ <= 1e-9 * model.objective_


def test_many_classes_are_fitted_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    model = learn.LinearSVC(loss="hinge").fit(X, names[y])
    assert model.coef_.shape == (3, 4)
    assert np.all(model.gap_ <= 1e-9 * model.objective_)
    assert model.score(X, names[y]) > 0.9
    single = learn.LinearSVC(loss="hinge").fit(X, y == 2)
    assert model.objective_[2] == pytest.approx(single.objective_, rel=1e-9)
    np.testing.assert_allclose(model.decision_function(X)[:, 2], single.decision_function(X), atol=1e-5)


@pytest.mark.parametrize(
    "model", [learn.LinearSVC(), learn.SVC(), learn.CompositeClassifier(loss="hinge")],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_probabilities_come_from_calibration(model):
    X, y = make_classification(120, 4, n_informative=3, n_redundant=0, random_state=0)
    calibrated = CalibratedClassifierCV(model, cv=2).fit(X, y)
    probabilities = calibrated.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert log_loss(y, probabilities) < log_loss(y, np.full(len(y), y.mean()))


def test_pipelines_searches_and_pickles():
    X, y = make_regression(80, 4, noise=3.0, random_state=0)
    search = GridSearchCV(make_pipeline(StandardScaler(), learn.QuantileRegressor()), {
        "quantileregressor__alpha": [0.01, 0.1]
    }, cv=3).fit(X, y)  # fmt: skip
    restored = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(restored.predict(X), search.predict(X))


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
@pytest.mark.parametrize(
    "model",
    [
        learn.Lasso(),
        learn.SVR(C=100.0),
        learn.TrendFilter(alpha=0.01),
        learn.GroupLasso(0.1, groups=pd.Series(["x", "y", "x"])),
        learn.LassoCV(alphas=3, cv=3),
        learn.LinearSVC(),
        learn.ZeroOneClassifier(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_frames_have_names(library, model):
    needs_names_of(library)
    X, y = make_regression(30, 3, noise=1.0, random_state=0)
    names = ["age", "height", "weight"]
    frame = library.DataFrame(dict(zip(names, X.T, strict=True)))
    y = y > 0 if is_classifier(model) else y
    fitted = clone(model).fit(frame, library.Series(y))
    assert list(fitted.feature_names_in_) == names
    np.testing.assert_allclose(fitted.predict(frame), clone(model).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(library.DataFrame(dict(zip("abc", X.T, strict=True))))


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_outputs_are_the_frames_that_were_asked_for(container):
    needs_names_of(pytest.importorskip(container))
    X, y = make_regression(60, 4, n_informative=2, noise=1.0, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(StandardScaler(), SelectFromModel(learn.Lasso(5.0))).set_output(transform=container)
    kept = np.flatnonzero(np.abs(learn.Lasso(5.0).fit(StandardScaler().fit_transform(X), y).coef_) > 1e-5)
    chosen = model.fit_transform(frame, y)
    assert type(chosen).__module__.split(".")[0] == container
    assert list(chosen.columns) == [list("abcd")[k] for k in kept]


@pytest.mark.skipif(VERSION < (1, 8), reason="pipelines of scikit-learn 1.7 route no weights to their scores")
def test_weights_are_routed():
    X, y = make_regression(60, 3, noise=5.0, random_state=0)
    weight = np.arange(60) % 3
    with sklearn.config_context(enable_metadata_routing=True):
        lasso = learn.Lasso().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(make_pipeline(StandardScaler().set_fit_request(sample_weight=False), lasso), {
            "lasso__alpha": [0.1, 10.0]
        }, cv=3).fit(X, y, sample_weight=weight)  # fmt: skip
        model = search.best_estimator_[-1]
    direct = learn.Lasso(model.alpha).fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_allclose(model.coef_, direct.coef_)


CV = [
    learn.LassoCV(alphas=6, cv=3),
    learn.ElasticNetCV(alphas=4, l1_ratio=[0.3, 0.8], cv=3),
    learn.FusedLassoCV(alphas=2, fusions=3, cv=3),
    learn.QuantileRegressorCV(quantile=0.7, alphas=4, cv=3),
    learn.LinearSVCCV(Cs=[0.01, 1.0], cv=3),
]


@pytest.mark.parametrize("model", CV, ids=lambda model: type(model).__name__)
def test_cross_validation_is_a_grid_search(model):
    X, y = make_regression(60, 5, n_informative=2, noise=10.0, random_state=1)
    y = (y > 0).astype(int) if isinstance(model, learn.LinearSVCCV) else y
    model.fit(X, y)
    single = getattr(learn, type(model).__name__[:-2])
    names = [name for name in ("alpha", "l1_ratio", "fusion", "C") if hasattr(model, f"{name}_")]
    given = {name: model.get_params()[name] for name in ("quantile",) if name in model.get_params()}
    grid = {name: np.unique(getattr(model, f"{name}s_", getattr(model, name, None))) for name in names}
    scoring = {"QuantileRegressorCV": None, "LinearSVCCV": "accuracy"}.get(
        type(model).__name__, "neg_mean_squared_error"
    )
    if scoring is not None and "l1_ratio" not in names:
        search = GridSearchCV(single(**given), grid, cv=3, scoring=scoring).fit(X, y)
        for name in names:
            assert getattr(model, f"{name}_") == pytest.approx(search.best_params_[name])
    refitted = single(**given, **{name: getattr(model, f"{name}_") for name in names}).fit(X, y)
    np.testing.assert_allclose(model.coef_, refitted.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.objective_, refitted.objective_, rtol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_column_of_targets_is_treated_as_scikit_learn_treats_it(intercept):
    X, y = make_regression(30, 3, noise=1.0, random_state=0)
    ours = learn.Lasso(fit_intercept=intercept).fit(X, y[:, None])
    theirs = SciKitLasso(fit_intercept=intercept).fit(X, y[:, None])
    for name in ("coef_", "intercept_", "dual_gap_"):
        assert np.shape(getattr(ours, name)) == np.shape(getattr(theirs, name)), name
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-2)


@pytest.mark.parametrize("model", CV[:-1], ids=lambda model: type(model).__name__)
def test_cross_validated_regressors_take_truth_values_and_refuse_words(model):
    X, y = make_regression(60, 5, n_informative=2, noise=10.0, random_state=1)
    fits = [clone(model).fit(X, targets) for targets in (y > 0, (y > 0).astype(object), (y > 0).astype(float))]
    assert len({fit.objective_ for fit in fits}) == 1
    with pytest.raises(ValueError, match="could not convert string to float"):
        clone(model).fit(X, np.where(y > 0, "yes", "no"))


def searched(model):
    X, y = make_regression(60, 5, n_informative=2, noise=10.0, random_state=1)
    return X, (y > 0).astype(int) if isinstance(model, learn.LinearSVCCV) else y


def losses(model):
    return next(getattr(model, name) for name in ("mse_path_", "loss_path_", "scores_") if hasattr(model, name))


@pytest.mark.parametrize("model", CV, ids=lambda model: type(model).__name__)
def test_a_search_without_time_says_so_once_and_keeps_its_bracket(model):
    model = clone(model).set_params(time_limit=1e-9)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(*searched(model))
    told = [str(warning.message) for warning in caught if "of the folds" in str(warning.message)]
    size, missing = losses(model).size, int(np.isnan(losses(model)).sum())  # fits that are made at once are kept
    assert len(told) == 1
    assert missing > 0
    assert told[0].startswith(f"{missing} of {size} fits of the folds were not made, and their losses are nan: ")
    assert told[0].endswith("Raise time_limit, now 1e-09 s.")
    assert model.lower_bound_ <= model.objective_


def test_folds_share_the_time_and_compare_what_all_of_them_came_to(monkeypatch):
    monkeypatch.setattr(_base, "time", SimpleNamespace(perf_counter=itertools.count().__next__))  # a second a look
    model = learn.QuantileRegressorCV(alphas=12, cv=3)
    X, y = searched(model)
    full = clone(model).fit(X, y)
    model.set_params(time_limit=50.0)
    with pytest.warns(ConvergenceWarning, match=r"over 3 of 3 folds\. Raise time_limit, now 50.0 s"):
        model.fit(X, y)
    made = np.isfinite(model.loss_path_)
    compared = made.all(axis=1)
    assert 1 < np.count_nonzero(compared) < 12
    np.testing.assert_allclose(model.loss_path_[made], full.loss_path_[made])
    assert model.alpha_ == model.alphas_[np.argmin(model.loss_path_[compared].mean(axis=1))]
    assert model.gap_ <= 1e-9 * model.objective_, "time is left for the last fit"


def test_an_interrupt_ends_a_search_with_what_was_compared(monkeypatch):
    model, solves = learn.LinearSVCCV(Cs=[0.01, 0.1, 1.0], cv=3, loss="hinge"), itertools.count()  # each fit by itself
    minimize = _base.minimize

    def interrupted(objective, **options):
        if next(solves) == 5:
            options["callback"] = None
            return replace(minimize(objective, **options), status=Status.INTERRUPTED)
        return minimize(objective, **options)

    monkeypatch.setattr(_base, "minimize", interrupted)
    told = r"3 of 9 fits .* over 2 of 3 folds\. The fit was interrupted\."
    with pytest.warns(ConvergenceWarning, match=told) as caught:
        model.fit(*searched(model))
    assert len(caught) == 1
    assert np.isfinite(model.scores_).sum() == 6
    assert model.gap_ <= 1e-9 * model.objective_


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (learn.LassoCV(alphas=[]), "alphas"),
        (learn.ElasticNetCV(l1_ratio=[]), "l1_ratio"),
        (learn.FusedLassoCV(fusions=[]), "fusions"),
        (learn.QuantileRegressorCV(alphas=np.zeros((0, 2))), "alphas"),
        (learn.LinearSVCCV(Cs=[]), "Cs"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_there_must_be_something_to_choose_from(model, name):
    with pytest.raises(ValueError, match=rf"^{name} must be"):
        model.fit(*searched(model))


@pytest.mark.parametrize(
    "model",
    [
        learn.LassoCV(alphas=[np.nan, 1.0]),
        learn.ElasticNetCV(alphas=[1.0, np.inf]),
        learn.TrendFilterCV(alphas=[np.nan, 1.0]),
        learn.FusedLassoCV(alphas=[np.nan, 1.0]),
        learn.LinearSVCCV(Cs=[np.nan, 1.0]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_strengths_to_choose_from_are_numbers(model):
    with pytest.raises(ValueError, match=r"^(alphas|Cs)\[\d\] must be finite; got (nan|inf)"):
        model.fit(*searched(model))


def test_scorers_need_not_take_weights():
    X, y = searched(learn.LinearSVCCV())
    own = learn.LinearSVCCV(Cs=[0.01, 1.0], cv=3, scoring=lambda model, X, y: model.score(X, y)).fit(X, y)
    np.testing.assert_array_equal(own.scores_, learn.LinearSVCCV(Cs=[0.01, 1.0], cv=3).fit(X, y).scores_)


@pytest.mark.parametrize("factor", [-1.0, np.nan])
def test_classes_have_no_negative_weight(factor):
    X, y = searched(learn.LinearSVCCV())
    with pytest.raises(ValueError, match="class_weight must be at least 0"):
        learn.LinearSVC(class_weight={1: factor}).fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        learn.FusedLasso(),
        learn.GroupLasso(0.1, groups=np.arange(30) // 3),
        learn.GeneralizedLasso(0.1),
        learn.CompositeRegressor(alpha=0.1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_least_squares_of_features_far_from_zero(model, rng):
    near = rng.standard_normal((200, 30))
    y = near[:, :3].sum(axis=1) + rng.standard_normal(200)
    expected, far = clone(model).fit(near, y), clone(model).fit(1e4 + near, y)
    assert far.gap_ <= 1e-9 * far.objective_
    np.testing.assert_allclose(far.coef_, expected.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(far.predict(1e4 + near), expected.predict(near), atol=1e-5)


def test_groups_reach_the_splitter():
    X, y = make_regression(60, 3, noise=1.0, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        model = learn.LassoCV(alphas=3, cv=GroupKFold(3).set_split_request(groups=True))
        model.fit(X, y, groups=np.arange(60) % 6)
    assert model.mse_path_.shape == (3, 3)


def test_trend_filter_follows_kinks_and_interpolates(rng):
    t = np.sort(rng.uniform(0.0, 10.0, 120))
    y = np.abs(t - 4.0) + 0.01 * rng.standard_normal(120)
    model = learn.TrendFilter(alpha=0.02).fit(t[:, None], y)
    assert model.gap_ <= 1e-9 * model.objective_
    slopes = np.diff(model.values_[0]) / np.diff(model.knots_[0])
    assert np.count_nonzero(np.abs(np.diff(slopes)) > 1e-6) < 12
    between = 0.5 * (t[10] + t[11])
    assert model.predict([[between]])[0] == pytest.approx(model.predict([[t[10]], [t[11]]]).mean())


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_trend_filter_leaves_polynomials_alone(order):
    t = np.linspace(-1.0, 1.0, 30) ** 3 + np.linspace(-1.0, 1.0, 30)
    y = sum(t**k for k in range(order + 1))
    model = learn.TrendFilter(alpha=10.0, order=order, tol=1e-4).fit(t[:, None], y)
    new = np.linspace(-1.5, 1.5, 7)
    np.testing.assert_allclose(model.predict(new[:, None]), sum(new**k for k in range(order + 1)), atol=1e-5)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_trend_filter_of_many_rows_takes_positions_in_any_order_and_more_than_once(rng, order):
    t = rng.integers(0, 320, 400).astype(np.float64)
    y = np.sin(t / 40.0) + 0.1 * rng.standard_normal(400)
    model = learn.TrendFilter(alpha=0.1, order=order).fit(t[:, None], y)
    places, codes = np.unique(t, return_inverse=True)
    f = vo.Variable(places.size)
    differences = np.diff(np.eye(places.size), axis=0)
    for k in range(1, order + 1):
        differences = np.diff(k * differences / (places[k:] - places[:-k])[:, None], axis=0)
    objective = vo.sum_squares(y - f[codes]) / 800 + 0.1 * vo.norm1(differences @ f)
    assert model.lower_bound_ <= vo.minimize(objective).fun * (1.0 + 1e-9)
    assert objective(model.predict(places[:, None])) <= model.objective_ * (1.0 + 1e-6)


def test_importing_varopt_loads_no_scikit_learn_but_learn_is_there():
    code = "import sys, varopt; before = 'sklearn' in sys.modules; varopt.learn.Lasso; print(before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_data_are_not_changed(rng):
    X, y, weight = rng.standard_normal((30, 3)), rng.standard_normal(30), rng.uniform(size=30)
    copies = X.copy(), y.copy(), weight.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learn.Lasso(0.1, copy_X=False).fit(X, y, sample_weight=weight)
    for given, copy in zip((X, y, weight), copies, strict=True):
        np.testing.assert_array_equal(given, copy)


def test_a_huber_fit_warns_once_and_of_what_stopped_it():
    X, y = make_regression(300, 10, noise=3.0, random_state=0)
    for limits, advice in (({"max_iter": 1}, "Raise max_iter, now 1."), ({"time_limit": 1e-9}, "Raise time_limit")):
        with pytest.warns(ConvergenceWarning, match=advice) as caught:
            model = learn.HuberRegressor(**limits).fit(X, y)
        assert len(caught) == 1
        assert model.lower_bound_ <= learn.HuberRegressor().fit(X, y).objective_ <= model.objective_


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("shape", [(5, 20), (40, 3)])
def test_an_exact_fit_is_that_of_least_norm(shape, container, rng):
    """Its scale is zero: the limit of Huber's objective, with every residual on its kink."""
    X = rng.standard_normal(shape)
    y = 2.0 + X @ rng.standard_normal(shape[1])
    model = learn.HuberRegressor().fit(container(X), y)
    centred = X - X.mean(axis=0)
    least = np.linalg.pinv(centred) @ (y - y.mean())
    np.testing.assert_allclose(model.coef_, least, rtol=1e-5, atol=1e-6)
    assert model.scale_ <= 1e-10
    assert model.gap_ <= 1e-9 * y.std()


@pytest.mark.parametrize("y", [[5.0, -5.0, -5.0, 5.0], [3.7, 3.7, 3.7, 3.7]])
def test_huber_targets_of_one_size(y):
    """The scale without coefficients is that size, but for rounding: nothing is an outlier, and nothing is less."""
    X = [[0.0], [1.0], [2.0], [3.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = learn.HuberRegressor(fit_intercept=False).fit(X, y)
    reference = SciKitHuber(fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-4)


def test_huber_targets_far_from_zero_keep_their_digits():
    """An intercept of 1e6 has lost the digits of residuals that a weight of 1e6 makes count."""
    X, y = [[0.3, -1.2], [1.1, 0.4]], [1e6 + 0.25, 1e6 - 0.5]
    weight = [1e6, 1e-4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = learn.HuberRegressor(alpha=1000.0, epsilon=10.0).fit(X, y, sample_weight=weight)
    assert model.gap_ <= 1e-9 * model.objective_


@pytest.mark.parametrize("y", [np.ones(20), np.zeros(20)])
def test_constant_targets_are_no_reason_to_warn(y, rng):
    X = rng.standard_normal((20, 3))
    for name in ESTIMATORS:
        model = getattr(learn, name)()
        if not is_classifier(model) and not name.endswith("CV"):
            targets = np.column_stack([y, y]) if name.startswith("MultiTask") else y
            np.testing.assert_allclose(model.fit(X, targets).predict(X), targets, atol=1e-9)


def test_what_is_not_finite_is_refused_as_scikit_learn_refuses_it(rng):
    X, y = rng.standard_normal((20, 3)), np.arange(20) % 2
    for value, name in ((np.nan, "NaN"), (np.inf, "infinity")):
        holes = X.copy()
        holes[3, 1] = value
        for model in (learn.Lasso(), learn.LinearSVC(), learn.SVC(), learn.GroupLasso(), learn.ZeroOneClassifier()):
            with pytest.raises(ValueError, match=f"Input X contains {name}"):
                model.fit(holes, y)


def test_an_interrupt_keeps_the_best_so_far(rng, monkeypatch):
    X, y = rng.standard_normal((4000, 8)), rng.standard_normal(4000)  # too many for vertices at once
    calls = 0

    def interrupt(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return level(*args, **kwargs)

    level = _newton.newton_level
    monkeypatch.setattr(_newton, "newton_level", interrupt)
    with pytest.warns(ConvergenceWarning, match="The fit was interrupted"):
        model = learn.LADRegressor().fit(X, y)
    monkeypatch.undo()
    assert model.lower_bound_ <= learn.LADRegressor().fit(X, y).objective_ <= model.objective_


@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")  # of making a DIA matrix
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_sparse_data_of_every_form_give_the_same_machine(loss, rng):
    X = sp.random_array((200, 40), density=0.1, rng=rng, format="csr", data_sampler=rng.standard_normal)
    y = np.where(X @ rng.standard_normal(40) > 0.0, 1, 0)
    expected = learn.LinearSVC(loss=loss).fit(X.toarray(), y)
    wide = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
    mirrored = sp.csr_array(X[:, ::-1])[:, ::-1]  # indices in falling order
    split = sp.coo_array((np.tile(0.5 * X.data, 2), np.tile(X.tocoo().coords, 2)), shape=X.shape)  # entries given twice
    for data in (X, X.tocsc(), X.tocoo(), X.todia(), X.tolil(), X.tobsr(), X.todok(), wide, mirrored, split):
        model = learn.LinearSVC(loss=loss).fit(data, y)
        np.testing.assert_allclose(model.objective_, expected.objective_, rtol=1e-8)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-4)
        assert model.gap_ <= 1e-9 * model.objective_


@pytest.mark.parametrize("density", [0.4, 1.0])
def test_data_whose_products_overflow_are_fitted_all_the_same(density, rng):
    X = 1e200 * sp.random_array((60, 20), density=density, rng=rng, format="csr", data_sampler=rng.standard_normal)
    y = np.where(rng.random(60) < 0.5, 1, 0)
    model = learn.LinearSVC(loss="hinge").fit(X, y)
    assert model.gap_ <= 1e-9 * model.objective_


@pytest.mark.parametrize("weight", [1.0, 1e12, 1e-12])
@pytest.mark.parametrize("unit", [1e12, 1e-12])
def test_a_huber_fit_is_certified_in_any_unit(unit, weight, rng):
    X = rng.standard_normal((100, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.standard_t(2, 100) + 1.0
    plain = learn.HuberRegressor(alpha=0.0).fit(X, y)
    for alpha in (0.0, 1e-4):
        model = learn.HuberRegressor(alpha=alpha).fit(unit * X, y, sample_weight=np.full(100, weight))
        assert model.gap_ <= 1e-9 * model.objective_
        if alpha == 0.0 or unit > 1.0:  # without a ridge worth the name the unit is of no account
            assert model.objective_ == pytest.approx(weight * plain.objective_, rel=1e-8)
            np.testing.assert_allclose(unit * model.coef_, plain.coef_, rtol=1e-4)


@pytest.mark.parametrize("kind", ["plain", "no intercept", "weights", "duplicate columns", "no ridge", "far from zero"])
def test_a_huber_fit_of_tall_data_is_that_of_one_scale_after_the_other(kind, rng, monkeypatch):
    X = rng.standard_normal((6000, 4)) * [1.0, 10.0, 0.1, 1.0]
    y = X @ [1.0, 0.2, -3.0, 0.0] + rng.standard_t(2, 6000) + (1e6 if kind == "far from zero" else 3.0)
    if kind == "duplicate columns":
        X[:, 3] = X[:, 0]
    weight = rng.choice([0.0, 0.3, 1.0, 50.0], 6000) if kind == "weights" else None
    model = learn.HuberRegressor(fit_intercept=kind != "no intercept", alpha=0.0 if kind == "no ridge" else 1e-4)
    together = clone(model).fit(X, y, sample_weight=weight)
    assert together.sigma_path_.size == 0, "nothing was smoothed"
    monkeypatch.setattr(_solve, "_together", lambda *args: False)
    one_by_one = clone(model).fit(X, y, sample_weight=weight)
    assert together.gap_ <= 1e-9 * together.objective_
    assert together.objective_ == pytest.approx(one_by_one.objective_, rel=1e-9)
    assert together.scale_ == pytest.approx(one_by_one.scale_, rel=1e-5)
    np.testing.assert_allclose(together.coef_, one_by_one.coef_, rtol=1e-4, atol=1e-6)


def test_a_huber_fit_of_few_rows_with_outliers_closes_its_gap():
    X, y = make_regression(50, 20, random_state=0, noise=0.05)
    X[:5] = np.random.default_rng(0).standard_normal((5, 20))
    for unit in (0.5, 1.0, 3.0):
        model = learn.HuberRegressor(fit_intercept=False, alpha=0.0).fit(X, unit * y)
        assert model.gap_ <= 1e-9 * model.objective_


def test_a_huber_fit_that_was_stopped_has_a_bound_all_the_same(rng):
    X = 1e3 * rng.standard_normal((200, 5))
    y = 1e-3 * X @ rng.standard_normal(5) + rng.standard_t(2, 200)
    best = learn.HuberRegressor().fit(X, y)
    with pytest.warns(ConvergenceWarning):
        stopped = learn.HuberRegressor(max_iter=1).fit(X, y)
    assert stopped.lower_bound_ <= best.objective_ <= stopped.objective_ * (1.0 + 1e-9)


@pytest.mark.parametrize("X", [np.array([["1", "2"], ["2", "1"], ["3", "5"]]), [["1", "2"], ["2", "1"], ["3", "5"]]])
def test_written_numbers_are_refused_where_scikit_learn_refuses_them(X):
    with pytest.raises(ValueError, match="dtype='numeric' is not compatible with arrays of bytes/strings"):
        learn.QuantileRegressor().fit(X, [1.0, 2.0, 3.0])
    expected = learn.QuantileRegressor().fit(np.array(X, dtype=float), [1.0, 2.0, 3.0])
    objects = learn.QuantileRegressor().fit(np.array(X, dtype=object), [1.0, 2.0, 3.0])
    integers = learn.QuantileRegressor().fit(np.array(X).astype(int), [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(objects.coef_, expected.coef_)
    np.testing.assert_array_equal(integers.coef_, expected.coef_)


@pytest.mark.parametrize("alpha", [0.0, 1e-4, 100.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_huber_fits_that_were_stopped_hold(alpha, fit_intercept, seed):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((30, 2)) > 0).astype(float)
    y = X @ [1.0, 2.0] + rng.standard_normal(30)
    options = {"alpha": alpha, "fit_intercept": fit_intercept, "epsilon": 1.1}
    best = learn.HuberRegressor(**options).fit(X, y).objective_
    for early in ({"max_iter": 1}, {"time_limit": 1e-6}, {"time_limit": 3e-3}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = learn.HuberRegressor(**options, **early).fit(X, y)
        assert model.lower_bound_ <= best * (1.0 + 1e-9)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_between_fits_ends_the_search(n_jobs, rng):
    X, calls = rng.standard_normal((60, 3)), itertools.count()
    y = np.sign(X[:, 0] + rng.standard_normal(60))

    def scorer(*_):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return 1.0

    with pytest.warns(ConvergenceWarning, match="The fit was interrupted"):
        model = learn.LinearSVCCV(Cs=3, cv=3, scoring=scorer, n_jobs=n_jobs).fit(X, y)
    assert np.isfinite(model.objective_)
