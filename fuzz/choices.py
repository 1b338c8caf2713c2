"""Random bits and choices with constraints, some of which nothing satisfies, against enumeration and CP-SAT."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import varopt as vo
from fuzz.report import Finding, Report
from fuzz.run import Hang, watched

LIMIT = 5.0  # seconds of a run
AGREES = 1e-9  # of the sizes of coefficients


def choices(seed: int, report: Report) -> None:
    """One problem; its states are few enough to be listed, though not always few enough for us to list them."""
    rng = np.random.default_rng(seed)
    text = random_program(rng)
    names: dict[str, Any] = {"np": np, "vo": vo}
    exec(text, names)  # our own text
    found, result, cpu = [], None, time.process_time()
    try:
        with watched(10.0 * LIMIT):
            result = vo.minimize(names["f"], subject_to=names["limits"], time_limit=LIMIT)
    except Hang:
        found.append("hang: more than ten times the time limit")
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        found.append(f"exception {type(error).__name__}: {error} ({where.filename}, line {where.lineno})")
    if time.process_time() - cpu > 1.5 * LIMIT + 0.5:
        found.append(f"late: {time.process_time() - cpu:.2f} s of {LIMIT:g}")
    if result is not None:
        found += complaints(names, result)
        report.statuses[f"choices: {result.status.name}"] += 1
    report.runs["choices"] += 1
    shown = "import numpy as np, varopt as vo\n\n" + text
    shown += f"r = vo.minimize(f, subject_to=limits, time_limit={LIMIT})\nprint(r)\n"
    report.findings += [Finding(t.split(":")[0], "auto", t, seed, shown) for t in found]


def random_program(rng: np.random.Generator) -> str:
    """Lines that build a quadratic in bits or choices and one to three constraints."""
    large = bool(rng.random() < 0.3)  # more states than are listed by us
    if rng.random() < 0.5:
        size = int(rng.integers(19, 21) if large else rng.integers(2, 17))
        shape, declared = (size,), f"x = vo.Binary({size})"
    else:
        rows, columns = (8, 5) if large else (int(rng.integers(2, 6)), int(rng.integers(2, 5)))
        size, shape = rows * columns, (rows, columns)
        declared = f"x = vo.Categorical({rows}, {columns})"
    whole = bool(rng.random() < 0.6)

    def numbers(*dimensions: int, low: int = -5) -> Any:
        drawn = rng.integers(low, 6, dimensions) if whole else np.round(rng.standard_normal(dimensions), 2)
        return np.abs(drawn).tolist() if low == 0 else drawn.tolist()

    lines = [declared, f"Q = np.array({numbers(size, size)})", f"c = np.array({numbers(size)})"]
    lines.append("f = vo.sum((Q @ x) * x) + c @ x" if len(shape) == 1 else "f = x @ (Q @ x) + c @ x")
    limits = []
    for _ in range(int(rng.integers(1, 4))):
        kinds = ["knapsack", "equal", "some", "columns", "switch", "even", "impossible"]
        kind = rng.choice(kinds, p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.05, 0.05])
        weights = numbers(size, low=0)
        if kind == "knapsack":
            limits.append(
                f"np.array({weights}) @ x <= {round(float(rng.uniform(0.1, 0.7)) * float(np.sum(weights)), 2)}"
            )
        elif kind == "equal":
            limits.append(f"vo.sum(x) == {int(rng.integers(0, size + 1)) if len(shape) == 1 else shape[0]}")
        elif kind == "some":
            limits.append(f"np.array({rng.integers(0, 2, size).tolist()}) @ x >= {int(rng.integers(0, 4))}")
        elif kind == "columns" and len(shape) == 2:
            limits.append(f"vo.sum(x, axis=0) <= {int(rng.integers(1, 4))}")
        elif kind == "switch":  # so large a weight that others look like its rounding
            large = float(10.0 ** rng.integers(3, 13))
            limits.append(f"np.array({[large, *weights[1:]]}) @ x <= {large}")
        elif kind == "even":
            limits.append(
                f"np.array({(2 * rng.integers(1, 4, size)).tolist()}) @ x == {int(rng.integers(0, size + 1))}"
            )
        elif kind == "impossible":
            limits.append(f"vo.sum(x) >= {size + 1}")
    lines.append(f"limits = [{', '.join(limits) or 'vo.sum(x) >= 0'}]")
    return "\n".join(lines) + "\n"


def complaints(names: dict[str, Any], result: Any) -> Iterator[str]:
    """What is wrong with a result."""
    x, Q, c = names["x"], names["Q"], names["c"]
    states = _states(x)
    values = np.einsum("ij,ij->i", states @ Q, states) + states @ c
    allowed = np.ones(len(states), dtype=bool)
    for limit in names["limits"]:
        excess = limit.excess({x: states})
        allowed &= ~np.any(excess.reshape(len(states), -1) > 1e-9, axis=1)
    best = float(values[allowed].min()) if allowed.any() else np.inf
    scale = AGREES * (float(np.abs(Q).sum()) + float(np.abs(c).sum()) + 1.0)
    name = result.status.name
    if name == "INFEASIBLE":
        if allowed.any():
            yield "FALSE INFEASIBLE: there is a state"
        return
    if not allowed.any():
        yield f"NOT PROVED: {name}, and no state satisfies all constraints"
        return
    if not np.isfinite(result.fun):
        yield f"not found: {name}, and there is a state"
        return
    if result.violation > 1e-9:
        yield f"FALSE {name}: constraints are missed by {result.violation:.3g}"
    if result.lower > best + scale:
        assumed = " (assumption stated)" if result.certificate.assumption else ""
        yield f"UNSOUND{assumed}: lower {result.lower!r} above the optimum {best!r}"
    yield from _last_digits(names, result, states[allowed & (values <= best + scale)])
    if result.fun < best - scale:
        yield f"FALSE VALUE: {result.fun!r} below the optimum {best!r}"
    if result.fun > best + scale:
        kind = f"FALSE {name}" if name in ("PROVED", "ASSUMED") else "missed optimum"
        yield f"{kind}: {result.fun!r}, and the optimum is {best!r}"
    yield from _second_opinion(names, best, scale)


def _last_digits(names: dict[str, Any], result: Any, best: Any) -> Iterator[str]:
    """Whether the ends of the bracket hold in fractions, as far as the best states tell."""

    def exact(state: Any) -> Fraction:
        on = np.flatnonzero(state)
        pairs = [Fraction(float(v)) for v in names["Q"][np.ix_(on, on)].ravel()]
        return sum(pairs, Fraction(0)) + sum((Fraction(float(v)) for v in names["c"][on]), Fraction(0))

    value = exact(np.ravel(result.x))
    if Fraction(float(result.upper)) < value:
        yield f"UNSOUND BY ROUNDING: upper {result.upper!r} below the value {float(value)!r} of its point"
    if result.certificate.assumption or not np.isfinite(result.lower):
        return
    kept = [state for state in best if all(_is_kept(limit, names["x"], state) for limit in names["limits"])]
    least = min((exact(state) for state in kept), default=None)
    if least is not None and Fraction(float(result.lower)) > least:
        yield f"UNSOUND BY ROUNDING: lower {result.lower!r} above the optimum {float(least)!r}"


def _is_kept(limit: Any, x: Any, state: Any) -> bool:
    """Whether a state satisfies a constraint in fractions."""
    matrix, offset = limit.normal.stacked((x,)).dense(), np.broadcast_to(limit.normal.offset, limit.rows)
    for row, constant in zip(matrix, offset, strict=True):
        side = sum((Fraction(float(a)) for a in row[state > 0]), Fraction(float(constant)))
        if side > 0 or (limit.is_equality and side != 0):
            return False
    return True


def _states(x: Any) -> Any:
    if x.kind == "binary":
        return (np.arange(2**x.size)[:, None] >> np.arange(x.size) & 1).astype(np.float64)
    rows, columns = x.dimensions
    digits = np.arange(columns**rows)[:, None] // columns ** np.arange(rows) % columns
    return np.eye(columns)[digits].reshape(-1, rows * columns)


def _second_opinion(names: dict[str, Any], best: float, scale: float) -> Iterator[str]:
    """CP-SAT on the same problem, where it is installed and all numbers are whole."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return
    x, Q, c = names["x"], names["Q"], names["c"]
    whole = [limit for limit in names["limits"] if _is_whole(limit, x)]
    if Q.dtype.kind != "i" or len(whole) < len(names["limits"]):
        return
    model = cp_model.CpModel()
    bits = [model.new_bool_var(f"x{k}") for k in range(x.size)]
    if x.kind == "categorical":
        for row in np.arange(x.size).reshape(x.dimensions):
            model.add_exactly_one([bits[k] for k in row])
    for limit in whole:
        matrix, offset = limit.normal.stacked((x,)).dense(), np.broadcast_to(limit.normal.offset, limit.rows)
        for row, constant in zip(matrix, offset, strict=True):
            side = sum(int(a) * bits[k] for k, a in enumerate(row) if a) + int(constant)
            model.add(side == 0) if limit.is_equality else model.add(side <= 0)
    products = []
    for i, j in zip(*np.nonzero(Q), strict=True):
        if i == j:
            products.append(int(Q[i, j]) * bits[i])
            continue
        both = model.new_bool_var("")
        model.add_multiplication_equality(both, [bits[i], bits[j]])
        products.append(int(Q[i, j]) * both)
    model.minimize(sum(products) + sum(int(a) * bits[k] for k, a in enumerate(c)))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = LIMIT, 1
    status = solver.solve(model)
    if status == cp_model.OPTIMAL and abs(solver.objective_value - best) > scale:
        yield f"REFERENCES DISAGREE: CP-SAT has {solver.objective_value!r}, enumeration {best!r}"


def _is_whole(limit: Any, x: Any) -> bool:
    matrix, offset = limit.normal.stacked((x,)).dense(), np.asarray(limit.normal.offset)
    return bool(np.all(matrix == np.round(matrix)) and np.all(offset == np.round(offset)))
