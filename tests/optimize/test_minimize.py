"""`minimize` and `maximize`: the bracket against independent optima, and what a user may do with a run."""

from __future__ import annotations

import gc
import math
import pickle
import weakref
from functools import partial

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.certificates import Verifier, dual_gap
from varopt.composite import composite
from varopt.optimize import Status

LOSSES = {
    "pinball": lambda X, y, t, w, b, g: vo.sum(vo.pinball(y - X @ w - b, g.uniform(0.05, 0.95))),
    "pinball by row": lambda X, y, t, w, b, g: vo.sum(vo.pinball(y - X @ w, g.uniform(0.1, 0.9, y.size))),
    "absolute": lambda X, y, t, w, b, g: vo.norm1(y - X @ w - b),
    "epsilon-insensitive": lambda X, y, t, w, b, g: vo.sum(vo.epsilon_insensitive(y - X @ w - b, g.uniform(0.05, 1.0))),
    "hinge": lambda X, y, t, w, b, g: vo.sum(vo.hinge(t * (X @ w + b))),
    "weighted hinge": lambda X, y, t, w, b, g: (
        (g.random(y.size) * (g.random(y.size) < 0.7)) @ vo.hinge(t * (X @ w + b))
    ),
    "squares": lambda X, y, t, w, b, g: vo.sum_squares(y - X @ w - b),
}
PENALTIES = {
    "none": lambda w, g: 0.0,
    "ridge": lambda w, g: g.uniform(0.01, 3.0) * vo.sum_squares(w),
    "lasso": lambda w, g: g.uniform(0.01, 3.0) * vo.norm1(w),
    "elastic net": lambda w, g: vo.norm1(w) + vo.sum_squares(w),
    "fused": lambda w, g: g.uniform(0.1, 2.0) * vo.norm1(vo.diff(w)),
}
DATA = ("plain", "integers", "duplicate rows", "zero column", "fewer rows than columns")


