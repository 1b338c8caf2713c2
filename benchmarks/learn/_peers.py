"""Single fits beside the fastest peer of each kind: the same data as NumPy has them, processor time in turns.

A peer with a tolerance climbs a ladder of them until it is as accurate as we prove to be, or has nothing left to give.
"""

from __future__ import annotations

import csv
import gzip
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._measure import Comparison, compare
from benchmarks._registry import Config, Row, benchmark
from benchmarks.composite import _data
from benchmarks.learn._fits import _primal

Vector = NDArray[np.float64]
Data = tuple[Vector, Vector]

_LADDER = 1e-4, 1e-6, 1e-8, 1e-10, 1e-12
_CLOSE = 1e-9  # relative excess over the bound that counts as the same accuracy


def _in_turns(ours: Any, peer: Any, X: Vector, y: Vector, config: Config) -> Comparison:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compare(lambda: ours.fit(X, y), lambda: peer.fit(X, y), config.pick(7, 1), clock=time.process_time)


def _climbed(
    make: Callable[[float], Any], X: Vector, y: Vector, excess: Callable[[Any], float], close: float = _CLOSE
) -> tuple[Any, float]:
    """A peer at the loosest tolerance at which it is close, or the tightest; and how far off it is."""
    peer, off = None, math.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tol in _LADDER:
            peer = make(tol).fit(X, y)
            off = excess(peer)
            if off <= close:
                break
    return peer, off


def _highdim(name: str) -> Data | None:
    path = _data.shared_file(f"highdim/{name}.npz")
    if path is not None:
        with np.load(path) as file:
            return file["X"].astype(np.float64), file["y"].astype(np.float64)
    found = _data.from_openml(_data.ON_OPENML[name]) if name in _data.ON_OPENML else None
    return None if found is None else (np.ascontiguousarray(found[0], dtype=np.float64), found[1])


def _like_golub(config: Config) -> Data:
    """As many genes and patients as in golub, forty factors in units of their own, two classes."""
    rng, (n, p) = np.random.default_rng(0), config.pick((72, 7129), (20, 200))
    factors = rng.standard_normal((n, 40))
    X = (0.5 * factors @ rng.standard_normal((40, p)) + rng.standard_normal((n, p))) * np.exp(rng.standard_normal(p))
    return X, np.where(factors[:, 0] + 0.3 * rng.standard_normal(n) > 0.4, 1.0, -1.0)


def _pol() -> Data | None:
    """15,000 x 26: OpenML's, without the columns that are constant."""
    from sklearn.datasets import fetch_openml

    found = _data.downloaded(lambda: fetch_openml("pol", version=1, as_frame=False, return_X_y=True, n_retries=1))
    if found is None:
        return None
    X = np.asarray(found[0], dtype=np.float64)
    return np.ascontiguousarray(X[:, X.std(axis=0) > 0.0]), np.asarray(found[1], dtype=np.float64)


def _like_pol(config: Config) -> Data:
    """As many rows and columns as in pol: counts, many of them zero, in units up to fifty apart."""
    rng, (n, p) = np.random.default_rng(0), config.pick((15_000, 26), (300, 5))
    sizes = np.abs(rng.standard_normal((n, p))) * np.exp(rng.uniform(0.0, 4.0, p))
    X = np.round(sizes * (rng.random((n, p)) < np.linspace(0.05, 1.0, p)))
    return X, np.clip(X @ rng.standard_normal(p) + 50.0 * rng.standard_normal(n), 0.0, 100.0)


def _protein() -> Data | None:
    return _csv("uci_protein.csv.gz", header=1)


def _csv(name: str, header: int) -> Data | None:
    path = _data.shared_file(f"regression/{name}")
    if path is None:
        return None
    with gzip.open(path, "rt") as file:
        table = np.array([[float(value) for value in row] for row in list(csv.reader(file))[header:]])
    return np.ascontiguousarray(table[:, :-1]), table[:, -1]


@benchmark
def single_lassos(config: Config) -> Iterator[Row]:
    """One strength, beside celer and scikit-learn."""
    sources: dict[str, tuple[Callable[[], Data | None], bool, list[float]]] = {
        "golub": (lambda: _highdim("golub"), True, [10.0, 100.0]),
        "72 x 7,129, as golub": (lambda: _like_golub(config), True, [10.0, 100.0]),
        "alon_colon": (lambda: _highdim("alon_colon"), True, [10.0, 100.0]),
        "riboflavin": (lambda: _highdim("riboflavin"), True, [10.0, 100.0]),
        "pol": (_pol, True, [10.0, 100.0]),
        "15,000 x 26, as pol": (lambda: _like_pol(config), True, [10.0, 100.0]),
        "uci_protein": (_protein, True, [10.0, 100.0]),
    } | {f"the paper's, D = {D}": (partial(_data.spikes, D), False, [0.0]) for D in (50, 200, 1000)}
    few = ["72 x 7,129, as golub", "15,000 x 26, as pol"]
    for source, (load, intercept, shares) in config.pick(sources, {k: sources[k] for k in few}).items():
        data = load()
        for share in shares:
            name = f"Lasso, {source}" + (f", lambda_max / {share:g}" if share else "")
            if data is None:
                yield Row(
                    name, "varopt.learn", "", math.nan, 1.0, skipped=f"{source} is not here, nor to be downloaded"
                )
                continue
            yield from _lasso(name, *data, share, intercept, config)


