"""Estimators whose strength of penalty is chosen by cross-validation."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.linear_model._base import LinearClassifierMixin, LinearModel
from sklearn.metrics import check_scoring, mean_pinball_loss
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import Interval

from varopt.learn._arrays import followers
from varopt.learn._classification import LinearSVC
from varopt.learn._linear import SHARE, ElasticNet, Lasso
from varopt.learn._quantile import QuantileRegressor, QuantileScore
from varopt.learn._selection import Path, PathCV, checked, grid, pulls
from varopt.learn._structured import FusedLasso

__all__ = ["ElasticNetCV", "FusedLassoCV", "LassoCV", "LinearSVCCV", "QuantileRegressorCV"]

Vector = NDArray[np.float64]


class ElasticNetCV(RegressorMixin, PathCV, LinearModel):
    """`ElasticNet` with `alpha` and `l1_ratio` chosen by cross-validation.

    Minimises the objective of `ElasticNet`, for the alpha and the l1_ratio of least mean squared error over the folds.

    Parameters
    ----------
    l1_ratio : float or list of float, default=0.5
        Shares of the L1 penalty to choose from.
    eps : float, default=1e-3
        The length of an automatic grid, ``alpha_min / alpha_max``.
    alphas : int or array-like, default=100
        Strengths to choose from, or the number of them.
    {fit_intercept}
    precompute : "auto", bool or array, default="auto"
        Accepted for compatibility, without effect.
    {max_iter}
    {tol}
    cv : int, splitter or iterable, default=None
        The folds; five by default.
    copy_X : bool, default=True
        Accepted for compatibility: X is never changed.
    {verbose}
    n_jobs : int, default=None
        Folds fitted at the same time.
    positive : bool, default=False
        Whether coefficients must not be negative.
    {random_state}
    selection : {"cyclic", "random"}, default="cyclic"
        Accepted for compatibility, without effect.
    {shared_time_limit}

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        What was chosen.
    alphas_ : ndarray of shape (n_alphas,) or (n_l1_ratio, n_alphas)
        The grid.
    mse_path_ : ndarray of shape (n_alphas, n_folds) or (n_l1_ratio, n_alphas, n_folds)
        Mean squared errors of the test rows.
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from varopt.learn import ElasticNetCV
    >>> X, y = make_regression(n_samples=60, n_features=5, noise=1.0, random_state=0)
    >>> model = ElasticNetCV(l1_ratio=[0.5, 0.9], alphas=5, cv=3).fit(X, y)
    >>> model.l1_ratio_, model.mse_path_.shape
    (0.9, (2, 5, 3))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = PathCV._parameter_constraints | {
        "l1_ratio": [SHARE, "array-like"],
        "eps": [Interval(Real, 0.0, None, closed="neither")],
        "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        **{
            name: ElasticNet._parameter_constraints[name]
            for name in ("precompute", "copy_X", "positive", "random_state", "selection")
        },
    }
    _model: ClassVar[type[Any]] = ElasticNet

    def __init__(
        self, *, l1_ratio: Any = 0.5, eps: float = 1e-3, alphas: Any = 100, fit_intercept: bool = True,
        precompute: Any = "auto", max_iter: int = 1000, tol: float = 1e-9, cv: Any = None, copy_X: bool = True,
        verbose: int = 0, n_jobs: int | None = None, positive: bool = False, random_state: Any = None,
        selection: str = "cyclic", time_limit: float | None = None,
    ) -> None:  # fmt: skip
        self.l1_ratio = l1_ratio
        self.eps = eps
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.copy_X = copy_X
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.time_limit = time_limit

    @property
    def dual_gap_(self) -> Any:
        """The certified gap, by the name that scikit-learn gives to its own."""
        return self.gap_

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
        if not isinstance(self.alphas, Integral):
            return checked(self.alphas, "alphas")
        if l1_ratio == 0.0:
            raise ValueError(
                "Automatic alpha grid generation is not supported for l1_ratio=0. Please supply a grid by providing"
                " your estimator with the appropriate `alphas=` argument."
            )
        pull = pulls(X, y, weight, self.fit_intercept)
        largest = float(np.max(pull if self.positive else np.abs(pull))) / l1_ratio
        return [float(alpha) for alpha in grid(largest, self.eps, int(self.alphas))]

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        alphas = np.array([[settings["alpha"] for settings in path] for path in paths])
        given = not isinstance(self.alphas, Integral) or len(paths) == 1
        arrays = {"mse_path_": np.squeeze(table), "alphas_": alphas[0] if given else alphas}
        for name, value in followers(X, arrays).items():
            setattr(self, name, value)
        self.alpha_ = chosen["alpha"]
        if "l1_ratio" in chosen:
            self.l1_ratio_ = chosen["l1_ratio"]


