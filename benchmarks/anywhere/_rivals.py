"""What others do with as many rows: none of them proves a bracket."""

from __future__ import annotations

import importlib.util
import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import varopt as vo
from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark
from benchmarks.anywhere._data import LEVEL, objective, signs, signs_of, write


@benchmark
def disk_sgd(config: Config) -> Iterator[Row]:
    """Scikit-learn's stochastic gradient with as many passes, for the distance that it leaves."""
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    rows, features = config.pick(1_000_000, 250_000), 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, rows, features)
        file = np.load(path, mmap_mode="r")
        r = vo.minimize(objective("hinge", file[:, :-1], signs(file[:, -1]))[0])
        scale, strength = StandardScaler(with_mean=False).fit(file[:100_000, :-1]), 1.0 / (0.1 * rows)
        rival = SGDClassifier(loss="hinge", alpha=strength, fit_intercept=False, average=True)
        start = time.perf_counter()
        for _ in range(r.passes):
            for first in range(0, rows, 100_000):
                part = np.array(file[first : first + 100_000])
                rival.partial_fit(scale.transform(part[:, :-1]), signs_of(part[:, -1]), classes=[-1.0, 1.0])
        seconds = time.perf_counter() - start
        X, t = np.array(file[:, :-1]), signs_of(np.array(file[:, -1]))
        value = objective("hinge", X, t)[0](rival.coef_[0] / scale.scale_)
        yield Row(f"hinge {rows:.0e} x {features} on disk", "SGDClassifier, as many passes", "share above the optimum",
                  float(value - r.fun) / r.fun, math.inf,
                  Timing(seconds, (seconds,)), Timing(r.time, (r.time,)), float(value), r.lower, float(value) - r.lower,
                  note=f"{(value - r.fun) / r.fun:.1e} above the optimum after {r.passes} passes")  # fmt: skip


_PFN = """
suppressMessages(library(quantreg))
given <- commandArgs(TRUE); n <- as.integer(given[2]); p <- as.integer(given[3])
x <- matrix(readBin(given[1], "double", n * (p + 1)), n, p + 1)
y <- x[, p + 1]; x <- x[, 1:p]
seconds <- system.time(fit <- rq.fit.pfn(x, y, tau = as.numeric(given[4])))[["elapsed"]]
cat(format(seconds, digits = 15), format(fit$coefficients, digits = 17), "\\n")
"""


@benchmark
def memory_pfn(config: Config) -> Iterator[Row]:
    """Portnoy and Koenker's preprocessing, by its authors: R's quantreg, on rows that fit in memory."""
    rows, features = config.pick(4_000_000, 300_000), 10
    problem, solver = f"quantile {rows:.0e} x {features} in memory", "rq.fit.pfn of R's quantreg"
    command = shutil.which("Rscript")
    found = command and subprocess.run([command, "-e", "library(quantreg)"], check=False, capture_output=True)
    if not command or not found or found.returncode:
        yield Row(problem, solver, "", math.nan, math.inf, skipped="not installed: quantreg of R")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, rows, features)
        file = np.load(path, mmap_mode="r")
        np.asfortranarray(file).T.tofile(columns := Path(folder) / "columns")
        given = [str(columns), str(rows), str(features), str(LEVEL)]
        run = subprocess.run([command, "-e", _PFN, *given], capture_output=True, text=True, check=True)
        seconds, *coefficients = map(float, run.stdout.split())
        f, _ = objective("quantile", file[:, :-1], file[:, -1])
        r = vo.minimize(f, method="freezing")
        value = float(f(np.array(coefficients)))
        yield Row(problem, solver, "seconds / ours from disk", seconds / r.time, math.inf, Timing(seconds, (seconds,)),
                  Timing(r.time, (r.time,)), value, r.lower, value - r.lower,
                  note=f"{(value - r.fun) / r.fun:.1e} above the optimum; ours {r.passes} passes")  # fmt: skip


@benchmark
def cluster_dask_ml(config: Config) -> Iterator[Row]:
    """dask-ml has smooth losses alone: its logistic regression by Newton's method beside our support vector machine."""
    rows, features = config.pick(4_000_000, 300_000), 10
    problem, solver = f"{rows:.0e} x {features} of Dask, threads", "LogisticRegression of dask-ml, solver='newton'"
    if importlib.util.find_spec("dask_ml") is None:
        yield Row(problem, solver, "", math.nan, math.inf, skipped="not installed: dask-ml")
        return
    import dask
    import dask.array as da
    from dask_ml.linear_model import LogisticRegression

    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="threads"):
        path = Path(folder) / "rows.npy"
        write(path, rows, features)
        whole = da.from_array(np.load(path, mmap_mode="r"), chunks=(rows // 16, -1))
        X, t = whole[:, :-1], da.where(whole[:, -1] > 0.0, 1.0, -1.0)
        start = time.perf_counter()
        r = vo.minimize(objective("hinge", X, t)[0])
        ours = time.perf_counter() - start
        start = time.perf_counter()
        LogisticRegression(solver="newton", C=0.1, fit_intercept=False, max_iter=20).fit(X, t > 0.0)
        seconds = time.perf_counter() - start
        yield Row(problem, solver, "seconds / our hinge and ridge", seconds / ours, math.inf,
                  Timing(seconds, (seconds,)), Timing(ours, (ours,)), None, None, None,
                  note=f"another loss, and nothing proved; ours {r.passes} passes, {r.status.name}")  # fmt: skip


@benchmark
def gpu_cuml(config: Config) -> Iterator[Row]:
    """What cuML has published: no quantile regression, and no time for a linear machine of this size."""
    yield Row(
        "quantile, any size, GPU", "cuML", "", math.nan, math.inf,
        skipped="cuML has no quantile regression (NVIDIA/cuml issue 6325, open since 2025)",
    )  # fmt: skip
    yield Row(
        "support vector machine, 10^6 rows, GPU", "cuML, as published", "", math.nan, math.inf,
        skipped="kernel SVC on a million rows 'within a few minutes' (T. Fehér, Fast support vector classification "
        "with RAPIDS cuML, 2020)",
    )  # fmt: skip
