"""Attacks on brackets: steep terms that hide far optima, quadratics barely convex, and lines barely bounded."""

import time
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from fuzz.problems import random_problem
from varopt import Status, learn
from varopt._clock import TimeUp, budget, deadline, tick  # limits by themselves
from varopt.bounds import CompositeBound, RowNoise
from varopt.certificates import falls_along, falls_for_ever
from varopt.composite import composite
from varopt.solvers.descent._newton import descend  # a level by itself
from varopt.solvers.interior_point._conjugate_gradients import ConjugateGradients  # an empty row by itself

CLAIMS = (Status.OPTIMAL, Status.PROVED)


def steep(weight, slope, knot):
    """``weight |w + b| + slope b + 2 slope (-b - knot)_+``: its minimum is ``-slope knot``, at ``b = -knot``."""
    w, b = vo.Variable(), vo.Variable()
    return weight * vo.abs(w + b) + slope * b + 2.0 * slope * vo.pos(-b - knot)


def test_a_steep_term_does_not_hide_a_far_optimum():
    r = vo.minimize(steep(1e12, 1e-4, 1e6))
    assert r.lower <= -100.0
    assert r.status not in CLAIMS or r.fun == pytest.approx(-100.0, rel=1e-8)


@pytest.mark.parametrize("seed", range(49))
def test_steep_weights_at_random(seed):
    g = np.random.default_rng(seed)
    weight, slope, knot = 10.0 ** g.uniform(6, 12), 10.0 ** g.uniform(-6, -2), 10.0 ** g.uniform(2, 8)
    r = vo.minimize(steep(weight, slope, knot))
    assert r.lower <= -Fraction(slope) * Fraction(knot)  # the value at b = -knot, exactly
    assert r.status is not Status.UNBOUNDED
    assert r.status not in CLAIMS or r.fun == pytest.approx(-slope * knot, rel=1e-8)


def test_a_faint_line_beside_a_steep_term_is_unbounded():
    w, b = vo.Variable(), vo.Variable()
    r = vo.minimize(1000 * vo.abs(w + b) + 1e-10 * b)
    assert r.status is Status.UNBOUNDED
    assert r.lower == -np.inf


def test_a_faint_line_with_a_far_knot_is_bounded():
    w, b = vo.Variable(20), vo.Variable(20)
    r = vo.minimize(1e3 * vo.norm1(w + b) - 1e-10 * vo.sum(b) + 1e-10 * vo.sum(vo.pos(2 * b - 1e12)))
    assert r.status is not Status.UNBOUNDED
    assert r.lower <= -1000.0
    assert r.status not in CLAIMS or r.fun == pytest.approx(-1000.0, rel=1e-8)


NEARLY = {
    "diagonal": np.diag([1e8, -1e-7]),
    "nearly singular": np.array([[1.0, 1.0], [1.0, 1.0 - 1e-12]]),
    "sparse": sp.csr_array(np.diag([1e6, 1.0, -1e-9])),
}


@pytest.mark.parametrize("name", NEARLY)
def test_quadratics_that_barely_curve_down_are_not_convex(name):
    w = vo.Variable(NEARLY[name].shape[0])
    f = vo.quad_form(w, NEARLY[name]) + vo.sum(vo.huber(w - 3))
    r = vo.minimize(f)
    assert r.status is Status.UNBOUNDED
    assert r.lower == -np.inf


@pytest.mark.parametrize("seed", range(30))
def test_the_rounding_of_a_singular_form_is_charged(seed):
    """The lower bound against the value at the result's own point, in rational arithmetic."""
    g = np.random.default_rng(seed)
    n = int(g.integers(2, 6))
    root = np.round(g.standard_normal((max(1, n - 2), n)), 1)
    Q, c = root.T @ root, 1e3 * root.T @ g.standard_normal(len(root))
    w = vo.Variable(n)
    r = vo.minimize(vo.quad_form(w, Q) + c @ w + 0.1 * vo.norm1(w - 1))
    x = [Fraction(v) for v in r.x.tolist()]
    value = sum(Fraction(Q[i, j]) * x[i] * x[j] for i in range(n) for j in range(n))
    value += sum(Fraction(a) * b for a, b in zip(c.tolist(), x, strict=True))
    value += Fraction(0.1) * sum(abs(v - 1) for v in x)
    assert r.lower <= value or r.certificate.assumption
    assert value <= r.upper or r.certificate.assumption


