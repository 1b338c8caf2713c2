r"""Units in which variables of constraints compare with each other.

Times r_i and s_j for which ``sum (log |a_ij| + log r_i + log s_j)^2`` is least, a matrix is the same whatever the units
are that its rows and columns are in [CurtisReid72].
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["column_exponents", "largest_tied"]

Vector = NDArray[np.float64]

_SCALING_ROUNDS = 20  # of rows and columns in turn
_SCALED = 0.5  # of a power of two, by which a unit may yet change


def column_exponents(matrix: sp.csr_array) -> Vector:
    """Powers of two that are the units of columns: their exponents. Rows with one entry do not tell."""
    entries = matrix.tocoo()
    telling = (entries.data != 0.0) & (np.diff(matrix.indptr)[entries.row] > 1)
    row, column, size = entries.row[telling], entries.col[telling], np.log2(np.abs(entries.data[telling]))
    of_rows = np.maximum(np.bincount(row, minlength=matrix.shape[0]), 1)
    of_columns = np.maximum(np.bincount(column, minlength=matrix.shape[1]), 1)
    exponents = np.zeros(matrix.shape[1])
    for _ in range(_SCALING_ROUNDS):
        rows = np.bincount(row, size + exponents[column], minlength=matrix.shape[0]) / of_rows
        last, exponents = exponents, np.bincount(column, rows[row] - size, minlength=matrix.shape[1]) / of_columns
        if np.abs(exponents - last).max(initial=0.0) <= _SCALED:
            break
    return np.round(exponents)


def largest_tied(x: Vector, tied: NDArray[np.intp], exponents: Vector) -> Vector:
    """The largest coordinate among those that each is tied to, in the unit of each."""
    with np.errstate(divide="ignore", over="ignore"):
        sizes = np.log2(np.abs(x)) - exponents
        largest = np.full(tied.max(initial=0) + 1, -np.inf)
        np.maximum.at(largest, tied, sizes)
        return np.asarray(np.exp2(largest[tied] + exponents))
