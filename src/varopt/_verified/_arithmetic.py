"""Sums and products with bounds of their rounding, for a million rows at the price of a few passes.

Beside them: sums that are known to be exact, or known not to be, and linear systems with their solution enclosed.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EXTENDED",
    "FEW_COLUMNS",
    "SLACK",
    "TINY",
    "UNIT",
    "Ball",
    "NearlySingular",
    "denominator",
    "difference_is_zero",
    "dot",
    "down",
    "enclosed_solution",
    "equal_products",
    "exact_pair",
    "exact_product",
    "exact_sum",
    "gamma",
    "inverse_size",
    "is_double",
    "is_exact_product",
    "total",
    "two_product",
    "two_sum",
    "up",
    "weighted_columns",
]

Vector = NDArray[np.float64]

UNIT = 2.0**-53  # unit roundoff of double precision
TINY = float(np.finfo(np.float64).tiny)  # below it products lose digits: charged once per operation
# Bounds are sums and products of numbers that are not negative, of fewer than 10^9 operations: their own rounding is
# below this share of them.
SLACK = 1.0 + 2.0**-20
_LONG_UNIT = float(np.finfo(np.longdouble).eps) / 2.0  # where it is no longer than double, bounds are only wider
_HANDFUL = 32  # numbers that Python adds up sooner
_ADDED_AT_ONCE = 1024  # numbers that are added up without blocks
_MANY = 1 << 13  # numbers beyond which extended precision is spent only where digits cancel
_FEW_DIGITS = 1e-12  # relative error of a sum in double precision that is good enough
EXTENDED = 1 << 14  # entries of a matrix up to which all of a product is in extended precision
_DENOMINATORS = 1.0, 2.0, 4.0, 8.0  # of the grids that are looked for
FEW_COLUMNS = 4  # columns up to which every sum is taken in extended precision
_BLAS_ROWS = 256  # rows whose products are added up by BLAS, in whatever order


class Ball(NamedTuple):
    """Numbers known up to a radius each: ``|exact - middle| <= radius``."""

    middle: Vector
    radius: Vector

    @classmethod
    def exact(cls, values: Any) -> Ball:
        """Numbers that are known."""
        middle = np.asarray(values, dtype=np.float64)
        return cls(middle, np.zeros(middle.shape))

    @property
    def size(self) -> Vector:
        """A bound of the absolute values."""
        return np.asarray((np.abs(self.middle) + self.radius) * SLACK)

    def plus(self, other: Ball) -> Ball:
        """The sum."""
        if not (self.middle.any() or self.radius.any()):
            return other
        middle = self.middle + other.middle
        lost = unit_of(middle) * np.abs(middle) * ((self.middle != 0.0) & (other.middle != 0.0))  # zero adds nothing
        return Ball(middle, np.asarray(self.radius + other.radius + lost) * SLACK)

    def shifted(self, values: Vector) -> Ball:
        """Plus numbers that are known."""
        middle = self.middle + values
        return Ball(middle, np.asarray(self.radius + unit_of(middle) * np.abs(middle)) * SLACK)

    def scaled(self, factor: Any) -> Ball:
        """Times numbers that are known."""
        middle, factor = factor * self.middle, np.asarray(factor)
        if np.all((np.abs(factor) == 1.0) | (factor == 0.0)):
            return Ball(middle, np.abs(factor) * self.radius)  # signs, as of labels
        # What underflows to zero is charged where neither factor is zero.
        lost = np.where((self.middle != 0.0) & (factor != 0.0), TINY, 0.0)
        return Ball(middle, (np.abs(factor) * self.radius + 2.0 * unit_of(middle) * np.abs(middle) + lost) * SLACK)

    def rounded(self) -> Ball:
        """The same in double precision."""
        middle = np.asarray(self.middle, dtype=np.float64)
        if self.middle.dtype == np.float64:
            return self
        return Ball(middle, np.asarray((self.radius + 2.0 * UNIT * np.abs(middle)) * SLACK, dtype=np.float64))


def unit_of(values: Any) -> float:
    """The unit roundoff of what an array is stored in."""
    return _LONG_UNIT if values.dtype == np.longdouble else UNIT


def gamma(count: float, unit: float = UNIT) -> float:
    """``n u / (1 - n u)``: the relative error of a sum of so many products, in any order [Higham 2002, lemma 3.1]."""
    if count * unit >= 0.5:
        return math.inf
    return count * unit / (1.0 - count * unit) * SLACK


def denominator(values: Any) -> float:
    """The least of 1, 2, 4 and 8 that makes all numbers whole; infinity where none does."""
    for candidate in _DENOMINATORS:
        scaled = candidate * np.asarray(values)
        if np.all(scaled == np.rint(scaled)):
            return candidate
    return math.inf


def up(value: Any) -> Any:
    """The next larger number."""
    return np.nextafter(value, np.inf)


def down(value: Any) -> Any:
    """The next smaller number."""
    return np.nextafter(value, -np.inf)


def total(values: NDArray[np.floating[Any]], size: float | None = None) -> tuple[float, float]:
    """The sum of numbers, and a bound of its error.

    Of many numbers blocks are added up in double precision, and if that has cost more than a few digits, all in
    extended precision where there is one, in about sqrt(n) blocks, so that the error is that of 2 sqrt(n) additions and
    not of n. `size` is a bound of the sum of absolute values, where it is known.
    """
    count = values.size
    if count == 0:
        return 0.0, 0.0
    if count <= _HANDFUL and values.dtype == np.float64:
        with suppress(OverflowError, ValueError):  # of numbers that are not finite
            numbers = values.tolist()
            rounded = math.fsum(numbers)  # exact, but for one rounding, which is what is left: of whole numbers nothing
            return rounded, abs(math.fsum([*numbers, -rounded])) * SLACK
    size = float(np.abs(values).sum()) * SLACK if size is None else size
    if count > _MANY and values.dtype == np.float64:
        rounded, error = _by_blocks(values, size)
        if error <= _FEW_DIGITS * abs(rounded):
            return rounded, error
    long = values.astype(np.longdouble, copy=False)
    additions = count
    if count > _ADDED_AT_ONCE:
        width = math.isqrt(count)
        whole = count // width * width
        long = np.append(long[:whole].reshape(-1, width).sum(axis=1), long[whole:].sum())
        additions = width + long.size
    rounded = float(long.sum())
    error = gamma(additions, _LONG_UNIT) * size + UNIT * abs(rounded) + 5e-324  # sums do not underflow
    return rounded, error * SLACK


def _by_blocks(values: NDArray[np.floating[Any]], size: float) -> tuple[float, float]:
    """The sum of numbers by blocks whose rounding alone counts, and a bound of its error."""
    whole = values.size // _BLAS_ROWS * _BLAS_ROWS
    sums = np.append(values[:whole].reshape(-1, _BLAS_ROWS).sum(axis=1), values[whole:].sum())
    rounded = float(sums.sum(dtype=np.longdouble))
    error = (gamma(_BLAS_ROWS) + gamma(sums.size, _LONG_UNIT)) * size + UNIT * abs(rounded) + 5e-324
    return rounded, error * SLACK


def dot(a: Vector, b: Vector) -> tuple[float, float]:
    """The sum of products, and a bound of its error."""
    if a.size > _MANY and a.dtype == b.dtype == np.float64:
        products = a * b
        size = float(np.abs(products).sum()) * SLACK
        value, error = _by_blocks(products, size)
        error += 2.0 * UNIT * size + products.size * TINY
        if error <= _FEW_DIGITS * abs(value):
            return value, error * SLACK
    extended = a.astype(np.longdouble, copy=False) * b
    size = float(np.abs(extended).sum()) * SLACK
    value, error = total(extended, size)
    return value, (error + 2.0 * _LONG_UNIT * size + a.size * TINY) * SLACK


def weighted_columns(matrix: Vector, weights: Ball, norms: Vector | None = None) -> Ball:
    """``A'w`` of a dense matrix, with a bound of the error by Cauchy and Schwarz: no pass over absolute values.

    BLAS adds up blocks of rows, of which alone the rounding counts; the blocks are few, and added up in extended
    precision. `norms` are those of the columns, where they are known (`column_norms`).
    """
    rows, columns = matrix.shape
    if matrix.size <= EXTENDED:
        return _extended(matrix, weights)
    if columns <= FEW_COLUMNS:
        return _few_columns(matrix, weights)
    middle, whole = weights.middle, rows // _BLAS_ROWS * _BLAS_ROWS
    if matrix.flags.c_contiguous:
        blocks = matrix[:whole].reshape(-1, _BLAS_ROWS, columns)
        parts = np.matmul(middle[:whole].reshape(-1, 1, _BLAS_ROWS), blocks)[:, 0, :]
    else:
        starts = range(0, whole, _BLAS_ROWS)
        parts = np.array([middle[i : i + _BLAS_ROWS] @ matrix[i : i + _BLAS_ROWS] for i in starts]).reshape(-1, columns)
    value = parts.sum(axis=0, dtype=np.longdouble) + middle[whole:] @ matrix[whole:]
    norms = column_norms(matrix) if norms is None else norms
    share = gamma(_BLAS_ROWS + 1) + gamma(len(parts) + 1, _LONG_UNIT) + 2.0 * UNIT
    sizes = norms * (share * length(middle) + length(weights.radius)) + 2.0 * rows * TINY
    return Ball(np.asarray(value, dtype=np.float64), sizes * SLACK)


def _extended(matrix: Vector, weights: Ball) -> Ball:
    """All in extended precision, and with the sizes of the products themselves."""
    absolute = np.abs(matrix)
    value = weights.middle.astype(np.longdouble) @ matrix.astype(np.longdouble)
    error = gamma(len(matrix) + 1, _LONG_UNIT) * (np.abs(weights.middle) @ absolute) + weights.radius @ absolute
    middle = np.asarray(value, dtype=np.float64)
    lost = 2.0 * len(matrix) * TINY * absolute.any(axis=0)  # nothing, of columns of zeros
    return Ball(middle, (error + UNIT * np.abs(middle) + lost) * SLACK)


def _few_columns(matrix: Vector, weights: Ball) -> Ball:
    sums = [dot(np.ascontiguousarray(column), weights.middle) for column in matrix.T]
    spread = weights.radius @ np.abs(matrix) * SLACK
    return Ball(np.array([value for value, _ in sums]), np.array([error for _, error in sums]) + spread)


def column_norms(matrix: Vector, squares: Vector | None = None) -> Vector:
    """Bounds of the lengths of the columns; infinite where their squares overflow.

    `squares` are the sums of squares as computed in whatever order, where they are known.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->j", matrix, matrix) if squares is None else squares
        squares = squares * (1.0 + gamma(matrix.shape[0]))
    return np.asarray(np.sqrt(squares + matrix.shape[0] * TINY) * SLACK)


