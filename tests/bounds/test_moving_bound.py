"""The bound as its mean moves, in arrays made once: the numbers of the bound, whatever was asked for before."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import varopt as vo
from varopt.bounds import CompositeBound, MovingBound, PointNoise
from varopt.composite import composite, shared_matrix
from varopt.model import as_objective


def problems():
    rng = np.random.default_rng(20)
    X, y = rng.normal(size=(30, 6)), rng.normal(size=30)
    wide, tall = rng.normal(size=(4, 9)), rng.normal(size=(5000, 3))
    t = np.sign(y)
    w, b, v, u = vo.Variable(6), vo.Variable(), vo.Variable(9), vo.Variable(3)
    yield "lasso", vo.sum_squares(y - X @ w) + 3.0 * vo.norm1(w)
    yield "fused", vo.sum_squares(y - X @ w) + 3.0 * vo.norm1(w) + 2.0 * vo.norm1(vo.diff(w))
    yield "shifted", vo.sum_squares(y - X @ w) + vo.norm1(w - 1.5)
    yield "weighted", vo.sum_squares(w) + vo.sum(rng.uniform(1.0, 2.0, 30) * vo.hinge(t * (X @ w + b)))
    yield "quantile", vo.sum(vo.pinball(y - X @ w - b, 0.2)) + 0.1 * vo.sum_squares(w)
    yield "no quadratic", vo.sum(vo.pos(X @ w - y)) + vo.norm1(w)
    yield "huber", vo.sum(vo.huber(y - X @ w, 0.7)) + vo.norm1(w)
    yield "sparse", vo.sum_squares(y - sp.csr_array(X * (X > 0.5)) @ w) + vo.norm1(w)
    yield "wide", vo.sum_squares(wide @ v - 1.0) + 0.3 * vo.norm1(v)
    yield "long", vo.sum(vo.abs(tall @ u - 0.3)) + vo.sum_squares(u)
    K = X @ X.T
    beta = vo.Variable(30)
    yield "kernel", vo.quad_form(beta, K) + 10.0 * vo.sum(vo.hinge(K @ beta + b * t))
    yield "smooth", vo.sum_squares(y - X @ w)


PROBLEMS = dict(problems())


@pytest.mark.parametrize("multiplied", [False, True])
@pytest.mark.parametrize("objective", PROBLEMS.values(), ids=PROBLEMS)
def test_the_numbers_are_those_of_the_bound(objective, multiplied, rng):
    problem = composite(as_objective(objective))
    if multiplied:
        assert problem.hessian is None or problem.is_multiplied
    noise = PointNoise.of(problem, 1.0)
    moving = MovingBound(problem, noise)
    for sigma in (2.0, 0.3, 1e-3, 1e-9):
        mean = rng.normal(size=problem.size)
        before = mean.copy()
        gradient, diagonal = moving.gradient_and_diagonal(mean, sigma)
        bound = CompositeBound(problem, mean, noise.at(sigma))
        scale = np.abs(bound.mean_gradient).max()
        assert_allclose(gradient, bound.mean_gradient, rtol=1e-12, atol=1e-13 * scale)
        assert_allclose(diagonal, bound.hessian("diagonal"), rtol=1e-9, atol=1e-200)
        assert_array_equal(mean, before)
        gradient /= diagonal + 1.0  # what a descent does with them does not come back
        value, gradient = moving.value_and_gradient(mean, sigma)
        assert_allclose(value, bound.value, rtol=1e-13)
        assert_allclose(gradient, bound.mean_gradient, rtol=1e-12, atol=1e-13 * scale)


def test_the_problem_is_left_as_it_was(rng):
    problem = composite(as_objective(PROBLEMS["smooth"]))
    _ = problem.hessian
    start = problem.gradient_at_zero.copy()
    moving = MovingBound(problem, PointNoise.of(problem, 1.0))
    gradient, _ = moving.gradient_and_diagonal(np.zeros(6), 0.5)
    gradient[:] = np.nan
    assert_array_equal(problem.gradient_at_zero, start)
    moving.value_and_gradient(np.zeros(6), 0.5)[1][:] = np.nan
    assert_array_equal(moving.gradient_and_diagonal(np.zeros(6), 0.5)[0], start)


def test_flat_coordinates_are_known():
    def curved(name):
        problem = composite(as_objective(PROBLEMS[name]))
        return MovingBound(problem, PointNoise.of(problem, 1.0)).always_curved

    assert curved("lasso")
    assert not curved("weighted")  # the intercept has no quadratic
    assert not curved("no quadratic")


def test_the_kernel_is_recognised_and_nothing_else_is(rng):
    K = rng.normal(size=(8, 8))
    K = K @ K.T
    beta, b = vo.Variable(8), vo.Variable()
    y = np.where(np.arange(8) % 2, 1.0, -1.0)
    hinges = vo.sum(vo.hinge(K @ beta + b * y))
    for objective, found in (
        (vo.quad_form(beta, K) + hinges, True),
        (0.5 * vo.quad_form(beta, K) + hinges + 3.0 * vo.sum(beta) + 2.0, True),
        (vo.quad_form(beta, K) + vo.sum(vo.hinge(K @ beta)), True),
        (vo.norm1(beta) + vo.quad_form(beta, K) + hinges, True),
        (vo.quad_form(beta, K + np.eye(8)) + hinges, False),
        (vo.quad_form(beta, K) + 0.1 * vo.sum_squares(beta) + hinges, False),
        (vo.quad_form(beta, K) + hinges + vo.sum_squares(b), False),
        (3.0 * vo.quad_form(beta, K) + hinges, False),  # a multiple that rounds is not looked for
    ):
        problem = composite(as_objective(objective))
        assert (shared_matrix(problem) is not None) is found
        noise, mean = PointNoise.of(problem, 1.0), rng.normal(size=problem.size)
        value, gradient = MovingBound(problem, noise).value_and_gradient(mean, 0.3)
        bound = CompositeBound(problem, mean, noise.at(0.3))
        assert_allclose(value, bound.value, rtol=1e-13)
        assert_allclose(gradient, bound.mean_gradient, rtol=1e-11, atol=1e-11)


def test_forms_that_are_not_multiplied_out_gain_what_their_matrix_does(rng):
    f = as_objective(PROBLEMS["kernel"])
    problems = composite(f), composite(f, multiplied=False)
    assert problems[1].forms
    factor = np.tril(rng.normal(size=(31, 31)))
    for own in (0.7, rng.uniform(size=31), factor):
        spreads = [PointNoise.of(p, 1.0, own).spread for p in problems]
        assert_allclose(spreads[0], spreads[1], rtol=1e-12)
