"""Every rival reaches a reference optimum, computed by Clarabel on the explicit programme."""

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

from varopt.experiments import problems, rivals
from varopt.experiments.rivals.chapelle import huber
from varopt.experiments.rivals.dual_qp import best_offset, dual_value
from varopt.experiments.rivals.slep import fused_lasso_prox, total_variation_prox
from varopt.experiments.table1 import RIVALS


def programme(hessian, linear, rows, limits):
    """Minimum of ``x'Px/2 + q'x`` subject to ``rows x <= limits``."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-12
    upper = sp.triu(hessian, format="csc")
    cone = [clarabel.NonnegativeConeT(limits.size)]
    solution = clarabel.DefaultSolver(upper, linear, sp.csc_array(rows), limits, cone, settings).solve()
    assert solution.status == clarabel.SolverStatus.Solved
    return solution.obj_val, np.array(solution.x)


def regression_optimum(X, y, sparsity, fusion):
    """min ||y - Xw||^2 + sparsity 1's + fusion 1't  subject to  -s <= w <= s, -t <= diff(w) <= t."""
    p = X.shape[1]
    eye, difference = sp.eye_array(p), sp.csr_array(np.diff(np.eye(p), axis=0))
    one = sp.eye_array(p - 1)
    rows = sp.block_array([[eye, -eye, None], [-eye, -eye, None], [difference, None, -one], [-difference, None, -one]])
    hessian = sp.block_diag([2.0 * X.T @ X, sp.csr_array((2 * p - 1, 2 * p - 1))])
    linear = np.r_[-2.0 * X.T @ y, np.full(p, sparsity), np.full(p - 1, fusion)]
    value, x = programme(hessian, linear, rows, np.zeros(rows.shape[0]))
    return value + y @ y, x[:p]


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("dimension", [8, 40])
def test_lasso_rivals_reach_the_optimum(name, dimension, rng):
    p = problems.lasso(rng, dimension)
    w = RIVALS[name](p.X, p.y, p.sparsity)
    optimum, at = regression_optimum(p.X, p.y, p.sparsity, 0.0)
    assert p.value(w) == pytest.approx(optimum, rel=1e-9)
    np.testing.assert_allclose(w, at, atol=1e-4)
    np.testing.assert_array_equal(w == 0.0, np.abs(at) < 1e-5)  # each finds the zeros too


@pytest.mark.parametrize("name", RIVALS)
def test_lasso_rivals_on_correlated_columns_and_a_penalty_that_takes_all(name, rng):
    shared = rng.standard_normal((60, 1))
    X = 0.7 * shared + 0.7 * rng.standard_normal((60, 10))
    y = X @ np.r_[2.0, -1.0, np.zeros(8)] + 0.1 * rng.standard_normal(60)
    for penalty in (0.5, 20.0):
        w = RIVALS[name](X, y, penalty)
        value = np.sum((y - X @ w) ** 2) + penalty * np.abs(w).sum()
        assert value == pytest.approx(regression_optimum(X, y, penalty, 0.0)[0], rel=1e-7)
    everything = 4.0 * np.max(np.abs(X.T @ y))
    np.testing.assert_allclose(RIVALS[name](X, y, everything), 0.0, atol=1e-8)


def test_slep_reaches_the_fused_optimum(rng):
    p = problems.fused_lasso(rng, 30)
    optimum, at = regression_optimum(p.X, p.y, p.sparsity, p.fusion)
    w = rivals.slep(p.X, p.y, p.sparsity, p.fusion, tol=1e-14)
    assert p.value(w) == pytest.approx(optimum, rel=1e-10)
    np.testing.assert_allclose(w, at, atol=1e-4)
    rough = rivals.slep(p.X, p.y, p.sparsity, p.fusion)
    assert 0.0 <= p.value(rough) / optimum - 1.0 < 1e-4


@pytest.mark.parametrize("n", [1, 2, 3, 30])
@pytest.mark.parametrize("weights", [(0.0, 0.3), (0.4, 0.0), (0.2, 0.5), (0.1, 50.0)])
def test_fused_proximal_step_is_exact(n, weights, rng):
    for v in (rng.standard_normal(n), np.round(2.0 * rng.standard_normal(n)), np.zeros(n)):
        w = fused_lasso_prox(v, *weights)
        if n == 1:
            np.testing.assert_allclose(w, np.sign(v) * np.maximum(np.abs(v) - weights[0], 0.0))
            continue
        # half of ||v - w||^2 + 2 (...)
        _, at = regression_optimum(np.eye(n), v, 2.0 * weights[0], 2.0 * weights[1])
        np.testing.assert_allclose(w, at, atol=1e-5)


def test_total_variation_step_has_a_dual_certificate(rng):
    v, weight = np.cumsum(rng.standard_normal(500)), 3.0
    w = total_variation_prox(v, weight)
    dual = np.cumsum(v - w)[:-1]  # D'z = v - w
    assert abs(np.sum(v - w)) < 1e-9
    assert np.max(np.abs(dual)) <= weight + 1e-9
    jumps = np.flatnonzero(np.diff(w))
    np.testing.assert_allclose(dual[jumps], -weight * np.sign(np.diff(w)[jumps]), atol=1e-9)


@pytest.fixture
def machine(rng):
    return problems.kernel_machine(rng, 60, 5)


@pytest.fixture
def machine_optimum(machine):
    """min w'w + C 1'xi  subject to  xi >= 1 - y (Xw + b), xi >= 0."""
    n, p = machine.X.shape
    eye = sp.eye_array(n)
    signed = sp.csr_array(machine.y[:, None] * np.column_stack([machine.X, np.ones(n)]))
    rows = sp.block_array([[-signed, -eye], [sp.csr_array((n, p + 1)), -eye]])
    hessian = sp.block_diag([2.0 * sp.eye_array(p), sp.csr_array((n + 1, n + 1))])
    return programme(hessian, np.r_[np.zeros(p + 1), np.full(n, machine.cost)], rows, np.r_[-np.ones(n), np.zeros(n)])[
        0
    ]


def test_dual_qp_and_its_lower_bound(machine, machine_optimum):
    point = rivals.dual_qp(machine.K, machine.y, machine.cost, 1e-9)
    assert machine.value(point) == pytest.approx(machine_optimum, rel=1e-7)
    lower = dual_value(point[:-1], machine.K, machine.y, machine.cost)
    assert machine_optimum * (1 - 1e-6) <= lower <= machine_optimum * (1 + 1e-9)


def test_a_looser_tolerance_ends_the_qp_sooner(machine, machine_optimum):
    """The gap's tolerance too, which would decide alone: runs at all tolerances would then be one."""
    values = [
        machine.value(rivals.dual_qp(machine.K, machine.y, machine.cost, tol)) for tol in (1e-1, 1e-3, 1e-5, 1e-8)
    ]
    errors = np.array(values) / machine_optimum - 1.0
    assert np.all(np.diff(errors) < 0.0)
    assert errors[0] > 1e-4


