"""Largest entries, tails, norms and kinks of kinks in sums, some within a box: brackets in exact arithmetic.

Weights are powers of two, so that no number of a model is rounded while it is built.
"""

from __future__ import annotations

import itertools
import math
import time
import traceback
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import varopt as vo
from fuzz.report import Finding, Report
from fuzz.run import LIMIT, Hang, late, starved, watched

Numbers = list[Fraction]
ZERO = Fraction(0)
_ROOT_BITS = 400  # of a square root, which is not rational
_NEGLIGIBLE = Fraction(1, 10**80)  # share of a value by which its roots may be off
_SPREADS = (1e-12, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 1e3, 1e8)  # of points around the one found


def compositions(seed: int, report: Report) -> None:
    """One sum, and what its exact values at the point found, beside it and in corners say of the bracket."""
    rng = np.random.default_rng([seed, 7])
    size, style = int(rng.integers(1, 6)), int(rng.integers(4))
    columns = int(rng.integers(1, 4)) if rng.random() < 0.3 else 0  # of a matrix, whose entries follow row by row
    parts = [_part(rng, size, columns, style) for _ in range(int(rng.integers(1, 5)))]
    lines = [
        f"w = vo.Variable({(size, columns) if columns else size})",
        "f = " + "\n    ".join(["(", *(f"+ {text}" for text, _ in parts), ")"]),
    ]
    size, shape = size * max(columns, 1), (size, columns) if columns else (size,)
    low, high = np.full(size, -np.inf), np.full(size, np.inf)
    if rng.random() < 0.4:
        unit = 10.0 ** rng.integers(-8, 9) if style == 3 else 1.0
        low = np.round(rng.uniform(-2.0, 1.0, size), 1) * unit
        high = low + np.round(rng.uniform(0.0, 3.0, size), 1) * unit
    boxed = np.isfinite(low[0])
    box = f"[w >= np.array({low.reshape(shape).tolist()}), w <= np.array({high.reshape(shape).tolist()})]"
    lines.append(f"limits = {box if boxed else None}")
    program = "import numpy as np, varopt as vo\n\n" + "\n".join(lines) + "\n"
    names: dict[str, Any] = {}
    exec(program, names)  # our own text
    found, result, limit, cpu = [], None, LIMIT, time.process_time()
    try:
        with watched(10.0 * limit):
            result = vo.minimize(names["f"], subject_to=names["limits"], time_limit=limit)
        if starved(result, time.process_time() - cpu):
            limit, cpu = 10.0 * LIMIT, time.process_time()
            with watched(10.0 * limit):
                result = vo.minimize(names["f"], subject_to=names["limits"], time_limit=limit)
    except Hang:
        found.append("hang: more than ten times the time limit")
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        found.append(f"exception {type(error).__name__}: {error} ({where.filename}, line {where.lineno})")
    if late(spent := time.process_time() - cpu, limit):
        found.append(f"late: {spent:.2f} s of {limit:g}")
    if result is not None:
        found += _complaints(result, lambda x: sum((value(x) for _, value in parts), ZERO), low, high, rng)
        report.statuses[f"compositions: {result.status.name}"] += 1
    report.runs["compositions"] += 1
    program += f"r = vo.minimize(f, subject_to=limits, time_limit={LIMIT})\nprint(r, r.lower, r.upper)\n"
    report.findings += [Finding(t.split(":")[0], "auto", t, seed, program) for t in found]


def _complaints(r: Any, value: Callable[[Numbers], Fraction], low: Any, high: Any, rng: Any) -> Iterator[str]:
    """What is wrong with a result."""
    name, size = r.status.name, r.x.size
    point = [Fraction(v) for v in r.x.tolist()]
    assumed = " (assumption stated)" if r.certificate.assumption else ""
    if assumed and name in ("OPTIMAL", "UNBOUNDED", "INFEASIBLE"):
        yield f"{name} assumes: {r.certificate.assumption}"
    if name in ("GAP_OPEN", "TIME_LIMIT", "INFEASIBLE", "NOT_FOUND"):
        yield f"{'gap open' if math.isfinite(r.fun) else name}: {name}, gap {r.gap:.2g} at {r.fun:.6g}"
    own = value(point)
    slack = _NEGLIGIBLE * abs(own)
    if not assumed and own > Fraction(r.upper) + slack:
        yield f"UNSOUND BY ROUNDING: upper {r.upper!r} below f(x) by {float(own - Fraction(r.upper)):.2g}"
    outside = [*(a - x for a, x in zip(low, point, strict=True)), *(x - b for x, b in zip(point, high, strict=True))]
    missed = max((Fraction(float(v)) for v in outside if np.isfinite(float(v))), default=ZERO)
    if missed > Fraction(r.violation) + Fraction(1, 10**16) * abs(missed) and missed > 0:
        yield f"fun: the box is missed by {float(missed):.2g}, told {r.violation:.2g}"
    if not math.isfinite(r.lower):
        return
    reach = max(1e-3, float(np.abs(r.x).max()))
    points = [r.x, np.zeros(size)]
    points += [
        r.x + s * reach * step for s in _SPREADS for step in (rng.standard_normal(size), rng.integers(-1, 2, size))
    ]
    if np.isfinite(low[0]):
        points += [np.array(corner) for corner in itertools.islice(itertools.product(*zip(low, high, strict=True)), 32)]
    least = min(value([Fraction(v) for v in np.clip(p, low, high).tolist()]) for p in points)
    if Fraction(r.lower) > least + _NEGLIGIBLE * abs(least):
        excess = Fraction(r.lower) - least
        kind = "UNSOUND" if excess > Fraction(1, 10**13) * abs(least) else "UNSOUND BY ROUNDING"
        yield f"{kind}{assumed}: {name} with lower {r.lower!r}, and a value of {float(least)!r}"


