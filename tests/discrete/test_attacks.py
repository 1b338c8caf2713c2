"""What once went wrong silently: tolerances that were absolute, contradictions that were proved."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt.discrete import ising, max_cut, max_sat, qubo
from varopt.optimize import Status

SCALES = [1e-15, 1e-9, 1e-4, 1.0, 1e6, 1e15]


@pytest.mark.parametrize("scale", SCALES)
def test_the_tolerance_of_qubo_is_in_its_own_units(rng, scale):
    Q = rng.standard_normal((150, 150))
    r = qubo(Q * scale, time_limit=0.5)
    if r.status is Status.PROVED:
        assert r.gap <= 1.001e-9 * max(scale * np.abs(Q + Q.T).max(), abs(r.fun))
    assert r.lower <= r.fun <= r.upper <= r.fun + 1e-14 * scale * np.abs(Q).sum()


@pytest.mark.parametrize("scale", SCALES)
def test_the_tolerance_of_max_cut_is_in_its_own_units(rng, scale):
    W = np.triu(rng.standard_normal((150, 150)), 1)
    r = max_cut((W + W.T) * scale, time_limit=0.5)
    if r.status is Status.PROVED:
        assert r.gap <= 1.001e-9 * max(4.0 * scale * np.abs(W).max(), abs(r.fun))


def test_a_wide_bracket_is_never_proved_at_small_scales(rng):
    """A thousand bits, of which no proof is known in a second: the bracket is percents wide at any scale."""
    Q = rng.integers(-100, 101, (1000, 1000)) * 1e-15
    r = qubo(Q, time_limit=1.5)
    assert r.status is not Status.PROVED
    assert r.gap > 1e-3 * abs(r.fun)


@pytest.mark.parametrize("scale", SCALES)
def test_small_problems_are_proved_in_any_units(rng, scale):
    Q = rng.standard_normal((10, 10)) * scale
    r = qubo(Q)
    best = min(np.array(x) @ Q @ np.array(x) for x in itertools.product((0.0, 1.0), repeat=10))
    assert r.status is Status.PROVED
    assert r.fun == pytest.approx(best, rel=1e-9)
    assert r.lower <= best + 1e-9 * abs(best)


@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e12])
def test_contradictory_hard_clauses_are_infeasible(scale):
    r = max_sat([[1], [-1], [2]], weights=[np.inf, np.inf, scale])
    assert r.status is Status.INFEASIBLE
    assert r.upper < 0.0
    alone = max_sat([[1], [-1]], weights=[np.inf, np.inf])
    assert alone.status is Status.INFEASIBLE


@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e12])
def test_hard_clauses_that_can_be_satisfied(scale):
    r = max_sat([[1, 2], [-1], [-2]], weights=[np.inf, 2.0 * scale, 3.0 * scale])
    assert r.status is Status.PROVED
    assert r.fun == pytest.approx(3.0 * scale, rel=1e-12)
    nothing = max_sat([[1], [2]], weights=[np.inf, np.inf])
    assert nothing.status is Status.PROVED
    assert nothing.fun == 0.0


@pytest.mark.parametrize("tol", [-1.0, float("nan"), float("inf"), "small", True, None])
@pytest.mark.parametrize("solve", [
    lambda tol: qubo(np.eye(2), tol=tol),
    lambda tol: max_cut(np.ones((2, 2)), tol=tol),
    lambda tol: ising(np.ones((2, 2)), tol=tol),
    lambda tol: max_sat([[1]], tol=tol),
    lambda tol: vo.minimize(vo.sum(vo.Binary(2)), tol=tol),
])  # fmt: skip
def test_a_tolerance_is_a_number_that_is_not_negative(solve, tol):
    with pytest.raises(ValueError, match="tol must be a number >= 0"):
        solve(tol)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_what_both_sides_of_a_diagonal_add_up_to_is_charged_with_its_rounding(form):
    """-0.1 and -0.4 make -0.5, and in fractions less."""
    Q = np.zeros((4, 4))
    Q[1, 2], Q[2, 1] = -0.1, -0.4
    r = qubo(form(Q))
    assert Fraction(r.lower) <= Fraction(-0.1) + Fraction(-0.4) <= Fraction(r.upper)
    assert r.gap <= 1e-14


def exactly(values):
    return [Fraction(float(v)) for v in values]


def least(value, n, states=(0, 1)):
    return min(value(x) for x in itertools.product(states, repeat=n))


def form(matrix, x):
    return sum(Fraction(float(matrix[i][j])) * x[i] * x[j] for i in range(len(x)) for j in range(len(x)))


TENTHS = [-0.1, -0.4, 0.3, 0.7, -0.2, 0.6]  # of which pairs add up to tenths, and in fractions do not


@pytest.mark.parametrize("seed", range(40))
def test_brackets_of_tenths_hold_in_fractions(seed):
    """Sums of tenths may look like halves and whole numbers, on whose grid a bound would be rounded up."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    Q = rng.choice([0.0, *TENTHS], (n, n))
    h = rng.choice([0.0, *TENTHS], n)
    r = qubo(Q, h)
    best = least(lambda x: form(Q, x) + sum(a * b for a, b in zip(exactly(h), x, strict=True)), n)
    assert Fraction(r.lower) <= best <= Fraction(r.upper)
    r = qubo(Q, h, maximize=True)
    best = -least(lambda x: -form(Q, x) - sum(a * b for a, b in zip(exactly(h), x, strict=True)), n)
    assert Fraction(r.lower) <= best <= Fraction(r.upper)
    J = np.triu(Q, 1)
    r = ising(J, h)
    best = least(lambda s: form(J, s) + sum(a * b for a, b in zip(exactly(h), s, strict=True)), n, (-1, 1))
    assert Fraction(r.lower) <= best <= Fraction(r.upper)
    r = max_cut(J)
    best = -least(lambda s: (form(J, s) - form(J, (1,) * n)) / 2, n, (-1, 1))
    assert Fraction(r.lower) <= best <= Fraction(r.upper)


