"""Odd-cycle inequalities: bounds that no point falls below, exact on planar graphs, and proofs of tori."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import varopt as vo
from tests.discrete.zoo import states
from varopt.solvers.discrete import Energy
from varopt.solvers.discrete.bounds import OddCycles, spins_of
from varopt.solvers.discrete.proofs import branch_and_cut, eliminate, elimination_order


def random_graph(rng, n, edges, weights):
    i, j = rng.integers(n, size=(2, edges))
    keep = i != j
    return sp.csr_array((weights(edges)[keep], (i[keep], j[keep])), shape=(n, n))


def lattice(rows, columns, weights, around):
    place = np.arange(rows * columns).reshape(rows, columns)
    pairs = [(place[:, :-1], place[:, 1:]), (place[:-1], place[1:])]
    if around:
        pairs += [(place[:, -1], place[:, 0]), (place[-1], place[0])]
    i, j = (np.concatenate([np.ravel(p[k]) for p in pairs]) for k in range(2))
    return sp.csr_array((weights(i.size), (i, j)), shape=(place.size, place.size))


def signs(rng):
    return lambda count: rng.choice([-1.0, 1.0], size=count)


def rounds(relaxation, most=200):
    box = np.zeros(relaxation.edges), np.ones(relaxation.edges)
    for _ in range(most):
        found = relaxation.bound(*box)
        yield found
        if found.is_closed:
            return


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
@pytest.mark.parametrize("seed", range(4))
def test_every_round_is_below_the_optimum(seed, scale):
    """With fields, steep weights and any units; by enumeration."""
    rng = np.random.default_rng(seed)
    steep = [rng.standard_normal, signs(rng), lambda k: 10.0 ** rng.uniform(-8, 8, k)][seed % 3]
    matrix = random_graph(rng, 12, 24, steep)
    energy = Energy.quadratic_form(scale * matrix, scale * rng.standard_normal(12) * (seed % 2), weight=1.0)
    optimum = energy.value(states(energy)).min()
    relaxation = OddCycles(spins_of(energy), rng)
    relaxation.favour(np.ones(13), scale * 0.1)
    for found in rounds(relaxation, 20):
        assert found.lower <= optimum
        assert relaxation.value(found.spins) >= optimum - 1e-12 * energy.magnitude


def test_any_multipliers_are_a_bound(rng):
    """Also bad ones, in a box of some decided edges: against all cuts, in rational arithmetic."""
    spins = spins_of(Energy.quadratic_form(random_graph(rng, 9, 18, rng.standard_normal)))
    relaxation = OddCycles(spins, rng)
    list(rounds(relaxation, 6))
    s = 2.0 * states(Energy.quadratic_form(np.zeros((10, 10)))) - 1.0
    cuts = (s[relaxation.tails] != s[relaxation.heads]).astype(float)
    programme = relaxation._programme
    assert np.all(programme.rows @ cuts <= programme.sides[:, None])  # every inequality holds of every cut
    for scale in (0.01, 1.0, 100.0):
        multipliers = scale * rng.exponential(size=programme.sides.size)
        low = (rng.random(relaxation.edges) < 0.2).astype(float)
        inside = np.all(cuts >= low[:, None], axis=0)
        proved = Fraction(relaxation._proved(multipliers, low, np.ones(relaxation.edges)))
        for cut in cuts[:, inside][:, :40].T:
            terms = zip(relaxation.couplings.tolist(), cut.tolist(), strict=True)
            assert proved <= Fraction(spins.constant) + sum(Fraction(w) * (1 - 2 * int(x)) for w, x in terms)


@pytest.mark.parametrize("seed", range(2))
def test_planar_graphs_need_nothing_else(seed):
    """A grid with open ends has no other facets: the relaxation is the optimum, which elimination finds."""
    rng = np.random.default_rng(seed)
    energy = Energy.quadratic_form(lattice(8, 12, rng.standard_normal, around=False))
    energy = Energy(0.0, -0.5 * np.asarray(energy.quadratic.sum(axis=1)).ravel(), energy.quadratic)
    _, optimum = eliminate(energy, elimination_order(energy))
    *_, last = rounds(OddCycles(spins_of(energy), rng))
    assert last.is_closed
    assert_allclose(last.lower, optimum, rtol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_branching_proves_what_inequalities_leave_open(seed):
    """Complete graphs have many more facets: the gap is closed by splitting boxes, and enumeration agrees."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(-5, 6, size=(9, 9)).astype(float)
    energy = Energy.quadratic_form(sp.csr_array(np.triu(weights, 1)))
    optimum = energy.value(states(energy)).min()
    *_, last = branch_and_cut(spins_of(energy), np.ones(10), 0.999, rng)
    assert last.lower == last.value == pytest.approx(optimum)


@pytest.mark.parametrize("field", [0.0, 1.0])
def test_tori_of_spins_are_proved(field, rng):
    n = 14
    half = lattice(n, n, signs(rng), around=True)
    couplings = sp.csr_array(half + half.T)
    r = vo.discrete.ising(couplings, h=field * rng.choice([-1.0, 0.0, 1.0], size=n * n), time_limit=60.0)
    assert r.status is vo.Status.PROVED
    assert r.lower == r.fun
    assert r.method.endswith("branch-and-cut")


def test_a_proof_can_be_stopped(rng):
    """At any round, with what is known by then."""
    energy = Energy.quadratic_form(lattice(6, 6, signs(rng), around=True))
    for most in range(4):
        asked = iter(range(1000))
        steps = list(branch_and_cut(spins_of(energy), np.ones(37), 1.0, rng, lambda: next(asked) > most))  # noqa: B023
        assert all(a.lower <= b.lower for a, b in itertools.pairwise(steps))
        assert all(step.lower <= step.value for step in steps)
