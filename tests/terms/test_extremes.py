"""Any finite input, any float type, any array library: no NaN, no warning, and the same numbers."""

from __future__ import annotations

import sys

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from tests.terms import reference
from tests.terms.cases import DECLARED, NAMED, PARAMETRIC, by_row, drawn, label, polynomial_terms
from varopt import terms
from varopt.terms import REGISTRY

HIGH_DEGREES = [*polynomial_terms(3)[:2], *polynomial_terms(8)[:2]]
TERMS = [*NAMED, *DECLARED, *HIGH_DEGREES]
LARGEST = sys.float_info.max
SIZES = [5e-324, 1e-308, 1e-200, 1e-154, 1e-20, 1e-3, 1.0, 3.0, 1e3, 1e20, 1e154, 1e200, 1e300, 1e308, LARGEST]
MEANS = np.array([-x for x in SIZES] + [0.0, -0.0] + SIZES)
SIGMAS = np.array([0.0, *SIZES])
NAMES = ["value", "first", "second", "sigma_derivative", "gap"]

# At extreme parameters knots coincide for every sigma, or for none.
EXTREME = [
    terms.huber(1e-200),
    terms.huber(1e150),
    terms.epsilon_insensitive(5e-324),
    terms.mcp(1e-300, 3.0),
    terms.scad(1e150, 3.7),
    terms.clip(-1e306, 1e307),
    terms.capped_abs(np.array([1e-320, 1.0, 1e307])),
]


def everything(term, mean, sigma):
    return [*term.derivatives(mean, sigma), term.sigma_derivative(mean, sigma), term.gap(mean, sigma)]


def exact(term, name, mean, sigma):
    """What the result should be, and its scale."""
    if name == "gap":
        return reference.gap(term, mean, sigma)
    k = {"value": 0, "first": 1, "second": 2, "sigma_derivative": 2}[name]
    factor = mp.mpf(sigma) if name == "sigma_derivative" else 1
    return tuple(part * factor for part in reference.expectation(term, mean, sigma, k))


@pytest.mark.parametrize("term", [*TERMS, *EXTREME], ids=label)
def test_no_nan_and_no_warning_at_the_ends_of_the_range(term):
    mean, sigma = (x.ravel() for x in np.meshgrid(MEANS, SIGMAS))
    if term.rows:
        mean, sigma = mean[:, None], sigma[:, None]
    with np.errstate(all="raise", under="ignore"):
        for name, result in zip(NAMES, everything(term, mean, sigma), strict=True):
            assert not np.any(np.isnan(result)), name
        assert not np.any(np.isnan(term.value(mean)))
        assert not np.any(np.isnan(term.derivative(mean)))


@pytest.mark.parametrize("term", [*(drawn(d)[0] for d in REGISTRY.values()), *HIGH_DEGREES[::2], *EXTREME], ids=label)
def test_worst_gap_at_the_ends_of_the_range(term):
    with np.errstate(all="raise", under="ignore"):
        worst, where = term.worst_gap(SIGMAS[::3] if not term.rows else SIGMAS[::3, None])
    assert not np.any(np.isnan(worst))
    assert not np.any(np.isnan(where))


