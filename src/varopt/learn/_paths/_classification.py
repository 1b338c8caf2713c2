"""A classifier whose weight of the loss is chosen by cross-validation."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import check_scoring

from varopt.learn._base import Lines
from varopt.learn._classification import LinearSVC
from varopt.learn._compat import LinearClassifierMixin, compute_class_weight
from varopt.learn._least_squares import checked
from varopt.learn._parameters import CLASS_WEIGHT, COUNT, SHARE, Rule, as_in, parameter
from varopt.learn._paths._search import Path, PathCV

__all__ = ["LinearSVCCV"]

Vector = NDArray[np.float64]

_WEIGHTS = Rule("Weights of the loss to choose from, or the number of them between 1e-4 and 1e4.", COUNT, "array-like")
_SCORING = Rule("A scorer of scikit-learn; accuracy by default.", str, callable, None)


class LinearSVCCV(LinearClassifierMixin, PathCV):
    """`LinearSVC` with `C` chosen by cross-validation.

    Minimises the objective of `LinearSVC`, for the C of the best mean score over the folds.

    {parameters}

    Attributes
    ----------
    C_ : float
        What was chosen.
    Cs_ : ndarray of shape (n_Cs,)
        The grid.
    scores_ : ndarray of shape (n_Cs, n_folds)
        Scores of the test rows.
    {lines}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from varopt.learn import LinearSVCCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearSVCCV(Cs=[0.01, 1.0, 100.0], cv=3).fit(X, y)
    >>> model.scores_.shape, model.score(X, y) > 0.9
    ((3, 3), True)
    """

    Cs: Any = parameter(default=10, rule=_WEIGHTS)
    penalty: str = parameter(default="l2", rule=as_in(LinearSVC, "penalty"))
    loss: str = parameter(default="squared_hinge", rule=as_in(LinearSVC, "loss"))
    l1_ratio: float = parameter(default=0.5, rule=SHARE)
    class_weight: Any = parameter(default=None, rule=CLASS_WEIGHT)
    intercept_scaling: float = parameter(default=1.0, rule=as_in(LinearSVC, "intercept_scaling"))
    penalize_intercept: bool = parameter(default=False, rule=as_in(LinearSVC, "penalize_intercept"))
    scoring: Any = parameter(default=None, rule=_SCORING)
    _model: ClassVar[type[Any]] = LinearSVC
    _axis, _measure = "C", "score"

    def _read_targets(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Vector]:
        return self._check(X, y, sample_weight)

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

    def _losses(self, model: Any, lines: Lines, X: Any, y: Any, weight: Vector) -> list[float]:
        losses = []
        for coef, intercept in zip(*lines, strict=True):
            model.coef_, model.intercept_ = coef.astype(X.dtype), intercept.astype(X.dtype)
            losses.append(math.nan if np.isnan(coef).any() else self._loss(model, X, y, weight))
        return losses

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        arrays = {"scores_": -table[0], "Cs_": np.array([settings["C"] for settings in paths[0]])}
        self._keep(X, arrays)
        self.C_ = chosen["C"]
