"""Every family of the registry against checks that do not use its own formulas.

Nothing here names a family unless it must: a new one is tested by being declared.
"""

import copy
import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest

import varopt.families as families
from varopt.families import REGISTRY, Bernoulli, Family, LocationScale, OneHotCategorical, Product, Uniform

STANDARD_ERRORS = 6.0  # a chance of 2e-9 for each entry, and the seed is fixed


def is_binary(family):
    return bool(np.isin(family.sample(64, seed=0), (0.0, 1.0)).all())


ONE_OF_EACH = {name: build(1, np.random.default_rng(0)) for name, build in REGISTRY.items()}
BINARY = [name for name, family in ONE_OF_EACH.items() if is_binary(family)]
REAL_LINE = [name for name, family in ONE_OF_EACH.items() if family.size == 1 and name not in BINARY]
SCORED = [name for name, family in ONE_OF_EACH.items() if family.has_score]


@pytest.fixture(params=REGISTRY)
def family(request, rng):
    return REGISTRY[request.param](3, rng)


@pytest.fixture(params=SCORED)
def scored(request, rng):
    return REGISTRY[request.param](3, rng)


@pytest.fixture(params=BINARY)
def binary(request, rng):
    return REGISTRY[request.param](2, rng)


@pytest.fixture(params=REAL_LINE)
def on_the_line(request, rng):
    return REGISTRY[request.param](1, rng)


@pytest.fixture(params=["gaussian-scalar", "gaussian-diagonal", "gaussian-cholesky"])
def gaussian(request, rng):
    return REGISTRY[request.param](3, rng)


def leaves(tree, path=()):
    """(path, array) for every array in nested dictionaries."""
    if not isinstance(tree, dict):
        yield path, np.asarray(tree)
        return
    for key, branch in tree.items():
        yield from leaves(branch, (*path, key))


def nested(path, value):
    return nested(path[:-1], {path[-1]: value}) if path else value


