"""Gradients in every parameter and Hessians in the mean, against finite differences of the value."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse.linalg import LinearOperator

import varopt as vo
from tests.bounds.zoo import GENERAL, SHAPES, ZOO, derivative, gaussian, groups
from varopt import terms

CASES = [(f.__name__, shape) for f in GENERAL for shape in SHAPES] + [("groups", "scalar")]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_gradient_and_hessian_are_derivatives_of_the_value(name, shape, rng):
    f = ZOO[name](rng)
    p = gaussian(shape, f.size, rng)
    E = vo.bound(f, p)

    def value(mean=p.mean, sigma=p.sigma):
        return vo.bound(f, vo.Gaussian(mean, sigma)).value

    def gradient(mean):
        return np.asarray(vo.bound(f, vo.Gaussian(mean, p.sigma)).gradient)

    tolerance = {"rtol": 1e-7, "atol": 1e-7 * max(1.0, abs(E.value))}
    assert_allclose(E.gradient["mean"], derivative(value, p.mean), **tolerance)
    free = np.tril(np.ones_like(p.sigma)) if shape == "cholesky" else None
    assert_allclose(E.gradient["sigma"], derivative(lambda s: value(sigma=s), p.sigma, free=free), **tolerance)
    assert E.gradient["sigma"].shape == p.sigma.shape

    H = E.hessian()
    assert_allclose(H, derivative(gradient, p.mean), **tolerance)
    assert_allclose(H, H.T, rtol=0, atol=1e-13 * np.abs(H).max())
    assert_allclose(E.hessian("diagonal"), np.diagonal(H), rtol=1e-12, atol=1e-12 * np.abs(H).max())
    operator = E.hessian("operator")
    assert isinstance(operator, LinearOperator)
    directions = rng.standard_normal((f.size, 2))
    assert_allclose(operator @ directions, H @ directions, rtol=1e-12, atol=1e-11 * np.abs(H).max())
    assert_allclose(operator.T @ directions, H @ directions, rtol=1e-12, atol=1e-11 * np.abs(H).max())


@pytest.mark.parametrize("factor", [np.array([0.3, 0.5, 0.3, 0.5]), np.diag([0.3, 0.5, 0.3, 0.5])])
def test_group_norms_where_the_gaussian_is_isotropic_within_groups(factor, rng):
    w = vo.Variable(4, name="w")
    f = vo.norm2(w, groups=[[0, 2], [1, 3]]) + vo.norm2(0.5 * w[::2] - 1.0)
    p = vo.Gaussian(rng.standard_normal(4), factor)
    E = vo.bound(f, p)
    sampled = vo.bound(f, p, method="sampled", estimator="reparameterized", samples=200_000, seed=1)
    assert abs(E.value - sampled.value) < 4.0 * sampled.standard_error
    for name in ("mean", "sigma"):
        error = sampled.gradient_standard_error[name]
        assert np.all(np.abs(E.gradient[name] - sampled.gradient[name]) <= 4.0 * error)
    assert_allclose(
        E.hessian(), derivative(lambda m: np.asarray(vo.bound(f, p.replace(mean=m)).gradient), p.mean), atol=1e-7
    )


def test_group_norm_of_a_plane_against_a_product_rule(rng):
    w = vo.Variable(2, name="w")
    f = 1.5 * vo.norm2(w)
    p = vo.Gaussian([0.9, -0.4], 0.2)
    E, same = vo.bound(f, p), vo.bound(lambda x: 1.5 * np.hypot(*x.T), p, method="quadrature", vectorized=True)
    assert_allclose(E.value, same.value, rtol=1e-7)
    assert_allclose(E.gradient["mean"], same.gradient["mean"], rtol=1e-6)
    assert_allclose(E.gradient["sigma"], same.gradient["sigma"], rtol=1e-5)
    assert_allclose(E.hessian(), same.hessian(), rtol=1e-5)


def test_group_norm_at_its_kink_has_derivatives(rng):
    w = vo.Variable(3, name="w")
    E = vo.bound(vo.norm2(w), vo.Gaussian(np.zeros(3), 0.5))
    assert_allclose(E.value, 0.5 * 2.0 * np.sqrt(2.0 / np.pi), rtol=1e-14)  # mean of the chi distribution
    assert_allclose(E.gradient["mean"], 0.0, atol=1e-15)
    assert_allclose(E.hessian(), np.eye(3) * (2.0 / 3.0) * np.sqrt(2.0 / np.pi) / 0.5, rtol=1e-13)


def test_sums_of_the_same_variables_in_one_family_or_in_a_product_have_the_same_hessian(rng):
    f = ZOO["quadratics"](rng)
    w, v = f.variables
    mean = rng.standard_normal(5)
    one = vo.bound(f, vo.Gaussian(mean, 0.4))
    two = vo.bound(f, vo.Product({v: vo.Gaussian(mean[3:], 0.4), w: vo.Gaussian(mean[:3], 0.4)}))
    assert_allclose(two.value, one.value, rtol=1e-14)
    assert_allclose(two.hessian(), one.hessian(), rtol=1e-13)
    assert_allclose(np.asarray(two.gradient), np.asarray(one.gradient), rtol=1e-13)


def test_scaling_the_data_scales_the_derivatives(rng):
    """E(X -> cX, sigma -> sigma / c, mean -> mean / c) is the same function."""
    X, y, m = rng.standard_normal((6, 3)), rng.standard_normal(6), rng.standard_normal(3)
    w = vo.Variable(3)

    def bound(c):
        return vo.bound(vo.sum(vo.huber((c * X) @ w - y)), vo.Gaussian(m / c, 0.3 / c))

    one = bound(1.0)
    for c in (1e-9, 1e-3, 1e5, 1e10):
        scaled = bound(c)
        assert_allclose(scaled.value, one.value, rtol=1e-12)
        assert_allclose(scaled.gradient["mean"], c * one.gradient["mean"], rtol=1e-9)
        assert_allclose(scaled.gradient["sigma"], c * one.gradient["sigma"], rtol=1e-9)
        assert_allclose(scaled.hessian(), c**2 * one.hessian(), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-170, 1e-30, 1e30])
def test_tiny_and_huge_dispersions_neither_vanish_nor_overflow(scale):
    w = vo.Variable(2)
    f = vo.norm1(w)
    for sigma in (scale, np.full(2, scale), scale * np.eye(2)):
        E = vo.bound(f, vo.Gaussian(np.zeros(2), sigma))
        assert_allclose(E.value, 2.0 * scale * np.sqrt(2.0 / np.pi), rtol=1e-13)
        assert_allclose(E.gap, E.value, rtol=1e-13)


def test_hessian_leaves_out_rows_far_from_every_knot(rng):
    """With a small sigma few rows have curvature; the sum over these few is the same matrix."""
    X, y = rng.standard_normal((400, 3)), rng.standard_normal(400)
    w, b = vo.Variable(3), vo.Variable()
    f = vo.sum(vo.abs(X @ w + b - y))
    p = vo.Gaussian(rng.standard_normal(4), 1e-2)
    E = vo.bound(f, p)
    A = np.column_stack([X, np.ones(400)])
    bends = terms.abs_().derivatives(A @ p.mean - y, 1e-2 * np.linalg.norm(A, axis=1))[2]
    assert 0 < np.count_nonzero(bends) < 200
    assert_allclose(E.hessian(), A.T @ (bends[:, None] * A), rtol=1e-12)


def test_gradient_is_a_mapping_and_an_array(rng):
    f = groups(rng)
    p = gaussian("scalar", f.size, rng)
    gradient = vo.bound(f, p).gradient
    assert list(gradient) == ["mean", "sigma"]
    assert len(gradient) == 2
    assert "sigma" in gradient
    assert_allclose(np.asarray(gradient), gradient["mean"])
    assert np.asarray(gradient, dtype=np.float32).dtype == np.float32
    assert "mean" in repr(gradient)
    natural = p.natural_gradient(gradient)
    assert natural["mean"].shape == (f.size,)
    with pytest.raises(KeyError):
        gradient["scale"]
