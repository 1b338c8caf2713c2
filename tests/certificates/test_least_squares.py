"""The short way to the bracket of a lasso: sound in fractions, and taken where it may be."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import varopt as vo
from varopt.certificates import Verifier, _least_squares  # how often the short way is taken
from varopt.composite import composite
from varopt.model.maps import latest_products
from varopt.optimize.constrained._penalty import Penalised  # at points that a run does not come to

COUNT, SIZE = 300, 60


def exact(X, y, weight, penalties, x):
    """The objective in fractions."""
    x = [Fraction(v) for v in x]
    squares = Fraction(0)
    for row, target in zip(X.tolist(), y.tolist(), strict=True):
        squares += (Fraction(target) - sum(Fraction(a) * v for a, v in zip(row, x, strict=True) if v)) ** 2
    sizes = sum(Fraction(float(c)) * abs(v) for c, v in zip(penalties, x, strict=True))
    return Fraction(weight) * squares + sizes


def optimum(X, y, penalty, signs):
    """The point with these signs whose gradient in what is not zero vanishes, in fractions."""
    live = np.flatnonzero(signs)
    columns = [[Fraction(v) for v in X[:, j].tolist()] for j in live]
    targets = [Fraction(v) for v in y.tolist()]
    rows = [[sum(a * b for a, b in zip(c, other, strict=True)) for other in (*columns, targets)] for c in columns]
    for row, sign in zip(rows, signs[live], strict=True):
        row[-1] -= Fraction(penalty) * int(sign) / 2
    for i, pivot in enumerate(rows):  # Gauss and Jordan
        pivot[:] = [v / pivot[i] for v in pivot]
        for row in rows:
            if row is not pivot:
                row[:] = [a - row[i] * b for a, b in zip(row, pivot, strict=True)]
    x = [Fraction(0)] * signs.size
    for j, row in zip(live, rows, strict=True):
        x[j] = row[-1]
    return x


@pytest.fixture
def taken(monkeypatch):
    found = []
    short = _least_squares.lasso_at_hand

    def watched(*given):
        found.append(short(*given))
        return found[-1]

    monkeypatch.setattr("varopt.certificates._verified_bracket.lasso_at_hand", watched)
    return found


def lasso(seed, units=1.0, shift=0.0, count=COUNT, size=SIZE):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, size)) * 10.0 ** rng.uniform(-1.0, 1.0, size) + shift
    y = units * (X[:, :3] @ [1.0, -2.0, 3.0] + rng.standard_normal(count))
    return X, y, float(2.0 * np.abs(X.T @ y).max() / 20.0)


@pytest.mark.parametrize(("units", "shift"), [(1.0, 0.0), (1e90, 0.0), (1e-90, 0.0), (1.0, 30.0)])
@pytest.mark.parametrize("seed", range(3))
def test_the_bracket_holds_in_fractions(seed, units, shift, taken):
    X, y, penalty = lasso(seed, units, shift)
    penalties = penalty * np.random.default_rng(seed).uniform(0.5, 1.0, SIZE) if seed else np.full(SIZE, penalty)
    w = vo.Variable(SIZE)
    r = vo.minimize(0.5 * vo.sum_squares(y - X @ w) + vo.sum(penalties * vo.abs(w)))
    assert r.status is vo.Status.OPTIMAL
    assert taken[-1] is not None
    assert exact(X, y, 0.5, penalties, r.x) <= Fraction(r.upper)
    near = np.random.default_rng(seed + 100)
    for other in (r.x, r.x * (1.0 + 1e-9 * near.standard_normal(SIZE)), np.zeros(SIZE)):
        assert Fraction(r.lower) <= exact(X, y, 0.5, penalties, other)


@pytest.mark.parametrize(("units", "shift"), [(1.0, 0.0), (1e90, 0.0), (1e-90, 0.0), (1.0, 30.0)])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("flipped", [False, True])
def test_the_bracket_beside_an_intercept_holds_in_fractions(units, shift, first, flipped, taken):
    """The intercept before or after the coefficients; also below its best, which the dual's mean is charged for."""
    X, y, penalty = lasso(11, units, shift)
    y = y + 7.0 * units
    b, w = (vo.Variable(), vo.Variable(SIZE)) if first else (None, vo.Variable(SIZE))
    b = vo.Variable() if b is None else b
    rest = b + X @ w - y if flipped else y - X @ w - b
    f = 0.25 * vo.sum_squares(rest) + penalty * vo.norm1(w)
    r = vo.minimize(f)
    assert r.status is vo.Status.OPTIMAL
    assert taken[-1] is not None
    whole = np.column_stack([X, np.ones(COUNT)])
    penalties = np.append(np.full(SIZE, penalty), 0.0)
    at = np.append(r[w], r[b])
    assert exact(whole, y, 0.25, penalties, at) <= Fraction(r.upper)
    near = np.random.default_rng(3)
    better = np.append(r[w], np.mean(y - X @ r[w]))
    for other in (at, better, at * (1.0 + 1e-9 * near.standard_normal(SIZE + 1)), np.append(np.zeros(SIZE), y.mean())):
        assert Fraction(r.lower) <= exact(whole, y, 0.25, penalties, other)
    problem = composite(f)
    squares = problem.squares[0]
    for off in (1e-9, 1e-5, -1e-5, 1e-2, -1e-2):  # to the side where the value is too high if nothing is charged
        x = r.x.copy()
        x[f.slices[b]] += off * abs(r[b])
        with latest_products(), np.errstate(all="ignore"):
            squares.linear.transpose_apply(
                squares.weights * squares.term.derivative(squares.linear.apply(x) + squares.offset)
            )
            lower, upper = _least_squares.lasso_at_hand(f, problem, x, {}, np.inf)
        assert Fraction(lower) <= exact(whole, y, 0.25, penalties, better)
        moved = np.append(x[f.slices[w]], x[f.slices[b]])
        assert exact(whole, y, 0.25, penalties, moved) <= Fraction(upper)


