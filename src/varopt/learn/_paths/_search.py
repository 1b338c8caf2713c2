"""Strengths of penalties chosen by cross-validation, along paths in which every fit starts from the last."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, column_or_1d
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from varopt._threads import one_thread
from varopt.learn._base import INTERCEPT, Certified, Clock, Lines, OutOfTime
from varopt.learn._compat import LinearModel, _raise_for_params, _routing_enabled
from varopt.learn._constraints import Constrained
from varopt.learn._data import DataMemory
from varopt.learn._parameters import COUNT, POSITIVE, Rule, one_of, parameter
from varopt.learn._paths._curves import Curves
from varopt.model.maps import kept_products

__all__ = ["GRID", "LENGTH", "Path", "PathCV", "RegressorCV", "SearchCV"]

Vector = NDArray[np.float64]
Path = list[dict[str, float]]  # settings of a model, in an order in which neighbours are alike

GRID = Rule("Strengths to choose from, or the number of them.", COUNT, "array-like")
LENGTH = Rule("The length of an automatic grid, its smallest strength by its largest.", POSITIVE)
_JOBS = Rule("Folds fitted at the same time.", Integral, None, type="int")
_SHARED = Rule(
    "Seconds of the whole fit, shared by the folds and the last fit, which is kept with its bracket. What only some"
    " folds came to is not chosen, and losses not computed are nan.",
    POSITIVE,
    None,
)
_RULE = Rule(
    '"min" is the setting of least mean loss; "1se" the strongest penalty whose mean loss is within one standard error,'
    " over the folds, of that.",
    one_of("min", "1se"),
)
_SEARCH = 0.75  # share of the time that the folds have: the rest is for the last fit, on all rows
_FITTED = ("intercept_", "objective_", "lower_bound_", "gap_", "certificate_", "n_iter_", "sigma_path_")


class SearchCV(Certified):
    """Cross-validation over paths of settings: each fold walks each path once, from fit to fit."""

    rule: str = parameter(default="min", rule=_RULE)
    cv: Any = parameter(default=None, rule=Rule("The folds; five by default.", "cv_object"))
    n_jobs: int | None = parameter(default=None, rule=_JOBS)
    time_limit: float | None = parameter(default=None, rule=_SHARED)
    _model: ClassVar[type[Any]]
    _kept: ClassVar[tuple[str, ...]] = ("coef_",)  # of the last fit, beside what all models have
    _axis: ClassVar[str] = "alpha"  # what varies along a path
    _measure: ClassVar[str] = "mean squared error"

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        raise NotImplementedError

    def _loss(self, model: Any, X: Any, y: Any, weight: Vector) -> float:
        return float(np.average((y - model.predict(X)) ** 2, weights=weight))

    def _losses(self, model: Any, lines: Lines, X: Any, y: Any, weight: Vector) -> list[float]:
        """Those of many linear models at once; NaN for one without coefficients."""
        predictions = X @ lines[0].T.astype(X.dtype) + lines[1].astype(X.dtype)
        return [float(loss) for loss in np.average((y[:, None] - predictions) ** 2, weights=weight, axis=0)]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Any:
        """Choose the settings by cross-validation and fit the model with them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights of the fits, and of the test rows within each fold; folds count equally, and those without a weight
            not at all.
        **params : dict
            Passed to the splitter, where metadata routing is enabled: groups, for example.

        Returns
        -------
        self
        """
        clock = self._clock()
        _raise_for_params(params, self, "fit")
        self._validate_params()
        data, targets, weight = self._read_targets(X, y, sample_weight)
        splitter = self._splitter(targets)
        routed = (
            process_routing(self, "fit", sample_weight=sample_weight, **params)
            if _routing_enabled()
            else Bunch(splitter=Bunch(split={}))
        )
        folds = _weighted(list(splitter.split(data, targets, **routed.splitter.split)), weight)
        shared = {name: value for name, value in self.get_params().items() if name in self._model().get_params()}
        model = self._model(**(shared | self._fixed(targets, weight) | self._by_place(data.shape[1])))
        paths = self._paths(data, targets, weight)
        rounds = [math.ceil(left / effective_n_jobs(self.n_jobs)) for left in range(len(folds), 0, -1)]
        search = Clock(self.time_limit and _SEARCH * self.time_limit, clock.started)
        losses: list[list[float]] = [[] for _ in folds]
        try:
            losses = Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(_walk)(self, model, data, targets, weight, paths, *fold, search, after, made)
                for fold, after, made in zip(folds, rounds, losses, strict=True)
            )
        except KeyboardInterrupt:  # the threads that are left see it, and end
            search.stop()
        rows = np.full((len(folds), len(paths) * len(paths[0])), np.nan)
        for row, made in zip(rows, losses, strict=True):
            row[: len(made)] = made
        table = rows.reshape(len(folds), len(paths), -1).swapaxes(0, 1)
        chosen = self._best(paths, table, table.size - sum(map(len, losses)), search)
        model.set_params(**chosen)._fit_data(data, targets, weight, clock, DataMemory())
        self._report(paths, np.moveaxis(table, 2, 1), chosen, X)
        if is_classifier(self):
            self.classes_ = model.classes_
        self._keep(X, {name: getattr(model, name) for name in _FITTED + self._kept})
        self._curves = Curves(paths, np.moveaxis(table, 2, 1), chosen)
        return self

    def plot(self, axes: Any = None) -> Any:
        """The validation curve: the mean loss of the folds and its standard error, against the strength.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Where to draw; by default axes of their own.

        Returns
        -------
        matplotlib.axes.Axes
        """
        check_is_fitted(self)
        return self._curves.draw(self._axis, self._measure, axes)

    def _splitter(self, targets: Any) -> Any:
        return check_cv(self.cv, targets, classifier=is_classifier(self))

    def _best(self, paths: list[Path], table: Vector, missing: int, clock: Clock) -> dict[str, float]:
        """The settings that the rule says, of those that the most folds came to."""
        made = np.isfinite(table)
        counts = made.sum(axis=1)
        most = int(counts.max())
        mean = np.where(counts == most, np.where(made, table, 0.0).sum(axis=1) / max(1, most), np.inf)
        path, step = np.unravel_index(np.argmin(mean), mean.shape)
        if self.rule == "1se" and most > 1:  # paths go from strong to weak
            errors = np.where(made, table, 0.0)[path, :, step][made[path, :, step]]
            limit = mean[path, step] + float(np.std(errors, ddof=1)) / math.sqrt(most)
            step = np.argmax(mean[path] <= limit)
        if missing:
            compared = np.count_nonzero(counts == most) if most else 0
            warnings.warn(
                f"{missing} of {made.size} fits of the folds were not made, and their losses are nan: {compared} of"
                f" {counts.size} settings were compared, over {most} of {table.shape[1]} folds. "
                + ("The fit was interrupted." if clock.stopped else f"Raise time_limit, now {self.time_limit} s."),
                ConvergenceWarning,
                stacklevel=3,
            )
        return paths[int(path)][int(step)]

    def _fixed(self, y: Any, weight: Vector) -> dict[str, Any]:
        """Settings of the model that are no parameters of the search."""
        return {}

    def _by_place(self, count: int) -> dict[str, Any]:
        """Constraints of the coefficients, where a model has some."""
        return {}

    def _read_targets(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Vector]:
        data, targets, weight = self._check(X, y, sample_weight, y_numeric=True, multi_output=True)
        if targets.ndim > 1 and targets.shape[1] > 1:
            raise ValueError(f"y should be a 1d array, got an array of shape {targets.shape} instead.")
        return data, column_or_1d(targets, dtype=np.float64, warn=True), weight

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        raise NotImplementedError

    def get_metadata_routing(self) -> Any:
        """How metadata reach the splitter."""
        mapping = MethodMapping().add(caller="fit", callee="split")
        return MetadataRouter(owner=self).add_self_request(self).add(splitter=check_cv(self.cv), method_mapping=mapping)


class PathCV(Constrained, SearchCV):
    """A linear model chosen along paths."""

    fit_intercept: bool = parameter(default=True, rule=INTERCEPT)


class RegressorCV(RegressorMixin, PathCV, LinearModel):
    """A linear regressor chosen along paths."""


def _weighted(folds: list[tuple[Any, Any]], weight: Vector) -> list[tuple[Any, Any]]:
    """The folds that have rows to fit and rows to judge by: a row without a weight is none."""
    kept = [(train, test) for train, test in folds if weight[train].any() and weight[test].any()]
    if not kept:
        raise ValueError(f"None of the {len(folds)} folds has rows with a weight both to fit and to judge by.")
    return kept


def _walk(
    search: SearchCV, model: Any, X: Any, y: Any, weight: Vector, paths: list[Path], train: Any, test: Any,
    clock: Clock, parts: int, losses: list[float],
) -> list[float]:  # fmt: skip
    """The losses of one fold along the paths, as far as one of so many parts of the time left goes, appended."""
    if clock.is_up:
        return losses
    share = clock.part(parts, gives_up=True)
    model, walk = clone(model), [settings for path in paths for settings in path]
    given, left_out = (X[train], y[train], weight[train]), (X[test], y[test], weight[test])
    memory = DataMemory()
    try:
        with kept_products(), suppress(OutOfTime), one_thread():
            found = model._along(walk, given, memory, share)
            together = search._losses(model, found, *left_out) if found is not None else [math.nan] * len(walk)
            for k, (settings, loss) in enumerate(zip(walk, together, strict=True)):
                if math.isnan(loss):
                    if share.is_up or clock.is_up:  # a share of no time left is still some
                        break
                    if found is not None and k and not math.isnan(together[k - 1]):
                        model.coef_, model.intercept_ = found[0][k - 1], found[1][k - 1]
                    if hasattr(model, "warm_start"):  # a path begins anew: its strongest penalty leaves little to know
                        model.set_params(warm_start=k % len(paths[0]) > 0)
                    model.set_params(**settings)._fit_data(*given, share, memory)
                    loss = search._loss(model, *left_out)
                losses.append(loss)
    except KeyboardInterrupt:
        share.stop()
    return losses
