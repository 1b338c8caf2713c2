"""Numbers of twice the digits against fractions and mpmath."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from varopt._verified import (  # its arithmetic is checked against rational numbers
    EXPONENTIAL_SHARE,
    PAIR_SHARE,
    Pair,
    exponential,
    gram,
    sliced,
    squared_lengths,
)

SMALLEST = 2.0**-1022


def exact(pair):
    """The numbers of a pair of arrays."""
    return [
        Fraction(float(a)) + Fraction(float(b)) for a, b in zip(np.ravel(pair.high), np.ravel(pair.low), strict=True)
    ]


def drawn(rng, shape, spread=8.0):
    high = rng.standard_normal(shape) * 10.0 ** rng.uniform(-spread, spread, shape)
    return Pair(high, high * 2.0**-54 * rng.uniform(-1.0, 1.0, shape))


def test_sums_and_products_are_off_by_no_more_than_they_say(rng):
    a, b = drawn(rng, 300), drawn(rng, 300)
    for found, operation in ((a.plus(b), lambda x, y: x + y), (a.times(b), lambda x, y: x * y)):
        for x, y, z in zip(exact(a), exact(b), exact(found), strict=True):
            size = abs(x) + abs(y) if operation(1, 2) == 3 else abs(x * y)
            assert abs(z - operation(x, y)) <= Fraction(PAIR_SHARE) * size


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_sums_of_rows_keep_what_cancels(count, rng):
    numbers = drawn(rng, (3, count))
    numbers = Pair(np.hstack([numbers.high, -numbers.high]), np.hstack([numbers.low, numbers.low]))
    share = Fraction((np.log2(2 * count) + 2.0) ** 2 * PAIR_SHARE)
    for row, found in enumerate(exact(numbers.summed())):
        parts = exact(Pair(numbers.high[row], numbers.low[row]))
        assert abs(found - sum(parts)) <= share * sum(map(abs, parts))


def test_exponentials_have_the_digits_they_promise(rng):
    at = -np.concatenate([10.0 ** rng.uniform(-20.0, 2.8, 400), [0.0, 5e-324, 700.0, 744.0, 746.0, 1e300]])
    pair = Pair(at, at * 2.0**-54)
    with mpmath.workprec(400):
        for x, found in zip(exact(pair), exact(exponential(pair)), strict=True):
            value = mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)
            difference = abs(mpmath.mpf(found.numerator) / found.denominator - value)
            assert difference <= EXPONENTIAL_SHARE * value + SMALLEST


@pytest.mark.parametrize("width", [1, 3, 70])
@pytest.mark.parametrize("kind", ["digits", "units", "integers"])
def test_products_of_rows_are_off_by_no_more_than_slices_say(kind, width, rng):
    rows = drawn(rng, (5, width), 12.0 if kind == "units" else 0.5)
    if kind == "integers":
        rows = Pair.of(np.round(8.0 * rows.high))
    rows.high[2], rows.low[2] = rows.high[1], rows.low[1]
    rows.high[3], rows.low[3] = 0.0, 0.0
    slices = sliced(rows)
    products, lengths = gram(slices.parts, slices.parts), squared_lengths(slices.parts)
    np.testing.assert_array_equal(np.diagonal(products.high), lengths.high)
    np.testing.assert_array_equal(np.diagonal(products.low), lengths.low)
    assert products.high[1, 2] == lengths.high[1]
    numbers = [exact(Pair(high, low)) for high, low in zip(*rows, strict=True)]
    for i, row in enumerate(numbers):
        for j, other in enumerate(numbers):
            found = Fraction(float(products.high[i, j])) + Fraction(float(products.low[i, j]))
            off = abs(found - sum(a * b for a, b in zip(row, other, strict=True)))
            assert off <= Fraction(slices.share * slices.tops[i] * slices.tops[j])
            assert kind != "integers" or off == 0


def test_numbers_near_overflow_are_not_sliced():
    assert sliced(Pair.of(np.array([[1e200]]))) is None