@pytest.mark.parametrize("seed", range(20))
def test_brackets_of_clauses_of_tenths_hold_in_fractions(seed):
    rng = np.random.default_rng(seed)
    n, m = 3, 7
    clauses = [
        [int(v) * int(rng.choice([-1, 1])) for v in 1 + rng.permutation(n)[: rng.integers(1, 4)]] for _ in range(m)
    ]
    weights = np.abs(rng.choice(TENTHS, m))
    r = max_sat(clauses, weights)

    def satisfied(x):
        return sum(
            w for w, c in zip(exactly(weights), clauses, strict=True) if any((x[abs(v) - 1] > 0) == (v > 0) for v in c)
        )

    n = max(abs(v) for c in clauses for v in c)
    best = max(satisfied(x) for x in itertools.product((0, 1), repeat=n))
    assert Fraction(r.lower) <= best <= Fraction(r.upper)


@pytest.mark.parametrize("seed", range(20))
def test_brackets_of_written_models_of_tenths_hold_in_fractions(seed):
    """Squares, forms and polynomials: what they are expanded to is rounded on the way."""
    rng = np.random.default_rng(seed)
    n = 4
    A, d, Q = rng.choice(TENTHS, (3, n)), rng.choice(TENTHS, 3), rng.choice([0.0, *TENTHS], (n, n))
    weight = float(rng.choice(TENTHS))
    x = vo.Binary(n)
    f = vo.sum_squares(A @ x - d) + vo.quad_form(x, Q) + weight * x[0] * x[1] * x[2] + 0.1

    def exact(point):
        rows = [
            sum(Fraction(float(a)) * v for a, v in zip(row, point, strict=True)) - Fraction(float(c))
            for row, c in zip(A, d, strict=True)
        ]
        product = point[0] * point[1] * point[2]
        return sum(z * z for z in rows) + form(Q, point) + Fraction(weight) * product + Fraction(0.1)

    best = least(exact, n)
    r = vo.minimize(f)
    assert Fraction(r.lower) <= best <= Fraction(r.upper)
    r = vo.minimize(f, subject_to=[vo.sum(x) <= 3])
    best = min(exact(point) for point in itertools.product((0, 1), repeat=n) if sum(point) <= 3)
    assert Fraction(r.lower) <= best <= Fraction(r.upper)


def test_whole_numbers_are_proved_without_a_gap(rng):
    Q = rng.integers(-9, 10, (8, 8))
    for r in (
        qubo(Q),
        qubo(Q / 8),
        ising(np.triu(Q, 1)),
        max_cut(np.triu(Q, 1)),
        max_sat([[1, 2], [-1], [-2, 3]], [3, 2, 1]),
    ):
        assert r.lower == r.fun == r.upper


@pytest.mark.parametrize("weights", [[0.1] * 300, [1e16, 3.0, -1e16, -1.0], [-1e16, 0.5, 1e16, 0.5, 0.5]])
def test_parallel_edges_are_added_up_in_fractions(weights):
    graph = pytest.importorskip("networkx").MultiGraph()
    for k, weight in enumerate(weights):
        graph.add_edge(*((0, 1) if k % 2 else (1, 0)), weight=weight)
    r = max_cut(graph)
    assert Fraction(r.lower) <= max(sum(map(Fraction, weights)), 0) <= Fraction(r.upper)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [sp.coo_array, sp.csr_array])