def test_unbounded_directions_are_checked_not_guessed():
    """Slopes that cancel exactly: a programme with tolerances cannot tell, and neither side may be claimed wrongly."""
    w = vo.Variable(2)
    flat = vo.norm1(w) - w[0] - w[1]
    assert vo.minimize(flat).status is Status.OPTIMAL
    assert vo.minimize(flat - 1e-12 * w[0]).status is Status.UNBOUNDED
    assert vo.minimize(flat + 1e-12 * w[0]).status is not Status.UNBOUNDED


@pytest.mark.parametrize("seed", range(10))
def test_a_direction_that_no_square_sees(seed):
    g = np.random.default_rng(seed)
    X, w = g.standard_normal((3, 5)), vo.Variable(5)
    assert vo.minimize(vo.sum_squares(X @ w - 1) + g.standard_normal(5) @ w).status is Status.UNBOUNDED


UNITS = {
    "quantile": lambda X, y, t, w, b: vo.sum(vo.pinball(y - X @ w - b, 0.7)),
    "svm": lambda X, y, t, w, b: 0.5 * vo.sum_squares(w) + 3 * vo.sum(vo.hinge(t * (X @ w + b))),
    "lasso": lambda X, y, t, w, b: vo.sum_squares(y - X @ w - b) + 10 * vo.norm1(w),
    "huber": lambda X, y, t, w, b: vo.sum(vo.huber(y - X @ w - b)),
    "form": lambda X, y, t, w, b: vo.quad_form(w, X.T @ X) - y[:5] @ w + vo.norm1(w),
    "group": lambda X, y, t, w, b: vo.sum_squares(y - X @ w) + vo.norm2(w),
}


@pytest.mark.parametrize("factor", [1e-15, 1e15])
@pytest.mark.parametrize("name", UNITS)
def test_a_change_of_units_changes_nothing_but_the_units(name, factor, rng):
    X = rng.standard_normal((100, 5))
    y = X @ rng.standard_normal(5) + rng.standard_t(2, 100)
    f = UNITS[name](X, y, np.sign(y), vo.Variable(5), vo.Variable())
    plain, other = vo.minimize(f), vo.minimize(factor * f)
    assert plain.status is other.status is Status.OPTIMAL
    np.testing.assert_allclose(other.x, plain.x, rtol=1e-9, atol=1e-12)
    assert other.fun == pytest.approx(factor * plain.fun, rel=1e-12, abs=0.0)
    assert other.gap <= 1e-9 * abs(other.fun)


def test_a_small_objective_is_not_solved_to_an_absolute_gap(rng):
    X, y, w = rng.standard_normal((60, 4)), rng.standard_normal(60), vo.Variable(4)
    stopped = vo.minimize(1e-15 * vo.norm1(y - X @ w), method="lbfgs", time_limit=0.02)
    assert stopped.gap <= 1e-9 * abs(stopped.fun) or stopped.status is not Status.OPTIMAL


# -- Steep rows and norms beside gentle ones: the rounding of the value itself -----------------------------------------


def exact_value(weights, X, offset, w0, x):
    """``sum weights pos(X x + offset) + |x - w0|^2`` in rational numbers."""
    x = [Fraction(float(v)) for v in x]
    rows = (sum(Fraction(float(a)) * v for a, v in zip(row, x, strict=True)) for row in X)
    z = [row + Fraction(float(d)) for row, d in zip(rows, offset, strict=True)]
    losses = sum(Fraction(float(c)) * max(v, Fraction(0)) for c, v in zip(weights, z, strict=True))
    return losses + sum((v - Fraction(float(c))) ** 2 for v, c in zip(x, w0, strict=True))


