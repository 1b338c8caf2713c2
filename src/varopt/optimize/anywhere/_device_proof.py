r"""What a pass proves of rows on a device: the value, lines below far rows and their rounding, all of it charged.

The rows of a block are added up in pieces of which alone the rounding counts, and all sums come to the host at once.
"""

from __future__ import annotations

import math
import operator
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import SLACK, TINY, UNIT, gamma
from varopt.certificates import EnclosedSum, Lines
from varopt.optimize.anywhere._device import SUM, DeviceBlock, DeviceRows, DeviceSums, Gram, put, take, times
from varopt.optimize.anywhere._sweep import BadRow, Sweep, Swept, find_bad
from varopt.places import DataPart, to_host

__all__ = ["annihilates", "lengths_above", "sweep_device"]

Vector = NDArray[np.float64]

# Entries, and sum of their factors, up to which whole numbers are not rounded.
_WHOLE_ENTRIES, _WHOLE_FACTORS = 2.0**32, 2.0**20


class _Known(NamedTuple):
    """What the rows of a block have in common at all points: all but the lengths are sums, known up to rounding."""

    lengths: Vector  # bounds of those of the columns
    least: float  # weight
    weights: float
    turned: float  # weights times ``|t|``,
    squares: float  # and the squares of that
    offsets: float  # weights times ``|d|``


class _Pieced(NamedTuple):
    """A sum in pieces: numbers in a tally."""

    pieces: list[int]
    size: int | None  # of absolute values; none where no entry is negative
    rows: int

    def enclosed(self, tally: DeviceSums, spread: float, rounding: float) -> EnclosedSum:
        """The sum, of entries that are known up to `spread` in all and a share `rounding` of each."""
        parts = np.concatenate([tally[n].ravel() for n in self.pieces]).astype(np.longdouble)
        size = float(parts.sum() if self.size is None else tally[self.size]) * (1.0 + gamma(self.rows)) * SLACK
        error = (gamma(SUM) + gamma(parts.size) + rounding) * size + spread + self.rows * TINY
        return EnclosedSum(parts.sum(), size, error * SLACK)


def sweep_device(device: DeviceRows, request: Sweep) -> Swept:
    """Value, lines and the rows near a knot, all rounding charged."""
    device.forget()
    return reduce(operator.add, (_BlockSweep(device, rows, request).swept() for rows in device.blocks()))


