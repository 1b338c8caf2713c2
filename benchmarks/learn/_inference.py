"""What the refits of a bootstrap cost."""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._measure import Timing, seconds
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data

Vector = NDArray[np.float64]

_BOOT = """
suppressMessages(library(quantreg)); d <- as.matrix(read.csv("{path}")); X <- d[, -1]; y <- d[, 1]
t <- sum(system.time(b <- boot.rq(cbind(1, X), y, tau = 0.5, R = {refits}, bsmethod = "xy"))[1:2])
cat(t, apply(b$B, 2, sd)[2])
"""


@benchmark
def bootstrap(config: Config) -> Iterator[Row]:
    """Refits of a bootstrap of pairs, against quantreg::boot.rq and statsmodels in a loop, by processor time."""
    from varopt.learn import QuantileRegressor, inference

    n, p = config.pick((20_000, 50), (500, 3))
    X, y = _data.heavy_tails(n, p)
    refits = config.pick(1000, 20)
    model = QuantileRegressor(quantile=0.5, alpha=0.0)
    fit = min(seconds(lambda: model.fit(X, y), time.process_time) for _ in range(5))
    ours = seconds(lambda: inference(model, X, y, method="bootstrap", refits=refits, random_state=0), time.process_time)
    yield Row(
        f"bootstrap, {refits} refits, {n} x {p}", "varopt.learn", "refits / one fit", ours / fit,
        config.pick(100.0, math.inf), timing=Timing(ours, (ours,)), baseline=Timing(fit, (fit,)),
    )  # fmt: skip
    for rival, measure in (("quantreg::boot.rq", _in_r), ("statsmodels, a loop", _in_statsmodels)):
        few = config.pick(3, 2)
        spent = measure(X, y, few)
        name = f"bootstrap of pairs, {n} x {p}"
        if spent is None:
            yield Row(name, "varopt.learn", "", math.nan, 1.0, skipped=f"{rival} is not installed")
            continue
        yield Row(
            name, "varopt.learn", f"a refit of ours / of {rival}", (ours / refits) / (spent / few),
            config.pick(1.0 / 30.0, math.inf), timing=Timing(ours / refits, (ours / refits,)),
            baseline=Timing(spent / few, (spent / few,)), note=f"{few} refits of theirs",
        )  # fmt: skip


def _in_r(X: Vector, y: Vector, refits: int) -> float | None:
    if shutil.which("Rscript") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        header = ",".join(["y"] + ["x"] * X.shape[1])
        np.savetxt(path, np.column_stack([y, X]), delimiter=",", header=header, comments="")
        script = _BOOT.format(path=path, refits=refits)
        run = subprocess.run(["Rscript", "-e", script], capture_output=True, text=True, check=False)
    return float(run.stdout.split()[0]) if run.returncode == 0 else None


def _in_statsmodels(X: Vector, y: Vector, refits: int) -> float | None:
    try:
        from statsmodels.regression.quantile_regression import QuantReg
    except ModuleNotFoundError:
        return None
    rng, design = np.random.default_rng(0), np.column_stack([np.ones(len(y)), X])

    def loop() -> None:
        for _ in range(refits):
            drawn = rng.integers(len(y), size=len(y))
            QuantReg(y[drawn], design[drawn]).fit(q=0.5)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return seconds(loop, time.process_time)
