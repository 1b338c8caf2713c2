"""What a result claims, checked in exact arithmetic at points of its own and of a second solver."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzz.problems import Block, Problem, dense_matrix
from varopt.certificates import ROUNDING as BY_ROUNDING
from varopt.certificates import curves_down, falls_for_ever

_FLOATING = 1e-12  # of the parts of a value, beyond which floating point can tell it from a bound
_BESIDE = 64  # directions beside one that is said to fall
ROUNDING = Fraction(1, 10**13)  # of a value: less is rounding of the last digits, which is counted apart


def points(problem: Problem, x: Any, rng: np.random.Generator) -> Iterator[Any]:
    """Where a wrong lower bound would show: at the result, at rivals, and far away where steep terms are silent."""
    yield x
    yield np.zeros(problem.dimension)
    for spread in (1e-8, 1e-3, 1.0, 1e3):
        yield x + spread * max(1.0, float(np.abs(x).max())) * rng.standard_normal(problem.dimension)
    for v in islice(silent(problem), 4):
        for reach in (1.0, 1e4, 1e8, 1e13):
            yield x + reach * v
            yield x - reach * v
            yield reach * v
            yield -reach * v


def silent(problem: Problem) -> Iterator[Any]:
    """Directions that some of the blocks do not see, in whole numbers where there are such."""
    matrices = [(dense_matrix(problem, block), float(np.max(np.abs(block.weight)))) for block in problem.blocks]
    order = sorted(matrices, key=lambda pair: -pair[1])
    for count in range(1, len(order) + 1):
        stacked = np.vstack([matrix for matrix, _ in order[:count]])
        _, sizes, right = np.linalg.svd(stacked)
        rank = int(np.sum(sizes > 1e-10 * max(float(sizes.max(initial=0.0)), 1e-300)))
        for v in right[rank:]:
            least = np.min(np.abs(v)[np.abs(v) > 1e-9])
            whole = np.round(v / least, 6)
            yield np.round(whole) if np.allclose(whole, np.round(whole), atol=1e-5) else v


def complaints(problem: Problem, result: Any, tol: float, rng: np.random.Generator, rival: Any = None) -> Iterator[str]:
    """What is wrong with a result."""
    name, lower, upper = result.status.name, result.lower, result.upper
    exact, size = problem.value(result.x)
    if not np.all(np.isfinite(result.x)):
        yield f"x is not finite: {result.x}"
        return
    if exact > Fraction(upper) and not _is_stated(result, exact - Fraction(upper)):
        share = float((exact - Fraction(upper)) / max(abs(exact), Fraction(tol)))
        kind = "FALSE UPPER BOUND" if share > tol else "FALSE UPPER BOUND within tol"
        yield f"{kind}: {name} with upper {upper!r}, f(x) = {float(exact)!r}; parts add up to {float(size):.1e}"
    if not lower <= upper:
        yield f"lower {lower!r} is above upper {upper!r}"
    if name in ("OPTIMAL", "ASSUMED") and not upper - lower <= tol * max(result.state.unit, abs(upper)) * 1.001:
        yield f"{name} with a gap of {upper - lower:.3g}"
    if np.isfinite(lower):
        yield from _below(problem, result, rng, rival)
    if name == "UNBOUNDED" and rival is not None and rival[0] == "Solved" and not _falls(problem):
        value, _ = problem.value(rival[1])
        yield f"UNBOUNDED, and a second solver stops at {float(value)!r}"


def _is_stated(result: Any, excess: Fraction) -> bool:
    """Whether it is said that rounding, which cannot be enclosed beside a jump, moved an end by less than the gap."""
    return BY_ROUNDING in result.certificate.assumption and (np.isinf(result.gap) or excess < Fraction(result.gap))


def _falls(problem: Problem) -> bool:
    """Whether values, in fractions, fall for ever along a direction that is said to: tiny slopes stop others.

    They do in proportion, or, where rounding has bent a quadratic form down, by its square; or along a direction that
    some blocks do not see, where the slopes of the others add up to next to nothing.
    """
    f = problem.build()
    unseen = (sign * d for d in silent(problem) for sign in (1.0, -1.0))
    return any(_falls_along(problem, d) for d in (falls_for_ever(f), curves_down(f), *unseen) if d is not None)


def _falls_along(problem: Problem, direction: Any) -> bool:
    exact = [Fraction(float(d)) for d in direction]
    return any(_falls_in_proportion(problem, d) for d in _near(problem, exact) if d is not None)


def _near(problem: Problem, direction: list[Fraction]) -> Iterator[list[Fraction] | None]:
    """The direction, what it was rounded from, and some beside it: on an edge of a cone last digits may lead out."""
    yield direction
    yield _at_rest(problem, direction)
    rng = np.random.default_rng(0)
    for _ in range(_BESIDE):
        shares = rng.normal(0.0, 1e-6, len(direction)).tolist()
        yield [d * (1 + Fraction(share)) for d, share in zip(direction, shares, strict=True)]


def _falls_in_proportion(problem: Problem, direction: list[Fraction]) -> bool:
    near, far, farther = (problem.value([10**k * d for d in direction])[0] for k in (30, 60, 90))
    return farther < far < near and farther < 10**29 * far < 0


def _at_rest(problem: Problem, direction: list[Fraction]) -> list[Fraction] | None:
    """The direction before it was rounded: what about rests along it does so exactly, or squares of it would rise."""
    equations = []
    for block in problem.blocks if any(direction) else ():
        for row in dense_matrix(problem, block).tolist():
            parts = [Fraction(a) * d for a, d in zip(row, direction, strict=True)]
            if abs(sum(parts)) <= Fraction(1, 10**9) * sum(map(abs, parts)):
                equations.append([*map(Fraction, row), Fraction(0)])
    return onto(equations, direction)


def onto(equations: list[list[Fraction]], point: list[Fraction]) -> list[Fraction] | None:
    """A solution of equations that agrees with the point but in as many entries as they determine."""
    reduced: list[tuple[int, list[Fraction]]] = []
    for equation in equations:
        row = equation
        for pivot, other in reduced:
            if row[pivot]:
                row = [a - row[pivot] * b for a, b in zip(row, other, strict=True)]
        largest = max((abs(a) for a in row[:-1]), default=Fraction(0))
        if not largest:
            if row[-1]:
                return None
            continue
        pivot = next(j for j, a in enumerate(row[:-1]) if abs(a) == largest)
        row = [a / row[pivot] for a in row]
        reduced = [(j, [a - other[pivot] * b for a, b in zip(other, row, strict=True)]) for j, other in reduced]
        reduced.append((pivot, row))
    moved, pivots = list(point), {pivot for pivot, _ in reduced}
    for pivot, row in reduced:
        moved[pivot] = row[-1] - sum((row[j] * point[j] for j in range(len(point)) if j not in pivots), Fraction(0))
    return moved


def _below(problem: Problem, result: Any, rng: np.random.Generator, rival: Any) -> Iterator[str]:
    """A point with a value below the lower bound: in floating point where one may be, then exactly."""
    candidates = np.array([*points(problem, result.x, rng), *([] if rival is None else [rival[1]])])
    with np.errstate(all="ignore"):
        values, sizes = problem.about(candidates)
        doubtful = ~(values - _FLOATING * sizes > result.lower)
    doubtful[0] = True  # the result itself
    bound, worst = Fraction(result.lower), None
    for x in candidates[doubtful & np.isfinite(candidates).all(axis=1)]:
        value, size = problem.value(x)
        excess = bound - value
        if excess > 0 and (worst is None or excess > worst[0]):
            worst = (excess, value, size, x)
    if worst is None:
        return
    excess, value, size, x = worst
    kind = "UNSOUND" if excess > ROUNDING * abs(value) else "UNSOUND BY ROUNDING"
    assumed = " (assumption stated)" if result.certificate.assumption else ""
    share = float(excess / max(size, Fraction(1, 10**300)))
    yield (
        f"{kind}{assumed}: {result.status.name} with lower {result.lower!r}, and f({np.asarray(x).tolist()}) = "
        f"{float(value)!r}, by {share:.1e} of its parts; {result.certificate.assumption}"
    )


# -- A second solver --------------------------------------------------------------------------------------------------


def clarabel_point(problem: Problem) -> tuple[str, Any] | None:
    """Clarabel's status and point; None where a term is not convex."""
    import clarabel

    p = problem.dimension
    quadratic, cost, rows, cones = _programme(problem)
    if quadratic is None:
        return None
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = 100
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    matrix = sp.csc_matrix(np.vstack([a for a, _ in rows]))
    limits = np.concatenate([b for _, b in rows])
    kinds = [
        clarabel.NonnegativeConeT(n)
        if kind == "+"
        else clarabel.ZeroConeT(n)
        if kind == "0"
        else clarabel.SecondOrderConeT(n)
        for kind, n in cones
    ]
    try:
        solution = clarabel.DefaultSolver(
            sp.csc_matrix(np.triu(quadratic)), cost, matrix, limits, kinds, settings
        ).solve()
    except BaseException as error:  # a panic of its own is no finding about ours
        if isinstance(error, KeyboardInterrupt):
            raise
        return None
    return str(solution.status), np.asarray(solution.x)[:p]


