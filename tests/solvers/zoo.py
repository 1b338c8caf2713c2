"""Problems whose optimum is known without a solver: by a formula, or because the data were built from it.

A problem is a function of a generator that returns the objective and its optimal value. A method is tested on all of
them by being registered in `varopt.solvers.METHODS`; a problem by standing here.
"""

from __future__ import annotations

import itertools

import numpy as np
import scipy.linalg
import scipy.sparse as sp

import varopt as vo


def _soft(y, width):
    return np.sign(y) * np.maximum(np.abs(y) - width, 0.0)


def _orthonormal(rng, rows, columns):
    return np.linalg.qr(rng.standard_normal((rows, columns)))[0]


def median(rng):
    """The sum of distances is least at a median."""
    y, x = rng.standard_normal(31), vo.Variable()
    return vo.sum(vo.abs(y - np.ones(31) * x)), float(np.abs(y - np.median(y)).sum())


def weighted_quantiles(rng):
    """One quantile for each of three groups of rows, coded by their own columns."""
    y, tau, x = rng.standard_normal((3, 40)), 0.3, vo.Variable(3)
    each = [np.sort(row)[int(np.ceil(tau * 40)) - 1] for row in y]
    r = y - np.array(each)[:, None]
    return vo.sum(vo.pinball(y.ravel() - np.kron(np.eye(3), np.ones((40, 1))) @ x, tau)), float(
        np.maximum(tau * r, (tau - 1.0) * r).sum()
    )


def quadratic(rng):
    """Least squares without anything else."""
    X, y, x = rng.standard_normal((50, 6)), rng.standard_normal(50), vo.Variable(6)
    residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return vo.sum_squares(y - X @ x), float(residual @ residual)


def orthonormal_lasso(rng):
    """Soft thresholding."""
    Q, x = _orthonormal(rng, 60, 8), vo.Variable(8)
    y = Q @ (3.0 * rng.standard_normal(8)) + rng.standard_normal(60)
    w, lam = _soft(Q.T @ y, 0.75), 1.5
    return vo.sum_squares(y - Q @ x) + lam * vo.norm1(x), float(np.sum((y - Q @ w) ** 2) + lam * np.abs(w).sum())


def large_orthonormal_lasso(rng):
    """The same, beyond the size at which blocks of variables take over, with columns of a Hadamard matrix."""
    Q, x = scipy.linalg.hadamard(2048)[:, :1100] / np.sqrt(2048.0), vo.Variable(1100)
    y = Q @ rng.standard_normal(1100) + rng.standard_normal(2048)
    w, lam = _soft(Q.T @ y, 0.75), 1.5
    return vo.sum_squares(y - Q @ x) + lam * vo.norm1(x), float(np.sum((y - Q @ w) ** 2) + lam * np.abs(w).sum())


def wide_lasso(rng):
    """More variables than rows: built from its solution, of which the dual point is known.

    With residual r, ``2 X'r = lam sign(w)`` on the support and less elsewhere: columns are scaled until that holds.
    """
    rows, size, lam = 40, 600, 2.0
    X, r = rng.standard_normal((rows, size)), rng.standard_normal(rows)
    w = np.where(np.arange(size) % 75 == 0, rng.choice([-1.0, 1.0], size) * (1.0 + rng.random(size)), 0.0)
    correlation = 2.0 * X.T @ r
    wanted = np.where(w != 0.0, lam * np.sign(w), 0.8 * lam * np.sign(correlation) * rng.random(size))
    X *= wanted / correlation
    x = vo.Variable(size)
    return vo.sum_squares(X @ w + r - X @ x) + lam * vo.norm1(x), float(r @ r + lam * np.abs(w).sum())


def sparse_lasso(rng):
    """The same with sparse columns."""
    rows, size, lam = 300, 900, 1.0
    dense = np.where(rng.random((rows, size)) < 0.02, rng.standard_normal((rows, size)), 0.0)
    dense[rng.integers(0, rows, size), np.arange(size)] = 1.0
    r = rng.standard_normal(rows) + 0.1
    w = np.where(np.arange(size) % 90 == 0, 1.5, 0.0)
    correlation = 2.0 * dense.T @ r
    wanted = np.where(w != 0.0, lam * np.sign(w), 0.7 * lam * np.sign(correlation) * rng.random(size))
    X = sp.csr_array(dense * (wanted / correlation))
    x = vo.Variable(size)
    return vo.sum_squares(X @ w + r - X @ x) + lam * vo.norm1(x), float(r @ r + lam * np.abs(w).sum())


def two_points_svm(rng):
    """Two points at distance 2 m apart on a line: w = u / m where the weight is large enough to separate them."""
    u = rng.standard_normal(5)
    u /= np.linalg.norm(u)
    m, w, b = 2.0, vo.Variable(5), vo.Variable()
    X, t = np.stack([m * u, -m * u]), np.array([1.0, -1.0])
    return vo.sum_squares(w) + 10.0 * vo.sum(vo.hinge(t * (X @ w + b))), 1.0 / m**2


