"""Two workers of Dask."""

from __future__ import annotations

import importlib.util
import math
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import varopt as vo
from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark
from benchmarks.anywhere._data import Array, checked, objective, write


def _read(path: str, offset: int, rows: int, width: int) -> Array:
    """Rows of a file, read and not mapped, as the rows of a cluster are."""
    return np.fromfile(path, count=rows * width, offset=offset).reshape(rows, width)


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
        width, begin = features + 1, file.offset
        parts = [
            da.from_delayed(
                dask.delayed(_read)(str(path), begin + 8 * width * s, step, width), (step, width), np.float64
            )
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
