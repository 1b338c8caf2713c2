"""The normal form: against the objectives it comes from, and against all states."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import varopt as vo
from tests.discrete.zoo import ENERGIES, states
from varopt.discrete import ising, max_cut, qubo
from varopt.solvers.discrete import (
    BIT,
    SPIN,
    Energy,
    NotPolynomial,
    Products,
    _matrices,
    energy_of,
)
from varopt.solvers.discrete._matrices import as_dense  # matrices in whichever format
from varopt.solvers.discrete.bounds import quadratic_minorant, spins_of, termwise_bound
from varopt.solvers.discrete.search import _population, _sweeps  # their constants are made small


def objectives(rng):
    x, y, c = vo.Binary(4, name="x"), vo.Binary(3, name="y"), vo.Categorical(2, 3, name="c")
    A, B = rng.standard_normal((4, 4)), rng.standard_normal((5, 4))
    cubic = 2.0 * x[0] * x[1] * x[2] + x[0] * x[1] - 3.0
    yield vo.quad_form(x, A) + rng.standard_normal(4) @ x + 2.0
    yield vo.quad_form(1.0 - 2.0 * x, sp.csr_array(A)) - vo.sum_squares(B @ x - 1.0)
    yield vo.sum(rng.standard_normal(5) * vo.square(B @ x)) + cubic
    yield (x[0] + 2.0 * x[1] * x[2]) ** 3 + vo.sum(A[:3, :3] @ y) - vo.quad_form(y, A[:3, :3])
    yield vo.quad_form(c, rng.standard_normal((6, 6))) + vo.sum(c[0] * c[1]) + x[0] * c[0, 1] * c[1, 2]
    yield vo.sum_squares(rng.standard_normal((3, 6)) @ c + A[:3] @ x)


@pytest.mark.parametrize("number", range(6))
def test_energy_is_the_objective(number, rng):
    f = list(objectives(rng))[number]
    energy = energy_of(f.total().checked)
    points = states(energy)
    assert_allclose(energy.value(points), [f.total().at(x) for x in points.T], atol=1e-12)


@pytest.mark.parametrize("build", ENERGIES)
def test_value_and_gradient_are_multilinear(build, rng):
    energy = build(rng)
    x = rng.random((energy.size, 3))
    gradient = energy.gradient(x)
    for i in range(energy.size):
        moved = x.copy()
        moved[i] += 1.0
        assert_allclose(energy.value(moved) - energy.value(x), gradient[i], atol=1e-10)


def test_spins_are_chosen_where_they_are_shorter(rng):
    n = 6
    s = 1.0 - 2.0 * vo.Binary(n)
    energy = energy_of((s[0] * s[1] * s[2] * s[3] - 2.0 * s[2] * s[3] * s[4] * s[5]).total())
    assert sum(len(p.weights) for p in energy.products) == 2
    assert all(np.all(p.split(n)[0] == SPIN) for p in energy.products)
    bits = Energy(0.0, np.zeros(n), sp.csr_array((n, n)), (Products(np.array([[0, 1, 2]]), np.ones(1)),))
    assert np.all(bits.in_spins().products[0].split(n)[0] == BIT)


def test_granularity():
    assert Energy.quadratic_form([[2.0, 3.0], [1.0, -4.0]]).granularity == 2.0  # 2 x, -4 y, 4 x y
    assert Energy.quadratic_form([[0.5, 1.0], [0.0, 0.0]]).granularity == 0.5
    assert Energy.quadratic_form([[0.1, 1.0], [0.0, 0.0]]).granularity == 0.0
    energy = Energy.quadratic_form([[2.0, 4.0], [0.0, 2.0]], constant=1.0)
    assert energy.round_up(1.5) == 3.0
    assert energy.round_up(3.0) == energy.round_up(3.0 + 1e-12) == 3.0


@pytest.mark.parametrize("build", ENERGIES)
def test_minorant_is_below_everywhere(build, rng):
    energy = build(rng)
    minorant = quadratic_minorant(energy)
    points = states(energy)
    assert np.all(minorant.value(points) <= energy.value(points) + 1e-10)
    if not energy.products and energy.is_binary:
        assert_allclose(minorant.value(points), energy.value(points), atol=1e-12)


@pytest.mark.parametrize("build", ENERGIES[:5])
def test_spins_have_the_same_energy(build, rng):
    energy = build(rng)
    spins = spins_of(energy)
    points = states(energy)
    s = np.vstack([np.ones(points.shape[1]), 2.0 * points - 1.0])
    form = spins.constant + 0.5 * np.einsum("ir,ir->r", s, spins.matrix() @ s)
    assert_allclose(form, energy.value(points), atol=1e-10)
    assert_allclose(spins.matrix().diagonal(), 0.0)


def test_refusals_name_the_culprit():
    x, w = vo.Binary(3, name="x"), vo.Variable(3, name="w")
    with pytest.raises(NotPolynomial, match=r"hinge\(.*x.*\) .* no polynomial"):
        energy_of(vo.sum(vo.hinge(np.eye(3) @ x)))
    with pytest.raises(NotPolynomial, match="w is real"):
        energy_of(vo.sum_squares(w))
    with pytest.raises(ValueError, match="all real or all discrete; x is discrete"):
        vo.minimize(vo.sum_squares(w - x))


@pytest.mark.parametrize("density", [1.0, 0.5, 0.05])
def test_dense_and_sparse_input_make_one_energy(density, rng):
    """Whatever it came as, a matrix is kept as it is best multiplied with."""
    n = 300  # more than a tile
    M = np.where(rng.random((n, n)) < density, rng.standard_normal((n, n)), 0.0)
    widths = np.r_[np.ones(n - 6, dtype=int), 2, 4]
    for form in ({}, {"weight": -2.0}, {"widths": widths}):
        dense, sparse = (Energy.quadratic_form(m, 1.0, 2.0, **form) for m in (M, sp.csr_array(M)))
        assert sp.issparse(dense.quadratic) == sp.issparse(sparse.quadratic) == (density == 0.05)
        assert_allclose(as_dense(dense.quadratic), as_dense(sparse.quadratic), atol=1e-15)
        assert_allclose(dense.linear, sparse.linear)
        site = dense.site
        exact = np.where(site[:, None] == site, 0.0, form.get("weight", 1.0) * (M + M.T))
        assert_allclose(as_dense(dense.quadratic), exact, atol=1e-15)
    single = Energy.quadratic_form(M.astype(np.float32))
    assert single.quadratic.dtype == np.float64


def test_entries_are_looked_at_in_pieces(rng, monkeypatch):
    M = rng.integers(-4, 5, (40, 40)) / 2.0
    whole = Energy.quadratic_form(M)
    monkeypatch.setattr(_matrices, "_PIECE", 7)
    for build in (np.asarray, sp.csr_array):
        energy = Energy.quadratic_form(build(M))
        assert energy.granularity == whole.granularity == 0.5
        assert_allclose([energy.magnitude, termwise_bound(energy)], [whole.magnitude, termwise_bound(whole)])
    M[3, 30] += 0.1
    assert Energy.quadratic_form(M).granularity == 0.0


def test_memory_of_a_dense_matrix_is_one_copy_of_it_and_one_in_single_precision(monkeypatch):
    """From what a user hands in to the first sweeps: no sparse detour, no copy for what is looked at in passing."""
    n = 800
    Q = np.random.default_rng(0).standard_normal((n, n))
    monkeypatch.setattr(sp, "coo_array", lambda *_, **__: pytest.fail("a sparse copy of a dense matrix"))
    monkeypatch.setattr(_population, "_CROWDED_REPLICAS", (8, 8))
    monkeypatch.setattr(_sweeps, "_DRAWN", 1 << 10)
    monkeypatch.setattr(_matrices, "_PIECE", 1 << 14)

    def stop(state):
        if np.isfinite(state.upper):
            raise StopIteration

    tracemalloc.start()
    for problem in (qubo, ising, max_cut):
        tracemalloc.reset_peak()
        matrix = Q if problem is qubo else Q + Q.T
        held, _ = tracemalloc.get_traced_memory()
        problem(matrix, callback=stop)
        _, peak = tracemalloc.get_traced_memory()
        assert peak - held < 1.9 * Q.nbytes
    tracemalloc.stop()


def test_memory_is_linear_in_the_entries():
    n, entries = 20_000, 60_000
    rng = np.random.default_rng(0)
    Q = sp.coo_array((rng.standard_normal(entries), rng.integers(n, size=(2, entries))), shape=(n, n))
    tracemalloc.start()
    Energy.quadratic_form(Q)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 * (n + entries)
