"""Linear regression with a certified objective: the base of the regressors, and those that scikit-learn has too."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin

import varopt.model as vo
from varopt.certificates import DualGap
from varopt.learn._base import CertifiedLinear, Clock, Fit, Lines, Solved, frames_of_ours
from varopt.learn._compat import LinearModel, followers
from varopt.learn._data import DataMemory, StoredRows, WeightedRows
from varopt.learn._least_squares import Squares, fit_one, ordinary, strengths, task_path
from varopt.learn._parameters import (
    BOOLEAN,
    NON_NEGATIVE,
    POSITIVE,
    RANDOM_STATE,
    RIDGE_OR_L1,
    SHARE,
    STRENGTH,
    UNUSED,
    Declared,
    Rule,
    one_of,
    parameter,
)
from varopt.learn._problem import (
    LinearProblem,
    epsilon_insensitive,
    in_unit,
    near_zero,
    penalty,
    squared_epsilon_insensitive,
    squared_error,
)

__all__ = ["ElasticNet", "LADRegressor", "Lasso", "LeastSquaresOptions", "Liblinear", "LinearRegressor", "LinearSVR"]

Vector = NDArray[np.float64]

_GRAM = 2000  # features up to which fits along a path are made on one Gram matrix
_INSENSITIVE = Rule(
    "``max(|z| - epsilon, 0)``, or its square.", one_of("epsilon_insensitive", "squared_epsilon_insensitive")
)
_SCALING = Rule(
    "With `penalize_intercept`, the value of the constant feature whose coefficient is penalised.", POSITIVE
)
_PENALIZED = Rule(
    "Whether the intercept b is penalised like the coefficient of a constant feature, as LIBLINEAR does: a ridge adds"
    " ``0.5 * (b / intercept_scaling)^2``.",
    BOOLEAN,
)


class LinearRegressor(MultiOutputMixin, RegressorMixin, CertifiedLinear, LinearModel):
    """A linear model of one target, or of several, each on its own. Subclasses state the objective."""

    def _fit_data(self, X: Any, y: Any, sample_weight: Any, clock: Clock, memory: DataMemory) -> Any:
        data, targets, weight = self._read(X, y, sample_weight, memory, y_numeric=True, multi_output=True)
        rows = memory.rows(data, targets, weight)
        fits = self._fits(rows, clock)
        self._publish_linear(fits, len(fits) > 1, X, data, targets)
        return self

    def _fit_stored(self, data: StoredRows, clock: Clock) -> Any:
        fits = self._fits_stored(data, [data.y], clock)
        self._publish_linear(fits, len(fits) > 1, data.home, data, data)
        return self

    def _fits(self, rows: WeightedRows, clock: Clock) -> list[Fit]:
        columns = rows.y.reshape(rows.y.shape[0], -1).T
        starts = self._starts(len(columns), rows.X.shape[1])
        return [self._fit_target(rows, y, start, clock) for y, start in zip(columns, starts, strict=True)]

    def _fit_target(
        self, rows: WeightedRows, y: Any, start: tuple[Vector, float] | None, clock: Clock, **options: Any
    ) -> Fit:
        problem, shift = self._problem(rows, y)
        return self._fit_problem(problem, start, clock, shift, **options)

    def _problem(self, rows: WeightedRows, y: Any) -> tuple[LinearProblem, float]:
        """The problem of one target, shifted to its mean, and of features near zero, where an intercept allows it."""
        y = np.asarray(y, dtype=np.float64)
        if not (self.fit_intercept and self._free_intercept):
            return in_unit(LinearProblem(rows.X, y, rows.weight, self.fit_intercept)), 0.0
        shift = float(rows.weight @ y / rows.total)
        return near_zero(in_unit(LinearProblem(rows.X, y - shift, rows.weight, True), free=True)), shift

    def _publish_linear(self, fits: list[Fit], many: bool, X: Any, data: Any, targets: Any) -> None:
        coef = np.array([fit.coef for fit in fits], dtype=data.dtype)
        intercept = np.array([fit.intercept for fit in fits], dtype=data.dtype)
        several = many or targets.ndim > 1  # scikit-learn gives one column of targets a vector of one intercept
        self._publish(
            [fit.solved for fit in fits], many, X, coef_=coef if many else coef[0],
            intercept_=0.0 if not self.fit_intercept else intercept if several else float(intercept[0]),
        )  # fmt: skip


class LeastSquaresOptions(Declared):
    """What scikit-learn's elastic nets take beyond the strengths of their penalties."""

    precompute: Any = parameter(default=False, rule=Rule(UNUSED, BOOLEAN, "array-like", one_of("auto")))
    copy_X: bool = parameter(default=True, rule=Rule("Accepted for compatibility: X is never changed.", BOOLEAN))
    random_state: Any = parameter(default=None, rule=RANDOM_STATE)
    selection: str = parameter(default="cyclic", rule=Rule(UNUSED, one_of("cyclic", "random")))

    @property
    def dual_gap_(self) -> Any:
        """The certified gap, by the name that scikit-learn gives to its own."""
        return self.gap_  # type: ignore[attr-defined]


