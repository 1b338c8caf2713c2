"""What coefficients lose to rounding on the way from the user's numbers: zero only where it is known to be nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import SLACK, UNIT, denominator, gamma, is_double

__all__ = [
    "added_rounding",
    "doubles",
    "exact_grid",
    "lost_by_adding",
    "lost_by_converting",
    "lost_in_pairs",
    "lost_of_repeated",
]

Vector = NDArray[np.float64]

_EXACT = 2.0**52  # whole numbers below it, and their halves, are exact


def exact_grid(parts: Iterable[Any], multiple: float = 1.0) -> float:
    """The `denominator` of numbers whose sums are exact in whatever order, of `multiple` times as many too; else 0."""
    finest, size = 1.0, 0.0
    for part in parts:
        finest = max(finest, denominator(part))
        size += float(np.abs(part).sum(dtype=np.float64))
        if not finest * multiple * size < _EXACT:
            return 0.0
    return finest


def added_rounding(parts: Iterable[Any], additions: float, multiple: float = 1.0, finer: float = 1.0) -> float:
    """A bound of what sums of so many of these numbers may lose together, where each is in them `multiple` times.

    Nothing where they are whole numbers, or halves to eighths, and not too large; the sums may lie on a grid that is
    `finer`.
    """
    listed = [np.asarray(part) for part in parts]
    if exact_grid(listed, multiple * finer):
        return 0.0
    size = math.fsum(float(np.abs(part).sum(dtype=np.float64)) for part in listed)
    return gamma(additions) * multiple * size * SLACK


def doubles(numbers: Iterable[Any]) -> tuple[Vector, float]:
    """Single numbers in double precision, and what they lose by it: large whole numbers do, and fractions."""
    given = [number.item() if isinstance(number, np.generic) else number for number in numbers]
    converted = [float(+number) for number in given]  # texts are no numbers, though `float` reads them
    rounded = math.fsum(abs(a) for a, b in zip(converted, given, strict=True) if a != b)
    return np.array(converted), UNIT * rounded * SLACK


def lost_by_converting(array: Any) -> float:
    """The same of the entries of an array, dense or sparse: nothing where double precision holds them."""
    if is_double(array):
        return 0.0
    entries = array.data if sp.issparse(array) else array
    return UNIT * float(np.abs(entries.astype(np.float64)).sum()) * SLACK


def lost_of_repeated(entries: Vector, rows: Any, columns: Any, size: int) -> float:
    """What entries of a square matrix lose where those in one place are added up."""
    counts = np.unique(np.asarray(rows, dtype=np.int64) * size + columns, return_counts=True)[1]
    most = int(counts.max(initial=1))
    return added_rounding([entries], most) if most > 1 else 0.0


def lost_by_adding(a: Vector, b: Vector) -> float:
    """The sizes of the roundings of ``a + b``, entry by entry, added up [Knuth 1997, section 4.2.2, theorem B]."""
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that large are refused elsewhere
        total = a + b
        part = total - a
        return float(np.abs((a - (total - part)) + (b - part)).sum()) * SLACK


def lost_in_pairs(half: Any) -> float:
    """What a sparse ``M + M'`` loses, pair by pair: nothing where each pair stands once, or twice alike."""
    above, below = sp.coo_array(sp.triu(half, 1)), sp.coo_array(sp.tril(half, -1))
    if not (above.nnz and below.nnz):
        return 0.0
    n = half.shape[0]
    # Both by their place above the diagonal.
    first, second = above.row.astype(np.int64) * n + above.col, below.col.astype(np.int64) * n + below.row
    _, here, there = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return lost_by_adding(above.data[here], below.data[there])
