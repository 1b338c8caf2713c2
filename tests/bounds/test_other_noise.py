"""Uniform, Laplace and logistic families: quadrature, samples and, for quadratics, exact moments."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad

import varopt as vo
from tests.bounds.zoo import derivative
from varopt.terms import REGISTRY

FAMILIES = [vo.Uniform, vo.Laplace, vo.Logistic]


def build(family, scale):
    return family([0.1, -0.4, 0.3], scale)


SCALES = {"scalar": np.array(0.6), "vector": np.array([0.5, 0.9, 0.7])}


@pytest.mark.parametrize("shape", SCALES)
@pytest.mark.parametrize("family", FAMILIES)
def test_quadratics_have_a_closed_form_by_their_moments(family, shape, rng):
    w = vo.Variable(3, name="w")
    X, A = rng.standard_normal((4, 3)), rng.standard_normal((3, 3))
    f = vo.sum_squares(X @ w - 1.0) + vo.quad_form(w, A) + vo.sum(w) - 2.0
    p = build(family, SCALES[shape])
    m, V = p.mean, np.diag(p.variance)
    expected = np.sum((X @ m - 1.0) ** 2) + m @ A @ m + m.sum() - 2.0 + np.trace((X.T @ X + A) @ V)
    for method in ("closed_form", "quadrature"):
        E = vo.bound(f, p, method=method)
        assert_allclose(E.value, expected, rtol=1e-13)
        assert_allclose(E.gap, np.trace((X.T @ X + A) @ V), rtol=1e-13)
        assert_allclose(E.max_gap, E.gap, rtol=1e-13)
        assert_allclose(E.hessian(), 2.0 * X.T @ X + A + A.T, rtol=1e-13)
        value = derivative(lambda s, method=method: vo.bound(f, build(family, s), method=method).value, p.scale)
        assert_allclose(E.gradient["scale"], value, rtol=1e-9)
        assert E.convex == vo.bound(f, vo.Gaussian(m, 1.0)).convex


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", REGISTRY)
def test_rows_of_one_coordinate_by_quadrature(name, family):
    w = vo.Variable(2, name="w")
    a = np.array([2.0, -0.5])
    f = vo.sum(getattr(vo, name)(a * w + 0.23)) + 0.5 * vo.sum_squares(w)
    p = family([0.1, -0.4], [0.5, 0.9])
    E = vo.bound(f, p, method="quadrature")
    term = REGISTRY[name].build()
    expected = 0.5 * np.sum(p.mean**2 + p.variance)
    for k in range(2):
        low, high = np.clip(p.noise_support, -45.0, 45.0)
        at = sorted({low, high, 0.0, *((t - 0.23 - a[k] * p.mean[k]) / a[k] / p.scale[k] for t in term.knots)})

        def integrand(e, k=k):
            z = a[k] * (p.mean[k] + p.scale[k] * e) + 0.23
            return float(term.value(z) * p.noise_density(e))

        inside = [e for e in at if low <= e <= high]
        expected += sum(quad(integrand, *piece, epsabs=1e-13, epsrel=1e-12)[0] for piece in pairwise(inside))
    assert_allclose(E.value, expected, rtol=1e-9)
    for key in ("mean", "scale"):
        numeric = derivative(
            lambda v, key=key: vo.bound(f, p.replace({key: v}), method="quadrature").value, p.parameters[key], h=1e-4
        )
        assert_allclose(E.gradient[key], numeric, rtol=1e-5, atol=1e-6)
    if not (family is vo.Uniform and name in ("step", "zero_one")):  # the edge of a box in a jump: no second derivative
        H = derivative(
            lambda m: np.asarray(vo.bound(f, p.replace(mean=m), method="quadrature").gradient), p.mean, h=1e-4
        )
        assert_allclose(E.hessian(), H, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", SCALES)
@pytest.mark.parametrize("family", FAMILIES)
def test_samples_agree_with_quadrature(family, shape, rng):
    w = vo.Variable(3, name="w")
    f = vo.sum(vo.huber(1.5 * w - 0.2, 0.4)) + vo.norm1(w) + vo.sum_squares(rng.standard_normal((4, 3)) @ w)
    p = build(family, SCALES[shape])
    Q = vo.bound(f, p, method="quadrature")
    estimators = ["reparameterized"] if family is vo.Uniform else ["reparameterized", "score"]
    for estimator in estimators:
        for options in ({}, {"antithetic": True}, {"quasi": True}):
            S = vo.bound(f, p, method="sampled", estimator=estimator, samples=1 << 15, seed=4, **options)
            assert abs(S.value - Q.value) < 5.0 * S.standard_error
            for key in ("mean", "scale"):
                slack = 5.0 * S.gradient_standard_error[key]
                assert np.all(np.abs(S.gradient[key] - Q.gradient[key]) < slack)
                assert S.gradient[key].shape == p.parameters[key].shape


@pytest.mark.parametrize("family", FAMILIES)
def test_closed_form_is_refused_by_name_reason_and_alternative(family):
    w = vo.Variable(3, name="w")
    message = (
        rf"sum\(abs\(w\)\) has no closed form: under {family.__name__} the expectation of abs is not elementary\. "
        r"Use method='quadrature'.* or method='sampled'\."
    )
    with pytest.raises(vo.bounds.NoClosedForm, match=message):
        vo.bound(vo.sum_squares(w) + vo.norm1(w), build(family, 0.5))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_several_coordinates_go_to_a_product_rule_while_it_is_small(family, rng):
    w = vo.Variable(3, name="w")
    X = rng.standard_normal((4, 3))
    f = vo.sum((X @ w) ** 4)
    p = build(family, 0.4)
    Q = vo.bound(f, p, method="quadrature")
    S = vo.bound(f, p, method="sampled", samples=1 << 16, seed=0, estimator="reparameterized")
    assert abs(S.value - Q.value) < 4.0 * S.standard_error
    if family is vo.Uniform:  # exact moments: <e^2> = 1/3, <e^4> = 1/5
        nu, s2 = X @ p.mean, 0.16 * np.sum(X**2, axis=1) / 3.0
        fourth = 0.4**4 * (np.sum(X**4, axis=1) * (1 / 5 - 3 / 9) + 3 / 9 * np.sum(X**2, axis=1) ** 2)
        assert_allclose(Q.value, np.sum(nu**4 + 6 * nu**2 * s2 + fourth), rtol=1e-12)
    big = vo.Variable(6, name="v")
    Z = rng.standard_normal((4, 6))
    with pytest.raises(vo.bounds.NoClosedForm, match=f"a sum of several coordinates under {family.__name__}") as info:
        vo.bound(vo.norm1(Z @ big), family(np.zeros(6), 0.4), method="quadrature")
    assert "6 real coordinates" in str(info.value)
    assert "Use method='sampled'." in str(info.value)


def test_rows_under_different_noise(rng):
    """Every row under its own: a Gaussian sum, a Laplace coordinate, a box, and a row of zeros."""
    w, u, v = vo.Variable(2, name="w"), vo.Variable(name="u"), vo.Variable(name="v")
    A = np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    f = vo.norm1(A @ w + np.array([0, 1.5, 0, 0]) * u + np.array([0, 0, 0.5, 0]) * v - np.array([0.1, 0.2, 0.3, 0.4]))
    p = vo.Product({v: vo.Uniform(0.1, 0.7), u: vo.Laplace(-0.2, 0.4), w: vo.Gaussian([0.3, -0.1], [0.5, 0.2])})
    Q = vo.bound(f, p, method="quadrature")
    S = vo.bound(f, p, method="sampled", estimator="reparameterized", samples=1 << 16, seed=0)
    assert abs(S.value - Q.value) < 4.0 * S.standard_error
    for variable in (w, u, v):
        for key in Q.gradient[variable]:
            slack = 4.5 * S.gradient_standard_error[variable][key] + 1e-12
            assert np.all(np.abs(S.gradient[variable][key] - Q.gradient[variable][key]) < slack)
    assert 0.0 <= Q.gap <= Q.max_gap


def test_uniform_has_no_score():
    w = vo.Variable(2, name="w")
    f = vo.norm1(w)
    p = vo.Uniform([0.1, 0.2], 0.5)
    S = vo.bound(f, p, method="sampled", seed=0, estimator="score")
    assert S.value > 0.0
    R = vo.bound(f, p, method="sampled", seed=0)  # what there is
    np.testing.assert_array_equal(
        R.gradient["mean"], vo.bound(f, p, method="sampled", seed=0, estimator="reparameterized").gradient["mean"]
    )
    with pytest.raises(ValueError, match=r"score of Uniform does not exist.*estimator='reparameterized'\."):
        _ = S.gradient
    u = vo.Variable(name="u")
    p = vo.Product({w: vo.Gaussian([0.1, 0.2], 0.5), u: vo.Uniform(0.0, 1.0)})
    with pytest.raises(ValueError, match="score of Uniform does not exist"):
        _ = vo.bound(f + vo.abs(u), p, method="sampled", seed=0, estimator="score").gradient


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_hessians_need_a_gaussian(family):
    w = vo.Variable(3, name="w")
    S = vo.bound(vo.norm1(w), build(family, 0.5), method="sampled", seed=0, estimator="reparameterized")
    with pytest.raises(
        ValueError, match=f"hessian by method 'sampled' needs Gaussian or discrete families; got {family.__name__}"
    ):
        S.hessian()


@pytest.mark.parametrize("family", FAMILIES)
def test_max_gap_holds_under_other_noise(family, rng):
    w = vo.Variable(3, name="w")
    f = vo.norm1(2.0 * w) + vo.sum(vo.step(w)) - vo.sum(vo.huber(w)) + vo.norm2(w)
    for _ in range(20):
        p = family(rng.uniform(-0.3, 0.3, 3), rng.uniform(0.1, 0.5, 3))
        S = vo.bound(f, p, method="sampled", samples=2000, seed=0)
        assert abs(S.gap) <= S.max_gap + 4.0 * S.standard_error


def test_a_coordinate_of_a_group_norm_under_a_box_by_a_product_rule():
    w = vo.Variable(2, name="w")
    p = vo.Uniform([0.0, 0.0], 1.0)
    with pytest.raises(vo.bounds.NoClosedForm, match="entries are independent Gaussians"):
        vo.bound(vo.norm2(w), p)
    Q = vo.bound(vo.norm2(w), p, method="quadrature")
    assert_allclose(Q.value, (np.sqrt(2.0) + np.arcsinh(1.0)) / 3.0, rtol=1e-5)  # mean distance to a square's centre
    assert_allclose(Q.gradient["scale"], Q.value, rtol=1e-4)  # homogeneous in the scale
    assert_allclose(Q.gradient["mean"], 0.0, atol=1e-12)
