"""Signs, bounds, orders and linear constraints of the coefficients, against programmes written out by hand."""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog, minimize
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer

import varopt as vo
from varopt import learn

pandas = pytest.importorskip("pandas")

REGRESSORS = [
    learn.QuantileRegressor(quantile=0.3, alpha=0.01),
    learn.LADRegressor(0.01),
    learn.LinearSVR(C=0.1, epsilon=0.1),
    learn.LinearSVR(C=0.1, loss="squared_epsilon_insensitive", penalize_intercept=True),
    learn.HuberRegressor(alpha=0.1),
    learn.Lasso(0.01),
    learn.ElasticNet(0.01),
    learn.FusedLasso(0.01, 0.01),
    learn.GroupLasso(0.01, groups=[0, 0, 1, 1, 2, 2]),
    learn.GeneralizedLasso(0.01, loss="absolute_error"),
    learn.CompositeRegressor("huber", "l1", alpha=0.01),
]
CLASSIFIERS = [
    learn.LinearSVC(),
    learn.LinearSVC(loss="hinge", penalty="l1"),
    learn.CompositeClassifier(alpha=0.01),
]


@pytest.fixture
def data(rng):
    X = rng.standard_normal((120, 6)) + 0.5
    y = X @ np.array([2.0, -1.0, 0.5, 1.5, -0.3, 0.0]) + 3.0 + rng.standard_normal(120)
    return X, y


def name(model):
    return f"{model!r:.50}"


@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=name)
def test_all_constraints_hold_and_the_gap_closes(model, data):
    X, y = data
    given = {
        "bounds": (np.full(6, -1.0), [1.0, None, 0.25, np.inf, 1.0, 1.0]),
        "monotone": {(3, 2, 1): 1, 4: "increasing"},
        "constraints": lambda w: [vo.sum(w) <= 1.5, w[0] - w[3] == 0.125],
    }
    model, is_classifier = clone(model).set_params(**given), model in CLASSIFIERS
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(X, y > 2.0 if is_classifier else y)
    w = np.ravel(model.coef_)
    assert np.all(w >= -1.0)
    assert np.all(w <= [1.0, np.inf, 0.25, np.inf, 1.0, 1.0])
    assert w[3] <= w[2] + 1e-12
    assert w[2] <= w[1] + 1e-12
    assert w[4] >= 0.0
    assert w.sum() <= 1.5 + 1e-12
    assert w[0] - w[3] == pytest.approx(0.125, abs=1e-12)
    assert not caught
    assert model.gap_ <= 1e-9 * model.objective_
    free = clone(model).set_params(bounds=None, monotone=None, constraints=None)
    free.fit(X, y > 2.0 if is_classifier else y)
    assert model.objective_ > free.objective_


@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=name)
def test_positive(model, data):
    X, y = data
    model = clone(model).set_params(positive=True)
    model.fit(X, y > 2.0 if model.__class__ in map(type, CLASSIFIERS) else y)
    assert np.all(model.coef_ >= 0.0)
    assert np.any(model.coef_ == 0.0)
    assert np.any(model.coef_ > 0.0)


