"""Whether a symmetric matrix is positive semidefinite: a proof, a counterexample, or neither."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified._arithmetic import SLACK, TINY, UNIT, gamma, is_double

__all__ = ["Definiteness", "definiteness", "is_semidefinite", "smallest_eigenvalue_bound"]

Vector = NDArray[np.float64]

_RATIONAL_ROWS = 24  # rows up to which a matrix that rounding hides is decided by rational arithmetic
_DENSE_ORDER = 1500  # rows up to which a sparse matrix without a narrow band is factorised as a dense one


class Definiteness(Enum):
    """What is known of ``x'Qx``; the value is the sentence that says it."""

    POSITIVE = "no x makes x'Qx negative"
    INDEFINITE = "some x makes x'Qx negative"
    UNKNOWN = "the smallest eigenvalue is zero up to rounding, on which side of zero is not known"


def definiteness(matrix: Any, *, rounded: bool = False) -> Definiteness:
    """Whether ``x'Qx`` can be negative, of the symmetric part of a dense or a sparse matrix.

    Proved by a Cholesky factor of Q minus the most that rounding can have changed in it [Rump 2006, *Verification of
    positive definiteness*], by dominant diagonals, or, where Q is small, by rational arithmetic; refuted by an x, with
    the rounding of ``x'Qx`` allowed for. Units do not matter: Q is brought to a diagonal of about one first, by powers
    of two, which is exact. The entries may have been `rounded` to double precision before.

    Examples
    --------
    >>> import numpy as np
    >>> [definiteness(np.diag(d)).name for d in ([1e8, 1e-7], [1e8, 0.0], [1e8, -1e-7])]
    ['POSITIVE', 'POSITIVE', 'INDEFINITE']
    """
    symmetric, added = _symmetric(matrix)
    rounding = 2.0 * UNIT * (int(rounded) + int(added))
    if not rounding and _is_dominant(symmetric):
        return Definiteness.POSITIVE
    scaled = _scaled(symmetric)
    if scaled is None:
        return Definiteness.INDEFINITE  # a negative diagonal entry, or a zero one beside others that are not
    if scaled.shape[0] == 0:
        return Definiteness.POSITIVE
    if smallest_eigenvalue_bound(scaled) > rounding * float(np.max(abs(scaled).sum(axis=1))):
        return Definiteness.POSITIVE
    if any(_is_negative(scaled, x) for x in _directions(scaled)):
        return Definiteness.INDEFINITE
    if not rounding and scaled.shape[0] <= _RATIONAL_ROWS and _is_semidefinite_exactly(_dense(scaled)):
        return Definiteness.POSITIVE
    return Definiteness.UNKNOWN


def _dense(matrix: Any) -> Vector:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)


def _symmetric(matrix: Any) -> tuple[Any, bool]:
    """``Q + Q'`` in double precision, and whether it is rounded."""
    given = sp.csr_array(matrix) if sp.issparse(matrix) else np.asarray(matrix)
    whole = given.astype(np.float64)
    differing = whole != whole.T
    is_symmetric = (differing.nnz if sp.issparse(differing) else np.count_nonzero(differing)) == 0
    converted = not is_double(given)
    return whole + whole.T, converted or not is_symmetric  # a number added to itself is exact


def _scaled(symmetric: Any) -> Any:
    """``D S D`` without rows of zeros, D powers of two; None where the diagonal shows a counterexample."""
    diagonal = np.asarray(symmetric.diagonal())
    if np.any(diagonal < 0.0):
        return None
    kept = np.flatnonzero(diagonal > 0.0)
    if kept.size < diagonal.size:
        flat = np.flatnonzero(diagonal == 0.0)
        beside = symmetric[flat]
        if (beside.count_nonzero() if sp.issparse(beside) else np.count_nonzero(beside)) > 0:
            return None  # x'Qx = 2 t q_ij + t^2 q_jj has both signs near t = 0
        symmetric = symmetric[kept][:, kept]
    # Exponents e with d = m 4^e, m in [1/4, 1): D = 2^-e. A product with a power of two is exact short of underflow,
    # and what underflows is below the shift of the factor by far.
    exponents = (np.frexp(diagonal[kept])[1] + 1) // 2
    factors = np.ldexp(1.0, -exponents)
    if sp.issparse(symmetric):
        return sp.csr_array(sp.diags_array(factors) @ symmetric @ sp.diags_array(factors))
    return factors[:, None] * symmetric * factors


