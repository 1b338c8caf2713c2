"""Every estimator on data of all scales: its bracket against exact values of its objective, its time, its words."""

from __future__ import annotations

import inspect
import time
import traceback
import warnings
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

import varopt.learn
from fuzz.kernels import KERNELS, kernel_bracket
from fuzz.report import Finding, Report
from fuzz.run import Hang, late, watched

LIMIT = 1.0
_ALL = [
    name for name in varopt.learn.__all__
    if hasattr(getattr(varopt.learn, name), "fit") and name != "ConformalIntervals"  # which minimises nothing itself
]  # fmt: skip
NAMES = [name for name in _ALL if not name.endswith("CV")]
SEARCHES = [name for name in _ALL if name.endswith("CV")]
SEARCHING = ("ZeroOneClassifier", "RampClassifier")  # NP-hard: no promise of a closed gap
SEARCHED = 0.05  # share of fits that are searches for the strength of a penalty, which take many
SLACK = Fraction(1, 10**12)  # of the sizes of what is added up: coefficients are rounded, and so are predictions
Lines = list[str]


def estimators(seed: int, report: Report, *, extreme: bool = True) -> None:
    """One data set, by one estimator."""
    rng = np.random.default_rng([seed, 2])
    searched = bool(rng.random() < SEARCHED)
    name = (SEARCHES if searched else NAMES)[seed % len(SEARCHES if searched else NAMES)]
    kind = getattr(varopt.learn, name)
    options = _options(kind, rng)
    lines = _data(seed, rng, int(rng.integers(4, 40)), int(rng.integers(1, 6)), extreme)
    classifies = is_classifier(kind())
    if classifies:
        lines.append("y = np.where(y > np.median(y), 1, 0)")
    if name.startswith("MultiTask"):
        lines.append("y = np.stack([y, np.roll(y, 1)], axis=1)")
    if name == "TrendFilter":
        lines.append("X = X[:, :1]")
    elif rng.random() < 0.2:
        lines.append("X = sp.csr_array(X)")
    weighted = not searched and rng.random() < 0.2
    if weighted:
        lines.append("weight = np.round(rng.uniform(0.0, 3.0, len(y)), 1)")
    names: dict[str, Any] = {}
    head = ["import numpy as np, scipy.sparse as sp", f"from varopt.learn import {name}"]
    exec("\n".join([*head, *lines]), names)  # our own text
    X, y = names["X"], names["y"]
    counts = np.unique(y[names["weight"] > 0.0] if weighted else y, return_counts=True)[1]
    if classifies and (counts.size < 2 or (searched and counts.min() < 5)):
        return
    given = ", ".join(f"{k}={v!r}" for k, v in options.items())
    fit = f"m = {name}({given}).fit(X, y{', sample_weight=weight' if weighted else ''})"
    program = "\n".join([*head, *lines, fit, "print(m.objective_, m.lower_bound_, m.gap_)"]) + "\n"
    report.runs["estimators"] += 1

    def found(what: str, text: str) -> None:
        report.findings.append(Finding(what, name, text, seed, program))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started, cpu = time.perf_counter(), time.process_time()
        try:
            with watched(10.0 * LIMIT):
                exec(fit, names)
        except Hang:
            if time.process_time() - cpu < 5.0 * LIMIT:  # no time on a busy machine
                report.runs["estimators"] -= 1
                return
            found("hang", f"more than {10.0 * LIMIT:g} s of {LIMIT:g}")
            return
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            if not _refused(error):
                found(f"exception {type(error).__name__}", f"{str(error)[:200]} ({where.name}, line {where.lineno})")
            report.statuses[f"estimators: {'refused' if _refused(error) else 'exception'}"] += 1
            return
        spent = min(time.perf_counter() - started, time.process_time() - cpu)
    if "time_limit" in options and late(spent, LIMIT):
        found("late", f"{spent:.2f} s of {LIMIT:g}")
    told = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    strange = [w for w in caught if not issubclass(w.category, ConvergenceWarning) and not _expected(str(w.message))]
    if strange:
        found(f"warning {strange[0].category.__name__}", str(strange[0].message)[:150])
    _judge(names["m"], X, y, names["weight"] if weighted else None, told, found, report)