def test_a_quantile_is_that_of_the_linear_programme(data):
    X, y = data
    q, alpha, (n, p) = 0.7, 0.02, X.shape
    model = learn.QuantileRegressor(quantile=q, alpha=alpha, bounds=(-0.5, 1.0), monotone={(0, 3): -1}).fit(X, y)
    # w = a - c with a, c >= 0; then the intercept, then residuals up and down
    cost = np.r_[np.full(2 * p, alpha), 0.0, np.full(n, q / n), np.full(n, (1.0 - q) / n)]
    rows = np.hstack([X, -X, np.ones((n, 1)), np.eye(n), -np.eye(n)])
    order = np.zeros(p)
    order[[3, 0]] = 1.0, -1.0
    pairs = [np.r_[s * row, -s * row, np.zeros(2 * n + 1)] for row in np.eye(p) for s in (1.0, -1.0)]
    above = np.vstack([*pairs, np.r_[order, -order, np.zeros(2 * n + 1)]])
    free = [(0, None)] * (2 * p) + [(None, None)] + [(0, None)] * (2 * n)
    optimum = linprog(cost, above, np.r_[np.tile([1.0, 0.5], p), 0.0], rows, y, free).fun
    assert model.lower_bound_ <= optimum * (1.0 + 1e-9)
    assert model.objective_ == pytest.approx(optimum, rel=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_huber_finds_coefficients_and_scale(alpha, data):
    X, y = data
    y[:6] += 30.0
    model = learn.HuberRegressor(alpha=alpha, constraints=lambda w, b: [vo.sum(w) == 1.0, b >= 3.2, w[4] >= 0.0])
    model.fit(X, y)
    assert model.coef_.sum() == pytest.approx(1.0, abs=1e-12)
    assert model.intercept_ >= 3.2 - 1e-12

    def objective(v):  # the last is the logarithm of the scale, so that no method leaves its domain
        scale = np.exp(v[7])
        z = np.abs(y - X @ v[:6] - v[6]) / scale
        return np.sum(scale * (1.0 + np.where(z < 1.35, z**2, 2.7 * z - 1.35**2))) + alpha * v[:6] @ v[:6]

    limits = [
        {"type": "eq", "fun": lambda v: v[:6].sum() - 1.0},
        {"type": "ineq", "fun": lambda v: v[6] - 3.2},
        {"type": "ineq", "fun": lambda v: v[4]},
    ]
    start, options = np.r_[np.full(6, 1 / 6), 4.0, 0.0], {"ftol": 1e-13, "maxiter": 1000}
    other = minimize(objective, start, constraints=limits, method="SLSQP", options=options)
    mine = np.r_[model.coef_, model.intercept_, np.log(model.scale_)]
    assert objective(mine) == pytest.approx(model.objective_, rel=1e-12)
    assert model.objective_ == pytest.approx(other.fun, rel=1e-8)
    assert model.gap_ <= 1e-9 * model.objective_


def test_names_of_bases(rng):
    table = pandas.DataFrame({
        "age": rng.choice(["18-30", "30-50", "50-65", "65+"], 400), "income": rng.uniform(0.0, 5.0, 400),
        "age_of_house": rng.uniform(0.0, 50.0, 400),
    })  # fmt: skip
    effect = table["age"].map({"18-30": 1.0, "30-50": 0.0, "50-65": 2.0, "65+": 1.5})
    y = effect + np.sin(2.0 * table["income"]) + 0.3 * rng.standard_normal(400)
    prepare = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["age"]), (SplineTransformer(n_knots=6), ["income"]),
        remainder="passthrough", verbose_feature_names_out=True,
    ).set_output(transform="pandas")  # fmt: skip
    monotone = {"age": "increasing", "income": "decreasing", "age_of_house": 1}
    model = make_pipeline(prepare, learn.LADRegressor(monotone=monotone)).fit(table, y)
    by_age = model.predict(table.iloc[[0] * 4].assign(age=["18-30", "30-50", "50-65", "65+"]))
    assert np.all(np.diff(by_age) >= -1e-12)
    assert by_age[-1] > by_age[0]
    along = model.predict(table.iloc[[0] * 101].assign(income=np.linspace(0.0, 5.0, 101)))
    assert np.all(np.diff(along) <= 1e-12)
    assert along[0] > along[-1]
    assert model[-1].coef_[-1] >= 0.0
    chosen = learn.LassoCV(monotone=monotone, alphas=3, cv=3).fit(prepare.transform(table), y)
    assert np.all(np.diff(chosen.coef_[:4]) >= 0.0)
    assert np.all(np.diff(chosen.coef_[4:-1]) <= 1e-12)


def test_a_dropped_category_is_zero(rng):
    codes = rng.integers(0, 3, 200)
    X = np.eye(3)[codes][:, 1:]  # the first is dropped
    y = np.array([1.0, 0.0, 2.0])[codes] + 0.1 * rng.standard_normal(200)
    assert learn.Lasso(1e-3, monotone={(0, 1): 1}).fit(X, y).coef_[0] < 0.0
    assert np.all(learn.Lasso(1e-3, monotone={(None, 0, 1): 1}).fit(X, y).coef_ >= 0.0)


