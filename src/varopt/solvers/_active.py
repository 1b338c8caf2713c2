r"""Newton's equations ``(I + A'BA) d = -g`` of rows with curvature B, of which only some have any.

They are solved in the smaller of two spaces: that of the variables where these are few, or that of the active rows,

    (1 / B + A A') q = -A g,        d = -g - A'q.

Where both are large, or the equations are well conditioned, by conjugate gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.solvers._definite import solve_definite
from varopt.solvers._envelope import Envelope, at

__all__ = ["ActiveRows"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_LARGE = 3000  # variables up to which their matrix is formed
_BLOCK = 2048  # rows made dense at a time for it
_MOST, _KNOWN = 3000, 4000  # active rows up to which the matrix of their products is formed, and how many are kept
# Nanoseconds of a product in a dense and in a sparse matrix, and of a step of conjugate gradients for each entry of the
# rows, each variable, and in any case: only how they compare matters.
_FLOP, _PRODUCT, _ENTRY, _VARIABLE, _CALL = 0.05, 5.0, 2.5, 6.0, 5e4
_CLOSE, _FEWEST, _TRIES = 0.1, 5, 500  # relative residual, and the steps it may take
_HELD = 1e-6  # share of the most curvature that rows can give a variable below which they do not hold it


class ActiveRows:
    """Steps for rows with curvature beside a ridge.

    Memory: the square of the variables, where they are few, or of the rows that were ever active.
    """

    def __init__(self, rows: Envelope) -> None:
        self.rows = rows
        self.stiff = False  # whether conjugate gradients are no longer worth trying
        self.known = np.zeros(0, dtype=np.intp)  # rows whose products are known,
        self.place = np.full(rows.count, -1)  # where, and what they are
        self.products = np.zeros((0, 0))

    def step(self, index: Index, bend: Vector, slope: Vector, most: Vector) -> Vector:
        """Newton's step for curvatures of the rows in `index`.

        `most` is the curvature of the variables of dense columns if every row were active.
        """
        active = np.flatnonzero(bend > 0.0)
        index, bend = index[active], bend[active] * np.square(at(self.rows.scale, index[active]))
        rows, dense = self.rows.matrix[index], self.rows.dense[index]
        held = self.rows.curvature + np.square(dense).T @ bend
        ridge = self.rows.curvature + np.where(held > _HELD * most, 1e-13, 1.0) * most  # a small step where none holds
        if not index.size:
            return np.concatenate([-slope[: rows.shape[1]], -slope[rows.shape[1] :] / np.maximum(ridge, 1e-300)])
        primal, dual, gradients = _costs(rows)
        tries = min(min(primal, dual) / gradients, _TRIES)
        if (tries >= _FEWEST and not self.stiff) or min(primal, dual) == np.inf:
            step, close = _gradients(rows, dense, bend, slope, ridge, int(tries))
            if close or min(primal, dual) == np.inf:
                return step
            self.stiff = True
        if primal < dual:
            return _primal(rows, dense, bend, slope, ridge)
        return self._dual(index, rows, dense, bend, slope, ridge)

    def _dual(self, index: Index, rows: Any, dense: Vector, bend: Vector, slope: Vector, ridge: Vector) -> Vector:
        m, matrix = rows.shape[1], self._gram(index)
        matrix.flat[:: index.size + 1] += 1.0 / bend
        solved = solve_definite(matrix, np.column_stack([-(rows @ slope[:m]), dense]))
        q, held = solved[:, 0], solved[:, 1:]
        b = np.linalg.lstsq(dense.T @ held + np.diag(ridge), -slope[m:] - dense.T @ q, rcond=1e-13)[0]
        return np.concatenate([-slope[:m] - rows.T @ (q + held @ b), b])

    def _gram(self, index: Index) -> Vector:
        """The products of the given rows, from those known so far and those that are new."""
        new = index[self.place[index] < 0]
        if new.size:
            if self.known.size + new.size > _KNOWN:
                self.place[self.known], self.known, self.products, new = -1, new[:0], np.zeros((0, 0)), index
            count = self.known.size
            self.known = np.concatenate([self.known, new])
            self.place[new] = np.arange(count, self.known.size)
            block = (self.rows.matrix[self.known] @ self.rows.matrix[new].T.tocsr()).toarray()
            grown = np.empty((self.known.size, self.known.size))
            grown[:count, :count], grown[:, count:], grown[count:, :count] = self.products, block, block[:count].T
            self.products = grown
        place = self.place[index]
        return np.asarray(self.products[np.ix_(place, place)])


def _costs(rows: Any) -> tuple[float, float, float]:
    """Of the matrix of the variables, of that of the rows, and of a step of conjugate gradients."""
    n, m = rows.shape
    shared = np.bincount(rows.indices, minlength=m).astype(np.float64)
    primal = _FLOP * (n * m**2 + m**3 / 3) if m <= _LARGE else np.inf
    dual = _PRODUCT * float(shared @ shared) + _FLOP * n**3 / 3 if n <= _MOST else np.inf
    return primal, dual, _ENTRY * rows.nnz + _VARIABLE * m + _CALL


def _primal(rows: Any, dense: Vector, bend: Vector, slope: Vector, ridge: Vector) -> Vector:
    m = rows.shape[1]
    root, matrix = np.sqrt(bend), np.zeros((slope.size, slope.size), order="F")
    inner = np.zeros((m, m), order="F")
    for start in range(0, rows.shape[0], _BLOCK):
        block = rows[start : start + _BLOCK].toarray()
        block *= root[start : start + _BLOCK, None]
        inner = scipy.linalg.blas.dsyrk(1.0, block.T, beta=1.0, c=inner, lower=1, overwrite_c=1)
    inner.flat[:: m + 1] += 1.0
    weighted = bend[:, None] * dense
    matrix[:m, :m], matrix[m:, :m] = inner, (rows.T @ weighted).T
    matrix[m:, m:] = dense.T @ weighted + np.diag(ridge)
    return solve_definite(matrix, -slope)


def _gradients(rows: Any, dense: Vector, bend: Vector, slope: Vector, ridge: Vector, most: int) -> tuple[Vector, bool]:
    """Conjugate gradients, and whether they came close."""
    m, transpose, columns = rows.shape[1], rows.T, dense.T
    squares = np.square(rows.data) * np.repeat(bend, np.diff(rows.indptr))
    diagonal = np.concatenate([np.bincount(rows.indices, squares, m) + 1.0, np.square(columns) @ bend + ridge])
    x, residual = np.zeros(slope.size), -slope
    g = residual / diagonal
    p, rho = g, float(residual @ g)
    target = _CLOSE**2 * rho
    for _ in range(most):
        force = rows @ p[:m]
        force += dense @ p[m:]
        force *= bend
        bent = p.copy()
        bent[:m] += transpose @ force
        bent[m:] = columns @ force + ridge * p[m:]
        length = rho / float(p @ bent)
        x += length * p
        residual = residual - length * bent
        g = residual / diagonal
        before, rho = rho, float(residual @ g)
        if not rho > target:
            return x, True
        p = g + (rho / before) * p
    return x, False
