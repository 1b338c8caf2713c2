"""Known combinatorial problems in a few lines each: the optimum, and a proof where one is at hand."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import varopt as vo

# nug12 of QAPLIB: flows of facilities, and a grid of 3 x 4 places.
FLOWS = np.array([
    [0, 5, 2, 4, 1, 0, 0, 6, 2, 1, 1, 1], [5, 0, 3, 0, 2, 2, 2, 0, 4, 5, 0, 0], [2, 3, 0, 0, 0, 0, 0, 5, 5, 2, 2, 2],
    [4, 0, 0, 0, 5, 2, 2, 10, 0, 0, 5, 5], [1, 2, 0, 5, 0, 10, 0, 0, 0, 5, 1, 1], [0, 2, 0, 2, 10, 0, 5, 1, 1, 5, 4, 0],
    [0, 2, 0, 2, 0, 5, 0, 10, 5, 2, 3, 3], [6, 0, 5, 10, 0, 1, 10, 0, 0, 0, 5, 0],
    [2, 4, 5, 0, 0, 1, 5, 0, 0, 0, 10, 10],
    [1, 5, 2, 0, 5, 5, 2, 0, 0, 0, 5, 0], [1, 0, 2, 5, 1, 4, 3, 5, 10, 5, 0, 2], [1, 0, 2, 5, 1, 0, 3, 0, 10, 0, 2, 0],
])  # fmt: skip
GRID = np.array([(i, j) for i in range(3) for j in range(4)])
PLACES = np.abs(GRID[:, None] - GRID[None]).sum(axis=2)


def test_a_quadratic_assignment_of_twelve():
    x = vo.Categorical(12, 12)
    f = 0.5 * vo.sum((FLOWS @ x @ PLACES) * x)
    r = vo.minimize(f, subject_to=[vo.sum(x, axis=0) == 1], target=289, time_limit=60)
    assert r.fun == 289
    assert 0.0 <= r.lower <= 289  # where the search is not ahead of it, by the pairs of open groups
    assert np.all(r[x].sum(axis=0) == 1)


def test_a_tour_of_eight_cities_is_proved(rng):
    places = rng.random((8, 2))
    length = np.linalg.norm(places[:, None] - places[None], axis=2)
    at, after = vo.Categorical(8, 8), np.roll(np.eye(8), 1, axis=1)
    r = vo.minimize(vo.sum((after @ at @ length) * at), subject_to=[vo.sum(at, axis=0) == 1], time_limit=60)
    tours = ((0, *rest) for rest in itertools.permutations(range(1, 8)))
    assert r.status.name == "PROVED"
    assert r.fun == pytest.approx(min(sum(length[t[k], t[(k + 1) % 8]] for k in range(8)) for t in tours), rel=1e-12)


def test_an_assignment(rng):
    cost, x = rng.integers(1, 100, (12, 12)), vo.Binary((12, 12))
    r = vo.minimize(vo.sum(cost * x), subject_to=[vo.sum(x, axis=0) == 1, vo.sum(x, axis=1) == 1])
    assert r.status.name == "PROVED"
    assert r.fun == cost[linear_sum_assignment(cost)].sum()


@pytest.mark.parametrize("seed", range(4))
def test_branching_against_enumeration(seed):
    """Groups with side constraints, integer and real, some of which nothing satisfies."""
    rng = np.random.default_rng(seed)
    x = vo.Categorical(7, 7)
    Q = rng.integers(-9, 10, (49, 49)) if seed % 2 else rng.standard_normal((49, 49))
    weight, limit = rng.integers(1, 9, 49), int(rng.integers(10, 25))
    limits = [weight @ x <= limit, vo.sum(x[:, 0]) <= 1]
    r = vo.minimize(x @ (Q @ x), subject_to=limits, time_limit=60)
    states = np.eye(7)[np.array(list(itertools.product(range(7), repeat=7)))].reshape(-1, 49)
    allowed = states[(states @ weight <= limit) & (states[:, ::7].sum(axis=1) <= 1)]
    if not len(allowed):
        assert r.status.name == "INFEASIBLE"
        return
    best = np.einsum("ij,ij->i", allowed @ Q, allowed).min()
    assert r.fun == pytest.approx(best, rel=1e-12)
    assert r.lower <= best + 1e-9
    assert r.status.name == "PROVED"


def test_a_bound_that_nobody_computed_proves_nothing():
    """HiGHS that is stopped before its first node has none."""
    rng = np.random.default_rng(0)
    x, Q = vo.Binary(40), rng.integers(-5, 6, (40, 40))
    r = vo.minimize(vo.sum((Q @ x) * x), subject_to=[vo.sum(x) <= 20], time_limit=0.2)
    assert r.lower < 0.0 or r.fun == np.inf
    assert r.status.name in ("TIME_LIMIT", "SETTLED")


def test_a_tour_of_ten_cities_is_proved(rng):
    places = rng.random((10, 2))
    length = np.linalg.norm(places[:, None] - places[None], axis=2)
    at, after = vo.Categorical(10, 10), np.roll(np.eye(10), 1, axis=1)
    r = vo.minimize(vo.sum((after @ at @ length) * at), subject_to=[vo.sum(at, axis=0) == 1], time_limit=60)
    shortest = {(frozenset([0]), 0): 0.0}  # of ways from the first city through some to a last one [Held and Karp 1962]
    for count in range(1, 10):
        for others in map(frozenset, itertools.combinations(range(1, 10), count)):
            for last in others:
                before = others - {last} | {0}
                ways = (shortest[before, k] + length[k, last] for k in before if (before, k) in shortest)
                shortest[others | {0}, last] = min(ways)
    best = min(shortest[frozenset(range(10)), k] + length[k, 0] for k in range(1, 10))
    assert r.status.name == "PROVED"
    assert r.fun == pytest.approx(best, rel=1e-12)


def test_a_knapsack_of_25_items(rng):
    value, weight = rng.integers(10, 60, 25), rng.integers(5, 40, 25)
    x = vo.Binary(25)
    r = vo.maximize(value @ x, subject_to=[weight @ x <= 250])
    best = np.zeros(251, dtype=int)  # by dynamic programming
    for v, w in zip(value, weight, strict=True):
        best[w:] = np.maximum(best[w:], best[:-w] + v)
    assert r.fun == best[-1]
    assert weight @ r[x] <= 250
    assert best[-1] <= r.upper <= 1.05 * best[-1]


def test_a_portfolio_of_few_assets(rng):
    returns = 0.001 + 0.02 * rng.standard_normal((250, 24))
    risk, mean = np.cov(returns.T), returns.mean(axis=0)
    held = np.zeros((134596, 24))
    chosen = np.array(list(itertools.combinations(range(24), 6)))
    held[np.arange(len(held))[:, None], chosen] = 1.0
    best = (100.0 * np.einsum("ij,ij->i", held @ risk, held) - 10.0 * held @ mean).min()
    x = vo.Binary(24)
    f = 100.0 * vo.quad_form(x, risk) - 10.0 * (mean @ x)
    r = vo.minimize(f, subject_to=[vo.sum(x) == 6], target=best + 1e-12, time_limit=60)
    assert r.fun == pytest.approx(best, rel=1e-12)
    assert r.lower <= best
    assert r[x].sum() == 6


def test_fewest_colours_of_the_petersen_graph():
    outer = [(k, (k + 1) % 5) for k in range(5)]
    edges = [*outer, *((k, k + 5) for k in range(5)), *((5 + k, 5 + (k + 2) % 5) for k in range(5))]
    x, used = vo.Categorical(10, 5), vo.Binary(5)
    r = vo.minimize(vo.sum(used), subject_to=[x[i] + x[j] <= used for i, j in edges])
    assert r.fun == 3
    assert r.lower > 2.85
    assert all(np.all(r[x][i] + r[x][j] <= 1) for i, j in edges)


def test_communities_of_the_karate_club():
    nx = pytest.importorskip("networkx")
    A = nx.to_numpy_array(nx.karate_club_graph(), weight=None)
    degree = A.sum(axis=0)
    B = A - np.outer(degree, degree) / degree.sum()
    x = vo.Categorical(34, 4)
    r = vo.maximize(vo.sum((B @ x) * x) / degree.sum(), target=0.41978, time_limit=60)
    assert r.fun == pytest.approx(0.4197896, abs=1e-7)  # the largest modularity there is [Brandes and others 2008]
    assert r.fun <= r.upper
