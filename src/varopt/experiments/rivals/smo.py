"""Sequential minimal optimisation [Platt99] with second-order working sets [FCL05]: LIBSVM, through scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

__all__ = ["smo"]

Vector = NDArray[np.float64]


def smo(gram: Vector, y: Vector, cost: float, tol: float, most: int = -1) -> Vector:
    """(beta, b) of ``w'w + cost sum_n max(1 - y_n (w'x_n + b), 0)`` with ``gram[n, m] = x_n'x_m``.

    LIBSVM's objective has w'w / 2, hence half the cost. `tol` is its bound on the violation of optimality; `most` its
    bound on iterations. The cache holds the whole matrix up to 5,000 points.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = SVC(kernel="precomputed", C=0.5 * cost, tol=tol, cache_size=200, max_iter=most).fit(gram, y)
    point = np.zeros(y.size + 1)
    point[fitted.support_] = fitted.dual_coef_[0] * y[fitted.support_]
    point[-1] = fitted.intercept_[0]
    return point
