"""Maxima of weights that do not add up in floating point: their exact value is inside the bracket."""

from fractions import Fraction

import numpy as np
import pytest

from varopt.discrete import max_sat

CLAUSES = [[2], [2, 1], [2], [-2], [-2, 1], [-2, -1]]


@pytest.mark.parametrize("unit", [1.0, 1e-15, 1e15, 0.1])
def test_the_exact_value_is_inside(unit):
    weights = unit * np.array([220.00000000000003, 210.0, 3.7, 120.0, 120.1, 0.3])
    r = max_sat(CLAUSES, weights=weights)
    met = [any((r.x[abs(v) - 1] > 0.5) == (v > 0) for v in clause) for clause in CLAUSES]
    exact = sum(Fraction(w) for w, is_met in zip(weights.tolist(), met, strict=True) if is_met)
    assert Fraction(r.lower) <= exact <= Fraction(r.upper)
    assert r.upper - r.lower <= 1e-12 * r.upper
