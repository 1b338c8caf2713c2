"""Lasso and elastic net with strengths chosen by cross-validation."""

from __future__ import annotations

from dataclasses import field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt.learn._least_squares import Squares, strengths
from varopt.learn._linear import ElasticNet, Lasso, LeastSquaresOptions
from varopt.learn._parameters import BOOLEAN, SHARE, UNUSED, Rule, one_of, parameter
from varopt.learn._paths._search import GRID, LENGTH, Path, RegressorCV

__all__ = ["ElasticNetCV", "LassoCV"]

Vector = NDArray[np.float64]

_SHARES = Rule("Shares of the L1 penalty to choose from.", *SHARE.accepts, "array-like", type="float or list of float")


class ElasticNetCV(LeastSquaresOptions, RegressorCV):
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
    {chosen_by_squares}
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
