"""Sampled updates against their definitions: the families' natural gradients, explicit matrices, invariances."""

import math

import numpy as np
import pytest

from varopt.families import Bernoulli, Gaussian
from varopt.solvers.natural_gradient import (
    CMA,
    LMMAES,
    SNES,
    XNES,
    BoundedUpdate,
    CategoricalUpdate,
    Integers,
    LocalSearch,
    ProductUpdate,
    Restarts,
    SurrogateUpdate,
    adaptive,
    berny,
    log_weights,
    nes_utilities,
    raw_weights,
    signed_log_weights,
    truncation_weights,
    umda,
)

GAUSSIANS = [CMA, XNES, SNES, LMMAES]


def moved(model, rng, generations=6):
    for _ in range(generations):
        x = model.sample(rng, model.population)
        model.tell(x, x @ np.arange(x.shape[1]) + np.abs(x).sum(axis=1))
    return model


@pytest.mark.parametrize("build", GAUSSIANS, ids=lambda build: build.__name__)
def test_samples_are_those_of_a_gaussian_family(build, rng):
    model = moved(build(np.zeros(4), 1.0, 10), rng)
    family = model.family
    np.testing.assert_array_equal(model.sample(np.random.default_rng(3), 7), family.sample(7, np.random.default_rng(3)))
    np.testing.assert_array_equal(family.mean, model.mean)
    # The law: the root's own product, and not the Cholesky factor that the family is kept by.
    root = model.root()(np.eye(4)).T
    np.testing.assert_allclose(family.covariance, root @ root.T, rtol=1e-10, atol=1e-14)
    assert family == Gaussian(family.mean, family.sigma)
    before = family.sample(3, seed=1)
    moved(model, rng)
    np.testing.assert_array_equal(family.sample(3, seed=1), before)  # a value: it stays when the update moves


def test_covariance_of_the_family_is_that_of_the_strategy(rng):
    cma = moved(CMA(np.zeros(3), 0.7), rng)
    decomposed = cma._root @ cma._root.T
    np.testing.assert_allclose(cma.family.covariance, cma.sigma**2 * decomposed, rtol=1e-10, atol=1e-14)
    snes = moved(SNES(np.zeros(3), 0.7), rng)
    np.testing.assert_allclose(snes.family.covariance, np.diag(snes.deviations**2), rtol=1e-10, atol=1e-14)


def test_choices_are_those_of_a_family(rng):
    model = moved(berny(np.array([2, 3, 5]), 20), rng)
    np.testing.assert_allclose(model.family.probability, model.theta, rtol=0.0, atol=1e-15)
    chosen = model.sample(np.random.default_rng(3), 50)
    one_hot = model.family.sample(50, np.random.default_rng(3)).reshape(50, 3, 5)
    np.testing.assert_array_equal(one_hot.argmax(axis=2), chosen)
    assert np.all(one_hot.sum(axis=2) == 1.0)
    assert np.all(chosen < [2, 3, 5])


def test_a_product_update_moves_a_product_of_families(rng):
    columns = np.array([0, 2]), np.array([1])
    model = ProductUpdate([(columns[0], CMA(np.zeros(2), 1.0, 8)), (columns[1], adaptive(np.array([3]), 8, 0.1))])
    moved(model, rng)
    assert [type(part).__name__ for part in model.family.families.values()] == ["RootedGaussian", "OneHotCategorical"]
    np.testing.assert_array_equal(model.family.mean[:2], model.mean[[0, 2]])
    x = model.sample(np.random.default_rng(2), 6)
    drawn = model.family.sample(6, np.random.default_rng(2))
    np.testing.assert_array_equal(x[:, [0, 2]], drawn[:, :2])
    np.testing.assert_array_equal(x[:, 1], drawn[:, 2:].argmax(axis=1))


def test_bernoulli_step_is_the_natural_gradient_of_the_family(rng):
    options, f = np.full(6, 2), rng.standard_normal(6)
    model = CategoricalUpdate(options, 40, None, 0.1, 0.0)
    model.theta[:, 1] = rng.uniform(0.2, 0.8, 6)
    model.theta[:, 0] = 1.0 - model.theta[:, 1]
    before = model.theta[:, 1].copy()
    x = model.sample(rng, 40)
    values = x @ f
    model.tell(x, values)
    family = Bernoulli(before)
    # minus the score-function gradient of <f>, in the units of raw_weights
    gradient = ((values.mean() - values) / values.std()) @ family.score(x)["probability"] / 40
    expected = before + 0.1 * family.natural_gradient({"probability": gradient})["probability"]
    np.testing.assert_allclose(model.theta[:, 1], expected, rtol=1e-12)


