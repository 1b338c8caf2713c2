"""Proofs beside norms: the dual is moved inwards for room, by as much as is needed, before anything dear is tried."""

import numpy as np
import pytest

import varopt as vo
from varopt.certificates import _verified_bracket


@pytest.fixture
def proofs(monkeypatch):
    """What each call of a proof was asked for."""
    asked, prove = [], _verified_bracket.verified_lower

    def verified_lower(*args, **options):
        asked.append(options["thorough"])
        return prove(*args, **options)

    monkeypatch.setattr(_verified_bracket, "verified_lower", verified_lower)
    return asked


@pytest.mark.parametrize("share", [2.0, 10.0, 50.0])
def test_a_group_lasso_is_proved_by_the_first_dual_with_room(rng, proofs, share):
    X = rng.standard_normal((40, 300))
    y = X[:, :30] @ rng.standard_normal(30) + rng.standard_normal(40)
    groups = np.array_split(np.arange(300), 60)
    strength = max(2.0 * np.linalg.norm((X.T @ y)[g]) for g in groups) / share
    w = vo.Variable(300)
    r = vo.minimize(vo.sum_squares(y - X @ w) + strength * vo.norm2(w, groups))
    assert r.status is vo.Status.OPTIMAL
    assert r.gap <= 1e-9 * r.fun
    assert proofs == [False]


@pytest.mark.parametrize("rows", [60, 300])
def test_a_norm_of_errors_is_proved_with_as_much_room_as_it_needs(rng, proofs, rows):
    """Residuals' duals are on the sphere: a share of 1e-11 of it is less than what rounding leaves of 40 equations."""
    X = rng.standard_normal((rows, 40))
    y = X @ (rng.standard_normal(40) * (rng.random(40) < 0.3)) + rng.standard_t(3, rows)
    w = vo.Variable(40)
    r = vo.minimize(vo.norm2(y - X @ w))
    best = np.linalg.norm(y - X @ np.linalg.lstsq(X, y)[0])
    assert r.status is vo.Status.OPTIMAL
    assert r.lower <= best * (1.0 + 1e-15)
    assert r.fun == pytest.approx(best, rel=1e-9)
    assert True not in proofs


def test_columns_that_depend_on_an_intercept_need_no_assumption_beside_a_norm_of_errors(rng):
    X = rng.standard_normal((300, 20))
    X[:, :5] = np.eye(5)[rng.integers(5, size=300)]
    w, b = vo.Variable(20), vo.Variable()
    r = vo.minimize(vo.norm2(X @ rng.standard_normal(20) + rng.standard_t(3, 300) - X @ w - b))
    assert r.status is vo.Status.OPTIMAL
