"""Proofs without a linear system: sound in rational arithmetic, close, and taken where they apply."""

from fractions import Fraction

import numpy as np
import pytest

import varopt as vo
from varopt.certificates import Verifier
from varopt.certificates import _direct as direct  # which way a proof takes is looked at
from varopt.certificates import _verified_bracket as brackets  # likewise
from varopt.model import as_objective
from varopt.solvers.finish import exact_minimum


def _problems(rng, scale):
    X, y = scale * rng.standard_normal((40, 3)), rng.standard_normal(40)
    w, b = vo.Variable(3), vo.Variable()
    t = np.sign(y)
    yield vo.sum_squares(y - X @ w) + 5.0 * scale * vo.norm1(w)
    yield vo.sum_squares(y - X @ w - b) + 3.0 * scale * vo.norm1(w) + scale**2 * vo.sum_squares(w)
    yield 0.5 * scale**2 * vo.sum_squares(w) + vo.sum(vo.hinge(t * (X @ w + b)))
    yield vo.sum(vo.pinball(y - X @ w - b, 0.3)) + 2.0 * scale * vo.norm1(w)
    s = vo.Variable(9)
    yield 0.5 * vo.sum_squares(y[:9] - s) + 0.4 * vo.norm1(vo.diff(s))
    yield 0.5 * vo.sum_squares(y[:9] - s) + 0.4 * vo.norm1(vo.diff(s, 2))


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6, 0.3])
def test_the_bound_is_below_the_exact_optimum_and_close(rng, scale, monkeypatch):
    proved = []
    prove = direct.direct_lower
    monkeypatch.setattr(brackets, "direct_lower", lambda *args: proved.append(prove(*args)) or proved[-1])
    for f in _problems(rng, scale):
        objective, r = as_objective(f), vo.minimize(f)
        exact = exact_minimum(objective, r.x)
        lower, upper, _ = Verifier(objective, r.x).bracket(r.state.dual)
        assert Fraction(lower) <= Fraction(exact.upper)
        assert Fraction(upper) >= Fraction(exact.lower)
        assert upper - lower <= 1e-9 * abs(upper)
    assert len(proved) >= 11  # by `minimize`, but of the plain lasso, and again
    assert min(proved) > -np.inf


@pytest.mark.parametrize("spoil", [0.0, 1e-3, 1.0, 1e9])
def test_any_dual_gives_a_bound_that_holds(rng, spoil):
    for f in _problems(rng, 1.0):
        objective, r = as_objective(f), vo.minimize(f)
        exact = exact_minimum(objective, r.x)
        spoiled = [None if u is None else u + spoil * rng.standard_normal(np.shape(u)) for u in r.state.dual or ()]
        at = r.x + spoil * rng.standard_normal(r.x.size)
        lower, upper, _ = Verifier(objective, at).bracket(spoiled or None)
        assert lower <= exact.upper
        assert upper >= exact.lower


@pytest.mark.parametrize(("shift", "spread"), [(0, 10), (10**6, 3), (-(10**9), 10**6), (2**52, 1)])
def test_monotone_regression_of_many_points_is_bracketed_exactly(shift, spread):
    """Sums of many numbers are in double precision where that will do: against pooled neighbours in fractions."""
    rng = np.random.default_rng(0)
    y = shift + rng.integers(-spread, spread + 1, 9000) + np.arange(9000) // 500
    pools: list[list[int]] = []  # sums and counts
    for value in y.tolist():
        pools.append([value, 1])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    best = sum(v * v for v in y.tolist()) - sum(Fraction(total**2, count) for total, count in pools)
    curve = vo.Variable(9000)
    r = vo.minimize(vo.sum_squares(y.astype(float) - curve), subject_to=[vo.diff(curve) >= 0])
    assert Fraction(r.lower) <= best
    assert r.violation == 0.0
    x = [Fraction(float(v)) for v in r[curve]]
    assert sum((Fraction(a) - b) ** 2 for a, b in zip(y.tolist(), x, strict=True)) <= Fraction(r.upper)
    assert r.status.name == "OPTIMAL" or shift > 10**9
