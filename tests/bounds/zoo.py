"""Objectives that mix every kind of block, families to put on them, and references computed independently."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import varopt as vo

# -- Objectives of real variables: `name(rng)` returns one -----------------------------------------------------------


def _data(rng, n=7, p=3):
    return rng.standard_normal((n, p)), rng.standard_normal(n)


def lasso(rng):
    X, y = _data(rng)
    w = vo.Variable(3, name="w")
    return vo.sum_squares(y - X @ w) + 0.7 * vo.norm1(w)


def svm(rng):
    X, y = _data(rng)
    w, b = vo.Variable(3, name="w"), vo.Variable(name="b")
    return vo.sum_squares(w) + 1.3 * vo.sum(vo.hinge(np.sign(y) * (X @ w + b)))


def per_row(rng):
    """Parameters and weights that differ by row; weights of zero and of either sign."""
    X, y = _data(rng)
    w = vo.Variable(3, name="w")
    weights = np.array([1.0, 0.0, -0.5, 2.0, 0.3, -1.0, 0.0])
    return (
        weights @ vo.pinball(y - X @ w, rng.uniform(0.1, 0.9, 7))
        + vo.sum(rng.uniform(0.5, 1.5, 7) * vo.huber(X @ w - y, rng.uniform(0.2, 1.0, 7)))
        - 0.4 * vo.sum(vo.epsilon_insensitive(w, [0.1, 0.2, 0.3]))
    )


def fused(rng):
    X, y = _data(rng)
    w = vo.Variable(3, name="w")
    return vo.sum(vo.pinball(y - X @ w, 0.7)) + 0.5 * vo.norm1(vo.diff(w)) + 0.2 * vo.sum_squares(vo.diff(w, 2))


def quadratics(rng):
    """Quadratic forms that are dense, sparse, an operator, of an affine argument, and none of them symmetric."""
    X, y = _data(rng)
    w, v = vo.Variable(3, name="w"), vo.Variable(2, name="v")
    big = rng.standard_normal((7, 7))
    return (
        vo.quad_form(w, rng.standard_normal((3, 3)))
        + 0.5 * vo.quad_form(v, sp.csr_array(rng.standard_normal((2, 2))))
        - 0.3 * vo.quad_form(w[1:], aslinearoperator(rng.standard_normal((2, 2))))
        + vo.quad_form(X @ w - y, big)
        + 0.1 * vo.quad_form(X @ w + v[0], aslinearoperator(big))
        + vo.quad_form(2.0 * w - 1.0, sp.csc_array(rng.standard_normal((3, 3))))
        + vo.norm1(v)
    )


def sparse_data(rng):
    X = sp.random_array((9, 4), density=0.4, rng=rng, format="csr")
    w, b = vo.Variable(4, name="w"), vo.Variable(name="b")
    y = rng.standard_normal(9)
    return vo.sum(vo.abs(y - X @ w - b)) + vo.sum_squares(sp.csc_array(X) @ w) + 0.1 * vo.norm1(w)


def operator_data(rng):
    X, y = _data(rng)
    w = vo.Variable(3, name="w")
    operator = aslinearoperator(X)
    return vo.sum(vo.squared_hinge(np.sign(y) * (operator @ w))) + vo.sum_squares(operator @ w - y) + vo.norm1(w)


def repeated(rng):
    """A variable that occurs twice in one argument, slices of it, and a scalar among vectors."""
    X, y = _data(rng)
    w, b = vo.Variable(3, name="w"), vo.Variable(name="b")
    return (
        vo.sum(vo.abs(X @ w - y + X[:, :1] @ w[:1] + b))
        + vo.sum_squares(w[::2] - b)
        + 2.0 * vo.hinge(b + w[1])
        + np.array([1.0, -2.0, 0.5]) @ w
        - 3.0
    )


def zero_rows(rng):
    """Rows of zeros: their argument is a constant, on a knot in one case."""
    X, y = _data(rng)
    X[[0, 3]] = 0.0
    y[3] = 0.0
    w = vo.Variable(3, name="w")
    return vo.sum(vo.abs(X @ w - y)) + vo.sum(vo.hinge(X @ w + 1.0)) + vo.sum(vo.huber(X @ w - y)) + vo.sum_squares(w)


def zero_rows_and_jumps(rng):
    X, y = _data(rng)
    X[[0, 3]] = 0.0
    y[3] = 0.0
    w = vo.Variable(3, name="w")
    return vo.sum(vo.step(X @ w - y)) + vo.sum(vo.zero_one(X @ w - y)) + vo.sum(vo.ramp(X @ w - y))


def single_precision(rng):
    X, y = _data(rng)
    w = vo.Variable(3, name="w")
    A = rng.standard_normal((3, 3)).astype(np.float32)
    return (
        vo.sum(vo.pinball(y.astype(np.float32) - X.astype(np.float32) @ w, 0.3))
        + vo.quad_form(w, A)
        + vo.quad_form(X.astype(np.float32) @ w, rng.standard_normal((7, 7)).astype(np.float32))
        + vo.sum_squares(sp.csr_array(X.astype(np.float32)) @ w)
    )


def integers(rng):
    X = rng.integers(-3, 4, (7, 3))
    w = vo.Variable(3, name="w")
    y = rng.integers(-2, 3, 7)
    A = rng.integers(-2, 3, (3, 3))
    return vo.sum(vo.abs(y - X @ w)) + vo.quad_form(w, A) + vo.sum_squares(sp.csr_array(X) @ w)


def nonconvex(rng):
    X, y = _data(rng)
    w = vo.Variable(3, name="w")
    return (
        vo.sum_squares(X @ w - y)
        + vo.sum(vo.mcp(w, 0.8))
        - 0.5 * vo.sum(vo.scad(w, 0.4))
        + vo.sum(vo.capped_abs(X @ w, 0.6))
        + vo.sum(vo.step(X @ w - y))
        + vo.sum(vo.zero_one(w))
    )


def polynomial(rng):
    """Powers beyond the square, and pieces of one's own that jump."""
    X, _ = _data(rng)
    w = vo.Variable(3, name="w")
    own = vo.piecewise(X @ w, knots=[-0.5, 0.7], pieces=[[1.0, 0.5], [0.0, 1.0, -2.0, 0.5], [2.0, 0.0, 1.0]])
    return vo.sum((X @ w - 0.3) ** 4) + vo.sum(w**3) + vo.sum(own)


