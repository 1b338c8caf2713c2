"""The paper's two methods, the schedules, and going on from a state."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

import varopt as vo
from varopt.bounds import RowNoise
from varopt.certificates import DualGap, SmoothingGap
from varopt.composite import composite
from varopt.solvers import LBFGS, METHODS, Adaptive, DiagonalNewton, Every, Geometric, Newton
from varopt.solvers.descent import Path


def lasso(rng, size):
    """The paper's lasso problem [SB12, section 3.1]."""
    u = np.where(rng.random(size) < 0.5, 0.0, rng.choice([-5.0, 5.0], size) + rng.standard_normal(size))
    X = rng.standard_normal((10 * size, size))
    clean = X @ u
    y = clean + 0.1 * np.abs(clean).mean() * rng.standard_normal(clean.size)
    w = vo.Variable(size, name="w")
    return X, y, 30.0 * size, vo.sum_squares(y - X @ w) + 30.0 * size * vo.norm1(w)


def as_printed(X, y, penalty):
    """The paper's loop, written from its text: the step, the covariance, the stopping rule."""
    A, b = X.T @ X, X.T @ y
    mu, variance, count = np.zeros(b.size), 0.1, 0
    while True:
        sigma = np.sqrt(variance)
        slope = 2.0 * (A @ mu - b) + penalty * (1.0 - 2.0 * norm.cdf(-mu / sigma))
        bend = 2.0 * np.diagonal(A) + 2.0 * penalty * norm.pdf(mu / sigma) / sigma
        new = mu - 0.1 * slope / bend
        count, variance = count + 1, 0.9 * variance
        if np.abs(new - mu).mean() < 1e-15 * np.abs(new).mean():
            return new, count
        mu = new


def test_diagonal_newton_is_the_papers_loop(rng):
    X, y, penalty, f = lasso(rng, 20)
    expected, count = as_printed(X, y, penalty)
    r = vo.minimize(f, method=DiagonalNewton(most=10_000))
    assert r.method == "diagonal-newton"
    np.testing.assert_allclose(r.state.latest, expected, rtol=1e-9, atol=1e-12)
    assert abs(r.nit - count) <= 5  # the last digits decide when a change of 1e-15 is reached
    best = vo.minimize(f)
    assert r.lower <= best.fun <= r.fun
    assert r.fun - best.fun < 1e-12 * best.fun


def test_lbfgs_reaches_the_optimum_of_a_support_vector_machine(rng):
    X = rng.standard_normal((200, 5))
    t = np.sign(X @ np.ones(5) + rng.standard_normal(200))
    w, b = vo.Variable(5), vo.Variable()
    f = vo.sum_squares(w) + 10.0 * vo.sum(vo.hinge(t * (X @ w + b)))
    best = vo.minimize(f)
    r = vo.minimize(f, method="lbfgs", tol=1e-5)
    assert r.fun <= best.fun * (1.0 + 1e-5)
    assert r.lower <= best.fun
    assert r.nfev >= r.nit > 0
    cuts = r.history["sigma"][1:] ** 2 / r.history["sigma"][:-1] ** 2
    np.testing.assert_allclose(cuts, 0.1)  # the variance is cut by ten


def test_slopes_are_balanced_where_the_quadratic_gives_no_dual_point(rng):
    X, y = rng.standard_normal((100, 3)), rng.standard_normal(100)
    w = vo.Variable(3)
    f = vo.sum(vo.pinball(y - X @ w, 0.7))
    best = vo.minimize(f)
    r = vo.minimize(f, method=LBFGS(schedule=Geometric(1e-2, 0.3), most=60))
    assert isinstance(r.certificate, DualGap)
    assert r.certificate.assumption == ""
    assert r.lower <= best.fun <= r.upper
    assert r.gap < 1e-2 * best.fun
    assert "Reached" in r.message
    assert "auto" in r.message


def test_a_run_that_is_stopped_has_a_bracket(rng):
    X, y = rng.standard_normal((5000, 3)), rng.standard_normal(5000)  # too many for vertices at once
    w = vo.Variable(3)
    f = vo.norm1(y - X @ w)
    best = vo.minimize(f)
    r = vo.minimize(f, time_limit=1e-9)
    assert r.status is vo.Status.TIME_LIMIT
    assert r.lower <= best.fun <= r.upper
    assert r.gap < 0.1 * best.fun


def test_the_smoothing_gap_is_known_beforehand(rng):
    X, y = rng.standard_normal((60, 4)), rng.standard_normal(60)
    w = vo.Variable(4)
    f = vo.sum_squares(y - X @ w) + 3.0 * vo.norm1(w)
    best = vo.minimize(f)
    for tolerance in (1.0, 1e-2, 1e-4):
        sigma = vo.sigma_for(f, tolerance)
        found = minimize(
            lambda mean, sigma=sigma: (
                vo.bound(f, vo.Gaussian(mean, sigma)).value,
                np.asarray(vo.bound(f, vo.Gaussian(mean, sigma)).gradient),
            ),
            best.x + 0.1, jac=True, method="BFGS", options={"gtol": 1e-7},
        )  # fmt: skip
        c = SmoothingGap.of(vo.bound(f, vo.Gaussian(found.x, sigma)))
        assert c.lower <= best.fun <= c.upper + 1e-12 * best.fun
        assert c.gap <= tolerance * (1.0 + 1e-9)
        assert "minimises the bound" in str(c)
    with pytest.raises(ValueError, match="convex"):
        SmoothingGap.of(vo.bound(vo.sum(vo.ramp(w)), vo.Gaussian(np.zeros(4), 1.0)))


