"""Bernoulli, OneHotCategorical and Product: edges of the simplex, one-hot layout, nesting."""

import itertools

import mpmath
import numpy as np
import pytest

from varopt.families import Bernoulli, Gaussian, Laplace, OneHotCategorical, Product, Uniform

# Bernoulli --------------------------------------------------------------------------------------------------------


def test_certain_bits():
    p = Bernoulli([0.0, 1.0, 0.5])
    assert p.entropy() == pytest.approx(np.log(2.0), rel=1e-15)
    np.testing.assert_array_equal(p.mode, [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(p.variance, [0.0, 0.0, 0.25])
    np.testing.assert_array_equal(
        p.log_density([[0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]]), [np.log(0.5)] + [-np.inf] * 3
    )
    for antithetic in (False, True):
        x = p.sample(1000, seed=0, antithetic=antithetic)
        assert (x[:, 0] == 0.0).all()
        assert (x[:, 1] == 1.0).all()
    np.testing.assert_array_equal(p.from_uniform(np.array([[0.0] * 3, [1.0] * 3]))[:, :2], [[0.0, 1.0]] * 2)
    np.testing.assert_array_equal(p.sharpen(0.1).probability, [0.0, 1.0, 0.5])
    np.testing.assert_array_equal(p.score([0, 1, 1])["probability"], [-1.0, 1.0, 2.0])
    np.testing.assert_array_equal(np.diagonal(p.fisher()["probability"]), [np.inf, np.inf, 4.0])
    np.testing.assert_array_equal(p.natural_gradient({"probability": [1.0, 1.0, 1.0]})["probability"], [0.0, 0.0, 0.25])


@pytest.mark.parametrize("x", [[1, 1], [0, 0], [0.5, 1], [2, 1], [-1, 1]])
def test_bernoulli_refuses_the_score_of_an_impossible_point(x):
    p = Bernoulli([0.0, 1.0])
    assert p.log_density(x) == -np.inf
    with pytest.raises(ValueError, match="x has probability zero under Bernoulli"):
        p.score(x)


@pytest.mark.parametrize("p", [5e-324, 1e-300, 1e-20, 1e-3, 0.5, 1 - 1e-3, 1 - 2**-53])
def test_bernoulli_entropy_and_score_keep_their_digits(p):
    with mpmath.workdps(400):
        q = mpmath.mpf(p)
        entropy = -q * mpmath.log(q) - (1 - q) * mpmath.log1p(-q)
        logs = mpmath.log(q), mpmath.log1p(-q)
    family = Bernoulli(p)
    assert family.entropy() == pytest.approx(float(entropy), rel=1e-14, abs=1e-322)
    np.testing.assert_allclose(family.log_density([[1.0], [0.0]]), [float(log) for log in logs], rtol=1e-15)
    score = family.score([[1.0], [0.0]])["probability"][:, 0]
    assert score[0] == (1 / p if p > 1e-308 else np.inf)
    assert score[1] == -1 / (1 - p)


def test_bernoulli_sharpening_is_a_temperature():
    p = np.array([0.1, 0.4, 0.5, 0.8])
    for t in (1.0, 0.5, 0.25):
        expected = p ** (1 / t) / (p ** (1 / t) + (1 - p) ** (1 / t))
        np.testing.assert_allclose(Bernoulli(p).sharpen(t).probability, expected, rtol=1e-13)
    np.testing.assert_array_equal(Bernoulli(p).sharpen(5e-324).probability, [0.0, 0.0, 0.5, 1.0])


def test_bernoulli_marginals_of_a_grid_of_uniforms():
    u = (np.arange(1000) + 0.5)[:, None] / 1000
    for p in (0.0, 0.001, 0.25, 0.999, 1.0):
        assert Bernoulli(p).from_uniform(u).mean() == pytest.approx(p, abs=1e-12)


# OneHotCategorical ------------------------------------------------------------------------------------------------


def test_zero_probabilities_are_never_drawn():
    rows = [[0.0, 0.3, 0.7], [0.3, 0.0, 0.7], [0.3, 0.7, 0.0], [0.0, 1.0, 0.0]]
    short = np.append(np.full(7, 1 / 7), 0.0)
    assert np.cumsum(short)[-1] < 1 - 2**-53  # by rounding: some uniforms lie beyond the cumulative sum
    u = np.concatenate([np.linspace(0.0, 1.0, 4001), [1 - 2**-53, 2**-53]])
    for p in (OneHotCategorical(rows), OneHotCategorical(short)):
        x = p.from_uniform(np.repeat(u[:, None], p.noise_size, axis=1))
        assert not x[:, p.mean == 0.0].any()
        assert np.isfinite(p.log_density(x)).all()


def test_certain_choices():
    p = OneHotCategorical([[0.0, 1.0], [0.5, 0.5]])
    assert p.entropy() == pytest.approx(np.log(2.0), rel=1e-15)
    np.testing.assert_array_equal(p.mode, [0.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(p.log_density([[0, 1, 1, 0], [1, 0, 1, 0]]), [np.log(0.5), -np.inf])
    np.testing.assert_array_equal(p.sharpen(0.01).probability, p.probability)
    np.testing.assert_array_equal(p.score([0, 1, 1, 0])["probability"], [[-1.0, 0.0], [1.0, -1.0]])
    np.testing.assert_array_equal(np.diagonal(p.fisher()["probability"]), [np.inf, 0.0, 1.0, 1.0])
    natural = p.natural_gradient({"probability": [[1.0, 2.0], [1.0, 2.0]]})["probability"]
    np.testing.assert_array_equal(natural, [[0.0, 0.0], [-0.25, 0.25]])
    assert OneHotCategorical([[1.0]]).entropy() == 0.0


def test_choices_are_samples_before_they_are_encoded():
    p = OneHotCategorical([[0.2, 0.3, 0.5], [0.0, 0.1, 0.9], [1.0, 0.0, 0.0]])
    chosen = p.choices(200, seed=4)
    np.testing.assert_array_equal(p.sample(200, seed=4).reshape(200, 3, 3).argmax(axis=2), chosen)
    assert chosen[:, 1].min() == 1
    assert np.all(chosen[:, 2] == 0)


def test_a_uniform_of_zero_draws_nothing_impossible():
    class Zeros(np.random.Generator):
        def random(self, size=None):
            return np.zeros(size)

    p = OneHotCategorical([[0.0, 0.0, 1.0], [0.0, 0.5, 0.5]])
    np.testing.assert_array_equal(p.choices(1, seed=Zeros(np.random.PCG64(0))), [[2, 1]])


def test_unchecked_probabilities_make_the_same_family():
    rows = np.array([[0.2, 0.8], [0.5, 0.5]])
    p = OneHotCategorical.unchecked(rows)
    assert p == OneHotCategorical(rows)
    rows[0] = 0.0  # a copy: families are values
    assert p == OneHotCategorical([[0.2, 0.8], [0.5, 0.5]])
    assert not p.probability.flags.writeable


@pytest.mark.parametrize("x", [[1, 0, 1, 0], [0, 1, 1, 1], [0, 1, 0, 0], [0, 1, 0.5, 0.5], [0, 1, 2, -1]])
def test_categorical_refuses_the_score_of_an_impossible_point(x):
    p = OneHotCategorical([[0.0, 1.0], [0.5, 0.5]])
    assert p.log_density(x) == -np.inf
    with pytest.raises(ValueError, match="x has probability zero under OneHotCategorical"):
        p.score(x)


def test_two_categories_are_a_bit(rng):
    q = rng.uniform(0.1, 0.9, 3)
    bits, choices = Bernoulli(q), OneHotCategorical(np.stack([1 - q, q], axis=1))
    x = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    one_hot = np.stack([1 - x, x], axis=2).reshape(8, 6)
    np.testing.assert_allclose(choices.log_density(one_hot), bits.log_density(x), rtol=1e-13)
    assert choices.entropy() == pytest.approx(bits.entropy(), rel=1e-13)
    np.testing.assert_allclose(choices.sharpen(0.3).probability[:, 1], bits.sharpen(0.3).probability, rtol=1e-12)
    np.testing.assert_array_equal(choices.sample(50, seed=0)[:, 1::2], bits.sample(50, seed=0))
    # A bit's gradient g is the direction (-g, g) of the simplex.
    g = rng.standard_normal(3)
    natural = choices.natural_gradient({"probability": np.stack([np.zeros(3), g], axis=1)})["probability"]
    np.testing.assert_allclose(natural[:, 1], bits.natural_gradient({"probability": g})["probability"], rtol=1e-13)


def test_categorical_covariance_by_enumeration(rng):
    p = OneHotCategorical([[0.2, 0.3, 0.5], [0.0, 0.1, 0.9]])
    for row, covariance in zip(p.probability, p.covariance, strict=True):
        x = np.eye(3)
        centred = x - row
        np.testing.assert_allclose(covariance, (row[:, None] * centred).T @ centred, atol=1e-16)


def test_rows_are_normalised_once():
    single = np.array([[0.1, 0.2, 0.7]], dtype=np.float32)
    p = OneHotCategorical(single)
    assert p.probability.sum() == pytest.approx(1.0, abs=1e-15)
    assert p.replace(p.parameters) == p
    exact = np.array([[0.1, 0.2, 0.7]])
    np.testing.assert_array_equal(OneHotCategorical(exact).probability, exact)
    assert OneHotCategorical([0.5, 0.5]).probability.shape == (1, 2)


def test_categorical_sharpening_survives_any_power():
    p = OneHotCategorical([[1e-300, 0.5, 0.5], [0.2, 0.3, 0.5]])
    np.testing.assert_array_equal(p.sharpen(1e-300).probability, [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(p.sharpen(0.5).probability[1], np.array([4.0, 9.0, 25.0]) / 38.0, rtol=1e-14)


# Product ----------------------------------------------------------------------------------------------------------


class Key:
    """A key whose == builds something, as a modelling variable's may."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


def test_a_product_is_its_parts_side_by_side(rng):
    w, b, c = Key(), "bits", 3
    parts = {w: Gaussian([0.0, 1.0], 0.5), b: Bernoulli([0.25]), c: OneHotCategorical([[0.2, 0.8], [0.5, 0.5]])}
    p = Product(parts)
    assert dict(p.families) == parts
    assert dict(p.slices) == {w: slice(0, 2), b: slice(2, 3), c: slice(3, 7)}
    assert (p.size, p.noise_size) == (7, 5)
    x = p.sample(20, rng)
    total = sum(family.log_density(x[:, p.slices[key]]) for key, family in parts.items())
    np.testing.assert_allclose(p.log_density(x), total, rtol=1e-15)
    for key, family in parts.items():
        own = x[:, p.slices[key]]
        for name, s in family.score(own).items():
            np.testing.assert_array_equal(p.score(x)[key][name], s)
        for moment in ("mean", "variance", "mode"):
            np.testing.assert_array_equal(getattr(p, moment)[p.slices[key]], getattr(family, moment))
    assert p.entropy() == pytest.approx(sum(family.entropy() for family in parts.values()))
    u = rng.random((4, 5))
    np.testing.assert_array_equal(p.from_uniform(u)[:, 3:], parts[c].from_uniform(u[:, 3:]))


def test_a_product_is_expectation_affine_if_all_parts_are():
    gaussian, box, bits = Gaussian(0.0, 1.0), Uniform(0.0, 1.0), Bernoulli(0.5)
    assert Product({1: gaussian, 2: box}).expectation_affine
    assert not Product({1: gaussian, 2: bits}).expectation_affine
    assert Product({1: gaussian, 2: bits}).has_score
    assert not Product({1: gaussian, 2: box}).has_score
    with pytest.raises(TypeError, match="Uniform has no score"):
        Product({1: gaussian, 2: box}).score([0.0, 0.0])


def test_replacing_in_a_product():
    p = Product({"w": Gaussian([0.0, 1.0], 0.5), "b": Bernoulli([0.25])})
    q = p.replace({"w": {"sigma": 0.1}, "b": Laplace(0.0, 1.0)})
    assert q.families["w"] == Gaussian([0.0, 1.0], 0.1)
    assert q.families["b"] == Laplace(0.0, 1.0)
    assert p.replace() == p
    assert p.families["w"].sigma == 0.5


def test_the_order_of_a_product_counts():
    a, b = Gaussian(0.0, 1.0), Gaussian([1.0], 2.0)
    assert Product({"a": a, "b": b}) == Product({"a": a, "b": b})
    assert Product({"a": a, "b": b}) != Product({"b": b, "a": a})
    assert Product({"a": a}) != Product({"c": a})


def test_products_nest_and_are_immutable():
    inner = Product({"x": Gaussian(0.0, 1.0), "y": Bernoulli([0.5, 0.5])})
    parts = {"inner": inner, "z": Laplace(0.0, 1.0)}
    p = Product(parts)
    parts.clear()
    assert p.size == 4
    x = p.sample(5, seed=0)
    assert p.score(x)["inner"]["y"]["probability"].shape == (5, 2)
    assert p.replace({"inner": {"x": {"mean": 3.0}}}).mean[0] == 3.0
    for mapping in (p.families, p.slices):
        with pytest.raises(TypeError):
            mapping["z"] = None