def _is_dominant(matrix: Any) -> bool:
    """Whether every diagonal entry is at least the sum of the others in its row: of graph Laplacians it is equal."""
    diagonal = np.asarray(matrix.diagonal())
    sums = np.asarray(abs(matrix).sum(axis=1)).ravel()
    counts = np.diff(matrix.indptr) if sp.issparse(matrix) else np.full(diagonal.size, diagonal.size)
    rest = sums - diagonal
    if np.all(diagonal >= rest + 4.0 * np.maximum(counts, 2) * UNIT * sums):
        return True
    close = np.flatnonzero(diagonal < rest + 4.0 * np.maximum(counts, 2) * UNIT * sums)
    if np.any(diagonal[close] < rest[close] - 4.0 * np.maximum(counts[close], 2) * UNIT * sums[close]):
        return False
    entries = matrix.data if sp.issparse(matrix) else matrix
    if np.all(entries == np.round(entries)) and float(np.max(sums)) < 2.0**52:
        return bool(np.all(diagonal >= rest))  # sums of whole numbers are exact
    return all(_row_dominates(matrix, int(i), float(diagonal[i])) for i in close)


def _row_dominates(matrix: Any, i: int, diagonal: float) -> bool:
    row = matrix[[i]].data if sp.issparse(matrix) else matrix[i]
    # fsum rounds once, and correctly: its sign is that of the exact sum.
    return math.fsum([2.0 * diagonal, *(-np.abs(row)).tolist()]) >= 0.0


def smallest_eigenvalue_bound(matrix: Any, shares: Sequence[float] = ()) -> float:
    """A number that no eigenvalue of a symmetric matrix is below; minus infinity where no factor shows one.

    If a floating-point Cholesky factorisation of ``A - s I`` runs to its end, then
    ``A - s I >= -sum_i gamma_(k+1) a_ii / (1 - gamma)`` [Rump 2006, theorem 2.3], whatever the order of its sums; k is
    the largest number of entries in a row of the factor. Tried for s these shares of the mean diagonal entry, then for
    the smallest s that proves anything: twice that bound.
    """
    diagonal = np.asarray(matrix.diagonal(), dtype=np.float64)
    if not np.all(diagonal > 0.0):
        return -math.inf
    band = _band(matrix) if sp.issparse(matrix) else None
    if band is None and diagonal.size > _DENSE_ORDER and sp.issparse(matrix):
        return -math.inf
    share = gamma((diagonal.size if band is None else len(band)) + 2)
    trace = float(diagonal.sum()) * SLACK
    # Also of the subtraction, and of products that underflow.
    error = share / (1.0 - share) * trace + 2.0 * UNIT * float(diagonal.max()) + 4.0 * diagonal.size * TINY
    error *= SLACK
    mean = trace / diagonal.size
    for shift in (*(part * mean for part in shares if part * mean > 2.0 * error), 2.0 * error):
        if _has_factor(matrix, band, shift):
            return shift - error
    return -math.inf


