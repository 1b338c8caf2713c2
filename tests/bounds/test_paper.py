"""The statements of [SB12], written out by hand from its pages, against `vo.bound` and `vo.sigma_for`.

Where the paper misprints, one test shows that the printed form fails and the corrected one holds. `ndtr` is what the
paper calls phi: the distribution function of the standard normal.
"""

import itertools
import math

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.optimize import brentq, linprog, minimize
from scipy.special import ndtr

import varopt as vo

ROOT_2PI = math.sqrt(2.0 * math.pi)

# Problems and references ------------------------------------------------------------------------------------------


class Lasso:
    """The paper's lasso: data, objective, and c, b, A of ``c + w'b + w'Aw + lambda sum |w_i|``."""

    def __init__(self, rng, d, n=None, lam=None):
        n = 10 * d if n is None else n
        kind = rng.random(d)
        u = np.where(kind < 0.5, 0.0, np.where(kind < 0.75, 5.0, -5.0) + rng.standard_normal(d))
        self.X = rng.standard_normal((n, d))
        clean = self.X @ u
        self.y = clean + 0.1 * np.mean(np.abs(clean)) * rng.standard_normal(n)
        self.lam = 30.0 * d if lam is None else lam
        self.c, self.b, self.A = self.y @ self.y, -2.0 * self.X.T @ self.y, self.X.T @ self.X
        self.w = vo.Variable(d, name="w")
        self.f = vo.sum_squares(self.y - self.X @ self.w) + self.lam * vo.norm1(self.w)

    def printed_sigma(self, tolerance):
        t, s = np.trace(self.A), self.lam * self.w.size / ROOT_2PI
        return (math.sqrt(s**2 + tolerance * t) - s) / math.sqrt(t)

    def optimum(self):
        d = self.w.size  # min w'Aw + b'w + lambda 1't  subject to  -t <= w <= t
        eye = sp.eye_array(d)
        rows = sp.block_array([[eye, -eye], [-eye, -eye]])
        hessian = sp.block_diag([2.0 * self.A, sp.csr_array((d, d))])
        return self.c + quadratic_program(hessian, np.r_[self.b, np.full(d, self.lam)], rows, np.zeros(2 * d))


class KernelMachine:
    """The paper's kernelised support vector machine: ``K_nm = y_n y_m k(x_n, x_m)``, k linear plus Gaussian."""

    def __init__(self, rng, n=9, cost=2.0, scale=1.0):
        X = scale * rng.standard_normal((n, 2))
        self.y = np.where(np.arange(n) % 3 == 0, -1.0, 1.0)
        distance = np.sum((X[:, None] - X) ** 2, axis=-1)
        self.K = np.outer(self.y, self.y) * (X @ X.T + np.exp(-0.5 * distance))
        self.cost = cost
        self.beta, self.b = vo.Variable(n, name="beta"), vo.Variable(name="b")
        self.f = vo.quad_form(self.beta, self.K) + cost * vo.sum(vo.hinge(self.K @ self.beta + self.b * self.y))
        self.spread = np.sqrt(1.0 + np.sum(self.K**2, axis=1))  # varsigma_n / sigma

    def nu(self, beta, b):
        return 1.0 - self.K @ beta - b * self.y

    def value(self, beta, b):
        return beta @ self.K @ beta + self.cost * np.maximum(self.nu(beta, b), 0.0).sum()

    def bound(self, beta, b, sigma, nu=None):
        nu = self.nu(beta, b) if nu is None else nu
        s = sigma * self.spread
        smooth = nu * ndtr(nu / s) + s / ROOT_2PI * np.exp(-0.5 * (nu / s) ** 2)
        return beta @ self.K @ beta + np.trace(sigma**2 * self.K) + self.cost * smooth.sum()

    def printed_sigma(self, tolerance):
        t, s = np.trace(self.K), self.cost * self.spread.sum() / math.sqrt(8.0 * math.pi)
        return (math.sqrt(s**2 + tolerance * t) - s) / math.sqrt(t)

    def optimum(self):
        n = self.y.size  # min beta'K beta + C 1'xi  subject to  xi >= 1 - K beta - b y, xi >= 0
        eye = sp.eye_array(n)
        rows = sp.block_array([[-self.K, -self.y[:, None], -eye], [sp.csr_array((n, n)), sp.csr_array((n, 1)), -eye]])
        hessian = sp.block_diag([2.0 * self.K, sp.csr_array((n + 1, n + 1))])
        linear = np.r_[np.zeros(n + 1), np.full(n, self.cost)]
        return quadratic_program(hessian, linear, rows, np.r_[-np.ones(n), np.zeros(n)])


