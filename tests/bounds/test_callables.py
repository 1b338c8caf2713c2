"""Bounds of plain functions: sampled, by product rules in few coordinates, by enumeration of bits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import varopt as vo
from varopt.families import Categorical


def smooth(x):
    return float(np.cos(x).prod() + np.exp(0.3 * x.sum()))


def smooth_expectation(p):
    """<prod cos x_i + exp(a sum x_i)> under a diagonal Gaussian."""
    s2 = np.broadcast_to(p.sigma**2, p.mean.shape)
    return np.prod(np.cos(p.mean) * np.exp(-s2 / 2.0)) + np.exp(0.3 * p.mean.sum() + 0.045 * s2.sum())


# -- Sampled ----------------------------------------------------------------------------------------------------------


def test_plain_and_vectorized_functions_give_the_same(rng):
    p = vo.Gaussian([0.2, -0.3], 0.5)
    one = vo.bound(smooth, p, seed=0)
    all_at_once = vo.bound(lambda x: np.cos(x).prod(axis=1) + np.exp(0.3 * x.sum(axis=1)), p, seed=0, vectorized=True)
    assert one.method == "sampled"
    assert_allclose(all_at_once.value, one.value, rtol=1e-13)
    assert_allclose(np.asarray(all_at_once.gradient), np.asarray(one.gradient), rtol=1e-9)
    assert abs(one.value - smooth_expectation(p)) < 4.0 * one.standard_error
    assert_allclose(one.gap, one.value - smooth(p.mean), rtol=1e-12)


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_gradient_allows_the_reparameterised_estimator(vectorized):
    p = vo.Gaussian([0.2, -0.3], [0.4, 0.6])

    def f(x):
        return np.sum(x**4, axis=-1)

    def slope(x):
        return 4.0 * x**3

    options = {"vectorized": vectorized, "samples": 20_000, "seed": 0}
    S = vo.bound(f, p, gradient=slope, estimator="reparameterized", **options)
    w = vo.Variable(2)
    E = vo.bound(vo.sum(w**4), p)
    assert abs(S.value - E.value) < 4.0 * S.standard_error
    for name in ("mean", "sigma"):
        assert np.all(np.abs(S.gradient[name] - E.gradient[name]) < 4.0 * S.gradient_standard_error[name])
    assert_allclose(S.hessian(), E.hessian(), rtol=0.1, atol=0.1)
    plain = vo.bound(f, p, **options)
    assert np.all(S.gradient_standard_error["mean"] < plain.gradient_standard_error["mean"])
    with pytest.raises(
        ValueError, match="'reparameterized' needs a gradient: that of a callable is unknown; give gradient="
    ):
        vo.bound(f, p, estimator="reparameterized")


def test_a_step_has_a_gradient_by_its_scores():
    """The paper's first example, from a function that has no slope anywhere."""
    S = vo.bound(lambda x: float(x[0] >= 0.0), vo.Gaussian([0.5], 1.0), samples=50_000, seed=0)
    assert abs(S.gradient["mean"][0] - np.exp(-0.125) / np.sqrt(2 * np.pi)) < 4.0 * S.gradient_standard_error["mean"][0]


def test_products_of_families_hand_over_points_in_their_own_order():
    p = vo.Product(
        {"reals": vo.Gaussian([0.0, 1.0], 0.1), "bits": vo.Bernoulli([0.25]), "c": Categorical([[0.5, 0.5]])}
    )
    seen = []

    def f(x):
        seen.append(x)
        return x[0] + 10.0 * x[2] + x[4]

    S = vo.bound(f, p, samples=2000, seed=0)
    assert np.shape(seen) == (2000, 5)
    assert set(np.unique(np.array(seen)[:, 2:])) == {0.0, 1.0}
    assert abs(S.value - 3.0) < 4.0 * S.standard_error
    assert list(S.gradient) == ["reals", "bits", "c"]
    assert list(S.gradient["reals"]) == ["mean", "sigma"]
    assert abs(S.gradient["bits"]["probability"][0] - 10.0) < 4.0 * S.gradient_standard_error["bits"]["probability"][0]


