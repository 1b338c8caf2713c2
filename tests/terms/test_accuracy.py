"""Expectations, derivatives and gaps against mpmath, and equal results however they are asked for."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.terms import reference
from tests.terms.cases import DECLARED, NAMED, PARAMETRIC, by_row, drawn, label, polynomial_terms
from varopt import terms
from varopt._array import BLOCK  # the size of a block
from varopt.terms import REGISTRY, PiecewisePolynomial

UNITS = [0.0, 1e-12, -1e-5, 0.1, -0.13, 0.7, -1.6, 2.9, -4.99, 8.0, -13.0, 21.5, -30.0, 30.0, -36.0, 100.0, -1e3]
SIGMAS = [1e-6, 1e-3, 0.1, 0.4, 1.0, 3.0, 20.0, 1e3, 1e6]
UNDERFLOW = 1e-290


def tolerance(term: PiecewisePolynomial, mean: float, sigma: float) -> float:
    """The promise: 1e-14 up to 5 standard deviations from the nearest knot, 1e-12 up to 30, 1e-10 beyond."""
    u = min((abs(mean - t) / sigma for t in term.knots), default=0.0)
    return 1e-14 if u <= 5 else 1e-12 if u <= 30.0001 else 1e-10


def points(term: PiecewisePolynomial, per_unit: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Every distance of `UNITS` from a knot, with sigmas and knots in turn: few points that meet all cases."""
    knots = term.knots or (0.0,)
    turns = [(u, i) for i, u in enumerate(u for u in UNITS for _ in range(per_unit))]
    # Another start for each term, and steps without a common divisor, mix distances and sigmas over the whole suite.
    start = len(label(term)) + 3 * len(knots)
    sigma = np.array([SIGMAS[(start + 4 * i) % len(SIGMAS)] for _, i in turns])
    mean = np.array([knots[i % len(knots)] + u * s for (u, i), s in zip(turns, sigma, strict=True)])
    return mean, sigma


def check(name: str, actual: float, expected: mp.mpf, scale: mp.mpf, limit: float, where: tuple[float, float]) -> None:
    if abs(scale) < UNDERFLOW:
        assert abs(actual) <= 1e-289, f"{name} does not underflow at {where}"
    else:
        error = float(abs(mp.mpf(float(actual)) - expected) / scale)
        assert error <= limit, f"{name} at mean, sigma = {where}: error {error:.1e} of its scale, {limit:g} promised"


def check_everything(term: PiecewisePolynomial, mean: np.ndarray, sigma: np.ndarray, *, exact: bool = True) -> None:
    value, first, second = term.derivatives(mean, sigma)
    by_sigma, gap = term.sigma_derivative(mean, sigma), term.gap(mean, sigma)
    # Where what is averaged has one sign the expectation is its own scale: the error is then relative to the result. Of
    # pieces of a high degree the monomials cancel, whatever their sum does.
    simple = term.degree <= 2
    convex = simple and term.curvature.is_convex
    positive = simple and bool(term.infimum >= 0)
    monotone = simple and term.is_continuous and (term.subgradient_range[0] >= 0 or term.subgradient_range[1] <= 0)
    for i, where in enumerate(zip(mean.tolist(), sigma.tolist(), strict=True)):
        limit = tolerance(term, *where)
        for k, (actual, plain) in enumerate(((value, positive), (first, monotone), (second, convex))):
            expected, scale = reference.expectation(term, *where, derivative=k)
            check(f"derivative {k}", actual[i], expected, abs(expected) if plain else scale, limit, where)
        check(
            "sigma_derivative",
            by_sigma[i],
            expected * where[1],
            (abs(expected) if convex else scale) * where[1],
            limit,
            where,
        )
        if exact:
            expected, scale = reference.gap(term, *where)
            check("gap", gap[i], expected, abs(expected) if convex else scale, limit, where)


@pytest.mark.parametrize("term", [terms.huber(1.0), DECLARED[-1], polynomial_terms(3)[1]], ids=label)
def test_reference_is_the_integral(term):
    mean, sigma = 0.3, 0.8
    with mp.workdps(25):
        ends = [-mp.inf, *term.knots, mp.inf]
        total = mp.quad(lambda z: reference.value(term, z, 25) * mp.npdf(z, mean, sigma), ends)
        assert mp.almosteq(reference.expectation(term, mean, sigma)[0], total, 1e-18)
        assert mp.almosteq(reference.gap(term, mean, sigma)[0], total - reference.value(term, mean), 1e-17)
        for k in (1, 2):
            slope = mp.diff(lambda x, k=k: reference.expectation(term, x, sigma, k - 1)[0], mean)
            assert mp.almosteq(reference.expectation(term, mean, sigma, k)[0], slope, 1e-15)


