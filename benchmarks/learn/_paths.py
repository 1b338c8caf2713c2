"""Many fits that share work: cross-validation on small data, and the quantile process."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks._measure import compare, seconds
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data


@benchmark
def small_cross_validation(config: Config) -> Iterator[Row]:
    """Default settings, scikit-learn's tolerance of 1e-4 against a certified 1e-9."""
    import sklearn.linear_model as theirs
    from sklearn.datasets import load_breast_cancer, load_diabetes, make_regression

    from varopt import learn

    data = {
        "diabetes": load_diabetes(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
        "500 x 20": make_regression(500, 20, noise=10.0, random_state=0),
        "40 x 3": make_regression(40, 3, noise=10.0, random_state=0),
    }
    for source, (X, y) in config.pick(data, {"40 x 3": data["40 x 3"]}).items():
        for name in ("LassoCV", "ElasticNetCV"):
            ours, peer = getattr(learn, name)(), getattr(theirs, name)()
            timed = compare(
                lambda ours=ours, X=X, y=y: ours.fit(X, y * 1.0), lambda peer=peer, X=X, y=y: peer.fit(X, y * 1.0),  # type: ignore[misc]
                rounds=config.pick(5, 1), clock=time.process_time,
            )  # fmt: skip
            yield Row(
                f"{name}, {source}", "varopt.learn", "ours / scikit-learn", timed.ratio, config.pick(1.0, math.inf),
                timing=timed.candidate, baseline=timed.baseline, objective=ours.objective_, lower=ours.lower_bound_,
                gap=ours.gap_, note=f"alpha {ours.alpha_:.4g}, theirs {peer.alpha_:.4g}",
            )  # fmt: skip


@benchmark
def other_cross_validation(config: Config) -> Iterator[Row]:
    """What scikit-learn has no estimator for, in fits of one setting."""
    from sklearn.datasets import load_diabetes

    from varopt import learn

    X, y = load_diabetes(return_X_y=True)
    X, y = X[:: config.pick(1, 5)], y[:: config.pick(1, 5)]
    pairs: list[tuple[Any, Any]] = [
        (learn.FusedLassoCV(), learn.FusedLasso(0.05, 0.01)),
        (learn.QuantileRegressorCV(), learn.QuantileRegressor(alpha=0.001)),
    ]
    for search, one in pairs:
        timed = compare(
            lambda search=search: search.fit(X, y), lambda one=one: one.fit(X, y), rounds=config.pick(3, 1),  # type: ignore[misc]
            clock=time.process_time,
        )  # fmt: skip
        fits = {"FusedLassoCV": 500, "QuantileRegressorCV": 100}[type(search).__name__]
        yield Row(
            f"{type(search).__name__}, diabetes", "varopt.learn", f"{fits} fits of folds / one fit", timed.ratio,
            config.pick(50.0, math.inf), timing=timed.candidate, baseline=timed.baseline, objective=search.objective_,
            lower=search.lower_bound_, gap=search.gap_,
        )  # fmt: skip


@benchmark
def quantile_process(config: Config) -> Iterator[Row]:
    """99 levels, in units of one of them."""
    from varopt import learn

    n, p = config.pick((50_000, 20), (2_000, 3))
    X, y = _data.heavy_tails(n, p)
    levels = np.linspace(0.01, 0.99, 99)
    process = learn.QuantileRegressor(quantile=levels, alpha=0.0)
    single = [learn.QuantileRegressor(quantile=level, alpha=0.0) for level in (0.1, 0.5, 0.9)]
    timed = compare(
        lambda: process.fit(X, y), lambda: [one.fit(X, y) for one in single], rounds=config.pick(3, 1),
        clock=time.process_time,
    )  # fmt: skip
    worst = int(np.argmax(process.gap_ / process.objective_))
    yield Row(
        f"quantile process, 99 levels, {n} x {p}", "varopt.learn", "99 levels / the mean of three", 3.0 * timed.ratio,
        config.pick(20.0, math.inf), timing=timed.candidate, baseline=timed.baseline,
        objective=process.objective_[worst], lower=process.lower_bound_[worst], gap=process.gap_[worst],
        status="ok" if process.gap_[worst] <= 1e-9 * process.objective_[worst] else "a gap is above 1e-9",
    )  # fmt: skip


@benchmark
def warm_starts(config: Config) -> Iterator[Row]:
    """Ten strengths of a median with an L1 penalty, 16 x 2 whole numbers: each from the last, or each from nothing."""
    from varopt import learn

    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 4, (16, 2)).astype(float), rng.integers(0, 5, 16).astype(float)

    def along(warm: bool) -> float:
        model = learn.QuantileRegressor(quantile=0.5, warm_start=warm)
        path = np.geomspace(1.0, 1e-3, 10)
        return seconds(lambda: [model.set_params(alpha=a).fit(X, y) for a in path], time.process_time)

    rounds = [(along(True), along(False)) for _ in range(config.pick(15, 1))]
    yield Row(
        "ten strengths, 16 x 2 whole numbers", "varopt.learn", "warm / cold", min(r[0] for r in rounds)
        / min(r[1] for r in rounds), config.pick(1.1, math.inf),
    )  # fmt: skip
