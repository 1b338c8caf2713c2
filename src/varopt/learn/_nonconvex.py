"""Classifiers whose losses are not convex: errors counted as they are, or outliers given up."""

from __future__ import annotations

from typing import Any, ClassVar

import varopt.model as vo
from varopt.learn._classification import LinearClassifier
from varopt.learn._linear import POSITIVE
from varopt.learn._problem import LinearProblem, penalty

__all__ = ["RampClassifier", "ZeroOneClassifier"]


class RampClassifier(LinearClassifier):
    """A support vector machine whose loss is capped, so that outliers cannot dominate it.

    Minimises ``0.5 * ||w||^2_2 + C * sum_i min(1, max(1 - y_i * (w'x_i + b), 0))``, which is not convex, by graduated
    optimisation: the bound is convex while sigma is large, and its minimiser is followed as sigma falls.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss, positive.
    {fit_intercept}
    class_weight : dict or "balanced", default=None
        Factors of C by class.
    {tol}
    max_iter : int, default=10000
        Most steps of one problem, over all starts.
    {time_limit}
    {warm_start}
    {verbose}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,), or 0.0 without an intercept
    classes_ : ndarray of shape (n_classes,)
    {fitted}

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import RampClassifier
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0], [-90.0]])
    >>> RampClassifier(C=10.0).fit(X, [0, 0, 1, 1, 1]).predict(X[:4])  # the outlier is given up
    array([0, 0, 1, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearClassifier._parameter_constraints | {"C": [POSITIVE]}

    def __init__(
        self, *, C: float = 1.0, fit_intercept: bool = True, class_weight: Any = None, tol: float = 1e-9,
        max_iter: int = 10_000, time_limit: float | None = None, warm_start: bool = False, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        return penalty("l2", problem.w, 1.0) + self.C * problem.total(vo.ramp(problem.margin))


class ZeroOneClassifier(LinearClassifier):
    """A linear classifier with as few training errors as can be found.

    Minimises ``1 / n_samples * sum_i 1[y_i * (w'x_i + b) <= 0]``, the error rate itself, by graduated optimisation:
    smoothed by a wide Gaussian the count is easy to descend, and its minimiser is followed as sigma falls.

    Parameters
    ----------
    {fit_intercept}
    class_weight : dict or "balanced", default=None
        Costs of an error by class.
    {tol}
    max_iter : int, default=10000
        Most steps of one problem, over all starts.
    {time_limit}
    {warm_start}
    {verbose}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Only their direction matters.
    intercept_ : ndarray of shape (1,) or (n_classes,), or 0.0 without an intercept
    classes_ : ndarray of shape (n_classes,)
    {fitted}

    Notes
    -----
    The problem is NP-hard: `gap_` says how far from the fewest errors the fit can be, as far as that is known.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import ZeroOneClassifier
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0], [-90.0]])
    >>> model = ZeroOneClassifier().fit(X, [0, 0, 1, 1, 1])
    >>> round(model.objective_, 6)  # one error in five
    0.2
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearClassifier._parameter_constraints

    def __init__(
        self, *, fit_intercept: bool = True, class_weight: Any = None, tol: float = 1e-9, max_iter: int = 10_000,
        time_limit: float | None = None, warm_start: bool = False, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # errors are counted as they are: no margin is kept for new data
        return tags

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        return problem.mean(vo.zero_one(problem.margin))
