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
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

import varopt as vo
from fuzz.oracle import ROUNDING, _programme, onto, silent
from fuzz.problems import Problem, is_convex, random_problem
from fuzz.report import Finding, Report
from fuzz.run import TOL, Hang, late, watched

LIMIT = 5.0  # seconds of a run: group norms take a few tenths of one, with constraints or without
HOLDS = 1e-11  # of the sizes of what a row compares, by which it may be missed,
ZERO = 1e-15  # and of other coordinates that constraints see
AGREES = 1e-7  # of the sizes of what is added up: how far a second solver's optimum may be from ours


@dataclass(frozen=True)
class Limit:
    """Rows ``A x <= b`` or ``A x == b`` of all variables, and how a user would write them."""

    text: str
    matrix: Any
    bound: Any
    equal: bool = False


# -- At random --------------------------------------------------------------------------------------------------------


def random_limits(
    rng: np.random.Generator, problem: Problem, *, feasible: bool, extreme: bool = False
) -> tuple[list[Limit], Any]:
    """One to four constraints around a point that satisfies them, in exact numbers; or one that contradicts them.

    And that point.
    """
    inside = np.round(4.0 * rng.standard_normal(problem.dimension)) / 4.0
    if extreme and rng.random() < 0.3:
        inside = inside * 2.0 ** float(rng.integers(-30, 31))
    draw = _steep_limit if extreme else _random_limit
    limits = [draw(rng, problem, inside) for _ in range(int(rng.integers(1, 5)))]
    if rng.random() < 0.2:
        limits.append(limits[0])  # given twice
    if not feasible:
        limits.append(_against(rng, problem, limits[int(rng.integers(len(limits)))], extreme))
    return limits, inside


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


def _steep_limit(rng: np.random.Generator, problem: Problem, inside: Any) -> Limit:
    """Rows or columns in other units, and wedges that are thin: powers of two, so that the point is exactly inside."""
    kind = rng.choice(["ordinary", "rows", "rows", "columns", "wedge", "wedge", "bounds"])
    if kind == "ordinary":
        return _random_limit(rng, problem, inside)
    size, count = problem.size, int(rng.integers(1, 5))
    matrix = np.round(8.0 * rng.standard_normal((count, size))) / 8.0
    if kind == "rows":
        matrix *= 2.0 ** rng.integers(-40, 41, (count, 1))
    elif kind == "columns":
        matrix *= 2.0 ** rng.integers(-20, 21, size)
    elif kind == "wedge":
        tilt = np.zeros(size)
        tilt[int(rng.integers(size))] = 2.0 ** int(rng.integers(-40, -10))
        matrix = np.vstack([matrix, -matrix + tilt])
    else:
        matrix = np.eye(size)[rng.integers(size, size=count)] * rng.choice([-1.0, 1.0], (count, 1))
        matrix *= 2.0 ** rng.integers(-40, 41, (count, 1))
    beyond = [int(rng.integers(-40, 3)) for _ in matrix] if rng.random() < 0.5 else []
    slack = [Fraction(2) ** k for k in beyond] or [Fraction(0)] * len(matrix)
    point = [Fraction(float(v)) for v in inside[:size]]
    image = [_dot([Fraction(v) for v in row], point) for row in matrix.tolist()]
    equal = kind != "wedge" and rng.random() < 0.2 and all(Fraction(float(v)) == v for v in image)
    high = np.array([float(v) if equal else _above(v + s) for v, s in zip(image, slack, strict=True)])
    sense = "==" if equal else "<="
    whole = np.c_[matrix, np.zeros((len(matrix), problem.dimension - size))]
    return Limit(f"np.array({matrix.tolist()}) @ w {sense} {_array(high)}", whole, high, bool(equal))


