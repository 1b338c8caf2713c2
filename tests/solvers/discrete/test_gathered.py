"""Fields in bytes by gathering neighbours: against a plain sparse product, and only where a byte holds them."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from varopt.solvers.discrete import Energy, Sweeper
from varopt.solvers.discrete.search import GatheredRows, whole_number_type
from varopt.solvers.discrete.search import _gathered as gathered  # one of its constants is made small


def graph(rng, n, degree, weights):
    ends = rng.integers(n, size=(2, n * degree // 2))
    low, high = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    half = sp.csr_array((rng.choice(weights, low.size), (low, high)), shape=(n, n))
    return Energy.quadratic_form(half)


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    monkeypatch.setattr(gathered, "_FEWEST_BLOCK_ENTRIES", 1)


@pytest.mark.parametrize("replicas", [8, 24, 64])
@pytest.mark.parametrize("weights", [(1.0,), (-1.0,), (-1.0, 1.0), (2.0, 4.0), (-3.0, 3.0)])
def test_fields_are_those_of_the_energy(weights, replicas, rng, monkeypatch):
    monkeypatch.setattr(gathered, "_REPEATED", 2.0)
    monkeypatch.setattr(gathered, "_BLOCK_BYTES", 1 << 12)  # several blocks of rows with as many entries, too
    energy = graph(rng, 300, 6, weights)
    assert whole_number_type(energy) is np.int8
    sweeper = Sweeper(energy, replicas, rng, np.int8)
    state = sweeper.uniform()
    assert any(isinstance(part.matrix, GatheredRows) for part in sweeper.sets)
    for _ in range(3):
        sweeper.sample(state, 1.0)
    expected = energy.gradient(sweeper.points(state).astype(float))[sweeper.order] / sweeper.grain
    for part in sweeper.sets:
        assert_array_equal(sweeper._fields(part, state), expected[part.rows])
    assert_array_equal(sweeper.values(state), energy.value(sweeper.points(state).astype(float)))


def test_rows_that_a_byte_does_not_hold_are_left_alone(rng):
    ones = sp.csr_matrix(np.r_[np.ones(200, dtype=np.int8), np.int8(0)][None])
    assert GatheredRows.of(ones, 200, 8) is not None
    assert GatheredRows.of(2 * ones, 200, 8) is None  # counts of up to 400
    assert GatheredRows.of(sp.csr_matrix((1, 201), dtype=np.int8), 200, 8) is None  # nothing to gather
    mixed = sp.csr_matrix(np.array([[1, 5, 0]], dtype=np.int8))
    assert GatheredRows.of(mixed, 2, 8) is None  # five times the same
    assert not GatheredRows.suits(np.int16, 8)
    assert not GatheredRows.suits(np.int8, 12)
