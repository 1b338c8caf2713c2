"""Matrices, dense, banded or sparse: sums, bands, and equations with positive definite ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import TimeUp, tick
from varopt._threads import all_threads

__all__ = [
    "InverseEnergy",
    "absolute_sum",
    "add",
    "as_dense",
    "cholesky",
    "column_exponents",
    "diagonal_matrix",
    "factorised",
    "factorised_sparse",
    "is_diagonal",
    "row_bandwidth",
    "solve_definite",
]

Vector = NDArray[np.float64]

_SHORT = 4096  # numbers up to which a call costs more than they do
_LONG = 500  # rows beyond which a factor takes so long that the clock is asked first
_BAND = 64  # widest band that is factorised as such
_SCALING_ROUNDS = 20  # of rows and columns in turn
_SCALED = 0.5  # of a power of two, by which a unit may yet change
_MARGIN = 1e-9  # eigenvalues of a matrix of unit diagonal that are known to be larger are safely positive


def absolute_sum(vector: Vector) -> float:
    """The sum of absolute values: of short vectors in a tenth of the time that NumPy's two calls take."""
    if 0 < vector.size <= _SHORT:
        return float(scipy.linalg.blas.dasum(vector))
    return float(np.add.reduce(np.abs(vector)))


def diagonal_matrix(diagonal: Vector) -> Any:
    """A sparse matrix of a diagonal: what `scipy.sparse.diags_array` makes, by fewer questions."""
    return sp.dia_array((diagonal[None, :], [0]), shape=(diagonal.size, diagonal.size))


def solve_definite(matrix: Any, rhs: Vector) -> Vector:
    """Solve with a positive semidefinite matrix, dense, banded or sparse; with a small ridge where it is singular."""
    if matrix is None:
        return np.zeros_like(rhs)
    scale = float(np.abs(matrix.diagonal()).mean()) or 1.0
    solvers = {True: _solve_sparse, False: _solve_dense}
    for ridge in (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4):
        try:
            return solvers[bool(sp.issparse(matrix))](matrix, rhs, ridge * scale)
        except np.linalg.LinAlgError:
            continue
    return rhs / scale


def cholesky(matrix: Vector, *, overwrite: bool = False) -> tuple[Vector, bool]:
    """A Cholesky factor, for `scipy.linalg.cho_solve`; `LinAlgError` where the matrix is not positive definite."""
    with all_threads("scipy", matrix.shape[0] ** 3 / 3):
        factor: tuple[Vector, bool] = scipy.linalg.cho_factor(
            matrix, lower=True, overwrite_a=overwrite, check_finite=False
        )
    return factor


def factorised(matrix: Vector) -> Any:
    """A Cholesky factor, or None where the matrix is singular or nearly so."""
    try:
        factor = cholesky(matrix)
    except np.linalg.LinAlgError:
        return None
    pivots = np.diagonal(factor[0])
    return factor if pivots.min(initial=1.0) > 1e-6 * pivots.max(initial=1.0) else None


def _solve_dense(matrix: Vector, rhs: Vector, ridge: float) -> Vector:
    if matrix.shape[0] > _LONG:
        tick(float(matrix.shape[0]) ** 3 / 3.0)
    shifted = matrix if ridge == 0.0 else matrix + ridge * np.eye(matrix.shape[0])
    factor = cholesky(shifted)
    return np.asarray(scipy.linalg.cho_solve(factor, rhs, check_finite=False))


def _solve_sparse(matrix: Any, rhs: Vector, ridge: float) -> Vector:
    return np.asarray(factorised_sparse(matrix + ridge * sp.eye_array(matrix.shape[0]))(rhs))