@pytest.mark.parametrize("place", [0, 1])
def test_entries_in_one_place_are_added_up_in_fractions(rng, dtype, form, place):
    weights = -np.where(np.arange(300) == 0, 1e6, rng.random(300)).astype(dtype)
    columns = np.full(300, place)
    rows = (columns, [0, 300, 300]) if form is sp.csr_array else ((np.zeros(300, dtype=int), columns),)
    r = qubo(form((weights, *rows), shape=(2, 2)))
    assert Fraction(r.lower) <= sum(exactly(weights)) <= Fraction(r.upper)


def test_whole_numbers_beyond_double_precision_are_charged():
    """Both bits cost 2^53 + 1, which is no double, and together gain 2^54 + 4."""
    cost, gain = 2**53 + 1, -(2**54 + 4)
    graph, dimod = pytest.importorskip("networkx").MultiGraph(), pytest.importorskip("dimod")
    graph.add_weighted_edges_from([(0, 1, 2**53 + 1), (0, 1, -(2**53 - 2))])
    model = dimod.BinaryQuadraticModel({0: cost, 1: cost}, {(0, 1): gain}, 0, "BINARY", dtype=object)
    for r, best in [
        (qubo([[cost, gain], [0, cost]]), -2),
        (qubo(sp.csr_array(np.array([[cost, gain], [0, cost]]))), -2),
        (qubo(np.array([[cost, gain], [0, cost]], dtype=np.longdouble)), -2),
        (qubo({(0, 0): cost, (0, 1): gain, (1, 1): cost}), -2),
        (qubo({(0, 1): gain}, [cost, cost]), -2),
        (qubo(model), -2),
        (max_cut(graph), 3),
        (max_sat([[1], [2], [-1, -2]], [cost, cost, 1]), 2 * cost),
    ]:
        assert Fraction(r.lower) <= best <= Fraction(r.upper)


@pytest.mark.parametrize("offset", [2.0**51, -(2.0**51), 2.0**50])
@pytest.mark.parametrize("gains", range(1, 8))
def test_eighths_beside_a_large_constant_are_not_taken_for_exact(offset, gains):
    """Their sizes add up to one, which is a whole number, but most of their sums are not."""
    dimod = pytest.importorskip("dimod")
    linear = {k: -0.125 if k < gains else 0.125 for k in range(8)}
    r = qubo(dimod.BinaryQuadraticModel(linear, {}, offset, "BINARY"))
    assert Fraction(r.lower) <= Fraction(offset) - Fraction(gains, 8) <= Fraction(r.upper)


@pytest.mark.parametrize("seed", range(30))
def test_brackets_of_products_of_expressions_hold_in_fractions(seed):
    """What cancels when a polynomial is expanded is charged, whatever is left of it."""
    rng = np.random.default_rng(seed)
    n = 3
    x = vo.Binary(n)
    a, b, c = (rng.choice([0.1, -0.3, 1e6, -1e6, 7.0, 1e9, 0.0], n) for _ in range(3))
    A = rng.choice([0.1, 0.7, -1e8, 0.0, 2.0], (2, n))
    f = (a @ x + 0.1) * (b @ x) + 1e16 * x[0] * x[1] - 0.3 * x[0] * x[1] - 1e16 * x[0] * x[1]
    f = f + (a @ x) * (b @ x) * (c @ x - 0.2) - vo.sum((A @ x) * (A @ x))

    def exact(point):
        def dot(row):
            return sum(v * p for v, p in zip(exactly(row), point, strict=True))

        first, second, third = dot(a), dot(b), dot(c)
        total = (first + Fraction(0.1)) * second - Fraction(0.3) * point[0] * point[1]
        return total + first * second * (third - Fraction(0.2)) - sum(dot(row) ** 2 for row in A)

    r = vo.minimize(f)
    assert Fraction(r.lower) <= least(exact, n) <= Fraction(r.upper)
    r = vo.minimize(f, subject_to=[vo.sum(x) >= 1])
    best = min(exact(point) for point in itertools.product((0, 1), repeat=n) if sum(point) >= 1)
    assert Fraction(r.lower) <= best <= Fraction(r.upper)


def test_a_polynomial_that_cancels_is_not_proved_beyond_its_rounding():
    x = vo.Binary(2)
    r = vo.minimize(1e16 * x[0] * x[1] - 0.3 * x[0] * x[1] - 1e16 * x[0] * x[1])
    assert Fraction(r.lower) <= Fraction(-0.3)
    assert r.status is not Status.PROVED
