"""Objectives that are not convex: exact lines, exact cells, and what a user gets from `minimize`."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

import varopt as vo
from fuzz.problems import random_problem
from varopt import terms
from varopt.certificates import Exhaustive, Relaxation
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import Geometric, Graduated
from varopt.solvers.nonconvex._envelope import enclosure  # flat directions
from varopt.solvers.nonconvex._hyperplane_arrangement import arrangement  # all cells against enumeration
from varopt.solvers.nonconvex._line_minimum import RowsOnLine, best_step  # minima along lines against a grid
from varopt.solvers.nonconvex._relaxation import (  # majorants and minorants against the objective
    canonical,
    convex_part,
    majorant,
    relaxation,
)
from varopt.solvers.nonconvex._run import _spread  # the covariance against its definition

QUICK = Graduated(starts=2, effort=0.1, schedule=Geometric(2.0, 0.3))


def errors(X, t, w, b):
    return vo.sum(vo.zero_one(t * (X @ w + b)))


# -- Along a line -----------------------------------------------------------------------------------------------------

LINE_TERMS = {
    "zero_one": terms.zero_one(),
    "step": terms.step(),
    "ramp": terms.ramp(),
    "mcp": terms.mcp(1.0, 3.0),
    "scad": terms.scad(1.0, 3.7),
    "capped_abs": terms.capped_abs(0.7),
    "abs": terms.abs_(),
    "cubic pieces": terms.piecewise([0.0, 1.0], [[0.0, -1.0, 0.0, -0.2], [0.0, 0.0, 3.0, -1.0], [2.0, 1.0, 0.0, 0.3]]),
}


@pytest.mark.parametrize("name", LINE_TERMS)
def test_the_step_along_a_line_beats_a_fine_grid(name, rng):
    term = LINE_TERMS[name]
    grid = np.linspace(-60.0, 60.0, 60_001)
    for trial in range(12):
        n = int(rng.integers(1, 30))
        z, speed, weights = rng.normal(size=n), rng.normal(size=n), rng.random(n) + 0.1
        slope, bend = (0.0, 0.0) if trial % 2 and name != "cubic pieces" else (rng.normal(), rng.random() + 0.1)
        step = best_step(slope, bend, [RowsOnLine(term, weights, z, speed)])

        def along(t, slope=slope, bend=bend, z=z, speed=speed, weights=weights):
            return slope * t + 0.5 * bend * t**2 + weights @ term.value(z[:, None] + np.outer(speed, t))

        values = along(np.append(grid, [0.0, step.length]))
        assert values[-1] - values[-2] == pytest.approx(step.change, abs=1e-9)
        assert values[-1] <= values[:-2].min() + 1e-6


def test_a_line_that_falls_for_ever_is_seen():
    still = RowsOnLine(terms.ramp(), np.ones(3), np.zeros(3), np.ones(3))
    assert best_step(-1.0, 0.0, [still]).change == -np.inf
    assert best_step(0.0, -1.0, [still]).change == -np.inf
    assert np.isfinite(best_step(0.0, 1.0, [still]).change)


# -- Convex problems above and below ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ramp", "mcp", "scad", "capped_abs", "abs"])
def test_a_term_is_its_convex_part_and_a_concave_rest(name):
    term = LINE_TERMS[name]
    convex = convex_part(term)
    assert convex.curvature.is_convex
    z = np.linspace(-9.0, 9.0, 1801)
    rest = term.value(z) - convex.value(z)
    assert np.all(rest[2:] + rest[:-2] - 2.0 * rest[1:-1] <= 1e-12)


def test_the_majorant_touches_from_above_and_the_relaxation_lies_below(rng):
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    w = vo.Variable(3)
    f = (
        vo.sum(vo.capped_abs(y - X @ w)) + vo.sum(vo.pinball(y - X @ w, 0.2)) - 0.1 * vo.sum(vo.mcp(w))
        + vo.quad_form(w, np.diag([1.0, 0.5, -0.1])) + np.ones(3) @ w
    )  # fmt: skip
    problem = canonical(composite(f))
    for _ in range(20):
        x, y = rng.normal(size=(2, 3)) * 3.0
        above = majorant(problem, x, problem.positions(x))
        assert above.value(x) == pytest.approx(f(x), rel=1e-12)
        assert above.value(y) >= f(y) - 1e-9
    assert relaxation(problem) is None  # bends down for ever
    bounded = canonical(composite(f + vo.quad_form(w, 0.2 * np.eye(3))))
    below = relaxation(bounded)
    points = 10.0 * rng.normal(size=(50, 3))
    assert all(below.value(x) <= bounded.value(x) + 1e-9 for x in points)


# -- Sums of steps: all cells -----------------------------------------------------------------------------------------


def fewest_errors_in_the_plane(X, t):
    """By all directions between critical ones (normal to a difference of two points), and all thresholds."""
    i, j = np.triu_indices(len(X), 1)
    difference = X[i] - X[j]
    difference = difference[np.any(difference != 0.0, axis=1)]
    critical = np.unique(np.round(np.mod(np.arctan2(difference[:, 0], -difference[:, 1]), np.pi), 12))
    critical = np.append(critical, critical[:1] + np.pi) if critical.size else np.array([0.0, 1.0])
    fewest = min(np.sum(t > 0), np.sum(t < 0))
    for angle in 0.5 * (critical[1:] + critical[:-1]):
        score = X @ [np.cos(angle), np.sin(angle)]
        levels = np.unique(np.round(score, 10))
        for threshold in 0.5 * (levels[1:] + levels[:-1]):
            wrong = int(np.sum(np.where(score > threshold, 1.0, -1.0) != t))
            fewest = min(fewest, wrong, len(X) - wrong)
    return fewest


def test_rows_without_a_weight_leave_the_relaxation_alone():
    """Nothing times a term that has no least value is nothing, and no warning."""
    w = vo.Variable(2)
    f = vo.sum(np.array([0.3, 0.0]) * vo.dead_zone(w, 0.67)) + vo.norm1(w - 1.0)
    with np.errstate(all="raise"):
        relaxed = relaxation(composite(f))
    assert relaxed is None or relaxed.value(np.ones(2)) <= f.at(np.ones(2))


@pytest.mark.parametrize("kind", ["plain", "integers", "duplicates", "on a line"])
def test_zero_one_loss_in_the_plane_is_solved_and_proved(kind):
    for seed in range(6):
        g = np.random.default_rng([seed, len(kind)])
        X, t = g.normal(size=(14, 2)), np.where(g.random(14) < 0.5, 1.0, -1.0)
        if kind == "integers":
            X = np.round(1.5 * X)
        if kind == "duplicates":
            X[7:] = X[:7]
        if kind == "on a line":
            X[:, 1] = 2.0 * X[:, 0] + 1.0
        w, b = vo.Variable(2), vo.Variable()
        f = errors(X, t, w, b)
        r = vo.minimize(f, method=QUICK)
        assert r.fun == f(r.x) == fewest_errors_in_the_plane(X, t)
        assert r.status is (Status.ASSUMED if r.certificate.assumption else Status.OPTIMAL)
        assert isinstance(r.certificate, (Exhaustive, Relaxation))


@pytest.mark.parametrize("integers", [False, True])
def test_cells_agree_with_the_separable_dichotomies(integers):
    for seed in range(4):
        g = np.random.default_rng(seed)
        n, p = 7, 3
        X, t = g.normal(size=(n, p)), np.where(g.random(n) < 0.5, 1.0, -1.0)
        if integers:
            X = np.round(X)
        w, b = vo.Variable(p), vo.Variable()
        f = errors(X, t, w, b)

        def separable(signs, X=X, n=n, p=p):
            rows = np.column_stack([X, np.ones(n)]) * -np.asarray(signs)[:, None]
            program = scipy.optimize.linprog(np.zeros(p + 1), A_ub=rows, b_ub=-np.ones(n), bounds=(None, None))
            return program.status == 0

        dichotomies = sorted(itertools.product([1.0, -1.0], repeat=n), key=lambda s: np.sum(np.asarray(s) != t))
        best = next(s for s in dichotomies if separable(s))
        value, x = arrangement(canonical(composite(f))).optimum()
        assert value == np.sum(np.asarray(best) != t) == f(x)


def test_cells_with_offsets_weights_and_several_knots(rng):
    # A line: the optimum by looking between all knots.
    for _ in range(8):
        a, d, weights = rng.normal(size=9), rng.normal(size=9), rng.random(9)
        x = vo.Variable()
        stairs = vo.piecewise(a * x + d, knots=[-0.5, 0.4], pieces=[[0.0], [1.0], [1.5]])
        f = weights @ stairs + 0.7 * vo.sum(vo.zero_one(a * x))
        knots = np.sort(np.concatenate([(t - d) / a for t in (-0.5, 0.4)] + [np.zeros(1)]))
        middles = np.concatenate([[knots[0] - 1.0], 0.5 * (knots[1:] + knots[:-1]), [knots[-1] + 1.0]])
        best = min(f([m]) for m in middles)
        value, point = arrangement(canonical(composite(f))).optimum()
        assert value == pytest.approx(best, abs=1e-12)
        assert f(point) == pytest.approx(best, abs=1e-12)


def test_what_is_lowest_on_a_knot_has_no_cells():
    x = vo.Variable()
    both = vo.sum(vo.step(x)) + vo.sum(vo.step(-x))  # 1 but at zero, where it is 2: open cells hold the infimum
    assert arrangement(canonical(composite(both))) is not None
    assert arrangement(canonical(composite(-both))) is None
    assert vo.minimize(-1.0 * both, method=QUICK).fun <= -1.0


@pytest.mark.parametrize(("name", "fewest"), [("voicepath_data.csv", 19), ("haberman.data", 66)])
def test_published_optima_are_reached_and_proved(name, fewest, shared_data):
    data = np.loadtxt(shared_data / "zero_one" / name, delimiter=",")
    X, t = data[:, :-1], np.where(data[:, -1] == data[:, -1].max(), 1.0, -1.0)
    w, b = vo.Variable(X.shape[1]), vo.Variable()
    r = vo.minimize(errors(X, t, w, b))
    assert r.fun == r.lower == fewest == np.sum(t * (X @ r[w] + r[b]) <= 0.0)
    assert isinstance(r.certificate, Exhaustive)


def test_the_fewest_errors_of_the_blood_data_are_proved_where_there_is_time():
    """Planes through all pairs of donors, turned around their lines in whole numbers, make 151 errors at least.

    The time limit is far above what the proof takes.
    """
    data = np.loadtxt(Path(__file__).parent / "blood_transfusion.csv", delimiter=",")
    X, t = data[:, [0, 1, 1, 2]] * [1.0, 1.0, 250.0, 1.0], 2.0 * data[:, 3] - 1.0
    w, b = vo.Variable(4), vo.Variable()
    r = vo.minimize(errors(X, t, w, b), method=Graduated(effort=np.inf), time_limit=600.0)
    assert r.fun == r.lower == 151 == np.sum(t * (X @ r[w] + r[b]) <= 0.0)
    assert isinstance(r.certificate, Exhaustive)


def test_units_of_the_columns_do_not_matter(rng):
    X = np.column_stack([rng.normal(size=40), 60.0 + 3.0 * rng.normal(size=40)])
    t = np.where(X @ [1.0, 0.5] - 30.0 + rng.normal(size=40) > 0.0, 1.0, -1.0)
    w, b = vo.Variable(2), vo.Variable()
    found = [vo.minimize(errors(X * scale, t, w, b), method=QUICK).fun for scale in ([1.0, 1.0], [1e4, 1e-3])]
    assert found[0] == found[1] == fewest_errors_in_the_plane(X, t)


# -- Where no proof is to be had --------------------------------------------------------------------------------------


def test_search_among_many_cells_does_better_than_the_truth(rng):
    X = rng.normal(size=(150, 8))
    truth = rng.normal(size=8)
    t = np.sign(X @ truth)
    t[:12] *= -1.0
    w, b = vo.Variable(8), vo.Variable()
    r = vo.minimize(errors(X, t, w, b), method=Graduated(starts=3, effort=0.3))
    assert r.fun <= 12
    assert (r.status, r.lower) == (Status.LOCAL, 0.0)
    assert isinstance(r.certificate, Relaxation)
    assert r.gap == r.fun


def mcp_by_coordinates(H, c, w, lam, gamma):
    """Coordinate descent on ``w'Hw/2 - c'w + sum mcp(w)`` with the closed form of one coordinate (firm threshold)."""
    for _ in range(500):
        before = w.copy()
        for j in range(w.size):
            pull, a = c[j] - H[j] @ w + H[j, j] * w[j], H[j, j]
            inside = np.sign(pull) * max(abs(pull) - lam, 0.0) / (a - 1.0 / gamma)
            w[j] = inside if abs(inside) <= gamma * lam else pull / a
        if np.abs(w - before).max() < 1e-12:
            break
    return w


def test_mcp_is_as_low_as_the_best_of_many_local_searches():
    for seed in range(2):
        g = np.random.default_rng(seed)
        X = g.normal(size=(40, 25)) @ (np.eye(25) + 0.3)
        y = X[:, :3] @ [1.0, -1.0, 1.0] + 0.5 * g.normal(size=40)
        X = X / np.sqrt((X**2).mean(axis=0))
        w = vo.Variable(25)
        f = vo.sum_squares(y - X @ w) / 80.0 + vo.sum(vo.mcp(w, 0.2, 3.0))
        H, c = X.T @ X / 40.0, X.T @ y / 40.0
        rivals = [f(mcp_by_coordinates(H, c, g.normal(size=25), 0.2, 3.0)) for _ in range(25)]
        r = vo.minimize(f)
        assert r.fun <= min(rivals) + 1e-9
        assert r.lower <= min(rivals)
        assert r.status is Status.LOCAL
        assert np.count_nonzero(r[w]) < 25  # zeros are zeros


def test_hundreds_of_penalised_variables_end_stationary(rng):
    X = rng.normal(size=(80, 450))
    y = X[:, :5] @ np.full(5, 2.0) + 0.3 * rng.normal(size=80)
    w = vo.Variable(450)
    f = vo.sum_squares(y - X @ w) / 160.0 + vo.sum(vo.scad(w, 0.3))
    r = vo.minimize(f, method=Graduated(starts=1))
    truth = np.where(np.arange(450) < 5, 2.0, 0.0)
    assert r.fun <= f(truth)
    assert r.lower >= 0.0
    pull = X.T @ (y - X @ r[w]) / 80.0
    assert np.all(np.abs(pull[r[w] == 0.0]) <= 0.3 + 1e-9)  # zero lies in the subdifferential
    moving = r[w][r[w] != 0.0]
    np.testing.assert_allclose(pull[r[w] != 0.0], terms.scad(0.3, 3.7).derivative(moving), atol=1e-6)


def test_penalties_that_hardly_bend_give_the_convex_optimum(rng):
    X, y = rng.normal(size=(60, 4)), rng.normal(size=60)
    w = vo.Variable(4)
    for loss, limit in [
        (vo.sum(vo.capped_abs(y - X @ w, 1e3)), vo.norm1(y - X @ w)),
        (vo.sum_squares(y - X @ w) + vo.sum(vo.mcp(w, 5.0, 1e9)), vo.sum_squares(y - X @ w) + 5.0 * vo.norm1(w)),
    ]:
        r = vo.minimize(loss, method=QUICK)
        assert r.method == "graduated"
        assert r.fun == pytest.approx(vo.minimize(limit).fun, rel=1e-7)


def test_outliers_do_not_move_a_capped_loss(rng):
    X = rng.normal(size=(60, 3))
    y = X @ [1.0, 2.0, 3.0]
    y[:15] += 100.0 * rng.standard_cauchy(15)
    w = vo.Variable(3)
    r = vo.minimize(vo.sum(vo.capped_abs(y - X @ w, 1.0)))
    np.testing.assert_allclose(r[w], [1.0, 2.0, 3.0], atol=1e-8)
    assert r.fun == pytest.approx(15.0, abs=1e-6)


def test_polynomials_and_indefinite_quadratics(rng):
    x = vo.Variable(2)
    well = vo.sum(x**4) - 2.0 * vo.sum(x**2) + 0.1 * vo.sum(x)
    r = vo.minimize(well)
    assert r.fun == pytest.approx(min(2 * (v**4 - 2 * v**2 + 0.1 * v) for v in np.linspace(-2, 2, 100_001)), abs=1e-8)
    saddle = vo.quad_form(x, np.diag([1.0, -1.0])) + vo.sum(x**4)
    assert vo.minimize(saddle).fun == pytest.approx(-0.25, abs=1e-9)


def test_what_falls_for_ever_is_named():
    w = vo.Variable(2)
    for f in (
        -vo.norm1(w), vo.sum(w**3), vo.quad_form(w, np.diag([1.0, -1.0])) + vo.norm1(w),
        vo.sum(vo.ramp(w)) + 0.1 * vo.sum(w),
    ):  # fmt: skip
        r = vo.minimize(f)
        assert (r.status, r.lower) == (Status.UNBOUNDED, -np.inf)
    assert vo.maximize(vo.norm1(w)).upper == np.inf


# -- What a user may do with a run ------------------------------------------------------------------------------------


@pytest.fixture
def robust(rng):
    X, y = rng.normal(size=(50, 3)), rng.standard_cauchy(50)
    w = vo.Variable(3, name="w")
    return w, vo.sum(vo.capped_abs(y - X @ w, 2.0)) + 0.1 * vo.sum_squares(w)


def test_seeds_reproduce(robust):
    _, f = robust
    first, second = (vo.minimize(f, method=Graduated(starts=4, seed=3)) for _ in range(2))
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.history["upper"], second.history["upper"])


def test_the_bracket_holds_at_every_point_and_at_every_level(robust, rng):
    _, f = robust
    r = vo.minimize(f, method=QUICK)
    assert r.upper >= r.fun == f(r.x)
    assert r.upper == pytest.approx(r.fun, rel=1e-14)
    assert all(r.lower <= f(x) for x in rng.normal(size=(200, 3)) * 3.0)
    assert np.all(np.diff(r.history["upper"]) <= 0.0)
    bounds = r.history["bound"]
    assert np.all(bounds[np.isfinite(bounds)] >= r.lower)


def test_the_history_holds_the_value_of_the_bound(robust):
    _, f = robust
    factor = _spread(canonical(composite(f)))
    seen = []

    def callback(state):
        if len(state.history) > len(seen) and state.history[-1]["sigma"] == state.sigma > 0.0:
            family = vo.Gaussian(state.latest, np.linalg.cholesky(state.sigma**2 * factor @ factor.T))
            seen.append((state.bound, vo.bound(f, family).value))

    vo.minimize(f, method=Graduated(starts=1), callback=callback)
    assert len(seen) > 5
    np.testing.assert_allclose(*zip(*seen, strict=True), rtol=1e-9)


def test_time_limit_interrupt_and_resume(robust):
    _, f = robust
    limited = vo.minimize(f, time_limit=1e-9)
    assert limited.status is Status.TIME_LIMIT
    assert limited.lower <= limited.fun == f(limited.x)

    def stop(state):
        if state.steps > 3:
            raise KeyboardInterrupt

    halted = vo.minimize(f, callback=stop)
    assert halted.status is Status.INTERRUPTED
    again = vo.minimize(f, resume=halted, method=QUICK)
    assert again.fun <= halted.fun
    assert again.lower >= halted.lower


def test_maximize_mirrors(robust):
    _, f = robust
    low, high = vo.minimize(f, method=QUICK), vo.maximize(-1.0 * f, method=QUICK)
    assert (high.fun, high.lower, high.upper) == (-low.fun, -low.upper, -low.lower)
    assert "starts" in high.message


def test_methods_for_convex_problems_say_why_they_refuse(robust):
    _, f = robust
    with pytest.raises(ValueError, match=r"newton.*not known to be convex.*its slope falls"):
        vo.minimize(f, method="newton")


@pytest.mark.parametrize(("options", "words"), [({"starts": 0}, "starts"), ({"effort": -1.0}, "effort")])
def test_bad_configurations_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        Graduated(**options)


def test_paths_that_lead_far_out_end_without_overflow():
    """The shape of a bound that is flat may lead to where squares overflow: no word of it, and no value from there."""
    problem = random_problem(np.random.default_rng(1100030003), extreme=False, convex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = vo.minimize(problem.build(), time_limit=10.0)
    assert np.isfinite(r.fun)
    assert r.fun == pytest.approx(float(problem.value(r.x)[0]))


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_rounding_alone_moves_end_no_enclosure(seed):
    """Nothing changes along the direction that no row sees; far out the rounding of its products looked like a cost."""
    u, w = np.random.default_rng(seed).standard_normal((2, 3)), vo.Variable(3)
    f = vo.sum(vo.square(u @ w)) + vo.sum(vo.abs(1e3 * u @ w)) + vo.ramp(u[0] @ w + 0.5)
    problem = canonical(composite(f))
    enclosed = enclosure(problem)
    assert enclosed.opens
    assert enclosed.below(np.zeros(3), 0.0, problem.constant + 0.05) is None


def test_the_point_does_not_drift_where_nothing_sees_it(rng):
    """A shift of all coordinates changes nothing, but what is left of their differences far out."""
    aim = np.array([0.1, -0.2, 0.3])
    w = vo.Variable(4)
    r = vo.minimize(vo.sum_squares(vo.diff(w) - aim) + vo.sum(vo.step(vo.diff(w))), x0=rng.standard_normal(4))
    assert r.fun == pytest.approx(0.1, abs=1e-9)  # by hand: each difference at its aim, or just below zero
    assert np.abs(r.x).max() < 10.0


@pytest.mark.parametrize("unit", [3.27e150, 1e152])
def test_what_is_never_negative_is_not_unbounded_where_its_squares_overflow(unit):
    w = vo.Variable(3)
    r = vo.minimize(vo.sum_squares(unit * vo.diff(w) - unit) + vo.sum(vo.ramp(w)))
    assert r.status is not Status.UNBOUNDED
    assert r.lower == 0.0


def test_values_back_from_far_out_are_those_of_their_points():
    """A path may lead far out where little is seen; what moves from there leave of positions is not taken for them."""
    w, b = vo.Variable(1), vo.Variable()
    tilted = np.array([[0.2], [-0.2], [0.9], [-1.5], [0.9], [0.4]]) @ w + b
    tilted = tilted + np.array([0.0071038, 0.3637251, 1.0118033, 1.6429249, 0.0484376, -0.5932187])
    ends = np.array([[0.0], [-0.2], [-1.6], [-0.2], [1.1], [-0.4]]) @ w + np.array([1.2, 0.0, 2.2, 1.1, 0.9, 0.7])
    bent = np.array([1.8317311, 0.9320979, 0.426813, 0.5472899, 0.4282938]) * vo.pos(
        np.array([[0.0], [1.0], [1.0], [0.0], [0.0]]) @ w
        + np.array([1.7355269, 2.5688102, -1.3849278, 0.0668266, 1.1620831])
    )
    f = 9.77 * vo.sum(vo.pinball(tilted, 0.87)) + vo.sum(bent)
    f = f + vo.sum(np.array([0.1, 1.1, 1.0, 0.1, 1.4, 0.4]) * vo.dead_zone(ends, 1.14))
    r = vo.minimize(f, time_limit=5.0)
    grid = np.stack(np.meshgrid(np.linspace(-3.0, 3.0, 121), np.linspace(-3.0, 3.0, 121)), axis=-1).reshape(-1, 2)
    assert r.fun <= min(f(point) for point in grid) + 1e-9
