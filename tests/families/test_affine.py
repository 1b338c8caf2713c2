"""Noise of one's own under an affine map: moments, symmetry, pairs, and what has no density."""

import pickle

import numpy as np
import pytest
import scipy.stats as st
from numpy.testing import assert_allclose, assert_array_equal

import varopt as vo
from varopt.families import AffineFamily, LocationScale


class Skewed(LocationScale):
    """A subclass by a user: an exponential noise, centred."""

    noise_variance = 1.0
    noise_entropy = 1.0
    noise_support = (-1.0, np.inf)
    has_score = False

    @staticmethod
    def noise_log_density(z):
        return np.where(z >= -1.0, -(z + 1.0), -np.inf)

    @staticmethod
    def noise_score(z):
        return np.ones_like(z)

    @staticmethod
    def noise_cdf(z):
        return -np.expm1(-np.maximum(z + 1.0, 0.0))

    @staticmethod
    def noise_quantile(u):
        return -np.log1p(-u) - 1.0


@pytest.mark.parametrize("noise", [None, st.gamma(2.0), st.expon(scale=7.0), st.t(5.0), st.uniform(3.0, 4.0)])
def test_samples_have_the_mean_and_covariance_that_are_told(noise):
    A = np.array([[1.0, 0.0], [0.5, 2.0], [0.0, -1.0]])
    p = AffineFamily([1.0, -1.0, 3.0], A, noise)
    x = p.sample(200_000, seed=0)
    assert_allclose(x.mean(axis=0), p.mean, atol=0.03)
    assert_allclose(np.cov(x.T), A @ A.T, atol=0.12)
    assert_array_equal(p.variance, np.diag(p.covariance))
    assert_allclose(p.standardize(p.transform([[0.3, -0.4]])), [[0.3, -0.4]])
    again = pickle.loads(pickle.dumps(p))
    assert_array_equal(again.factor, p.factor)


def test_whether_noise_is_symmetric_is_seen():
    assert all(AffineFamily([0.0], 1.0, noise).noise_symmetric for noise in (None, st.t(5.0), st.uniform(2.0, 1.0)))
    assert not any(AffineFamily([0.0], 1.0, noise).noise_symmetric for noise in (st.gamma(2.0), st.skewnorm(1.0)))


@pytest.mark.parametrize("p", [AffineFamily([0.2], 0.9, st.expon()), Skewed([0.2], 0.9)], ids=["affine", "subclass"])
def test_antithetic_pairs_of_a_skewed_noise_average_right(p):
    w = vo.Variable(1)
    exact = vo.bound(vo.sum(vo.pos(w)), p, method="quadrature").value
    for antithetic in (False, True):
        E = vo.bound(vo.sum(vo.pos(w)), p, method="sampled", samples=200_000, seed=3, antithetic=antithetic)
        assert abs(E.value - exact) < 5.0 * E.standard_error


def test_score_and_density_where_there_are_some():
    p = AffineFamily([0.5, 1.0], [0.7, 2.0], st.skewnorm(2.0))
    x = p.sample(5, seed=0)
    noise = st.skewnorm(2.0)
    z = (x - p.mean) / p.factor * noise.std() + noise.mean()
    assert_allclose(p.log_density(x), (noise.logpdf(z) + np.log(noise.std()) - np.log(p.factor)).sum(axis=1))
    step = 1e-6
    for k in range(2):
        moved = np.eye(2)[k] * step
        slope = (p.replace(mean=p.mean + moved).log_density(x) - p.replace(mean=p.mean - moved).log_density(x)) / 2e-6
        assert_allclose(p.score(x)["mean"][:, k], slope, rtol=1e-5, atol=1e-6)
    assert not AffineFamily([0.0], 1.0, st.expon()).has_score
    with pytest.raises(TypeError, match="support of its noise ends"):
        AffineFamily([0.0], 1.0, st.expon()).score([[1.0]])
    flat = AffineFamily([0.0, 0.0], [[1.0], [1.0]])
    for ask in (flat.entropy, flat.fisher, lambda: flat.log_density([0.0, 0.0])):
        with pytest.raises(ValueError, match="no density"):
            ask()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0], 1.0, "normal"), "noise must be a continuous distribution .* str has no ppf"),
        (([0.0], 1.0, st.cauchy()), "noise must have a mean and a positive variance"),
        (([0.0, 1.0], np.ones((3, 2))), "a matrix of 2 rows to match mean"),
        (([0.0, 1.0], np.ones((2, 0))), "factor"),
        (([0.0], -1.0), "factor must be > 0"),
        (([0.0], [[np.nan]]), "factor must be finite"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        AffineFamily(*arguments)


def test_equal_families_share_their_noise():
    law = st.gamma(2.0)
    p = AffineFamily([0.0], 1.0, law)
    assert p == p.replace(mean=[0.0])
    assert p != p.replace(mean=[1.0])
    assert p != AffineFamily([0.0], 1.0)
    assert p.sharpen(0.5).factor == 0.5