@pytest.mark.parametrize("kind", [np.float32, np.int64, sp.csr_array, lambda X: X + 1e5])
def test_any_data(kind, data):
    X, y = data
    X = kind(np.round(8.0 * X) / 8.0)
    model = learn.QuantileRegressor(alpha=0.0, positive=True, constraints=lambda w, b: vo.sum(w) <= 2.0).fit(X, y)
    assert np.all(model.coef_ >= 0.0)
    assert model.coef_.sum() <= 2.0 + 1e-6
    assert model.gap_ <= 1e-9 * model.objective_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the loss is not convex
def test_what_is_not_convex_keeps_to_its_constraints(data):
    X, y = data
    assert np.all(learn.RampClassifier(C=0.1, positive=True).fit(X[:20, :2], y[:20] > 2.0).coef_ >= 0.0)


def test_every_target_and_class(data):
    X, y = data
    lines = learn.Lasso(0.01, bounds=(0.0, 0.5)).fit(X, np.c_[y, -y]).coef_
    assert lines.shape == (2, 6)
    assert np.all((lines >= 0.0) & (lines <= 0.5))
    assert np.all(learn.LinearSVC(positive=True).fit(X, np.digitize(y, [2.0, 5.0])).coef_ >= 0.0)
    several = learn.QuantileRegressor(quantile=[0.2, 0.5, 0.8], alpha=0.0, positive=True, non_crossing=True).fit(X, y)
    assert np.all(several.coef_ >= 0.0)
    assert np.all(np.diff(several.predict(X), axis=1) >= 0.0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bounds": (1, 0)}, "bounds must not cross"),
        ({"bounds": (0, 1, 2)}, "bounds must be a pair"),
        ({"bounds": (np.zeros(3), 1)}, "a number, or one for each of 6 features"),
        ({"bounds": ("a", 1)}, "must hold numbers or None"),
        ({"bounds": (np.nan, 1)}, "each side of bounds"),
        ({"bounds": (np.inf, np.inf)}, "leaves no coefficient"),
        ({"bounds": {"z": (0, 1)}}, "X has no names of features"),
        ({"bounds": {9: (0, 1)}}, "names feature 9, and there are 6"),
        ({"monotone": {0: 2}}, "must be 1, -1, 'increasing' or 'decreasing'"),
        ({"monotone": {(1,): 1}}, "two or more columns"),
        ({"monotone": {(1, 1): 1}}, "each once"),
        ({"constraints": lambda w: w}, "must return a constraint on the coefficients"),
        ({"constraints": lambda w: True}, "must return a constraint on the coefficients"),
        ({"constraints": lambda w, b: b >= 0, "fit_intercept": False}, "asks for an intercept"),
        ({"constraints": lambda w: vo.sum(w) <= -1, "positive": True}, "no coefficients of Lasso satisfy all"),
    ],
)
def test_what_is_wrong_is_said(given, says, data):
    with pytest.raises(ValueError, match=says):
        learn.Lasso(0.1, **given).fit(*data)


def test_names_that_are_wrong(data):
    X, y = data
    table = pandas.DataFrame(X, columns=["a_1", "b", "a_2", "c", "d_x", "d_y"])
    with pytest.raises(ValueError, match="not side by side"):
        learn.Lasso(0.1, monotone={"a": 1}).fit(table, y)
    with pytest.raises(ValueError, match="the features are 'a_1', 'b'"):
        learn.Lasso(0.1, monotone={"e": 1}).fit(table, y)
    with pytest.raises(ValueError, match="ZeroOneClassifier takes no positive=True"):
        learn.ZeroOneClassifier(positive=True).fit(X, y > 2.0)


