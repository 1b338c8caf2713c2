"""Forms that rounding makes curve down, and the ridge beside them, against exact optima."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt import Status
from varopt.solvers.finish._exact_problem import reduced  # the rank of exact equations


def product(rng, rows, columns):
    """``X'X`` of fewer rows than columns, as floating point gives it: eigenvalues of both signs about zero."""
    X = rng.standard_normal((rows, columns))
    return X.T @ X


def exact_optimum(Q, ridge, shift, line):
    """The least of ``w'Qw + ridge |w - shift|^2 + line'w``, by elimination in rational numbers."""
    size, r, s = len(Q), Fraction(ridge), Fraction(shift)
    S = [[(Fraction(Q[i, j]) + Fraction(Q[j, i])) / 2 + (r if i == j else 0) for j in range(size)] for i in range(size)]
    g = [Fraction(v) - 2 * r * s for v in line]
    system = [[2 * v for v in row] + [-b] for row, b in zip(S, g, strict=True)]
    assert reduced(system) == list(range(size))
    w = [row[-1] for row in system]
    return r * s * s * size + sum(g[i] * w[i] for i in range(size)) / 2


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("ridge", "shift"), [(1.0, 0.0), (1.0, 3.0), (1e-2, 0.0), (1e-2, -1.0)])
def test_the_sum_is_proved(ridge, shift, storage, rng):
    Q, line, w = product(rng, 5, 20), rng.standard_normal(20), vo.Variable(20)  # more than are solved exactly
    f = vo.quad_form(w, storage(Q)) + ridge * vo.sum_squares(w - shift) + line @ w
    assert f.assumption  # of the form alone it is not known
    r = vo.minimize(f)
    assert (r.status, r.certificate.assumption) == (Status.OPTIMAL, "")
    assert Fraction(r.lower) <= exact_optimum(Q, ridge, shift, line) <= Fraction(r.upper)


def test_a_ridge_of_some_coordinates_is_not_enough(rng):
    Q, w = product(rng, 5, 20), vo.Variable(20)
    r = vo.minimize(vo.quad_form(w, Q) + vo.sum_squares(w[:10]) + vo.norm1(w - 1.0))
    assert r.status is Status.ASSUMED


def test_a_ridge_too_small_to_lend_is_left_alone(rng):
    Q, w = product(rng, 5, 20), vo.Variable(20)
    r = vo.minimize(vo.quad_form(w, Q) + 1e-14 * vo.sum_squares(w) + vo.norm1(w - 1.0))
    assert r.status is Status.ASSUMED


def test_beside_other_terms(rng):
    Q, w = product(rng, 10, 60), vo.Variable(60)
    r = vo.minimize(0.5 * vo.quad_form(w, Q) + 0.1 * vo.sum_squares(w) + vo.norm1(w - 1.0))
    assert (r.status, r.certificate.assumption) == (Status.OPTIMAL, "")
