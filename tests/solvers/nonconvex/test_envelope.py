"""Convex envelopes over enclosures, and the bounds that they prove."""

from __future__ import annotations

import numpy as np
import pytest

import varopt as vo
from varopt.composite import composite
from varopt.solvers.nonconvex._envelope import _hulls, enclosure, radius  # envelopes against the terms

BENT = {
    "ramp": vo.ramp,
    "capped_abs": lambda z: vo.capped_abs(z, cap=0.7),
    "teeth": lambda z: vo.ramp(z) + vo.capped_abs(z - 1.5, cap=0.4),
    "below": lambda z: -1.0 * vo.hinge(z),
}


@pytest.mark.parametrize("name", BENT)
def test_envelopes_are_convex_below_their_terms_and_touch_them_at_the_ends(name, rng):
    x = vo.Variable()
    problem = composite(vo.sum(BENT[name](x)) + 0.5 * vo.sum(vo.square(x)))
    for rows in problem.rows:
        if rows.term.curvature.is_convex:
            continue
        for _ in range(60):
            low = rng.uniform(-3.0, 3.0, 1).round(1)
            high = low + rng.choice([1e-8, 0.1, 1.0, 5.0])
            ((part, lost),) = _hulls(rows, low, high)
            assert part.term.curvature.is_convex or not part.term.knots
            z = np.concatenate([np.linspace(low, high, 50)[:, 0], low, high])
            below, above = (np.array([float(t.value(np.array([at]))[0]) for at in z]) for t in (part.term, rows.term))
            assert np.all(below <= above + 1e-12 + lost)
            np.testing.assert_allclose(below[-2:], above[-2:], atol=1e-4)  # ends may have been moved off a corner


def test_no_better_point_is_outside_of_an_enclosure(rng):
    X = rng.standard_normal((30, 2)) + 0.5
    t = np.where(X[:, 0] + 0.3 * rng.standard_normal(30) > 0.5, 1.0, -1.0)
    w, b = vo.Variable(2), vo.Variable()
    f = 0.5 * vo.sum(vo.square(w)) + 2.0 * vo.sum(vo.ramp(t * (X @ w + b)))
    problem = composite(f)
    points = np.array([1.5, 0.0, -0.8]) + np.vstack([rng.standard_normal((500, 3)) * scale for scale in (0.3, 1.0)])
    values = np.array([problem.value(x) for x in points])
    far_out = 2.0 * min(np.sum(t > 0), np.sum(t < 0))
    assert np.sum(values < far_out) > 50
    for upper in np.quantile(values[values < far_out], [0.1, 0.9]):
        convex = enclosure(problem).below(np.zeros(3), radius(upper, 0.0, 0.0), upper)
        assert convex is not None
        for x, value in zip(points[values <= upper], values[values <= upper], strict=True):
            assert convex.value(x) <= value + 1e-9


def test_what_cannot_be_enclosed_is_left_alone():
    w, b, c = vo.Variable(2), vo.Variable(), vo.Variable()
    rows = vo.sum(vo.ramp(np.ones((3, 2)) @ w + b + np.arange(3.0) * c))
    assert enclosure(composite(rows)) is None  # nothing curves
    assert enclosure(composite(0.5 * vo.sum(vo.square(w)) + rows)) is None  # two directions do not
    f = 0.5 * vo.sum(vo.square(w)) + vo.sum(vo.ramp(np.ones((3, 2)) @ w + b))
    assert enclosure(composite(f)).below(np.zeros(3), 1.0, 3.0) is None  # far out it costs nothing on one side


@pytest.mark.parametrize("unit", [2.0**500, 2.0**900])
def test_where_squares_overflow_nothing_is_enclosed(unit):
    X = np.random.default_rng(0).standard_normal((10, 4))
    v = vo.Variable(4) * unit
    r = vo.minimize(vo.sum(vo.ramp(X @ v)) + vo.sum_squares(v))
    assert r.lower <= r.fun <= 10.0
