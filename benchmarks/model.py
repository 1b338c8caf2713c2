"""What it costs to write an objective down: next to nothing, in time and in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import varopt as vo
from benchmarks._measure import compare, peak_memory
from benchmarks._registry import Config, Row, benchmark


@benchmark
def build_lasso(config: Config) -> Iterator[Row]:
    """Building a lasso objective, against one product with its matrix and against the matrix's size."""
    rows, columns = config.pick((100_000, 100), (1_000, 100))
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((rows, columns)), rng.standard_normal(rows)
    point = rng.standard_normal(columns)

    def candidate() -> object:
        w = vo.Variable(columns)
        return vo.sum_squares(y - X @ w) + 0.1 * vo.norm1(w)

    timed = compare(candidate, lambda: X @ point, rounds=config.pick(21, 5))
    peak = peak_memory(candidate)
    problem = f"build sum_squares(y - X @ w) + 0.1 norm1(w), X {rows} x {columns}"
    yield Row(
        problem=problem,
        solver="model",
        ratio_of="time / one X @ w",
        ratio=timed.ratio,
        target=1.0,
        timing=timed.candidate,
        baseline=timed.baseline,
        peak_bytes=peak,
    )
    yield Row(
        problem=problem,
        solver="model",
        ratio_of="peak memory / memory of X",
        ratio=peak / X.nbytes,
        target=0.01,
        peak_bytes=peak,
    )