def _above(value: Fraction) -> float:
    """The smallest number of floating point that is no less."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _against(rng: np.random.Generator, problem: Problem, limit: Limit, extreme: bool) -> Limit:
    """A combination of the rows of a constraint, on the other side of what they allow."""
    matrix, bound = np.atleast_2d(limit.matrix), np.atleast_1d(limit.bound)
    weights = np.round(4.0 * np.abs(rng.standard_normal(len(matrix)))) / 4.0 + 0.25
    beyond = 2.0 ** float(rng.integers(-40, 10)) if extreme else float(rng.choice([0.25, 1.0, 64.0]))
    columns = [[Fraction(v) for v in column] for column in matrix.T.tolist()]
    shares = [Fraction(v) for v in weights.tolist()]
    if any(Fraction(float(_dot(column, shares))) != _dot(column, shares) for column in columns):
        shares = [Fraction(i == 0) for i in range(len(matrix))]  # a combination that is not rounded
    row = np.array([float(_dot(column, shares)) for column in columns])
    value = _above(_dot([Fraction(v) for v in bound.tolist()], shares) + Fraction(beyond))
    written = f"{_array(row[: problem.size])} @ w >= {value!r}"
    return Limit(written, -row[None, :], [-value])


def _array(values: Any) -> str:
    return f"np.array({np.asarray(values, dtype=float).tolist()})"


def random_case(rng: np.random.Generator, *, extreme: bool) -> tuple[Problem, list[Limit], Any, bool]:
    """A problem, its constraints, a point that satisfies them, and whether there is one: else it does all but one."""
    problem = random_problem(rng, extreme=extreme and bool(rng.random() < 0.5))
    line = tuple(block for block in problem.blocks if block.term == "linear")
    if line and rng.random() < 0.3:
        problem = replace(problem, blocks=line)  # a linear programme
    feasible = bool(rng.random() < 0.85)
    limits, inside = random_limits(rng, problem, feasible=feasible, extreme=extreme)
    return problem, [replace(one, bound=np.asarray(one.bound, dtype=float)) for one in limits], inside, feasible


def program(problem: Problem, limits: Sequence[Limit]) -> str:
    """The lines that build both."""
    listed = "".join(f"    {limit.text},\n" for limit in limits)
    return problem.program() + f"limits = [\n{listed}]\n"


# -- Other solvers ----------------------------------------------------------------------------------------------------


def clarabel_answer(problem: Problem, limits: Sequence[Limit]) -> tuple[str, Any]:
    """Clarabel's status and point for the explicit programme."""
    import clarabel

    quadratic, cost, rows, cones = _explicit(problem, limits)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_iter = False, 200
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    kinds = {"0": clarabel.ZeroConeT, "+": clarabel.NonnegativeConeT, "2": clarabel.SecondOrderConeT}
    solution = clarabel.DefaultSolver(
        sp.csc_matrix(np.triu(quadratic)), cost, sp.csc_matrix(np.vstack([a for a, _ in rows])),
        np.concatenate([b for _, b in rows]), [kinds[kind](n) for kind, n in cones], settings,
    ).solve()  # fmt: skip
    return str(solution.status), np.asarray(solution.x)[: problem.dimension]


def highs_point(problem: Problem, limits: Sequence[Limit]) -> Any:
    """HiGHS's point for the explicit programme; None where that is not linear, or HiGHS has none."""
    quadratic, cost, rows, cones = _explicit(problem, limits)
    if quadratic.any() or any(kind == "2" for kind, _ in cones):
        return None
    parts: dict[str, list[Any]] = {"0": [(np.zeros((0, cost.size)), np.zeros(0))], "+": []}
    for pair, (kind, _) in zip(rows, cones, strict=True):
        parts[kind].append(pair)
    (equal, right), (below, high) = (map(np.concatenate, zip(*parts[kind], strict=True)) for kind in "0+")
    found = linprog(cost, below, high, equal, right, bounds=(None, None))
    return None if found.status else found.x[: problem.dimension]


