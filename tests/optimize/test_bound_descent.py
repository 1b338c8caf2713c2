"""`minimize` of a bound: all parameters or some, their domains, schedules, brackets, and every kind of f."""

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

import varopt as vo
from varopt.families import AffineFamily
from varopt.optimize import BoundResult


@pytest.fixture
def lasso(rng):
    X = rng.normal(size=(40, 4))
    w = vo.Variable(4, name="w")
    return w, vo.sum_squares(X @ np.array([1.0, 0.0, -2.0, 0.0]) - X @ w) + 3.0 * vo.norm1(w)


@pytest.mark.parametrize(
    "family",
    [
        vo.Gaussian(np.zeros(4), 0.5),
        vo.Gaussian(np.zeros(4), np.full(4, 0.5)),
        vo.Gaussian(np.zeros(4), 0.5 * np.eye(4)),
        AffineFamily(np.zeros(4), 0.3 * np.ones((4, 1))),
        vo.families.Laplace(np.zeros(4), np.full(4, 0.3)),
    ],
    ids=["scalar", "diagonal", "cholesky", "low-rank", "laplace"],
)
def test_dispersion_falls_by_itself_to_the_optimum(lasso, family):
    w, f = lasso
    method = None if isinstance(family, (vo.Gaussian, AffineFamily)) else "quadrature"
    g = f if method is None else vo.sum_squares(w - np.array([1.0, 0.0, -2.0, 0.0])) + 0.5 * vo.norm1(w)
    r = vo.minimize(vo.bound(g, family, method=method))
    best = vo.minimize(g).fun
    assert isinstance(r, BoundResult)
    assert type(r.family) is type(family)
    assert best - 1e-9 <= r.fun <= best + 1e-3
    assert r.lower <= best <= r.upper <= r.bound.value + 1e-9
    assert np.max(np.abs(np.sqrt(r.family.variance))) < 1e-2
    assert_allclose(r[w], r.family.mean, atol=1e-9)


def test_only_the_parameters_that_are_named_move(lasso):
    _, f = lasso
    start = vo.Gaussian(np.zeros(4), np.full(4, 0.5))
    r = vo.minimize(vo.bound(f, start), parameters="mean")
    assert_array_equal(r.family.sigma, start.sigma)
    assert_allclose(np.asarray(r.bound.gradient), 0.0, atol=1e-2)
    r = vo.minimize(vo.bound(f, start), parameters=["sigma"])
    assert_array_equal(r.family.mean, start.mean)
    assert np.all(r.family.sigma < 1e-3)


def test_a_schedule_sharpens_between_descents(lasso):
    _, f = lasso
    seen = []
    r = vo.minimize(
        vo.bound(f, vo.Gaussian(np.zeros(4), 0.5)), parameters="mean", schedule=vo.solvers.Geometric(1.0, 0.2),
        callback=lambda path: seen.append((path.sigma, path.bound.value)),
    )  # fmt: skip
    assert_allclose(np.diff(np.log([s for s, _ in seen])), np.log(0.2))
    assert np.all(np.diff([value for _, value in seen]) < 0.0)
    assert r.gap < 1e-5 * r.fun
    own = vo.minimize(vo.bound(f, vo.Gaussian(np.zeros(4), 0.5)), parameters="mean",
                      schedule=lambda path: path.sigma / (2.0 + path.level_steps))  # fmt: skip
    assert_allclose(own.fun, r.fun, rtol=1e-6)


def test_a_schedule_that_stays_ends_the_run(lasso):
    _, f = lasso
    r = vo.minimize(
        vo.bound(f, vo.Gaussian(np.zeros(4), 0.5)), parameters="mean", schedule=lambda path: path.sigma, time_limit=60.0
    )
    assert r.status is not vo.Status.TIME_LIMIT
    assert_allclose(r.family.sigma, 0.5)


def test_bits_and_choices_keep_to_their_simplices(rng):
    x, c = vo.Binary(6, name="x"), vo.Categorical(3, 4, name="c")
    f = vo.quad_form(x, rng.normal(size=(6, 6))) + sum(rng.normal(size=4) @ c[k] for k in range(3))
    family = vo.Product(
        {x: vo.Bernoulli(rng.uniform(0.3, 0.7, 6)), c: vo.families.OneHotCategorical(np.full((3, 4), 0.25))}
    )
    r = vo.minimize(vo.bound(f, family))
    p = r.family.families[c].probability
    assert_allclose(p.sum(axis=1), 1.0)
    assert np.all((p >= 0.0) & (r.family.families[x].probability.min() >= 0.0))
    exact = vo.minimize(f)
    assert exact.fun - 1e-9 <= r.fun <= r.bound.value + 1e-9  # rounding never makes it worse than E
    assert r.lower <= exact.fun
    some = vo.minimize(vo.bound(f, family), parameters=[(c, "probability")])
    assert_array_equal(some.family.families[x].probability, family.families[x].probability)


def test_callables_by_quadrature_and_by_samples():
    def f(z):
        return (z[0] - 1.0) ** 2 + abs(z[1] + 2.0)

    r = vo.minimize(vo.bound(f, vo.Gaussian([0.0, 0.0], 0.7), method="quadrature", nodes=6), iterations=15)
    assert r.fun < 1e-2
    sampled = vo.minimize(vo.bound(f, vo.Gaussian([0.0, 0.0], 1.0), samples=128, seed=0))
    assert sampled.fun < 0.05
    assert sampled.family.sigma < 0.2
    assert type(sampled.certificate).__name__ == "Sampled"
    again = vo.minimize(vo.bound(f, vo.Gaussian([0.0, 0.0], 1.0), samples=128, seed=0))
    assert_array_equal(again.family.mean, sampled.family.mean)


