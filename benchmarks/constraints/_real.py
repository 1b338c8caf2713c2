"""Real variables: what constraints cost beside the problem without them, and beside those who make them their trade."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp

import varopt as vo
from benchmarks._measure import compare
from benchmarks._registry import Config, Row, benchmark
from benchmarks._rivals import ACCURATE

ROUNDS = 3
_SHORT_ROUNDS = 15  # of calls of milliseconds, in the processor's time: they are at the mercy of whatever else runs
_PATIENCE = 300.0  # seconds that a rival has


@dataclass(frozen=True)
class Pair:
    """A constrained problem, and a rival that solves the same; both build what they need on the clock."""

    problem: str
    solver: str
    ours: Callable[[], Any]
    rival: Callable[[], Any]
    target: float
    needs: str = ""
    value: Callable[[Any], float] | None = None  # of what the rival hands back, where it is to be compared
    note: str = ""
    rounds: int = ROUNDS
    clock: Callable[[], float] = time.perf_counter


def row_of(pair: Pair, config: Config) -> Row:
    ratio_of = f"varopt / {pair.solver}"
    if pair.needs and importlib.util.find_spec(pair.needs) is None:
        missing = f"not installed: {pair.needs}"
        return Row(pair.problem, pair.solver, ratio_of, float("nan"), pair.target, skipped=missing)
    kept: dict[str, Any] = {}
    timed = compare(
        lambda: kept.__setitem__("r", pair.ours()), lambda: kept.__setitem__("other", pair.rival()), pair.rounds,
        pair.clock,
    )  # fmt: skip
    r, status = kept["r"], "ok"
    if r.status.name != "OPTIMAL" or r.gap > ACCURATE * max(1.0, abs(r.fun)):
        status = f"{r.status.name}, gap {r.gap:.1g}"
    note = pair.note
    if pair.value is not None:
        above = (pair.value(kept["other"]) - r.fun) / max(1.0, abs(r.fun))
        note = "; ".join(filter(None, [note, f"the other ends {above:+.1g} from our value"]))
        if above < -1e-7:
            status = f"the other has a better value, by {-above:.1g}"
    return Row(
        pair.problem, pair.solver, ratio_of, timed.ratio, pair.target, timed.candidate, timed.baseline, r.fun, r.lower,
        r.gap, status, note=note,
    )  # fmt: skip


def _regression(n: int, p: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    beta = np.maximum(rng.standard_normal(p), 0.0) * (rng.random(p) < 0.5)
    return X, X @ beta + rng.standard_normal(n)


@benchmark
def bounds(config: Config) -> Iterator[Row]:
    """Bounds of single variables beside the same problem without them: within a factor of two."""
    for n, p in config.pick([(2000, 100), (20_000, 50)], [(200, 20)]):
        X, y = _regression(n, p)
        w = vo.Variable(p)
        lam = 0.05 * float(np.abs(2.0 * X.T @ y).max())
        problems = {
            "least squares, w >= 0": (vo.sum_squares(y - X @ w), [w >= 0]),
            "lasso, w >= 0": (vo.sum_squares(y - X @ w) + lam * vo.norm1(w), [w >= 0]),
            "quantile regression in a box": (vo.sum(vo.pinball(y - X @ w, 0.3)), [w >= -0.2, w <= 0.5]),
            "SVR in a box": (vo.sum_squares(w) + vo.sum(vo.epsilon_insensitive(y - X @ w, 0.1)), [w >= -0.2, w <= 0.5]),
            "SVM in a box": (0.5 * vo.sum_squares(w) + vo.sum(vo.hinge(np.sign(y) * (X @ w))), [w >= -0.2, w <= 0.5]),
        }
        for name, (f, box) in problems.items():
            pair = Pair(
                f"{name}, {n} x {p}", "without bounds", partial(vo.minimize, f, subject_to=box),
                partial(vo.minimize, f), 2.0, rounds=_SHORT_ROUNDS, clock=time.process_time,
            )  # fmt: skip
            yield row_of(pair, config)


@benchmark
def least_squares(config: Config) -> Iterator[Row]:
    """Non-negative least squares and lassos beside SciPy and celer."""
    from scipy.optimize import lsq_linear, nnls

    n, p = config.pick((5000, 300), (300, 20))
    X, y = _regression(n, p)
    w = vo.Variable(p)
    f = vo.sum_squares(y - X @ w)
    yield row_of(Pair(
        f"least squares, w >= 0, {n} x {p}", "scipy nnls", lambda: vo.minimize(f, subject_to=[w >= 0]),
        lambda: nnls(X, y), 1.0, value=lambda out: out[1] ** 2,
    ), config)  # fmt: skip
    yield row_of(Pair(
        f"least squares in a box, {n} x {p}", "scipy lsq_linear",
        lambda: vo.minimize(f, subject_to=[w >= -0.2, w <= 0.5]),
        lambda: lsq_linear(X, y, (-0.2, 0.5), method="bvls", tol=1e-12), 1.0, value=lambda out: 2.0 * out.cost,
    ), config)  # fmt: skip
    alpha = 0.05 * float(np.abs(X.T @ y).max()) / n
    g = f + 2.0 * n * alpha * vo.norm1(w)

    def celer() -> Any:
        from celer import Lasso

        return Lasso(alpha=alpha, fit_intercept=False, positive=True, tol=1e-12, max_iter=1000).fit(X, y)

    yield row_of(Pair(
        f"lasso, w >= 0, {n} x {p}", "celer", lambda: vo.minimize(g, subject_to=[w >= 0]), celer, 2.0, "celer",
        value=lambda model: float(g(model.coef_)),
    ), config)  # fmt: skip


@benchmark
def shapes(config: Config) -> Iterator[Row]:
    """Monotone and convex regression beside scikit-learn and a solver of quadratic programmes."""
    from sklearn.isotonic import isotonic_regression

    rng = np.random.default_rng(1)
    n = config.pick(100_000, 2000)
    y = np.sort(rng.standard_normal(n)) + rng.standard_normal(n)
    curve = vo.Variable(n)
    f = vo.sum_squares(y - curve)

    def monotone() -> Any:
        return vo.minimize(f, subject_to=[vo.diff(curve) >= 0])

    yield row_of(Pair(
        f"monotone regression, {n}", "scikit-learn", monotone, lambda: isotonic_regression(y), 20.0,
        value=lambda z: float(f(z)),
    ), config)  # fmt: skip
    first = sp.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
    yield row_of(Pair(
        f"monotone regression, {n}", "Clarabel", monotone, lambda: _clarabel(y, first), 0.1, "clarabel",
        value=lambda z: float(f(z)),
    ), config)  # fmt: skip
    m = config.pick(100_000, 1000)
    t = np.linspace(-1.0, 1.0, m)
    bowl = t**2 + 0.3 * rng.standard_normal(m)
    convex = vo.Variable(m)
    g = vo.sum_squares(bowl - convex)
    second = sp.diags_array(
        [np.ones(m - 2), -2.0 * np.ones(m - 2), np.ones(m - 2)], offsets=[0, 1, 2], shape=(m - 2, m)
    )
    yield row_of(Pair(
        f"convex regression, {m}", "Clarabel", lambda: vo.minimize(g, subject_to=[vo.diff(convex, 2) >= 0]),
        lambda: _clarabel(bowl, second), 0.1, "clarabel", value=lambda z: float(g(_convex_minorant(z))),
        note="the value is that of the greatest convex curve below its points, which miss the constraints",
    ), config)  # fmt: skip


def _convex_minorant(z: Any) -> Any:
    """The greatest convex function below points at even places: one that satisfies the constraints."""
    hull: list[tuple[int, float]] = []
    for k, value in enumerate(z.tolist()):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (k - hull[-2][0]) >= (value - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((k, value))
    places, values = zip(*hull, strict=True)
    return np.interp(np.arange(z.size), places, values)


def _clarabel(y: Any, rows: Any) -> Any:
    """``min |x - y|^2`` with ``rows x >= 0``, to the digits that Clarabel has."""
    import clarabel

    n = y.size
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    return np.asarray(
        clarabel.DefaultSolver(
            sp.csc_matrix(2.0 * sp.eye_array(n)), -2.0 * y, sp.csc_matrix(-rows), np.zeros(rows.shape[0]),
            [clarabel.NonnegativeConeT(rows.shape[0])], settings,
        ).solve().x
    )  # fmt: skip


@benchmark
def portfolio(config: Config) -> Iterator[Row]:
    """The portfolio of least conditional value at risk, beside HiGHS on the explicit programme."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(2)
    scenarios, assets = config.pick((10_000, 500), (300, 10))
    returns = 0.001 + 0.02 * rng.standard_normal((scenarios, assets)) @ np.diag(rng.uniform(0.5, 2.0, assets))
    mean = returns.mean(axis=0)
    asked = float(np.quantile(mean, 0.6))
    x = vo.Variable(assets)

    def ours() -> Any:
        return vo.minimize(vo.cvar(-(returns @ x), 0.95), subject_to=[x >= 0, vo.sum(x) == 1, mean @ x >= asked])

    def highs() -> Any:
        count = 0.05 * scenarios
        cost = np.r_[np.zeros(assets), 1.0, np.full(scenarios, 1.0 / count)]
        rows = sp.hstack([sp.csr_array(-returns), -np.ones((scenarios, 1)), -sp.eye_array(scenarios)])
        floor = sp.csr_array(np.r_[-mean, np.zeros(scenarios + 1)][None, :])
        return linprog(
            cost, A_ub=sp.vstack([rows, floor]), b_ub=np.r_[np.zeros(scenarios), -asked],
            A_eq=sp.csr_array(np.r_[np.ones(assets), np.zeros(scenarios + 1)][None, :]), b_eq=[1.0],
            bounds=[(0, None)] * assets + [(None, None)] + [(0, None)] * scenarios, method="highs",
            options={"time_limit": _PATIENCE},
        )  # fmt: skip

    def cvxpy() -> Any:
        cp: Any = importlib.import_module("cvxpy")
        x = cp.Variable(assets)
        limits = [x >= 0, cp.sum(x) == 1, mean @ x >= asked]
        return cp.Problem(cp.Minimize(cp.cvar(-(returns @ x), 0.95)), limits).solve(solver=cp.CLARABEL)

    name = f"mean-CVaR, {scenarios} x {assets}"
    yield row_of(Pair(
        name, "HiGHS", ours, highs, 1.0, value=lambda out: np.inf if out.status else float(out.fun), rounds=1,
        note=f"which is stopped after {_PATIENCE:.0f} s",
    ), config)  # fmt: skip
    yield row_of(Pair(name, "CVXPY", ours, cvxpy, 1.0, "cvxpy", value=float, rounds=1), config)


