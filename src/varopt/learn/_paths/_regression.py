"""Estimators whose strength of penalty is chosen by cross-validation."""

from __future__ import annotations

from dataclasses import field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import check_scoring, mean_pinball_loss

from varopt.learn._classification import LinearSVC
from varopt.learn._compat import LinearClassifierMixin, LinearModel, compute_class_weight
from varopt.learn._least_squares import Squares, checked, gradient_at_zero, grid, strengths
from varopt.learn._linear import ElasticNet, Lasso, LeastSquaresOptions
from varopt.learn._parameters import (
    BOOLEAN,
    CLASS_WEIGHT,
    COUNT,
    RIDGE_OR_L1,
    SHARE,
    UNUSED,
    Rule,
    as_in,
    one_of,
    parameter,
)
from varopt.learn._paths._search import GRID, LENGTH, Path, PathCV
from varopt.learn._quantile import LEVELS, QuantileRegressor, QuantileScore
from varopt.learn._structured import FusedLasso

__all__ = ["ElasticNetCV", "FusedLassoCV", "LassoCV", "LinearSVCCV", "QuantileRegressorCV"]

Vector = NDArray[np.float64]

_SHARES = Rule("Shares of the L1 penalty to choose from.", *SHARE.accepts, "array-like", type="float or list of float")
_WEIGHTS = Rule("Weights of the loss to choose from, or the number of them between 1e-4 and 1e4.", COUNT, "array-like")
_SCORING = Rule("A scorer of scikit-learn; accuracy by default.", str, callable, None)


class _RegressorCV(RegressorMixin, PathCV, LinearModel):
    """A linear regressor chosen along paths."""


class ElasticNetCV(LeastSquaresOptions, _RegressorCV):
    """`ElasticNet` with `alpha` and `l1_ratio` chosen by cross-validation.

    Minimises the objective of `ElasticNet`, for the alpha and the l1_ratio of least mean squared error over the folds.

    {parameters}

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        What was chosen.
    alphas_ : ndarray of shape (n_alphas,) or (n_l1_ratio, n_alphas)
        The grid.
    mse_path_ : ndarray of shape (n_alphas, n_folds) or (n_l1_ratio, n_alphas, n_folds)
        Mean squared errors of the test rows.
    {line}

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from varopt.learn import ElasticNetCV
    >>> X, y = make_regression(n_samples=60, n_features=5, noise=1.0, random_state=0)
    >>> model = ElasticNetCV(l1_ratio=[0.5, 0.9], alphas=5, cv=3).fit(X, y)
    >>> model.l1_ratio_, model.mse_path_.shape
    (0.9, (2, 5, 3))
    """

    l1_ratio: Any = parameter(default=0.5, rule=_SHARES)
    eps: float = parameter(default=1e-3, rule=LENGTH)
    alphas: Any = parameter(default=100, rule=GRID)
    precompute: Any = parameter(default="auto", rule=Rule(UNUSED, BOOLEAN, "array-like", one_of("auto")))
    _model: ClassVar[type[Any]] = ElasticNet

    def _fixed(self, y: Any, weight: Vector) -> dict[str, Any]:
        if not np.size(self.l1_ratio):
            raise ValueError(f"l1_ratio must be a number or a list with at least one; got {self.l1_ratio!r}.")
        return {"l1_ratio": float(np.ravel(self.l1_ratio)[0])}

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        return [
            [{"alpha": alpha, "l1_ratio": ratio} for alpha in self._alphas(X, y, weight, ratio)]
            for ratio in map(float, np.ravel(self.l1_ratio))
        ]

    def _alphas(self, X: Any, y: Vector, weight: Vector, l1_ratio: float) -> list[float]:
        squares = Squares(X, y, weight, self.fit_intercept)
        return [float(alpha) for alpha in strengths(squares, l1_ratio, self.alphas, self.eps, self.positive)]

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        alphas = np.array([[settings["alpha"] for settings in path] for path in paths])
        given = not isinstance(self.alphas, Integral) or len(paths) == 1
        arrays = {"mse_path_": np.squeeze(table), "alphas_": alphas[0] if given else alphas}
        self._keep(X, arrays)
        self.alpha_ = chosen["alpha"]
        if "l1_ratio" in chosen:
            self.l1_ratio_ = chosen["l1_ratio"]


class LassoCV(ElasticNetCV):
    """`Lasso` with `alpha` chosen by cross-validation.

    Minimises the objective of `Lasso`, for the alpha of least mean squared error over the folds.

    {parameters}

    Attributes
    ----------
    alpha_ : float
        What was chosen.
    alphas_ : ndarray of shape (n_alphas,)
        The grid.
    mse_path_ : ndarray of shape (n_alphas, n_folds)
        Mean squared errors of the test rows.
    {line}

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from varopt.learn import LassoCV
    >>> X, y = make_regression(n_samples=60, n_features=20, n_informative=3, noise=5.0, random_state=0)
    >>> model = LassoCV(alphas=20, cv=3).fit(X, y)
    >>> bool(model.alphas_[-1] < model.alpha_ < model.alphas_[0])
    True
    """

    l1_ratio: Any = field(default=1.0, init=False)
    _model: ClassVar[type[Any]] = Lasso

    def _fixed(self, y: Any, weight: Vector) -> dict[str, Any]:
        return {}

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        return [[{"alpha": alpha} for alpha in self._alphas(X, y, weight, 1.0)]]


