"""Sweeps, rounding, recombination and elimination: each against all states, or against what it promises."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import varopt as vo
from tests.discrete.zoo import ENERGIES, choices, clauses, cut, ferromagnet, integer_quadratic, real_quadratic, states
from varopt.solvers.discrete import (
    SEARCHES,
    Energy,
    GeometricTemperature,
    LinearTemperature,
    NaturalGradientDescent,
    ProjectedGradientDescent,
    Sweeper,
    anneal,
    population_search,
    typical_field,
)
from varopt.solvers.discrete._colouring import colour  # colours of neighbours differ
from varopt.solvers.discrete._matrices import as_dense  # matrices in whichever format
from varopt.solvers.discrete.proofs import eliminate, elimination_order
from varopt.solvers.discrete.search import (
    DenseSweeper,
    _population,  # one of its constants is made small
    block_minimum,
    block_values,
    is_symmetric,
    largest_cluster,
    recombine,
    whole_number_type,
)


def probabilities(energy, rng, replicas):
    """Points inside the product of simplices."""
    weights = rng.dirichlet(np.ones(1), (energy.size, replicas))[..., 0] * rng.random((energy.size, replicas))
    wide = np.bincount(energy.site)[energy.site] > 1
    sums = np.array([np.bincount(energy.site, weights=column) for column in weights.T]).T[energy.site]
    return np.where(wide[:, None], weights / sums, weights)


def is_feasible(energy, x):
    ones = np.array([np.bincount(energy.site, weights=column) for column in x.T]).T
    wide = np.bincount(energy.site) > 1
    return np.all((x == 0) | (x == 1)) and np.all(ones[wide] == 1)


@pytest.mark.parametrize("build", ENERGIES)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1))
def test_rounding_is_never_worse_than_the_mean(build, seed):
    rng = np.random.default_rng(seed)
    energy = build(rng)
    theta = probabilities(energy, rng, 16)
    sweeper = Sweeper(energy, 16, rng, np.float64)
    state = sweeper.state(theta)
    sweeper.descend(state, passes=1)
    rounded = sweeper.points(state)
    assert is_feasible(energy, rounded)
    assert np.all(energy.value(rounded) <= energy.value(theta) + 1e-10)


@pytest.mark.parametrize("build", ENERGIES)
def test_descent_ends_in_a_local_minimum(build, rng):
    energy = build(rng)
    sweeper = Sweeper(energy, 8, rng, np.float64)
    state = sweeper.uniform()
    assert is_feasible(energy, sweeper.points(state))
    sweeper.descend(state)
    x = sweeper.points(state)
    points, values = states(energy), energy.value(states(energy))
    sites = np.eye(int(energy.site[-1]) + 1)[energy.site]
    for column, value in zip(x.T, energy.value(x), strict=True):
        near = (np.abs(points - column[:, None]).T @ sites > 0).sum(axis=1) <= 1  # differs in one site at most
        assert value <= values[near].min() + 1e-10


def test_recombinations_end_with_their_time_and_worsen_no_point(rng, monkeypatch):
    monkeypatch.setattr(_population, "_MIXED_ENTRIES", 1)  # the clock is looked at after every replica
    energy = integer_quadratic(rng)
    population = _population._Population(energy, rng, lambda: False, None)
    x = population.sweeper.points(population.sweeper.uniform()).astype(np.float64)
    partner = x[:, ::-1]
    child = population.mixed(x, partner)
    assert np.all(energy.value(child) <= energy.value(x) + 1e-9)
    assert np.any(child != x)
    late = population.mixed(x, partner, end=-np.inf)
    assert_array_equal(late[:, 1:], x[:, 1:])


@pytest.mark.parametrize("build", [integer_quadratic, ferromagnet, cut, choices])
def test_sampling_is_the_boltzmann_distribution(build, rng):
    energy = build(rng)
    sweeper = Sweeper(energy, 4000, rng)
    temperature = 2.0 * typical_field(energy, rng)
    state = sweeper.uniform()
    for _ in range(60):
        sweeper.sample(state, temperature)
    points = states(energy)
    weights = np.exp(-(energy.value(points) - energy.value(points).min()) / temperature)
    weights /= weights.sum()
    assert_allclose(sweeper.points(state).mean(axis=1), points @ weights, atol=0.05)


@pytest.mark.parametrize("build", [integer_quadratic, cut, clauses])
def test_whole_numbers_are_sampled_exactly(build, rng):
    """Fields and noise in bytes: the same distribution, and the same local minima."""
    energy = build(rng)
    kind = whole_number_type(energy)
    assert kind in (np.int8, np.int16)
    sweeper, plain = Sweeper(energy, 4000, rng, kind), Sweeper(energy, 4000, rng)
    temperature = 0.5 * typical_field(energy, rng)
    state = sweeper.uniform()
    for _ in range(60):
        sweeper.sample(state, temperature)
    points = states(energy)
    weights = np.exp(-(energy.value(points) - energy.value(points).min()) / temperature)
    assert_allclose(sweeper.points(state).mean(axis=1), points @ (weights / weights.sum()), atol=0.06)
    other = plain.state(sweeper.points(state))
    sweeper.descend(state)
    plain.descend(other)
    assert_array_equal(sweeper.points(state), plain.points(other))


def test_whole_numbers_that_fit(rng):
    assert whole_number_type(integer_quadratic(rng)) is not None
    assert whole_number_type(real_quadratic(rng)) is None
    assert whole_number_type(choices(rng)) is None
    big = Energy.quadratic_form(np.triu(np.full((40, 40), 3000.0), 1))
    assert whole_number_type(big) is np.int8  # in units of 3000
    assert whole_number_type(replace(big, linear=big.linear + 1.0)) is None
    assert whole_number_type(replace(big, linear=big.linear + 30.0)) is np.int16


@pytest.mark.parametrize("build", [integer_quadratic, ferromagnet, real_quadratic])
def test_dense_sweeps_keep_their_fields(build, rng):
    energy = build(rng)
    sweeper = DenseSweeper(energy, 3000, rng)
    temperature = 2.0 * typical_field(energy, rng)
    state = sweeper.uniform()
    for _ in range(60):
        sweeper.sample(state, temperature)
    points = states(energy)
    weights = np.exp(-(energy.value(points) - energy.value(points).min()) / temperature)
    x = sweeper.points(state).astype(np.float64)
    assert_allclose(x.mean(axis=1), points @ (weights / weights.sum()), atol=0.05)
    assert_allclose(state.fields.T, energy.gradient(x), atol=1e-4)
    assert_allclose(sweeper.values(state), energy.value(x), atol=1e-3)


def test_dense_descent_never_gets_worse_and_ends_in_local_minima(rng):
    Q = rng.integers(-9, 10, (300, 300)).astype(float)
    energy = Energy.quadratic_form(Q)
    sweeper = DenseSweeper(energy, 12, rng)
    state = sweeper.uniform()
    before = sweeper.values(state)
    sweeper.descend(state)
    x = sweeper.points(state).astype(np.float64)
    assert np.all(energy.value(x) < before)
    fields = energy.gradient(x)
    assert_array_equal(state.fields.T, fields)
    assert np.all(np.where(x > 0.5, fields <= 0.0, fields >= 0.0))


@pytest.mark.parametrize("build", [e for e in ENERGIES if not e.__name__.startswith("choices")])
def test_blocks_are_enumerated_exactly(build, rng):
    energy = build(rng)
    x = rng.integers(2, size=energy.size).astype(float)
    block = rng.permutation(energy.size)[:5]
    settings = np.repeat(x[:, None], 32, axis=1)
    settings[block] = np.arange(32)[None, :] >> np.arange(5)[:, None] & 1
    values, direct = block_values(energy, x, block), energy.value(settings)
    assert_allclose(values - values[0], direct - direct[0], atol=1e-9)
    assert_allclose(energy.value(block_minimum(energy, x, block)), direct.min(), atol=1e-9)


def test_numbers_are_divided_evenly(rng):
    """A rugged landscape: forty numbers up to a million, and a square that is known not to be negative."""
    numbers = rng.integers(1, 10**6, 40).astype(float)
    r = vo.minimize((numbers @ (1.0 - 2.0 * vo.Binary(40))) ** 2, time_limit=30.0)
    assert r.fun == r.lower == numbers.sum() % 2
    assert r.status is vo.Status.PROVED


def test_an_anneal_that_takes_too_long_is_shortened_not_cut_off(rng):
    class Slow:
        def __init__(self):
            self.temperatures = []

        def sample(self, state, temperature):
            time.sleep(0.002)
            self.temperatures.append(temperature)

        def descend(self, state, expired):
            pass

    slow = Slow()
    done = anneal(slow, None, GeometricTemperature(1.0, 0.1), 100_000, 1.0, seconds=0.4)
    assert done == len(slow.temperatures) < 100_000
    assert slow.temperatures[0] == 1.0
    assert_allclose(slow.temperatures[-1], 0.1)


@pytest.mark.parametrize("selection", [0.1, 1.0])
def test_replicas_are_drawn_again_by_their_weights_at_the_next_temperature(rng, selection):
    class Still:
        """Replicas that keep their energies, and tell how often each was chosen."""

        def __init__(self):
            self.rng, self.energies, self.chosen = rng, 20.0 * rng.random(50), []

        def sample(self, state, temperature):
            pass

        def descend(self, state, expired):
            pass

        def values(self, state):
            return self.energies

        def choose(self, state, chosen):
            self.chosen.append(chosen)

    still = Still()
    anneal(still, None, GeometricTemperature(2.0, 0.5), 12, 1.0, selection=selection)
    temperatures = 2.0 ** np.array([1.0, 0.0, -1.0])
    assert len(still.chosen) == 2
    for chosen, before, after in zip(still.chosen, temperatures[:-1], temperatures[1:], strict=True):
        weights = np.exp(-still.energies / after) ** selection / np.exp(-still.energies / before) ** selection
        expected = 50.0 * weights / weights.sum()
        assert np.all(np.abs(np.bincount(chosen, minlength=50) - expected) < 1.0)
    anneal(still, None, lambda progress: 1.0 + progress, 12, 1.0, selection=selection)
    assert len(still.chosen) == 2  # where it grows warmer, none is


@pytest.mark.parametrize("kind", [Sweeper, DenseSweeper])
def test_chosen_replicas_are_there_with_their_fields(kind, rng):
    energy = integer_quadratic(rng)
    sweeper = kind(energy, 8, rng)
    state = sweeper.uniform()
    points, values = sweeper.points(state).copy(), sweeper.values(state)
    chosen = np.array([3, 3, 0, 7, 1, 1, 1, 5])
    sweeper.choose(state, chosen)
    assert_array_equal(sweeper.points(state), points[:, chosen])
    assert_allclose(sweeper.values(state), values[chosen])
    sweeper.sample(state, 0.5)
    assert_allclose(sweeper.values(state), energy.value(sweeper.points(state)))


@pytest.mark.parametrize("build", ENERGIES)
def test_mean_field_descends_the_free_energy(build, rng):
    energy = build(rng)
    sweeper = Sweeper(energy, 4, rng, np.float64)
    temperature = 0.3 * typical_field(energy, rng)
    state = sweeper.state(probabilities(energy, rng, 4))

    def free(p):
        wide = (np.bincount(energy.site)[energy.site] > 1)[:, None]
        terms = np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0)
        q = 1.0 - p
        terms = terms + np.where(wide, 0.0, np.where(q > 0, q * np.log(np.where(q > 0, q, 1.0)), 0.0))
        return energy.value(p) + temperature * terms.sum(axis=0)

    last = free(sweeper.points(state))
    for _ in range(10):
        sweeper.mean(state, temperature)
        now = free(sweeper.points(state))
        assert np.all(now <= last + 1e-9)  # also for the ferromagnet, where synchronous updates oscillate
        last = now


def test_annealing_by_mean_field_and_linear_schedule(rng):
    energy = real_quadratic(rng)
    sweeper = Sweeper(energy, 32, rng)
    state = sweeper.state(0.5 + 0.1 * rng.standard_normal((energy.size, 32)))
    anneal(sweeper, state, LinearTemperature(1.0, 0.05), 60, typical_field(energy, rng), analytic=True)
    assert_allclose(energy.value(sweeper.points(state)).min(), energy.value(states(energy)).min(), atol=1e-6)


def test_schedules():
    assert_allclose([GeometricTemperature(1.0, 0.01)(p) for p in (0.0, 0.5, 1.0)], [1.0, 0.1, 0.01])
    assert_allclose([LinearTemperature(1.0, 0.5)(p) for p in (0.0, 0.5, 1.0)], [1.0, 0.75, 0.5])
    with pytest.raises(ValueError, match="hot >= cold > 0"):
        GeometricTemperature(0.1, 0.5)


@pytest.mark.parametrize("build", ENERGIES)
def test_colours_share_no_term(build, rng):
    graph = build(rng).neighbours
    label = colour(graph)
    pairs = sp.coo_array(graph)
    assert np.all((label[pairs.row] != label[pairs.col]) | (pairs.row == pairs.col))


@pytest.mark.parametrize("build", [e for e in ENERGIES if e.__name__ not in {"cubic", "clauses", "correlations"}])
def test_children_are_feasible_and_never_worse(build, rng):
    energy = build(rng)
    sweeper = Sweeper(energy, 40, rng)
    x, partner = (sweeper.points(sweeper.uniform()).astype(float) for _ in range(2))
    child = recombine(energy, x, partner, rng)
    assert is_feasible(energy, child)
    assert np.all(energy.value(child) <= energy.value(x) + 1e-9)
    if not energy.products:
        assert np.any(energy.value(child) < energy.value(x) - 1e-9)


@pytest.mark.parametrize("density", [1.0, 0.3, 0.02])
def test_children_do_not_depend_on_how_the_pairs_are_kept(density, rng):
    """Also where a matrix kept dense falls apart into clusters."""
    n, replicas = 60, 20
    Q = np.where(rng.random((n, n)) < density, rng.integers(-3, 4, (n, n)), 0.0)
    energy = Energy.quadratic_form(Q, rng.integers(-3, 4, n))
    x, partner = ((rng.random((n, replicas)) < 0.5).astype(float) for _ in range(2))
    kinds = (sp.csr_array(energy.quadratic), as_dense(energy.quadratic))
    sparse, dense = (recombine(replace(energy, quadratic=q), x, partner, np.random.default_rng(0)) for q in kinds)
    assert_array_equal(sparse, dense)


def test_the_largest_cluster_of_what_differs_is_that_of_a_search_by_hand(rng):
    n, replicas = 40, 6
    half = np.triu(rng.random((n, n)) < 0.04, 1)
    energy = Energy.quadratic_form(sp.csr_array((half + half.T).astype(float)), np.zeros(n))
    x, partner = ((rng.random((n, replicas)) < 0.5).astype(float) for _ in range(2))
    shares = []
    for a, b in zip(x.T, partner.T, strict=True):
        left, sizes = set(np.flatnonzero(a != b).tolist()), []
        total = len(left)
        while left:
            reached, found = [left.pop()], 1
            while reached:
                near = left & set(np.flatnonzero((half + half.T)[reached.pop()]).tolist())
                left -= near
                found += len(near)
                reached += near
            sizes.append(found)
        shares.append(max(sizes) / total)
    assert_allclose(largest_cluster(energy, x, partner), np.mean(shares))
    assert largest_cluster(energy, x, x) == 1.0


@pytest.mark.parametrize("kind", ["torus", "random", "dense"])
def test_replicas_are_drawn_again_where_there_is_little_to_recombine(kind, rng):
    """On a torus points differ in many clusters, each of which may be taken over; elsewhere in one."""
    side = 30
    n = side * side
    if kind == "torus":
        node = np.arange(n).reshape(side, side)
        ends = np.concatenate([np.stack([node, np.roll(node, 1, axis)]).reshape(2, -1) for axis in (0, 1)], axis=1)
    else:
        ends = rng.integers(n, size=(2, 3 * n))
    weights = rng.choice([-1.0, 1.0], ends.shape[1])
    half = sp.csr_array((weights, (ends.min(axis=0), ends.max(axis=0))), shape=(n, n))
    half.setdiag(0.0)
    matrix = half + half.T if kind != "dense" else rng.choice([-1.0, 1.0], (60, 60))
    energy = Energy.quadratic_form(matrix, -np.asarray(matrix.sum(axis=1)).ravel())
    population = _population._Population(energy, rng, lambda: False, None)
    x, _ = population.annealed(None, GeometricTemperature(0.4, 0.05), 60, math.inf)
    population.compare(x)
    assert population.percolates == (kind != "torus")


def test_symmetry(rng):
    assert is_symmetric(cut(rng))
    assert not is_symmetric(real_quadratic(rng))


@pytest.mark.parametrize("build", ENERGIES)
def test_elimination_is_exact(build, rng):
    energy = build(rng)
    x, value = eliminate(energy, elimination_order(energy))
    assert is_feasible(energy, x[:, None])
    assert_allclose([value, energy.value(x)], energy.value(states(energy)).min(), atol=1e-10)


def test_elimination_refuses_wide_graphs(rng):
    assert elimination_order(integer_quadratic(rng, 30)) is None
    assert elimination_order(ferromagnet(rng, 9), entries=256) is None


@pytest.mark.parametrize("build", ENERGIES)
def test_search_finds_the_optimum_and_repeats_itself(build, rng):
    energy = build(rng)
    best = energy.value(states(energy)).min()
    runs = []
    for _ in range(2):
        points = population_search(energy, np.random.default_rng(5))
        runs.append([next(points) for _ in range(3)])
    assert_allclose(min(found.value for found in runs[0]), best, atol=1e-9)
    for a, b in zip(*runs, strict=True):
        assert_array_equal(a.x, b.x)


# -- Searches in the probabilities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SEARCHES))
@pytest.mark.parametrize("build", [real_quadratic, ferromagnet, clauses, choices])
def test_every_search_comes_close_and_repeats_itself(name, build, rng):
    energy = build(rng)
    values = np.sort(energy.value(states(energy)))
    runs = []
    for _ in range(2):
        points = SEARCHES[name](energy, np.random.default_rng(1))
        runs.append(min((next(points) for _ in range(2)), key=lambda f: f.value))
    found, again = runs
    assert_array_equal(found.x, again.x)
    assert is_feasible(energy, found.x[:, None])
    assert_allclose(found.value, energy.value(found.x))
    assert found.value <= values[len(values) // 50] + 1e-9  # among the best two per cent of all states, at the least


@pytest.mark.parametrize("method", [ProjectedGradientDescent(), NaturalGradientDescent()])
@pytest.mark.parametrize("build", ENERGIES)
def test_gradient_steps_descend_the_bound(method, build, rng):
    """Also on the ferromagnet: the step comes from the spectrum, so that nothing oscillates."""
    energy = build(rng)
    p = probabilities(energy, rng, 4)
    values = [energy.value(p)]
    for _ in range(20):
        p = method.descend(energy, p, 1, rng, lambda: False)
        values.append(energy.value(p))
    slack = 1e-9 if isinstance(method, ProjectedGradientDescent) else 0.02 * energy.magnitude  # kept away from the ends
    assert np.all(np.diff(values, axis=0) <= slack)
    assert np.all(values[-1] < values[0] + slack)


def test_of_a_crowd_the_best_are_recombined_and_stand_for_all(rng, monkeypatch):
    """As on a GPU, whose replicas are more than the processor can recombine in the time of an anneal."""
    monkeypatch.setattr(_population, "_FIRST_MIXED", 8)
    monkeypatch.setattr(_population, "_FEWEST_MIXED", 4)
    energy = integer_quadratic(rng)
    population = _population._Population(energy, rng, lambda: False, None)
    population.is_crowd = True
    x = rng.integers(0, 2, (energy.size, population.replicas)).astype(float)
    value = energy.value(x)
    few = population._well_mixed(1e-3)
    assert few < population.replicas == population._well_mixed(math.inf)
    children = population.shuffled(x, value, 1e-3)
    assert children.shape == x.shape
    assert len(np.unique(children, axis=1).T) <= few
    assert energy.value(children).min() <= value.min()


def test_replicas_are_as_many_as_the_time_pays_for(rng):
    """Few where there is no time for their sweeps, more where few would have met in one basin long before its end."""
    n = 5_000
    ends = rng.integers(n, size=(2, 3 * n))
    half = sp.csr_array((np.ones(3 * n), (ends.min(axis=0), ends.max(axis=0))), shape=(n, n))
    half.setdiag(0.0)
    energy = Energy.quadratic_form(half + half.T, -np.asarray((half + half.T).sum(axis=1)).ravel())

    def replicas(seconds):
        return next(population_search(energy, np.random.default_rng(0), left=lambda: seconds)).others[0].shape[1]

    counts = [replicas(seconds) for seconds in (0.1, 5.0, 60.0, 600.0)]
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[2]
    assert counts[3] <= 128
