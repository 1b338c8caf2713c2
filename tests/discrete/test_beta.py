"""Free energy with the user's beta: in searches of polynomials, and of black boxes over choices."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

import varopt as vo
from varopt.solvers.natural_gradient import free_energy


@pytest.fixture
def qubo(rng):
    x = vo.Binary(24)
    return vo.quad_form(x, rng.normal(size=(24, 24)))


@pytest.mark.parametrize("method", ["auto", "free-energy", "mean-field"])
def test_the_schedule_of_beta_is_followed(qubo, method):
    seen = []

    def beta(progress):
        seen.append(progress)
        return 0.1 * 100.0**progress

    r = vo.minimize(qubo, method=method, beta=beta, seed=0)
    assert vo.minimize(qubo, method=method, beta=vo.solvers.Cooling(), seed=0).fun == r.fun
    assert (min(seen), max(seen)) == (0.0, 1.0)
    assert r.fun == vo.minimize(qubo).fun


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 3.0}, "beta must be a function from progress"),
        ({"beta": lambda t: 1.0, "method": "berny"}, "beta applies to methods 'free-energy' and 'mean-field'"),
        ({"beta": lambda t: -t}, "beta must return a positive number"),
    ],
)
def test_bad_betas_are_named(qubo, options, message):
    with pytest.raises(ValueError, match=message):
        vo.minimize(qubo, **options)


def test_free_energy_of_a_black_box_over_choices(rng):
    goal = rng.integers(0, 3, 8)
    space = vo.Space({f"c{i}": vo.search.Choice(["a", "b", "c"]) for i in range(8)})

    def f(point):
        return 1000.0 + 10.0 * sum("abc".index(v) != g for v, g in zip(point.values(), goal, strict=True))

    r = vo.minimize(f, space, method="free-energy", budget=3000, seed=0)
    assert r.method == "free-energy"
    assert r.fun == 1000.0


@pytest.mark.parametrize("maximize", [False, True])
def test_a_black_box_follows_the_beta_of_the_user(maximize):
    space = vo.Space({f"c{i}": vo.search.Choice(["a", "b", "c"]) for i in range(4)})
    sign, seen = -1.0 if maximize else 1.0, []

    def beta(progress):
        seen.append(progress)
        return vo.solvers.Cooling(0.5, 50.0)(progress)

    solve = vo.maximize if maximize else vo.minimize
    r = solve(lambda p: sign * sum(v != "b" for v in p.values()), space, method="free-energy", beta=beta, budget=600,
              seed=0)  # fmt: skip
    assert r.fun == 0.0
    assert seen == sorted(seen)
    assert 0.0 < seen[0] < 0.05
    assert seen[-1] == 1.0


def test_hot_stays_spread_and_cold_does_not():
    space = vo.Space({f"c{i}": vo.search.Choice(["a", "b"]) for i in range(3)})

    def certainty(beta):
        r = vo.minimize(lambda p: sum(v == "a" for v in p.values()), space, method="free-energy", budget=2000, seed=0,
                        beta=lambda _: beta)  # fmt: skip
        return r.search._model.theta[:, 1].mean()

    assert abs(certainty(0.01) - 0.5) < 0.25
    assert certainty(100.0) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 3.0}, "beta must be a function from progress"),
        ({"beta": lambda t: 1.0, "method": "berny"}, "beta applies to method 'free-energy' only"),
        ({"beta": lambda t: 1.0, "time_limit": 1.0}, "give a budget"),
        ({"beta": lambda t: 1.0, "journal": "never-made.db"}, "which a journal cannot keep"),
        ({"beta": lambda t: np.nan, "budget": 50}, "beta must return a positive number"),
    ],
)
def test_bad_betas_of_black_boxes_are_named(options, message):
    space = vo.Space({"c": vo.search.Choice(["a", "b"])})
    with pytest.raises(ValueError, match=message):
        vo.minimize(lambda p: 0.0, space, **{"method": "free-energy", "seed": 0, **options})


def test_cooling_goes_from_start_to_end():
    beta = vo.solvers.Cooling(0.2, 20.0)
    assert_allclose([beta(0.0), beta(0.5), beta(1.0)], [0.2, 2.0, 20.0])
    for start, end in ((0.0, 1.0), (2.0, 1.0), (1.0, np.inf), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="beta must not fall"):
            vo.solvers.Cooling(start, end)


def test_at_a_fixed_beta_the_distribution_is_that_of_the_free_energy(rng):
    # Without interactions the free energy has its minimum at p(x) ~ exp(-beta f): so do the probabilities.
    costs, beta = np.array([[0.0, 1.0, 2.0], [0.0, 0.5, 3.0]]), 0.7
    model = free_energy(np.array([3, 3]), population=400, rate=0.05, beta=lambda told: beta)
    average = np.zeros((2, 3))
    for k in range(400):
        points = model.sample(rng, model.population)
        model.tell(points, costs[0][points[:, 0].astype(int)] + costs[1][points[:, 1].astype(int)])
        average += model.theta / 200.0 if k >= 200 else 0.0
    expected = np.exp(-beta * costs)
    assert_allclose(average, expected / expected.sum(axis=1, keepdims=True), atol=0.03)


DESCENTS = ["free-energy", "mean-field", "projected-gradient", "natural-gradient", "sampled-natural-gradient"]


@pytest.mark.parametrize("method", [*DESCENTS, "berny", "pbil", "umda"])
def test_a_named_method_runs_however_few_the_bits(method):
    for n in (1, 2, 4):
        Q = np.random.default_rng(n).normal(size=(n, n))
        r = vo.minimize(vo.quad_form(vo.Binary(n), Q), method=method, seed=0)
        points = np.array(list(itertools.product((0.0, 1.0), repeat=n)))
        assert r.method.split(" > ")[0] == method
        assert r.status is vo.Status.PROVED
        assert_allclose(r.fun, np.einsum("ki,ij,kj->k", points, Q, points).min(), atol=1e-12)
