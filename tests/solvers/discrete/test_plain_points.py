"""Points that cost little to find: what packs and what covers has one at once, whatever time there is."""

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt.solvers.discrete import Energy
from varopt.solvers.discrete.constrained import Limits, plain_points


def seen(energy, limits):
    points = []
    plain_points(energy, limits, lambda x, value: points.append((x.copy(), value)), lambda: None)
    assert all(value == energy.value(x) for x, value in points)
    assert not any(limits.excess(x).any() for x, _ in points)
    return points


def test_a_knapsack_is_filled_by_value_for_weight():
    """Of 7 the item of weight 3 is worth most for its weight, and the one of 4 fits beside it."""
    limits = Limits(sp.csr_array([[5.0, 3.0, 4.0, 6.0]]), np.array([-7.0]), np.array([False]))
    energy = Energy.quadratic_form(sp.csr_array((4, 4)), -np.array([6.0, 6.0, 4.0, 5.0]))
    best = min(seen(energy, limits), key=lambda point: point[1])
    assert best[0].tolist() == [0.0, 1.0, 1.0, 0.0]


def test_products_count_as_they_are_when_bits_are_taken(rng):
    Q = np.triu(rng.integers(-9, 10, (30, 30)), 1).astype(float)
    energies = [Energy.quadratic_form(form(Q), rng.integers(-9, 1, 30)) for form in (np.asarray, sp.csr_array)]
    limits = Limits(sp.csr_array(rng.integers(0, 5, (3, 30)).astype(float)), np.full(3, -20.0), np.zeros(3, dtype=bool))
    for energy in energies:
        (_, nothing), (x, filled) = seen(energy, limits)
        assert filled < nothing
        assert x.any()


def test_one_of_each_group_and_a_permutation(rng):
    at = vo.Categorical(25, 25)
    D = rng.integers(1, 9, (25, 25))
    r = vo.minimize(vo.sum((D @ at @ D) * at), subject_to=[vo.sum(at, axis=0) == 1], time_limit=1.0)
    assert np.isfinite(r.fun)
    assert r.violation == 0.0


@pytest.mark.parametrize("sense", ["packing", "covering"])
def test_large_problems_have_a_point_however_little_time_there_is(sense, rng):
    """Their relaxation alone takes longer; how good the point is depends on the machine."""
    x = vo.Binary(1000, name="x")
    A, value = rng.integers(1, 60, (30, 1000)), rng.integers(1, 60, 1000)
    if sense == "packing":
        r = vo.maximize(value @ x, subject_to=[A @ x <= 7500], time_limit=0.1)
    else:
        r = vo.minimize(value @ x, subject_to=[A @ x >= 7500], time_limit=0.1)
    assert np.isfinite(r.fun)
    assert r.violation == 0.0
    assert r.lower <= r.fun <= r.upper
