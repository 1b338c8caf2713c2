"""The entries of a map as numbers: as they are, or each rounded by a share of itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from varopt._verified import exact_sum, is_double
from varopt.model.maps import Columnwise, Composition, Difference, HStack, Map, Matrix, Scaled, Selection, Sparse, Sum

__all__ = ["ENTRY_ROUNDINGS", "Undecided", "entries_of"]

Vector = NDArray[np.float64]

ENTRY_ROUNDINGS = 8.0  # units in the last place that an entry may be off which is not exact
_MOST_ADDED = 6  # maps that are added up with fewer roundings than that, where signs agree
_MOST_INSIDE = 200_000  # entries of either factor of a product
_TINIEST = float(np.finfo(np.float64).tiny)
_WHOLE = 2.0**53  # up to which whole numbers are added up without rounding


class Undecided(Exception):
    """Entries are not at hand, or rounded where that would matter."""


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # which is refused
def entries_of(linear: Map) -> tuple[Vector, Vector, bool]:
    """Factors of the rows, and the matrix that they multiply; whether it is exact, or off by `ENTRY_ROUNDINGS`."""
    if isinstance(linear, Scaled):
        factor, dense, exact = entries_of(linear.inner)
        return factor * np.asarray(linear.scale, dtype=np.float64), dense, exact
    if isinstance(linear, HStack):
        return _stacked(linear)
    if isinstance(linear, Sum):
        return np.ones(1), *_added(linear)
    if isinstance(linear, Composition):
        return _reordered(linear) or (np.ones(1), *_composed(linear))
    if isinstance(linear, Columnwise):
        factor, dense, exact = entries_of(linear.inner)
        factors = np.repeat(np.broadcast_to(factor, (len(dense),)), linear.count)
        return factors, np.asarray(np.kron(dense, np.eye(linear.count)), dtype=np.float64), exact
    if isinstance(linear, (Difference, Matrix, Sparse, Selection)):
        if isinstance(linear, (Matrix, Sparse)) and not is_double(linear.array):
            raise Undecided
        return np.ones(1), np.asarray(linear.dense()).astype(np.float64), True
    raise Undecided


def _stacked(linear: HStack) -> tuple[Vector, Vector, bool]:
    parts = [(part, *entries_of(inner)) for part, inner in linear.live()]
    whole = np.zeros(linear.shape)
    if all(np.array_equal(parts[0][1], factor) for _, factor, _, _ in parts):
        for part, _, dense, _ in parts:
            whole[:, part] = dense
        return parts[0][1] if parts else np.ones(1), whole, all(exact for *_, exact in parts)
    for part, factor, dense, _ in parts:
        whole[:, part] = factor[:, None] * dense
    plain = all(exact and bool(np.all(_is_power(factor))) for _, factor, _, exact in parts)
    return np.ones(1), whole, plain


def _added(linear: Sum) -> tuple[Vector, bool]:
    """The sum of maps; what is rounded has to agree in sign, or would be off by more than a share of itself."""
    whole, exact = np.zeros(linear.shape), True
    for inner in linear.parts:
        part, plain = _multiplied(inner)
        summed = exact_sum(whole, part)
        exact = exact and plain and summed is not None
        if not exact and (len(linear.parts) > _MOST_ADDED or np.any(np.sign(whole) * np.sign(part) < 0.0)):
            raise Undecided
        whole = whole + part
    return whole, exact


def _reordered(linear: Composition) -> tuple[Vector, Vector, bool] | None:
    """Columns in other places, as of sums along the rows of a matrix; None where the inner map does more than that."""
    inner = linear.inner
    if not isinstance(inner, Selection) or (inner.index is not None and np.unique(inner.index).size < inner.index.size):
        return None
    factor, dense, exact = entries_of(linear.outer)
    whole = np.zeros((len(dense), linear.shape[1]))
    whole[:, slice(None) if inner.index is None else inner.index] = dense
    return factor, whole, exact


def _composed(linear: Composition) -> tuple[Vector, bool]:
    """The product of two maps: of whole numbers of some unit, or of which no two entries are added up."""
    (rows, between), columns = linear.outer.shape, linear.shape[1]
    if between * max(rows, columns) > _MOST_INSIDE:
        raise Undecided
    (outer, outer_plain), (inner, inner_plain) = _multiplied(linear.outer), _multiplied(linear.inner)
    product, sizes = outer @ inner, np.abs(outer) @ np.abs(inner)
    if not np.all(np.isfinite(sizes)):
        raise Undecided
    if np.all((outer != 0.0).astype(np.float64) @ (inner != 0.0) <= 1.0):
        _check_range(product, sizes > 0.0)
        powers = bool(np.all(_is_power(outer[outer != 0.0])) or np.all(_is_power(inner[inner != 0.0])))
        return product, outer_plain and inner_plain and powers
    unit = _unit(outer) * _unit(inner)
    if outer_plain and inner_plain and unit >= _TINIEST and float(sizes.max(initial=0.0)) < _WHOLE * unit:
        return product, True
    raise Undecided


def _multiplied(linear: Map) -> tuple[Vector, bool]:
    """The matrix with its factors; where it is not exact, an entry is off by a rounding."""
    factor, dense, exact = entries_of(linear)
    if not exact:
        raise Undecided
    factors = np.broadcast_to(factor, (len(dense),))[:, None]
    product = factors * dense
    _check_range(product, (factors != 0.0) & (dense != 0.0))
    return product, bool(np.all(_is_power(factors) | _is_power(dense) | (product == 0.0)))


def _check_range(product: Vector, live: NDArray[np.bool_]) -> None:
    """Refuse products that overflow, or lose digits to underflow."""
    sizes = np.abs(product[live])
    if not np.all((sizes >= _TINIEST) & (sizes < np.inf)):
        raise Undecided


def _is_power(values: Vector) -> NDArray[np.bool_]:
    """Whether numbers are powers of two, but for their sign."""
    return np.asarray(np.abs(np.frexp(values)[0]) == 0.5)


def _unit(matrix: Vector) -> float:
    """The largest power of two of which all entries are whole multiples."""
    mantissa, exponent = np.frexp(matrix[matrix != 0.0])
    whole = np.abs(mantissa * _WHOLE).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return float(np.ldexp(1.0, int((exponent - 53 + lowest).min()))) if whole.size else 1.0
