"""Quantile regression on tall data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite._data import heavy_tails
from benchmarks.composite._problem import Problem, certify, weighted_gram
from benchmarks.composite.rivals import quantile as rivals

LEVEL = 0.7


def problem(X: NDArray[np.float64], y: NDArray[np.float64]) -> Problem:
    """``sum_n pinball(y_n - w'x_n - b)``."""

    def build() -> Any:
        w, b = vo.Variable(X.shape[1]), vo.Variable()
        return vo.sum(vo.pinball(y - X @ w - b, LEVEL))

    name = f"quantile regression {X.shape[0]} x {X.shape[1]}"
    return Problem(name, build, (X, y, LEVEL), X.nbytes + y.nbytes)


@benchmark
def quantile_regression(config: Config) -> Iterator[Row]:
    """Level 0.7, noise t(2), an intercept."""
    sizes = config.pick([(20_000, 50, 20.0), (200_000, 50, 8.0), (1_000_000, 20, 8.0)], [(2_000, 10, math.inf)])
    for n, p, target in sizes:
        X, y = heavy_tails(n, p)
        contest = certify(problem(X, y), weighted_gram(X), target, config)
        yield contest.row
        yield from contest.against(
            [(rivals.FRISCH_NEWTON, 1.0), (rivals.PREPROCESSED, 1.0), (rivals.CONQUER, 1.0)], 30.0
        )
        if n <= 20_000:  # beyond, scikit-learn takes hours
            yield from contest.against([(rivals.SCIKIT_LEARN, 1 / 200)], limit=150.0)
        yield from contest.against([(rivals.STATSMODELS, math.inf)], limit=30.0)