@pytest.mark.parametrize("term", [*NAMED, *DECLARED], ids=label)
def test_matches_mpmath(term):
    check_everything(term, *points(term))


@pytest.mark.parametrize("declaration", REGISTRY.values(), ids=lambda declaration: declaration.name)
def test_matches_mpmath_with_default_parameters(declaration):
    term = declaration.build()
    # Where coefficients are rounded, knots are not quite continuous: the reference sees that in the gap.
    check_everything(term, *(array[::3] for array in points(term)), exact=False)


@pytest.mark.parametrize("degree", range(3, 9))
def test_high_degrees_match_mpmath(degree):
    for term in polynomial_terms(degree):
        mean, sigma = points(term, per_unit=1)
        moderate = (abs(mean) < 1e4) & (sigma < 1e4)  # beyond, s^8 times an underflowed tail is not small
        check_everything(term, mean[moderate], sigma[moderate])


@pytest.mark.parametrize("ratio", [0.05, 0.24, 0.26, 0.5, 1.0, 2.9, 3.1, 7.9, 8.1])
@pytest.mark.parametrize("term", [terms.huber(1.0), terms.scad(1.0, 3.0), polynomial_terms(6)[3]], ids=label)
def test_every_distance_between_knots(term, ratio):
    # The formula changes where knots are close in units of sigma: by the width of a piece, and by its distance.
    width = term.knots[1] - term.knots[0]
    sigma = width / ratio
    mean = term.knots[0] + sigma * np.array([-9.0, -1.0, 0.0, 0.5 * ratio, ratio, 4.0])
    check_everything(term, mean, np.full(6, sigma))


@pytest.mark.parametrize("width", [0.5, 2.0, 2.9, 3.1, 5.0, 7.9, 8.1])
def test_wide_pieces_beside_a_narrow_one(width):
    # The narrow one has all pieces integrated, and the wide one is out of the reach of a quadrature.
    wide = [0.0, 1.0, -0.125]
    term = terms.piecewise([0.0, 0.0625, 0.0625 + width], [[0.0], [0.0, 2.0, -1.0], wide, [0.5]])
    mean = np.array([-6.0, -1.0, 0.0, 0.03, 0.5 * width, width, width + 2.0, width + 7.0])
    check_everything(term, mean, np.ones(8))


# -- Where textbook formulas cancel ------------------------------------------------------------------------------------


def test_hinge_keeps_its_digits_far_below_its_knot():
    # u Phi(u) + phi(u) loses 11 of 16 digits at u = -30.
    for u in (-10.0, -20.0, -30.0, -37.0):
        value, slope, _ = terms.hinge().derivatives(1.0 - u, 1.0)
        with mp.workdps(600):
            tail = mp.erfc(-u / mp.sqrt(2)) / 2
            expected = u * tail + mp.npdf(u)
        assert abs(mp.mpf(float(value)) / expected - 1) <= 1e-12
        assert abs(mp.mpf(-float(slope)) / tail - 1) <= 1e-12


def test_gap_keeps_its_digits_on_both_sides():
    # Subtracting the value from the expectation would give 0, or 7e-15 at best.
    u = np.array([-30.0, -9.0, 9.0, 30.0])
    for term, jump in ((terms.abs_(), 2.0), (terms.pos(), 1.0), (terms.pinball(0.25), 1.0)):
        for actual, x in zip(term.gap(u, 1.0), np.abs(u), strict=True):
            with mp.workdps(600):
                expected = jump * (mp.npdf(x) - x * mp.erfc(x / mp.sqrt(2)) / 2)
            assert abs(mp.mpf(float(actual)) / expected - 1) <= 1e-12


def test_slope_of_abs_keeps_its_digits_through_zero():
    u = np.concatenate([np.geomspace(1e-300, 5.0, 60), np.geomspace(0.05, 0.3, 40)])
    slope = terms.abs_().derivatives(np.concatenate([u, -u]), 1.0)[1]
    assert_array_equal(slope[: u.size], -slope[u.size :])
    for actual, x in zip(slope, u, strict=False):
        with mp.workdps(50):
            expected = mp.erf(mp.mpf(x) / mp.sqrt(2))
        assert abs(mp.mpf(float(actual)) / expected - 1) <= 1e-14


# -- The same numbers however they are asked for ---------------------------------------------------------------------


