"""Regressors whose coefficients have a structure: neighbours, or any that a matrix or a term describes."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

import varopt.model as vo
from varopt.learn._linear import NON_NEGATIVE, SHARE, LinearRegressor
from varopt.learn._problem import PENALTIES, REGRESSION_LOSSES, LinearProblem, differences, penalty, squared_error

__all__ = ["CompositeRegressor", "FusedLasso", "GeneralizedLasso", "GroupLasso"]

_LEVEL = Interval(Real, 0.0, 1.0, closed="neither")


class FusedLasso(LinearRegressor):
    """Least squares with coefficients that are sparse and piecewise constant, and a certified gap.

    Minimises::

        1 / (2 * n_samples) * ||y - Xw||^2_2 + alpha * ||w||_1 + fusion * sum_j |w_{j+1} - w_j|

    for features in an order: positions along a genome, bands of a spectrum, times. With ``X = sp.eye_array(n)`` it
    denoises a signal y.

    Parameters
    ----------
    alpha : float, default=0.1
        Strength of the penalty on coefficients, at least 0.
    fusion : float, default=0.1
        Strength of the penalty on differences of neighbours, at least 0.
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
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from varopt.learn import FusedLasso
    >>> y = np.array([0.1, -0.1, 0.0, 2.1, 1.9, 2.0])
    >>> FusedLasso(alpha=0.0, fusion=0.05, fit_intercept=False).fit(sp.eye_array(6), y).coef_.round(6)
    array([0.1, 0.1, 0.1, 1.9, 1.9, 1.9])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearRegressor._parameter_constraints | {
        "alpha": [NON_NEGATIVE],
        "fusion": [NON_NEGATIVE],
    }
    _least_squares = True

    def __init__(
        self, alpha: float = 0.1, fusion: float = 0.1, *, fit_intercept: bool = True, tol: float = 1e-9,
        max_iter: int = 1000, time_limit: float | None = None, warm_start: bool = False, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.alpha = alpha
        self.fusion = fusion
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = problem.mean(squared_error(problem.residual)) + penalty("l1", problem.w, self.alpha)
        return loss + self.fusion * differences(problem.w) if self.fusion > 0.0 else loss


class GroupLasso(LinearRegressor):
    """Least squares with coefficients that vanish by groups, and a certified gap.

    Minimises::

        1 / (2 * n_samples) * ||y - Xw||^2_2
        + alpha * (1 - l1_ratio) * sum_g weight_g ||w_g||_2 + alpha * l1_ratio * ||w||_1

    where ``w_g`` are the coefficients of group g, and ``weight_g`` is the square root of their number.

    Parameters
    ----------
    {alpha}
    groups : array-like of shape (n_features,), default=None
        A label for each feature; features with the same label are a group. By default each feature is a group of its
        own, which is the lasso.
    group_weight : array-like of shape (n_groups,), default=None
        Weights of the groups in the order of their sorted labels, at least 0, in place of the square roots of sizes.
    l1_ratio : float, default=0.0
        The share of the L1 penalty, which also leaves zeros within groups: the sparse group lasso.
    {fit_intercept}
    {tol}
    {max_iter}
    {time_limit}
    {warm_start}
    {verbose}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Groups that vanish are exactly zero.
    intercept_ : float
    {fitted}

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import GroupLasso
    >>> X = np.vstack([np.eye(4), -np.eye(4)])
    >>> y = X @ [3.0, 4.0, 0.3, 0.4]
    >>> GroupLasso(alpha=0.25 / np.sqrt(2.0), groups=["a", "a", "b", "b"]).fit(X, y).coef_.round(6)
    array([2.4, 3.2, 0. , 0. ])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearRegressor._parameter_constraints | {
        "alpha": [NON_NEGATIVE],
        "groups": ["array-like", None],
        "group_weight": ["array-like", None],
        "l1_ratio": [SHARE],
    }
    _least_squares = True

    def __init__(
        self, alpha: float = 1.0, *, groups: Any = None, group_weight: Any = None, l1_ratio: float = 0.0,
        fit_intercept: bool = True, tol: float = 1e-9, max_iter: int = 1000, time_limit: float | None = None,
        warm_start: bool = False, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.alpha = alpha
        self.groups = groups
        self.group_weight = group_weight
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        members, weight = self._groups(problem.w.size)
        fit = problem.mean(squared_error(problem.residual)) + penalty("l1", problem.w, self.alpha * self.l1_ratio)
        strength = self.alpha * (1.0 - self.l1_ratio)
        if strength == 0.0:
            return fit
        if all(group.size == 1 for group in members):  # the lasso has faster methods than groups have
            return fit + strength * vo.sum(weight * vo.abs(problem.w))
        return fit + strength * vo.norm2(problem.w, members, weight)

    def _groups(self, features: int) -> tuple[list[NDArray[np.intp]], NDArray[np.float64]]:
        """The features of each group, and its weight."""
        labels = np.arange(features) if self.groups is None else np.asarray(self.groups)
        if labels.shape != (features,):
            raise ValueError(f"groups must be a label per feature, {features}; got an array of shape {labels.shape}.")
        _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        members = np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
        if self.group_weight is None:
            return members, np.sqrt(sizes)
        weight = np.asarray(self.group_weight, dtype=np.float64)
        if weight.shape != sizes.shape or not (np.isfinite(weight).all() and (weight >= 0.0).all()):
            raise ValueError(
                f"group_weight must be finite, at least 0 and one per group, {sizes.size}; got {self.group_weight!r}."
            )
        return members, weight


class GeneralizedLasso(LinearRegressor):
    """Any loss with an L1 penalty on ``D w`` for any matrix D, and a certified gap.

    Minimises ``1 / n_samples * sum_i loss(y_i - w'x_i - b) + alpha * ||D w||_1``.

    Parameters
    ----------
    {alpha}
    D : {array-like, sparse matrix} of shape (n_penalties, n_features), default=None
        Differences along a chain, over the edges of a graph, of any order; the identity by default.
    loss : str, default="squared_error"
        As in `CompositeRegressor`.
    epsilon : float, default=0.1
        The width of "huber", "epsilon_insensitive" and "squared_epsilon_insensitive".
    quantile : float, default=0.5
        The level of "quantile".
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
    The coefficients of a triangle of features are drawn together:

    >>> import numpy as np
    >>> from varopt.learn import GeneralizedLasso
    >>> D = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [1.0, 0.0, -1.0]])
    >>> model = GeneralizedLasso(alpha=10.0, D=D, fit_intercept=False).fit(np.eye(3), [1.0, 2.0, 6.0])
    >>> model.coef_.round(6)
    array([3., 3., 3.])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearRegressor._parameter_constraints | {
        "alpha": [NON_NEGATIVE],
        "D": ["array-like", "sparse matrix", None],
        "loss": [StrOptions(set(REGRESSION_LOSSES))],
        "epsilon": [NON_NEGATIVE],
        "quantile": [_LEVEL],
    }

    def __init__(
        self, alpha: float = 1.0, *, D: Any = None, loss: str = "squared_error", epsilon: float = 0.1,
        quantile: float = 0.5, fit_intercept: bool = True, tol: float = 1e-9, max_iter: int = 1000,
        time_limit: float | None = None, warm_start: bool = False, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.alpha = alpha
        self.D = D
        self.loss = loss
        self.epsilon = epsilon
        self.quantile = quantile
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose

    @property
    def _least_squares(self) -> bool:  # type: ignore[override]
        return bool(self.loss == "squared_error")

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        fit = problem.mean(_loss(self)(problem.residual))
        if self.alpha == 0.0:
            return fit
        if self.D is None:
            return fit + penalty("l1", problem.w, self.alpha)
        D = self.D if sp.issparse(self.D) else np.asarray(self.D, dtype=np.float64)
        if D.ndim != 2 or D.shape[1] != problem.w.size:
            raise ValueError(
                f"D must be a matrix with a column per feature, {problem.w.size}; got one of shape {D.shape}."
            )
        return fit + self.alpha * vo.norm1(D @ problem.w)


class CompositeRegressor(LinearRegressor):
    """A linear model with any loss and any penalty, and a certified gap where both are convex.

    Minimises ``1 / n_samples * sum_i loss(y_i - w'x_i - b) + alpha * R(w)``, the objective of
    `sklearn.linear_model.SGDRegressor`.

    Parameters
    ----------
    loss : str or callable, default="squared_error"
        Of residuals z: "squared_error" ``z^2 / 2``, "absolute_error" ``|z|``, "quantile" (the pinball loss), "huber",
        "epsilon_insensitive" ``max(|z| - epsilon, 0)``, "squared_epsilon_insensitive" its square; a callable maps
        residuals to terms, as `varopt.abs` does.
    penalty : {"l2", "l1", "elasticnet", "fused", "trend"}, callable or None, default="l2"
        R: ``0.5 ||w||^2_2``, ``||w||_1``, ``l1_ratio ||w||_1 + 0.5 (1 - l1_ratio) ||w||^2_2``, and with the L1 norm of
        first or second differences in place of the last; a callable maps coefficients to an objective.
    {alpha}
    l1_ratio : float, default=0.5
        The share of the L1 penalty in "elasticnet", "fused" and "trend".
    epsilon : float, default=0.1
        The width of "huber", "epsilon_insensitive" and "squared_epsilon_insensitive".
    quantile : float, default=0.5
        The level of "quantile".
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
    >>> import numpy as np
    >>> import varopt as vo
    >>> from varopt.learn import CompositeRegressor
    >>> X, y = np.arange(10.0)[:, None], np.arange(10.0)
    >>> model = CompositeRegressor(loss=lambda z: vo.pinball(z, 0.9), penalty=vo.norm1, alpha=0.01).fit(X, y)
    >>> model.coef_.round(6)
    array([1.])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearRegressor._parameter_constraints | {
        "loss": [StrOptions(set(REGRESSION_LOSSES)), callable],
        "penalty": [StrOptions(set(PENALTIES)), callable, None],
        "alpha": [NON_NEGATIVE],
        "l1_ratio": [SHARE],
        "epsilon": [NON_NEGATIVE],
        "quantile": [_LEVEL],
    }

    def __init__(
        self, loss: Any = "squared_error", penalty: Any = "l2", *, alpha: float = 1.0, l1_ratio: float = 0.5,
        epsilon: float = 0.1, quantile: float = 0.5, fit_intercept: bool = True, tol: float = 1e-9,
        max_iter: int = 1000, time_limit: float | None = None, warm_start: bool = False, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.epsilon = epsilon
        self.quantile = quantile
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose

    @property
    def _least_squares(self) -> bool:  # type: ignore[override]
        return bool(self.loss == "squared_error")

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        fit = problem.mean(_loss(self)(problem.residual))
        return fit + penalty(self.penalty, problem.w, self.alpha, self.l1_ratio)


def _loss(estimator: Any) -> Any:
    """The loss of an estimator as a function of residuals."""
    if callable(estimator.loss):
        return estimator.loss
    rule, parameter = REGRESSION_LOSSES[estimator.loss]
    return rule if parameter is None else lambda residual: rule(residual, getattr(estimator, parameter))