def quadratic_program(hessian, linear, rows, limits):
    """Minimum of ``x'Px/2 + q'x`` subject to ``rows x <= limits``, by Clarabel."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-11
    upper = sp.triu(hessian, format="csc")
    cone = [clarabel.NonnegativeConeT(limits.size)]
    solution = clarabel.DefaultSolver(upper, linear, sp.csc_array(rows), limits, cone, settings).solve()
    assert solution.status == clarabel.SolverStatus.Solved
    return solution.obj_val


def minimizer_of_bound(f, sigma, start):
    """argmin E over the mean, by a trust region on the derivatives of `vo.bound`, with sigma falling to its value."""
    mean = np.asarray(start, dtype=float)
    for width in np.geomspace(max(10.0 * sigma, 1.0), sigma, 12):

        def E(mean, width=width):
            return vo.bound(f, vo.Gaussian(mean, width))

        mean = minimize(
            lambda mean, E=E: (E(mean).value, E(mean).gradient["mean"]),
            mean,
            jac=True,
            hess=lambda mean, E=E: E(mean).hessian(),
            method="trust-exact",
            options={"gtol": 1e-9, "maxiter": 300},
        ).x
    gradient = vo.bound(f, vo.Gaussian(mean, sigma)).gradient["mean"]
    assert np.linalg.norm(gradient) <= 1e-5 * (1.0 + abs(f(mean)))
    return mean


def slope(function, x, step=1e-6):
    """Central differences of a scalar function of a vector."""
    return np.array([(function(x + step * e) - function(x - step * e)) / (2.0 * step) for e in np.eye(x.size)])


def bend(function, x, step=1e-3):
    """Second differences of a scalar function of a vector: exact, up to rounding, inside one quadratic piece."""
    eye = step * np.eye(x.size)

    def mixed(i, j):
        signs = itertools.product((1.0, -1.0), repeat=2)
        return sum(a * b * function(x + a * eye[i] + b * eye[j]) for a, b in signs) / (4.0 * step**2)

    return np.array([[mixed(i, j) for j in range(x.size)] for i in range(x.size)])


# Section 1.1: the bound is differentiable where the objective is not ------------------------------------------------


def test_step_example_has_the_normal_density_as_its_derivative():
    x = vo.Variable(name="x")
    f = vo.step(x)
    assert f(-1e-300) == 0.0
    assert f(0.0) == 1.0
    for theta in (-3.0, -0.4, 0.0, 1.0, 6.0):
        E = vo.bound(f, vo.Gaussian([theta], 1.0))
        printed = math.exp(-(theta**2) / 2.0) / math.sqrt(2.0 * math.pi)
        np.testing.assert_allclose(E.gradient["mean"], printed, rtol=1e-14)
        assert 0.0 <= E.value <= 1.0  # between the optima of f
        measured = slope(lambda mean: vo.bound(f, vo.Gaussian(mean, 1.0)).value, np.array([theta]))
        np.testing.assert_allclose(measured, E.gradient["mean"], rtol=1e-8, atol=1e-10)


# Section 1.2: Theorem 1 ---------------------------------------------------------------------------------------------


def random_convex(rng, w):
    """A random sum of convex terms, quadratics and norms of affine maps of w."""
    d = w.size

    def rows(n=4):
        return rng.standard_normal((n, d)) @ w + rng.standard_normal(n)

    root = rng.standard_normal((d, d))
    choices = [
        lambda: vo.quad_form(w, root.T @ root),
        lambda: vo.sum_squares(rows()),
        lambda: vo.norm1(rows()),
        lambda: vo.norm1(vo.diff(w)),
        lambda: vo.sum(vo.hinge(rows())),
        lambda: vo.sum(vo.squared_hinge(rows())),
        lambda: vo.sum(vo.pinball(rows(), rng.uniform(0.05, 0.95, 4))),
        lambda: vo.sum(vo.epsilon_insensitive(rows(), 0.3)),
        lambda: vo.sum(vo.huber(rows(), 0.7)),
        lambda: vo.sum(vo.piecewise(rows(), knots=[-1.0, 0.5], pieces=[[-1.0, -1.0], [0.0], [0.25, -1.0, 1.0]])),
        lambda: vo.sum(rng.standard_normal(d) @ w),
    ]
    chosen = rng.choice(len(choices), size=4, replace=False)
    return sum((rng.uniform(0.1, 3.0) * choices[k]() for k in chosen), 0.0)


def random_gaussian(rng, d):
    factor = np.tril(rng.standard_normal((d, d)), -1) + np.diag(rng.uniform(0.01, 2.0, d))
    return rng.standard_normal(d), factor


def assert_convex_between(E, first, second, weight):
    """E at the weighted average of two parameter vectors is at most the weighted average of E."""
    between = tuple(weight * a + (1.0 - weight) * b for a, b in zip(first, second, strict=True))
    chord = weight * E(*first) + (1.0 - weight) * E(*second)
    assert E(*between) <= chord + 1e-11 * (1.0 + abs(chord))


def test_theorem_1_bound_of_a_convex_objective_is_convex_in_mean_and_cholesky_factor_jointly(rng):
    for _ in range(25):
        w = vo.Variable(3)
        f = random_convex(rng, w)
        assert f.curvature.is_convex
        assert vo.bound(f, vo.Gaussian(*random_gaussian(rng, 3))).convex

        def E(mean, factor, f=f):
            return vo.bound(f, vo.Gaussian(mean, factor)).value

        for weight in (0.5, *rng.uniform(0.0, 1.0, 3)):
            assert_convex_between(E, random_gaussian(rng, 3), random_gaussian(rng, 3), weight)


@pytest.mark.parametrize("name", [name for name, term in vo.terms.REGISTRY.items() if term.build().curvature.is_convex])
def test_theorem_1_holds_for_every_convex_term_that_is_declared(name, rng):
    w = vo.Variable(2)
    f = vo.sum(getattr(vo, name)(rng.standard_normal((5, 2)) @ w + rng.standard_normal(5)))
    for _ in range(10):
        assert_convex_between(
            lambda mean, factor: vo.bound(f, vo.Gaussian(mean, factor)).value,
            random_gaussian(rng, 2),
            random_gaussian(rng, 2),
            0.5,
        )


def test_theorem_1_holds_for_the_group_norm(rng):
    w = vo.Variable(4)
    f = vo.norm2(w, groups=2) + vo.norm2(w)
    for _ in range(20):
        ends = [(rng.standard_normal(4), np.asarray(rng.uniform(0.01, 2.0))) for _ in range(2)]
        assert_convex_between(lambda mean, sigma: vo.bound(f, vo.Gaussian(mean, sigma)).value, *ends, 0.5)
    v = vo.Variable(2)
    g = vo.norm2(v) + vo.norm1(v)
    assert_convex_between(  # under a full Cholesky factor there is no closed form, and quadrature takes over
        lambda mean, factor: vo.bound(g, vo.Gaussian(mean, factor), method="quadrature").value,
        random_gaussian(rng, 2),
        random_gaussian(rng, 2),
        0.5,
    )


@pytest.mark.parametrize("family", [vo.Uniform, vo.Laplace, vo.Logistic])
def test_theorem_1_holds_for_other_expectation_affine_families(family, rng):
    w = vo.Variable(3)
    kinks = vo.piecewise(w, knots=[-1.0, 0.0, 0.3], pieces=[[-2.0, -2.0], [0.0], [0.0, 1.0], [-0.3, 2.0]])
    f = vo.sum(kinks) + vo.sum_squares(rng.standard_normal((4, 3)) @ w)

    def E(mean, scale):
        bound = vo.bound(f, family(mean, scale), method="quadrature", nodes=16)
        assert bound.convex
        return bound.value

    for _ in range(5):
        assert_convex_between(E, *((rng.standard_normal(3), rng.uniform(0.01, 2.0, 3)) for _ in range(2)), 0.5)


def test_theorem_1_mirrored_a_concave_objective_has_a_concave_bound(rng):
    w = vo.Variable(3)
    f = -random_convex(rng, w)
    assert f.curvature.is_concave
    for _ in range(10):
        assert_convex_between(
            lambda mean, factor: -vo.bound(f, vo.Gaussian(mean, factor)).value,
            random_gaussian(rng, 3),
            random_gaussian(rng, 3),
            0.5,
        )


def test_convexity_is_in_the_cholesky_factor_and_not_in_the_covariance():
    x = vo.Variable()

    def E(variance):
        return vo.bound(vo.abs(x), vo.Gaussian([0.0], math.sqrt(variance))).value

    assert E(0.5 * (0.01 + 1.0)) > 0.5 * (E(0.01) + E(1.0)) + 0.1  # sigma sqrt(2/pi) is concave in sigma^2


def test_without_convexity_of_the_objective_the_bound_is_not_convex():
    x = vo.Variable(name="x")
    f = vo.capped_abs(x, 1.0)

    def E(mean):
        return vo.bound(f, vo.Gaussian([mean], 0.1)).value

    assert E(1.0) > 0.5 * (E(0.0) + E(2.0)) + 0.1
    verdict = vo.bound(f, vo.Gaussian([1.0], 0.1)).convex
    assert not verdict
    assert "explain" in verdict.reason


def test_without_an_expectation_affine_family_the_bound_of_a_convex_objective_is_not_convex():
    x = vo.Binary(2)
    f = vo.sum_squares(np.ones((1, 2)) @ x - 1.0)
    assert f.curvature.is_convex

    def E(*theta):
        return vo.bound(f, vo.Bernoulli(theta)).value

    assert (E(1.0, 0.0), E(0.0, 1.0)) == (0.0, 0.0)
    assert E(0.5, 0.5) == pytest.approx(0.5)  # above the chord
    verdict = vo.bound(f, vo.Bernoulli([0.5, 0.5])).convex
    assert not verdict
    assert "expectation affine" in verdict.reason


# Section 2: lasso ---------------------------------------------------------------------------------------------------


def mean_abs(mu, sigma):
    """``<|w|>`` as printed."""
    return mu * (1.0 - 2.0 * ndtr(-mu / sigma)) + 2.0 * sigma / ROOT_2PI * np.exp(-(mu**2) / (2.0 * sigma**2))


def test_lasso_bound_gradient_and_hessian_are_as_printed(rng):
    p = Lasso(rng, d=6)
    for sigma in (np.full(6, 0.3), rng.uniform(0.01, 2.0, 6), random_gaussian(rng, 6)[1]):
        covariance = np.diag(sigma**2) if sigma.ndim == 1 else sigma @ sigma.T
        sd = np.sqrt(np.diag(covariance))
        mu = 2.0 * rng.standard_normal(6)
        E = vo.bound(p.f, vo.Gaussian(mu, sigma))
        smooth = mu @ p.b + mu @ p.A @ mu + np.trace(p.A @ covariance) + p.lam * np.sum(mean_abs(mu, sd))
        gradient = p.b + 2.0 * p.A @ mu + p.lam * (1.0 - 2.0 * ndtr(-mu / sd))
        hessian = 2.0 * p.A + np.diag(2.0 * p.lam / np.sqrt(2.0 * np.pi * sd**2) * np.exp(-(mu**2) / (2.0 * sd**2)))
        assert E.value == pytest.approx(p.c + smooth, rel=1e-13)
        np.testing.assert_allclose(E.gradient["mean"], gradient, rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(E.hessian(), hessian, rtol=1e-12)
        np.testing.assert_allclose(E.hessian("diagonal"), np.diag(hessian), rtol=1e-12)
        gap = np.trace(p.A @ covariance) + p.lam * np.sum(mean_abs(mu, sd) - np.abs(mu))
        assert E.gap == pytest.approx(gap, rel=1e-9)
        assert E.value >= p.optimum()


def test_lasso_bound_is_the_same_from_data_and_from_c_b_and_A(rng):
    p = Lasso(rng, d=5)
    g = p.c + p.b @ p.w + vo.quad_form(p.w, p.A) + p.lam * vo.norm1(p.w)
    family = vo.Gaussian(rng.standard_normal(5), random_gaussian(rng, 5)[1])
    assert vo.bound(p.f, family).value == pytest.approx(vo.bound(g, family).value, rel=1e-12)


def test_lasso_gap_is_largest_at_zero_and_as_printed(rng):
    p = Lasso(rng, d=6)
    sigma = rng.uniform(0.01, 2.0, 6)
    largest = np.trace(p.A @ np.diag(sigma**2)) + 2.0 * p.lam / ROOT_2PI * np.sum(sigma)
    at_zero = vo.bound(p.f, vo.Gaussian(np.zeros(6), sigma))
    assert at_zero.max_gap == pytest.approx(largest, rel=1e-13)
    assert at_zero.gap == pytest.approx(largest, rel=1e-13)
    for _ in range(20):
        assert vo.bound(p.f, vo.Gaussian(sigma * rng.standard_normal(6), sigma)).gap <= largest


def test_lasso_figure_1_bound_moves_the_optimum_off_zero_for_b_minus_1_and_hardly_for_b_minus_7():
    w = vo.Variable(1)
    found = {}
    for b in (-1.0, -7.0):
        f = 2.0 * vo.sum_squares(w) + b * vo.sum(w) + 4.0 * vo.norm1(w)
        found[b] = brentq(lambda m, f=f: vo.bound(f, vo.Gaussian([m], 0.1)).gradient["mean"][0], -5.0, 5.0)
    assert 0.0 < found[-1.0] < 0.1
    assert found[-7.0] == pytest.approx(0.75, abs=1e-8)  # (7 - lambda) / (2 A)


def test_fused_lasso_extra_terms_are_as_printed(rng):
    w = vo.Variable(7)
    mu, sigma, lam = rng.standard_normal(7), 0.4, 200.0
    E = vo.bound(lam * vo.norm1(vo.diff(w)), vo.Gaussian(mu, sigma))
    d = mu[1:] - mu[:-1]
    kink = d * (1.0 - 2.0 * ndtr(-d / (math.sqrt(2.0) * sigma)))
    terms = kink + 2.0 * sigma / math.sqrt(math.pi) * np.exp(-(d**2) / (4.0 * sigma**2))
    assert E.value == pytest.approx(lam * terms.sum(), rel=1e-13)
    difference = np.diff(np.eye(7), axis=0)
    first = lam * (1.0 - 2.0 * ndtr(-d / (math.sqrt(2.0) * sigma)))
    second = lam / (math.sqrt(math.pi) * sigma) * np.exp(-(d**2) / (4.0 * sigma**2))
    np.testing.assert_allclose(E.gradient["mean"], difference.T @ first, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(E.hessian(), difference.T @ np.diag(second) @ difference, rtol=1e-12, atol=1e-12)


# Section 3: support vector machine ----------------------------------------------------------------------------------


def test_svm_bound_gradient_and_gap_are_the_corrected_formulas(rng):
    p = KernelMachine(rng)
    n, y, K, C = p.y.size, p.y, p.K, p.cost
    for sigma in (0.02, 0.3):
        beta, b = 0.3 * rng.standard_normal(n), rng.standard_normal()
        E = vo.bound(p.f, vo.Gaussian(np.r_[beta, b], sigma))
        nu, s = p.nu(beta, b), sigma * p.spread
        assert p.f(np.r_[beta, b]) == pytest.approx(p.value(beta, b), rel=1e-13)
        assert E.value == pytest.approx(p.bound(beta, b, sigma), rel=1e-13)
        gradient = np.r_[2.0 * K @ beta - C * K @ ndtr(nu / s), -C * y @ ndtr(nu / s)]
        np.testing.assert_allclose(E.gradient["mean"], gradient, rtol=1e-11, atol=1e-11)
        weights = C * np.exp(-0.5 * (nu / s) ** 2) / (ROOT_2PI * s)
        rows = np.column_stack([K, y])
        hessian = rows.T @ (weights[:, None] * rows)
        hessian[:n, :n] += 2.0 * K
        np.testing.assert_allclose(E.hessian(), hessian, rtol=1e-10, atol=1e-10)
        assert E.gap == pytest.approx(E.value - p.value(beta, b), rel=1e-8)
        assert E.value >= p.optimum()


def test_svm_largest_gap_is_as_printed(rng):
    p = KernelMachine(rng)
    sigma = 0.3
    largest = np.trace(sigma**2 * p.K) + p.cost * np.sum(sigma * p.spread / ROOT_2PI)
    for _ in range(20):
        E = vo.bound(p.f, vo.Gaussian(0.3 * rng.standard_normal(p.y.size + 1), sigma))
        assert E.max_gap == pytest.approx(largest, rel=1e-13)
        assert E.gap <= largest


def test_svm_primal_and_kernelised_objectives_agree(rng):
    X, y, C = rng.standard_normal((8, 3)), np.where(np.arange(8) % 2, 1.0, -1.0), 1.5
    w, beta, b = vo.Variable(3), vo.Variable(8), vo.Variable()
    primal = vo.sum_squares(w) + C * vo.sum(vo.hinge(y * (X @ w + b)))
    K = np.outer(y, y) * (X @ X.T)
    kernelised = vo.quad_form(beta, K) + C * vo.sum(vo.hinge(K @ beta + b * y))
    at = rng.standard_normal(8)
    assert primal({w: X.T @ (at * y), b: 0.7}) == pytest.approx(kernelised({beta: at, b: 0.7}), rel=1e-12)


# What the paper misprints -------------------------------------------------------------------------------------------


def test_printed_sigma_on_the_paper_lasso_allows_158_times_the_tolerance_and_the_corrected_one_just_it(rng):
    p = Lasso(rng, d=50)
    printed, corrected = p.printed_sigma(1.0), vo.sigma_for(p.f, 1.0)
    assert printed / corrected == pytest.approx(math.sqrt(np.trace(p.A)), rel=1e-6)  # 158 in expectation
    gaps = [vo.bound(p.f, vo.Gaussian(np.zeros(50), sigma)).gap for sigma in (printed, corrected)]
    assert gaps[0] > 150.0
    assert gaps[1] == pytest.approx(1.0, rel=1e-12)


def test_printed_sigma_breaks_the_guarantee_on_a_lasso_and_the_corrected_one_keeps_it(rng):
    p = Lasso(rng, d=6, n=60, lam=40.0)
    for tolerance in (0.1, 1.0):
        optimum = p.optimum()
        kept = minimizer_of_bound(p.f, vo.sigma_for(p.f, tolerance), np.zeros(6))
        broken = minimizer_of_bound(p.f, p.printed_sigma(tolerance), np.zeros(6))
        assert p.f(kept) <= optimum + tolerance
        assert vo.bound(p.f, vo.Gaussian(kept, vo.sigma_for(p.f, tolerance))).value <= optimum + tolerance
        assert p.f(broken) > optimum + tolerance
        assert vo.bound(p.f, vo.Gaussian(broken, p.printed_sigma(tolerance))).value > optimum + tolerance


def test_printed_sigma_breaks_the_guarantee_on_one_coefficient_and_the_corrected_one_keeps_it():
    A, lam, tolerance = 1e4, 300.0, 1.0  # f = A w^2 - lambda w + lambda |w| has its minimum, 0, at 0
    w = vo.Variable(1)
    f = A * vo.sum_squares(w) - lam * vo.sum(w) + lam * vo.norm1(w)
    corrected = (math.sqrt(lam**2 / (2.0 * math.pi) + tolerance * A) - lam / ROOT_2PI) / A
    assert vo.sigma_for(f, tolerance) == pytest.approx(corrected, rel=1e-13)
    reached = []
    for sigma in (corrected, corrected * math.sqrt(A)):  # the second is printed

        def gradient(m, sigma=sigma):
            return vo.bound(f, vo.Gaussian([m], sigma)).gradient["mean"][0]

        reached.append(f([brentq(gradient, -1.0, 1.0, xtol=1e-14)]))
    assert reached[0] <= tolerance
    assert reached[1] > 2.0 * tolerance


def test_printed_sigma_breaks_the_guarantee_on_a_support_vector_machine_and_the_corrected_one_keeps_it(rng):
    p = KernelMachine(rng, n=8, cost=2.0, scale=4.0)
    tolerance, optimum, start = 0.5, p.optimum(), np.zeros(p.y.size + 1)
    corrected = vo.sigma_for(p.f, tolerance)
    assert corrected == pytest.approx(p.printed_sigma(tolerance) / math.sqrt(np.trace(p.K)), rel=1e-9)
    kept = minimizer_of_bound(p.f, corrected, start)
    broken = minimizer_of_bound(p.f, p.printed_sigma(tolerance), start)
    assert p.f(kept) <= optimum + tolerance
    assert p.f(broken) > optimum + tolerance
    assert vo.bound(p.f, vo.Gaussian(kept, corrected)).max_gap == pytest.approx(tolerance, rel=1e-12)
    assert vo.bound(p.f, vo.Gaussian(broken, p.printed_sigma(tolerance))).max_gap > 5.0 * tolerance


def test_nu_of_the_support_vector_machine_has_the_offset_with_a_minus_sign(rng):
    p = KernelMachine(rng)
    beta, b, sigma = 0.3 * rng.standard_normal(p.y.size), 1.3, 0.2
    draws = np.r_[beta, b] + sigma * rng.standard_normal((200_000, p.y.size + 1))
    hinges = np.maximum(1.0 - draws[:, :-1] @ p.K - draws[:, -1:] * p.y, 0.0).sum(axis=1)
    values = np.einsum("ni,ij,nj->n", draws[:, :-1], p.K, draws[:, :-1]) + p.cost * hinges
    error = values.std() / math.sqrt(values.size)
    right = p.bound(beta, b, sigma)
    printed = p.bound(beta, b, sigma, nu=1.0 - p.K @ beta + b * p.y)
    assert abs(values.mean() - right) < 5.0 * error
    assert abs(values.mean() - printed) > 100.0 * error
    assert vo.bound(p.f, vo.Gaussian(np.r_[beta, b], sigma)).value == pytest.approx(right, rel=1e-13)


def test_gradients_of_the_support_vector_machine_do_not_divide_by_varsigma(rng):
    p = KernelMachine(rng)
    n, sigma = p.y.size, 0.2
    at = np.r_[0.3 * rng.standard_normal(n), 0.4]
    measured = slope(lambda x: p.bound(x[:n], x[n], sigma), at)
    nu, s = p.nu(at[:n], at[n]), sigma * p.spread
    right = np.r_[2.0 * p.K @ at[:n] - p.cost * p.K @ ndtr(nu / s), -p.cost * p.y @ ndtr(nu / s)]
    printed = np.r_[2.0 * p.K @ at[:n] - p.cost * (p.K / s) @ ndtr(nu / s), -p.cost * (p.y / s) @ ndtr(nu / s)]
    np.testing.assert_allclose(measured, right, atol=1e-7)
    assert np.min(np.abs(measured - printed)) > 0.1
    np.testing.assert_allclose(vo.bound(p.f, vo.Gaussian(at, sigma)).gradient["mean"], right, atol=1e-11)


def test_slack_is_one_minus_the_margin_and_its_constraint_has_no_factor_C(rng):
    X, y, C = rng.standard_normal((9, 2)), np.where(np.arange(9) % 2, 1.0, -1.0), 3.0
    w, b = vo.Variable(2), vo.Variable()
    f = vo.sum_squares(w) + C * vo.sum(vo.hinge(y * (X @ w + b)))
    at, offset = rng.standard_normal(2), 0.2
    margin = y * (X @ at + offset)

    def least(factor):  # min C sum xi  subject to  margin >= 1 - factor xi, xi >= 0
        program = linprog(np.full(9, C), A_ub=-factor * np.eye(9), b_ub=margin - 1.0, bounds=(0.0, None))
        return program.x, at @ at + program.fun

    slack, value = least(1.0)
    np.testing.assert_allclose(slack, np.maximum(1.0 - margin, 0.0), atol=1e-9)
    assert f({w: at, b: offset}) == pytest.approx(value, rel=1e-9)
    printed = np.maximum(margin - 1.0, 0.0)
    assert np.any(margin < 1.0 - printed - 0.1)  # it does not satisfy the constraint it stands for
    assert abs(at @ at + C * printed.sum() - value) > 0.1
    assert abs(least(C)[1] - value) > 0.1  # the printed constraint takes the cost C away again


def huber_pieces(h, *, printed):
    """Chapelle's loss, its middle piece ``(1 + h xi)^2 / 4h`` as printed or ``(h + xi)^2 / 4h`` as it should be."""
    middle = [1.0 / (4.0 * h), 0.5, h / 4.0] if printed else [h / 4.0, 0.5, 1.0 / (4.0 * h)]
    return [[0.0], middle, [0.0, 1.0]]