@pytest.mark.parametrize("seed", range(30))
def test_balanced_slopes_are_sound(seed):
    rng = np.random.default_rng(seed)
    n, p = rng.integers(2, 40), rng.integers(1, 5)
    X, y = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-2, 2, p), rng.standard_normal(n)
    w = vo.Variable(int(p))
    f = vo.norm1(y - X @ w) + 10.0 ** rng.uniform(-3, 1) * vo.norm1(w)
    best = vo.minimize(f)
    method = LBFGS(schedule=Geometric(10.0 ** rng.uniform(-4, 0), 0.5), iterations=10, most=int(rng.integers(1, 200)))
    r = vo.minimize(f, method=method)
    assert r.lower <= best.fun + 1e-9 * max(1.0, abs(best.fun))
    assert best.lower <= r.upper


def path_at(sigma, steps, level_steps):
    problem = composite(vo.norm1(vo.Variable(1)))
    noise = RowNoise(sigma, [1.0])
    return Path(problem, np.zeros(1), noise, sigma, steps=steps, level_steps=level_steps)


def test_schedules():
    assert Geometric(factor=0.3)(path_at(2.0, 5, 5)) == pytest.approx(0.6)
    every = Every(steps=10, factor=0.1)
    assert every(path_at(1.0, 9, 1)) == 1.0
    assert every(path_at(1.0, 10, 1)) == pytest.approx(0.1)
    assert every(path_at(1.0, 31, 25)) == pytest.approx(1e-3)  # 10, 20 and 30 lie in this level
    adaptive = Adaptive()
    easy, hard = path_at(1.0, 2, 2), path_at(1.0, 9, 9)
    assert adaptive(easy) < Geometric(factor=adaptive.factor)(easy) < adaptive(hard)
    for _ in range(20):
        adaptive(easy)
        adaptive(hard)
    assert easy.factor == adaptive.fast
    assert hard.factor == adaptive.slow


@pytest.mark.parametrize("schedule", [Geometric(factor=0.5), Adaptive(), Every(steps=1, factor=0.3)])
def test_any_schedule_leads_to_the_optimum(schedule, rng):
    X, y = rng.standard_normal((400, 4)), rng.standard_normal(400)
    w = vo.Variable(4)
    f = vo.sum(vo.pinball(y - X @ w, 0.2)) + vo.norm1(w)
    assert vo.minimize(f, method=Newton(schedule=schedule)).fun == pytest.approx(vo.minimize(f).fun, rel=1e-9)


class Own:
    """A schedule that a user might write."""

    start = 1.0

    def __init__(self, function):
        self.function = function

    def __call__(self, path):
        return self.function(path)


@pytest.mark.parametrize("method", [Newton, LBFGS])
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda path: path.sigma, "must let sigma fall"),
        (lambda path: 2.0 * path.sigma, "must let sigma fall"),
        (lambda path: np.nan, "must return a sigma of at least 0; got nan"),
        (lambda path: -1.0, "must return a sigma of at least 0; got -1.0"),
        (lambda path: None, "must return a sigma of at least 0; got None"),
    ],
)
def test_a_schedule_of_which_sigma_does_not_fall_is_told(method, function, told, rng):
    X, y = rng.standard_normal((300, 6)), rng.standard_normal(300)
    with pytest.raises(ValueError, match=told):
        vo.minimize(vo.norm1(y - X @ vo.Variable(6)), method=method(schedule=Own(function)), time_limit=60.0)


def test_a_sigma_may_fall_below_all_numbers(rng):
    f = vo.sum_squares(rng.standard_normal((50, 4)) @ vo.Variable(4) - 1.0) + vo.norm1(vo.Variable(4))
    method = DiagonalNewton(schedule=Geometric(1e-300, 0.1), change=0.0, most=400)
    assert vo.minimize(f, method=method).nit > 100


def test_a_schedule_may_wait(rng):
    X, y = rng.standard_normal((300, 6)), rng.standard_normal(300)
    f = vo.norm1(y - X @ vo.Variable(6))
    waits = Own(lambda path: path.sigma * (0.25 if path.steps % 3 == 0 else 1.0))
    assert vo.minimize(f, method=Newton(schedule=waits)).fun == pytest.approx(vo.minimize(f).fun, rel=1e-9)


