"""Group norms: brackets against second-order cone programmes, exact zeros, and the slopes that prove them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import GroupNewton
from varopt.solvers.finish import group_gap

LOSSES = {
    "squares": lambda X, y, w, b: vo.sum_squares(y - X @ w - b),
    "pinball": lambda X, y, w, b: vo.sum(vo.pinball(y - X @ w - b, 0.3)),
    "absolute": lambda X, y, w, b: vo.norm1(y - X @ w - b),
    "epsilon-insensitive": lambda X, y, w, b: vo.sum(vo.epsilon_insensitive(y - X @ w - b, 0.3)),
    "hinge": lambda X, y, w, b: vo.sum(vo.hinge(np.where(y > 0, 1.0, -1.0) * (X @ w + b))),
    "norm": lambda X, y, w, b: 3.0 * vo.norm2(y - X @ w - b),
}
PENALTIES = {
    "groups": lambda w, lam: lam * vo.norm2(w, 3),
    "uneven groups": lambda w, lam: vo.norm2(
        w, [[0], [1, 2], [3, 4, 5, 6], [7, 8]], weights=[lam, 0.5, 0.0, 2.0 * lam]
    ),
    "sparse groups": lambda w, lam: 0.5 * lam * vo.norm1(w) + lam * vo.norm2(w, 3),
    "groups and ridge": lambda w, lam: lam * vo.norm2(w, 3) + 0.1 * vo.sum_squares(w),
    "overlapping groups": lambda w, lam: lam * vo.norm2(w, [[0, 1, 2, 3], [2, 3, 4], [4, 5, 6], [6, 7, 8]]),
    "jumps of pairs": lambda w, lam: lam * vo.norm2(vo.diff(w), 2),
}


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_bracket_holds_the_optimum_of_the_cone_programme(loss, penalty):
    g = np.random.default_rng([list(LOSSES).index(loss), list(PENALTIES).index(penalty)])
    for lam in (0.3, 4.0):
        X = g.normal(size=(40, 9))
        y = X[:, :3] @ [1.0, -2.0, 1.0] + g.normal(size=40)
        w, b = vo.Variable(9), vo.Variable()
        f = LOSSES[loss](X, y, w, b) + PENALTIES[penalty](w, lam)
        optimum = explicit_optimum(f)
        slack = 1e-7 * max(1.0, abs(optimum))  # of the reference, not of ours
        for method in ("auto", "group-newton"):
            r = vo.minimize(f, method=method)
            assert r.lower - slack <= optimum <= r.upper + slack
            assert r.status is Status.OPTIMAL
            assert r.gap <= 1e-9 * max(1.0, abs(r.fun))
            assert method == "auto" or r.method.startswith("group-newton")


@pytest.mark.parametrize("kind", ["integers", "duplicate rows", "zero column", "more variables than rows", "units"])
def test_awkward_data(kind):
    for seed in range(3):
        g = np.random.default_rng(seed)
        X = g.normal(size=(30, 8))
        if kind == "integers":
            X = np.round(X)
        if kind == "duplicate rows":
            X[15:] = X[:15]
        if kind == "zero column":
            X[:, 2] = 0.0
        if kind == "more variables than rows":
            X = X[:5]
        if kind == "units":
            X = X * 10.0 ** g.uniform(-3, 3, 8)
        y = np.round(3.0 * g.normal(size=len(X)))
        w = vo.Variable(8)
        for f in (
            vo.sum_squares(y - X @ w) + 2.0 * vo.norm2(w, 2), vo.norm1(y - X @ w) + vo.norm2(w, 4)
        ):  # fmt: skip
            r, optimum = vo.minimize(f), explicit_optimum(f)
            slack = 1e-6 * max(1.0, abs(optimum))
            assert r.lower - slack <= optimum <= r.upper + slack
            assert r.gap <= 1e-9 * max(1.0, abs(r.fun))


def test_any_slopes_in_the_balls_give_a_lower_bound(rng):
    X, y = rng.normal(size=(30, 6)), rng.normal(size=30)
    w = vo.Variable(6)
    f = vo.sum(vo.pinball(y - X @ w, 0.3)) + vo.sum_squares(w) + 0.7 * vo.norm2(w, [[0, 1, 2], [2, 3], [4, 5]])
    optimum, problem = explicit_optimum(f), composite(f)
    (group,) = problem.groups
    for scale in (0.0, 0.1, 1.0, 10.0):
        x = scale * rng.normal(size=6)
        slopes = [rng.uniform(*np.broadcast_arrays(*r.term.subgradient_range), size=r.count) for r in problem.rows]
        pulls = group.feasible(rng.normal(size=group.offset.size))
        gap, assumption = group_gap(problem, x, problem.positions(x), slopes, [pulls])
        assert f(x) - gap <= optimum + 1e-9
        assert assumption == ""


def test_groups_vanish_exactly_where_their_slopes_say(rng):
    X = rng.normal(size=(100, 20))
    y = X[:, :4] @ np.ones(4) + 0.5 * rng.normal(size=100)
    w = vo.Variable(20)
    r = vo.minimize(vo.sum_squares(y - X @ w) + 40.0 * vo.norm2(w, 4))
    pull = (2.0 * X.T @ (y - X @ r[w])).reshape(-1, 4)
    coefficients = r[w].reshape(-1, 4)
    vanished = np.all(coefficients == 0.0, axis=1)
    assert 0 < vanished.sum() < 5
    assert np.all(np.linalg.norm(pull[vanished], axis=1) <= 40.0 * (1.0 + 1e-9))
    norms = np.linalg.norm(coefficients[~vanished], axis=1, keepdims=True)
    np.testing.assert_allclose(pull[~vanished], 40.0 * coefficients[~vanished] / norms, rtol=1e-8)


def test_groups_of_one_are_the_lasso(rng):
    X, y = rng.normal(size=(50, 8)), rng.normal(size=50)
    w = vo.Variable(8)
    lasso = vo.minimize(vo.sum_squares(y - X @ w) + 5.0 * vo.norm1(w))
    groups = vo.minimize(vo.sum_squares(y - X @ w) + 5.0 * vo.norm2(w, 1))
    assert groups.fun == pytest.approx(lasso.fun, rel=1e-12)
    np.testing.assert_allclose(groups[w], lasso[w], atol=1e-9)


def test_the_geometric_median_and_a_point_on_a_datum(rng):
    points = rng.normal(size=(25, 2))
    m = vo.Variable(2)
    rows = np.tile(np.eye(2), (25, 1))
    r = vo.minimize(vo.norm2(rows @ m - points.ravel(), 2))
    smooth = scipy.optimize.minimize(lambda x: np.linalg.norm(points - x, axis=1).sum(), np.zeros(2), tol=1e-12)
    assert r.fun == pytest.approx(smooth.fun, rel=1e-9)
    assert r.status is Status.OPTIMAL
    heavy = vo.minimize(vo.norm2(rows @ m - points.ravel(), 2, weights=np.append(np.full(24, 0.1), 5.0)))
    np.testing.assert_allclose(heavy[m], points[-1], atol=1e-12)
    assert heavy.status is Status.OPTIMAL


@pytest.mark.parametrize("scale", [1e-8, 1e6])
def test_the_scale_of_the_objective_and_of_the_variables_does_not_matter(scale, rng):
    X, y = rng.normal(size=(60, 6)), rng.normal(size=60)
    w = vo.Variable(6)
    f = vo.sum_squares(y - X @ w) + 5.0 * vo.norm2(w, 3)
    plain = vo.minimize(f)
    assert vo.minimize(scale * f).fun == pytest.approx(scale * plain.fun, rel=1e-9)
    stretched = vo.sum_squares(y - (X / scale) @ w) + 5.0 / scale * vo.norm2(w, 3)
    assert vo.minimize(stretched).fun == pytest.approx(plain.fun, rel=1e-9)


def test_the_kind_of_matrix_does_not_matter(rng):
    X, y = rng.normal(size=(40, 6)), rng.normal(size=40)
    w = vo.Variable(6)
    values = [vo.minimize(vo.norm1(y - A @ w) + vo.norm2(w, 2)).fun for A in (X, sp.csr_array(X), sp.csc_matrix(X))]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)
    values = [vo.minimize(vo.norm2(y - A @ w) + vo.norm1(w)).fun for A in (X, sp.csr_array(X))]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)


def test_a_run_can_be_limited_resumed_and_repeated(rng):
    X, y = rng.normal(size=(300, 90)), rng.normal(size=300)
    w = vo.Variable(90)
    f = vo.sum_squares(y - X @ w) + 3.0 * vo.norm2(w, 3)
    full = vo.minimize(f)
    limited = vo.minimize(f, time_limit=1e-9)
    assert limited.status is Status.TIME_LIMIT
    assert limited.lower <= full.fun <= limited.upper
    resumed = vo.minimize(f, resume=limited)
    assert resumed.status is Status.OPTIMAL
    np.testing.assert_array_equal(vo.minimize(f).x, full.x)
    warm = vo.minimize(f, x0=full.x)
    assert warm.fun == pytest.approx(full.fun, rel=1e-12)


def test_what_is_not_handled_gets_a_sentence():
    w = vo.Variable(4)
    with pytest.raises(ValueError, match="group norms"):
        vo.minimize(vo.sum_squares(w) - vo.norm2(w))
    with pytest.raises(ValueError, match="norm2"):
        vo.minimize(vo.norm2(w), method="newton")
    with pytest.raises(ValueError, match="no group norms"):
        vo.minimize(vo.norm1(w), method=GroupNewton())
    with pytest.raises(ValueError, match="degree"):
        vo.minimize(vo.sum(w**4) + vo.norm2(w))
