"""One GPU."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import varopt as vo
from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark
from benchmarks.anywhere._data import GAP, checked, objective


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