def everything(term, mean, sigma):
    return [*term.derivatives(mean, sigma), term.sigma_derivative(mean, sigma), term.gap(mean, sigma), term.value(mean)]


@pytest.mark.parametrize("declaration", PARAMETRIC, ids=lambda d: d.name)
def test_parameters_by_row_match_one_term_at_a_time(declaration, rng):
    together, singles = by_row(declaration, 6)
    assert together.rows == len(singles) > 1
    for sigma in (1e-3, 0.5, 4.0, 100.0):
        mean = rng.uniform(-4.0, 4.0, len(singles))
        whole = everything(together, mean, sigma)
        for i, term in enumerate(singles):
            for rows, single in zip(whole, everything(term, mean[i], sigma), strict=True):
                assert_allclose(rows[i], single, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("term", [drawn(declaration)[-1] for declaration in REGISTRY.values()], ids=label)
def test_blocks_do_not_show(term, rng):
    n = 2 * BLOCK + 3
    mean, sigma = rng.normal(0.0, 3.0, n), 10.0 ** rng.uniform(-2.0, 2.0, n)
    pick = np.concatenate(
        [np.arange(5), BLOCK + np.arange(-5, 5), 2 * BLOCK + np.arange(-5, 3), rng.integers(0, n, 50)]
    )
    for s, at in ((sigma, sigma[pick]), (np.array([0.7]), 0.7)):
        for whole, part in zip(everything(term, mean, s), everything(term, mean[pick], at), strict=True):
            assert whole.shape == (n,)
            assert_array_equal(whole[pick], part)


def test_blocks_do_not_show_in_parameters_by_row(rng):
    n = 2 * BLOCK + 3
    level, mean = rng.uniform(0.1, 0.9, n), rng.normal(size=n)
    whole = everything(terms.pinball(level), mean, 0.5)
    for start in (0, BLOCK - 2, 2 * BLOCK - 2):
        rows = slice(start, start + 5)
        for a, b in zip(whole, everything(terms.pinball(level[rows]), mean[rows], 0.5), strict=True):
            assert_array_equal(a[rows], b)


def test_shapes_broadcast():
    term = terms.huber(1.0)
    mean, sigma = np.linspace(-2.0, 2.0, 5), np.array([[0.1], [1.0], [10.0]])
    for whole in everything(term, mean[None, :], sigma)[:5]:
        assert whole.shape == (3, 5)
    grid = term.expectation(mean, sigma)
    for i, s in enumerate(sigma[:, 0]):
        assert_array_equal(grid[i], term.expectation(mean, s))
    assert term.expectation(0.5, np.ones(4)).shape == (4,)
    assert term.expectation(np.empty(0), 1.0).shape == (0,)
    rows = terms.pinball(np.array([0.25, 0.5, 0.75]))
    assert rows.expectation(np.zeros((2, 3)), 1.0).shape == (2, 3)
    assert_array_equal(rows.expectation(0.5, 1.0), [terms.pinball(v).expectation(0.5, 1.0) for v in (0.25, 0.5, 0.75)])


@pytest.mark.parametrize("term", [drawn(declaration)[-1] for declaration in REGISTRY.values()], ids=label)
@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 0.1, 0.5, 3.0, 1e3])
def test_short_vectors_have_what_long_ones_have(term, sigma, rng):
    """In a handful of calls: to rounding, for one deviation and for one of each row, knots included."""
    mean = np.concatenate([rng.normal(0.0, 3.0, 60), rng.normal(0.0, 3.0 * sigma, 20), *map(np.atleast_1d, term.knots)])
    for s in (sigma, sigma * rng.uniform(0.1, 1.0, mean.size)):
        general = term.derivatives(mean, s)
        for ours, theirs in zip(term.derivatives_of_few(mean, s), general, strict=True):
            assert_allclose(ours, theirs, rtol=1e-12, atol=4e-15 * np.abs(theirs).max())
        assert_allclose(term.expectation_of_few(mean, s), general[0], rtol=1e-12, atol=4e-15 * np.abs(general[0]).max())


def test_terms_of_the_same_numbers_are_one():
    """So that what is known of them is found once; other kinds of numbers are checked as ever."""
    assert terms.pinball(0.3) is terms.pinball(0.3) is not terms.pinball(0.4)
    assert terms.pinball(level=0.3) is terms.pinball(level=0.3)
    assert terms.pinball(np.array([0.3, 0.3])) is not terms.pinball(np.array([0.3, 0.3]))
    with pytest.raises(ValueError, match="level"):
        terms.pinball(1.5)
    with pytest.raises(ValueError, match="level"):
        terms.pinball(True)
