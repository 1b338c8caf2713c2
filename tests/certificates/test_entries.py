"""The entries of maps: those of the user's numbers exactly, or off by no more than is said, or refused."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import varopt as vo
from varopt.certificates.enclosures import ENTRY_ROUNDINGS, Undecided, entries_of

UNIT = Fraction(1, 2**53)


def row(*entries):
    return [Fraction(v) for v in entries]


def check(expression, w, expected):
    """The entries against fractions; whether they are said to be exact."""
    factor, dense, exact = entries_of(expression.stacked((w,)))
    factors = np.broadcast_to(factor, (len(dense),))
    for f, got, true in zip(factors, dense, expected, strict=True):
        for a, b in zip(got, true, strict=True):
            error = abs(Fraction(float(f)) * Fraction(float(a)) - b)
            assert error == 0 if exact else error <= ENTRY_ROUNDINGS * UNIT * abs(b)
    return exact


def test_sums_of_single_entries():
    w = vo.Variable(3)
    assert check(w[0] + w[1], w, [row(1, 1, 0)])
    assert check(w[0] - 2.0 * w[2], w, [row(1, 0, -2)])
    assert check(w[:2] - w[1:], w, [row(1, -1, 0), row(0, 1, -1)])
    assert check(0.1 * w[0] + 0.3 * w[1], w, [row(0.1, 0.3, 0)])


def test_what_cancels_is_exact_or_refused():
    w = vo.Variable(2)
    assert check(w[0] + w[1] - w[0], w, [row(0, 1)])
    A = np.array([[0.1, 1.0]])
    total = Fraction(0.1) * 3 - Fraction(0.3)
    assert total != 0.3 - 0.1 * 3  # what floating point makes of it
    with pytest.raises(Undecided):
        entries_of((3.0 * (A @ w) - 0.3 * w[0]).stacked((w,)))
    check(3.0 * (A @ w) + 0.3 * w[0], w, [[Fraction(0.1) * 3 + Fraction(0.3), Fraction(3)]])  # signs agree: a share


def test_rows_and_columns_of_a_matrix_are_summed_exactly(rng):
    """Of more entries than products are multiplied out for."""
    W = vo.Variable((30, 20))
    places = np.arange(600).reshape(30, 20)
    for axis in (0, 1):
        sums = [row(*np.isin(np.arange(600), part).astype(float)) for part in (places.T if axis == 0 else places)]
        assert check((vo.sum(W, axis=axis) <= 0).normal, W, sums)
    c = rng.standard_normal(20)
    expected = [row(*np.where(np.arange(600) // 20 == i, np.tile(c, 30), 0.0)) for i in range(30)]
    assert check((W @ c <= 0).normal, W, expected)


def test_products_of_matrices(rng):
    w = vo.Variable(5)
    A, x = rng.integers(-9, 9, (4, 5)), [Fraction(0)] * 5
    whole = [[sum((Fraction(int(a)) for a in A[:, j]), Fraction(0)) for j in range(5)]]
    assert check((vo.sum(A @ w) <= 0).normal, w, whole)
    assert check(
        vo.diff(A @ w), w, [[Fraction(int(b - a)) for a, b in zip(*A[k : k + 2], strict=True)] for k in range(3)]
    )
    B = rng.standard_normal((3, 2))
    assert check(B @ w[1:3], w, [[x[0], Fraction(a), Fraction(b), x[0], x[0]] for a, b in B.tolist()])
    with pytest.raises(Undecided):  # a sum of real numbers is rounded
        entries_of((vo.sum(rng.standard_normal((4, 5)) @ w) <= 0).normal.stacked((w,)))


def test_matrices_of_variables(rng):
    W, A = vo.Variable((3, 2)), rng.standard_normal((2, 3))
    rows = [
        [Fraction(A[i, j]) if c == k else Fraction(0) for j in range(3) for c in range(2)]
        for i in range(2)
        for k in range(2)
    ]
    assert check(A @ W, W, rows)
    assert check(sp.csr_array(A) @ W, W, rows)


def test_numbers_that_underflow_or_overflow_are_refused():
    w = vo.Variable(2)
    for a in (1e-300, 1e300):
        with pytest.raises(Undecided):
            entries_of((a * (np.array([[a, 1.0]]) @ w) + w[0]).stacked((w,)))
