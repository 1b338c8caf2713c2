"""The generators: as the paper describes them, and the same from the same seed."""

import numpy as np
import pytest

import varopt as vo
from varopt.experiments import problems
from varopt.experiments.rivals import dual_qp


@pytest.mark.parametrize("make", [problems.lasso, problems.fused_lasso, problems.kernel_machine])
def test_a_seed_makes_one_problem(make):
    first, again, other = (make(np.random.default_rng(seed), 30) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(first.X, other.X)


def test_lasso_has_the_paper_sizes_and_statistics():
    rng = np.random.default_rng(3)
    p = problems.lasso(rng, 200)
    assert p.X.shape == (2000, 200)
    assert (p.sparsity, p.fusion) == (6000.0, 0.0)
    assert abs(p.X.mean()) < 0.01
    assert p.X.std() == pytest.approx(1.0, abs=0.01)
    fit, residual, *_ = np.linalg.lstsq(p.X, p.y)  # the truth shows through the noise
    noise = np.sqrt(residual[0] / 1800)
    assert noise == pytest.approx(0.1 * np.mean(np.abs(p.y)), rel=0.1)
    zero, size = np.abs(fit) < 2.0, np.abs(fit)
    assert 0.4 < zero.mean() < 0.6
    assert size[~zero].mean() == pytest.approx(5.0, abs=0.3)
    assert size[~zero].std() == pytest.approx(1.0, abs=0.3)


def test_fused_lasso_repeats_coefficients():
    p = problems.fused_lasso(np.random.default_rng(3), 300)
    assert p.X.shape == (3000, 300)
    assert (p.sparsity, p.fusion) == (500.0, 200.0)
    fit = np.linalg.lstsq(p.X, p.y)[0]
    steps = np.abs(np.diff(fit)) > 1.5
    assert 0.25 < steps.mean() < 0.55  # repeats, and zeros that follow zeros
    assert 0.4 < np.mean(np.abs(fit) < 1.5) < 0.6


def test_kernel_machine_is_as_described():
    p = problems.kernel_machine(np.random.default_rng(3), 4000)
    assert (p.cost, p.X.shape, p.start.shape) == (10.0, (4000, 100), (4001,))
    centre = p.X[p.y > 0].mean(axis=0)
    assert np.linalg.norm(centre) == pytest.approx(3.5, abs=0.15)
    assert np.linalg.norm(p.X[p.y < 0].mean(axis=0)) < 0.4
    assert p.X[p.y < 0].std() == pytest.approx(1.0, abs=0.01)


def test_objectives_are_the_values(rng):
    regression = problems.fused_lasso(rng, 6)
    w = rng.standard_normal(6)
    assert regression.objective()(w) == pytest.approx(regression.value(w), rel=1e-12)
    machine = problems.kernel_machine(rng, 8, 3)
    point = rng.standard_normal(9)
    assert machine.objective()(point) == pytest.approx(machine.value(point), rel=1e-12)
    linear = machine.X.T @ (machine.y * point[:-1])
    assert machine.linear_value(linear, point[-1]) == pytest.approx(machine.value(point), rel=1e-12)
    assert machine.linear_objective()(np.append(linear, point[-1])) == pytest.approx(machine.value(point), rel=1e-12)


def test_both_forms_of_the_machine_have_one_optimum(rng):
    machine = problems.kernel_machine(rng, 40, 5)
    qp = machine.value(dual_qp(machine.K, machine.y, machine.cost, 1e-9))
    for f in (machine.objective(), machine.linear_objective()):
        assert vo.minimize(f).fun == pytest.approx(qp, rel=1e-7)
