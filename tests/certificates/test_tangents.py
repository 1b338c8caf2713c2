"""Lines below terms, and the rounding of their values."""

import numpy as np

from varopt._verified import Ball  # what is summed
from varopt.certificates._tangents import _not_flat  # a mask by itself
from varopt.terms import PiecewisePolynomial


def test_rows_on_one_of_many_pieces_are_not_taken_for_flat():
    slopes = np.arange(-100.0, 101.0)
    values = [0.0, *np.concatenate([[0.0], np.cumsum(slopes[1:-1])])]
    term = PiecewisePolynomial(tuple(np.arange(200.0)), tuple(zip(values, slopes, strict=True)))
    z = Ball(np.array([154.5, 99.5]), np.full(2, 1e-12))  # on pieces 155 and 100, the flat one
    assert _not_flat(term, z, np.ones(2)).tolist() == [1.0, 0.0]