# -- Quadrature -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_product_rules_in_one_to_four_coordinates(size):
    p = vo.Gaussian(np.linspace(-0.4, 0.6, size), np.linspace(0.3, 0.7, size))
    Q = vo.bound(
        lambda x: np.cos(x).prod(axis=1) + np.exp(0.3 * x.sum(axis=1)), p, method="quadrature", vectorized=True
    )
    assert Q.method == "quadrature"
    assert_allclose(Q.value, smooth_expectation(p), rtol=1e-12 if size < 4 else 1e-10)
    step = 1e-5
    for k in range(size):
        shift = np.zeros(size)
        shift[k] = step
        up, down = (smooth_expectation(p.replace(mean=p.mean + c * shift)) for c in (1.0, -1.0))
        assert_allclose(Q.gradient["mean"][k], (up - down) / (2.0 * step), rtol=1e-7, atol=1e-9)
        up, down = (smooth_expectation(p.replace(sigma=p.sigma + c * shift)) for c in (1.0, -1.0))
        assert_allclose(Q.gradient["sigma"][k], (up - down) / (2.0 * step), rtol=1e-7, atol=1e-9)
    assert Q.standard_error == 0.0
    assert not np.asarray(Q.gradient_standard_error).any()
    assert_allclose(Q.hessian("diagonal"), np.diagonal(Q.hessian()))


@pytest.mark.parametrize("family", [vo.Uniform, vo.Laplace, vo.Logistic, vo.Gaussian])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_product_rules_are_exact_for_polynomials(size, family):
    p = family(np.full(size, 0.3), np.linspace(0.5, 0.9, size))
    Q = vo.bound(lambda x: np.prod(x**2, axis=1), p, method="quadrature", vectorized=True)
    assert_allclose(Q.value, np.prod(p.mean**2 + p.variance), rtol=1e-11)


def test_kinks_and_jumps_by_quadrature():
    p = vo.Gaussian([0.37], 0.8)
    w = vo.Variable(1)
    for f, same, digits in ((vo.norm1(w), np.abs, 1e-3), (vo.sum(vo.step(w)), lambda x: 1.0 * (x >= 0), 2e-2)):
        E = vo.bound(f, p)
        Q = vo.bound(lambda x, same=same: same(x[:, 0]), p, method="quadrature", vectorized=True)
        assert_allclose(Q.value, E.value, rtol=digits)
        assert_allclose(Q.gradient["mean"], E.gradient["mean"], rtol=digits)
        fine = vo.bound(lambda x, same=same: same(x[:, 0]), p, method="quadrature", vectorized=True, nodes=150)
        assert_allclose(fine.value, E.value, rtol=0.1 * digits)


def test_bits_are_enumerated():
    calls = []

    def f(x):
        calls.append(x)
        return float(x[0] != x[1]) + 2.0 * x[2]

    E = vo.bound(f, vo.Bernoulli([0.5, 0.25, 1.0]), method="quadrature")
    assert len(calls) == 8
    assert_allclose(E.value, 0.5 + 2.0)
    assert_allclose(E.gradient["probability"], [0.5, 0.0, 2.0], atol=1e-15)  # at the end of the third, too
    assert_allclose(E.hessian(), [[0, -2, 0], [-2, 0, 0], [0, 0, 0]], atol=1e-15)
    assert_allclose(E.hessian("operator") @ np.ones(3), [-2, -2, 0], atol=1e-15)
    assert_allclose(E.gap, E.value - f(np.array([0.0, 0.0, 1.0])))
    c = vo.bound(lambda x: x @ np.arange(6.0), Categorical([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]), method="quadrature")
    assert_allclose(c.value, 0.5 + 0.3 + 0.8 + 3.5)
    assert_allclose(c.gradient["probability"], [[-0.5, 0.5, 1.5], [-1.6, -0.6, 0.4]], atol=1e-14)


def test_too_many_coordinates_for_a_product_rule():
    with pytest.raises(
        vo.bounds.NoClosedForm, match=r"smooth has 5 real coordinates, and a product rule takes at most 4"
    ):
        vo.bound(smooth, vo.Gaussian(np.zeros(5), 1.0), method="quadrature")
    with pytest.raises(vo.bounds.NoClosedForm, match=r"smooth needs 6\.\d+e\+08 points .* Use method='sampled'\."):
        vo.bound(smooth, vo.Gaussian(np.zeros(4), 1.0), method="quadrature", nodes=40)
    with pytest.raises(vo.bounds.NoClosedForm, match=r"1.05e[+]06 states"):
        vo.bound(smooth, vo.Bernoulli(np.full(20, 0.5)), method="quadrature")
    p = vo.Product({"w": vo.Gaussian([0.0, 0.0], 1.0), "x": vo.Bernoulli(np.full(10, 0.5))})
    with pytest.raises(vo.bounds.NoClosedForm, match=r"2 real coordinates and 1.02e[+]03 states"):
        vo.bound(smooth, p, method="quadrature")


