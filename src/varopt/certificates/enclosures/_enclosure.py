"""Products with the transpose of a map, enclosed: what they are for the exact entries of the user's matrices."""

from __future__ import annotations

import itertools
import math
from functools import singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import (
    EXTENDED,
    FEW_COLUMNS,
    SLACK,
    TINY,
    Ball,
    column_norms,
    dot,
    exact_sum,
    gamma,
    is_double,
    is_exact_product,
    length,
    total,
    weighted_columns,
)
from varopt.model.maps import Columnwise, Composition, Difference, HStack, Map, Matrix, Scaled, Selection, Sparse, Sum

__all__ = [
    "AT_ONCE",
    "Norms",
    "NotEnclosed",
    "annihilates",
    "column_lengths",
    "coordinates",
    "entries",
    "entries_times",
    "sparse_products",
    "transposed",
]

Vector = NDArray[np.float64]
Norms = dict[int, tuple[Any, Vector]]

_TINIEST = float(np.finfo(np.float64).tiny)
_ROUNDED_SHARE = 1e-13  # share of their length that numbers may have been rounded by since they were multiplied
AT_ONCE = 1 << 16  # entries of a matrix that are looked at together


class NotEnclosed(ValueError):
    """The entries of a map are not at hand, or not as numbers in double precision."""


@singledispatch
def transposed(linear: Map, values: Ball, norms: Norms) -> Ball:
    """``A'v`` for v along the last axis, enclosed. `norms` keeps the lengths of columns from one call to the next."""
    raise NotEnclosed(f"the entries of {linear} are not known.")


@transposed.register(Matrix)
def _(linear: Matrix, values: Ball, norms: Norms) -> Ball:
    array = linear.array
    if not is_double(array):
        raise NotEnclosed(f"entries of dtype {array.dtype} are not those of double precision.")
    if values.middle.ndim == 1:
        dense, lengths = _with_lengths(linear, norms)
        return weighted_columns(dense, values, lengths)
    dense = array.astype(np.float64, copy=False)
    middle, size = values.middle @ dense, np.abs(dense)
    error = gamma(dense.shape[0] + 1) * (np.abs(values.middle) @ size) + values.radius @ size
    return Ball(middle, (error + 2.0 * dense.shape[0] * TINY) * SLACK)


def _with_lengths(linear: Matrix, norms: Norms) -> tuple[Any, Vector]:
    """A dense array in double precision, and the lengths of its columns, which are kept."""
    array = linear.array
    if id(array) not in norms:
        squares = np.asarray(linear.column_squares, dtype=np.float64) if array.dtype == np.float64 else None
        dense = array if squares is not None else array.astype(np.float64)
        norms[id(array)] = (dense, column_norms(dense, squares))  # which keeps its id taken
    return norms[id(array)]


def transposed_at_hand(linear: Map, v: Vector, norms: Norms) -> Ball | None:
    """``A'v``, enclosed, where the run has multiplied the same numbers already, but for rounding; else None.

    What a number was rounded to its bounds by is charged, times the length of its column.
    """
    if isinstance(linear, Matrix):
        known = linear.known_transposed()
        if known is None or known[0].shape != v.shape:
            return transposed(linear, Ball.exact(v), norms) if linear.array.size <= EXTENDED else None
        values, product, count = np.asarray(known[0], dtype=np.float64), known[1], known[2]
        size, moved = length(values), length(v - values)
        if moved > _ROUNDED_SHARE * size:
            return None
        radius = _with_lengths(linear, norms)[1] * (gamma(count + 1) * size + moved) + 2.0 * v.size * TINY
        return Ball(np.asarray(product, dtype=np.float64), radius * SLACK)
    if isinstance(linear, Scaled) and np.all(np.abs(linear.scale) == 1.0):
        return transposed_at_hand(linear.inner, linear.scale * v, norms)
    if not isinstance(linear, HStack):
        return transposed(linear, Ball.exact(v), norms) if linear.shape[1] == 1 else None  # an intercept
    middle, radius = np.zeros(linear.shape[1]), np.zeros(linear.shape[1])
    for part, inner in linear.live():
        if (known_part := transposed_at_hand(inner, v, norms)) is None:
            return None
        middle[part], radius[part] = known_part
    return Ball(middle, radius)


