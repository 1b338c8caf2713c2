"""Box programmes by an active set: that they end, also where it would go on for minutes."""

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