def _explicit(problem: Problem, limits: Sequence[Limit]) -> Any:
    """Both as one programme with cones."""
    quadratic, cost, rows, cones = _programme(problem)
    for limit in limits:
        matrix = np.atleast_2d(limit.matrix)
        beside = np.zeros((len(matrix), quadratic.shape[0] - problem.dimension))
        rows.append((np.c_[matrix, beside], np.asarray(limit.bound, float)))
        cones.append(("0" if limit.equal else "+", len(matrix)))
    return quadratic, cost, rows, cones


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
    problem: Problem, limits: Sequence[Limit], result: Any, constraints: Sequence[Any], f: Any, *, inside: Any,
    feasible: bool, stopped: bool = False,
) -> Iterator[str]:  # fmt: skip
    """What is wrong with a result; of a problem that is known to be feasible, or not. A run may have been stopped."""
    name = result.status.name
    if name == "INFEASIBLE":
        if feasible:
            yield f"FALSE INFEASIBLE: {inside.tolist()} is a point"
        yield from _contradiction(limits, result.proof, constraints)
        return
    if not feasible:
        if math.isfinite(result.upper) and _misses(limits, result.x):
            yield f"FALSE {name}: no point satisfies all constraints, which x misses by {result.violation:.3g}"
        elif not math.isfinite(result.upper) and not (stopped and name == "TIME_LIMIT"):
            yield f"not proved: {name}, and no point satisfies all constraints"
        return
    status, theirs = clarabel_answer(problem, limits)
    if name == "UNBOUNDED":
        yield from _falls(problem, limits, result, inside, solved=status == "Solved")
        return
    x = result.x
    missed = max(float(np.max(_missed(limit, x))) for limit in limits)
    rounding = 1e-14 * max(float(np.max(_sizes(limit, x))) for limit in limits)
    if not np.isclose(missed, result.violation, rtol=1e-3, atol=rounding):
        yield f"FALSE VIOLATION: {result.violation:.3g} is stated, {missed:.3g} found"
    points = theirs if status == "Solved" else None, highs_point(problem, limits)
    exact = [exact_point(limits, point) for point in points if point is not None]
    others = [point for point in exact if point is not None]
    yield from _bracket(problem, limits, result, inside, others)
    if name in ("NOT_FOUND", "GAP_OPEN", "TIME_LIMIT"):
        if status == "Solved" and not stopped:
            kind = "gap open" if is_convex(problem) else "curved down by rounding"
            yield f"{kind}: {name}, gap {result.gap:.2g} at {result.fun:.6g}, violation {result.violation:.2g}"
        return
    size = problem.value(x)[1]
    if not result.upper - result.lower <= TOL * max(result.state.unit, abs(result.upper)) * 1.001:
        yield f"FALSE {name}: a gap of {result.gap:.3g}"
    if name == "OPTIMAL" and all(b.term != "square" for b in problem.blocks) and not is_convex(problem, summed=True):
        yield "UNSOUND: OPTIMAL, and quadratic forms curve down, which nothing beside them makes good"
    scale = float(size) + abs(result.fun) + float(problem.value(np.zeros(problem.dimension))[1])
    for point in others:
        # By what is added up at that point too: a form that rounding makes curve down cancels to less than zero.
        rival, there = map(float, problem.value(point))
        if result.fun > rival + AGREES * max(scale, there, result.state.unit):
            yield f"FALSE OPTIMUM: {result.fun!r}, and a second solver has {rival!r}"
    # A point may be above the optimum, and its Lagrangian above the least, by the gap that is stated.
    yield from _kkt(problem, limits, result, constraints, f, 1e-6 * max(scale, 1e-9) + result.gap)


def _bracket(
    problem: Problem, limits: Sequence[Limit], result: Any, inside: Any, others: Sequence[list[Fraction]]
) -> Iterator[str]:
    """Whether both ends hold, whatever the status: the upper one at the point, the lower one wherever it is allowed."""
    name, x = result.status.name, result.x
    value = problem.value(x)[0]
    if value > Fraction(result.upper) if math.isfinite(result.upper) else False:
        within = " within rounding" if value - Fraction(result.upper) <= ROUNDING * abs(value) else ""
        yield f"FALSE UPPER BOUND{within}: {result.upper!r} below f(x) = {float(value)!r}"
    if math.isfinite(result.upper) and _misses(limits, x):
        yield f"FALSE {name}: constraints are missed by {result.violation:.3g}"
    if not result.lower <= result.upper:
        yield f"lower {result.lower!r} is above upper {result.upper!r}"
    if not math.isfinite(result.lower):
        return
    least = min(map(problem.value, allowed_points(problem, limits, x, inside, others)))[0]
    if least < Fraction(result.lower):
        below = Fraction(result.lower) - least
        kind = "UNSOUND" if below > ROUNDING * abs(least) else "UNSOUND BY ROUNDING"
        assumed = " (assumption stated)" if result.certificate.assumption else ""
        yield f"{kind}{assumed}: lower {result.lower!r}, and a point that is allowed has less by {float(below):.3g}"


def allowed_points(
    problem: Problem, limits: Sequence[Limit], x: Any, inside: Any, others: Sequence[list[Fraction]]
) -> Iterator[list[Fraction]]:
    """Points that satisfy all constraints exactly: that of the problem, those of solvers, between, and far away."""
    known = [Fraction(float(v)) for v in inside]
    near = exact_point(limits, x) if np.all(np.isfinite(x)) else None
    found = [*others] if near is None else [near, *others]
    yield known
    for point in found:
        yield point
        for share in (Fraction(1, 2), 1 - Fraction(1, 10**3), 1 - Fraction(1, 10**6)):
            yield [a + share * (b - a) for a, b in zip(known, point, strict=True)]
    rows = [[*map(Fraction, row), Fraction(0)] for limit in limits for row in np.atleast_2d(limit.matrix).tolist()]
    for v in islice(silent(problem), 4):
        direction = onto(rows, [Fraction(float(d)) for d in v])  # along which no constraint changes
        for sign in (1, -1):
            for reach in (1, 10**4, 10**8, 10**13):
                for first, moves in ((known, v), (known, direction), *((point, direction) for point in found)):
                    if moves is not None:
                        far = [a + sign * reach * Fraction(d) for a, d in zip(first, moves, strict=True)]
                        if all(_satisfied(limit, far) for limit in limits):
                            yield far


