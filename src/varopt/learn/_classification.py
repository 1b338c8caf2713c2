"""Linear classifiers with a certified objective: two classes, or many one against the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from varopt.learn._base import CertifiedLinear, Clock, Fit, Lines
from varopt.learn._compat import LinearClassifierMixin, SparseCoefMixin, compute_class_weight
from varopt.learn._data import DataMemory, StoredRows, WeightedRows, by_class, classes_of, signs
from varopt.learn._least_squares import ordinary, squared_hinges_along
from varopt.learn._linear import Liblinear
from varopt.learn._parameters import CLASS_WEIGHT, SHARE, STRENGTH, Rule, one_of, parameter
from varopt.learn._problem import ANY_PENALTY, CLASSIFICATION_LOSSES, LinearProblem, in_unit, near_zero, penalty

__all__ = ["CompositeClassifier", "LinearClassifier", "LinearSVC"]

Vector = NDArray[np.float64]

# Entries of what is kept of small data, up to which they are fitted for all strengths together.
_ENTRIES_FITTED_TOGETHER = 1 << 21

_PENALTY = Rule(
    "R: ``0.5 ||w||^2_2``, ``||w||_1``, ``l1_ratio ||w||_1 + 0.5 (1 - l1_ratio) ||w||^2_2``, or, for features in an"
    " order, ``l1_ratio ||w||_1 + (1 - l1_ratio) sum_j |w_{j+1} - w_j|``.",
    one_of("l2", "l1", "elasticnet", "fused"),
)
_HINGES = Rule("``max(1 - z, 0)^2``, or ``max(1 - z, 0)``.", one_of("squared_hinge", "hinge"))
_LOSS = Rule(
    "A loss of margins; a callable maps margins to terms, as `varopt.hinge` does.",
    one_of(*CLASSIFICATION_LOSSES),
    callable,
)


class LinearClassifier(LinearClassifierMixin, SparseCoefMixin, CertifiedLinear):
    """A linear classifier, one against the rest where there are many classes. Subclasses state the objective."""

    class_weight: Any = parameter(default=None, rule=CLASS_WEIGHT)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = bool(self._constrained_by)  # which may rule out every line that separates
        return tags

    def _fit_data(self, X: Any, y: Any, sample_weight: Any, clock: Clock, memory: DataMemory) -> Any:
        data, labels, weight = self._read(X, y, sample_weight, memory)
        fits = self._fits(self._encoded(data, labels, weight, memory), clock)
        self._publish_lines(fits, X, data.dtype)
        return self

    def _encoded(self, data: Any, labels: Any, weight: Vector, memory: DataMemory) -> WeightedRows:
        """The rows with the number of their class for a target, classes weighted."""
        check_classification_targets(labels)
        present = weight > 0.0
        self.classes_ = np.unique(labels[present])
        if self.classes_.size < 2:
            raise ValueError(
                "This solver needs samples of at least 2 classes in the data, but the data contains only one class:"
                f" {self.classes_[0]!r}"
            )
        codes = np.minimum(np.searchsorted(self.classes_, labels), self.classes_.size - 1)
        balance = compute_class_weight(
            self.class_weight, classes=self.classes_, y=labels[present], sample_weight=weight[present]
        )
        if not np.all(balance >= 0.0):
            raise ValueError(f"class_weight must be at least 0 for every class; got {self.class_weight!r}.")
        return memory.rows(data, codes, weight * balance[codes])

    def _publish_lines(self, fits: list[Fit], X: Any, dtype: Any) -> None:
        self._publish(
            [fit.solved for fit in fits], len(fits) > 1, X,
            coef_=np.array([fit.coef for fit in fits], dtype=dtype),
            intercept_=np.array([fit.intercept for fit in fits], dtype=dtype) if self.fit_intercept else 0.0,
        )  # fmt: skip

    def _fit_stored(self, data: StoredRows, clock: Clock) -> Any:
        classes = classes_of(data)
        self.classes_ = classes.labels
        if self.classes_.size < 2:
            raise ValueError(
                "This solver needs samples of at least 2 classes in the data, but the data contains only one class:"
                f" {self.classes_[0]!r}"
            )
        balance = compute_class_weight(
            self.class_weight, classes=classes.labels, y=classes.labels, sample_weight=classes.weights
        )
        if not np.all(balance >= 0.0):
            raise ValueError(f"class_weight must be at least 0 for every class; got {self.class_weight!r}.")
        data = data._replace(weight=by_class(data.y, data.weight, classes.labels, np.asarray(balance)))
        positives = classes.labels[1:] if classes.labels.size == 2 else classes.labels
        fits = self._fits_stored(data, [signs(data.y, label) for label in positives], clock)
        self._publish_lines(fits, data.home, data.dtype)
        return self

    def _fits(self, rows: WeightedRows, clock: Clock) -> list[Fit]:
        positives = [1] if self.classes_.size == 2 else range(self.classes_.size)
        starts = self._starts(len(positives), rows.X.shape[1])
        fits = []
        for count, (positive, start) in enumerate(zip(positives, starts, strict=True)):
            signs = np.where(rows.y == positive, 1.0, -1.0)
            problem = in_unit(LinearProblem(rows.X, signs, rows.weight, self.fit_intercept))
            if self.fit_intercept and self._free_intercept:
                problem = near_zero(problem)
            fits.append(self._fit_problem(problem, start, clock.part(len(positives) - count), 0.0))
        return fits


class LinearSVC(Liblinear, LinearClassifier):
    """Linear support vector classification with a certified gap.

    Minimises ``R(w) + C * sum_i loss(y_i * (w'x_i + b))``. With ``penalty="l2"``, ``R(w) = 0.5 * ||w||^2_2`` and the
    objective is that of `sklearn.svm.LinearSVC`, except that the intercept is not penalised; `penalize_intercept`
    restores scikit-learn's objective.

    {parameters}

    {classifier}

    Notes
    -----
    With many classes `objective_`, `lower_bound_` and `gap_` have an entry per class and `certificate_` is a list.
    Probabilities come from `sklearn.calibration.CalibratedClassifierCV`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from varopt.learn import LinearSVC
    >>> X, y = load_breast_cancer(return_X_y=True)  # as it is: nothing is scaled
    >>> model = LinearSVC(loss="hinge").fit(X, y)
    >>> round(model.objective_, 6), bool(model.gap_ <= 1e-9 * model.objective_)
    (48.875726, True)
    """

    penalty: str = parameter(default="l2", rule=_PENALTY, kw_only=False)
    loss: str = parameter(default="squared_hinge", rule=_HINGES, kw_only=False)
    multi_class: str = parameter(default="ovr", rule=Rule("Many classes: one against the rest.", one_of("ovr")))
    l1_ratio: float = parameter(default=0.5, rule=SHARE)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        regular = penalty(self.penalty, problem.w, 1.0, self.l1_ratio)
        if problem.b is not None and self.penalize_intercept:
            regular = regular + penalty(self.penalty, problem.b * (1.0 / self.intercept_scaling), 1.0, self.l1_ratio)
        return regular + self.C * problem.total(CLASSIFICATION_LOSSES[self.loss](problem.margin))

    def _along(
        self, path: Sequence[Mapping[str, float]], data: tuple[Any, Any, Vector], memory: DataMemory, clock: Clock
    ) -> Lines | None:
        if self.loss != "squared_hinge" or self.penalty != "l2" or self._constrained_by:
            return None
        rows = self._encoded(*data, memory)
        n, p = rows.X.shape
        positives = [1] if self.classes_.size == 2 else range(self.classes_.size)
        if (
            sp.issparse(rows.X)
            or n * max(p * p, len(path) * len(positives)) > _ENTRIES_FITTED_TOGETHER
            or not ordinary(rows.X, np.ones(1))
        ):
            return None
        rho = self.intercept_scaling**-2.0 if self.penalize_intercept else 0.0
        X, signs = np.asarray(rows.X, dtype=np.float64), np.array([np.where(rows.y == k, 1.0, -1.0) for k in positives])
        center = rows.weight @ X / rows.total if self.fit_intercept and not rho else np.zeros(p)
        strengths = np.array([settings["C"] for settings in path])
        lines, values, gaps = squared_hinges_along(
            X - center, signs.T, rows.weight, strengths, rho if self.fit_intercept else None, lambda: clock.is_up
        )
        wrong = ~(gaps <= self._allowed(values, strengths[:, None] * rows.total)).all(axis=1)
        lines[wrong] = np.nan
        return lines[:, :, :p], lines[:, :, p] - lines[:, :, :p] @ center


class CompositeClassifier(LinearClassifier):
    """A linear classifier with any loss and any penalty, and a certified gap where both are convex.

    Minimises ``1 / n_samples * sum_i loss(y_i * (w'x_i + b)) + alpha * R(w)``, the objective of
    `sklearn.linear_model.SGDClassifier`.

    {parameters}

    {classifier}

    Examples
    --------
    >>> import numpy as np
    >>> import varopt as vo
    >>> from varopt.learn import CompositeClassifier
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array(["no", "no", "yes", "yes"])
    >>> CompositeClassifier(loss=vo.squared_hinge, penalty=vo.norm1, alpha=0.1).fit(X, y).predict([[0.5]])
    array(['yes'], dtype='<U3')
    """

    loss: Any = parameter(default="hinge", rule=_LOSS, kw_only=False)
    penalty: Any = parameter(default="l2", rule=ANY_PENALTY, kw_only=False)
    alpha: float = parameter(default=1.0, rule=STRENGTH)
    l1_ratio: float = parameter(default=0.5, rule=SHARE)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = self.loss if callable(self.loss) else CLASSIFICATION_LOSSES[self.loss]
        return problem.mean(loss(problem.margin)) + penalty(self.penalty, problem.w, self.alpha, self.l1_ratio)