class LassoCV(ElasticNetCV):
    """`Lasso` with `alpha` chosen by cross-validation.

    Minimises the objective of `Lasso`, for the alpha of least mean squared error over the folds.

    Parameters
    ----------
    eps : float, default=1e-3
        The length of an automatic grid, ``alpha_min / alpha_max``.
    alphas : int or array-like, default=100
        Strengths to choose from, or the number of them.
    {fit_intercept}
    precompute : "auto", bool or array, default="auto"
        Accepted for compatibility, without effect.
    {max_iter}
    {tol}
    copy_X : bool, default=True
        Accepted for compatibility: X is never changed.
    cv : int, splitter or iterable, default=None
        The folds; five by default.
    {verbose}
    n_jobs : int, default=None
        Folds fitted at the same time.
    positive : bool, default=False
        Whether coefficients must not be negative.
    {random_state}
    selection : {"cyclic", "random"}, default="cyclic"
        Accepted for compatibility, without effect.
    {shared_time_limit}

    Attributes
    ----------
    alpha_ : float
        What was chosen.
    alphas_ : ndarray of shape (n_alphas,)
        The grid.
    mse_path_ : ndarray of shape (n_alphas, n_folds)
        Mean squared errors of the test rows.
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from varopt.learn import LassoCV
    >>> X, y = make_regression(n_samples=60, n_features=20, n_informative=3, noise=5.0, random_state=0)
    >>> model = LassoCV(alphas=20, cv=3).fit(X, y)
    >>> bool(model.alphas_[-1] < model.alpha_ < model.alphas_[0])
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: rules for name, rules in ElasticNetCV._parameter_constraints.items() if name != "l1_ratio"
    }
    _model: ClassVar[type[Any]] = Lasso

    def __init__(
        self, *, eps: float = 1e-3, alphas: Any = 100, fit_intercept: bool = True, precompute: Any = "auto",
        max_iter: int = 1000, tol: float = 1e-9, copy_X: bool = True, cv: Any = None, verbose: int = 0,
        n_jobs: int | None = None, positive: bool = False, random_state: Any = None, selection: str = "cyclic",
        time_limit: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            eps=eps, alphas=alphas, fit_intercept=fit_intercept, precompute=precompute, max_iter=max_iter, tol=tol,
            copy_X=copy_X, cv=cv, verbose=verbose, n_jobs=n_jobs, positive=positive, random_state=random_state,
            selection=selection, time_limit=time_limit,
        )  # fmt: skip
        del self.l1_ratio

    def _fixed(self, y: Any, weight: Vector) -> dict[str, Any]:
        return {}

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        return [[{"alpha": alpha} for alpha in self._alphas(X, y, weight, 1.0)]]


class FusedLassoCV(RegressorMixin, PathCV, LinearModel):
    """`FusedLasso` with `alpha` and `fusion` chosen by cross-validation.

    Minimises the objective of `FusedLasso`, for the strengths of least mean squared error over the folds.

    Parameters
    ----------
    alphas, fusions : int or array-like, default=10
        Strengths to choose from, or the number of them.
    eps : float, default=1e-3
        The length of an automatic grid, smallest by largest.
    {fit_intercept}
    {max_iter}
    {tol}
    cv : int, splitter or iterable, default=None
        The folds; five by default.
    {verbose}
    n_jobs : int, default=None
        Folds fitted at the same time.
    {shared_time_limit}

    Attributes
    ----------
    alpha_, fusion_ : float
        What was chosen.
    alphas_, fusions_ : ndarray
        The grids.
    mse_path_ : ndarray of shape (n_fusions, n_alphas, n_folds)
        Mean squared errors of the test rows.
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    {fitted}

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = PathCV._parameter_constraints | {
        name: ElasticNetCV._parameter_constraints[rules]
        for name, rules in {"alphas": "alphas", "fusions": "alphas", "eps": "eps"}.items()
    }
    _model: ClassVar[type[Any]] = FusedLasso

    def __init__(
        self, *, alphas: Any = 10, fusions: Any = 10, eps: float = 1e-3, fit_intercept: bool = True,
        max_iter: int = 1000, tol: float = 1e-9, cv: Any = None, verbose: int = 0, n_jobs: int | None = None,
        time_limit: float | None = None,
    ) -> None:  # fmt: skip
        self.alphas = alphas
        self.fusions = fusions
        self.eps = eps
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.time_limit = time_limit

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        pull = pulls(X, y, weight, self.fit_intercept)
        # Coefficients are all equal once no sum of pulls over the features up to one exceeds the strength.
        alphas = self._values(self.alphas, "alphas", float(np.max(np.abs(pull))))
        fusions = self._values(self.fusions, "fusions", float(np.max(np.abs(np.cumsum(pull - pull.mean())))))
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
        for name, value in followers(X, arrays).items():
            setattr(self, name, value)
        self.alpha_, self.fusion_ = chosen["alpha"], chosen["fusion"]


