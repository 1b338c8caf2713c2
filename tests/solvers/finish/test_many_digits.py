"""The optimum of few variables beside norms: to many digits, with a bound in rational numbers."""

import time
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array

import varopt as vo
from fuzz.oracle import complaints
from fuzz.problems import random_problem
from varopt import Status
from varopt._clock import TimeUp, deadline  # a limit around one function
from varopt.solvers.finish import exact_minimum
from varopt.solvers.finish._exact_problem import ExactProblem, Inexact  # exact problems by themselves
from varopt.solvers.finish._far_rows import exact_total  # sums against fractions
from varopt.solvers.finish._lattice import close_point  # a lattice of its own
from varopt.solvers.finish._many_digits import minimum_in_many_digits  # without what comes before it
from varopt.solvers.finish._rational import rational_minimum  # likewise

# Norms beside terms many orders apart, of which double precision loses what the small ones ask for.
SEEDS = (500045, 710018, 500078, 500125, 500128, 500167, 500188, 500322, 500333, 500398, 500517, 500538, 500561)


@pytest.mark.parametrize("seed", SEEDS)
def test_norms_beside_terms_of_other_scales_are_proved(seed, rng):
    problem = random_problem(np.random.default_rng(seed), extreme=True)
    r = vo.minimize(problem.build(), time_limit=30.0)
    assert r.status is Status.OPTIMAL
    assert not list(complaints(problem, r, 1e-9, rng))


@pytest.mark.parametrize("seed", range(40))
def test_it_agrees_with_rational_arithmetic(seed):
    """Of problems without norms both know the optimum; a wrong bound of either would lie beyond the other's."""
    problem = random_problem(np.random.default_rng([seed, 16]), extreme=seed % 2 == 1)
    try:
        exact, start = ExactProblem(problem.build()), np.zeros(problem.dimension)
        with deadline(2.0):
            by_fractions = None if exact.norms else rational_minimum(exact, start)
    except (ValueError, TimeUp):  # not convex for certain, or of too many digits
        return
    if by_fractions is not None and np.isfinite(by_fractions.lower):
        by_decimals = minimum_in_many_digits(exact)
        assert by_decimals is not None
        assert by_decimals.lower <= by_fractions.upper
        assert by_fractions.lower <= by_decimals.upper


def test_the_point_of_least_distances():
    """Three corners of a triangle with sides of one see their middle under 120 degrees: sqrt(3) in all."""
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    w = vo.Variable(2)
    found = minimum_in_many_digits(ExactProblem(sum(vo.norm2(w - c) for c in corners)))
    assert found.lower <= np.sqrt(3.0) * (1.0 + 1e-15)
    assert found.upper == pytest.approx(found.lower, rel=1e-15)
    assert found.x == pytest.approx(corners.mean(axis=0), abs=1e-12)


@pytest.mark.parametrize("weight", [1e3, 1e9, 1e15])
def test_a_steep_norm_is_a_constraint(weight):
    """Beyond every slope of the rest it holds w on a line, where the rest is ``2 t^2 - 2 t`` up to a constant."""
    w = vo.Variable(2)
    f = weight * vo.norm2(np.array([[1.0, -1.0], [2.0, -2.0]]) @ w) + vo.sum_squares(w - np.array([1.0, 0.0]))
    r = vo.minimize(f)
    assert r.status is Status.OPTIMAL
    assert (r.fun, r.x) == (pytest.approx(0.5, rel=1e-9), pytest.approx([0.5, 0.5]))


def test_optima_that_are_not_the_only_ones():
    """Any b far enough to the left will do: no multiplier of its rows is inside its interval."""
    w, b = vo.Variable(2), vo.Variable()
    f = vo.norm2(w - np.array([1.0, 2.0])) + vo.sum(vo.pos(w + b)) + 0.5 * vo.norm1(w)
    found = minimum_in_many_digits(ExactProblem(f))
    assert found.upper - found.lower < 1e-14
    r = vo.minimize(f)
    assert (r.status, r.fun) == (Status.OPTIMAL, pytest.approx(found.upper))


