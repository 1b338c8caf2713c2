"""The scale at which a dual point is feasible for the kinks of single variables, against a search."""

import numpy as np
import pytest

from varopt.composite import Kinks, scaled_gap


@pytest.mark.parametrize("seed", range(20))
def test_the_scale_is_the_feasible_one_closest_to_one(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 30))
    low, high = -rng.random(size), rng.random(size)
    if seed % 4 == 1:
        low[0] = high[0] = 0.0  # a variable without a kink
    if seed % 4 == 2:
        low[:] = 0.0  # one-sided kinks
    gradient = rng.standard_normal(size) * 10.0 ** rng.uniform(-1.0, 1.0)
    if seed % 4 == 2:
        gradient = -np.abs(gradient)
    gradient[rng.random(size) < 0.2] = 0.0
    _, _, scale = scaled_gap(Kinks(np.zeros(size), low, high), np.zeros(size), gradient, np.zeros(size), lambda s: 0.0)
    kinked = low < high

    def feasible(s):
        dual = -s * gradient[kinked]
        return bool(np.all((dual >= low[kinked]) & (dual <= high[kinked])))

    assert 0.0 < scale <= 1.0
    assert feasible(scale * (1.0 - 1e-12))
    assert scale == 1.0 or not feasible(scale * (1.0 + 1e-9))


def test_what_is_fixed_may_leave_no_scale_or_ask_for_more_than_one():
    kinks = Kinks(np.zeros(2), -np.ones(2), np.ones(2))
    gap, _, _ = scaled_gap(kinks, np.zeros(2), np.array([0.0, 1.0]), np.array([3.0, 0.0]), lambda s: 0.0)
    assert gap == np.inf
    _, _, scale = scaled_gap(kinks, np.zeros(2), np.array([-1.0, 0.1]), np.array([3.0, 0.0]), lambda s: 0.0)
    assert scale == pytest.approx(2.0)
