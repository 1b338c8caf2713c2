"""The group lasso elsewhere: skglm, which takes ``1/2n sum (y - Xw)^2 + alpha sum_g weight_g |w_g|``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._rivals import Fit, Rival

Vector = NDArray[np.float64]

TOLERANCES: tuple[dict[str, Any], ...] = tuple({"tol": 10.0**-k} for k in (4, 6, 8, 10, 12))


def _skglm(X: Vector, y: Vector, groups: Sequence[NDArray[np.intp]], penalty: float) -> Fit:
    from skglm import GroupLasso

    columns, alpha = np.asfortranarray(X), 0.5 * penalty / y.size
    index, weights = [g.tolist() for g in groups], np.sqrt([g.size for g in groups])

    def fit(tol: float) -> Vector:
        model = GroupLasso(index, alpha, weights, max_iter=1000, tol=tol, fit_intercept=False)
        return np.asarray(model.fit(columns, y).coef_)

    return fit


def _compile_skglm() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 6))
    _skglm(X, X @ np.ones(6), [np.arange(3), np.arange(3, 6)], 0.4)(1e-6)


SKGLM = Rival("skglm", _skglm, TOLERANCES, ("skglm",), ("skglm", "numba"), compile=_compile_skglm)
