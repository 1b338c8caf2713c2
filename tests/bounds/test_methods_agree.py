"""Closed form, quadrature and sampling agree, on every registered term and on every objective of the zoo."""

import inspect
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

import varopt as vo
from tests.bounds.zoo import GENERAL, SHAPES, ZOO, gaussian
from varopt.terms import REGISTRY

SAMPLERS = {
    "score": {},
    "antithetic": {"antithetic": True},
    "quasi": {"quasi": True},
    "reparameterized": {"estimator": "reparameterized"},
    "reparameterized antithetic": {"estimator": "reparameterized", "antithetic": True},
    "reparameterized quasi": {"estimator": "reparameterized", "quasi": True},
}


def objective(name, rng, rows=5):
    """A registered term of a random affine argument, with weights, and parameters that differ by row."""
    declaration = REGISTRY[name]
    w = vo.Variable(2, name="w")
    X, y = rng.standard_normal((rows, 2)), rng.standard_normal(rows)
    if name == "clip":
        parameters = {"low": rng.uniform(-1.0, -0.2, rows), "high": rng.uniform(0.1, 1.0, rows)}
    else:
        typical = {key: domain.typical for key, domain in declaration.parameters.items()}
        parameters = {key: rng.uniform(max(low, 0.05), high, rows) for key, (low, high) in typical.items()}
    return rng.uniform(0.2, 2.0, rows) @ getattr(vo, name)(X @ w - y, **parameters)


def entries(gradient):
    return np.concatenate([np.ravel(gradient[name]) for name in gradient])


def assert_within(sampled, exact, errors, several=5.0):
    """Estimates within several standard errors; where these are zero, equal."""
    slack = 1e-12 * (1.0 + np.abs(exact))
    assert np.all(np.abs(sampled - exact) <= several * np.asarray(errors) + slack)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_term_has_a_function_for_expressions(name):
    assert list(REGISTRY[name].parameters) == list(inspect.signature(getattr(vo, name)).parameters)[1:]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", REGISTRY)
def test_quadrature_is_the_closed_form(name, shape, rng):
    f = objective(name, rng)
    p = gaussian(shape, 2, rng)
    E, Q = vo.bound(f, p), vo.bound(f, p, method="quadrature")
    assert (E.method, Q.method) == ("closed_form", "quadrature")
    assert_allclose(Q.value, E.value, rtol=1e-13)
    assert_allclose(Q.gap, E.gap, rtol=1e-11, atol=1e-15)
    assert_allclose(entries(Q.gradient), entries(E.gradient), rtol=1e-12, atol=1e-13)
    assert_allclose(Q.hessian(), E.hessian(), rtol=1e-12, atol=1e-13)
    assert Q.standard_error == E.standard_error == 0.0
    assert not np.any(entries(E.gradient_standard_error))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", REGISTRY)
def test_samples_are_within_standard_errors_of_the_closed_form(name, shape, rng):
    f = objective(name, rng)
    p = gaussian(shape, 2, rng)
    E = vo.bound(f, p)
    continuous = f.blocks[0].term.is_continuous
    for label, options in SAMPLERS.items():
        if shape != "scalar" and ("quasi" in label or "antithetic" in label):
            continue
        if "reparameterized" in label and not continuous:
            with pytest.raises(ValueError, match=f"{name}.*jumps.*Use estimator='score'"):
                vo.bound(f, p, method="sampled", **options)
            continue
        S = vo.bound(f, p, method="sampled", samples=1 << 13, seed=7, **options)
        assert S.method == "sampled"
        several = 8.0 if "quasi" in label else 5.0  # 16 replicates have heavier tails
        assert_within(S.value, E.value, S.standard_error, several)
        assert_within(entries(S.gradient), entries(E.gradient), entries(S.gradient_standard_error), several)
        assert_within(np.asarray(S.gradient), np.asarray(E.gradient), np.asarray(S.gradient_standard_error), several)
        # A Hessian has no standard error of its own: of the order of f / (sigma^2 sqrt(n)).
        assert_allclose(S.hessian(), E.hessian(), atol=0.25 * np.abs(E.hessian()).max() + 0.25)


@pytest.mark.parametrize("name", [f.__name__ for f in GENERAL])
def test_methods_agree_on_the_zoo(name, rng):
    f = ZOO[name](rng)
    p = gaussian("cholesky", f.size, rng)
    E, Q = vo.bound(f, p), vo.bound(f, p, method="quadrature")
    assert_allclose(Q.value, E.value, rtol=1e-12)
    assert_allclose(entries(Q.gradient), entries(E.gradient), rtol=1e-11, atol=1e-12)
    assert_allclose(Q.hessian(), E.hessian(), rtol=1e-11, atol=1e-11)
    S = vo.bound(f, p, method="sampled", samples=10_000, seed=3, antithetic=True)
    assert_within(S.value, E.value, S.standard_error)
    assert_within(entries(S.gradient), entries(E.gradient), entries(S.gradient_standard_error))


@pytest.mark.parametrize("name", ["svm", "per_row", "quadratics", "sparse_data", "operator_data", "repeated"])
def test_slopes_of_every_block_give_the_gradient(name, rng):
    f = ZOO[name](rng)
    p = gaussian("vector", f.size, rng)
    E = vo.bound(f, p)
    S = vo.bound(f, p, method="sampled", samples=10_000, seed=3, estimator="reparameterized")
    assert_within(S.value, E.value, S.standard_error)
    assert_within(entries(S.gradient), entries(E.gradient), entries(S.gradient_standard_error))