@pytest.mark.parametrize("h", [0.01, 0.5, 10.0])
def test_huber_loss_is_continuous_with_h_plus_xi_and_jumps_as_printed(h):
    right = vo.terms.piecewise([-h, h], huber_pieces(h, printed=False))
    printed = vo.terms.piecewise([-h, h], huber_pieces(h, printed=True))
    assert right.is_continuous
    assert right.curvature is vo.CONVEX
    assert not printed.is_continuous
    xi = np.linspace(-3.0 * h, 3.0 * h, 61)
    assert np.all(right.value(xi) >= np.maximum(xi, 0.0) - 1e-12)  # an upper bound on the hinge
    assert right.value(0.0) == pytest.approx(h / 4.0)  # its largest gap, tighter for smaller h
    near = h * (1.0 - 1e-12)
    assert abs(right.value(near) - h) < 1e-9 * h
    assert abs(printed.value(near) - h) > 0.1 * h
    np.testing.assert_allclose(right.derivative(np.array([-near, near])), [0.0, 1.0], atol=1e-11)


def test_chapelle_hessian_has_labels_in_its_border_and_C_over_2h_for_its_factor(rng):
    p = KernelMachine(rng, n=12)
    n, y, K, C, h = 12, p.y, p.K, p.cost, 0.66
    loss = vo.terms.piecewise([-h, h], huber_pieces(h, printed=False))

    def chapelle(x):  # in the paper's order: b first
        return x[1:] @ K @ x[1:] + C * np.sum(loss.value(p.nu(x[1:], x[0])))

    at = np.r_[0.425, 0.1 * rng.uniform(-0.2, 1.0, n)]
    nu = p.nu(at[1:], at[0])
    assert np.min(np.abs(np.abs(nu) - h)) > 0.01  # no point so close to a knot that the differences cross it
    inside = (np.abs(nu) < h).astype(float)
    assert np.any(inside * (y < 0.0))
    assert np.any(inside * (y > 0.0))
    assert not np.all(inside)
    measured = bend(chapelle, at)

    def blocks(factor, border, q):
        row = border @ (q[:, None] * K)
        return factor * np.block([[q.sum(), row], [row[:, None], K @ (q[:, None] * K)]])

    quadratic = np.block([[np.zeros((1, 1)), np.zeros((1, n))], [np.zeros((n, 1)), 2.0 * K]])
    scale = np.abs(measured).max()
    np.testing.assert_allclose(measured, quadratic + blocks(C / (2.0 * h), y, inside), atol=1e-8 * scale)
    printed = quadratic + blocks(2.0 * C, np.ones(n), inside)
    without_labels = quadratic + blocks(C / (2.0 * h), np.ones(n), inside)
    printed_indicator = (np.abs(1.0 - K @ at[1:] + at[0] * y) < h).astype(float)
    assert np.abs(measured - printed).max() > 0.1 * scale
    assert np.abs(measured - without_labels)[0, 1:].max() > 0.1
    assert np.any(inside != printed_indicator)  # "+ b y" is misprinted there as in nu

    # The generic machinery on the same loss: where no knot is within reach, the bound has the Hessian of the objective.
    generic = vo.quad_form(p.beta, K) + C * vo.sum(
        vo.piecewise(1.0 - K @ p.beta - p.b * y, knots=[-h, h], pieces=huber_pieces(h, printed=False))
    )
    assert generic.curvature.is_convex
    hessian = vo.bound(generic, vo.Gaussian(np.r_[at[1:], at[0]], 1e-5)).hessian()
    order = np.r_[n, :n]
    np.testing.assert_allclose(hessian[np.ix_(order, order)], measured, atol=1e-8 * scale)