@benchmark
def non_crossing(config: Config) -> Iterator[Row]:
    """Nineteen quantiles that must not cross, beside HiGHS on the explicit programme."""
    from scipy.optimize import linprog

    from varopt.learn import QuantileRegressor

    rng = np.random.default_rng(3)
    n, p, count = config.pick((500, 5, 19), (100, 2, 5))
    levels = np.linspace(0.05, 0.95, count)
    X = rng.standard_normal((n, p))
    y = X @ rng.standard_normal(p) + (1.0 + 0.5 * np.abs(X[:, 0])) * rng.standard_normal(n)

    def ours() -> Any:
        model = QuantileRegressor(quantile=levels, alpha=0.0, non_crossing=True).fit(X, y)
        return SimpleNamespace(
            fun=model.objective_, lower=model.lower_bound_, gap=model.gap_, status=SimpleNamespace(name="OPTIMAL")
        )

    def highs() -> Any:
        Z = np.column_stack([X, np.ones(n)])
        width, each = p + 1, sp.csr_array(Z)
        eye = sp.eye_array(n * count)
        rows = sp.hstack([sp.block_diag([each] * count), eye, -eye])
        steps = sp.diags_array([np.ones(count - 1), -np.ones(count - 1)], offsets=[0, 1], shape=(count - 1, count))
        order = sp.hstack([sp.kron(steps, each), sp.csr_array((n * (count - 1), 2 * n * count))])
        cost = np.r_[np.zeros(count * width), np.repeat(levels, n) / n, np.repeat(1.0 - levels, n) / n]
        free = [(None, None)] * (count * width) + [(0, None)] * (2 * n * count)
        return linprog(cost, order, np.zeros(n * (count - 1)), rows, np.tile(y, count), free, method="highs")

    yield row_of(Pair(
        f"{count} quantiles in order, {n} x {p}", "HiGHS", ours, highs, 1.0, value=lambda out: float(out.fun), rounds=1
    ), config)  # fmt: skip
