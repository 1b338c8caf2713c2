"""Estimators beside scikit-learn's: what a certified fit costs a user, validation and all."""

from __future__ import annotations

import csv
import gzip
import math
import warnings
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import varopt as vo
from benchmarks._measure import Timing, compare, peak_memory, seconds
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data

Vector = NDArray[np.float64]


def california_housing() -> tuple[Vector, Vector] | None:
    """20,433 x 8 in raw units, rows with missing values left out, or scikit-learn's 20,640; None without either."""
    path = _data.shared_file("regression/california_housing.csv.gz")
    if path is None:
        from sklearn.datasets import fetch_california_housing

        return cast("tuple[Vector, Vector] | None", _data.downloaded(lambda: fetch_california_housing(return_X_y=True)))
    with gzip.open(path, "rt") as file:
        rows = [row[:9] for row in list(csv.reader(file))[1:]]
    table = np.array([[float(value) for value in row] for row in rows if "" not in row])
    return table[:, :8], table[:, 8]


@benchmark
def nineteen_quantiles(config: Config) -> Iterator[Row]:
    """All of 0.05 .. 0.95 on every row, against one level of scikit-learn on 5,000 rows."""
    from sklearn.linear_model import QuantileRegressor

    from varopt import learn

    name, data = "quantiles 0.05 .. 0.95, california_housing", california_housing()
    if data is None:
        yield Row(name, "varopt.learn", "", math.nan, 1.0, skipped=_data.absent("california_housing"))
        return
    X, y = (values[: config.pick(len(data[1]), 500)] for values in data)
    few = config.pick(5_000, 100)
    levels = np.round(np.arange(0.05, 0.96, 0.05), 2)
    model = learn.QuantileRegressor(quantile=levels, alpha=0.0).fit(X, y)
    timed = compare(
        lambda: learn.QuantileRegressor(quantile=levels, alpha=0.0).fit(X, y),
        lambda: QuantileRegressor(quantile=0.5, alpha=0.0).fit(X[:few], y[:few]),
        rounds=config.pick(3, 1),
    )
    worst = int(np.argmax(model.gap_ / model.objective_))
    yield Row(
        name, "varopt.learn", f"19 levels, {len(y)} rows / scikit-learn, 1 level, {few} rows", timed.ratio,
        config.pick(1.0, math.inf), timing=timed.candidate, baseline=timed.baseline, objective=model.objective_[worst],
        lower=model.lower_bound_[worst], gap=model.gap_[worst],
        status="ok" if model.gap_[worst] <= 1e-9 * model.objective_[worst] else "a gap is above 1e-9",
    )  # fmt: skip


@benchmark
def estimator_over_engine(config: Config) -> Iterator[Row]:
    """Many rows: what validation, merging of equal rows and the rest add to the solve."""
    from varopt import learn

    n, p = config.pick((1_000_000, 20), (5_000, 5))
    X, y = _data.heavy_tails(n, p)

    def engine() -> Any:
        w, b = vo.Variable(p), vo.Variable()
        return vo.minimize((1.0 / n) * vo.sum(vo.pinball(y - X @ w - b, 0.7)))

    def estimator() -> Any:
        return learn.QuantileRegressor(quantile=0.7, alpha=0.0).fit(X, y)

    timed = compare(estimator, engine, rounds=config.pick(3, 1))
    model = estimator()
    yield Row(
        f"quantile regression {n} x {p}", "varopt.learn", "estimator / engine", timed.ratio, config.pick(3.0, math.inf),
        timing=timed.candidate, baseline=timed.baseline, objective=model.objective_, lower=model.lower_bound_,
        gap=model.gap_, peak_bytes=peak_memory(estimator), data_bytes=X.nbytes,
        memory_target=config.pick(3.0, math.inf),
    )  # fmt: skip


