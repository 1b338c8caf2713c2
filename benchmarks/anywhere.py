"""Rows that live anywhere: on disk, on a cluster, on a GPU; each with the certificate of rows in memory.

The rows of a GPU run where PyTorch finds CUDA, and are reported as absent elsewhere: there,
``python -m benchmarks --suite anywhere --only gpu`` runs these alone, in a few minutes. Peak memory of files is that of
a process of their own, beyond what Python and the libraries take. Files are written to the folder of temporary files
(``TMPDIR``) and removed; those of the full size take 17 GB.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark

Array = NDArray[np.float64]

LEVEL = 0.7
GAP = 1e-9


def checked(result: Any, gap: float = GAP) -> str:
    """What is wrong with a result, if anything is."""
    if result.status is not vo.Status.OPTIMAL:
        return f"{result.status.name}: gap {result.gap / abs(result.fun):.1e}"
    return "ok" if result.gap <= gap * abs(result.fun) else f"gap {result.gap / abs(result.fun):.1e}"


# -- Files ------------------------------------------------------------------------------------------------------------


def write(path: Path, rows: int, features: int, noise: str = "t", order: str = "none") -> None:
    """Features and target side by side, in parts."""
    rng = np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, "w+", dtype=np.float64, shape=(rows, features + 1))
    beta = rng.standard_normal(features)
    for start in range(0, rows, 250_000):
        X = rng.standard_normal((min(250_000, rows - start), features))
        X[:, 0] = 1.0
        if order == "constant feature" and start > rows // 20:
            X[:, 2] = 0.0
        y = X @ beta
        if noise == "Cauchy":
            y += rng.standard_cauchy(len(X))
        else:
            y += (1.0 + 0.3 * np.abs(X[:, 1])) * rng.standard_t(2, len(X))
        y = np.round(y) if noise == "whole numbers" else y
        file[start : start + len(X), :-1], file[start : start + len(X), -1] = X, y
    if order == "sorted":
        file[:] = file[np.argsort(file[:, -1])]
    file.flush()


def objective(kind: str, X: Any, y: Any, level: float = LEVEL) -> tuple[Any, Any]:
    """Quantile regression, or a linear support vector machine whose labels are signs of the target."""
    w = vo.Variable(X.shape[1], name="w")
    if kind == "quantile":
        return vo.sum(vo.pinball(y - X @ w, level)), w
    return 0.5 * vo.sum_squares(w) + 0.1 * vo.sum(vo.hinge(y * (X @ w))), w


_ALONE = """
import json, sys, time
import numpy as np, varopt as vo
from benchmarks.anywhere import objective, peak, signs
path, kind, memory, level = sys.argv[1:5]
before = peak()
file = np.load(path, mmap_mode="r")
start, worked = time.perf_counter(), time.process_time()
f, _ = objective(kind, file[:, :-1], signs(file[:, -1]) if kind == "hinge" else file[:, -1], float(level))
r = vo.minimize(f, memory=memory)
print(json.dumps({"seconds": time.perf_counter() - start, "passes": r.passes, "fun": r.fun, "lower": r.lower,
    "gap": r.gap, "status": r.status.name, "peak": peak() - before, "worked": time.process_time() - worked}))
"""


def peak() -> int:
    """The most memory that this process has taken, in kilobytes; not what it had before it became this programme."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def signs(column: Any) -> Any:
    """The signs of a stored column, row by row as it is read."""
    from varopt.places import Derived, as_stored

    stored = as_stored(column)
    return np.where(column > 0.0, 1.0, -1.0) if stored is None else Derived(_signs, (stored,))


def _signs(values: Array) -> Array:
    return np.where(values > 0.0, 1.0, -1.0)


