"""The sigma that guarantees a tolerance: exact, monotone, refused where there is none, and a guarantee that holds."""

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import varopt as vo
from tests.bounds.test_gap import PROBLEMS

TOLERANCES = [10.0**k for k in range(-15, 16, 3)]


def exact_sigma(X, lam, tolerance):
    """The positive root of sigma^2 T + sigma B = tolerance for a lasso, at fifty digits."""
    with mp.workdps(50):
        T = mp.fsum(mp.mpf(float(v)) ** 2 for v in np.ravel(X))
        B = X.shape[1] * mp.mpf(lam) * mp.sqrt(2 / mp.pi)
        delta = mp.mpf(tolerance)
        return float(2 * delta / (B + mp.sqrt(B**2 + 4 * T * delta)))


@pytest.mark.parametrize("tolerance", TOLERANCES)
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_sigma_for_inverts_the_largest_gap(tolerance, scale, rng):
    X = scale * rng.standard_normal((6, 3))
    w = vo.Variable(3)
    for lam in (1e-12, 1.0, 1e12):
        f = vo.sum_squares(X @ w - 1.0) + lam * vo.norm1(w)
        sigma = vo.sigma_for(f, tolerance)
        assert isinstance(sigma, float)
        assert_allclose(sigma, exact_sigma(X, lam, tolerance), rtol=1e-14)
        assert_allclose(vo.bound(f, vo.Gaussian(np.zeros(3), sigma)).max_gap, tolerance, rtol=1e-13)


@settings(max_examples=50)
@given(st.lists(st.floats(1e-15, 1e15), min_size=2, max_size=6, unique=True), st.integers(0, 2**32 - 1))
def test_a_looser_tolerance_allows_a_larger_sigma(tolerances, seed):
    rng = np.random.default_rng(seed)
    w = vo.Variable(2)
    f = vo.sum_squares(rng.standard_normal((3, 2)) @ w) + rng.uniform(0.1, 2.0) * vo.norm1(w) + vo.sum(vo.huber(w))
    sigmas = [vo.sigma_for(f, t) for t in sorted(tolerances)]
    assert all(a <= b for a, b in pairwise(sigmas))
    assert all(0.0 < s < math.inf for s in sigmas)


def test_kinks_alone_and_squares_alone(rng):
    w = vo.Variable(4)
    X = rng.standard_normal((7, 4))
    assert_allclose(vo.sigma_for(vo.norm1(w), 0.1), 0.1 / (4 * math.sqrt(2 / math.pi)), rtol=1e-14)
    assert_allclose(vo.sigma_for(vo.sum_squares(X @ w), 0.1), math.sqrt(0.1 / np.sum(X**2)), rtol=1e-14)
    # The paper's support vector machine: j = 1, ||a_n|| = sqrt(1 + ||x_n||^2).
    b = vo.Variable()
    f = 3.0 * vo.sum(vo.hinge(X @ w + b))
    B = 3.0 * np.sqrt(1.0 + np.sum(X**2, axis=1)).sum() / math.sqrt(2.0 * math.pi)
    assert_allclose(vo.sigma_for(f, 0.1), 0.1 / B, rtol=1e-14)
    assert_allclose(vo.sigma_for(vo.norm2(w), 0.1), 0.1 / (3 * math.sqrt(math.pi / 8)), rtol=1e-13)  # mean of chi_4
    assert vo.sigma_for(vo.norm2(X @ w), 0.1) == pytest.approx(0.1 / np.linalg.norm(X))


def test_sigma_for_takes_any_real_number(rng):
    f = vo.norm1(vo.Variable(2))
    same = vo.sigma_for(f, 1.0)
    for tolerance in (1, np.float64(1.0), np.int64(1), np.float32(1.0)):
        assert vo.sigma_for(f, tolerance) == same
    assert_allclose(vo.sigma_for(f, 1e-290), 1e-290 * same, rtol=1e-14)
    assert_allclose(vo.sigma_for(1e-100 * f, 1e100), 1e200 * same, rtol=1e-13)


def test_sigma_is_infinite_where_the_bound_is_exact():
    w = vo.Variable(3)
    assert vo.sigma_for(np.ones(3) @ w + 1.0, 1e-9) == math.inf
    assert vo.sigma_for(0.0 * vo.norm1(w) + vo.sum(w), 1e-9) == math.inf
    assert vo.sigma_for(vo.sum_squares(w) - vo.quad_form(w, np.eye(3)), 1e-9) == math.inf  # they cancel
    assert vo.sigma_for(3.0, 1e-9) == math.inf


