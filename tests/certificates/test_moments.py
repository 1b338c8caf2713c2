"""Proofs of least squares by their Gram matrices, against rational arithmetic."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import varopt as vo
from varopt import Status
from varopt.certificates import Verifier
from varopt.certificates._moments import moments_at  # against fractions
from varopt.certificates._proof_parts import with_dual  # the subgradients that a proof begins with
from varopt.composite import composite


def _exact(X: Any, y: Any, w: Any, b: float, scale: float) -> tuple[Fraction, list[Fraction]]:
    """``c sum (y - X w - b)^2`` and its gradient in w and b, as fractions."""
    c, point = Fraction(scale), [Fraction(v) for v in np.asarray(w).tolist()]
    gradient, value = [Fraction(0)] * (len(point) + 1), Fraction(0)
    for row, target in zip(X.tolist(), y.tolist(), strict=True):
        line = [*(Fraction(a) for a in row), Fraction(1)]
        rest = Fraction(target) - sum(a * v for a, v in zip(line, [*point, Fraction(b)], strict=True))
        value += c * rest * rest
        gradient = [g - 2 * c * a * rest for g, a in zip(gradient, line, strict=True)]
    return value, gradient


def _multiplied(f: Any) -> Any:
    problem = composite(f)
    for r in problem.squares:
        assert not r.gradient_at_zero.flags.writeable
        assert not (isinstance(r.hessian, np.ndarray) and r.hessian.flags.writeable)
    return problem


def _by_moments(f: Any, x: Any, problem: Any, gap: float) -> Any:
    with np.errstate(all="ignore"):
        return Verifier(f, x, squares=problem.squares)._by_moments(gap)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("intercept", [False, True])
def test_moments_enclose_value_and_gradient(seed: int, intercept: bool) -> None:
    """Features of all sizes and offsets, exact fits, tiny and huge weights; rows in more than one block of sums."""
    rng = np.random.default_rng([seed, 16])
    n, p = (2050, 2) if seed == 0 else (int(rng.integers(1, 60)), int(rng.integers(2, 5)))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.integers(-8, 9, p) + (seed % 3) * 1e6
    w0 = rng.standard_normal(p) / np.abs(X).max(axis=0)
    y = X @ w0 + (0.0 if seed % 4 == 1 else 10.0 ** rng.integers(-6, 3)) * rng.standard_normal(n)
    scale = float(rng.choice([1.0, 0.5, 1e-9, 3e7]))
    w, b = vo.Variable(p), vo.Variable()
    f = scale * vo.sum_squares(y - X @ w - b) if intercept else scale * vo.sum_squares(y - X @ w)
    squares = _multiplied(f).squares
    given = composite(f, multiplied=False).rows[0]
    for x in (w0, np.zeros(p), w0 * (1.0 + 1e-3 * rng.standard_normal(p))):
        at = float(rng.standard_normal()) if intercept else 0.0
        found = moments_at(given, squares, np.append(x, at) if intercept else x)
        assert found is not None
        value, gradient = _exact(X, y, x, at, scale)
        assert abs(value - Fraction(found.value)) <= Fraction(found.error)
        for g, middle, radius in zip(gradient, *found.gradient, strict=False):
            assert abs(g - Fraction(float(middle))) <= Fraction(float(radius))
        sizes = np.abs(X) @ np.abs(x) + np.abs(y) + abs(at)
        assert found.error <= 1e-11 * scale * float(sizes @ sizes)  # and are no wider than sums of products warrant
        if intercept:
            rest = found.without(p)  # at the best intercept, to which it is a step of g / H
            best = value - gradient[p] ** 2 / (4 * Fraction(scale) * n)
            assert abs(best - Fraction(rest.value)) <= Fraction(rest.error)
            step = -gradient[p] / (2 * Fraction(scale) * n)
            for j in range(p):
                moved = gradient[j] + step * 2 * Fraction(scale) * sum(Fraction(v) for v in X[:, j].tolist())
                middle, radius = float(rest.gradient.middle[j]), float(rest.gradient.radius[j])
                assert abs(moved - Fraction(middle)) <= Fraction(radius)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["lasso", "ridge", "elastic net", "sides"])
def test_what_is_proved_by_moments_holds_in_fractions(kind: str, intercept: bool) -> None:
    rng = np.random.default_rng([len(kind), intercept])
    n, p = 2300, 8
    X = rng.standard_normal((n, p)) * np.array([1.0, 1e3, 1e-3, 1.0, 1.0, 10.0, 1.0, 1.0])
    X = np.round(X * 2.0**20) / 2.0**20  # short fractions
    y = X @ np.array([2.0, 1e-3, 0.0, 0.0, -1.0, 0.0, 0.1, 3.0]) + rng.standard_t(3, n) + 4.0
    w, b = vo.Variable(p), vo.Variable()
    penalty, exact = {
        "lasso": (120.0 * vo.norm1(w), lambda v: 120 * sum(map(abs, v))),
        "ridge": (16.0 * vo.sum_squares(w), lambda v: 16 * sum(a * a for a in v)),
        "elastic net": (
            64.0 * vo.norm1(w) + 2.0 * vo.sum_squares(w),
            lambda v: 64 * sum(map(abs, v)) + 2 * sum(a * a for a in v),
        ),
        "sides": (256.0 * vo.sum(vo.pinball(w, 0.25)), lambda v: 64 * sum(max(a, -3 * a) for a in v)),
    }[kind]
    f = vo.sum_squares(y - X @ w - b) + penalty if intercept else vo.sum_squares(y - X @ w) + penalty
    problem = _multiplied(f)
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL

    def value(x: Any) -> Fraction:
        coef, at = x[:p], float(x[p]) if intercept else 0.0
        return _exact(X, y, coef, at, 1.0)[0] + Fraction(exact([Fraction(v) for v in coef.tolist()]))

    least = value(r.x)
    assert Fraction(r.lower) <= least <= Fraction(r.upper)
    for x in (r.x, r.x * (1.0 + 1e-9 * rng.standard_normal(r.x.size))):
        found = _by_moments(f, x, problem, 1e-3 * r.fun)
        assert found is not None
        assert Fraction(found.lower) <= least
        assert value(x) <= Fraction(found.upper)
    assert _by_moments(f, r.x, problem, 1e-7 * r.fun) is not None


def test_numbers_that_may_be_others_are_not_taken() -> None:
    rng = np.random.default_rng(0)
    X, y, w = rng.standard_normal((50, 3)), rng.standard_normal(50), vo.Variable(3)

    def found(f: Any, squares: Any) -> Any:
        return moments_at(composite(f, multiplied=False).rows[0], squares, np.ones(3))

    f = vo.sum_squares(y - X @ w)
    assert found(f, _multiplied(f).squares) is not None
    assert found(f, composite(f).squares) is None  # not multiplied out
    for other in (
        vo.sum_squares(y - X.copy() @ w), vo.sum_squares(y + 1.0 - X @ w), vo.sum_squares(y + X @ w),
        2.0 * vo.sum_squares(y - X @ w), vo.sum_squares(2.0 * (y - X @ w)),
    ):  # fmt: skip
        assert found(other, _multiplied(f).squares) is None
    for data in (np.asfortranarray(X), X.astype(np.float32), np.round(X).astype(int)):
        g = vo.sum_squares(y - data @ w)
        assert found(g, composite(g).squares) is None
    weighted = vo.sum(rng.uniform(1.0, 2.0, 50) * vo.square(y - X @ w))
    assert found(weighted, _multiplied(weighted).squares) is None
    squares = _multiplied(f).squares
    squares[0].__dict__["hessian"] = np.array(squares[0].hessian)  # which could have been written to
    assert found(f, squares) is None
    huge = 1e150 * vo.sum_squares(y - X @ w)
    assert found(huge, _multiplied(huge).squares) is None


def test_a_nearly_exact_fit_is_read_again() -> None:
    """Of squares that vanish beside what cancels, moments know nothing: the data are looked at."""
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((4000, 6)), vo.Variable(6)
    y = X @ np.arange(1.0, 7.0) + 1e-9 * rng.standard_normal(4000)
    f = vo.sum_squares(y - X @ w) + 1e-12 * vo.norm1(w)
    r = vo.minimize(f)
    assert _by_moments(f, r.x, _multiplied(f), 1e-9 * r.fun) is None
    assert Verifier(f, r.x).bracket(None, 1e-9 * r.fun).lower > 0.0


def _is_definite(matrix: list[list[Fraction]]) -> bool:
    """Whether elimination meets positive pivots alone, exactly."""
    a = [list(row) for row in matrix]
    for k, pivot in enumerate(a):
        if pivot[k] <= 0:
            return False
        for row in a[k + 1 :]:
            factor = row[k] / pivot[k]
            row[k:] = [v - factor * u for v, u in zip(row[k:], pivot[k:], strict=True)]
    return True


@pytest.mark.parametrize("seed", range(10))
def test_least_curvatures_and_what_they_prove_hold_in_fractions(seed: int) -> None:
    """Penalties of differences, which give no variable a row of its own: columns of all sizes, some nearly alike."""
    rng = np.random.default_rng([seed, 5])
    n, p = 60, 4
    X = rng.standard_normal((n, p)) * (10.0 ** rng.integers(-3, 4, p) if seed % 2 else 1.0)
    if seed % 3 == 1:
        X[:, 1] = X[:, 0] * (1.0 + 10.0 ** -rng.integers(2, 9) * rng.standard_normal(n))
    y = X @ rng.standard_normal(p) + 10.0 ** rng.integers(-3, 2) * rng.standard_normal(n)
    scale, weight = float(rng.choice([1.0, 1e-6, 1e6])), 0.1 * float(np.abs(X.T @ y).max())
    w = vo.Variable(p)
    f = scale * vo.sum_squares(y - X @ w) + scale * weight * vo.norm1(vo.diff(w))
    problem, best = _multiplied(f), vo.minimize(f)
    given = composite(f, multiplied=False).rows[0]
    found = moments_at(given, problem.squares, best.x)
    assert found is not None
    columns = [[Fraction(v) for v in column] for column in X.T.tolist()]
    gram = [[2 * Fraction(scale) * sum(a * b for a, b in zip(u, v, strict=True)) for v in columns] for u in columns]
    if (least := found.least_curvature) > 0.0:
        for k in range(p):
            gram[k][k] -= Fraction(least)
        assert _is_definite(gram)
    value, _ = _exact(X, y, best.x, 0.0, scale)
    exact = [Fraction(v) for v in best.x.tolist()]
    steps = sum(abs(b - a) for a, b in itertools.pairwise(exact))
    value += Fraction(scale) * Fraction(weight) * steps
    proved = []
    for x in (best.x, best.x * (1.0 + 1e-9 * rng.standard_normal(p)), best.x + 1e-3 * rng.standard_normal(p)):
        verifier = Verifier(f, x, squares=problem.squares)
        for dual in (best.state.dual, None):
            with np.errstate(all="ignore"):
                lower = verifier._by_curvature(with_dual(verifier._below, x, dual, verifier._norms))
            assert lower == -np.inf or Fraction(lower) <= value
            proved.append(lower)
    if seed % 2 == 0 and seed % 3 != 1:
        assert max(proved) >= best.fun - 1e-9 * abs(best.fun)


@pytest.mark.parametrize("term", [vo.pinball, vo.huber, vo.epsilon_insensitive])
def test_squares_beside_a_loss_with_a_number_for_each_row(term: Any) -> None:
    rng = np.random.default_rng(0)
    A, y = rng.standard_normal((2100, 8)), rng.standard_normal(2100)  # too many for a matrix that is looked at whole
    w = vo.Variable(8)
    f = vo.sum_squares(A @ w - y) + vo.sum(term(A @ w - y, np.linspace(0.1, 0.9, 2100))) + 0.1 * vo.sum(vo.abs(w))
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL
    assert r.lower <= r.fun <= r.upper


def test_squares_that_underflow_count_times_their_weight() -> None:
    w = vo.Variable(2)
    f = 1e60 * vo.sum_squares(np.array([[1e-165, 0.0], [0.0, 2e-165]]) @ w)
    value, error = Verifier(f, np.ones(2)).value
    assert Fraction(value) + Fraction(error) >= 5 * Fraction(1e-165) ** 2 * Fraction(1e60)