def problem_data(kind: str, g: np.random.Generator):
    n, p = int(g.integers(2, 60)), int(g.integers(2, 11))
    if kind == "fewer rows than columns":
        n = int(g.integers(1, p))
    X, y = g.standard_normal((n, p)), g.standard_normal(n) * 10.0 ** g.uniform(-1, 2)
    if kind == "integers":  # ties everywhere: degenerate vertices
        X, y = np.round(X), np.round(y)
    if kind == "duplicate rows":
        X[g.integers(0, n, n // 2)] = X[0]
    if kind == "zero column":
        X[:, int(g.integers(0, p))] = 0.0
    return X, y, np.where(g.random(n) < 0.5, 1.0, -1.0)


# Squares with a quadratic penalty or none have no rows: see test_a_quadratic_is_solved_at_once.
SMOOTH = [("squares", "none"), ("squares", "ridge")]
PAIRS = [(loss, penalty) for loss in LOSSES for penalty in PENALTIES if (loss, penalty) not in SMOOTH]


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize(("loss", "penalty"), PAIRS)
def test_the_bracket_holds_the_optimum_of_the_explicit_programme(loss, penalty, kind):
    seed = [list(LOSSES).index(loss), list(PENALTIES).index(penalty), DATA.index(kind)]
    g = np.random.default_rng(seed)
    for _ in range(2):
        X, y, t = problem_data(kind, g)
        w, b = vo.Variable(X.shape[1]), vo.Variable()
        f = LOSSES[loss](X, y, t, w, b, g) + PENALTIES[penalty](w, g)
        r = vo.minimize(f)
        optimum = explicit_optimum(f)
        slack = 1e-7 * max(1.0, abs(optimum))  # of the reference, not of ours
        assert r.lower - slack <= optimum <= r.upper + slack
        # Fewer rows that differ than columns, given twice, and no penalty: optima are unbounded, and no proof is known.
        degenerate = penalty == "none" and kind == "duplicate rows"
        assert r.status is Status.OPTIMAL or (degenerate and r.status is Status.ASSUMED)
        assert r.gap <= 1e-9 * max(1.0, abs(r.fun))
        assert r.fun == f(r.x) <= r.upper <= r.fun + 1e-11 * max(1.0, abs(r.fun))


def test_columns_in_any_units_still_give_a_sound_bracket():
    for seed in range(12):
        g = np.random.default_rng(seed)
        X, _, t = problem_data("plain", g)
        X = X * 10.0 ** g.uniform(-4, 4, X.shape[1])
        w, b = vo.Variable(X.shape[1]), vo.Variable()
        f = 0.5 * vo.sum_squares(w) + vo.sum(vo.hinge(t * (X @ w + b)))
        r, optimum = vo.minimize(f), explicit_optimum(f)
        assert r.lower <= optimum + 1e-7 * max(1.0, abs(optimum))
        assert r.upper >= optimum - 1e-7 * max(1.0, abs(optimum))
        assert r.gap <= 1e-7 * max(1.0, abs(r.fun))


def test_any_slopes_in_the_domain_give_a_lower_bound(rng):
    # Weak duality at points and slopes that are far from optimal.
    X, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    w = vo.Variable(4)
    f = vo.sum(vo.pinball(y - X @ w, 0.3)) + vo.sum_squares(w) + 0.2 * vo.norm1(w)
    optimum, problem = explicit_optimum(f), composite(f)
    for scale in (0.0, 0.1, 1.0, 10.0):
        x = scale * rng.standard_normal(4)
        slopes = [rng.uniform(*np.broadcast_arrays(*r.term.subgradient_range), size=r.count) for r in problem.rows]
        gap, assumption = dual_gap(problem, x, problem.positions(x), slopes)
        assert f(x) - gap <= optimum + 1e-9
        assert assumption == ""


def test_many_rows_start_from_samples_and_end_exact(rng):
    X = rng.standard_normal((6000, 4))
    y = X @ np.ones(4) + rng.standard_t(2, 6000)
    w, b = vo.Variable(4), vo.Variable()
    f = vo.sum(vo.pinball(y - X @ w - b, 0.7))
    r = vo.minimize(f)
    design = np.column_stack([X, np.ones(6000)])
    dual = scipy.optimize.linprog(-y, A_eq=design.T, b_eq=np.zeros(5), bounds=(-0.3, 0.7), method="highs")
    assert r.status is Status.OPTIMAL
    np.testing.assert_allclose(r.fun, -dual.fun, rtol=1e-9)


@pytest.mark.parametrize("loss", [vo.huber, vo.squared_hinge])
def test_curved_terms_reach_the_smooth_optimum(loss, rng):
    X, y = rng.standard_normal((80, 3)), rng.standard_normal(80)
    w = vo.Variable(3)
    f = vo.sum(loss(y - X @ w)) + 0.1 * vo.sum_squares(w)
    r = vo.minimize(f)
    smooth = scipy.optimize.minimize(f, np.zeros(3), method="BFGS", options={"gtol": 1e-10})
    assert r.status is Status.OPTIMAL
    assert r.lower <= smooth.fun
    np.testing.assert_allclose(r.fun, smooth.fun, rtol=1e-8)


def test_curved_and_kinked_terms_together(rng):
    X, y = rng.standard_normal((60, 5)), 3.0 * rng.standard_normal(60)
    w = vo.Variable(5)
    f = vo.sum(vo.huber(y - X @ w, 0.5)) + 2.0 * vo.norm1(w)
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL
    # Optimality from the subdifferential, written out: zero lies in it.
    pull = X.T @ np.clip(y - X @ r[w], -0.5, 0.5)
    resting = np.abs(r[w]) < 1e-9
    np.testing.assert_allclose(pull[~resting], 2.0 * np.sign(r[w][~resting]), atol=1e-6)
    assert np.all(np.abs(pull[resting]) <= 2.0 + 1e-6)


def test_a_quadratic_is_solved_at_once(rng):
    X, y = rng.standard_normal((20, 4)), rng.standard_normal(20)
    w = vo.Variable(4)
    r = vo.minimize(vo.sum_squares(y - X @ w))
    np.testing.assert_allclose(r[w], np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-9)
    assert r.status is Status.OPTIMAL
    deficient = vo.minimize(vo.sum_squares(np.ones((2, 4)) @ w - 1.0))
    assert deficient.status is Status.OPTIMAL
    assert deficient.fun == pytest.approx(0.0, abs=1e-12)


def test_the_kind_of_matrix_does_not_matter(rng):
    X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    w = vo.Variable(3)
    values = [
        vo.minimize(vo.norm1(y - A @ w) + vo.sum_squares(w)).fun
        for A in (X, np.asfortranarray(X), sp.csr_array(X), sp.csc_matrix(X), aslinearoperator(X))
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-12)
    single = X.astype(np.float32)
    exact = vo.minimize(vo.norm1(y - single.astype(np.float64) @ w) + vo.sum_squares(w)).fun
    assert vo.minimize(vo.norm1(y - single @ w) + vo.sum_squares(w)).fun == pytest.approx(exact, rel=1e-6)


def test_zero_coefficients_are_exactly_zero(rng):
    X = rng.standard_normal((100, 8))
    y = X[:, 0] + 0.1 * rng.standard_normal(100)
    w = vo.Variable(8)
    r = vo.minimize(vo.sum_squares(y - X @ w) + 40.0 * vo.norm1(w))
    pull = 2.0 * X.T @ (y - X @ r[w])
    assert np.array_equal(r[w] == 0.0, np.abs(pull) < 40.0 * (1.0 - 1e-9))
    assert 0 < np.count_nonzero(r[w]) < 8


def test_maximize_mirrors_minimize(rng):
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    w = vo.Variable(3)
    f = vo.norm1(y - X @ w) + vo.sum_squares(w)
    low, high = vo.minimize(f), vo.maximize(-f)
    assert (high.fun, high.lower, high.upper) == (-low.fun, -low.upper, -low.lower)
    np.testing.assert_array_equal(high.history["upper"], -low.history["lower"])


def test_an_indefinite_quadratic_is_unbounded_and_a_constant_is_optimal():
    w = vo.Variable(4)
    r = vo.minimize(vo.quad_form(w, np.diag([1.0, 1.0, 1.0, -1.0])) + vo.norm1(w))
    assert r.status is Status.UNBOUNDED
    r = vo.minimize(vo.sum(0.0 * w) + 3.0)
    assert r.status is Status.OPTIMAL
    assert 3.0 - 1e-14 <= r.lower <= 3.0 <= r.upper <= 3.0 + 1e-14


def test_levels_near_one_keep_the_bracket_sound():
    # Multipliers live in an interval of length 1e-6 on one side: the tolerances of a linear programme must follow.
    for seed in range(15, 30):
        g = np.random.default_rng(seed)
        X, y = g.standard_normal((14, 11)), g.standard_normal(14)
        w = vo.Variable(11)
        level = 1.0 - 1e-6
        r = vo.minimize(vo.sum(vo.pinball(y - X @ w, level)))
        dual = scipy.optimize.linprog(
            -y * 1e6, A_eq=X.T, b_eq=1e-6 * X.sum(axis=0), bounds=(0.0, 1.0), method="highs-ds"
        )  # u = v - 1e-6, v in [0, 1]
        optimum = -dual.fun / 1e6 - 1e-6 * y.sum()
        assert r.lower <= optimum + 1e-12


def test_an_intercept_that_no_row_fixes_is_still_found():
    for seed in (198, 3, 44, 71, 120):
        g = np.random.default_rng(seed)
        X, t = g.standard_normal((40, 1)), np.where(g.random(40) < 0.5, 1.0, -1.0)
        w, b = vo.Variable(1), vo.Variable()
        r = vo.minimize(vo.sum_squares(w) + 0.4 * vo.sum(vo.hinge(t * (X @ w + b))))
        assert r.status is Status.OPTIMAL


@pytest.mark.parametrize("scale", [1e-12, 1e-8, 1e8])
def test_the_scale_of_the_objective_does_not_matter(scale, rng):
    X, y = rng.standard_normal((60, 4)), rng.standard_normal(60)
    w = vo.Variable(4)
    f = vo.sum(vo.pinball(y - X @ w, 0.3))
    plain, scaled = vo.minimize(f), vo.minimize(scale * f)
    assert np.isfinite(scaled.lower)
    np.testing.assert_allclose(scaled.fun, scale * plain.fun, rtol=1e-9)


@pytest.mark.parametrize("weight", [10.0, 200.0, 1e4, 1e6])
def test_large_weights_that_cancel_leave_their_difference(weight):
    # Rows 0 and 1 pull in opposite directions but for a share of 1e-8 or less, which the ridge asks for.
    X, t = np.array([[400.0, 1e-3], [400.0, 1e-3], [-60.0, 20.0]]), np.array([1.0, 1.2, -0.3])
    w, b = vo.Variable(2), vo.Variable()
    r = vo.minimize(weight * vo.sum(vo.abs(t - X @ w - b)) + 0.5 * vo.sum_squares(w))
    # One of rows 0 and 1 costs what lies between them wherever b is; the others are met exactly by the smallest w.
    away = X[2] - X[0]
    nearest = min((t[2] - end) ** 2 for end in t[:2])
    assert r.gap <= 1e-15 * weight
    assert r.fun == pytest.approx(0.2 * weight + 0.5 * nearest / (away @ away), rel=1e-15 * 64, abs=0.0)


def test_rows_met_exactly_under_large_weights(rng):
    X, t = rng.standard_normal((10, 30)) * 10.0 ** rng.uniform(-3, 3, 30), rng.standard_normal(10)
    w, b = vo.Variable(30), vo.Variable()
    f = 700.0 * vo.sum(vo.abs(t - X @ w - b)) + vo.norm1(w) + 0.5 * vo.sum_squares(w)
    r = vo.minimize(f)
    assert r.gap <= 1e-11
    assert r.fun == pytest.approx(explicit_optimum(f), rel=1e-6)


def test_unbounded_objectives_are_named():
    w = vo.Variable(2)
    cases = [
        np.ones(2) @ w + 0.0 * vo.norm1(w),
        vo.sum(vo.pos(w)) - 2.0 * vo.sum(w),
        2.0 * vo.sum(w) + vo.norm1(w),
        vo.sum_squares(w[:1]) + vo.sum(vo.hinge(w)) + np.array([0.0, -1.0]) @ w,
    ]
    for f in cases:
        r = vo.minimize(f)
        assert r.status is Status.UNBOUNDED
        assert r.lower == -np.inf
    bounded = vo.minimize(vo.sum(vo.pos(w)) - 0.5 * vo.sum(w) + vo.norm1(w))
    assert bounded.status is Status.OPTIMAL


# -- What a user may do with a run ------------------------------------------------------------------------------------


@pytest.fixture
def regression(rng):
    X, y = rng.standard_normal((200, 3)), rng.standard_normal(200)
    w, b = vo.Variable(3, name="w"), vo.Variable(name="b")
    return w, b, vo.sum(vo.pinball(y - X @ w - b, 0.3))


def test_a_result_answers_by_variable_prints_and_pickles(regression):
    w, b, f = regression
    r = vo.minimize(f)
    assert r[w].shape == (3,)
    assert isinstance(r[b], float)
    np.testing.assert_array_equal(r.x, [*r[w], r[b]])
    text = repr(r)
    assert all(word in text for word in ("OPTIMAL", "optimum", "program"))
    assert "DualGap" in r.explain()
    again = pickle.loads(pickle.dumps(r))
    assert (again.fun, again.lower, again.status) == (r.fun, r.lower, r.status)
    assert np.all(np.diff(r.history["time"]) >= 0)
    with pytest.raises(KeyError, match="does not occur"):
        r[vo.Variable(2)]


def test_a_start_is_used(regression):
    w, b, f = regression
    cold = vo.minimize(f)
    warm = vo.minimize(f, x0=cold.x)
    by_name = vo.minimize(f, x0={w: cold[w], b: cold[b]})
    assert warm.fun == pytest.approx(cold.fun, rel=1e-12)
    assert by_name.fun == warm.fun


def test_time_limit_and_interrupt_return_what_is_known(regression):
    *_, f = regression
    optimum = vo.minimize(f).fun
    limited = vo.minimize(f, time_limit=1e-9)
    assert limited.status is Status.TIME_LIMIT
    assert limited.lower <= optimum <= limited.upper
    assert limited.fun == f(limited.x)

    def interrupt(state):
        raise KeyboardInterrupt

    def stop(state):
        raise StopIteration

    for callback in (interrupt, stop):
        r = vo.minimize(f, callback=callback)
        assert r.status is Status.INTERRUPTED
        assert r.lower <= optimum <= r.upper


def test_callback_and_progress(regression, capsys):
    *_, f = regression
    seen = []
    vo.minimize(f, callback=lambda state: seen.append(state.sigma), progress=True)
    assert seen == sorted(seen, reverse=True)
    assert capsys.readouterr().err.startswith("  OPTIMAL: gap ")


def test_identical_runs_are_identical(rng):
    X = rng.standard_normal((6000, 3))
    w = vo.Variable(3)
    f = vo.norm1(rng.standard_normal(6000) - X @ w)
    first, second = vo.minimize(f), vo.minimize(f)
    np.testing.assert_array_equal(first.x, second.x)


def test_data_are_not_changed(rng):
    X, y = rng.standard_normal((50, 3)), rng.standard_normal(50)
    kept = X.copy(), y.copy()
    w = vo.Variable(3)
    vo.minimize(vo.norm1(y - X @ w) + vo.norm1(w))
    np.testing.assert_array_equal(X, kept[0])
    np.testing.assert_array_equal(y, kept[1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: vo.minimize(vo.sum(vo.ramp(vo.Variable(2))), method="newton"), "not known to be convex"),
        (lambda: vo.minimize(vo.norm2(vo.Variable(2)), method="newton"), "norm2"),
        (lambda: vo.minimize(vo.sum(vo.Variable(2) ** 3), method="newton"), "degree 3"),
        (lambda: vo.minimize(lambda x: 0.0), "needs a space for a black box"),
        (lambda: vo.minimize(vo.sum(vo.Binary(2)) + vo.sum(vo.Variable(2))), "all real or all discrete"),
        (lambda: vo.minimize(vo.abs(vo.Variable(2))), "vo.sum"),
        (lambda: vo.minimize(3.0), "variables"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), tol=-1.0), "tol"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), tol=np.nan), "tol"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), method="simplex"), "method"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), time_limit=0), "time_limit"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), x0=[1.0]), "shape"),
        (lambda: vo.minimize(vo.norm1(vo.Variable(2)), x0=[1.0, np.nan]), "finite"),
        (lambda: vo.maximize(vo.norm1(vo.Variable(2)), method="lbfgs"), "not known to be convex"),
    ],
)
def test_what_is_not_handled_gets_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_plot_draws_bracket_and_sigma(regression):
    matplotlib = pytest.importorskip("matplotlib", reason="plots need the extra `plot`")
    matplotlib.use("Agg")
    *_, f = regression
    r = vo.minimize(f, method="newton")
    axes = r.plot()
    assert axes.shape == (2, 2)
    assert [line.get_label() for line in axes[0, 0].lines] == ["upper", "lower"]
    assert axes[1, 0].get_ylabel() == "sigma"
    assert np.nanmax(axes[1, 0].lines[0].get_ydata()) == np.max(r.history["sigma"])