def test_kernel_objective_is_continuous_and_only_its_gradient_jumps(rng):
    p = KernelMachine(rng)
    n = p.y.size
    assert vo.terms.hinge().is_continuous
    direction = rng.standard_normal(n + 1)
    start = 0.3 * rng.standard_normal(n + 1)
    rates = p.K @ direction[:n] + direction[n] * p.y
    times = np.sort(p.nu(start[:n], start[n]) / rates)  # where nu_n = 0 along the line: the kinks
    slopes = []
    for t in times:
        across = [p.f(start + (t + side) * direction) for side in (-1e-9, 1e-9)]
        assert abs(across[1] - across[0]) < 1e-6
        left, right = ((p.f(start + (t + s) * direction) - p.f(start + t * direction)) / s for s in (-1e-6, 1e-6))
        slopes.append(right - left)
    assert min(slopes) > 0.01  # the slope along the line rises at each of them


# Section 4: relations to other methods ------------------------------------------------------------------------------


def test_binary_quadratic_bound_is_one_line_and_as_printed(rng):
    A, b, theta = rng.standard_normal((6, 6)), rng.standard_normal(6), rng.uniform(0.0, 1.0, 6)
    x = vo.Binary(6)
    E = vo.bound(vo.quad_form(x, A) + b @ x, vo.Bernoulli(theta))
    pairs = sum(A[i, j] * theta[i] * theta[j] for i in range(6) for j in range(6) if i != j)
    assert E.value == pytest.approx(pairs + (b + np.diag(A)) @ theta, rel=1e-13)
    states = np.array(list(itertools.product((0.0, 1.0), repeat=6)))
    weights = np.prod(np.where(states == 1.0, theta, 1.0 - theta), axis=1)
    values = np.einsum("si,ij,sj->s", states, A, states) + states @ b
    assert E.value == pytest.approx(weights @ values, rel=1e-12)


