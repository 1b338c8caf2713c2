"""The calls that two versions are compared by: the problems of the suite composite, and what else users call often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

import varopt as vo
from benchmarks._registry import Config, load
from benchmarks.composite import _data

Case = tuple[str, Callable[[], Any]]


def cases(quick: bool) -> Iterator[Case]:
    """Name and call of each, its data made when it is its turn."""
    yield from _composite(quick)
    yield from _estimators(quick)
    yield from _bits(quick)
    yield from _searches(quick)


def _composite(quick: bool) -> Iterator[Case]:
    problems: list[Any] = []
    config = Config(quick, problems.append)
    yield "pinball 100 x 5", partial(_pinball, *_data.heavy_tails(100, 5))
    for function in load("composite"):
        if function.__name__ != "proofs":  # it measures a part of a solve
            for _ in function(config):
                while problems:
                    problem = problems.pop()
                    yield problem.name, partial(_solved, problem)


def _solved(problem: Any) -> Any:
    return vo.minimize(problem.build(), time_limit=60.0)


def _pinball(X: Any, y: Any) -> Any:
    w, b = vo.Variable(X.shape[1]), vo.Variable()
    return vo.minimize(vo.sum(vo.pinball(y - X @ w - b, 0.7)))


def _estimators(quick: bool) -> Iterator[Case]:
    from varopt import learn

    rows = 500 if quick else 20_000
    X, y = _data.heavy_tails(rows, 8)
    levels = np.round(np.arange(0.05, 0.96, 0.05), 2)
    few, of_few = X[:500], y[:500]
    labels = np.where(y > 0.0, 1, -1)
    models: dict[str, tuple[Any, Any, Any]] = {
        "QuantileRegressor": (learn.QuantileRegressor(alpha=0.0), X, y),
        "QuantileRegressor, 19 levels": (learn.QuantileRegressor(quantile=levels, alpha=0.0), X, y),
        "LADRegressor": (learn.LADRegressor(), X, y),
        "HuberRegressor": (learn.HuberRegressor(), X, y),
        "LinearSVC": (learn.LinearSVC(loss="hinge"), X, labels),
        "LinearSVC, sparse": (learn.LinearSVC(loss="hinge"), sp.csr_array(np.where(np.abs(X) > 1.5, X, 0.0)), labels),
        "LinearSVR": (learn.LinearSVR(), X, y),
        "SVC": (learn.SVC(), X[:2000], labels[:2000]),
        "SVR": (learn.SVR(), few, of_few),
        "Lasso": (learn.Lasso(0.1), few, of_few),
        "LassoCV": (learn.LassoCV(), few, of_few),
        "FusedLasso": (learn.FusedLasso(0.1), few, of_few),
        "TrendFilter": (learn.TrendFilter(), np.arange(500.0)[:, None], np.cumsum(of_few)),
    }
    for name, (model, features, targets) in models.items():
        yield f"{name} {features.shape[0]} x {features.shape[1]}", partial(model.fit, features, targets)


def _bits(quick: bool) -> Iterator[Case]:
    from varopt import discrete

    rng, size = np.random.default_rng(0), 20 if quick else 40
    A = rng.integers(-9, 10, (size, size))
    yield f"dense QUBO of {size} bits, proved", partial(discrete.qubo, A + A.T, seed=0)
    side = 6 if quick else 12
    here = np.arange(side * side).reshape(side, side)
    pairs = [(here, np.roll(here, 1, axis)) for axis in (0, 1)]
    heads, tails = (np.concatenate([pair[k].ravel() for pair in pairs]) for k in (0, 1))
    W = sp.coo_array((rng.choice([-1.0, 1.0], heads.size), (heads, tails)), shape=(side**2, side**2))
    yield f"cut of a torus of {side} x {side}, proved", partial(discrete.max_cut, sp.csr_array(W + W.T), seed=0)


def _searches(quick: bool) -> Iterator[Case]:
    box, most = vo.Box(-5.0, 5.0, size=10), 500 if quick else 10_000
    for method in ("cma", "snes"):
        yield (
            f"{method}, d = 10, {most} evaluations",
            partial(vo.minimize, lambda z: float(np.abs(z).sum()), box, budget=most, seed=0, method=method),
        )
