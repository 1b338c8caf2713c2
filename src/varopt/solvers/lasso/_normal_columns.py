"""The matrix of squares of sparse rows by its columns: products, and equations by conjugate gradients.

The product of a sparse matrix with itself may be dense, and its Cholesky factor even where the product is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import is_diagonal, row_bandwidth
from varopt.composite import Composite, ridge_form

__all__ = ["Columns", "has_columns"]

Vector = NDArray[np.float64]

_NO_RESIDUAL = 1e-13  # share of the right-hand side at which a residual counts as none,
_SMALL_RESIDUAL, _IDLE_STEPS = 1e-10, 20  # and the same where so many steps have not halved it
_NARROW_BAND = 64  # widest band whose factors are cheap
_SINGULAR_AFTER = 500  # steps after which a matrix counts as singular


class Columns:
    """``A'A + diag(d)``, with the roots of the weights in A.

    Notes
    -----
    Memory is that of the data, and once more while equations are solved. A step takes two products with the columns
    that are solved for.
    """

    def __init__(self, problem: Composite) -> None:
        ridge = problem.structure(ridge_form)
        rows = [sp.diags_array(np.sqrt(r.curvature)) @ r.linear.explicit() for r in problem.squares if r.single is None]
        self.matrix = sp.csc_array(sp.vstack(rows, format="csc"))
        self.ridge = np.asarray(ridge.matrix.diagonal())
        self._diagonal: Vector = self.ridge + np.asarray(self.matrix.multiply(self.matrix).sum(axis=0)).ravel()
        self.latest = np.zeros(problem.size)

    def diagonal(self) -> Vector:
        """Its diagonal."""
        return self._diagonal

    def __matmul__(self, x: Vector) -> Vector:
        """Its product with a vector."""
        return np.asarray(self.matrix.T @ (self.matrix @ x) + self.ridge * x)

    def solve(self, _: Any, index: NDArray[np.intp], rhs: Vector) -> Vector | None:
        """Solve with the rows and columns `index`, from the latest solution on; None where that takes too long."""
        part, ridge, diagonal = self.matrix[:, index], self.ridge[index], self._diagonal[index]
        transpose = part.T
        if not np.all(diagonal > 0.0):
            return None
        scale = float(np.sqrt(rhs @ (rhs / diagonal)))
        x = self.latest[index]
        residual = rhs - (transpose @ (part @ x) + ridge * x)
        if not residual @ (residual / diagonal) < scale**2:
            x, residual = np.zeros_like(x), rhs
        step, energy, best, idle = np.zeros_like(x), np.inf, np.inf, 0
        for _ in range(_SINGULAR_AFTER):
            tick()
            scaled = residual / diagonal
            before, energy = energy, float(residual @ scaled)
            left = np.sqrt(energy)
            idle = 0 if left < 0.5 * best else idle + 1
            best = min(best, left)
            if not left > _NO_RESIDUAL * scale or (idle > _IDLE_STEPS and best <= _SMALL_RESIDUAL * scale):
                self.latest = np.zeros_like(self.latest)
                self.latest[index] = x
                return x
            step = scaled + (energy / before) * step
            image = transpose @ (part @ step) + ridge * step
            curvature = float(step @ image)
            if not curvature > 0.0:  # a direction without curvature
                return None
            length = energy / curvature
            x = x + length * step
            residual = residual - length * image
        return None


def has_columns(problem: Composite) -> bool:
    """Whether a sparse problem has the quadratic of its rows, whose factors may be dense: its band is not narrow."""
    rows = [r.linear for r in problem.squares if r.single is None]
    if not (rows and is_diagonal(problem.matrix)):
        return False
    return any(row_bandwidth(sp.csr_array(linear.explicit())) > _NARROW_BAND for linear in rows)
