r"""The sums of a pass, computed where arrays of PyTorch, CuPy or JAX are.

The rows are ``z = t (alpha X w + beta) + d``, walked in blocks so that temporaries stay small beside X. Only what is
near a knot is smoothed, multiplied out or brought to the host. Single precision is multiplied as it is on the way
(`Moments`), and in double precision, block by block, for the proof (`Sweep`).

On a device a call costs the host as much as a million numbers cost the device, and whenever numbers come to the host
both wait: calls are few, and the sums of a block come together (`DeviceSums`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._array import is_jax, is_torch
from varopt.certificates import piece_table
from varopt.composite import NotComposite
from varopt.model import Variable
from varopt.model.blocks import TermBlock
from varopt.model.maps import Composition, Map, Scaled, Selection, StoredMatrix
from varopt.optimize.anywhere._sweep import Moments, Moved
from varopt.places import DataColumn, Derived, DeviceColumn, OnDevice, to_host

__all__ = ["SUM", "DeviceBlock", "DeviceRows", "DeviceSums", "Gram", "put", "take", "times"]

Vector = NDArray[np.float64]

SUM = 4096  # rows that are added up at once
_DEVICE_ENTRIES = 1 << 22  # entries of X that a block has at the least: a device is idle while less is prepared
_VECTORS, _VECTORS_OF_KINKS = 14, 4  # temporaries as long as a block, some of which are short
# Shares of X that they and the target may take.
_DEVICE_ROOM, _DEVICE_ROOM_OF_KINKS, _DEVICE_ROOM_OF_SINGLE = 0.4, 0.27, 0.29
_LEAST_ROOM = 0.1  # however narrow X is
# Share of X, or so many entries at the least, of the rows that are weighted at once for a Hessian.
_WEIGHTED_ROWS_SHARE = 32
_LEAST_PRODUCT = 1 << 22
_FAR_DEVIATIONS = 9.0  # deviations from a knot beyond which a term is its piece, to rounding


class DeviceBlock(NamedTuple):
    """A block of rows on the device."""

    start: int
    X: Any
    t: Any  # a vector, or one
    d: Any
    c: Any


class DeviceSums:
    """Sums on a device that come to the host together, when the first of them is asked for."""

    def __init__(self, xp: Any) -> None:
        self._xp, self._there, self._here = xp, [], []  # type: ignore[var-annotated]

    def add(self, array: Any) -> int:
        """Count an array in; its number."""
        self._there.append(array)
        return len(self._there) - 1

    def __getitem__(self, number: int) -> Vector:
        if not self._here:
            xp, shapes = self._xp, [tuple(array.shape) for array in self._there]
            flat = [xp.reshape(xp.astype(array, xp.float64, copy=False), (-1,)) for array in self._there]
            ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
            parts = np.split(to_host(xp.concat(flat)), ends)
            self._here = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return np.asarray(self._here[number])


class Gram(NamedTuple):
    """``X' D X``, its products with a constant feature and that feature's own: numbers in a tally."""

    inner: int
    sides: int | None
    corner: int | None


class _Smoothed(NamedTuple):
    """Rows of a bound: slopes of all, numbers in a tally, and the second derivatives of some or all."""

    dual: Any
    value: int
    added: int | None
    near: int | None
    index: Any
    second: Any


@dataclass
class DeviceRows:
    """A block of an objective whose rows are on a device."""

    block: TermBlock
    variables: tuple[Variable, ...]
    table: OnDevice
    columns: Sequence[DataColumn]

    def __post_init__(self) -> None:
        self.term = self.block.term
        if self.term.rows is not None:
            raise NotComposite("terms with parameters of their own for every row need data in memory.")
        place, at = {}, 0
        for v in self.variables:
            place[v], at = at, at + v.size
        self.size = at
        self._thin: tuple[int, list[DeviceBlock]] | None = None
        self._point: tuple[Vector, Any, Any] | None = None
        self.known: dict[int, Any] = {}  # what blocks have in common at all points, by where they start
        self.X: Any = None
        self.features = slice(0, 0)
        self.alpha, self.intercepts = 1.0, []  # type: ignore[var-annotated]
        self.factors: list[Any] = []
        for variable, linear in self.block.argument.maps.items():
            self._read(linear, place[variable], variable.size)
        if self.X is None:
            raise NotComposite(f"{self.block.describe()} has no matrix on the device.")
        if any(f is not self.factors[0] for f in self.factors):
            raise NotComposite(f"{self.block.describe()} scales its rows in two ways; on a device one is taken.")

    def _read(self, linear: Map, start: int, width: int) -> None:
        """A matrix, or a constant feature, times a number and a vector."""
        number, vector = 1.0, None
        while isinstance(linear, Scaled):
            if np.ndim(linear.scale) == 0:
                number *= float(linear.scale)
            else:
                if vector is not None:
                    raise NotComposite("rows on a device are scaled once.")
                vector = linear.scale
            linear = linear.inner
        self.factors.append(vector)
        if isinstance(linear, StoredMatrix) and isinstance(linear.stored, DeviceColumn) and self.X is None:
            self.X, self.features, self.alpha = linear.stored.array, slice(start, start + width), number
        elif width == 1 and (constant := _constant(linear)) is not None:
            self.intercepts.append((start, number * constant))
        else:
            raise NotComposite(f"{linear} is no matrix on the device: on a device rows are t * (X @ w + b) + d.")

    @property
    def xp(self) -> Any:
        """The namespace."""
        return self.table.xp

    @cached_property
    def pieces(self) -> tuple[Any, Any]:
        """Of a piecewise linear term the slopes of the pieces and, if they are not zero, bounds of conjugates there."""
        tables = [table if np.any(table) else None for table in piece_table(self.term)]
        slopes, below = (t if t is None else self.xp.asarray(t, device=self.table.device) for t in tables)
        return slopes, below

    @property
    def _is_kinked(self) -> bool:
        """Whether rows are two lines that meet, and arrays can be written to."""
        return self.term.kink is not None and not is_jax(self.X)

    def _there(self, value: Any, index: slice) -> Any:
        """A vector's rows on the device, in double precision, or a number."""
        xp = self.xp
        if isinstance(value, DeviceColumn):
            return xp.astype(value.array[index], xp.float64, copy=False)
        if isinstance(value, Derived):
            return value.function(*(self._there(source, index) for source in value.sources))
        if np.ndim(value) == 0:
            return float(value)
        return xp.asarray(np.asarray(value, dtype=np.float64)[index], device=self.table.device)

    def blocks(self, every: int = 1) -> Iterator[DeviceBlock]:
        """The rows, or one of so many, block by block."""
        count, width = self.X.shape[0], self.X.shape[1]
        double = self.X.dtype == self.xp.float64
        vectors, room = (_VECTORS_OF_KINKS, _DEVICE_ROOM_OF_KINKS) if self._is_kinked else (_VECTORS, _DEVICE_ROOM)
        vectors += sum(not isinstance(v, float) and np.ndim(v) > 0 for v in (self.factors[0], self.block.weights))
        share = vectors / width if double else 2.0 * (vectors / width + 1.0)  # a block in double precision as well
        room = room - 1.0 / width if double else _DEVICE_ROOM_OF_SINGLE - 2.0 / width
        pieces, unit = math.ceil(share / (max(room, _LEAST_ROOM) * every)), SUM * every
        rows = max(math.ceil(count / pieces), min(count, every * _DEVICE_ENTRIES // width))
        rows = math.ceil(rows / unit) * unit
        constant = self.block.argument.constant
        for start in range(0, count, rows):
            index = slice(start, min(start + rows, count), every)
            d: Any = constant.number
            if constant.array is not None:
                d = times(constant.factor, self._there(constant.array, index))
                d = d if constant.number == 0.0 else d + constant.number
            t = 1.0 if self.factors[0] is None else self._there(self.factors[0], index)
            yield DeviceBlock(start, self.X[index], t, d, self._there(self.block.weights, index))

    def positions(self, rows: DeviceBlock, x: Vector) -> Any:
        """``z``, multiplied in the precision of the block's X."""
        xp = self.xp
        if x[self.features].any():
            z = xp.astype(xp.matmul(rows.X, self._coefficients(x, rows.X.dtype)), xp.float64, copy=False)
        else:
            z = xp.zeros(rows.X.shape[0], dtype=xp.float64, device=self.table.device)
        b = sum(number * x[i] for i, number in self.intercepts)
        if b:
            z = z + float(b)
        z = times(rows.t, z)
        return z if isinstance(rows.d, float) and rows.d == 0.0 else z + rows.d

    def _coefficients(self, x: Vector, dtype: Any) -> Any:
        """Those of the features, on the device: one point is sent once."""
        if self._point is None or self._point[0] is not x or self._point[1] != dtype:
            there = self.xp.asarray(self.alpha * x[self.features], dtype=dtype, device=self.table.device)
            self._point = x, dtype, there
        return self._point[2]

    def full(self, features: Vector, ones: Any) -> Vector:
        """A gradient in all variables, from that in the features and that in a constant one."""
        out = np.zeros(self.size)
        out[self.features] = self.alpha * features
        for i, number in self.intercepts:
            out[i] += number * float(ones)
        return out

    def distance(self, z: Any) -> Any:
        """How far rows are from a knot."""
        xp = self.xp
        return reduce(xp.minimum, (xp.abs(z - float(knot) if knot else z) for knot in self.term.knots))

    # -- The bound ----------------------------------------------------------------------------------------------------

    def moments(self, request: Moments) -> Moved:
        """Value, gradient and Hessian of the bound, summed over the rows."""
        if request.every == 1:
            self.forget()
            return reduce(operator.add, (self._moments(rows, request) for rows in self.blocks()))
        total = reduce(operator.add, (self._moments(rows, request) for rows in self._thinned(request.every)))
        return total.times(request.every)

    def forget(self) -> None:
        """Leave the memory of a share of the rows to what comes next."""
        self._thin = None

    def _thinned(self, every: int) -> list[DeviceBlock]:
        """One of so many rows, next to each other: copied once."""
        if self._thin is None or self._thin[0] != every:
            self._thin = every, [r._replace(X=self.xp.asarray(r.X, copy=True)) for r in self.blocks(every)]
        return self._thin[1]

    def _moments(self, rows: DeviceBlock, request: Moments) -> Moved:
        xp, tally = self.xp, DeviceSums(self.xp)
        way = self._kinked if self._is_kinked else self._pieces
        smoothed = way(rows, self.positions(rows, request.x), request.deviation, tally)
        dual = times(rows.t, smoothed.dual)
        features = tally.add(xp.matmul(xp.astype(dual, rows.X.dtype, copy=False), rows.X))
        ones = tally.add(xp.sum(dual)) if self.intercepts else None
        gram = None if smoothed.second is None else self.gram(rows, smoothed.index, smoothed.second, tally)
        value, added, near = (0.0 if n is None else float(tally[n]) for n in smoothed[1:4])
        gradient = self.full(tally[features], 0.0 if ones is None else tally[ones])
        hessian = np.zeros((self.size, self.size)) if gram is None else self.framed(gram, tally)
        return Moved(value + added, gradient, hessian, added, int(near))

    def _kinked(self, rows: DeviceBlock, z: Any, s: float, tally: DeviceSums) -> _Smoothed:
        """Of two lines that meet: the value is that of the lines, their slopes times the distance from the knot."""
        xp, knot = self.xp, float(self.term.knots[0])
        number, c = (rows.c, 1.0) if isinstance(rows.c, float) else (1.0, rows.c)
        if knot:
            z = z - knot
        slopes = times(number, self.pieces[0])
        first = times(c, xp.where(z >= 0.0, slopes[1], slopes[0]))
        value = xp.matmul(first, z)
        if at_knot := float(self.term.value(np.asarray(knot))):
            value = value + at_knot * (number * z.shape[0] if isinstance(c, float) else xp.sum(c))
        index = xp.nonzero(xp.abs(z) < _FAR_DEVIATIONS * s)[0]
        if not index.shape[0]:
            return _Smoothed(first, tally.add(value), None, None, None, None)
        near, weight = take(xp, z, index), number if isinstance(c, float) else take(xp, c, index)
        del z
        raised, slope, second = (times(weight, part) for part in self.term.steps_around(near, s))
        close = tally.add(xp.sum(xp.abs(near) < 4.0 * s, dtype=xp.float64))
        return _Smoothed(put(first, index, slope), tally.add(value), tally.add(xp.sum(raised)), close, index, second)

    def _pieces(self, rows: DeviceBlock, z: Any, s: float, tally: DeviceSums) -> _Smoothed:
        """Of any term."""
        xp, term = self.xp, self.term
        value, first = tally.add(xp.sum(times(rows.c, term.value(z)))), term.derivative(z)
        bend = term.derivative(z, 2) if term.degree > 1 else None
        index, counted = _where(xp, self.distance(z) < _FAR_DEVIATIONS * s) if term.knots else (z[:0], 1.0)
        if not index.shape[0]:
            whole = None if bend is None else times(rows.c, bend)
            return _Smoothed(times(rows.c, first), value, None, None, None, whole)
        near, c = take(xp, z, index), times(counted, rows.c if isinstance(rows.c, float) else take(xp, rows.c, index))
        smooth, slope, raised = self._expected(near, s)
        added = tally.add(xp.sum(times(c, smooth - term.value(near))))
        close = tally.add(xp.sum(times(counted, xp.astype(self.distance(near) < 4.0 * s, xp.float64))))
        dual = times(rows.c, put(first, index, slope))
        if bend is None:
            return _Smoothed(dual, value, added, close, index, times(c, raised))
        return _Smoothed(dual, value, added, close, None, times(rows.c, put(bend, index, raised)))

    def _expected(self, z: Any, s: float) -> tuple[Any, ...]:
        """Expectation and derivatives; of JAX on the host, where nothing is compiled for it."""
        if not is_jax(z):
            return self.term.derivatives(z, s)
        here = to_host(z)
        return tuple(self.xp.asarray(part) for part in self.term.derivatives(here, np.full_like(here, s)))

    def gram(self, rows: DeviceBlock, index: Any, weights: Any, tally: DeviceSums) -> Gram:
        """``A' D A`` in all variables, of some rows."""
        xp, width = self.xp, rows.X.shape[1]
        if not isinstance(rows.t, float):
            t = rows.t if index is None else take(xp, rows.t, index)
            weights = weights * t * t
        roots = xp.sqrt(xp.astype(weights, rows.X.dtype, copy=False))
        step = max(1, _LEAST_PRODUCT // width, rows.X.shape[0] // _WEIGHTED_ROWS_SHARE)
        inner, sides = [], []
        for start in range(0, int(roots.shape[0]), step):
            part = slice(start, start + step)
            if index is None:
                X = rows.X[part] * roots[part, None]
            else:
                X = take(xp, rows.X, index[part])
                X *= roots[part, None]
            inner.append(xp.matmul(X.T, X))
            if self.intercepts:
                sides.append(xp.matmul(roots[part], X))
        whole = tally.add(reduce(operator.add, inner))
        if not self.intercepts:
            return Gram(whole, None, None)
        return Gram(whole, tally.add(reduce(operator.add, sides)), tally.add(xp.sum(weights)))

    def framed(self, gram: Gram, tally: DeviceSums) -> Vector:
        """``A' D A`` in all variables."""
        out = np.zeros((self.size, self.size))
        out[self.features, self.features] = self.alpha**2 * tally[gram.inner]
        if gram.sides is not None and gram.corner is not None:
            sides, corner = tally[gram.sides], float(tally[gram.corner])
            for i, number in self.intercepts:
                out[i, self.features] += self.alpha * number * sides
                out[self.features, i] += self.alpha * number * sides
                for j, other in self.intercepts:
                    out[i, j] += number * other * corner
        return out


def times(factor: Any, values: Any) -> Any:
    """A product, of which nothing is computed where the factor is the number one."""
    return values if isinstance(factor, float) and factor == 1.0 else factor * values


def take(xp: Any, values: Any, index: Any) -> Any:
    """Some entries, or rows; of PyTorch in one call, where the standard's asks after negative places first."""
    return values.index_select(0, index) if is_torch(values) else xp.take(values, index, axis=0)


def put(values: Any, index: Any, new: Any) -> Any:
    """Values with some of them replaced: in place, where arrays can be written to."""
    if hasattr(values, "at") and hasattr(values.at[0], "set"):  # JAX
        return values.at[index].set(new)
    values[index] = new
    return values


def _where(xp: Any, mask: Any) -> tuple[Any, Any]:
    """Where a mask holds, and ones: how often each place counts.

    JAX compiles for every length anew: there, the last place is repeated up to a power of two, and counts nothing.
    """
    if not is_jax(mask):
        return xp.nonzero(mask)[0], 1.0
    count = int(xp.sum(mask))
    size = 1 << max(0, count - 1).bit_length()
    if not count:
        return xp.zeros(0, dtype=xp.int64), 1.0
    index = xp.nonzero(mask, size=size, fill_value=0)[0]
    places = xp.arange(size)
    last = xp.max(xp.where(places < count, index, 0))
    return xp.where(places < count, index, last), xp.astype(places < count, xp.float64)


def _constant(linear: Map) -> float | None:
    """What a map of one variable repeats for every row, if it does."""
    if isinstance(linear, Composition):
        return None if _constant(linear.outer) is None else float(linear.inner.apply(np.ones(1))[0])
    repeated = isinstance(linear, Selection) and linear.index is not None and linear.index.strides == (0,)
    return 1.0 if repeated else None
