"""Box programmes by an active set: that they end, also where it would go on for minutes."""

import sys

import numpy as np

from varopt._clock import deadline  # a limit around one function
from varopt.solvers.finish import box_by_active_set

NOTHING = np.zeros((0, 400))


def _program(rng):
    columns = rng.standard_normal((400, 60)) * 10.0 ** rng.uniform(-4.0, 4.0, 60)
    return columns @ columns.T, rng.standard_normal(400), np.ones(400)


def test_time_that_is_up_is_a_way_lost(rng):
    matrix, linear, high = _program(rng)
    with deadline(0.02):
        assert box_by_active_set(matrix, linear, NOTHING, np.zeros(0), -high, high) is None


def test_columns_of_one_unit_end_at_a_stationary_point(rng):
    matrix, linear, high = np.eye(400) + np.ones((400, 400)) / 400.0, 2.0 * rng.standard_normal(400), np.ones(400)
    u = box_by_active_set(matrix, linear, NOTHING, np.zeros(0), -high, high)
    gradient = matrix @ u + linear
    np.testing.assert_allclose(gradient[np.abs(u) < 1.0], 0.0, atol=1e-9)
    assert np.all(gradient[u == 1.0] <= 1e-9)
    assert np.all(gradient[u == -1.0] >= -1e-9)


def test_guessed_sides_are_exchanged_all_at_once(rng, monkeypatch):
    columns = rng.standard_normal((200, 120))
    matrix, linear, high = columns @ columns.T, 20.0 * rng.standard_normal(200), np.full(200, 0.3)
    reference = box_by_active_set(matrix, linear, NOTHING[:, :200], np.zeros(0), -high, high)
    inside = np.abs(reference) < high
    assert 20 < inside.sum() < 150
    guess = np.where(inside | (rng.random(200) < 0.3), 0.0, np.sign(reference))  # some too many inside
    guess[:3] = -1.0  # and wrong ones
    monkeypatch.setitem(sys.modules, "daqp", None)  # which is not asked
    u = box_by_active_set(matrix, linear, NOTHING[:, :200], np.zeros(0), -high, high, guess)
    np.testing.assert_allclose(u, reference, atol=1e-9)
    assert np.array_equal(np.abs(u) == high, ~inside)


def test_multipliers_that_depend_on_each_other_are_left_to_the_vertices(rng):
    columns = np.repeat(rng.standard_normal((60, 30)), 2, axis=0)  # every row twice
    matrix, linear, high = columns @ columns.T, np.repeat(rng.standard_normal(60), 2), np.ones(120)
    nothing = np.zeros((0, 120))
    u = box_by_active_set(matrix, linear, nothing, np.zeros(0), -high, high, np.zeros(120))
    gradient, size = matrix @ u + linear, np.abs(matrix).max()
    assert np.all(np.where(np.abs(u) < high, np.abs(gradient), np.sign(u) * gradient) <= 1e-9 * size)


def test_curvature_that_no_number_is_the_unit_of_is_a_way_lost():
    """It was divided by a unit that underflows."""
    one = np.ones(2)
    assert box_by_active_set(1e300 * np.eye(2), 1e-50 * one, NOTHING[:, :2], np.zeros(0), -one, one) is None
