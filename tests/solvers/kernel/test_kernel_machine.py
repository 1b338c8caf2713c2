"""The exact finish of kernel machines, and the box programme inside it."""

import numpy as np
import pytest

import varopt as vo
from varopt import terms
from varopt.solvers import State
from varopt.solvers.finish import box_by_interior_point
from varopt.solvers.kernel import KernelProblem, solve_kernel


def radial(X):
    squares = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-0.5 * squares)


def linear(X):
    return X @ X.T  # of low rank


def machine(kind, kernel, rng, n=60):
    X = rng.standard_normal((n, 3))
    K, C = kernel(X), 10.0 ** rng.uniform(-1, 1.5, n)
    if kind == "classification":
        y = np.where(X[:, 0] + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0)
        return K, KernelProblem(lambda r, c: K[np.ix_(r, c)], terms.hinge(), y, np.zeros(n), C)
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    if kind == "quantile":
        return K, KernelProblem(lambda r, c: K[np.ix_(r, c)], terms.pinball(0.3), -np.ones(n), y, C)
    return K, KernelProblem(lambda r, c: K[np.ix_(r, c)], terms.epsilon_insensitive(0.2), -np.ones(n), y, C)


def crude(kind, K, p):
    """A feasible start: what SMO gives at a loose tolerance, or nothing at all."""
    svm = pytest.importorskip("sklearn.svm", reason="the start comes from LIBSVM")
    beta = np.zeros(p.size)
    if kind == "quantile":
        return beta, 0.0
    if kind == "classification":
        fitted = svm.SVC(kernel="precomputed", tol=0.1, C=1.0).fit(K, p.scale, sample_weight=p.weights)
    else:
        fitted = svm.SVR(kernel="precomputed", tol=0.1, C=1.0, epsilon=0.2).fit(K, p.offset, sample_weight=p.weights)
    beta[fitted.support_] = fitted.dual_coef_[0]
    return beta, float(fitted.intercept_[0])


def optimum(K, p):
    """The same problem, written in the modelling language."""
    beta, b = vo.Variable(p.size), vo.Variable()
    z = p.scale * (K @ beta + b) + p.offset
    loss = {"hinge": vo.hinge, "pinball": lambda z: vo.pinball(z, 0.3)}.get(
        p.term.name, lambda z: vo.epsilon_insensitive(z, 0.2)
    )
    ridge = 1e-9 * np.trace(K) / p.size * np.eye(p.size)  # K may be of low rank
    return vo.minimize(0.5 * vo.quad_form(beta, K + ridge) + vo.sum(p.weights * loss(z)))


@pytest.mark.parametrize("kernel", [radial, linear])
@pytest.mark.parametrize("kind", ["classification", "regression", "quantile"])
@pytest.mark.parametrize("seed", range(4))
def test_the_finish_is_exact_and_certified(kind, kernel, seed):
    rng = np.random.default_rng(seed)
    K, p = machine(kind, kernel, rng)
    state = State(np.zeros(p.size + 1))
    solve_kernel(p, *crude(kind, K, p), state, 1e-9, lambda s: None)
    reference = optimum(K, p)
    assert state.gap <= 1e-9 * max(1.0, state.upper)
    assert state.upper == pytest.approx(reference.fun, rel=1e-6)
    assert state.lower <= reference.fun + 1e-9 * abs(reference.fun)
    beta, b = state.x[:-1], state.x[-1]
    value = 0.5 * beta @ K @ beta + p.weights @ p.term.value(p.scale * (K @ beta + b) + p.offset)
    assert value == pytest.approx(state.upper, rel=1e-12)
    assert abs(beta.sum()) <= 1e-9 * np.abs(beta).sum()


@pytest.mark.parametrize("seed", range(8))
def test_brackets_of_any_feasible_point_hold_the_optimum(seed):
    rng = np.random.default_rng(seed)
    _, p = machine("classification", radial, rng, n=30)
    best = State(np.zeros(31))
    solve_kernel(p, np.zeros(30), 0.0, best, 1e-9, lambda s: None)
    beta = 0.5 * rng.random() * best.x[:-1]  # feasible, and far from optimal

    def stop(state):
        raise StopIteration

    state = State(np.zeros(31))
    with pytest.raises(StopIteration):
        solve_kernel(p, beta, float(rng.standard_normal()), state, 1e-9, stop)
    assert state.lower <= best.upper * (1 + 1e-9)
    assert best.lower <= state.upper


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (2, 1), (30, 30), (30, 3), (150, 20)])
@pytest.mark.parametrize("seed", range(3))
def test_the_interior_point_of_a_box_meets_its_conditions(n, rank, seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, rank))
    matrix, linear_part = root @ root.T * 10.0 ** rng.uniform(-3, 3), rng.standard_normal(n)
    high, signs = 10.0 ** rng.uniform(-2, 1, n), rng.choice([-1.0, 1.0], n)
    total = float(signs @ (high * rng.uniform(0.1, 0.9, n)))
    v, b = box_by_interior_point(matrix, linear_part, high, signs, total)
    assert np.all((v >= 0) & (v <= high))
    assert signs @ v == pytest.approx(total, abs=1e-9 * high.sum())
    # Complementary slackness, as the gap between v and the best answer to its own slopes.
    slope = matrix @ v + linear_part + b * signs
    gap = float(np.sum(np.where(slope > 0, slope * v, -slope * (high - v))))
    scale = max(1.0, abs(0.5 * v @ matrix @ v + linear_part @ v), float(np.abs(linear_part) @ high))
    assert gap <= 1e-6 * scale
