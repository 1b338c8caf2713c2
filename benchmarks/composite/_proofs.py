"""What a proof costs: the bracket in arithmetic that knows its rounding, as a share of the solve that it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import varopt as vo
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite._data import heavy_tails
from varopt import certificates

_SHARE = 0.2  # of a solve that a proof may take
_GAP = 1e-9


@benchmark
def proofs(config: Config) -> Iterator[Row]:
    """Least processor times of both, over a few solves, in the solve itself, whose last products a proof takes up.

    A lasso's solve is hardly more than one Gram matrix.
    """
    for n, p in config.pick([(20_000, 50), (200_000, 50)], [(1_000, 10)]):
        for name, build in _kinds(*heavy_tails(n, p)).items():
            yield _measured(f"{name} {n} x {p}", build, config.pick(7, 2))


@contextmanager
def _timed_proofs() -> Iterator[list[float]]:
    """Seconds of a processor that each proof takes which is made meanwhile."""
    times: list[float] = []
    bracket = certificates.Verifier.bracket

    def timed(*given: Any, **options: Any) -> Any:
        began = time.process_time()
        try:
            return bracket(*given, **options)
        finally:
            times.append(time.process_time() - began)

    with mock.patch.object(certificates.Verifier, "bracket", timed):
        yield times


def _kinds(X: Any, y: Any) -> dict[str, Callable[[], Any]]:
    labels = np.where(y > 0.0, 1.0, -1.0)
    w, b = vo.Variable(X.shape[1]), vo.Variable()
    return {
        "pinball": lambda: vo.sum(vo.pinball(y - X @ w - b, 0.7)),
        "SVM": lambda: vo.sum(vo.hinge(labels * (X @ w + b))) + 0.5 * vo.sum_squares(w),
        "Huber": lambda: vo.sum(vo.huber(y - X @ w - b)),
        "lasso": lambda: vo.sum_squares(y - X @ w) + 0.2 * y.size * vo.norm1(w),
        "lasso with an intercept": lambda: vo.sum_squares(y - X @ w - b) + 0.2 * y.size * vo.norm1(w),
    }


def _measured(name: str, build: Callable[[], Any], rounds: int) -> Row:
    solves, times = [], []
    for _ in range(rounds):
        with _timed_proofs() as proofs_of_solve:
            began = time.process_time()
            result = vo.minimize(build())
            solves.append(time.process_time() - began)
        times.append(sum(proofs_of_solve))
    closed = result.status is vo.Status.OPTIMAL and result.gap <= _GAP * abs(result.fun)
    return Row(
        f"proof: {name}", "varopt", "proof / solve, processor time", min(times) / min(solves), _SHARE,
        objective=result.fun, lower=result.lower, gap=result.gap, status="ok" if closed else result.status.name,
    )  # fmt: skip
