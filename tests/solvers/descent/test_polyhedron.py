"""Steps within a few constraints of many variables: in as many variables as there are constraints, or in all."""

from __future__ import annotations

import numpy as np
import pytest

import varopt as vo
from varopt.composite import composite
from varopt.optimize.constrained._penalty import Penalised  # constraints as rows
from varopt.solvers.descent import _polyhedron  # its limits are changed
from varopt.solvers.descent._polyhedron import polyhedron  # what is recognised


@pytest.mark.parametrize("dependent", [False, True])
def test_a_step_in_few_variables_is_the_step_in_all(rng, monkeypatch, dependent):
    size, count = 120, 6
    A, b = rng.standard_normal((count, size)), rng.standard_normal(count)
    if dependent:
        A[3], A[4], b[4] = -A[2], 2.0 * A[0] - A[1], 2.0 * b[0] - b[1] + 0.1
    w = vo.Variable(size)
    penalised = Penalised(vo.sum_squares(w) + vo.sum(vo.abs(w)), [A[:4] @ w <= b[:4], A[4:] @ w == b[4:]])
    rows = polyhedron(penalised.problem(penalised.first_weights()))
    assert rows is not None
    factor = rng.standard_normal((size, size))
    matrix, gradient = factor @ factor.T + 0.1 * np.eye(size), 10.0 * rng.standard_normal(size)
    x = rows.clip(rng.standard_normal(size))
    assert x is not None
    step = rows.step(matrix, gradient, x)
    at = A @ (x + step) - b
    assert at[:4].max() <= 1e-8
    assert np.abs(at[4:]).max() <= 1e-8
    monkeypatch.setattr(_polyhedron, "_LOOPS", size + 1)
    np.testing.assert_allclose(step, rows.step(matrix, gradient, x), atol=1e-7 * np.abs(step).max())
    # What it leaves of the gradient of the model is a combination of the constraints.
    left = matrix @ step + gradient
    y, *_ = np.linalg.lstsq(A.T, -left, rcond=None)
    assert np.abs(left + A.T @ y).max() <= 1e-7 * np.abs(gradient).max()


def test_rows_that_hold_along_the_whole_step_cost_nothing(rng):
    size = 150
    w = vo.Variable(size)
    penalised = Penalised(vo.sum_squares(w) + vo.sum(vo.abs(w)), [rng.standard_normal((2, size)) @ w <= 1e6])
    rows = polyhedron(penalised.problem(penalised.first_weights()))
    assert rows is not None
    gradient = rng.standard_normal(size)
    np.testing.assert_allclose(rows.step(np.eye(size), gradient, np.zeros(size)), -gradient, rtol=1e-9)
    assert composite(vo.sum_squares(w)).structure(polyhedron) is None
