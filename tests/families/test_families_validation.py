"""Bad input: each its own sentence. Property tests that draw from the declared domains."""

import math
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varopt._domains import REAL  # examples are drawn from domains
from varopt.families import REGISTRY, Bernoulli, Gaussian, Laplace, Logistic, OneHotCategorical, Product, Uniform

ELEMENTARY = [name for name in REGISTRY if not name.startswith("product")]
SCALED = [name for name in ELEMENTARY if "-" in name]

# Sentences --------------------------------------------------------------------------------------------------------

BAD_PARAMETERS = {
    "nan mean": (lambda: Gaussian([0.0, math.nan], 1.0), r"mean must be finite; got nan at index 1\."),
    "infinite mean": (lambda: Laplace(math.inf, 1.0), r"mean must be finite; got inf\."),
    "matrix mean": (
        lambda: Gaussian(np.zeros((2, 2)), 1.0),
        r"mean must be a scalar or a vector; got shape \(2, 2\)\.",
    ),
    "empty mean": (lambda: Gaussian([], 1.0), r"mean must not be empty\."),
    "text mean": (lambda: Gaussian("a", 1.0), r"mean must be real numbers; got dtype <U1\."),
    "complex mean": (lambda: Gaussian(1j, 1.0), r"mean must be real numbers; got dtype complex128\."),
    "ragged mean": (lambda: Gaussian([[1.0], [1.0, 2.0]], 1.0), r"mean must be a rectangular array of numbers"),
    "zero sigma": (lambda: Gaussian(0.0, 0.0), r"sigma must be > 0; got 0\."),
    "negative sigma": (lambda: Gaussian([0.0, 0.0], [1.0, -2.0]), r"sigma must be > 0; got -2\."),
    "nan sigma": (lambda: Gaussian(0.0, math.nan), r"sigma must be finite; got nan\."),
    "short sigma": (
        lambda: Gaussian([0.0] * 3, [1.0, 1.0]),
        r"sigma must be a scalar, a vector of 3 or a 3 x 3 Cholesky factor to match mean; got shape \(2,\)\.",
    ),
    "cube sigma": (lambda: Gaussian([0.0], np.ones((1, 1, 1))), r"sigma must be a scalar, .* got shape \(1, 1, 1\)\."),
    "upper sigma": (
        lambda: Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]),
        r"sigma is not lower triangular: its entry at \(0, 1\) is 0\.5\. .* numpy\.linalg\.cholesky\(covariance\)\.",
    ),
    "sigma not positive": (
        lambda: Gaussian([0.0, 0.0], [[1.0, 0.0], [0.5, -1.0]]),
        r"sigma \(its diagonal\) must be > 0; got -1\.",
    ),
    "factor of a box": (
        lambda: Uniform([0.0, 0.0], np.eye(2)),
        r"scale must be a scalar or a vector of 2 to match mean; got shape \(2, 2\)\.",
    ),
    "zero scale": (lambda: Logistic(0.0, 0.0), r"scale must be > 0; got 0\."),
    "large probability": (lambda: Bernoulli([0.5, 1.5]), r"probability must be in \[0, 1\]; got 1\.5\."),
    "negative probability": (lambda: Bernoulli(-0.1), r"probability must be in \[0, 1\]; got -0\.1\."),
    "nan probability": (lambda: Bernoulli(math.nan), r"probability must be finite; got nan\."),
    "matrix of bits": (lambda: Bernoulli([[0.5]]), r"probability must be a scalar or a vector; got shape \(1, 1\)\."),
    "no bits": (lambda: Bernoulli([]), r"probability must not be empty\."),
    "rows": (
        lambda: OneHotCategorical([[0.5, 0.5], [0.5, 0.4]]),
        r"probability must have rows that sum to one; row 1 sums to 0\.9\.",
    ),
    "scalar category": (
        lambda: OneHotCategorical(1.0),
        r"probability must have shape \(n, k\), or \(k,\) for one choice",
    ),
    "no categories": (lambda: OneHotCategorical(np.ones((3, 0))), r"probability must not be empty\."),
    "nan category": (lambda: OneHotCategorical([math.nan, 1.0]), r"probability must be finite; got nan at index 0\."),
    "negative category": (lambda: OneHotCategorical([-0.5, 1.5]), r"probability must be in \[0, 1\]; got -0\.5\."),
    "no families": (lambda: Product({}), r"families must not be empty\."),
    "list of families": (
        lambda: Product([Gaussian(0.0, 1.0)]),
        r"families must be a mapping from key to Family; got list\.",
    ),
    "not a family": (lambda: Product({"w": 1.0}), r"families\['w'\] must be a Family; got float\."),
}