def leaf(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def free_entries(family, path):
    """Index arrays of the entries of a parameter that may change: the lower triangle of a Cholesky factor."""
    value = leaf(family.parameters, path)
    owner = family
    for key in path[:-1]:
        owner = owner.families[key]
    if getattr(owner, "dispersion", None) == "cholesky" and value.ndim == 2:
        return np.tril_indices(len(value))
    return tuple(np.indices(value.shape).reshape(value.ndim, -1)) if value.ndim else ()


def free_scores(family, x):
    """Scores of all parameters side by side, free entries only: shape (len(x), number of free entries)."""
    columns = [s[(slice(None), *free_entries(family, path))].reshape(len(x), -1) for path, s in leaves(family.score(x))]
    return np.concatenate(columns, axis=1)


def block_diagonal(blocks):
    import scipy.linalg

    return scipy.linalg.block_diag(*blocks)


def cube(family):
    return np.array(list(itertools.product((0.0, 1.0), repeat=family.size)))


def quadrature(family):
    """Nodes, of shape (m, 1), and weights for the whole mass of a family with one real coordinate."""
    # Panels end at the kink of a Laplace density and at the edges of a box, sqrt(3) standard deviations out.
    ends = np.array([0.0, 0.5, 1.0, np.sqrt(3.0), 3.0, 5.0, 8.0, 14.0, 25.0, 60.0])
    ends = family.mean + np.sqrt(family.variance) * np.concatenate([-ends[:0:-1], ends])
    node, weight = np.polynomial.legendre.leggauss(40)
    half, middle = np.diff(ends)[:, None] / 2, (ends[1:] + ends[:-1])[:, None] / 2
    return (middle + half * node).reshape(-1, 1), (half * weight).reshape(-1)


def hermite(family, degree=9):
    """Points and weights that integrate polynomials in x - mean of this degree exactly under a Gaussian."""
    node, weight = np.polynomial.hermite_e.hermegauss(degree // 2 + 1)
    z = np.array(list(itertools.product(node, repeat=family.size)))
    w = np.array([np.prod(ws) for ws in itertools.product(weight / weight.sum(), repeat=family.size)])
    factor = family.sigma * np.eye(family.size) if family.sigma.ndim < 2 else family.sigma
    return family.mean + z @ factor.T, w


# The law ----------------------------------------------------------------------------------------------------------


def test_probabilities_sum_to_one_with_the_stated_moments(binary):
    x = cube(binary)
    log_p = binary.log_density(x)
    p = np.exp(log_p)
    mean = p @ x
    assert p.sum() == pytest.approx(1.0, abs=1e-13)
    np.testing.assert_allclose(binary.mean, mean, atol=1e-14)
    np.testing.assert_allclose(binary.variance, p @ (x - mean) ** 2, atol=1e-14)
    assert binary.entropy() == pytest.approx(-np.sum(p[p > 0] * log_p[p > 0]), abs=1e-13)
    np.testing.assert_array_equal(binary.mode, x[p.argmax()])


def test_density_integrates_to_one_with_the_stated_moments(on_the_line):
    x, weight = quadrature(on_the_line)
    log_p = on_the_line.log_density(x)
    mass = weight * np.exp(log_p)
    assert mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert mass @ x[:, 0] == pytest.approx(on_the_line.mean[0], abs=1e-11)
    assert mass @ (x[:, 0] - on_the_line.mean) ** 2 == pytest.approx(on_the_line.variance[0], rel=1e-11)
    assert on_the_line.entropy() == pytest.approx(-np.sum(mass[mass > 0] * log_p[mass > 0]), abs=1e-11)
    assert np.all(on_the_line.log_density(on_the_line.mode) >= log_p)


def test_gaussian_density_integrates_to_one_in_two_dimensions(rng):
    family = REGISTRY["gaussian-cholesky"](2, rng)
    axes = [m + s * np.linspace(-9.0, 9.0, 401) for m, s in zip(family.mean, np.sqrt(family.variance), strict=True)]
    x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    # The trapezoidal rule is exact to rounding for an analytic integrand that vanishes at the ends.
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    assert np.exp(family.log_density(x)).sum() * cell == pytest.approx(1.0, abs=1e-12)


def test_mean_and_variance_of_samples(family, rng):
    n = 20_000
    x = family.sample(n, rng)
    centred = x - family.mean
    assert x.shape == (n, family.size)
    assert x.dtype == np.float64
    assert np.all(np.abs(centred.mean(axis=0)) <= STANDARD_ERRORS * np.sqrt(family.variance / n))
    squares = centred**2
    error = STANDARD_ERRORS * squares.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(squares.mean(axis=0) - family.variance) <= error)


def test_samples_lie_in_the_support_and_average_to_the_entropy(family):
    log_p = family.log_density(family.sample(20_000, seed=1))
    assert np.isfinite(log_p).all()
    error = STANDARD_ERRORS * log_p.std() / np.sqrt(len(log_p))
    assert abs(log_p.mean() + family.entropy()) <= error + 1e-12


def test_uniforms_on_a_grid_give_the_mean_of_each_coordinate(family):
    m = 4096
    grid = (np.arange(m) + 0.5) / m  # the average below is a midpoint rule
    x = family.from_uniform(np.repeat(grid[:, None], family.noise_size, axis=1))
    assert x.shape == (m, family.size)
    np.testing.assert_allclose(x.mean(axis=0), family.mean, atol=2.0 / m)


def test_uniforms_at_the_ends_give_possible_points(family):
    u = np.array([np.zeros(family.noise_size), np.ones(family.noise_size)])
    x = family.from_uniform(u)
    assert np.isfinite(x).all()
    assert np.isfinite(family.log_density(x)).all()


def test_shapes_follow_the_batch(family):
    x = family.sample(6, seed=2)
    flat = family.log_density(x)
    assert flat.shape == (6,)
    assert family.log_density(x[0]).shape == ()
    np.testing.assert_array_equal(family.log_density(x.reshape(2, 3, -1)), flat.reshape(2, 3))
    assert family.from_uniform(np.full((2, 3, family.noise_size), 0.5)).shape == (2, 3, family.size)
    if not family.has_score:
        return
    for path, s in leaves(family.score(x.reshape(2, 3, -1))):
        shape = leaf(family.parameters, path).shape
        assert s.shape == (2, 3, *shape)
        np.testing.assert_allclose(s[1, 2], leaf(family.score(x[5]), path), rtol=1e-13)


# Score, Fisher, natural gradient ----------------------------------------------------------------------------------


def test_score_is_the_derivative_of_the_log_density(scored):
    x = scored.sample(5, seed=3)
    step = 5e-7
    for path, s in leaves(scored.score(x)):
        value = leaf(scored.parameters, path)
        expected = np.zeros((5, *value.shape))
        for index in zip(*free_entries(scored, path), strict=True) if value.ndim else [()]:
            up, down = value.copy(), value.copy()
            up[index] += step
            down[index] -= step
            higher = scored.replace(nested(path, up)).log_density(x)
            lower = scored.replace(nested(path, down)).log_density(x)
            expected[(slice(None), *index)] = (higher - lower) / (up - down)[index]
        np.testing.assert_allclose(s, expected, rtol=1e-6, atol=1e-6)


def check_fisher(family, x, p, tolerance):
    s = free_scores(family, x)
    np.testing.assert_allclose(p @ s, 0.0, atol=tolerance)
    fisher = block_diagonal([f for _, f in leaves(family.fisher())])
    np.testing.assert_allclose((p[:, None] * s).T @ s, fisher, atol=tolerance * max(1.0, np.abs(fisher).max()))


def test_fisher_by_enumeration(binary):
    x = cube(binary)
    p = np.exp(binary.log_density(x))
    check_fisher(binary, x[p > 0], p[p > 0], 1e-12)


@pytest.mark.parametrize("name", [name for name in REAL_LINE if name in SCORED])
def test_fisher_by_quadrature(name, rng):
    family = REGISTRY[name](1, rng)
    x, weight = quadrature(family)
    check_fisher(family, x, weight * np.exp(family.log_density(x)), 1e-10)


def test_gaussian_fisher_is_exact_by_hermite_quadrature(gaussian):
    x, p = hermite(gaussian)
    check_fisher(gaussian, x, p, 1e-11)


def test_fisher_by_sampling(scored, rng):
    n = 20_000
    s = free_scores(scored, scored.sample(n, rng))
    fisher = block_diagonal([f for _, f in leaves(scored.fisher())])
    products = s[:, :, None] * s[:, None, :]
    rounding = 1e-12 * np.abs(fisher).max()
    assert np.all(np.abs(s.mean(axis=0)) <= STANDARD_ERRORS * s.std(axis=0) / np.sqrt(n) + rounding)
    error = STANDARD_ERRORS * products.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(products.mean(axis=0) - fisher) <= error + rounding)


