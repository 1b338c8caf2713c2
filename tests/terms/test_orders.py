"""Derivatives of expectations beyond the second, times powers of sigma: what layers differentiate."""

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.terms import reference
from tests.terms.cases import DECLARED, label, polynomial_terms
from varopt import terms
from varopt.terms import expectations_of

TERMS = [terms.step(), terms.abs_(), terms.huber(0.5), terms.scad(1.0, 3.0), DECLARED[-1], polynomial_terms(4)[1]]


def beyond(term, mean, sigma, order):
    """The derivative, from differences of the second one, which the reference knows to 50 digits."""
    with mp.workdps(60):
        h = mp.mpf(10) ** -10
        below, here, above = (reference.expectation(term, mp.mpf(mean) + k * h, sigma, 2)[0] for k in (-1, 0, 1))
        return float((above - below) / (2 * h) if order == 3 else (above - 2 * here + below) / h**2)


@pytest.mark.parametrize("sigma", [0.1, 0.7, 5.0])
@pytest.mark.parametrize("term", TERMS, ids=label)
def test_third_and_fourth_derivatives_match_mpmath(term, sigma):
    for mean in (-0.8, 0.05, 1.3):
        for order in (3, 4):
            exact = beyond(term, mean, sigma, order)
            for power in (0, 2):
                (ours,) = expectations_of(np, term, np.asarray([mean]), np.asarray(sigma), ((order, power),))
                # jumps cancel where sigma is larger than what lies between knots
                assert_allclose(ours, exact * sigma**power, rtol=1e-9, atol=1e-11 * sigma ** (power - order))


@pytest.mark.parametrize("term", TERMS, ids=label)
def test_low_orders_are_the_same_in_both_forms(term):
    mean, sigma = np.linspace(-3.0, 3.0, 31), np.asarray(0.7)
    value, first, second = term.derivatives(mean, sigma)
    ours = expectations_of(np, term, mean, sigma, ((0, 0), (1, 0), (2, 0), (2, 1)))
    for a, b in zip(ours, (value, first, second, term.sigma_derivative(mean, sigma)), strict=True):
        assert_allclose(a, b, rtol=1e-14)
