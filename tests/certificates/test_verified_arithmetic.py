"""Error bounds hold against exact rational arithmetic, and are not much wider than they have to be."""

from fractions import Fraction

import numpy as np
import pytest

from varopt._verified import (  # its arithmetic is checked against rational numbers
    Ball,
    dot,
    exact_sum,
    gamma,
    is_exact_product,
    total,
    weighted_columns,
)


def exact_dot(a, b):
    return sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)), Fraction(0))


def hard(rng, size, spread=20):
    """Numbers of many sizes whose sum cancels."""
    values = rng.standard_normal(size) * 10.0 ** rng.integers(-spread, spread, size)
    return np.concatenate([values, -values + np.spacing(values) * rng.integers(-3, 3, size)])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [1, 2, 7, 300, 4000])
def test_sums_lie_within_their_bounds(seed, size):
    rng = np.random.default_rng(seed)
    values = hard(rng, size)
    value, error = total(values)
    assert abs(Fraction(value) - exact_dot(values, np.ones(values.size))) <= Fraction(error)
    assert error <= 1e-15 * np.abs(values).sum()
    other = rng.permutation(hard(rng, size, 3))
    value, error = dot(values, other)
    assert abs(Fraction(value) - exact_dot(values, other)) <= Fraction(error)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (300, 7), (1500, 5)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_products_with_the_transpose_lie_within_their_bounds(seed, rows, columns, order):
    rng = np.random.default_rng(seed)
    matrix = np.asarray(rng.standard_normal((rows, columns)) * 10.0 ** rng.integers(-8, 8, columns), order=order)
    weights = rng.standard_normal(rows)
    ball = weighted_columns(matrix, Ball.exact(weights))
    exact = [exact_dot(column, weights) for column in matrix.T]
    for middle, radius, value in zip(ball.middle, ball.radius, exact, strict=True):
        assert abs(Fraction(float(middle)) - value) <= Fraction(float(radius))
    sizes = np.abs(weights) @ np.abs(matrix)
    assert np.all(ball.radius <= 1e-12 * sizes + 1e-300)


def test_uncertain_weights_widen_the_bound():
    rng = np.random.default_rng(0)
    matrix, weights = rng.standard_normal((400, 6)), rng.standard_normal(400)
    radius = 1e-3 * np.abs(weights)
    ball = weighted_columns(matrix, Ball(weights, radius))
    for sign in (1.0, -1.0):
        moved = weights + sign * radius * np.sign(matrix[:, 0]) * (1.0 - 1e-12)
        assert abs(float(moved @ matrix[:, 0]) - ball.middle[0]) <= ball.radius[0]


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e150])
def test_units_do_not_matter(scale):
    values = np.random.default_rng(3).standard_normal(500) * scale
    value, error = total(values)
    assert abs(Fraction(value) - exact_dot(values, np.ones(500))) <= Fraction(error)
    assert error <= 1e-14 * np.abs(values).sum()


def test_scaling_and_adding_enclose():
    rng = np.random.default_rng(1)
    a, b, factor = rng.standard_normal(50), rng.standard_normal(50), rng.standard_normal(50)
    ball = Ball.exact(a).scaled(factor).plus(Ball.exact(b))
    for k in range(50):
        exact = Fraction(float(a[k])) * Fraction(float(factor[k])) + Fraction(float(b[k]))
        assert abs(exact - Fraction(float(ball.middle[k]))) <= Fraction(float(ball.radius[k]))
    assert not Ball.exact(a).scaled(-1.0).radius.any()


def test_exact_sums_are_recognised():
    a, b = np.array([1.0, 0.5, 3.0]), np.array([-1.0, 0.25, 1e300])
    assert exact_sum(a, b) is None  # 3 + 1e300 is rounded
    np.testing.assert_array_equal(exact_sum(a[:2], b[:2]), [0.0, 0.75])
    assert exact_sum(np.array([0.1]), np.array([0.2])) is None
    assert is_exact_product(3.0, np.array([1.0, 0.5, 7.0]))
    assert not is_exact_product(3.0, np.array([0.1 + 2**-53]))
    assert is_exact_product(-4.0, np.array([0.1]))
    assert not is_exact_product(0.25, np.array([5e-324]))


def test_gamma_gives_up_rather_than_turn_negative():
    assert gamma(2.0**52) == np.inf
    assert gamma(10) >= 10 * 2.0**-53
