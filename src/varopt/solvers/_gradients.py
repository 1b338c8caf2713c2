r"""The equations of a step by conjugate gradients, for sparse matrices whose products are dense.

Near an optimum a few rows, those close to a kink, are stiffer than all else by many orders. Their multipliers are
unknowns of their own,

    [ B    A_s'     ] [dx]   [ rhs          ]
    [ A_s  -1 / D_s ] [du] = [ pull_s / D_s ]

with B all else, which is well conditioned, and the preconditioner is the same matrix with the diagonal of B: a dense
factor of the order of the stiff rows. The iterates meet the second equation throughout (projected conjugate gradients,
[GHN01]), so that no large number is ever multiplied with a rounded one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers._definite import cholesky

__all__ = ["ConjugateGradients"]

Vector = NDArray[np.float64]

_STIFF, _STIFFEST = 0.1, 2000  # share of the diagonal that makes a row stiff, and the most such rows of a block
_PASSES = 4
_FLOOR = 1e-6  # share of the median below which no entry of the preconditioner's diagonal falls
_CLOSE, _ROUNDS, _IDLE = 1e-10, 500, 100  # relative residual, steps, and steps without gain at which to stop


class ConjugateGradients:
    """Solves with ``H + sum_b A_b' diag(d_b) A_b``; memory is twice the data and the square of the stiff rows."""

    def __init__(self, hessian: Any, rows: Sequence[Any]) -> None:
        self.hessian, self.rows, self.size = hessian, rows, rows[0].shape[1]
        self.transposes = [a.T.tocsr() for a in rows]
        self.squares = [a.multiply(a).tocsr() for a in rows]

    def prepare(self, weights: Sequence[Vector], ridge: float) -> None:
        """Choose the stiff rows for the given d, and factorise the preconditioner; `ridge` as in `Normal`."""
        start = np.zeros(self.size) if self.hessian is None else np.array(self.hessian.diagonal(), dtype=np.float64)
        base = sum((square.T @ d for square, d in zip(self.squares, weights, strict=False)), start)
        scale = max(float(base.mean()), 1e-300)
        self.shift = ridge * scale
        self.soft = list(weights)
        for _ in range(_PASSES):  # a row is stiff beside those that are not, which shows as the stiffer ones are found
            base = np.maximum(base, 1e-14 * scale)
            self.index = [
                _stiffest(d * (square @ (1.0 / base)) * (np.diff(square.indptr) > 1))
                for square, d in zip(self.squares, weights, strict=False)
            ]
            base = start
            for b, (square, d) in enumerate(zip(self.squares, weights, strict=False)):
                self.soft[b] = d.copy()
                self.soft[b][self.index[b]] = 0.0
                base = base + square.T @ self.soft[b]
        self.diagonal = base
        # Directions that only stiff rows hold, as that of an intercept, are left to these.
        self.diagonal = np.maximum(self.diagonal, _FLOOR * float(np.median(self.diagonal))) + self.shift
        parts = [a[stiff] for a, stiff in zip(self.rows, self.index, strict=False)]
        self.stiff = sp.vstack(parts, format="csr") if parts else sp.csr_array((0, self.size))
        self.give = np.concatenate(
            [1.0 / d[stiff] for d, stiff in zip(weights, self.index, strict=True)] + [np.zeros(0)]
        )
        self.stiff_transpose, self.factor = self.stiff.T.tocsr(), None
        if self.give.size:
            inner = (self.stiff @ (sp.diags_array(1.0 / self.diagonal) @ self.stiff_transpose)).toarray()
            inner.flat[:: inner.shape[0] + 1] += self.give
            self.factor = cholesky(inner, overwrite=True)

    def _precondition(self, r: Vector, c: Vector) -> tuple[Vector, Vector]:
        y = r / self.diagonal
        if self.factor is None:
            return y, c
        u = scipy.linalg.cho_solve(self.factor, self.stiff @ y - c, check_finite=False)
        return y - (self.stiff_transpose @ u) / self.diagonal, u

    def _multiply(self, x: Vector) -> Vector:
        """``B x``."""
        out = self.shift * x if self.hessian is None else self.hessian @ x + self.shift * x
        for a, transpose, d in zip(self.rows, self.transposes, self.soft, strict=False):
            out += transpose @ (d * (a @ x))
        return np.asarray(out)

    def solve(self, rhs: Vector, pulls: Sequence[Vector]) -> tuple[Vector, list[Vector]]:
        """The solution dx for ``rhs + sum_b A_b' pull_b``, and the ``A_b dx``."""
        own = [pull[stiff] for pull, stiff in zip(pulls, self.index, strict=False)]
        c = np.concatenate([*own, np.zeros(0)]) * self.give
        rhs = rhs.copy()
        for transpose, pull, stiff in zip(self.transposes, pulls, self.index, strict=False):
            others = pull.copy()
            others[stiff] = 0.0
            rhs += transpose @ others
        x, u = self._precondition(rhs, c)
        residual = rhs - self._multiply(x) - self.stiff_transpose @ u
        g, w = self._precondition(residual, np.zeros_like(c))
        p, v, rho = g, w, float(residual @ g)
        target = _CLOSE**2 * max(abs(float(rhs @ x)), rho)
        least, idle = rho, 0
        for _ in range(_ROUNDS):
            idle = 0 if rho < 0.5 * least else idle + 1
            least = min(least, rho)
            if not rho > target or idle > _IDLE:
                break
            bent = self._multiply(p)
            length = rho / float(p @ bent + v @ (self.give * v))
            x, u = x + length * p, u + length * v
            residual = residual - length * (bent + self.stiff_transpose @ v)
            g, w = self._precondition(residual, np.zeros_like(c))
            before, rho = rho, float(residual @ g)
            p, v = g + (rho / before) * p, w + (rho / before) * v
        # Rounding has added up to a breach of the second equation, which nothing later would mend.
        dx, du = self._precondition(np.zeros_like(x), self.give * u + c - self.stiff @ x)
        x, u = x + dx, u + du
        moves = [np.asarray(a @ x) for a in self.rows]
        start = 0
        for move, stiff in zip(moves, self.index, strict=False):
            part = slice(start, start + stiff.size)
            move[stiff] = self.give[part] * u[part] + c[part]
            start += stiff.size
        return x, moves


def _stiffest(share: Vector) -> NDArray[np.intp]:
    """The rows with the largest shares of the diagonal."""
    stiff = np.flatnonzero(share > _STIFF)
    return stiff if stiff.size <= _STIFFEST else stiff[np.argpartition(-share[stiff], _STIFFEST)[:_STIFFEST]]
