"""Every estimator's objective: as its docstring states it, never above that of scikit-learn, and inside its bracket."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.linear_model
import sklearn.svm
from sklearn.exceptions import ConvergenceWarning

import varopt as vo
from varopt import learn


def regression(n=80, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.geomspace(0.1, 10.0, p)
    y = 3.0 + X @ rng.standard_normal(p) + rng.standard_t(2, n)
    return X, y, rng.uniform(0.1, 2.0, n)


def classification(n=80, p=6, seed=0):
    X, y, weight = regression(n, p, seed)
    return X, np.where(y > np.median(y), 1, -1), weight


def pinball(z, q):
    return np.where(z > 0, q * z, (q - 1) * z)


def mean(values, weight):
    return float(np.average(values, weights=weight))


def huber(model, X, y, w):
    z = np.abs(y - X @ model.coef_ - model.intercept_) / model.scale_
    losses = np.where(z < model.epsilon, z**2, 2 * model.epsilon * z - model.epsilon**2)
    return w @ (model.scale_ * (1.0 + losses)) + model.alpha * model.coef_ @ model.coef_


def svr(model, X, y, w):
    z = np.maximum(np.abs(y - X @ model.coef_ - model.intercept_) - model.epsilon, 0.0)
    loss = z if model.loss == "epsilon_insensitive" else z**2
    return 0.5 * (model.coef_ @ model.coef_ + np.sum(np.square(model.intercept_))) + model.C * w @ loss


def svc(model, X, y, w):
    z = np.maximum(1.0 - y * model.decision_function(X), 0.0)
    loss = z if model.loss == "hinge" else z**2
    coef = np.append(model.coef_, model.intercept_)
    size = np.abs(coef).sum() if model.penalty == "l1" else 0.5 * coef @ coef
    return size + model.C * w @ loss


def net(model, X, y, w):
    z, ratio = y - model.predict(X), getattr(model, "l1_ratio", 1.0)
    size = ratio * np.abs(model.coef_).sum() + 0.5 * (1 - ratio) * model.coef_ @ model.coef_
    return 0.5 * mean(z**2, w) + model.alpha * size


def quantile(model, X, y, w):
    return mean(pinball(y - model.predict(X), model.quantile), w) + model.alpha * np.abs(model.coef_).sum()


RIVALS = [
    (learn.Lasso(0.1), sklearn.linear_model.Lasso(0.1, tol=1e-12), net),
    (learn.ElasticNet(0.1, l1_ratio=0.3), sklearn.linear_model.ElasticNet(0.1, l1_ratio=0.3, tol=1e-12), net),
    (learn.Lasso(0.05, positive=True), sklearn.linear_model.Lasso(0.05, positive=True, tol=1e-12), net),
    (
        learn.QuantileRegressor(quantile=0.3, alpha=0.05),
        sklearn.linear_model.QuantileRegressor(quantile=0.3, alpha=0.05),
        quantile,
    ),
    (
        learn.HuberRegressor(alpha=0.1),
        sklearn.linear_model.HuberRegressor(alpha=0.1, tol=1e-12, max_iter=100_000),
        huber,
    ),
    (
        learn.LinearSVR(C=0.5, epsilon=0.2, penalize_intercept=True),
        sklearn.svm.LinearSVR(C=0.5, epsilon=0.2, tol=1e-9, max_iter=1_000_000),
        svr,
    ),
    (
        learn.LinearSVR(C=0.5, epsilon=0.2, loss="squared_epsilon_insensitive", penalize_intercept=True),
        sklearn.svm.LinearSVR(C=0.5, epsilon=0.2, loss="squared_epsilon_insensitive", tol=1e-9, max_iter=1_000_000),
        svr,
    ),
    (
        learn.LinearSVC(loss="hinge", C=0.5, penalize_intercept=True),
        sklearn.svm.LinearSVC(loss="hinge", C=0.5, tol=1e-9, max_iter=1_000_000),
        svc,
    ),
    (
        learn.LinearSVC(C=0.5, penalty="l1", penalize_intercept=True),
        sklearn.svm.LinearSVC(C=0.5, penalty="l1", dual=False, tol=1e-9, max_iter=1_000_000),
        svc,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "objective"), RIVALS, ids=lambda value: getattr(value, "__name__", f"{value!r:.40}")
)
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_scikit_learn_and_is_never_above(ours, theirs, objective, weighted):
    X, y, weight = classification() if objective is svc else regression()
    weight = weight if weighted else np.ones(len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(X, y, sample_weight=weight)
    ours.fit(X, y, sample_weight=weight)
    stated, reached = objective(ours, X, y, weight), objective(theirs, X, y, weight)
    assert ours.objective_ == pytest.approx(stated, rel=1e-9)
    assert stated <= reached * (1 + 1e-12)
    assert ours.lower_bound_ <= reached * (1 + 1e-12)
    assert ours.gap_ <= 1e-9 * ours.objective_
    assert stated == pytest.approx(reached, rel=2e-3)  # as far as theirs goes
    if reached <= stated * (1 + 1e-9):
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-3, atol=1e-3)


COMPOSED = [
    learn.LADRegressor(alpha=0.1),
    learn.FusedLasso(alpha=0.01, fusion=0.2),
    learn.GeneralizedLasso(alpha=0.3, D=sp.csr_array(np.diff(np.eye(6), n=2, axis=0)), loss="quantile", quantile=0.8),
    learn.CompositeRegressor(loss="huber", penalty="elasticnet", alpha=0.1, epsilon=0.5),
    learn.CompositeRegressor(loss="squared_epsilon_insensitive", penalty="trend", alpha=0.1),
    learn.CompositeRegressor(loss="epsilon_insensitive", penalty=None),
    learn.QuantileRegressor(alpha=0.1, penalty="elasticnet", quantile=0.2),
    learn.TrendFilter(alpha=0.02),
    learn.CompositeClassifier(loss="modified_huber", penalty="fused", alpha=0.1),
    learn.LinearSVC(penalty="elasticnet", loss="hinge"),
]  # fmt: skip


@pytest.mark.parametrize("model", COMPOSED, ids=lambda value: f"{value!r:.60}")
def test_no_point_near_the_optimum_is_better(model, rng):
    is_classifier = sklearn.base.is_classifier(model)
    X, y, weight = classification(60) if is_classifier else regression(60)
    X = X[:, :1] if isinstance(model, learn.TrendFilter) else X
    fitted = sklearn.base.clone(model).fit(X, y, sample_weight=weight)
    assert fitted.lower_bound_ <= fitted.objective_
    assert fitted.gap_ <= 1e-9 * fitted.objective_
    # A looser fit of the same problem is another point: its objective is no lower than the bound.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rough = sklearn.base.clone(model).set_params(max_iter=1).fit(X, y, sample_weight=weight)
    assert rough.objective_ >= fitted.lower_bound_


def test_fused_lasso_against_the_explicit_programme(explicit):
    X, y, weight = regression(40)
    model = learn.FusedLasso(alpha=0.05, fusion=0.2).fit(X, y, sample_weight=weight)
    optimum = explicit(X, y, weight / weight.sum(), alpha=0.05, fusion=0.2)
    assert model.objective_ == pytest.approx(optimum, rel=1e-7)
    assert model.lower_bound_ <= optimum + 1e-8


@pytest.fixture
def explicit():
    """The fused lasso with an intercept as a quadratic programme, by Clarabel."""
    clarabel = pytest.importorskip("clarabel")

    def solve(X, y, weight, alpha, fusion):
        n, p = X.shape
        D = np.vstack([alpha * np.eye(p), fusion * np.diff(np.eye(p), axis=0)])
        m = len(D)
        A = np.hstack([X, np.ones((n, 1))])
        P = np.zeros((p + 1 + m, p + 1 + m))
        P[: p + 1, : p + 1] = A.T @ (weight[:, None] * A)
        q = np.concatenate([-A.T @ (weight * y), np.ones(m)])
        zeros = np.zeros((m, 1))
        G = np.vstack([np.hstack([D, zeros, -np.eye(m)]), np.hstack([-D, zeros, -np.eye(m)])])
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
        cones = [clarabel.NonnegativeConeT(2 * m)]
        solver = clarabel.DefaultSolver(
            sp.csc_matrix(np.triu(P)), q, sp.csc_matrix(G), np.zeros(2 * m), cones, settings
        )
        return solver.solve().obj_val + 0.5 * weight @ y**2

    return solve


def test_callables_are_losses_and_penalties():
    X, y, _ = regression()
    named = learn.CompositeRegressor(loss="absolute_error", penalty="l1", alpha=0.1).fit(X, y)
    called = learn.CompositeRegressor(loss=vo.abs, penalty=vo.norm1, alpha=0.1).fit(X, y)
    np.testing.assert_allclose(named.coef_, called.coef_)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_gap_is_relative_in_any_unit(scale):
    X, y, _ = regression()
    model = learn.LADRegressor().fit(X, scale * y)
    assert model.gap_ <= 1e-9 * model.objective_
    np.testing.assert_allclose(model.coef_, scale * learn.LADRegressor().fit(X, y).coef_, rtol=1e-6)


def test_data_far_from_the_origin():
    X, y, _ = regression()
    near, far = learn.LADRegressor().fit(X, y), learn.LADRegressor().fit(X, y + 1e6)
    assert far.intercept_ - near.intercept_ == pytest.approx(1e6, rel=1e-9)
    assert far.gap_ <= 1e-9 * far.objective_
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-5)


def test_a_wide_problem_with_centred_targets_is_certified():
    """The pull on the intercept is a sum that cancels: its rounding must not pass for a force."""
    rng = np.random.RandomState(42)
    X, y = rng.rand(15, 30), rng.randint(0, 3, 15).astype(float)
    for alpha, fusion in ((0.1, 0.1), (0.03, 0.02), (1e-4, 0.2)):
        model = learn.FusedLasso(alpha=alpha, fusion=fusion).fit(X, y - y.mean())
        assert model.gap_ <= 1e-9 * model.objective_
        assert model.n_iter_ < 50


@pytest.mark.parametrize("shape", [(27, 30), (60, 5), (40, 40)])
@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_features_far_from_zero_are_fitted_as_if_they_were_not(shape, offset):
    """Features that vary little around large means: the products of nearly equal numbers hide what matters."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal(shape) * 10.0 ** rng.uniform(-1, 1, shape[1])
        y = X[:, 0] + rng.standard_normal(shape[0])
        near, far = learn.Lasso(alpha=0.01).fit(X, y), learn.Lasso(alpha=0.01).fit(X + offset, y)
        assert far.gap_ <= 1e-9 * max(far.objective_, 1e-3)
        np.testing.assert_allclose(far.objective_, near.objective_, rtol=1e-6, atol=1e-9)
        again = learn.Lasso(alpha=0.01, warm_start=True).fit(X + offset, y).fit(X + offset, y)
        np.testing.assert_allclose(again.predict(X + offset), far.predict(X + offset), atol=1e-5)


def test_a_scale_that_vanishes_is_looked_for_as_soon_as_residuals_say_so(monkeypatch):
    """Rows that can be fitted exactly: one fit at a scale tells, and the fit without one is the optimum."""
    rng = np.random.default_rng(0)
    X, y, fits = rng.standard_normal((8, 12)), rng.standard_normal(8), []
    whole = learn.HuberRegressor._fit_problem
    monkeypatch.setattr(
        learn.HuberRegressor, "_fit_problem", lambda *args, **kw: fits.append(kw["scale"]) or whole(*args, **kw)
    )
    model = learn.HuberRegressor(alpha=1e-4).fit(X, y)
    assert fits[1:] == [0.0]
    assert model.gap_ <= 1e-9 * model.objective_
    assert model.scale_ <= 1e-12
