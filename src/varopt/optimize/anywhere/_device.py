r"""The sums of a pass, computed where arrays of PyTorch, CuPy or JAX are.

The rows are ``z = t (alpha X w + beta) + d``, walked in blocks so that temporaries stay small beside X. Only what is
near a knot is smoothed, multiplied out or brought to the host. Single precision is multiplied as it is on the way
(`Moments`), and in double precision, block by block, for the proof (`Sweep`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._array import is_jax
from varopt._verified import SLACK, TINY, UNIT, gamma
from varopt.certificates import EnclosedSum, Lines, piece_table
from varopt.composite import NotComposite
from varopt.model import Variable
from varopt.model.blocks import TermBlock
from varopt.model.maps import Composition, Map, Scaled, Selection, StoredMatrix
from varopt.optimize.anywhere._sweep import BadRow, Moments, Moved, Sweep, Swept, find_bad
from varopt.places import DataColumn, DataPart, Derived, DeviceColumn, OnDevice, to_host

__all__ = ["DeviceRows"]

Vector = NDArray[np.float64]

_BLOCK = 1 << 22  # entries of X that a block has at the least: a device is idle while less is prepared
_VECTORS = 14  # temporaries as long as a block
_ROOM, _ROOM_OF_SINGLE = 0.4, 0.29  # shares of X that they and the target may take; a share of half the size
_LEAST_ROOM = 0.1  # however narrow X is
_PRODUCT = 1 << 24  # entries of the rows that are weighted at once for a Hessian
_SUM = 4096  # rows that are added up at once
_WHOLE, _SHARES = 2.0**32, 2.0**20  # entries, and sum of their factors, up to which whole numbers are not rounded
_FAR = 9.0  # deviations from a knot beyond which a term is its piece, to rounding


class _Rows(NamedTuple):
    """A block of rows on the device."""

    start: int
    X: Any
    t: Any  # a vector, or one
    d: Any
    c: Any


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
        self._thin: tuple[int, list[_Rows]] | None = None
        self._lengths: dict[int, Vector] = {}  # lengths of the columns, block by block
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

    def _blocks(self, every: int = 1) -> Iterator[_Rows]:
        count, width = self.X.shape[0], self.X.shape[1]
        double = self.X.dtype == self.xp.float64
        share = _VECTORS / width if double else 2.0 * (_VECTORS / width + 1.0)  # a block in double precision as well
        room = _ROOM - 1.0 / width if double else _ROOM_OF_SINGLE - 2.0 / width
        pieces, unit = math.ceil(share / (max(room, _LEAST_ROOM) * every)), _SUM * every
        rows = max(math.ceil(count / pieces), min(count, every * _BLOCK // width))
        rows = math.ceil(rows / unit) * unit
        constant = self.block.argument.constant
        for start in range(0, count, rows):
            index = slice(start, min(start + rows, count), every)
            d: Any = constant.number
            if constant.array is not None:
                d = self._there(constant.array, index)
                d = d if constant.factor == 1.0 else constant.factor * d
                d = d if constant.number == 0.0 else d + constant.number
            t = 1.0 if self.factors[0] is None else self._there(self.factors[0], index)
            yield _Rows(start, self.X[index], t, d, self._there(self.block.weights, index))

    def _positions(self, rows: _Rows, x: Vector, single: bool) -> Any:
        """``z``, multiplied in the precision of X where `single` allows it."""
        xp = self.xp
        dtype = rows.X.dtype if single else xp.float64
        if x[self.features].any():
            w = xp.asarray(self.alpha * x[self.features], dtype=dtype, device=self.table.device)
            z = xp.astype(xp.matmul(xp.astype(rows.X, dtype, copy=False), w), xp.float64, copy=False)
        else:
            z = xp.zeros(rows.X.shape[0], dtype=xp.float64, device=self.table.device)
        b = sum(number * x[i] for i, number in self.intercepts)
        if b:
            z = z + float(b)
        if not isinstance(rows.t, float) or rows.t != 1.0:
            z = rows.t * z
        return z if isinstance(rows.d, float) and rows.d == 0.0 else z + rows.d

    def _full(self, features: Any, ones: Any) -> Vector:
        """A gradient in all variables, from that in the features and that in a constant one."""
        out = np.zeros(self.size)
        out[self.features] = self.alpha * to_host(features)
        for i, number in self.intercepts:
            out[i] += number * float(ones)
        return out

    def _distance(self, z: Any) -> Any:
        xp = self.xp
        found = None
        for knot in self.term.knots:
            here = xp.abs(z - float(knot))
            found = here if found is None else xp.minimum(found, here)
        return found

    # -- The bound ----------------------------------------------------------------------------------------------------

    def moments(self, request: Moments) -> Moved:
        """Value, gradient and Hessian of the bound, summed over the rows."""
        blocks = self._blocks() if request.every == 1 else self._thinned(request.every)
        total = reduce(operator.add, (self._moments(rows, request) for rows in blocks))
        return total if request.every == 1 else total.times(request.every)

    def _thinned(self, every: int) -> list[_Rows]:
        """One of so many rows, next to each other: copied once."""
        if self._thin is None or self._thin[0] != every:
            self._thin = every, [r._replace(X=self.xp.asarray(r.X, copy=True)) for r in self._blocks(every)]
        return self._thin[1]

    def _moments(self, rows: _Rows, request: Moments) -> Moved:
        xp, s = self.xp, request.deviation
        z = self._positions(rows, request.x, single=True)
        value, first = xp.sum(rows.c * self.term.value(z)), self.term.derivative(z)
        second_index, second, added, near = None, None, xp.zeros_like(value), xp.zeros_like(value)
        if self.term.degree > 1:
            bend = self.term.derivative(z, 2)
        if self.term.knots:
            distance = self._distance(z)
            index, counted = _where(xp, distance < _FAR * s)
            if index.shape[0]:
                zn = xp.take(z, index)
                cn = counted * (rows.c if isinstance(rows.c, float) else xp.take(rows.c, index))
                smooth, slope, raised = self._smoothed(zn, s)
                added = xp.sum(cn * (smooth - self.term.value(zn)))
                first = _put(xp, first, index, slope)
                near = xp.sum(counted * xp.astype(xp.take(distance, index) < 4.0 * s, xp.float64))
                second_index, second = index, cn * raised
        dual = rows.c * first
        if not isinstance(rows.t, float):
            dual = rows.t * dual
        features = xp.matmul(xp.astype(dual, rows.X.dtype, copy=False), rows.X)
        if self.term.degree > 1:
            whole = rows.c * (bend if second_index is None else _put(xp, bend, second_index, raised))
            hessian = self._gram(rows, None, whole)
        elif second_index is None:
            hessian = np.zeros((self.size, self.size))
        else:
            hessian = self._gram(rows, second_index, second)
        # All that is left comes at once: whenever numbers come, the device waits.
        sums = xp.concat([xp.stack([value, added, near, xp.sum(dual)]), xp.astype(features, xp.float64, copy=False)])
        (value, added, near, ones), features = np.split(to_host(sums), [4])
        return Moved(float(value + added), self._full(features, ones), hessian, float(added), int(near))

    def _smoothed(self, z: Any, s: float) -> tuple[Any, ...]:
        """Expectation and derivatives; of JAX on the host, where nothing is compiled for it."""
        if not is_jax(z):
            return self.term.derivatives_for_steps(z, s)
        here = to_host(z)
        return tuple(self.xp.asarray(part) for part in self.term.derivatives(here, np.full_like(here, s)))

    def _curvature(self, rows: _Rows, z: Any, weights: Any, keep: Any) -> Vector:
        """The Hessian of the terms but for rows that are kept; where all have one curvature, of a product ``X'X``."""
        xp = self.xp
        if self.term.knots or not isinstance(rows.c, float) or not isinstance(rows.t, float):
            return self._gram(rows, None, weights * self.term.derivative(z, 2))
        curvature = float(self.term.derivative(z[:1], 2)[0])
        sides = xp.sum(rows.X, axis=0) if self.intercepts else 0.0
        whole = rows.c * curvature * self._framed(xp.matmul(rows.X.T, rows.X), sides, float(rows.X.shape[0]))
        if keep is None:
            return whole
        return whole - self._gram(rows, keep, xp.full(keep.shape, rows.c * curvature, dtype=z.dtype, device=z.device))

    def _gram(self, rows: _Rows, index: Any, weights: Any) -> Vector:
        """``A' D A`` in all variables, of some rows."""
        xp, width = self.xp, rows.X.shape[1]
        if not isinstance(rows.t, float):
            t = rows.t if index is None else xp.take(rows.t, index)
            weights = weights * t * t
        small, step = xp.astype(weights, rows.X.dtype, copy=False), max(1, _PRODUCT // width)
        inner: Any = 0.0
        sides: Any = 0.0
        for start in range(0, int(small.shape[0]), step):
            part = slice(start, start + step)
            X = rows.X[part] if index is None else xp.take(rows.X, index[part], axis=0)
            scaled = X * small[part, None]
            inner = inner + xp.matmul(scaled.T, X)
            if self.intercepts:
                sides = sides + xp.sum(scaled, axis=0)
        return self._framed(inner, sides, float(xp.sum(weights)) if self.intercepts else 0.0)

    def _framed(self, inner: Any, sides: Any, corner: float) -> Vector:
        """``A' D A`` in all variables, from that of the features, and from its products with a constant one."""
        inner = to_host(inner).astype(np.float64)
        out = np.zeros((self.size, self.size))
        out[self.features, self.features] = self.alpha**2 * inner
        if self.intercepts:
            sides = to_host(sides).astype(np.float64)
            for i, number in self.intercepts:
                out[i, self.features] += self.alpha * number * sides
                out[self.features, i] += self.alpha * number * sides
                for j, other in self.intercepts:
                    out[i, j] += number * other * corner
        return out

    # -- The proof ----------------------------------------------------------------------------------------------------

    def sweep(self, request: Sweep) -> Swept:
        """Value, lines and the rows near a knot, all rounding charged."""
        self._thin = None  # its memory is of more use now
        return reduce(operator.add, (self._sweep(rows, request) for rows in self._blocks()))

    def _sweep(self, rows: _Rows, request: Sweep) -> Swept:
        xp, term, x = self.xp, self.term, request.x
        X = xp.astype(rows.X, xp.float64, copy=False)  # of single precision a copy of this block alone
        wide = rows._replace(X=X)
        z = self._positions(wide, x, single=False)
        if rows.start not in self._lengths:
            self._lengths[rows.start] = _column_lengths(xp, X)
        lengths = self._lengths[rows.start]
        count = int(X.shape[0])
        c = rows.c if not isinstance(rows.c, float) else xp.full_like(z, rows.c)
        least = rows.c if isinstance(rows.c, float) else float(xp.min(c))
        if least < 0.0:
            raise BadRow("weights", rows.start + int(xp.argmin(c)), f"must not be negative; got {least:g}")
        # What rounding may have moved products by, of all rows together: the length of ``|X| |w|`` is below.
        reach = gamma(X.shape[1] + 4) * float(lengths @ np.abs(self.alpha * x[self.features])) * (1.0 + 2.0**-20)
        spread = (1.0 + gamma(count)) * self._spread(rows, z, c, reach, x) * SLACK
        total = self._summed(c * term.value(z), spread, 2.0 * UNIT)
        if not math.isfinite(total.value):
            self._name_bad(rows.start, count)
        keep, part = self._near(wide, z, request)
        weights = c if keep is None else _put(xp, c, keep, xp.zeros_like(xp.take(c, keep)))
        lines = self._lines(wide, z, weights, lengths)
        swept = Swept(total, lines)
        if request.curved and term.degree > 1:
            swept.hessian = self._curvature(wide, z, weights, keep)
            if request.scaled:
                bent = weights * term.derivative(z, 2) * z
                turned = bent if isinstance(rows.t, float) else rows.t * bent
                features = self._full(xp.matmul(turned, X), float(xp.sum(turned)))
                swept.weight, swept.bend = self._summed(c, 0.0, 0.0), np.append(features, float(xp.sum(bent * z)))
        if part is not None:
            swept.kept.append(part)
        if request.relations is not None:
            swept.related = np.array([self._annihilates(X, relation) for relation in request.relations], dtype=bool)
        return swept

    def _annihilates(self, X: Any, relation: Vector) -> bool:
        """Whether rows are zero along a vector of whole numbers: seen of whole numbers, and of equal columns."""
        xp, features = self.xp, relation[self.features]
        used = np.flatnonzero(features)
        numbers = [(number, relation[i]) for i, number in self.intercepts if relation[i]]
        if abs(self.alpha) != 1.0 or any(abs(number) != 1.0 for number, _ in numbers):
            return False
        ones = sum(number * self.alpha * share for number, share in numbers)
        columns = [X[:, int(j)] for j in used]
        if len(columns) == 2 and ones == 0.0 and features[used].sum() == 0.0:
            return bool(xp.all(columns[0] == columns[1]))
        if np.abs(relation).sum() > _SHARES:
            return False
        if any(bool(xp.any((c != xp.round(c)) | (xp.abs(c) > _WHOLE))) for c in columns):
            return False
        total = reduce(operator.add, (float(features[j]) * c for j, c in zip(used, columns, strict=True)), ones)
        return bool(xp.all(total == 0.0)) if columns else total == 0.0

    def _spread(self, rows: _Rows, z: Any, c: Any, reach: float, x: Vector) -> float:
        """What rounding may have changed in the value, where what it has moved products by has a length of `reach`."""
        xp = self.xp
        offset = abs(sum(number * x[i] for i, number in self.intercepts)) + abs(self.block.argument.constant.number)
        t = xp.abs(rows.t) if not isinstance(rows.t, float) else 1.0
        sizes = xp.abs(z) + t * offset + (abs(rows.d) if isinstance(rows.d, float) else xp.abs(rows.d))
        steep, added = self._steepness(z, reach * t + 8.0 * UNIT * sizes)
        moved = reach * _length(float(xp.sum((c * t * steep) ** 2)), int(z.shape[0]))  # by Cauchy and Schwarz
        return moved * (1.0 + 2.0**-20) + float(xp.sum(c * (8.0 * UNIT * sizes * steep + 32.0 * UNIT * added)))

    def _steepness(self, z: Any, radius: Any) -> tuple[Any, Any]:
        """Bounds of the derivative around z, and of what is added up in a value."""
        xp, pieces = self.xp, self.term.pieces
        centres = [float(centre) for centre in self.term.centres]
        bend = max((2.0 * abs(float(p[2])) for p in pieces if len(p) > 2), default=0.0)
        line = max((abs(float(p[1])) for p in pieces if len(p) > 1), default=0.0)
        constant, far = max(abs(float(p[0])) for p in pieces), max(map(abs, centres))
        size = xp.abs(z) + radius + far
        steep = line + bend * size
        return steep, constant + size * steep

    def _name_bad(self, start: int, count: int) -> None:
        part = self.table._brought(self.columns, slice(start, start + count))
        find_bad(self.block, part)
        raise ValueError("values of the objective overflow: measure the data in smaller units.")

    def _summed(self, entries: Any, spread: float, rounding: float) -> EnclosedSum:
        """The sum of a vector, in pieces of which alone the rounding counts."""
        xp, count = self.xp, int(entries.shape[0])
        whole = count // _SUM * _SUM
        pieces = to_host(xp.sum(xp.reshape(entries[:whole], (-1, _SUM)), axis=1)) if whole else np.zeros(0)
        parts = np.append(pieces, float(xp.sum(entries[whole:])) if whole < count else 0.0).astype(np.longdouble)
        size = float(xp.sum(xp.abs(entries))) * (1.0 + gamma(count)) * SLACK
        error = (gamma(_SUM) + gamma(parts.size) + rounding) * size + spread + count * TINY
        return EnclosedSum(parts.sum(), size, error * SLACK)

    def _lines(self, rows: _Rows, z: Any, weights: Any, lengths: Any) -> Lines:
        xp, term = self.xp, self.term
        if term.degree > 1:
            slopes, below, rounding = self._tangents(z, weights)
        else:
            table, conjugates = piece_table(term)
            place = {"device": self.table.device}
            piece = reduce(operator.add, (xp.astype(z >= float(knot), xp.int64) for knot in term.knots))
            slopes = weights * xp.take(xp.asarray(table, **place), piece)
            below = weights * xp.take(xp.asarray(conjugates, **place), piece) if np.any(conjugates) else None
            rounding = UNIT
        dual = slopes if isinstance(rows.t, float) else rows.t * slopes
        gradient = self._transposed(rows.X, dual, lengths, rounding + (0.0 if isinstance(rows.t, float) else UNIT))
        d = rows.d if not isinstance(rows.d, float) else xp.full_like(z, rows.d)
        # The offset is rounded twice where it is a number beside a multiple of a vector.
        offsets = self._summed(slopes * d, 0.0, rounding + 4.0 * UNIT + self._offset_rounding(slopes, d))
        less = EnclosedSum.zeros() if below is None else self._summed(-below, 0.0, rounding + UNIT)
        return Lines(gradient, offsets, less)

    def _offset_rounding(self, slopes: Any, d: Any) -> float:
        """What the rounding of ``number + factor * y`` may be beyond that of the products, as a share of the sum."""
        number = abs(self.block.argument.constant.number)
        if number == 0.0 or self.block.argument.constant.array is None:
            return 0.0
        xp = self.xp
        size = float(xp.sum(xp.abs(slopes * d)))
        return 4.0 * UNIT * number * float(xp.sum(xp.abs(slopes))) / max(size, TINY)

    def _tangents(self, z: Any, weights: Any) -> tuple[Any, Any, float]:
        """Slopes of curved terms at z, and bounds of their conjugates: ``u z - rho(z)`` at z itself, but for rounding.

        The slope is that of a point within rounding of z, where the conjugate is ``u z - rho(z)`` up to the curvature
        times the square of what z is off by.
        """
        xp, term = self.xp, self.term
        low, high = (float(end) for end in term.subgradient_range)
        slope = xp.clip(term.derivative(z), low, high)
        zero = xp.zeros_like(z)
        steep, sizes = self._steepness(z, zero)
        flattest = min(2.0 * abs(float(p[2])) for p in term.pieces if len(p) > 2 and p[2])
        lost = 64.0 * UNIT * (sizes + xp.abs(slope * z)) + (16.0 * UNIT * steep) ** 2 / flattest
        below = weights * (slope * z - term.value(z) + lost)
        return weights * slope, below, UNIT

    def _transposed(self, X: Any, dual: Any, lengths: Any, rounding: float) -> EnclosedSum:
        """``A'v`` in all variables."""
        xp, count = self.xp, int(X.shape[0])
        whole = count // _SUM * _SUM
        features = xp.matmul(dual[whole:], X[whole:])
        if whole:
            pieces = xp.matmul(xp.reshape(dual[:whole], (-1, 1, _SUM)), xp.reshape(X[:whole], (-1, _SUM, X.shape[1])))
            features = features + xp.sum(pieces[:, 0, :], axis=0)
        ones = float(xp.sum(dual)) if self.intercepts else 0.0
        share = gamma(_SUM) + gamma(count // _SUM + 4) + rounding + 2.0 * UNIT
        norm = _length(float(xp.sum(dual * dual)), count)
        error = np.zeros(self.size)
        error[self.features] = abs(self.alpha) * (share + UNIT) * norm * lengths * SLACK + count * TINY
        if self.intercepts:
            once = self._summed(dual, 0.0, rounding)
            ones = float(once.value)
            for i, number in self.intercepts:
                error[i] += abs(number) * (once.error + 4.0 * UNIT * once.size) * SLACK
        value = self._full(features, ones)
        return EnclosedSum(value.astype(np.longdouble), np.abs(value), error)

    def _near(self, rows: _Rows, z: Any, request: Sweep) -> tuple[Any, DataPart | None]:
        """The rows to keep, there and here."""
        xp = self.xp
        index = None
        if request.factor is not None and self.term.knots:
            distance = self._distance(z)
            index = xp.nonzero(distance < request.reach)[0]
            if index.shape[0] and request.factor.any():
                near = xp.take(rows.X, index, axis=0)
                factor = xp.asarray(request.factor, device=self.table.device)
                moved = self.alpha * xp.matmul(near, factor[self.features])
                for i, number in self.intercepts:
                    moved = moved + number * factor[i]
                lengths = xp.sqrt(xp.sum(moved * moved, axis=1))
                if not isinstance(rows.t, float):
                    lengths = lengths * xp.abs(xp.take(rows.t, index))
                index = index[xp.take(distance, index) < xp.clip(lengths, request.least, None)]
            elif index.shape[0]:
                index = index[xp.take(distance, index) < request.least]
        if request.every:
            first = -rows.start % request.every
            spaced = xp.arange(first, z.shape[0], request.every, device=self.table.device)
            index = spaced if index is None else xp.unique_values(xp.concat([index, spaced]))
        if index is None or not index.shape[0]:
            return None, None
        there = to_host(index).astype(np.intp)
        return index, self.table.rows(self.columns, rows.start + there)


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


def _column_lengths(xp: Any, X: Any) -> Vector:
    """Bounds of the lengths of columns."""
    found = to_host(xp.linalg.vector_norm(X, axis=0)).astype(np.float64)
    lost = math.sqrt(X.shape[0] * TINY)  # squares that underflow
    return np.asarray(np.hypot(found, lost) * (1.0 + gamma(X.shape[0] + 4)) * SLACK)


def _length(squares: float, count: int) -> float:
    """A bound of a length, from the sum of the squares, of which some may have underflowed."""
    return math.sqrt(squares * (1.0 + gamma(count)) + count * TINY) * SLACK


def _put(xp: Any, values: Any, index: Any, new: Any) -> Any:
    """Values with some of them replaced."""
    if hasattr(values, "at") and hasattr(values.at[0], "set"):  # JAX
        return values.at[index].set(new)
    copy = xp.asarray(values, copy=True)
    copy[index] = new
    return copy
