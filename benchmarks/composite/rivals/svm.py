"""The linear support vector machine elsewhere: LIBLINEAR and ReHLine, both by dual coordinate descent.

Both penalise the intercept; a large scaling of its column makes up for it, at a price in iterations. So their ladders
vary the scaling, the tolerance and the most iterations. Their objective is half of ours: ``C / 2`` is their C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._rivals import Fit, Rival

Vector = NDArray[np.float64]

LADDER: tuple[dict[str, Any], ...] = tuple(
    {"scaling": scaling, "tol": tol, "max_iter": most}
    for most, tol in ((1_000, 1e-4), (10_000, 1e-6), (100_000, 1e-8), (1_000_000, 1e-10))
    for scaling in (1.0, 10.0, 100.0)
)


def _liblinear(X: Vector, labels: Vector, cost: float) -> Fit:
    from sklearn.svm import LinearSVC

    def fit(scaling: float, tol: float, max_iter: int) -> Vector:
        model = LinearSVC(
            loss="hinge", dual=True, C=0.5 * cost, tol=tol, max_iter=max_iter, intercept_scaling=scaling, random_state=0
        ).fit(X, labels)
        return np.append(model.coef_, model.intercept_)

    return fit


LIBLINEAR = Rival("LIBLINEAR (scikit-learn)", _liblinear, LADDER, modules=("sklearn",), packages=("scikit-learn",))


def _rehline(X: Vector, labels: Vector, cost: float) -> Fit:
    from rehline import plqERM_Ridge

    def fit(scaling: float, tol: float, max_iter: int) -> Vector:
        model = plqERM_Ridge(loss={"name": "svm"}, C=0.5 * cost, tol=tol, max_iter=max_iter)
        model.fit(np.column_stack([X, np.full(labels.size, scaling)]), labels)
        return np.append(model.coef_[:-1], scaling * model.coef_[-1])

    return fit


REHLINE = Rival("ReHLine", _rehline, LADDER, modules=("rehline",), packages=("rehline",))
