"""Two lines that meet, on short vectors: the same digits as the general formulas, and as fifty-digit arithmetic."""

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from varopt import terms

LINES = {
    "abs": terms.abs_(),
    "hinge": terms.hinge(),
    "pos": terms.pos(),
    "pinball": terms.pinball(0.3),
    "tilted": terms.piecewise([0.5], [[0.0, 2.0], [0.75, 0.5]]),
}


@pytest.mark.parametrize("term", LINES.values(), ids=LINES)
def test_both_ways_agree_with_fifty_digits(term, rng):
    mean = np.concatenate([rng.normal(0.0, 2.0, 30), [0.0, 0.5, 1.0, 1e-9, -30.0, 30.0]])
    sigma = 10.0 ** rng.uniform(-2.0, 1.0, mean.size)
    first, second = term.slope_and_curvature(mean, sigma)
    _, general, curved = term.derivatives(mean, sigma)
    knot, left, right = term.kink
    digits = 1e-15 * (4.0 + ((mean - knot) / sigma) ** 2)  # a few units in the last place of exp(-u^2 / 2)
    assert np.all(np.abs(first - general) <= digits * np.abs(general) + 1e-300)
    assert np.all(np.abs(second - curved) <= digits * np.abs(curved) + 1e-300)
    with mpmath.workdps(50):
        u = [(mpmath.mpf(m) - knot) / mpmath.mpf(s) for m, s in zip(mean, sigma, strict=True)]
        exact = [left * mpmath.ncdf(-v) + right * mpmath.ncdf(v) for v in u]
    size = np.array([float(abs(left) * mpmath.ncdf(-v) + abs(right) * mpmath.ncdf(v)) for v in u])
    assert np.all(np.abs(first - np.array(exact, dtype=float)) <= digits * size + 1e-300)
    weighted = term.slope_and_curvature(mean, sigma, 3.0)
    assert_allclose(weighted, [3.0 * first, 3.0 * second], rtol=1e-15)
    parts = np.abs(term.value(knot)) + np.abs(mean - knot) * size + sigma**2 * np.abs(second)
    weights = rng.uniform(0.0, 2.0, mean.size)
    value, gradient = term.weighted_sum(sigma, weights)(mean)
    assert abs(value - weights @ term.expectation(mean, sigma)) <= weights @ (4.0 * digits * parts)
    assert np.all(np.abs(gradient - weights * general) <= digits * (weights * size) + 1e-300)


@pytest.mark.parametrize("term", LINES.values(), ids=LINES)
def test_slopes_stay_between_those_of_the_lines_and_reach_them(term):
    _, left, right = term.kink
    first, second = term.slope_and_curvature(np.array([-1e3, -9.0, 0.3, 9.9, 1e3, np.inf]), 0.5)
    assert np.all((first >= min(left, right)) & (first <= max(left, right)))
    assert_array_equal(first[[0, -2, -1]], [left, right, right])
    assert second[0] == 0.0


def test_what_is_not_two_lines_or_does_not_move_goes_the_general_way():
    assert terms.step().kink is None
    assert terms.huber(1.0).kink is None
    assert terms.clip(0.0, 1.0).kink is None
    first, second = terms.abs_().slope_and_curvature(np.array([-1.0, 2.0]), np.array([0.0, 0.5]))
    assert first[0] == -1.0
    assert second[0] == 0.0
    with pytest.raises(ValueError, match="sigma must be >= 0"):
        terms.abs_().slope_and_curvature(np.array([1.0]), -1.0)
    assert np.shape(terms.abs_().slope_and_curvature(0.0, 1.0)[0]) == ()


@pytest.mark.parametrize(
    "term", [terms.hinge(), terms.pinball(0.3), terms.huber(1.0), terms.step(), terms.ramp()], ids=repr
)
@pytest.mark.parametrize("sigma", [0.5, np.array([0.0, 0.1, 2.0, 1e-310]), 0.0])
def test_a_weighted_sum_is_that_of_the_general_formulas_wherever_the_rows_are(term, sigma):
    weights = np.array([1.0, 0.0, 2.5, 1.0])
    total = term.weighted_sum(sigma, weights)
    for mean in np.array([[0.3, -2.0, 1.0, 5.0], [1e200, -1e3, 0.0, 1e300], [-1e300, 1.0, 1.0, 1.0]]):
        with np.errstate(all="ignore"):
            value, gradient = total(mean)
            first = term.derivatives(mean, sigma)[1]
            assert_allclose(value, weights @ term.expectation(mean, sigma), rtol=1e-14)
            assert_allclose(gradient, weights * first, rtol=1e-14, atol=1e-300)
            assert value == total(mean)[0]  # and nothing is left behind


SEVERAL = {
    "ramp": terms.ramp(),
    "clip": terms.clip(-0.5, 2.0),
    "capped_abs": terms.capped_abs(1.5),
    "step": terms.step(),
    "zero_one": terms.zero_one(),
    "kink and jump": terms.piecewise([-1.0, 0.5], [[0.0, 2.0], [0.75, 0.5], [3.0]]),
}


def fifty_digits(term, mean, sigma):
    """Expectation and slope of a term of lines, piece by piece between its knots."""
    ends = [-mpmath.inf, *map(mpmath.mpf, term.knots), mpmath.inf]
    value = slope = mpmath.mpf(0)
    for piece, centre, left, right in zip(term.pieces, term.centres, ends[:-1], ends[1:], strict=True):
        constant, rise = [*map(mpmath.mpf, piece), 0, 0][:2]
        a, b = (left - mean) / sigma, (right - mean) / sigma
        chance, drop = mpmath.ncdf(b) - mpmath.ncdf(a), mpmath.npdf(b) - mpmath.npdf(a)
        at_mean = constant + rise * (mean - centre)
        value += at_mean * chance - rise * sigma * drop
        turned = sum(sign * t * mpmath.npdf(t) for sign, t in ((1, b), (-1, a)) if mpmath.isfinite(t))
        slope += rise * chance - at_mean * drop / sigma - rise * turned
    return value, slope


@pytest.mark.parametrize("term", SEVERAL.values(), ids=SEVERAL)
def test_sums_of_several_lines_agree_with_fifty_digits(term, rng):
    mean = np.concatenate([rng.normal(0.0, 2.0, 30), [0.0, 0.5, 1.0, 1e-9, -30.0, 30.0]])
    sigma = 10.0 ** rng.uniform(-2.0, 1.0, mean.size)
    weights = rng.uniform(0.0, 2.0, mean.size)
    value, gradient = term.weighted_sum(sigma, weights)(mean)
    with mpmath.workdps(50):
        exact = [fifty_digits(term, mpmath.mpf(m), mpmath.mpf(s)) for m, s in zip(mean, sigma, strict=True)]
        total = mpmath.fsum(w * e for w, (e, _) in zip(weights, exact, strict=True))
    size = 1.0 + np.abs(mean) + sigma
    assert abs(value - float(total)) <= 1e-15 * (weights @ size)
    slopes = weights * np.array([float(slope) for _, slope in exact])
    assert np.all(np.abs(gradient - slopes) <= 4e-15 * weights * size / sigma)
