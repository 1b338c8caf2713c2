"""Random problems with constraints of every kind, some of which nothing satisfies, against Clarabel and HiGHS.

A bracket is checked at points that satisfy the constraints exactly, in rational arithmetic; multipliers by the
conditions of Karush, Kuhn and Tucker; proofs that there is no point by the combination they are made of.
"""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

import varopt as vo
from fuzz.oracle import ROUNDING, _programme, onto
from fuzz.problems import Problem, is_convex, random_problem
from fuzz.report import Finding, Report
from fuzz.run import TOL, Hang, watched

LIMIT = 5.0  # seconds of a run: group norms take a few tenths of one, with constraints or without
AGREES = 1e-7  # of the sizes of what is added up: how far a second solver's optimum may be from ours


@dataclass(frozen=True)
class Limit:
    """Rows ``A x <= b`` or ``A x == b`` of all variables, and how a user would write them."""

    text: str
    matrix: Any
    bound: Any
    equal: bool = False


# -- At random --------------------------------------------------------------------------------------------------------


def random_limits(rng: np.random.Generator, problem: Problem, *, feasible: bool) -> list[Limit]:
    """One to four constraints around a point that satisfies them, in exact numbers; or one that contradicts them."""
    inside = np.round(4.0 * rng.standard_normal(problem.dimension)) / 4.0
    limits = [_random_limit(rng, problem, inside) for _ in range(int(rng.integers(1, 5)))]
    if rng.random() < 0.2:
        limits.append(limits[0])  # given twice
    if not feasible:
        limits.append(_against(rng, problem, limits[int(rng.integers(len(limits)))]))
    return limits


def _random_limit(rng: np.random.Generator, problem: Problem, inside: Any) -> Limit:
    size, width = problem.size, problem.dimension
    kind = rng.choice(["low", "high", "box", "rows", "sparse", "equal", "total", "diff", "fixed", "zero"])

    def rows(matrix: Any) -> Any:
        return np.c_[matrix, np.zeros((len(matrix), width - size))]

    slack = np.round(4.0 * np.abs(rng.standard_normal(12))) / 4.0 * rng.integers(0, 2, 12)
    if kind in ("low", "high", "box", "fixed"):
        low, high = inside[:size] - slack[:size], inside[:size] + slack[-size:]
        if kind == "low":
            return Limit(f"w >= {_array(low)}", rows(-np.eye(size)), -low)
        if kind == "high":
            return Limit(f"w <= {_array(high)}", rows(np.eye(size)), high)
        if kind == "fixed":  # equal bounds
            return Limit(f"w[0] == {inside[0]!r}", rows(np.eye(size)[:1]), inside[:1], equal=True)
        whole = np.vstack([rows(np.eye(size)), rows(-np.eye(size))])
        written = f"np.vstack([np.eye({size}), -np.eye({size})]) @ w <= {_array(np.r_[high, -low])}"
        return Limit(written, whole, np.r_[high, -low])
    if kind == "total":
        matrix = np.ones((1, size))
        return Limit(
            f"vo.sum(w) == {float(inside[:size].sum())!r}", rows(matrix), [float(inside[:size].sum())], equal=True
        )
    if kind == "diff" and size > 1:
        matrix = np.diff(np.eye(size), axis=0)
        low = matrix @ inside[:size] - slack[: size - 1]
        return Limit(f"vo.diff(w) >= {_array(low)}", rows(-matrix), -low)
    count = int(rng.integers(1, 7))
    matrix = np.round(8.0 * rng.standard_normal((count, size))) / 8.0
    if kind == "zero":
        matrix[0] = 0.0
    if count > 1 and rng.random() < 0.3:
        matrix[-1] = 2.0 * matrix[0]  # dependent
    image = matrix @ inside[:size]
    if kind == "equal":
        return Limit(f"np.array({matrix.tolist()}) @ w == {_array(image)}", rows(matrix), image, equal=True)
    high = image + slack[:count]
    wrap = "sp.csr_array" if kind == "sparse" else "np.array"
    written = f"{wrap}(np.array({matrix.tolist()}))" if kind == "sparse" else f"np.array({matrix.tolist()})"
    return Limit(f"{written} @ w <= {_array(high)}", rows(matrix), high)


