"""Trend filtering by its knots: against the explicit programme and against interior points."""

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from tests.solvers.explicit import explicit_optimum
from varopt.composite import composite
from varopt.optimize import Status
from varopt.solvers import METHODS


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def second_differences(places):
    """The bends of a line through points at uneven places."""
    steep = 1.0 / np.diff(places)
    return sp.diags_array(
        [steep[:-1], -(steep[:-1] + steep[1:]), steep[1:]], offsets=[0, 1, 2], shape=(places.size - 2, places.size)
    ).tocsr()


def bending(n, rng, loss="norm1", uneven=False, ties=False, sign=1.0):
    """A line with weights, penalties and, if wanted, distances of its own for every point."""
    x = vo.Variable(n)
    y = np.cumsum(np.cumsum(rng.standard_normal(n))) / 5.0 + rng.standard_normal(n)
    y = np.round(y) if ties else y
    penalty = rng.choice([0.0, 0.5, 1.0, 2.0], n - 2) * rng.choice([0.1, 1.0, 30.0, 1000.0])
    d = sign * second_differences(np.cumsum(rng.choice([0.3, 1.0, 4.0], n))) @ x if uneven else sign * vo.diff(x, 2)
    f = {
        "norm1": lambda: vo.sum(penalty * vo.abs(d)),
        "concave": lambda: vo.sum(penalty * vo.pos(-d)),
        "uneven": lambda: vo.sum(penalty * vo.pinball(3.0 * d, 0.2)),
    }[loss]()
    return vo.sum(rng.choice([0.5, 1.0, 3.0], n) * vo.square(x - y)) + f


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("loss", ["norm1", "concave", "uneven"])
def test_the_bracket_holds_the_optimum_of_the_explicit_programme(loss, uneven, ties, rng):
    for n in (3, 4, 5, 9, 20, 60):
        for sign in (1.0, -1.0, 1.0, -1.0):
            f = bending(n, rng, loss, uneven, ties, sign)
            r = vo.minimize(f, method="knots")
            optimum = explicit_optimum(f)
            assert r.status is Status.OPTIMAL
            assert r.lower <= optimum + 1e-7 * max(1.0, abs(optimum))
            assert r.fun <= optimum + 1e-7 * max(1.0, abs(optimum))
            assert r.gap <= 1e-9 * max(1.0, abs(r.fun))


def noisy(n, rng, every=100):
    corners = np.arange(0, n + every, every)
    return np.interp(np.arange(n), corners, 10.0 * rng.standard_normal(corners.size)) + rng.standard_normal(n)


@pytest.mark.parametrize("penalty", [1e-2, 0.5, 5.0, 50.0, 1e3, 1e5, 1e7])
def test_interior_points_agree(penalty, rng):
    """From knots nearly everywhere to none."""
    n = 3000
    y, x = noisy(n, rng), vo.Variable(n)
    f = 0.5 * vo.sum_squares(y - x) + penalty * vo.norm1(vo.diff(x, 2))
    knots, points = vo.minimize(f), vo.minimize(f, method="interior-point")
    assert knots.method == "knots > interior-point"
    # At the largest penalty the rounding of the second differences alone is beyond the tolerance.
    assert knots.status is Status.OPTIMAL or penalty == 1e7
    assert knots.lower <= points.upper
    assert points.lower <= knots.upper
    np.testing.assert_allclose(knots.x, points.x, atol=1e-4)
    floor = penalty * n * 1e-15 * np.abs(y).max()  # what rounding of x does to its differences, times the penalty
    assert knots.state.gap <= 1e-11 * knots.fun + floor


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_units_do_not_matter(scale, shift, rng):
    n = 3000
    y = noisy(n, rng)
    x = vo.Variable(n)
    plain = vo.minimize(0.5 * vo.sum_squares(y - x) + 50.0 * vo.norm1(vo.diff(x, 2)))
    other = vo.minimize(0.5 * vo.sum_squares(scale * (shift + y) - x) + 50.0 * scale * vo.norm1(vo.diff(x, 2)))
    assert other.method == "knots > interior-point"
    np.testing.assert_allclose(other.x / scale - shift, plain.x, atol=1e-7)


def test_the_optimum_is_a_broken_line(rng):
    """Exactly straight between its knots, and at every knot the dual point is at the end it bends to."""
    n, penalty = 5000, 20.0
    y, x = noisy(n, rng), vo.Variable(n)
    r = vo.minimize(0.5 * vo.sum_squares(y - x) + penalty * vo.norm1(vo.diff(x, 2)))
    bends = np.diff(r.x, 2)
    bent = np.abs(bends) > 1e-9
    assert 10 < np.count_nonzero(bent) < 1000
    assert np.abs(bends[~bent]).max() <= 1e-13
    dual = np.cumsum(np.cumsum(y - r.x))[:-2]  # D'u = y - x
    assert np.abs(dual).max() <= penalty * (1.0 + 1e-7)
    np.testing.assert_allclose(dual[bent], penalty * np.sign(bends[bent]), rtol=1e-6)