def test_natural_gradient_solves_the_fisher_system(scored, rng):
    # The average of weighted scores is what a sampled gradient is, and respects every constraint on a parameter.
    x = scored.sample(8, rng)
    weights = rng.standard_normal(8)
    gradient = copy.deepcopy(scored.parameters)
    for path, s in leaves(scored.score(x)):
        leaf(gradient, path[:-1])[path[-1]] = np.tensordot(weights, s, 1)
    natural = scored.natural_gradient(gradient)
    for path, f in leaves(scored.fisher()):
        index = free_entries(scored, path)
        g, step = leaf(gradient, path), leaf(natural, path)
        assert step.shape == g.shape
        if isinstance(scored, OneHotCategorical) or path[0] == "OneHotCategorical":
            p = leaf(scored.parameters, path)
            g = g - (p * g).sum(axis=1, keepdims=True)
            np.testing.assert_allclose(step.sum(axis=1), 0.0, atol=1e-12)
        np.testing.assert_allclose(f @ step[index].reshape(-1), g[index].reshape(-1), rtol=1e-9, atol=1e-9)
        fixed = np.ones(step.shape, dtype=bool)
        fixed[index] = False
        assert not step[fixed].any()


def test_natural_gradient_takes_batches_and_some_of_the_parameters(scored, rng):
    for path, value in leaves(scored.parameters):
        g = rng.standard_normal((4, *value.shape))
        batch = list(leaves(scored.natural_gradient(nested(path, g))))
        assert [where for where, _ in batch] == [path]
        single = leaf(scored.natural_gradient(nested(path, g[2])), path)
        np.testing.assert_allclose(batch[0][1][2], single, rtol=1e-13, atol=1e-14)