def test_variational_bound_and_relaxation_bracket_a_binary_programme(rng):
    n = 8
    A, b = rng.standard_normal((n, n)), rng.standard_normal(n)
    A = 0.5 * (A + A.T)
    x = vo.Binary(n)
    f = vo.quad_form(x, A) + b @ x
    states = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
    best = max(f(s) for s in states)

    # x_i^2 = x_i: a shift of the diagonal changes nothing on the bits and makes the objective concave on the box.
    shift = np.linalg.eigvalsh(A)[-1] + 0.1
    Q, c = A - shift * np.eye(n), b + shift

    def relaxed(z):
        return z @ Q @ z + c @ z

    z = minimize(lambda z: -relaxed(z), np.full(n, 0.5), jac=lambda z: -2.0 * Q @ z - c, bounds=[(0.0, 1.0)] * n).x
    # A concave function lies below its tangents: a bound on the relaxation that needs no exact maximiser.
    box = relaxed(z) + np.sum(np.maximum((2.0 * Q @ z + c) * (1.0 - z), (2.0 * Q @ z + c) * (0.0 - z)))

    # Or the sphere: x = (1 + s)/2 with signs s, and one more sign for the linear part: s'Ms <= (n + 1) lambda_max.
    linear = 0.5 * A @ np.ones(n) + 0.5 * b
    M = np.block([[np.zeros((1, 1)), 0.5 * linear[None, :]], [0.5 * linear[:, None], 0.25 * A]])
    sphere = 0.25 * A.sum() + 0.5 * b.sum() + (n + 1) * np.linalg.eigvalsh(M)[-1]

    assert best <= box
    assert best <= sphere
    for _ in range(50):
        assert vo.bound(f, vo.Bernoulli(rng.uniform(0.0, 1.0, n))).value <= best
    tight = vo.bound(f, vo.Bernoulli(states[np.argmax([f(s) for s in states])])).value
    assert tight == pytest.approx(best, rel=1e-12)  # all mass on the optimal state
    assert relaxed(np.full(n, 0.01)) < best  # the relaxation bounds only at its maximum, VO at every theta


