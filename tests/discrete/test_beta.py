"""Free energy with the user's beta: in searches of polynomials, and of black boxes over choices."""

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


def test_one_column_alone_keeps_moving():
    r = vo.minimize(3.0 * vo.sum(vo.Binary(1)), method="berny")
    assert r.fun == 0.0
