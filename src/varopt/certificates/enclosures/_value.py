"""The other side of a bracket: the exact value at a point, enclosed. Rounded, a steep term can be off by all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import EXTENDED, SLACK, TINY, UNIT, Ball, dot, gamma, is_double, length, total, unit_of
from varopt.certificates.enclosures._dual_point import DualQuadratic, DualRows
from varopt.certificates.enclosures._enclosure import Norms, NotEnclosed, column_lengths, sparse_products
from varopt.model.maps import (
    Columnwise,
    Composition,
    Difference,
    HStack,
    Map,
    Matrix,
    Scaled,
    Selection,
    Sparse,
    Sum,
    as_map,
)
from varopt.terms import PiecewisePolynomial

__all__ = ["applied", "enclosed_terms", "enclosed_value"]

Vector = NDArray[np.float64]

_SMALLEST_SUBNORMAL = float(np.finfo(np.float64).smallest_subnormal)
_EXTENDED_ENTRIES = 1 << 17  # entries of a dense matrix up to which products are in extended precision
_AT_MOST = 1 << 22  # the same where the error would be more than this share of the value
_DEAR_VALUE = 1e-11
_MANY, _CLOSE_SUM = 1 << 13, 1e-14  # rows up to which the error of a sum of terms should be as small as that
_BLOCK_ERROR_SHARE = 1.0 / 4.0  # of the error that is allowed, for one block of rows
_WHOLE_SUMS = 2.0**52  # up to which sums of whole numbers are not rounded
_FAINT_RADIUS = 1e-290  # radii below it may be those of underflow alone
_CONVERTED_AT_ONCE = 1 << 16  # entries that are converted at once


def enclosed_value(
    rows: Sequence[DualRows], vector: Vector | Ball, scalar: float, x: Vector,
    quadratics: Sequence[DualQuadratic] = (), norms: Norms | None = None, allowed: float = 0.0,
) -> tuple[float, float]:  # fmt: skip
    """``g'x + s + sum_k c_k rho_k(a_k'x + d_k) + sum 1/2 z'Sz``, and a bound of what rounding may have changed in it.

    The duals of the rows, and the points of quadratic parts, are of no account. One or two passes over the data; the
    error is infinite where entries of a map are not at hand, or numbers overflow. Lengths of columns in `norms` stand
    in for those of large rows, which saves a pass and costs a few digits; where that leaves more than an error that is
    `allowed`, and than a share of the value, lengths of rows, and at last extended precision, are spent on them.
    """
    norms = {} if norms is None else norms
    g = vector if isinstance(vector, Ball) else Ball.exact(vector)
    with np.errstate(all="ignore"):
        try:
            value, error = _enclosed_value(rows, g, scalar, x, quadratics, norms, _EXTENDED_ENTRIES, allowed)
            largest = max((r.linear.shape[0] * r.linear.shape[1] for r in rows), default=0)
            if largest > _EXTENDED_ENTRIES and error > max(_DEAR_VALUE * abs(value), allowed):
                value, error = _enclosed_value(rows, g, scalar, x, quadratics, {}, _EXTENDED_ENTRIES, allowed)
            if _EXTENDED_ENTRIES < largest <= _AT_MOST and error > max(_DEAR_VALUE * abs(value), allowed):
                value, error = _enclosed_value(rows, g, scalar, x, quadratics, norms, _AT_MOST, allowed)
        except NotEnclosed:
            return float("nan"), float("inf")
    return value, error if np.isfinite(value) and np.isfinite(error) else float("inf")


def _enclosed_value(
    rows: Sequence[DualRows], g: Ball, scalar: float, x: Vector, quadratics: Sequence[DualQuadratic], norms: Norms,
    extended: int, allowed: float,
) -> tuple[float, float]:  # fmt: skip
    value, error = dot(g.middle, x) if g.middle.any() else (0.0, 0.0)
    parts, errors = [scalar, value], [error, float(g.radius @ np.abs(x))]
    for r in rows:
        if (known := _by_lengths(r, x, norms, _BLOCK_ERROR_SHARE * allowed)) is not None:
            parts.append(known[0])
            errors.append(known[1])
            continue
        z = applied(r.linear, _point(r.linear, x, extended), norms).shifted(r.offset).rounded()
        z = z if r.term.curvature.is_convex else _exact_where_zero(r.linear, x, z)
        value, error = enclosed_terms(r.term, np.asarray(r.weights, dtype=np.float64), z, _BLOCK_ERROR_SHARE * allowed)
        parts.append(value)
        errors.append(error)
    for q in quadratics:
        value, error = _quadratic(q, x, norms)
        parts.append(value)
        errors.append(error)
    value, error = total(np.array(parts))
    return value, (error + sum(errors)) * SLACK


def _by_lengths(r: DualRows, x: Vector, norms: Norms, allowed: float) -> tuple[float, float] | None:
    r"""The same of one large block where lengths of columns are known and an error that is `allowed` is not exceeded.

    With :math:`h_j` the lengths, rounding moves all positions together by a length of at most
    :math:`\gamma \sum_j h_j |x_j|`, and the value, by Cauchy and Schwarz, by that times the length of all derivatives:
    far less than if each row were off by as much.
    """
    if r.linear.shape[0] * r.linear.shape[1] <= EXTENDED or (off := _off(r.linear, x, norms)) is None:
        return None
    z = r.linear.apply(x) + r.offset
    if (kind := _kind(r.term)) is None or z.dtype != np.float64:
        return None
    far, count = length(z), z.size
    off += UNIT * far
    weights = np.asarray(r.weights, dtype=np.float64)
    most = float(np.abs(weights[:1] if weights.strides == (0,) else weights).max(initial=0.0))
    value, error = dot(weights, np.asarray(r.term.value(z)))
    error += kind.steepest * most * off * (far + off if kind.is_square else math.sqrt(count))
    error += 8.0 * _SMALLEST_SUBNORMAL * most * count  # of squares that underflow
    error = (error + 8.0 * UNIT * (abs(value) + error) + TINY * count) * SLACK
    return (value, error) if error <= max(_DEAR_VALUE * abs(value), allowed) else None


def _off(linear: Map, x: Vector, norms: Norms) -> float | None:
    """A bound of the length of what rounding changes in ``A x``, where it is known without a look at the data."""
    if isinstance(linear, Selection) and linear.index is None:
        return 0.0
    if isinstance(linear, Difference):  # whose rows have entries that add up to two to the power of its order
        return gamma(linear.order) * 2.0**linear.order * length(x)
    if isinstance(linear, Scaled) and np.ndim(linear.scale) == 0 and abs(float(linear.scale)) == 1.0:
        return _off(linear.inner, x, norms)
    if (lengths := column_lengths(linear, norms)) is None:
        return None
    return (gamma(x.size + 4) * float(lengths @ np.abs(x)) + math.sqrt(linear.shape[0]) * (x.size + 4) * TINY) * SLACK


def _point(linear: Map, x: Vector, extended: int = _EXTENDED_ENTRIES) -> Ball:
    """The point, in extended precision where the map is small: near a knot, positions are small differences."""
    if linear.storage == "operator" or linear.shape[0] * linear.shape[1] > extended:
        return Ball.exact(x)
    return Ball(x.astype(np.longdouble), np.zeros(x.size))


def _exact_where_zero(linear: Map, x: Vector, z: Ball) -> Ball:
    """Positions of rows that see zeros alone are their offsets: what might have underflowed in them did not."""
    faint = np.flatnonzero((z.radius > 0.0) & (z.radius < _FAINT_RADIUS))
    if not faint.size or linear.storage == "operator":
        return z
    radius = z.radius.copy()
    radius[faint[~np.asarray(linear.rows(faint).dense())[:, x != 0.0].any(axis=1)]] = 0.0
    return Ball(z.middle, radius)


def enclosed_terms(term: PiecewisePolynomial, weights: Vector, z: Ball, allowed: float = 0.0) -> tuple[float, float]:
    """The weighted sum of terms at positions that are enclosed; of many an error that is `allowed` will do."""
    if not term.curvature.is_convex or term.degree > 2:
        return _piece_by_piece(term, weights, z)
    values = np.asarray(term.value(z.middle))
    # Squares that underflow, by no more than the smallest number there is, may be something times a weight.
    faint = (
        8.0 * _SMALLEST_SUBNORMAL * float(np.abs(weights).sum())
        if term.degree > 1 and (z.middle.any() or z.radius.any())
        else 0.0
    )
    if (kind := _kind(term)) is not None:
        steepest = (np.abs(z.middle) + z.radius) * kind.steepest if kind.is_square else kind.steepest
        value, error = dot(weights, values) if values.any() else (0.0, 0.0)
        error += faint
        # A row off its knot by |t| has slope times |t| as its value: of that, rounding is relative.
        error += float(np.abs(weights) @ (z.radius * steepest)) + 8.0 * UNIT * (abs(value) + error)
        close = _CLOSE_SUM * abs(value) if values.size < _MANY else max(10.0 * _DEAR_VALUE * abs(value), allowed)
        if kind.is_closest or error <= close:
            return value, (error + TINY * values.size) * SLACK
    low, high = term.subdifferential(z.middle - z.radius)[0], term.subdifferential(z.middle + z.radius)[1]
    steepest = np.maximum(np.abs(low), np.abs(high))  # largest at an end, of what is convex
    spread = z.radius * steepest + 16.0 * UNIT * _sizes(term, z)
    value, error = dot(weights, values)
    return value, (error + faint + float(np.abs(weights) @ spread)) * SLACK


def _piece_by_piece(term: PiecewisePolynomial, weights: Vector, z: Ball) -> tuple[float, float]:
    """The same of terms of any shape: the hull of what all pieces make of a position that may lie in them."""
    low, high = np.full(z.middle.shape, np.inf), np.full(z.middle.shape, -np.inf)
    crossed = np.zeros(z.middle.shape, dtype=int)
    for i, (piece, centre) in enumerate(zip(term.pieces, term.centres, strict=True)):
        t = z.middle - centre
        size = sum(np.abs(c) * np.abs(t) ** m for m, c in enumerate(piece))
        steepest = sum(m * np.abs(c) * (np.abs(t) + z.radius) ** (m - 1) for m, c in enumerate(piece) if m)
        # Horner's scheme rounds twice a degree, and the position relative to the centre once.
        spread = z.radius * steepest + (4.0 * UNIT * len(piece) * size + TINY) * (len(piece) > 1)
        at_middle = np.zeros(t.shape)
        for c in reversed(piece):
            at_middle = at_middle * t + c
        inside = _is_inside(term, i, z)
        low = np.where(inside, np.minimum(low, at_middle - spread), low)
        high = np.where(inside, np.maximum(high, at_middle + spread), high)
        crossed += inside
    if np.any(crossed > 1) and any(np.any(np.asarray(jump[0]) != 0.0) for jump in term.jumps):
        raise NotEnclosed(f"{term.name} jumps at a position that is rounded.")
    middle = 0.5 * (low + high)
    rounding = 4.0 * UNIT * np.where(low < high, np.abs(low) + np.abs(high), 0.0)
    value, error = _counted(weights, middle) or dot(weights, middle)
    return value, (error + float(np.abs(weights) @ (0.5 * (high - low) + rounding))) * SLACK


def _counted(weights: Vector, values: Vector) -> tuple[float, float] | None:
    """A sum of products of whole numbers, as of errors that are counted: it is exact where it is not too large."""
    whole = np.array_equal(weights, np.rint(weights)) and np.array_equal(values, np.rint(values))
    if not whole or not float(np.abs(weights) @ np.abs(values)) < _WHOLE_SUMS:
        return None
    return float(weights @ values), 0.0


def _is_inside(term: PiecewisePolynomial, i: int, z: Ball) -> Any:
    """Which positions may lie in a piece; those that are exact lie in one."""
    exact, inside = z.radius == 0.0, np.ones(z.middle.shape, dtype=bool)
    belongs = term.at_knot == "right"  # of a knot, to the piece that it begins
    if i > 0:
        knot = term.knots[i - 1]
        inside &= np.where(exact & (not belongs), z.middle > knot, z.middle + z.radius >= knot)
    if i < len(term.knots):
        knot = term.knots[i]
        inside &= np.where(exact & belongs, z.middle < knot, z.middle - z.radius <= knot)
    return inside


class _Kind(NamedTuple):
    """The largest derivative of a term, or of a square its curvature."""

    steepest: float
    is_square: bool
    is_closest: bool = True  # whether no slope of a row is less steep than what its error is charged with


def _kind(term: PiecewisePolynomial) -> _Kind | None:
    """Of a square, or of a convex term with bounded derivatives whose value nothing cancels in; None of others.

    Their values are not negative, and rounding is a few units of what they are.
    """
    if term.rows is not None:
        return None
    if not term.knots and term.degree == 2 and not any(term.pieces[0][:2]) and term.centres[0] == 0.0:
        return _Kind(2.0 * abs(float(term.pieces[0][2])), True)
    if not (term.knots and term.curvature.is_convex and _only_adds(term)):
        return None
    slopes = {abs(float(end)) for end in term.subgradient_range}
    if math.inf in slopes:
        return None
    return _Kind(max(slopes), False, len(slopes) == 1 and len(term.pieces) == 2 and term.degree == 1)


def _only_adds(term: PiecewisePolynomial) -> bool:
    """Whether no monomial of a piece is negative within it, as in ``delta^2 / 2 + delta (z - delta)`` beyond delta."""
    ends = zip((-math.inf, *term.knots), (*term.knots, math.inf), term.centres, term.pieces, strict=True)
    return all(
        c == 0.0 or (c > 0.0 if m % 2 == 0 else low >= centre if c > 0.0 else high <= centre)
        for low, high, centre, piece in ends
        for m, c in enumerate(piece)
    )


def _sizes(term: PiecewisePolynomial, z: Ball) -> Vector:
    """The sizes of what is added up in the value of a term."""
    sizes = np.zeros(z.middle.shape)
    for i, (piece, centre) in enumerate(zip(term.pieces, term.centres, strict=True)):
        inside = np.ones(z.middle.shape, dtype=bool)
        if i > 0:
            inside &= z.middle + z.radius >= term.knots[i - 1]
        if i < len(term.knots):
            inside &= z.middle - z.radius <= term.knots[i]
        reach = np.abs(z.middle) + np.abs(np.asarray(centre)) * (np.asarray(centre) != 0.0)
        reach = np.where(np.asarray(centre) == 0.0, reach, np.minimum(reach, 2.0 * np.abs(z.middle - centre) + TINY))
        size = sum(np.abs(np.asarray(c)) * reach**m for m, c in enumerate(piece))
        sizes = np.maximum(sizes, np.where(inside, size, 0.0))
    return sizes


def _quadratic(q: DualQuadratic, x: Vector, norms: Norms) -> tuple[float, float]:
    """``1/2 z'S z``."""
    z = applied(q.linear, _point(q.linear, x), norms).shifted(q.offset).rounded()
    image = applied(_as_map(q.matrix), z, norms).rounded().scaled(q.weight)
    value, error = dot(0.5 * z.middle, image.middle)
    spread = np.abs(z.middle) @ image.radius + z.radius @ image.size
    return value, (error + float(spread)) * SLACK