def test_signs_may_rule_out_every_good_line():
    """On the data of scikit-learn's own check no line of positive coefficients is right in more than 71 of 100."""
    X, y = make_blobs(n_samples=300, random_state=0)
    X, y = X[y != 2], y[y != 2]
    best = 0.0
    for angle in np.linspace(0.0, np.pi / 2.0, 1001):
        order = np.argsort(X @ [np.cos(angle), np.sin(angle)])
        rights = np.concatenate([[0], np.cumsum(np.where(y[order] == 1, -1, 1))]) + np.count_nonzero(y == 1)
        best = max(best, rights.max() / y.size)
    assert best <= 0.72
    assert learn.LinearSVC(positive=True).fit(X, y).score(X, y) <= best
    assert learn.LinearSVC(positive=True).__sklearn_tags__().classifier_tags.poor_score
    assert not learn.LinearSVC().__sklearn_tags__().classifier_tags.poor_score


def test_a_feature_that_bounds_name_twice_is_refused(rng):
    X = pandas.DataFrame(rng.standard_normal((40, 3)), columns=["a", "b", "c"])
    for bounds in ({"a": (0, 1), 0: (0, 2)}, {2: (0, 1), -1: (0, 2)}):
        with pytest.raises(ValueError, match="more than once; give it one pair"):
            learn.LADRegressor(bounds=bounds).fit(X, X["a"])


def test_constraints_that_do_not_see_the_coefficients_are_refused(rng):
    X = rng.standard_normal((40, 3))
    y, size = X @ [1.0, -2.0, 3.0], vo.Variable(3)
    with pytest.raises(ValueError, match="on the coefficients it is given; got others alone"):
        learn.LADRegressor(constraints=lambda w: size >= 0).fit(X, y)
    model = learn.LADRegressor(constraints=lambda w: [size >= w, size >= -w, vo.sum(size) <= 2]).fit(X, y)
    assert np.abs(model.coef_).sum() <= 2.0 * (1.0 + 1e-9)
    every = learn.LADRegressor(constraints=lambda w: (w[i] >= 0 for i in range(3))).fit(X, y)
    np.testing.assert_allclose(every.coef_, learn.LADRegressor(positive=True).fit(X, y).coef_, atol=1e-9)


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize(
    "columns", [(0, 1, 2, 3), (None, 0, 1, 2, 3), (0, 1, None, 2, 3), (0, 1, 2, 3, None), (2, 0, 3)]
)
def test_orders_hold_to_the_last_digit(columns, direction):
    """Differences of coefficients that are solved for leave some 1e-17, of which a user would see a fall."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((60, 4)) * 10.0 ** rng.integers(-1, 2, 4)
        y = X @ (rng.standard_normal(4) / np.abs(X).max(axis=0)) + 0.3 * rng.standard_normal(60)
        for model in (
            learn.Lasso(1e-3, monotone={columns: direction}),
            learn.LADRegressor(monotone={columns: direction}),
        ):
            coef = model.fit(X, y).coef_
            known = np.array([0.0 if k is None else coef[k] for k in columns])
            assert np.all(direction * np.diff(known) >= 0.0)


@pytest.mark.parametrize("targets", [0.0, 3.0, 1e-20, 1e-300])
def test_huber_of_targets_that_vanish_beside_what_constraints_ask_for(targets):
    """Of targets of zero there is no scale, but constraints may leave residuals of any size.

    It was a math domain error; and from a scale of 1e-300 it went up by e^5 at a time, three minutes of fits.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.full(40, targets) if targets in (0.0, 3.0) else targets * rng.standard_normal(40)
    rest = learn.HuberRegressor(positive=True).fit(X, np.full(40, 3.0))
    np.testing.assert_array_equal(rest.coef_, 0.0)
    start = time.perf_counter()
    model = learn.HuberRegressor(constraints=lambda w: vo.sum(w) == 1.0, alpha=0.0).fit(X, y)
    assert time.perf_counter() - start < 20.0
    assert model.gap_ <= 1e-8 * model.objective_
    two = learn.HuberRegressor(alpha=0.0).fit(X[:, :2] - X[:, 2:], y - X[:, 2])  # the same, without the constraint
    assert model.objective_ == pytest.approx(two.objective_, rel=1e-8)


def test_huber_refuses_in_a_sentence_what_overflows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)) * 1e200, rng.standard_normal(40) * 1e200
    for options in ({}, {"positive": True}):
        with pytest.raises(ValueError, match="large values"):
            learn.HuberRegressor(**options).fit(X, y)
