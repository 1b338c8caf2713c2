r"""Linear constraints that Newton steps keep to: a few rows of many variables, and bounds of single ones.

As kinks of large weights they would bend the bound so sharply that steps shorten again and again. Here they are not
smoothed: a step is the minimum of the quadratic model among the points that satisfy all of them,

    min 1/2 d'Hd + g'd,    low <= A (x + d) <= high,                                                                (1)

which [DAQP] finds. A point that satisfies them stays so however far it goes along such a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import as_dense, factorised
from varopt.composite import Composite, bounded
from varopt.solvers.finish import by_dual_active_set

__all__ = ["Polyhedron", "polyhedron"]

Vector = NDArray[np.float64]

_DAQP_INFINITY = 1e20  # where DAQP takes a bound for none
_LEAST_KEPT_ROWS = 100  # of several variables that are kept in any case; more of them where the others are as many
_MOST_VARIABLES = 1000  # whose programmes DAQP solves about as fast as the Newton matrix is formed
_LOOPS = 100  # variables from which on DAQP, which works in plain loops, should see fewer, if it can
_FEW_SHARE = 0.5  # of the variables, up to which rows are so few that programmes in as many variables are smaller
_RIDGE = 1e-13  # added to a matrix of unit diagonal, for it may be singular
_ACTIVE = 1e-9  # share of its size within which a row rests on its bound
_PROGRAM_STEPS, _PROGRAM_SECONDS = 20_000, 10.0  # of one programme


@dataclass(frozen=True, eq=False)
class Polyhedron:
    """``low <= A x <= high``, the bounds of single variables first, and the problem without the rows that say so."""

    rows: Vector  # of several variables
    low: Vector
    high: Vector
    inside: Composite
    places: tuple[int, ...]  # of all these rows, in the problem

    def clip(self, x: Vector) -> Vector | None:
        """About the nearest point; None where none is found."""
        unit = max(float(np.abs(x).max(initial=0.0)), 1.0)
        found = self._least(unit * np.eye(x.size), np.zeros(x.size), x)
        return None if found is None else x + found[0]

    def step(self, matrix: Any, gradient: Vector, x: Vector) -> Vector:
        """The Newton step (1), zero where none is found."""
        if matrix is None:
            return np.zeros_like(x)
        found = self._least(as_dense(matrix), gradient, x)
        return np.zeros_like(x) if found is None else found[0]

    def dual(self, problem: Composite, x: Vector, residual: Vector, inner: Sequence[Vector]) -> list[Vector]:
        """Subgradients of all rows of `problem`: those given, and of constraints at rest what balances the residual."""
        found = self._least(np.eye(x.size), residual, x)
        multipliers = np.zeros(self.low.size) if found is None else found[1]
        rest, dual, row = iter(inner), [], x.size
        for b, r in enumerate(problem.rows):
            if b not in self.places:
                dual.append(next(rest))
                continue
            if r.single is None:
                own = multipliers[row : row + r.count]
                row += r.count
            else:  # the first of several bounds of a variable that is at rest has it all
                index, factor = r.single
                own = np.where(factor != 0.0, multipliers[index] / np.where(factor != 0.0, factor, 1.0), 0.0)
                own = np.where(np.abs(r.positions(x)) <= self._reach(r, x), own, 0.0)
                taken = np.clip(own, *(r.weights * end for end in r.term.subgradient_range))
                multipliers = multipliers.copy()
                np.subtract.at(multipliers, index, taken * factor)
            ends = r.term.subgradient_range
            dual.append(np.clip(np.divide(own, r.weights, out=np.zeros(r.count), where=r.weights > 0.0), *ends))
        return dual

    def free(self, x: Vector) -> int:
        """About how many directions are left where the constraints at rest are held."""
        at = np.concatenate([x, self.rows @ x])
        reach = _ACTIVE * (np.abs(at) + float(np.abs(x).max(initial=0.0)))
        return max(x.size - int(np.count_nonzero((at - self.low <= reach) | (self.high - at <= reach))), 0)

    def reaches(self, problem: Composite, x: Vector, inner: Sequence[float], *, every: bool) -> list[float]:
        """How near each row of `problem` may rest: what is given for those inside, rounding for the others, or all."""
        rest = iter(inner)
        return [
            next(rest) if b not in self.places else np.inf if every else float(self._reach(r, x).max(initial=0.0))
            for b, r in enumerate(problem.rows)
        ]

    @staticmethod
    def _reach(r: Any, x: Vector) -> Vector:
        return np.asarray(_ACTIVE * (np.abs(r.positions(x)) + np.abs(r.offset) + float(np.abs(x).max(initial=0.0))))

    def _least(self, matrix: Vector, gradient: Vector, x: Vector) -> tuple[Vector, Vector] | None:
        """(1), and its multipliers; in units in which the curvature is one and steps are about as long."""
        tick(x.size**3)
        diagonal = matrix.diagonal()
        typical = float(diagonal.max(initial=0.0)) or 1.0
        unit = 1.0 / np.sqrt(np.maximum(diagonal, 1e-12 * typical))
        scaled = unit[:, None] * matrix * unit
        scaled[np.diag_indices(x.size)] += _RIDGE
        rows = self.rows * unit
        lengths = np.linalg.norm(rows, axis=1)
        lengths = np.where(lengths > 0.0, lengths, 1.0)
        at = np.concatenate([x, self.rows @ x])
        sizes = np.concatenate([unit, lengths])
        low, high = (self.low - at) / sizes, (self.high - at) / sizes
        missed = max(float(np.max(low, initial=0.0)), float(np.max(-high, initial=0.0)))
        size = max(float(np.linalg.norm(unit * gradient)), missed) or 1.0
        if not np.all(np.isfinite(scaled)) or not np.isfinite(size):
            return None
        program = (
            scaled, unit * gradient / size, rows / lengths[:, None],
            np.clip(high / size, -_DAQP_INFINITY, _DAQP_INFINITY), np.clip(low / size, -_DAQP_INFINITY, _DAQP_INFINITY),
        )  # fmt: skip
        found = self._within_rows(*program)
        if found is None:
            found = _solved(*program)
        return None if found is None else (size * unit * found[0], size * found[1] / sizes)

    def _within_rows(
        self, matrix: Vector, gradient: Vector, rows: Vector, high: Vector, low: Vector
    ) -> tuple[Vector, Vector] | None:
        r"""(1) without bounds of single variables, in as many variables as there are rows; None where these are many.

        With H = LL', and ``L^-1 A' = QR``, no step is better than ``-H^-1 g + L'^-1 Q c``, which is

            min 1/2 c'c,        low + A H^-1 g <= R'c <= high + A H^-1 g.
        """
        count, size = rows.shape
        if size < _LOOPS or self.has_bounds or count > _FEW_SHARE * size or (factor := factorised(matrix)) is None:
            return None
        free = -scipy.linalg.cho_solve(factor, gradient, check_finite=False)
        at = rows @ free
        if np.all(at <= high[size:]) and np.all(at >= low[size:]):
            return free, np.zeros(high.size)
        basis, triangle = np.linalg.qr(scipy.linalg.solve_triangular(factor[0], rows.T, lower=True, check_finite=False))
        everywhere = np.full(count, _DAQP_INFINITY)
        found = _solved(
            np.eye(count), np.zeros(count), triangle.T, np.concatenate([everywhere, high[size:] - at]),
            np.concatenate([-everywhere, low[size:] - at]),
        )  # fmt: skip
        if found is None:
            return None
        move = scipy.linalg.solve_triangular(factor[0], basis @ found[0], lower=True, trans=1, check_finite=False)
        return free + move, np.concatenate([np.zeros(size), found[1][count:]])

    @cached_property
    def has_bounds(self) -> bool:
        """Whether some are of single variables."""
        size = self.low.size - len(self.rows)
        return bool(np.isfinite(self.low[:size]).any() or np.isfinite(self.high[:size]).any())


def _solved(
    matrix: Vector, gradient: Vector, rows: Vector, high: Vector, low: Vector
) -> tuple[Vector, Vector] | None:  # fmt: skip
    """The minimum of a quadratic with variables, and rows of them, between bounds; and the multipliers."""
    kinds = np.zeros(low.size, dtype=np.int32)
    found = by_dual_active_set(matrix, gradient, rows, high, low, kinds, steps=_PROGRAM_STEPS, seconds=_PROGRAM_SECONDS)
    return found if found is not None and np.all(np.isfinite(found[0])) else None  # else lost on the way


def polyhedron(problem: Composite) -> Polyhedron | None:
    """The constraints of a problem, where some are of several variables and these are few; else None."""
    several = [b for b, r in enumerate(problem.rows) if r.hard and r.single is None and r.count]
    if not several or problem.size > _MOST_VARIABLES:
        return None
    count, others = sum(problem.rows[b].count for b in several), sum(r.count for r in problem.rows if not r.hard)
    if count > max(_LEAST_KEPT_ROWS, others) or any(problem.rows[b].linear.storage == "operator" for b in several):
        return None
    box = problem.structure(bounded)
    if box is None and any(r.hard and r.single is not None for r in problem.rows):
        return None  # bounds that contradict each other
    low, high = (np.full(problem.size, -np.inf), np.full(problem.size, np.inf)) if box is None else (box.low, box.high)
    lows, highs, matrices = [low], [high], []
    for b in several:
        r = problem.rows[b]
        matrices.append(np.asarray(r.linear.dense(), dtype=np.float64))
        highs.append(-r.offset)
        lows.append(-r.offset if r.term.subgradient_range[0] < 0.0 else np.full(r.count, -np.inf))
    places = tuple(sorted([*several, *(box.places if box is not None else ())]))
    inside = replace(problem, rows=tuple(r for b, r in enumerate(problem.rows) if b not in places))
    return Polyhedron(np.vstack(matrices), np.concatenate(lows), np.concatenate(highs), inside, places)
