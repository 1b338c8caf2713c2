"""Soundness: no bound is above the optimum, on problems small enough to enumerate, however early it is stopped."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.discrete.zoo import ENERGIES, cut, integer_quadratic, real_quadratic, sparse_quadratic, states
from varopt.solvers import State
from varopt.solvers.discrete import Energy, _solve
from varopt.solvers.discrete._matrices import as_dense  # matrices in whichever format
from varopt.solvers.discrete.bounds import (
    _semidefinite,
    _smallest_eigenvalue,
    _triangle_inequalities,
    cholesky_lower_bound,
    diagonal_bound,
    quadratic_minorant,
    semidefinite_bound,
    spins_of,
    termwise_bound,
    tighten,
    verified_lower_bound,
)
from varopt.solvers.discrete.proofs import branch_and_bound


@pytest.mark.parametrize("build", ENERGIES)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_bounds_are_below_the_optimum(build, seed):
    rng = np.random.default_rng(seed)
    energy = build(rng)
    optimum = energy.value(states(energy)).min()
    lower, assumption, _ = semidefinite_bound(spins_of(quadratic_minorant(energy)), rng)
    assert termwise_bound(energy) <= optimum
    assert lower <= optimum
    assert energy.round_up(lower) <= optimum + 1e-9
    assert assumption == ""


@pytest.mark.parametrize("build", [integer_quadratic, real_quadratic, cut, sparse_quadratic])
def test_any_diagonal_is_a_bound(build, rng):
    """Also one that is far from optimal: the eigenvalue repairs it."""
    energy = build(rng)
    optimum = energy.value(states(energy)).min()
    spins = spins_of(energy)
    for scale in (0.0, 0.1, 1.0, 10.0):
        lower, _ = diagonal_bound(spins, scale * rng.standard_normal(spins.size), rng)
        assert lower <= optimum


def test_semidefinite_bound_is_the_semidefinite_programme(rng):
    """Against an interior point method on the explicit programme: min <M, X>/2, diag(X) = 1, X psd."""
    clarabel = pytest.importorskip("clarabel")
    spins = spins_of(real_quadratic(rng))
    n = spins.size
    index = [
        (i, j) for j in range(n) for i in range(j + 1)
    ]  # the upper triangle by columns, off-diagonals times sqrt 2
    dense = as_dense(spins.matrix())
    cost = np.array([0.5 * dense[i, j] * (1.0 if i == j else np.sqrt(2.0)) for i, j in index])
    diagonal = sp.csc_matrix(np.array([[float(i == j == k) for i, j in index] for k in range(n)]))
    A = sp.vstack([diagonal, -sp.eye(len(index))], format="csc")
    b = np.r_[np.ones(n), np.zeros(len(index))]
    cones = [clarabel.ZeroConeT(n), clarabel.PSDTriangleConeT(n)]
    options = clarabel.DefaultSettings()
    options.verbose = False
    zero = sp.csc_matrix((len(index), len(index)))
    exact = clarabel.DefaultSolver(zero, cost, A, b, cones, options).solve().obj_val + spins.constant
    lower, _, _ = semidefinite_bound(spins, rng)
    assert lower <= exact + 1e-7
    assert_allclose(lower, exact, rtol=2e-3)


@pytest.mark.parametrize("limit", [3000, 5])
def test_eigenvalue_bound(limit, rng, monkeypatch):
    """By factorisation, and, as of large matrices, by Lanczos' method with its probability of failure."""
    monkeypatch.setattr(_smallest_eigenvalue, "_FACTORED_ORDER", limit)
    for n in (6, 40, 300):
        A = rng.standard_normal((n, n))
        A = sp.csr_array(np.where(np.abs(A + A.T) > 2.0, A + A.T, 0.0))
        exact = np.linalg.eigvalsh(A.toarray())[0]
        bound, assumption = verified_lower_bound(A, rng)
        assert bound <= exact
        if n == 300 or limit > n:  # few steps prove little
            assert bound >= exact - (0.2 if limit == 5 else 1e-2) * np.abs(exact)
        assert ("1e-10" in assumption) == (limit == 5 and n > 6)  # of a few steps the rows, which assume nothing


def test_eigenvalue_bound_at_the_edge(rng):
    """Singular and indefinite by one rounding: the proof must not claim what rounding hides."""
    for n in (2, 10, 60):
        B = rng.standard_normal((n, max(1, n // 2)))
        A = B @ B.T
        exact = -1e-13 * np.linalg.norm(A)
        assert cholesky_lower_bound(A + exact * np.eye(n)) <= 0.5 * exact
    assert cholesky_lower_bound(np.zeros((3, 3))) <= 0.0


@pytest.mark.parametrize("build", [integer_quadratic, real_quadratic, cut])
def test_triangles_tighten_and_stay_below(build, rng):
    for _ in range(3):
        energy = build(rng)
        optimum = energy.value(states(energy)).min()
        spins = spins_of(energy)
        plain, _, _ = semidefinite_bound(spins, rng)
        dual = tighten(as_dense(spins.matrix()), np.inf)
        assert spins.constant + dual.bound <= optimum
        assert spins.constant + dual.bound >= plain - 1e-2 * abs(plain)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(3, 9), definite=st.booleans())
def test_other_spins_are_bounded_apart(seed, n, definite):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, n))
    z = z @ z.T if definite else z + z.T
    every = np.array(np.meshgrid(*[[-1.0, 1.0]] * n)).reshape(n, -1)
    s = every[:, rng.integers(every.shape[1])]
    if definite:  # s in the kernel, as where the relaxation is tight
        z -= np.outer(z @ s, z @ s) / float(s @ z @ s)
    others = every[:, np.abs(s @ every) < n]
    bound = _triangle_inequalities._apart(z, s)
    assert bound <= np.einsum("ik,ij,jk->k", others, z, others).min()
    assert not definite or bound > 0.0