class _BlockSweep:
    """The sums of a sweep over a block of rows."""

    def __init__(self, device: DeviceRows, rows: DeviceBlock, request: Sweep) -> None:
        xp = device.xp
        self.device, self.request, self.xp, self.term, self.tally = device, request, xp, device.term, DeviceSums(xp)
        # Of single precision a copy of this block alone.
        self.rows = rows._replace(X=xp.astype(rows.X, xp.float64, copy=False))
        self.count = int(rows.X.shape[0])
        if rows.start not in device.known:
            device.known[rows.start] = self._constants()
        self.known: _Known = device.known[rows.start]
        if self.known.least < 0.0:
            bad = rows.start + (int(xp.argmin(rows.c)) if not isinstance(rows.c, float) else 0)
            raise BadRow("weights", bad, f"must not be negative; got {self.known.least:g}")
        self.z = device.positions(self.rows, request.x)

    def _constants(self) -> _Known:
        xp, tally, (_, X, t, d, c) = self.xp, DeviceSums(self.xp), self.rows
        norms = tally.add(xp.linalg.vector_norm(X, axis=0))
        scaled = times(c, xp.abs(t)) if not isinstance(t, float) else c
        parts = [c, scaled, scaled * scaled, times(c, abs(d) if isinstance(d, float) else xp.abs(d))]
        sums = [p * self.count if isinstance(p, float) else tally.add(xp.sum(p)) for p in parts]
        least = c if isinstance(c, float) else tally.add(xp.min(c))
        numbers = [float(n) if isinstance(n, float) else float(tally[n]) for n in (least, *sums)]
        return _Known(lengths_above(tally[norms], self.count), *numbers)

    @cached_property
    def through_zero(self) -> bool:
        """Whether the term is a kink at zero, and zero there: its value is a slope times z, and not negative."""
        kink, term = self.term.kink, self.term
        if kink is None or kink[0] != 0.0 or not kink[1] <= 0.0 <= kink[2]:
            return False
        return not any(float(p[0]) for p in term.pieces) and not any(float(c) for c in term.centres)

    def swept(self) -> Swept:
        """All of it; nothing is asked of the device twice."""
        term, tally, request = self.term, self.tally, self.request
        slopes, below, rounding = self._tangents() if term.degree > 1 else self._pieces()
        entries = slopes * self.z if self.through_zero else times(self.rows.c, term.value(self.z))
        total = self._sum(entries, self.through_zero)
        del entries
        moved = self._moved() if term.degree > 1 else (self._size(),)
        keep = self._near()
        if keep is not None:
            slopes, below = (None if v is None else put(v, keep, 0.0) for v in (slopes, below))
        lines = self._lines(slopes, below)
        bent = self._bent(keep) if request.curved and term.degree > 1 else None
        spread = (1.0 + gamma(self.count)) * self._spread(moved) * SLACK
        value = total.enclosed(tally, spread, 2.0 * UNIT)
        if not math.isfinite(value.value):
            self._name_bad()
        swept = Swept(value, lines.enclosed(self, rounding, spread))
        if bent is not None:
            bent.into(swept, self)
        if keep is not None:
            swept.kept.append(self._brought(keep))
        if request.relations is not None:
            related = [annihilates(self.device, self.rows.X, relation) for relation in request.relations]
            swept.related = np.array(related, dtype=bool)
        return swept

    def _sum(self, entries: Any, positive: bool = False) -> _Pieced:
        """The sum of a vector, in pieces of which alone the rounding counts."""
        xp, whole = self.xp, self.count // SUM * SUM
        pieces = [xp.sum(xp.reshape(entries[:whole], (-1, SUM)), axis=1)] if whole else []
        if whole < self.count:
            pieces.append(xp.sum(entries[whole:]))
        size = None if positive else self.tally.add(xp.linalg.vector_norm(entries, ord=1))
        return _Pieced([self.tally.add(part) for part in pieces], size, self.count)

    # -- The value ----------------------------------------------------------------------------------------------------

    @cached_property
    def _sizes(self) -> tuple[float, float, float, float]:
        """Of the coefficients of pieces: of the constant, the linear and twice the quadratic ones, and of centres."""
        pieces = self.term.pieces
        bend = max((2.0 * abs(float(p[2])) for p in pieces if len(p) > 2), default=0.0)
        line = max((abs(float(p[1])) for p in pieces if len(p) > 1), default=0.0)
        constant, far = max(abs(float(p[0])) for p in pieces), max(abs(float(centre)) for centre in self.term.centres)
        return constant, line, bend, far

    def _reach(self) -> float:
        """The length of what rounding may have moved products by, of all rows: that of ``|X| |w|`` is below."""
        device, x = self.device, self.request.x
        length = float(self.known.lengths @ np.abs(device.alpha * x[device.features]))
        return gamma(self.rows.X.shape[1] + 4) * length * (1.0 + 2.0**-20)

    def _offset(self) -> float:
        device, x = self.device, self.request.x
        number = float(abs(sum(number * x[i] for i, number in device.intercepts)))
        return number + abs(device.block.argument.constant.number)

    def _size(self) -> int:
        """Of lines, for `_spread`: the weighted sum of distances from zero."""
        xp, c = self.xp, self.rows.c
        if isinstance(c, float):
            return self.tally.add(times(c, xp.linalg.vector_norm(self.z, ord=1)))
        return self.tally.add(xp.matmul(c, xp.abs(self.z)))

    def _moved(self) -> tuple[int, int]:
        """Of curved terms, for `_spread`: squares of weighted slopes, and what is rounded row by row."""
        xp, (_, _, t, d, c), z, reach = self.xp, self.rows, self.z, self._reach()
        t = 1.0 if isinstance(t, float) else xp.abs(t)
        sizes = xp.abs(z) + t * self._offset() + (abs(d) if isinstance(d, float) else xp.abs(d))
        steep, added = self._steepness(reach * t + 8.0 * UNIT * sizes)
        squares = self.tally.add(xp.sum((c * t * steep) ** 2))
        return squares, self.tally.add(xp.sum(c * (8.0 * UNIT * sizes * steep + 32.0 * UNIT * added)))

    def _steepness(self, radius: Any) -> tuple[Any, Any]:
        """Bounds of the derivative around z, and of what is added up in a value."""
        constant, line, bend, far = self._sizes
        size = self.xp.abs(self.z) + radius + far
        steep = line + bend * size
        return steep, constant + size * steep

    def _spread(self, sums: tuple[int, ...]) -> float:
        """What rounding may have changed in the value: what it has moved products by is charged by Cauchy and Schwarz.

        Of lines the slope is bounded by a number, and the sum over the rows by sums of positions, offsets and weights.
        """
        reach, known, (size, *rest) = self._reach(), self.known, (float(self.tally[n]) for n in sums)
        if rest:
            return reach * _length(size, self.count) * (1.0 + 2.0**-20) + rest[0]
        constant, line, _, far = self._sizes
        sizes = size + self._offset() * known.turned + known.offsets
        added = (constant + far * line) * known.weights + line * (size + reach * known.turned + 8.0 * UNIT * sizes)
        lengths = reach * line * _length(known.squares, self.count) * (1.0 + 2.0**-20)
        return (lengths + 8.0 * UNIT * line * sizes + 32.0 * UNIT * added) * SLACK

    def _name_bad(self) -> None:
        device, start = self.device, self.rows.start
        find_bad(device.block, device.table._brought(device.columns, slice(start, start + self.count)))
        raise ValueError("values of the objective overflow: measure the data in smaller units.")

    # -- The lines ----------------------------------------------------------------------------------------------------

    def _pieces(self) -> tuple[Any, Any, float]:
        """Weighted slopes of linear pieces at z, bounds of conjugates there, and what share of both rounding is."""
        xp, z, c = self.xp, self.z, self.rows.c
        tables: list[Any] = list(self.device.pieces)
        if isinstance(c, float):
            tables, c = [None if table is None else times(c, table) for table in tables], 1.0
        if len(self.term.knots) == 1:
            right = z >= float(self.term.knots[0])
            found = [None if table is None else xp.where(right, table[1], table[0]) for table in tables]
        else:
            piece = reduce(operator.add, (xp.astype(z >= float(knot), xp.int64) for knot in self.term.knots))
            found = [None if table is None else take(xp, table, piece) for table in tables]
        slopes, below = (None if v is None else times(c, v) for v in found)
        return slopes, below, UNIT

    def _tangents(self) -> tuple[Any, Any, float]:
        """Slopes of curved terms at z, and bounds of their conjugates: ``u z - rho(z)`` at z itself, but for rounding.

        The slope is that of a point within rounding of z, where the conjugate is ``u z - rho(z)`` up to the curvature
        times the square of what z is off by.
        """
        xp, term, z, c = self.xp, self.term, self.z, self.rows.c
        low, high = (float(end) for end in term.subgradient_range)
        slope = xp.clip(term.derivative(z), low, high)
        steep, sizes = self._steepness(0.0)
        flattest = min(2.0 * abs(float(p[2])) for p in term.pieces if len(p) > 2 and p[2])
        lost = 64.0 * UNIT * (sizes + xp.abs(slope * z)) + (16.0 * UNIT * steep) ** 2 / flattest
        return times(c, slope), times(c, slope * z - term.value(z) + lost), UNIT

    def _lines(self, slopes: Any, below: Any) -> _LineSums:
        xp, tally, X, d = self.xp, self.tally, self.rows.X, self.rows.d
        dual, whole = times(self.rows.t, slopes), self.count // SUM * SUM
        parts = [xp.matmul(dual[whole:], X[whole:])] if whole < self.count else []
        if whole:
            pieces = xp.matmul(xp.reshape(dual[:whole], (-1, 1, SUM)), xp.reshape(X[:whole], (-1, SUM, X.shape[1])))
            parts.append(xp.sum(pieces[:, 0, :], axis=0))
        features, norm = tally.add(reduce(operator.add, parts)), tally.add(xp.matmul(dual, dual))
        ones = self._sum(dual) if self.device.intercepts else None
        there = self._sum(slopes * self.z) if self.request.scaled else None
        constant = self.device.block.argument.constant
        shifted = constant.number and constant.array is not None
        absolute = tally.add(xp.linalg.vector_norm(slopes, ord=1)) if shifted else None
        offsets = None if isinstance(d, float) and d == 0.0 else self._sum(slopes * d)
        less = None if below is None else self._sum(-below)
        return _LineSums(features, norm, ones, offsets, absolute, less, there)

    # -- What is kept -------------------------------------------------------------------------------------------------

    def _near(self) -> Any:
        """Where the rows to keep are, if there are any."""
        xp, request, z = self.xp, self.request, self.z
        index = None
        if request.factor is not None and self.term.knots:
            distance = self.device.distance(z)
            if request.factor.any():
                index = self._within(xp.nonzero(distance < request.reach)[0], distance)
            else:
                index = xp.nonzero(distance < min(request.reach, request.least))[0]
        if request.every:
            first = -self.rows.start % request.every
            spaced = xp.arange(first, self.count, request.every, device=self.device.table.device)
            index = spaced if index is None else xp.unique_values(xp.concat([index, spaced]))
        return None if index is None or not index.shape[0] else index

    def _within(self, index: Any, distance: Any) -> Any:
        """Of rows within reach those that may come to a knot."""
        xp, request, device = self.xp, self.request, self.device
        if not index.shape[0]:
            return index
        factor = xp.asarray(request.factor, device=device.table.device)
        moved = device.alpha * xp.matmul(take(xp, self.rows.X, index), factor[device.features])
        for i, number in device.intercepts:
            moved = moved + number * factor[i]
        lengths = xp.sqrt(xp.sum(moved * moved, axis=1))
        if not isinstance(self.rows.t, float):
            lengths = lengths * xp.abs(take(xp, self.rows.t, index))
        return index[take(xp, distance, index) < xp.clip(lengths, request.least, None)]

    def _brought(self, index: Any) -> DataPart:
        device, there = self.device, self.rows.start + index
        return device.table.rows(device.columns, to_host(there).astype(np.intp), there)

    def _bent(self, keep: Any) -> _BentSums:
        """The Hessian of the terms but for rows that are kept; where all have one curvature, of a product ``X'X``."""
        xp, device, (_, X, t, _, c), term = self.xp, self.device, self.rows, self.term
        if not term.knots and isinstance(c, float) and isinstance(t, float) and not self.request.scaled:
            return self._squares(c * 2.0 * float(term.pieces[0][2]), keep)
        weights = xp.full_like(self.z, c) if isinstance(c, float) else xp.asarray(c, copy=keep is not None)
        weights = (weights if keep is None else put(weights, keep, 0.0)) * term.derivative(self.z, 2)
        grams = [(1.0, device.gram(self.rows, None, weights, self.tally))]
        if not self.request.scaled:
            return _BentSums(grams, None)
        bent = weights * self.z
        turned = times(t, bent)
        sums = [self.tally.add(a) for a in (xp.matmul(turned, X), xp.sum(turned), xp.sum(bent * self.z))]
        return _BentSums(grams, (self._sum(c if not isinstance(c, float) else xp.full_like(self.z, c), True), sums))

    def _squares(self, curvature: float, keep: Any) -> _BentSums:
        xp, device, tally, X = self.xp, self.device, self.tally, self.rows.X
        sides = corner = None
        if device.intercepts:
            sides = tally.add(xp.sum(X, axis=0))
            corner = tally.add(xp.full((), float(self.count), dtype=X.dtype, device=device.table.device))
        grams = [(curvature, Gram(tally.add(xp.matmul(X.T, X)), sides, corner))]
        if keep is not None:
            ones = xp.ones(keep.shape, dtype=X.dtype, device=device.table.device)
            grams.append((-curvature, device.gram(self.rows, keep, ones, tally)))
        return _BentSums(grams, None)