@pytest.mark.parametrize("term", [*NAMED, *DECLARED, HIGH_DEGREES[0], *EXTREME[:-1]], ids=label)
def test_infinite_only_where_no_number_is_large_enough(term):
    mean, sigma = (x.ravel() for x in np.meshgrid(MEANS, SIGMAS[1:]))
    for name, result in zip(NAMES, everything(term, mean, sigma), strict=True):
        # Exact results take long at these arguments, which differ by 600 powers of ten: of the infinities only some.
        infinite = np.flatnonzero(np.isinf(result))
        for i in infinite[:: max(1, len(infinite) // 3)]:
            expected, _ = exact(term, name, float(mean[i]), float(sigma[i]))
            assert abs(expected) > (1 - 1e-12) * LARGEST, f"{name} at {mean[i]}, {sigma[i]} is {mp.nstr(expected, 5)}"
            assert (result[i] > 0) == (expected > 0)


@pytest.mark.parametrize("term", TERMS, ids=label)
@settings(max_examples=12)
@given(
    mean=arrays(float, 16, elements=st.floats(allow_nan=False, allow_infinity=False)),
    sigma=arrays(float, 16, elements=st.floats(0.0, allow_nan=False, allow_infinity=False)),
)
def test_no_nan_for_any_finite_floats(term, mean, sigma):
    with np.errstate(all="raise", under="ignore"):
        for name, result in zip(NAMES, everything(term, mean, sigma), strict=True):
            assert not np.any(np.isnan(result)), name
        assert not np.any(np.isnan(term.value(mean)))


@pytest.mark.parametrize("term", [*NAMED, *DECLARED], ids=label)
@settings(max_examples=5)
@given(
    mean=st.floats(-1e300, 1e300),
    sigma=st.floats(1e-100, 1e300),
)
def test_accurate_for_any_finite_floats(term, mean, sigma):
    results = dict(zip(NAMES, everything(term, mean, sigma), strict=True))
    for name in ("value", "first", "second", "sigma_derivative"):
        expected, scale = exact(term, name, mean, sigma)
        if 1e-280 < scale < LARGEST:
            assert abs(mp.mpf(float(results[name])) - expected) <= 1e-10 * scale, name


def test_large_powers_of_sigma_meet_small_tails():
    # sigma^2 overflows, the tail at 30 sigma is 1e-203, and their product is an ordinary number.
    sigma = 1e200
    value = float(terms.squared_hinge().expectation(30 * sigma, sigma))
    expected, _ = reference.expectation(terms.squared_hinge(), 30 * sigma, sigma)
    assert_allclose(value, float(expected), rtol=1e-11)


def test_an_overflowing_power_of_another_piece_does_not_matter():
    far = np.array([-1e200, 1e200, 1e308])
    for term, level in ((terms.mcp(1.0, 4.0), 2.0), (terms.scad(1.0, 3.0), 2.0)):
        assert_array_equal(term.expectation(far, 1.0), level)
    assert_array_equal(terms.squared_hinge().expectation(far[1:], 1.0), 0.0)
    assert_allclose(terms.huber(1.0).expectation(far, 1.0), np.abs(far), rtol=1e-15)


def test_sigma_derivative_does_not_need_the_second_derivative():
    # The second derivative of |z| at 0 is 0.8 / sigma, which overflows; sigma times it does not.
    root = np.sqrt(2 / np.pi)
    assert_allclose(terms.abs_().sigma_derivative(0.0, np.array([0.0, 5e-324, 1e-310, 1.0, 1e308])), root, rtol=1e-15)


def test_knots_far_apart_do_not_overflow():
    term = terms.clip(-1e307, 1e307)
    assert_allclose(term.expectation([-1e308, 0.0, 1e308], 1.0), [-1e307, 0.0, 1e307], atol=1e-300)


@pytest.mark.parametrize("term", NAMED, ids=label)
def test_nan_means_give_nan(term):
    assert np.isnan(term.expectation(np.nan, 1.0))
    assert_array_equal(np.isnan(term.expectation([0.5, np.nan], 1.0)), [False, True])
    assert_array_equal(np.isnan(term.expectation(0.5, [1.0, np.nan])), [False, True])
    assert np.isnan(term.value(np.nan)) or term.degree == 0


@pytest.mark.parametrize("method", ["expectation", "derivatives", "sigma_derivative", "gap"])
@pytest.mark.parametrize("sigma", [-1.0, [0.5, -1e-300], -np.inf])
def test_negative_sigma_is_refused(method, sigma):
    with pytest.raises(ValueError, match=r"^sigma must be >= 0"):
        getattr(terms.abs_(), method)(0.5, sigma)


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf, [0.5, -1e-300]])
def test_worst_gap_refuses_what_is_no_sigma(sigma):
    with pytest.raises(ValueError, match=r"^sigma must be"):
        terms.ramp().worst_gap(sigma)


# -- Types and libraries ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", [*NAMED, *DECLARED, *HIGH_DEGREES[:2]], ids=label)
def test_single_precision_in_single_precision_out(term):
    rng = np.random.default_rng(0)
    sigma = (10.0 ** rng.uniform(-2.0, 2.0, 12)).astype(np.float32)
    mean = (rng.choice(term.knots or (0.0,), 12) + rng.normal(0.0, 2.0, 12) * sigma).astype(np.float32)
    for name, single in zip(NAMES, everything(term, mean, sigma), strict=True):
        assert single.dtype == np.float32
        for i in range(12):
            expected, scale = exact(term, name, float(mean[i]), float(sigma[i]))
            assert abs(mp.mpf(float(single[i])) - expected) <= 1e-5 * scale + 1e-37, f"{name} at {mean[i]}, {sigma[i]}"
    assert term.value(mean).dtype == np.float32
    assert term.derivative(mean).dtype == np.float32
    assert term.expectation(mean, 0.5).dtype == np.float32  # a Python number does not widen
    assert term.expectation(0.5, sigma).dtype == np.float32
    assert term.expectation(mean, sigma.astype(float)).dtype == np.float64


@pytest.mark.parametrize("declaration", PARAMETRIC, ids=lambda d: d.name)
def test_single_precision_with_parameters_by_row(declaration):
    term, singles = by_row(declaration)
    rows = len(singles)
    mean = np.linspace(-2.0, 2.0, rows, dtype=np.float32)
    for s in (0.1, 1.0, 30.0):
        for single, double in zip(everything(term, mean, s), everything(term, mean.astype(float), s), strict=True):
            assert single.dtype == np.float32
            assert_allclose(single, double, atol=1e-5 * (1 + np.max(np.abs(double))))


@pytest.mark.parametrize("term", NAMED, ids=label)
def test_single_precision_at_the_ends_of_its_range(term):
    info = np.finfo(np.float32)
    sizes = np.array([info.smallest_subnormal, info.tiny, 1e-20, 1.0, 1e20, info.max], np.float32)
    mean, sigma = (x.ravel() for x in np.meshgrid(np.concatenate([-sizes, [0], sizes]), np.concatenate([[0], sizes])))
    with np.errstate(all="raise", under="ignore"):
        for name, result in zip(
            NAMES, everything(term, mean.astype(np.float32), sigma.astype(np.float32)), strict=True
        ):
            assert result.dtype == np.float32
            assert not np.any(np.isnan(result)), name


