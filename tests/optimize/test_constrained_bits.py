"""Bits and choices subject to linear constraints, against a comparison of all states."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import varopt as vo
from varopt.solvers.discrete import energy_of
from varopt.solvers.discrete.constrained import (
    _enumeration,  # what is few enough is changed
    enumerated,
    limits_of,
    propagated,
)
from varopt.solvers.interior_point import _interior_point  # interrupted amid a relaxation


def random_problem(seed, n=9):
    """A quadratic of bits with one to three constraints, its value, and whether a state is allowed."""
    rng = np.random.default_rng(seed)
    Q, c = np.round(rng.standard_normal((n, n)), 1), np.round(rng.standard_normal(n), 1)
    rows = []
    for _ in range(int(rng.integers(1, 4))):
        a = rng.integers(-3, 4, n) if rng.random() < 0.5 else np.ones(n, dtype=int)
        b = int(rng.integers(-2, n // 2 + 1))
        rows.append((a, b, str(rng.choice(["<=", ">=", "=="]))))
    return Q, c, rows


def brute_force(Q, c, rows):
    best = math.inf
    for state in itertools.product((0.0, 1.0), repeat=len(c)):
        x = np.array(state)
        sides = [(a @ x, b, sense) for a, b, sense in rows]
        if all(z <= b if s == "<=" else z >= b if s == ">=" else z == b for z, b, s in sides):
            best = min(best, float(x @ Q @ x + c @ x))
    return best


def built(Q, c, rows):
    x = vo.Binary(len(c), name="x")
    sides = [(a @ x, b, sense) for a, b, sense in rows]
    limits = [z <= b if s == "<=" else z >= b if s == ">=" else z == b for z, b, s in sides]
    return x, vo.quad_form(x, Q) + c @ x, limits


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("few", [True, False])
def test_the_optimum_is_that_of_all_states(seed, few, monkeypatch):
    if not few:
        monkeypatch.setattr(_enumeration, "_MOST_LOOKED_AT", 0)  # so that it has to be found and proved
    Q, c, rows = random_problem(seed)
    best = brute_force(Q, c, rows)
    x, f, limits = built(Q, c, rows)
    r = vo.minimize(f, subject_to=limits)
    if math.isinf(best):
        assert r.status.name == "INFEASIBLE"
        return
    assert r.fun == pytest.approx(best, abs=1e-9)
    assert r.violation == 0.0
    assert f(r[x]) == pytest.approx(best, abs=1e-9)
    assert r.lower <= best + 1e-9
    assert r.status.name == ("PROVED" if few else "ASSUMED") or r.certificate.assumption == ""


def test_an_assignment_is_proved_by_its_relaxation():
    rng = np.random.default_rng(0)
    C = rng.integers(1, 50, (12, 12))
    x = vo.Binary((12, 12), name="x")
    rows = [vo.sum(x[i]) == 1 for i in range(12)] + [vo.sum(x[:, j]) == 1 for j in range(12)]
    r = vo.minimize(C.ravel() @ x, subject_to=rows)
    a, b = linear_sum_assignment(C)
    assert r.fun == C[a, b].sum()
    assert r.status.name == "PROVED"
    assert r[x].shape == (12, 12)


def test_a_tour_is_found_by_exchanges():
    rng = np.random.default_rng(3)
    P = rng.random((7, 2))
    D = np.linalg.norm(P[:, None] - P[None], axis=2)
    at = vo.Categorical(7, 7, name="at")
    length = sum(D[i, j] * (at[:, i] @ at[np.r_[1:7, 0], j]) for i in range(7) for j in range(7) if i != j)
    r = vo.minimize(length, subject_to=[vo.sum(at[:, j]) == 1 for j in range(7)], time_limit=3.0)
    tours = ((0, *rest) for rest in itertools.permutations(range(1, 7)))
    best = min(sum(D[t[k], t[(k + 1) % 7]] for k in range(7)) for t in tours)
    assert r.fun == pytest.approx(best, rel=1e-9)
    assert r.violation == 0.0


def test_maximising_a_knapsack():
    rng = np.random.default_rng(0)
    value, weight = rng.integers(10, 60, 25), rng.integers(5, 40, 25)
    x = vo.Binary(25)
    r = vo.maximize(value @ x, subject_to=[weight @ x <= weight.sum() // 2])
    assert weight @ r[x] <= weight.sum() // 2
    assert r.lower <= r.fun <= r.upper
    assert r.upper - r.fun <= 1e-6


def test_no_state_and_no_fraction_of_one_is_proved():
    x = vo.Binary(30)
    r = vo.minimize(vo.sum(x), subject_to=[vo.sum(x) >= 31])
    assert r.status.name == "INFEASIBLE"
    assert r.proof.least > 0.0
    assert not r.certificate.assumption


def test_what_follows_from_a_few_bits_is_proved_where_fractions_satisfy_all():
    """A switch that is all but on would do; on, it leaves nothing of the others, and off they are too many."""
    x = vo.Binary(24, name="x")
    switch, weight = np.r_[1e5, np.ones(23)], np.r_[0.0, np.full(23, 2.0)]
    r = vo.minimize(vo.sum(x), subject_to=[switch @ x <= 1e5, weight @ x <= 41.5, vo.sum(x) == 21])
    assert r.status.name == "INFEASIBLE"
    assert "propagation" in r.method
    assert type(r.certificate).__name__ == "NoState"
    assert "multipliers" not in r.certificate.explain()


@pytest.mark.parametrize("seed", range(150))
def test_propagation_finds_a_state_or_proves_that_there_is_none(seed):
    """Beside a comparison of all states; whole numbers and tenths, and choices of exactly one."""
    rng = np.random.default_rng([58, seed])
    _, _, rows = random_problem([58, seed])
    x, kinds = vo.Binary(9, name="x"), vo.Categorical(2, 3, name="k")
    scale = float(rng.choice([1.0, 0.1, 0.3]))
    limits = []
    for a, b, sign in rows:
        side, bound = scale * a @ x, scale * b
        limits.append(side <= bound if sign == "<=" else side >= bound if sign == ">=" else side == bound)
    limits.append(vo.sum(kinds[:, 0]) + x[0] <= int(rng.integers(0, 3)))
    energy, asked = energy_of(vo.sum(x) + vo.sum(kinds)), limits_of(limits, (x, kinds))
    found = propagated(energy, asked, lambda: None)
    if found.x is not None:
        assert not asked.excess(found.x).any()
    else:
        assert found.complete
    assert (found.x is None) == (enumerated(energy, asked)[0] is None)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("switch", [1e6, 1e9, 1e12])
def test_a_switch_of_large_weight_does_not_hide_what_others_add(switch, few, monkeypatch):
    """Beside ``10^9`` a share of it was taken for rounding: two bits beyond the limit were allowed, with proof."""
    if not few:
        monkeypatch.setattr(_enumeration, "_MOST_LOOKED_AT", 0)
    x = vo.Binary(8, name="x")
    weight = np.r_[switch, np.ones(7)]
    r = vo.maximize(vo.sum(x), subject_to=[weight @ x <= switch])
    assert r.fun == 7.0
    assert weight @ r[x] <= switch
    assert r.violation == 0.0


def test_tenths_may_be_off_by_their_rounding_and_it_is_told():
    x = vo.Binary(2, name="x")
    r = vo.maximize(vo.sum(x), subject_to=[np.array([0.1, 0.2]) @ x == 0.3])
    assert r.fun == 2.0
    assert r.violation == pytest.approx(0.1 + 0.2 - 0.3, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("size", [10, 40])
def test_an_equation_whose_divisor_does_not_divide_its_side_is_infeasible_without_an_assumption(size):
    x, c = vo.Binary(size, name="x"), np.arange(float(size))
    r = vo.minimize(c @ x, subject_to=[np.full(size, 6.0) @ x == 27.0])
    assert r.status.name == "INFEASIBLE"
    assert not r.certificate.assumption


def test_what_only_floating_point_finds_infeasible_is_not_called_proved(rng):
    """A market split, of which no state is a solution, as the comparison of all shows; HiGHS sees that by its own."""
    x = vo.Binary(24, name="x")
    weights = np.r_[np.full(22, 2.0), 3.0, 5.0]  # an even side needs both odd weights or none
    limits = [weights @ x == 21.0, x[22] == x[23]]
    r = vo.minimize(rng.integers(-9, 10, 24) @ x, subject_to=limits, time_limit=1.0)
    assert r.status.name != "INFEASIBLE" or not r.certificate.assumption
    assert not r.success


@pytest.mark.parametrize("after", [2, 40, 400])
def test_an_interrupt_of_a_relaxation_is_one_of_the_run(after, monkeypatch, rng):
    """The run in real numbers kept what it knew, and the run in bits went on until its time was up."""
    step, left = _interior_point._Iterate.step, [after]

    def interrupted(self):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(_interior_point._Iterate, "step", interrupted)
    x = vo.Binary(40, name="x")
    r = vo.minimize(x @ rng.integers(-5, 6, (40, 40)) @ x, subject_to=[vo.sum(x) == 10], time_limit=1.0)
    assert r.status.name == ("INTERRUPTED" if left[0] <= 0 else "TIME_LIMIT")
    assert r.lower <= r.upper


def test_variables_of_constraints_alone_and_bad_options():
    x, y = vo.Binary(3, name="x"), vo.Binary(2, name="y")
    r = vo.minimize(vo.sum(x), subject_to=[vo.sum(y) == 1, x[0] >= y[0], x[1] >= y[1]])
    assert r.fun == 1.0
    assert r[y].sum() == 1.0
    with pytest.raises(ValueError, match="method and device"):
        vo.minimize(vo.sum(x), subject_to=[vo.sum(x) == 1], method="free-energy")
    with pytest.raises(ValueError, match="two of them for a matrix"):
        vo.Binary((2, 2, 2))
    w = vo.Variable(2, name="w")
    with pytest.raises(ValueError, match="all real or all discrete"):
        vo.minimize(vo.sum(x), subject_to=[w >= 0])


def test_a_sum_of_squares_is_not_negative():
    """A sequence of low autocorrelation with as many bits on as off: no relaxation of degree four is at hand."""
    s = vo.Binary(20)
    z = 2 * s - 1
    energy = sum(vo.sum(z[: 20 - k] * z[k:]) ** 2 for k in range(1, 20))
    r = vo.minimize(energy, subject_to=[vo.sum(s) == 10], time_limit=1.0)
    assert 0.0 <= r.lower <= r.fun
    assert r.violation == 0.0


def test_products_of_equal_polynomials_are_squares():
    """Of polynomials that were built twice, as by a function that is called twice."""
    x = vo.Binary(20)
    s = [2 * x[i] - 1 for i in range(20)]

    def correlation(k):
        return sum((s[i] * s[i + k] for i in range(1, 20 - k)), s[0] * s[k])

    r = vo.minimize(sum(correlation(k) * correlation(k) for k in range(1, 20)), time_limit=0.2)
    assert 0.0 <= r.lower <= r.fun
    assert vo.minimize(correlation(3) * correlation(4), time_limit=0.2).fun < 0.0