class FusedLassoCV(_RegressorCV):
    """`FusedLasso` with `alpha` and `fusion` chosen by cross-validation.

    Minimises the objective of `FusedLasso`, for the strengths of least mean squared error over the folds.

    {parameters}

    Attributes
    ----------
    alpha_, fusion_ : float
        What was chosen.
    alphas_, fusions_ : ndarray
        The grids.
    mse_path_ : ndarray of shape (n_fusions, n_alphas, n_folds)
        Mean squared errors of the test rows.
    {line}

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import FusedLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 12))
    >>> y = X @ np.repeat([0.0, 2.0, 0.0], 4) + rng.standard_normal(40)
    >>> model = FusedLassoCV(alphas=[0.0, 0.1], fusions=[0.01, 0.3], cv=3).fit(X, y)
    >>> model.fusion_, model.mse_path_.shape
    (0.3, (2, 2, 3))
    """

    alphas: Any = parameter(default=10, rule=GRID)
    fusions: Any = parameter(default=10, rule=GRID)
    eps: float = parameter(default=1e-3, rule=LENGTH)
    _model: ClassVar[type[Any]] = FusedLasso

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        gradient = gradient_at_zero(X, y, weight, self.fit_intercept)
        # Coefficients are all equal once no sum of gradients over the features up to one exceeds the strength.
        alphas = self._values(self.alphas, "alphas", float(np.max(np.abs(gradient))))
        fusions = self._values(self.fusions, "fusions", float(np.max(np.abs(np.cumsum(gradient - gradient.mean())))))
        return [[{"alpha": alpha, "fusion": fusion} for alpha in alphas] for fusion in fusions]

    def _values(self, given: Any, name: str, largest: float) -> list[float]:
        if isinstance(given, Integral):
            return [float(value) for value in grid(largest, self.eps, int(given))]
        return checked(given, name)

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        arrays = {
            "mse_path_": table,
            "alphas_": np.array([settings["alpha"] for settings in paths[0]]),
            "fusions_": np.array([path[0]["fusion"] for path in paths]),
        }
        self._keep(X, arrays)
        self.alpha_, self.fusion_ = chosen["alpha"], chosen["fusion"]


class QuantileRegressorCV(QuantileScore, _RegressorCV):
    """`QuantileRegressor` with `alpha` chosen by cross-validation.

    Minimises the objective of `QuantileRegressor`, for the alpha of least mean pinball loss over the folds.

    {parameters}

    Attributes
    ----------
    alpha_ : float
        What was chosen.
    alphas_ : ndarray of shape (n_alphas,)
        The grid.
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

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        arrays = {"loss_path_": table[0], "alphas_": np.array([settings["alpha"] for settings in paths[0]])}
        self._keep(X, arrays)
        self.alpha_ = chosen["alpha"]


class LinearSVCCV(LinearClassifierMixin, PathCV):
    """`LinearSVC` with `C` chosen by cross-validation.

    Minimises the objective of `LinearSVC`, for the C of the best mean score over the folds.

    {parameters}

    Attributes
    ----------
    C_ : float
        What was chosen.
    Cs_ : ndarray of shape (n_Cs,)
        The grid.
    scores_ : ndarray of shape (n_Cs, n_folds)
        Scores of the test rows.
    {lines}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from varopt.learn import LinearSVCCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearSVCCV(Cs=[0.01, 1.0, 100.0], cv=3).fit(X, y)
    >>> model.scores_.shape, model.score(X, y) > 0.9
    ((3, 3), True)
    """

    Cs: Any = parameter(default=10, rule=_WEIGHTS)
    penalty: str = parameter(default="l2", rule=as_in(LinearSVC, "penalty"))
    loss: str = parameter(default="squared_hinge", rule=as_in(LinearSVC, "loss"))
    l1_ratio: float = parameter(default=0.5, rule=SHARE)
    class_weight: Any = parameter(default=None, rule=CLASS_WEIGHT)
    intercept_scaling: float = parameter(default=1.0, rule=as_in(LinearSVC, "intercept_scaling"))
    penalize_intercept: bool = parameter(default=False, rule=as_in(LinearSVC, "penalize_intercept"))
    scoring: Any = parameter(default=None, rule=_SCORING)
    _model: ClassVar[type[Any]] = LinearSVC

    def _read_targets(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Vector]:
        return self._check(X, y, sample_weight)

    def _fixed(self, y: Any, weight: Vector) -> dict[str, Any]:
        # Classes are balanced over all rows, once, and not anew in every fold.
        classes = np.unique(y[weight > 0.0])
        balance = compute_class_weight(
            self.class_weight, classes=classes, y=y[weight > 0.0], sample_weight=weight[weight > 0.0]
        )
        return {"class_weight": dict(zip(classes.tolist(), balance.tolist(), strict=True))}

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        values: Any = (
            np.geomspace(1e-4, 1e4, int(self.Cs)) if isinstance(self.Cs, Integral) else sorted(checked(self.Cs, "Cs"))
        )
        return [[{"C": float(C)} for C in values]]

    def _loss(self, model: Any, X: Any, y: Any, weight: Vector) -> float:
        weights = {} if np.all(weight == 1.0) else {"sample_weight": weight}  # not every scorer takes them
        return -float(check_scoring(model, self.scoring)(model, X, y, **weights))

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        arrays = {"scores_": -table[0], "Cs_": np.array([settings["C"] for settings in paths[0]])}
        self._keep(X, arrays)
        self.C_ = chosen["C"]
