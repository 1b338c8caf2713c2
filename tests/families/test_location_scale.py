"""Location-scale families: their noise, reparameterisation, equivariance, references and extremes."""

import mpmath
import numpy as np
import pytest
import scipy.stats

from varopt.families import REGISTRY, Gaussian, Laplace, LocationScale, Logistic, Uniform

KINDS = [Gaussian, Laplace, Logistic, Uniform]
REFERENCE = {
    Gaussian: scipy.stats.norm(),
    Laplace: scipy.stats.laplace(),
    Logistic: scipy.stats.logistic(),
    Uniform: scipy.stats.uniform(-1.0, 2.0),
}
DENSITY = {
    Gaussian: mpmath.npdf,
    Laplace: lambda z: mpmath.exp(-abs(z)) / 2,
    Logistic: lambda z: mpmath.sech(z / 2) ** 2 / 4,
    Uniform: lambda z: mpmath.mpf(0.5),
}
NAMES = [name for name, build in REGISTRY.items() if isinstance(build(1, np.random.default_rng(0)), LocationScale)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.fixture(params=NAMES)
def family(request, rng):
    return REGISTRY[request.param](3, rng)


def mp_expectation(kind, g):
    low, high = (max(-2000, kind.noise_support[0]), min(2000, kind.noise_support[1]))
    points = [p for p in (-2000, -100, -10, -1, 0, 1, 10, 100, 2000) if low <= p <= high]
    return float(mpmath.quad(lambda z: DENSITY[kind](z) * g(z), points))


# The law of the noise ---------------------------------------------------------------------------------------------


def test_noise_matches_scipy(kind):
    reference = REFERENCE[kind]
    z = np.linspace(-0.99, 0.99, 41) if kind is Uniform else np.linspace(-30.0, 30.0, 121)
    np.testing.assert_allclose(kind.noise_log_density(z), reference.logpdf(z), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(kind.noise_density(z), reference.pdf(z), rtol=1e-12)
    np.testing.assert_allclose(kind.noise_cdf(z), reference.cdf(z), rtol=1e-12)
    u = np.array([1e-15, 1e-3, 0.2, 0.5, 0.7, 0.999])
    np.testing.assert_allclose(kind.noise_quantile(u), reference.ppf(u), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(kind.noise_cdf(kind.noise_quantile(u)), u, rtol=1e-13, atol=1e-18)
    assert kind.noise_density(0.0) == pytest.approx(reference.pdf(0.0))
    np.testing.assert_array_equal(kind.noise_cdf(np.array(kind.noise_support)), [0.0, 1.0])


def test_noise_constants_against_mpmath(kind):
    assert kind.noise_variance == pytest.approx(mp_expectation(kind, lambda z: z**2), rel=1e-14)
    assert kind.noise_entropy == pytest.approx(mp_expectation(kind, lambda z: -mpmath.log(DENSITY[kind](z))), rel=1e-14)
    if not kind.has_score:
        return
    slope = {Gaussian: lambda z: z, Laplace: mpmath.sign, Logistic: lambda z: mpmath.tanh(z / 2)}[kind]
    location, scale = kind.noise_information
    assert location == pytest.approx(mp_expectation(kind, lambda z: slope(z) ** 2), rel=1e-14)
    assert scale == pytest.approx(mp_expectation(kind, lambda z: (slope(z) * z - 1) ** 2), rel=1e-14)


@pytest.mark.parametrize("z", [0.0, 1e-300, 1e-9, 0.3, 5.0, 37.0, 700.0, 1e4, 1e150])
def test_log_density_of_the_noise_to_rounding(kind, z):
    if kind is Uniform and z > 1.0:
        assert kind.noise_log_density(np.array(z)) == -np.inf
        return
    with mpmath.workdps(50):
        # The logarithm of the logistic density by hand: at z = 1e150 the density itself is out of mpmath's reach.
        exact = {
            Gaussian: lambda: -(mpmath.mpf(z) ** 2) / 2 - mpmath.log(2 * mpmath.pi) / 2,
            Laplace: lambda: -mpmath.mpf(z) - mpmath.log(2),
            Logistic: lambda: -mpmath.mpf(z) - 2 * mpmath.log1p(mpmath.exp(-mpmath.mpf(z))),
            Uniform: lambda: -mpmath.log(2),
        }[kind]()
    for signed in (z, -z):
        assert float(kind.noise_log_density(np.array(signed))) == pytest.approx(float(exact), rel=4e-16)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_score])
def test_slope_is_minus_the_derivative_of_the_log_density(kind):
    z = np.array([-40.0, -3.0, -0.2, 0.1, 2.0, 40.0])
    difference = (kind.noise_log_density(z + 1e-6) - kind.noise_log_density(z - 1e-6)) / 2e-6
    np.testing.assert_allclose(kind.noise_score(z), -difference, rtol=1e-7, atol=1e-9)


def test_samples_follow_the_distribution_function(kind, rng):
    family = kind([2.0, -1.0], [0.5, 3.0])
    z = family.standardize(family.sample(5000, rng))
    for column in z.T:
        assert scipy.stats.kstest(column, REFERENCE[kind].cdf).pvalue > 1e-6


# x = mean + S z ---------------------------------------------------------------------------------------------------


def test_standardize_inverts_transform(family, rng):
    z = rng.uniform(-0.9, 0.9, (2, 4, 3))
    np.testing.assert_allclose(family.standardize(family.transform(z)), z, rtol=1e-10, atol=1e-11)
    u = rng.uniform(size=(5, 3))
    np.testing.assert_array_equal(family.from_uniform(u), family.transform(family.noise_from_uniform(u)))
    assert family.noise(4, rng).shape == (4, 3)


def test_pullback_is_the_derivative_through_transform(family, rng):
    z, weight = rng.uniform(-1.0, 1.0, (4, 3)), rng.standard_normal(3)

    def f(q):
        return np.sin(q.transform(z)) @ weight

    pulled = family.pullback(z, np.cos(family.transform(z)) * weight)
    assert list(pulled) == list(family.parameters)
    for name, value in family.parameters.items():
        assert pulled[name].shape == (4, *value.shape)
        lower = np.tril(np.ones(value.shape)) if value.ndim == 2 else np.ones(value.shape)
        for index in np.ndindex(value.shape):
            if not lower[index]:
                assert not pulled[name][(slice(None), *index)].any()
                continue
            up, down = value.copy(), value.copy()
            up[index] += 1e-6
            down[index] -= 1e-6
            slope = (f(family.replace({name: up})) - f(family.replace({name: down}))) / 2e-6
            np.testing.assert_allclose(pulled[name][(slice(None), *index)], slope, rtol=1e-7, atol=1e-8)


def test_pullback_broadcasts_and_owns_its_result(family, rng):
    z, g = rng.uniform(-1.0, 1.0, (4, 3)), np.array([1.0, 2.0, 3.0])
    pulled = family.pullback(z, g)
    assert pulled["mean"].shape == (4, 3)
    pulled["mean"][:] = 0.0
    np.testing.assert_array_equal(g, [1.0, 2.0, 3.0])


def test_dispersion_kinds_agree(rng):
    mean, x = rng.standard_normal(3), rng.standard_normal((5, 3))
    p, q, r = Gaussian(mean, 0.7), Gaussian(mean, [0.7] * 3), Gaussian(mean, 0.7 * np.eye(3))
    assert [p.dispersion, q.dispersion, r.dispersion] == ["scalar", "diagonal", "cholesky"]
    for other in (q, r):
        np.testing.assert_allclose(other.log_density(x), p.log_density(x), rtol=1e-14)
        np.testing.assert_allclose(other.variance, p.variance, rtol=1e-14)
        np.testing.assert_allclose(other.covariance, p.covariance, rtol=1e-14, atol=1e-16)
        np.testing.assert_allclose(other.score(x)["mean"], p.score(x)["mean"], rtol=1e-13)
        assert other.entropy() == pytest.approx(p.entropy(), rel=1e-14)
        assert p != other
    diagonal = np.diagonal(r.score(x)["sigma"], axis1=1, axis2=2)
    np.testing.assert_allclose(diagonal, q.score(x)["sigma"], rtol=1e-12)
    np.testing.assert_allclose(diagonal.sum(axis=1), p.score(x)["sigma"], rtol=1e-12)
    natural = r.natural_gradient({"sigma": np.diag([1.0, 2.0, 3.0])})["sigma"]
    np.testing.assert_allclose(np.diagonal(natural), q.natural_gradient({"sigma": [1.0, 2.0, 3.0]})["sigma"])


def test_a_scalar_mean_is_a_vector_of_one(kind):
    family = kind(2.0, 0.5)
    assert family.size == 1
    assert family.mean.shape == (1,)
    assert family.scale.shape == ()
    assert family == kind([2.0], 0.5)
    assert family != kind([2.0], [0.5])


def test_gaussian_against_scipy(rng):
    family = REGISTRY["gaussian-cholesky"](4, rng)
    reference = scipy.stats.multivariate_normal(family.mean, family.covariance)
    x = family.sample(50, rng)
    np.testing.assert_allclose(family.log_density(x), reference.logpdf(x), rtol=1e-10)
    assert family.entropy() == pytest.approx(reference.entropy(), rel=1e-12)
    np.testing.assert_allclose(np.cov(family.sample(40_000, rng).T), family.covariance, atol=0.25)
    np.testing.assert_array_equal(family.sigma, family.parameters["sigma"])


def test_covariance_of_a_diagonal_family(kind):
    np.testing.assert_allclose(kind([0.0, 1.0], [1.0, 2.0]).covariance, kind.noise_variance * np.diag([1.0, 4.0]))


def test_equivariance_under_shift_and_scale(kind, rng):
    mean, scale, x = rng.standard_normal(3), rng.uniform(0.5, 2.0, 3), rng.uniform(-0.3, 0.3, (4, 3))
    p, q = kind(mean, scale), kind(4.0 * mean - 1.0, 4.0 * scale)
    x = mean + x
    np.testing.assert_allclose(q.log_density(4.0 * x - 1.0), p.log_density(x) - 3 * np.log(4.0), rtol=1e-12)
    np.testing.assert_allclose(q.sample(5, seed=0), 4.0 * p.sample(5, seed=0) - 1.0, rtol=1e-12)
    flipped = kind(-mean, scale)
    np.testing.assert_allclose(flipped.log_density(-x), p.log_density(x), rtol=1e-14)
    order = [2, 0, 1]
    np.testing.assert_allclose(kind(mean[order], scale[order]).log_density(x[:, order]), p.log_density(x), rtol=1e-13)


def test_natural_gradient_is_affine_equivariant(rng):
    # xNES: in y = A x + b with A lower triangular, the natural step is A times the step in x.
    p = REGISTRY["gaussian-cholesky"](3, rng)
    a = np.tril(rng.uniform(0.5, 2.0, (3, 3)))
    q = Gaussian(a @ p.mean + 1.0, a @ p.sigma)
    g_mean, g_sigma = rng.standard_normal(3), np.tril(rng.standard_normal((3, 3)))
    step = q.natural_gradient({"mean": g_mean, "sigma": g_sigma})
    pulled = p.natural_gradient({"mean": a.T @ g_mean, "sigma": np.tril(a.T @ g_sigma)})
    np.testing.assert_allclose(step["mean"], a @ pulled["mean"], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(step["sigma"], a @ pulled["sigma"], rtol=1e-11, atol=1e-11)


# Edges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1.0, 1e30, 1e150])
def test_tiny_and_huge_scales(kind, scale):
    shapes = [scale, [scale] * 2] + ([[[scale, 0.0], [scale / 2, scale]]] if kind is Gaussian else [])
    for dispersion in shapes:
        family = kind([0.0, 0.0], dispersion)
        standard = kind([0.0, 0.0], np.asarray(dispersion) / scale)
        z = np.array([[0.5, -0.25], [0.0, 0.0]])
        x = standard.transform(z)
        np.testing.assert_allclose(family.transform(z) / scale, x, rtol=1e-14)
        expected = standard.log_density(x) - 2 * np.log(scale)
        np.testing.assert_allclose(family.log_density(x * scale), expected, rtol=1e-13)
        np.testing.assert_allclose(family.variance / scale / scale, standard.variance, rtol=1e-13)
        assert family.entropy() == pytest.approx(standard.entropy() + 2 * np.log(scale), rel=1e-13)
        assert np.isfinite(family.sample(10, seed=0)).all()
        if not kind.has_score:
            continue
        for name, s in standard.score(x).items():
            np.testing.assert_allclose(family.score(x * scale)[name] * scale, s, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(
                family.fisher()[name] * scale * scale, standard.fisher()[name], rtol=1e-12, atol=1e-12
            )
        ones = {name: np.ones(value.shape) for name, value in family.parameters.items()}
        for name, step in standard.natural_gradient(ones).items():
            np.testing.assert_allclose(family.natural_gradient(ones)[name] / scale / scale, step, rtol=1e-12)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1.0, 1.7e308])
@pytest.mark.parametrize("mean", [-1.7e308, 0.0, 1.7e308])
def test_no_warning_and_no_nan_density_at_the_ends_of_float64(kind, mean, scale):
    points = np.array([[-1.7e308], [-1.0], [0.0], [5e-324], [1.7e308]])
    shapes = [scale, [scale]] + ([[[scale]]] if kind is Gaussian else [])
    for dispersion in shapes:
        family = kind(mean, dispersion)
        log_p = family.log_density(points)
        assert not np.isnan(log_p).any()
        assert np.isfinite(family.log_density(family.mean))
        assert np.isfinite(family.entropy())
        family.sample(10, seed=0)
        assert family.variance.shape == (1,)
        assert family.covariance.shape == (1, 1)
        if kind.has_score:
            family.score(points)
            family.fisher()
            family.natural_gradient({"mean": [1.0]})


def test_opposite_ends_of_float64_are_a_finite_number_of_deviations_apart():
    # (1.5e308 + 1.5e308) / 1e308, although the difference overflows
    assert Laplace(-1.5e308, 1e308).standardize([1.5e308])[0] == pytest.approx(3.0, rel=1e-15)
    assert Gaussian(-1.5e308, [[1e308]]).standardize([1.5e308])[0] == pytest.approx(3.0, rel=1e-15)


def test_a_far_point_of_a_cholesky_gaussian_has_density_zero():
    family = Gaussian([0.0, 0.0], [[1e-150, 0.0], [1e150, 1e-150]])
    assert family.log_density([1e200, 1e200]) == -np.inf


def test_samples_of_a_box_never_leave_it(rng):
    # 1e10 + z/3 rounds across the exact edge of the box, but not across the rounded one.
    family = Uniform(np.full(200, 1e10), 1.0 / 3.0)
    u = np.where(rng.random((500, 200)) < 0.5, 0.0, 1.0)
    assert np.isfinite(family.log_density(family.from_uniform(u))).all()
    assert family.log_density(family.mean + 1.0) == -np.inf


def test_uniform_says_why_it_has_no_score():
    family = Uniform([0.0, 1.0], 1.0)
    assert not family.has_score
    for call in (
        lambda: family.score([0.0, 1.0]),
        family.fisher,
        lambda: family.natural_gradient({"mean": [0.0, 0.0]}),
        lambda: family.noise_score(np.zeros(2)),
    ):
        with pytest.raises(TypeError, match=r"has no score.*reparameterised gradient \(transform and pullback\)"):
            call()


def test_sharpening_refuses_to_underflow():
    for sigma in (1e-300, [1e-300], [[1e-300]]):
        with pytest.raises(ValueError, match=r"factor = 1e-100 shrinks sigma below"):
            Gaussian(0.0, sigma).sharpen(1e-100)
    # Zeros off the diagonal of a factor are no obstacle.
    np.testing.assert_allclose(Gaussian([0.0, 0.0], np.eye(2)).sharpen(0.5).sigma, np.eye(2) / 2)


def test_laplace_score_at_the_kink_is_zero():
    np.testing.assert_array_equal(Laplace([1.0], 2.0).score([1.0])["mean"], [0.0])