def _judge(m: Any, X: Any, y: Any, weight: Any, told: bool, found: Callable[[str, str], None], report: Report) -> None:
    """The bracket against its own words, and against values at the coefficients and beside them."""
    objective, lower, gap = (float(np.max(getattr(m, a))) for a in ("objective_", "lower_bound_", "gap_"))
    if not (np.isfinite(objective) and lower <= objective * (1 + 1e-12) + 1e-300):
        found("lower and objective_ disagree", f"{objective!r}, {lower!r}")
        return
    exact = EXACT.get(type(m).__name__.removesuffix("CV"))
    null = _null(m, y, weight, objective)
    if exact is not None:
        null = float(_value(exact, m, X, y, weight, np.zeros(X.shape[1]), 0.0)[0])
        _values(exact, m, X, y, weight, objective, Fraction(lower), found)
    if type(m).__name__ in KERNELS:
        null = kernel_bracket(m, X, y, weight, found)
    # Of targets that are all alike nothing is left, and of a bracket about zero what underflow may cost.
    closed = gap <= max(m.tol * max(abs(objective), null / 4096), 1e-12 * null, 1e-300)
    status = "closed" if closed else "open, and told" if told else "open"
    report.statuses[f"estimators: {status}"] += 1
    if not closed and not told:
        found("gap open without a warning", f"gap {gap:.3g} at {objective:.6g}")
    if not closed and type(m).__name__ not in SEARCHING:
        found("gap open", f"gap {gap:.3g} at {objective:.6g}")


def _null(m: Any, y: Any, weight: Any, objective: float) -> float:
    """The objective without a model, a share of which is the least unit, for estimators that are not in `EXACT`."""
    name = type(m).__name__.removesuffix("CV")
    if not name.startswith(("TrendFilter", "MultiTask", "HuberRegressor")):
        return objective
    share = np.ones(len(y)) / len(y) if weight is None else weight / weight.sum()
    y = np.asarray(y, dtype=float).reshape(len(y), -1)
    middle = share @ y if getattr(m, "fit_intercept", True) else 0.0
    spread = float((share @ (y - middle) ** 2).sum())
    rows = float(len(y) if weight is None else weight.sum())
    return 2.0 * rows * spread**0.5 if name == "HuberRegressor" else 0.5 * spread


def _values(exact: Any, m: Any, X: Any, y: Any, weight: Any, objective: float, lower: Fraction, found: Any) -> None:
    coef, intercept = np.ravel(m.coef_).astype(float), float(np.ravel(m.intercept_)[0])
    rng = np.random.default_rng(0)
    own, size = _value(exact, m, X, y, weight, coef, intercept)
    differs = abs(own - Fraction(objective)) > SLACK * size + Fraction(1, 10**9) * abs(own)
    if differs and type(m).__name__ != "ZeroOneClassifier":  # rounding may move a row across a step
        found("fun: objective_ is not that of coef_", f"{objective!r}, and {float(own)!r} exactly")
    for spread in (0.0, 1e-9, 1e-5, 1e-2):
        at = coef * (1.0 + spread * rng.standard_normal(coef.size))
        moved = intercept * (1.0 + spread * rng.standard_normal()) if m.fit_intercept else intercept
        value, size = _value(exact, m, X, y, weight, at, moved)
        if lower > value + SLACK * size:
            found("UNSOUND", f"lower bound {float(lower)!r}, and {float(value)!r} at {at.tolist()}, {moved!r}")
            return


# -- Objectives, written out once more --------------------------------------------------------------------------------


def _value(exact: Any, m: Any, X: Any, y: Any, weight: Any, coef: Any, intercept: float) -> tuple[Fraction, Fraction]:
    """The objective in rational arithmetic, and the sizes of all that it adds up, times slopes."""
    X = X.toarray() if hasattr(X, "toarray") else X
    w, b = [Fraction(float(v)) for v in coef], Fraction(intercept)
    z, sizes = [], []
    for row in X.tolist():
        parts = [Fraction(a) * v for a, v in zip(row, w, strict=True)]
        z.append(sum(parts, b))
        sizes.append(sum(map(abs, parts), abs(b)))
    share = [Fraction(1)] * len(z) if weight is None else [Fraction(float(v)) for v in weight]
    targets = [Fraction(float(v)) for v in y]
    value = exact(m, z, targets, share, w)
    slope = _slope(m, z, targets, sizes)
    return value, abs(value) + slope * sum((s * v for s, v in zip(share, sizes, strict=True)), Fraction(0))


