"""The exact optimum of few variables: against enumeration of the pieces, and where sixteen digits are too few."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from fuzz.oracle import ROUNDING, clarabel_point
from fuzz.problems import is_convex, random_problem
from varopt import Status
from varopt.model import as_objective
from varopt.solvers.finish import exact_minimum


@pytest.mark.parametrize("seed", range(25))
def test_no_point_of_a_finer_search_is_below(seed):
    problem = random_problem(np.random.default_rng(seed), extreme=bool(seed % 2))
    found = exact_minimum(as_objective(problem.build()), np.zeros(problem.dimension))
    if found is None:
        assert not is_convex(problem) or any(b.term == "norm2" for b in problem.blocks)
        return
    if found.lower == -np.inf:
        rival = clarabel_point(problem)
        assert rival is None or rival[0] != "Solved" or problem.value(rival[1])[0] < 0
        return
    # The program of a problem writes a few numbers down that the term rounds, as 1 - tau: that much may be between.
    exact, size = problem.value(found.x)
    assert found.lower - ROUNDING * size <= exact <= found.upper + ROUNDING * size
    rng = np.random.default_rng(seed)
    for scale in (1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6):
        for _ in range(5):
            other = found.x + scale * rng.standard_normal(problem.dimension)
            value, size = problem.value(other)
            assert value >= found.lower - ROUNDING * size


def test_medians_of_every_subset_of_rows(rng):
    X, y, w = rng.integers(-3, 4, (9, 2)).astype(float), rng.integers(-5, 6, 9).astype(float), vo.Variable(2)
    f = vo.norm1(y - X @ w)
    best = min(
        np.abs(y - X @ np.linalg.solve(X[list(pair)], y[list(pair)])).sum()
        for pair in itertools.combinations(range(9), 2)
        if abs(np.linalg.det(X[list(pair)])) > 1e-9
    )
    assert exact_minimum(as_objective(f), rng.normal(size=2)).lower == pytest.approx(best, rel=1e-14)


def test_weights_that_span_more_than_sixteen_digits_are_all_heard():
    w = vo.Variable(3)
    A = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    f = 1e6 * vo.norm1(A @ w) + 1e-10 * vo.sum(
        vo.pos(np.array([[0.0, -1.0, 0.0], [-1.0, 0.0, 1.0]]) @ w + [5.5, -1.25])
    )
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL
    assert r.fun == pytest.approx(4.25e-10, rel=1e-12)  # along (1, -1, 0) the small terms add up to 5.5 - 1.25 at least


def test_what_has_no_minimum_is_told_and_what_is_not_exact_is_left_alone():
    w = vo.Variable(2)
    start = np.zeros(2)
    falls = as_objective(vo.sum(vo.pos(w)) + vo.sum(w) * 1e-9)
    assert exact_minimum(falls, start).lower == -np.inf
    curved = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-12]])
    assert exact_minimum(as_objective(vo.quad_form(w, curved) + vo.norm1(w)), start) is None


def test_maps_of_every_kind_are_read_without_rounding(rng):
    w, b = vo.Variable(3), vo.Variable()
    A = rng.standard_normal((4, 3))
    t = np.array([1.0, -1.0, 0.3, 3.0])
    f = vo.sum(vo.huber(t * (A @ w + b) - 1.0, 0.7)) + 0.1 * vo.norm1(vo.diff(w)) + vo.sum_squares(sp.csr_array(A) @ w)
    f = f + vo.quad_form(w - 1.0, np.diag([1.0, 2.0, 3.0])) + vo.sum(w) + 2.0
    found, r = exact_minimum(as_objective(f), np.zeros(4)), vo.minimize(f, tol=1e-13)
    assert found.lower <= r.upper
    assert found.upper - found.lower <= 1e-14 * abs(found.upper)
    assert r.lower <= found.upper


def test_lines_in_place_of_far_rows_do_not_tell_that_there_is_no_end(rng):
    """Far from the optimum the lines of most rows fall for ever together; the rows themselves do not."""
    X = rng.normal(size=(3000, 3))
    w, b = vo.Variable(3), vo.Variable()
    f = vo.sum(vo.pinball(X.sum(axis=1) + rng.standard_t(2, 3000) - X @ w - b, 0.001))
    for start in rng.normal(size=(5, 4)) * [3.0, 3.0, 3.0, 5.0] - [0.0, 0.0, 0.0, 20.0]:
        found = exact_minimum(f, start)
        assert found is None or np.isfinite(found.lower)
    x = {w: np.array([-2.6, 1.2, -2.7]), b: -21.9}
    assert vo.minimize(f, x0=x).status is Status.OPTIMAL