def _falls(problem: Problem, limits: Sequence[Limit], result: Any, inside: Any, *, solved: bool) -> Iterator[str]:
    """Whether values fall for ever along the direction, and no constraint is broken on the way."""
    direction = result.proof.direction
    far = [Fraction(float(v)) + 10**9 * Fraction(float(d)) for v, d in zip(result.x, direction, strict=True)]
    if solved and problem.value(far)[0] >= problem.value(result.x)[0]:
        yield "FALSE UNBOUNDED: a second solver stops"
    for limit in limits:
        along, size = np.atleast_2d(limit.matrix) @ direction, np.abs(np.atleast_2d(limit.matrix)) @ np.abs(direction)
        if np.any((np.abs(along) if limit.equal else along) > 1e-9 * size):
            yield "FALSE UNBOUNDED: the direction breaks a constraint"


def _sizes(limit: Limit, x: Any) -> Any:
    """The sizes of what the rows of a constraint compare."""
    return np.abs(np.atleast_2d(limit.matrix)) @ np.abs(x) + np.abs(limit.bound)


def _misses(limits: Sequence[Limit], x: Any) -> bool:
    """Whether a point misses a row by more than rounding: of what the row compares, or of coordinates it is tied to."""
    seen = np.any([np.any(np.atleast_2d(limit.matrix), axis=0) for limit in limits], axis=0)
    largest = np.minimum(_largest_tied(limits, np.abs(x)), float(np.abs(x[seen]).max(initial=0.0)))
    tied = np.abs(x) + ZERO / HOLDS * largest
    return any(bool(np.any(_missed(limit, x) > HOLDS * _sizes(limit, tied))) for limit in limits)


def _largest_tied(limits: Sequence[Limit], sizes: Any) -> Any:
    """For each coordinate the largest that rows tie it to, in units in which rows have entries about one.

    Logarithms of these by least squares, of which products that round them to powers of two may be off by two.
    """
    A = np.vstack([np.atleast_2d(limit.matrix) for limit in limits])
    A = A[np.count_nonzero(A, axis=1) > 1]
    row, column = np.nonzero(A)
    equations = np.zeros((row.size, A.shape[1] + A.shape[0]))
    equations[np.arange(row.size), column] = 1.0
    equations[np.arange(row.size), A.shape[1] + row] = -1.0
    found = np.linalg.lstsq(equations, -np.log2(np.abs(A[row, column])), rcond=None)[0] if row.size else None
    units = np.ones(sizes.size) if found is None else np.exp2(found[: A.shape[1]])
    tied = np.eye(sizes.size, dtype=bool)
    for entries in A != 0.0:  # with each row all that its variables are tied to
        among = tied[entries].any(axis=0)
        tied[among] |= among
    return 2.0 * units * np.max(np.where(tied, sizes / units, 0.0), axis=1)


def _missed(limit: Limit, x: Any) -> Any:
    excess = np.atleast_2d(limit.matrix) @ x - np.asarray(limit.bound, dtype=float)
    return np.abs(excess) if limit.equal else np.maximum(excess, 0.0)


