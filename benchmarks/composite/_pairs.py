"""Losses and penalties that have no solver of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import varopt as vo
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite._problem import Problem, certify, weighted_gram


@benchmark
def pairs_nobody_sells(config: Config) -> Iterator[Row]:
    """Four of them; nobody else certifies any."""
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
        problem = Problem(f"{name} {n} x {p}", build, (), X.nbytes + y.nbytes)
        yield certify(problem, weighted_gram(X), 40.0, config).row
