"""Where no dual point balances, the bracket is of the points near the one found, and says how near: that is proved."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import BSpline

import varopt as vo
from varopt import Status
from varopt.certificates import Verifier
from varopt.solvers import exact_minimum


def _splines(rows: int, knots: int, seed: int) -> tuple[Any, Any, Any]:
    """Splines beside an intercept: dependent but for rounding, which makes a lower optimum at coefficients of 1e14."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0.0, 1.0, rows))
    y = np.sin(6.0 * t) + 0.3 * rng.standard_t(2, rows)
    X = BSpline.design_matrix(t, np.r_[[0.0] * 3, np.linspace(0.0, 1.0, knots), [1.0] * 3], 3).toarray()
    w, b = vo.Variable(X.shape[1]), vo.Variable()
    return np.column_stack([X, np.ones(rows)]), y, vo.sum(vo.abs(y - X @ w - b))


def _value(X: Any, y: Any, x: list[Fraction]) -> Fraction:
    lines = [[Fraction(v) for v in row] for row in X.tolist()]
    return sum(
        (
            abs(Fraction(target) - sum(a * v for a, v in zip(row, x, strict=True)))
            for row, target in zip(lines, y.tolist(), strict=True)
        ),
        Fraction(0),
    )


def _reach(assumption: str) -> float:
    return float(assumption.split(" within ")[1].split(" times ", maxsplit=1)[0])


@pytest.mark.parametrize("seed", [2, 5])
def test_a_bracket_that_assumes_a_near_optimum_says_how_near_and_holds_there(seed: int) -> None:
    X, y, f = _splines(40, 10, seed)
    r = vo.minimize(f)
    assert r.status is Status.ASSUMED
    reach = _reach(r.certificate.assumption)
    assert reach >= 100.0
    far = exact_minimum(f, r.x)
    assert far is not None
    here, there = [Fraction(v) for v in r.x.tolist()], [Fraction(v) for v in far.x.tolist()]
    sizes = [max(abs(v), Fraction(float(np.abs(r.x).max())) / 10**6) for v in here]
    beyond = [abs(v) > Fraction(reach) * s for v, s in zip(there, sizes, strict=True)]
    assert any(beyond)  # what is better in exact arithmetic is not among the points that the bracket is of
    share = min(Fraction(reach) * s / (abs(a) + abs(b)) for s, a, b in zip(sizes, here, there, strict=True))
    for part in (share, share / 2, -share):  # on the way there, and on the other side
        point = [a + part * (b - a) for a, b in zip(here, there, strict=True)]
        assert _value(X, y, point) >= Fraction(r.lower)
    assert _value(X, y, here) <= Fraction(r.upper)


def test_the_bound_of_near_points_falls_with_what_is_asked() -> None:
    _, _, f = _splines(40, 10, 2)
    r = vo.minimize(f)
    verifier = Verifier(f, r.x)
    bounds = [verifier.near(r.state.dual, r.fun * (1.0 - gap)) for gap in (1e-10, 1e-8, 1e-6)]
    assert all(r.fun * (1.0 - gap) <= lower for gap, (lower, _) in zip((1e-10, 1e-8, 1e-6), bounds, strict=True))
    reaches = [_reach(words) for _, words in bounds]
    assert reaches == sorted(reaches)
    assert reaches[0] < reaches[-1]
    assert verifier.near(r.state.dual, r.fun * (1.0 + 1e-9))[0] == -np.inf  # more than x itself has


def test_the_bound_of_near_points_charges_the_sizes_of_small_coordinates() -> None:
    """Two variables, one of them zero: the bound at the edge of its box, in fractions."""
    w = vo.Variable(2)
    u = np.array([[1.0, 1.0 + 2.0**-30], [1.0, 1.0], [3.0, -1.0]])
    f = vo.sum(vo.abs(u @ w - np.array([1.0, 1.0, 3.0]))) + 1e-9 * vo.sum(w)
    x = np.array([1.0, 0.0])
    lower, words = Verifier(f, x).near([np.array([0.25, -0.25, 0.0])], float(f.at(x)) - 1e-3)
    reach = Fraction(_reach(words))
    for first in (-reach, reach):
        for second in (-reach / 10**6, reach / 10**6):
            rows = [[Fraction(v) for v in row] for row in u.tolist()]
            value = sum(abs(a * first + b * second - t) for (a, b), t in zip(rows, (1, 1, 3), strict=True))
            assert value + Fraction(1e-9) * (first + second) >= Fraction(lower)