def _slope(m: Any, z: list[Fraction], y: list[Fraction], sizes: list[Fraction]) -> Fraction:
    """A bound of how fast the losses change with a prediction."""
    far = max(abs(a - b) + s for a, b, s in zip(z, y, sizes, strict=True))
    return Fraction(getattr(m, "C", 1.0)) * (4 + 4 * far)


def _mean(share: list[Fraction], losses: list[Fraction]) -> Fraction:
    return _total(share, losses) / sum(share)


def _total(share: list[Fraction], losses: list[Fraction]) -> Fraction:
    return sum((s * v for s, v in zip(share, losses, strict=True)), Fraction(0))


def _l1(w: list[Fraction]) -> Fraction:
    return sum(map(abs, w), Fraction(0))


def _l2(w: list[Fraction]) -> Fraction:
    return sum((v * v for v in w), Fraction(0)) / 2


def _squares(m: Any, z: Any, y: Any, share: Any, w: Any) -> Fraction:
    return _mean(share, [(a - b) ** 2 / 2 for a, b in zip(y, z, strict=True)])


def _absolute(z: Any, y: Any, share: Any) -> Fraction:
    return _mean(share, [abs(a - b) for a, b in zip(y, z, strict=True)])


def _elastic_net(m: Any, z: Any, y: Any, share: Any, w: Any) -> Fraction:
    alpha, ratio = Fraction(_alpha(m)), Fraction(getattr(m, "l1_ratio_", m.l1_ratio))
    return _squares(m, z, y, share, w) + alpha * (ratio * _l1(w) + (1 - ratio) * _l2(w))


def _alpha(m: Any) -> float:
    return float(getattr(m, "alpha_", None) or getattr(m, "alpha", 0.0))


def _fused(m: Any, z: Any, y: Any, share: Any, w: Any) -> Fraction:
    fusion = Fraction(float(getattr(m, "fusion_", None) or m.fusion))
    jumps = sum((abs(b - a) for a, b in pairwise(w)), Fraction(0))
    return _squares(m, z, y, share, w) + Fraction(_alpha(m)) * _l1(w) + fusion * jumps


def _lasso(m: Any, z: Any, y: Any, share: Any, w: Any) -> Fraction:
    return _squares(m, z, y, share, w) + Fraction(_alpha(m)) * _l1(w)


def _pinball(m: Any, z: Any, y: Any, share: Any, w: Any) -> Fraction:
    q = Fraction(m.quantile)
    losses = [q * (a - b) if a >= b else (q - 1) * (a - b) for a, b in zip(y, z, strict=True)]
    return _mean(share, losses) + Fraction(_alpha(m)) * _l1(w)


def _signs(y: list[Fraction], z: list[Fraction]) -> list[Fraction]:
    return [v if t == 1 else -v for t, v in zip(y, z, strict=True)]


def _svc(m: Any, z: Any, y: Any, share: Any, w: Any) -> Fraction:
    losses = [max(1 - v, Fraction(0)) ** 2 for v in _signs(y, z)]
    return _l2(w) + Fraction(float(getattr(m, "C_", m.C if hasattr(m, "C") else 1.0))) * _total(share, losses)


def _ramp(m: Any, z: Any, y: Any, share: Any, w: Any) -> Fraction:
    return _l2(w) + Fraction(m.C) * _total(share, [min(max(1 - v, Fraction(0)), Fraction(1)) for v in _signs(y, z)])


