"""Elastic nets by pivoting, working sets and coordinate descent: brackets hold, whatever the shape of the data."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet as Peer

from varopt import learn

SHAPES = {
    "few features": (60, 8),
    "more rows than features": (300, 120),
    "more features than rows": (25, 400),
    "columns that repeat others": (25, 400),
    "columns that follow others": (200, 110),
    "a constant column": (40, 150),
}


def data(rng, kind):
    n, p = SHAPES[kind]
    X = rng.standard_normal((n, p))
    if kind == "columns that repeat others":
        X[:, p // 2 :] = X[:, : p // 2]
    elif kind == "columns that follow others":
        X = np.cumsum(X, axis=1)
    elif kind == "a constant column":
        X[:, 0] = 3.0
    return X, X[:, :5] @ rng.standard_normal(5) + rng.standard_normal(n) + 10.0


def objective(model, X, y, weight):
    share = weight / weight.sum()
    loss = 0.5 * share @ (y - X @ model.coef_ - model.intercept_) ** 2
    l1, l2 = model.alpha * model.l1_ratio, model.alpha * (1.0 - model.l1_ratio)
    return loss + l1 * np.abs(model.coef_).sum() + 0.5 * l2 * model.coef_ @ model.coef_


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.filterwarnings("ignore:Objective did not converge")  # the peer
@pytest.mark.parametrize("options", [{}, {"l1_ratio": 1.0}, {"positive": True}, {"fit_intercept": False}], ids=str)
def test_bracket(rng, kind, options):
    """The bracket is closed, and holds the best that a peer finds at its tightest."""
    X, y = data(rng, kind)
    weight = rng.integers(0, 3, len(y)).astype(float)
    for alpha in (1.0, 0.03):
        ours = learn.ElasticNet(**({"alpha": alpha, "l1_ratio": 0.7} | options)).fit(X, y, weight)
        peer = Peer(**({"alpha": alpha, "l1_ratio": 0.7} | options), tol=1e-12, max_iter=10_000)
        reached = objective(peer.fit(X, y, weight), X, y, weight)
        np.testing.assert_allclose(objective(ours, X, y, weight), ours.objective_, rtol=1e-10)
        assert ours.gap_ <= 1e-9 * ours.objective_
        assert ours.lower_bound_ <= reached * (1.0 + 1e-12)
        assert ours.objective_ <= reached * (1.0 + 1e-9)


def test_weights_and_order_change_no_bit(rng):
    X, y = data(rng, "more features than rows")
    weight = rng.integers(0, 3, len(y)).astype(float)
    order = rng.permutation(int(weight.sum()))
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))[order]
    ours, other = learn.Lasso(0.05).fit(X, y, weight), learn.Lasso(0.05).fit(X[repeated], y[repeated])
    np.testing.assert_array_equal(ours.coef_, other.coef_)


def test_dense_sparse_and_single_precision_agree(rng):
    for kind in SHAPES:
        X, y = data(rng, kind)
        dense = learn.Lasso(0.1).fit(X, y)
        np.testing.assert_allclose(learn.Lasso(0.1).fit(sp.csr_array(X), y).objective_, dense.objective_, rtol=2e-9)
        single = learn.Lasso(0.1).fit(X.astype(np.float32), y.astype(np.float32))
        assert single.coef_.dtype == np.float32
        np.testing.assert_allclose(single.objective_, dense.objective_, rtol=1e-5)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_warm_start_takes_no_more_rounds(rng, kind):
    """Rounds of working sets, or of descents, along falling strengths."""
    X, y = data(rng, kind)
    warm = learn.Lasso(warm_start=True)
    for alpha in np.geomspace(2.0, 0.02, 8):
        cold = learn.Lasso(alpha).fit(X, y)
        assert warm.set_params(alpha=alpha).fit(X, y).n_iter_ <= cold.n_iter_
        np.testing.assert_allclose(warm.objective_, cold.objective_, rtol=2e-9)


@pytest.mark.parametrize("size", [1e-150, 1e-90, 1e90, 1e150])
def test_units(rng, size):
    X, y = data(rng, "more features than rows")
    model = learn.Lasso(0.1 * size).fit(X, y * size)
    assert model.gap_ <= 1e-9 * model.objective_
    np.testing.assert_allclose(model.coef_ / size, learn.Lasso(0.1).fit(X, y).coef_, atol=1e-6)


def test_targets_without_a_signal(rng):
    X = rng.standard_normal((10, 200))
    model = learn.Lasso(0.1).fit(X, np.full(10, 3.0))
    assert not model.coef_.any()
    assert model.gap_ <= 1e-12


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("unit", [1e-170, 1e-200, 1e150])
def test_units_whose_squares_are_lost(rng, form, unit):
    """A dual value of 1e-170 has a square of zero, and is not zero beside a strength of 1e-172."""
    X, y = data(rng, "more features than rows")
    usual = learn.Lasso(0.01).fit(form(X), y).objective_
    np.testing.assert_allclose(learn.Lasso(0.01 * unit).fit(form(X * unit), y).objective_, usual, rtol=1e-8)


@pytest.mark.parametrize("kind", ["few features", "more features than rows"])
@pytest.mark.filterwarnings("ignore:Objective did not converge")  # what is larger
def test_an_interrupt_returns_a_bracket(rng, kind, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("varopt.learn._least_squares._one._Net.bracketed", interrupted)
    X, y = data(rng, kind)
    model = learn.Lasso(0.03).fit(X, y)
    monkeypatch.undo()
    least = learn.Lasso(0.03).fit(X, y).objective_
    assert model.lower_bound_ <= least * (1.0 + 1e-12) <= model.objective_ * (1.0 + 1e-11)
