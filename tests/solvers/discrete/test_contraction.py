"""Bits that are taken out exactly: the same minimum, and points that lift to their own energies."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import varopt as vo
from varopt.discrete import max_cut, qubo
from varopt.solvers.discrete import Energy
from varopt.solvers.discrete._contraction import contract  # the smaller problem by itself


def every_state(size):
    return np.array(list(itertools.product([0.0, 1.0], repeat=size))).reshape(2**size, size).T


def sparse_energy(rng, size, density, real, field):
    weights = rng.standard_normal((size, size)) if real else rng.integers(-3, 4, (size, size)).astype(float)
    upper = np.triu(np.where(rng.random((size, size)) < density, weights, 0.0), 1)
    linear = rng.integers(-2, 3, size).astype(float) if field else np.zeros(size)
    return Energy(0.5, linear - 0.5 * (upper + upper.T).sum(axis=1) * (not field), sp.csr_array(upper + upper.T))


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("density", [0.15, 0.4, 0.8])
def test_the_minimum_is_that_of_all_states(real, field, density, rng):
    taken = 0
    for _ in range(12):
        energy = sparse_energy(rng, int(rng.integers(2, 10)), density, real, field)
        small = contract(energy)
        taken += energy.size - small.energy.size
        inside = every_state(small.energy.size)
        values = [float(small.energy.value(x)) if x.size else small.energy.constant for x in inside.T]
        assert_allclose(min(values), energy.value(every_state(energy.size)).min(), atol=1e-9)
        lifted = np.array([small.lift(x) for x in inside.T])
        assert_allclose(energy.value(lifted.T), values, atol=1e-9)
        assert_array_equal(lifted[:, small.kept], inside.T)
    assert taken > 0


def test_what_is_decided_by_few_or_by_one_is_taken_out(rng):
    ring = sp.csr_array(np.roll(np.eye(50), 1, axis=1))
    assert contract(Energy.quadratic_form(ring + ring.T)).energy.size == 0
    strong = sp.csr_array(np.triu(rng.choice([-1.0, 1.0], (12, 12)), 1))
    assert contract(Energy.quadratic_form(strong, 100.0)).energy.size == 12  # dense: as it is
    sparse = sp.csr_array(np.triu(np.where(rng.random((60, 60)) < 0.2, 1.0, 0.0), 1))
    assert contract(Energy.quadratic_form(sparse, 100.0)).energy.size == 0  # fields decide everything


def test_cubic_graphs_are_proved(rng):
    """140 nodes: less than half is left for branch and bound."""
    from benchmarks.discrete import regular

    graph = regular(140, rng)
    r = max_cut(graph, time_limit=60.0)
    assert r.status is vo.Status.PROVED
    sides = 2.0 * r.x - 1.0
    assert_allclose(r.fun, 0.25 * (graph.sum() - sides @ (graph @ sides)))


def test_a_start_is_kept(rng):
    Q = sp.random_array(
        (80, 80), density=0.03, rng=rng, data_sampler=lambda size: rng.integers(-5, 6, size).astype(float)
    )
    best = qubo(Q, method="free-energy", time_limit=0.3)
    assert qubo(Q, x0=best.x, time_limit=0.2).fun <= best.fun
