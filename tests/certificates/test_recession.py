"""Directions along which an objective falls for ever: looked for in little memory, and in the time that is left."""

import time
import tracemalloc

import numpy as np
import pytest

import varopt as vo
from varopt._clock import deadline  # a limit around one function
from varopt.certificates import falls_for_ever


def one_sided(rng, count, size, slope):
    """Rows that all rise with their variables, beside a line."""
    matrix, w = np.abs(rng.standard_normal((count, size))), vo.Variable(size)
    return vo.sum(vo.pos(matrix @ w - 1.0)) + slope * vo.sum(w)


@pytest.mark.parametrize("slope", [1e-3, -1e-3])
def test_many_rows_take_memory_as_many_numbers_do_and_no_table_of_rows_by_rows(rng, slope):
    f = one_sided(rng, 3000, 1, slope)
    tracemalloc.start()
    try:
        direction = falls_for_ever(f)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (direction is not None) == (slope > 0.0)
    assert peak < 8.0 * 3000**2 / 4.0


def test_a_search_ends_where_time_is_up(rng):
    f = one_sided(rng, 40_000, 8, 1e-3)
    start = time.perf_counter()
    with deadline(0.2):
        assert falls_for_ever(f, 400_000) is None
    assert time.perf_counter() - start < 2.0