def groups(rng):
    """Group norms: closed form under an isotropic Gaussian only."""
    X, y = _data(rng, p=5)
    w, v = vo.Variable(5, name="w"), vo.Variable(4, name="v")
    weights = np.array([0.5, 2.0])
    return (
        vo.sum(vo.hinge(X @ w - y))
        + 1.5 * vo.norm2(w, groups=[[0, 2, 3], [1, 4]])
        + weights[0] * vo.norm2(2.0 * v - 0.3)
        - weights[1] * vo.norm2(v, groups=2)
        + vo.norm2(X @ w - y, groups=1)
    )


GENERAL = [
    lasso, svm, per_row, fused, quadratics, sparse_data, operator_data, repeated, zero_rows, zero_rows_and_jumps,
    single_precision, integers, nonconvex, polynomial,
]  # fmt: skip
CONVEX = [lasso, svm, fused, sparse_data, operator_data, repeated, zero_rows]
ZOO: dict[str, Callable[[np.random.Generator], Any]] = {build.__name__: build for build in [*GENERAL, groups]}

# -- Gaussians of every shape -----------------------------------------------------------------------------------------

SHAPES = ("scalar", "vector", "cholesky")


def sigma(shape: str, size: int, rng: np.random.Generator) -> Any:
    if shape == "scalar":
        return np.array(rng.uniform(0.2, 0.6))
    if shape == "vector":
        return rng.uniform(0.2, 0.6, size)
    return np.tril(rng.uniform(-0.3, 0.3, (size, size)), -1) + np.diag(rng.uniform(0.2, 0.6, size))


def gaussian(shape: str, size: int, rng: np.random.Generator) -> vo.Gaussian:
    return vo.Gaussian(rng.uniform(-1.0, 1.0, size), sigma(shape, size, rng))


# -- References -------------------------------------------------------------------------------------------------------


def derivative(function: Callable[[np.ndarray], Any], at: Any, h: float = 2e-3, free: Any = None) -> np.ndarray:
    """Central differences of fourth order, entry by entry of `at`; entries that are not `free` get zero."""
    at = np.asarray(at, dtype=float)
    columns = []
    for k in range(at.size):
        step = np.zeros(at.size)
        step[k] = h
        step = step.reshape(at.shape)
        if free is not None and not np.ravel(free)[k]:
            columns.append(0.0 * np.asarray(function(at)))
            continue
        near = np.asarray(function(at + step)) - np.asarray(function(at - step))
        far = np.asarray(function(at + 2 * step)) - np.asarray(function(at - 2 * step))
        columns.append((8.0 * near - far) / (12.0 * h))
    return np.reshape(np.moveaxis(np.array(columns), 0, -1), (*np.shape(columns[0]), *at.shape))


def bits(n: int) -> np.ndarray:
    """All points of {0, 1}^n."""
    return np.array(list(itertools.product([0.0, 1.0], repeat=n)))


def one_hot(n: int, k: int) -> np.ndarray:
    """All points of n choices among k."""
    return np.array([np.eye(k)[list(c)].ravel() for c in itertools.product(range(k), repeat=n)])


def quadratic_program(P, q, A, b, equalities=0) -> float:
    """min x'Px/2 + q'x subject to Ax <= b, its first rows with equality, to about 1e-11."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    cones = [clarabel.ZeroConeT(equalities)] if equalities else []
    cones.append(clarabel.NonnegativeConeT(len(b) - equalities))
    P, A = sp.csc_matrix(sp.triu(P)), sp.csc_matrix(A)
    return clarabel.DefaultSolver(P, np.asarray(q, float), A, np.asarray(b, float), cones, settings).solve().obj_val
