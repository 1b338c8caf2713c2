"""A fitted model and its data as a regression on the columns of one matrix, the intercept being one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, check_X_y

from varopt.learn._compat import _check_sample_weight
from varopt.learn._huber import HuberRegressor
from varopt.learn._linear import LADRegressor
from varopt.learn._quantile import QuantileRegressor

__all__ = ["Design", "design", "fitted_quantiles", "gram"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_BALANCED_GRADIENT = 1e-6  # of the sum of absolute values: what may be left of the gradient at the optimum
_HARMLESS_RIDGE = 1e-3  # share of the smallest curvature below which a ridge changes nothing that matters


@dataclass(frozen=True)
class Design:
    """The data of a regression, and its coefficients.

    Attributes
    ----------
    X : (n, p) array or CSR array
        With a first column of ones where the model has an intercept.
    y, weight : (n,) arrays
    names : tuple of p strings
    coef : (k, p) array
        A row for each level.
    levels : (k,) array
        Empty for Huber's regression.
    """

    X: Any
    y: Vector
    weight: Vector
    names: tuple[str, ...]
    coef: Matrix
    levels: Vector
    rows: NDArray[np.intp]  # which rows of the data these are: those with a weight,
    given: int  # of so many

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return int(self.X.shape[0] - self.X.shape[1])

    @property
    def huber(self) -> bool:
        """Whether the model is Huber's."""
        return not self.levels.size

    def scaled(self) -> tuple[Any, Vector]:
        """X and y with every row times its weight: a quantile's loss is then without weights."""
        X = (
            sp.csr_array(self.X.multiply(self.weight[:, None]))
            if sp.issparse(self.X)
            else self.X * self.weight[:, None]
        )
        return X, self.y * self.weight


def design(model: Any, X: Any, y: Any, sample_weight: Any) -> Design:
    """The design of a fitted model; raises where there is none, where it is penalised, or not fitted to these data."""
    levels = _levels(model)
    check_is_fitted(model, "coef_")
    names = _names(model, X)
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
    y = np.asarray(y, dtype=np.float64)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    if coef.shape[1] != X.shape[1]:
        raise ValueError(f"X has {X.shape[1]} features, but the model was fitted to {coef.shape[1]}.")
    if coef.shape[0] != max(1, levels.size):
        raise ValueError(f"inference is for one target, and the model was fitted to {coef.shape[0]}: fit each alone.")
    rows = np.flatnonzero(weight > 0.0)
    given, X, y, weight = weight.size, X[rows], y[rows], weight[rows]
    if getattr(model, "fit_intercept", True):
        intercept = np.broadcast_to(np.ravel(model.intercept_), (coef.shape[0],))
        coef, names = np.column_stack([intercept, coef]), ("intercept", *names)
        ones = np.ones((X.shape[0], 1))
        X = sp.csr_array(sp.hstack([ones, X], format="csr")) if sp.issparse(X) else np.hstack([ones, X])
    made = Design(X, y, weight, names, coef, levels, rows, given)
    _check_rank(made)
    _check_penalty(model, made)
    _check_balance(model, made)
    return made


def gram(X: Any, weight: Vector) -> Matrix:
    """``X' diag(weight) X``."""
    if sp.issparse(X):
        return np.asarray((X.T @ X.multiply(weight[:, None]).tocsr()).toarray())
    return np.asarray(X.T @ (X * weight[:, None]))


def fitted_quantiles(X: Any, y: Vector, levels: Vector) -> Matrix:
    """Coefficients of unweighted quantile regressions, a row for each level."""
    model = QuantileRegressor(quantile=np.asarray(levels), alpha=0.0, fit_intercept=False)
    return np.asarray(model.fit(X, y).coef_)


def _levels(model: Any) -> Vector:
    if isinstance(model, LADRegressor):
        return np.array([0.5])
    if isinstance(model, HuberRegressor) or {"epsilon", "scale_"} <= set(vars(model)):
        return np.zeros(0)
    if isinstance(model, QuantileRegressor) or (hasattr(model, "quantile") and hasattr(model, "solver_options")):
        if getattr(model, "non_crossing", False):
            raise ValueError("inference needs quantiles that were fitted one by one: non_crossing=False.")
        return np.atleast_1d(np.asarray(model.quantile, dtype=np.float64))
    raise ValueError(
        f"inference takes a fitted QuantileRegressor, LADRegressor or HuberRegressor, not a {type(model).__name__}."
    )


def _names(model: Any, X: Any) -> tuple[str, ...]:
    names = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    count = np.shape(X)[1] if np.ndim(X) == 2 else 0
    return tuple(map(str, names)) if names is not None else tuple(f"x{j}" for j in range(count))


def _check_rank(made: Design) -> None:
    n, p = made.X.shape
    if n <= p:
        raise ValueError(f"inference needs more rows than coefficients: {n} rows have a weight, and there are {p}.")
    products = gram(made.X, np.ones(n))
    unit = np.sqrt(np.diagonal(products))
    if not unit.all() or np.linalg.matrix_rank(products / np.outer(unit, unit), hermitian=True, tol=1e-12) < p:
        raise ValueError(
            "X has columns that depend on each other (with the intercept), so that single coefficients are not"
            " determined: leave out a column, such as one of a set of dummies. Of columns that vary little beside their"
            " mean, subtract it."
        )


def _check_penalty(model: Any, made: Design) -> None:
    alpha = float(getattr(model, "alpha", 0.0))
    if alpha == 0.0 or getattr(model, "penalty", "l1") is None:
        return
    if made.huber:
        curvature = np.linalg.eigvalsh(gram(made.X, made.weight)).min() / float(model.scale_)
        if alpha <= _HARMLESS_RIDGE * curvature:
            return
    raise ValueError(
        f"inference is for fits without a penalty, and this {type(model).__name__} has alpha={alpha:g}: penalised"
        " coefficients are biased towards zero, and intervals around them do not cover. Fit it with alpha=0."
    )


def _check_balance(model: Any, made: Design) -> None:
    """Whether the coefficients are those of these data: the subgradients of the losses can sum to zero."""
    for coef, level in zip(made.coef, [None] if made.huber else made.levels, strict=True):
        residual = made.y - made.X @ coef
        if level is None:
            psi = np.clip(residual / model.scale_, -model.epsilon, model.epsilon)
            free = np.zeros(residual.size, dtype=bool)
        else:
            psi = np.where(residual < 0.0, level - 1.0, level)
            free = np.abs(residual) <= 1e-7 * (np.abs(made.y) + abs(made.X) @ np.abs(coef))
        left = np.abs(made.X[~free].T @ (made.weight * psi)[~free])
        size, room = abs(made.X).T @ (made.weight * np.abs(psi)), abs(made.X[free]).T @ made.weight[free]
        slack = 1e-3 if level is None else _BALANCED_GRADIENT  # Huber's ridge is not zero by default
        if np.any(left > room + slack * size):
            held = getattr(model, "_constrained_by", ())
            if held:
                raise ValueError(f"inference is for fits without constraints, and {held[0]} holds coefficients of it.")
            raise ValueError(
                "The model is not the optimum for these X, y and sample_weight: give inference what it was fitted to."
            )