class ElasticNet(LeastSquaresOptions, LinearRegressor):
    """Least squares with L1 and squared L2 penalties, and a certified gap.

    Minimises::

        1 / (2 * n_samples) * ||y - Xw||^2_2
        + alpha * l1_ratio * ||w||_1 + 0.5 * alpha * (1 - l1_ratio) * ||w||^2_2

    as `sklearn.linear_model.ElasticNet` does, with weights for `n_samples` where there are some.

    {parameters}

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

    alpha: float = parameter(default=1.0, rule=STRENGTH, kw_only=False)
    l1_ratio: float = parameter(default=0.5, rule=SHARE)
    _stalled = "Objective did not converge. You might want to increase the number of iterations. "

    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:
        """Fit the model, as `LinearRegressor.fit` does; the data are checked whatever `check_input` says."""
        return super().fit(X, y, sample_weight)

    def _fit_data(self, X: Any, y: Any, sample_weight: Any, clock: Clock, memory: DataMemory) -> Any:
        if self.alpha == 0:
            warnings.warn(
                "With alpha=0, this algorithm does not converge well. You are advised to use the LinearRegression"
                " estimator",
                stacklevel=frames_of_ours() + 1,
            )
        return super()._fit_data(X, y, sample_weight, clock, memory)

    @property
    def sparse_coef_(self) -> Any:
        """The coefficients as a sparse matrix."""
        return sp.csr_matrix(np.atleast_2d(self.coef_))

    @staticmethod
    def path(
        X: Any, y: Any, *, l1_ratio: float = 0.5, eps: float = 1e-3, n_alphas: Any = None, alphas: Any = 100,
        precompute: Any = "auto", Xy: Any = None, copy_X: bool = True, coef_init: Any = None, verbose: Any = False,
        return_n_iter: bool = False, positive: bool = False, check_input: bool = True, **params: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The coefficients for many strengths of the penalty, without an intercept, each with a certified gap.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets. Coefficients of several vanish together, as in `MultiTaskElasticNet`.
        l1_ratio : float, default=0.5
            The share of the L1 penalty; 1 for the lasso, for `Lasso.path` too, as in scikit-learn.
        eps : float, default=1e-3
            The length of an automatic grid, its smallest strength by its largest.
        alphas : int or array-like, default=100
            Strengths, or the number of them; `n_alphas` is an older name of that.
        return_n_iter : bool, default=False
            Whether to return the numbers of steps.
        positive : bool, default=False
            Whether coefficients must not be negative.
        n_alphas, precompute, Xy, copy_X, coef_init, verbose, check_input
            Accepted for compatibility: the path starts where all coefficients vanish, and data are checked.
        **params
            `tol`, the relative gap, by default 1e-9; `sample_weight`; `max_iter`, `random_state` and `selection` are
            accepted for compatibility.

        Returns
        -------
        alphas : ndarray of shape (n_alphas,)
            Falling.
        coefs : ndarray of shape (n_features, n_alphas) or (n_targets, n_features, n_alphas)
        dual_gaps : ndarray of shape (n_alphas,)
            How far each objective is above its optimum at most, rounding included.
        n_iters : list of int
            Only with `return_n_iter`.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from varopt.learn import Lasso
        >>> alphas, coefs, gaps = Lasso.path(*load_diabetes(return_X_y=True), l1_ratio=1.0, alphas=20)
        >>> coefs.shape, (coefs != 0).sum(axis=0).tolist()[::5], bool(gaps.max() < 1e-6)
        ((10, 20), [0, 4, 7, 10], True)
        """
        tol, weight = params.pop("tol", 1e-9), params.pop("sample_weight", None)
        unknown = sorted(set(params) - {"max_iter", "random_state", "selection", "do_screening"})
        if unknown:
            raise ValueError(f"path takes tol, sample_weight and max_iter beside its own parameters; got {unknown}.")
        model = ElasticNet(
            l1_ratio=l1_ratio, positive=positive, fit_intercept=False, tol=tol, max_iter=params.get("max_iter", 1000),
            warm_start=True,
        )  # fmt: skip
        path = _path(model, X, y, weight, n_alphas if isinstance(n_alphas, Integral) else alphas, eps)
        return path if return_n_iter else path[:3]

    def _fit_target(
        self, rows: WeightedRows, y: Any, start: tuple[Vector, float] | None, clock: Clock, **options: Any
    ) -> Fit:
        return self._straight(rows, y, start, clock) or super()._fit_target(rows, y, start, clock, **options)

    def _straight(self, rows: WeightedRows, y: Any, start: tuple[Vector, float] | None, clock: Clock) -> Fit | None:
        """The fit by pivoting or coordinate descent, where its bracket is narrow enough; else None."""
        if self.verbose or set(self._constrained_by) - {"positive=True"} or not ordinary(rows.X, y):
            return None
        squares, l1 = Squares(rows.X, y, rows.weight, self.fit_intercept), self.alpha * self.l1_ratio
        try:
            found = fit_one(
                squares, l1, self.alpha - l1, self.positive, None if start is None else start[0],
                lambda value: float(self._allowed(value, squares.null)), lambda: clock.is_up,
            )  # fmt: skip
        except KeyboardInterrupt:  # the engine has a point at once, with its bracket
            clock.stop()
            return None
        if found is None:
            return None
        solved = Solved(found.value, DualGap(found.value - found.gap, found.value), found.rounds, np.zeros(0), {})
        return Fit(found.coef, float(squares.levels(found.coef[None])[0]), solved)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = problem.mean(squared_error(problem.residual))
        return loss + penalty("elasticnet", problem.w, self.alpha, self.l1_ratio)

    def _along(
        self, path: Sequence[Mapping[str, float]], data: tuple[Any, Any, Vector], memory: DataMemory, clock: Clock
    ) -> Lines | None:
        if set(self._constrained_by) - {"positive=True"}:
            return None
        rows = memory.rows(*data)
        squares = Squares(rows.X, rows.y, rows.weight, self.fit_intercept)
        alphas = np.array([settings["alpha"] for settings in path])
        ratio = np.array([settings.get("l1_ratio", self.l1_ratio) for settings in path])
        coefs, _ = self._certified(squares, alphas * ratio, alphas * (1.0 - ratio), clock)
        return coefs, squares.levels(coefs)

    def _certified(self, squares: Squares, l1: Vector, l2: Vector, clock: Clock) -> tuple[Vector, Vector]:
        """Coefficients for each pair of strengths and their gaps; NaN where a gap is above the tolerance."""
        if squares.X.shape[1] > _GRAM or not ordinary(squares.X, squares.y):
            return np.full((l1.size, squares.X.shape[1]), np.nan), np.full(l1.size, np.nan)
        coefs = squares.minimisers(l1, l2, self.positive, lambda: clock.is_up)
        values, gaps = squares.brackets(coefs, l1, l2, self.positive)
        wrong = ~(gaps <= self._allowed(values, squares.null))
        coefs[wrong], gaps[wrong] = np.nan, np.nan
        return coefs, gaps


