"""The group lasso: many more columns than rows, in groups of ten."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data
from benchmarks.composite._problem import Problem, certify
from benchmarks.composite.rivals import groups as rivals

Vector = NDArray[np.float64]
_WIDTH = 10


def problem(name: str, X: Vector, y: Vector, groups: Sequence[NDArray[np.intp]], penalty: float) -> Problem:
    """``sum_n (y_n - w'x_n)^2 + penalty sum_g sqrt(size_g) |w_g|``."""
    weights = np.sqrt([g.size for g in groups])

    def build() -> Any:
        w = vo.Variable(X.shape[1])
        return vo.sum_squares(y - X @ w) + penalty * vo.norm2(w, groups, weights)

    return Problem(name, build, (X, y, groups, penalty), X.nbytes + y.nbytes)


def largest_penalty(X: Vector, y: Vector, groups: Sequence[NDArray[np.intp]]) -> float:
    """The penalty from which on the solution is zero."""
    gradient = 2.0 * np.abs(X.T @ y)
    return max(float(np.linalg.norm(gradient[g]) / math.sqrt(g.size)) for g in groups)


def _sets(config: Config) -> Iterator[tuple[str, Vector, Vector]]:
    """Generated data of the shape of gene expressions, and measured ones where they are at hand."""
    rng = np.random.default_rng(0)
    rows, columns = config.pick((72, 2_000), (30, 200))
    X = rng.standard_normal((rows, columns))
    yield f"generated {rows} x {columns}", X, X[:, :50] @ rng.standard_normal(50) + rng.standard_normal(rows)
    for name in config.pick(["alon_colon", "riboflavin"], []):
        path = _data.shared_file(f"highdim/{name}.npz")
        if path is None:
            continue
        with np.load(path) as file:
            X, y = file["X"].astype(np.float64), np.ravel(file["y"]).astype(np.float64)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        yield f"{name} {X.shape[0]} x {X.shape[1]}", np.ascontiguousarray(X), y - y.mean()


@benchmark
def group_lasso(config: Config) -> Iterator[Row]:
    """Groups of ten columns, at three penalties; no intercept."""
    for name, X, y in _sets(config):
        groups = np.array_split(np.arange(X.shape[1]), X.shape[1] // _WIDTH)
        largest = largest_penalty(X, y, groups)
        for share in config.pick([2, 10, 50], [10]):
            title = f"group lasso, {name}, lambda_max / {share}"
            contest = certify(problem(title, X, y, groups, largest / share), None, 1.0, config)
            yield contest.row
            yield from contest.against([(rivals.SKGLM, math.inf)], limit=20.0)