@pytest.mark.parametrize(("steepness", "copies"), [(1e7, 16), (1e3, 1)])
@pytest.mark.parametrize("seed", [13, 57, 58])
def test_steep_rows_behind_many_gentle_ones(seed, steepness, copies):
    """No bracket leaves out the exact value at its own point."""
    rng = np.random.default_rng(seed)
    a = rng.integers(1, 9, 4).astype(float)
    a[-1] *= -1.0
    w0 = rng.standard_normal(4)
    w0[3] = -(a[:3] @ w0[:3]) / a[3]
    d = 2.0 ** np.round(np.log2(0.2 / steepness))
    X = np.vstack([np.tile(np.eye(4), (copies, 1)), a, -3.0 * a])
    offset = np.concatenate([np.full(4 * copies, -50.0), [d, 3.0 * d]])
    weights = np.concatenate([np.ones(4 * copies), [3.0 * steepness, steepness]])
    w = vo.Variable(4)
    r = vo.minimize(vo.sum(weights * vo.pos(X @ w + offset)) + vo.sum_squares(w - w0))
    exact = exact_value(weights, X, offset, w0, r.x)
    assert Fraction(r.lower) <= exact <= Fraction(r.upper)


def test_a_steep_norm():
    G = np.array([[-1.0, -0.8, -0.2, 0.7], [0.9, -0.7, -0.6, -0.8]])
    x0 = np.array([0.9852155828581877, 0.1787134291183962, 1.006856770707084, 0.9591848586745111])
    v = vo.Variable(4)
    r = vo.minimize(1e11 * vo.norm2(G @ v) + vo.sum_squares(v + x0))
    with mpmath.workdps(50):
        x, rows = [mpmath.mpf(float(c)) for c in r.x], [[mpmath.mpf(float(g)) for g in row] for row in G]
        z = [mpmath.fsum(g * c for g, c in zip(row, x, strict=True)) for row in rows]
        squares = mpmath.fsum((c + mpmath.mpf(float(o))) ** 2 for c, o in zip(x, x0, strict=True))
        exact = mpmath.mpf(1e11) * mpmath.sqrt(mpmath.fsum(c * c for c in z)) + squares
    assert r.lower <= exact <= r.upper


def test_what_falls_for_ever_does_not_stay_with_another_objective():
    w = vo.Variable(2)
    r = vo.minimize(vo.sum(vo.pos(w)) + np.array([1.0, -3.0]) @ w)
    assert r.status is Status.UNBOUNDED
    assert vo.minimize(vo.sum_squares(w - 1.0) + vo.norm1(w), resume=r).status is Status.OPTIMAL


# -- Blocks of zeros, other methods, exceptions, clocks ----------------------------------------------------------------


@pytest.mark.parametrize("line", [0.1, 0.0, -0.1])
@pytest.mark.parametrize("method", ["auto", "interior-point"])
def test_rows_of_zeros_say_nothing_of_x(method, line):
    w = vo.Variable(1)
    f = vo.norm1(w - 1.0) + vo.norm1(0.6 - sp.csr_array((1, 1)) @ w) + line * w[0]
    r = vo.minimize(f, method=method)
    assert r.status is Status.OPTIMAL
    assert r.fun == pytest.approx(0.6 + line)
    assert r.x == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4])
def test_empty_rows_among_others(scale, rng):
    X = np.where(rng.random((30, 5)) < 0.3, rng.standard_normal((30, 5)), 0.0)
    X[::3] = 0.0
    w = vo.Variable(5)
    y = scale * rng.standard_normal(30)
    r = vo.minimize(vo.sum(vo.pinball(y - sp.csr_array(X) @ w, 0.3)) + 0.1 * vo.norm1(w))
    dense = vo.minimize(vo.sum(vo.pinball(y - X @ w, 0.3)) + 0.1 * vo.norm1(w))
    assert r.status is dense.status is Status.OPTIMAL
    assert r.fun == pytest.approx(dense.fun, rel=1e-8)