def test_a_box_needs_a_gradient_for_its_gradient():
    p = vo.Uniform([0.2, 0.1], 0.5)
    Q = vo.bound(lambda x: float(x @ x), p, method="quadrature")
    assert_allclose(Q.value, 0.05 + 2 * 0.25 / 3, rtol=1e-12)
    with pytest.raises(ValueError, match=r"score of Uniform does not exist.*give gradient="):
        _ = Q.gradient
    Q = vo.bound(lambda x: float(x @ x), p, method="quadrature", gradient=lambda x: 2.0 * x)
    assert_allclose(Q.gradient["mean"], [0.4, 0.2], rtol=1e-12)
    assert_allclose(Q.gradient["scale"], 4 * 0.5 / 3, rtol=1e-12)


# -- Refusals ---------------------------------------------------------------------------------------------------------


def test_closed_form_is_refused_by_name():
    message = (
        r"the callable smooth has no closed form: it is a black box\. Use method='sampled', or method='quadrature'"
    )
    with pytest.raises(vo.bounds.NoClosedForm, match=message):
        vo.bound(smooth, vo.Gaussian([0.0], 1.0), method="closed_form")

    class Simulator:
        def __call__(self, x):
            return 0.0

    with pytest.raises(vo.bounds.NoClosedForm, match="the callable Simulator"):
        vo.bound(Simulator(), vo.Gaussian([0.0], 1.0), method="closed_form")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_with_the_point(value):
    def f(x):
        return value if x[0] > 1.0 else 0.0

    with pytest.raises(ValueError, match=r"f must return finite numbers; got .* at \["):
        vo.bound(f, vo.Gaussian([0.0], 1.0), seed=0)


def test_wrong_shapes_are_refused():
    p = vo.Gaussian([0.0, 0.0], 1.0)
    with pytest.raises(ValueError, match=r"f must return one number a point; for 8 points got \(8, 2\)\.$"):
        vo.bound(lambda x: x, p, samples=8)
    with pytest.raises(
        ValueError, match=r"f must return one number a point; for 8 points got \(\)\. With vectorized=True"
    ):
        vo.bound(lambda x: x.sum(), p, samples=8, vectorized=True)
    with pytest.raises(ValueError, match="f must return real numbers; got NoneType None"):
        vo.bound(lambda x: None, p, samples=8)
    with pytest.raises(ValueError, match="f must return real numbers; got list"):
        vo.bound(lambda x: [1.0] * int(1 + (x[0] > 0)), p, samples=8, seed=0)
    with pytest.raises(ValueError, match="f must return real numbers; got complex"):
        vo.bound(lambda x: 1j, p, samples=8)
    S = vo.bound(lambda x: 0.0, p, samples=8, gradient=lambda x: 0.0, estimator="reparameterized")
    with pytest.raises(ValueError, match=r"gradient must return 2 numbers a point; for 8 points got \(8,\)"):
        _ = S.gradient
    with pytest.raises(ValueError, match="gradient must be a callable that returns the gradient of f; got list"):
        vo.bound(lambda x: 0.0, p, gradient=[1.0])
    with pytest.raises(ValueError, match="vectorized must be True or False; got 'yes'"):
        vo.bound(lambda x: 0.0, p, vectorized="yes")


def test_exceptions_of_the_function_reach_the_caller():
    class Broken(RuntimeError):
        pass

    def f(x):
        raise Broken("disk full")

    for options in ({"seed": 0}, {"method": "quadrature"}):
        with pytest.raises(Broken, match="disk full"):
            vo.bound(f, vo.Gaussian([0.0], 1.0), **options)


def test_the_function_gets_points_of_its_own():
    """A function that writes into its argument does not change the samples."""

    def f(x):
        value = float(x @ x)
        x[:] = 0.0
        return value

    p = vo.Gaussian([1.0, 2.0], 0.5)
    S = vo.bound(f, p, samples=20_000, seed=0)
    same = vo.bound(lambda x: float(x @ x), p, samples=20_000, seed=0)
    assert_allclose(np.asarray(S.gradient), np.asarray(same.gradient))


def test_products_are_not_nested():
    inner = vo.Product({"a": vo.Gaussian([0.0], 1.0)})
    with pytest.raises(ValueError, match="family must not nest products; its member 'b' is a Product"):
        vo.bound(lambda x: 0.0, vo.Product({"b": inner}))