def test_a_run_goes_on_from_its_state(rng):
    *_, f = lasso(rng, 10)
    whole = vo.minimize(f, method="diagonal-newton")
    part = vo.minimize(f, method=DiagonalNewton(most=100))
    kept = pickle.loads(pickle.dumps(part.state))
    for state in (part, part.state, kept):
        rest = vo.minimize(f, method="diagonal-newton", resume=state)
        assert rest.nit > part.nit
        assert rest.time >= part.time
        np.testing.assert_allclose(rest.fun, whole.fun, rtol=1e-12)
        assert len(rest.history["sigma"]) > len(part.history["sigma"])
        assert np.all(np.diff(rest.history["time"]) >= 0)


def test_a_bracket_is_kept_only_for_the_objective_it_was_proved_for(rng):
    *_, f = lasso(rng, 10)
    done = vo.minimize(f)

    def stop(state):
        raise StopIteration

    same = vo.minimize(f, resume=done, callback=stop)
    assert same.lower == done.lower
    easier = 0.5 * f
    other = vo.minimize(easier, resume=done)
    assert other.lower <= other.fun < done.lower


def test_frozen_rows_are_thawed_when_they_leave_their_piece(rng):
    """From a far point and a tiny sigma nearly all rows are frozen at once, most of them wrongly."""
    X = rng.standard_normal((3000, 8))
    y = X @ np.ones(8) + rng.standard_t(2, 3000)
    w = vo.Variable(8)
    f = vo.sum(vo.pinball(y - X @ w, 0.7))
    best = vo.minimize(f)
    state = best.state
    for sigma in (0.06, 0.004, 1e-4):
        state.latest, state.sigma = np.zeros(8), sigma
        r = vo.minimize(f + 0.0, resume=state)
        assert r.fun == pytest.approx(best.fun, rel=1e-9)
        assert r.success


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: vo.minimize(f, method="simplex"), "'diagonal-newton'"),
        (lambda f: vo.minimize(f, resume=3), "resume must be"),
        (lambda f: vo.minimize(f, resume=vo.minimize(vo.norm1(vo.Variable(5)))), "5 coordinates"),
        (lambda f: vo.minimize(f, resume=vo.minimize(f), x0=[0.0, 0.0]), "x0 and resume"),
        (lambda f: Geometric(factor=1.0), "factor"),
        (lambda f: Geometric(start=0.0), "start"),
        (lambda f: Every(steps=0), "steps"),
        (lambda f: Adaptive(fast=0.9), "fast"),
    ],
)
def test_bad_options_get_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call(vo.norm1(vo.Variable(2)))


@pytest.mark.parametrize("method", ["newton", "diagonal-newton", "lbfgs"])
def test_convex_methods_refuse_what_is_not_convex_by_name(method):
    f = vo.sum(vo.ramp(vo.Variable(2)))
    assert METHODS[method].refusal(composite(f))
    with pytest.raises(ValueError, match=f"'{method}'.*not known to be convex"):
        vo.minimize(f, method=method)


def test_a_bound_that_assumes_nothing_needs_no_search_for_unboundedness(rng, monkeypatch):
    X, w = rng.standard_normal((40, 3)), vo.Variable(3)
    f = vo.sum_squares(rng.standard_normal(40) - X @ w) + vo.norm1(w)
    monkeypatch.setattr("varopt.certificates.falls_for_ever", lambda *_: pytest.fail("it was searched for"))
    r = vo.minimize(f, method=DiagonalNewton(most=5), tol=0.0)
    assert r.status is vo.Status.GAP_OPEN
    assert np.isfinite(r.lower)


def test_lbfgs_searches_a_line_on_after_a_cut_of_sigma(rng):
    # Points in more dimensions than they need: just after a cut the first step is far too long for twenty trials.
    y = np.where(np.arange(80) % 2, 1.0, -1.0)
    X = rng.standard_normal((80, 100)) + np.outer(y > 0.0, 0.35 * rng.standard_normal(100))
    K = np.outer(y, y) * (X @ X.T)
    beta, b = vo.Variable(80), vo.Variable()
    f = vo.quad_form(beta, K) + 10.0 * vo.sum(vo.hinge(K @ beta + b * y))
    start = rng.standard_normal(81)
    r = vo.minimize(f, method=LBFGS(most=1500, memory=100), x0=start, tol=0.0)
    assert r.nit >= 1500


def test_a_step_that_overflows_ends_the_search():
    """Of targets of 1e150 beside columns of 1e-160 a Newton step has no length: the search must end all the same."""
    X = 1e-160 * np.array([[1.0235], [1.0158], [-4.5697], [1.8309], [-2.4906], [-0.8614], [-1.7416], [-2.1651]])
    y, w = 1e149 * np.array([-9.11, 2.86, 3.88, -0.31, -1.03, 3.68, -4.8, -23.79]), vo.Variable(1)
    r = vo.minimize(vo.sum_squares(y - X @ w) + 4.3e-10 * vo.norm1(w), time_limit=5.0)
    assert r.status in (vo.Status.OPTIMAL, vo.Status.GAP_OPEN)
