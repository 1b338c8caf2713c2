"""How far above its own optimum a fitted model of scikit-learn is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.validation import check_is_fitted, check_X_y

import varopt.model as vo
from varopt.certificates import PointGap
from varopt.learn._base import agreed
from varopt.learn._classification import LinearSVC
from varopt.learn._compat import _check_sample_weight, to_numpy
from varopt.learn._data import StoredProblem, StoredRows, signs, stored_rows
from varopt.learn._huber import HuberRegressor
from varopt.learn._linear import ElasticNet, Lasso, LinearSVR
from varopt.learn._problem import LinearProblem
from varopt.learn._quantile import QuantileRegressor
from varopt.optimize import certify as certify_point

__all__ = ["certify"]

Vector = NDArray[np.float64]


def certify(
    model: Any, X: Any, y: Any, sample_weight: Any = None, *, tol: float = 1e-9, memory: int | str | None = None
) -> PointGap | list[PointGap]:
    """Bracket the objective of a fitted scikit-learn model: how far above the optimum its coefficients are.

    Parameters
    ----------
    model : estimator
        A fitted `LinearSVC`, `SVC`, `LinearSVR`, `Lasso`, `ElasticNet`, `QuantileRegressor` or `HuberRegressor` of
        scikit-learn.
    X, y, sample_weight
        What it was fitted to; for the linear ones they need not be in memory, as for the estimators of `varopt.learn`.
    tol : float
        How close the lower bound is to the optimum, relative to it.
    memory : int or str, optional
        As for `varopt.minimize`.

    Returns
    -------
    PointGap, or a list of them
        One for each class where there are more than two.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.svm import LinearSVC
    >>> from varopt.learn import certify
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> import warnings; warnings.simplefilter("ignore")     # LIBLINEAR says that it has not converged
    >>> gap = certify(LinearSVC(loss="hinge", max_iter=100, random_state=0).fit(X, y), X, y)
    >>> gap.excess > 0.01
    True
    """
    name = type(model).__name__
    if name not in _KINDS or not type(model).__module__.startswith("sklearn."):
        raise ValueError(f"model must be one of {', '.join(_KINDS)} of scikit-learn; got {type(model).__name__}.")
    check_is_fitted(model)
    gaps = _KINDS[name](model, X, y, sample_weight, {"tol": tol, "memory": memory})
    return gaps if len(gaps) > 1 else gaps[0]


def _linear(model: Any, ours: Any, X: Any, targets: list[Any], weight: Any, data: Any, options: Any) -> list[PointGap]:
    """A bracket for each line of coefficients and its target."""
    coefs, intercepts = np.atleast_2d(model.coef_), np.ravel(model.intercept_)
    gaps, total = [], data.total() if data is not None else 0.0
    for k, target in enumerate(targets):
        problem: LinearProblem
        if data is None:
            problem = LinearProblem(X, target, weight, bool(model.fit_intercept))
        else:
            problem = StoredProblem(data, target, bool(model.fit_intercept), total)
        at = {problem.w: coefs[k]} | ({problem.b: float(intercepts[k])} if problem.b is not None else {})
        level = {"level": ours.quantile} if hasattr(ours, "quantile") else {}
        gaps.append(certify_point(ours._objective(problem, **level), at, **options))
    return gaps


def _arrays(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Vector]:
    """Data as scikit-learn checks them, of the features, targets and classes that the model was fitted to."""
    X, y, sample_weight = to_numpy(X, y, sample_weight)
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=np.float64, multi_output=True)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample_weight must not be zero for all rows.")
    if X.shape[1] != model.n_features_in_:
        raise ValueError(f"X must have the {model.n_features_in_} features of the model; got {X.shape[1]}.")
    if hasattr(model, "classes_"):
        if unknown := sorted(set(np.unique(y).tolist()) - set(model.classes_.tolist())):
            raise ValueError(f"y must hold classes of the model, {model.classes_.tolist()}; got {unknown[0]!r}.")
        return X, y, weight
    y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    if y.shape[1] != len(np.atleast_2d(model.coef_)):
        raise ValueError(
            f"y must have as many targets as the model, {len(np.atleast_2d(model.coef_))}; got {y.shape[1]}."
        )
    return X, y, weight


def _regression(ours: Callable[[Any], Any]) -> Callable[..., list[PointGap]]:
    def run(model: Any, X: Any, y: Any, sample_weight: Any, options: Any) -> list[PointGap]:
        if getattr(model, "positive", False):
            raise ValueError("positive=True is not certified: the bracket would be that of coefficients of all signs.")
        data = stored_rows(X, y, sample_weight)
        if data is not None:
            return _linear(model, ours(model), data.X, [data.y], data.weight, data, options)
        X, y, weight = _arrays(model, X, y, sample_weight)
        return _linear(model, ours(model), X, list(y.T), weight, None, options)

    return run


def _classification(model: Any, X: Any, y: Any, sample_weight: Any, options: Any) -> list[PointGap]:
    if model.class_weight is not None or getattr(model, "multi_class", "ovr") != "ovr":
        raise ValueError("class_weight and multi_class='crammer_singer' are not certified: pass sample_weight instead.")
    ours = LinearSVC(
        model.penalty, model.loss, C=model.C, penalize_intercept=True, intercept_scaling=model.intercept_scaling
    )
    positives = model.classes_[1:] if model.classes_.size == 2 else model.classes_
    data = stored_rows(X, y, sample_weight)
    if data is not None:
        return _linear(model, ours, data.X, [signs(data.y, k) for k in positives], data.weight, data, options)
    X, y, weight = _arrays(model, X, y, sample_weight)
    return _linear(model, ours, X, [np.where(y == k, 1.0, -1.0) for k in positives], weight, None, options)


def _kernel(model: Any, X: Any, y: Any, sample_weight: Any, options: Any) -> list[PointGap]:
    """A machine in its coefficients: ``a'Ka / 2 + C sum_i c_i hinge(t_i ((K a)_i + b))``."""
    if model.classes_.size != 2 or model.class_weight is not None or callable(model.kernel):
        raise ValueError("an SVC is certified for two classes, without class_weight and with a kernel by name.")
    X, y, weight = _arrays(model, X, y, sample_weight)
    gamma = model.gamma
    if isinstance(gamma, str):
        dense = X.toarray() if hasattr(X, "toarray") else X
        spread = float(dense.var()) if gamma == "scale" else 1.0
        gamma = 1.0 / (X.shape[1] * spread)
    given = {
        "rbf": {"gamma": gamma},
        "linear": {},
        "poly": {"gamma": gamma, "degree": model.degree, "coef0": model.coef0},
    }
    if model.kernel not in given:
        raise ValueError(f"kernel must be one of {', '.join(map(repr, given))} to be certified; got {model.kernel!r}.")
    K = pairwise_kernels(X, metric=model.kernel, **given[model.kernel])
    K = 0.5 * (K + K.T)
    a, b = vo.Variable(len(K), name="a"), vo.Variable(name="b")
    signed = np.where(y == model.classes_[1], 1.0, -1.0)
    if model.shape_fit_[0] != len(K):
        raise ValueError(f"X must hold the {model.shape_fit_[0]} rows that the model was fitted to; got {len(K)}.")
    at, dual = np.zeros(len(K)), model.dual_coef_
    at[model.support_] = np.ravel(dual.toarray() if hasattr(dual, "toarray") else dual)
    f = 0.5 * vo.quad_form(a, K) + model.C * vo.sum(weight * vo.hinge(signed * (K @ a + b)))
    return [certify_point(f, {a: at, b: float(model.intercept_[0])}, **options)]


