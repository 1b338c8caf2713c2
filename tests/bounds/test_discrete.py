"""Bits and choices: multilinear expectations against enumeration, and what follows from linearity in each."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

import varopt as vo
from tests.bounds.zoo import bits, derivative, one_hot
from varopt.families import Categorical

N = 5


def quadratic(rng):
    x = vo.Binary(N, name="x")
    return vo.quad_form(x, rng.standard_normal((N, N))) + rng.standard_normal(N) @ x


def sparse_quadratic(rng):
    x = vo.Binary(N, name="x")
    A = sp.random_array((N, N), density=0.5, rng=rng, format="csr")
    return vo.quad_form(x, A) - 2.0 * vo.quad_form(1.0 - 2.0 * x, A)


def operator_quadratic(rng):
    x = vo.Binary(N, name="x")
    B = rng.standard_normal((7, N))
    return vo.quad_form(x, aslinearoperator(rng.standard_normal((N, N)))) + vo.quad_form(
        B @ x - 1.0, aslinearoperator(rng.standard_normal((7, 7)))
    )


def squares(rng):
    x = vo.Binary(N, name="x")
    B = rng.standard_normal((8, N))
    weights = rng.standard_normal(8)
    return vo.sum_squares(B @ x - 1.0) + weights @ vo.square(sp.csr_array(B) @ x) + vo.sum((x[0] - x[1:]) ** 2)


def products(rng):
    """Monomials of degree up to five, and powers that a bit absorbs."""
    x = vo.Binary(N, name="x")
    f = 1.5 + 2.0 * x[0]
    for degree in range(2, N + 1):
        for chosen in itertools.combinations(range(N), degree):
            term = rng.standard_normal()
            for k in chosen:
                term = term * x[k]
            f = f + term
    return f + (x[0] + 2.0 * x[1] * x[2]) ** 3


def several_variables(rng):
    x, y = vo.Binary(2, name="x"), vo.Binary(3, name="y")
    A = rng.standard_normal((3, 2))
    return vo.sum_squares(A @ x - y) + vo.sum((A @ x) * y) + x[0] * y[0] * y[1] + vo.quad_form(y, A @ A.T)


BITS = [quadratic, sparse_quadratic, operator_quadratic, squares, products, several_variables]


def enumerated(f, theta):
    """E, by its definition."""
    states = bits(len(theta))
    weights = np.prod(np.where(states == 1.0, theta, 1.0 - theta), axis=1)
    return weights @ [f(s) for s in states]


@pytest.mark.parametrize("build", BITS)
def test_bits_against_enumeration_and_finite_differences(build, rng):
    f = build(rng)
    theta = rng.uniform(0.1, 0.9, N)
    E = vo.bound(f, vo.Bernoulli(theta))
    assert_allclose(E.value, enumerated(f, theta), rtol=1e-13)
    assert_allclose(E.gradient["probability"], derivative(lambda t: enumerated(f, t), theta), rtol=1e-9, atol=1e-10)
    H = E.hessian()
    expected = derivative(lambda t: np.asarray(vo.bound(f, vo.Bernoulli(t)).gradient), theta)
    assert_allclose(H, expected, rtol=1e-9, atol=1e-10)
    assert_allclose(H, H.T, rtol=1e-14, atol=1e-14)
    assert not E.hessian("diagonal").any()
    directions = rng.standard_normal((N, 3))
    assert_allclose(E.hessian("operator") @ directions, H @ directions, rtol=1e-12, atol=1e-12)
    assert_allclose(E.gap, E.value - f(np.where(theta > 0.5, 1.0, 0.0)), rtol=1e-12)
    assert list(E.gradient) == ["probability"]


@pytest.mark.parametrize("build", BITS)
@pytest.mark.parametrize("at_the_ends", [False, True])
def test_quadrature_enumerates(build, at_the_ends, rng):
    f = build(rng)
    theta = np.array([0.0, 1.0, 0.3, 1.0, 0.0]) if at_the_ends else rng.uniform(0.1, 0.9, N)
    E, Q = vo.bound(f, vo.Bernoulli(theta)), vo.bound(f, vo.Bernoulli(theta), method="quadrature")
    assert_allclose(Q.value, E.value, rtol=1e-12)
    assert_allclose(Q.gap, E.gap, rtol=1e-11, atol=1e-12)
    assert_allclose(np.asarray(Q.gradient), np.asarray(E.gradient), rtol=1e-11, atol=1e-11)
    assert_allclose(Q.hessian(), E.hessian(), rtol=1e-11, atol=1e-11)
    assert_allclose(Q.hessian("operator") @ theta, E.hessian() @ theta, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("build", BITS)
def test_samples_of_bits(build, rng):
    f = build(rng)
    p = vo.Bernoulli(rng.uniform(0.2, 0.8, N))
    E = vo.bound(f, p)
    deviation = np.std([f(s) for s in bits(N)]) / 128.0
    for options in ({}, {"antithetic": True}, {"quasi": True}):
        S = vo.bound(f, p, method="sampled", samples=1 << 14, seed=1, **options)
        assert abs(S.value - E.value) < 5.0 * S.standard_error
        slack = 5.0 * S.gradient_standard_error["probability"]
        assert np.all(np.abs(S.gradient["probability"] - E.gradient["probability"]) < slack)
        assert_allclose(S.hessian(), E.hessian(), atol=5.0 * deviation / np.min(p.variance))
        assert not S.hessian("diagonal").any()


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_the_binary_quadratic_bound_of_the_paper(seed):
    """E = sum_{i != j} A_ij theta_i theta_j + sum_i (b_i + A_ii) theta_i, written out."""
    rng = np.random.default_rng(seed)
    A, b, theta = rng.standard_normal((N, N)), rng.standard_normal(N), rng.uniform(0.0, 1.0, N)
    x = vo.Binary(N)
    E = vo.bound(vo.quad_form(x, A) + b @ x, vo.Bernoulli(theta))
    pairs = sum(A[i, j] * theta[i] * theta[j] for i, j in itertools.permutations(range(N), 2))
    assert_allclose(E.value, pairs + (b + np.diagonal(A)) @ theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("build", BITS)
def test_rounding_one_bit_at_a_time_never_makes_it_worse(build, rng):
    f = build(rng)
    for _ in range(5):
        theta = rng.uniform(0.0, 1.0, N)
        start = value = vo.bound(f, vo.Bernoulli(theta)).value
        for i in rng.permutation(N):
            ends = []
            for end in (0.0, 1.0):
                theta[i] = end
                ends.append(vo.bound(f, vo.Bernoulli(theta)).value)
            theta[i] = float(ends[1] < ends[0])
            assert min(ends) <= value + 1e-12 * (1.0 + abs(value))
            value = min(ends)
        assert f(theta) <= start + 1e-12 * (1.0 + abs(start))


@pytest.mark.parametrize("build", BITS)
def test_the_bound_is_linear_in_each_probability(build, rng):
    f = build(rng)
    theta = rng.uniform(0.2, 0.8, N)
    for i in range(N):
        step = np.zeros(N)
        step[i] = 0.15
        low, middle, high = (vo.bound(f, vo.Bernoulli(theta + c * step)).value for c in (-1.0, 0.0, 1.0))
        assert abs(low - 2.0 * middle + high) <= 1e-13 * (abs(low) + abs(high) + 10.0)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(BITS))
def test_bounds_of_bits_lie_between_minimum_and_maximum(seed, build):
    rng = np.random.default_rng(seed)
    f = build(rng)
    values = np.array([f(s) for s in bits(N)])
    E = vo.bound(f, vo.Bernoulli(rng.choice([0.0, 1.0, rng.random()], N))).value
    slack = 1e-12 * (1.0 + np.abs(values).max())
    assert values.min() - slack <= E <= values.max() + slack
    corner = rng.integers(0, 2, N).astype(float)
    assert_allclose(vo.bound(f, vo.Bernoulli(corner)).value, f(corner), rtol=1e-12, atol=1e-12)  # tight at a point


def test_affine_objectives_of_bits_have_affine_bounds(rng):
    x = vo.Binary(3)
    E = vo.bound(np.array([1.0, -2.0, 3.0]) @ x + 1.0, vo.Bernoulli([0.1, 0.5, 0.9]))
    assert_allclose(E.value, 0.1 - 1.0 + 2.7 + 1.0)
    assert not E.hessian().any()
    assert E.convex
    assert "affine" in E.convex.reason
    assert not vo.bound(vo.sum_squares(x), vo.Bernoulli([0.5] * 3)).convex


# -- Choices ----------------------------------------------------------------------------------------------------------


def choice_quadratic(rng):
    c = vo.Categorical(3, 2, name="c")
    A, B = rng.standard_normal((6, 6)), rng.standard_normal((5, 6))
    return vo.quad_form(c, A) + vo.sum_squares(B @ c - 1.0) + vo.sum(c[0] * c[1]) + rng.standard_normal(6) @ c


def choice_sparse(rng):
    c = vo.Categorical(2, 3, name="c")
    A = sp.random_array((6, 6), density=0.6, rng=rng, format="csc")
    return vo.quad_form(c, A) + c[0] @ c[1] + vo.sum_squares(A @ c)


def choice_cubic(rng):
    c = vo.Categorical(3, 3, name="c")
    return vo.sum(c[0] * c[1] * c[2]) - 2.0 * c[0, 1] * c[2, 0] + 0.5 * c[1, 2]


def choices_and_bits(rng):
    c, x = vo.Categorical(2, 3, name="c"), vo.Binary(2, name="x")
    B = rng.standard_normal((4, 6))
    return vo.sum_squares(B @ c + rng.standard_normal((4, 2)) @ x) + c[0, 1] * x[0] * c[1, 2]


def tables(f, rng):
    return {
        v: rng.dirichlet(np.ones(v.dimensions[-1]) * 2.0, v.dimensions[0]) if v.kind == "categorical" else None
        for v in f.variables
    }


def family(f, p):
    """A product over the variables, from a table for each choice and 0.3 for every bit."""
    return vo.Product({v: vo.Bernoulli(np.full(v.size, 0.3)) if t is None else Categorical(t) for v, t in p.items()})


def expected(f, p):
    """E by its definition, at tables normalised to one: what the family says of rows that do not sum to one."""
    states = [bits(v.size) if t is None else one_hot(*t.shape) for v, t in p.items()]
    tables = [np.full(v.size, 0.3) if t is None else (t / t.sum(axis=1, keepdims=True)).ravel() for v, t in p.items()]
    total = 0.0
    for point in itertools.product(*states):
        weight = 1.0
        for (_, t), x, q in zip(p.items(), point, tables, strict=True):
            weight *= np.prod(np.where(x == 1.0, q, 1.0 - q if t is None else 1.0))
        total += weight * f(np.concatenate(point))
    return total


@pytest.mark.parametrize("build", [choice_quadratic, choice_sparse, choice_cubic, choices_and_bits])
def test_choices_against_enumeration_and_finite_differences(build, rng):
    f = build(rng)
    p = tables(f, rng)
    E = vo.bound(f, family(f, p))
    assert_allclose(E.value, expected(f, p), rtol=1e-12)
    for v, table in p.items():
        if table is None:
            continue
        numeric = derivative(lambda t, v=v: expected(f, {**p, v: t}), table)
        assert_allclose(E.gradient[v]["probability"], numeric, rtol=1e-8, atol=1e-9)
        assert_allclose((table * E.gradient[v]["probability"]).sum(axis=1), 0.0, atol=1e-12)

    # Second derivatives along directions that stay on the simplex of every choice.
    H, size = E.hessian(), f.size
    for _ in range(5):
        steps = {v: None if t is None else rng.standard_normal(t.shape) for v, t in p.items()}
        steps = {v: None if s is None else s - s.mean(axis=1, keepdims=True) for v, s in steps.items()}
        flat = np.concatenate([np.zeros(v.size) if s is None else s.ravel() for v, s in steps.items()])

        def along(h, steps=steps):
            return expected(f, {v: None if t is None else t + h * steps[v] for v, t in p.items()})

        h = 1e-2
        near, far = along(h) + along(-h), along(2 * h) + along(-2 * h)
        second = (16.0 * near - far - 30.0 * along(0.0)) / (12.0 * h**2)
        assert_allclose(flat @ H @ flat, second, rtol=1e-6, atol=1e-7)
    assert_allclose(H, H.T, atol=1e-12)
    for v, table in p.items():
        if table is not None:  # linear in each choice
            n, k = table.shape
            blocks = H[f.slices[v], f.slices[v]].reshape(n, k, n, k)
            assert not blocks[np.arange(n), :, np.arange(n), :].any()
    directions = rng.standard_normal((size, 2))
    assert_allclose(E.hessian("operator") @ directions, H @ directions, rtol=1e-10, atol=1e-10)

    Q = vo.bound(f, family(f, p), method="quadrature")
    assert_allclose(Q.value, E.value, rtol=1e-12)
    assert_allclose(np.asarray(Q.gradient), np.asarray(E.gradient), rtol=1e-10, atol=1e-11)
    assert_allclose(Q.hessian(), H, rtol=1e-10, atol=1e-11)
    S = vo.bound(f, family(f, p), method="sampled", samples=1 << 15, seed=0)
    assert abs(S.value - E.value) < 5.0 * S.standard_error
    slack = 5.0 * np.asarray(S.gradient_standard_error)
    assert np.all(np.abs(np.asarray(S.gradient) - np.asarray(E.gradient)) <= slack)
    assert_allclose(S.hessian(), H, atol=0.2 * np.abs(H).max())


def test_one_family_or_a_product_over_choices_are_the_same(rng):
    c, d = vo.Categorical(1, 3, name="c"), vo.Categorical(2, 3, name="d")
    f = vo.quad_form(c, rng.standard_normal((3, 3))) + vo.sum_squares(rng.standard_normal((4, 6)) @ d) + c[0] @ d[1]
    table = rng.dirichlet(np.ones(3), 3)
    one, two = (
        vo.bound(f, Categorical(table)),
        vo.bound(f, vo.Product({d: Categorical(table[1:]), c: Categorical(table[:1])})),
    )
    assert_allclose(two.value, one.value, rtol=1e-13)
    assert_allclose(np.asarray(two.gradient), np.asarray(one.gradient), rtol=1e-11, atol=1e-12)
    assert_allclose(two.hessian(), one.hessian(), rtol=1e-11, atol=1e-12)
    assert_allclose(two.hessian("operator") @ np.arange(9.0), one.hessian() @ np.arange(9.0), rtol=1e-10, atol=1e-11)
    assert one.gradient["probability"].shape == (3, 3)


def test_a_choice_among_one_is_certain():
    c = vo.Categorical(2, 1)
    f = vo.sum_squares(np.array([[1.0, 2.0]]) @ c) + c[0] @ c[1]
    for method in ("closed_form", "quadrature"):
        E = vo.bound(f, Categorical(np.ones((2, 1))), method=method)
        assert_allclose(E.value, 10.0)
        assert_allclose(np.asarray(E.gradient), 0.0, atol=1e-15)
        assert_allclose(E.hessian(), 0.0, atol=1e-15)


# -- What has no polynomial -------------------------------------------------------------------------------------------


def test_terms_of_bits_by_enumeration_and_samples(rng):
    x = vo.Binary(4, name="x")
    B = rng.standard_normal((3, 4))
    f = vo.sum(vo.hinge(B @ x)) + vo.sum(vo.abs(x[0] * x[1] - B @ x)) + vo.norm2(B @ x)
    theta = np.array([0.3, 0.6, 1.0, 0.5])
    message = (
        r"sum\(hinge\(.*x\)\) has no closed form: hinge of the discrete x is no polynomial\. Use method='quadrature'"
    )
    with pytest.raises(vo.bounds.NoClosedForm, match=message):
        vo.bound(f, vo.Bernoulli(theta))
    Q = vo.bound(f, vo.Bernoulli(theta), method="quadrature")
    assert_allclose(Q.value, enumerated(f, theta), rtol=1e-13)
    inner = theta.copy()
    inner[2] = 0.5  # E is linear in it: its derivative is the same
    numeric = derivative(lambda t: enumerated(f, t), inner)
    assert_allclose(
        Q.gradient["probability"][2], derivative(lambda t: enumerated(f, np.r_[theta[:2], t, theta[3]]), [0.5])
    )
    assert_allclose(vo.bound(f, vo.Bernoulli(inner), method="quadrature").gradient["probability"], numeric, rtol=1e-9)
    S = vo.bound(f, vo.Bernoulli(theta), method="sampled", samples=20_000, seed=0)
    assert abs(S.value - Q.value) < 4.0 * S.standard_error


def test_many_bits_are_not_enumerated():
    x = vo.Binary(30, name="x")
    f = vo.sum_squares(x) + x[0] * x[1]
    assert_allclose(vo.bound(f, vo.Bernoulli(np.full(30, 0.5))).value, 15.25)
    with pytest.raises(vo.bounds.NoClosedForm, match=r"1.07e\+09 states.*Use method='closed_form' or method='sampled'"):
        vo.bound(f, vo.Bernoulli(np.full(30, 0.5)), method="quadrature")


def test_only_the_bits_of_a_block_are_enumerated():
    variables = [vo.Binary(3) for _ in range(20)]
    f = sum(vo.sum(vo.hinge(v)) for v in variables)
    E = vo.bound(f, vo.Bernoulli(np.full(60, 0.25)), method="quadrature")
    assert_allclose(E.value, 60 * 0.75)
    assert_allclose(E.gradient["probability"], -1.0)


def test_samples_know_nothing_of_what_never_happens():
    """A bit with probability one: zero gradient, with an infinite standard error; the closed form knows better."""
    x = vo.Binary(3, name="x")
    f = vo.sum_squares(x) + 2.0 * x[0] * x[1]
    p = vo.Bernoulli([1.0, 0.4, 0.0])
    S, E = vo.bound(f, p, method="sampled", seed=0), vo.bound(f, p)
    assert_allclose(E.gradient["probability"], [1.8, 3.0, 1.0])
    assert_allclose(S.gradient["probability"][[0, 2]], 0.0)
    assert_allclose(S.gradient_standard_error["probability"][[0, 2]], np.inf)
    assert abs(S.gradient["probability"][1] - 3.0) <= 5.0 * S.gradient_standard_error["probability"][1]
    assert np.isnan(S.hessian()[0, 1])
    c = vo.Categorical(1, 3)
    S = vo.bound(np.array([1.0, 2.0, 3.0]) @ c, Categorical([[0.5, 0.5, 0.0]]), method="sampled", seed=0)
    assert np.isinf(S.gradient_standard_error["probability"][0, 2])


def test_large_sparse_problems_stay_sparse():
    """Ten thousand bits: value, gradient and products with the Hessian never form an n x n matrix."""
    import tracemalloc

    n = 10_000
    rng = np.random.default_rng(0)
    A = sp.random_array((n, n), density=3e-4, rng=rng, format="csr")
    x = vo.Binary(n)
    i = np.arange(0, n - 2, 3)
    f = vo.quad_form(x, A) + vo.sum_squares(sp.random_array((n, n), density=2e-4, rng=rng, format="csr") @ x)
    f = f + vo.sum(x[i] * x[i + 1] * x[i + 2])
    tracemalloc.start()
    try:
        E = vo.bound(f, vo.Bernoulli(np.full(n, 0.5)))
        product = E.hessian("operator") @ np.ones(n)
        assert np.isfinite([E.value, product.sum(), np.asarray(E.gradient).sum(), E.hessian("diagonal").sum()]).all()
        assert tracemalloc.get_traced_memory()[1] < 0.1 * 8 * n**2
    finally:
        tracemalloc.stop()