def alone(path: Path, kind: str, memory: str, level: float = LEVEL) -> dict[str, Any]:
    """A run in a process of its own, whose peak memory is its own."""
    command = [sys.executable, "-c", _ALONE, str(path), kind, memory, str(level)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def plain_read(path: Path) -> float:
    """Seconds to read a file, and do nothing with it."""
    start, buffer = time.perf_counter(), bytearray(1 << 23)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def forget(path: Path) -> bool:
    """Take a file out of the system's cache, where that can be asked for: then it is read from the disk."""
    if not hasattr(os, "posix_fadvise"):
        return False
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
    return True


def _status(found: dict[str, Any]) -> str:
    relative = found["gap"] / abs(found["fun"])
    return "ok" if found["status"] == "OPTIMAL" and relative <= GAP else f"{found['status']}: gap {relative:.1e}"


@benchmark
def disk_large(config: Config) -> Iterator[Row]:
    """Sixteen gigabytes on disk: at most three passes after the sample, and four times one plain read."""
    rows, features = config.pick(100_000_000, 400_000), 20
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.npy"
        write(path, rows, features)
        for kind in ("quantile", "hinge"):
            cold = forget(path)
            read = plain_read(path)
            again = plain_read(path)
            forget(path)
            found = alone(path, kind, "2GB")
            size = path.stat().st_size
            yield Row(
                f"{kind} {rows:.0e} x {features} on disk, memory 2 GB", "vo.minimize", "seconds / one plain read",
                found["seconds"] / read, 4.0, Timing(found["seconds"], (found["seconds"],)), Timing(read, (read,)),
                found["fun"], found["lower"], found["gap"],
                _status(found) if found["passes"] <= 3 else f"{found['passes']} passes",
                peak_bytes=found["peak"] << 10, data_bytes=size, memory_target=max(2e9 / size, 2e8 / size),
                note=f"{found['passes']} passes, {found['worked']:.0f} s of processor time; both began "
                f"{'with nothing of the file' if cold else 'with the file perhaps'} in the cache, where reading takes "
                f"{again:.1f} s",
            )  # fmt: skip


@benchmark
def disk_against_memory(config: Config) -> Iterator[Row]:
    """The same rows from disk and from memory."""
    rows, features = config.pick(4_000_000, 300_000), 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, rows, features)
        for kind in ("quantile", "hinge"):
            file = np.load(path, mmap_mode="r")
            far, near = [], []
            X, y = np.ascontiguousarray(file[:, :-1]), np.array(file[:, -1])
            y = np.where(y > 0.0, 1.0, -1.0) if kind == "hinge" else y
            for _ in range(config.pick(3, 1)):
                column = signs(file[:, -1]) if kind == "hinge" else file[:, -1]
                start = time.perf_counter()
                r = vo.minimize(objective(kind, file[:, :-1], column)[0], method="freezing")
                far.append(time.perf_counter() - start)
                start = time.perf_counter()
                q = vo.minimize(objective(kind, X, y)[0])
                near.append(time.perf_counter() - start)
            wrong = checked(r) if r.lower <= q.upper and q.lower <= r.upper else "the brackets do not meet"
            yield Row(
                f"{kind} {rows:.0e} x {features}", "from disk", "seconds / those in memory", min(far) / min(near), 1.0,
                Timing(far[0], tuple(far)), Timing(near[0], tuple(near)), r.fun, r.lower, r.gap, wrong,
                note=f"{r.passes} passes",
            )  # fmt: skip


@benchmark
def disk_awkward(config: Config) -> Iterator[Row]:
    """Tails, ties, orders and extreme levels: the bracket of memory."""
    rows, features = config.pick(1_000_000, 250_000), 10
    cases = {
        "Cauchy noise": ("Cauchy", "none", LEVEL), "whole numbers": ("whole numbers", "none", LEVEL),
        "sorted rows": ("t", "sorted", LEVEL), "a feature constant on most rows": ("t", "constant feature", LEVEL),
        "level 0.01": ("t", "none", 0.01), "level 0.99": ("t", "none", 0.99),
    }  # fmt: skip
    for name, (noise, order, level) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npy"
            write(path, rows, features, noise, order)
            file = np.load(path, mmap_mode="r")
            r = vo.minimize(objective("quantile", file[:, :-1], file[:, -1], level)[0], method="freezing")
            X, y = np.ascontiguousarray(file[:, :-1]), np.array(file[:, -1])
            q = vo.minimize(objective("quantile", X, y, level)[0])
            wrong = checked(r) if r.lower <= q.upper and q.lower <= r.upper else "the brackets do not meet"
            yield Row(f"quantile {rows:.0e} x {features}, {name}", "from disk", "passes / 4", r.passes / 4.0, 1.0,
                      Timing(r.time, (r.time,)), Timing(q.time, (q.time,)), r.fun, r.lower, r.gap, wrong,
                      note=f"{r.passes} passes")  # fmt: skip


