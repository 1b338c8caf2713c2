"""Differences: the fused lasso of the paper, total variation and trend filtering of a signal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import varopt as vo
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data
from benchmarks.composite._problem import Contest, Problem, Yardstick, certify
from benchmarks.composite.rivals import programs
from benchmarks.composite.rivals.total_variation import CONDAT

Vector = NDArray[np.float64]

PROGRAMS = ((programs.CLARABEL, 0.1), (programs.OSQP, 0.1))


def difference(size: int, order: int) -> Any:
    """The matrix of finite differences, as an explicit programme needs it."""
    row = np.array([1.0])
    for _ in range(order):
        row = np.convolve(row, [-1.0, 1.0])
    return sp.diags_array(list(row), offsets=range(order + 1), shape=(size - order, size), format="csc")


@benchmark
def fused_lasso(config: Config) -> Iterator[Row]:
    """[SB12, section 2.3]: N = 10 D, lambda_1 = 500, lambda_2 = 200."""
    dimension = config.pick(500, 40)
    X, y = _data.plateaus(dimension)

    def build() -> Any:
        w = vo.Variable(dimension)
        return vo.sum_squares(y - X @ w) + 500.0 * vo.norm1(w) + 200.0 * vo.norm1(vo.diff(w))

    def explicit() -> programs.Programme:
        kinks = sp.vstack([500.0 * sp.eye_array(dimension), 200.0 * difference(dimension, 1)], format="csc")
        return programs.Programme(sp.triu(2.0 * (X.T @ X), format="csc"), -2.0 * (X.T @ y), kinks)

    problem = Problem(f"the paper's fused lasso, D = {dimension}", build, (explicit,), X.nbytes + y.nbytes)
    contest = certify(problem, Yardstick("X.T @ X", lambda: X.T @ X), math.inf, config)
    yield contest.row
    yield from contest.against(config.pick(PROGRAMS, ((programs.CLARABEL, 0.1), (programs.OSQP, 0.1))), limit=30.0)


def filtered(signal: Vector, order: int, penalty: float, name: str) -> Problem:
    """``1/2 sum_n (y_n - x_n)^2 + penalty sum_n |differences of x|``."""

    def build() -> Any:
        x = vo.Variable(signal.size)
        return 0.5 * vo.sum_squares(signal - x) + penalty * vo.norm1(vo.diff(x, order))

    def explicit() -> programs.Programme:
        n = signal.size
        return programs.Programme(sp.eye_array(n, format="csc"), -signal, penalty * difference(n, order))

    bands = order + 3  # the signal, the diagonal of the quadratic, the bands of the differences
    return Problem(name, build, (explicit, signal, penalty), bands * signal.nbytes)


@benchmark
def total_variation(config: Config) -> Iterator[Row]:
    """First differences: a direct method exists, which does nothing else."""
    yield from _growing(config, "total variation", 1, 5.0)


@benchmark
def trend_filtering(config: Config) -> Iterator[Row]:
    """Second differences."""
    yield from _growing(config, "trend filtering", 2, 50.0)


def _growing(config: Config, title: str, order: int, penalty: float) -> Iterator[Row]:
    before: Contest | None = None
    for n in config.pick([10**3, 10**4, 10**5, 10**6], [300]):
        signal = _data.steps(n) if order == 1 else _data.slopes(n)
        contest = certify(filtered(signal, order, penalty, f"{title} of {n} points"), None, 1.0, config)
        yield contest.row
        yield from contest.against(PROGRAMS, limit=30.0)
        if order == 1:
            yield from contest.against([(CONDAT, 100.0)])
        if before is not None:
            yield _growth(before, contest)
        before = contest


def _growth(before: Contest, after: Contest) -> Row:
    """Ten times the points in ten times the time, or at most half as much again."""
    growth = after.our_seconds / before.our_seconds / 10.0
    row = Row(after.problem.name, "varopt", "time / (10 times that of a tenth of the points)", growth, 1.5)
    return row if math.isfinite(growth) else replace(row, status="not solved in time")