def _has_factor(matrix: Any, band: Vector | None, shift: float) -> bool:
    """Whether a matrix less a multiple of the identity has a Cholesky factor, as computed."""
    try:
        with np.errstate(all="ignore"):
            if band is None:
                shifted = np.array(_dense(matrix))
                shifted.flat[:: shifted.shape[0] + 1] -= shift
                # In place, and without zeros in the other triangle: half of what NumPy's takes.
                factor, info = scipy.linalg.lapack.dpotrf(shifted.T, lower=0, clean=0, overwrite_a=1)
                if info:
                    return False
            else:
                shifted = np.vstack([band[:1] - shift, band[1:]])
                factor = scipy.linalg.cholesky_banded(shifted, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return bool(np.all(np.isfinite(factor)))


def _band(matrix: Any) -> Vector | None:
    """The lower band of a symmetric sparse matrix in an order that makes it narrow, or None where none does."""
    entries = sp.coo_array(matrix)
    row, column = entries.coords
    width = int(np.max(np.abs(row - column), initial=0))
    if width > _DENSE_ORDER:
        order = np.empty(matrix.shape[0], dtype=np.intp)
        order[sp.csgraph.reverse_cuthill_mckee(sp.csr_matrix(matrix), symmetric_mode=True)] = np.arange(matrix.shape[0])
        row, column = order[row], order[column]
        width = int(np.max(np.abs(row - column), initial=0))
        if width > _DENSE_ORDER or width * matrix.shape[0] > 1 << 25:
            return None
    band = np.zeros((width + 1, matrix.shape[0]))
    lower = row >= column
    np.add.at(band, ((row - column)[lower], column[lower]), entries.data[lower])
    return band


def _directions(matrix: Any) -> Iterator[Vector]:
    """Where ``x'Qx`` may be negative: near the eigenvector of the smallest eigenvalue, rounded more and more."""
    for vector in _lowest(matrix):
        unit = vector / float(np.abs(vector).max())
        yield from (vector, np.round(unit * 64.0), np.round(unit * 8.0))


def _lowest(matrix: Any) -> Iterator[Vector]:
    """Approximate eigenvectors of the smallest eigenvalue."""
    if matrix.shape[0] <= _DENSE_ORDER:
        yield scipy.linalg.eigh(_dense(matrix), subset_by_index=[0, 0])[1][:, 0]
        return
    from scipy.sparse.linalg import ArpackError, eigsh

    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    with contextlib.suppress(ArpackError):
        yield eigsh(matrix, k=1, which="SA", v0=start, maxiter=30, tol=1e-2)[1][:, 0]
    if sp.issparse(matrix):
        # The one nearest to a number below zero: where Lanczos' method sees a cluster at zero, its inverse does not.
        try:
            yield eigsh(sp.csc_matrix(matrix), k=1, sigma=-1e-3, v0=start, maxiter=10, tol=1e-3)[1][:, 0]
        except (ArpackError, RuntimeError):
            return


def _is_negative(matrix: Any, x: Vector) -> bool:
    """Whether ``x'Qx < 0`` for certain."""
    size = x.size
    image, sizes = matrix @ x, abs(matrix) @ np.abs(x)
    error = gamma(2 * size + 4) * float(np.abs(x) @ sizes) * SLACK + 8.0 * size * TINY
    return float(x @ image) < -error


def is_semidefinite(matrix: Sequence[Sequence[Any]]) -> bool:
    """Whether a symmetric matrix of rational numbers has no negative eigenvalue, by elimination."""
    rows = [list(row) for row in matrix]
    left = list(range(len(rows)))
    while left:
        pivot = max(left, key=lambda i: rows[i][i])
        if rows[pivot][pivot] <= 0:
            return all(rows[i][j] == 0 for i in left for j in left)
        left.remove(pivot)
        for i in left:
            share = rows[i][pivot] / rows[pivot][pivot]
            if share:
                for j in left:
                    rows[i][j] -= share * rows[pivot][j]
    return True


def _is_semidefinite_exactly(matrix: Vector) -> bool:
    from fractions import Fraction  # slow to load, and seldom needed

    return is_semidefinite([[Fraction(float(entry)) for entry in row] for row in matrix])