def test_maximise_mirrors_everything():
    w = vo.Variable(2)
    r = vo.maximize(vo.bound(-vo.sum_squares(w - 1.0) - vo.norm1(w), vo.Gaussian([0.0, 0.0], 0.3)))
    best = vo.maximize(-vo.sum_squares(w - 1.0) - vo.norm1(w)).fun
    assert r.bound.value <= r.lower + 1e-9 <= best + 2e-9
    assert best <= r.upper + 1e-9
    assert_allclose(r.fun, best, atol=1e-6)


def test_limits_return_what_is_known(lasso):
    _, f = lasso

    def stop(path):
        raise StopIteration

    E = vo.bound(f, vo.Gaussian(np.zeros(4), 0.5))
    assert vo.minimize(E, callback=stop).status.name == "INTERRUPTED"
    r = vo.minimize(E, time_limit=1e-9)
    assert r.status.name == "TIME_LIMIT"
    assert r.lower <= vo.minimize(f).fun <= r.upper


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": "sgima"}, "parameters must name some of 'mean', 'sigma'; got 'sgima'"),
        ({"parameters": []}, "parameters must name at least one of"),
        ({"parameters": [["mean"]]}, "parameters must name some of"),
        ({"schedule": 0.5}, "schedule must be a function of the path"),
        ({"schedule": lambda path: -1.0}, "schedule must return a positive dispersion"),
        ({"iterations": 0}, "iterations must be an integer of at least 1"),
        ({"x0": np.zeros(4)}, "x0 does not apply to a bound"),
        ({"method": "newton"}, "method does not apply to a bound"),
        ({"budget": 7}, "budget does not apply to a bound"),
        ({"tol": -1.0}, "tol must be a number >= 0"),
    ],
)
def test_bad_options_are_named(lasso, options, message):
    with pytest.raises(ValueError, match=message):
        vo.minimize(vo.bound(lasso[1], vo.Gaussian(np.zeros(4), 0.5)), **options)


def test_bits_beside_real_variables_have_one_side_of_the_bracket():
    w, x = vo.Variable(1, name="w"), vo.Binary(2, name="x")
    f = vo.sum_squares(w - 1.0) - 3.0 * vo.sum(x)
    r = vo.minimize(vo.bound(f, vo.Product({w: vo.Gaussian([0.0], 0.5), x: vo.Bernoulli([0.4, 0.6])})))
    assert_allclose(r.fun, -6.0, atol=1e-5)
    assert r.lower == -np.inf
    assert r.upper == r.fun


def test_a_value_that_is_not_finite_ends_the_descent_and_loses_nothing():
    def f(z):
        return np.nan if z[0] > -1.5 else (z[0] - 1.0) ** 2

    with pytest.warns(RuntimeWarning, match="f must return finite numbers; got nan at"):
        r = vo.minimize(vo.bound(f, vo.Gaussian([-3.0], 0.3), samples=32, seed=0))
    assert r.status.name == "FAILURES"
    assert r.fun < 16.0
    assert -3.0 < r.family.mean[0] < -1.5


SCHEDULES = {
    "geometric": vo.solvers.Geometric(1.0, 0.2),
    "every": vo.solvers.Every(steps=8, start=1.0, factor=0.2),
    "adaptive": vo.solvers.Adaptive(),
    "own": lambda path: 0.2 * path.sigma,
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("moving", [None, "mean"])
def test_any_schedule_for_any_kind_of_function(schedule, moving, rng):
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    w, x = vo.Variable(2), vo.Binary(4)
    f = vo.norm1(y - X @ w) + vo.norm1(w)
    r = vo.minimize(vo.bound(f, vo.Gaussian([0.0, 0.0], 1.0)), schedule=schedule, parameters=moving)
    best = vo.minimize(f).fun
    assert r.lower <= best + 1e-9
    assert best - 1e-9 <= r.fun <= best + 1e-3
    assert r.family.sigma < 1e-3

    def kinked(v):
        return abs(v[0] - 1.0) + np.floor(abs(v[0] + 2.0) / 2.0)

    r = vo.minimize(vo.bound(kinked, vo.Gaussian([0.4], 0.5), method="quadrature"), schedule=schedule,
                    parameters=moving)  # fmt: skip
    assert r.fun < kinked([0.4])
    assert r.family.sigma < 0.05
    if moving is None:
        polynomial = vo.quad_form(x, rng.normal(size=(4, 4))) + 3.0 * x[0] * x[1] * x[2]
        r = vo.minimize(vo.bound(polynomial, vo.Bernoulli(np.full(4, 0.5))), schedule=schedule)
        least = vo.minimize(polynomial).fun
        assert r.lower <= least <= r.fun + 1e-14 * abs(r.fun)  # each adds up in its own order
        assert r.fun <= r.bound.value + 1e-9


def test_noise_without_a_score_moves_by_the_gradient_of_the_function(rng):
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    w = vo.Variable(2)
    f = vo.norm1(y - X @ w)
    skewed = AffineFamily(np.zeros(2), 0.5, scipy.stats.gamma(2.0))
    E = vo.bound(f, skewed, method="sampled", samples=64, seed=0)
    r = vo.minimize(E, iterations=200)
    assert r.lower <= vo.minimize(f).fun <= r.fun < f(np.zeros(2))
    assert r.bound.value < E.value