def test_dense_methods_go_on_where_interior_points_leave_a_gap(monkeypatch, rng):
    """Whatever stops the interior points: others close the gap."""
    monkeypatch.setattr("varopt.solvers.interior_point._interior_point._STALLED_INTERIOR_STEPS", 0)
    monkeypatch.setattr("varopt.solvers.interior_point._interior_point._CROSSOVER_VARIABLES", 0)
    X = sp.random_array((60, 10), density=0.3, rng=rng, format="csr")
    w = vo.Variable(10)
    r = vo.minimize(vo.norm1(rng.standard_normal(60) - X @ w) + 0.1 * vo.norm1(w), method="interior-point")
    assert r.method.startswith("interior-point > ")
    assert r.status is Status.OPTIMAL


UNBOUNDED = {
    "hinge": lambda X, w, b: vo.sum(vo.hinge(X @ w + b)) - float(len(X)) * b,
    "pos": lambda X, w, b: vo.sum(vo.pos(X @ w - 1.0)) - 10.0 * len(X) * w[0],
    "pinball": lambda X, w, b: vo.sum(vo.pinball(X @ w + b - 1.0, 0.3)) + 5.0 * len(X) * w[1],
    "norm": lambda X, w, b: vo.norm2(X @ w) - 100.0 * len(X) * w[0],
    "norm of some": lambda X, w, b: vo.norm2(w[:5]) + vo.norm1(X[:, :5] @ w[:5]) + 0.01 * b,
}


@pytest.mark.parametrize("kind", UNBOUNDED)
@pytest.mark.parametrize("rows", [20, 2000])
def test_unbounded_problems_are_seen_on_the_way(kind, rows, rng):
    """Large ones by the direction that a run takes, which is checked: no linear programme of all rows."""
    X, w, b = rng.standard_normal((rows, 20)), vo.Variable(20), vo.Variable()
    r = vo.minimize(UNBOUNDED[kind](X, w, b), time_limit=20.0)
    assert r.status is Status.UNBOUNDED
    assert r.lower == -np.inf


def test_directions_are_checked_with_their_rounding():
    w = vo.Variable(2)
    d = np.array([1.0, 1.0])
    assert not falls_along((vo.norm1(w) - w[0] - w[1]).checked, d)  # exactly level
    assert falls_along((vo.norm1(w) - w[0] - (1.0 + 2.0**-40) * w[1]).checked, d)
    assert not falls_along((vo.norm1(w) - w[0] - (1.0 - 2.0**-40) * w[1]).checked, d)
    assert not falls_along((vo.sum_squares(w) - 100.0 * w[0]).checked, d)  # which curves
    assert falls_along((vo.sum_squares(w[:1]) - w[1]).checked, np.array([0.0, 1.0]))
    assert not falls_along((vo.norm2(w) - w[0]).checked, np.array([1.0, 0.0]))
    assert not falls_along((vo.norm1(w) - 3.0 * w[0]).checked, np.array([np.nan, 1.0]))
    assert not falls_along((vo.norm1(w) - 3.0 * w[0]).checked, np.zeros(2))


def test_conjugate_gradients_where_nothing_holds_a_direction():
    solver = ConjugateGradients(None, [sp.csr_array(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))])
    with np.errstate(all="ignore"):  # as where it is called
        solver.prepare([np.zeros(2)], 0.0)
        x, moves = solver.solve(np.ones(3), [np.zeros(2)])
    assert x.shape == (3,)
    assert moves[0].shape == (2,)


@pytest.mark.parametrize("method", ["multipliers", "auto"])
def test_only_variables_without_a_ridge(method, rng):
    """No variable has a ridge but those that no row sees: empty matrices on the way."""
    w, b = vo.Variable(3), vo.Variable()
    X = sp.csr_array((6, 3))
    y = rng.standard_normal(6)
    f = vo.sum_squares(w) + vo.sum(vo.hinge(y * (X @ w + b))) + 0.1 * vo.sum_squares(b - 1.0)
    assert vo.minimize(f, method=method).status is Status.OPTIMAL