@transposed.register(Sparse)
def _(linear: Sparse, values: Ball, norms: Norms) -> Ball:
    array = linear.array
    if not is_double(array):
        raise NotEnclosed(f"entries of dtype {array.dtype} are not those of double precision.")
    if values.middle.ndim == 1 and array.shape[1] <= FEW_COLUMNS:
        return _few_sparse_columns(array, values)
    longest = int(_column_counts(array).max(initial=1))
    middle, size, spread = sparse_products(array.T.astype(np.float64, copy=False), values)
    return Ball(middle, (gamma(longest + 1) * size + spread + 2.0 * longest * TINY) * SLACK)


def _column_counts(array: Any) -> NDArray[np.intp]:
    """How many entries are kept of each column; those that are kept twice count as two."""
    return np.diff(array.indptr) if array.format == "csc" else np.bincount(array.indices, minlength=1)


def sparse_products(matrix: Any, values: Ball) -> tuple[Vector, Vector, Vector]:
    """``A v``, what its products add up to without their signs, and what the radii of v make of it.

    Entries that are kept twice are two products, as the product has them.
    """
    sizes = type(matrix)((np.abs(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
    spread = _by_rows(sizes, values.radius) if values.radius.any() else np.zeros(1)
    return _by_rows(matrix, values.middle), _by_rows(sizes, np.abs(values.middle)), spread


def _few_sparse_columns(array: Any, values: Ball) -> Ball:
    """Every sum of products in extended precision, where double precision has lost digits."""
    entries = sp.csc_array(array, dtype=np.float64)
    middle, radius = np.zeros(entries.shape[1]), np.zeros(entries.shape[1])
    for column, (start, end) in enumerate(itertools.pairwise(entries.indptr)):
        rows, data = entries.indices[start:end], entries.data[start:end]
        middle[column], error = dot(data, values.middle[rows])
        radius[column] = (error + float(np.abs(data) @ values.radius[rows])) * SLACK
    return Ball(middle, radius)


def _by_rows(matrix: Any, values: Vector) -> Vector:
    return np.asarray(matrix @ values if values.ndim == 1 else (matrix @ values.T).T)


@transposed.register(Difference)
def _(linear: Difference, values: Ball, norms: Norms) -> Ball:
    if values.middle.ndim > 1:
        return transposed(Sparse(linear.array), values, norms)
    middle = np.asarray(linear.transpose_apply(values.middle), dtype=np.float64)
    sizes = np.abs(values.middle)
    sizes *= gamma(linear.row.size + 1) * SLACK
    if values.radius.any():
        sizes += values.radius * SLACK
    error = np.zeros(middle.size)
    for start, entry in enumerate(linear.row):
        error[start : start + sizes.size] += sizes if abs(entry) == 1.0 else abs(float(entry)) * sizes
    return Ball(middle, error)


@transposed.register(Selection)
def _(linear: Selection, values: Ball, norms: Norms) -> Ball:
    if linear.index is None:
        return values
    if values.middle.ndim > 1:
        return transposed(Sparse(linear.explicit()), values, norms)
    if linear.shape[1] == 1:
        value, error = total(values.middle)
        spread = float(values.radius.sum()) * SLACK
        return Ball(np.array([value]), np.array([error + spread]) * SLACK)
    counts = int(np.bincount(linear.index).max(initial=1))
    middle, sizes, radius = (
        np.asarray(np.bincount(linear.index, weights=w, minlength=linear.shape[1]), dtype=np.float64)
        for w in (values.middle, np.abs(values.middle), values.radius)
    )
    return Ball(middle, (gamma(counts - 1) * sizes + radius) * SLACK)  # sums only


@transposed.register(Scaled)
def _(linear: Scaled, values: Ball, norms: Norms) -> Ball:
    return transposed(linear.inner, values.scaled(np.asarray(linear.scale, dtype=np.float64)), norms)


@transposed.register(Composition)
def _(linear: Composition, values: Ball, norms: Norms) -> Ball:
    return transposed(linear.inner, transposed(linear.outer, values, norms), norms)


@transposed.register(Columnwise)
def _(linear: Columnwise, values: Ball, norms: Norms) -> Ball:
    shape = (*values.middle.shape[:-1], linear.shape[1])
    middle, radius = np.zeros(shape), np.zeros(shape)
    for k in range(linear.count):
        every = (..., slice(k, None, linear.count))
        middle[every], radius[every] = transposed(linear.inner, Ball(values.middle[every], values.radius[every]), norms)
    return Ball(middle, radius)


@transposed.register(Sum)
def _(linear: Sum, values: Ball, norms: Norms) -> Ball:
    first, *others = (transposed(part, values, norms) for part in linear.parts)
    for other in others:
        first = first.plus(other)
    return first


@transposed.register(HStack)
def _(linear: HStack, values: Ball, norms: Norms) -> Ball:
    shape = (*values.middle.shape[:-1], linear.shape[1])
    middle, radius = np.zeros(shape), np.zeros(shape)
    for part, inner in linear.live():
        middle[..., part], radius[..., part] = transposed(inner, values, norms)
    return Ball(middle, radius)


def entries(linear: Map, norms: Norms) -> Ball:
    """The matrix of a map, enclosed."""
    if isinstance(linear, (Matrix, Sparse)) and is_double(linear.array):
        return Ball.exact(linear.dense())
    if isinstance(linear, Selection):
        dense = np.zeros(linear.shape)
        every = np.arange(len(dense))
        dense[every, every if linear.index is None else linear.index] = 1.0
        return Ball.exact(dense)
    if isinstance(linear, Scaled):
        scale = np.asarray(linear.scale, dtype=np.float64)
        return entries(linear.inner, norms).scaled(scale[:, None] if scale.ndim else scale)
    if isinstance(linear, HStack):
        middle, radius = np.zeros(linear.shape), np.zeros(linear.shape)
        for part, inner in linear.live():
            middle[:, part], radius[:, part] = entries(inner, norms)
        return Ball(middle, radius)
    if isinstance(linear, Composition) and isinstance(linear.outer, Selection):  # an intercept, once for each row
        inside = entries(linear.inner, norms)
        index = slice(None) if linear.outer.index is None else linear.outer.index
        return Ball(inside.middle[index], inside.radius[index])
    return transposed(linear, Ball.exact(np.eye(linear.shape[0])), norms)


def entries_times(linear: Map, x: Vector, norms: Norms) -> Ball:
    """``A x`` of few rows, enclosed."""
    image, sizes, spread = np.zeros(linear.shape[0]), np.zeros(linear.shape[0]), np.zeros(linear.shape[0])
    few = max(1, AT_ONCE // max(1, linear.shape[0]))
    used = np.flatnonzero(x) if x.size > few else np.arange(x.size)
    for start in range(0, used.size, few):
        part = used[start : start + few]
        matrix = entries(linear if part.size == x.size else linear.columns(part), norms)
        image += matrix.middle @ x[part]
        sizes += np.abs(matrix.middle) @ np.abs(x[part])
        spread += matrix.radius @ np.abs(x[part])
    return Ball(image, (gamma(used.size + 3) * sizes + spread + TINY * linear.shape[1]) * SLACK)


def coordinates(linear: Map) -> tuple[NDArray[np.intp], Ball] | None:
    """Where every row is a multiple of one coordinate: of which, and the multiple; else None."""
    scales, start = [], 0
    while isinstance(linear, (Scaled, HStack)):
        if isinstance(linear, Scaled):
            scales.append(np.asarray(linear.scale, dtype=np.float64))
            linear = linear.inner
            continue
        live = linear.live()
        if len(live) != 1:
            break
        start, linear = start + live[0][0].start, live[0][1]
    if not isinstance(linear, Selection):
        known = _only_entries(linear)
        if known is None or np.any(known[0] < 0):
            return None
        for scale in scales:
            known = known[0], known[1].scaled(scale)
        return start + known[0], known[1]
    index = np.arange(linear.shape[0]) if linear.index is None else np.asarray(linear.index)
    if all(scale.ndim == 0 and abs(math.frexp(scale)[0]) == 0.5 for scale in scales):  # signs, as a rule
        whole = math.prod(map(float, scales))
        if _TINIEST <= abs(whole) < math.inf:
            return start + index, Ball.exact(np.full(index.size, whole))
    factor = Ball.exact(np.ones(index.size))
    for scale in scales:
        factor = factor.scaled(scale)
    if all(np.all(np.abs(np.frexp(scale)[0]) == 0.5) for scale in scales):
        factor = Ball.exact(factor.middle)  # powers of two
    elif len(scales) == 1:
        factor = Ball.exact(np.broadcast_to(scales[0], index.size))
    return start + index, factor


def _only_entries(linear: Map) -> tuple[NDArray[np.intp], Ball] | None:
    """Of each row the place and the value of its only entry, -1 where it has none; None where one may have more."""
    if isinstance(linear, Selection):
        index = np.arange(linear.shape[0]) if linear.index is None else np.asarray(linear.index)
        return index, Ball.exact(np.ones(index.size))
    if isinstance(linear, Sparse):
        return _only_sparse_entries(linear.array)
    if isinstance(linear, Scaled):
        known = _only_entries(linear.inner)
        return None if known is None else (known[0], known[1].scaled(np.asarray(linear.scale, dtype=np.float64)))
    if isinstance(linear, Composition):
        outer = _only_entries(linear.outer)
        inner = None if outer is None or outer[1].radius.any() else _only_entries(linear.inner)
        if outer is None or inner is None:
            return None
        index, taken = np.where(outer[0] >= 0, inner[0][outer[0]], -1), Ball(*(v[outer[0]] for v in inner[1]))
        return index, taken.scaled(outer[1].middle)
    if isinstance(linear, Columnwise):
        known = _only_entries(linear.inner)
        if known is None:
            return None
        every = np.where(known[0] >= 0, known[0] * linear.count, -linear.count)[:, None] + np.arange(linear.count)
        return np.maximum(every.ravel(), -1), Ball(*(np.repeat(v, linear.count) for v in known[1]))
    if isinstance(linear, (Sum, HStack)):
        parts = [(0, part) for part in linear.parts] if isinstance(linear, Sum) else []
        parts += [(part.start, inner) for part, inner in linear.live()] if isinstance(linear, HStack) else []
        whole, values = np.full(linear.shape[0], -1), Ball.exact(np.zeros(linear.shape[0]))
        for first, part in parts:
            known = _only_entries(part)
            if known is None:
                return None
            here = known[0] >= 0
            if np.any(here & (whole >= 0) & (whole != first + known[0])):
                return None
            whole = np.where(here, first + known[0], whole)
            values = values.plus(Ball(*(np.where(here, v, 0.0) for v in known[1])))
        return whole, values
    return None


def _only_sparse_entries(array: Any) -> tuple[NDArray[np.intp], Ball] | None:
    if array.nnz > array.shape[0] or not is_double(array):
        return None
    rows = sp.csr_array(array, dtype=np.float64)
    counts = np.diff(rows.indptr)
    if counts.max(initial=0) > 1:
        return None
    index, values = np.full(array.shape[0], -1), np.zeros(array.shape[0])
    index[counts == 1], values[counts == 1] = rows.indices, rows.data
    return index, Ball.exact(values)


def column_lengths(linear: Map, norms: Norms) -> Vector | None:
    """Bounds of the lengths of the columns, where those of its matrices are known in `norms`; else None.

    Rows of products with such a map are sums of products of the entries of its matrices with at most three roundings
    beside those of a sum: signs do not round, a number does, and so does each sum with the columns beside.
    """
    if isinstance(linear, Matrix):
        known = norms.get(id(linear.array))
        return None if known is None or linear.array.dtype != np.float64 else known[1]
    if isinstance(linear, Scaled):
        scale, inner = np.asarray(linear.scale, dtype=np.float64), column_lengths(linear.inner, norms)
        signs = bool(np.all(np.abs(scale) == 1.0))
        if inner is None or not (signs or (scale.ndim == 0 and isinstance(linear.inner, Matrix))):
            return None
        return inner if signs else np.asarray(inner * (abs(float(scale)) * SLACK))
    if isinstance(linear, HStack):
        parts = [(part, column_lengths(inner, norms)) for part, inner in linear.live()]
        lengths = np.zeros(linear.shape[1])
        for part, inner_lengths in parts:
            if inner_lengths is None:
                return None
            lengths[part] = inner_lengths
        return lengths
    if isinstance(linear, Composition) and linear.inner.shape == (1, 1) and isinstance(linear.outer, Selection):
        inner = column_lengths(linear.inner, norms)
        return None if inner is None else inner * (math.sqrt(linear.shape[0]) * SLACK)
    if isinstance(linear, Selection) and linear.shape[1] == 1:
        return np.array([math.sqrt(linear.shape[0]) * SLACK])
    return None


def annihilates(linear: Map, relation: Vector) -> bool:
    """Whether ``A x = 0`` for a vector x of whole numbers, without any rounding on the way."""
    image = _image(linear, relation)
    return image is not None and not image.any()


def _image(linear: Map, x: Vector) -> Vector | None:
    """``A x`` where no operation of it rounds, else None."""
    if not x.any():
        return np.zeros(linear.shape[0])
    if isinstance(linear, Scaled):
        return _scaled_image(linear, x)
    if isinstance(linear, Composition):
        inner = _image(linear.inner, x)
        return None if inner is None else _image(linear.outer, inner)
    if isinstance(linear, Selection):
        return np.asarray(linear.apply(x))
    if isinstance(linear, HStack):
        return _stacked_image(linear, x)
    if isinstance(linear, Sum):
        return _exact_total(_image(part, x) for part in linear.parts)
    if isinstance(linear, (Matrix, Sparse)) and is_double(linear.array):
        used = np.flatnonzero(x)
        dense = np.asarray(linear.columns(used).dense(), dtype=np.float64)
        return _exact_total(_exact_product(float(x[j]), dense[:, k]) for k, j in enumerate(used))
    return None


def _scaled_image(linear: Scaled, x: Vector) -> Vector | None:
    inner = _image(linear.inner, x)
    if inner is None or not inner.any():
        return inner
    scale = np.asarray(linear.scale, dtype=np.float64)
    return scale * inner if np.all((np.abs(scale) == 1.0) | (scale == 0.0)) else None


def _stacked_image(linear: HStack, x: Vector) -> Vector | None:
    live = linear.live()
    scales = [np.asarray(m.scale) for _, m in live if isinstance(m, Scaled)]
    if len(scales) == len(live) and all(np.array_equal(scales[0], other) for other in scales):
        inner = _exact_total(_image(m.inner, x[part]) for part, m in live if isinstance(m, Scaled))
        if inner is not None and not inner.any():
            return inner  # whatever it is multiplied by
    return _exact_total(_image(m, x[part]) for part, m in live)


def _exact_product(factor: float, column: Vector) -> Vector | None:
    return factor * column if is_exact_product(factor, column) else None


def _exact_total(parts: Any) -> Vector | None:
    result: Vector | None = None
    for part in parts:
        if part is None:
            return None
        result = part if result is None else exact_sum(result, part)
        if result is None:
            return None
    return result