def test_a_form_that_rounding_makes_curve_down_may_have_company():
    """The sum is what must be convex."""
    row, w = np.array([0.3, 0.3, -1.1, 2.0]), vo.Variable(4)
    hidden = vo.quad_form(w, np.outer(row, row))
    assert vo.minimize(hidden + vo.norm1(w - 1.0)).status is Status.ASSUMED
    for rest in (vo.sum_squares(w - 1.0), 1e-6 * vo.sum_squares(w - 1.0), vo.sum_squares(w) + vo.norm2(w - 1.0)):
        r = vo.minimize(hidden + rest)
        assert (r.status, r.certificate.assumption) == (Status.OPTIMAL, "")


def test_time_ends_it():
    w = vo.Variable(12)
    A = np.random.default_rng(0).standard_normal((200, 12))
    problem = ExactProblem(vo.norm1(A @ w - 1.0) + vo.norm2(w))
    began = time.perf_counter()
    with pytest.raises(TimeUp), deadline(0.02):
        minimum_in_many_digits(problem)
    assert time.perf_counter() - began < 1.0


@pytest.mark.parametrize(("rows", "level"), [(120, 0.5), (1200, 0.95)])
def test_a_polynomial_of_degree_fourteen(rows, level, rng):
    """Its powers on [0, 1] are dependent to ten digits; rows far from the curve are lines, whatever their number."""
    t = rng.uniform(0.0, 1.0, rows)
    y = np.sin(6.0 * t) + 0.2 * rng.standard_normal(rows)
    w, b = vo.Variable(14), vo.Variable()
    r = vo.minimize(vo.sum(vo.pinball(y - np.vander(t, 15)[:, :-1] @ w - b, level)))
    assert r.status is Status.OPTIMAL
    # The span is that of Legendre's polynomials, which are far from dependent.
    legendre = np.polynomial.legendre.legvander(2.0 * t - 1.0, 14)
    v = vo.Variable(15)
    assert r.fun == pytest.approx(vo.minimize(vo.sum(vo.pinball(y - legendre @ v, level))).fun, rel=3e-9)


def test_numbers_are_added_up_without_rounding(rng):
    values = rng.standard_normal(1000) * 10.0 ** rng.integers(-300, 290, 1000)
    values[:3] = [0.0, -5e-324, 1e-310]
    assert exact_total(values) == sum(map(Fraction, values.tolist()))


def test_far_rows_that_leave_their_piece_are_seen(rng):
    """Where the point that is given is far from the optimum, rows taken as lines are on other pieces there."""
    A, w = rng.standard_normal((2000, 3)), vo.Variable(3)
    y = A @ [1.0, -2.0, 3.0] + rng.standard_normal(2000)
    f = vo.norm1(A @ w - y)
    best = vo.minimize(f)
    near = exact_minimum(f, best.x)
    assert near.lower <= best.upper
    assert near.upper - near.lower <= 1e-12 * near.upper
    far = exact_minimum(f, np.array([50.0, 0.0, 0.0]))
    assert far is None or (far.lower <= best.upper and far.upper >= best.lower)


@pytest.mark.parametrize("seed", [500124, 700123, 700868])
def test_a_point_in_double_precision_is_found_where_rounding_misses_it(seed, rng):
    """The neighbours of the optimum are steep; farther along what steep terms do not see there are better ones."""
    problem = random_problem(np.random.default_rng(seed), extreme=True)
    r = vo.minimize(problem.build(), time_limit=30.0)
    assert r.status is Status.OPTIMAL
    assert not list(complaints(problem, r, 1e-9, rng))


