"""Banded and sparse problems: brackets against explicit programmes and exact recursions, extremes, and memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from tests.solvers.explicit import explicit_point
from varopt.composite import Composite, composite
from varopt.optimize import Status
from varopt.solvers import METHODS, InteriorPoint, State
from varopt.solvers.interior_point._interior_point import _Iterate  # interrupted between two of its steps
from varopt.solvers.interior_point._normal_equations import normal  # equations against dense ones

# -- Independent optima -----------------------------------------------------------------------------------------------


def taut_string(y, penalty):
    """Total variation of a signal, exactly: the shortest string through a tube around the cumulative sums."""
    n, total = y.size, np.concatenate([[0.0], np.cumsum(y)])
    low, high = total - penalty, total + penalty
    low[[0, n]] = high[[0, n]] = total[[0, n]]
    x, at, height = np.empty(n), 0, 0.0
    while at < n:
        steps = np.arange(1, n - at + 1)
        floor, ceiling = (low[at + 1 :] - height) / steps, (high[at + 1 :] - height) / steps
        steepest, flattest = np.maximum.accumulate(floor), np.minimum.accumulate(ceiling)
        crossed = np.flatnonzero(steepest > flattest)
        if crossed.size == 0:
            x[at:] = floor[-1]
            break
        # The string bends where it last touched the side that it now has to leave.
        end = crossed[0]
        rises = floor[end] > flattest[end - 1] if end else True
        touch = np.flatnonzero((ceiling if rises else floor)[:end] == (flattest if rises else steepest)[end - 1])[-1]
        x[at : at + touch + 1] = (ceiling if rises else floor)[touch]
        at, height = at + touch + 1, (high if rises else low)[at + touch + 1]
    return x


def steps(n, g, *, ties=False):
    y = np.repeat(g.normal(0.0, 3.0, n), g.integers(1, 9, n))[:n] + g.standard_normal(n) * g.choice([0.0, 0.1, 1.0])
    return np.round(y) if ties else y


LOSSES = {
    "squares": lambda t, z, label, g: 0.5 * vo.sum_squares(t - z),
    "absolute": lambda t, z, label, g: vo.norm1(t - z),
    "pinball": lambda t, z, label, g: vo.sum(vo.pinball(t - z, g.uniform(0.1, 0.9))),
    "pinball by row": lambda t, z, label, g: vo.sum(vo.pinball(t - z, g.uniform(0.1, 0.9, t.size))),
    "epsilon-insensitive": lambda t, z, label, g: vo.sum(vo.epsilon_insensitive(t - z, g.uniform(0.05, 1.0))),
    "huber": lambda t, z, label, g: vo.sum(vo.huber(t - z, g.uniform(0.1, 3.0))),
    "huber by row": lambda t, z, label, g: vo.sum(vo.huber(t - z, g.uniform(0.1, 3.0, t.size))),
    "hinge": lambda t, z, label, g: vo.sum(vo.hinge(label * z)),
    "weighted hinge": lambda t, z, label, g: (g.random(t.size) * (g.random(t.size) < 0.7)) @ vo.hinge(label * z),
    "squared hinge": lambda t, z, label, g: (g.random(t.size) * (g.random(t.size) < 0.7)) @ vo.squared_hinge(label * z),
    "own": lambda t, z, label, g: vo.sum(
        vo.piecewise(t - z, knots=[-1.0, 1.0], pieces=[[0.5, 0.0, 0.5], [0.0, -1.0], [-1.5, 0.0, 0.5]])
    ),
}


def draw(loss, g):
    """An objective of a loss and one or more penalties, on the signal itself or on a sparse design."""
    n = int(g.choice([1, 2, 3, 5, 8, 20, 50]))
    x, b = vo.Variable(n), vo.Variable()
    t, z = steps(n, g, ties=g.random() < 0.4) * 10.0 ** g.uniform(-1, 2), x
    if g.random() < 0.4:
        m = int(g.integers(1, 2 * n + 2))
        X = sp.random_array((m, n), density=min(1.0, 3.0 / n), format="csr", rng=g, data_sampler=g.standard_normal)
        X = sp.vstack([X, X[:1]]).tocsr()  # a row twice
        t, z = np.round(g.standard_normal(m + 1) * 3.0), X @ x
    if g.random() < 0.3:
        z = z + b
    f = LOSSES[loss](t, z, np.where(g.random(t.size) < 0.5, 1.0, -1.0), g)
    f = f + 10.0 ** g.uniform(-2, 1) * vo.norm1(x)  # bounded, whatever else is drawn
    for order in (1, 2, 3):
        if g.random() < 0.5 and order < n:
            f = f + 10.0 ** g.uniform(-2, 2) * vo.norm1(vo.diff(x, order))
    return f + g.uniform(0.01, 2.0) * vo.sum_squares(x) if g.random() < 0.3 else f


def test_entries_given_twice_are_added():
    rows = sp.csr_array(([1.0, 2.0, 3.0], [0, 0, 1], [0, 3]), shape=(1, 2))
    x = vo.Variable(2)
    matrices = normal(composite(vo.norm1(rows @ x) + vo.sum_squares(x)))
    matrices.factorise([np.ones(1)])
    np.testing.assert_allclose(
        matrices.solve(np.array([1.0, 0.0])), np.linalg.solve([[11.0, 9.0], [9.0, 11.0]], [1, 0])
    )


# -- Brackets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "drawn"), [("squares", 70), ("absolute", 123), ("squared hinge", 63)])
def test_where_rounding_spoils_the_multipliers_the_point_is_finished_exactly(loss, drawn):
    g = np.random.default_rng(100)
    f = [draw(loss, g) for _ in range(drawn + 1)][-1]
    r = vo.minimize(f, method="interior-point")
    assert r.status is Status.OPTIMAL
    optimum = f(explicit_point(f))
    assert r.lower - 1e-7 <= optimum
    assert r.upper <= optimum + 1e-7


@pytest.mark.parametrize("loss", LOSSES)
def test_the_bracket_holds_the_optimum_of_the_explicit_programme(loss):
    g = np.random.default_rng(list(LOSSES).index(loss))
    for _ in range(25):
        f = draw(loss, g)
        r = vo.minimize(f, method="interior-point")
        optimum = f(explicit_point(f))
        slack = 1e-7 * max(1.0, abs(optimum))  # of the reference, not of ours
        assert r.lower - slack <= optimum
        assert r.upper <= optimum + slack
        assert r.status is Status.OPTIMAL
        assert r.fun == f(r.x) <= r.upper <= r.fun + 1e-11 * max(1.0, abs(r.fun))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 40, 400])
def test_total_variation_is_the_taut_string(n, ties, rng):
    for penalty in (0.0, 0.3, 1.0, 4.0, 1e3):
        y = steps(n, rng, ties=ties)
        x = vo.Variable(n)
        f = 0.5 * vo.sum_squares(y - x) + (penalty * vo.norm1(vo.diff(x)) if n > 1 else 0.0)
        r = vo.minimize(f, method="interior-point")
        exact = taut_string(y, penalty)
        assert f(exact) - 1e-12 * max(1.0, f(exact)) <= r.fun <= f(exact) + 1e-9 * max(1.0, f(exact))
        assert r.lower <= f(exact) + 1e-12 * max(1.0, f(exact))
        assert np.linalg.norm(r.x - exact) <= np.sqrt(2.0 * r.gap) + 1e-7  # strong convexity


def test_fused_values_are_equal_and_zeros_are_zeros(rng):
    y = steps(2000, rng) + 0.5 * rng.standard_normal(2000)
    x = vo.Variable(2000)
    r = vo.minimize(0.5 * vo.sum_squares(y - x) + 5.0 * vo.norm1(vo.diff(x)) + 0.4 * vo.norm1(x))
    # The fused lasso is the soft threshold of total variation (Friedman et al., 2007).
    smooth = taut_string(y, 5.0)
    np.testing.assert_allclose(r.x, np.sign(smooth) * np.maximum(np.abs(smooth) - 0.4, 0.0), atol=1e-6)
    fused = np.abs(np.diff(smooth)) < 1e-12
    assert np.all(np.diff(r.x)[fused] == 0.0)
    assert np.all(r.x[np.abs(smooth) < 0.4 - 1e-9] == 0.0)
    assert 0 < np.count_nonzero(r.x == 0.0) < 2000


@pytest.mark.parametrize("order", [2, 3])
def test_trend_filtering_is_optimal_in_its_cumulated_residuals(order, rng):
    """The multipliers of D'u = y - x are cumulated sums: within the penalty, and at it where the trend bends."""
    n, penalty = {2: 3000, 3: 1000}[order], 20.0
    y = np.cumsum(np.repeat(rng.normal(0.0, 0.1, n // 100), 100)) + rng.standard_normal(n)
    x = vo.Variable(n)
    r = vo.minimize(0.5 * vo.sum_squares(y - x) + penalty * vo.norm1(vo.diff(x, order)))
    assert r.method == {2: "knots > interior-point", 3: "interior-point"}[order]
    assert r.status is Status.OPTIMAL
    # Sums of sums multiply the last digits of x by n^order; of these, a polynomial is all that adds up.
    u, t = y - r.x, np.linspace(-1.0, 1.0, n)
    drift = np.polynomial.Polynomial.fit(t, u, order - 1)(t)
    assert 0.5 * np.sum(drift**2) <= r.gap  # as far from the optimum as the bracket allows
    u = u - drift
    for _ in range(order):
        u = np.cumsum(u)
    u, bends = (-1) ** order * u[: n - order], np.diff(r.x, order)
    assert np.abs(u).max() <= penalty * (1.0 + 1e-4)
    bent = np.abs(bends) > 1e-6
    np.testing.assert_allclose(u[bent], penalty * np.sign(bends[bent]), rtol=1e-4)
    assert 0 < bent.sum() < 300


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_huge_penalty_leaves_the_polynomial(order, rng):
    y = np.linspace(0.0, 3.0, 400) + rng.standard_normal(400)
    t = np.linspace(-1.0, 1.0, 400)
    best = np.polynomial.Polynomial.fit(t, y, order - 1)(t)
    x = vo.Variable(400)
    for penalty in (1e8, 1e10):
        r = vo.minimize(0.5 * vo.sum_squares(y - x) + penalty * vo.norm1(vo.diff(x, order)))
        optimum = 0.5 * np.sum((y - best) ** 2)
        # What rounding of x does to its differences, times the penalty, is the floor of any bracket.
        floor = penalty * 400 * 2.0**order * 4e-16 * np.abs(y).max()
        assert r.lower <= optimum * (1.0 + 1e-12)
        assert r.upper <= optimum * (1.0 + 1e-9) + floor
        assert r.gap <= 1e-9 * optimum + floor
        np.testing.assert_allclose(r.x, best, atol=1e-6)


# -- Awkward signals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3])
def test_constant_signals_are_left_alone(order):
    for value in (0.0, 3.7, -1e6):
        x = vo.Variable(1000)
        r = vo.minimize(0.5 * vo.sum_squares(np.full(1000, value) - x) + 2.0 * vo.norm1(vo.diff(x, order)))
        assert r.status is Status.OPTIMAL
        np.testing.assert_allclose(r.x, value, atol=1e-9 * max(1.0, abs(value)))


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_units_do_not_matter(scale, rng):
    y = steps(500, rng) + 0.3 * rng.standard_normal(500)
    x = vo.Variable(500)
    for order in (1, 2):
        plain, scaled = (
            vo.minimize(0.5 * vo.sum_squares(c * y - x) + 3.0 * c * vo.norm1(vo.diff(x, order))) for c in (1.0, scale)
        )
        np.testing.assert_allclose(scaled.x / scale, plain.x, atol=1e-6)
        np.testing.assert_allclose(scaled.fun / scale**2, plain.fun, rtol=1e-9)


def test_published_signals(shared_data):
    prices = np.loadtxt(shared_data / "fused" / "snp500_log.txt")
    copies = np.load(shared_data / "fused" / "CGH.npz")["GBM_y"].astype(float)
    for y, order, penalty in ((prices, 2, 50.0), (prices, 1, 1.0), (copies, 1, 3.0), (copies, 2, 10.0)):
        x = vo.Variable(y.size)
        f = 0.5 * vo.sum_squares(y - x) + penalty * vo.norm1(vo.diff(x, order))
        r = vo.minimize(f)
        assert r.status is Status.OPTIMAL
        optimum = f(explicit_point(f))
        assert r.lower - 1e-7 <= optimum
        assert r.upper <= optimum + 1e-7
        if order == 1:
            np.testing.assert_allclose(r.x, taut_string(y, penalty), atol=1e-6)


# -- Matrices of every form -------------------------------------------------------------------------------------------


def grid(side):
    """Differences of neighbours in an image: sparse, and no band."""
    one = sp.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(side - 1, side))
    return sp.vstack([sp.kron(one, sp.eye_array(side)), sp.kron(sp.eye_array(side), one)]).tocsr()


def test_total_variation_of_an_image(rng):
    side = 30
    image = np.kron(rng.standard_normal((3, 3)), np.ones((10, 10))) + 0.2 * rng.standard_normal((side, side))
    x = vo.Variable(side * side)
    f = 0.5 * vo.sum_squares(image.ravel() - x) + 0.5 * vo.norm1(grid(side) @ x)
    r = vo.minimize(f)
    assert (r.status, r.method) == (Status.OPTIMAL, "interior-point")
    assert r.upper <= f(explicit_point(f)) + 1e-7
    assert np.count_nonzero(grid(side) @ r.x == 0.0) > side * side


@pytest.mark.parametrize("shape", [(900, 350), (200, 700)])
@pytest.mark.parametrize("loss", ["hinge", "squared hinge", "pinball", "huber"])
def test_sparse_designs(loss, shape, rng):
    X = sp.random_array(shape, density=0.01, rng=rng, format="csr")
    w, b = vo.Variable(shape[1]), vo.Variable()
    y = rng.standard_normal(shape[0])
    f = LOSSES[loss](y, X @ w + b, np.sign(y), rng) + 0.05 * vo.norm1(w) + 0.01 * vo.sum_squares(w)
    r = vo.minimize(f)
    assert (r.status, r.method) == (Status.OPTIMAL, "interior-point")
    optimum = f(explicit_point(f))
    assert r.lower - 1e-7 * optimum <= optimum
    assert r.upper <= optimum * (1.0 + 1e-7)


def test_every_form_of_a_matrix_solves_the_same_equations(rng):
    differences = sp.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(59, 60))
    scaled = sp.diags_array(rng.random(59)) @ differences
    scattered = differences.tocsr()[np.sort(rng.choice(59, 20, replace=False))]
    intercept = sp.hstack([sp.eye_array(60, 59), np.ones((60, 1))]).tocsr()
    for a in (differences, scaled, scattered, intercept):
        a = sp.csr_array(a)
        x = vo.Variable(60)
        problem = composite(vo.sum_squares(x) + vo.norm1(a @ x))
        d, residual, pull = rng.random(a.shape[0]), rng.standard_normal(60), rng.standard_normal(a.shape[0])
        matrix = 2.0 * np.eye(60) + (a.T @ sp.diags_array(d) @ a).toarray()
        expected = np.linalg.solve(matrix, a.T @ pull - residual)
        matrices = normal(problem)
        for augmented in (False, True):
            if augmented and not matrices.augment():
                continue
            matrices.factorise([d])
            dx, (move,) = matrices.step(residual.copy(), [pull])
            np.testing.assert_allclose(dx, expected, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(move, a @ expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", ["hinge", "squared hinge", "epsilon-insensitive"])
@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_sparse_matrices_with_dense_products(loss, ridge, rng):
    n, p = 300, 800
    X = sp.random_array((n, p), density=0.05, rng=rng, format="csr")
    X = sp.vstack([X, X[:20]]).tocsr()  # duplicate rows
    w, b = vo.Variable(p), vo.Variable()
    y = np.round(X @ np.where(rng.random(p) < 0.1, 1.0, 0.0) + rng.standard_normal(n + 20))
    y -= np.median(y)
    f = LOSSES[loss](y, X @ w + b, np.where(y > 0, 1.0, -1.0), rng) + 0.3 * vo.norm1(w) + ridge * vo.sum_squares(w)
    assert type(normal(composite(f))).__name__ == "_Krylov"
    r = vo.minimize(f, method="interior-point")
    assert r.status is Status.OPTIMAL
    optimum = f(explicit_point(f))
    assert r.lower - 1e-7 * optimum <= optimum
    assert r.upper <= optimum * (1.0 + 1e-7)


def test_the_papers_fused_lasso_on_dense_data(rng):
    X = rng.standard_normal((400, 40))
    y = X @ np.repeat([0.0, 5.0, -5.0, 0.0], 10) + rng.standard_normal(400)
    w = vo.Variable(40)
    f = vo.sum_squares(y - X @ w) + 500.0 * vo.norm1(w) + 200.0 * vo.norm1(vo.diff(w))
    r = vo.minimize(f)
    assert (r.status, r.method) == (Status.OPTIMAL, "interior-point")
    assert r.upper <= f(explicit_point(f)) * (1.0 + 1e-8)
    assert np.count_nonzero(np.diff(r.x) == 0.0) > 20


def test_a_quadratic_without_rows_is_solved_at_once(rng):
    X = sp.random_array((800, 400), density=0.02, rng=rng, format="csr")
    y = rng.standard_normal(800)
    w = vo.Variable(400)
    r = vo.minimize(vo.sum_squares(y - X @ w) + 0.1 * vo.sum_squares(w))
    assert r.status is Status.OPTIMAL
    exact = np.linalg.solve((X.T @ X).toarray() + 0.1 * np.eye(400), X.T @ y)
    np.testing.assert_allclose(r.x, exact, atol=1e-10)


def test_memory_is_linear_in_the_points():
    peaks = []
    for n in (20_000, 80_000):
        y = np.random.default_rng(0).standard_normal(n)
        x = vo.Variable(n)
        f = 0.5 * vo.sum_squares(y - x) + 3.0 * vo.norm1(vo.diff(x, 2)) + 0.1 * vo.norm1(x)
        tracemalloc.start()
        r = vo.minimize(f)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert r.status is Status.OPTIMAL
    assert peaks[1] < 4.5 * peaks[0]
    assert peaks[1] < 100 * 8 * 80_000  # as many numbers a point


# -- What a user may do with a run ------------------------------------------------------------------------------------


@pytest.fixture
def signal(rng):
    y = steps(900, rng) + rng.standard_normal(900)
    x = vo.Variable(900)
    return 0.5 * vo.sum_squares(y - x) + 3.0 * vo.norm1(vo.diff(x, 2))


def test_auto_takes_it_for_sparse_problems_and_newton_refers_to_it(signal):
    assert vo.minimize(signal).method == "interior-point"
    with pytest.raises(ValueError, match="interior-point"):
        vo.minimize(signal, method="newton")
    assert isinstance(METHODS["interior-point"], InteriorPoint)
    dense = vo.norm1(np.ones((5, 3)) @ vo.Variable(3))
    assert not METHODS["interior-point"].suits(composite(dense))


def test_a_stopped_run_has_a_bracket(signal):
    optimum = vo.minimize(signal).fun
    limited = vo.minimize(signal, time_limit=1e-9)
    assert limited.status is Status.TIME_LIMIT

    def interrupt(state):
        if state.steps == 3:
            raise KeyboardInterrupt

    interrupted = vo.minimize(signal, callback=interrupt)
    assert interrupted.status is Status.INTERRUPTED
    for r in (limited, interrupted):
        assert np.isfinite(r.lower)
        assert r.lower <= optimum <= r.upper
    assert interrupted.gap < limited.gap
    few = vo.minimize(signal, method=InteriorPoint(most=4))
    assert few.method.startswith("interior-point")
    assert few.lower <= optimum <= few.upper


def test_the_history_tells_the_way(signal):
    seen = []
    r = vo.minimize(signal, callback=lambda state: seen.append((state.sigma, state.gap)))
    sigmas = [sigma for sigma, _ in seen]
    assert sigmas == sorted(sigmas, reverse=True)
    assert sigmas[0] == 1.0
    assert r.sigma == 0.0
    lower = r.history["lower"]
    assert np.all(np.diff(r.history["upper"]) <= 1e-12 * r.fun)
    assert np.all(np.diff(lower[np.isfinite(lower)]) >= 0.0)


def test_brackets_are_sound_at_every_step(signal):
    optimum = vo.minimize(signal).fun
    for most in range(12):
        r = vo.minimize(signal, method=InteriorPoint(most=most))
        assert r.lower <= optimum * (1.0 + 1e-12)
        assert r.upper >= optimum * (1.0 - 1e-12)


def test_unbounded_sparse_objectives_have_no_lower_bound():
    x = vo.Variable(400)
    r = vo.minimize(vo.norm1(vo.diff(x)) + np.ones(400) @ x, method="interior-point")
    assert r.status is Status.UNBOUNDED
    assert r.lower == -np.inf


def test_identical_runs_are_identical_and_data_stay(signal, rng):
    np.testing.assert_array_equal(vo.minimize(signal).x, vo.minimize(signal).x)
    X = sp.random_array((500, 400), density=0.02, rng=rng, format="csr")
    kept = X.copy()
    w = vo.Variable(400)
    vo.minimize(vo.norm1(np.ones(500) - X @ w) + vo.norm1(w))
    assert (kept != X).nnz == 0
    assert isinstance(composite(signal), Composite)


def test_an_interrupt_amid_a_factorisation_leaves_a_bracket_and_no_factor(monkeypatch, rng):
    """The bracket at the end took up a factor that was not there: an AttributeError in place of the result."""
    w, y = vo.Variable(60), np.cumsum(rng.standard_normal(60))
    problem = composite(0.5 * vo.sum_squares(y - w) + 30.0 * vo.norm1(vo.diff(w, 2)))
    iterate, state = _Iterate(problem, lambda: None), State(np.zeros(60))
    assert iterate.has_factor

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(iterate.matrices, "factorise", interrupted)
    monkeypatch.setattr(iterate.matrices, "step", lambda *_: pytest.fail("there is nothing to step with"))
    with pytest.raises(KeyboardInterrupt):
        iterate._factorise()
    assert not iterate.has_factor
    iterate.show(state)
    assert state.lower <= state.upper < np.inf