def _path(
    model: ElasticNet, X: Any, y: Any, sample_weight: Any, alphas: Any, eps: float
) -> tuple[Vector, Vector, Vector, list[int]]:
    """Strengths, coefficients, the last axis along the path, gaps, and numbers of steps."""
    model._validate_params()
    X, y, weight = model._check(X, y, sample_weight, y_numeric=True, multi_output=True)
    squares = Squares(X, y, weight, False)
    alphas = strengths(squares, model.l1_ratio, alphas, eps, model.positive)
    l1, l2 = alphas * model.l1_ratio, alphas * (1.0 - model.l1_ratio)
    if y.ndim > 1:
        if model.positive:
            raise ValueError("positive=True is not allowed for multi-output: y has several columns.")
        coefs, gaps, steps = task_path(squares, l1, l2, lambda value: model._allowed(value, squares.null))
    else:
        coefs, gaps = model._certified(squares, l1, l2, model._clock())
        steps = [1] * alphas.size
        for k in np.flatnonzero(np.isnan(gaps)):
            model.set_params(alpha=float(alphas[k])).fit(X, y, weight)
            coefs[k], gaps[k], steps[k] = model.coef_, model.gap_, model.n_iter_
    return alphas, np.moveaxis(coefs, 0, -1).astype(X.dtype), gaps, steps