def test_a_close_point_of_a_lattice():
    """``x + sqrt(2) y`` is to be zero to 1e-11 with multiples of 1/64: by fractions of sqrt(2), not by neighbours."""
    root = Fraction(float(np.sqrt(2.0)))
    x, grid = [Fraction(10**6) * root, Fraction(-(10**6))], [Fraction(1, 64)] * 2
    start = [Fraction(round(v * 64), 64) for v in x]
    found = close_point(x, start, grid, [(Fraction(10**12), [Fraction(1), root])], Fraction(1, 10))
    assert all((v - s) % g == 0 for v, s, g in zip(found, start, grid, strict=True))
    assert abs(found[0] + root * found[1]) < 1e-4 * abs(start[0] + root * start[1])
    assert all(abs(a - b) <= abs(b) for a, b in zip(found, x, strict=True))


def test_what_depends_on_no_variable_is_a_constant():
    w = vo.Variable(3)
    found = minimum_in_many_digits(ExactProblem(vo.norm1(np.zeros((2, 3)) @ w + 1.5) + 2.0 * vo.sum(vo.pos(0.0 * w))))
    assert (found.lower, found.upper) == (3.0, 3.0)
    assert found.x.shape == (3,)


def test_far_rows_with_levels_of_their_own_are_not_taken_for_one_another(rng):
    """Their knots are one number for all, their lines are not."""
    matrix, sides, levels = rng.normal(size=(200, 2)), rng.normal(size=200), rng.uniform(0.05, 0.95, 200)
    w = vo.Variable(2)
    steep = 1e14 * vo.abs(w[0] - w[1]) + 1e-9 * vo.norm1(w - 1.0 / 3.0)
    f = vo.sum(vo.pinball(matrix @ w - sides, levels)) + steep
    r = vo.minimize(f)
    z = matrix @ r.x - sides
    assert r.fun == pytest.approx(np.maximum(levels * z, (levels - 1.0) * z).sum(), rel=1e-6)
    found = exact_minimum(f, r.x)
    assert found is None or (found.lower <= r.upper and r.lower <= found.upper)


def test_forms_of_many_rows_are_left_to_others(rng):
    """In rational numbers their products take minutes, whatever the number of variables."""
    w, factor = vo.Variable(4), rng.normal(size=(300, 150))
    f = vo.quad_form(rng.normal(size=(300, 4)) @ w - 1.0, factor @ factor.T) + 1e12 * vo.norm1(w[:2] - 1.0 / 3.0)
    with pytest.raises(Inexact), deadline(5.0):
        ExactProblem(f)


def test_forms_of_other_rows_are_multiplied_out_exactly(rng):
    matrix, sides, form = (rng.integers(-4, 5, size=shape).astype(float) for shape in ((5, 3), 5, (5, 5)))
    w, point = vo.Variable(3), np.array([1.0, -2.0, 3.0])
    form = form @ form.T
    problem = ExactProblem(0.5 * vo.quad_form(matrix @ w - sides, form) + vo.norm1(w))
    z = matrix @ point - sides
    assert problem.value([Fraction(v) for v in point]) == Fraction(0.5 * z @ form @ z + 6.0)


def test_what_falls_for_ever_beside_lines_of_far_rows_is_not_unbounded(rng):
    """Lines of far rows lie below them: where they fall for ever, the rows need not."""
    matrix = rng.normal(size=(120, 4))
    w = vo.Variable(4)
    f = 1e6 * vo.huber(matrix[0] @ w - 1e6, 1.0 / 3.0) + 1e-6 * vo.sum(vo.huber(matrix @ w - 1.0, 1e-6))
    f = f + 1e14 * vo.sum_squares(np.repeat(matrix[:1], 120, axis=0) @ w - 1.0)
    found = exact_minimum(f, np.array([-5.0, -0.2, 0.8, 0.2]))
    assert found is None or found.lower >= 0.0


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_a_norm_that_no_variable_moves_is_no_error(offset):
    w = vo.Variable(1)
    f = 1e-4 * vo.norm2(csr_array(np.array([[0.0], [-0.0]])) @ w + offset)
    r = vo.minimize(f)
    assert r.lower <= f([0.0]) <= r.upper
