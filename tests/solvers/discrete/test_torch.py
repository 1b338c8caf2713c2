"""Sweeps on PyTorch: the same promises as on NumPy."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch")

from tests.discrete.zoo import ENERGIES, choices, integer_quadratic, states  # noqa: E402
from varopt.discrete import max_cut  # noqa: E402
from varopt.solvers.discrete import Sweeper, population_search, typical_field  # noqa: E402
from varopt.solvers.discrete.search._torch_sweeps import TorchSweeper  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("build", ENERGIES)
def test_descent_is_that_of_numpy(build, device, rng):
    energy = build(rng)
    own = Sweeper(energy, 16, rng)
    start = own.points(own.uniform())
    other = TorchSweeper(energy, 16, rng, device)
    ours, theirs = own.state(start), other.state(start)
    own.descend(ours)
    other.descend(theirs)
    assert_array_equal(own.points(ours), other.points(theirs))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("build", ENERGIES)
def test_values_are_those_of_the_energy(build, device, rng):
    energy = build(rng)
    sweeper = TorchSweeper(energy, 16, rng, device)
    state = sweeper.uniform()
    assert_allclose(sweeper.values(state), energy.value(sweeper.points(state)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_chosen_replicas_replace_the_others(device, rng):
    sweeper = TorchSweeper(integer_quadratic(rng), 8, rng, device)
    state = sweeper.uniform()
    points, chosen = sweeper.points(state).copy(), np.array([3, 3, 0, 7, 1, 1, 1, 5])
    sweeper.choose(state, chosen)
    assert_array_equal(sweeper.points(state), points[:, chosen])


@pytest.mark.parametrize("device", DEVICES)
def test_sweeps_of_one_state_and_of_another_are_drawn_alike(device, rng):
    # On CUDA the first sweep of the shared memory is recorded: what is launched again has to draw afresh.
    energy = integer_quadratic(rng)
    sweeper = TorchSweeper(energy, 256, rng, device)
    warm, seen = 2.0 * typical_field(energy, rng), []
    state = sweeper.uniform()
    for _ in range(4):
        sweeper.sample(state, warm)
        seen.append(sweeper.points(state).copy())
    assert all(0.3 < np.mean(a != b) < 0.9 for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("build", [integer_quadratic, choices])
def test_sampling_is_the_boltzmann_distribution(build, device, rng):
    energy = build(rng)
    sweeper = TorchSweeper(energy, 4000, rng, device)
    temperature = 2.0 * typical_field(energy, rng)
    state = sweeper.uniform()
    for _ in range(60):
        sweeper.sample(state, temperature)
    points = states(energy)
    weights = np.exp(-(energy.value(points) - energy.value(points).min()) / temperature)
    assert_allclose(sweeper.points(state).mean(axis=1), points @ (weights / weights.sum()), atol=0.05)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("build", ENERGIES)
def test_search_finds_the_optimum_and_repeats_itself(build, device, rng):
    energy = build(rng)
    runs = []
    for _ in range(2):
        points = population_search(energy, np.random.default_rng(5), device=device)
        runs.append([next(points) for _ in range(3)])
    assert_allclose(min(f.value for f in runs[0]), energy.value(states(energy)).min(), atol=1e-6)
    if device == "cpu":
        assert_array_equal(runs[0][-1].x, runs[1][-1].x)


def test_device_is_for_the_default_search_only(rng):
    with pytest.raises(ValueError, match="device applies to method 'free-energy' only"):
        max_cut(np.ones((3, 3)), device="cpu", method="pbil")