def test_umda_takes_the_average_of_the_better_half(rng):
    model = umda(np.array([2, 3, 5]), 20)
    x = model.sample(rng, 20)
    values = rng.permutation(20).astype(float)
    model.tell(x, values)
    best = x[np.argsort(values)[:10]]
    for column, options in enumerate((2, 3, 5)):
        shares = np.array([(best[:, column] == k).mean() for k in range(options)])
        least = 1 / 3 / (options - 1)
        room = np.maximum(shares, least) - least
        np.testing.assert_allclose(model.theta[column, :options], least + room * (1 - options * least) / room.sum())


@pytest.mark.parametrize("build", [umda, berny, lambda o: CategoricalUpdate(o, 12, log_weights(12), None, 0.1)])
def test_margins_keep_every_choice_possible(build, rng):
    options = np.array([2, 2, 4, 7])
    model = build(options)
    least = model._least[:, :2].min(axis=1)
    for _ in range(60):
        x = model.sample(rng, model.population)
        assert np.all((x >= 0) & (x < options) & (x == np.floor(x)))
        model.tell(x, x.sum(axis=1))
        np.testing.assert_allclose(model.theta.sum(axis=1), 1.0)
        for column, count in enumerate(options):
            assert np.all(model.theta[column, :count] >= least[column] * (1 - 1e-12))
            assert np.all(model.theta[column, count:] == 0.0)
    assert np.all(model.mean == 0)


def test_weights_have_the_sums_their_papers_say():
    for population in (4, 7, 20):
        assert log_weights(population).sum() == pytest.approx(1)
        signed = signed_log_weights(population)
        assert signed[signed > 0].sum() == pytest.approx(1)
        assert signed[signed < 0].sum() == pytest.approx(-1)
        assert nes_utilities(population).sum() == pytest.approx(0)
        assert truncation_weights(population, 3).sum() == pytest.approx(1)
    values = np.array([3.0, 1.0, math.inf, 2.0])
    weights = raw_weights(values)
    assert weights.sum() == pytest.approx(0)
    assert weights[2] == weights[0] < 0 < weights[1]  # what failed counts as the worst that did not
    assert not raw_weights(np.ones(4)).any()
    assert not raw_weights(np.full(4, math.inf)).any()


def test_values_as_weights_follow_the_gradient_of_the_bound(rng):
    # for f = g'x the gradient of E in the mean is g, and a large sample shows it
    g = np.array([3.0, -1.0, 0.5])
    model = XNES(np.zeros(3), 0.7, 20_000, raw=True)
    x = model.sample(rng, model.population)
    model.tell(x, x @ g)
    step = model.mean
    assert -step @ g / np.linalg.norm(step) / np.linalg.norm(g) > 0.999


@pytest.mark.parametrize("build", [CMA, XNES, SNES, LMMAES], ids=lambda build: build.__name__)
def test_ranks_make_updates_indifferent_to_increasing_transformations(build, rng):
    models = [build(np.full(5, 0.3), 0.2, 8) for _ in range(2)]
    noise = [np.random.default_rng(4) for _ in range(2)]
    for _ in range(30):
        one, other = (model.sample(r, 8) for model, r in zip(models, noise, strict=True))
        np.testing.assert_array_equal(one, other)
        values = ((one - 0.5) ** 2).sum(axis=1)
        models[0].tell(one, values)
        models[1].tell(other, np.exp(100 * values) - 7)
    assert models[0].spread < 0.2


