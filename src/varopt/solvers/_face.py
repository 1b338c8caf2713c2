r"""The exact optimum of a problem with norms, once it is known which groups vanish and which rows rest on a kink.

On the face where those are held the rest is smooth: Newton's method with the held rows as linear constraints, whose
multipliers are their slopes. What these say is wrong with the face is corrected, and the face is solved again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers._composite import Composite, add
from varopt.solvers._duality import dual_gap
from varopt.solvers._groups import Groups

__all__ = ["Face", "below", "group_gap"]

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

_NEWTON = 15  # most steps on one face: with more it is not the right one
_SPARE = 20  # rows held beyond the number of variables with which a face is still tried
_DIVISIONS = 500  # projections by which a pull is divided among groups
_SMALLER = 1e-7  # by how much smaller their balls are in these
_FEW = 2  # groups that are let go at once, and a tenth of those that do not vanish
_SHORTEST = 1e-4  # share of a step below which it is not worth taking
_OUTSIDE = 1e-9  # relative excess of a multiplier beyond its bound at which its row is let go
_VANISHED = 1e-3  # share of its size at the start below which a norm is taken to be on its way to zero


def group_gap(
    problem: Composite, x: Vector, positions: Sequence[Vector], slopes: Sequence[Vector], pulls: Sequence[Vector]
) -> tuple[float, str]:
    """``f(x)`` minus the dual value of slopes of the rows and of the norms, and what it assumes.

    A norm lies above each of its tangents ``v'z``, v in the ball of its weight. With them in its place the problem has
    a dual gap of its own, to which the Fenchel-Young gaps of the norms are added.
    """
    gap, size = 0.0, np.zeros(x.size)
    for group, v in zip(problem.groups, pulls, strict=True):
        size += np.sqrt(v.size * group.linear.gram_diagonal(v * v))
        gap += group.young(group.positions(x), v)
    rest, assumption = dual_gap(below(problem, pulls), x, positions, slopes, size)
    return gap + rest, assumption


def below(problem: Composite, pulls: Sequence[Vector]) -> Composite:
    """The problem with tangents in place of its norms."""
    vector, scalar = problem.vector.copy(), problem.scalar
    for group, v in zip(problem.groups, pulls, strict=True):
        vector += group.linear.transpose_apply(v)
        scalar += float(v @ group.offset)
    return replace(problem, vector=vector, scalar=scalar, groups=())


@dataclass
class Face:
    """A point, the rows that rest on a kink, and the groups that do not vanish.

    The quadratic of `problem` must be multiplied out: no squares.
    """

    problem: Composite
    x: Vector
    knots: list[Vector]  # for each row the knot it rests on, or NaN
    active: list[Mask]  # for each group whether it does not vanish

    def __post_init__(self) -> None:
        self.reference = self.problem.positions(self.x)

    def solve(self, tol: float, rounds: int = 8) -> tuple[Vector, float, float, str] | None:
        """Solve and correct the face: the best point, its value, gap and assumption; None where nothing came of it."""
        best: tuple[Vector, float, float, str] | None = None
        for _ in range(rounds):
            solved = self._newton()
            if solved is None:
                return best
            self.x, multipliers, pulls = solved
            pulls = self._divided(pulls)
            positions = self.problem.positions(self.x)
            value = self.problem.value(self.x, positions)
            slopes = self._slopes(positions, multipliers)
            feasible = [g.feasible(v) for g, v in zip(self.problem.groups, pulls, strict=True)]
            gap, assumption = group_gap(self.problem, self.x, positions, slopes, feasible)
            if best is None or value + gap < best[1] + best[2] or (not np.isfinite(best[2]) and value < best[1]):
                best = self.x, value, gap, assumption
            done = gap <= tol * abs(value)
            if done or not self._correct(positions, multipliers, pulls) or not self.may_exist:
                return best
        return best

    @property
    def may_exist(self) -> bool:
        """Whether no more rows are held than there are variables, or few more, as where data are degenerate."""
        rows = zip(self.problem.rows, self.knots, strict=True)
        held = sum(int(np.count_nonzero(~np.isnan(knot))) for r, knot in rows if r.single is None)
        return held <= self.problem.size + _SPARE

    # -- Newton's method on the face ----------------------------------------------------------------------------------

    def _newton(self) -> tuple[Vector, list[Vector], list[Vector]] | None:
        """The optimum on the face; multipliers of the resting rows (zero for others), slopes of the norms."""
        for group, mask in zip(self.problem.groups, self.active, strict=True):
            mask &= group.norms(group.positions(self.x)) > 0.0
        resting = [~np.isnan(knot) for knot in self.knots]
        smooth = replace(self.problem, groups=()).freeze(self.reference, resting)
        held, target = self._held(resting)
        x, before = self.x, np.inf
        live = [group.take(mask) for group, mask in zip(self.problem.groups, self.active, strict=True) if mask.any()]
        for step in range(_NEWTON):
            slope, matrix = (
                smooth.slope if smooth.hessian is None else smooth.slope + smooth.hessian @ x,
                smooth.hessian,
            )
            for group in live:
                pull, bend = _norm_derivatives(group, x)
                slope, matrix = slope + pull, add(matrix, bend)
            dx, multipliers = held.step(matrix, slope, target - held.matrix @ x)
            if not np.all(np.isfinite(dx)):
                return None
            if self._collapsed(x, x + dx):
                return self._newton()
            length = 1.0
            if step:  # the first reaches the face, whatever it costs
                value = _face_value(smooth, live, x)
                while _face_value(smooth, live, x + length * dx) > value + 1e-14 * abs(value):
                    length *= 0.5
                    if length < _SHORTEST:
                        return x, *self._unstacked(resting, multipliers, x)
            x = x + length * dx
            size = float(np.abs(dx).max(initial=0.0))
            if size <= 1e-15 * float(np.abs(x).max(initial=0.0)) or (size <= 1e-9 and size > 0.5 * before):
                break  # as good as rounding allows
            before = size
        return x, *self._unstacked(resting, multipliers, x)

    def _collapsed(self, x: Vector, following: Vector) -> bool:
        """Take groups that shrink to nothing or turn about in a step out of the active ones; whether there are any.

        One that was taken out too soon will pull too hard, and is let go again.
        """
        any_gone = False
        for group, mask in zip(self.problem.groups, self.active, strict=True):
            start, now, then = (group.positions(point) for point in (self.x, x, following))
            gone = mask & ((group.norms(then) <= _VANISHED * group.norms(start)) | (group.summed(now * then) <= 0.0))
            mask[gone] = False
            any_gone = any_gone or bool(gone.any())
        return any_gone

    def _held(self, resting: Sequence[Mask]) -> tuple[_Held, Vector]:
        """What is held, and the values of ``a'x`` there."""
        matrices, targets = [sp.csr_array((0, self.problem.size))], [np.zeros(0)]
        lows, highs = [np.zeros(0)], [np.zeros(0)]
        for r, knot, rests in zip(self.problem.rows, self.knots, resting, strict=True):
            index = np.flatnonzero(rests)
            matrices.append(sp.csr_array(r.linear.rows(index).explicit()))
            targets.append(knot[index] - r.offset[index])
            ends = r.term.take(index).subdifferential(knot[index])
            for bound, end in zip((lows, highs), ends, strict=True):
                bound.append(np.asarray(r.weights[index] * end))
        for group, mask in zip(self.problem.groups, self.active, strict=True):
            index = np.flatnonzero(group.spread(~mask))
            matrices.append(sp.csr_array(group.linear.rows(index).explicit()))
            targets.append(-group.offset[index])
            for bound, end in zip((lows, highs), (-np.inf, np.inf), strict=True):
                bound.append(np.full(index.size, end))
        held = _Held(sp.vstack(matrices, format="csr"), np.concatenate(lows), np.concatenate(highs))
        return held, np.concatenate(targets)

    def _unstacked(self, resting: Sequence[Mask], multipliers: Vector, x: Vector) -> tuple[list[Vector], list[Vector]]:
        rows, pulls, start = [], [], 0
        for r, rests in zip(self.problem.rows, resting, strict=True):
            slope, count = np.zeros(r.count), int(rests.sum())
            slope[rests] = multipliers[start : start + count]
            rows.append(slope)
            start += count
        for group, mask in zip(self.problem.groups, self.active, strict=True):
            vanished = group.spread(~mask)
            pull, count = group.spread(group.weights) * group.directions(group.positions(x)), int(vanished.sum())
            pull[vanished] = multipliers[start : start + count]
            pulls.append(pull)
            start += count
        return rows, pulls

    def _divided(self, pulls: list[Vector]) -> list[Vector]:
        """Slopes of vanished groups that share variables, divided among them so that none pulls too hard if need be.

        Their sum on each variable is given: projections in turn on that and on the balls, a little smaller ones so that
        the last slopes are inside.
        """
        groups = self.problem.groups
        inside = [np.flatnonzero(group.spread(~mask)) for group, mask in zip(groups, self.active, strict=True)]
        held = Groups.stacked([group.take(~mask) for group, mask in zip(groups, self.active, strict=True)])
        v = np.concatenate([pull[index] for pull, index in zip(pulls, inside, strict=True)])
        if not v.size or np.all(held.norms(v) <= held.weights):
            return pulls
        matrix = sp.csr_array(held.linear.explicit())
        if np.any(np.diff(matrix.indptr) != 1) or np.bincount(matrix.indices).max() == 1:
            return pulls  # not of variables only, or none of them shared
        at, factor = matrix.indices, matrix.data
        squares, total = np.bincount(at, factor**2), np.bincount(at, factor * v)
        squares[squares == 0.0] = 1.0
        smaller = replace(held, weights=(1.0 - _SMALLER) * held.weights)
        for _ in range(_DIVISIONS):
            if np.all(held.norms(v) <= held.weights):
                break
            v = smaller.feasible(v)
            v = v + factor * ((total - np.bincount(at, factor * v)) / squares)[at]
        divided = [pull.copy() for pull in pulls]
        parts = np.split(v, np.cumsum([index.size for index in inside])[:-1])
        for pull, index, part in zip(divided, inside, parts, strict=True):
            pull[index] = part
        return divided

    # -- What the multipliers say -------------------------------------------------------------------------------------

    def _slopes(self, positions: Sequence[Vector], multipliers: Sequence[Vector]) -> list[Vector]:
        """Slopes of the rows: multipliers where they rest, else of a linear piece as frozen, of a curved one as now."""
        slopes = []
        for r, z, z0, knot, u in zip(
            self.problem.rows, positions, self.reference, self.knots, multipliers, strict=True
        ):
            slope = r.term.derivative(np.where(r.term.derivative(z0, 2) == 0.0, z0, z))
            weights = np.where(r.weights > 0.0, r.weights, 1.0)
            slope = np.where(np.isnan(knot) | (r.weights == 0.0), slope, u / weights)
            slopes.append(np.clip(slope, *r.term.slopes))
        return slopes

    def _correct(self, positions: Sequence[Vector], multipliers: Sequence[Vector], pulls: Sequence[Vector]) -> bool:
        """Let go what pulls too hard, hold what passed a kink, freeze anew what passed a knot; whether anything did."""
        strong = [
            ~mask & (group.norms(v) > group.weights * (1.0 + _OUTSIDE))
            for group, mask, v in zip(self.problem.groups, self.active, pulls, strict=True)
        ]
        known = sum(int(mask.sum()) for mask in self.active)
        if sum(int(new.sum()) for new in strong) > _FEW + 0.1 * known:
            return False  # so wrong a face is not worth correcting
        changed = False
        for b, (r, z, u) in enumerate(zip(self.problem.rows, positions, multipliers, strict=True)):
            knot, z0 = self.knots[b], self.reference[b]
            rests = ~np.isnan(knot)
            at = np.where(rests, knot, 0.0)
            low, high = r.term.subdifferential(at)
            margin = _OUTSIDE * r.weights * (high - low)
            above, below = rests & (u > r.weights * high + margin), rests & (u < r.weights * low - margin)
            aside = 1e-9 * (1.0 + np.abs(at))
            z0 = np.where(above, at + aside, np.where(below, at - aside, z0))
            knot = np.where(above | below, np.nan, knot)
            changed = changed or bool(np.any(above | below))
            passed = np.zeros(r.count, dtype=bool)
            for t, jump in r.kinks:
                over = ~rests & ~passed & ((z >= t) != (z0 >= t)) & (np.asarray(jump) > 0.0)
                knot = np.where(over, t, knot)
                passed |= over
            moved = ~rests & ~passed & r.left_piece(z, z0)
            self.knots[b], self.reference[b] = knot, np.where(moved, z, z0)
            changed = changed or bool(np.any(passed | moved))
        for group, mask, new, v in zip(self.problem.groups, self.active, strong, pulls, strict=True):
            if new.any():  # off zero, the way it is pulled
                push = -group.linear.transpose_apply(np.where(group.spread(new), v, 0.0))
                size = max(float(np.abs(self.x).max(initial=0.0)), 1e-3) / max(float(np.abs(push).max()), 1e-300)
                self.x = self.x + 1e-6 * size * push
                mask |= new
                changed = True
        return changed


