"""Chains by their taut string: against the explicit programme and against interior points."""

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import METHODS


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def chain(n, rng, loss="norm1", threshold=0.0, ties=False):
    """A chain with weights and penalties of its own for every point."""
    x = vo.Variable(n)
    y = np.cumsum(rng.standard_normal(n)) + rng.standard_normal(n)
    y = np.round(y) if ties else y
    penalty = rng.choice([0.0, 0.5, 1.0, 2.0], n - 1) * rng.choice([0.1, 1.0, 30.0])
    d = vo.diff(x)
    f = {
        "norm1": lambda: vo.sum(penalty * vo.abs(d)),
        "falls": lambda: vo.sum(penalty * vo.pos(-d)),
        "uneven": lambda: vo.sum(penalty * vo.pinball(3.0 * d, 0.2)),
    }[loss]()
    if threshold:
        return 0.5 * vo.sum_squares(x - y) + f + threshold * vo.norm1(2.0 * x - 1.0)
    return vo.sum(rng.choice([0.5, 1.0, 3.0], n) * vo.square(x - y)) + f


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.3])
@pytest.mark.parametrize("loss", ["norm1", "falls", "uneven"])
def test_the_bracket_holds_the_optimum_of_the_explicit_programme(loss, threshold, ties, rng):
    for n in (2, 3, 5, 20, 60):
        for _ in range(4):
            f = chain(n, rng, loss, threshold, ties)
            r = vo.minimize(f)
            optimum = explicit_optimum(f)
            assert r.method in ("taut-string", "none")  # none: the start is optimal
            assert r.status is Status.OPTIMAL
            assert r.lower <= optimum + 1e-7 * max(1.0, abs(optimum))
            assert r.fun <= optimum + 1e-7 * max(1.0, abs(optimum))
            assert r.gap <= 1e-12 * max(1.0, abs(r.fun))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_interior_points_agree(scale, shift, rng):
    n = 3000
    y = scale * (shift + np.repeat(rng.standard_normal(n // 100), 100) + rng.standard_normal(n))
    x = vo.Variable(n)
    f = 0.5 * vo.sum_squares(y - x) + 4.0 * scale * vo.norm1(vo.diff(x))
    string, points = vo.minimize(f), vo.minimize(f, method="interior-point")
    assert (string.method, string.status) == ("taut-string", Status.OPTIMAL)
    np.testing.assert_allclose(string.x, points.x, rtol=1e-6, atol=1e-6 * scale)
    assert string.lower <= points.upper * (1.0 + 1e-15)
    assert points.lower <= string.upper * (1.0 + 1e-15)


@pytest.mark.parametrize("y", [np.zeros(50), np.full(50, 7.5), np.arange(50.0), np.arange(50.0) ** 2, np.eye(50)[17]])
@pytest.mark.parametrize("penalty", [0.0, 1e-9, 0.5, 1e9])
def test_plain_signals(y, penalty):
    x = vo.Variable(50)
    r = vo.minimize(0.5 * vo.sum_squares(y - x) + penalty * vo.norm1(vo.diff(x)))
    assert r.state.gap <= 1e-12 * max(1.0, r.fun)  # of the method; with the rounding of large penalties charged it is
    assert r.gap <= 1e-9 * max(1.0, r.fun) or penalty == 1e9  # wider
    if penalty == 1e9:
        np.testing.assert_allclose(r.x, y.mean(), atol=1e-12)
    if penalty == 0.0:
        np.testing.assert_allclose(r.x, y, atol=1e-12)


def test_steps_are_exactly_flat():
    x = vo.Variable(500)
    y = np.repeat([0.1, 2.3, -1.7, 4.0, 0.0], 100)
    r = vo.minimize(0.5 * vo.sum_squares(y - x) + 12.0 * vo.norm1(vo.diff(x)))
    assert np.count_nonzero(np.diff(r.x)) == 4


def test_what_is_no_chain_is_refused():
    x = vo.Variable(6)
    twice = sp.csr_array((np.eye(5, 6, 1) - np.eye(5, 6))[[0, 1, 1, 2, 3]])
    squares, steps = vo.sum_squares(x - np.arange(6.0)), vo.norm1(vo.diff(x))
    others = {
        "no square for each": vo.square(x[0]) + steps,
        "second differences": squares + vo.norm1(vo.diff(x, 2)),
        "a ring": squares + steps + vo.abs(x[5] - x[0]),
        "a tie twice": squares + vo.norm1(twice @ x),
        "kinks elsewhere": squares + vo.norm1(vo.diff(x) - 1.0),
        "sums": squares + vo.norm1(x[1:] + x[:-1]),
        "a full quadratic": vo.square(vo.sum(x)) + squares + steps,
        "unlike kinks": squares + steps + vo.sum(np.arange(6.0) * vo.abs(x)),
    }
    for name, f in others.items():
        assert METHODS["taut-string"].refusal(composite(f)), name
        r = vo.minimize(f)
        assert r.method != "taut-string"
        assert abs(r.fun - explicit_optimum(f)) <= 1e-6 * max(1.0, abs(r.fun))
    with pytest.raises(ValueError, match="no chain"):
        vo.minimize(others["a ring"], method="taut-string")


def test_weights_that_swallow_each_other_go_to_another_method(rng):
    """Sums of weights over so many orders do not rise: there is no string to be pulled."""
    weights, y, x = 10.0 ** rng.uniform(-12.0, 12.0, 100), rng.standard_normal(100), vo.Variable(100)
    r = vo.minimize(vo.sum(weights * vo.square(y - x)) + vo.norm1(vo.diff(x)))
    assert (r.method, r.status) == ("taut-string > interior-point", Status.OPTIMAL)