@pytest.mark.parametrize("build", [CMA, XNES, LMMAES], ids=lambda build: build.__name__)
def test_samples_have_the_mean_and_covariance_of_the_state(build, rng):
    model = build(np.zeros(4), 1.0, 10)
    for _ in range(15):
        x = model.sample(rng, 10)
        model.tell(x, (np.array([1.0, 4.0, 16.0, 64.0]) * (x - 1.0) ** 2).sum(axis=1))
    x = model.sample(rng, 60_000) - model.mean
    if isinstance(model, CMA):
        model._decompose()
        x = model.sample(rng, 60_000) - model.mean
        expected = model.sigma**2 * model.covariance
    elif isinstance(model, XNES):
        expected = model.sigma**2 * model._shape @ model._shape.T
    else:
        factor = np.eye(4)
        for c, path in model._factors():
            factor = ((1.0 - c) * np.eye(4) + c * np.outer(path, path)) @ factor
        expected = model.sigma**2 * factor @ factor.T
    covariance = x.T @ x / len(x)
    np.testing.assert_allclose(covariance, expected, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("build", [CMA, XNES, SNES], ids=lambda build: build.__name__)
def test_deviations_are_those_of_the_samples(build, rng):
    model = build(np.full(4, 0.5), 0.3, 40)
    for _ in range(10):
        x = model.sample(rng, 40)
        model.tell(x, (np.array([1.0, 4.0, 9.0, 16.0]) * (x - 0.4) ** 2).sum(axis=1))
    if isinstance(model, CMA):
        model._decompose()
    np.testing.assert_allclose(model.deviations, model.sample(rng, 20_000).std(axis=0), rtol=0.03)


def bounded_run(f, generations, rng, build=CMA):
    model = BoundedUpdate(build(np.full(4, 0.5), 0.2, 12), np.arange(3))
    for _ in range(generations):
        x = model.sample(rng, 12)
        evaluated = x.copy()
        evaluated[:, :3] = np.clip(x[:, :3], 0, 1)
        values = np.array([f(point) for point in evaluated])
        told = x.copy()
        model.tell(x, values)
        np.testing.assert_array_equal(x, told)
        farthest = 2 * model.inner.deviations[:3] * (1 + 1e-12)
        assert np.all((model.mean[:3] >= -farthest) & (model.mean[:3] <= 1 + farthest))
    return model, evaluated


@pytest.mark.parametrize("build", [CMA, XNES, SNES, LMMAES], ids=lambda build: build.__name__)
def test_open_bounds_are_reached_and_closed_ones_take_the_mean_back(build, rng):
    # an optimum on two bounds, inside in the third coordinate, unbounded in the fourth
    def f(x):
        return x[0] - 2 * x[1] + (x[2] - 0.3) ** 2 + (x[3] - 2.0) ** 2

    turn = 10 + 2 * 4
    model, evaluated = bounded_run(f, turn, rng, build)
    assert (evaluated[:, 0] == 0).mean() > 0.4
    assert (evaluated[:, 1] == 1).mean() > 0.4
    assert model.mean[3] > 0.9
    assert model.mean[0] < 0
    assert not model.open
    for _ in range(turn):  # flat: nothing but the handicap moves it
        model.tell(model.sample(rng, 12), np.zeros(12))
    assert model.mean[0] > -model.inner.deviations[0]


def test_bounds_keep_the_invariance_under_increasing_transformations():
    def f(x):
        return x[0] + (x[1] - 0.9) ** 2 + (x[2] - 0.1) ** 2 + x[3] ** 2

    one, _ = bounded_run(f, 40, np.random.default_rng(3))
    other, _ = bounded_run(lambda x: math.exp(5 * f(x)), 40, np.random.default_rng(3))
    np.testing.assert_array_equal(one.mean, other.mean)


def test_failed_points_rank_last_beyond_bounds(rng):
    model = BoundedUpdate(CMA(np.full(2, 0.5), 0.2, 6), np.arange(2))
    beyond = np.array([[0.0, -3.0], [0.0, 0.0], [0.0, 0.1], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    ranked = model._handicapped(beyond, np.array([0.0, math.inf, 1.0, 2.0, 3.0, 4.0]))
    assert np.argsort(ranked).tolist() == [2, 3, 4, 5, 0, 1]


def test_low_rank_whitens_by_the_exact_inverse(rng):
    model = LMMAES(np.zeros(5), 1.0, 8)
    for _ in range(12):
        x = model.sample(rng, 8)
        model.tell(x, (np.arange(1, 6) * (x - 1.0) ** 2).sum(axis=1))
    factor = np.eye(5)
    for c, path in model._factors():
        factor = ((1.0 - c) * np.eye(5) + c * np.outer(path, path)) @ factor
    z = rng.standard_normal((8, 5))
    old, c = model._path_sigma.copy(), model._c_sigma
    model.tell(model.mean + model.sigma * z @ factor.T, np.arange(8.0))
    white = log_weights(8) @ z
    np.testing.assert_allclose(
        model._path_sigma, (1 - c) * old + math.sqrt(model._mu_eff * c * (2 - c)) * white, rtol=1e-10
    )


def test_cma_survives_points_from_far_away():
    model = CMA(np.full(3, 0.5), 1e-6)
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = np.vstack((model.sample(rng, model.population), [[0.9, 0.9, 0.9]]))
        model.tell(x, ((x - 0.9) ** 2).sum(axis=1))
    assert np.all(np.isfinite(model.mean))
    assert ((model.mean - 0.9) ** 2).sum() < 1e-3


def cells_of_tenths(u):
    low = np.floor(u * 10) / 10
    return low, low + 0.1


def test_integer_centring_moves_to_the_middle_and_keeps_the_average(rng):
    grid = Integers(np.array([0]), cells_of_tenths)
    mean = np.array([0.52])
    parents = np.array([[0.51], [0.58], [0.595], [0.62]])  # one in the next cell, to be moved from 0.62 to 0.65
    moved = grid.center(parents, mean)
    assert moved[3, 0] == pytest.approx(0.65)
    np.testing.assert_allclose(moved.mean(), parents.mean())
    assert moved[0, 0] == parents[0, 0]  # it lies on the other side, and is left alone
    alone = np.array([[0.51], [0.52]])
    np.testing.assert_array_equal(grid.center(alone, mean), alone)
    np.testing.assert_allclose(grid.least_deviation(mean, 0.2), 0.02)


def test_held_integers_do_not_slow_the_reals_down(rng):
    model = CMA(np.full(6, 0.55), 0.05, 12, integers=Integers(np.arange(5), cells_of_tenths))
    for _ in range(100):  # with all coordinates in the step size's path it takes 110 to 140
        x = model.sample(rng, 12)
        model.tell(x, ((np.floor(10 * x[:, :5]) - 5) ** 2).sum(axis=1) + (x[:, 5] - 0.3) ** 2)
    assert model.deviations[5] < 1e-8
    assert np.all(model.deviations[:5] > 0.019)  # a fifth of a cell, still


def test_restarts_take_turns_and_grow(rng):
    populations = []

    def factory(mean, sigma, population):
        populations.append(population)
        assert np.all((mean >= 0) & (mean <= 1))
        return CMA(mean, sigma, population)

    model = Restarts(factory, np.full(2, 0.5), 0.2, 6)
    evaluations = 0
    while evaluations < 5000:
        model.refresh(rng)
        x = model.sample(rng, model.population)
        model.tell(x, np.zeros(len(x)))  # flat: nothing ever changes
        evaluations += len(x)
    assert model.epoch == len(populations) > 8
    assert {6 * 2**k for k in range(4)} <= set(populations)
    assert sorted(set(populations)) != sorted({6 * 2**k for k in range(9)})  # small ones in between


def test_a_run_begun_where_everything_fails_gives_way_to_one_elsewhere(rng):
    starts = []

    def factory(mean, sigma, population):
        starts.append(mean)
        return CMA(mean, sigma, population)

    model = Restarts(factory, np.full(2, 0.5), 0.01, 6)
    assert model.learns_from_failures
    assert not CMA(np.full(2, 0.5), 0.2, 6).learns_from_failures
    for _ in range(2):
        model.refresh(rng)
        model.tell(model.sample(rng, 6), np.full(6, np.inf))
    model.refresh(rng)
    assert len(starts) == 2
    model.tell(model.sample(rng, 12), np.arange(12.0))  # from now on, some do not
    for _ in range(4):
        model.refresh(rng)
        model.tell(model.sample(rng, 12), np.full(12, np.inf))
    model.refresh(rng)
    assert len(starts) == 2


def test_a_model_is_not_trusted_where_it_leads_to_failures(rng):
    """A slope that ends in failures: the model sees the slope alone, and one sample of each generation would do."""
    points = rng.random((40, 2))
    known = (points, np.where(points[:, 0] < 0.9, -points[:, 0], np.inf))
    inner = BoundedUpdate(CMA(np.full(2, 0.5), 0.1, 6), np.arange(2))
    model = SurrogateUpdate(inner, known=known)
    assert model.model is not None
    for _ in range(150):
        x = model.sample(rng, model.population)
        evaluated = np.clip(x, 0.0, 1.0)
        model.tell(x, np.where(evaluated[:, 0] < 0.7, -evaluated[:, 0], np.inf))
    assert model.mean[0] == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("update", [CMA, XNES])
def test_a_distribution_that_becomes_flat_ends_its_run(update, rng):
    """Along one coordinate all points are equal: the other one shrinks alone, until no matrix has an inverse."""
    model = Restarts(update, np.full(2, 0.5), 0.2, 6)
    for _ in range(1000):
        model.refresh(rng)
        x = model.sample(rng, model.population)
        model.tell(x, np.abs(x[:, 0] - x[:, 1]) ** 0.1)
        if "ill-conditioned" in model._ended:
            return
    pytest.fail("no run ended")


@pytest.mark.parametrize("exact", [True, False])
def test_a_run_that_left_the_best_point_is_followed_by_one_that_goes_back(exact, rng):
    """A narrow hole that one sample fell into, beside a bowl that the run converges to."""
    starts = []

    def factory(mean, sigma, population):
        starts.append((mean, sigma))
        return CMA(mean, sigma, population)

    model = Restarts(factory, np.full(2, 0.5), 0.2, 6, exact=exact)
    hole = None
    while model.epoch == 1:
        x = model.sample(rng, model.population)
        values = 1.0 + ((x - 0.7) ** 2).sum(axis=1)
        if hole is None:
            hole, values[2] = x[2], 0.0
        model.tell(x, values)
        model.refresh(rng)
    mean, sigma = starts[1]
    assert np.array_equal(mean, hole) is exact
    assert (sigma == pytest.approx(0.02)) is exact  # a tenth of the deviation that found it


@pytest.mark.parametrize(("depth", "back"), [(0.1, True), (1e-4, False)])
def test_a_run_goes_back_only_for_what_is_worth_it(depth, back, rng):
    """On ripples the best sample is always a little better than where a run ends."""
    model, first = Restarts(CMA, np.full(2, 0.5), 0.2, 6, exact=True), True
    while not model._ended:
        x = model.sample(rng, model.population)
        values = 1.0 + ((x - 0.7) ** 2).sum(axis=1)
        if first:
            values[0], first = 1.0 - depth, False
        model.tell(x, values)
    assert model._left_the_best() is back


@pytest.mark.parametrize("exact", [True, False])
def test_small_runs_begin_at_the_best_of_some_points(exact, rng):
    """Where values are exact; luck would choose among others."""
    starts, scouted = [], 0

    def factory(mean, sigma, population):
        starts.append(mean)
        return CMA(mean, sigma, population)

    model = Restarts(factory, np.full(2, 0.5), 0.2, 6, exact=exact)
    for _ in range(200):
        model.refresh(rng)
        x = model.sample(rng, model.population)
        if isinstance(model.current, CMA):
            model.tell(x, np.zeros(len(x)))  # a plateau, which ends the run
            continue
        assert np.all((x >= 0.1) & (x <= 0.9))
        values = 1.0 + rng.random(len(x))
        model.tell(x, values)
        model.refresh(rng)
        assert np.array_equal(starts[-1], x[values.argmin()])
        scouted += 1
    assert scouted > 5 if exact else scouted == 0


def test_where_all_scouts_fail_others_are_sent(rng):
    model = Restarts(CMA, np.full(2, 0.5), 0.2, 6, exact=True)
    while isinstance(model.current, CMA):
        model.tell(model.sample(rng, model.population), np.zeros(model.population))
        model.refresh(rng)
    first = model.sample(rng, model.population)
    model.refresh(rng)  # a generation that failed as a whole is not told
    assert not isinstance(model.current, CMA)
    assert not np.array_equal(model.sample(rng, model.population), first)


def test_a_few_different_values_are_no_plateau(rng):
    """Of three values that were evaluated in place of six the lowest is there once, and nothing is flat."""

    class HalfEvaluated(CMA):
        def generation_of(self, values):
            return values[:3]

    model = Restarts(HalfEvaluated, np.full(2, 0.5), 0.2, 6)
    for _ in range(8):
        model.refresh(rng)
        x = model.sample(rng, model.population)
        model.tell(x, np.linalg.norm(x - 0.4, axis=1))
    assert model.epoch == 1
    for _ in range(3):
        model.refresh(rng)
        model.tell(model.sample(rng, model.population), np.zeros(6))
    assert model.epoch == 2  # and this is


def test_local_search_never_repeats_its_incumbent_and_stays_valid(rng):
    options = np.array([2] * 6 + [5] * 4 + [0] * 7)
    model = LocalSearch(options, [slice(10, 17)], None, None)
    differ = []
    for _ in range(300):
        model.refresh(rng)
        incumbent = model.mean.copy() if model._current.incumbent is not None else None
        x = model.sample(rng, model.population)
        assert np.all((x[:, :10] >= 0) & (x[:, :10] < options[:10]))
        assert np.array_equal(np.sort(x[:, 10:], axis=1), np.tile(np.arange(7.0), (len(x), 1)))
        if incumbent is not None:
            differ.append((x != incumbent).any(axis=1).mean())
        model.tell(x, x[:, :10].sum(axis=1) + np.abs(x[:, 10:] - np.arange(7)).sum(axis=1))
    assert model._deep.value == 0.0
    assert np.mean(differ) > 0.98  # two moves of a permutation may cancel