def factorised_sparse(matrix: Any) -> Callable[[Vector], Vector]:
    """A solver for a sparse symmetric matrix, banded where it is; `LinAlgError` where it is not positive definite."""
    band = as_band(matrix)
    if band is not None:
        factor = scipy.linalg.cholesky_banded(band, lower=True, overwrite_ab=True, check_finite=False)
        return lambda rhs: np.asarray(scipy.linalg.cho_solve_banded((factor, True), rhs, check_finite=False))
    from scipy.sparse.linalg import splu

    _tick_before_factor(matrix)
    try:
        # In a symmetric order and without pivoting these are Cholesky's pivots: positive just if the matrix is.
        factors = splu(
            sp.csc_matrix(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError as error:  # exactly singular
        raise np.linalg.LinAlgError(str(error)) from None
    if not (np.array_equal(factors.perm_r, factors.perm_c) and np.all(factors.U.diagonal() > 0.0)):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return lambda rhs: np.asarray(factors.solve(rhs))


def _tick_before_factor(matrix: Any) -> None:
    """Look at the clock before what cannot look at it: were the factor full, and if that is too much, as it may be.

    No order that a factorisation chooses is much worse than that of Cuthill and McKee, in which row i has at most
    the entries from its first one on.
    """
    size = matrix.shape[0]
    try:
        tick(float(size) ** 3 / 6.0)
    except TimeUp:
        pattern = sp.csr_matrix(matrix)
        tick(float(pattern.nnz))
        order = np.empty(size, dtype=np.intp)
        order[sp.csgraph.reverse_cuthill_mckee(pattern, symmetric_mode=True)] = np.arange(size)
        entries = pattern.tocoo()
        first = np.arange(size)
        np.minimum.at(first, order[entries.row], order[entries.col])
        tick(float(np.sum((np.arange(size) - first) ** 2.0)) / 2.0)


def as_band(matrix: Any) -> Vector | None:
    """The lower band of a symmetric sparse matrix, or None where it is too wide to be treated as one."""
    if matrix.format == "dia":
        matrix = matrix.tocsr()
    entries = matrix.tocoo()
    width = int(np.max(np.abs(entries.row - entries.col), initial=0))
    if width > _BAND:
        return None
    band = np.zeros((width + 1, matrix.shape[0]))
    for k in range(width + 1):
        diagonal = matrix.diagonal(-k)
        band[k, : diagonal.size] = diagonal
    return band


class InverseEnergy:
    """``r'H^{-1}r`` on the variables where H is safely positive definite; one factor for all r.

    Parameters
    ----------
    hessian : array, sparse array or None
        Positive semidefinite; None for zero.
    """

    def __init__(self, hessian: Any) -> None:
        self.hessian = hessian
        self.diagonal = np.zeros(0) if hessian is None else np.asarray(hessian.diagonal())
        self.curved = self.diagonal > 0.0

    def __call__(self, residual: Vector) -> tuple[float, NDArray[np.bool_]]:
        """The energy, and which variables it leaves out."""
        everything = np.ones(residual.size, dtype=bool)
        if self.hessian is None or not self.curved.any():
            return 0.0, everything
        curved, diagonal = self.curved, self.diagonal
        # A zero on the diagonal of a positive semidefinite matrix makes row and column zero.
        if sp.issparse(self.hessian) and self.hessian.nnz <= np.count_nonzero(curved):
            return float(residual @ np.divide(residual, diagonal, out=np.zeros(residual.size), where=curved)), ~curved
        if self._unit_energy is None:
            return 0.0, everything
        return self._unit_energy(residual[curved] / np.sqrt(diagonal[curved])), ~curved

    @cached_property
    def _unit_energy(self) -> Callable[[Vector], float] | None:
        """The energy by the matrix scaled to a diagonal of ones; None where it may be singular."""
        hessian, part = self.hessian, np.flatnonzero(self.curved)
        if part.size < self.curved.size:
            hessian = sp.csr_array(hessian)[part][:, part] if sp.issparse(hessian) else hessian[np.ix_(part, part)]
        scale = 1.0 / np.sqrt(self.diagonal[part])
        if sp.issparse(hessian):
            return _sparse_energy(sp.csr_array(hessian), scale)
        tick(float(part.size) ** 3 / 3.0)
        factor = factorised(scale[:, None] * hessian * scale)
        if factor is None:
            return None
        return lambda r: float(r @ scipy.linalg.cho_solve(factor, r, check_finite=False))


def _sparse_energy(matrix: Any, scale: Vector) -> Callable[[Vector], float] | None:
    r"""An upper bound on ``r'U^{-1}r``, U a sparse matrix scaled to a unit diagonal; None where it may be singular.

    Where ``U - margin I`` has a Cholesky factor, no eigenvalue of U is below the margin, up to rounding that is far
    smaller than it. For whatever y then ``r'U^{-1}r <= 2 r'y - y'Uy + |r - Uy|^2 / margin``.
    """
    rows = np.repeat(np.arange(scale.size), np.diff(matrix.indptr))
    entries = scale[rows] * matrix.data * scale[matrix.indices]
    unit, less = (
        sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
        for data in (entries, entries - _MARGIN * (rows == matrix.indices))
    )
    try:
        solve = factorised_sparse(less)
    except np.linalg.LinAlgError:
        return None

    def energy(residual: Vector) -> float:
        y = solve(residual)
        product = unit @ y
        missing = residual - product
        return max(float(2.0 * (residual @ y) - y @ product + missing @ missing / _MARGIN), 0.0)

    return energy


def add(a: Any, b: Any) -> Any:
    """The sum of two matrices, dense or sparse; None is zero."""
    if a is None:
        return b
    if sp.issparse(a) and sp.issparse(b):
        return a + b
    if (diagonal := _only_diagonal(b)) is not None:  # as of single variables
        total = np.array(a, dtype=np.float64)
        total[np.diag_indices(len(total))] += diagonal
        return total
    return as_dense(a) + as_dense(b)


def as_dense(matrix: Any) -> Vector:
    """A sparse matrix or an array as an array."""
    if (diagonal := _only_diagonal(matrix)) is not None:  # which SciPy takes by way of two other formats
        return np.diag(diagonal)
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def _only_diagonal(matrix: Any) -> Vector | None:
    """The diagonal, where a square sparse matrix is stored as nothing else."""
    if not sp.issparse(matrix) or matrix.format != "dia" or matrix.shape[0] != matrix.shape[1]:
        return None
    return np.asarray(matrix.data[0, : matrix.shape[0]]) if matrix.offsets.tolist() == [0] else None


def row_bandwidth(a: Any) -> int:
    """The largest distance between two variables of a row."""
    if a.nnz == 0:
        return 0
    filled = a.indptr[:-1][np.diff(a.indptr) > 0]
    return int(np.max(np.maximum.reduceat(a.indices, filled) - np.minimum.reduceat(a.indices, filled)))


def is_diagonal(matrix: Any) -> bool:
    """Whether a matrix, or None for zero, has nothing beside its diagonal."""
    if matrix is None:
        return True
    if not sp.issparse(matrix):
        return bool(np.count_nonzero(matrix) == np.count_nonzero(np.diagonal(matrix)))
    entries = sp.coo_array(matrix)
    return bool(np.all((entries.row == entries.col) | (entries.data == 0.0)))


def column_exponents(matrix: Any) -> Vector:
    """Powers of two that are the units of columns: their exponents. Rows with one entry do not tell.

    Times r_i and s_j for which ``sum (log |a_ij| + log r_i + log s_j)^2`` is least, a matrix is the same whatever the
    units are that its rows and columns are in [CurtisReid72].
    """
    entries = sp.coo_array(matrix)
    telling = (entries.data != 0.0) & (np.bincount(entries.row, minlength=matrix.shape[0])[entries.row] > 1)
    row, column, size = entries.row[telling], entries.col[telling], np.log2(np.abs(entries.data[telling]))
    of_rows = np.maximum(np.bincount(row, minlength=matrix.shape[0]), 1)
    of_columns = np.maximum(np.bincount(column, minlength=matrix.shape[1]), 1)
    exponents: Vector = np.zeros(matrix.shape[1])
    for _ in range(_SCALING_ROUNDS):
        rows = np.bincount(row, size + exponents[column], minlength=matrix.shape[0]) / of_rows
        last, exponents = exponents, np.bincount(column, rows[row] - size, minlength=matrix.shape[1]) / of_columns
        if np.abs(exponents - last).max(initial=0.0) <= _SCALED:
            break
    return np.asarray(np.round(exponents), dtype=np.float64)
