"""Regressors whose coefficients have a structure: neighbours, or any that a matrix or a term describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import varopt.model as vo
from varopt.certificates import DualGap
from varopt.learn._base import Clock, Fit, Lines, Solved
from varopt.learn._data import DataMemory, WeightedRows
from varopt.learn._least_squares import Squares, fit_tasks, ordinary
from varopt.learn._linear import ElasticNet, Lasso, LinearRegressor
from varopt.learn._parameters import LEVEL, NON_NEGATIVE, RANDOM_STATE, SHARE, STRENGTH, Rule, as_in, one_of, parameter
from varopt.learn._problem import ANY_PENALTY, REGRESSION_LOSSES, LinearProblem, differences, penalty, squared_error
from varopt.solvers import interior_along

__all__ = [
    "CompositeRegressor",
    "FusedLasso",
    "GeneralizedLasso",
    "GroupLasso",
    "MultiTaskElasticNet",
    "MultiTaskLasso",
]

_FEATURES_FITTED_TOGETHER = 100  # features up to which a fused lasso is fitted for all strengths together
_COORDINATE_DESCENT_ENTRIES = 1 << 26  # entries up to which features are centred and copied for coordinate descent

_FUSION = Rule("Strength of the penalty on differences of neighbours, at least 0.", NON_NEGATIVE)
_GROUPS = Rule(
    "A label for each feature; features with the same label are a group. By default each feature is a group of its own,"
    " which is the lasso.",
    "array-like",
    None,
    type="array-like of shape (n_features,)",
)
_GROUP_WEIGHT = Rule(
    "Weights of the groups in the order of their sorted labels, at least 0, in place of the square roots of sizes.",
    "array-like",
    None,
    type="array-like of shape (n_groups,)",
)
_SPARSE_GROUPS = Rule(
    "The share of the L1 penalty, which also leaves zeros within groups: the sparse group lasso.", *SHARE.accepts
)
_MATRIX = Rule(
    "Differences along a chain, over the edges of a graph, of any order; the identity by default.",
    "array-like",
    "sparse matrix",
    None,
    type="{array-like, sparse matrix} of shape (n_penalties, n_features)",
)
_LOSS = Rule(
    'Of residuals z: "squared_error" ``z^2 / 2``, "absolute_error" ``|z|``, "quantile" (the pinball loss), "huber",'
    ' "epsilon_insensitive" ``max(|z| - epsilon, 0)``, "squared_epsilon_insensitive" its square; a callable maps'
    " residuals to terms, as `varopt.abs` does.",
    one_of(*REGRESSION_LOSSES),
    callable,
)
_WIDTH = Rule('The width of "huber", "epsilon_insensitive" and "squared_epsilon_insensitive".', NON_NEGATIVE)


class FusedLasso(LinearRegressor):
    """Least squares with coefficients that are sparse and piecewise constant, and a certified gap.

    Minimises::

        1 / (2 * n_samples) * ||y - Xw||^2_2 + alpha * ||w||_1 + fusion * sum_j |w_{j+1} - w_j|

    for features in an order: positions along a genome, bands of a spectrum, times. With ``X = sp.eye_array(n)`` it
    denoises a signal y.

    {parameters}

    {regressor}

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from varopt.learn import FusedLasso
    >>> y = np.array([0.1, -0.1, 0.0, 2.1, 1.9, 2.0])
    >>> FusedLasso(alpha=0.0, fusion=0.05, fit_intercept=False).fit(sp.eye_array(6), y).coef_.round(6)
    array([0.1, 0.1, 0.1, 1.9, 1.9, 1.9])
    """

    alpha: float = parameter(default=0.1, rule=STRENGTH, kw_only=False)
    fusion: float = parameter(default=0.1, rule=_FUSION, kw_only=False)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = problem.mean(squared_error(problem.residual)) + penalty("l1", problem.w, self.alpha)
        return loss + self.fusion * differences(problem.w) if self.fusion > 0.0 else loss

    def _along(
        self, path: Sequence[Mapping[str, float]], data: tuple[Any, Any, NDArray[np.float64]], memory: DataMemory,
        clock: Clock,
    ) -> Lines | None:  # fmt: skip
        rows = memory.rows(*data)
        p = rows.X.shape[1]
        if self._constrained_by or p > _FEATURES_FITTED_TOGETHER or not ordinary(rows.X, rows.y):
            return None
        squares = Squares(rows.X, rows.y, rows.weight, self.fit_intercept)
        gram, gradient, apart = squares.gram, squares.gradient[:, 0], np.diff(np.eye(p), axis=0)
        alpha, fusion = np.array([[at["alpha"], at["fusion"]] for at in path]).T
        coefs, gaps = interior_along(gram, gradient, squares.null, apart, alpha, fusion, lambda: clock.is_up)
        values = squares.null + coefs @ gradient + 0.5 * np.sum(coefs @ gram * coefs, axis=1)
        values += alpha * np.abs(coefs).sum(axis=1) + fusion * np.abs(coefs @ apart.T).sum(axis=1)
        coefs[~(gaps <= self._allowed(values, squares.null))] = np.nan
        return coefs, squares.levels(coefs)


class GroupLasso(LinearRegressor):
    """Least squares with coefficients that vanish by groups, and a certified gap.

    Minimises::

        1 / (2 * n_samples) * ||y - Xw||^2_2
        + alpha * (1 - l1_ratio) * sum_g weight_g ||w_g||_2 + alpha * l1_ratio * ||w||_1

    where ``w_g`` are the coefficients of group g, and ``weight_g`` is the square root of their number.

    {parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Groups that vanish are exactly zero.
    intercept_ : float or ndarray of shape (n_targets,)
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

    alpha: float = parameter(default=1.0, rule=STRENGTH, kw_only=False)
    groups: Any = parameter(default=None, rule=_GROUPS)
    group_weight: Any = parameter(default=None, rule=_GROUP_WEIGHT)
    l1_ratio: float = parameter(default=0.0, rule=_SPARSE_GROUPS)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        members, weight = self._groups(problem.X.shape[1])
        fit = problem.mean(squared_error(problem.residual)) + penalty("l1", problem.w, self.alpha * self.l1_ratio)
        strength = self.alpha * (1.0 - self.l1_ratio)
        if strength == 0.0:
            return fit
        if all(group.size == 1 for group in members):  # the lasso has faster methods than groups have
            return fit + strength * vo.sum(weight * vo.abs(problem.w))
        return fit + strength * vo.norm2(problem.w, members, weight)

    def _along(
        self, path: Sequence[Mapping[str, float]], data: tuple[Any, Any, NDArray[np.float64]], memory: DataMemory,
        clock: Clock,
    ) -> Lines | None:  # fmt: skip
        if self._constrained_by or self.groups is not None or self.group_weight is not None:
            return None
        return Lasso(tol=self.tol, fit_intercept=self.fit_intercept)._along(path, data, memory, clock)

    def _groups(self, features: int) -> tuple[list[NDArray[np.intp]], NDArray[np.float64]]:
        """The features of each group, and its weight."""
        if self.groups is not None and any(isinstance(one, (list, tuple, set, np.ndarray)) for one in self.groups):
            raise ValueError(
                f"groups must be a label per feature, {features}, such as ['a', 'a', 'b']; got lists of members."
            )
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


class MultiTaskElasticNet(LinearRegressor):
    """Least squares of several targets that share their features, and a certified gap.

    Minimises::

        1 / (2 * n_samples) * ||Y - XW||^2_Fro
        + alpha * l1_ratio * ||W||_21 + 0.5 * alpha * (1 - l1_ratio) * ||W||_Fro^2

    as `sklearn.linear_model.MultiTaskElasticNet` does, with weights for `n_samples` where there are some. ``||W||_21``
    is the sum over features of the length of their coefficients, so that a feature counts for all targets or for none.

    {parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n_targets, n_features)
    intercept_ : ndarray of shape (n_targets,)
    dual_gap_ : float
        Another name of `gap_`, scikit-learn's.
    {fitted}

    Notes
    -----
    Compiled coordinate descent, of scikit-learn, goes as far as the bracket asks for; where that is not far enough, a
    method of `varopt.minimize` goes on from there.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import MultiTaskElasticNet
    >>> X = np.vstack([np.eye(3), -np.eye(3)])
    >>> Y = X @ [[3.0, 4.0], [0.1, 0.1], [0.0, 2.0]]
    >>> model = MultiTaskElasticNet(alpha=0.3, l1_ratio=0.9).fit(X, Y)
    >>> model.coef_.round(4), bool(model.gap_ <= 1e-9 * model.objective_)
    (array([[2.3064, 0.    , 0.    ],
           [3.0752, 0.    , 1.0917]]), True)
    """

    alpha: float = parameter(default=1.0, rule=STRENGTH, kw_only=False)
    l1_ratio: float = parameter(default=0.5, rule=SHARE)
    copy_X: bool = parameter(default=True, rule=as_in(ElasticNet, "copy_X"))
    random_state: Any = parameter(default=None, rule=RANDOM_STATE)
    selection: str = parameter(default="cyclic", rule=as_in(ElasticNet, "selection"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        return tags

    @property
    def dual_gap_(self) -> float:
        """The certified gap, by the name that scikit-learn gives to its own."""
        return float(self.gap_)

    @property
    def sparse_coef_(self) -> Any:
        """The coefficients as a sparse matrix."""
        return sp.csr_matrix(self.coef_)

    def _fits(self, rows: WeightedRows, clock: Clock) -> list[Fit]:
        if np.ndim(rows.y) == 1:
            one = type(self).__name__.removeprefix("MultiTask")
            raise ValueError(f"For mono-task outputs, use {one}: y has one target and should have a column for each.")
        if self._constrained_by:
            raise ValueError(
                f"{type(self).__name__} takes no {self._constrained_by[0]}: targets that share no constraint are"
                " fitted by ElasticNet, each on its own."
            )
        starts = self._starts(rows.y.shape[1], rows.X.shape[1])
        start = np.array([np.zeros(rows.X.shape[1]) if one is None else one[0] for one in starts])
        squares = Squares(rows.X, rows.y, rows.weight, self.fit_intercept)
        found = None
        small = rows.X.shape[0] * rows.X.shape[1] <= _COORDINATE_DESCENT_ENTRIES
        if self.alpha > 0.0 and small and ordinary(rows.X, rows.y):
            found = fit_tasks(
                squares, self.alpha * self.l1_ratio, self.alpha * (1.0 - self.l1_ratio), start.T,
                lambda value: float(self._allowed(value, squares.null)), lambda: clock.is_up,
            )  # fmt: skip
            start = found.coef.T
        if found is not None and found.gap <= self._allowed(found.value, squares.null):
            coef, levels = found.coef.T, squares.levels(found.coef[None])[0]
            certificate = DualGap(found.value - found.gap, found.value)
            solved = Solved(found.value, certificate, max(1, found.rounds), np.zeros(0), {})
            return [Fit(w, b, solved) for w, b in zip(coef, levels, strict=True)]
        return self._joint(rows, start, clock)

    def _joint(self, rows: WeightedRows, start: Any, clock: Clock) -> list[Fit]:
        """All targets as one problem."""
        problems, shifts = zip(*(self._problem(rows, y) for y in rows.y.T), strict=True)
        tasks, features = len(problems), rows.X.shape[1]
        w = vo.Variable(tasks * features, name="coef")
        columns = [w[t * features : (t + 1) * features] for t in range(tasks)]
        unit = problems[0].unit
        loss: Any = 0.0
        for problem, column in zip(problems, columns, strict=True):
            line = problem.y - problem.X @ column
            loss = loss + problem.mean(squared_error(line if problem.b is None else line - problem.b))
        l1, l2 = self.alpha * self.l1_ratio / unit, self.alpha * (1.0 - self.l1_ratio) / unit / unit
        groups = list(np.arange(tasks * features).reshape(tasks, features).T)
        objective = loss + l1 * vo.norm2(w, groups) if l1 > 0.0 else loss
        levels = {p.b: p.moved(c) for p, c in zip(problems, start, strict=True) if p.b is not None}
        solved = self._minimize(objective + penalty("l2", w, l2), {w: unit * start.ravel()} | levels, clock)
        coef = np.asarray(solved.values[w]).reshape(tasks, features) / unit
        shifted = [0.0 if p.b is None else s + float(solved.values[p.b]) - p.moved(c)
                  for p, s, c in zip(problems, shifts, coef, strict=True)]  # fmt: skip
        return [Fit(c, b, solved) for c, b in zip(coef, shifted, strict=True)]

    def _publish_linear(self, fits: list[Fit], many: bool, X: Any, data: Any, targets: Any) -> None:
        super()._publish_linear(fits, True, X, data, targets)
        self._publish([fits[0].solved], False, X)


class MultiTaskLasso(MultiTaskElasticNet):
    """Least squares of several targets whose coefficients vanish together, and a certified gap.

    Minimises ``1 / (2 * n_samples) * ||Y - XW||^2_Fro + alpha * ||W||_21`` as `sklearn.linear_model.MultiTaskLasso`
    does: ``||W||_21`` is the sum over features of the length of their coefficients.

    {parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n_targets, n_features)
    intercept_ : ndarray of shape (n_targets,)
    dual_gap_ : float
        Another name of `gap_`, scikit-learn's.
    {fitted}

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import MultiTaskLasso
    >>> X = np.vstack([np.eye(2), -np.eye(2)])
    >>> MultiTaskLasso(alpha=0.25).fit(X, X @ [[3.0, 4.0], [0.3, 0.4]]).coef_.round(6)
    array([[2.7, 0. ],
           [3.6, 0. ]])
    """

    l1_ratio: float = field(default=1.0, init=False)


class _AnyLoss(LinearRegressor):
    """A regressor whose loss is chosen by name, or given. Subclasses declare it."""

    loss: Any = parameter(default="squared_error", rule=_LOSS)
    epsilon: float = parameter(default=0.1, rule=_WIDTH)
    quantile: float = parameter(default=0.5, rule=Rule('The level of "quantile".', LEVEL))

    def _loss(self) -> Any:
        """The loss as a function of residuals."""
        if callable(self.loss):
            return self.loss
        rule, name = REGRESSION_LOSSES[self.loss]
        return rule if name is None else lambda residual: rule(residual, getattr(self, name))


class GeneralizedLasso(_AnyLoss):
    """Any loss with an L1 penalty on ``D w`` for any matrix D, and a certified gap.

    Minimises ``1 / n_samples * sum_i loss(y_i - w'x_i - b) + alpha * ||D w||_1``.

    {parameters}

    {regressor}

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

    alpha: float = parameter(default=1.0, rule=STRENGTH, kw_only=False)
    D: Any = parameter(default=None, rule=_MATRIX)
    loss: str = parameter(default="squared_error", rule=Rule("As in `CompositeRegressor`.", one_of(*REGRESSION_LOSSES)))

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        fit = problem.mean(self._loss()(problem.residual))
        if self.alpha == 0.0:
            return fit
        if self.D is None:
            return fit + penalty("l1", problem.w, self.alpha)
        D = self.D if sp.issparse(self.D) else np.asarray(self.D, dtype=np.float64)
        if D.ndim != 2 or D.shape[1] != problem.X.shape[1]:
            raise ValueError(
                f"D must be a matrix with a column per feature, {problem.X.shape[1]}; got one of shape {D.shape}."
            )
        return fit + self.alpha * vo.norm1(D @ problem.w)


class CompositeRegressor(_AnyLoss):
    """A linear model with any loss and any penalty, and a certified gap where both are convex.

    Minimises ``1 / n_samples * sum_i loss(y_i - w'x_i - b) + alpha * R(w)``, the objective of
    `sklearn.linear_model.SGDRegressor`.

    {parameters}

    {regressor}

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

    loss: Any = parameter(default="squared_error", rule=_LOSS, kw_only=False)
    penalty: Any = parameter(default="l2", rule=ANY_PENALTY, kw_only=False)
    alpha: float = parameter(default=1.0, rule=STRENGTH)
    l1_ratio: float = parameter(default=0.5, rule=SHARE)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        fit = problem.mean(self._loss()(problem.residual))
        return fit + penalty(self.penalty, problem.w, self.alpha, self.l1_ratio)