def _programme(problem: Problem) -> Any:
    """``min 1/2 v'Pv + q'v`` with ``Av + s = b``, s in cones; the first entries of v are x."""
    p = problem.dimension
    entries: list[tuple[int, float]] = []  # squares of further variables
    cost, columns, parts = [0.0] * p, p, []
    base = np.zeros((p, p))
    for block in problem.blocks:
        dense = dense_matrix(problem, block)
        offset = np.broadcast_to(np.asarray(block.offset, dtype=float), len(dense))
        weights = np.broadcast_to(np.asarray(block.weight, dtype=float), len(dense))
        if block.term == "quad_form":
            base[: problem.size, : problem.size] += float(block.weight) * dense[:, : problem.size]
            continue
        if block.term == "linear":
            for j, v in enumerate(weights @ dense):
                cost[j] += float(v)
            continue
        for z, d, c in zip(dense, offset, weights, strict=True) if block.term != "norm2" else ():
            lines, square = _shape(block)
            if lines is None:
                return None, None, None, None
            # z = (what the lines see) + (what is squared): infimal convolutions, as Huber's, need a split.
            if square == "split":
                delta = float(block.parameters[0])
                cost += [0.0, float(c) * delta]
                entries.append((columns, float(c)))
                one = {columns: -1.0}
                parts += [(z, d, 1.0, {**one, columns + 1: -1.0}), (z, d, -1.0, {columns: 1.0, columns + 1: -1.0})]
                columns += 2
                continue
            cost.append(0.0 if square else float(c))
            if square:
                entries.append((columns, 2.0 * float(c)))
            parts += [(z, d * 1.0 + 0.0, slope, {columns: -1.0}, constant) for slope, constant in lines]
            columns += 1
        if block.term == "norm2":
            width = int(block.parameters[0]) if block.parameters else len(dense)
            for i in range(0, len(dense), width):
                cost.append(float(block.weight))
                parts.append(("cone", dense[i : i + width], offset[i : i + width], columns))
                columns += 1
    rows, cones = [], []
    for part in parts:
        if isinstance(part[0], str):
            _, a, d, column = part
            block = np.zeros((len(a) + 1, columns))
            block[0, column] = -1.0
            block[1:, :p] = -a
            rows.append((block, np.r_[0.0, d]))
            cones.append(("2", len(a) + 1))
            continue
        z, d, slope, others, *constant = part  # slope (z x + d) + constant <= v
        row = np.zeros(columns)
        row[:p] = slope * z
        for column, value in others.items():
            row[column] = value
        rows.append((row[None, :], np.array([-(slope * d + (constant[0] if constant else 0.0))])))
        cones.append(("+", 1))
    quadratic = np.zeros((columns, columns))
    quadratic[:p, :p] = base + base.T
    for column, value in entries:
        quadratic[column, column] = value
    if not rows:
        rows, cones = [(np.zeros((1, columns)), np.zeros(1))], [("+", 1)]
    return quadratic, np.asarray(cost), rows, cones


def _shape(block: Block) -> Any:
    """The lines that a term is the largest of, as (slope, constant), and whether that is squared."""
    a = block.parameters
    return {
        "abs": ([(1.0, 0.0), (-1.0, 0.0)], False),
        "pos": ([(1.0, 0.0), (0.0, 0.0)], False),
        "hinge": ([(-1.0, 1.0), (0.0, 0.0)], False),
        "squared_hinge": ([(-1.0, 1.0), (0.0, 0.0)], True),
        "square": ([(1.0, 0.0), (-1.0, 0.0)], True),
        "pinball": ([(a[0], 0.0), (a[0] - 1.0, 0.0)] if a else [], False),
        "epsilon_insensitive": ([(1.0, -a[0]), (-1.0, -a[0]), (0.0, 0.0)] if a else [], False),
        "huber": ([], "split"),
    }.get(block.term, (None, False))