def wide_ridge(rng):
    """A ridge on many variables and one row: everything happens along that row."""
    a, w = rng.standard_normal(900), vo.Variable(900)
    c, s = 0.3, float(a @ a)
    # min 1/2 |w|^2 + c |1 - a'w|: a'w = min(c s, 1)
    along = min(c * s, 1.0)
    return 0.5 * vo.sum_squares(w) + c * vo.sum(vo.abs(1.0 - a[None, :] @ w)), along**2 / (2 * s) + c * (1.0 - along)


def sparse_ridge(rng):
    """A ridge on sparse rows that share no variable: each is solved on its own."""
    n, c = 700, 0.4
    a, w = 0.5 + rng.random((n, 2)), vo.Variable(2 * n)
    X = sp.csr_array((a.ravel(), (np.repeat(np.arange(n), 2), np.arange(2 * n))), shape=(n, 2 * n))
    s = (a * a).sum(axis=1)
    along = np.minimum(c * s, 1.0)  # of 1/2 |w|^2 + c (1 - a'w)_+
    optimum = float(np.sum(along**2 / (2 * s) + c * (1.0 - along)))
    return 0.5 * vo.sum_squares(w) + c * vo.sum(vo.hinge(X @ w)), optimum


def low_rank(rng):
    """A kernelised machine of rank one, in 400 coefficients: in the score s = K c it has one variable."""
    v = rng.standard_normal(400)
    K, c = np.outer(v, v), vo.Variable(400)
    # c'Kc = (v'c)^2 and row k is v_k (v'c): min over t of t^2 + 0.1 sum_k |1 - v_k t|
    knots = np.sort(np.concatenate([1.0 / v, np.linspace(-60, 60, 2)]))
    values = [_parabola_between(v, low, high) for low, high in itertools.pairwise(knots)]
    return vo.quad_form(c, K) + 0.1 * vo.sum(vo.abs(1.0 - K @ c)), float(min(values))


def _parabola_between(v, low, high):
    """The least value of ``t^2 + 0.1 sum_k |1 - v_k t|`` between two neighbouring kinks."""
    signs = np.sign(1.0 - v * (0.5 * (low + high)))
    t = np.clip(0.05 * float(signs @ v), low, high)
    return t * t + 0.1 * float(np.abs(1.0 - v * t).sum())


def constant_signal(rng):
    """Total variation so heavy that the signal is its mean."""
    y, x = rng.standard_normal(400), vo.Variable(400)
    heavy = 2.0 * float(np.abs(np.cumsum(y - y.mean())).max()) + 1.0
    return vo.sum_squares(y - x) + heavy * vo.norm1(vo.diff(x)), float(np.sum((y - y.mean()) ** 2))


def straight_line(rng):
    """Trend filtering so heavy that the signal is its regression line."""
    n = 400
    y, x = rng.standard_normal(n), vo.Variable(n)
    basis = np.vander(np.arange(n), 2)
    residual = y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
    heavy = 2.0 * float(np.abs(np.cumsum(np.cumsum(residual))).max()) + 1.0
    return vo.sum_squares(y - x) + heavy * vo.norm1(vo.diff(vo.diff(x))), float(residual @ residual)


def orthonormal_groups(rng):
    """Soft thresholding of groups."""
    Q, x = _orthonormal(rng, 60, 9), vo.Variable(9)
    y = Q @ (2.0 * rng.standard_normal(9)) + rng.standard_normal(60)
    groups, lam = [np.arange(k, k + 3) for k in (0, 3, 6)], 2.0
    z = Q.T @ y
    w = np.concatenate([z[g] * max(0.0, 1.0 - 0.5 * lam / np.linalg.norm(z[g])) for g in groups])
    value = np.sum((y - Q @ w) ** 2) + lam * sum(np.linalg.norm(w[g]) for g in groups)
    return vo.sum_squares(y - Q @ x) + lam * vo.norm2(x, groups), float(value)


def geometric_median(rng):
    """Of the corners of a regular polygon: its centre."""
    corners = 3.0 * np.exp(2j * np.pi * (np.arange(6) / 6 + rng.random())) + complex(*rng.standard_normal(2))
    x, places = vo.Variable(2), np.c_[corners.real, corners.imag].ravel()
    groups = [np.arange(k, k + 2) for k in range(0, 12, 2)]
    return vo.norm2(np.tile(np.eye(2), (6, 1)) @ x - places, groups), 18.0


def huber_location(rng):
    """Huber's location of a sample that lies within its threshold is the mean."""
    y, x = 0.1 * rng.standard_normal(50), vo.Variable()
    f = vo.sum(vo.huber(y - np.ones(50) * x, 1.0))
    return f, float(f([y.mean()]))


def capped_distances(rng):
    """Not convex: the sum of capped distances from a tight cluster and a far one is least in the larger."""
    y = np.concatenate([0.01 * rng.standard_normal(21), 10.0 + 0.01 * rng.standard_normal(10)])
    x, near = vo.Variable(), y[:21]
    return vo.sum(vo.capped_abs(y - np.ones(31) * x, 1.0)), float(np.abs(near - np.median(near)).sum() + 10.0)


ZOO = (
    median, weighted_quantiles, quadratic, orthonormal_lasso, large_orthonormal_lasso, wide_lasso, sparse_lasso,
    two_points_svm, wide_ridge, sparse_ridge, low_rank, constant_signal, straight_line, orthonormal_groups,
    geometric_median, huber_location, capped_distances,
)  # fmt: skip
