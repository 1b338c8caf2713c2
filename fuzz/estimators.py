"""Every estimator on small data of all scales: an honest gap, a warning where it is open, no other surprise."""

from __future__ import annotations

import inspect
import time
import traceback
import warnings
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

import varopt.learn
from fuzz.run import Finding, Hang, Report, watched

LIMIT = 1.0
NAMES = [
    name for name in varopt.learn.__all__ if inspect.isclass(getattr(varopt.learn, name)) and not name.endswith("CV")
]


def estimators(seed: int, report: Report, *, extreme: bool = True) -> None:
    """One data set, by one estimator."""
    rng = np.random.default_rng(seed)
    name = NAMES[seed % len(NAMES)]
    kind = getattr(varopt.learn, name)
    options: dict[str, Any] = {"time_limit": LIMIT}
    for option, low, high in (("alpha", -4, 2), ("C", -3, 4), ("fusion", -3, 1)):
        if option in inspect.signature(kind).parameters and rng.random() < 0.7:
            options[option] = float(10.0 ** rng.integers(low, high))
    n, p = int(rng.integers(4, 40)), int(rng.integers(1, 6))
    X, y, made = _data(seed, n, p, extreme)
    lines = [
        "import numpy as np",
        f"from varopt.learn import {name}",
        *made,
        f"m = {name}({', '.join(f'{k}={v!r}' for k, v in options.items())})",
        f"m.fit({'X[:, :1], y' if name == 'TrendFilter' else 'X, y'})",
        "print(m.objective_, m.lower_bound_, m.gap_)",
    ]
    target: Any = np.where(y > np.median(y), 1, 0) if is_classifier(kind()) else y
    if is_classifier(kind()):
        if np.unique(target).size < 2:
            return
        lines.insert(-3, "y = np.where(y > np.median(y), 1, 0)")
    program = "\n".join(lines) + "\n"
    report.runs["estimators"] += 1

    def found(what: str, text: str) -> None:
        report.findings.append(Finding(what, name, text, seed, program))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started, cpu = time.perf_counter(), time.process_time()
        try:
            model = kind(**options)
            with watched(10.0 * LIMIT):
                model = model.fit(X[:, :1], target) if name == "TrendFilter" else model.fit(X, target)
        except Hang:
            found("hang", f"more than {10.0 * LIMIT:g} s of {LIMIT:g}")
            return
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found(f"exception {type(error).__name__}", f"{str(error)[:200]} ({where.name}, line {where.lineno})")
            return
        spent = min(time.perf_counter() - started, time.process_time() - cpu)
    if spent > 1.2 * LIMIT + 0.1:
        found("late", f"{spent:.2f} s of {LIMIT:g}")
    told = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    for w in caught:
        if not issubclass(w.category, ConvergenceWarning):
            found(f"warning {w.category.__name__}", str(w.message)[:150])
            break
    objective, lower, gap = (float(np.max(getattr(model, a))) for a in ("objective_", "lower_bound_", "gap_"))
    if not (np.isfinite(objective) and lower <= objective * (1 + 1e-12) + 1e-300):
        found("objective_ and lower_bound_ disagree", f"{objective!r}, {lower!r}")
    closed = gap <= model.tol * max(1.0, abs(objective))
    report.statuses[f"estimators: {'closed' if closed else 'open'}{', told' if told else ''}"] += 1
    if not closed and not told:
        found("gap open without a warning", f"gap {gap:.3g} at {objective:.6g}")
    if not closed:
        found("gap open", f"gap {gap:.3g} at {objective:.6g}")


def _data(seed: int, n: int, p: int, extreme: bool) -> tuple[Any, Any, list[str]]:
    """Data, and the lines that make them: both by running the lines."""
    names: dict[str, Any] = {"np": np}
    draw = np.random.default_rng([seed, 1])
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
    exec("\n".join(lines), names)  # our own text
    return names["X"], names["y"], lines
