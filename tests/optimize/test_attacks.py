"""Attacks on brackets: steep terms that hide far optima, quadratics barely convex, and lines barely bounded."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt import Status

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