class _LineSums(NamedTuple):
    """The sums of lines: numbers in a tally."""

    features: int
    norm: int  # squared, of the duals
    ones: _Pieced | None
    offsets: _Pieced | None
    absolute: int | None  # of the slopes, where an offset is a number beside a vector
    less: _Pieced | None
    there: _Pieced | None

    def enclosed(self, sweep: _BlockSweep, rounding: float, spread: float) -> Lines:
        """All of them, with their rounding; `spread` is what rounding has moved values by, and so their lines."""
        tally, offsets, less = sweep.tally, EnclosedSum.zeros(), EnclosedSum.zeros()
        gradient = self._gradient(sweep, rounding + (0.0 if isinstance(sweep.rows.t, float) else UNIT))
        if self.offsets is not None:
            # The offset is rounded twice where it is a number beside a multiple of a vector.
            share = rounding + 4.0 * UNIT
            if self.absolute is not None and self.offsets.size is not None:
                number = abs(sweep.device.block.argument.constant.number)
                share += 4.0 * UNIT * number * float(tally[self.absolute]) / max(float(tally[self.offsets.size]), TINY)
            offsets = self.offsets.enclosed(tally, 0.0, share)
        if self.less is not None:
            less = self.less.enclosed(tally, 0.0, rounding + UNIT)
        if self.there is None:
            return Lines(gradient, offsets, less)
        return Lines(gradient, offsets, less, self.there.enclosed(tally, spread, rounding + UNIT))

    def _gradient(self, sweep: _BlockSweep, rounding: float) -> EnclosedSum:
        """``A'v`` in all variables."""
        tally, device, count = sweep.tally, sweep.device, sweep.count
        share = gamma(SUM) + gamma(count // SUM + 4) + rounding + 2.0 * UNIT
        norm = _length(float(tally[self.norm]), count)
        error, ones = np.zeros(device.size), 0.0
        error[device.features] = abs(device.alpha) * (share + UNIT) * norm * sweep.known.lengths * SLACK + count * TINY
        if self.ones is not None:
            once = self.ones.enclosed(tally, 0.0, rounding)
            ones = float(once.value)
            for i, number in device.intercepts:
                error[i] += abs(number) * (once.error + 4.0 * UNIT * once.size) * SLACK
        value = device.full(tally[self.features], ones)
        return EnclosedSum(value.astype(np.longdouble), np.abs(value), error)


class _BentSums(NamedTuple):
    """The sums of second derivatives: numbers in a tally."""

    grams: list[tuple[float, Gram]]
    scaled: tuple[_Pieced, list[int]] | None  # the weights, and derivatives in a scale

    def into(self, swept: Swept, sweep: _BlockSweep) -> None:
        """Fill in what was asked for."""
        device, tally = sweep.device, sweep.tally
        swept.hessian = reduce(operator.add, (factor * device.framed(gram, tally) for factor, gram in self.grams))
        if self.scaled is not None:
            weights, (features, ones, squares) = self.scaled
            swept.weight = weights.enclosed(tally, 0.0, 0.0)
            swept.bend = np.append(device.full(tally[features], tally[ones]), tally[squares])


def annihilates(device: DeviceRows, X: Any, relation: Vector) -> bool:
    """Whether rows are zero along a vector of whole numbers: seen of whole numbers, and of equal columns."""
    xp, features = device.xp, relation[device.features]
    used = np.flatnonzero(features)
    numbers = [(number, relation[i]) for i, number in device.intercepts if relation[i]]
    if abs(device.alpha) != 1.0 or any(abs(number) != 1.0 for number, _ in numbers):
        return False
    ones = sum(number * device.alpha * share for number, share in numbers)
    columns = [X[:, int(j)] for j in used]
    if len(columns) == 2 and ones == 0.0 and features[used].sum() == 0.0:
        return bool(xp.all(columns[0] == columns[1]))
    if np.abs(relation).sum() > _WHOLE_FACTORS:
        return False
    if any(bool(xp.any((c != xp.round(c)) | (xp.abs(c) > _WHOLE_ENTRIES))) for c in columns):
        return False
    total = reduce(operator.add, (float(features[j]) * c for j, c in zip(used, columns, strict=True)), ones)
    return bool(xp.all(total == 0.0)) if columns else total == 0.0


def lengths_above(norms: Vector, count: int) -> Vector:
    """Bounds of the lengths of columns of so many rows, from those that were computed."""
    lost = math.sqrt(count * TINY)  # squares that underflow
    return np.asarray(np.hypot(norms, lost) * (1.0 + gamma(count + 4)) * SLACK)


def _length(squares: float, count: int) -> float:
    """A bound of a length, from the sum of the squares, of which some may have underflowed."""
    return math.sqrt(squares * (1.0 + gamma(count)) + count * TINY) * SLACK