def _as_map(matrix: Any) -> Map:
    return as_map("the matrix of a quadratic part", matrix)


@singledispatch
def applied(linear: Map, point: Ball, norms: Norms) -> Ball:
    """``A x``, enclosed, for a point that is."""
    raise NotEnclosed(f"the entries of {linear} are not known.")


@applied.register(Matrix)
def _(linear: Matrix, point: Ball, norms: Norms) -> Ball:
    array = linear.array
    if not is_double(array):
        raise NotEnclosed(f"entries of dtype {array.dtype} are not those of double precision.")
    dense = array.astype(np.float64, copy=False)
    if point.middle.dtype == np.longdouble or dense.size <= _EXTENDED_ENTRIES:
        size, few = np.abs(point.middle).astype(np.float64), max(1, _CONVERTED_AT_ONCE // max(1, dense.shape[1]))
        middle = np.empty(dense.shape[0], dtype=point.middle.dtype)
        sizes, spread = np.empty(dense.shape[0]), np.empty(dense.shape[0])
        for start in range(0, dense.shape[0], few):
            part = slice(start, start + few)
            middle[part] = dense[part].astype(point.middle.dtype, copy=False) @ point.middle
            absolute = np.abs(dense[part])
            sizes[part], spread[part] = absolute @ size, absolute @ point.radius
        sizes *= SLACK  # of the sizes of the point, too
        error = gamma(dense.shape[1] + 1, unit_of(middle)) * sizes + spread + dense.shape[1] * TINY
        return Ball(middle, error * SLACK)
    middle = np.asarray(linear.apply(point.middle))
    if id(array) in norms:  # no row is longer than all of the matrix along x
        lengths = norms[id(array)][1]
        reach = gamma(dense.shape[1] + 1) * float(lengths @ np.abs(point.middle)) + float(lengths @ point.radius)
        return Ball(middle, np.full(middle.shape, (reach + dense.shape[1] * TINY) * SLACK))
    rows = np.sqrt(np.einsum("ij,ij->i", dense, dense) * (1.0 + gamma(dense.shape[1])) + TINY) * SLACK
    reach = gamma(dense.shape[1] + 1) * length(point.middle) + length(point.radius)
    return Ball(middle, (rows * reach + dense.shape[1] * TINY) * SLACK)


@applied.register(Sparse)
def _(linear: Sparse, point: Ball, norms: Norms) -> Ball:
    if not is_double(linear.array):
        raise NotEnclosed(f"entries of dtype {linear.array.dtype} are not those of double precision.")
    entries = linear.array.tocsr().astype(point.middle.dtype, copy=False)
    longest = int(np.max(np.diff(entries.indptr), initial=1))
    middle, size, spread = sparse_products(entries, point)
    return Ball(middle, (gamma(longest + 1, unit_of(middle)) * size + spread + longest * TINY) * SLACK)


@applied.register(Difference)
def _(linear: Difference, point: Ball, norms: Norms) -> Ball:
    middle: Any = linear.apply(point.middle)  # entries are whole numbers, and each pass of differences rounds once
    count, sizes = gamma(linear.order, unit_of(middle)), np.abs(point.middle)
    error = np.zeros(middle.size)
    for start, entry in enumerate(linear.row):
        part = slice(start, start + middle.size)
        error += abs(float(entry)) * np.asarray(count * sizes[part] + point.radius[part], dtype=np.float64)
    return Ball(middle, error * SLACK)


@applied.register(Selection)
def _(linear: Selection, point: Ball, norms: Norms) -> Ball:
    return point if linear.index is None else Ball(point.middle[linear.index], point.radius[linear.index])


@applied.register(Scaled)
def _(linear: Scaled, point: Ball, norms: Norms) -> Ball:
    return applied(linear.inner, point, norms).scaled(np.asarray(linear.scale, dtype=np.float64))


@applied.register(Composition)
def _(linear: Composition, point: Ball, norms: Norms) -> Ball:
    return applied(linear.outer, applied(linear.inner, point, norms), norms)


@applied.register(Columnwise)
def _(linear: Columnwise, point: Ball, norms: Norms) -> Ball:
    middle = np.empty(linear.shape[0], dtype=point.middle.dtype)
    radius = np.empty(linear.shape[0])
    for k in range(linear.count):
        every = slice(k, None, linear.count)
        middle[every], radius[every] = applied(linear.inner, Ball(point.middle[every], point.radius[every]), norms)
    return Ball(middle, radius)


@applied.register(Sum)
def _(linear: Sum, point: Ball, norms: Norms) -> Ball:
    first, *others = (applied(part, point, norms) for part in linear.parts)
    for other in others:
        first = first.plus(other)
    return first


@applied.register(HStack)
def _(linear: HStack, point: Ball, norms: Norms) -> Ball:
    result = Ball.exact(np.zeros(linear.shape[0]))
    for part, inner in linear.live():
        result = result.plus(applied(inner, Ball(point.middle[part], point.radius[part]), norms))
    return result
