"""Several variables: a product of families in any order, and products of families of different kinds."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

import varopt as vo
from tests.bounds.zoo import ZOO, bits, derivative
from varopt.families import Categorical


@pytest.mark.parametrize("name", ["svm", "repeated", "quadratics", "sparse_data", "groups"])
@pytest.mark.parametrize("method", ["closed_form", "sampled"])
def test_a_product_of_gaussians_is_one_gaussian(name, method, rng):
    f = ZOO[name](rng)
    mean = rng.standard_normal(f.size)
    options = {"method": method} if method == "closed_form" else {"method": method, "seed": 0, "samples": 2000}
    one = vo.bound(f, vo.Gaussian(mean, 0.4), **options)
    for order in itertools.permutations(f.variables):
        p = vo.Product({v: vo.Gaussian(mean[f.slices[v]], 0.4) for v in order})
        E = vo.bound(f, p, **options)
        if method == "sampled":
            assert abs(E.value - one.value) < 5.0 * np.hypot(E.standard_error, one.standard_error)
            slack = 5.0 * np.hypot(np.asarray(E.gradient_standard_error), np.asarray(one.gradient_standard_error))
            assert np.all(np.abs(np.asarray(E.gradient) - np.asarray(one.gradient)) < slack)
            continue
        assert_allclose([E.value, E.gap, E.max_gap], [one.value, one.gap, one.max_gap], rtol=1e-13)
        assert_allclose(E.hessian(), one.hessian(), rtol=1e-12, atol=1e-13)
        # Flat, in the order of the objective; as a mapping, by variable.
        assert_allclose(np.asarray(E.gradient), np.asarray(one.gradient), rtol=1e-12, atol=1e-14)
        assert set(E.gradient) == set(f.variables)
        for v in f.variables:
            assert_allclose(E.gradient[v]["mean"], one.gradient["mean"][f.slices[v]], rtol=1e-12, atol=1e-14)
            assert_allclose(np.asarray(E.gradient[v]), E.gradient[v]["mean"])
        assert_allclose(sum(E.gradient[v]["sigma"] for v in f.variables), one.gradient["sigma"], rtol=1e-12)
        assert bool(E.convex) == bool(one.convex)


def test_members_may_have_dispersions_of_different_shapes(rng):
    f = ZOO["quadratics"](rng)
    w, v = f.variables
    C = np.array([[0.3, 0.0, 0.0], [0.1, 0.4, 0.0], [-0.2, 0.1, 0.2]])
    p = vo.Product({v: vo.Gaussian([0.2, -0.5], [0.3, 0.6]), w: vo.Gaussian(rng.standard_normal(3), C)})
    E = vo.bound(f, p)
    whole = np.zeros((5, 5))
    whole[:3, :3], whole[3:, 3:] = C, np.diag([0.3, 0.6])
    one = vo.bound(f, vo.Gaussian(np.r_[p.families[w].mean, p.families[v].mean], whole))
    assert_allclose(E.value, one.value, rtol=1e-14)
    assert_allclose(E.hessian(), one.hessian(), rtol=1e-12, atol=1e-13)
    assert_allclose(E.gradient[w]["sigma"], one.gradient["sigma"][:3, :3], rtol=1e-12, atol=1e-14)
    assert_allclose(E.gradient[v]["sigma"], np.diagonal(one.gradient["sigma"])[3:], rtol=1e-12)
    for method, options in (("quadrature", {}), ("sampled", {"seed": 0, "samples": 20_000})):
        other = vo.bound(f, p, method=method, **options)
        assert abs(other.value - E.value) <= 4.0 * other.standard_error + 1e-12 * abs(E.value)


def mixed(rng):
    """Bits and reals in blocks of their own, and in one square together."""
    w, x = vo.Variable(2, name="w"), vo.Binary(3, name="x")
    X, B, A = rng.standard_normal((4, 2)), rng.standard_normal((4, 3)), rng.standard_normal((3, 3))
    separable = vo.sum(vo.hinge(X @ w)) + vo.quad_form(x, A) + 0.5 * vo.norm1(w) + 2.0 * x[0] * x[1] * x[2]
    return w, x, separable, separable + vo.sum_squares(X @ w + B @ x - 1.0)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("shape", ["scalar", "cholesky"])
def test_gaussian_times_bernoulli(joint, shape, rng):
    w, x, separable, together = mixed(rng)
    f = together if joint else separable
    sigma = 0.4 if shape == "scalar" else np.array([[0.4, 0.0], [0.2, 0.3]])
    mean, theta = rng.standard_normal(2), np.array([0.3, 0.8, 0.5])

    def product(mean=mean, sigma=sigma, theta=theta):
        return vo.Product({x: vo.Bernoulli(theta), w: vo.Gaussian(mean, sigma)})

    E = vo.bound(f, product())
    # Enumeration of the bits around the closed form in the reals.
    states = bits(3)
    weights = np.prod(np.where(states == 1.0, theta, 1.0 - theta), axis=1)

    def given(state):
        return vo.bound(f, vo.Product({w: vo.Gaussian(mean, sigma), x: vo.Bernoulli(state)})).value

    assert_allclose(E.value, weights @ [given(s) for s in states], rtol=1e-13)
    assert_allclose(E.gradient[w]["mean"], derivative(lambda m: vo.bound(f, product(mean=m)).value, mean), rtol=1e-8)
    free = np.tril(np.ones((2, 2))) if shape == "cholesky" else None
    by_sigma = derivative(lambda s: vo.bound(f, product(sigma=s)).value, sigma, free=free)
    assert_allclose(E.gradient[w]["sigma"], by_sigma, rtol=1e-7, atol=1e-9)
    by_theta = derivative(lambda t: vo.bound(f, product(theta=t)).value, theta)
    assert_allclose(E.gradient[x]["probability"], by_theta, rtol=1e-9)

    def gradient(flat):
        return np.asarray(vo.bound(f, product(mean=flat[:2], theta=flat[2:])).gradient)

    H = E.hessian()
    assert_allclose(H, derivative(gradient, np.r_[mean, theta]), rtol=1e-7, atol=1e-8)
    direction = rng.standard_normal(5)
    assert_allclose(E.hessian("operator") @ direction, H @ direction, rtol=1e-12)
    assert_allclose(E.hessian("diagonal"), np.diagonal(H), rtol=1e-13, atol=1e-14)
    assert not E.convex
    assert "Bernoulli is not expectation affine" in E.convex.reason
    with pytest.raises(ValueError, match="max_gap needs families over real variables"):
        _ = E.max_gap
    assert_allclose(E.gap, E.value - f({w: mean, x: np.round(theta)}), rtol=1e-12)

    Q = vo.bound(f, product(), method="quadrature")
    assert_allclose(Q.value, E.value, rtol=1e-12)
    assert_allclose(np.asarray(Q.gradient), np.asarray(E.gradient), rtol=1e-10)
    assert_allclose(Q.hessian(), H, rtol=1e-9, atol=1e-10)
    S = vo.bound(f, product(), method="sampled", samples=40_000, seed=2)
    assert abs(S.value - E.value) < 4.0 * S.standard_error
    slack = 4.0 * np.asarray(S.gradient_standard_error)
    assert np.all(np.abs(np.asarray(S.gradient) - np.asarray(E.gradient)) < slack)
    assert_allclose(S.hessian(), H, atol=0.15 * np.abs(H).max())


def test_a_product_rule_over_reals_and_bits(rng):
    """A term of reals and bits together has no closed form; quadrature integrates the one and enumerates the other."""
    w, x = vo.Variable(2, name="w"), vo.Binary(2, name="x")
    X, B = rng.standard_normal((3, 2)), rng.standard_normal((3, 2))
    f = vo.sum(vo.squared_hinge(X @ w + B @ x))
    p = vo.Product({x: vo.Bernoulli([0.3, 0.6]), w: vo.Gaussian([0.1, 0.2], 0.5)})
    with pytest.raises(
        vo.bounds.NoClosedForm, match=r"squared_hinge of the discrete x is no polynomial. Use method='quadr"
    ):
        vo.bound(f, p)
    Q = vo.bound(f, p, method="quadrature")
    expected = 0.0
    for s in bits(2):
        weight = np.prod(np.where(s == 1.0, [0.3, 0.6], [0.7, 0.4]))
        v = vo.Variable(2)
        expected += weight * vo.bound(vo.sum(vo.squared_hinge(X @ v + B @ s)), vo.Gaussian([0.1, 0.2], 0.5)).value
    assert_allclose(Q.value, expected, rtol=1e-5)
    S = vo.bound(f, p, method="sampled", samples=100_000, seed=0)
    assert abs(S.value - Q.value) < 4.0 * S.standard_error
    slack = 4.0 * np.asarray(S.gradient_standard_error)
    assert np.all(np.abs(np.asarray(S.gradient) - np.asarray(Q.gradient)) < slack)
    assert_allclose(S.hessian(), Q.hessian(), atol=0.1 * np.abs(Q.hessian()).max())


def test_a_product_of_three_kinds(rng):
    w, x, c = vo.Variable(2, name="w"), vo.Binary(2, name="x"), vo.Categorical(2, 3, name="c")
    A = rng.standard_normal((10, 10))
    f = vo.sum_squares(A[:, :2] @ w + A[:, 2:4] @ x + A[:, 4:] @ c - 1.0) + vo.norm1(w)
    table = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    p = vo.Product({c: Categorical(table), w: vo.Gaussian([0.3, -0.2], [0.4, 0.5]), x: vo.Bernoulli([0.4, 0.9])})
    E = vo.bound(f, p)
    S = vo.bound(f, p, method="sampled", samples=100_000, seed=0)
    assert abs(S.value - E.value) < 4.0 * S.standard_error
    slack = 4.5 * np.asarray(S.gradient_standard_error)
    assert np.all(np.abs(np.asarray(S.gradient) - np.asarray(E.gradient)) < slack)
    assert E.gradient[c]["probability"].shape == (2, 3)
    H = E.hessian()
    assert_allclose(H, S.hessian(), atol=0.15 * np.abs(H).max())
    direction = rng.standard_normal(10)
    assert_allclose(E.hessian("operator") @ direction, H @ direction, rtol=1e-11, atol=1e-11)
