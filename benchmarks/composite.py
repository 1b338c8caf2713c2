"""What a certified optimum costs, in weighted Gram matrices of the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from benchmarks._measure import compare, peak_memory
from benchmarks._registry import Config, Row, benchmark

Array = NDArray[np.float64]


def measure(problem: str, build: Callable[[], Any], X: Array, target: float, rounds: int) -> Row:
    """Time `minimize` (building included) against one weighted Gram matrix; a gap above 1e-9 fails the row."""
    weights = np.ones(X.shape[0])
    result = vo.minimize(build())
    timed = compare(lambda: vo.minimize(build()), lambda: X.T @ (weights[:, None] * X), rounds=rounds)
    reached = result.gap <= 1e-9 * max(1.0, abs(result.fun))
    return Row(
        problem=problem,
        solver=f"minimize ({result.method})",
        ratio_of="time / one X.T @ (d[:, None] * X)",
        ratio=timed.ratio,
        target=target,
        timing=timed.candidate,
        baseline=timed.baseline,
        objective=result.fun,
        lower=result.lower,
        gap=result.gap,
        status="ok" if reached else result.message,
        peak_bytes=peak_memory(lambda: vo.minimize(build())),
    )


@benchmark
def quantile_regression(config: Config) -> Iterator[Row]:
    """Level 0.7, noise t(2), an intercept."""
    sizes = config.pick([(20_000, 50, 20.0), (200_000, 50, 8.0), (1_000_000, 20, 8.0)], [(2_000, 10, np.inf)])
    for n, p, target in sizes:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, p))
        y = X @ rng.standard_normal(p) + rng.standard_t(2, n)

        def build(X: Array = X, y: Array = y, p: int = p) -> Any:
            w, b = vo.Variable(p), vo.Variable()
            return vo.sum(vo.pinball(y - X @ w - b, 0.7))

        yield measure(f"quantile regression {n} x {p}", build, X, target, rounds=config.pick(5, 2))


@benchmark
def support_vector_machine(config: Config) -> Iterator[Row]:
    """The paper's data, C = 10, hinge loss, an unpenalised intercept."""
    sizes = config.pick([(2_000, 30.0), (20_000, 15.0), (200_000, 10.0)], [(500, np.inf)])
    for n, target in sizes:
        rng = np.random.default_rng(0)
        separation = rng.standard_normal(100)
        separation *= 3.5 / np.linalg.norm(separation)
        labels = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
        X = rng.standard_normal((n, 100)) + np.where(labels[:, None] > 0, separation, 0.0)

        def build(X: Array = X, labels: Array = labels) -> Any:
            w, b = vo.Variable(100), vo.Variable()
            return vo.sum_squares(w) + 10.0 * vo.sum(vo.hinge(labels * (X @ w + b)))

        yield measure(f"linear SVM {n} x 100", build, X, target, rounds=config.pick(5, 2))


@benchmark
def pairs_nobody_sells(config: Config) -> Iterator[Row]:
    """Losses and penalties that have no solver of their own."""
    n, p = config.pick((20_000, 50), (1_000, 10))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    y = X @ np.where(rng.random(p) < 0.3, rng.standard_normal(p), 0.0) + rng.standard_t(3, n)
    labels = np.sign(y)
    w, b = vo.Variable(p), vo.Variable()
    pairs = {
        "hinge + L1": lambda: vo.sum(vo.hinge(labels * (X @ w + b))) + 20.0 * vo.norm1(w),
        "pinball + ridge": lambda: vo.sum(vo.pinball(y - X @ w - b, 0.3)) + 20.0 * vo.sum_squares(w),
        "pinball + fused": lambda: vo.sum(vo.pinball(y - X @ w - b, 0.3)) + 20.0 * vo.norm1(vo.diff(w)),
        "epsilon-insensitive + elastic net": lambda: (
            vo.sum(vo.epsilon_insensitive(y - X @ w - b, 0.5)) + 20.0 * vo.norm1(w) + vo.sum_squares(w)
        ),
    }
    for name, build in pairs.items():
        yield measure(f"{name} {n} x {p}", build, X, config.pick(40.0, np.inf), rounds=config.pick(5, 2))
