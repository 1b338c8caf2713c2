"""A quadratic of bits as a convex function: the same wherever constraints hold, and a bound by real numbers."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg

import varopt as vo
from varopt.solvers.discrete import energy_of
from varopt.solvers.discrete.constrained import convexified, limits_of


def of(f, constraints):
    return convexified(energy_of(f), limits_of(constraints, tuple(f.variables)))


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_the_energy_where_constraints_hold_and_is_convex(seed):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-6, 7)
    Q, c = scale * rng.standard_normal((10, 10)), scale * rng.standard_normal(10)
    x = vo.Binary(10)
    row = rng.integers(-3, 4, 10)
    side = int(row[:4].sum())
    f = vo.quad_form(x, Q) + c @ x
    form = of(f, [vo.sum(x) == 4, row @ x == side, x[0] + x[1] <= 1])
    assert np.linalg.eigvalsh(form.matrix)[0] >= 0.0
    states = np.array(list(itertools.product((0.0, 1.0), repeat=10)))
    allowed = states[(states.sum(axis=1) == 4) & (states @ row == side)]
    values = np.einsum("ij,ij->i", allowed @ Q, allowed) + allowed @ c
    convex = np.einsum("ij,ij->i", allowed @ form.matrix, allowed) + allowed @ form.vector + form.constant
    np.testing.assert_allclose(convex, values, rtol=0.0, atol=form.rounding)


def test_choices_count_as_equations(rng):
    x = vo.Categorical(3, 4)
    f = x @ (rng.integers(-5, 6, (12, 12)) @ x)
    form = of(f, [vo.sum(x, axis=0) <= 1])
    for state in itertools.product(range(4), repeat=3):
        bits = np.eye(4)[list(state)].ravel()
        value = bits @ form.matrix @ bits + form.vector @ bits + form.constant
        assert value == pytest.approx(f(bits), abs=1e-9)


def test_what_it_does_not_take(rng):
    x = vo.Binary(5)
    assert of(x[0] * x[1] * x[2] + vo.sum(x), [vo.sum(x) == 2]) is None
    assert of(vo.sum(x), [vo.sum(x) == 2]) is None


def test_it_brackets_a_portfolio(rng):
    returns = 0.001 + 0.02 * rng.standard_normal((250, 22))
    risk, mean = np.cov(returns.T), returns.mean(axis=0)
    chosen = np.array(list(itertools.combinations(range(22), 6)))
    held = np.zeros((len(chosen), 22))
    held[np.arange(len(held))[:, None], chosen] = 1.0
    values = 100.0 * np.einsum("ij,ij->i", held @ risk, held) - 10.0 * held @ mean
    x = vo.Binary(22)
    r = vo.minimize(100.0 * vo.quad_form(x, risk) - 10.0 * (mean @ x), subject_to=[vo.sum(x) == 6], time_limit=3.0)
    assert "convex-relaxation" in r.method
    assert r.lower <= values.min() + 1e-12
    assert r.fun - r.lower <= 0.1 * np.ptp(values)


def test_what_cancels_in_products_of_equations_is_charged(rng):
    """Rows at right angles cancel outside the diagonal, where their rounding does not."""
    x, signs = vo.Binary(16), scipy.linalg.hadamard(16) * rng.uniform(0.1, 1.0, size=(16, 1))
    state = rng.integers(0, 2, 16)
    form = of(vo.quad_form(x, 1e-3 * (1.0 - np.eye(16))), [signs @ x == signs @ state])
    on = np.flatnonzero(state)
    value = sum((Fraction(form.matrix[i, j]) for i in on for j in on), Fraction(form.constant))
    value += sum(map(Fraction, form.vector[on]))
    assert abs(value - Fraction(1e-3) * on.size * (on.size - 1)) <= Fraction(form.rounding)