def test_sampled_natural_gradient_is_the_gradient_in_mean_parameters(rng):
    # Bernoulli gives <w(f) (x - theta)>, the update of PBIL and UMDA, and so does each categorical block.
    for family in (REGISTRY["bernoulli"](4, rng), REGISTRY["categorical"](2, rng)):
        x, w = family.sample(16, rng), rng.standard_normal(16)
        scores = family.score(x)["probability"]
        natural = family.natural_gradient({"probability": np.tensordot(w, scores, 1)})["probability"]
        np.testing.assert_allclose(natural.reshape(-1), w @ (x - family.mean), atol=1e-13)


# Sampling, sharpening ---------------------------------------------------------------------------------------------


def test_seeds_reproduce(family):
    first = family.sample(10, seed=7)
    np.testing.assert_array_equal(first, family.sample(10, seed=7))
    np.testing.assert_array_equal(first, family.sample(10, seed=np.int64(7)))
    np.testing.assert_array_equal(first, family.sample(10, np.random.default_rng(7)))
    np.testing.assert_array_equal(first, family.sample(10, np.random.SeedSequence(7)))
    rng = np.random.default_rng(7)
    assert not np.array_equal(family.sample(64, rng), family.sample(64, rng))
    assert not np.array_equal(family.sample(64), family.sample(64))


