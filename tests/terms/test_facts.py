"""What a declaration says of its term, against brute force: value, shape, slopes, conjugate, gap, heat equation."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar

from tests.terms import reference
from tests.terms.cases import DECLARED, NAMED, drawn, label, polynomial_terms
from varopt import terms
from varopt.terms import AFFINE, CONCAVE, CONVEX, REGISTRY, UNKNOWN, PiecewisePolynomial

TERMS = [*NAMED, *DECLARED]
CONTINUOUS = [term for term in TERMS if term.is_continuous]
CONVEX_TERMS = [term for term in TERMS if term.curvature.is_convex]
STEP = 2.0**-20  # exact in the differences of dyadic numbers

# Sixteen numbers an example: what is drawn costs more than what is computed.
means = arrays(float, 16, elements=st.floats(-40.0, 40.0))
sigmas = arrays(float, 16, elements=st.floats(1e-3, 1e3))
few = settings(max_examples=20)


def places(term: PiecewisePolynomial) -> np.ndarray:
    """Dyadic numbers around, on and between the knots."""
    rng = np.random.default_rng(len(label(term)))
    around = np.round(rng.uniform(-8.0, 8.0, 60) * 64) / 64
    return np.concatenate([[0.0], term.knots, around])


def bend(term: PiecewisePolynomial) -> float:
    """The largest second derivative of any piece: what a difference quotient misses."""
    return max(2.0 * abs(piece[2]) if len(piece) > 2 else 0.0 for piece in term.pieces)


# -- Value -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", [*TERMS, *polynomial_terms(5)], ids=label)
def test_value_matches_the_declaration(term):
    z = places(term)
    for x, actual in zip(z, term.value(z), strict=True):
        assert_allclose(actual, float(reference.value(term, x, 60)), rtol=1e-13, atol=1e-13)
    assert_array_equal(term(z), term.value(z))


FORMULAS = {  # written out by hand, from the papers that the docstrings name
    "abs": abs,
    "pos": lambda z: max(z, 0.0),
    "hinge": lambda z: max(1.0 - z, 0.0),
    "squared_hinge": lambda z: max(1.0 - z, 0.0) ** 2,
    "pinball": lambda z, level: level * z if z >= 0 else (level - 1.0) * z,
    "epsilon_insensitive": lambda z, epsilon: max(abs(z) - epsilon, 0.0),
    "huber": lambda z, delta: z * z / 2 if abs(z) <= delta else delta * (abs(z) - delta / 2),
    "step": lambda z: float(z >= 0),
    "zero_one": lambda z: float(z <= 0),
    "ramp": lambda z: min(1.0, max(1.0 - z, 0.0)),
    "capped_abs": lambda z, cap: min(abs(z), cap),
    "mcp": lambda z, lam, gamma: lam * abs(z) - z * z / (2 * gamma) if abs(z) <= gamma * lam else gamma * lam * lam / 2,
    "scad": lambda z, lam, a: (
        lam * abs(z)
        if abs(z) <= lam
        else (2 * a * lam * abs(z) - z * z - lam * lam) / (2 * (a - 1))
        if abs(z) <= a * lam
        else lam * lam * (a + 1) / 2
    ),
    "clip": lambda z, low, high: min(max(z, low), high),
    "dead_zone": lambda z, width: z - min(max(z, -width), width),
    "square": lambda z: z * z,
}


@pytest.mark.parametrize("term", NAMED, ids=label)
def test_named_terms_are_what_their_names_say(term):
    formula = FORMULAS[term.name]
    z = places(term)
    assert_allclose(term.value(z), [formula(x, **term.parameters) for x in z], rtol=1e-14, atol=1e-14)


def test_value_on_a_jump_is_that_of_the_side_declared():
    assert terms.step().value(0.0) == 1.0
    assert terms.zero_one().value(0.0) == 1.0
    assert terms.step().value(-5e-324) == 0.0
    assert terms.zero_one().value(5e-324) == 0.0
    right, left = (PiecewisePolynomial((2.0,), ((1.0,), (5.0,)), at_knot=side) for side in ("right", "left"))
    assert (right.value(2.0), left.value(2.0)) == (5.0, 1.0)


@pytest.mark.parametrize("term", TERMS, ids=label)
def test_without_noise_the_expectation_is_the_value(term):
    z = places(term)
    assert_allclose(term.expectation(z, 0.0), term.value(z), rtol=1e-15, atol=1e-15)
    assert_array_equal(term.gap(z, 0.0), 0.0)
    off = z[~np.isin(z, term.knots)]
    for order in (1, 2):
        assert_allclose(term.derivatives(off, 0.0)[order], term.derivative(off, order), rtol=1e-15, atol=1e-15)


def test_rows_without_noise_stand_beside_rows_with():
    term, mean = terms.huber(1.0), np.array([0.3, 0.3, -2.0])
    mixed = term.derivatives(mean, np.array([0.0, 1.0, 0.0]))
    for i, s in enumerate((0.0, 1.0, 0.0)):
        assert_array_equal([m[i] for m in mixed], term.derivatives(mean[i], s))


@pytest.mark.parametrize("term", [*TERMS, *polynomial_terms(4)], ids=label)
def test_infimum_is_the_lowest_value(term):
    z = np.concatenate([np.linspace(-30.0, 30.0, 60001), term.knots, [-1e9, 1e9]])
    lowest = np.min(term.value(z))
    if np.isfinite(term.infimum):
        limits = [p[0] for p in (term.pieces[0], term.pieces[-1]) if len(p) == 1]
        assert_allclose(min(lowest, *limits, math.inf), term.infimum, rtol=1e-6, atol=1e-6)
        assert np.all(term.value(z) >= term.infimum - 1e-9 * abs(term.infimum))
    else:
        assert lowest < -1e7


# -- Shape -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", [*TERMS, *polynomial_terms(3)], ids=label)
def test_curvature_is_what_midpoints_say(term):
    rng = np.random.default_rng(0)
    near = np.concatenate(
        [rng.uniform(-10.0, 10.0, 4000), np.repeat(term.knots, 200) + rng.normal(0.0, 0.2, 200 * len(term.knots))]
    )
    x, y = rng.permutation(near), near
    excess = term.value((x + y) / 2) - (term.value(x) + term.value(y)) / 2
    noise = 1e-12 * (1.0 + np.abs(term.value(x)) + np.abs(term.value(y)))
    assert term.curvature.is_convex == bool(np.all(excess <= noise))
    assert term.curvature.is_concave == bool(np.all(excess >= -noise))
    assert (term.why_not_convex() == "") == term.curvature.is_convex


@pytest.mark.parametrize("term", CONTINUOUS, ids=label)
def test_second_derivative_matches_second_differences(term):
    z = places(term)
    z = z[np.min([np.abs(z - t) for t in term.knots] or [np.ones_like(z)], axis=0) > 1e-3]
    h = 2.0**-10
    differences = (term.value(z + h) - 2 * term.value(z) + term.value(z - h)) / h**2
    assert_allclose(term.derivative(z, 2), differences, atol=1e-8)
    assert_allclose(term.derivative(z), (term.value(z + h) - term.value(z - h)) / (2 * h), atol=1e-11)


def test_curvature_of_declarations():
    assert terms.piecewise([], [[2.0, 1.0]]).curvature is AFFINE
    assert terms.piecewise([0.0], [[0.0, 1.0], [0.0, 0.5]]).curvature is CONCAVE
    assert terms.piecewise([0.0], [[1.0], [1.0]]).curvature is AFFINE  # a knot without a kink
    assert terms.piecewise([1.0], [[0.0], [1.0]]).curvature is UNKNOWN
    # (z - 1)^4 in powers of z: its second derivative touches zero, and rounding must not push it below.
    assert terms.piecewise([], [[1.0, -4.0, 6.0, -4.0, 1.0]]).curvature is CONVEX
    assert terms.piecewise([], [[0.1**4, -4 * 0.1**3, 6 * 0.1**2, -0.4, 1.0]]).curvature is CONVEX
    assert terms.piecewise([], [[0.0, 0.0, -1e-9, 0.0, 1.0]]).curvature is UNKNOWN
    assert terms.piecewise([0.0], [[0.0, 0.0, 0.0, -1.0], [0.0, 0.0, 0.0, 1.0]]).curvature is CONVEX  # |z|^3


def test_curvature_of_rows_is_that_of_all_of_them():
    def kinks(*jumps: float) -> PiecewisePolynomial:
        return terms.piecewise([0.0], [[0.0], [0.0, np.array(jumps)]])

    assert kinks(1.0, 2.0, 0.0).curvature is CONVEX
    assert kinks(-1.0, -2.0).curvature is CONCAVE
    assert kinks(1.0, -1.0).curvature is UNKNOWN
    assert_array_equal(kinks(1.0, 0.0).infimum, [0.0, 0.0])
    assert_array_equal(kinks(1.0, -1.0).infimum, [0.0, -np.inf])


def test_why_not_convex_names_the_place():
    assert terms.step().why_not_convex() == "it jumps at 0"
    assert terms.ramp().why_not_convex() == "its slope falls at 0"
    assert terms.piecewise([], [[0.0, 0.0, -1.0]]).why_not_convex() == "its piece 0 bends down"
    assert "slope falls at a knot" in terms.capped_abs(np.array([1.0, 2.0])).why_not_convex()


# -- Slopes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", CONTINUOUS, ids=label)
def test_slopes_are_the_range_of_difference_quotients(term):
    low, high = term.subgradient_range
    z = np.sort(np.concatenate([np.linspace(-40.0, 40.0, 40001), term.knots]))
    z = z[np.concatenate([[True], np.diff(z) > 1e-6])]
    quotients = np.diff(term.value(z)) / np.diff(z)
    assert np.all((quotients >= low - 1e-9) & (quotients <= high + 1e-9))
    for end, reached in ((low, np.min(quotients)), (high, np.max(quotients))):
        if np.isfinite(end):
            assert_allclose(reached, end, atol=2e-3 * bend(term) + 1e-9)
        else:
            assert abs(reached) > 10 * bend(term)


@pytest.mark.parametrize("term", CONTINUOUS, ids=label)
@few
@given(mean=means, sigma=sigmas)
def test_smoothed_slopes_lie_in_the_interval(term, mean, sigma):
    # A slope outside by one rounding would be outside the domain of the conjugate: no dual point.
    low, high = term.subgradient_range
    slope = term.derivatives(mean, sigma)[1]
    assert np.all((low <= slope) & (slope <= high))


@pytest.mark.parametrize("term", CONTINUOUS, ids=label)
def test_subdifferential_is_between_one_sided_differences(term):
    z = places(term)
    left = (term.value(z) - term.value(z - STEP)) / STEP
    right = (term.value(z + STEP) - term.value(z)) / STEP
    low, high = term.subdifferential(z)
    slack = STEP * bend(term) + 1e-7
    assert_allclose(low, np.minimum(left, right), atol=slack)
    assert_allclose(high, np.maximum(left, right), atol=slack)
    assert_allclose(term.derivative(z), right, atol=slack)
    on_knot = np.isin(z, [t for t, jump in zip(term.knots, term.jumps, strict=True) if len(jump) > 1 and jump[1] != 0])
    assert_array_equal(low < high, on_knot)


@pytest.mark.parametrize("what", ["subgradient_range", "subdifferential"])
def test_slopes_of_a_jump_are_refused(what):
    with pytest.raises(ValueError, match=f"{what} needs a continuous term, and step jumps at a knot"):
        terms.step().subgradient_range if what == "subgradient_range" else terms.step().subdifferential(0.0)


# -- Conjugate ---------------------------------------------------------------------------------------------------------


def dual_points(term: PiecewisePolynomial) -> np.ndarray:
    """Slopes of the term: all over its interval, and the ends where they are finite."""
    low, high = (float(np.clip(end, -5.0, 5.0)) for end in term.subgradient_range)
    return np.unique(np.concatenate([np.linspace(low, high, 23), [low, high]]))


@pytest.mark.parametrize("term", CONVEX_TERMS, ids=label)
def test_conjugate_is_the_supremum(term):
    grid = np.concatenate([np.linspace(-20.0, 20.0, 8001), term.knots])
    slopes = dual_points(term)
    for v, conjugate in zip(slopes, term.conjugate(slopes), strict=True):

        def negative(z: float, v: float = v) -> float:
            return float(term.value(z) - v * z)

        found = minimize_scalar(negative, bounds=(-20.0, 20.0), method="bounded", options={"xatol": 1e-9})
        best = max(-found.fun, np.max(v * grid - term.value(grid)))
        assert_allclose(conjugate, best, atol=1e-8)
        assert conjugate >= best - 1e-12


@pytest.mark.parametrize("term", CONVEX_TERMS, ids=label)
def test_fenchel_young_is_an_equality_on_the_subdifferential(term):
    z = places(term)
    low, high = term.subdifferential(z)
    for share in (0.0, 0.25, 1.0):
        v = (1.0 - share) * low + share * high
        assert_allclose(v * z, term.value(z) + term.conjugate(v), rtol=1e-13, atol=1e-13)
    # And an inequality everywhere.
    v = np.resize(dual_points(term), z.size)
    assert np.all(term.value(z) + term.conjugate(v) >= v * z - 1e-12)


@pytest.mark.parametrize("term", CONVEX_TERMS, ids=label)
def test_conjugate_is_infinite_outside_the_slopes(term):
    low, high = term.subgradient_range
    for inside, outside in ((low, -np.inf), (high, np.inf)):
        if np.isfinite(inside):
            assert np.isfinite(term.conjugate(inside))
            assert_array_equal(
                term.conjugate([np.nextafter(inside, outside), inside + math.copysign(3.0, outside)]), np.inf
            )


@pytest.mark.parametrize("term", CONVEX_TERMS, ids=label)
@few
@given(mean=means, sigma=sigmas)
def test_smoothed_slopes_are_dual_points(term, mean, sigma):
    assert np.all(np.isfinite(term.conjugate(term.derivatives(mean, sigma)[1])))


def test_conjugate_by_row():
    level = np.array([0.25, 0.75])
    assert_array_equal(terms.pinball(level).conjugate(0.5), [np.inf, 0.0])
    delta = np.array([1.0, 2.0])
    assert_allclose(terms.huber(delta).conjugate(np.array([0.5, 1.5])), [0.125, 1.125])


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (terms.ramp(), "ramp is not convex: its slope falls at 0"),
        (terms.step(), "step is not convex: it jumps at 0"),
        (terms.piecewise([0.0], [[0.0], [0.0, 0.0, 0.0, 1.0]], name="cube"), "cube has degree 3"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_conjugate_is_refused_with_the_reason(term, reason):
    with pytest.raises(ValueError, match=f"conjugate needs a convex term with pieces of degree at most 2; {reason}"):
        term.conjugate(0.0)


# -- Gap ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("term", [*TERMS, polynomial_terms(4)[3]], ids=label)
def test_worst_gap_is_the_largest(term, sigma):
    worst, where = term.worst_gap(sigma)
    knots = np.array(term.knots or (0.0,))
    step = sigma / 100
    grid = np.arange(knots[0] - 12 * sigma, knots[-1] + 12 * sigma, step)
    grid = np.concatenate([grid, knots, np.nextafter(knots, -np.inf), np.nextafter(knots, np.inf)])
    gaps = term.gap(grid, sigma)
    highest = grid[np.argmax(gaps)]
    found = minimize_scalar(lambda x: -term.gap(x, sigma), bounds=(highest - step, highest + step), method="bounded")
    best = max(-found.fun, np.max(gaps))
    size = max(abs(best), abs(worst))
    assert_allclose(worst, best, atol=1e-7 * size + 1e-15)
    assert worst >= best - 1e-12 * size
    # It is reached where it says, or in the limit.
    beside = (
        np.array([np.nextafter(where, -np.inf), where, np.nextafter(where, np.inf)]) if np.isfinite(where) else where
    )
    there = np.max(term.gap(beside, sigma)) if np.isfinite(where) else term.gap(np.copysign(1e6 * sigma, where), sigma)
    assert_allclose(there, worst, atol=1e-9 * size + 1e-15)


def test_worst_gap_of_the_paper_s_terms():
    for term, jump in ((terms.abs_(), 2.0), (terms.hinge(), 1.0), (terms.pinball(0.3), 1.0)):
        worst, where = term.worst_gap(np.array([0.5, 2.0]))
        assert_allclose(worst, jump * np.array([0.5, 2.0]) / math.sqrt(2 * math.pi), rtol=1e-15)
        assert_array_equal(where, term.knots[0])
    assert terms.squared_hinge().worst_gap(0.5) == (0.25, -np.inf)
    assert terms.piecewise([0.0], [[0.0, 1.0], [0.0]]).worst_gap(0.5) == (0.0, -np.inf)  # concave: only approached
    assert terms.piecewise([0.0], [[0.0], [0.0, 0.0, 0.0, 1.0]]).worst_gap(0.5) == (np.inf, np.inf)
    assert_allclose(terms.step().worst_gap(3.0)[0], 0.5, rtol=1e-15)


@pytest.mark.parametrize("term", TERMS, ids=label)
def test_worst_gap_without_noise_is_zero(term):
    assert term.worst_gap(0.0)[0] == 0.0


def test_worst_gap_far_from_the_knots():
    # 6e6 x^2 - x^4 bends most at x = z - 300 = 0: a thousand sigmas from the knots, or without any.
    hill = (np.polynomial.Polynomial([-300.0, 1.0]) ** 2 * 6e6 - np.polynomial.Polynomial([-300.0, 1.0]) ** 4).coef
    for knots, pieces in (([], [hill]), ([-1000.0, 1100.0], [[hill @ (-1000.0) ** np.arange(5)], hill, [0.0]])):
        worst, where = terms.piecewise(knots, pieces).worst_gap(1.0)
        if not knots:
            assert worst == pytest.approx(6e6 - 3.0, rel=1e-9)
            assert where == pytest.approx(300.0, abs=1.0)
        assert worst >= (6e6 - 3.0) * (1 - 1e-9)


def test_worst_gap_by_row():
    delta, sigma = np.array([0.5, 1.0, 4.0]), np.array([0.2, 1.0, 1.0])
    worst, where = terms.huber(delta).worst_gap(sigma)
    for i in range(3):
        single, _ = terms.huber(delta[i]).worst_gap(sigma[i])
        assert_allclose(worst[i], single, rtol=1e-12)
    assert worst.shape == where.shape == (3,)
    mixed = terms.piecewise([0.0], [[0.0], [0.0, 0.0, np.array([0.0, 1.0]), np.array([0.0, 0.0])]])
    assert_array_equal(mixed.worst_gap(2.0)[0], [0.0, 4.0])


@pytest.mark.parametrize("term", TERMS, ids=label)
@few
@given(mean=means, sigma=sigmas)
def test_gap_coefficients_bound_the_gap(term, mean, sigma):
    constant, linear, quadratic = term.gap_coefficients()
    bound = constant + linear * sigma + quadratic * sigma**2
    assert np.all(abs(term.gap(mean, sigma)) <= bound * (1 + 1e-14))


def test_gap_coefficients_are_reached():
    constant, linear, quadratic = terms.abs_().gap_coefficients()
    assert (constant, quadratic) == (0.0, 0.0)
    assert terms.abs_().worst_gap(1.0)[0] == pytest.approx(linear, rel=1e-15)
    assert terms.square().gap_coefficients() == (0.0, 0.0, 1.0)
    assert terms.step().gap_coefficients() == (0.5, 0.0, 0.0)
    assert terms.piecewise([0.0], [[0.0], [0.0, 0.0, 0.0, 1.0]]).gap_coefficients()[2] == np.inf


@pytest.mark.parametrize("term", CONVEX_TERMS, ids=label)
@few
@given(mean=means, sigma=sigmas)
def test_smoothing_a_convex_term_only_raises_it(term, mean, sigma):
    assert np.all(term.gap(mean, sigma) >= 0.0)
    assert np.all(term.derivatives(mean, sigma)[2] >= 0.0)


# -- Expectation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", [*TERMS, *polynomial_terms(5)], ids=label)
def test_heat_equation(term):
    knots = np.array(term.knots or (0.0,))
    mean = np.concatenate([knots, knots + 0.6, knots - 1.7])
    for s in (0.3, 1.0, 4.0):
        h = 1e-4 * s
        up, down = term.expectation(mean, s + h), term.expectation(mean, s - h)
        by_sigma = term.sigma_derivative(mean, s)
        scale = np.max(np.abs(term.expectation(mean, s))) / s + np.max(np.abs(by_sigma))
        assert_allclose(by_sigma, (up - down) / (2 * h), atol=1e-6 * scale)
        assert_allclose(by_sigma, s * term.derivatives(mean, s)[2], rtol=1e-14, atol=1e-14 * scale)


@pytest.mark.parametrize("term", [*TERMS, *polynomial_terms(5)], ids=label)
def test_derivatives_match_differences(term):
    mean = np.concatenate([term.knots or (0.0,), [-1.3, 0.4, 2.2]])
    for s in (0.3, 1.0, 4.0):
        h = 1e-4 * s
        value, first, second = term.derivatives(mean, s)
        up, down = term.derivatives(mean + h, s), term.derivatives(mean - h, s)
        scale = np.max(np.abs(value)) / s + np.max(np.abs(first)) + s * np.max(np.abs(second))
        assert_allclose(first, (up[0] - down[0]) / (2 * h), atol=1e-6 * scale)
        assert_allclose(second, (up[1] - down[1]) / (2 * h), atol=1e-6 * scale / s)
        assert_array_equal(value, term.expectation(mean, s))


@pytest.mark.parametrize("term", TERMS, ids=label)
def test_sigma_derivative_starts_at_the_limit(term):
    z = np.concatenate([term.knots or (0.0,), [-1.3, 0.4, 2.2]])
    continuous = [all(jump[0] == 0 for t, jump in zip(term.knots, term.jumps, strict=True) if t == x) for x in z]
    assert_allclose(term.sigma_derivative(z, 0.0)[continuous], term.sigma_derivative(z, 1e-9)[continuous], atol=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 3, 6])
def test_shift_and_scale_of_a_declaration(degree):
    # rho((z - shift) / unit), declared by its own knots and coefficients; all numbers are dyadic.
    original = polynomial_terms(degree)[1] if degree > 2 else DECLARED[1 + degree]
    shift, unit = 3.0, 4.0
    pieces = [
        _substituted(piece, centre, shift, unit)
        for piece, centre in zip(original.pieces, original.centres, strict=True)
    ]
    moved = terms.piecewise([shift + unit * t for t in original.knots], pieces)
    mean, sigma = np.array([-3.0, -1.0, 0.25, 0.5, 2.0, 5.0]), 0.75
    assert_allclose(moved.value(shift + unit * mean), original.value(mean), rtol=1e-12)
    there = moved.derivatives(shift + unit * mean, unit * sigma)
    for k, (a, b) in enumerate(zip(there, original.derivatives(mean, sigma), strict=True)):
        assert_allclose(a * unit**k, b, rtol=1e-11, atol=1e-11 * np.max(np.abs(b)))
    assert moved.curvature is original.curvature
    assert_allclose(moved.infimum, original.infimum, atol=1e-9)
    assert_allclose(moved.worst_gap(unit)[0], original.worst_gap(1.0)[0], rtol=1e-8)


def _substituted(piece, centre, shift, unit):
    """Coefficients in powers of z of ``p((z - shift) / unit - centre)``."""
    total = np.polynomial.Polynomial([0.0])
    inner = np.polynomial.Polynomial([-shift / unit - centre, 1.0 / unit])
    for m, c in enumerate(piece):
        total = total + c * inner**m
    return total.coef.tolist()


def test_mirror_image():
    mean, sigma = np.linspace(-4.0, 4.0, 17), 0.8
    for term, mirrored in (
        (terms.pos(), terms.piecewise([0.0], [[0.0, -1.0], [0.0]])),
        (terms.pinball(0.25), terms.pinball(0.75)),
    ):
        value, first, second = term.derivatives(mean, sigma)
        other = mirrored.derivatives(-mean, sigma)
        for k, (a, b) in enumerate(zip((value, first, second), other, strict=True)):
            assert_allclose(a, (-1) ** k * b, rtol=1e-15)


@few
@given(mean=means, sigma=sigmas)
def test_terms_add_up(mean, sigma):
    # |z| = z_+ + (-z)_+, clip = z - dead zone, and ramp = hinge - hinge(z + 1).
    parts = terms.pos().expectation(mean, sigma) + terms.pos().expectation(-mean, sigma)
    assert_allclose(terms.abs_().expectation(mean, sigma), parts, rtol=1e-14)
    scale = 1.0 + abs(mean) + sigma
    rest = mean - terms.dead_zone(0.5).expectation(mean, sigma)
    assert np.all(abs(terms.clip(-0.5, 0.5).expectation(mean, sigma) - rest) <= 1e-14 * scale)
    hinges = [terms.hinge().expectation(mean + shift, sigma) for shift in (0.0, 1.0)]
    assert np.all(abs(terms.ramp().expectation(mean, sigma) - (hinges[0] - hinges[1])) <= 1e-14 * scale)


def test_step_is_the_distribution_function():
    mean = np.linspace(-6.0, 6.0, 25)
    value, first, _ = terms.step().derivatives(mean, 1.0)
    with mp.workdps(30):
        assert_allclose(value, [float(mp.ncdf(x)) for x in mean], rtol=1e-14)
    assert_allclose(first, np.exp(-(mean**2) / 2) / math.sqrt(2 * math.pi), rtol=1e-14)  # [SB12, section 1.1]


# -- Rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [slice(1, 4), np.array([4, 0, 0]), np.array([True, False, True, False, True])])
def test_take_selects_rows(index):
    level, mean = np.linspace(0.1, 0.9, 5), np.linspace(-1.0, 1.0, 5)
    term = terms.pinball(level)
    assert term.rows == 5
    taken = term.take(index)
    assert_array_equal(taken.expectation(mean[index], 0.3), term.expectation(mean, 0.3)[index])
    assert_array_equal(taken.value(mean[index]), term.value(mean)[index])
    assert_array_equal(taken.gap(mean[index], 0.3), term.gap(mean, 0.3)[index])
    assert taken.curvature is CONVEX


def test_take_of_a_term_without_rows_is_itself():
    term = terms.huber(1.0)
    assert term.rows is None
    assert term.take(slice(0, 2)) is term


def test_equal_rows_are_one_number():
    assert terms.pinball(np.full(7, 0.25)).rows is None


@pytest.mark.parametrize("declaration", REGISTRY.values(), ids=lambda d: d.name)
def test_registry_entries_describe_themselves(declaration):
    assert declaration.formula
    assert declaration.build.__doc__
    assert getattr(terms, declaration.build.__name__) is declaration.build
    term = declaration.build()
    assert term.name == declaration.name == repr(term).partition("(")[0]
    assert term.parameters == dict(declaration.defaults)
    for name, domain in declaration.parameters.items():
        assert domain.contains(np.asarray(declaration.defaults[name]))
    assert declaration.name in FORMULAS  # and the value is tested against a formula written by hand
    assert drawn(declaration)