def test_what_long_doubles_hold_is_not_lost():
    w = vo.Variable(3)
    r = vo.minimize(vo.quad_form(w, np.eye(3).astype(np.longdouble)) + vo.norm1(w - 1.0))
    assert r.fun == pytest.approx(2.25)
    with pytest.raises(ValueError, match="not given as a matrix"):
        vo.minimize(vo.norm1(np.ones((4, 3)) @ w - 1.0), method="low-rank")


def test_clocks_inside_levels():
    """A deadline that has passed stops whatever looks at it, and what would end too late is not begun."""
    with deadline(1000.0):
        tick(1e9)
        with pytest.raises(TimeUp):
            tick(1e14)
        with deadline(-1.0), pytest.raises(TimeUp):
            tick()
        tick()
    tick(1e300)


def test_levels_of_hardly_more_than_squares_look_at_the_clock(rng):
    """Their steps are factors of a matrix, however few rows there are beside it."""
    w = vo.Variable(160)
    problem = composite(vo.sum_squares(rng.standard_normal((200, 160)) @ w - 1.0) + vo.abs(w[0]))
    bound = CompositeBound(problem, np.zeros(160), RowNoise(1.0, [np.ones(1)]))
    with deadline(-1.0), pytest.raises(TimeUp):
        descend(bound)
    assert descend(bound)[1] >= 1


def test_budgets_are_of_processor_time():
    """What a run allows its own parts does not shrink while others compute; a user's deadline holds all the same."""
    with budget(0.02):
        time.sleep(0.1)
        tick()
        with deadline(-1.0), pytest.raises(TimeUp):
            tick()
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
        with pytest.raises(TimeUp):
            tick()
    tick()


LONG = {
    "scad": lambda X, y, w: 0.5 * vo.sum_squares(y - X @ w) + 200.0 * vo.sum(vo.scad(w, 1.0, 3.7)),
    "mcp of absolute errors": lambda X, y, w: vo.norm1(y - X @ w) + 200.0 * vo.sum(vo.mcp(w, 1.0, 3.0)),
    "ramp": lambda X, y, w: 0.5 * vo.sum_squares(w) + vo.sum(vo.ramp(np.sign(y) * (X @ w))),
    "pinball": lambda X, y, w: vo.sum(vo.pinball(y - X @ w, 0.3)),
}


@pytest.mark.parametrize("kind", LONG)
def test_time_limits_hold_inside_levels(kind, rng):
    """Told by the steps that were taken: a busy machine has no say in it."""
    X = rng.standard_normal((4000, 150))
    y = X[:, :10] @ rng.standard_normal(10) + rng.standard_normal(4000)
    r = vo.minimize(LONG[kind](X, y, vo.Variable(150)), time_limit=1e-3)
    assert r.status is Status.TIME_LIMIT
    assert r.state.steps <= 50
    assert r.lower <= r.upper


@pytest.mark.parametrize("name", vo.solvers.METHODS)
def test_steps_beside_norms_are_refused_in_a_sentence(name):
    """A jump is no kink, whoever asks for the kinks of single variables."""
    w = vo.Variable(3)
    with pytest.raises(ValueError, match=r"not known to be convex|norms"):
        vo.minimize(vo.sum(vo.step(w - 0.5)) + vo.norm2(w - 1.0), method=name)


def test_norms_of_single_entries_are_proved_as_the_absolute_values_they_are():
    """Their subgradients are those of rows: taken for those of norms, they prove nothing."""
    w = vo.Variable(3)
    f = vo.sum(vo.huber(w + np.array([2.1, 1.4, -1.6]), 2.7)) + vo.norm2(w + np.array([0.2, 0.7, -1.4]), groups=1)
    f = f + vo.sum(vo.squared_hinge(np.array([[0.0, 0.0, 0.0], [-0.2, -1.3, 0.1], [-0.5, 0.6, 1.4]]) @ w))
    same = vo.sum(vo.huber(w + np.array([2.1, 1.4, -1.6]), 2.7)) + vo.norm1(w + np.array([0.2, 0.7, -1.4]))
    same = same + vo.sum(vo.squared_hinge(np.array([[0.0, 0.0, 0.0], [-0.2, -1.3, 0.1], [-0.5, 0.6, 1.4]]) @ w))
    r, s = vo.minimize(f), vo.minimize(same)
    assert r.status is s.status is Status.OPTIMAL
    assert r.fun == pytest.approx(s.fun, rel=1e-12)


