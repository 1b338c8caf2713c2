r"""A convex composite is unbounded below just if it falls for ever along a direction, which is checked as such.

Far out a row rises with its steepest subgradient, so f falls along d just if it does not curve there and

    g'd + sum_k w_k max(low_k a_k'd, high_k a_k'd) + sum_g w_g |A_g d| < 0.                                         (1)

A linear programme proposes d, norms being the largest of lines below them, of which it is given more as it goes on. It
decides nothing: solvers drop entries that are small beside others. Rows whose sizes are many orders above others may
not rise at all, one order after the other, so that steep terms do not hide what happens along the directions that they
do not see. Whether (1) holds is then decided in rational arithmetic, with d moved to where what curves, or all
that is about at rest, is so exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import TimeUp, left, tick
from varopt._verified import SLACK, UNIT, Ball, dot, is_double
from varopt.certificates.enclosures import (
    ENTRY_ROUNDINGS,
    NotEnclosed,
    Undecided,
    applied,
    coordinates,
    entries_of,
    transposed,
)
from varopt.composite import Composite, QuadraticForm, composite
from varopt.model import Objective
from varopt.model.blocks import AffineBlock
from varopt.model.maps import Map

__all__ = ["curves_down", "falls_along", "falls_for_ever", "projected"]

Vector = NDArray[np.float64]

RATIONAL_ENTRIES = 20_000  # of all rows together, up to which a linear programme and rational arithmetic are cheap
_MOST_CURVED = 60  # variables up to which a direction of negative curvature is looked for
_MOST_EQUATIONS = 12  # that are solved in rational arithmetic, whose numbers grow with each
_SIZES_APART = 1e5  # ratio of sizes beyond which rows are held at rest rather than weighed against others
_ROUNDED_PRODUCT = Fraction(1, 2**50)  # share by which products of a weight, a factor and a subgradient may be rounded
_LINE_ROUNDS = 12  # linear programmes in which norms get more lines
# Share of its size below which a row is taken to be at rest along a direction that was computed.
_REST_ALONG_DIRECTION = 1e-9


class _Rays(NamedTuple):
    """All rows as a dense matrix, with their weighted subgradients far out on either side.

    Entries are exact but for those of rows with an error, relative to them; subgradients are but for a unit or two.
    Rows of a norm have its number and, as ends, its weight; the other rows have the number -1.
    """

    matrix: Vector
    low: Vector
    high: Vector
    error: Vector
    norm: NDArray[np.intp]
    vector: Ball


def falls_for_ever(objective: Objective, most: int = RATIONAL_ENTRIES) -> Vector | None:
    """A direction along which a convex objective falls without bound, in exact arithmetic; None where none was found.

    Problems with more than `most` entries are not looked at.
    """
    form = composite(objective, multiplied=False)
    others = sum(q.offset.size for q in form.forms) + sum(group.offset.size for group in form.groups)
    if (form.row_count + others) * form.size > most or form.not_convex:
        return None
    try:
        with np.errstate(all="ignore"):
            return _direction(_rays(objective, form))
    except (Undecided, NotEnclosed, TimeUp, np.linalg.LinAlgError, ValueError, OverflowError):
        return None  # numbers that overflow, too


def falls_along(objective: Objective, d: Vector) -> bool:
    """Whether a convex objective falls without bound along a direction, for certain.

    (1) with all rounding charged, in a pass over the data; norms rise with their own length. What curves has to be at
    rest exactly, which is seen only where its entries are zero.
    """
    if not np.all(np.isfinite(d)) or not d.any():
        return False
    d = d / np.abs(d).max()
    form = composite(objective, multiplied=False)
    if form.not_convex or (form.not_quadratic and not form.groups):
        return False
    with np.errstate(all="ignore"):
        try:
            return _steepest_rise(objective, form, np.where(np.abs(d) < _REST_ALONG_DIRECTION, 0.0, d)) < 0.0
        except NotEnclosed:
            return False


def _steepest_rise(objective: Objective, form: Composite, d: Vector) -> float:
    """A number that the derivative along a direction is not above, anywhere."""
    along = Ball.exact(d)
    vector = _linear_part(objective)
    value, error = dot(vector.middle, d)
    total = value + error + float(vector.radius @ np.abs(d)) * SLACK
    size = abs(value)
    for q in form.forms:
        if applied(q.linear, along, {}).size.any():
            return np.inf
    for r in form.rows:
        z = applied(r.linear, along, {})
        ends = (np.broadcast_to(np.asarray(end, dtype=np.float64), (r.count,)) for end in r.term.subgradient_range)
        still = (z.size == 0.0) | (r.weights == 0.0)
        low, high = np.sort([np.where(still, 0.0, r.weights * end) for end in ends], axis=0)
        steepest = np.maximum(np.abs(low), np.abs(high))
        rise = np.where(z.middle > 0.0, high, low) * z.middle + steepest * z.radius
        value, error = dot(np.ones(r.count), rise)
        total, size = total + value + (error + 8.0 * UNIT * float(steepest @ z.size)) * SLACK, size + abs(value)
    for group in form.groups:
        z = applied(group.linear, along, {})
        norms = group.norms(z.size) * (1.0 + 4.0 * UNIT * (4 + group.sizes))
        value, error = dot(group.weights, norms)
        total, size = total + value + error, size + abs(value)
    return total + 16.0 * UNIT * (len(form.rows) + len(form.groups) + 1) * size if np.isfinite(total) else np.inf


def _linear_part(objective: Objective) -> Ball:
    """The gradient of what is affine, enclosed."""
    vector = Ball.exact(np.zeros(objective.size))
    for block in objective.blocks:
        if isinstance(block, AffineBlock) and block.variables:
            weights = Ball.exact([float(block.weights)])
            vector = vector.plus(transposed(block.argument.stacked(objective.variables), weights, {}))
    return vector


def _direction(rays: _Rays) -> Vector | None:
    if not rays.vector.middle.any() and np.all(rays.low <= 0.0) and np.all(rays.high >= 0.0):
        return None
    curved = np.isinf(rays.low) | np.isinf(rays.high)
    for d in _proposed(rays):
        for held in (curved, np.ones_like(curved)):  # at rest exactly, where they about are: what curves, or every row
            exact = _at_rest(rays, d, held)
            for way in () if exact is None else (exact, [-v for v in exact]):  # it may have been moved far
                if _falls(rays, way):
                    return np.array([float(v) for v in way])
    return None


def _rays(objective: Objective, form: Composite) -> _Rays:
    """What happens far out."""
    parts: list[tuple[Vector, ...]] = [(np.zeros((0, form.size)), np.zeros(0), np.zeros(0), np.zeros(0))]
    norm: list[NDArray[np.intp]] = []
    for q in form.forms:
        _, rows, _ = entries_of(q.linear)
        inner = _entries_inside(q)
        if coordinates(q.linear) is not None and np.array_equal(inner, inner.T):
            rows = inner @ rows  # positive semidefinite: z'Qz is zero just where Qz is, and not only at zero
        free = np.full(len(rows), np.inf)
        parts.append((rows, -free, free, np.zeros(len(rows))))
    for r in form.rows:
        scale, rows, exact = entries_of(r.linear)
        factor = np.abs(np.broadcast_to(scale, (r.count,))) * r.weights
        live = np.flatnonzero(factor)
        ends = [np.broadcast_to(np.asarray(end, dtype=np.float64), (r.count,)) for end in r.term.subgradient_range]
        low, high = np.sort([factor[live] * end[live] for end in ends], axis=0)
        rows = rows[live] * np.broadcast_to(np.sign(scale), (r.count,))[live, None]
        if not exact and not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
            raise Undecided
        parts.append((rows, low, high, np.full(live.size, 0.0 if exact else ENTRY_ROUNDINGS * UNIT)))
    count, first = sum(len(rows) for rows, *_ in parts), 0
    norm.append(np.full(count, -1))
    for group in form.groups:
        scale, rows, exact = entries_of(group.linear)
        if not exact or np.any(scale != 1.0):
            rows, exact = np.broadcast_to(scale, (len(rows),))[:, None] * rows, False
        weights = group.spread(group.weights)
        parts.append((rows, -weights, weights, np.full(len(rows), 0.0 if exact else ENTRY_ROUNDINGS * UNIT)))
        norm.append(first + np.repeat(np.arange(group.sizes.size), group.sizes))
        first += group.sizes.size
    matrix, low, high, error = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _Rays(matrix, low, high, error, np.concatenate(norm), _linear_part(objective))


# -- Directions that may do -------------------------------------------------------------------------------------------


def _proposed(rays: _Rays) -> Iterator[Vector]:
    """Directions of a linear programme that weighs all rows, then may not raise the steepest ones, then more."""
    steepest = np.maximum(np.abs(rays.low), np.abs(rays.high))
    sizes = np.where(np.isfinite(steepest), steepest, np.inf) * np.abs(rays.matrix).max(axis=1, initial=0.0)
    sizes = np.where(np.isnan(sizes), 0.0, sizes)
    finite = np.unique(sizes[np.isfinite(sizes) & (sizes > 0.0)])[::-1]
    cuts = [np.inf, *(b for a, b in pairwise(finite) if a > _SIZES_APART * b)]
    line = float(np.abs(rays.vector.middle).max(initial=0.0))
    if finite.size and line > 0.0 and finite[-1] > _SIZES_APART * line:
        cuts.append(0.0)
    for cut in cuts:
        hard = _hardened(rays, np.isfinite(sizes) & (sizes > cut))
        held = np.isinf(hard.low) & np.isinf(hard.high)
        basis = _null_space(rays.matrix[held])
        if basis.shape[1]:
            for d in _steepest(hard, ~held, basis):
                yield from _tidied(d)


def _hardened(rays: _Rays, steep: NDArray[np.bool_]) -> _Rays:
    """The same with steep rows that may not rise at all; those that rise on both sides, or are norms, stay at rest."""
    both = steep & ((rays.low > 0.0) | (rays.high < 0.0) | (rays.norm >= 0))
    low = np.where(both | (steep & (rays.low < 0.0)), -np.inf, rays.low)
    return rays._replace(low=low, high=np.where(both | (steep & (rays.high > 0.0)), np.inf, rays.high))


def _null_space(matrix: Vector) -> Vector:
    """Directions that no row sees, each row in its own unit."""
    sizes = np.abs(matrix).max(axis=1, initial=0.0)
    rows = matrix[sizes > 0.0] / sizes[sizes > 0.0, None]
    return np.eye(matrix.shape[1]) if not len(rows) else np.asarray(scipy.linalg.null_space(rows, rcond=1e-11))


def _steepest(rays: _Rays, live: NDArray[np.bool_], basis: Vector) -> Iterator[Vector]:
    """The direction of a box, within a space, along which f falls fastest far out, for the rows that are live.

    And one that falls half as fast, where one leads away from all constraints: it is proved without equations.
    """
    plain, cost = live & (rays.norm < 0), rays.vector.middle @ basis
    matrix, low, high = rays.matrix[plain] @ basis, rays.low[plain], rays.high[plain]
    unit = max(float(np.abs(cost).max(initial=0.0)), 1e-300)
    norms = [live & (rays.norm == k) for k in np.unique(rays.norm[live & (rays.norm >= 0)])]
    parts = [rays.high[rows, None] * rays.matrix[rows] @ basis / unit for rows in norms]
    count, width = matrix.shape
    lifts = count + len(parts)  # one above each row, and above each norm
    above, limits = [], []
    for end, sign in ((low, -1.0), (high, 1.0)):
        finite = np.isfinite(end)
        above.append(_lifted(np.where(finite, end, 0.0)[:, None] * matrix / unit, np.arange(count), lifts))
        limits.append(_lifted(sign * matrix[~finite], np.arange(0), lifts))
    hard = sp.vstack(limits, format="csr")
    above.append(hard)
    for k, part in enumerate(parts):  # no entry is above the norm
        above += [_lifted(sign * part, np.full(len(part), count + k), lifts) for sign in (1.0, -1.0)]
    for _ in range(_LINE_ROUNDS if parts else 1):
        whole = np.concatenate([cost / unit, np.ones(lifts)])
        rows = sp.vstack(above, format="csr")
        found = _least(whole, rows, width)
        if found is None:
            return
        d = found[:width]
        images = [part @ d for part in parts]
        lengths = [float(np.linalg.norm(z)) for z in images]
        rise = float(cost @ d) / unit + float(found[width : width + count].sum()) + sum(lengths)
        if rise < 0.0:
            yield np.asarray(basis @ d)
            if hard.shape[0] and (inward := _inward(whole, rows, hard, rise, width)) is not None:
                yield np.asarray(basis @ inward)
            return
        for k, (part, z, length) in enumerate(zip(parts, images, lengths, strict=True)):
            if length > 0.0:
                above.append(_lifted(((z / length) @ part)[None, :], np.array([count + k]), lifts))


def _lifted(rows: Vector, above: NDArray[np.intp], lifts: int) -> sp.csr_array:
    """Rows of a programme that are no higher than their lifts, of which there are as many as rows in all: or than zero.

    Two numbers a row, where a table of them would have as many as there are rows.
    """
    ends = sp.csr_array((-np.ones(above.size), (np.arange(above.size), above)), shape=(len(rows), lifts))
    return sp.hstack([sp.csr_array(rows), ends], format="csr")


def _inward(cost: Vector, above: sp.csr_array, hard: sp.csr_array, rise: float, width: int) -> Vector | None:
    """The direction that leads farthest from all that is hard, of those along which f falls half as fast as it may."""
    margin = np.zeros(above.shape[0] + hard.shape[0] + 1)
    margin[above.shape[0] : -1] = np.asarray(abs(hard[:, :width]).sum(axis=1)).ravel()
    rows = sp.hstack([sp.vstack([above, hard, cost[None, :]]), margin[:, None]], format="csr")
    sides = np.append(np.zeros(rows.shape[0] - 1), 0.5 * rise)
    found = _least(np.append(np.zeros(cost.size), -1.0), rows, width, sides)
    return None if found is None else found[:width]


def _least(cost: Vector, inequalities: sp.csr_array, width: int, sides: Vector | None = None) -> Vector | None:
    """The point of a box in the first variables at which a cost is least, where it is negative."""
    from scipy.optimize import linprog

    tick()
    bounds = [(-1.0, 1.0)] * width + [(None, None)] * (cost.size - width)
    count = inequalities.shape[0]
    result = linprog(
        cost, A_ub=inequalities if count else None,
        b_ub=(np.zeros(count) if sides is None else sides) if count else None, bounds=bounds, method="highs",
        options={"time_limit": min(left(), 1e9)},
    )  # fmt: skip
    return None if result.status != 0 or result.fun >= 0.0 else np.asarray(result.x)


def _tidied(d: Vector) -> Iterator[Vector]:
    """A direction in whole numbers where it is close to such, and as it is."""
    d = np.where(np.abs(d) <= _REST_ALONG_DIRECTION * np.abs(d).max(initial=0.0), 0.0, d)
    if d.any():
        whole = d / np.min(np.abs(d[d != 0.0]))
        if np.all(np.abs(whole - np.round(whole)) < 1e-6) and np.abs(whole).max() < 1e6:
            yield np.round(whole)
        yield d


# -- The proof --------------------------------------------------------------------------------------------------------


def _at_rest(rays: _Rays, d: Vector, held: NDArray[np.bool_]) -> list[Fraction] | None:
    """The direction moved to where those of some rows that are about at rest are exactly so; None where none is."""
    rows, along = rays.matrix[held], rays.matrix[held] @ d
    still = np.abs(along) <= _REST_ALONG_DIRECTION * (np.abs(rows) @ np.abs(d))
    exact = [Fraction(v) for v in d.tolist()]
    different = np.unique(rows[still], axis=0)
    if min(different.shape) > _MOST_EQUATIONS:
        return None
    equations = [[Fraction(v) for v in row] for row in different.tolist()]
    return exact if not equations else projected(equations, exact, np.abs(d))


def projected(equations: list[list[Fraction]], d: list[Fraction], sizes: Vector) -> list[Fraction] | None:
    """A solution of homogeneous equations that agrees with d but for as many entries as there are equations."""
    pivots: list[int] = []
    reduced: list[list[Fraction]] = []
    order = np.argsort(-sizes, kind="stable").tolist()  # large entries change least, relatively
    for equation in equations:
        row = equation
        for pivot, other in zip(pivots, reduced, strict=True):
            if row[pivot]:
                factor = row[pivot]
                row = [a - factor * b for a, b in zip(row, other, strict=True)]
        largest = max((abs(row[j]) for j in order), default=Fraction(0))
        if not largest:
            continue
        pivot = next(j for j in order if abs(row[j]) == largest)
        row = [a / row[pivot] for a in row]
        reduced = [[a - other[pivot] * b for a, b in zip(other, row, strict=True)] for other in reduced]
        pivots.append(pivot)
        reduced.append(row)
    solution = list(d)
    free = [j for j in range(len(d)) if j not in pivots]
    for pivot, row in zip(pivots, reduced, strict=True):
        solution[pivot] = -sum((row[j] * d[j] for j in free if row[j]), Fraction(0))
    return solution if any(solution) else None


def _falls(rays: _Rays, d: Sequence[Fraction]) -> bool:
    """Whether (1) holds, in rational arithmetic, whatever rounding has done to the numbers in it."""
    used = [j for j, v in enumerate(d) if v]
    middle, radius = rays.vector.middle.tolist(), rays.vector.radius.tolist()
    total = sum((Fraction(middle[j]) * d[j] + Fraction(radius[j]) * abs(d[j]) for j in used), Fraction(0))
    columns = (rays.matrix.tolist(), rays.low.tolist(), rays.high.tolist(), rays.error.tolist(), rays.norm.tolist())
    squares: dict[int, Fraction] = {}
    for row, low, high, error, norm in zip(*columns, strict=True):
        tick()
        along = sum((Fraction(row[j]) * d[j] for j in used if row[j]), Fraction(0))
        spread = Fraction(error) * sum((abs(Fraction(row[j]) * d[j]) for j in used if row[j]), Fraction(0))
        if norm >= 0:
            squares[norm] = squares.get(norm, Fraction(0)) + (Fraction(high) * (abs(along) + spread)) ** 2
            continue
        end = high if along > 0 else low
        if along and np.isinf(end):
            return False
        total += Fraction(end) * along + abs(Fraction(end) * along) * _ROUNDED_PRODUCT if along else 0
        total += spread * Fraction(max(abs(low), abs(high))) if spread else 0
    return total + sum(map(_root, squares.values())) < 0


def _root(value: Fraction) -> Fraction:
    """A number not below the square root, and above it by a share of 2^-60 at most."""
    scale = 1 << max(0, 120 - (value.numerator * value.denominator).bit_length())
    whole = value.numerator * value.denominator * scale * scale
    return Fraction(math.isqrt(whole) + 1, value.denominator * scale) if value else value


# -- Objectives that curve down ---------------------------------------------------------------------------------------


def curves_down(objective: Objective) -> Vector | None:
    """A direction along which an objective falls as minus a square far out, in exact arithmetic; None if none is found.

    The quadratic's own direction of least curvature is tried, with all that the rows have far out added to it.
    """
    form = composite(objective, multiplied=False)
    if not form.forms or form.size > _MOST_CURVED or form.row_count * form.size > RATIONAL_ENTRIES:
        return None
    try:
        return _curved_direction(form)
    except (Undecided, np.linalg.LinAlgError, ValueError, OverflowError):
        return None


def _curved_direction(form: Composite) -> Vector | None:
    parts = [q.multiplied[0] for q in form.forms]
    dense = np.sum([part.toarray() if sp.issparse(part) else part for part in parts], axis=0)
    units = np.sqrt(np.abs(np.diagonal(dense)))
    units = np.where(units > 0.0, units, 1.0)
    for scale in (np.ones(form.size), units):
        d = np.linalg.eigh(dense / np.outer(scale, scale))[1][:, 0] / scale
        for tidied in _tidied(d):
            if _curvature(form, [Fraction(v) for v in tidied.tolist()]) < 0:
                return tidied
    return None


def _curvature(form: Composite, d: Sequence[Fraction]) -> Fraction:
    """The factor of t^2 in the value at t d, for large t."""
    total = Fraction(0)
    for q in form.forms:
        z = _along(q.linear, d)
        inner = _entries_inside(q).tolist()
        image = [sum((Fraction(a) * v for a, v in zip(row, z, strict=True) if a), Fraction(0)) for row in inner]
        total += Fraction(q.weight) * sum((a * b for a, b in zip(z, image, strict=True)), Fraction(0))
    for r in form.rows:
        if r.term.degree > 2:
            raise Undecided
        ends = [np.broadcast_to(np.asarray(p[2] if len(p) > 2 else 0.0), (r.count,)) for p in r.term.pieces]
        z = _along(r.linear, d)
        curvature = (ends[-1][k] if v > 0 else ends[0][k] for k, v in enumerate(z))
        total += sum((Fraction(float(w)) * Fraction(float(c)) * v * v
                      for w, c, v in zip(r.weights, curvature, z, strict=True)), Fraction(0))  # fmt: skip
    return total


def _entries_inside(q: QuadraticForm) -> Vector:
    """The matrix of a quadratic form, where that is not rounded."""
    if not is_double(q.matrix.given):
        raise Undecided
    return np.asarray(q.matrix.dense(), dtype=np.float64)


def _along(linear: Map, d: Sequence[Fraction]) -> list[Fraction]:
    """``A d``, exactly."""
    factor, dense, exact = entries_of(linear)
    if not exact:
        raise Undecided
    factors = np.broadcast_to(factor, (len(dense),)).tolist()
    rows = ((s, row) for s, row in zip(factors, dense.tolist(), strict=True))
    return [
        Fraction(s) * sum((Fraction(a) * v for a, v in zip(row, d, strict=True) if a), Fraction(0)) for s, row in rows
    ]
