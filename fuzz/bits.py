"""Problems of bits at all scales, against all states."""

from __future__ import annotations

import itertools
import time
import warnings
from fractions import Fraction
from typing import Any

import numpy as np

from fuzz.report import Finding, Report
from varopt.discrete import ising, max_cut, max_sat, qubo

SECONDS = 1.0  # that so few bits may take
NOWHERE = Fraction(10) ** 400  # the value of a state that hard clauses forbid
MATRIX = {"qubo": qubo, "max_cut": max_cut, "ising": ising}
TENTHS = np.arange(-9, 10) / 10.0  # of which sums may look whole, and in fractions are not


def bits(seed: int, report: Report) -> None:
    """One problem of up to nine bits."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["qubo", "max_cut", "ising", "max_sat"]))
    scale = float(10.0 ** rng.integers(-15, 16))
    if kind == "max_sat":
        _clauses(seed, rng, scale, report)
        return
    n = int(rng.integers(2, 10))
    numbers = str(rng.choice(["real", "whole", "tenths"]))

    def drawn(*shape: int) -> Any:
        values = rng.choice(TENTHS, shape) if numbers == "tenths" else rng.standard_normal(shape)
        values = values * (rng.random(shape) < rng.choice([0.3, 1.0]))
        return (np.round(3.0 * values) if numbers == "whole" else values) * (1.0 if numbers == "tenths" else scale)

    scale = 1.0 if numbers == "tenths" else scale
    matrix = drawn(n, n)
    linear = drawn(n) if kind != "max_cut" and rng.random() < 0.5 else np.zeros(n)
    if kind != "qubo":
        matrix = np.triu(matrix, 1)
        matrix = matrix + matrix.T
    extra = f", np.array({linear.tolist()})" if kind != "max_cut" else ""
    program = (
        f"import numpy as np\nfrom varopt.discrete import {kind}\n"
        f"r = {kind}(np.array({matrix.tolist()}){extra})\nprint(r)\n"
    )

    def solve() -> Any:
        return max_cut(matrix) if kind == "max_cut" else MATRIX[kind](matrix, linear)

    _judge(seed, report, kind, solve, lambda x: _values(kind, matrix, linear, x), n, program, scale)


def _whole(numbers: Any) -> tuple[Any, int]:
    """Floating-point numbers as whole ones times one over a power of two, exactly."""
    exact = [Fraction(float(v)) for v in np.ravel(numbers)]
    unit = max((v.denominator for v in exact), default=1)
    whole = np.array([int(v * unit) for v in exact], dtype=object).reshape(np.shape(numbers))
    return whole, unit


def _values(kind: str, matrix: Any, linear: Any, states: Any) -> list[Fraction]:
    """What is minimised at states of zeros and ones, exactly; of cuts, minus the cut."""
    everything, unit = _whole(np.vstack([matrix, linear]))
    whole, fields = everything[:-1], everything[-1]
    signs = (states if kind == "qubo" else 2 * states - 1).astype(object)
    upper = whole if kind == "qubo" else np.triu(whole, 1)
    sums = ((signs @ upper) * signs).sum(axis=1) + signs @ fields
    if kind == "max_cut":  # what is on the same side less what is cut, which together is all
        return [Fraction(int(v - upper.sum()), 2 * unit) for v in sums]
    return [Fraction(int(v), unit) for v in sums]


def _clauses(seed: int, rng: np.random.Generator, scale: float, report: Report) -> None:
    n = int(rng.integers(2, 7))
    clauses = [
        [
            int(v) * int(rng.choice([-1, 1]))
            for v in 1 + rng.choice(n, int(rng.integers(1, min(n, 3) + 1)), replace=False)
        ]
        for _ in range(int(rng.integers(1, 12)))
    ]
    weights = np.round(rng.uniform(0.0, 3.0, len(clauses)), 1) * scale
    hard = rng.random(len(clauses)) < 0.2
    weights[hard] = np.inf
    n = max(abs(v) for c in clauses for v in c)

    whole, unit = _whole(np.where(hard, 0.0, weights))

    def values(states: Any) -> list[Fraction]:
        true = np.array([np.any([(states[:, abs(v) - 1] > 0) == (v > 0) for v in c], axis=0) for c in clauses])
        allowed = true[hard].all(axis=0)
        sums = true.T.astype(object) @ whole
        return [Fraction(-int(v), unit) if ok else NOWHERE for v, ok in zip(sums, allowed, strict=True)]

    text = str(weights.tolist()).replace("inf", "np.inf")
    program = (
        f"import numpy as np\nfrom varopt.discrete import max_sat\nr = max_sat({clauses}, weights={text})\nprint(r)\n"
    )
    _judge(seed, report, "max_sat", lambda: max_sat(clauses, weights), values, n, program, scale)


def _judge(seed: int, report: Report, kind: str, solve: Any, values: Any, n: int, program: str, scale: float) -> None:
    def found(what: str, text: str) -> None:
        report.findings.append(Finding(what, kind, text, seed, program))

    report.runs["bits"] += 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started, cpu = time.perf_counter(), time.process_time()
        try:
            r = solve()
        except Exception as error:
            found(f"exception {type(error).__name__}", str(error))
            return
        spent = min(time.perf_counter() - started, time.process_time() - cpu)
    if spent > SECONDS:
        found("late", f"{spent:.1f} s for {n} bits")
    if caught:
        found(f"warning {caught[0].category.__name__}", str(caught[0].message)[:150])
    report.statuses[f"bits: {kind}: {r.status.name}"] += 1
    best = min(values(np.array([*itertools.product((0, 1), repeat=n)])))
    maximized = kind in ("max_cut", "max_sat")
    sign = -1 if maximized else 1
    lower, upper = sorted(sign * Fraction(end) for end in (r.lower, r.upper))
    fun = sign * Fraction(r.fun)
    slack = Fraction(1, 10**12) * n * n * Fraction(scale) * 5
    if best == NOWHERE:
        if r.status.name != "INFEASIBLE":
            found("contradiction not seen", f"{r.status.name}, fun {r.fun!r}")
        return
    if r.status.name == "INFEASIBLE":
        found("INFEASIBLE though it is not", f"best {float(best)!r}")
        return
    (value,) = values((r.x[None] > 0).astype(int))
    if abs(value - fun) > slack:
        found("fun is not the value of x", f"{float(fun)!r} and {float(value)!r}")
    if lower > best:
        found(
            "UNSOUND" if lower > best + slack else "UNSOUND BY ROUNDING",
            f"bound {float(lower)!r}, optimum {float(best)!r}",
        )
    if upper < best:
        found("UNSOUND BY ROUNDING", f"upper end {float(upper)!r}, optimum {float(best)!r}")
    if r.status.name == "PROVED" and fun > best + Fraction(1, 10**9) * max(abs(best), Fraction(scale)) * 2:
        found("PROVED and not optimal", f"{float(fun)!r}, optimum {float(best)!r}")
    if r.status.name != "PROVED":
        found("not proved", f"{r.status.name}: {r.lower!r} to {r.upper!r}")