def _against(rng: np.random.Generator, problem: Problem, limit: Limit) -> Limit:
    """A combination of the rows of a constraint, on the other side of what they allow."""
    matrix, bound = np.atleast_2d(limit.matrix), np.atleast_1d(limit.bound)
    weights = np.round(4.0 * np.abs(rng.standard_normal(len(matrix)))) / 4.0 + 0.25
    row = (weights @ matrix)[: problem.size]
    value = float(weights @ bound) + float(rng.choice([0.25, 1.0, 64.0]))
    whole = np.r_[row, np.zeros(problem.dimension - problem.size)]
    return Limit(f"{_array(row)} @ w >= {value!r}", -whole[None, :], [-value])


def _array(values: Any) -> str:
    return f"np.array({np.asarray(values, dtype=float).tolist()})"


def program(problem: Problem, limits: Sequence[Limit]) -> str:
    """The lines that build both."""
    listed = "".join(f"    {limit.text},\n" for limit in limits)
    return problem.program() + f"limits = [\n{listed}]\n"


# -- A second solver --------------------------------------------------------------------------------------------------


def clarabel_answer(problem: Problem, limits: Sequence[Limit]) -> tuple[str, Any]:
    """Clarabel's status and point for the explicit programme."""
    import clarabel

    quadratic, cost, rows, cones = _programme(problem)
    columns = quadratic.shape[0]
    for limit in limits:
        matrix = np.atleast_2d(limit.matrix)
        rows.append(
            (np.c_[matrix, np.zeros((len(matrix), columns - problem.dimension))], np.asarray(limit.bound, float))
        )
        cones.append(("0" if limit.equal else "+", len(matrix)))
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_iter = False, 200
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    kinds = {"0": clarabel.ZeroConeT, "+": clarabel.NonnegativeConeT, "2": clarabel.SecondOrderConeT}
    solution = clarabel.DefaultSolver(
        sp.csc_matrix(np.triu(quadratic)), cost, sp.csc_matrix(np.vstack([a for a, _ in rows])),
        np.concatenate([b for _, b in rows]), [kinds[kind](n) for kind, n in cones], settings,
    ).solve()  # fmt: skip
    return str(solution.status), np.asarray(solution.x)[: problem.dimension]


def is_infeasible(problem: Problem, limits: Sequence[Limit]) -> bool:
    """Whether HiGHS finds no point."""
    from scipy.optimize import linprog

    parts = {equal: [limit for limit in limits if limit.equal is equal] for equal in (False, True)}

    def stacked(of: list[Limit]) -> tuple[Any, Any]:
        if not of:
            return None, None
        return np.vstack([np.atleast_2d(one.matrix) for one in of]), np.concatenate(
            [np.atleast_1d(o.bound) for o in of]
        )

    above, limit = stacked(parts[False])
    same, target = stacked(parts[True])
    found = linprog(np.zeros(problem.dimension), A_ub=above, b_ub=limit, A_eq=same, b_eq=target, bounds=(None, None))
    return bool(found.status == 2)


# -- Exact arithmetic -------------------------------------------------------------------------------------------------


def exact_point(limits: Sequence[Limit], x: Any) -> list[Fraction] | None:
    """A point close to x that satisfies all constraints exactly, with those that are about active made equations."""
    point = [Fraction(float(v)) for v in x]
    for _ in range(3):
        equations = []
        for limit in limits:
            for row, bound in zip(
                np.atleast_2d(limit.matrix).tolist(), np.atleast_1d(limit.bound).tolist(), strict=True
            ):
                exact = [Fraction(v) for v in row]
                excess = _dot(exact, point) - Fraction(float(bound))
                size = sum(abs(a * v) for a, v in zip(exact, point, strict=True)) + abs(Fraction(float(bound)))
                if limit.equal or excess > -size * Fraction(1, 10**9):
                    equations.append([*exact, Fraction(float(bound))])
        solved = onto(equations, point)
        if solved is None:
            return None
        point = solved
        if all(_satisfied(limit, point) for limit in limits):
            return point
    return None


def _dot(row: Sequence[Fraction], point: Sequence[Fraction]) -> Fraction:
    return sum((a * v for a, v in zip(row, point, strict=True) if a), Fraction(0))


def _satisfied(limit: Limit, point: Sequence[Fraction]) -> bool:
    for row, bound in zip(np.atleast_2d(limit.matrix).tolist(), np.atleast_1d(limit.bound).tolist(), strict=True):
        excess = _dot([Fraction(v) for v in row], point) - Fraction(float(bound))
        if excess > 0 or (limit.equal and excess):
            return False
    return True


# -- What is wrong with a result --------------------------------------------------------------------------------------