def test_plot_draws_the_gap_where_nothing_is_smoothed(rng):
    """A run on stored rows has no sigma: its panels were empty."""
    matplotlib = pytest.importorskip("matplotlib", reason="plots need the extra `plot`")
    matplotlib.use("Agg")
    X = rng.normal(size=(20_000, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=20_000)
    data, w = vo.rows([(X[:9_000], y[:9_000]), (X[9_000:], y[9_000:])]), vo.Variable(3)
    r = vo.minimize(vo.sum(vo.abs(data.y - data.X @ w)))
    axes = r.plot()
    assert axes[0, 0].get_title(loc="right") == f"{r.passes} pass{'es' * (r.passes > 1)} over the data"
    assert axes[1, 0].get_ylabel() == "relative gap"
    for axis in axes[1]:
        (line,) = axis.lines
        drawn = np.asarray(line.get_ydata())
        assert drawn[-1] == pytest.approx(r.gap / r.upper)


def test_a_start_where_every_part_is_lowest_is_the_end(rng):
    X, w = rng.normal(size=(300, 3)), vo.Variable(3)
    for f in (vo.norm1(X @ w) + vo.sum_squares(w), vo.sum(vo.hinge(2.0 + X @ w)) + 1.0):
        r = vo.minimize(f)
        assert (r.status, r.nit) == (Status.OPTIMAL, 0)
        assert r.gap <= 1e-14
        np.testing.assert_array_equal(r.x, 0.0)
    assert vo.minimize(vo.norm1(X @ w - 1.0) + vo.sum_squares(w), x0=rng.normal(size=3)).nit > 0


def test_data_go_with_the_objective():
    """Not when the collector of cycles comes: large arrays, or those of a device, would pile up until then."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((300, 3)), rng.standard_normal(300)
    kept, w = weakref.ref(X), vo.Variable(3)
    gc.disable()
    try:
        f = vo.sum(vo.pinball(y - X @ w, 0.3)) + vo.norm1(w)
        assert vo.minimize(f).status is Status.OPTIMAL
        assert vo.minimize(f, subject_to=[w >= 0.0]).status is Status.OPTIMAL
        del X, f
        assert kept() is None
    finally:
        gc.enable()


def test_a_proof_is_asked_for_no_more_than_the_dual_has(monkeypatch):
    """A gap between half of what is allowed and all of it: the first way to prove it will do."""
    asked, whole = [], Verifier.bracket

    def bracket(self, dual=None, gap=math.inf):
        found = whole(self, dual, gap)
        asked.append((gap, found.upper - found.lower))
        return found

    monkeypatch.setattr(Verifier, "bracket", bracket)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = sp.random_array((400, 300), density=0.05, rng=rng, format="csr")
        t = np.where(X @ rng.standard_normal(300) + 0.3 * rng.standard_normal(400) > 0.0, 1.0, -1.0)
        for tol in (1e-1, 1e-2, 1e-3):
            w = vo.Variable(300)
            f = 0.5 * vo.sum_squares(w) + vo.sum(vo.hinge(t * (X @ w)))
            assert vo.minimize(f, tol=tol, method="multipliers").status is Status.OPTIMAL
    assert len(asked) == 12
    assert all(found <= gap for gap, found in asked)


@pytest.mark.parametrize("subject_to", [None, "total"])
def test_an_interrupt_while_the_bracket_is_proved_loses_nothing(subject_to):
    """A user's own operator tells when the proof multiplies: the last product of a run is one of it."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), rng.standard_normal(60)
    calls, interrupted = [], []

    def product(array, v):
        calls.append(0)
        if len(calls) in interrupted:
            raise KeyboardInterrupt
        return array @ v

    operator = LinearOperator((60, 4), matvec=partial(product, X), rmatvec=partial(product, X.T), dtype=float)
    w = vo.Variable(4)
    f = vo.sum(vo.huber(y - operator @ w)) + vo.sum_squares(w)
    limits = {} if subject_to is None else {"subject_to": [vo.sum(w) == 1.0]}
    whole = vo.minimize(f, **limits)
    assert whole.status is Status.ASSUMED  # of how operators round nothing is known
    first = len(calls)
    vo.minimize(f, **limits)  # what the first has kept is not multiplied again
    last = 2 * len(calls) - first
    interrupted.append(last)
    r = vo.minimize(f, **limits)
    assert len(calls) >= last
    assert r.status is Status.INTERRUPTED
    assert (r.lower, r.upper) == (whole.lower, whole.upper)