def length(values: Vector) -> float:
    """A bound of the Euclidean length."""
    with np.errstate(over="ignore"):
        return math.sqrt(float(values @ values) * (1.0 + gamma(values.size)) + values.size * TINY) * SLACK


def is_double(array: Any) -> bool:
    """Whether the entries of an array, dense or sparse, are numbers of double precision, whatever they are kept in."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    entries = array.data if hasattr(array, "nnz") else array  # of a sparse one
    if kind == "f" and size > 8:
        return bool(np.array_equal(entries, entries.astype(np.float64)))
    if kind not in "iu" or size <= 4:
        return kind in "biuf"
    return array.size == 0 or max(abs(int(entries.min(initial=0))), int(entries.max(initial=0))) <= 2**53


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """The rounded sum and its error, exactly [Knuth]."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """The rounded product and its error, short of under- and overflow [Dekker]."""
    product = a * b
    (high, low), (top, rest) = _halves(a), _halves(b)
    return product, ((high * top - product) + high * rest + low * top) + low * rest


def _halves(a: Any) -> tuple[Any, Any]:
    """A number as the sum of two of half as many bits [Veltkamp]."""
    carried = (2.0**27 + 1.0) * a
    high = carried - (carried - a)
    return high, a - high


def exact_sum(a: Vector, b: Vector) -> Vector | None:
    """The sum of two arrays where no entry of it is rounded, else None."""
    with np.errstate(over="ignore", invalid="ignore"):
        s, error = two_sum(a, b)
    return None if np.any(error != 0.0) or not np.all(np.isfinite(s)) else np.asarray(s)


def is_exact_product(factor: float, values: Vector) -> bool:
    """Whether a whole number times an array is exact: its entries have as many trailing zero bits as that takes."""
    if factor == 0.0 or np.frexp(abs(factor))[0] == 0.5:  # a power of two, short of under- and overflow
        product = factor * values
        return bool(np.all(np.isfinite(product)) and np.all((product != 0.0) | (values == 0.0) | (factor == 0.0)))
    bits = int(abs(factor)).bit_length()
    mantissa = np.abs(np.frexp(values)[0]) * 2.0**53  # whole numbers
    return float(factor).is_integer() and bits < 50 and bool(np.all(np.fmod(mantissa, 2.0**bits) == 0.0))


def equal_products(a: Vector, c: float, b: Vector, d: float) -> bool:
    """Whether ``a c = b d`` entry by entry, exactly [Dekker's product, in two parts that do not overlap]."""
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = two_product(a, np.float64(c)), two_product(b, np.float64(d))
        sizes = np.abs(first[0])
        safe = np.all((sizes < 2.0**900) & ((sizes > 2.0**-900) | ((a == 0.0) & (b == 0.0))))
        return bool(safe and all(np.array_equal(x, y) for x, y in zip(first, second, strict=True)))


def exact_pair(a: float, b: float) -> tuple[float, float]:
    """The rounded sum of two numbers and its error; of sums that overflow none is told."""
    s, error = two_sum(a, b)
    return s, error if math.isfinite(error) else 0.0


def exact_product(a: Any, b: Any) -> tuple[Any, Any]:
    """The rounded product and its error, which is not told where parts of it under- or overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        product, error = two_product(np.float64(a), np.float64(b))
        error = np.where(np.isfinite(error), error, 0.0)
    return (product, error) if np.ndim(product) else (float(product), float(error))


def difference_is_zero(pairs: Any) -> bool:
    """Whether ``sum a_i b_i`` of a few numbers is zero, exactly."""
    from fractions import Fraction  # slow to load, and seldom needed

    return sum((Fraction(float(a)) * Fraction(float(b)) for a, b in pairs), Fraction(0)) == 0


class NearlySingular(np.linalg.LinAlgError):
    """Rounding hides whether a matrix is regular."""


def inverse_size(sizes: Vector) -> Vector:
    """Powers of two near the inverses of numbers; one for zero."""
    return np.where(sizes > 0.0, np.ldexp(1.0, -np.frexp(sizes)[1]), 1.0)


def enclosed_solution(system: Ball, right: Ball) -> Ball:
    """The solution m of ``M'm = b`` for every matrix and right-hand side of the enclosures."""
    # Equations and unknowns of size one, by powers of two: what is solved does not depend on units.
    scale = inverse_size(np.max(np.abs(system.middle), axis=0))
    unit = inverse_size(np.max(np.abs(system.middle) * scale, axis=1))
    middle, radius = ((unit[:, None] * part * scale).T for part in (system.middle, system.radius))
    wanted, spread = scale * right.middle, scale * right.radius
    size = len(unit)
    inverse = np.linalg.inv(middle)
    solution = inverse @ wanted
    solution += inverse @ (wanted - middle @ solution)
    rounding = gamma(size + 3)
    bulk = np.abs(inverse) @ np.abs(middle)
    distance = np.abs(np.eye(size) - inverse @ middle) + 2.0 * rounding * bulk + np.abs(inverse) @ radius
    norm = float(distance.sum(axis=1).max()) * SLACK
    if not norm < 0.5:
        raise NearlySingular("the columns are nearly dependent.")
    left = np.abs(wanted - middle @ solution) + rounding * (np.abs(middle) @ np.abs(solution) + np.abs(wanted))
    left += spread + radius @ np.abs(solution) + size * TINY
    first = np.abs(inverse) @ left * SLACK
    # |x - y| <= |R d| + |I - RM| |x - y|, and |x - y| <= max |R d| / (1 - norm) in the second place.
    error = first + distance.sum(axis=1) * float(first.max(initial=0.0)) / (1.0 - norm)
    return Ball(unit * solution, unit * error * SLACK)
