"""Problems of bits at all scales, against all states."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np

from fuzz.run import Finding, Report
from varopt.discrete import ising, max_cut, max_sat, qubo

MATRIX = {"qubo": qubo, "max_cut": max_cut, "ising": ising}


def bits(seed: int, report: Report) -> None:
    """One problem of up to nine bits."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["qubo", "max_cut", "ising", "max_sat"]))
    scale = float(10.0 ** rng.integers(-15, 16))
    if kind == "max_sat":
        _clauses(seed, rng, scale, report)
        return
    n = int(rng.integers(2, 10))
    matrix = rng.standard_normal((n, n)) * (rng.random((n, n)) < rng.choice([0.3, 1.0]))
    matrix = (np.round(matrix * 3) if rng.random() < 0.5 else matrix) * scale
    if kind != "qubo":
        matrix = np.triu(matrix, 1)
        matrix = matrix + matrix.T
    program = (
        f"import numpy as np\nfrom varopt.discrete import {kind}\nr = {kind}(np.array({matrix.tolist()}))\nprint(r)\n"
    )
    _judge(seed, report, kind, lambda: MATRIX[kind](matrix), lambda x: _value(kind, matrix, x), n, program, scale)


def _value(kind: str, matrix: Any, x: Any) -> Fraction:
    """What is minimised, exactly; of cuts, minus the cut."""
    n = len(matrix)
    entry = [[Fraction(float(v)) for v in row] for row in matrix]
    pairs = itertools.combinations(range(n), 2)
    if kind == "qubo":
        return sum((entry[i][j] for i in range(n) for j in range(n) if x[i] and x[j]), Fraction(0))
    if kind == "max_cut":
        return -sum((entry[i][j] for i, j in pairs if x[i] != x[j]), Fraction(0))
    return sum((entry[i][j] * (1 if x[i] == x[j] else -1) for i, j in pairs), Fraction(0))


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

    def value(x: Any) -> Fraction:
        true = [any((x[abs(v) - 1] > 0) == (v > 0) for v in c) for c in clauses]
        if not all(t for t, h in zip(true, hard, strict=True) if h):
            return Fraction(10) ** 400  # no such state
        return -sum(
            (Fraction(float(w)) for t, w, h in zip(true, weights, hard, strict=True) if t and not h), Fraction(0)
        )

    text = str(weights.tolist()).replace("inf", "np.inf")
    program = (
        f"import numpy as np\nfrom varopt.discrete import max_sat\nr = max_sat({clauses}, weights={text})\nprint(r)\n"
    )
    _judge(seed, report, "max_sat", lambda: max_sat(clauses, weights), value, n, program, scale)


def _judge(seed: int, report: Report, kind: str, solve: Any, value: Any, n: int, program: str, scale: float) -> None:
    def found(what: str, text: str) -> None:
        report.findings.append(Finding(what, kind, text, seed, program))

    report.runs["bits"] += 1
    try:
        r = solve()
    except Exception as error:
        found(f"exception {type(error).__name__}", str(error))
        return
    report.statuses[f"bits: {r.status.name}"] += 1
    best = min(value(x) for x in itertools.product((0, 1), repeat=n))
    maximized = kind in ("max_cut", "max_sat")
    lower, fun = (-Fraction(r.upper), -Fraction(r.fun)) if maximized else (Fraction(r.lower), Fraction(r.fun))
    slack = Fraction(1, 10**12) * n * n * Fraction(scale) * 5
    if best == Fraction(10) ** 400:
        if r.status.name != "INFEASIBLE":
            found("contradiction not seen", f"{r.status.name}, fun {r.fun!r}")
        return
    if r.status.name == "INFEASIBLE":
        found("INFEASIBLE though it is not", f"best {float(best)!r}")
        return
    x = (r.x > 0).astype(int)
    if abs(value(x) - fun) > slack:
        found("fun is not the value of x", f"{float(fun)!r} and {float(value(x))!r}")
    if lower > best:
        found(
            "UNSOUND" if lower > best + slack else "UNSOUND BY ROUNDING",
            f"bound {float(lower)!r}, optimum {float(best)!r}",
        )
    if r.status.name == "PROVED" and fun > best + Fraction(1, 10**9) * max(abs(best), Fraction(scale)) * 2:
        found("PROVED and not optimal", f"{float(fun)!r}, optimum {float(best)!r}")
    if r.status.name != "PROVED":
        found("not proved", f"{r.status.name}: {r.lower!r} to {r.upper!r}")