@pytest.mark.parametrize(("count", "size"), [(100, 5), (40, 3), (12, 12), (60, 8)])
@pytest.mark.parametrize(("units", "shift"), [(1.0, 0.0), (1e90, 0.0), (1e-90, 0.0), (1.0, 30.0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_small_lassos_are_bracketed_around_the_exact_optimum(count, size, units, shift, order, taken):
    X, y, penalty = lasso(count + size, units, shift, count, size)
    w = vo.Variable(size)
    f = vo.sum_squares(np.asarray(X, order=order) @ w - y) + penalty * vo.norm1(w)
    r = vo.minimize(f)
    assert r.status is vo.Status.OPTIMAL
    assert taken[-1] is not None
    assert taken[-1][1] - taken[-1][0] <= 1e-12 * r.fun
    best = optimum(X, y, penalty, np.sign(r.x))
    assert Fraction(r.lower) <= exact(X, y, 1.0, np.full(size, penalty), best)
    assert exact(X, y, 1.0, np.full(size, penalty), r.x) <= Fraction(r.upper)


def test_small_lassos_that_fit_closely_are_left_to_more_digits(taken):
    X, _, _ = lasso(7, count=50, size=4)
    y, w = X @ [1.0, -2.0, 3.0, 0.5], vo.Variable(4)
    r = vo.minimize(vo.sum_squares(y - X @ w) + 1e-9 * vo.norm1(w))
    assert r.status is vo.Status.OPTIMAL
    assert taken == [None]


def test_it_agrees_with_the_long_way(taken):
    X, y, penalty = lasso(5)
    w = vo.Variable(SIZE)
    f = vo.sum_squares(X @ w - y) + penalty * vo.norm1(w)
    r = vo.minimize(f)
    assert taken[-1] == (r.lower, max(r.upper, r.fun))
    long = Verifier(f, r.x).bracket(None, 1e-9 * r.fun)
    assert long.lower <= r.upper
    assert r.lower <= long.upper
    assert r.gap <= 1e-10 * r.fun


@pytest.fixture
def sided(monkeypatch):
    found = []
    short = _least_squares.sided_lasso

    def watched(*given):
        found.append(short(*given))
        return found[-1]

    monkeypatch.setattr("varopt.optimize.constrained._one_side.sided_lasso", watched)
    return found


def kept_to_a_side(kind, X, y, penalty, weight=0.5):
    """An objective, its constraints, what a unit of each variable costs on its side, the sides, and what is linear."""
    w, size = vo.Variable(X.shape[1]), X.shape[1]
    mantissa, exponent = math.frexp(0.1 * penalty)
    penalty = math.ldexp(round(mantissa * 2**20), exponent - 20)  # whose sums with costs are exact
    squares, prices = weight * vo.sum_squares(y - X @ w), np.full(size, penalty)
    costs = (32 + np.arange(size) % 32) / 64 * penalty
    ones, none = np.ones(size), np.zeros(size)
    if kind == "sizes":
        return squares + penalty * vo.norm1(w), [w >= 0], prices, ones, none
    if kind == "sizes of their own":
        return squares + vo.sum(costs * vo.abs(w)), [w <= 0], costs, -ones, none
    if kind == "linear":
        return squares + costs @ w, [w >= 0], costs, ones, costs
    if kind == "linear, below":
        return squares - penalty * vo.sum(w), [w <= 0], prices, -ones, -prices
    if kind == "both":
        return squares + penalty * vo.norm1(w) + costs @ w, [w >= 0], prices + costs, ones, costs
    return squares + penalty * vo.norm1(w), [w[::2] >= 0], prices, np.where(np.arange(size) % 2 == 0, 1.0, 0.0), none


KINDS = ("sizes", "sizes of their own", "linear", "linear, below", "both", "some")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("units", "shift"), [(1.0, 0.0), (1e90, 0.0), (1e-90, 0.0), (1.0, 30.0)])
def test_the_bracket_of_variables_that_keep_to_one_side_holds_in_fractions(kind, units, shift, sided):
    X, y, penalty = lasso(21, units, shift)
    f, constraints, prices, sides, _ = kept_to_a_side(kind, X, y, penalty)
    r = vo.minimize(f, subject_to=constraints)
    assert r.status is vo.Status.OPTIMAL
    assert sided[-1] is not None
    assert r.violation == 0.0
    assert np.all(sides * r.x >= 0.0)
    assert np.any(r.x != 0.0) or shift
    assert exact(X, y, 0.5, prices, r.x) <= Fraction(r.upper)
    near = np.random.default_rng(4)
    for other in (r.x, r.x * (1.0 + 1e-9 * near.standard_normal(SIZE)), np.zeros(SIZE)):
        assert Fraction(r.lower) <= exact(X, y, 0.5, prices, other)
    long = vo.minimize(f, subject_to=[*constraints, vo.sum(f.variables[0]) <= 1e3 * units])  # which proves it otherwise
    assert len(sided) == 1
    assert long.lower <= r.upper
    assert r.lower <= long.upper


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("units", "shift"), [(1.0, 0.0), (1.0, 30.0)])
@pytest.mark.parametrize(("count", "size"), [(60, 6), (5500, 3)])  # which is small, and which is not
def test_bounds_of_variables_that_keep_to_one_side_hold_near_the_exact_optimum(kind, units, shift, count, size, rng):
    X, y, penalty = lasso(count, units, shift, count, size)
    f, constraints, prices, *_ = kept_to_a_side(kind, X, y, penalty, weight=1.0)
    r = vo.minimize(f, subject_to=constraints)
    best = exact(X, y, 1.0, prices, sided_optimum(X, y, prices, np.sign(r.x)))
    assert Fraction(r.lower) <= best <= Fraction(r.upper)
    penalised = Penalised(f, constraints)
    problem = penalised.problem(penalised.first_weights())
    for off in (1e-12, 1e-6, 1e-2):
        x = r.x * (1.0 + off * rng.standard_normal(size))
        found = _least_squares.sided_lasso(f, problem, x, 1e300)
        assert found is not None or count == 60
        if found is not None:
            assert Fraction(found.lower) <= best
            assert exact(X, y, 1.0, prices, x) <= Fraction(found.upper)


def sided_optimum(X, y, prices, signs):
    """The same as `optimum` for prices of their own, by columns in units of them."""
    scaled = [
        [Fraction(v) / Fraction(p) for v in column] for column, p in zip(X.T.tolist(), prices.tolist(), strict=True)
    ]
    x = optimum(np.array(scaled, dtype=object).T, y, 1, signs)
    return [v / Fraction(p) for v, p in zip(x, prices.tolist(), strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_multipliers_of_variables_that_keep_to_one_side_balance_the_gradient(kind, sided):
    X, y, penalty = lasso(22)
    f, constraints, prices, sides, linear = kept_to_a_side(kind, X, y, penalty)
    r = vo.minimize(f, subject_to=constraints)
    assert sided[-1] is not None
    slope = X.T @ (X @ r.x - y)
    sizes = prices - sides * linear
    kept = np.zeros(SIZE)
    kept[sides != 0.0] = r.multipliers[constraints[0]]
    assert np.all(kept >= 0.0)
    assert np.all(kept[r.x != 0.0] == 0.0)
    left = slope + linear - sides * kept  # what the sizes have to balance
    moving = r.x != 0.0
    np.testing.assert_allclose(left[moving], -sizes[moving] * np.sign(r.x[moving]), atol=1e-9 * penalty)
    assert np.all(np.abs(left) <= sizes * (1.0 + 1e-12) + 1e-9 * penalty)
    assert np.any(kept > 0.0)


def test_other_constraints_and_costs_are_left_to_the_long_way(sided):
    X, y, penalty = lasso(23)
    w, b = vo.Variable(SIZE), vo.Variable()
    squares, sizes = vo.sum_squares(y - X @ w), penalty * vo.norm1(w)
    costs = penalty * np.linspace(-1.0, 1.0, SIZE)
    for f, constraints in (
        (squares, [w >= 0]),  # without a price no dual point can be scaled
        (squares + costs @ w, [w >= 0]),
        (squares + sizes + costs @ w, [w[:-1] >= 0]),
        (squares + sizes, [w >= 0, w <= 10.0]),
        (squares + sizes, [w >= -1e-3]),
        (squares + sizes, [2.0 * w >= 0]),
        (squares + sizes, [w >= 0, w >= 0]),
        (squares + sizes, [w == 0]),
        (squares + sizes + 3.0, [w >= 0]),
        (squares + sizes + vo.square(b), [w >= 0, b >= 0]),
        (vo.sum_squares(y - X @ w - b) + sizes, [w >= 0, b >= 0]),
        (vo.sum_squares(y - X @ w - b) + sizes + 1e-3 * b, [w >= 0]),
        (squares + penalty * vo.norm1(w - 1.0), [w >= 0]),
    ):
        assert vo.minimize(f, subject_to=constraints).status is vo.Status.OPTIMAL
    assert sided
    assert not any(found is not None for found in sided)


def test_an_intercept_beside_variables_that_keep_to_one_side(sided):
    X, y, penalty = lasso(24)
    w, b = vo.Variable(SIZE), vo.Variable()
    r = vo.minimize(0.5 * vo.sum_squares(y + 7.0 - X @ w - b) + penalty * vo.norm1(w), subject_to=[w >= 0])
    assert r.status is vo.Status.OPTIMAL
    assert sided[-1] is not None
    whole, prices = np.column_stack([X, np.ones(COUNT)]), np.append(np.full(SIZE, penalty), 0.0)
    for centre in (r[b], np.mean(y + 7.0 - X @ r[w])):
        at = np.append(r[w], centre)
        assert Fraction(r.lower) <= exact(whole, y + 7.0, 0.5, prices, at)
    assert exact(whole, y + 7.0, 0.5, prices, np.append(r[w], r[b])) <= Fraction(r.upper)


def signal_in_fractions(signal, weight, penalty, order, x):
    x = [Fraction(float(v)) for v in x]
    squares = sum((Fraction(float(t)) - v) ** 2 for t, v in zip(signal, x, strict=True))
    for _ in range(order):
        x = [b - a for a, b in itertools.pairwise(x)]
    return Fraction(weight) * squares + Fraction(penalty) * sum(map(abs, x))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("units", "shift"), [(1.0, 0.0), (1e90, 0.0), (1e-90, 0.0), (1.0, 50.0)])
@pytest.mark.parametrize("flipped", [False, True])
def test_the_bracket_of_a_signal_holds_in_fractions(order, units, shift, flipped, monkeypatch):
    found = []
    short = _least_squares.signal_bracket
    monkeypatch.setattr(
        "varopt.certificates._verified_bracket.signal_bracket", lambda *given: found.append(short(*given)) or found[-1]
    )
    rng = np.random.default_rng(order)
    signal = units * (np.repeat(rng.standard_normal(20), 10) + 0.3 * rng.standard_normal(200)) + shift
    x, penalty = vo.Variable(200), 2.0 * units
    fit = vo.sum_squares(x - signal) if flipped else vo.sum_squares(signal - x)
    r = vo.minimize(0.5 * fit + penalty * vo.norm1(vo.diff(x, order)))
    assert r.status is vo.Status.OPTIMAL
    assert found[-1] is not None or order == 3
    assert signal_in_fractions(signal, 0.5, penalty, order, r.x) <= Fraction(r.upper)
    for other in (r.x, r.x * (1.0 + 1e-9 * rng.standard_normal(200)), signal, np.full(200, signal.mean())):
        assert Fraction(r.lower) <= signal_in_fractions(signal, 0.5, penalty, order, other)


def test_other_problems_are_left_to_the_long_way(taken):
    X, y, penalty = lasso(6)
    w, b = vo.Variable(SIZE), vo.Variable()
    squares = vo.sum_squares(y - X @ w)
    for f in (
        squares + penalty * vo.norm1(w) + vo.sum(w),
        squares + penalty * vo.norm1(w) + 3.0,
        squares + penalty * vo.norm1(w - 1.0),
        squares + penalty * vo.norm1(2.0 * w),
        squares + penalty * vo.sum(vo.pinball(w, 0.3)),
        squares + penalty * vo.norm1(w[:-1]),
        vo.sum_squares(y - X @ w - b) + penalty * (vo.norm1(w) + vo.abs(b)),
        vo.sum_squares(y - X @ w - 2.0 * b) + penalty * vo.norm1(w),
        vo.sum(np.linspace(1.0, 2.0, COUNT) * vo.square(y - X @ w)) + penalty * vo.norm1(w),
        squares + penalty * vo.norm1(w) + 1e-3 * vo.sum_squares(w),
    ):
        assert vo.minimize(f).status is vo.Status.OPTIMAL
    assert not any(taken)


@pytest.mark.parametrize("far", [1e3, 1e9, 1e10])
def test_a_share_whose_square_underflows_is_charged(far):
    """Far from the optimum a dual point is scaled by 1e-161, and what it loses by its length is not nothing."""
    X, y, w = np.zeros((200, 100)), np.zeros(200), vo.Variable(100)
    X[0, 0], y[0], penalty, x = 1e99, 1e-53, 2e46, np.zeros(100)
    x[0] = -far
    f = vo.sum_squares(X @ w - y) + penalty * vo.norm1(w)
    problem = composite(f)
    squares = problem.squares[0]
    with latest_products(), np.errstate(all="ignore"):
        v = squares.weights * squares.term.derivative(squares.linear.apply(x) + squares.offset)
        squares.linear.transpose_apply(v)
        lower, upper = _least_squares.lasso_at_hand(f, problem, x, {}, 1e300)
    best = exact(X, y, 1.0, np.full(100, penalty), np.zeros(100))
    assert 0.99 * best <= Fraction(lower) <= best
    assert exact(X, y, 1.0, np.full(100, penalty), x) <= Fraction(upper)