#: The objectives of the estimators with default losses and penalties; the others have none here.
EXACT: dict[str, Any] = {
    "Lasso": _lasso,
    "ElasticNet": _elastic_net,
    "FusedLasso": _fused,
    "GroupLasso": _lasso,  # each feature a group
    "GeneralizedLasso": _lasso,
    "LADRegressor": lambda m, z, y, s, w: _absolute(z, y, s) + Fraction(m.alpha) * _l1(w),
    "QuantileRegressor": _pinball,
    "LinearSVR": lambda m, z, y, s, w: _l2(w) + Fraction(m.C) * sum(s) * _absolute(z, y, s),
    "LinearSVC": _svc,
    "RampClassifier": _ramp,
    "ZeroOneClassifier": lambda m, z, y, s, w: _mean(s, [Fraction(v <= 0) for v in _signs(y, z)]),
    "CompositeRegressor": lambda m, z, y, s, w: _squares(m, z, y, s, w) + Fraction(m.alpha) * _l2(w),
    "CompositeClassifier": lambda m, z, y, s, w: (
        _mean(s, [max(1 - v, Fraction(0)) for v in _signs(y, z)]) + Fraction(m.alpha) * _l2(w)
    ),
}


# -- What is drawn, and what is said ----------------------------------------------------------------------------------


def _options(kind: Any, rng: np.random.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {"time_limit": LIMIT}
    if kind.__name__ in SEARCHING and rng.random() < 0.9:  # which take all of it
        options = {}
    parameters = inspect.signature(kind).parameters
    for option, low, high in (("alpha", -4, 2), ("C", -3, 4), ("fusion", -3, 1)):
        if option in parameters and rng.random() < 0.7:
            options[option] = float(10.0 ** rng.integers(low, high))
    if kind.__name__.endswith("CV"):
        few = {"alphas": 3, "fusions": 3, "Cs": 3, "cv": 2}
        options |= {option: value for option, value in few.items() if option in parameters}
    if kind.__name__ in KERNELS:
        options["kernel"] = str(rng.choice(["rbf", "rbf", "linear", "poly"]))
        options["coef0"] = float(rng.integers(2))
        if rng.random() < 0.3:
            options["C"] = float(10.0 ** rng.integers(4, 9))
        if rng.random() < 0.3:
            options["gamma"] = float(10.0 ** rng.integers(-4, 4))
        if kind.__name__ == "SVR":
            options["epsilon"] = float(rng.choice([0.0, 0.001, 0.1]))
    if "fit_intercept" in parameters and rng.random() < 0.2:
        options["fit_intercept"] = False
    return options


def _data(seed: int, draw: np.random.Generator, n: int, p: int, extreme: bool) -> Lines:
    """The lines that make the data."""
    lines = [
        f"rng = np.random.default_rng({seed})",
        f"X = rng.standard_normal(({n}, {p}))",
        f"y = X @ rng.standard_normal({p}) + rng.standard_t(2, {n})",
    ]
    if draw.random() < 0.4:
        lines.append("X, y = np.round(X), np.round(y)")
    if draw.random() < 0.2:
        lines.append("X[:, -1] = 1.0")
    if draw.random() < 0.2:
        lines.append("X = np.c_[X, X[:, :1]]")
    style = draw.integers(6) if extreme else -1
    if style == 0:
        lines.append(f"X = X * 1e{int(draw.integers(-12, 13))}")
    elif style == 1:
        lines.append(f"y = y * 1e{int(draw.integers(-12, 13))}")
    elif style == 2:
        lines.append(f"X, y = X + 1e{int(draw.integers(1, 9))}, y + 1e{int(draw.integers(1, 9))}")
    elif style == 3 and draw.random() < 0.3:
        lines.append(f"X = X * 1e{int(draw.choice([-200, -150, 100, 150, 200]))}")
    return lines


_REFUSALS = (
    "non-finite parameter values", "too large, and need to be rescaled", "too large for a grid of strengths",
    "not finite. The input data may contain large",
)  # fmt: skip


def _refused(error: Exception) -> bool:
    """Whether an exception is the sentence that tells a user what of the data cannot be."""
    return isinstance(error, ValueError) and any(text in str(error) for text in _REFUSALS)


def _expected(message: str) -> bool:
    """Whether a warning is one that scikit-learn gives too."""
    return message.startswith(("With alpha=0", "The least populated class"))
