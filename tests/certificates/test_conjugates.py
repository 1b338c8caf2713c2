"""Conjugates of terms, rounded upwards, in fractions."""

from fractions import Fraction

import numpy as np

from varopt.certificates.enclosures import conjugate_above
from varopt.terms import huber


def test_the_conjugate_of_huber_is_not_above_the_number_found(rng):
    """At the knots and where the parabola has the slope, one of which is the supremum."""
    for _ in range(200):
        knot, weight = (float(10.0 ** rng.uniform(-6, 6)) for _ in range(2))
        term = huber(knot)
        v = weight * knot * np.append(rng.uniform(-1.0, 1.0, 3), [1.0, -1.0]) * (1.0 - 1e-15)
        for at, found in zip(v.tolist(), conjugate_above(term, weight, v).tolist(), strict=True):
            flat = Fraction(at) / Fraction(weight) / (2 * Fraction(float(term.pieces[1][2])))
            for place in (*(Fraction(float(k)) for k in term.knots), flat):
                reached = Fraction(at) * place - Fraction(weight) * value(term, place)
                assert reached <= Fraction(found)
            assert found <= weight * knot * knot * 0.5 * (1.0 + 1e-12)


def value(term, z):
    low, high = (Fraction(float(k)) for k in term.knots)
    i = 0 if z < low else 2 if z > high else 1
    return sum(Fraction(float(a)) * (z - Fraction(float(term.centres[i]))) ** m for m, a in enumerate(term.pieces[i]))
