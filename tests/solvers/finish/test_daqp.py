"""Quadratic programmes by a dual active set: that they end in time, whatever its own clock does."""

import time

import numpy as np

from varopt._clock import deadline  # a limit around one function
from varopt.solvers.finish import EQUAL, by_dual_active_set


def test_a_row_of_programmes_that_never_looks_at_the_clock_ends(rng):
    """Of a matrix without curvature in half of all directions it takes 20,000 steps, 18 seconds."""
    size, rows = 600, 50
    matrix = rng.standard_normal((300, size))
    unit = 1.0 / np.linalg.norm(matrix, axis=0)
    curved = unit[:, None] * (matrix.T @ matrix) * unit + 1e-13 * np.eye(size)
    high = np.concatenate([np.full(size, 1e20), np.ones(rows)])
    low, kinds = np.full(size + rows, -1e20), np.zeros(size + rows, dtype=np.int32)
    start = time.perf_counter()
    with deadline(0.2):
        found = by_dual_active_set(curved, -unit, matrix[:rows] * unit, high, low, kinds, steps=20_000)
    assert found is None
    assert time.perf_counter() - start < 2.0


def test_multipliers_balance_the_gradient(rng):
    columns = rng.standard_normal((8, 5))
    matrix, vector, rows = columns.T @ columns, rng.standard_normal(5), rng.standard_normal((2, 5))
    high, low = np.concatenate([np.full(5, 0.3), np.zeros(2)]), np.concatenate([np.full(5, -0.3), np.zeros(2)])
    kinds = np.array([0] * 5 + [EQUAL] * 2, dtype=np.int32)
    u, multipliers = by_dual_active_set(matrix, vector, rows, high, low, kinds, steps=100)
    np.testing.assert_allclose(rows @ u, 0.0, atol=1e-10)
    np.testing.assert_allclose(matrix @ u + vector + multipliers[:5] + rows.T @ multipliers[5:], 0.0, atol=1e-9)
    assert np.all(np.abs(u) <= 0.3 + 1e-10)


def test_a_programme_without_variables_takes_no_time():
    """What a dual may move in can be nothing: one kink beside a quadratic that is zero."""
    nothing = np.zeros(0)
    found = by_dual_active_set(
        np.zeros((0, 0)), nothing, np.zeros((0, 0)), nothing, nothing, np.zeros(0, dtype=np.int32), steps=10
    )
    assert found is None or found[0].size == 0
