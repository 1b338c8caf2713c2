"""The bound that descents step on: the same numbers as `vo.bound`, and an upper bound under the noise of rows too."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import varopt as vo
from varopt.bounds import CompositeBound, PointNoise, RowNoise
from varopt.composite import composite


def problems(rng):
    X, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    t = np.sign(y)
    w, b = vo.Variable(4), vo.Variable()
    A = rng.standard_normal((4, 4))
    return {
        "lasso": vo.sum_squares(y - X @ w) + 3.0 * vo.norm1(w),
        "svm": vo.sum_squares(w) + 2.0 * vo.sum(vo.hinge(t * (X @ w + b))),
        "huber": vo.sum(vo.huber(y - X @ w)) + vo.quad_form(w - 1.0, A @ A.T),
        "sparse": vo.sum(vo.pinball(y - sp.csr_array(X) @ w, 0.3)) + vo.norm1(vo.diff(w)),
        "groups": vo.sum_squares(y - X @ w) + vo.norm2(w, [np.array([0, 1]), np.array([2, 3])]),
        "ramp": vo.sum(vo.ramp(t * (X @ w))) + 0.1 * vo.sum_squares(w),
    }


NAMES = ["lasso", "svm", "huber", "sparse", "groups", "ramp"]


def row_noise(problem, rng, sigma=0.3):
    lengths = [np.exp(rng.normal(size=r.count)) for r in problem.rows]
    return RowNoise(sigma, lengths, [np.exp(rng.normal(size=g.sizes.size)) for g in problem.groups])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "groups"])
@pytest.mark.parametrize("kind", ["scalar", "vector", "cholesky"])
def test_a_gaussian_over_the_point_gives_what_vo_bound_gives(name, kind, rng):
    f = problems(rng)[name]
    problem, x = composite(f), rng.standard_normal(f.size)
    factor = {
        "scalar": np.asarray(0.2),
        "vector": np.exp(rng.normal(size=f.size)) / 5,
        "cholesky": np.tril(rng.standard_normal((f.size, f.size))) / 4 + np.eye(f.size),
    }[kind]
    mine = CompositeBound(problem, x, PointNoise.of(problem, 0.7, factor))
    E = vo.bound(f, vo.Gaussian(x, 0.7 * factor))
    assert isinstance(E, CompositeBound)
    assert_allclose(mine.value, E.value, rtol=1e-12)
    assert_allclose(mine.mean_gradient, np.asarray(E.gradient), rtol=1e-10, atol=1e-10)
    assert_allclose(mine.hessian(), E.hessian(), rtol=1e-10, atol=1e-10)
    assert_allclose(mine.gap, E.gap, rtol=1e-9)
    assert mine.max_gap >= mine.gap


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_agree_with_differences(name, rng):
    f = problems(rng)[name]
    problem, x = composite(f), rng.standard_normal(f.size)
    noise, h = row_noise(problem, rng), 1e-5
    bound = CompositeBound(problem, x, noise)
    steps = h * np.eye(f.size)
    value = [(CompositeBound(problem, x + e, noise).value - CompositeBound(problem, x - e, noise).value) for e in steps]
    assert_allclose(bound.mean_gradient, np.array(value) / (2 * h), rtol=1e-6, atol=1e-6)
    rows = [
        CompositeBound(problem, x + e, noise).mean_gradient - CompositeBound(problem, x - e, noise).mean_gradient
        for e in steps
    ]
    assert_allclose(bound.hessian(), np.array(rows) / (2 * h), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_forms_of_the_hessian_agree(name, rng):
    f = problems(rng)[name]
    problem, x = composite(f), rng.standard_normal(f.size)
    bound = CompositeBound(problem, x, row_noise(problem, rng))
    dense, direction = bound.hessian(), rng.standard_normal(f.size)
    assert_allclose(bound.hessian("diagonal"), np.diagonal(dense), rtol=1e-10, atol=1e-12)
    assert_allclose(bound.hessian("operator") @ direction, dense @ direction, rtol=1e-10, atol=1e-10)
    if bound.convex:  # Newton steps are for these
        matrix = bound.newton_matrix()
        matrix = matrix.toarray() if sp.issparse(matrix) else matrix
        assert_allclose(matrix, dense, rtol=1e-8, atol=1e-8 * np.abs(dense).max())
    with pytest.raises(ValueError, match="form must be one of dense, diagonal, operator"):
        bound.hessian("banded")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ramp"])
def test_noise_of_rows_bounds_convex_objectives_from_above(name, rng):
    """Jensen's inequality, row by row: for every point, and by no more than `max_gap`."""
    f = problems(rng)[name]
    problem = composite(f)
    noise = row_noise(problem, rng, sigma=2.0)
    for _ in range(20):
        x = 3.0 * rng.standard_normal(f.size)
        bound = CompositeBound(problem, x, noise)
        assert bound.convex
        assert 0.0 <= bound.gap <= bound.max_gap
        assert_allclose(bound.value - bound.gap, f(x), rtol=1e-12)
        assert_allclose(sum(bound.added), bound.gap, rtol=1e-8, atol=1e-10 * abs(bound.value))


