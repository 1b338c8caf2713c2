"""Coverage and width of conformal intervals on data sets that nobody made for them."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks._measure import Timing, seconds
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data
from benchmarks.learn._fits import california_housing

Vector = NDArray[np.float64]

_ALPHA = 0.1


def _table(name: str) -> tuple[Vector, Vector] | None:
    """A data set by name: features, and the last column as the target."""
    path = _data.shared_file(f"regression/{name}")
    if path is None:
        return None
    if name.endswith(".csv.gz"):
        with gzip.open(path, "rt") as file:
            table = np.array([[float(value) for value in row] for row in list(csv.reader(file))[1:]])
        return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path))
    return np.asarray(X.toarray()), np.asarray(y)


@benchmark
def conformal_coverage(config: Config) -> Iterator[Row]:
    """90 % intervals of a pair of quantiles over random halves: how far the mean coverage is from 90 %."""
    from sklearn.datasets import load_diabetes

    from varopt import learn

    sources = {
        "diabetes": load_diabetes(return_X_y=True),
        "abalone": _table("abalone.bz2"),
        "california_housing": california_housing(),
        "elevators": _table("elevators.csv.gz"),
        "kin8nm": _table("kin8nm.csv.gz"),
    }
    for source, data in config.pick(sources, {"diabetes": sources["diabetes"]}).items():
        for method in ("split", "cv+"):
            name = f"90 % intervals, {source}, {method}"
            if data is None:
                yield Row(name, "varopt.learn", "", math.nan, 1.0, skipped=f"no file {source} beside the project")
                continue
            X, y = data
            covered, widths, spent = [], [], []
            for seed in range(config.pick(20, 2)):
                order = np.random.default_rng(seed).permutation(len(y))[:4000]
                train, test = np.array_split(order, 2)
                model = learn.ConformalIntervals(alpha=_ALPHA, method=method, random_state=seed)
                spent.append(seconds(lambda model=model, X=X, y=y, train=train: model.fit(X[train], y[train])))  # type: ignore[misc]
                low, high = model.predict_interval(X[test]).T
                covered.append(float(np.mean((low <= y[test]) & (y[test] <= high))))
                widths.append(float(np.mean(high - low)) / float(np.std(y)))
            yield Row(
                name, "varopt.learn", "distance of the mean coverage from 90 % / 2 %",
                abs(float(np.mean(covered)) - 0.9) / 0.02, config.pick(1.0, math.inf),
                timing=Timing(spent[0], tuple(spent)),
                note=f"covers {np.mean(covered):.3f}, width {np.mean(widths):.2f} standard deviations of y,"
                f" {len(covered)} halves of at most 4,000 rows",
            )  # fmt: skip
