"""Sparse rows and a ridge: brackets against explicit programmes, what is refused, and memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from tests.solvers.explicit import explicit_point
from varopt.composite import composite, ridge_form
from varopt.optimize import Status
from varopt.solvers import METHODS, Multipliers, State
from varopt.solvers.augmented_lagrangian._active_rows import ActiveRows  # equations against dense ones
from varopt.solvers.augmented_lagrangian._augmented_lagrangian import (
    AugmentedLagrangian,  # smoothed rows against their definition
)

LOSSES = {
    "hinge": lambda margin, residual: vo.hinge(margin),
    "squared hinge": lambda margin, residual: vo.squared_hinge(margin),
    "absolute": lambda margin, residual: vo.abs(residual),
    "pinball": lambda margin, residual: vo.pinball(residual, 0.2),
    "epsilon-insensitive": lambda margin, residual: vo.epsilon_insensitive(residual, 0.3),
    "huber": lambda margin, residual: vo.huber(residual, 0.5),
}


def machine(rng, loss="hinge", rows=300, size=90, density=0.08, cost=1.0, intercept="free", weights=None):
    """A linear machine on sparse data."""
    X = sp.random_array((rows, size), density=density, rng=rng, format="csr", data_sampler=rng.standard_normal)
    truth = X @ rng.standard_normal(size)
    w, b = vo.Variable(size, name="w"), vo.Variable(name="b")
    prediction = X @ w if intercept == "none" else X @ w + b
    target = truth + 0.5 + rng.standard_normal(rows)
    losses = LOSSES[loss](np.where(target > 0.0, 1.0, -1.0) * prediction, target - prediction)
    f = cost * vo.sum(losses if weights is None else weights * losses) + 0.5 * vo.sum_squares(w)
    return f + 0.5 * vo.square(b) if intercept == "ridge" else f


def assert_bracket(r, f):
    """The bracket encloses what Clarabel finds, and is as narrow as asked for."""
    best = f(explicit_point(f))
    assert r.status is Status.OPTIMAL
    assert r.lower <= best + 1e-9 * max(1.0, abs(best))
    assert r.fun <= best + 1e-8 * max(1.0, abs(best))


@pytest.mark.parametrize("intercept", ["none", "free", "ridge"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_against_its_explicit_programme(rng, loss, intercept):
    f = machine(rng, loss, intercept=intercept)
    r = vo.minimize(f)
    assert r.method == "multipliers"
    assert_bracket(r, f)


@pytest.mark.parametrize("cost", [1e-3, 1e3])
@pytest.mark.parametrize("size", [40, 900])
def test_light_and_heavy_losses_of_few_and_many_variables(rng, cost, size):
    f = machine(rng, rows=200, size=size, density=0.1 if size < 100 else 0.02, cost=cost)
    assert_bracket(vo.minimize(f, method="multipliers"), f)


def test_weights_of_zero_and_of_every_size(rng):
    weights = np.where(rng.random(300) < 0.3, 0.0, 10.0 ** rng.uniform(-3, 3, 300))
    f = machine(rng, weights=weights)
    assert_bracket(vo.minimize(f), f)


def test_ridges_that_differ_and_several_blocks(rng):
    X = sp.random_array((150, 50), density=0.2, rng=rng, format="csc", data_sampler=rng.standard_normal)
    t, w, b = rng.standard_normal(150), vo.Variable(50), vo.Variable()
    scale = 10.0 ** rng.uniform(-2, 2, 50)
    f = vo.sum(vo.hinge(np.sign(t) * (X @ w + b))) + 0.3 * vo.sum(vo.abs(t - X @ w)) + vo.sum_squares(scale * (w - 0.1))
    r = vo.minimize(f, method="multipliers")
    assert_bracket(r, f)
    squares = f + vo.sum_squares(X @ w - t)  # rows of squares are rows like others
    assert_bracket(vo.minimize(squares, method="multipliers"), squares)


def test_variables_without_a_ridge_inside_the_sparse_matrix(rng):
    X = sp.random_array((200, 60), density=0.2, rng=rng, format="csr", data_sampler=rng.standard_normal)
    t, w = rng.standard_normal(200), vo.Variable(60)
    f = vo.sum(vo.pinball(t - X @ w, 0.4)) + 0.5 * vo.sum_squares(w[3:])
    assert_bracket(vo.minimize(f, method="multipliers"), f)


def test_equations_agree_in_both_spaces_and_by_gradients(rng):
    rows, _ = AugmentedLagrangian.of(ridge_form(composite(machine(rng, rows=60, size=700, density=0.05))))
    curvature, gradient = rng.random(60) * (rng.random(60) < 0.5), rng.standard_normal(701)
    dense = np.reshape(rows.scale, (-1, 1)) * np.hstack([rows.matrix.toarray(), rows.dense])
    matrix = np.diag(np.append(np.ones(700), 0.0)) + dense.T @ (curvature[:, None] * dense)
    expected = np.linalg.solve(matrix, -gradient)
    active = ActiveRows(rows)
    close = active.step(np.arange(60), curvature, gradient, np.ones(1))
    assert not active.ill_conditioned
    off = close - expected
    assert off @ matrix @ off <= 0.1 * (expected @ matrix @ expected)
    active.ill_conditioned = True
    np.testing.assert_allclose(
        active.step(np.arange(60), curvature, gradient, np.ones(1)), expected, rtol=1e-6, atol=1e-8
    )
    part = np.flatnonzero(curvature)[:5]  # products that are known already are taken from there
    again = active.step(part, curvature[part], gradient, np.ones(1))
    fewer = np.diag(np.append(np.ones(700), 0.0)) + dense[part].T @ (curvature[part, None] * dense[part])
    np.testing.assert_allclose(again, np.linalg.solve(fewer, -gradient), rtol=1e-6, atol=1e-8)


def test_a_stopped_run_has_a_bracket(rng):
    f = machine(rng, cost=10.0)
    best = vo.minimize(f).fun

    def stop(state):
        if state.steps >= 4:
            raise StopIteration

    r = vo.minimize(f, callback=stop)
    assert r.status is Status.INTERRUPTED
    assert np.isfinite(r.lower)
    assert r.lower <= best <= r.fun
    assert_bracket(vo.minimize(f, resume=r), f)


def test_a_neighbours_solution_is_taken_up(rng):
    f = machine(rng)
    x = vo.minimize(f).x
    assert_bracket(vo.minimize(f, resume=State(x, latest=x, sigma=1 / 16)), f)


def test_rows_that_are_frozen_too_early_come_back(rng, monkeypatch):
    monkeypatch.setattr("varopt.solvers.augmented_lagrangian._multipliers._FROZEN_WIDTHS", 0.6)
    monkeypatch.setattr("varopt.solvers.augmented_lagrangian._multipliers._LIVE", 0.99)
    monkeypatch.setattr(
        "varopt.solvers.augmented_lagrangian._multipliers._LONG_RUN", np.inf
    )  # however busy the machine
    f = machine(rng, rows=600, cost=10.0)
    state = State(np.zeros(f.size))
    METHODS["multipliers"].solve(composite(f), state, 1e-9, lambda _: None)
    assert state.reached(1e-9)
    best = f(explicit_point(f))
    assert state.lower <= best + 1e-9 * best
    assert state.upper <= best * (1.0 + 1e-8)


def test_what_it_refuses_and_what_it_leaves_to_others(rng):
    X, w = sp.random_array((300, 60), density=0.1, rng=rng, format="csr"), vo.Variable(60)
    losses = vo.sum(vo.hinge(X @ w))
    for f, reason in (
        (losses, "it has no ridge"),
        (losses + vo.sum_squares(w) + vo.norm1(w), "kinks of single variables"),
        (losses + vo.sum_squares(w[10:]), "more than 8 variables have no ridge"),
        (vo.sum_squares(w), "no rows with knots"),
    ):
        with pytest.raises(ValueError, match=reason):
            vo.minimize(f, method="multipliers")
    signal = vo.Variable(500)
    trend = 0.5 * vo.sum_squares(rng.standard_normal(500) - signal) + vo.norm1(vo.diff(signal, 2))
    assert not Multipliers().suits(composite(trend))


def test_sparse_data_are_never_made_dense(rng):
    rows, size = 4_000, 20_000
    X = sp.random_array((rows, size), density=1e-3, rng=rng, format="csr", data_sampler=rng.standard_normal)
    w, b = vo.Variable(size), vo.Variable()
    y = np.where(X @ rng.standard_normal(size) > 0.0, 1.0, -1.0)
    f = 0.5 * vo.sum_squares(w) + 0.05 * vo.sum(vo.hinge(y * (X @ w + b)))
    tracemalloc.start()
    r = vo.minimize(f, method="multipliers", tol=1e-6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert r.status is Status.OPTIMAL
    assert peak < 0.2 * 8 * rows * size


def test_a_weak_ridge_with_about_as_many_rows_as_variables(rng):
    X = sp.random_array((260, 200), density=0.1, rng=rng, format="csr", data_sampler=rng.standard_normal)
    t, w = rng.standard_t(2, 260), vo.Variable(200)
    for cost in (1.0, 1e3, 1e6):  # of the last two most rows that can come to rest do
        f = cost * vo.norm1(t - X @ w) + 0.5 * vo.sum_squares(w)
        result = vo.minimize(f)
        assert result.method == {1.0: "multipliers"}.get(cost, "interior-point")
        assert_bracket(result, f)
        assert_bracket(vo.minimize(f, method="multipliers"), f)