def test_a_norm_that_a_row_of_zeros_keeps_from_zero_is_proved():
    """What the method tells of it proves nothing, and what its point tells does."""
    A = np.array([[0.0, 0.0, 0.0], [0.0, -1.0, 1.0], [0.0, -2.0, 0.0], [-2.0, 0.0, -1.0]])
    d = np.array([-0.882434027348981, -0.09984704101241113, -1.0184084642123983, -0.11196867230095794])
    r = vo.minimize(0.59 * vo.norm2(A @ vo.Variable(3) + d))
    assert r.status is Status.OPTIMAL
    assert r.fun == pytest.approx(-0.59 * d[0], rel=1e-12)


def test_parts_at_zero_whose_own_numbers_cancel_are_closed():
    w, b = vo.Variable(1), vo.Variable()
    f = 5.27 * vo.sum(vo.pinball(w + b, 0.94)) + 3.02 * vo.sum(vo.huber(-1.0 * w, 0.47)) + vo.sum(vo.hinge(w + 1.0))
    r = vo.minimize(f + 0.0039 * vo.sum_squares(w) + vo.sum(vo.pinball(w, 0.14)))
    assert r.status is Status.OPTIMAL
    assert abs(r.fun) <= 1e-15


@pytest.mark.parametrize(("share", "falls"), [(0.999, False), (1.001, True)])
@pytest.mark.parametrize("seed", range(4))
def test_norms_bear_a_slope_up_to_their_own(seed, share, falls):
    """``|A w + d| - share v'A w`` with v of length one falls for ever just if the share is above one.

    But for the rounding of v'A, five numbers of which three are free: what is bounded rests on an assumption.
    """
    rng = np.random.default_rng(seed)
    A, d, v, w = rng.standard_normal((3, 5)), rng.standard_normal(3), rng.standard_normal(3), vo.Variable(5)
    r = vo.minimize(vo.norm2(A @ w + d) - share * ((A.T @ (v / np.linalg.norm(v))) @ w))
    assert r.status is (Status.UNBOUNDED if falls else Status.ASSUMED)
    assert np.isfinite(r.lower) != falls


def test_steep_norms_do_not_hide_the_directions_that_they_do_not_see():
    A, w = np.array([[1.0, 0.01, 0.0, 1.0], [0.0, 0.01, -2.0, 0.0], [0.0, 0.01, -2.0, 0.0]]), vo.Variable(4)
    steep = 1e7 * vo.norm2(A @ w + np.array([-0.0008, 0.0007, -0.0006]))
    assert vo.minimize(steep + np.array([5.4e-11, 1.7e-11, -1.2e-10, -7.3e-11]) @ w).status is Status.UNBOUNDED
    assert vo.minimize(steep).fun == pytest.approx(1e7 * 0.0013 / np.sqrt(2.0), rel=1e-9)


def test_a_form_that_rounding_makes_curve_down_is_unbounded_where_a_slope_goes_with_it():
    """An outer product in double precision has eigenvalues of about 1e-17 on either side of zero."""
    row, w = np.array([0.3, 0.3, -1.1, 2.0]), vo.Variable(4)
    Q = np.outer(row, row)
    assert vo.minimize(1e-3 * vo.quad_form(w, Q) + np.array([-2e7, -1e7, 0.0, 0.0]) @ w).status is Status.UNBOUNDED
    assert vo.minimize(vo.quad_form(w, Q) + vo.norm1(w - 1.0)).status is Status.ASSUMED