def complaints(
    problem: Problem, limits: Sequence[Limit], result: Any, constraints: Sequence[Any], f: Any, *, feasible: bool
) -> Iterator[str]:
    """What is wrong with a result; of a problem that is known to be feasible, or not."""
    name = result.status.name
    if name == "INFEASIBLE":
        if feasible or not is_infeasible(problem, limits):
            yield "FALSE INFEASIBLE: there is a point"
        yield from _contradiction(limits, result.proof, constraints)
        return
    if not feasible:
        yield f"NOT PROVED: {name}, and no point satisfies all constraints"
        return
    status, theirs = clarabel_answer(problem, limits)
    if name == "UNBOUNDED":
        far = [
            Fraction(float(v)) + 10**9 * Fraction(float(d))
            for v, d in zip(result.x, result.proof.direction, strict=True)
        ]
        if status == "Solved" and problem.value(far)[0] >= problem.value(result.x)[0]:
            yield "FALSE UNBOUNDED: a second solver stops"
        for limit in limits:
            along = np.atleast_2d(limit.matrix) @ result.proof.direction
            if np.any(np.abs(along) > 1e-9) if limit.equal else np.any(along > 1e-9):
                yield "FALSE UNBOUNDED: the direction breaks a constraint"
        return
    x = result.x
    missed = max(float(np.max(_missed(limit, x))) for limit in limits)
    if not np.isclose(missed, result.violation, rtol=1e-3, atol=1e-14):
        yield f"FALSE VIOLATION: {result.violation:.3g} is stated, {missed:.3g} found"
    if name in ("NOT_FOUND", "GAP_OPEN", "TIME_LIMIT"):
        if status == "Solved":
            kind = "gap open" if is_convex(problem) else "curved down by rounding"
            yield f"{kind}: {name}, gap {result.gap:.2g} at {result.fun:.6g}, violation {result.violation:.2g}"
        return
    value, size = problem.value(x)
    if value > Fraction(result.upper):
        within = " within rounding" if value - Fraction(result.upper) <= ROUNDING * abs(value) else ""
        yield f"FALSE UPPER BOUND{within}: {result.upper!r} below f(x) = {float(value)!r}"
    if missed > 1e-9 * max(1.0, float(np.abs(x).max())):
        yield f"FALSE {name}: constraints are missed by {missed:.3g}"
    if not result.upper - result.lower <= TOL * max(result.state.unit, abs(result.upper)) * 1.001:
        yield f"FALSE {name}: a gap of {result.gap:.3g}"
    if name == "OPTIMAL" and all(b.term != "square" for b in problem.blocks) and not is_convex(problem, summed=True):
        yield "UNSOUND: OPTIMAL, and quadratic forms curve down, which nothing beside them makes good"
    for candidate in (x, theirs if status == "Solved" else x):
        exact = exact_point(limits, candidate)
        if exact is not None and problem.value(exact)[0] < Fraction(result.lower):
            below = Fraction(result.lower) - problem.value(exact)[0]
            kind = "UNSOUND" if below > ROUNDING * abs(value) else "UNSOUND BY ROUNDING"
            assumed = " (assumption stated)" if result.certificate.assumption else ""
            yield f"{kind}{assumed}: lower {result.lower!r}, and a point that is allowed has less by {float(below):.3g}"
    scale = float(size) + abs(result.fun) + float(problem.value(np.zeros(problem.dimension))[1])
    if status == "Solved":
        allowed = exact_point(limits, theirs)
        # By what is added up at that point too: a form that rounding makes curve down cancels to less than zero.
        rival, there = (math.inf, 0.0) if allowed is None else map(float, problem.value(allowed))
        if result.fun > rival + AGREES * max(scale, there, result.state.unit):
            yield f"FALSE OPTIMUM: {result.fun!r}, and a second solver has {rival!r}"
    # What rounding leaves of multipliers that balance, as of the rows that are added up; and a point may be above the
    # optimum, and its Lagrangian above the least, by the gap that is stated.
    left = sum(
        float(np.abs(np.atleast_1d(result.multipliers[c])) @ (np.abs(limit.matrix) @ np.abs(x) + np.abs(limit.bound)))
        for limit, c in zip(limits, constraints, strict=True)
    )
    # Where f is zero its value is rounding of what is added up in its rows: their offsets at least.
    rows = sum(float(np.sum(np.abs(b.weight) * np.abs(b.offset))) for b in problem.blocks)
    yield from _kkt(result, constraints, f, 1e-6 * max(scale, 1e-9) + 8.0 * 2.0**-52 * (left + rows) + result.gap)