@benchmark
def linear_support_vectors(config: Config) -> Iterator[Row]:
    """scikit-learn's objective, raw or sparse data, against LIBLINEAR where it becomes as accurate."""
    from sklearn.svm import LinearSVC

    from varopt import learn

    for source in config.pick(["breast_cancer", "german.numer", "a9a.bz2", "w8a.bz2", "ijcnn1.bz2", "reuters.bz2"], []):
        for cost in (0.01, 1.0, 100.0):
            name, data = f"LinearSVC, {source}, C = {cost:g}", _sparse(source)
            if data is None:
                yield Row(name, "varopt.learn", "", math.nan, 1.0, skipped=_data.absent(source))
                continue
            X, y = data
            ours = learn.LinearSVC(loss="hinge", C=cost, tol=1e-6, penalize_intercept=True, time_limit=120.0)
            cold, warm = seconds(lambda ours=ours, X=X, y=y: _quiet(ours, X, y)), math.inf  # type: ignore[misc]
            if cold < 20.0:
                warm = seconds(lambda ours=ours, X=X, y=y: _quiet(ours, X, y))  # type: ignore[misc]
            best, spent, excess = min(cold, warm), math.inf, math.inf
            # It climbs until it is as accurate, or has taken five times as long and has lost.
            for tolerance, steps in ((1e-3, 1_000), (1e-4, 1_000), (1e-7, 1_000), (1e-7, 10_000), (1e-9, 100_000)):
                theirs = LinearSVC(loss="hinge", C=cost, tol=tolerance, max_iter=steps, random_state=0)
                spent = seconds(lambda theirs=theirs, X=X, y=y: _quiet(theirs, X, y))  # type: ignore[misc]
                coef = np.append(theirs.coef_, theirs.intercept_)
                losses = np.maximum(1.0 - y * theirs.decision_function(X), 0.0)
                excess = (0.5 * coef @ coef + cost * losses.sum()) / ours.lower_bound_ - 1.0
                if excess <= 1e-6 or spent > 5.0 * best:
                    break
            yield Row(
                name, "varopt.learn", "ours / LIBLINEAR", best / spent, 1.0 if excess <= 1e-6 else math.inf,
                timing=Timing(cold, (best,)), baseline=Timing(spent, (spent,)), objective=ours.objective_,
                lower=ours.lower_bound_, gap=ours.gap_,
                status="ok" if ours.gap_ <= 1e-6 * ours.objective_ else "the gap is above 1e-6",
                note=f"LIBLINEAR ends {excess:.1e} above the bound",
            )  # fmt: skip


@benchmark
def kernel_support_vectors(config: Config) -> Iterator[Row]:
    """An RBF kernel, against LIBSVM with scikit-learn's default tolerance, which is far less accurate."""
    from sklearn.svm import SVC

    from varopt import learn

    for source in config.pick(["heart_scale", "german.numer", "splice", "10,000 x 20"], ["200 x 5"]):
        generated = " x " in source
        name, data = f"SVC, RBF, {source}", None
        if generated:
            n, p = (int(size.replace(",", "")) for size in source.split(" x "))
            data = _data.two_gaussians(n, p)
        elif (path := _data.shared_file(f"libsvm/{source}")) is not None:
            data = _data.svmlight(path)
        if data is None:
            yield Row(name, "varopt.learn", "", math.nan, 1.0, skipped=_data.absent(source))
            continue
        X, y = data
        for tolerance in (1e-3, 1e-7):
            ours, theirs = learn.SVC(), SVC(tol=tolerance)
            timed = compare(
                lambda ours=ours, X=X, y=y: ours.fit(X, y), lambda theirs=theirs, X=X, y=y: theirs.fit(X, y),  # type: ignore[misc]
                rounds=config.pick(3, 1),
            )  # fmt: skip
            reached = _primal(theirs, X, y)
            worse = ours.objective_ > reached * (1.0 + 1e-6)
            yield Row(
                name, "varopt.learn", f"ours / LIBSVM at {tolerance:g}", timed.ratio,
                2.0 if len(y) >= 10_000 and tolerance == 1e-3 else math.inf, timing=timed.candidate,
                baseline=timed.baseline, objective=ours.objective_, lower=ours.lower_bound_, gap=ours.gap_,
                status="the objective is above that of LIBSVM" if worse else "ok",
                note=f"LIBSVM ends {reached / ours.objective_ - 1.0:.1e} above",
            )  # fmt: skip


def _primal(model: Any, X: Vector, y: Vector) -> float:
    """The objective of an RBF machine of two classes."""
    from sklearn.metrics.pairwise import rbf_kernel

    beta = model.dual_coef_[0]
    norm = beta @ rbf_kernel(model.support_vectors_, gamma=model._gamma) @ beta
    return float(0.5 * norm + model.C * np.maximum(1.0 - y * model.decision_function(X), 0.0).sum())


def _quiet(model: Any, X: Any, y: Vector) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def _sparse(source: str) -> tuple[Any, Vector] | None:
    if source == "breast_cancer":
        return _data.breast_cancer()
    path = _data.shared_file(f"libsvm/{source}")
    data = _data.from_openml(_data.ON_OPENML[source]) if path is None and source in _data.ON_OPENML else None
    if path is not None:
        from sklearn.datasets import load_svmlight_file

        data = load_svmlight_file(str(path))
    if data is None:
        return None
    X, y = sp.csr_matrix(data[0]), data[1]
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # all that LIBLINEAR takes
    return X, np.asarray(y, dtype=np.float64)