@benchmark
def disk_levels(config: Config) -> Iterator[Row]:
    """Nineteen levels in the passes of one, or twice as many."""
    from varopt.learn import QuantileRegressor

    rows, features = config.pick(1_000_000, 250_000), 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, rows, features)
        file = np.load(path, mmap_mode="r")
        start = time.perf_counter()
        one = QuantileRegressor(quantile=0.5, alpha=0.0, fit_intercept=False).fit(file[:, :-1], file[:, -1])
        single = time.perf_counter() - start
        start = time.perf_counter()
        levels = np.arange(0.05, 0.96, 0.05)
        many = QuantileRegressor(quantile=levels, alpha=0.0, fit_intercept=False).fit(file[:, :-1], file[:, -1])
        seconds = time.perf_counter() - start
        worst = float(np.max(many.gap_ / many.objective_))
        yield Row(f"19 levels, {rows:.0e} x {features}", "QuantileRegressor", "passes / those of one level",
                  many.passes_ / one.passes_, 2.0, Timing(seconds, (seconds,)), Timing(single, (single,)),
                  status="ok" if worst <= GAP else f"gap {worst:.1e}",
                  note=f"{many.passes_} passes for 19 levels, {one.passes_} for one")  # fmt: skip


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
                rival.partial_fit(scale.transform(part[:, :-1]), _signs(part[:, -1]), classes=[-1.0, 1.0])
        seconds = time.perf_counter() - start
        X, t = np.array(file[:, :-1]), _signs(np.array(file[:, -1]))
        value = objective("hinge", X, t)[0](rival.coef_[0] / scale.scale_)
        yield Row(f"hinge {rows:.0e} x {features} on disk", "SGDClassifier, as many passes", "share above the optimum",
                  float(value - r.fun) / r.fun, math.inf,
                  Timing(seconds, (seconds,)), Timing(r.time, (r.time,)), float(value), r.lower, float(value) - r.lower,
                  note=f"{(value - r.fun) / r.fun:.1e} above the optimum after {r.passes} passes")  # fmt: skip


# -- Cluster ----------------------------------------------------------------------------------------------------------


def _read(path: str, start: int, stop: int) -> Array:
    return np.array(np.load(path, mmap_mode="r")[start:stop])


@benchmark
def cluster(config: Config) -> Iterator[Row]:
    """Two workers of Dask beside the same file read by this process; and with a worker that dies on the way."""
    rows, features = config.pick(20_000_000, 300_000), 20
    problem = f"quantile {rows:.0e} x {features}, two workers"
    if importlib.util.find_spec("distributed") is None:
        yield Row(problem, "vo.minimize", "", math.nan, math.inf, skipped="not installed: distributed")
        return
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    with tempfile.TemporaryDirectory() as folder:
        path, step = Path(folder) / "rows.npy", rows // 40
        write(path, rows, features)
        file = np.load(path, mmap_mode="r")
        near = vo.minimize(objective("quantile", file[:, :-1], file[:, -1])[0], method="freezing")
        parts = [
            da.from_delayed(dask.delayed(_read)(str(path), s, s + step), (step, features + 1), np.float64)
            for s in range(0, rows, step)
        ]
        whole = da.concatenate(parts)
        workers = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        with workers, Client(workers) as client:
            for name in ("two workers", "a worker killed on the way"):
                killed: list[float] = []

                def kill(state: Any, killed: list[float] = killed, name: str = name, client: Any = client) -> None:
                    if name != "two workers" and not killed and math.isfinite(state.upper):
                        killed.append(time.perf_counter())
                        first = next(iter(client.scheduler_info()["workers"]))
                        client.run(os._exit, 1, workers=[first], on_error="ignore")

                start = time.perf_counter()
                r = vo.minimize(objective("quantile", whole[:, :-1], whole[:, -1])[0], callback=kill)
                seconds = time.perf_counter() - start
                same = abs(r.fun - near.fun) <= 1e-12 * near.fun
                yield Row(problem, name, "seconds / those of files", seconds / near.time,
                          1.5 if name == "two workers" else math.inf, Timing(seconds, (seconds,)),
                          Timing(near.time, (near.time,)), r.fun, r.lower, r.gap,
                          checked(r) if same else "another optimum than that of the file",
                          note=f"{r.passes} passes, {len(parts)} partitions")  # fmt: skip


# -- GPU --------------------------------------------------------------------------------------------------------------


def without_gpu(problem: str) -> Row | None:
    """The row of a problem where there is no GPU."""
    if importlib.util.find_spec("torch") is None:
        return Row(problem, "vo.minimize", "", math.nan, math.inf, skipped="not installed: torch")
    import torch

    return None if torch.cuda.is_available() else Row(problem, "vo.minimize", "", math.nan, math.inf, skipped="no GPU")


def on_gpu(rows: int, features: int, single: bool = False) -> tuple[Any, Any]:
    """Data on the GPU, made in parts."""
    import torch

    torch.manual_seed(0)
    dtype = torch.float32 if single else torch.float64
    X = torch.empty(rows, features, device="cuda", dtype=dtype)
    y = torch.empty(rows, device="cuda", dtype=torch.float64)
    beta = torch.randn(features, device="cuda", dtype=torch.float64)
    for start in range(0, rows, 1 << 22):
        part = slice(start, min(start + (1 << 22), rows))
        count = part.stop - part.start
        X[part] = torch.randn(count, features, device="cuda", dtype=dtype)
        X[part, 0] = 1.0
        chi = torch.randn(2, count, device="cuda", dtype=torch.float64).square().mean(0)
        noise = torch.randn(count, device="cuda", dtype=torch.float64) / torch.sqrt(chi)
        y[part] = X[part].to(torch.float64) @ beta + noise
    return X, y


