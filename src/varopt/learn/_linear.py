"""Linear regression with a certified objective: the base of the regressors, and those that scikit-learn has too."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.linear_model._base import LinearModel
from sklearn.utils._param_validation import Interval, StrOptions

import varopt.model as vo
from varopt.learn._arrays import followers
from varopt.learn._base import Certified, Clock, Fit, Line, Solved
from varopt.learn._problem import (
    LinearProblem,
    epsilon_insensitive,
    penalty,
    squared_epsilon_insensitive,
    squared_error,
)
from varopt.learn._rows import Rows
from varopt.model._maps import Matrix
from varopt.solvers import composite, pivoted_along

__all__ = ["ElasticNet", "LADRegressor", "Lasso", "LinearRegressor", "LinearSVR"]

Vector = NDArray[np.float64]

NON_NEGATIVE = Interval(Real, 0.0, None, closed="left")
POSITIVE = Interval(Real, 0.0, None, closed="neither")
SHARE = Interval(Real, 0.0, 1.0, closed="both")
_OFFSET = 300.0  # standard deviations from zero beyond which the mean of a feature is in the way
_GRAM = 2000  # features up to which fits along a path are made on one Gram matrix


class LinearRegressor(RegressorMixin, LinearModel, Certified):
    """A linear model of one target, or of several, each on its own. Subclasses state the objective."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = Certified._parameter_constraints | {
        "fit_intercept": ["boolean"],
        "warm_start": ["boolean"],
    }
    #: Whether no penalty touches the intercept, so that targets may be shifted to their mean.
    _free_intercept = True
    #: Whether losses are squares.
    _least_squares = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights: zero is an absent row, two is a row given twice.

        Returns
        -------
        self
        """
        self._validate_params()
        several = self.__sklearn_tags__().target_tags.multi_output
        data, targets, weight = self._read(X, y, sample_weight, y_numeric=True, multi_output=several)
        rows = self._rows(data, targets, weight)
        fits = self._fits(rows, self._clock())
        self._publish_linear(fits, len(fits) > 1, X, data, targets)
        return self

    def _fits(self, rows: Rows, clock: Clock) -> list[Fit]:
        columns = rows.y.reshape(rows.y.shape[0], -1).T
        starts = self._starts(len(columns), rows.X.shape[1])
        return [self._fit_target(rows, y, start, clock) for y, start in zip(columns, starts, strict=True)]

    def _fit_target(self, rows: Rows, y: Any, start: tuple[Vector, float] | None, clock: Clock, **options: Any) -> Fit:
        problem, shift = self._problem(rows, y)
        return self._fit_problem(problem, start, clock, shift, **options)

    def _problem(self, rows: Rows, y: Any) -> tuple[LinearProblem, float]:
        """The problem of one target, shifted to its mean where an intercept makes up for it.

        Least squares of features whose means are far larger than what they vary by are centred too: products of such
        features are nearly all the same, and their differences, which are what matters, are lost.
        """
        y = np.asarray(y, dtype=np.float64)
        shift = float(rows.weight @ y / rows.total) if self.fit_intercept and self._free_intercept else 0.0
        problem = LinearProblem(rows.X, y - shift, rows.weight, self.fit_intercept)
        if not self.fit_intercept or not self._least_squares or sp.issparse(rows.X):
            return problem, shift
        features = Matrix(rows.X)
        center = np.asarray(features.transpose_apply(rows.weight) / rows.total, dtype=np.float64)
        squares = features.gram_diagonal(rows.weight) / rows.total
        far = np.flatnonzero(squares - center**2 < (center / _OFFSET) ** 2)
        if not np.any(np.ptp(rows.X[:, far], axis=0) > 0.0):  # constant ones do no harm
            return problem, shift
        return replace(problem, X=rows.X - center, center=center), shift

    def _publish_linear(self, fits: list[Fit], many: bool, X: Any, data: Any, targets: Any) -> None:
        coef = np.array([fit.coef for fit in fits], dtype=data.dtype)
        intercept = np.array([fit.intercept for fit in fits], dtype=data.dtype)
        several = many or targets.ndim > 1  # scikit-learn gives one column of targets a vector of one intercept
        self._publish(
            [fit.solved for fit in fits], many, X, coef_=coef if many else coef[0],
            intercept_=0.0 if not self.fit_intercept else intercept if several else float(intercept[0]),
        )  # fmt: skip


class ElasticNet(MultiOutputMixin, LinearRegressor):
    """Least squares with L1 and squared L2 penalties, and a certified gap.

    Minimises::

        1 / (2 * n_samples) * ||y - Xw||^2_2
        + alpha * l1_ratio * ||w||_1 + 0.5 * alpha * (1 - l1_ratio) * ||w||^2_2

    as `sklearn.linear_model.ElasticNet` does, with weights for `n_samples` where there are some.

    Parameters
    ----------
    {alpha}
    l1_ratio : float, default=0.5
        The share of the L1 penalty, between 0 and 1.
    {fit_intercept}
    precompute : bool or array, default=False
        Accepted for compatibility, without effect.
    {max_iter}
    copy_X : bool, default=True
        Accepted for compatibility: X is never changed.
    {tol}
    {warm_start}
    positive : bool, default=False
        Whether coefficients must not be negative.
    {random_state}
    selection : {"cyclic", "random"}, default="cyclic"
        Accepted for compatibility, without effect.
    {time_limit}
    {verbose}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
    intercept_ : float or ndarray of shape (n_targets,)
    dual_gap_ : float
        Another name of `gap_`, scikit-learn's.
    {fitted}

    Examples
    --------
    >>> from varopt.learn import ElasticNet
    >>> model = ElasticNet(alpha=0.5, l1_ratio=0.3).fit([[-1.0], [0.0], [1.0]], [-1.0, 0.0, 1.0])
    >>> model.coef_.round(5), bool(model.gap_ <= 1e-9 * model.objective_)
    (array([0.5082]), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearRegressor._parameter_constraints | {
        "alpha": [NON_NEGATIVE],
        "l1_ratio": [SHARE],
        "precompute": ["boolean", "array-like", StrOptions({"auto"})],
        "copy_X": ["boolean"],
        "positive": ["boolean"],
        "random_state": ["random_state"],
        "selection": [StrOptions({"cyclic", "random"})],
    }
    _stalled = "Objective did not converge. You might want to increase the number of iterations. "
    _least_squares = True

    def __init__(
        self, alpha: float = 1.0, *, l1_ratio: float = 0.5, fit_intercept: bool = True, precompute: Any = False,
        max_iter: int = 1000, copy_X: bool = True, tol: float = 1e-9, warm_start: bool = False, positive: bool = False,
        random_state: Any = None, selection: str = "cyclic", time_limit: float | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.copy_X = copy_X
        self.tol = tol
        self.warm_start = warm_start
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.time_limit = time_limit
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights: zero is an absent row, two is a row given twice.
        check_input : bool, default=True
            Accepted for compatibility: the data are always checked.

        Returns
        -------
        self
        """
        if self.alpha == 0:
            warnings.warn(
                "With alpha=0, this algorithm does not converge well. You are advised to use the LinearRegression"
                " estimator",
                stacklevel=2,
            )
        return super().fit(X, y, sample_weight)

    @property
    def dual_gap_(self) -> Any:
        """The certified gap, by the name that scikit-learn gives to its own."""
        return self.gap_

    @property
    def sparse_coef_(self) -> Any:
        """The coefficients as a sparse matrix."""
        return sp.csr_matrix(np.atleast_2d(self.coef_))

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = problem.mean(squared_error(problem.residual))
        if not self.positive:
            return loss + penalty("elasticnet", problem.w, self.alpha, self.l1_ratio)
        # max(-w, 0) with a slope that no gradient of the loss reaches: the optimum is that with w >= 0.
        pieces = [[0.0, -_steepest(problem)], [0.0, self.alpha * self.l1_ratio]]
        ridge = penalty("l2", problem.w, self.alpha * (1.0 - self.l1_ratio))
        return loss + vo.sum(vo.piecewise(problem.w, knots=[0.0], pieces=pieces)) + ridge

    def _along(self, path: Sequence[Mapping[str, float]], X: Any, y: Any, weight: Vector) -> Iterator[Line | None]:
        yield None  # the first checks the data
        rows = self._rows(*self._read(X, y, weight))
        plain = not sp.issparse(rows.X) and not self.positive and self.alpha > 0.0
        if not plain or not rows.X.shape[1] <= min(_GRAM, rows.X.shape[0]):
            yield from [None] * (len(path) - 1)
            return
        problem, shift = self._problem(rows, rows.y)
        loss = problem.mean(squared_error(problem.residual))
        place = {variable: loss.slices[variable] for variable in loss.variables}
        start, free = np.zeros(loss.size), np.ones(loss.size, dtype=bool)
        start[place[problem.w]], free[place[problem.w]] = self.coef_, False
        strengths = [
            (settings["alpha"] * ratio, settings["alpha"] * (1.0 - ratio))
            for settings in path[1:]
            for ratio in [settings.get("l1_ratio", self.l1_ratio)]
        ]
        for x, (l1, l2) in zip(pivoted_along(composite(loss), free, strengths, start), strengths, strict=True):
            if x is None or l1 + l2 == 0.0:
                yield None
                continue
            coef = x[place[problem.w]]
            intercept = 0.0 if problem.b is None else shift + float(x[place[problem.b]][0]) - problem.moved(coef)
            yield coef.astype(rows.X.dtype), intercept

    def _fit(self, problem: LinearProblem, solved: Solved, shift: float) -> Fit:
        fit = super()._fit(problem, solved, shift)
        return replace(fit, coef=np.maximum(fit.coef, 0.0)) if self.positive else fit


def _steepest(problem: LinearProblem) -> float:
    """Twice what the gradient of the mean squared error can be where it is no larger than without coefficients."""
    total = float(problem.weight.sum())
    squares = problem.X.multiply(problem.X) if sp.issparse(problem.X) else np.square(problem.X)
    columns = np.sqrt(np.max(squares.T @ problem.weight, initial=0.0) / total)
    return 2.0 * float(columns * np.sqrt(problem.weight @ problem.y**2 / total)) + 1.0


class Lasso(ElasticNet):
    """Least squares with an L1 penalty, and a certified gap.

    Minimises ``1 / (2 * n_samples) * ||y - Xw||^2_2 + alpha * ||w||_1`` as `sklearn.linear_model.Lasso` does, with
    weights for `n_samples` where there are some.

    Parameters
    ----------
    {alpha}
    {fit_intercept}
    precompute : bool or array, default=False
        Accepted for compatibility, without effect.
    copy_X : bool, default=True
        Accepted for compatibility: X is never changed.
    {max_iter}
    {tol}
    {warm_start}
    positive : bool, default=False
        Whether coefficients must not be negative.
    {random_state}
    selection : {"cyclic", "random"}, default="cyclic"
        Accepted for compatibility, without effect.
    {time_limit}
    {verbose}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
    intercept_ : float or ndarray of shape (n_targets,)
    dual_gap_ : float
        Another name of `gap_`, scikit-learn's.
    {fitted}

    Examples
    --------
    >>> from varopt.learn import Lasso
    >>> model = Lasso(alpha=0.1).fit([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], [0.0, 1.0, 2.0])
    >>> model.predict([[1.0, 1.0]]).round(6), bool(model.lower_bound_ <= model.objective_)
    (array([1.]), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: rules for name, rules in ElasticNet._parameter_constraints.items() if name != "l1_ratio"
    }
    l1_ratio = 1.0

    def __init__(
        self, alpha: float = 1.0, *, fit_intercept: bool = True, precompute: Any = False, copy_X: bool = True,
        max_iter: int = 1000, tol: float = 1e-9, warm_start: bool = False, positive: bool = False,
        random_state: Any = None, selection: str = "cyclic", time_limit: float | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            alpha=alpha, fit_intercept=fit_intercept, precompute=precompute, max_iter=max_iter, copy_X=copy_X, tol=tol,
            warm_start=warm_start, positive=positive, random_state=random_state, selection=selection,
            time_limit=time_limit, verbose=verbose, l1_ratio=1.0,
        )  # fmt: skip


class LADRegressor(LinearRegressor):
    """Least absolute deviations with a penalty, and a certified gap.

    Minimises ``1 / n_samples * ||y - Xw||_1 + alpha * R(w)``.

    Parameters
    ----------
    alpha : float, default=0.0
        Strength of the penalty.
    penalty : {"l1", "l2", "elasticnet"} or None, default="l1"
        R: ``||w||_1``, ``0.5 ||w||^2_2``, or ``l1_ratio ||w||_1 + 0.5 (1 - l1_ratio) ||w||^2_2``.
    l1_ratio : float, default=0.5
        The share of the L1 penalty in the elastic net.
    {fit_intercept}
    {tol}
    {max_iter}
    {time_limit}
    {warm_start}
    {verbose}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    {fitted}

    Examples
    --------
    An outlier does not move the line:

    >>> from varopt.learn import LADRegressor
    >>> model = LADRegressor().fit([[0.0], [1.0], [2.0], [3.0], [4.0]], [1.0, 3.0, 5.0, 7.0, 900.0])
    >>> model.coef_.round(6), round(model.intercept_, 6)
    (array([2.]), 1.0)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearRegressor._parameter_constraints | {
        "alpha": [NON_NEGATIVE],
        "penalty": [StrOptions({"l1", "l2", "elasticnet"}), None],
        "l1_ratio": [SHARE],
    }

    def __init__(
        self, alpha: float = 0.0, *, penalty: str | None = "l1", l1_ratio: float = 0.5, fit_intercept: bool = True,
        tol: float = 1e-9, max_iter: int = 1000, time_limit: float | None = None, warm_start: bool = False,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        self.alpha = alpha
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        return problem.mean(vo.abs(problem.residual)) + penalty(self.penalty, problem.w, self.alpha, self.l1_ratio)


class LinearSVR(LinearRegressor):
    """Linear support vector regression with a certified gap.

    Minimises ``0.5 * ||w||^2_2 + C * sum_i loss(y_i - w'x_i - b)`` as `sklearn.svm.LinearSVR` does, except that the
    intercept is not penalised; `penalize_intercept` restores scikit-learn's objective.

    Parameters
    ----------
    epsilon : float, default=0.0
        Residuals up to this size cost nothing.
    {tol}
    C : float, default=1.0
        Weight of the loss, positive.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, default="epsilon_insensitive"
        ``max(|z| - epsilon, 0)``, or its square.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    intercept_scaling : float, default=1.0
        With `penalize_intercept`, the value of the constant feature whose coefficient is penalised.
    dual : "auto" or bool, default="auto"
        Accepted for compatibility, without effect.
    {verbose}
    {random_state}
    {max_iter}
    penalize_intercept : bool, default=False
        Whether to add ``0.5 * (b / intercept_scaling)^2``, as LIBLINEAR does.
    {time_limit}
    {warm_start}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : ndarray of shape (1,), or 0.0 without an intercept
    {fitted}

    Examples
    --------
    >>> from varopt.learn import LinearSVR
    >>> model = LinearSVR(C=10.0).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])
    >>> model.coef_.round(6), model.intercept_.round(6)
    (array([1.]), array([1.]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearRegressor._parameter_constraints | {
        "epsilon": [NON_NEGATIVE],
        "C": [POSITIVE],
        "loss": [StrOptions({"epsilon_insensitive", "squared_epsilon_insensitive"})],
        "intercept_scaling": [POSITIVE],
        "dual": ["boolean", StrOptions({"auto"})],
        "random_state": ["random_state"],
        "penalize_intercept": ["boolean"],
    }
    _stalled = "Liblinear failed to converge, increase the number of iterations. "

    def __init__(
        self, *, epsilon: float = 0.0, tol: float = 1e-9, C: float = 1.0, loss: str = "epsilon_insensitive",
        fit_intercept: bool = True, intercept_scaling: float = 1.0, dual: Any = "auto", verbose: int = 0,
        random_state: Any = None, max_iter: int = 1000, penalize_intercept: bool = False,
        time_limit: float | None = None, warm_start: bool = False,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.tol = tol
        self.C = C
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.dual = dual
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.penalize_intercept = penalize_intercept
        self.time_limit = time_limit
        self.warm_start = warm_start

    @property
    def _free_intercept(self) -> bool:  # type: ignore[override]
        return not self.penalize_intercept

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = epsilon_insensitive if self.loss == "epsilon_insensitive" else squared_epsilon_insensitive
        ridge = penalty("l2", problem.w, 1.0)
        if problem.b is not None and self.penalize_intercept:
            ridge = ridge + penalty("l2", problem.b, self.intercept_scaling**-2.0)
        return ridge + self.C * problem.total(loss(problem.residual, self.epsilon))

    def _publish_linear(self, fits: list[Fit], many: bool, X: Any, data: Any, targets: Any) -> None:
        super()._publish_linear(fits, many, X, data, targets)
        if self.fit_intercept:
            intercept = np.array([fits[0].intercept], dtype=data.dtype)
            self.intercept_ = followers(X, {"intercept_": intercept})["intercept_"]
