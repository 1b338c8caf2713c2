r"""Newton's equations of rows with curvature, of which only some have any [LST18].

With B the curvatures they are

    (I + A'BA) d = -g.                                                                                              (1)

They are solved in the smaller of two spaces: that of the variables where these are few, or that of the active rows,

    (1 / B + A A') q = -A g,        d = -g - A'q.                                                                   (2)

Where both are large, or the equations are well conditioned, by conjugate gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import solve_definite
from varopt.solvers.augmented_lagrangian._augmented_lagrangian import AugmentedLagrangian, at

__all__ = ["ActiveRows"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

_PRIMAL_VARIABLES = 3000  # up to which their matrix is formed
_DENSE_ROWS = 2048  # at a time for it
_DUAL_ROWS, _KNOWN = 3000, 4000  # active rows up to which the matrix of their products is formed, and how many are kept
# Nanoseconds of a product in a dense and in a sparse matrix, and of a step of conjugate gradients for each entry of the
# rows, each variable, and in any case: only how they compare matters. Three times more or less of a product or an entry
# changes the time of support vector machines of 4,000 x 800 with 1 % of the entries by less than a tenth.
_FLOP, _PRODUCT, _ENTRY, _VARIABLE, _CALL = 0.05, 5.0, 2.5, 6.0, 5e4
# Of conjugate gradients: the relative residual, and the steps they may take, at least and at most.
_INEXACT, _FEWEST_CG_STEPS, _MOST_CG_STEPS = 0.1, 5, 500
_HELD_SHARE = 1e-6  # of the most curvature that rows can give a variable below which they do not hold it


class ActiveRows:
    """Steps for rows with curvature beside a ridge.

    Memory: the square of the variables, where they are few, or of the rows that were ever active.
    """

    def __init__(self, rows: AugmentedLagrangian) -> None:
        self.rows = rows
        self.ill_conditioned = False  # whether conjugate gradients are no longer worth trying
        self.known = np.zeros(0, dtype=np.intp)  # rows whose products are known,
        self.place = np.full(rows.count, -1)  # where, and what they are
        self.products = np.zeros((0, 0))

    def step(self, index: Index, curvature: Vector, gradient: Vector, most: Vector) -> Vector:
        """Newton's step for curvatures of the rows in `index`.

        `most` is the curvature of the variables of dense columns if every row were active.
        """
        active = np.flatnonzero(curvature > 0.0)
        index, curvature = index[active], curvature[active] * np.square(at(self.rows.scale, index[active]))
        rows, dense = self.rows.matrix[index], self.rows.dense[index]
        held = self.rows.dense_curvature + np.square(dense).T @ curvature
        ridge = self.rows.dense_curvature + np.where(held > _HELD_SHARE * most, 1e-13, 1.0) * most  # none: a small step
        if not index.size:
            return np.concatenate([-gradient[: rows.shape[1]], -gradient[rows.shape[1] :] / np.maximum(ridge, 1e-300)])
        primal, dual, each = _costs(rows)
        tries = min(min(primal, dual) / each, _MOST_CG_STEPS)
        if (tries >= _FEWEST_CG_STEPS and not self.ill_conditioned) or min(primal, dual) == np.inf:
            step, close = _conjugate_gradients(rows, dense, curvature, gradient, ridge, int(tries))
            if close or min(primal, dual) == np.inf:
                return step
            self.ill_conditioned = True
        if primal < dual:
            return _primal(rows, dense, curvature, gradient, ridge)
        return self._dual(index, rows, dense, curvature, gradient, ridge)

    def _dual(
        self, index: Index, rows: Any, dense: Vector, curvature: Vector, gradient: Vector, ridge: Vector
    ) -> Vector:
        """(2), with the variables of dense columns eliminated last."""
        m, matrix = rows.shape[1], self._gram(index)
        matrix.flat[:: index.size + 1] += 1.0 / curvature
        solved = solve_definite(matrix, np.column_stack([-(rows @ gradient[:m]), dense]))
        q, held = solved[:, 0], solved[:, 1:]
        b = np.linalg.lstsq(dense.T @ held + np.diag(ridge), -gradient[m:] - dense.T @ q, rcond=1e-13)[0]
        return np.concatenate([-gradient[:m] - rows.T @ (q + held @ b), b])

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
    primal = _FLOP * (n * m**2 + m**3 / 3) if m <= _PRIMAL_VARIABLES else np.inf
    dual = _PRODUCT * float(shared @ shared) + _FLOP * n**3 / 3 if n <= _DUAL_ROWS else np.inf
    return primal, dual, _ENTRY * rows.nnz + _VARIABLE * m + _CALL


def _primal(rows: Any, dense: Vector, curvature: Vector, gradient: Vector, ridge: Vector) -> Vector:
    """(1), formed."""
    m = rows.shape[1]
    root, matrix = np.sqrt(curvature), np.zeros((gradient.size, gradient.size), order="F")
    inner = np.zeros((m, m), order="F")
    for start in range(0, rows.shape[0] if m else 0, _DENSE_ROWS):  # BLAS takes no empty matrix
        block = rows[start : start + _DENSE_ROWS].toarray()
        block *= root[start : start + _DENSE_ROWS, None]
        inner = scipy.linalg.blas.dsyrk(1.0, block.T, beta=1.0, c=inner, lower=1, overwrite_c=1)
    inner.flat[:: m + 1] += 1.0
    weighted = curvature[:, None] * dense
    matrix[:m, :m], matrix[m:, :m] = inner, (rows.T @ weighted).T
    matrix[m:, m:] = dense.T @ weighted + np.diag(ridge)
    return solve_definite(matrix, -gradient)


def _conjugate_gradients(
    rows: Any, dense: Vector, curvature: Vector, gradient: Vector, ridge: Vector, most: int
) -> tuple[Vector, bool]:
    """(1) by conjugate gradients, and whether they came close."""
    m, transpose, columns = rows.shape[1], rows.T, dense.T
    squares = np.square(rows.data) * np.repeat(curvature, np.diff(rows.indptr))
    diagonal = np.concatenate([np.bincount(rows.indices, squares, m) + 1.0, np.square(columns) @ curvature + ridge])
    x, residual = np.zeros(gradient.size), -gradient
    g = residual / diagonal
    p, rho = g, float(residual @ g)
    target = _INEXACT**2 * rho
    if not rho > 0.0:
        return x, True
    for _ in range(most):
        tick()
        weighted = rows @ p[:m]
        weighted += dense @ p[m:]
        weighted *= curvature
        image = p.copy()
        image[:m] += transpose @ weighted
        image[m:] = columns @ weighted + ridge * p[m:]
        length = rho / float(p @ image)
        x += length * p
        residual = residual - length * image
        g = residual / diagonal
        before, rho = rho, float(residual @ g)
        if not rho > target:
            return x, True
        p = g + (rho / before) * p
    return x, False
