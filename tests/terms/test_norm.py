"""The Gaussian mean of the Euclidean norm against mpmath, closed forms, finite differences and limits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.special import i0e, i1e, ndtr

from varopt.terms import group_norm

DIMENSIONS = [1, 2, 3, 5, 10, 100, 1000, 10000]
NAMES = ["value", "first", "second", "radial", "sigma_derivative", "gap"]
TOLERANCE = 1e-13


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="warn", under="ignore"):
        warnings.simplefilter("error")
        yield


def _all(r: Any, s: Any, d: Any) -> list[NDArray[np.floating[Any]]]:
    return [
        *group_norm.derivatives(r, s, d),
        group_norm.radial(r, s, d),
        group_norm.sigma_derivative(r, s, d),
        group_norm.gap(r, s, d),
    ]


def _reference(r: float, s: float, d: int) -> list[Any]:
    """The definitions in 1F1, with 50 digits left after the cancellation in the gap and for d = 1."""
    rho = r / s
    lost = 2 * np.log10(1 + rho) + (0.22 * min(rho, 40) ** 2 if d == 1 else 0)
    with mp.workdps(55 + int(lost)):
        r_, s_, half = mp.mpf(r), mp.mpf(s), mp.mpf(1) / 2
        x, b = (r_ / s_) ** 2 / 2, d * half
        c = mp.sqrt(2) * mp.gammaprod([b + half], [b])
        value = s_ * c * mp.hyp1f1(-half, b, -x, maxterms=10**6)
        radial = c / d / s_ * mp.hyp1f1(half, b + 1, -x, maxterms=10**6)
        second = c / d / s_ * (mp.hyp1f1(3 * half, b + 1, -x, maxterms=10**6) if d > 1 else mp.exp(-x))
        # The definition of dE/ds, not the identity that the code uses: E = s F(r/s), so dE/ds = F - rho F'.
        return [value, radial * r_, second, radial, value / s_ - radial * r_**2 / s_, value - r_]


def _ratios(d: int) -> NDArray[np.float64]:
    """r/s over all magnitudes, and on both sides of every place where the method changes."""
    rng = np.random.default_rng(d)
    switches = [8 - d, 16 - d, 32 - d, 64 - d, 128 - d, 2 * d, 16 * d, 100, 16]
    near = np.sqrt([v for v in switches if v > 0])
    return np.concatenate(
        [
            [0.0, 1e-8, 1.0, 1e3, 1e8],
            near * (1 - 1e-12),
            near * (1 + 1e-12),
            10 ** rng.uniform(-8, 8, 10),
            10 ** rng.uniform(-1, 2, 25),
            np.sqrt(d) * rng.uniform(0, 5, 15),
        ]
    )


@pytest.mark.parametrize("d", [*DIMENSIONS, 4, 7, 20, 50, 63, 64])
def test_matches_mpmath(d: int) -> None:
    rng = np.random.default_rng(0)
    ratios = _ratios(d)
    s = np.where(rng.random(ratios.size) < 0.5, 1.0, 10 ** rng.uniform(-3, 3, ratios.size))
    r = ratios * s
    got = _all(r, s, d)
    for i in range(r.size):
        for name, actual, expected in zip(NAMES, got, _reference(r[i], s[i], d), strict=True):
            if abs(expected) < 1e-290:  # d = 1, far out: a subnormal number or 0
                assert 0 <= actual[i] < 1e-289
            else:
                error = abs(mp.mpf(float(actual[i])) / expected - 1)
                assert error <= TOLERANCE, f"{name} at r/s = {ratios[i]}, s = {s[i]}: relative error {float(error):.1e}"


@pytest.mark.parametrize("d", [1, 2, 3, 10, 1000])
def test_derivatives_match_finite_differences(d: int) -> None:
    r = np.array([0.3, 1.0, 2.5, 7.0, 12.0, 40.0, 300.0])
    s = np.array([0.7, 1.0, 3.0, 1.0, 2.0, 0.5, 4.0])
    h = 1e-5 * s
    value, first, second, radial, sigma, _ = _all(r, s, d)
    up, down = group_norm.derivatives(r + h, s, d), group_norm.derivatives(r - h, s, d)
    noise = 1e-14 * value / h
    assert np.all(abs((up[0] - down[0]) / (2 * h) - first) <= 1e-9 + noise)
    assert np.all(abs((up[1] - down[1]) / (2 * h) - second) <= 1e-9 / s + 1e-14 / h)
    sides = group_norm.expectation(r, s + h, d) - group_norm.expectation(r, s - h, d)
    assert np.all(abs(sides / (2 * h) - sigma) <= 1e-9 * np.sqrt(d) + noise)
    assert_allclose(sigma, s * (second + (d - 1) * first / r), rtol=1e-13)  # the heat equation
    assert_allclose(radial * r, first, rtol=1e-14)


def test_radial_and_second_make_the_hessian() -> None:
    m, s, d, h = np.array([0.4, -1.0, 0.7]), 0.8, 3, 1e-4
    r = np.linalg.norm(m)

    def gradient(m: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(group_norm.radial(np.linalg.norm(m), s, d) * m)

    numerical = np.stack([(gradient(m + h * e) - gradient(m - h * e)) / (2 * h) for e in np.eye(3)])
    along = np.outer(m, m) / r**2
    exact = group_norm.radial(r, s, d) * (np.eye(3) - along) + group_norm.derivatives(r, s, d)[2] * along
    assert_allclose(exact, numerical, atol=1e-8)


def test_closed_forms_for_one_and_two_dimensions() -> None:
    r = np.linspace(0, 12, 101)
    phi = np.exp(-(r**2) / 2) / np.sqrt(2 * np.pi)
    value, first, second = group_norm.derivatives(r, 1.0, 1)
    assert_allclose(value, 2 * phi + r * (2 * ndtr(r) - 1), rtol=1e-13)
    assert_allclose(first, 2 * ndtr(r) - 1, rtol=1e-13, atol=1e-15)
    assert_allclose(second, 2 * phi, rtol=1e-13)
    y = r**2 / 4  # the mean of the Rice distribution
    rice = np.sqrt(np.pi / 2) * ((1 + 2 * y) * i0e(y) + 2 * y * i1e(y))
    assert_allclose(group_norm.expectation(r, 1.0, 2), rice, rtol=1e-13)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_value_at_the_origin(d: int) -> None:
    s = np.array([1e-300, 0.3, 1.0, 1e300])
    with mp.workdps(50):
        c = float(mp.sqrt(2) * mp.gammaprod([mp.mpf(d + 1) / 2], [mp.mpf(d) / 2]))
    value, first, second, radial, sigma, gap = _all(0.0, s, d)
    assert_allclose(value / s, c, rtol=TOLERANCE)
    assert_allclose(group_norm.worst_gap(s, d) / s, c, rtol=TOLERANCE)
    assert_allclose(gap / s, c, rtol=TOLERANCE)
    assert_allclose(sigma, c, rtol=TOLERANCE)
    assert_allclose(sigma, d * second * s, rtol=TOLERANCE)
    assert_allclose(radial, second, rtol=TOLERANCE)
    assert_array_equal(first, 0)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_shape_in_r(d: int) -> None:
    r = np.concatenate([[0], np.geomspace(1e-3, 1e6, 4001)])
    value, first, second, radial, sigma, gap = _all(r, 1.0, d)
    slack = 1 + 3e-14  # the rounding errors of neighbours may differ
    for increasing in (value, first):
        assert np.all(increasing[:-1] <= increasing[1:] * slack)
    for decreasing in (second, radial, sigma, gap):
        assert np.all(decreasing[1:] <= decreasing[:-1] * slack)
    assert np.all((first >= 0) & (first <= 1))
    assert np.all(second >= 0)
    assert np.all(second <= radial * slack)  # E' is concave
    assert np.all(gap <= group_norm.worst_gap(1.0, d) * slack)
    assert_allclose(value, r + gap, rtol=1e-13)


def test_increases_with_s_and_d() -> None:
    s, d = np.geomspace(1e-3, 1e3, 301), np.arange(1, 301)
    for r in (0.0, 0.1, 3.0, 30.0):
        assert np.all(np.diff(group_norm.gap(r, s[:, None], d), axis=0) >= 0)
        assert np.all(np.diff(group_norm.gap(r, s[:, None], d), axis=1) >= 0)


def test_gap_far_out() -> None:
    d = np.array(DIMENSIONS[1:])
    assert_allclose(group_norm.gap(1e12, 1.0, d), (d - 1) / 2e12, rtol=1e-14)
    assert_allclose(group_norm.gap(1e200, 1e-50, d), (d - 1) / 2 * 1e-300, rtol=1e-14)
    assert_allclose(group_norm.gap(30.0, 1.0, 1), 2 * np.exp(-450) / np.sqrt(2 * np.pi) / (900 + 3), rtol=1e-5)


def test_no_smoothing() -> None:
    r, d = np.array([[1e-300], [0.5], [1e300]]), np.array(DIMENSIONS)
    full = np.broadcast_to(r, (3, d.size))
    for actual, expected in zip(_all(r, 0.0, d), [full, 1, 0, 1 / full, 0, 0], strict=True):
        assert_array_equal(actual, expected)
    value, first, second, radial, sigma, gap = _all(0.0, 0.0, d)
    for zero in (value, first, second, radial, gap):
        assert_array_equal(zero, 0)
    assert_allclose(sigma, group_norm.worst_gap(1.0, d), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_finite_and_silent_at_the_extremes(dtype: type[np.floating[Any]]) -> None:
    info = np.finfo(dtype)
    sizes = np.array([0, info.smallest_subnormal, info.tiny, 1e-30, 1e-8, 1, 1e8, 1e30, info.max], dtype)
    sizes = np.concatenate([sizes, [1e-300, 1e-100, 1e100, 1e300]]) if dtype is np.float64 else sizes
    r, s, d = sizes[:, None, None], sizes[:, None], np.array([*DIMENSIONS, 10**6, 10**9])
    with np.errstate(all="raise"):
        results = [*_all(r, s, d), group_norm.worst_gap(s, d)]
    for result in results:
        assert result.dtype == dtype
        assert np.all(np.isfinite(result))
        assert np.all(result >= 0)


def test_single_precision_and_scalars() -> None:
    r, s, d = np.array([0, 0.5, 3, 1e4], np.float32), np.float32(0.25), np.array([1, 2, 30, 400])
    for single, double in zip(_all(r, s, d), _all(r.astype(float), float(s), d), strict=True):
        assert single.dtype == np.float32
        assert double.dtype == np.float64
        assert_array_equal(single, double.astype(np.float32))
    assert group_norm.expectation(r, 0.25, 3).dtype == np.float32  # a Python number does not widen
    assert group_norm.expectation(r, np.float64(0.25), 3).dtype == np.float64
    assert group_norm.expectation([1, 2], 1, 3).dtype == np.float64
    assert np.ndim(group_norm.expectation(1, 2, 3)) == 0
    assert np.isnan(group_norm.expectation([np.nan, 1.0], [1.0, np.nan], 1)).all()
    assert np.isnan(group_norm.gap([np.nan, 1.0], [1.0, np.nan], [[1], [2]])).all()


def test_broadcasts_and_does_not_depend_on_the_neighbours() -> None:
    rng = np.random.default_rng(0)
    n = group_norm._ELEMENTS_AT_ONCE + 17
    r, s, d = 10 ** rng.uniform(-2, 3, n), rng.uniform(0.5, 2, n), rng.integers(1, 200, n)
    pick = slice(None, None, 97)
    for whole, part in zip(_all(r, s, d), _all(r[pick], s[pick], d[pick]), strict=True):
        assert_allclose(whole[pick], part, rtol=1e-14)
    assert group_norm.gap(np.ones((4, 1, 1)), np.ones((3, 1)), np.array([1, 2])).shape == (4, 3, 2)
    assert group_norm.gap(np.ones((0, 3)), 1.0, 2).shape == (0, 3)