@pytest.mark.parametrize("build", [integer_quadratic, real_quadratic, cut])
@pytest.mark.parametrize("patience", [1, 2, 4, 100])
def test_what_is_apart_is_sound_however_far_the_multipliers_are(build, patience, rng):
    energy = build(rng)
    spins = spins_of(energy)
    optimum = energy.value(states(energy)).min()
    left = iter([False] * patience)
    dual = tighten(as_dense(spins.matrix()), np.inf, expired=lambda: next(left, True))
    assert spins.constant + dual.lower <= optimum + 1e-9
    x = np.where(dual.spins[1:] == dual.spins[0], 1.0, 0.0)
    assert_allclose(energy.value(x), spins.constant + dual.value)


@pytest.mark.parametrize("n", [3, 6])
def test_values_are_bounded_beyond_their_rounding(n, rng):
    """In exact arithmetic: a sum of products is off by its rounding, and no bound may be above the exact optimum."""
    for _ in range(20):
        matrix = rng.standard_normal((n, n)) * 10.0 ** rng.integers(-3, 4, (n, n))
        matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
        exact = [[Fraction(v) for v in row] for row in matrix.tolist()]
        optimum = min(
            sum(exact[i][j] * s[i] * s[j] for i in range(n) for j in range(i))
            for s in itertools.product((-1, 1), repeat=n)
        )
        assert Fraction(tighten(matrix, np.inf).lower) <= optimum


def test_a_tight_relaxation_is_closed_without_branching():
    """Its bound alone only tends to the optimum, of numbers that are no integers."""
    energy = Energy.quadratic_form(np.random.default_rng(0).standard_normal((24, 24)))
    *_, last = branch_and_bound(spins_of(energy), np.inf, 1e-9)
    assert last.nodes == 1
    assert last.lower == last.value


@pytest.mark.parametrize("build", [integer_quadratic, real_quadratic, cut])
def test_branch_and_bound_proves_from_any_start(build, rng):
    """Even when it is told of no good point, and of points that do not exist."""
    for _ in range(2):
        energy = build(rng)
        optimum = energy.value(states(energy)).min()
        for known in (optimum, np.inf, energy.value(np.zeros(energy.size))):
            *_, last = branch_and_bound(spins_of(energy), known, 1e-6)
            assert_allclose([last.lower, last.value], optimum, atol=1e-6)
            if last.spins is not None:
                x = np.where(last.spins[1:] == last.spins[0], 1.0, 0.0)
                assert_allclose(energy.value(x), optimum, atol=1e-9)


def test_branch_and_bound_is_sound_when_cut_short(rng):
    energy = integer_quadratic(rng, 14)
    optimum = energy.value(states(energy)).min()
    for patience in range(1, 40, 3):
        left = iter([False] * patience)
        for progress in branch_and_bound(spins_of(energy), optimum, 0.999, lambda left=left: next(left, True)):
            assert progress.lower <= optimum


def test_relaxation_stops_early_and_stays_sound(rng, monkeypatch):
    monkeypatch.setattr(_semidefinite, "_MIXING_SWEEPS", 1)
    for _ in range(5):
        energy = real_quadratic(rng)
        lower, _, _ = semidefinite_bound(spins_of(energy), rng)
        assert lower <= energy.value(states(energy)).min()


@pytest.mark.parametrize("limit", [3000, 5])
@pytest.mark.parametrize("patience", [0, 1, 12, 40])
def test_proofs_stop_early_and_stay_sound(limit, patience, rng, monkeypatch):
    """Wherever the time is up: in the factors, in Lanczos' method, or between factorisations."""
    monkeypatch.setattr(_smallest_eigenvalue, "_FACTORED_ORDER", limit)
    for build in (real_quadratic, sparse_quadratic):
        energy = build(rng)
        asked = iter([False] * patience)
        lower, _, _ = semidefinite_bound(spins_of(energy), rng, lambda asked=asked: lambda: next(asked, True))
        assert -np.inf < lower <= energy.value(states(energy)).min()


def test_shares_are_of_the_time_that_is_left(rng):
    energy, state = real_quadratic(rng), State(np.zeros(9))
    whole = _solve.Contraction.none(energy)
    run = _solve._Run(energy, state, 1e-9, -np.inf, lambda _: None, 1e6, rng, [], whole)
    state.started -= 6e5
    half = run.within(0.5)
    state.started -= 1e5
    assert not half()
    state.started -= 2e5
    assert half()
    assert not run.expired()
    state.started -= 2e5
    assert run.expired()


def test_bounds_scale_and_shift(rng):
    energy = real_quadratic(rng)
    lower, _, _ = semidefinite_bound(spins_of(energy), np.random.default_rng(0))
    scaled = Energy(1e6 * energy.constant + 7.0, 1e6 * energy.linear, 1e6 * energy.quadratic)
    again, _, _ = semidefinite_bound(spins_of(scaled), np.random.default_rng(0))
    assert_allclose(again, 1e6 * lower + 7.0, rtol=1e-6)


def test_eigenvalues_of_tiny_matrices_are_found(rng):
    values = np.linspace(-3.0, 5.0, 60)
    for unit in (1e-14, 1.0, 1e14):
        smallest, largest, _ = _smallest_eigenvalue.extreme_eigenvalues(lambda v, unit=unit: unit * values * v, 60, rng)
        assert_allclose([smallest, largest], [-3.0 * unit, 5.0 * unit], rtol=1e-9)