def test_a_steep_row_that_is_flat_on_one_side_does_not_hide_a_faint_slope():
    """Along (1, 1) the square rests, both hinges are zero, and a slope of 1e-12 beside weights of 1e12 is all."""
    w = vo.Variable(2)
    f = 1e12 * vo.sum(vo.square(vo.diff(w))) + 1e9 * vo.sum(vo.hinge(w)) + np.array([-1.7e-12, 1.0e-12]) @ w
    direction = falls_for_ever(f)
    assert direction is not None
    assert direction[0] == direction[1] > 0.0
    assert vo.minimize(f).status is Status.UNBOUNDED
    assert falls_for_ever(f + 1e-12 * vo.sum(vo.pos(w - 1e30))) is None


@pytest.mark.parametrize("name", ["step", "zero_one", "ramp", "capped_abs", "mcp", "scad", "clip", "dead_zone"])
@pytest.mark.parametrize("weights", [np.zeros(3), 0.0], ids=["of rows", "one"])
def test_terms_of_no_weight_are_convex_whatever_they_are(name, weights):
    w = vo.Variable(3)
    nothing = vo.sum(weights * getattr(vo, name)(w))
    assert vo.minimize(nothing).status is Status.OPTIMAL
    r = vo.minimize(nothing + vo.sum_squares(w - 1.0) + vo.norm1(w))
    assert r.status is Status.OPTIMAL
    np.testing.assert_allclose(r.x, 0.5)


def test_the_gap_of_a_row_without_a_weight_counts_for_nothing():
    """It may be infinite: a scaled dual was NaN, and warned of it."""
    problem = random_problem(np.random.default_rng(1110080016), extreme=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = vo.minimize(problem.build(), method="working-set", time_limit=10.0)
    assert r.lower <= problem.value(r.x)[0]


def test_data_without_squares_need_no_word_of_it():
    """Folds of X * 1e200 with rows of zeros: the squares of the one times the weights of the others."""
    rng = np.random.default_rng(1140050046)
    X = rng.standard_normal((35, 3))
    y = X @ rng.standard_normal(3) + rng.standard_t(2, 35)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        m = learn.QuantileRegressorCV(alphas=3, cv=2).fit(1e200 * np.round(X), np.round(y))
    assert m.lower_bound_ <= m.objective_ <= m.lower_bound_ * (1.0 + 1e-9)


HUGE = {
    "squares": lambda X, w: vo.sum_squares(X @ w - 1.0) + vo.norm1(w - 1.0),
    "squared hinges": lambda X, w: vo.sum(vo.squared_hinge(X @ w - 1.0)) + vo.norm1(w),
    "absolute errors": lambda X, w: vo.norm1(X @ w - 1.0) + vo.sum_squares(w),
    "huber": lambda X, w: vo.sum(vo.huber(X @ w - 1.0)) + vo.norm2(w),
    "scad": lambda X, w: vo.sum(vo.scad(X @ w - 1.0)) + vo.norm1(w),
}


@pytest.mark.parametrize("kind", HUGE)
@pytest.mark.parametrize("scale", [1e100, 1e160, 1e250, 1e307])
def test_numbers_whose_products_overflow_are_no_exception(kind, scale, rng):
    """Whatever method takes it, the bracket holds at its own point and at zero, and no warning tells of overflow."""
    f = HUGE[kind](scale * rng.standard_normal((9, 3)), vo.Variable(3))
    form = composite(f)
    for name in ("auto", *(name for name, way in vo.solvers.METHODS.items() if not way.refusal(form))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            r = vo.minimize(f, method=name, time_limit=0.2)
        assert np.all(np.isfinite(r.x))
        assert not r.lower > f(np.zeros(3))
        assert r.lower <= r.upper


@pytest.mark.parametrize("weight", [5e-324, 1e-320, 1e-310])
def test_denormal_weights_are_no_exception(weight):
    """What is one over them overflows: interior points divided by zero."""
    A = np.array(
        [
            [2.3, 0.0, -0.1, -0.1, 1.8, -0.1],
            [0.2, -1.5, 0.9, 0.6, 0.4, 0.6],
            [-1.5, -1.0, 1.6, 0.3, -0.2, 0.5],
            [0.5, -1.1, 0.7, 0.0, -0.9, -1.1],
            [-0.1, 0.3, 0.5, 0.8, 0.9, 0.0],
            [-1.4, -0.8, 0.9, -1.1, 1.4, -0.5],
        ]
    )
    w = vo.Variable(6)
    f = 1e-6 * vo.sum(vo.pos(A @ w - [-0.8, 1.1, 0.8, -0.1, -1.2, 0.7]))
    f = f + weight * vo.sum(vo.huber(np.array([[0.0, 0.0, 2.0, 0.0, 1.0, 1.0]]) @ w + 2.0, 0.7))
    for method in ("auto", "interior-point"):
        r = vo.minimize(f, method=method)
        assert r.status is Status.OPTIMAL
        assert r.lower <= 0.0 <= r.upper


@pytest.mark.parametrize("between", [1e-9, 1e-12])
def test_what_every_cell_assumes_is_in_the_status(between):
    """Two points of different classes so near each other that no cell is seen between them: an error too many."""
    X = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [0.5 + between, 0.5 + between], [1.0, 1.0], [0.0, 0.0]])
    t = np.array([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])
    w, b = vo.Variable(2), vo.Variable()
    f = vo.sum(vo.zero_one(t * (X @ w + b)))
    assert f(np.array([-1.0, -1.0, 1.0 + between])) == 0.0
    r = vo.minimize(f)
    assert r.status.name == ("ASSUMED" if r.certificate.assumption else "OPTIMAL")
    assert r.lower == 0.0 or r.certificate.assumption


