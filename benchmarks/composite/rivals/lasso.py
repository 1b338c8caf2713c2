"""The lasso elsewhere: scikit-learn with and without its Gram matrix, celer, skglm.

All of them take ``1/2n sum (y - Xw)^2 + alpha |w|_1``, so that alpha is our penalty over 2n, and columns in Fortran's
order, which they get off the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._rivals import Fit, Rival

Vector = NDArray[np.float64]

TOLERANCES: tuple[dict[str, Any], ...] = tuple({"tol": 10.0**-k} for k in (4, 6, 8, 10, 12, 14))


def _scikit_learn(precompute: bool) -> Callable[..., Fit]:
    def prepare(X: Vector, y: Vector, penalty: float) -> Fit:
        from sklearn.linear_model import Lasso

        columns, alpha = np.asfortranarray(X), 0.5 * penalty / y.size

        def fit(tol: float) -> Vector:
            model = Lasso(alpha, fit_intercept=False, precompute=precompute, tol=tol, max_iter=10**6, copy_X=False).fit(
                columns, y
            )
            return np.asarray(model.coef_)

        return fit

    return prepare


def _celer(X: Vector, y: Vector, penalty: float) -> Fit:
    from celer import Lasso

    columns, alpha = np.asfortranarray(X), 0.5 * penalty / y.size

    def fit(tol: float) -> Vector:
        return np.asarray(Lasso(alpha, fit_intercept=False, tol=tol, max_iter=1000).fit(columns, y).coef_)

    return fit


def _skglm_fit(columns: Vector, y: Vector, alpha: float, tol: float, solver: str) -> Vector:
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Quadratic
    from skglm.penalties import L1
    from skglm.solvers import AndersonCD, GramCD

    if solver == "GramCD":
        return np.asarray(GramCD(max_iter=10**5, fit_intercept=False, tol=tol).solve(columns, y, None, L1(alpha))[0])
    method = AndersonCD(max_iter=1000, fit_intercept=False, tol=tol)
    return np.asarray(GeneralizedLinearEstimator(Quadratic(), L1(alpha), method).fit(columns, y).coef_)


def _skglm(X: Vector, y: Vector, penalty: float) -> Fit:
    columns, alpha = np.asfortranarray(X), 0.5 * penalty / y.size
    return lambda tol, solver: _skglm_fit(columns, y, alpha, tol, solver)


def _compile_skglm() -> None:
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.standard_normal((20, 5)))
    for solver in ("AndersonCD", "GramCD"):
        _skglm_fit(X, X @ np.ones(5), 0.01, 1e-6, solver)


def _skglm_ladder(*solvers: str) -> tuple[dict[str, Any], ...]:
    return tuple({"solver": solver, "tol": 10.0**-k} for k in (4, 6, 8, 10, 12) for solver in solvers)


def _skglm_rival(*solvers: str) -> Rival:
    return Rival("skglm", _skglm, _skglm_ladder(*solvers), ("skglm",), ("skglm", "numba"), compile=_compile_skglm)


GRAM = Rival("scikit-learn Lasso, its Gram", _scikit_learn(True), TOLERANCES, ("sklearn",), ("scikit-learn",))
PLAIN = Rival("scikit-learn Lasso", _scikit_learn(False), TOLERANCES, ("sklearn",), ("scikit-learn",))
CELER = Rival("celer", _celer, TOLERANCES, ("celer",), ("celer",))

TALL = (GRAM, PLAIN, CELER, _skglm_rival("GramCD", "AndersonCD"))
WIDE = (PLAIN, CELER, _skglm_rival("AndersonCD"))
