"""Fits along a path on one Gram matrix are those of the estimators, one by one."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold

from varopt.learn import ElasticNet, ElasticNetCV, Lasso, LassoCV


def data(kind, rng):
    X = rng.standard_normal((90, 12)) + 2.0
    y = X[:, 0] - 2.0 * X[:, 3] + 0.5 * rng.standard_normal(90) + 7.0
    if kind == "duplicate columns":
        X[:, 5] = X[:, 0]
    if kind == "constant column":
        X[:, 4] = 3.0
    if kind == "few rows":
        X, y = X[:15], y[:15]
    return (X.astype(np.float32), y) if kind == "float32" else (X, y)


@pytest.mark.parametrize("kind", ["plain", "duplicate columns", "constant column", "few rows", "float32", "sparse"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("positive", [True, False])
def test_losses_are_those_of_single_fits(kind, intercept, weighted, positive, rng):
    X, y = data(kind, rng)
    given = sp.csr_array(X) if kind == "sparse" else X
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], y.size) if weighted else np.ones(y.size)
    folds = list(KFold(3).split(X))
    settings = {"fit_intercept": intercept, "positive": positive}
    model = ElasticNetCV(l1_ratio=[0.4, 1.0], alphas=4, cv=folds, **settings).fit(given, y, sample_weight=weight)
    for k, ratio in enumerate([0.4, 1.0]):
        for j, alpha in enumerate(model.alphas_[k]):
            for i, (train, test) in enumerate(folds):
                one = ElasticNet(alpha=alpha, l1_ratio=ratio, **settings)
                one.fit(given[train], y[train], sample_weight=weight[train])
                loss = np.average((y[test] - one.predict(given[test])) ** 2, weights=weight[test])
                np.testing.assert_allclose(model.mse_path_[k, j, i], loss, rtol=1e-4 if kind == "float32" else 1e-6)


def test_an_alpha_of_zero_still_warns(rng):
    X, y = data("plain", rng)
    with pytest.warns(UserWarning, match="alpha=0"):
        model = ElasticNetCV(l1_ratio=0.5, alphas=[1.0, 0.1, 0.0], cv=3).fit(X, y)
    assert np.all(np.isfinite(model.mse_path_))


def test_features_in_many_units_are_fitted_exactly_without_a_penalty(rng):
    """Losses are not negative, so that no direction is one of endless descent, however flat rounding makes it look."""
    X = rng.standard_normal((12, 40)) * 10.0 ** rng.integers(-8, 8, size=40)
    y = rng.standard_normal(12)
    with pytest.warns(UserWarning, match="alpha=0"):
        model = LassoCV(alphas=[1.0, 0.0], cv=3).fit(X, y)
    with pytest.warns(UserWarning, match="alpha=0"):
        plain = Lasso(alpha=0.0).fit(X, y)
    assert np.all(np.isfinite(model.mse_path_))
    assert -1e-300 <= plain.lower_bound_ <= plain.objective_ <= 1e-12  # zero, rounded down
