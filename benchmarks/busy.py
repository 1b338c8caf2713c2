"""Solves beside other processes: what a busy machine costs, where threads that wait for each other would cost most."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

import varopt as vo
from benchmarks._measure import Timing, seconds
from benchmarks._registry import Config, Row, benchmark

SHARE = 3.0  # times as long at most: half of a core would be 2


@contextmanager
def busy_cores() -> Iterator[None]:
    """Other processes that keep all cores but one busy, and at least one."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(max(1, (os.cpu_count() or 2) - 1))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _solves(config: Config) -> Iterator[tuple[str, Callable[[], Any]]]:
    from varopt import learn
    from varopt.discrete import qubo

    rng = np.random.default_rng(0)

    def data(n: int, p: int) -> tuple[Any, Any]:
        X = rng.standard_normal((n, p))
        return X, X @ rng.standard_normal(p) + rng.standard_t(2, n)

    n, p = config.pick((20_000, 50), (500, 5))
    X, y = data(n, p)
    yield f"quantile regression {n} x {p}", lambda: learn.QuantileRegressor(alpha=0.0).fit(X, y)
    n, p = config.pick((20_000, 100), (500, 5))
    A, a = data(n, p)
    yield f"linear SVM {n} x {p}", lambda: learn.LinearSVC(loss="hinge").fit(A, np.sign(a))
    n, p = config.pick((5_000, 500), (500, 20))
    B, b = data(n, p)
    yield f"lasso {n} x {p}", lambda: learn.Lasso(alpha=0.1).fit(B, b)
    n = config.pick(5_000, 300)
    S = sp.random(n, n, density=0.01, format="csr", random_state=1)
    s = np.where(S @ rng.standard_normal(n) > 0.0, 1.0, -1.0)
    yield f"linear SVM {n} x {n}, 1 % full", lambda: learn.LinearSVC(loss="hinge").fit(S, s)
    n = config.pick(3_000, 200)
    K, k = data(n, 10)
    yield f"RBF machine {n} x 10", lambda: learn.SVC().fit(K, np.sign(k))
    n = config.pick(300, 60)
    Z, z = data(n, 20)
    w = vo.Variable(20)
    yield f"0-1 loss {n} x 20", lambda: vo.minimize(vo.sum(vo.zero_one(np.sign(z) * (Z @ w))))
    n = config.pick(60, 15)
    Q = rng.standard_normal((n, n))
    yield f"QUBO of {n} bits, proved", lambda: qubo(Q)
    d, budget = config.pick((100, 20_000), (20, 500))
    yield (
        f"search, d = {d}, {budget} evaluations",
        lambda: vo.minimize(lambda x: float(x @ x), vo.Box(-5.0, 5.0, size=d), budget=budget, seed=0),
    )


@benchmark
def beside_other_processes(config: Config) -> Iterator[Row]:
    """The same solve on a quiet machine, and with every core but one kept busy by others."""
    rounds = config.pick(5, 1)
    for name, solve in _solves(config):
        quiet = Timing(seconds(solve), tuple(seconds(solve) for _ in range(rounds)))
        with busy_cores():
            busy = Timing(seconds(solve), tuple(seconds(solve) for _ in range(rounds)))
        yield Row(
            name, "varopt", "busy / quiet", statistics.median(busy.warm) / statistics.median(quiet.warm),
            SHARE, timing=busy, baseline=quiet,
        )  # fmt: skip
