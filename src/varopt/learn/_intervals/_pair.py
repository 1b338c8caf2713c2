"""A pair of quantiles, of a model that has one."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone

from varopt.learn._intervals._refits import fit_weighted

__all__ = ["QuantilePair"]


class QuantilePair(RegressorMixin, BaseEstimator):
    """The same model at each of some levels, fitted one by one; it predicts a column for each."""

    def __init__(self, estimator: Any, levels: Any) -> None:
        self.estimator = estimator
        self.levels = levels

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> QuantilePair:
        """Fit the model at each level."""
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        models = [clone(self.estimator).set_params(quantile=level) for level in self.levels]
        self.estimators_ = [fit_weighted(model, X, y, weight) for model in models]
        return self

    def predict(self, X: Any) -> Any:
        """The quantiles, a column for each level."""
        return np.column_stack([model.predict(X) for model in self.estimators_])
