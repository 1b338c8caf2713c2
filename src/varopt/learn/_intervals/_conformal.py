"""Conformal prediction: intervals whose coverage does not hang on a model being right."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from varopt.learn._compat import HasMethods, _check_sample_weight, validate_data
from varopt.learn._data import distinct_rows
from varopt.learn._intervals._pair import QuantilePair
from varopt.learn._intervals._refits import fit_weighted, refits
from varopt.learn._intervals._weighted import upper_quantile
from varopt.learn._parameters import LEVEL, Declared, Rule, one_of, parameter
from varopt.learn._paths import QuantileRegressorCV
from varopt.learn._quantile import QuantileRegressor

__all__ = ["ConformalIntervals"]

Vector = NDArray[np.float64]

_MODEL = Rule(
    "A regressor. One that has a parameter `quantile` is fitted at two levels, ``alpha / 2`` and ``1 - alpha / 2``, or"
    " at those that it has if they are two: in one fit where it takes two, else in one for each. By default"
    " `QuantileRegressor` without a penalty.",
    HasMethods(["fit", "predict"]),
    None,
    type="estimator",
)
_METHOD = Rule(
    '"split" calibrates on rows of their own; "cv+" on every row, by models fitted without its fold; "jackknife+" by'
    " models fitted without the row alone.",
    one_of("split", "cv+", "jackknife+"),
)
_CALIBRATION = Rule('The share of the rows that "split" calibrates on.', LEVEL)
_FOLDS = Rule('The folds of "cv+"; by default ten, drawn at random.', "cv_object")
_SEED = Rule("Draws the folds.", "random_state")
_INTERVALS_AT_ONCE = 1 << 22  # intervals of single rows that are made at a time


class ConformalIntervals(MetaEstimatorMixin, RegressorMixin, Declared, BaseEstimator):
    """Prediction intervals around a regressor, with the coverage that is asked for, whatever the data.

    With rows that are alike (exchangeable), an interval of a new row covers its target with a probability of at least
    ``1 - alpha`` by "split", and of ``1 - 2 alpha`` by "cv+" and "jackknife+", which mostly come close to ``1 - alpha``
    and are narrower, since they use every row twice.

    {parameters}

    Attributes
    ----------
    estimator_ : estimator
        The model that `predict` uses: fitted to all rows, or to those that "split" does not calibrate on.
    estimators_ : list of estimator
        The models of "cv+" and "jackknife+", each fitted without some rows.
    scores_ : ndarray of shape (n_calibration,)
        How far each target that calibrates is from its prediction, or outside its two quantiles, which is negative
        inside.
    weights_ : ndarray of shape (n_calibration,)
        The weights of these rows.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    Around a pair of quantiles this is conformalised quantile regression: intervals are wide where targets spread, and
    narrow where they do not. Weights count in the fits and in the calibration: two is a row given twice. Where new rows
    are unlike those of the training data, weights that say how much more likely a row is among the new ones restore the
    coverage; `predict_interval` takes those of the new rows.

    Refits begin from the fit to all rows: 2,000 fits of "jackknife+" of a pair of quantiles cost some hundred.

    "cv+" and "jackknife+" keep an entry for each new row and each calibration row while they predict.

    References
    ----------
    Romano, Patterson and Candès (2019), "Conformalized quantile regression"; Barber, Candès, Ramdas and Tibshirani
    (2021), "Predictive inference with the jackknife+"; Tibshirani, Foygel Barber, Candès and Ramdas (2019), "Conformal
    prediction under covariate shift".

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import ConformalIntervals
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(1.0, 3.0, size=(2000, 1))
    >>> y = X[:, 0] * rng.exponential(size=2000)
    >>> model = ConformalIntervals(alpha=0.2).fit(X[:1000], y[:1000])
    >>> low, high = model.predict_interval(X[1000:]).T
    >>> round(float(np.mean((low <= y[1000:]) & (y[1000:] <= high))), 1)
    0.8
    """

    estimator: Any = parameter(default=None, rule=_MODEL, kw_only=False)
    alpha: float = parameter(default=0.1, rule=Rule("The share of targets that may be missed.", LEVEL))
    method: str = parameter(default="split", rule=_METHOD)
    calibration: float = parameter(default=0.25, rule=_CALIBRATION)
    cv: Any = parameter(default=None, rule=_FOLDS)
    random_state: Any = parameter(default=None, rule=_SEED)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model, or the models, and calibrate.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights: zero is an absent row, two is a row given twice.

        Returns
        -------
        self
        """
        self._validate_params()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32), y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not self._own_folds:
            # Rows that are given twice are one of twice the weight: no fold tells them apart.
            rows = distinct_rows(X, y, weight)
            X, y, weight = rows.X, rows.y, rows.weight
        else:
            X, y, weight = X[weight > 0.0], y[weight > 0.0], weight[weight > 0.0]
        if y.size < 2:
            raise ValueError(f"{type(self).__name__} needs at least two rows with a weight; got {y.size} sample.")
        model, folds = self._model(), self._folds(X, y)
        self.estimators_: list[Any] = []
        if self.method == "split":
            ((train, test),) = folds
            self.estimator_ = fit_weighted(model, X[train], y[train], weight[train])
            self.scores_, self.weights_ = self._score(self.estimator_, X[test], y[test]), weight[test]
            return self
        self.estimator_ = fit_weighted(model, X, y, weight)
        tests = [test for _, test in folds]
        self.estimators_ = list(refits(self.estimator_, X, y, weight, tests))
        scores = [self._score(one, X[test], y[test]) for one, test in zip(self.estimators_, tests, strict=True)]
        self.scores_, self.weights_ = np.concatenate(scores), weight[np.concatenate(tests)]
        self._fold_of = np.repeat(np.arange(len(tests)), [len(test) for test in tests])
        return self

    def predict(self, X: Any) -> Any:
        """The prediction of the model, or the middle between its two quantiles.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        return np.mean(_ends(self.estimator_, X), axis=0)

    def predict_interval(self, X: Any, sample_weight: Any = None) -> NDArray[np.float64]:
        """The intervals.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        sample_weight : float or array-like of shape (n_samples,), default=None
            The weights of the new rows, where those of the training data say how likely a row is among them; one by
            default.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Lower and upper ends; infinite where there are too few rows for the coverage that is asked for.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        extra = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.method == "split":
            low, high = _ends(self.estimator_, X)
            margin = upper_quantile(self.scores_[None], self.weights_, extra, 1.0 - self.alpha)
            return _in_order(low - margin, high + margin)
        step = max(1, _INTERVALS_AT_ONCE // self.scores_.size)
        parts = [self._together(X[k : k + step], extra[k : k + step]) for k in range(0, X.shape[0], step)]
        return np.concatenate(parts)

    def _together(self, X: Any, extra: Vector) -> NDArray[np.float64]:
        """Intervals from all models, each with the scores of the rows that it was fitted without."""
        ends = np.stack([_ends(model, X) for model in self.estimators_])[self._fold_of]  # (rows, 2, new rows)
        low = -upper_quantile((self.scores_[:, None] - ends[:, 0]).T, self.weights_, extra, 1.0 - self.alpha)
        high = upper_quantile((ends[:, 1] + self.scores_[:, None]).T, self.weights_, extra, 1.0 - self.alpha)
        return _in_order(low, high)

    @property
    def _own_folds(self) -> bool:
        """Whether the folds are the user's, of the rows as they are."""
        return self.method == "cv+" and self.cv is not None and not isinstance(self.cv, Integral)

    def _model(self) -> Any:
        """The model to fit: one that has quantiles, at two of them."""
        pair = [self.alpha / 2.0, 1.0 - self.alpha / 2.0]
        if self.estimator is None:
            return QuantileRegressor(quantile=pair, alpha=0.0)
        model = clone(self.estimator)
        if is_classifier(model):
            raise ValueError(f"Intervals are those of a regressor, and {type(model).__name__} predicts classes.")
        given = model.get_params()
        if "quantile" not in given or given.get("loss", "quantile") != "quantile" or np.size(given["quantile"]) == 2:
            return model
        if isinstance(model, (QuantileRegressor, QuantileRegressorCV)):
            return model.set_params(quantile=pair)
        return QuantilePair(model, pair)

    def _folds(self, X: Any, y: Vector) -> list[tuple[Any, Any]]:
        n = y.size
        if self.method == "jackknife+":
            return [(np.delete(np.arange(n), [i]), np.array([i])) for i in range(n)]
        order = check_random_state(0 if self.random_state is None else self.random_state).permutation(n)
        if self.method == "split":
            count = min(n - 1, max(1, round(self.calibration * n)))
            return [(order[count:], order[:count])]
        if self._own_folds:
            return list(check_cv(self.cv).split(X, y))
        tests = np.array_split(order, min(n, 10 if self.cv is None else int(self.cv)))
        return [(np.setdiff1d(order, test), test) for test in tests]

    def _score(self, model: Any, X: Any, y: Vector) -> Vector:
        low, high = _ends(model, X)
        return np.asarray(np.maximum(low - y, y - high))


def _ends(model: Any, X: Any) -> NDArray[np.float64]:
    """Two rows of predictions: the two quantiles, or the same twice."""
    predicted = np.asarray(model.predict(X), dtype=np.float64)
    if predicted.ndim == 1:
        return np.stack([predicted, predicted])
    if predicted.shape[1] != 2:
        raise ValueError(f"estimator must predict one number or two quantiles a row; got {predicted.shape[1]}.")
    return np.sort(predicted, axis=1).T  # quantiles that cross are still two


def _in_order(low: Vector, high: Vector) -> NDArray[np.float64]:
    """Ends as columns; an interval that would be empty is a point between them."""
    crossed = low > high
    middle = 0.5 * (np.where(crossed, low, 0.0) + np.where(crossed, high, 0.0))
    return np.column_stack([np.where(crossed, middle, low), np.where(crossed, middle, high)])
