"""Whether every method earns its place: a problem of its kind, solved by `auto` with it and without."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import varopt as vo
from benchmarks._isolate import isolated
from benchmarks._measure import Timing, seconds
from benchmarks._registry import Config, Row, benchmark
from benchmarks._rivals import ACCURATE
from benchmarks.composite import _data

Vector = NDArray[np.float64]

WORTH = 1.5  # times as long, at least, without the method
PATIENCE = 10.0  # times as long at most, and
LEAST = 5.0  # seconds at least, until `auto` without the method is stopped
ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """A problem that a method is for."""

    method: str
    problem: str
    build: Callable[[], Any]


@dataclass(frozen=True)
class Run:
    """How a solve ended."""

    method: str
    seconds: float
    value: float
    lower: float

    @property
    def gap(self) -> float:
        """``value - lower``."""
        return self.value - self.lower

    @property
    def closed(self) -> bool:
        """Whether the gap is the one asked for."""
        return self.gap <= ACCURATE * max(1.0, abs(self.value))


def _solved(case: Case, limit: float, rounds: int, *but: str) -> tuple[list[Run], str]:
    """Solves in a process of its own, the first of them cold, and why there are no more; building is on the clock."""

    def solve() -> Any:
        return vo.minimize(case.build(), method=vo.solvers.Auto(but=but), time_limit=limit)

    def work() -> Iterator[Run | None]:
        yield None
        results: list[Any] = []
        for _ in range(1 + rounds):
            spent = seconds(lambda: results.append(solve()))
            yield Run(results[-1].method, spent, results[-1].fun, results[-1].lower)
            if spent > LEAST:
                return

    runs, reason = isolated(work, 2.0 * limit * (1 + rounds))
    return [run for run in runs if run is not None], reason


def _timing(runs: list[Run]) -> Timing:
    """Cold and warm seconds; of one run that took long, the same."""
    return Timing(runs[0].seconds, tuple(run.seconds for run in runs[1:] or runs))


def earned(case: Case, config: Config) -> Row:
    """The time with the method over the time without it."""
    rounds = config.pick(ROUNDS, 1)
    runs, reason = _solved(case, 60.0, rounds)
    row = Row(case.problem, f"varopt, without {case.method}", "time / time without it", math.nan, math.inf)
    if not runs or not all(run.closed or case.method == "graduated" for run in runs):
        return replace(row, status=reason or "the gap stays open")
    ours = _timing(runs)
    limit = config.pick(max(LEAST, PATIENCE * ours.best), LEAST)
    others, reason = _solved(case, limit, rounds, case.method)
    kept: dict[str, Any] = {
        "solver": f"varopt {runs[-1].method}", "timing": ours, "objective": runs[-1].value, "lower": runs[-1].lower,
        "gap": runs[-1].gap if math.isfinite(runs[-1].gap) else None, "target": config.pick(1.0 / WORTH, math.inf),
    }  # fmt: skip
    if not others:
        refused = reason.startswith(("NotComposite", "ValueError"))
        note = "without it no method takes the problem" if refused else f"without it: {reason}"
        return replace(row, **kept, ratio=0.0, note=note)
    theirs = _timing(others)
    last = others[-1]
    ended = "" if last.closed else f", relative gap {last.gap / max(1.0, abs(last.value)):.1g}"
    ratio = ours.best / theirs.best if last.closed else 0.0
    note = f"without it {last.method}, {theirs.best:.2g} s{ended}"
    return replace(row, **kept, baseline=theirs, ratio=ratio, note=note)


def _lasso(X: Any, y: Vector, share: float) -> Callable[[], Any]:
    penalty = 2.0 * float(np.abs(X.T @ y).max()) / share

    def build() -> Any:
        w = vo.Variable(X.shape[1])
        return vo.sum_squares(y - X @ w) + penalty * vo.norm1(w)

    return build


def _svm(X: Any, labels: Vector, C: float) -> Callable[[], Any]:
    def build() -> Any:
        w, b = vo.Variable(X.shape[1]), vo.Variable()
        return 0.5 * vo.sum_squares(w) + C * vo.sum(vo.hinge(labels * (X @ w + b)))

    return build


def _documents(n: int, p: int) -> tuple[Any, Vector]:
    """Bags of words: columns as frequent as words are, rows of length one, labels that a few words decide."""
    rng = np.random.default_rng(0)
    frequent = 1.0 / np.arange(1, p + 1)
    counts = sp.csr_array(
        (np.ones(60 * n), (np.repeat(np.arange(n), 60), rng.choice(p, 60 * n, p=frequent / frequent.sum()))), (n, p)
    )
    counts.sum_duplicates()
    counts.data = 1.0 + np.log(counts.data)
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    X = sp.csr_array(sp.diags_array(1.0 / lengths) @ counts)
    score = X @ rng.standard_normal(p)
    return X, np.where(score + 0.3 * np.std(score) * rng.standard_normal(n) > np.median(score), 1.0, -1.0)


def _sensors(n: int) -> tuple[Any, Any]:
    """Readings to two digits, rounded sums of them, two sensors that do not work, in many units."""
    rng = np.random.default_rng(0)
    base = np.round(rng.standard_normal((n, 6)), 2)
    sums = np.round(base @ np.round(rng.standard_normal((6, 6)), 1) + 1e-3 * rng.standard_normal((n, 6)), 3)
    X = np.column_stack([base, sums, np.full(n, 0.5), np.full(n, 18.0), np.round(base[:, 0], 1)])
    y = np.round(1e-3 * (base @ rng.standard_normal(6) + rng.standard_t(2, n)), 4)
    return X * 10.0 ** rng.integers(-4, 4, X.shape[1]), y


def cases(config: Config) -> Iterator[Case]:
    """A problem for each method that `auto` may take."""
    n, p = config.pick((20_000, 50), (400, 5))
    X, y = _data.heavy_tails(n, p)

    def quantile() -> Any:
        w, b = vo.Variable(X.shape[1]), vo.Variable()
        return vo.sum(vo.pinball(y - X @ w - b, 0.7))

    yield Case("newton", f"quantile regression {n} x {p}", quantile)

    n = config.pick(8_000, 400)
    sensors, read = _sensors(n)

    def repeated() -> Any:
        w, b = vo.Variable(sensors.shape[1]), vo.Variable()
        return vo.sum(vo.pinball(read - sensors @ w - b, 0.95))

    yield Case(
        "orthogonal", f"quantile regression {n} x {sensors.shape[1]}, features that nearly repeat others", repeated
    )

    n, p = config.pick((1_000, 500), (300, 30))
    yield Case("pivoting", f"lasso {n} x {p}", _lasso(*_data.autoregressive(n, p, 0.5), 200.0))
    n, p = config.pick((4_000, 3_000), (1_100, 1_000))
    yield Case("block-descent", f"lasso {n} x {p}", _lasso(*_data.autoregressive(n, p, 0.5), 20.0))
    n, p = config.pick((100, 10_000), (20, 400))
    yield Case("working-set", f"lasso {n} x {p}", _lasso(*_data.independent(n, p), 10.0))
    n, p = config.pick((70, 7_000), (20, 400))
    yield Case("range", f"linear SVM {n} x {p}", _svm(*_data.two_gaussians(n, p), 1.0))

    n, p = config.pick((1_000, 20), (400, 5))
    K, labels = _data.two_gaussians(n, p)
    K = labels[:, None] * (K @ K.T) * labels

    def kernelised() -> Any:
        beta, b = vo.Variable(K.shape[0]), vo.Variable()
        return vo.quad_form(beta, K) + 10.0 * vo.sum(vo.hinge(K @ beta + labels * b))

    yield Case("low-rank", f"the paper's SVM, kernelised, {n} x {p}", kernelised)

    n, p = config.pick((100, 150), (10, 40))
    A, a = _data.heavy_tails(n, p)

    def ridge() -> Any:
        w = vo.Variable(A.shape[1])
        return vo.sum(vo.pinball(a - A @ w, 0.2)) + 0.05 * vo.sum_squares(w)

    yield Case("program", f"quantile regression with a ridge, {n} x {p}", ridge)

    n, p = config.pick((20_000, 20_000), (300, 400))
    yield Case("multipliers", f"linear SVM on {n} documents of {p} words", _svm(*_documents(n, p), 1.0))

    n = config.pick(100_000, 1_200)
    steps, slopes = _data.steps(n), _data.slopes(n)

    def filtered(loss: Any, signal: Vector, order: int, penalty: float) -> Callable[[], Any]:
        def build() -> Any:
            x = vo.Variable(signal.size)
            return loss(signal - x) + penalty * vo.norm1(vo.diff(x, order))

        return build

    yield Case("taut-string", f"total variation of {n} points", filtered(vo.sum_squares, steps, 1, 10.0))
    yield Case("knots", f"trend filtering of {n} points", filtered(vo.sum_squares, slopes, 2, 100.0))
    yield Case("interior-point", f"total variation of {n} points, absolute errors", filtered(vo.norm1, steps, 1, 5.0))

    n, p = config.pick((2_000, 300), (200, 30))
    B, b = _data.autoregressive(n, p, 0.5)

    def groups() -> Any:
        w = vo.Variable(B.shape[1])
        return vo.sum_squares(b - B @ w) + 0.1 * B.shape[0] * vo.norm2(w, groups=5)

    def absolute_groups() -> Any:
        w = vo.Variable(B.shape[1])
        return vo.norm1(b - B @ w) + 0.1 * B.shape[0] * vo.norm2(vo.diff(w), groups=B.shape[1] - 1)

    C, c = _data.autoregressive(60, 6, 0.5)
    c = c + np.random.default_rng(0).standard_normal(60)

    def norm_of_errors() -> Any:
        w = vo.Variable(C.shape[1])
        return vo.norm2(c[:30] - C[:30] @ w) + vo.norm1(c[30:] - C[30:] @ w) + vo.norm2(w)

    yield Case("group-descent", f"group lasso {n} x {p}", groups)
    yield Case("conic", "a norm of errors, absolute errors and a norm of coefficients, 60 x 6", norm_of_errors)
    yield Case("group-newton", f"absolute errors and a norm of differences, {n} x {p}", absolute_groups)

    n, p = config.pick((200, 2), (40, 2))
    Z, z = _data.two_gaussians(n, p)

    def errors() -> Any:
        w, c = vo.Variable(Z.shape[1]), vo.Variable()
        return vo.sum(vo.zero_one(z * (Z @ w + c)))

    yield Case("graduated", f"fewest errors of a line, {n} points", errors)


@benchmark
def every_method(config: Config) -> Iterator[Row]:
    """Each on a problem that it is for. The paper's two methods are not among them: `auto` does not take these."""
    for case in cases(config):
        yield earned(case, config)
