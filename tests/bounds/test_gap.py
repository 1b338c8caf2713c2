"""How far the bound is from the objective: the gap, its a priori bound, convexity, and that bounds are bounds."""

import math

import mpmath as mp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog

import varopt as vo
from tests.bounds.zoo import CONVEX, SHAPES, ZOO, gaussian, groups, quadratic_program, sigma

seeds = st.integers(0, 2**32 - 1)
shapes = st.sampled_from(SHAPES)

# -- The gap ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZOO)
def test_gap_is_the_bound_minus_the_objective_at_the_mean(name, rng):
    f = ZOO[name](rng)
    for method in ("closed_form", "quadrature"):
        E = vo.bound(f, gaussian("scalar", f.size, rng), method=method)
        assert_allclose(E.gap, E.value - f(E.family.mean), rtol=1e-10, atol=1e-10)


def normal_gap(nu, s):
    """<|z|> - |nu| for z ~ N(nu, s^2), at fifty digits."""
    u = abs(mp.mpf(nu)) / mp.mpf(s)
    return 2 * mp.mpf(s) * (mp.npdf(u) - u * mp.ncdf(-u))


@pytest.mark.parametrize("method", ["closed_form", "quadrature"])
def test_gap_keeps_its_digits_where_it_is_a_tiny_part_of_the_bound(method):
    """Value 1e6, gap 1e-10: its difference with the objective has no digit, the gap has twelve."""
    mp.mp.dps = 50
    X = np.array([[1.0, -2.0], [0.5, 0.25], [3.0, 1.0]])
    y = np.array([1000.0, -700.0, 300.0])
    w = vo.Variable(2)
    f = vo.sum_squares(y - X @ w) + 3.0 * vo.norm1(w) + 2.0 * vo.sum(vo.hinge(X @ w))
    mean, s = np.array([1e-6, 2.0]), 1e-6
    E = vo.bound(f, vo.Gaussian(mean, s), method=method)
    exact = mp.mpf(s) ** 2 * mp.fsum(mp.mpf(v) ** 2 for v in X.ravel()) + 3 * sum(normal_gap(m, s) for m in mean)
    for a in X:  # max(1 - z, 0) is half of |1 - z| and something affine
        nu = 1 - mp.fdot(map(mp.mpf, a), map(mp.mpf, mean))
        exact += normal_gap(nu, mp.mpf(s) * mp.norm(list(map(mp.mpf, a))))
    assert exact < 1e-12 * E.value
    assert_allclose(E.gap, float(exact), rtol=1e-12 if method == "closed_form" else 1e-4)


def test_gap_in_the_tail_of_every_row():
    """Ten standard deviations from the knot: a gap of 1e-24, to ten digits."""
    mp.mp.dps = 50
    w = vo.Variable(2)
    E = vo.bound(vo.norm1(w), vo.Gaussian([1.0, -1.0], 0.1))
    exact = 2 * normal_gap(1.0, 0.1)
    assert float(exact) < 1e-23
    assert_allclose(E.gap, float(exact), rtol=1e-10)


@settings(max_examples=60)
@given(seeds, st.sampled_from([*CONVEX, groups]), shapes)
def test_gap_of_a_convex_objective_is_not_negative(seed, build, shape):
    rng = np.random.default_rng(seed)
    f = build(rng)
    E = vo.bound(f, gaussian("scalar" if build is groups else shape, f.size, rng))
    if build is not groups:  # it has a concave part
        assert E.convex
        assert E.gap >= 0.0


# -- The largest gap --------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(seeds, st.sampled_from(list(ZOO)), shapes, st.sampled_from([1e-3, 0.3, 1.0, 10.0]))
def test_no_gap_is_above_max_gap(seed, name, shape, spread):
    rng = np.random.default_rng(seed)
    f = ZOO[name](rng)
    shape = "scalar" if name == "groups" else shape
    E = vo.bound(f, vo.Gaussian(spread * rng.standard_normal(f.size), spread * sigma(shape, f.size, rng)))
    assert abs(E.gap) <= E.max_gap * (1.0 + 1e-12)
    assert math.isinf(E.max_gap) == (name == "polynomial")


def test_max_gap_is_reached_on_the_knots(rng):
    """The lasso at w = 0: sigma^2 trace(A) + lambda D sigma sqrt(2 / pi)."""
    X, y = rng.standard_normal((8, 3)), rng.standard_normal(8)
    w = vo.Variable(3)
    E = vo.bound(vo.sum_squares(y - X @ w) + 0.7 * vo.norm1(w), vo.Gaussian(np.zeros(3), 0.4))
    assert_allclose(E.max_gap, 0.16 * np.sum(X**2) + 0.7 * 3 * 0.4 * math.sqrt(2 / math.pi), rtol=1e-14)
    assert_allclose(E.gap, E.max_gap, rtol=1e-13)


