"""Memory: a few vectors of one number per row, whatever the shape of the data; and work that is not done twice."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import varopt as vo


class Peak:
    """Largest memory allocated inside a block, beyond what was there before."""

    def __enter__(self):
        tracemalloc.start()
        self.start = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_):
        self.bytes = tracemalloc.get_traced_memory()[1] - self.start
        tracemalloc.stop()


N, P = 100_000, 50


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, P)), np.sign(rng.standard_normal(N)), 0.1 * rng.standard_normal(P + 1)


def svm(X, t):
    w, b = vo.Variable(P), vo.Variable()
    return vo.sum_squares(w) + 10.0 * vo.sum(vo.hinge(t * (X @ w + b)))


@pytest.mark.parametrize("sigma", [0.1, np.full(P + 1, 0.1)], ids=["scalar", "vector"])
def test_value_and_gradient_need_little_memory(sigma, data):
    X, t, mean = data
    f = svm(X, t)
    with Peak() as peak:
        E = vo.bound(f, vo.Gaussian(mean, sigma))
        assert np.isfinite(E.value)
        assert np.isfinite(np.asarray(E.gradient)).all()
        assert np.isfinite(E.gradient["sigma"]).all()
        assert E.gap > 0.0
    assert peak.bytes < 0.3 * X.nbytes


def test_a_cholesky_factor_and_the_hessian_need_little_memory(data):
    X, t, mean = data
    f = svm(X, t)
    E = vo.bound(f, vo.Gaussian(mean, 0.1 * np.eye(P + 1)))
    with Peak() as peak:
        assert np.isfinite(E.gradient["sigma"]).all()
        assert E.hessian().shape == (P + 1, P + 1)
        assert np.isfinite(E.hessian("operator") @ mean).all()
        assert np.isfinite(E.hessian("diagonal")).all()
    assert peak.bytes < 0.6 * X.nbytes


def test_single_precision_and_integers_are_not_copied(data):
    X, t, mean = data
    for smaller in (X.astype(np.float32), (10 * X).astype(np.int8)):
        f = svm(smaller, t)
        with Peak() as peak:
            E = vo.bound(f, vo.Gaussian(mean, 0.1))
            assert np.isfinite(np.asarray(E.gradient)).all()
        assert peak.bytes < 0.5 * X.nbytes


def test_many_samples_of_many_rows_are_taken_in_parts(data):
    """4,096 samples of 100,000 rows would be 3 GB at once."""
    X, t, mean = data
    f = svm(X[:20_000], t[:20_000])
    with Peak() as peak:
        S = vo.bound(f, vo.Gaussian(mean, 0.1), method="sampled", samples=512, seed=0, estimator="reparameterized")
        assert np.isfinite(np.asarray(S.gradient)).all()
    assert peak.bytes < 150e6  # not 512 x 20,000 numbers, several times


def test_a_large_quadratic_operator_is_never_formed():
    """A Laplacian of 20,000 nodes: 3.2 GB as a matrix. Its diagonal is computed once, not for every bound."""
    n = 20_000
    calls = []

    def matmat(x):
        calls.append(x.shape)
        return 2.0 * x - np.roll(x, 1, axis=0) - np.roll(x, -1, axis=0)

    A = LinearOperator((n, n), matvec=matmat, matmat=matmat, rmatvec=matmat, rmatmat=matmat, dtype=float)
    w, b = vo.Variable(4), vo.Variable()
    X = np.random.default_rng(0).standard_normal((n, 4))
    f = vo.quad_form(X @ w + b, A) + vo.norm1(w)
    with Peak() as peak:
        E = vo.bound(f, vo.Gaussian(np.ones(5), 0.1))
        assert np.isfinite(E.value + np.asarray(E.gradient).sum() + E.gradient["sigma"])
        assert E.hessian().shape == (5, 5)
    assert peak.bytes < 20 * X.nbytes
    calls.clear()
    again = vo.bound(f, vo.Gaussian(np.zeros(5), 0.2))
    assert np.isfinite(again.value + again.gradient["sigma"])
    assert len(calls) <= 2  # A z and A' z


def test_the_trace_of_an_operator_is_computed_once():
    calls = []

    def matmat(x):
        calls.append(x.shape)
        return 3.0 * x

    A = LinearOperator((50, 50), matvec=matmat, matmat=matmat, rmatvec=matmat, rmatmat=matmat, dtype=float)
    w, v = vo.Variable(50), vo.Variable(2)
    f = vo.quad_form(w, A) + vo.norm1(v)
    for k in range(3):
        E = vo.bound(f, vo.Gaussian(np.zeros(52), 0.5))
        np.testing.assert_allclose(E.value, 0.25 * 150 + 2 * 0.5 * np.sqrt(2 / np.pi))
        np.testing.assert_allclose(E.max_gap, E.value)
        if k:
            assert len(calls) <= 2
        calls.clear()


def test_what_is_not_asked_for_is_not_computed(monkeypatch):
    from varopt.model.maps import Map, Matrix

    X = np.random.default_rng(0).standard_normal((30, 3))
    w = vo.Variable(3)
    f = vo.norm1(X @ w)
    p = vo.Gaussian(np.ones(3), 0.1 * np.eye(3))
    counts = {"apply": 0, "transpose_apply": 0, "gram": 0}
    for name in counts:
        original = getattr(Matrix, name) if name in vars(Matrix) else getattr(Map, name)

        def counted(self, *args, name=name, original=original):
            counts[name] += 1
            return original(self, *args)

        monkeypatch.setattr(Matrix, name, counted)
    E = vo.bound(f, p)
    assert counts == {"apply": 0, "transpose_apply": 0, "gram": 0}
    _ = E.value, E.value, E.gap
    assert counts["transpose_apply"] == 0
    _ = np.asarray(E.gradient), E.gradient["mean"], E.gradient
    assert (counts["transpose_apply"], counts["gram"]) == (1, 0)
    _ = E.gradient["sigma"], E.gradient["sigma"]
    assert counts["gram"] == 1


def test_row_norms_are_computed_once(monkeypatch):
    from varopt.model.maps import Map

    passes = []
    original = Map._squares_times
    monkeypatch.setattr(Map, "_squares_times", lambda self, v: (passes.append(1), original(self, v))[1])
    X = np.random.default_rng(0).standard_normal((30, 3))
    w = vo.Variable(3)
    f = vo.norm1(X @ w)
    for sigma in (0.1, 0.2, 0.3):
        E = vo.bound(f, vo.Gaussian(np.ones(3), sigma))
        _ = E.value, E.gradient["sigma"], E.max_gap
    assert len(passes) == 1


def test_operators_of_data_work_by_products_alone():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    w = vo.Variable(3)
    p = vo.Gaussian(rng.standard_normal(3), 0.3)
    a, b = (vo.bound(vo.norm1(data @ w - y), p) for data in (X, aslinearoperator(X)))
    np.testing.assert_allclose(a.value, b.value, rtol=1e-13)
    np.testing.assert_allclose(a.gradient["sigma"], b.gradient["sigma"], rtol=1e-12)
    np.testing.assert_allclose(a.hessian(), b.hessian(), rtol=1e-12)