def test_free_energy_of_a_gaussian_with_fixed_covariance_is_the_variational_bound_up_to_a_constant(rng):
    d, inverse_temperature = 3, 2.5
    w = vo.Variable(d)
    f = -random_convex(rng, w)  # to be maximised
    factor = random_gaussian(rng, d)[1]

    def free_energy(mean):  # <log p> - beta <f>
        p = vo.Gaussian(mean, factor)
        return -p.entropy() - inverse_temperature * vo.bound(f, p).value

    means = rng.standard_normal((5, d))
    constants = [free_energy(m) + inverse_temperature * vo.bound(f, vo.Gaussian(m, factor)).value for m in means]
    np.testing.assert_allclose(constants, constants[0], rtol=1e-12)
    gradient = vo.bound(f, vo.Gaussian(means[0], factor)).gradient["mean"]
    np.testing.assert_allclose(slope(free_energy, means[0]), -inverse_temperature * gradient, rtol=1e-6, atol=1e-6)


def test_free_energy_is_the_divergence_from_the_boltzmann_distribution_up_to_log_z():
    inverse_temperature = 1.7
    x = vo.Variable(1)
    f = -vo.sum_squares(x) - vo.norm1(x - 1.0)
    log_z = math.log(quad(lambda v: math.exp(inverse_temperature * f([v])), -20.0, 20.0, points=[1.0])[0])
    for mean, sigma in ((0.3, 0.5), (-1.0, 1.2)):
        p = vo.Gaussian([mean], sigma)
        entropic = vo.bound(lambda v, p=p: float(p.log_density(v)), p, method="quadrature").value  # <log p>
        assert entropic == pytest.approx(-p.entropy(), rel=1e-9)
        free_energy = entropic - inverse_temperature * vo.bound(f, p).value
        assert free_energy >= -log_z

        def integrand(v, p=p):
            log_p = float(p.log_density([v]))
            return math.exp(log_p) * (log_p - inverse_temperature * f([v]) + log_z)

        divergence = quad(integrand, mean - 12.0 * sigma, mean + 12.0 * sigma, points=[1.0])[0]
        assert free_energy + log_z == pytest.approx(divergence, rel=1e-7)