def _norm_derivatives(group: Groups, x: Vector) -> tuple[Vector, Any]:
    """Gradient and Hessian of the weighted norms where they do not vanish."""
    z = group.positions(x)
    directions, stiff = group.directions(z), group.weights / group.norms(z)
    slope = group.linear.transpose_apply(group.spread(group.weights) * directions)
    return np.asarray(slope), group.bend(directions, stiff, np.zeros_like(stiff))


def _face_value(smooth: Composite, live: Sequence[Groups], x: Vector) -> float:
    return smooth.quadratic(x) + sum(group.total(group.positions(x)) for group in live)


class _Held:
    """Rows held at a value: the steps that keep them there, and the multipliers that do.

    Rows of a single variable, as of groups of coordinates that vanish, are substituted. What is left is solved by a
    symmetric system of the order of the free variables and the other rows.
    """

    def __init__(self, matrix: Any, low: Vector, high: Vector) -> None:
        self.matrix, self.low, self.high = matrix, low, high  # the multipliers' bounds, where they are simple
        lengths = np.diff(matrix.indptr)
        self.alone, self.others = np.flatnonzero(lengths == 1), np.flatnonzero(lengths != 1)
        at = matrix.indptr[self.alone]
        self.columns, self.factors = matrix.indices[at], matrix.data[at]
        free = np.ones(matrix.shape[1], dtype=bool)
        free[self.columns] = False
        self.free = np.flatnonzero(free)
        self.tied = matrix[self.others]
        self.tied_free = self.tied[:, self.free].toarray()
        self.transpose = matrix.T.tocsr()
        order = np.argsort(self.columns, kind="stable")
        begins = np.flatnonzero(np.diff(self.columns[order], prepend=-1))
        counts = np.diff(np.append(begins, self.columns.size))
        self.turns = np.empty(self.columns.size, dtype=np.intp)  # of rows that hold the same variable
        self.turns[order] = np.arange(self.columns.size) - np.repeat(begins, counts)
        self.last = np.zeros(self.columns.size, dtype=bool)
        self.last[order[begins + counts - 1]] = True

    def step(self, matrix: Any, slope: Vector, missing: Vector) -> tuple[Vector, Vector]:
        """Minimise ``1/2 d'Kd + slope'd`` subject to ``held d = missing``: the step and the multipliers."""
        dx, multipliers, free, count = np.zeros(slope.size), np.zeros(missing.size), self.free, self.free.size
        dx[self.columns] = missing[self.alone] / self.factors
        inner, along = np.zeros((count, count)), slope[free].copy()
        if matrix is not None:
            rows = sp.csr_array(matrix)[free] if sp.issparse(matrix) else matrix[free]
            along += rows @ dx
            inner += rows[:, free].toarray() if sp.issparse(rows) else rows[:, free]
        scale = 1.0 / np.sqrt(np.where(inner.diagonal() > 0.0, inner.diagonal(), 1.0))
        system = np.zeros((count + self.others.size,) * 2)
        system[:count, :count] = scale[:, None] * inner * scale
        system[count:, :count] = self.tied_free * scale
        system[:count, count:] = system[count:, :count].T
        rhs = np.concatenate([-scale * along, missing[self.others] - self.tied @ dx])
        solution = _symmetric(system, rhs)
        dx[free] = scale * solution[:count]
        multipliers[self.others] = solution[count:]
        left = -(slope + (0.0 if matrix is None else matrix @ dx) + self.transpose @ multipliers)
        multipliers[self.alone] = self._shared(left)
        return dx, multipliers

    def _shared(self, left: Vector) -> Vector:
        """Multipliers of the rows of single variables, which together pull by `left`.

        A variable that several rows hold is pulled by each in turn up to its bounds, by the last with what is left.
        """
        left, multipliers = left.copy(), np.zeros(self.columns.size)
        low, high = self.low[self.alone], self.high[self.alone]
        for turn in range(int(self.turns.max(initial=-1)) + 1):
            now = np.flatnonzero(self.turns == turn)
            wanted = left[self.columns[now]] / self.factors[now]
            multipliers[now] = np.where(self.last[now], wanted, np.clip(wanted, low[now], high[now]))
            left[self.columns[now]] -= self.factors[now] * multipliers[now]
        return multipliers


def _symmetric(system: Vector, rhs: Vector) -> Vector:
    if not rhs.size or not np.all(np.isfinite(system)):
        return np.full(rhs.size, np.nan)
    try:
        solution = np.linalg.solve(system, rhs)
        solution = solution + np.linalg.solve(system, rhs - system @ solution)
        if np.abs(system @ solution - rhs).max() <= 1e-9 * max(1.0, float(np.abs(rhs).max())):
            return np.asarray(solution)
    except np.linalg.LinAlgError:
        pass
    return np.asarray(np.linalg.lstsq(system, rhs, rcond=1e-13)[0])
