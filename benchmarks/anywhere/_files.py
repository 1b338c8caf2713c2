"""Files: larger than memory, awkward, and beside the same rows in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import varopt as vo
from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark
from benchmarks.anywhere._data import GAP, LEVEL, checked, objective, signs, write

_ALONE = """
import json, sys, time
import numpy as np, varopt as vo
from benchmarks.anywhere._data import objective, signs
from benchmarks.anywhere._files import peak
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


def alone(path: Path, kind: str, memory: str, level: float = LEVEL) -> dict[str, Any]:
    """A run in a process of its own, whose peak memory is its own."""
    command = [sys.executable, "-c", _ALONE, str(path), kind, memory, str(level)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
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
