"""The linear support vector machine, on the paper's data and on raw data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt as vo
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data
from benchmarks.composite._problem import Problem, certify, weighted_gram
from benchmarks.composite.rivals import svm as rivals

Vector = NDArray[np.float64]


def problem(name: str, X: Vector, labels: Vector, cost: float) -> Problem:
    """``w'w + C sum_n hinge(t_n (w'x_n + b))``: hinge loss, an unpenalised intercept."""

    def build() -> Any:
        w, b = vo.Variable(X.shape[1]), vo.Variable()
        return vo.sum_squares(w) + cost * vo.sum(vo.hinge(labels * (X @ w + b)))

    return Problem(name, build, (X, labels, cost), X.nbytes + labels.nbytes)


@benchmark
def support_vector_machine(config: Config) -> Iterator[Row]:
    """The paper's data, C = 10."""
    for n, target in config.pick([(2_000, 30.0), (20_000, 15.0), (200_000, 10.0)], [(500, math.inf)]):
        X, labels = _data.two_gaussians(n, 100)
        contest = certify(problem(f"linear SVM {n} x 100", X, labels, 10.0), weighted_gram(X), target, config)
        yield contest.row
        yield from contest.against([(rivals.REHLINE, 0.1), (rivals.LIBLINEAR, 0.1)], limit=40.0)


@benchmark
def raw_support_vector_machine(config: Config) -> Iterator[Row]:
    """Columns in their own units: what counts is that the gap closes."""
    wanted = [("breast_cancer", cost) for cost in config.pick([1e-3, 1.0, 100.0, 1e4], [1.0])] + [("german.numer", 1.0)]
    for source, cost in wanted:
        name = f"linear SVM, raw {source}, C = {cost:g}"
        try:
            data = _raw(source)
        except (ImportError, FileNotFoundError) as error:
            yield Row(name, "varopt", "relative gap / 1e-09", math.nan, 1.0, skipped=str(error))
            continue
        contest = certify(problem(name, *data, cost), None, 1.0, config)
        yield contest.row
        yield from contest.against([(rivals.REHLINE, math.inf), (rivals.LIBLINEAR, math.inf)], limit=15.0)


def _raw(source: str) -> tuple[Vector, Vector]:
    if source == "breast_cancer":
        return _data.breast_cancer()
    path = _data.shared_file(f"libsvm/{source}")
    if path is None:
        raise FileNotFoundError(_data.absent(source))
    return _data.svmlight(path)
