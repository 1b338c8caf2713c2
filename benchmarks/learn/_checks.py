"""What scikit-learn's own checks of all estimators cost with default settings: hundreds of fits of tiny data each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark

_SECONDS = 120.0  # of processor time, for all of them


def _spent(estimator: Any) -> tuple[float, str]:
    """Processor time of all checks of an estimator, and those that failed."""
    from sklearn.utils.estimator_checks import estimator_checks_generator

    failed, started = [], time.process_time()
    for instance, check in estimator_checks_generator(estimator):
        try:
            with warnings.catch_warnings(action="ignore"):
                check(instance)
        except Exception as error:  # a row says which
            if type(error).__name__ != "SkipTest":
                failed.append(getattr(check, "func", check).__name__)
    return time.process_time() - started, ", ".join(failed)


@benchmark
def estimator_checks(config: Config) -> Iterator[Row]:
    """Processor time of the checks of every estimator, then of all, in shares of two minutes."""
    from varopt import learn

    names = [name for name in learn.__all__ if hasattr(getattr(learn, name), "fit")]
    total, of = 0.0, "processor time / 120 s"
    for name in config.pick(names, ["Lasso", "TrendFilter"]):
        spent, failed = _spent(getattr(learn, name)())
        total += spent
        timing = Timing(spent, (spent,))
        yield Row(f"checks of {name}", "varopt.learn", of, spent / _SECONDS, 1.0, timing, status=failed or "ok")
    yield Row("checks of all estimators", "varopt.learn", of, total / _SECONDS, 1.0, Timing(total, (total,)))
