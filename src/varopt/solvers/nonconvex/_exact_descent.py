r"""Exact moves: along coordinates, to the optimum of a convex majorant, and along lines on which rows rest on knots.

Every move ends in a minimum along a line (`_line_minimum`), so none makes the objective worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt.composite import Composite
from varopt.solvers._method import State
from varopt.solvers.descent import Newton
from varopt.solvers.nonconvex._line_minimum import RowsOnLine, Step, best_step
from varopt.solvers.nonconvex._relaxation import majorant, restricted

__all__ = ["ExactDescent"]

Vector = NDArray[np.float64]

_GAIN = 1e-13  # relative gain below which a move is rounding
_AT_REST = 1e-10  # distance from a knot, relative to the row's size, within which a row rests on it
_MAJORANT_VARIABLES = 400  # most of a convex majorant
_UNSEEN = 1e-13  # eigenvalue, as a share of the largest, up to which a direction counts as unseen
_NOTHING = 1e-7  # share of a direction that is left of it by rounding alone
_LEAST = 1e-300  # in place of zero
_CANCELLED = 2.0**-10  # of the largest position before a move, below which the largest after it is computed afresh


class ExactDescent:
    """A point of a composite with positive weights, moved by exact steps.

    Memory: a copy of sparse matrices, by columns.
    """

    def __init__(self, problem: Composite, x: Vector, columns: list[Any] | None = None) -> None:
        self.problem = problem
        self.columns = [_by_columns(r.linear.explicit()) for r in problem.rows] if columns is None else columns
        self.hessian_columns = None if problem.hessian is None else _by_columns(problem.hessian)
        self.optima: dict[bytes, Vector] = {}  # of majorants, by their gradients at zero: the same pieces, the same one
        self.ray: Vector | None = None  # a direction along which the objective was seen to fall for ever
        self.put(x)

    def put(self, x: Vector) -> None:
        """Go to x."""
        self.x = x
        self.z = [z.copy() for z in self.problem.positions(x)]
        self.gradient = self.problem.quadratic_gradient(x)
        self.value = self.problem.value(x, self.z)

    @property
    def falls(self) -> bool:
        """Whether a line was met along which the objective falls for ever."""
        return self.ray is not None

    @property
    def scale_free(self) -> bool:
        """Whether f(c x) = f(x) for every c > 0: steps at zero of linear forms, and nothing else."""
        return (
            self.problem.hessian is None
            and not self.problem.gradient_at_zero.any()
            and all(r.term.degree == 0 and not any(map(np.any, r.term.knots)) for r in self.problem.rows)
            and not any(r.offset.any() for r in self.problem.rows)
        )

    @cached_property
    def unseen(self) -> Vector:
        """An orthonormal basis of the directions that no part of the objective sees."""
        p = self.problem.size
        seen = np.zeros((p, p)) if self.problem.hessian is None else _dense(self.problem.hessian)
        seen = seen / max(float(np.abs(seen).max()), _LEAST)
        seen = seen @ seen
        for r in self.problem.rows:
            gram = _dense(r.linear.gram(np.ones(r.count)))
            seen = seen + gram / max(float(gram.diagonal().max()), _LEAST)
        if not np.all(np.isfinite(seen)):
            return np.zeros((p, 0))
        unit = np.sqrt(np.where(seen.diagonal() > 0.0, seen.diagonal(), 1.0))
        values, vectors = scipy.linalg.eigh(seen / unit[:, None] / unit, check_finite=False)
        basis = vectors[:, values <= _UNSEEN * values[-1]] / unit[:, None]
        return np.asarray(scipy.linalg.qr(basis, mode="economic", check_finite=False)[0])

    def within(self, direction: Vector) -> Vector:
        """Without what no part of the objective sees: there the point would drift to where rounding decides."""
        return direction - self.unseen @ (self.unseen.T @ direction)

    # -- Lines --------------------------------------------------------------------------------------------------------

    def along(self, direction: Vector, rng: np.random.Generator | None = None) -> bool:
        """To the minimum along a direction; whether that is lower. With `rng` ties are broken at random."""
        speeds = [np.asarray(r.linear.apply(direction), dtype=np.float64) for r in self.problem.rows]
        rows = zip(self.problem.rows, self.z, speeds, strict=True)
        parts = [RowsOnLine(r.term, r.weights, z, speed) for r, z, speed in rows]
        curved = None if self.problem.hessian is None else np.asarray(self.problem.hessian @ direction)
        curvature = 0.0 if curved is None else float(direction @ curved)
        step = best_step(float(self.gradient @ direction), curvature, parts, rng)
        if np.isinf(step.length):
            self.ray = np.sign(step.length) * direction
            return False
        if not self._worth(step) and not (rng is not None and step.change <= 0.0):
            return False
        before = self.x, self.z, self.gradient, self.value
        self.x = self.x + step.length * direction
        self.z = [z + step.length * speed for z, speed in zip(self.z, speeds, strict=True)]
        if curved is not None:
            self.gradient = self.gradient + step.length * curved
        self.value = self.problem.value(self.x, self.z)
        if any(_largest(z) < _CANCELLED * _largest(old) for z, old in zip(self.z, before[1], strict=True)):
            self.put(self.x)  # back from far out, differences have lost their digits
        if self.value > before[-1]:  # rounding, on a row that jumps
            self.x, self.z, self.gradient, self.value = before
            return False
        return self.value < before[-1]

    def _worth(self, step: Step) -> bool:
        return step.change < -_GAIN * max(1.0, abs(self.value))

    def sweep(self, coordinates: NDArray[np.intp]) -> NDArray[np.intp]:
        """To the minimum along each coordinate in turn; the coordinates that moved."""
        moved, before = [], (self.x, self.value)
        self.x, self.z, self.gradient = self.x.copy(), [z.copy() for z in self.z], self.gradient.copy()
        diagonal = None if self.hessian_columns is None else self.hessian_columns.diagonal()
        for j in coordinates:
            tick()
            parts, places = [], []
            for r, z, columns in zip(self.problem.rows, self.z, self.columns, strict=True):
                index, speed = _column(columns, int(j))
                places.append((index, speed))
                if speed.size:
                    parts.append(RowsOnLine(r.term.take(index), r.weights[index], z[index], speed))
            step = best_step(float(self.gradient[j]), 0.0 if diagonal is None else float(diagonal[j]), parts)
            if np.isinf(step.length):
                self.ray = np.where(np.arange(self.x.size) == j, np.sign(step.length), 0.0)
            if np.isinf(step.length) or not self._worth(step):
                continue
            moved.append(j)
            self.x[j] += step.length
            for z, (index, speed) in zip(self.z, places, strict=True):
                z[index] += step.length * speed
            if diagonal is not None:
                index, values = _column(self.hessian_columns, int(j))
                self.gradient[index] += step.length * values
        self.put(self.x)
        if self.value > before[1]:
            self.put(before[0])
            return np.zeros(0, dtype=np.intp)
        return np.array(moved, dtype=np.intp)

    # -- Convex majorants ---------------------------------------------------------------------------------------------

    def descend_majorants(self, check: Callable[[State], None], most: int = 30) -> bytes:
        """Minimise convex majorants [DCA] until that gains nothing; which one ends here, empty where none is known."""
        free, key = self._free(), b""
        if not 0 < free.size <= _MAJORANT_VARIABLES:
            return b""
        for _ in range(most):
            local = self.problem if free.size == self.x.size else restricted(self.problem, free, self.x)
            x = self.x[free]
            above = majorant(local, x, local.positions(x))
            if above is None or not (above.rows or above.hessian is not None):
                return b""
            key = _key(above) if above.size == self.x.size else b""
            direction = np.zeros_like(self.x)
            direction[free] = self._optimum(above, key, x, check) - x
            if not np.all(np.isfinite(direction)) or not self.along(direction):
                return key
        return b""

    def above(self, x: Vector) -> bytes:
        """Which majorant touches at x."""
        whole = majorant(self.problem, x, self.problem.positions(x))
        return b"" if whole is None else _key(whole)

    def flip(self, most: int, check: Callable[[State], None]) -> bool:
        """To the optimum of a majorant that touches where one row is beyond its downward kink, if that is lower.

        One row after the other is tried, the nearest first, since what they cost together decides; at most so many.
        """
        for block, row, beyond in self._downward(most):
            positions = [z.copy() if b == block else z for b, z in enumerate(self.z)]
            positions[block][row] = beyond
            above = majorant(self.problem, self.x, positions)
            if above is None or not (above.rows or above.hessian is not None):
                return False
            x = self._optimum(above, _key(above), self.x, check)
            if not np.all(np.isfinite(x)) or self.x.size > _MAJORANT_VARIABLES:
                return False
            if self.problem.value(x) < self.value - _GAIN * max(1.0, abs(self.value)):
                self.put(x)
                return True
        return False

    def _downward(self, most: int) -> list[tuple[int, int, float]]:
        """Rows by their distance from a downward kink: their block, their place in it, and a position beyond it."""
        found = []
        for b, (r, z) in enumerate(zip(self.problem.rows, self.z, strict=True)):
            for knot, jump in zip(r.term.knots, r.term.jumps, strict=True):
                if len(jump) > 1 and np.any(np.asarray(jump[1]) < 0.0):
                    away = np.broadcast_to(np.asarray(knot, dtype=np.float64), z.shape) - z
                    near = np.argsort(np.abs(away))[:most]
                    beyond = z + np.where(away == 0.0, -_AT_REST * (1.0 + np.abs(z)), 2.0 * away)
                    found += [(float(abs(away[i])), b, int(i), float(beyond[i])) for i in near]
        return [place for _, *place in sorted(found)[:most]]  # type: ignore[misc]

    def _optimum(self, above: Composite, key: bytes, x: Vector, check: Callable[[State], None]) -> Vector:
        """Of a majorant, from x on; of one in all variables it is kept."""
        if key not in self.optima:
            inner = State(x)
            Newton(thorough=True).solve(above, inner, 1e-10, check)
            if not key:
                return inner.x
            self.optima[key] = inner.x
        return self.optima[key]

    def _free(self) -> NDArray[np.intp]:
        """The variables that do not rest on a kink of their own; all of them where they are few."""
        free = np.ones(self.x.size, dtype=bool)
        if self.x.size <= _MAJORANT_VARIABLES:
            return np.flatnonzero(free)
        for r, z, columns in zip(self.problem.rows, self.z, self.columns, strict=True):
            if not sp.issparse(columns) or not r.term.knots:
                continue
            rows = columns.tocsr()
            alone = np.diff(rows.indptr) == 1
            resting = alone & (r.knot_distance(z) <= _AT_REST * (np.abs(z) + np.abs(r.offset) + 1e-300))
            free[rows.indices[rows.indptr[:-1][resting]]] = False
        return np.flatnonzero(free)

    # -- Knots --------------------------------------------------------------------------------------------------------

    def turn(self, pinned: NDArray[np.intp], rng: np.random.Generator) -> bool:
        """Put rows on their nearest knots, go along a line on which they rest, then let each fall to its better side.

        `pinned` counts the rows of all blocks, one after another. Returns whether the point is lower.
        """
        blocks, rows, targets = self._rows(pinned)
        basis, triangle = scipy.linalg.qr(rows.T, mode="economic", check_finite=False)
        pivots = np.abs(triangle.diagonal())
        if pivots.min(initial=1.0) <= 1e-9 * pivots.max(initial=0.0):
            return False

        def lift(values: Vector) -> Vector:
            """The smallest x with the given values on the pinned rows."""
            return np.asarray(basis @ scipy.linalg.solve_triangular(triangle, values, trans="T", check_finite=False))

        before = self.x, self.value
        x = self.x + lift(targets - rows @ self.x)
        drawn = rng.standard_normal(x.size)
        direction = self.within(drawn - basis @ (basis.T @ drawn))
        if np.linalg.norm(direction) <= _NOTHING * np.linalg.norm(drawn):
            direction = np.zeros_like(x)
        positions, parts = self.problem.positions(x), []
        for r, z, held in zip(self.problem.rows, positions, blocks, strict=True):
            weights = r.weights
            if held.size:
                weights = weights.copy()
                weights[held] = 0.0
            parts.append(RowsOnLine(r.term, weights, z, np.asarray(r.linear.apply(direction), dtype=np.float64)))
        hessian = self.problem.hessian
        curvature = 0.0 if hessian is None else float(direction @ (hessian @ direction))
        step = best_step(float(self.problem.quadratic_gradient(x) @ direction), curvature, parts, rng)
        if not np.isfinite(step.length):
            return False
        self.put(x + step.length * direction)
        for r, z, held in zip(self.problem.rows, self.z, blocks, strict=True):
            z[held] = _nearest(r.term, z, held)  # exactly
        self.along(lift(self._better_side(blocks)))
        if self.value > before[1]:
            self.put(before[0])
        return self.value < before[1]

    def _rows(self, pinned: NDArray[np.intp]) -> tuple[list[NDArray[np.intp]], Vector, Vector]:
        """By block, what is pinned; their matrix, and the values of ``a'x`` that put them on the nearest knots."""
        blocks, matrices, targets, start = [], [], [], 0
        for r, z in zip(self.problem.rows, self.z, strict=True):
            held = np.sort(pinned[(pinned >= start) & (pinned < start + r.count)] - start)
            start += r.count
            blocks.append(held)
            matrices.append(r.linear.rows(held).dense())
            targets.append(_nearest(r.term, z, held) - r.offset[held])
        return blocks, np.vstack(matrices), np.concatenate(targets)

    def _better_side(self, blocks: Sequence[NDArray[np.intp]]) -> Vector:
        """For each pinned row plus or minus one: the side of its knot on which it is lower."""
        signs = []
        for r, z, held in zip(self.problem.rows, self.z, blocks, strict=True):
            if held.size:
                term, at = r.term.take(held), z[held]
                unit = 1e-6 * (1.0 + np.abs(at))
                signs.append(np.where(term.value(at + unit) < term.value(at - unit), 1.0, -1.0))
        return np.concatenate(signs)


def _key(majorant: Composite) -> bytes:
    """The same for the same convex parts, which beside lines are those of the same pieces."""
    return majorant.gradient_at_zero.tobytes()


def _nearest(term: Any, z: Vector, held: NDArray[np.intp]) -> Vector:
    """The knot nearest to each of the rows `held`."""
    knots = np.stack([np.broadcast_to(np.asarray(t, dtype=np.float64), z.shape)[held] for t in term.knots])
    return np.asarray(knots[np.argmin(np.abs(knots - z[held]), axis=0), np.arange(held.size)])


def _largest(z: Vector) -> float:
    return float(np.abs(z).max(initial=0.0))


def _dense(matrix: Any) -> Any:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def _by_columns(explicit: Any) -> Any:
    return sp.csc_array(explicit) if sp.issparse(explicit) else np.asarray(explicit)


def _column(columns: Any, j: int) -> tuple[Any, Vector]:
    """Where column j is not zero, and what it holds there."""
    if sp.issparse(columns):
        part = slice(columns.indptr[j], columns.indptr[j + 1])
        return columns.indices[part], columns.data[part]
    return slice(None), columns[:, j]
