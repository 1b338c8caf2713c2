"""Quantile and Huber regression with a strength of the penalty chosen by cross-validation."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import mean_pinball_loss

from varopt.learn._base import Lines
from varopt.learn._huber import HuberRegressor
from varopt.learn._least_squares import checked, gradient_at_zero, grid
from varopt.learn._parameters import COUNT, RIDGE_OR_L1, SHARE, Rule, as_in, parameter
from varopt.learn._paths._search import GRID, LENGTH, Path, RegressorCV
from varopt.learn._quantile import LEVELS, QuantileRegressor, QuantileScore

__all__ = ["HuberRegressorCV", "QuantileRegressorCV"]

Vector = NDArray[np.float64]

_RIDGES = Rule(
    "Strengths to choose from, or the number of them between 1e-6 and 10 times the mean sum of squares of a feature.",
    COUNT,
    "array-like",
)
_EPSILONS = Rule(
    "From how many sigma on a residual counts linearly, at least 1; several are chosen from.",
    *as_in(HuberRegressor, "epsilon").accepts,
    "array-like",
    type="float or list of float",
)


class QuantileRegressorCV(QuantileScore, RegressorCV):
    """`QuantileRegressor` with `alpha` chosen by cross-validation.

    Minimises the objective of `QuantileRegressor`, for the alpha of least mean pinball loss over the folds.

    {parameters}

    Attributes
    ----------
    {chosen}
    loss_path_ : ndarray of shape (n_alphas, n_folds)
        Mean pinball losses of the test rows.
    coef_ : ndarray of shape (n_features,) or (n_quantiles, n_features)
    intercept_ : float or ndarray of shape (n_quantiles,)
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from varopt.learn import QuantileRegressorCV
    >>> X, y = make_regression(n_samples=60, n_features=20, n_informative=3, noise=5.0, random_state=0)
    >>> model = QuantileRegressorCV(quantile=0.7, alphas=5, cv=3).fit(X, y)
    >>> model.loss_path_.shape, bool(model.alpha_ < model.alphas_[0])
    ((5, 3), True)
    """

    quantile: Any = parameter(default=0.5, rule=LEVELS)
    alphas: Any = parameter(default=20, rule=GRID)
    eps: float = parameter(default=1e-3, rule=LENGTH)
    penalty: str | None = parameter(default="l1", rule=RIDGE_OR_L1)
    l1_ratio: float = parameter(default=0.5, rule=SHARE)
    _model: ClassVar[type[Any]] = QuantileRegressor
    _measure = "mean pinball loss"

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        if not isinstance(self.alphas, Integral):
            return [[{"alpha": alpha} for alpha in checked(self.alphas, "alphas")]]
        largest = 0.0
        for level in np.ravel(self.quantile):
            dual = np.where(y > np.quantile(y, level) if self.fit_intercept else y > 0.0, level, level - 1.0)
            largest = max(largest, float(np.max(np.abs(gradient_at_zero(X, dual, weight, self.fit_intercept)))))
        return [[{"alpha": float(alpha)} for alpha in grid(largest, self.eps, int(self.alphas))]]

    def _loss(self, model: Any, X: Any, y: Any, weight: Vector) -> float:
        predictions = model.predict(X).reshape(len(y), -1)
        levels = np.ravel(self.quantile)
        return float(
            np.mean([
                mean_pinball_loss(y, predictions[:, k], alpha=float(level), sample_weight=weight)
                for k, level in enumerate(levels)
            ])
        )  # fmt: skip

    def _losses(self, model: Any, lines: Lines, X: Any, y: Any, weight: Vector) -> list[float]:
        errors, level = y[:, None] - (X @ lines[0].T + lines[1]), float(np.ravel(self.quantile)[0])
        losses = np.average(np.maximum(level * errors, (level - 1.0) * errors), weights=weight, axis=0)
        return [float(loss) for loss in losses]

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        arrays = {"loss_path_": table[0], "alphas_": np.array([settings["alpha"] for settings in paths[0]])}
        self._keep(X, arrays)
        self.alpha_ = chosen["alpha"]


class HuberRegressorCV(RegressorCV):
    """`HuberRegressor` with `alpha`, and `epsilon` where several are given, chosen by cross-validation.

    Minimises the objective of `HuberRegressor`, for the settings of least mean absolute error over the folds: a squared
    one would be that of the outliers.

    {parameters}

    Attributes
    ----------
    alpha_, epsilon_ : float
        What was chosen.
    alphas_ : ndarray of shape (n_alphas,)
        The grid.
    loss_path_ : ndarray of shape (n_alphas, n_folds) or (n_epsilons, n_alphas, n_folds)
        Mean absolute errors of the test rows.
    scale_ : float
        sigma, of the last fit.
    outliers_ : ndarray of bool of shape (n_samples,)
        Which residuals exceed ``epsilon_ * scale_``.
    {line}

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from varopt.learn import HuberRegressorCV
    >>> X, y = make_regression(n_samples=60, n_features=5, noise=5.0, random_state=0)
    >>> y[:3] += 1000.0
    >>> model = HuberRegressorCV(alphas=5, cv=3).fit(X, y)
    >>> model.loss_path_.shape, model.outliers_[:3].tolist()
    ((5, 3), [True, True, True])
    """

    epsilon: Any = parameter(default=1.35, rule=_EPSILONS)
    alphas: Any = parameter(default=10, rule=_RIDGES)
    _model: ClassVar[type[Any]] = HuberRegressor
    _kept: ClassVar[tuple[str, ...]] = ("coef_", "scale_", "outliers_")
    _measure = "mean absolute error"

    def _fixed(self, y: Any, weight: Vector) -> dict[str, Any]:
        epsilons = np.ravel(self.epsilon)
        if not epsilons.size or not np.all(epsilons >= 1.0):
            raise ValueError(f"epsilon must be a number of at least 1, or a list of them; got {self.epsilon!r}.")
        return {"epsilon": float(epsilons[0])}

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        if isinstance(self.alphas, Integral):
            squares = X.multiply(X) if hasattr(X, "multiply") else np.square(X, dtype=np.float64)
            typical = float(np.mean(squares.T @ weight)) or 1.0
            alphas = [float(alpha) for alpha in grid(10.0 * typical, 1e-7, int(self.alphas))]
        else:
            alphas = checked(self.alphas, "alphas")
        return [[{"alpha": a, "epsilon": float(e)} for a in alphas] for e in np.ravel(self.epsilon)]

    def _loss(self, model: Any, X: Any, y: Any, weight: Vector) -> float:
        return float(np.average(np.abs(y - model.predict(X)), weights=weight))

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        alphas = np.array([settings["alpha"] for settings in paths[0]])
        self._keep(X, {"loss_path_": table[0] if len(paths) == 1 else table, "alphas_": alphas})
        self.alpha_, self.epsilon_ = chosen["alpha"], chosen["epsilon"]