# -- What is drawn: the text of a part, and its exact value -----------------------------------------------------------


def _part(rng: np.random.Generator, size: int, columns: int, style: int) -> tuple[str, Callable[[Numbers], Fraction]]:
    weight = 2.0 ** int(rng.integers(-24, 25) if style == 3 else rng.integers(-2, 3))
    text, inner, rows = _affine(rng, size, columns, style)
    count = int(rng.integers(1, rows + 1))
    knot = float(np.round(rng.uniform(0.1, 2.0), 1))
    forms: dict[str, Callable[[Numbers], Fraction]] = {
        "vo.norm1({})": lambda z: sum(map(abs, z), ZERO),
        "vo.norm2({})": lambda z: _root(_squares(z)),
        "vo.norm2({}) ** 2": _squares,
        "vo.norm_inf({})": lambda z: max(map(abs, z)),
        "vo.max({})": max,
        "vo.sum({})": lambda z: sum(z, ZERO),
        f"vo.sum_largest({{}}, {count})": lambda z: sum(sorted(z)[-count:], ZERO),
        f"vo.sum_largest(abs({{}}), {count})": lambda z: sum(sorted(map(abs, z))[-count:], ZERO),
        "vo.sum(vo.pos(vo.abs({}) - 1))": lambda z: sum((max(abs(v) - 1, ZERO) for v in z), ZERO),
        "vo.sum(vo.square(vo.pos({})))": lambda z: _squares([max(v, ZERO) for v in z]),
        f"vo.sum(vo.huber({{}}, {knot}))": lambda z: sum((_huber(abs(v), Fraction(knot)) for v in z), ZERO),
        "vo.sum_squares({})": _squares,
    }
    form = str(rng.choice(list(forms)))
    return f"{weight!r} * {form.format(text)}", lambda x: Fraction(weight) * forms[form](inner(x))


def _affine(
    rng: np.random.Generator, size: int, columns: int, style: int
) -> tuple[str, Callable[[Numbers], Numbers], int]:
    """The text, the exact entries, and how many there are."""
    count = max(columns, 1)
    if rng.random() < 0.2:
        return "w", lambda x: x, size * count
    rows = int(rng.integers(1, 6))
    matrix = _numbers(rng, (rows, size), style)
    offset = _numbers(rng, (rows, columns) if columns else (rows,), style)
    exact = [[Fraction(v) for v in row] for row in matrix.tolist()]
    there = [Fraction(v) for v in offset.ravel().tolist()]

    def entries(x: Numbers) -> Numbers:
        products = [
            sum((a * v for a, v in zip(row, x[k::count], strict=True)), ZERO) for row in exact for k in range(count)
        ]
        return [z + d for z, d in zip(products, there, strict=True)]

    return f"(np.array({matrix.tolist()}) @ w + np.array({offset.tolist()}))", entries, rows * count


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], style: int) -> Any:
    if style == 0:
        return rng.integers(-3, 4, shape).astype(float)
    drawn = rng.standard_normal(shape)
    return np.round(drawn, 1) if style == 1 else drawn * (10.0 ** rng.integers(-6, 7) if style == 3 else 1.0)


def _squares(z: Numbers) -> Fraction:
    return sum((v * v for v in z), ZERO)


def _huber(size: Fraction, delta: Fraction) -> Fraction:
    return size * size / 2 if size <= delta else delta * (size - delta / 2)


def _root(square: Fraction) -> Fraction:
    """Its root, to 400 bits and not above it."""
    shift = 2 * max(_ROOT_BITS - (square.numerator.bit_length() - square.denominator.bit_length()) // 2, 0)
    return Fraction(math.isqrt((square.numerator << shift) // square.denominator), 1 << (shift // 2))
