"""Many variables that are seen through few combinations of them."""

import numpy as np
import pytest

import varopt as vo
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import METHODS, LowRank


@pytest.fixture
def machine():
    """A kernelised support vector machine of rank 6, and the same in w and b."""
    rng = np.random.default_rng(1)
    y = rng.choice([-1.0, 1.0], 400)
    X = rng.standard_normal((400, 6)) + 0.4 * y[:, None]
    rows = y[:, None] * X
    beta, w, b = vo.Variable(400), vo.Variable(6), vo.Variable()
    kernelised = vo.quad_form(beta, rows @ rows.T) + 2.0 * vo.sum(vo.hinge((rows @ rows.T) @ beta + b * y))
    return kernelised, vo.sum_squares(w) + 2.0 * vo.sum(vo.hinge(rows @ w + b * y))


def test_a_kernel_of_low_rank_is_the_problem_in_w(machine):
    kernelised, linear = (vo.minimize(f) for f in machine)
    assert kernelised.method == "low-rank > newton"
    assert kernelised.status is Status.ASSUMED  # the matrix is singular, and convex but for rounding
    assert kernelised.fun == pytest.approx(linear.fun, rel=1e-8)
    assert kernelised.lower <= linear.upper
    assert linear.lower <= kernelised.upper


def test_starts_time_limits_and_interrupts(machine):
    f, _ = machine
    first = vo.minimize(f)
    assert vo.minimize(f, x0=first.x).fun == pytest.approx(first.fun, rel=1e-9)
    stopped = vo.minimize(f, time_limit=1e-9)
    assert stopped.status is Status.TIME_LIMIT
    assert stopped.lower <= first.upper <= stopped.upper + 1e-9

    def interrupt(state):
        raise KeyboardInterrupt

    assert vo.minimize(f, callback=interrupt).status is Status.INTERRUPTED


def test_a_linear_part_outside_of_the_range_falls_for_ever(machine):
    f, _ = machine
    tilted = f + 1e-3 * f.variables[0][0]
    r = vo.minimize(tilted)  # whether it is depends on the last digits of a matrix that is singular but for rounding
    assert r.status in (Status.UNBOUNDED, Status.GAP_OPEN)
    assert r.lower == -np.inf


def test_what_is_seen_in_full_is_left_to_others(machine):
    f, _ = machine
    rng = np.random.default_rng(2)
    x = vo.Variable(320)
    full = rng.standard_normal((320, 320))
    others = vo.quad_form(x, full @ full.T) + vo.norm1(full @ x - 1.0)
    assert not LowRank().suits(composite(others))
    assert vo.minimize(others, method="low-rank").fun == pytest.approx(vo.minimize(others).fun, rel=1e-8)
    assert "single variables" in METHODS["low-rank"].refusal(composite(f + vo.norm1(f.variables[0])))
