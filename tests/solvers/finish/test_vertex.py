"""Vertices of kinks: against HiGHS on the explicit programme, and what is refused."""

import numpy as np
import pytest
from scipy.optimize import linprog

from varopt.solvers.finish import best_vertex


def optimum(slope, a, d, high):
    """``min slope'x + high't`` with t >= 0 and t >= a x + d, by HiGHS."""
    m, p = a.shape
    result = linprog(
        np.concatenate([slope, high]),
        A_ub=np.hstack([a, -np.eye(m)]),
        b_ub=-d,
        bounds=[(None, None)] * p + [(0.0, None)] * m,
        method="highs",
    )
    return result.fun if result.status == 0 else None


def value(slope, a, d, high, x):
    return slope @ x + high @ np.maximum(a @ x + d, 0.0)


def bounded(rng, m, p):
    """A programme whose slope is a pull that its rows can balance."""
    a, d, high = rng.standard_normal((m, p)), rng.standard_normal(m), rng.uniform(0.1, 2.0, m)
    return -(rng.uniform(0.1, 0.9, m) * high) @ a, a, d, high


@pytest.mark.parametrize("seed", range(60))
def test_point_and_multipliers_are_optimal(seed):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 12))
    slope, a, d, high = bounded(rng, int(p + rng.integers(0, 60)), p)
    found = best_vertex(slope, a, d, high, rng.random(high.size))
    if found is None:  # too long a way, from a first vertex at random
        pytest.skip("not reached in the exchanges that are allowed")
    x, u = found
    assert value(slope, a, d, high, x) == pytest.approx(optimum(slope, a, d, high), rel=1e-9, abs=1e-9)
    assert np.all((u >= 0.0) & (u <= high))
    assert np.abs(slope + u @ a).max() <= 1e-9 * np.abs(a).sum()
    assert value(slope, a, d, high, x) == pytest.approx(u @ d, rel=1e-9, abs=1e-9)  # strong duality


def test_most_are_reached_even_from_a_vertex_at_random():
    rng = np.random.default_rng(0)
    programmes = [bounded(rng, 80, 10) for _ in range(30)]
    assert sum(best_vertex(*p, rng.random(80)) is not None for p in programmes) >= 27


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_rest_beside_the_basis_do_not_send_exchanges_around(seed, monkeypatch):
    monkeypatch.setattr("varopt.solvers.finish._vertex._unsettled", lambda *_: None)  # no noise that parts them
    rng = np.random.default_rng(seed)
    a, d = rng.integers(-2, 3, (60, 4)).astype(float), -rng.integers(0, 4, 60).astype(float)
    slope, high = -a.sum(axis=0), np.full(60, 2.0)  # absolute values of whole numbers
    found = best_vertex(slope, a, d, high, np.abs(d) + 1e-3)
    assert found is not None
    assert value(slope, a, d, high, found[0]) == pytest.approx(optimum(slope, a, d, high), rel=1e-9)
    assert np.abs(slope + found[1] @ a).max() <= 1e-10


def test_variables_in_any_units():
    rng = np.random.default_rng(0)
    slope, a, d, high = bounded(rng, 40, 6)
    units = 10.0 ** np.array([-9.0, 6.0, 0.0, 3.0, -4.0, 9.0])
    plain = best_vertex(slope, a, d, high, np.zeros(40))
    scaled = best_vertex(slope * units, a * units, d, high, np.zeros(40))
    np.testing.assert_allclose(scaled[0] * units, plain[0], rtol=1e-9)
    np.testing.assert_allclose(scaled[1], plain[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("copies", [2, 5])
def test_repeated_rows_are_optimal_or_left_to_others(copies):
    rng = np.random.default_rng(1)
    slope, a, d, high = bounded(rng, 20, 4)
    repeated = copies * slope, np.repeat(a, copies, axis=0), np.repeat(d, copies), np.repeat(high, copies)
    found = best_vertex(*repeated, np.zeros(20 * copies))
    assert found is None or value(*repeated, found[0]) == pytest.approx(optimum(*repeated), rel=1e-9)


def test_refusals():
    rng = np.random.default_rng(0)
    slope, a, d, high = bounded(rng, 20, 4)
    assert best_vertex(slope, a[:3], d[:3], high[:3], np.zeros(3)) is None  # fewer rows than variables
    assert best_vertex(100.0 * slope, a, d, high, np.zeros(20)) is None  # unbounded below
    dependent = np.column_stack([a[:, :3], a[:, 0] + a[:, 1]])
    assert best_vertex(slope, dependent, d, high, np.zeros(20)) is None
    assert best_vertex(slope, a * [1.0, 1.0, 1.0, 0.0], d, high, np.zeros(20)) is None  # a variable in no row
