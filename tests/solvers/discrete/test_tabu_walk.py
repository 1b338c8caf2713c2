"""Tabu walks: what a flip changes is what it changes, and rugged problems are solved."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import varopt as vo
from tests.discrete.zoo import integer_quadratic, real_quadratic, states
from varopt.solvers.discrete import Energy, energy_of
from varopt.solvers.discrete.search import TabuWalk, population_search


def low_autocorrelation(n):
    s = 1 - 2 * vo.Binary(n, name="x")
    return sum(sum(s[i] * s[i + k] for i in range(n - k)) ** 2 for k in range(1, n))


ENERGIES = {
    "whole numbers": integer_quadratic,
    "real numbers": real_quadratic,
    "products of spins": lambda rng: energy_of(low_autocorrelation(9).total()),
}


@pytest.mark.parametrize("build", ENERGIES.values(), ids=ENERGIES)
def test_changes_are_differences(build, rng):
    """After many flips, and after a new beginning, they are still those of the energy."""
    energy = build(rng)
    x = rng.integers(0, 2, (energy.size, 5)).astype(float)
    state = TabuWalk(energy, rng)._state(x)
    for _ in range(30):
        change = state.change()
        for i in range(energy.size):
            flipped = x.copy()
            flipped[i] = 1.0 - flipped[i]
            assert_allclose(energy.value(x) + change[i], energy.value(flipped), atol=1e-9 * energy.magnitude)
        chosen = rng.integers(energy.size, size=5)
        state.flip(chosen, change[chosen, np.arange(5)])
        assert_allclose(state.value, energy.value(x), atol=1e-9 * energy.magnitude)
    x[:, 1:3] = rng.integers(0, 2, (energy.size, 2))
    state.begin(np.array([1, 2]))
    assert_allclose(state.value, energy.value(x), atol=1e-9 * energy.magnitude)


@pytest.mark.parametrize("build", ENERGIES.values(), ids=ENERGIES)
def test_walks_never_lose_and_find_the_optimum(build, rng):
    energy = build(rng)
    start = rng.integers(0, 2, (energy.size, 8)).astype(float)
    best, least = TabuWalk(energy, rng).walk(start, 400)
    assert np.all(least <= energy.value(start))
    assert_allclose(least, energy.value(best))
    assert least.min() == pytest.approx(energy.value(states(energy)).min())


def test_a_walk_that_may_not_begin(rng):
    energy = integer_quadratic(rng)
    start = rng.integers(0, 2, (energy.size, 3)).astype(float)
    best, _ = TabuWalk(energy, rng).walk(start, 10, lambda: True)
    assert_allclose(best, start)


def test_what_they_suit(rng):
    assert TabuWalk.suits(integer_quadratic(rng))
    assert not TabuWalk.suits(Energy.quadratic_form(np.zeros((1000, 1000))))
    assert not TabuWalk.suits(Energy.quadratic_form(np.eye(4), 0.0, 0.0, np.array([2, 2])))


@pytest.mark.parametrize(("n", "optimum"), [(20, 26), (27, 37)])
def test_low_autocorrelation(n, optimum):
    """Optima by exhaustive search: S. Mertens, Journal of Physics A 29, 1996."""
    r = vo.minimize(low_autocorrelation(n), target=optimum, time_limit=60.0)
    assert r.fun == optimum
    assert r.lower >= 0.0


@pytest.mark.parametrize(("build", "sweeps"), [(low_autocorrelation, 128), (None, 1000)], ids=["products", "pairs"])
def test_of_a_limited_time_walks_have_most_where_products_are_rugged(build, sweeps, rng, monkeypatch):
    """With 10 s and 0.01 s a sweep: anneals stay short there, and time, not steps, ends the walks after them."""
    energy = integer_quadratic(rng) if build is None else energy_of(build(12).total())
    planned, walks = [], []

    def annealed(self, x, schedule, sweeps, seconds):
        self.pace = 0.01
        planned.append(sweeps)
        return self.descended(x)

    def walk(self, x, steps, expired=lambda: False):
        walks.append((steps, expired()))
        return x, energy.value(x)

    monkeypatch.setattr("varopt.solvers.discrete.search._population._Population.annealed", annealed)
    monkeypatch.setattr(TabuWalk, "walk", walk)
    found = population_search(energy, rng, left=lambda: 10.0)
    while len(planned) < 2:
        next(found)
    next(found)
    assert planned[1] == sweeps
    assert not walks[-1][1]
    assert (walks[-1][0] == 4 * sweeps) == (build is None)
