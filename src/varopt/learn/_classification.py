"""Linear classifiers with a certified objective: two classes, or many one against the rest."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model._base import LinearClassifierMixin, SparseCoefMixin
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets

from varopt.learn._base import Certified, Clock, Fit
from varopt.learn._linear import NON_NEGATIVE, POSITIVE, SHARE
from varopt.learn._problem import CLASSIFICATION_LOSSES, LinearProblem, penalty
from varopt.learn._rows import Rows

__all__ = ["CompositeClassifier", "LinearClassifier", "LinearSVC"]

Vector = NDArray[np.float64]


class LinearClassifier(LinearClassifierMixin, SparseCoefMixin, Certified):
    """A linear classifier, one against the rest where there are many classes. Subclasses state the objective."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = Certified._parameter_constraints | {
        "fit_intercept": ["boolean"],
        "warm_start": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights: zero is an absent row, two is a row given twice.

        Returns
        -------
        self
        """
        self._validate_params()
        data, labels, weight = self._read(X, y, sample_weight)
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
        rows = self._rows(data, codes, weight * balance[codes])
        fits = self._fits(rows, self._clock())
        self._publish(
            [fit.solved for fit in fits], len(fits) > 1, X,
            coef_=np.array([fit.coef for fit in fits], dtype=data.dtype),
            intercept_=np.array([fit.intercept for fit in fits], dtype=data.dtype) if self.fit_intercept else 0.0,
        )  # fmt: skip
        return self

    def _fits(self, rows: Rows, clock: Clock) -> list[Fit]:
        positives = [1] if self.classes_.size == 2 else range(self.classes_.size)
        starts = self._starts(len(positives), rows.X.shape[1])
        fits = []
        for positive, start in zip(positives, starts, strict=True):
            signs = np.where(rows.y == positive, 1.0, -1.0)
            problem = LinearProblem(rows.X, signs, rows.weight, self.fit_intercept)
            fits.append(self._fit_problem(problem, start, clock, 0.0))
        return fits


class LinearSVC(LinearClassifier):
    """Linear support vector classification with a certified gap.

    Minimises ``R(w) + C * sum_i loss(y_i * (w'x_i + b))``. With ``penalty="l2"``, ``R(w) = 0.5 * ||w||^2_2`` and the
    objective is that of `sklearn.svm.LinearSVC`, except that the intercept is not penalised; `penalize_intercept`
    restores scikit-learn's objective.

    Parameters
    ----------
    penalty : {"l2", "l1", "elasticnet", "fused"}, default="l2"
        R: ``0.5 ||w||^2_2``, ``||w||_1``, ``l1_ratio ||w||_1 + 0.5 (1 - l1_ratio) ||w||^2_2``, or, for features in
        an order, ``l1_ratio ||w||_1 + (1 - l1_ratio) sum_j |w_{j+1} - w_j|``.
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        ``max(1 - z, 0)^2``, or ``max(1 - z, 0)``.
    dual : "auto" or bool, default="auto"
        Accepted for compatibility, without effect: every pair of loss and penalty is solved.
    {tol}
    C : float, default=1.0
        Weight of the loss, positive.
    multi_class : {"ovr"}, default="ovr"
        Many classes are fitted one against the rest.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    intercept_scaling : float, default=1.0
        With `penalize_intercept`, the value of the constant feature whose coefficient is penalised.
    class_weight : dict or "balanced", default=None
        Factors of C by class; "balanced" gives classes the same weight in total.
    {verbose}
    {random_state}
    {max_iter}
    l1_ratio : float, default=0.5
        The share of the L1 penalty in "elasticnet" and "fused".
    penalize_intercept : bool, default=False
        Whether the intercept is penalised like the coefficient of a constant feature, as in LIBLINEAR.
    {time_limit}
    {warm_start}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,), or 0.0 without an intercept
    classes_ : ndarray of shape (n_classes,)
    {fitted}

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearClassifier._parameter_constraints | {
        "penalty": [StrOptions({"l1", "l2", "elasticnet", "fused"})],
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        "dual": ["boolean", StrOptions({"auto"})],
        "C": [POSITIVE],
        "multi_class": [StrOptions({"ovr"})],
        "intercept_scaling": [POSITIVE],
        "random_state": ["random_state"],
        "l1_ratio": [SHARE],
        "penalize_intercept": ["boolean"],
    }
    _stalled = "Liblinear failed to converge, increase the number of iterations. "

    def __init__(
        self, penalty: str = "l2", loss: str = "squared_hinge", *, dual: Any = "auto", tol: float = 1e-9,
        C: float = 1.0, multi_class: str = "ovr", fit_intercept: bool = True, intercept_scaling: float = 1.0,
        class_weight: Any = None, verbose: int = 0, random_state: Any = None, max_iter: int = 1000,
        l1_ratio: float = 0.5, penalize_intercept: bool = False, time_limit: float | None = None,
        warm_start: bool = False,
    ) -> None:  # fmt: skip
        self.penalty = penalty
        self.loss = loss
        self.dual = dual
        self.tol = tol
        self.C = C
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.l1_ratio = l1_ratio
        self.penalize_intercept = penalize_intercept
        self.time_limit = time_limit
        self.warm_start = warm_start

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        regular = penalty(self.penalty, problem.w, 1.0, self.l1_ratio)
        if problem.b is not None and self.penalize_intercept:
            regular = regular + penalty(self.penalty, problem.b * (1.0 / self.intercept_scaling), 1.0, self.l1_ratio)
        return regular + self.C * problem.total(CLASSIFICATION_LOSSES[self.loss](problem.margin))


class CompositeClassifier(LinearClassifier):
    """A linear classifier with any loss and any penalty, and a certified gap where both are convex.

    Minimises ``1 / n_samples * sum_i loss(y_i * (w'x_i + b)) + alpha * R(w)``, the objective of
    `sklearn.linear_model.SGDClassifier`.

    Parameters
    ----------
    loss : {"hinge", "squared_hinge", "modified_huber", "ramp", "zero_one"} or callable, default="hinge"
        A loss of margins; a callable maps margins to terms, as `varopt.hinge` does.
    penalty : {"l2", "l1", "elasticnet", "fused", "trend"}, callable or None, default="l2"
        R, as in `CompositeRegressor`; a callable maps coefficients to an objective, as `varopt.norm1` does.
    {alpha}
    l1_ratio : float, default=0.5
        The share of the L1 penalty in "elasticnet", "fused" and "trend".
    {fit_intercept}
    class_weight : dict or "balanced", default=None
        Factors of the weights by class.
    {tol}
    {max_iter}
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
    >>> import varopt as vo
    >>> from varopt.learn import CompositeClassifier
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array(["no", "no", "yes", "yes"])
    >>> CompositeClassifier(loss=vo.squared_hinge, penalty=vo.norm1, alpha=0.1).fit(X, y).predict([[0.5]])
    array(['yes'], dtype='<U3')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearClassifier._parameter_constraints | {
        "loss": [StrOptions(set(CLASSIFICATION_LOSSES)), callable],
        "penalty": [StrOptions({"l1", "l2", "elasticnet", "fused", "trend"}), callable, None],
        "alpha": [NON_NEGATIVE],
        "l1_ratio": [SHARE],
    }

    def __init__(
        self, loss: Any = "hinge", penalty: Any = "l2", *, alpha: float = 1.0, l1_ratio: float = 0.5,
        fit_intercept: bool = True, class_weight: Any = None, tol: float = 1e-9, max_iter: int = 1000,
        time_limit: float | None = None, warm_start: bool = False, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = self.loss if callable(self.loss) else CLASSIFICATION_LOSSES[self.loss]
        return problem.mean(loss(problem.margin)) + penalty(self.penalty, problem.w, self.alpha, self.l1_ratio)