@pytest.mark.parametrize("shape", SHAPES)
def test_scaling_laws_of_the_largest_gap(shape, rng):
    w = vo.Variable(3)
    s = sigma(shape, 3, rng)
    X = rng.standard_normal((5, 3))
    kinks = vo.norm1(X @ w) - 2.0 * vo.sum(vo.hinge(w)) + vo.norm2(X @ w)
    bends = vo.sum_squares(X @ w) + vo.sum(vo.huber(w)) - vo.quad_form(w, X[:3])
    jumps = vo.sum(vo.step(X @ w)) + 3.0 * vo.sum(vo.zero_one(w))

    def max_gap(f, c):
        return vo.bound(f, vo.Gaussian(np.zeros(3), c * s), method="sampled", samples=2, seed=0).max_gap

    for c in (1e-6, 0.5, 1e6):
        assert_allclose(max_gap(kinks, c), c * max_gap(kinks, 1.0), rtol=1e-12)
        assert_allclose(max_gap(bends, c), c**2 * max_gap(bends, 1.0), rtol=1e-12)
        assert_allclose(max_gap(jumps, c), max_gap(jumps, 1.0), rtol=1e-12)
        assert_allclose(max_gap(2.0 * kinks, c), 2.0 * max_gap(kinks, c), rtol=1e-12)
    assert_allclose(max_gap(jumps, 1.0), 5 / 2 + 3 * 3 / 2)
    whole = vo.bound(kinks + vo.sum_squares(w), vo.Gaussian(np.zeros(3), s), method="sampled", samples=2, seed=0)
    assert_allclose(whole.max_gap, max_gap(kinks, 1.0) + max_gap(vo.sum_squares(w), 1.0), rtol=1e-12)


def test_the_gap_of_a_jump_is_half_of_it_at_the_knot():
    w = vo.Variable(1)
    for sigma_ in (1e-9, 1.0, 1e9):
        E = vo.bound(vo.sum(vo.step(w)), vo.Gaussian([0.0], sigma_))
        assert_allclose([E.gap, E.max_gap], [-0.5, 0.5])


def test_quadratics_of_opposite_sign_cancel(rng):
    w = vo.Variable(3)
    X = rng.standard_normal((5, 3))
    f = vo.sum_squares(X @ w) - vo.quad_form(w, X.T @ X) + vo.norm1(w)
    E = vo.bound(f, vo.Gaussian(np.zeros(3), 10.0))
    assert_allclose(E.max_gap, 30.0 * math.sqrt(2 / math.pi), rtol=1e-10)


def test_zero_weights_add_nothing_even_to_an_infinite_gap():
    w = vo.Variable(2)
    f = np.array([0.0, 1.0]) @ vo.abs(w) + 0.0 * vo.sum(w**4)
    E = vo.bound(f, vo.Gaussian(np.zeros(2), 1.0))
    assert_allclose(E.max_gap, math.sqrt(2 / math.pi))


def test_max_gap_of_group_norms(rng):
    w = vo.Variable(3)
    E = vo.bound(vo.norm2(w), vo.Gaussian(np.zeros(3), 0.5))
    assert_allclose(E.gap, E.max_gap, rtol=1e-14)  # reached at zero
    X = rng.standard_normal((4, 3))
    C = np.tril(rng.uniform(0.1, 0.5, (3, 3)))
    S = vo.bound(vo.norm2(X @ w), vo.Gaussian(np.zeros(3), C), method="sampled", samples=50_000, seed=0)
    assert_allclose(S.max_gap, np.sqrt(np.sum((X @ C) ** 2)), rtol=1e-13)  # Jensen
    assert 0.8 * S.max_gap < S.gap <= S.max_gap


def test_max_gap_is_refused_where_it_is_unknown():
    x, w = vo.Binary(2, name="x"), vo.Variable(2, name="w")
    with pytest.raises(ValueError, match="max_gap needs families over real variables"):
        _ = vo.bound(vo.sum_squares(x), vo.Bernoulli([0.5, 0.5])).max_gap

    def black_box(z):
        return float(z[0] > 0)

    with pytest.raises(ValueError, match="max_gap of the callable black_box is unknown"):
        _ = vo.bound(black_box, vo.Gaussian([0.0], 1.0), seed=0).max_gap
    nested = vo.sum(vo.abs(vo.hinge(w) + vo.abs(w)))
    with pytest.raises(ValueError, match=r"no bound on the gap of .*abs\(hinge\(w\) \+ abs\(w\)\).* is known"):
        _ = vo.bound(nested, vo.Gaussian([0.0, 0.0], 1.0), method="sampled", seed=0).max_gap
    with pytest.raises(ValueError, match=r"neither max_gap nor sigma_for"):
        vo.sigma_for(nested, 0.1)


# -- Convexity --------------------------------------------------------------------------------------------------------