def test_free_energy_and_variational_bound_differ_once_the_covariance_is_free():
    x = vo.Variable(1)
    f = -vo.sum_squares(x)  # maximised: E = -mean^2 - sigma^2 by sigma to 0, the free energy by sigma^2 = 1/(2 beta)
    sigmas = np.linspace(0.05, 2.0, 400)
    bounds = [vo.bound(f, vo.Gaussian([0.0], s)).value for s in sigmas]
    energies = [-vo.Gaussian([0.0], s).entropy() - vo.bound(f, vo.Gaussian([0.0], s)).value for s in sigmas]
    assert sigmas[np.argmax(bounds)] == sigmas[0]
    assert sigmas[np.argmin(energies)] == pytest.approx(math.sqrt(0.5), abs=0.01)


def test_sampled_variational_optimisation_is_an_estimation_of_distribution_algorithm(rng):
    x = vo.Binary(5)
    f = vo.quad_form(x, rng.standard_normal((5, 5)))
    theta = rng.uniform(0.2, 0.8, 5)
    exact = vo.bound(f, vo.Bernoulli(theta))
    sampled = vo.bound(f, vo.Bernoulli(theta), method="sampled", samples=1 << 14, seed=7)
    assert abs(sampled.value - exact.value) < 5.0 * sampled.standard_error
    # The natural gradient is Berny's update, theta += eta <(f - baseline)(x - theta)>: PBIL's, with weights f.
    draws = vo.Bernoulli(theta).sample(1 << 16, seed=rng)
    values = np.array([f(s) for s in np.unique(draws, axis=0)])
    index = np.unique(draws, axis=0, return_inverse=True)[1].ravel()
    berny = np.mean((values[index] - values[index].mean())[:, None] * (draws - theta), axis=0)
    natural = vo.Bernoulli(theta).natural_gradient({"probability": exact.gradient["probability"]})["probability"]
    np.testing.assert_allclose(natural, berny, atol=0.05)