class Lasso(ElasticNet):
    """Least squares with an L1 penalty, and a certified gap.

    Minimises ``1 / (2 * n_samples) * ||y - Xw||^2_2 + alpha * ||w||_1`` as `sklearn.linear_model.Lasso` does, with
    weights for `n_samples` where there are some.

    {parameters}

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

    l1_ratio: float = field(default=1.0, init=False)


class LADRegressor(LinearRegressor):
    """Least absolute deviations with a penalty, and a certified gap.

    Minimises ``1 / n_samples * ||y - Xw||_1 + alpha * R(w)``.

    {parameters}

    {regressor}

    Examples
    --------
    An outlier does not move the line:

    >>> from varopt.learn import LADRegressor
    >>> model = LADRegressor().fit([[0.0], [1.0], [2.0], [3.0], [4.0]], [1.0, 3.0, 5.0, 7.0, 900.0])
    >>> model.coef_.round(6), round(model.intercept_, 6)
    (array([2.]), 1.0)
    """

    alpha: float = parameter(default=0.0, rule=STRENGTH, kw_only=False)
    penalty: str | None = parameter(default="l1", rule=RIDGE_OR_L1)
    l1_ratio: float = parameter(default=0.5, rule=SHARE)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        return problem.mean(vo.abs(problem.residual)) + penalty(self.penalty, problem.w, self.alpha, self.l1_ratio)


class Liblinear(Declared):
    """What LIBLINEAR's two machines have in common: C, and an intercept that may be penalised."""

    C: float = parameter(default=1.0, rule=Rule("Weight of the loss, positive.", POSITIVE))
    dual: Any = parameter(default="auto", rule=Rule(UNUSED, BOOLEAN, one_of("auto")))
    intercept_scaling: float = parameter(default=1.0, rule=_SCALING)
    penalize_intercept: bool = parameter(default=False, rule=_PENALIZED)
    random_state: Any = parameter(default=None, rule=RANDOM_STATE)

    @property
    def _free_intercept(self) -> bool:
        return not self.penalize_intercept


class LinearSVR(Liblinear, LinearRegressor):
    """Linear support vector regression with a certified gap.

    Minimises ``0.5 * ||w||^2_2 + C * sum_i loss(y_i - w'x_i - b)`` as `sklearn.svm.LinearSVR` does, except that the
    intercept is not penalised; `penalize_intercept` restores scikit-learn's objective.

    {parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
    intercept_ : ndarray of shape (1,) or (n_targets,), or 0.0 without an intercept
    {fitted}

    Examples
    --------
    >>> from varopt.learn import LinearSVR
    >>> model = LinearSVR(C=10.0).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])
    >>> model.coef_.round(6), model.intercept_.round(6)
    (array([1.]), array([1.]))
    """

    epsilon: float = parameter(default=0.0, rule=Rule("Residuals up to this size cost nothing.", NON_NEGATIVE))
    loss: str = parameter(default="epsilon_insensitive", rule=_INSENSITIVE)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = epsilon_insensitive if self.loss == "epsilon_insensitive" else squared_epsilon_insensitive
        ridge = penalty("l2", problem.w, 1.0)
        if problem.b is not None and self.penalize_intercept:
            ridge = ridge + penalty("l2", problem.b, self.intercept_scaling**-2.0)
        return ridge + self.C * problem.total(loss(problem.residual, self.epsilon))

    def _publish_linear(self, fits: list[Fit], many: bool, X: Any, data: Any, targets: Any) -> None:
        super()._publish_linear(fits, many, X, data, targets)
        if self.fit_intercept:
            intercept = np.array([fit.intercept for fit in fits], dtype=data.dtype)
            self.intercept_ = followers(X, {"intercept_": intercept})["intercept_"]
