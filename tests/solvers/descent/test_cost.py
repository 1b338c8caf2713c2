"""What the paper's two descents cost: products with the data, counted, and nothing else that grows with them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import varopt as vo
from varopt.composite import composite
from varopt.experiments import problems
from varopt.model import as_objective
from varopt.model.maps import Matrix
from varopt.solvers import State


@pytest.fixture
def products(monkeypatch):
    """The products with dense matrices, counted by their shapes."""
    counted = {}
    for name in ("_apply", "_transpose_apply"):
        plain = getattr(Matrix, name)

        def counting(self, vector, plain=plain):
            counted[self.shape] = counted.get(self.shape, 0) + 1
            return plain(self, vector)

        monkeypatch.setattr(Matrix, name, counting)
    return counted


def test_lbfgs_takes_two_products_with_the_kernel_an_evaluation(rng, products):
    machine = problems.kernel_machine(rng, 60, 5)
    state = State(machine.start.copy())
    problem = composite(as_objective(machine.objective()))
    products.clear()
    vo.solvers.LBFGS(most=120).solve(problem, state, 0.0, lambda _: None)
    assert state.evaluations > 100
    assert products[60, 60] <= 2 * state.evaluations + 40  # the look at the end is what there is beside


def test_diagonal_newton_multiplies_with_the_gram_matrix_alone(rng, products):
    lasso = problems.lasso(rng, 12)
    state = State(np.zeros(12))
    problem = composite(as_objective(lasso.objective()))
    vo.solvers.DiagonalNewton().solve(problem, state, 0.0, lambda _: None)
    assert state.steps > 300
    assert products.get(lasso.X.shape, 0) < 20
    plain = vo.minimize(lasso.objective()).fun
    assert_allclose(lasso.value(state.latest), plain, rtol=1e-12)