def test_sampling_leaves_the_global_generator_alone(family):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    family.sample(3)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_antithetic_pairs_mirror_each_other(family):
    x = family.sample(400, seed=5, antithetic=True)
    np.testing.assert_array_equal(x, family.sample(400, seed=5, antithetic=True))
    first, second = x[:200], x[200:]
    assert len(np.unique(first, axis=0)) > 1
    if family.expectation_affine:  # symmetric about the mean
        np.testing.assert_allclose((first + second) / 2, np.tile(family.mean, (200, 1)), rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(x.mean(axis=0), family.mean, rtol=1e-13, atol=1e-13)
    spread = STANDARD_ERRORS * np.sqrt(family.variance / 200)
    assert np.all(np.abs(x.mean(axis=0) - family.mean) <= spread + 1e-13)
    if family.noise_size == family.size:  # each coordinate is monotone in its own uniform
        assert np.all(((first - family.mean) * (second - family.mean)).mean(axis=0) <= 0)


def test_sharpening_reduces_the_variance_and_keeps_the_mode(family):
    previous = family
    for factor in (0.9, 0.5, 0.1):
        sharper = previous.sharpen(factor)
        assert type(sharper) is type(family)
        assert sharper.variance.sum() < previous.variance.sum()
        if family.expectation_affine:
            np.testing.assert_allclose(sharper.variance, factor**2 * previous.variance, rtol=1e-13)
        assert sharper.entropy() < previous.entropy()
        np.testing.assert_array_equal(sharper.mode, family.mode)
        previous = sharper
    gentle = family.sharpen(1.0)
    np.testing.assert_allclose(gentle.variance, family.variance, rtol=1e-12)


def test_sharpening_twice_is_sharpening_by_the_product(family):
    for path, value in leaves(family.sharpen(0.5).sharpen(0.4).parameters):
        np.testing.assert_allclose(leaf(family.sharpen(0.2).parameters, path), value, rtol=1e-11)


def test_sharpening_in_the_limit_is_a_point_at_the_mode(family):
    sharp = family.sharpen(1e-12)
    np.testing.assert_allclose(sharp.mean, family.mode, atol=1e-10)
    np.testing.assert_allclose(sharp.variance, 0.0, atol=1e-10)
    assert np.isfinite(sharp.log_density(sharp.sample(10, seed=0))).all()


# Values -----------------------------------------------------------------------------------------------------------


def test_families_are_immutable(family):
    with pytest.raises(AttributeError, match="immutable"):
        family.mean = 0.0
    with pytest.raises(AttributeError, match="immutable"):
        family.anything = 0.0
    with pytest.raises(AttributeError, match="immutable"):
        del family._arrays
    for _, value in leaves(family.parameters):
        assert not value.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            value.flags.writeable = True
    assert family.parameters is not family.parameters


def test_parameters_are_copied_from_the_caller(family):
    arrays = {path: value.copy() for path, value in leaves(family.parameters)}
    for path, value in arrays.items():
        before = value.copy()
        other = family.replace(nested(path, value))
        assert other == family
        np.testing.assert_array_equal(value, before)
        value += 1.0  # neither frozen nor shared
        assert other == family


def test_equality_hash_pickle_and_copy(family):
    for twin in (pickle.loads(pickle.dumps(family)), copy.deepcopy(family), family.replace(family.parameters)):
        assert twin == family
        assert hash(twin) == hash(family)
        assert not any(value.flags.writeable for _, value in leaves(twin.parameters))
    other = family.sharpen(0.5)
    assert other != family
    assert family != "family"
    assert len({family, other, copy.copy(family)}) == 2


def test_repr_names_the_family_and_its_parameters(family):
    text = repr(family)
    assert text.startswith(type(family).__name__ + "(")
    assert all(path[-1] + "=" in text for path, _ in leaves(family.parameters))


def test_parameters_come_in_declared_order(family):
    if isinstance(family, Product):
        assert list(family.parameters) == list(family.families) == list(family.slices)
    else:
        assert list(family.parameters) == list(family.domains)


def test_the_registry_covers_every_family():
    public = {found for name in families.__all__ if isinstance(found := getattr(families, name), type)}
    abstract = {Family, LocationScale, families.OwnFamily}  # the last wraps what users hand in
    built = {type(build(1, np.random.default_rng(0))) for build in REGISTRY.values()}
    assert built == public - abstract


def test_choices_keep_their_older_name():
    assert families.Categorical is OneHotCategorical


def test_class_level_facts():
    assert {kind.__name__ for kind in (Bernoulli, OneHotCategorical, Uniform) if kind.expectation_affine} == {"Uniform"}
    assert not Uniform.has_score
    assert issubclass(Product, Family)


def test_all_is_sorted_and_complete():
    names = families.__all__
    assert names == [*sorted(n for n in names if n.isupper()), *sorted(n for n in names if not n.isupper())]
    assert all(hasattr(families, name) for name in names)


def test_import_does_not_load_scipy_stats():
    code = "import sys, varopt.families; sys.exit('scipy.stats' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_large_matrix_is_printed_by_its_shape():
    large = families.Gaussian(np.zeros(50), np.eye(50))
    assert repr(large) == "Gaussian(mean=[0., 0., ..., 0., 0.], sigma=<50 x 50 numbers>)"
    assert repr(families.Gaussian(np.zeros(2), np.eye(2))) == "Gaussian(mean=[0., 0.], sigma=[[1., 0.], [0., 1.]])"