def test_verdicts_on_convexity(rng):
    w, x = vo.Variable(2, name="w"), vo.Binary(2, name="x")
    p = vo.Gaussian([0.0, 0.0], 1.0)
    convex = vo.bound(vo.norm1(w), p).convex
    assert convex
    assert convex.holds
    assert str(convex) == "yes: Theorem 1: f is convex and the family is expectation affine"
    assert str(vo.bound(-vo.norm1(w), p).convex) == "not known: f is concave, and so is its bound: see E.concave"
    assert str(vo.bound(vo.norm1(w), p).concave) == "not known: f is convex, and so is its bound: see E.convex"
    for f in (vo.sum(vo.step(w)), vo.norm1(w) - vo.sum_squares(w)):
        verdict = vo.bound(f, p).convex
        assert not verdict
        assert "see f.explain()" in verdict.reason
        assert str(verdict).startswith("not known: f is ")
    assert vo.bound(vo.sum(w), p).convex.reason == "f is affine, and so is its bound in the mean"
    for family in (vo.Uniform, vo.Laplace, vo.Logistic):
        assert vo.bound(vo.norm1(w), family([0.0, 0.0], 1.0), method="quadrature").convex
    bits = vo.bound(vo.sum_squares(x), vo.Bernoulli([0.5, 0.5])).convex
    assert bits.reason == "Bernoulli is not expectation affine, which Theorem 1 asks for"
    box = vo.bound(np.sum, p, seed=0).convex
    assert not box
    assert box.reason == "the curvature of the callable sum is unknown"


@settings(max_examples=60)
@given(seeds, st.sampled_from(CONVEX), shapes, st.floats(0.0, 1.0))
def test_the_bound_of_a_convex_objective_is_convex_along_segments(seed, build, shape, t):
    rng = np.random.default_rng(seed)
    f = build(rng)
    a, b = (gaussian(shape, f.size, rng) for _ in range(2))
    between = vo.Gaussian((1 - t) * a.mean + t * b.mean, (1 - t) * a.sigma + t * b.sigma)
    A, B, C = (vo.bound(f, p).value for p in (a, b, between))
    assert (1 - t) * A + t * B + 1e-12 * (abs(A) + abs(B)) >= C


# -- Bounds are bounds ------------------------------------------------------------------------------------------------


class Problem:
    """An objective and its minimum, from the explicit programme."""

    def __init__(self, kind, rng):
        n, d = 12, 3
        X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
        w = vo.Variable(d)
        eye, rows = sp.eye_array(d), sp.eye_array(n)
        if kind == "lasso":
            self.f = vo.sum_squares(y - X @ w) + 2.0 * vo.norm1(w)
            split = sp.block_array([[eye, -eye], [-eye, -eye]])
            P = sp.block_diag([2.0 * X.T @ X, sp.csr_array((d, d))])
            self.minimum = y @ y + quadratic_program(P, np.r_[-2.0 * X.T @ y, np.full(d, 2.0)], split, np.zeros(2 * d))
        elif kind == "svm":
            t = np.sign(y)
            b = vo.Variable()
            self.f = vo.sum_squares(w) + 0.8 * vo.sum(vo.hinge(t * (X @ w + b)))
            P = sp.block_diag([2.0 * np.eye(d), sp.csr_array((1 + n, 1 + n))])
            margin = sp.hstack([-t[:, None] * np.column_stack([X, np.ones(n)]), -rows])
            A = sp.vstack([margin, sp.hstack([sp.csr_array((n, d + 1)), -rows])])
            q = np.r_[np.zeros(d + 1), np.full(n, 0.8)]
            self.minimum = quadratic_program(P, q, A, np.r_[-np.ones(n), np.zeros(n)])
        else:
            self.f = vo.sum(vo.pinball(y - X @ w, 0.3)) + 0.1 * vo.norm1(vo.diff(w))
            D = np.diff(np.eye(d), axis=0)
            A = np.block([
                [X, np.eye(n), -np.eye(n), np.zeros((n, 2 * (d - 1)))],
                [D, np.zeros((d - 1, 2 * n)), np.eye(d - 1), -np.eye(d - 1)],
            ])  # fmt: skip
            cost = np.r_[np.zeros(d), np.full(n, 0.3), np.full(n, 0.7), np.full(2 * (d - 1), 0.1)]
            bounds = [(None, None)] * d + [(0.0, None)] * (2 * n + 2 * (d - 1))
            self.minimum = linprog(cost, A_eq=A, b_eq=np.r_[y, np.zeros(d - 1)], bounds=bounds, method="highs").fun


PROBLEMS = {kind: Problem(kind, np.random.default_rng(5)) for kind in ("lasso", "svm", "quantile")}


@settings(max_examples=100)
@given(seeds, st.sampled_from(list(PROBLEMS)), shapes, st.floats(-8.0, 1.0))
def test_no_bound_is_below_the_minimum(seed, kind, shape, magnitude):
    rng = np.random.default_rng(seed)
    problem = PROBLEMS[kind]
    size = problem.f.size
    p = vo.Gaussian(rng.standard_normal(size), 10.0**magnitude * sigma(shape, size, rng))
    assert vo.bound(problem.f, p).value >= problem.minimum - 1e-9