def _contradiction(limits: Sequence[Limit], proof: Any, constraints: Sequence[Any]) -> Iterator[str]:
    """Whether multipliers within rounding of those given make a combination that is positive everywhere, exactly."""
    rows, bounds, equal, given = [], [], [], []
    for limit, constraint in zip(limits, constraints, strict=True):
        rows += np.atleast_2d(limit.matrix).tolist()
        bounds += np.atleast_1d(limit.bound).tolist()
        equal += [limit.equal] * len(np.atleast_1d(limit.bound))
        given += np.atleast_1d(proof.multipliers[constraint]).tolist()
    used = [i for i, y in enumerate(given) if y]
    y = [Fraction(given[i]) for i in used]
    # In shares of those given, so that the last digits of a large one are not taken from a small one.
    equations = [[*(Fraction(rows[i][j]) * v for i, v in zip(used, y, strict=True)), Fraction(0)]
                 for j in range(len(rows[0]))]  # fmt: skip
    shares = onto([equation for equation in equations if any(equation)], [Fraction(1)] * len(y))
    exact = None if shares is None else [share * v for share, v in zip(shares, y, strict=True)]
    if exact is None or any(abs(a - b) > abs(b) * Fraction(1, 10**9) for a, b in zip(exact, y, strict=True)):
        yield f"FALSE PROOF: the combination has a gradient that is not zero with {given}"
    elif any(v < 0 and not equal[i] for v, i in zip(exact, used, strict=True)):
        yield "FALSE PROOF: a multiplier is negative"
    else:
        least = -_dot([Fraction(bounds[i]) for i in used], exact)
        if not 0.0 < proof.least <= float(least) * (1.0 + 1e-9):
            yield f"FALSE PROOF: the combination is {float(least):.3g}, and {proof.least:.3g} is claimed"


def _kkt(
    problem: Problem, limits: Sequence[Limit], result: Any, constraints: Sequence[Any], f: Any, within: float
) -> Iterator[str]:
    """Multipliers of the right sign, zero where there is slack, and a Lagrangian that is least at the point."""
    rng = np.random.default_rng(0)
    given = [np.atleast_1d(result.multipliers[c]) for c in constraints]

    def lagrangian(point: Any) -> float:
        parts = {v: point[where] for v, where in result.slices.items()}
        total = float(f({v: parts[v] for v in f.variables})) if f.variables else float(f())
        return total + sum(float(y @ c.normal.values(parts)) for y, c in zip(given, constraints, strict=True))

    def allowed(point: Any) -> float:
        """A billionth of f, wherever it is small, and rounding: multipliers balance to the last of their 53 bits."""
        own = float(problem.about(point[None])[1][0])
        size = own
        for y, limit in zip(given, limits, strict=True):
            size += float(np.abs(y) @ (np.abs(limit.matrix) @ np.abs(point) + np.abs(limit.bound)))
        return TOL * own + 8.0 * 2.0**-52 * size

    here = result.x
    within += allowed(here)
    for y, c in zip(given, constraints, strict=True):
        g = c.normal.values({v: here[where] for v, where in result.slices.items()})
        if not c.is_equality and np.any(y < 0.0):
            yield "FALSE MULTIPLIERS: one of an inequality is negative"
        if np.any(np.abs(y * g) > within):
            yield f"FALSE MULTIPLIERS: {y} where there is slack {g}"
    least = lagrangian(here)
    for spread in (1e-4, 1e-2, 1.0):
        for _ in range(4):
            point = here + spread * rng.standard_normal(here.size)
            if lagrangian(point) < least - within - allowed(point):
                yield f"FALSE MULTIPLIERS: the Lagrangian falls by {least - lagrangian(point):.3g}"
                return


# -- The harness ------------------------------------------------------------------------------------------------------


def constraints(seed: int, report: Report, *, extreme: bool = False) -> None:
    """One problem, by the methods that `auto` chooses."""
    rng, part = np.random.default_rng(seed), "steep" if extreme else "constraints"
    problem, limits, inside, feasible = random_case(rng, extreme=extreme)
    limit = float(10.0 ** rng.uniform(-2.0, -0.5)) if extreme and rng.random() < 0.3 else LIMIT
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
                result = vo.minimize(f, subject_to=given, tol=TOL, time_limit=limit)
        except Hang:
            found.append("hang: more than ten times the time limit")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.append(f"exception {type(error).__name__}: {error} ({where.filename}, line {where.lineno})")
        spent = time.process_time() - cpu
    found += [f"warning {w.category.__name__}: {w.message} ({w.filename}, line {w.lineno})" for w in caught[:1]]
    if late(spent, limit):
        found.append(f"late: {spent:.2f} s of {limit:g}")
    if result is not None:
        # Variables that only the objective has, or only constraints, change the order of none: w comes before b.
        stopped = limit < LIMIT
        found += complaints(problem, limits, result, given, f, inside=inside, feasible=feasible, stopped=stopped)
        report.statuses[f"{part}: {result.status.name}"] += 1
    report.runs[part] += 1
    shown = text + f"r = vo.minimize(f, subject_to=limits, time_limit={limit})\nprint(r)\n"
    report.findings += [Finding(t.split(":")[0], "auto", t, seed, shown) for t in found]