def test_a_relaxation_that_assumes_a_nearby_optimum_is_in_the_status():
    w = vo.Variable(2)
    f = 2.0**16 * vo.sum(vo.zero_one(w)) + 2.0**-16 * vo.norm_inf(w - np.array([-7e-4, -5e-3]))
    r = vo.minimize(f)
    assert r.status.name != "OPTIMAL" or not r.certificate.assumption


def test_an_interrupt_before_there_is_a_point_says_so(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("varopt.optimize._minimize._admissible", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        vo.minimize(vo.norm1(vo.Variable(2)))
    assert "before it had a point" in caught.value.__notes__[0]


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_parts_that_are_never_negative_are_proved_to_rest_at_zero(unit):
    """At zero there is no unit but the value itself; proofs of norms left a lower bound of -1e-36 beside it."""
    rng, w = np.random.default_rng(0), vo.Variable(5)
    inside = 1e-5 * rng.standard_normal((5, 5)) @ w + 1e-4 * np.arange(5.0)
    f = 0.5 * vo.norm2(w) ** 2 + 2e-6 * vo.sum(vo.pos(vo.abs(inside) - 1.0)) + 0.001 * vo.norm2(w)
    r = vo.minimize(unit * f)
    assert r.status.name == "OPTIMAL"
    assert r.lower == 0.0
    # Linear parts that cancel but for rounding are no such case: this falls along the second of them.
    falls = vo.norm2(vo.diff(w)) + 1e16 * vo.sum(w) - 0.3 * vo.sum(w) - 1e16 * vo.sum(w)
    assert vo.minimize(falls).status.name != "OPTIMAL"


POWERS = {
    "at rest": (lambda w: vo.sum((w - 1.0) ** 4), 0.0),
    "at rest where rounding is none": (lambda w: vo.sum(w**6), 0.0),
    "a cube of sizes": (lambda w: vo.sum(vo.abs(w) ** 3), 0.0),
    "beside a line": (lambda w: vo.sum(w**4) + vo.sum(w), -2 * 3 / 4 ** (4 / 3)),
}


@pytest.mark.parametrize("name", POWERS)
def test_no_bracket_has_an_end_without_a_number(name):
    """Of terms beyond the second degree the value is enclosed, too: inf less anything was within any tolerance."""
    make, optimum = POWERS[name]
    r = vo.minimize(make(vo.Variable(2)))
    assert r.lower <= optimum <= r.upper < np.inf
    assert r.status not in CLAIMS or r.gap <= 1e-9
    assert "nan" not in r.message
    assert "inf" not in r.message
