r"""The equations of a step by conjugate gradients, for sparse matrices whose products are dense.

Near an optimum a few rows, those close to a kink, have weights larger than all else by many orders. The multipliers of
these heavy rows, A_s, are unknowns of their own,

    [ B    A_s'     ] [dx]   [ rhs       ]
    [ A_s  -1 / D_s ] [du] = [ r_s / D_s ]                                                                          (1)

with B all else, which is well conditioned, and the preconditioner is the same matrix with the diagonal G of B: by
elimination of dx it takes a dense factor of the order of the heavy rows,

    (A_s G^-1 A_s' + 1 / D_s) u = A_s G^-1 r - c,    x = G^-1 (r - A_s' u).                                         (2)

The iterates meet the second equation throughout (projected conjugate gradients, [GHN01]), so that no
large number is ever multiplied with a rounded one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import cholesky

__all__ = ["ConjugateGradients"]

Vector = NDArray[np.float64]

_HEAVY, _HEAVIEST = 0.1, 2000  # share of the diagonal that makes a row heavy, and the most such rows of a block
_HEAVY_PASSES = 4  # in which heavy rows are looked for
_DIAGONAL_FLOOR = 1e-6  # share of the median below which no entry of the preconditioner's diagonal falls
# Relative residual, steps, and steps without gain at which conjugate gradients stop.
_CG_RESIDUAL, _CG_STEPS, _CG_IDLE = 1e-10, 500, 100


class ConjugateGradients:
    """Solves with ``H + sum_b A_b' diag(d_b) A_b``; memory is twice the data and the square of the heavy rows."""

    def __init__(self, hessian: Any, rows: Sequence[Any]) -> None:
        self.hessian, self.rows, self.size = hessian, rows, rows[0].shape[1]
        self.transposes = [a.T.tocsr() for a in rows]
        self.squares = [a.multiply(a).tocsr() for a in rows]

    def prepare(self, weights: Sequence[Vector], ridge: float) -> None:
        """Choose the heavy rows for the given d, and factorise the preconditioner; `ridge` as in `Normal`."""
        start = np.zeros(self.size) if self.hessian is None else np.array(self.hessian.diagonal(), dtype=np.float64)
        base = sum((square.T @ d for square, d in zip(self.squares, weights, strict=False)), start)
        scale = max(float(base.mean()), 1e-300)
        self.shift = ridge * scale
        self.light = list(weights)
        for _ in range(_HEAVY_PASSES):  # which rows are heavy shows as the heavier ones are found
            base = np.maximum(base, 1e-14 * scale)
            self.index = [
                _heaviest(d * (square @ (1.0 / base)) * (np.diff(square.indptr) > 1))
                for square, d in zip(self.squares, weights, strict=False)
            ]
            base = start
            for b, (square, d) in enumerate(zip(self.squares, weights, strict=False)):
                self.light[b] = d.copy()
                self.light[b][self.index[b]] = 0.0
                base = base + square.T @ self.light[b]
        self.diagonal = base
        # Directions that only heavy rows hold, as that of an intercept, are left to these.
        self.diagonal = np.maximum(self.diagonal, _DIAGONAL_FLOOR * float(np.median(self.diagonal))) + self.shift
        parts = [a[heavy] for a, heavy in zip(self.rows, self.index, strict=False)]
        self.heavy = sp.vstack(parts, format="csr") if parts else sp.csr_array((0, self.size))
        self.inverse_weights = np.concatenate(
            [1.0 / d[heavy] for d, heavy in zip(weights, self.index, strict=True)] + [np.zeros(0)]
        )
        self.heavy_transpose, self.factor = self.heavy.T.tocsr(), None
        if self.inverse_weights.size:
            inner = (self.heavy @ (sp.diags_array(1.0 / self.diagonal) @ self.heavy_transpose)).toarray()
            inner.flat[:: inner.shape[0] + 1] += self.inverse_weights
            self.factor = cholesky(inner, overwrite=True)

    def _precondition(self, r: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Equation (2)."""
        y = r / self.diagonal
        if self.factor is None:
            return y, c
        u = scipy.linalg.cho_solve(self.factor, self.heavy @ y - c, check_finite=False)
        return y - (self.heavy_transpose @ u) / self.diagonal, u

    def _multiply(self, x: Vector) -> Vector:
        """``B x``."""
        out = self.shift * x if self.hessian is None else self.hessian @ x + self.shift * x
        for a, transpose, d in zip(self.rows, self.transposes, self.light, strict=False):
            out += transpose @ (d * (a @ x))
        return np.asarray(out)

    def solve(self, rhs: Vector, row_rhs: Sequence[Vector]) -> tuple[Vector, list[Vector]]:
        """The solution dx for ``rhs + sum_b A_b' r_b``, `row_rhs` the r, and the ``A_b dx``."""
        own = [r[heavy] for r, heavy in zip(row_rhs, self.index, strict=False)]
        c = np.concatenate([*own, np.zeros(0)]) * self.inverse_weights
        rhs = rhs.copy()
        for transpose, r, heavy in zip(self.transposes, row_rhs, self.index, strict=False):
            others = r.copy()
            others[heavy] = 0.0
            rhs += transpose @ others
        x, u = self._precondition(rhs, c)
        residual = rhs - self._multiply(x) - self.heavy_transpose @ u
        g, w = self._precondition(residual, np.zeros_like(c))
        p, v, rho = g, w, float(residual @ g)
        target = _CG_RESIDUAL**2 * max(abs(float(rhs @ x)), rho)
        least, idle = rho, 0
        for _ in range(_CG_STEPS):
            tick()
            idle = 0 if rho < 0.5 * least else idle + 1
            least = min(least, rho)
            if not rho > target or idle > _CG_IDLE:
                break
            curved = self._multiply(p)
            curvature = float(p @ curved + v @ (self.inverse_weights * v))
            if not curvature > 0.0:  # nothing holds the direction, as where the problem is unbounded
                break
            length = rho / curvature
            x, u = x + length * p, u + length * v
            residual = residual - length * (curved + self.heavy_transpose @ v)
            g, w = self._precondition(residual, np.zeros_like(c))
            before, rho = rho, float(residual @ g)
            p, v = g + (rho / before) * p, w + (rho / before) * v
        # Rounding has added up to a breach of the second equation, which nothing later would mend.
        dx, du = self._precondition(np.zeros_like(x), self.inverse_weights * u + c - self.heavy @ x)
        x, u = x + dx, u + du
        moves = [np.asarray(a @ x) for a in self.rows]
        start = 0
        for move, heavy in zip(moves, self.index, strict=False):
            part = slice(start, start + heavy.size)
            move[heavy] = self.inverse_weights[part] * u[part] + c[part]
            start += heavy.size
        return x, moves


def _heaviest(share: Vector) -> NDArray[np.intp]:
    """The rows with the largest shares of the diagonal."""
    heavy = np.flatnonzero(share > _HEAVY)
    return heavy if heavy.size <= _HEAVIEST else heavy[np.argpartition(-share[heavy], _HEAVIEST)[:_HEAVIEST]]
