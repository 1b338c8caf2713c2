"""Columns far from zero: a number taken from each, where no digit of any row is lost by it.

``X w + b`` is ``(X - m) w + (b + m'w)``. Products with columns near one million lose six digits that those with what
they differ by keep, and equations in them are far from singular. A pass looks at each subtraction: a column of which
some row loses a digit is left as it is.

Where there is no intercept, ``c = m'w`` stands as one more variable with a column of ones, tied to the others by that
equation. A multiple of ``c - m'w``, which is zero at all points, may be added to any lower bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from varopt.composite import Rows
from varopt.model.maps import Matrix

__all__ = ["ColumnCentres", "centre_of"]

Vector = NDArray[np.float64]

_FAR = 8.0  # times the spread of a column, its distance from zero from where on numbers are taken from it
_DIGITS = 24  # of such a number
_MOST = 1000  # variables: rows become dense


@dataclass(frozen=True)
class ColumnCentres:
    """What is taken from each column, zero for none, and the variable that takes it up: without one, one more."""

    numbers: Vector
    intercept: int | None

    @property
    def tie(self) -> Vector | None:
        """The coefficients of ``c - m'w``, where a variable stands for what is taken."""
        return np.append(-self.numbers, 1.0) if self.intercept is None else None

    @property
    def free(self) -> Vector | None:
        """All points that are tied so, as the columns of a matrix times what may be anything."""
        if self.intercept is not None:
            return None
        size, most = self.numbers.size, int(np.argmax(np.abs(self.numbers)))
        basis = np.eye(size + 1)
        basis[most] = np.append(-self.numbers, 1.0) / self.numbers[most]
        return np.delete(basis, most, axis=1)

    def of(self, rows: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        """Rows of which the numbers are taken, and for which columns that is so without rounding."""
        matrix = np.array(rows.linear.dense(), dtype=np.float64)
        moved, exact = np.flatnonzero(self.numbers), np.ones(self.numbers.size, dtype=bool)
        if self.intercept is None:
            matrix = np.column_stack([matrix, np.ones(rows.count)])
        ones = matrix[:, -1 if self.intercept is None else self.intercept]
        if not np.all(np.abs(ones) == 1.0):
            return rows, self.numbers == 0.0
        a, b = matrix[:, moved], -ones[:, None] * self.numbers[moved]
        total = a + b  # and what it has lost: Knuth's sum of two
        part = total - a
        exact[moved] = np.all((a - (total - part)) + (b - part) == 0.0, axis=0)
        matrix[:, moved] = total
        return replace(rows, linear=Matrix(matrix)), exact

    def only(self, exact: NDArray[np.bool_]) -> ColumnCentres | None:
        """Without the columns that lose digits."""
        numbers = np.where(exact, self.numbers, 0.0)
        return replace(self, numbers=numbers) if numbers.any() else None

    def there(self, x: Vector) -> Vector:
        """A point of the data as they are in terms of what is left of them."""
        return self._moved(x if self.intercept is not None else np.append(x, 0.0), 1)[0]

    def back(self, x: Vector) -> tuple[Vector, Vector, float]:
        """A point of the data as they are near a given one, the same point here, and by how much rows may differ."""
        if self.intercept is None:
            here, off = self._moved(np.append(x[:-1], 0.0), 1)
            return x[:-1].copy(), here, off
        given, _ = self._moved(x, -1)
        here, off = self._moved(given, 1)
        return given, here, off

    def _moved(self, x: Vector, sign: int) -> tuple[Vector, float]:
        moved, taken = x.copy(), np.flatnonzero(self.numbers)
        place = -1 if self.intercept is None else self.intercept
        total = sum((Fraction(float(self.numbers[j])) * Fraction(float(x[j])) for j in taken), Fraction(0))
        whole = Fraction(float(x[place])) + sign * total
        moved[place] = float(whole)
        off = abs(whole - Fraction(float(moved[place])))
        return moved, math.nextafter(float(off), math.inf) if off else 0.0


def centre_of(rows: Rows, penalised: Vector) -> ColumnCentres | None:
    """What to take from columns by some rows; where one variable has no penalty, it has to be an intercept."""
    free = np.flatnonzero(penalised == 0.0)
    if free.size > 1 or penalised.size > _MOST or not rows.count:
        return None
    matrix = np.asarray(rows.linear.dense(), dtype=np.float64)
    ones = matrix[:, free[0]] if free.size else np.ones(rows.count)
    if not np.all(np.abs(ones) == 1.0):
        return None
    X = ones[:, None] * matrix
    low, middle, high = np.quantile(X, (0.05, 0.5, 0.95), axis=0)
    far = np.abs(middle) > _FAR * (high - low)
    far[free] = False
    numbers = np.where(far, [_short(float(m)) for m in middle], 0.0)
    return ColumnCentres(numbers, int(free[0]) if free.size else None) if numbers.any() else None


def _short(number: float) -> float:
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(math.ldexp(mantissa, _DIGITS)), exponent - _DIGITS)
