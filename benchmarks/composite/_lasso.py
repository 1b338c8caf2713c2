"""The lasso: tall data, the paper's problems, and many more columns than rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data
from benchmarks.composite._problem import Problem, Yardstick, certify
from benchmarks.composite.rivals import lasso as rivals

Vector = NDArray[np.float64]


def problem(name: str, X: Vector, y: Vector, penalty: float) -> Problem:
    """``sum_n (y_n - w'x_n)^2 + penalty sum_i |w_i|``."""

    def build() -> Any:
        w = vo.Variable(X.shape[1])
        return vo.sum_squares(y - X @ w) + penalty * vo.norm1(w)

    return Problem(name, build, (X, y, penalty), X.nbytes + y.nbytes)


def largest_penalty(X: Vector, y: Vector) -> float:
    """The penalty from which on the solution is zero."""
    return 2.0 * float(np.abs(X.T @ y).max())


def gram(X: Vector) -> Yardstick:
    """The Gram matrix, and a millisecond for what does not grow with the data."""
    return Yardstick("X.T @ X", lambda: X.T @ X, allowance=1e-3)


@benchmark
def lasso_tall(config: Config) -> Iterator[Row]:
    """5,000 x 500, neighbouring columns correlated; every correlation at every penalty."""
    n, p = config.pick((5_000, 500), (500, 50))
    for rho in config.pick([0.0, 0.5, 0.95, 0.99], [0.95]):
        X, y = _data.autoregressive(n, p, rho)
        for share in config.pick([20, 200, 2000], [200]):
            name = f"lasso {n} x {p}, rho = {rho:g}, lambda_max / {share}"
            contest = certify(problem(name, X, y, largest_penalty(X, y) / share), gram(X), 2.5, config)
            yield contest.row
            yield from contest.against(((rival, math.inf) for rival in rivals.TALL), limit=15.0)


@benchmark
def lasso_paper(config: Config) -> Iterator[Row]:
    """[SB12, Table 1]: N = 10 D, lambda = 30 D; where coordinate descent is near its best."""
    for dimension in config.pick([50, 200, 1000], [20]):
        X, y = _data.spikes(dimension)
        contest = certify(
            problem(f"the paper's lasso, D = {dimension}", X, y, 30.0 * dimension), gram(X), math.inf, config
        )
        yield contest.row
        yield from contest.against((rival, 1.5) for rival in rivals.TALL)


@benchmark
def lasso_large(config: Config) -> Iterator[Row]:
    """So many columns that their Gram matrix takes longer than coordinate descent, and barely correlated ones."""
    for n, p in config.pick([(20_000, 2_000), (8_000, 5_500)], [(300, 100)]):
        X, y = _data.independent(n, p)
        name = f"lasso {n} x {p}, lambda_max / 20"
        contest = certify(problem(name, X, y, largest_penalty(X, y) / 20), None, 1.0, config)
        yield contest.row
        yield from contest.against(((rival, math.inf) for rival in rivals.TALL), limit=20.0)


@benchmark
def lasso_wide(config: Config) -> Iterator[Row]:
    """Riboflavin, 71 x 4088: centred, no intercept."""
    path = _data.shared_file("highdim/riboflavin.npz")
    if path is None:
        yield Row("lasso, riboflavin", "varopt", "time / its time", math.nan, 1.0, skipped=_data.absent("riboflavin"))
        return
    with np.load(path) as file:
        X, y = file["X"].astype(np.float64), file["y"].astype(np.float64)
    X, y = np.ascontiguousarray(X - X.mean(axis=0)), y - y.mean()
    for share, target in config.pick([(10, 1.0), (100, 1.0), (1000, 0.2)], [(10, math.inf)]):
        name = f"lasso, riboflavin {X.shape[0]} x {X.shape[1]}, lambda_max / {share}"
        contest = certify(problem(name, X, y, largest_penalty(X, y) / share), None, 1.0, config)
        yield contest.row
        yield from contest.against(((rival, target) for rival in rivals.WIDE), limit=20.0)
