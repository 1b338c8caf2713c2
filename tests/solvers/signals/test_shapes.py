"""Monotone and convex regression against other methods and exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.isotonic import isotonic_regression

import varopt as vo

SIGNALS = {
    "noisy bowl": lambda t, rng: t**2 + 0.3 * rng.standard_normal(t.size),
    "noise": lambda t, rng: rng.standard_normal(t.size),
    "random walk": lambda t, rng: np.cumsum(rng.standard_normal(t.size)),
    "convex": lambda t, rng: np.exp(3.0 * t),
    "concave": lambda t, rng: -(t**2),
    "line": lambda t, rng: 3.0 * t,
    "constant": lambda t, rng: np.full(t.size, 7.0),
    "steps": lambda t, rng: np.round(4.0 * t) + 0.0,
    "far from zero": lambda t, rng: 1e6 + t**2 + 0.3 * rng.standard_normal(t.size),
    "tiny": lambda t, rng: 1e-8 * (t**2 + 0.3 * rng.standard_normal(t.size)),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_convex_regression(name, rng):
    n = 1000
    y = SIGNALS[name](np.linspace(-1.0, 1.0, n), rng)
    x = vo.Variable(n)
    bent = vo.diff(x, 2) >= 0
    r = vo.minimize(vo.sum_squares(x - y), subject_to=[bent])
    assert r.status.name == "OPTIMAL"
    assert np.diff(r[x], 2).min() >= -1e-12 * max(np.abs(y).max(), 1e-300)
    # In exact arithmetic: for any multipliers m >= 0, min |x - y|^2 - m'Dx = -|D'm|^2 / 4 - (D'm)'y.
    m = [Fraction(float(v)) for v in np.maximum(r.multipliers[bent], 0.0)]
    back = [Fraction(0)] * n
    for k, v in enumerate(m):
        back[k], back[k + 1], back[k + 2] = back[k] + v, back[k + 1] - 2 * v, back[k + 2] + v
    exact = -sum(v * v for v in back) / 4 - sum(v * Fraction(float(t)) for v, t in zip(back, y, strict=True))
    assert r.lower <= float(exact) + 1e-9 * max(abs(r.fun), r.state.unit)
    assert float(exact) == pytest.approx(r.fun, rel=1e-9, abs=1e-9 * r.state.unit)


def test_weights_and_uneven_places(rng):
    n = 1000
    t = np.cumsum(rng.uniform(0.1, 1.0, n))
    y, c = np.sin(t / 100.0) + 0.2 * rng.standard_normal(n), rng.uniform(0.1, 5.0, n)
    h = np.diff(t)
    rows = sp.diags_array([1.0 / h[:-1], -1.0 / h[:-1] - 1.0 / h[1:], 1.0 / h[1:]], offsets=[0, 1, 2], shape=(n - 2, n))
    x = vo.Variable(n)
    f, concave = vo.sum(c * vo.square(x - y)), sp.csr_array(rows) @ x <= 0
    r = vo.minimize(f, subject_to=[concave])
    other = vo.minimize(f, subject_to=[concave], method="interior-point")
    assert r.status.name == "OPTIMAL"
    assert r.method == "knots"
    assert r.fun == pytest.approx(other.fun, rel=1e-7)
    assert np.all(np.diff(np.diff(r[x]) / h) <= 1e-12)
    assert np.all(r.multipliers[concave] >= 0.0)


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_monotone_regression(name, sign, rng):
    n = 800
    y, c = SIGNALS[name](np.linspace(-1.0, 1.0, n), rng), rng.uniform(0.1, 5.0, n)
    x = vo.Variable(n)
    r = vo.minimize(vo.sum(c * vo.square(x - y)), subject_to=[sign * vo.diff(x) >= 0])
    assert r.status.name == "OPTIMAL"
    assert r[x] == pytest.approx(isotonic_regression(y, sample_weight=c, increasing=sign > 0), rel=1e-9, abs=1e-15)
    assert np.all(sign * np.diff(r[x]) >= -1e-13 * np.abs(y).max())


def test_a_price_that_is_too_small_is_no_constraint(rng):
    """Nearly isotonic regression: the string touches both walls."""
    y = rng.standard_normal(500)
    x = vo.Variable(500)
    f = vo.sum_squares(x - y) + 0.5 * vo.sum(vo.pos(-vo.diff(x)))
    r, other = vo.minimize(f), vo.minimize(f, method="interior-point")
    assert r.method == "taut-string"
    assert r.fun == pytest.approx(other.fun, rel=1e-8)
    assert np.any(np.diff(r[x]) < -1e-3)