def test_dual_value_is_a_lower_bound_wherever_it_is_taken(machine, machine_optimum, rng):
    for beta in 3.0 * rng.standard_normal((20, machine.y.size)):
        assert dual_value(beta, machine.K, machine.y, machine.cost) <= machine_optimum


def test_smo_converges_with_its_tolerance(machine, machine_optimum):
    gram = machine.X @ machine.X.T
    errors = [
        machine.value(rivals.smo(gram, machine.y, machine.cost, tol)) / machine_optimum - 1 for tol in (1e-1, 1e-8)
    ]
    assert -1e-9 <= errors[1] < 1e-6
    assert errors[1] <= errors[0]


@pytest.mark.parametrize(("h", "factor"), [(10.0, 0.1), (0.001, 1.0)])
def test_chapelle_comes_close(machine, machine_optimum, h, factor):
    seen = []
    point = rivals.chapelle(
        machine.K, machine.y, machine.cost, machine.start, seen.append, h=h, factor=factor, most=3000
    )
    assert 0.0 <= machine.value(point) / machine_optimum - 1.0 < 5e-3
    assert 0 < len(seen) <= 3000


def test_chapelle_without_shrinking_minimises_its_own_objective(machine):
    h = 2.0
    point = rivals.chapelle(
        machine.K, machine.y, machine.cost, machine.start, lambda _: None, h=h, factor=1.0, most=5000
    )
    slope = huber(1.0 - machine.K @ point[:-1] - point[-1] * machine.y, h)[1]
    assert np.max(np.abs(machine.K @ (2.0 * point[:-1] - machine.cost * slope))) < 1e-2
    assert abs(machine.y @ slope) < 1e-4


def test_chapelle_stops_when_told(machine):
    seen = []

    def watch(point):
        seen.append(point)
        if len(seen) >= 3:
            raise StopIteration

    rivals.chapelle(machine.K, machine.y, machine.cost, machine.start, watch, h=10.0, factor=0.1, most=1000)
    assert len(seen) == 3


def test_best_offset_against_a_grid(rng):
    for n in (2, 7, 40):
        outputs, y = rng.standard_normal(n), np.where(np.arange(n) % 2, 1.0, -1.0)

        def loss(b, outputs=outputs, y=y):
            return np.maximum(1.0 - outputs - b * y, 0.0).sum()

        assert loss(best_offset(outputs, y)) <= min(map(loss, np.linspace(-5.0, 5.0, 2001))) + 1e-12