def test_noise_of_rows_is_an_average_over_the_rows(rng):
    f = problems(rng)["svm"]
    problem, x = composite(f), rng.standard_normal(f.size)
    noise = row_noise(problem, rng)
    (r,) = problem.rows
    z = r.positions(x) + noise.sigma * noise.lengths[0] * rng.standard_normal((200_000, r.count))
    samples = r.term.value(z) @ r.weights
    expected = problem.quadratic(x) + samples.mean()
    assert abs(CompositeBound(problem, x, noise).value - expected) < 5 * samples.std() / np.sqrt(samples.size)


@pytest.mark.parametrize("name", NAMES)
def test_a_line_is_the_bound_along_it(name, rng):
    f = problems(rng)[name]
    problem, x, step = composite(f), rng.standard_normal(f.size), rng.standard_normal(f.size)
    noise = row_noise(problem, rng)
    line = CompositeBound(problem, x, noise).along(step)
    for length in (0.0, 0.5, -2.0):
        there, again = line.at(length), CompositeBound(problem, x + length * step, noise)
        assert_allclose(there.value, again.value, rtol=1e-12)
        assert_allclose(line.at(length, derivatives=False).value, again.value, rtol=1e-12)
        assert_allclose(there.mean_gradient, again.mean_gradient, rtol=1e-9, atol=1e-10)


def test_a_dual_point_comes_with_the_bound(rng):
    """Derivatives of smoothed terms lie between the subgradients of the terms, those of norms in their balls."""
    f = problems(rng)["groups"] + vo.sum(vo.pos(vo.Variable(3) - 1.0))
    problem = composite(f)
    bound = CompositeBound(problem, rng.standard_normal(f.size), row_noise(problem, rng, sigma=5.0))
    for r, u in zip(problem.rows, bound.dual, strict=True):
        low, high = r.term.subgradient_range
        assert np.all((low <= u) & (u <= high))
    for g, v in zip(problem.groups, bound.group_dual, strict=True):
        assert np.all(g.norms(v) <= g.weights * (1 + 1e-14))


def test_counting_what_is_near_a_knot(rng):
    w = vo.Variable(3)
    problem = composite(vo.norm1(w) + vo.sum(vo.epsilon_insensitive(w, 1.0)))
    bound = CompositeBound(problem, np.array([0.0, 0.95, 5.0]), RowNoise(0.1, [1.0, 1.0]))
    assert bound.near(4.0) == 2  # w_0 on the knot of the norm, w_1 near that at one
    assert bound.near(20.0) == 6  # both of them, at all three knots


@pytest.mark.parametrize("columns", [8, 40])
def test_sparse_rows_of_few_columns_are_dense_once_they_are_gathered(columns, rng):
    """Rows of single variables stay sparse, as methods see by that what they are."""
    X, w = sp.random_array((200, columns), density=0.5, rng=rng, format="csr"), vo.Variable(columns)
    problem = composite(vo.sum(vo.hinge(X @ w)) + vo.norm1(w))
    rows, kinks = problem.rows
    index = np.arange(0, 200, 3)
    taken = rows.take(index)
    assert taken.linear.storage == ("dense" if columns == 8 else "sparse")
    assert_allclose(taken.linear.dense(), X.toarray()[index])
    assert kinks.take(np.arange(4)).single is not None