@pytest.mark.parametrize("term", NAMED, ids=label)
def test_integers_lists_and_scalars(term):
    expected = everything(term, np.array([-2.0, 0.0, 3.0]), np.array([1.0, 2.0, 1.0]))
    for mean, sigma in (
        ([-2, 0, 3], [1, 2, 1]),
        (np.array([-2, 0, 3]), np.array([1, 2, 1])),
        ((-2.0, 0, 3), (1.0, 2, 1)),
    ):
        for result, double in zip(everything(term, mean, sigma), expected, strict=True):
            assert result.dtype == np.float64
            assert_array_equal(result, double)
    for result, double in zip(everything(term, 3, True), expected, strict=True):
        assert np.ndim(result) == 0
        assert result == double[2]
    assert_array_equal(term.value([-2, 0, 3]), term.value(np.array([-2.0, 0.0, 3.0])))


def same_numbers(term, mean, sigma, convert, back):
    """The term on another library's arrays, against NumPy: to the rounding of sums that cancel."""

    def equal(theirs, ours, name=""):
        finite = np.abs(ours[np.isfinite(ours)])
        assert_allclose(back(theirs), ours, rtol=1e-14, atol=1e-14 * np.max(finite, initial=0.0), err_msg=name)

    for name, theirs, ours in zip(
        NAMES, everything(term, convert(mean), convert(sigma)), everything(term, mean, sigma), strict=True
    ):
        equal(theirs, ours, name)
    equal(term.value(convert(mean)), term.value(mean))
    equal(term.derivative(convert(mean)), term.derivative(mean))
    if term.is_continuous:
        for theirs, ours in zip(term.subdifferential(convert(mean)), term.subdifferential(mean), strict=True):
            equal(theirs, ours)


def samples():
    """Ordinary arguments, and extreme ones."""
    rng = np.random.default_rng(1)
    yield rng.normal(0.0, 2.0, 20), 10.0 ** rng.uniform(-2.0, 2.0, 20)
    yield np.array([0.0, 1.0, -1e200, 1e200]), np.array([0.0, 1e200, 1e-200, 1e200])


@pytest.mark.parametrize("term", TERMS, ids=label)
def test_array_api_strict(term):
    xp = pytest.importorskip("array_api_strict", reason="needs array-api-strict, from the test extra")
    for mean, sigma in samples():
        same_numbers(term, mean, sigma, xp.asarray, np.asarray)


@pytest.mark.parametrize("declaration", PARAMETRIC, ids=lambda d: d.name)
def test_array_api_strict_by_row(declaration):
    xp = pytest.importorskip("array_api_strict", reason="needs array-api-strict, from the test extra")
    term, singles = by_row(declaration)
    rows = len(singles)
    same_numbers(term, np.linspace(-2.0, 2.0, rows), np.geomspace(0.1, 50.0, rows), xp.asarray, np.asarray)


@pytest.mark.parametrize("term", TERMS, ids=label)
def test_torch(term):
    torch = pytest.importorskip("torch", reason="needs PyTorch, which is not in the test extra")
    for mean, sigma in samples():
        same_numbers(term, mean, sigma, torch.asarray, np.asarray)


@pytest.mark.parametrize("declaration", PARAMETRIC, ids=lambda d: d.name)
def test_torch_by_row(declaration):
    torch = pytest.importorskip("torch", reason="needs PyTorch, which is not in the test extra")
    term, singles = by_row(declaration)
    rows = len(singles)
    same_numbers(term, np.linspace(-2.0, 2.0, rows), np.geomspace(0.1, 50.0, rows), torch.asarray, np.asarray)


@pytest.mark.parametrize("term", TERMS, ids=label)
def test_inputs_are_not_changed(term):
    for mean, sigma in samples():
        copies = mean.copy(), sigma.copy()
        for result in everything(term, mean, sigma):
            result[...] = 0.0  # and results are the caller's own
        assert_array_equal(mean, copies[0])
        assert_array_equal(sigma, copies[1])


@pytest.mark.parametrize("term", TERMS, ids=label)
def test_a_number_alone_is_no_array_to_older_numpy(term, monkeypatch):
    """NumPy 2.0 casts arrays only, and comparisons of arrays without a dimension give scalars."""
    plain = np.astype

    def strict(x, dtype, /, *, copy=True):
        if not isinstance(x, np.ndarray):
            raise TypeError(f"Input should be a NumPy array. It is a {type(x)} instead.")
        return plain(x, dtype, copy=copy)

    expected = everything(term, np.array([0.3]), np.array([0.5]))
    monkeypatch.setattr(np, "astype", strict)
    if term.is_continuous:
        term.subdifferential(np.asarray(0.3))  # asks on both sides of the knots
    for found, known in zip(everything(term, np.asarray(0.3), np.asarray(0.5)), expected, strict=True):
        assert_array_equal(np.ravel(found), np.ravel(known))