P = Gaussian([0.0, 1.0], 1.0)
PRODUCT = Product({"w": P, "b": Bernoulli(0.5)})
BAD_CALLS = {
    "unknown parameter": (
        lambda: P.replace(scale=1.0),
        r"parameters names 'scale', which Gaussian does not have; accepted: mean, sigma\.",
    ),
    "replaced by nan": (lambda: P.replace(mean=[0.0, math.nan]), r"mean must be finite"),
    "replaced size": (lambda: P.replace(sigma=[1.0] * 3), r"sigma must be a scalar, a vector of 2"),
    "unknown key": (
        lambda: PRODUCT.replace({"x": {}}),
        r"parameters names 'x', which Product does not have; accepted: 'w', 'b'\.",
    ),
    "unknown name below": (
        lambda: PRODUCT.replace({"w": {"x": 1.0}}),
        r"parameters names 'x', which Gaussian does not have",
    ),
    "x size": (lambda: P.log_density([0.0]), r"x must have shape \(\.\.\., 2\); got \(1,\)\."),
    "x scalar": (lambda: Gaussian(0.0, 1.0).log_density(0.0), r"x must have shape \(\.\.\., 1\); got \(\)\."),
    "x nan": (lambda: P.score([0.0, math.nan]), r"x must be finite; got nan at index 1\."),
    "x of a product": (lambda: PRODUCT.log_density([0.0, 0.0]), r"x must have shape \(\.\.\., 3\); got \(2,\)\."),
    "z size": (lambda: P.transform([0.0]), r"z must have shape \(\.\.\., 2\); got \(1,\)\."),
    "gradient_x nan": (lambda: P.pullback([0.0, 0.0], [math.nan, 0.0]), r"gradient_x must be finite; got nan"),
    "gradient_x size": (
        lambda: P.pullback([0.0, 0.0], [0.0]),
        r"gradient_x must have shape \(\.\.\., 2\); got \(1,\)\.",
    ),
    "u size": (lambda: P.from_uniform([0.5]), r"u must have shape \(\.\.\., 2\); got \(1,\)\."),
    "u range": (lambda: P.from_uniform([0.5, 1.5]), r"u must be in \[0, 1\]; got 1\.5\."),
    "u nan": (lambda: PRODUCT.from_uniform([0.5, math.nan, 0.5]), r"u must be finite; got nan at index 1\."),
    "no samples": (lambda: P.sample(0), r"n must be at least 1; got 0\."),
    "half a sample": (lambda: P.sample(1.5), r"n must be a whole number of samples; got 1\.5\."),
    "odd pairs": (lambda: P.sample(3, antithetic=True), r"n must be even for antithetic pairs; got 3\."),
    "negative seed": (lambda: P.sample(1, -1), r"seed must be a non-negative integer, .* or None; got -1\."),
    "float seed": (lambda: P.sample(1, 0.5), r"seed must be a non-negative integer, .* or None; got 0\.5\."),
    "zero factor": (lambda: P.sharpen(0.0), r"factor must be in \(0, 1\]; got 0\."),
    "large factor": (lambda: Bernoulli(0.5).sharpen(2.0), r"factor must be in \(0, 1\]; got 2\."),
    "nan factor": (lambda: OneHotCategorical([0.5, 0.5]).sharpen(math.nan), r"factor must be finite; got nan\."),
    "factor of a product": (lambda: PRODUCT.sharpen(-1.0), r"factor must be in \(0, 1\]; got -1\."),
    "vector factor": (lambda: P.sharpen([0.5, 0.5]), r"factor must be a number; got shape \(2,\)\."),
    "unknown gradient": (
        lambda: P.natural_gradient({"x": 0.0}),
        r"gradient names 'x', which Gaussian does not have",
    ),
    "gradient shape": (
        lambda: P.natural_gradient({"mean": [1.0]}),
        r"gradient\['mean'\] must have shape \(\.\.\., 2\); got \(1,\)\.",
    ),
    "gradient nan": (lambda: P.natural_gradient({"sigma": math.nan}), r"gradient\['sigma'\] must be finite; got nan\."),
    "gradient key": (
        lambda: PRODUCT.natural_gradient({"x": {}}),
        r"gradient names 'x', which Product does not have; accepted: 'w', 'b'\.",
    ),
}


@pytest.mark.parametrize("name", [*BAD_PARAMETERS, *BAD_CALLS])
def test_bad_input_is_refused_with_its_own_sentence(name):
    call, sentence = {**BAD_PARAMETERS, **BAD_CALLS}[name]
    with pytest.raises(ValueError, match=sentence):
        call()


def test_integers_and_single_precision_become_float64():
    for family in (Gaussian([0, 1], 2), Gaussian(np.float32([0.0, 1.0]), np.float32(2.0))):
        assert family == Gaussian([0.0, 1.0], 2.0)
        assert all(value.dtype == np.float64 for value in family.parameters.values())
        assert family.log_density(np.float32([0.0, 1.0])).dtype == np.float64
    assert Bernoulli([True, False]).mean.tolist() == [1.0, 0.0]


def test_replace_takes_any_mapping_and_keywords_win():
    assert P.replace(MappingProxyType({"sigma": 3.0}), sigma=2.0) == Gaussian([0.0, 1.0], 2.0)


