"""Whether confidence intervals cover as often as they say: a benchmark for each design and method."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks._registry import Benchmark, Config, Row, benchmark

Vector = NDArray[np.float64]
Design = Callable[[np.random.Generator], tuple[Vector, Vector]]

_ROWS, _LEVEL, _REFITS = 400, 0.5, 200
_TRUTH = np.array([1.0, 1.0, -0.5])
_LABELS = np.arange(_ROWS) % 50  # of clusters


def _normal(rng: np.random.Generator) -> tuple[Vector, Vector]:
    return rng.standard_normal((_ROWS, 2)), rng.standard_normal(_ROWS)


def _heavy(rng: np.random.Generator) -> tuple[Vector, Vector]:
    return rng.standard_normal((_ROWS, 2)), rng.standard_t(3, _ROWS)


def _spreading(rng: np.random.Generator) -> tuple[Vector, Vector]:
    X = rng.uniform(0.0, 2.0, (_ROWS, 2))
    return X, (0.5 + X[:, 0]) * rng.standard_normal(_ROWS)


def _bending(rng: np.random.Generator) -> tuple[Vector, Vector]:
    X = rng.standard_normal((_ROWS, 2))
    return X, (0.5 + 2.0 * norm.cdf(X[:, 0])) * rng.standard_normal(_ROWS)


def _clustered(rng: np.random.Generator) -> tuple[Vector, Vector]:
    """Half of the variance of features and noise is that of clusters."""
    clusters, rows = rng.standard_normal((50, 3))[_LABELS], rng.standard_normal((_ROWS, 3))
    both = math.sqrt(0.5) * (clusters + rows)
    return both[:, :2], both[:, 2]


# Features and noise, whose median is zero. Quantiles are lines in all but "bending", where only the median is.
_DESIGNS: dict[str, Design] = {
    "normal": _normal, "spreading": _spreading, "heavy": _heavy, "bending": _bending, "clustered": _clustered,
}  # fmt: skip
_METHODS: dict[str, dict[str, str]] = {
    "iid": {"method": "iid"},
    "nid": {"method": "nid"},
    "kernel": {"method": "kernel"},
    "powell": {"method": "kernel", "bandwidth": "hall-sheather"},
    "rank": {"method": "rank"},
    "pairs": {"method": "bootstrap", "kind": "pairs"},
    "bayesian": {"method": "bootstrap", "kind": "bayesian"},
    "wild": {"method": "bootstrap", "kind": "wild"},
}
# What a method does not claim: errors of one distribution for the first two, and lines beside the median for "nid".
_NOT_CLAIMED = {
    "spreading": ("iid", "rank"),
    "bending": ("iid", "rank", "nid"),
    "clustered": tuple(method for method in _METHODS if method not in ("pairs", "bayesian")),
}
_TOO_WIDE = ("powell",)  # Powell's kernel with R's usual width, R's as ours: said, and no target


@lru_cache(maxsize=2000)
def _fitted(design: str, simulation: int) -> tuple[Any, Vector, Vector]:
    """The fit and the data of a simulation, which all methods share."""
    from varopt.learn import QuantileRegressor

    X, noise = _DESIGNS[design](np.random.default_rng(simulation))
    y = _TRUTH[0] + X @ _TRUTH[1:] + noise
    return QuantileRegressor(quantile=_LEVEL, alpha=0.0).fit(X, y), X, y


def _covers(design: str, method: str, simulation: int) -> NDArray[np.bool_]:
    """Whether each interval holds the true coefficient, in one simulation; all methods see the same data."""
    from varopt.learn import inference

    model, X, y = _fitted(design, simulation)
    clusters = _LABELS if design == "clustered" else None
    with warnings.catch_warnings(action="ignore"):
        known = inference(
            model, X, y, refits=_REFITS, clusters=clusters, random_state=simulation, **_METHODS[method]  # type: ignore[arg-type]
        )  # fmt: skip
    return np.asarray((known.lower[0] <= _TRUTH) & (known.upper[0] >= _TRUTH))


def _coverage(design: str, method: str) -> Benchmark:
    def run(config: Config) -> Iterator[Row]:
        repeats = config.pick(2000, 3)
        covered = np.mean([_covers(design, method, simulation) for simulation in range(repeats)], axis=0)
        yield Row(
            f"95 % intervals, {design} noise, {method}", "varopt.learn", "largest distance from 95 % / 2 %",
            float(np.max(np.abs(covered - 0.95))) / 0.02,
            math.inf if method in _TOO_WIDE or config.quick else 1.0,
            note=f"{repeats} simulations of {_ROWS} x 2, median: " + ", ".join(f"{c:.4f}" for c in covered),
        )  # fmt: skip

    run.__name__ = f"coverage_{design}_{method}"
    run.__doc__ = f"95 % intervals by {method} cover each coefficient 93 to 97 times in 100, {design} noise."
    return benchmark(run)


for _design in _DESIGNS:
    for _method in _METHODS:
        if _method not in _NOT_CLAIMED.get(_design, ()):
            _coverage(_design, _method)