def _missed(limit: Limit, x: Any) -> Any:
    excess = np.atleast_2d(limit.matrix) @ x - np.asarray(limit.bound, dtype=float)
    return np.abs(excess) if limit.equal else np.maximum(excess, 0.0)


def _contradiction(limits: Sequence[Limit], proof: Any, constraints: Sequence[Any]) -> Iterator[str]:
    """Whether the combination is what it should be."""
    total, value, size = 0.0, 0.0, 0.0
    for limit, constraint in zip(limits, constraints, strict=True):
        y = np.atleast_1d(proof.multipliers[constraint])
        if not limit.equal and np.any(y < 0.0):
            yield "FALSE PROOF: a multiplier is negative"
        total = total + y @ np.atleast_2d(limit.matrix)
        size = size + np.abs(y) @ np.abs(np.atleast_2d(limit.matrix))
        value -= float(y @ np.asarray(limit.bound, dtype=float))
    if np.any(np.abs(total) > 1e-9 * np.max(size)):
        yield f"FALSE PROOF: the combination has the gradient {total}"
    if not value > 0.0 or not 0.0 < proof.least <= value * (1.0 + 1e-9) + 1e-300:
        yield f"FALSE PROOF: the combination is {value:.3g}, and {proof.least:.3g} is claimed"


def _kkt(result: Any, constraints: Sequence[Any], f: Any, within: float) -> Iterator[str]:
    """Multipliers of the right sign, zero where there is slack, and a Lagrangian that is least at the point."""
    rng = np.random.default_rng(0)
    variables = tuple(result.slices)
    here = {v: np.atleast_1d(np.asarray(result[v])).ravel() for v in variables}

    def lagrangian(point: Any) -> float:
        total = float(f({v: point[v] for v in f.variables})) if f.variables else float(f())
        for c in constraints:
            total += float(np.atleast_1d(result.multipliers[c]) @ c.normal.values(point))
        return total

    for c in constraints:
        y, g = np.atleast_1d(result.multipliers[c]), c.normal.values(here)
        if not c.is_equality and np.any(y < 0.0):
            yield "FALSE MULTIPLIERS: one of an inequality is negative"
        if np.any(np.abs(y * g) > within):
            yield f"FALSE MULTIPLIERS: {y} where there is slack {g}"
    least = lagrangian(here)
    for spread in (1e-4, 1e-2, 1.0):
        for _ in range(4):
            point = {v: x + spread * rng.standard_normal(x.size) for v, x in here.items()}
            if lagrangian(point) < least - within:
                yield f"FALSE MULTIPLIERS: the Lagrangian falls by {least - lagrangian(point):.3g}"
                return


# -- The harness ------------------------------------------------------------------------------------------------------


def constraints(seed: int, report: Report, *, extreme: bool = False) -> None:
    """One problem, by the methods that `auto` chooses."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, extreme=extreme)
    line = tuple(block for block in problem.blocks if block.term == "linear")
    if line and rng.random() < 0.3:
        problem = replace(problem, blocks=line)  # a linear programme
    feasible = bool(rng.random() < 0.85)
    limits = random_limits(rng, problem, feasible=feasible)
    text = program(problem, limits)
    names: dict[str, Any] = {}
    exec(text, names)  # our own text
    f, given, found = names["f"], names["limits"], []
    result = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cpu = time.process_time()
        try:
            with watched(10.0 * LIMIT):
                result = vo.minimize(f, subject_to=given, tol=TOL, time_limit=LIMIT)
        except Hang:
            found.append("hang: more than ten times the time limit")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.append(f"exception {type(error).__name__}: {error} ({where.filename}, line {where.lineno})")
        spent = time.process_time() - cpu
    found += [f"warning {w.category.__name__}: {w.message} ({w.filename}, line {w.lineno})" for w in caught[:1]]
    if spent > 1.2 * LIMIT + 0.1:
        found.append(f"late: {spent:.2f} s of {LIMIT:g}")
    if result is not None:
        limits = [replace(limit, bound=np.asarray(limit.bound, dtype=float)) for limit in limits]
        # Variables that only the objective has, or only constraints, change the order of none: w comes before b.
        found += complaints(problem, limits, result, given, f, feasible=feasible)
        report.statuses[f"constraints: {result.status.name}"] += 1
    report.runs["constraints"] += 1
    shown = text + f"r = vo.minimize(f, subject_to=limits, time_limit={LIMIT})\nprint(r)\n"
    report.findings += [Finding(t.split(":")[0], "auto", t, seed, shown) for t in found]