@pytest.mark.parametrize("few", [0, 200])
def test_what_goes_in_circles_is_settled(few, rng, monkeypatch):
    """Without patience a programme or interior points settle the knots, as often as it takes."""
    n = 4000
    y, x = noisy(n, rng), vo.Variable(n)
    f = 0.5 * vo.sum_squares(y - x) + 50.0 * vo.norm1(vo.diff(x, 2))
    best = vo.minimize(f)
    monkeypatch.setattr("varopt.solvers.signals._knots._CYCLING", 0)
    monkeypatch.setattr("varopt.solvers.signals._knots._SETTLED_PLACES", few)
    monkeypatch.setattr("varopt.solvers.signals._knots._CYCLES", 100)
    hasty = vo.minimize(f)
    assert hasty.status is Status.OPTIMAL
    np.testing.assert_allclose(hasty.x, best.x, atol=1e-7)


@pytest.mark.parametrize("kind", ["steps", "spikes", "constant", "corners"])
def test_signals_without_noise_end_soon(kind, rng):
    """Their dual points meet their ends at more places than the line breaks: what joins may leave at once."""
    n = 20_000
    y = {
        "steps": np.repeat(rng.standard_normal(n // 100), 100),
        "spikes": np.where(rng.random(n) < 0.01, 100.0, 0.0),
        "constant": np.full(n, 3.7),
        "corners": np.abs(np.arange(n) % 400 - 200.0),
    }[kind]
    x = vo.Variable(n)
    f = 0.5 * vo.sum_squares(y - x) + vo.norm1(vo.diff(x, 2))
    r, points = vo.minimize(f), vo.minimize(f, method="interior-point")
    assert (r.method, r.status) == ("knots > interior-point", Status.OPTIMAL)
    assert r.nit <= 150
    assert r.lower <= points.upper + 1e-12
    assert points.lower <= r.upper + 1e-12


@pytest.mark.parametrize("scale", [1e-9, 1e-6])
@pytest.mark.parametrize("penalty", [0.05, 0.5, 5.0])
def test_small_units_are_no_reason_to_stop_early(scale, penalty, rng):
    n = 1500
    y, x = scale * noisy(n, rng), vo.Variable(n)
    f = 0.5 * vo.sum_squares(y - x) + penalty * scale * vo.norm1(vo.diff(x, 2))
    knots, points = vo.minimize(f), vo.minimize(f, method="interior-point")
    np.testing.assert_allclose(knots.x, points.x, atol=1e-6 * scale)


def test_what_is_too_uneven_goes_to_interior_points():
    weights, x = np.array([1e-20, 1.0, 1e-20]), vo.Variable(3)
    f = vo.sum(weights * vo.square(x - np.arange(3.0) ** 2)) + vo.norm1(vo.diff(x, 2))
    assert vo.minimize(f, method="knots").status is Status.OPTIMAL


def test_a_similar_line_is_a_good_start(rng):
    n = 20_000
    y, x = noisy(n, rng), vo.Variable(n)

    def f(penalty):
        return 0.5 * vo.sum_squares(y - x) + penalty * vo.norm1(vo.diff(x, 2))

    first = vo.minimize(f(50.0))
    cold, warm = vo.minimize(f(48.0)), vo.minimize(f(48.0), x0=first.x)
    assert warm.status is Status.OPTIMAL
    assert warm.nit < 0.7 * cold.nit
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-8)
    anywhere = vo.minimize(f(48.0), x0=rng.standard_normal(n))
    np.testing.assert_allclose(anywhere.x, cold.x, atol=1e-8)


@pytest.mark.parametrize("when", [0, 3, 9])
def test_an_interrupt_leaves_a_bracket(when, rng):
    n = 5000
    y, x = noisy(n, rng), vo.Variable(n)
    f = 0.5 * vo.sum_squares(y - x) + 50.0 * vo.norm1(vo.diff(x, 2))
    calls = []

    def interrupt(_):
        calls.append(1)
        if len(calls) > when:
            raise KeyboardInterrupt

    best, r = vo.minimize(f), vo.minimize(f, callback=interrupt)
    assert r.status is Status.INTERRUPTED
    assert np.isfinite(r.upper)
    assert np.isfinite(r.lower)
    assert r.lower <= best.upper
    assert r.upper >= best.lower


def test_other_problems_are_refused(rng):
    x = vo.Variable(50)
    y = rng.standard_normal(50)
    others = [
        vo.sum_squares(x - y) + vo.norm1(vo.diff(x)),
        vo.sum_squares(x - y) + vo.norm1(vo.diff(x, 3)),
        vo.sum_squares(x - y) + vo.norm1(vo.diff(x, 2) - 1.0),
        vo.sum_squares(x - y) + vo.norm1(vo.diff(x, 2)) + vo.norm1(x),
        vo.sum_squares(rng.standard_normal((60, 50)) @ x) + vo.norm1(vo.diff(x, 2)),
        vo.sum_squares(x - y) + vo.sum(vo.huber(vo.diff(x, 2), 1.0)),
        vo.sum_squares(x[:40] - y[:40]) + vo.norm1(vo.diff(x, 2)),
    ]
    for f in others:
        assert "square for each" in METHODS["knots"].refusal(composite(f))
    with pytest.raises(ValueError, match="kink of every second difference"):
        vo.minimize(others[0], method="knots")
