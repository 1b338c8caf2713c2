"""Lassos for many strengths at once by homotopy: along a stretch of strengths the coefficients are lines."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import lars_path

from varopt.learn._least_squares._squares import Squares

__all__ = ["homotopy"]

_SCALE = 1e4  # of the features: columns nearer than 1e-7 to the span of others are dropped, whatever their units
_TURNS_OF_PATH = 8  # turns of a path for each of its rows or features, whichever are fewer


def homotopy(squares: Squares, l1: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients of one target for falling strengths, a row each, as far as least angle regression gets [EHJT04].

    It gives up where columns repeat one another: brackets tell which of the coefficients are minimisers.

    References
    ----------
    [EHJT04] Efron, Hastie, Johnstone, Tibshirani (2004), "Least angle regression".
    """
    X, y = squares.standard
    unit = _SCALE / float(np.sqrt(np.square(X).sum(axis=0).max(initial=0.0)) or 1.0)
    options: dict[str, Any] = {"alpha_min": 0.999 * unit * l1[-1], "max_iter": _TURNS_OF_PATH * min(X.shape)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what went wrong is seen in the brackets
        with np.errstate(all="ignore"):
            turns, _, lines = lars_path(unit * X, y[:, 0], method="lasso", copy_X=False, **options)
    return np.array([np.interp(-unit * l1, -turns, unit * line) for line in lines]).T.reshape(l1.size, X.shape[1])