class QuantileRegressorCV(QuantileScore, RegressorMixin, PathCV, LinearModel):
    """`QuantileRegressor` with `alpha` chosen by cross-validation.

    Minimises the objective of `QuantileRegressor`, for the alpha of least mean pinball loss over the folds.

    Parameters
    ----------
    quantile : float or array-like of float, default=0.5
        The level, in (0, 1), or several, which then share one alpha.
    alphas : int or array-like, default=20
        Strengths to choose from, or the number of them.
    eps : float, default=1e-3
        The length of an automatic grid, ``alpha_min / alpha_max``.
    penalty : {"l1", "l2", "elasticnet"}, default="l1"
        As in `QuantileRegressor`.
    l1_ratio : float, default=0.5
        The share of the L1 penalty in the elastic net.
    {fit_intercept}
    {max_iter}
    {tol}
    cv : int, splitter or iterable, default=None
        The folds; five by default.
    {verbose}
    n_jobs : int, default=None
        Folds fitted at the same time.
    {shared_time_limit}

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = (
        PathCV._parameter_constraints
        | {name: QuantileRegressor._parameter_constraints[name] for name in ("quantile", "penalty", "l1_ratio")}
        | {name: ElasticNetCV._parameter_constraints[name] for name in ("alphas", "eps")}
    )
    _model: ClassVar[type[Any]] = QuantileRegressor

    def __init__(
        self, *, quantile: Any = 0.5, alphas: Any = 20, eps: float = 1e-3, penalty: str = "l1", l1_ratio: float = 0.5,
        fit_intercept: bool = True, max_iter: int = 1000, tol: float = 1e-9, cv: Any = None, verbose: int = 0,
        n_jobs: int | None = None, time_limit: float | None = None,
    ) -> None:  # fmt: skip
        self.quantile = quantile
        self.alphas = alphas
        self.eps = eps
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.time_limit = time_limit

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        if not isinstance(self.alphas, Integral):
            return [[{"alpha": alpha} for alpha in checked(self.alphas, "alphas")]]
        largest = 0.0
        for level in np.ravel(self.quantile):
            slopes = np.where(y > np.quantile(y, level) if self.fit_intercept else y > 0.0, level, level - 1.0)
            largest = max(largest, float(np.max(np.abs(pulls(X, slopes, weight, self.fit_intercept)))))
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
        for name, value in followers(X, arrays).items():
            setattr(self, name, value)
        self.alpha_ = chosen["alpha"]


class LinearSVCCV(LinearClassifierMixin, PathCV):
    """`LinearSVC` with `C` chosen by cross-validation.

    Minimises the objective of `LinearSVC`, for the C of the best mean score over the folds.

    Parameters
    ----------
    Cs : int or array-like, default=10
        Weights of the loss to choose from, or the number of them between 1e-4 and 1e4.
    penalty, loss, l1_ratio, class_weight, intercept_scaling, penalize_intercept
        As in `LinearSVC`.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    scoring : str or callable, default=None
        A scorer of scikit-learn; accuracy by default.
    {max_iter}
    {tol}
    cv : int, splitter or iterable, default=None
        The folds; five by default, each with the shares of the classes.
    {verbose}
    n_jobs : int, default=None
        Folds fitted at the same time.
    {shared_time_limit}

    Attributes
    ----------
    C_ : float
        What was chosen.
    Cs_ : ndarray of shape (n_Cs,)
        The grid.
    scores_ : ndarray of shape (n_Cs, n_folds)
        Scores of the test rows.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,), or 0.0 without an intercept
    classes_ : ndarray of shape (n_classes,)
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from varopt.learn import LinearSVCCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearSVCCV(Cs=[0.01, 1.0, 100.0], cv=3).fit(X, y)
    >>> model.scores_.shape, model.score(X, y) > 0.9
    ((3, 3), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = PathCV._parameter_constraints | {
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "scoring": [str, callable, None],
        **{
            name: LinearSVC._parameter_constraints[name]
            for name in ("penalty", "loss", "l1_ratio", "class_weight", "intercept_scaling", "penalize_intercept")
        },
    }
    _model: ClassVar[type[Any]] = LinearSVC

    def __init__(
        self, *, Cs: Any = 10, penalty: str = "l2", loss: str = "squared_hinge", l1_ratio: float = 0.5,
        class_weight: Any = None, fit_intercept: bool = True, intercept_scaling: float = 1.0,
        penalize_intercept: bool = False, scoring: Any = None, max_iter: int = 1000, tol: float = 1e-9, cv: Any = None,
        verbose: int = 0, n_jobs: int | None = None, time_limit: float | None = None,
    ) -> None:  # fmt: skip
        self.Cs = Cs
        self.penalty = penalty
        self.loss = loss
        self.l1_ratio = l1_ratio
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.penalize_intercept = penalize_intercept
        self.scoring = scoring
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.time_limit = time_limit

    def _read_targets(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Vector]:
        return self._read(X, y, sample_weight)

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
        for name, value in followers(X, arrays).items():
            setattr(self, name, value)
        self.C_ = chosen["C"]
