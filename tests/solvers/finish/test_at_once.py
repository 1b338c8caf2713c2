"""Regularisers that rule the losses: the optimum where the run begins, or one step away from there."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt import Status
from varopt.composite import composite
from varopt.solvers.finish import at_once


@pytest.fixture
def data(rng):
    X = rng.standard_normal((400, 6))
    return X, X @ rng.standard_normal(6) + rng.standard_normal(400)


LOSSES = {
    "pinball": lambda z, y: vo.sum(vo.pinball(y - z, 0.1)),
    "hinge": lambda z, y: vo.sum(vo.hinge(np.where(y > 0.0, 1.0, -1.0) * z)),
    "epsilon_insensitive": lambda z, y: vo.sum(vo.epsilon_insensitive(y - z, 0.1)),
    "abs": lambda z, y: vo.sum(vo.abs(y - z)),
}


def _largest_gradient(X, y, loss) -> float:
    """The largest entry of the gradient of a loss at zero, in whole numbers of the data's last digits."""
    w = vo.Variable(X.shape[1])
    problem = composite(LOSSES[loss](X @ w, y))
    (rows,) = problem.rows
    u = [Fraction(float(v)) for v in rows.weights * rows.term.derivative(rows.offset)]
    matrix = rows.linear.dense()
    return float(max(abs(sum(v * Fraction(float(a)) for v, a in zip(u, column, strict=True))) for column in matrix.T))


@pytest.mark.parametrize("loss", LOSSES)
def test_zero_is_proved_from_the_penalty_on_that_holds_it(data, loss):
    X, y = data
    w = vo.Variable(6)
    limit = _largest_gradient(X, y, loss)
    for share, rests in ((1.0 + 1e-9, True), (0.999, False)):
        f = LOSSES[loss](X @ w, y) + share * limit * vo.norm1(w) + 0.5 * vo.sum_squares(w)
        r = vo.minimize(f)
        assert r.status is Status.OPTIMAL
        assert r.lower <= r.fun <= r.upper
        assert (not r.x.any()) is rests
        assert (r.state.steps == 0) or not rests


def test_rows_that_rest_on_their_kinks_where_the_run_begins(data):
    """Targets of zero, as of counts: any of their subgradients will do."""
    X, y = data
    y = np.maximum(np.round(y), 0.0)
    w = vo.Variable(6)
    for strength in (2.0, 0.05):
        f = vo.sum(vo.pinball(y - X @ w, 0.3)) / 400 + strength * vo.norm1(w) + 0.5 * strength * vo.sum_squares(w)
        r = vo.minimize(f)
        assert r.status is Status.OPTIMAL
        assert r.fun == pytest.approx(explicit_optimum(f), rel=1e-8)


@pytest.mark.parametrize("C", [1e-6, 1e-3, 0.05, 0.3])
def test_small_weights_of_losses_within_constraints(data, C):
    X, y = data
    t, row = np.where(y > 0.0, 1.0, -1.0), X[:, 0] @ X / 400
    w = vo.Variable(6)
    f = 0.5 * vo.sum_squares(w) + C / 400 * vo.sum(vo.hinge(t * (X @ w)))
    edge = 0.3 * abs(float(row @ vo.minimize(f).x))
    limits = [row @ w <= edge, row @ w >= -edge]
    r = vo.minimize(f, subject_to=limits)
    assert r.status is Status.OPTIMAL
    assert r.violation <= 1e-12
    if C > 0.01:
        held = f + 1e3 * vo.sum(vo.pos(row @ w - edge)) + 1e3 * vo.sum(vo.pos(-(row @ w) - edge))
        assert r.fun == pytest.approx(explicit_optimum(held), rel=1e-8)
        return
    # No row is beyond its kink: the minimum of a quadratic, moved onto the constraint.
    free = C / 400 * X.T @ t
    over = float(row @ free) - np.copysign(edge, row @ free)
    np.testing.assert_allclose(r.x, free - over / (row @ row) * row, rtol=1e-9)
    assert r.multipliers[limits[0]] - r.multipliers[limits[1]] == pytest.approx(over / (row @ row), rel=1e-9)
    assert r.state.steps == 0


def test_constraints_that_zero_misses_are_no_reason_to_stay_there(data):
    X, y = data
    w = vo.Variable(6)
    f = vo.sum(vo.abs(y - X @ w)) + 1e4 * vo.norm1(w) + 0.5 * vo.sum_squares(w)
    assert not vo.minimize(f).x.any()
    r = vo.minimize(f, subject_to=[vo.sum(w) == 1.0])
    assert r.status is Status.OPTIMAL
    assert r.x.sum() == pytest.approx(1.0, abs=1e-12)
    r = vo.minimize(f, subject_to=[w >= 0.5])
    assert r.status is Status.OPTIMAL
    np.testing.assert_array_equal(r.x, 0.5)


def test_it_refuses_what_it_has_no_short_way_to(data):
    X, y = data
    w, b = vo.Variable(6), vo.Variable()
    loss = vo.sum(vo.hinge(np.sign(y) * (X @ w)))
    ruled = 0.5 * vo.sum_squares(w)
    many = composite(loss + ruled)  # rows pass a kink
    assert at_once(many, np.zeros(6), 1e-9, most=20) is None
    flat = composite(1e-6 * vo.sum(vo.hinge(np.sign(y) * (X @ w + b))) + ruled)  # an intercept without curvature
    assert at_once(flat, np.zeros(7), 1e-9, most=300) is None
    curved = composite(1e-6 * vo.sum(vo.huber(y - X @ w)) + ruled)
    assert at_once(curved, np.zeros(6), 1e-9, most=300) is None
    few = composite(1e-6 * loss + ruled)
    exact = at_once(few, np.zeros(6), 1e-9, most=20)
    assert exact is not None
    np.testing.assert_allclose(exact.x, 1e-6 * X.T @ np.sign(y), rtol=1e-12)


def test_where_rows_are_few_every_kink_is_taken_on_from_anywhere(data):
    X, y = data
    w, b = vo.Variable(6), vo.Variable()
    margin = (np.sign(y) * (X @ w + b))[:40]
    for f in (vo.sum(vo.hinge(margin)) + 0.5 * vo.sum_squares(w), vo.sum(vo.abs((y - X @ w - b)[:40]))):
        exact = at_once(composite(f), np.full(7, 3.0), 1e-9, most=40)
        best = vo.minimize(f, method="interior-point")
        assert exact is not None
        assert exact.value == pytest.approx(best.fun, rel=1e-7)
        assert vo.minimize(f).state.steps <= 1


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
def test_in_any_units(data, scale):
    X, y = data
    w = vo.Variable(6)
    f = vo.sum(vo.pinball(scale * y - X @ w, 0.1)) / 400 + vo.norm1(w) + 0.5 * vo.sum_squares(w)
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL
    assert not r.x.any()