def _lasso(name: str, X: Vector, y: Vector, share: float, intercept: bool, config: Config) -> Iterator[Row]:
    from sklearn import linear_model

    from varopt import learn

    centred = y - y.mean() if intercept else y
    largest = float(np.abs((X - X.mean(axis=0) * intercept).T @ centred).max()) / len(y)
    alpha = largest / share if share else 15.0 * X.shape[1] / len(y)  # the paper's lambda = 30 D, of sums of squares
    ours = learn.Lasso(alpha, fit_intercept=intercept).fit(X, y)

    def excess(peer: Any) -> float:
        loss = 0.5 * np.mean((y - X @ peer.coef_ - peer.intercept_) ** 2) + alpha * np.abs(peer.coef_).sum()
        return float(loss / ours.lower_bound_ - 1.0)

    peers: dict[str, Callable[[float], Any]] = {
        "scikit-learn": lambda tol: linear_model.Lasso(alpha, tol=tol, max_iter=100_000, fit_intercept=intercept)
    }
    try:
        import celer

        peers["celer"] = lambda tol: celer.Lasso(alpha, tol=tol, fit_intercept=intercept)
    except ImportError:
        yield Row(name, "varopt.learn", "", math.nan, 1.0, skipped="celer is not installed")
    for peer_name, make in peers.items():
        peer, off = _climbed(make, X, y, excess)
        note = f"{peer_name} ends {off:.0e} above the bound, tol={peer.tol:g}"
        yield _row(name, peer_name, _in_turns(ours, peer, X, y, config), ours, config, note)


def _row(name: str, peer: str, timed: Comparison, ours: Any, config: Config, note: str) -> Row:
    narrow = ours.gap_ <= ours.tol * ours.objective_
    return Row(
        name, "varopt.learn", f"ours / {peer}, processor time", timed.ratio, config.pick(1.0, math.inf),
        timing=timed.candidate, baseline=timed.baseline, objective=ours.objective_, lower=ours.lower_bound_,
        gap=ours.gap_, status="ok" if narrow else "the gap is wider than asked for", note=note,
    )  # fmt: skip


@benchmark
def quantiles_with_l1(config: Config) -> Iterator[Row]:
    """Diabetes, 442 x 10, with an L1 penalty, beside HiGHS."""
    from sklearn import linear_model
    from sklearn.datasets import load_diabetes

    from varopt import learn

    X, y = load_diabetes(return_X_y=True)
    for level, alpha in config.pick([(0.5, 1e-3), (0.5, 1e-1), (0.1, 1e-2), (0.9, 1e-2)], [(0.5, 1e-1)]):
        ours = learn.QuantileRegressor(quantile=level, alpha=alpha)
        peer = linear_model.QuantileRegressor(quantile=level, alpha=alpha)
        timed = _in_turns(ours, peer, X, y, config)
        name = f"QuantileRegressor, diabetes, level {level:g}, alpha {alpha:g}"
        yield _row(name, "scikit-learn (HiGHS)", timed, ours, config, "both exact")


@benchmark
def huber_on_elevators(config: Config) -> Iterator[Row]:
    """16,599 x 18, of which columns nearly repeat others: raw, and standardised."""
    from sklearn import linear_model
    from sklearn.preprocessing import scale

    from varopt import learn

    data = _csv("elevators.csv.gz", header=0)
    for name in config.pick(["raw", "standardised"], ["standardised"]):
        title = f"HuberRegressor, elevators, {name}"
        if data is None:
            yield Row(title, "varopt.learn", "", math.nan, 1.0, skipped=_data.absent("elevators"))
            continue
        X, y = data[0] if name == "raw" else scale(data[0]), data[1]
        ours = learn.HuberRegressor().fit(X, y)
        theirs = linear_model.HuberRegressor(max_iter=10_000, tol=1e-8)
        timed = _in_turns(ours, theirs, X, y, config)
        off = _huber(theirs, X, y) / ours.lower_bound_ - 1.0
        yield _row(title, "scikit-learn", timed, ours, config, f"scikit-learn ends {off:.0e} above the bound")


def _huber(model: Any, X: Vector, y: Vector) -> float:
    """The objective of Huber's regression."""
    relative = np.abs(y - X @ model.coef_ - model.intercept_) / model.scale_
    losses = np.where(relative < model.epsilon, relative**2, 2.0 * model.epsilon * relative - model.epsilon**2)
    return float(model.scale_ * (len(y) + losses.sum()) + model.alpha * model.coef_ @ model.coef_)


@benchmark
def kernel_machines_of_thousands(config: Config) -> Iterator[Row]:
    """2,000 and 5,000 samples, weak and strong regularisation, beside LIBSVM at its default and at our accuracy."""
    from sklearn import svm
    from sklearn.datasets import make_classification

    from varopt import learn

    for n in config.pick([2_000, 5_000], [200]):
        overlap = make_classification(n, 20, n_informative=10, flip_y=0.1, random_state=0)
        data = {"two Gaussians": _data.two_gaussians(n, 20), "labels flipped": overlap}
        for source, (X, labels) in data.items():
            y = np.where(labels > 0, 1.0, -1.0)
            for cost in (0.1, 1.0, 10.0):
                ours = learn.SVC(C=cost).fit(X, y)
                for tol in (1e-3, 1e-6):
                    peer = svm.SVC(C=cost, tol=tol)
                    timed = _in_turns(ours, peer, X, y, config)
                    off = _primal(peer, X, y) / ours.lower_bound_ - 1.0
                    yield _row(
                        f"SVC, {source}, {n} x 20, C = {cost:g}", f"LIBSVM at {tol:g}", timed, ours, config,
                        f"LIBSVM ends {off:.0e} above the bound",
                    )  # fmt: skip
