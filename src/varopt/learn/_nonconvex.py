"""Classifiers whose losses are not convex: errors counted as they are, or outliers given up."""

from __future__ import annotations

import math
from typing import Any

import varopt.model as vo
from varopt.learn._classification import LinearClassifier
from varopt.learn._parameters import COUNT, POSITIVE, Rule, parameter
from varopt.learn._problem import LinearProblem, penalty
from varopt.model import Constraint
from varopt.solvers import Graduated

__all__ = ["RampClassifier", "ZeroOneClassifier"]

_STEPS = Rule("Most steps of one problem, over all starts.", COUNT)
_SEARCHED = Rule(
    "Seconds that the search for a better fit takes, unless it can prove that there is none. By default it ends by"
    " itself, after a second or two on a thousand rows (the `effort` of `varopt.solvers.Graduated`).",
    POSITIVE,
    None,
)


class _Searched(LinearClassifier):
    """A classifier whose objective is not convex: with a time limit, the search goes on to it."""

    time_limit: float | None = parameter(default=None, rule=_SEARCHED)
    max_iter: int = parameter(default=10_000_000, rule=_STEPS)

    @property
    def _method(self) -> Any:
        return "auto" if self.time_limit is None else Graduated(effort=math.inf)


class RampClassifier(_Searched):
    """A support vector machine whose loss is capped, so that outliers cannot dominate it.

    Minimises ``0.5 * ||w||^2_2 + C * sum_i min(1, max(1 - y_i * (w'x_i + b), 0))``, which is not convex, by graduated
    optimisation: the bound is convex while sigma is large, and its minimiser is followed as sigma falls.

    {parameters}

    {classifier}

    Notes
    -----
    `gap_` says how far from the optimum the fit can be, as far as that is known. Where it stays open, a
    `ConvergenceWarning` says so.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from varopt.learn import RampClassifier
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0], [-90.0]])
    >>> with warnings.catch_warnings(action="ignore"):  # that the gap is open
    ...     model = RampClassifier(C=10.0).fit(X, [0, 0, 1, 1, 1])
    >>> model.predict(X[:4])  # the outlier is given up
    array([0, 0, 1, 1])
    """

    C: float = parameter(default=1.0, rule=Rule("Weight of the loss, positive.", POSITIVE))

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        return penalty("l2", problem.w, 1.0) + self.C * problem.total(vo.ramp(problem.margin))


class ZeroOneClassifier(_Searched):
    """A linear classifier with as few training errors as can be found.

    Minimises ``1 / n_samples * sum_i 1[y_i * (w'x_i + b) <= 0]``, the error rate itself, by graduated optimisation:
    smoothed by a wide Gaussian the count is easy to descend, and its minimiser is followed as sigma falls.

    {parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Only their direction matters.
    intercept_ : ndarray of shape (1,) or (n_classes,), or 0.0 without an intercept
    classes_ : ndarray of shape (n_classes,)
    {fitted}

    Notes
    -----
    The problem is NP-hard: `gap_` says how far from the fewest errors the fit can be, as far as that is known. Where it
    stays open, a `ConvergenceWarning` says so.

    A row on the hyperplane is an error, whatever its class; with an intercept the fit leaves none there, so that
    `predict` makes as many errors as the objective counts, while rows of zeros without one stay on it. Counts that take
    rows on a hyperplane for right may be lower than any classifier's: where features are whole numbers it holds many,
    and no small move has all of them on their sides. On Haberman's survival data that is 62; the fewest errors are 66.
    Of the 748 donors of the blood transfusion data (Yeh 2008) 151 errors are the fewest, which takes 20 s to prove.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import ZeroOneClassifier
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0], [-90.0]])
    >>> model = ZeroOneClassifier().fit(X, [0, 0, 1, 1, 1])
    >>> round(model.objective_, 6)  # one error in five
    0.2
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # errors are counted as they are: no margin is kept for new data
        return tags

    def _subject_to(self, problem: LinearProblem, shift: float) -> list[Constraint]:
        if self._constrained_by:
            raise ValueError(
                f"ZeroOneClassifier takes no {self._constrained_by[0]}, since no price of a constraint makes up for a"
                " jump of its loss: RampClassifier and LinearSVC do."
            )
        return []

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        return problem.mean(vo.zero_one(problem.margin))