def quantile(X: Any, y: Any) -> Any:
    """The result of a quantile regression."""
    return vo.minimize(objective("quantile", X, y)[0])


def gpu_seconds(call: Callable[[], Any], repeats: int = 3) -> tuple[Timing, Any, int]:
    """Times of a call on the GPU, its result, and the most memory that it took there beyond what was taken."""
    import torch

    times, result = [], None
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        result = call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return Timing(times[0], tuple(times[1:])), result, int(torch.cuda.max_memory_allocated())


def gram(X: Any) -> float:
    """Seconds of a weighted Gram matrix on the GPU."""
    import torch

    weights = torch.rand(X.shape[0], device="cuda", dtype=X.dtype)

    def call() -> Any:
        total = torch.zeros(X.shape[1], X.shape[1], device="cuda", dtype=X.dtype)
        for start in range(0, X.shape[0], 1 << 21):
            part = X[start : start + (1 << 21)]
            total += (part * weights[start : start + (1 << 21), None]).T @ part
        return total

    return gpu_seconds(call)[0].best


def gpu_row(
    problem: str, target: float, X: Any, call: Callable[[], Any], of: str, unit: float, gap: float = GAP
) -> Row:
    """A row of the GPU: its time in a unit, against a target."""
    timing, result, peak = gpu_seconds(call)
    size = X.numel() * X.element_size()
    return Row(
        problem, "vo.minimize on a GPU", of, timing.best / unit, target, timing, None, result.fun, result.lower,
        result.gap, checked(result, gap), peak_bytes=peak, data_bytes=size, memory_target=1.3,
        note=f"{1e3 * timing.best:.0f} ms, {result.passes} passes, gap {result.gap / abs(result.fun):.0e}, one "
        f"weighted Gram matrix {1e3 * gram(X):.1f} ms",
    )  # fmt: skip


@benchmark
def gpu_quantile(config: Config) -> Iterator[Row]:
    """Quantile regression beside the milliseconds of the prototype."""
    full = ((10_000_000, 20, 0.057), (10_000_000, 100, 0.175), (100_000_000, 20, 0.418), (50_000_000, 100, 0.471),
            (1_000_000_000, 10, 6.0))  # fmt: skip
    for rows, features, seconds in config.pick(full, ((1_000_000, 20, 1.0),)):
        problem = f"quantile {rows:.0e} x {features}, float64"
        if row := without_gpu(problem):
            yield row
            continue
        X, y = on_gpu(rows, features)
        yield gpu_row(problem, 1.0, X, partial(quantile, X, y),
                      f"seconds / {seconds:g}", seconds)  # fmt: skip
        del X, y


@benchmark
def gpu_single_precision(config: Config) -> Iterator[Row]:
    """Single precision: half the memory, certified in double."""
    rows = config.pick(100_000_000, 1_000_000)
    problem = f"quantile {rows:.0e} x 20, float32"
    if row := without_gpu(problem):
        yield row
        return
    X, y = on_gpu(rows, 20, single=True)
    yield gpu_row(problem, 1.0, X, lambda: vo.minimize(objective("quantile", X, y)[0], tol=1e-7),
                  "seconds / 0.418", 0.418, 1e-7)  # fmt: skip


@benchmark
def gpu_svm(config: Config) -> Iterator[Row]:
    """A linear machine, in weighted Gram matrices."""
    rows = config.pick(10_000_000, 1_000_000)
    problem = f"hinge and ridge {rows:.0e} x 100"
    if row := without_gpu(problem):
        yield row
        return
    import torch

    X, y = on_gpu(rows, 100)
    t = torch.where(y > 0.0, 1.0, -1.0).to(torch.float64)
    yield gpu_row(problem, 15.0, X, lambda: vo.minimize(objective("hinge", X, t)[0]), "weighted Gram matrices", gram(X))


@benchmark
def gpu_lasso(config: Config) -> Iterator[Row]:
    """A lasso at a twentieth of the largest strength, in products X'X."""
    rows, features = config.pick(5_000_000, 500_000), 500
    problem = f"lasso {rows:.0e} x {features}"
    if row := without_gpu(problem):
        yield row
        return
    X, y = on_gpu(rows, features)
    strength = float((X.T @ y).abs().max()) / 20.0
    timing = gpu_seconds(lambda: X.T @ X)[0]
    w = vo.Variable(features)
    yield gpu_row(
        problem, 2.5, X, lambda: vo.minimize(0.5 * vo.sum_squares(y - X @ w) + strength * vo.norm1(w)),
        "products X'X", timing.best,
    )  # fmt: skip