# Domains ----------------------------------------------------------------------------------------------------------


def inside(domain):
    """Typical values, and the ends where they are allowed."""
    ends = [e for e, is_open in ((domain.low, domain.low_open), (domain.high, domain.high_open))
            if math.isfinite(e) and not is_open]  # fmt: skip
    values = st.floats(*domain.typical)
    return values | st.sampled_from(ends) if ends else values


def outside(domain):
    """Finite values that the domain refuses: beyond the ends, and the ends where they are open."""
    choices = []
    if math.isfinite(domain.low):
        choices.append(st.floats(max_value=domain.low, exclude_max=not domain.low_open, allow_infinity=False))
    if math.isfinite(domain.high):
        choices.append(st.floats(min_value=domain.high, exclude_min=not domain.high_open, allow_infinity=False))
    return st.one_of(choices)


NOT_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])


def with_first_entry(value, entry):
    changed = np.array(value)
    changed[(0,) * changed.ndim] = entry
    return changed


@pytest.mark.parametrize("name", ELEMENTARY)
@given(data=st.data())
def test_values_outside_the_domain_are_refused_by_name(name, data):
    family = REGISTRY[name](2, np.random.default_rng(0))
    for parameter, domain in family.domains.items():
        bad = NOT_FINITE if domain == REAL else NOT_FINITE | outside(domain)
        changed = with_first_entry(family.parameters[parameter], data.draw(bad, label=parameter))
        with pytest.raises(ValueError, match=f"^{parameter} .*must be"):
            family.replace({parameter: changed})


@pytest.mark.parametrize("name", ELEMENTARY)
@given(data=st.data())
def test_values_inside_the_domain_and_on_its_edges_work(name, data):
    template = REGISTRY[name](2, np.random.default_rng(0))
    parameters = {}
    for parameter, domain in template.domains.items():
        value = template.parameters[parameter]
        drawn = data.draw(st.lists(inside(domain), min_size=value.size, max_size=value.size), label=parameter)
        array = np.reshape(drawn, value.shape)
        if getattr(template, "dispersion", None) == "cholesky":
            array = np.tril(array) if array.ndim == 2 else array
        if isinstance(template, OneHotCategorical):
            array = np.where(array.sum(axis=1, keepdims=True) == 0.0, 1.0, array)
            array = array / array.sum(axis=1, keepdims=True)
        parameters[parameter] = array
    family = template.replace(parameters)
    assert list(family.parameters) == list(family.domains)
    assert np.isfinite(family.entropy())
    assert np.all(family.variance >= 0.0)
    assert np.isfinite(family.log_density(family.mode))
    x = family.sample(8, seed=0)
    log_p = family.log_density(x)
    assert np.isfinite(log_p).all()
    assert np.all(log_p <= family.log_density(family.mode) + 1e-9)
    sharper = family.sharpen(0.5)
    assert sharper.variance.sum() <= family.variance.sum() * (1 + 1e-12)
    if family.has_score:
        scores = family.score(x)
        assert all(np.isfinite(s).all() for s in scores.values())
        natural = family.natural_gradient({key: s.sum(axis=0) for key, s in scores.items()})
        assert all(np.isfinite(step).all() for step in natural.values())


@pytest.mark.parametrize("name", SCALED)
@given(
    mean=st.floats(-1e150, 1e150),
    scale=st.floats(1e-150, 1e150),
    u=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2),
)
def test_any_scale_samples_inside_the_support(name, mean, scale, u):
    template = REGISTRY[name](2, np.random.default_rng(0))
    _, parameter = template.domains
    unit = np.eye(2) if template.dispersion == "cholesky" else np.ones(template.scale.shape)
    family = template.replace({"mean": [mean, -mean], parameter: scale * unit})
    x = family.from_uniform(u)
    assert np.isfinite(x).all()
    assert np.isfinite(family.log_density(x)) or abs(mean) > 1e100 * scale  # rounding of x is many deviations
    assert not np.isnan(family.log_density([-mean, mean]))
    assert math.isfinite(family.entropy())


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
@given(data=st.data(), factor=st.floats(1e-3, 1.0))
def test_temperature_moves_probability_to_the_mode(name, data, factor):
    rows = data.draw(st.lists(st.tuples(*[st.integers(0, 9)] * 3).filter(any), min_size=1, max_size=4))
    weights = np.array(rows, dtype=float)
    weights /= weights.sum(axis=1, keepdims=True)
    family = OneHotCategorical(weights) if name == "categorical" else Bernoulli(weights[:, 0])
    sharper = family.sharpen(factor)
    assert sharper.entropy() <= family.entropy() + 1e-9
    at_mode = family.mode == 1.0
    assert np.all(sharper.mean[at_mode] >= family.mean[at_mode] - 1e-12)
    assert np.all((sharper.mean == 0.0) >= (family.mean == 0.0))
