"""A model fitted again without some of its rows: from the fit to all of them, where that is shorter."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from varopt.learn._quantile import QuantileRegressor
from varopt.solvers.quantile import Centre, nearby

__all__ = ["fit_weighted", "refits"]

Vector = NDArray[np.float64]

_WEIGHT_ENTRIES = 1 << 21  # of a chunk of weights
_ROWS_OF_CLOSE_NEIGHBORS = 20  # rows a feature from which on a neighbour is close


def fit_weighted(model: Any, X: Any, y: Vector, weight: Vector) -> Any:
    """Fit a model, with weights where there are some, or raise where it takes none."""
    if np.all(weight == 1.0):
        return model.fit(X, y)
    if not has_fit_parameter(model, "sample_weight"):
        raise ValueError(f"sample_weight was given, and the fit of {type(model).__name__} takes none.")
    return model.fit(X, y, sample_weight=weight)


def refits(whole: Any, X: Any, y: Vector, weight: Vector, left_out: Sequence[NDArray[np.intp]]) -> Iterator[Any]:
    """The models fitted without each of some sets of rows; `whole` is that fitted with all of them."""
    if _is_near(whole, X):
        yield from _neighbours(whole, X, y, weight, left_out)
        return
    again = clone(whole)
    if hasattr(again, "warm_start") and hasattr(whole, "coef_"):
        again.set_params(warm_start=True)
    for rows in left_out:
        model, kept = clone(again), np.ones(y.size, dtype=bool)
        kept[rows] = False
        if getattr(model, "warm_start", False):
            model.coef_, model.intercept_ = whole.coef_, whole.intercept_
        yield fit_weighted(model, X[kept], y[kept], weight[kept])


def _is_near(model: Any, X: Any) -> bool:
    """Whether the refits are those of quantile regressions without a penalty, and far fewer features than rows."""
    plain = isinstance(model, QuantileRegressor) and not model.non_crossing and not model._constrained_by
    return (
        plain
        and (model.alpha == 0.0 or model.penalty is None)
        and X.shape[0] >= _ROWS_OF_CLOSE_NEIGHBORS * (X.shape[1] + 1)
    )


def _neighbours(
    whole: QuantileRegressor, X: Any, y: Vector, weight: Vector, left_out: Sequence[NDArray[np.intp]]
) -> Iterator[Any]:
    """All of a chunk at once, each level from its fit to all rows."""
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    center = X.mean(axis=0) * float(whole.fit_intercept)
    rows = np.hstack([X - center, np.ones((len(X), int(whole.fit_intercept)))])
    coefs = np.atleast_2d(np.asarray(whole.coef_, dtype=np.float64))
    levels = np.broadcast_to(np.ravel(whole.intercept_), (len(coefs),)) + coefs @ center
    planes = np.column_stack([coefs, levels]) if whole.fit_intercept else coefs
    chunk = max(1, _WEIGHT_ENTRIES // len(X))
    for k in range(0, len(left_out), chunk):
        some = left_out[k : k + chunk]
        weights = np.repeat(weight[:, None], len(some), axis=1)
        for column, without in enumerate(some):
            weights[without, column] = 0.0
        found = np.stack([
            plane + nearby(Centre(rows, y - rows @ plane, level, _hessian(rows, y - rows @ plane, weight)), weights)
            for plane, level in zip(planes, whole._levels(), strict=True)
        ])  # fmt: skip
        for column, without in enumerate(some):
            yield _moved(whole, found[:, column], center, X, y, weight, without)


def _hessian(rows: NDArray[np.float64], residual: Vector, weight: Vector) -> NDArray[np.float64]:
    """That of the smoothed losses, by a normal kernel as wide as the typical spacing asks for."""
    spread = float(np.subtract(*np.quantile(residual, [0.75, 0.25]))) / 1.34 or float(np.std(residual)) or 1.0
    width = spread * residual.size ** (-0.2)
    density = weight * np.exp(-0.5 * (residual / width) ** 2) / (np.sqrt(2.0 * np.pi) * width)
    floor = 1e-6 * float(density.max(initial=0.0))
    return np.asarray(rows.T @ (rows * np.maximum(density, floor)[:, None]))


def _moved(
    whole: QuantileRegressor, planes: NDArray[np.float64], center: Vector, X: Any, y: Vector, weight: Vector,
    without: NDArray[np.intp],
) -> Any:  # fmt: skip
    """The model with other planes; fitted anew where one was not found."""
    if np.isnan(planes).any():
        kept = np.delete(np.arange(y.size), without)
        return fit_weighted(clone(whole), X[kept], y[kept], weight[kept])
    model = copy.copy(whole)
    for name in ("objective_", "lower_bound_", "gap_", "certificate_"):  # those of all rows
        delattr(model, name)
    coef = planes[:, : X.shape[1]]
    levels = planes[:, X.shape[1] :].sum(axis=1) - coef @ center
    single = np.ndim(whole.coef_) == 1
    model.coef_, model.intercept_ = (coef[0], float(levels[0])) if single else (coef, levels)
    return model