def _huber(model: Any, X: Any, y: Any, sample_weight: Any, options: Any) -> list[PointGap]:
    """Coefficients and scale together: the bound of our own fit, and the value of theirs."""
    data = stored_rows(X, y, sample_weight)
    ours = HuberRegressor(epsilon=model.epsilon, alpha=model.alpha, fit_intercept=model.fit_intercept, **options)
    if data is not None:
        return [_stored_huber(model, ours.fit(X, y, sample_weight), data, options["memory"])]
    X, y, weight = _arrays(model, X, y, sample_weight)
    ours.fit(X, y[:, 0], weight)
    z = np.abs(y[:, 0] - X @ model.coef_ - model.intercept_) / model.scale_
    losses = np.where(z < model.epsilon, z**2, 2.0 * model.epsilon * z - model.epsilon**2)
    value = float(weight @ (model.scale_ * (1.0 + losses)) + model.alpha * (model.coef_ @ model.coef_))
    # Sums of numbers that are not negative, of residuals that rounding of predictions moves, which may cancel.
    reach = abs(X) @ np.abs(model.coef_) + abs(float(model.intercept_)) + np.abs(y[:, 0])
    off = 2.0 * float(model.epsilon) * 2.0**-52 * (X.shape[1] + 2) * float(weight @ reach)
    upper = (value + off) * (1.0 + 1e-13) + 1e-300
    certificate: Any = ours.certificate_
    return [PointGap(agreed(float(ours.lower_bound_), upper), upper, certificate.assumption)]


def _stored_huber(model: Any, ours: HuberRegressor, data: StoredRows, memory: Any) -> PointGap:
    """The same by a pass over the data: at a scale the objective is a sum of Huber losses."""
    from varopt.optimize import enclosed_stored  # loaded when first used

    scale, total = float(model.scale_), data.total()
    problem = StoredProblem(data, data.y, bool(model.fit_intercept), total)
    at = {problem.scaled: model.coef_} | ({problem.b: float(model.intercept_)} if problem.b is not None else {})
    objective = ours._objective(problem, scale=scale)
    point = np.concatenate([np.ravel(at[v]).astype(np.float64) for v in objective.variables])
    upper = (total * scale + 2.0 / scale * enclosed_stored(objective, point, memory)[1]) * (1.0 + 1e-13) + 1e-300
    return PointGap(agreed(float(ours.lower_bound_), upper), upper, ours.certificate_.assumption)  # type: ignore[union-attr]


_KINDS: dict[str, Callable[..., list[PointGap]]] = {
    "LinearSVC": _classification,
    "SVC": _kernel,
    "LinearSVR": _regression(
        lambda m: LinearSVR(
            epsilon=m.epsilon, loss=m.loss, C=m.C, penalize_intercept=True, intercept_scaling=m.intercept_scaling
        )
    ),
    "Lasso": _regression(lambda m: Lasso(alpha=m.alpha)),
    "ElasticNet": _regression(lambda m: ElasticNet(alpha=m.alpha, l1_ratio=m.l1_ratio)),
    "QuantileRegressor": _regression(lambda m: QuantileRegressor(quantile=m.quantile, alpha=m.alpha)),
    "HuberRegressor": _huber,
}