def test_refusals_name_the_reason():
    w, x = vo.Variable(2, name="w"), vo.Binary(2, name="x")
    with pytest.raises(ValueError, match=r"sigma_for needs continuous terms: sum\(step\(w\)\) jumps"):
        vo.sigma_for(vo.norm1(w) + vo.sum(vo.step(w)), 0.1)
    with pytest.raises(ValueError, match="sigma_for needs real variables; x is discrete"):
        vo.sigma_for(vo.sum_squares(x), 0.1)
    with pytest.raises(ValueError, match=r"bounded second derivative: that of sum\(power.4\(w\)\) is not"):
        vo.sigma_for(vo.norm1(w) + vo.sum(w**4), 0.1)
    with pytest.raises(ValueError, match="an objective must be"):
        vo.sigma_for(np.sum, 0.1)
    with pytest.raises(ValueError, match=r"2 entries: sum it with vo\.sum"):
        vo.sigma_for(vo.abs(w), 0.1)
    for bad in (0.0, -1.0, math.nan, math.inf, "1", None, True, 1j, [0.1]):
        with pytest.raises(ValueError, match="tolerance must be"):
            vo.sigma_for(vo.norm1(w), bad)


def minimiser(f, sigma, start):
    """The minimiser of the bound, by SciPy with our gradient and Hessian, from a wide bound to the narrow one."""
    point = start
    for s in np.geomspace(max(sigma, 1.0), sigma, 12):
        result = minimize(
            lambda m, s=s: vo.bound(f, vo.Gaussian(m, s)).value,
            point,
            jac=lambda m, s=s: np.asarray(vo.bound(f, vo.Gaussian(m, s)).gradient),
            hess=lambda m, s=s: vo.bound(f, vo.Gaussian(m, s)).hessian(),
            method="trust-exact",
            options={"gtol": 1e-9},
        )
        point = result.x
    assert np.linalg.norm(result.jac) < 1e-6
    return point


@pytest.mark.parametrize("tolerance", [10.0, 1.0, 1e-2])
@pytest.mark.parametrize("kind", PROBLEMS)
def test_the_guarantee_holds(kind, tolerance):
    """f(argmin E) <= f* + tolerance, with f* from the explicit programme."""
    problem = PROBLEMS[kind]
    sigma = vo.sigma_for(problem.f, tolerance)
    point = minimiser(problem.f, sigma, np.zeros(problem.f.size))
    assert problem.f(point) <= problem.minimum + tolerance + 1e-9
    E = vo.bound(problem.f, vo.Gaussian(point, sigma))
    assert E.gap <= tolerance * (1.0 + 1e-12)
    assert problem.minimum - 1e-9 <= E.value <= problem.minimum + 2.0 * tolerance


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(-3.0, 1.0))
def test_the_guarantee_holds_without_convexity(seed, magnitude):
    """At the minimiser of E, f <= f* + gap(x*) - gap there: so it is the range of the gap that must be small."""
    rng = np.random.default_rng(seed)
    w = vo.Variable(2)
    X, c = rng.uniform(0.5, 2.0, (4, 2)), rng.uniform(-2.0, 2.0, 4)
    f = (
        0.3 * vo.sum_squares(w - rng.uniform(-1, 1))
        - vo.quad_form(w, rng.standard_normal((2, 2)))
        + vo.sum(vo.mcp(X @ w - c, 1.0, 1.5))
        - 0.7 * vo.sum(vo.abs(X[:2] @ w - c[:2]))
        + vo.sum(vo.capped_abs(2.0 * w + 1.0, 0.5))
        - vo.norm2(w)
    )
    tolerance = 10.0**magnitude
    sigma = vo.sigma_for(f, tolerance)
    near = np.linalg.solve(X[:2], c[:2])  # two knots at once
    means = [near, np.zeros(2), *(near + sigma * rng.standard_normal((6, 2))), *rng.uniform(-2.0, 2.0, (4, 2))]
    gaps = [vo.bound(f, vo.Gaussian(m, sigma)).gap for m in means]
    assert max(gaps) - min(gaps) <= tolerance * (1.0 + 1e-12)