def test_closed_form_is_the_average_of_many_samples_of_the_group_norms(rng):
    f = ZOO["groups"](rng)
    p = gaussian("scalar", f.size, rng)
    E = vo.bound(f, p)
    for options in SAMPLERS.values():
        S = vo.bound(f, p, method="sampled", samples=1 << 14, seed=5, **options)
        assert_within(S.value, E.value, S.standard_error)
        assert_within(entries(S.gradient), entries(E.gradient), entries(S.gradient_standard_error))


def test_more_nodes_are_more_accurate(rng):
    f = objective("huber", rng)
    p = gaussian("vector", 2, rng)
    exact = vo.bound(f, p).value
    errors = [abs(vo.bound(f, p, method="quadrature", nodes=n).value - exact) for n in (2, 3, 12)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


@pytest.mark.parametrize("label", SAMPLERS)
def test_standard_errors_are_honest(label):
    """Over many seeds errors have the size of their standard errors: for the value and every gradient."""
    w = vo.Variable(2, name="w")
    f = vo.sum(vo.huber(w, 0.3)) + 0.5 * vo.norm1(np.array([[1.0, 2.0]]) @ w - 0.3)
    if "reparameterized" not in label:
        f = f + vo.sum(vo.step(w))
    p = vo.Gaussian([0.4, -0.2], [0.5, 0.8])
    E = vo.bound(f, p)
    exact = np.r_[E.value, entries(E.gradient)]
    count = 150 if "quasi" in label else 300  # 16 engines each
    errors, stated = [], []
    for seed in range(count):
        S = vo.bound(f, p, method="sampled", samples=512, seed=seed, **SAMPLERS[label])
        errors.append(np.r_[S.value, entries(S.gradient)] - exact)
        stated.append(np.r_[S.standard_error, entries(S.gradient_standard_error)])
    errors, stated = np.array(errors), np.array(stated)
    noise = np.mean(stated**2, axis=0)
    slack = 5.0 * math.sqrt(2.0 / count)
    assert np.all(np.abs(np.mean(errors**2, axis=0) / noise - 1.0) < slack)
    assert np.all(np.abs(np.mean(errors, axis=0)) < 5.0 * np.sqrt(noise / count))  # unbiased
    if "quasi" not in label:  # of 16 replicates, far from normal, single ones spread more
        assert np.all(np.abs(np.var(errors / stated, axis=0) - 1.0) < slack)


def test_variance_reduction_reduces_variance():
    w = vo.Variable(2, name="w")
    f = vo.sum(vo.huber(w, 0.3))
    p = vo.Gaussian([0.4, -0.2], 0.3)

    def error(**options):
        S = vo.bound(f, p, method="sampled", samples=4096, seed=0, **options)
        return S.standard_error, np.linalg.norm(np.asarray(S.gradient_standard_error))

    plain = error()
    assert error(estimator="reparameterized")[1] < 0.7 * plain[1]
    assert error(antithetic=True)[0] < 0.7 * plain[0]
    assert error(quasi=True)[0] < 0.2 * plain[0]
    assert error(quasi=True)[1] < 0.5 * plain[1]


def test_a_large_constant_costs_no_digits():
    """The baseline removes it before it meets the scores, and standard errors are not differences of squares."""
    w = vo.Variable(2, name="w")
    f, p = vo.norm1(w), vo.Gaussian([0.4, -0.2], 0.3)
    for options in SAMPLERS.values():
        small = vo.bound(f, p, method="sampled", seed=0, **options)
        large = vo.bound(f + 2.0**30, p, method="sampled", seed=0, **options)
        assert_allclose(entries(large.gradient), entries(small.gradient), rtol=1e-4, atol=1e-5)
        assert_allclose(large.standard_error, small.standard_error, rtol=1e-4)
        steep = vo.bound(f + 2.0**30 * vo.sum(w), p, method="sampled", seed=0, **options)
        if options.get("estimator") == "reparameterized":
            error = small.gradient_standard_error["mean"]
            assert_allclose(steep.gradient_standard_error["mean"], error, rtol=1e-4)


def test_seeds_and_generators(rng):
    f, p = objective("hinge", rng), gaussian("scalar", 2, rng)

    def value(seed, **options):
        return vo.bound(f, p, method="sampled", samples=64, seed=seed, **options).value

    for options in ({}, {"antithetic": True}, {"quasi": True}):
        assert value(1, **options) == value(1, **options) != value(2, **options)
        generator = np.random.default_rng(1)
        assert value(generator, **options) == value(1, **options)
        assert value(generator, **options) != value(1, **options)
    assert value(None) != value(None)


def test_sampled_bounds_print_their_error(rng):
    f, p = objective("hinge", rng), gaussian("scalar", 2, rng)
    assert " +- " in repr(vo.bound(f, p, method="sampled", seed=0))
    assert repr(vo.bound(f, p)) == f"<bound {vo.bound(f, p).value:.10g}, closed_form, under Gaussian of 2 coordinates>"
