r"""The exact optimum of a problem with norms, once it is known which groups vanish and which rows rest on a kink.

On the active set, where those are held, the rest is smooth: Newton's method with the held rows as equality constraints
[NW06, section 16.1], whose multipliers are their dual variables. With K and G the second and first derivatives of the
rest and A x = c what is held, a step is

    K d + A'u = -G,    A d = c - A x,                                                                                (1)

where a norm that does not vanish has, with e = z / |z|,

    the gradient w Z'e and the Hessian w Z'(I - e e')Z / |z|.                                                        (2)

What the multipliers say is wrong with the set is corrected, and it is solved again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import add
from varopt.certificates import Bracketed, dual_gap
from varopt.composite import Composite, Groups

__all__ = ["ActiveSet", "group_gap", "with_norms_linearised"]

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

_NEWTON_STEPS_ON_SET = 15  # most steps on one active set: with more it is not the right one
_SPARE = 20  # rows held beyond the number of variables with which an active set is still tried
_PROJECTIONS = 500  # by which a sum of duals is divided among groups
_SMALLER = 1e-7  # by how much smaller their balls are in these
_GROUPS_AT_ONCE = 2  # that are let go, and a tenth of those that do not vanish
_SHORTEST_STEP = 1e-4  # share of a step below which it is not worth taking
_MULTIPLIER_OUTSIDE = 1e-9  # relative excess of a multiplier beyond its bound at which its row is let go
_VANISHING_NORM = 1e-3  # share of its size at the start below which a norm is taken to be on its way to zero


def group_gap(
    problem: Composite, x: Vector, positions: Sequence[Vector], dual: Sequence[Vector], norm_dual: Sequence[Vector]
) -> tuple[float, str]:
    """``f(x)`` minus the value of a dual point of the rows and of the norms, and what it assumes.

    A norm lies above each of its tangents ``v'z``, v in the ball of its weight. With them in its place the problem has
    a dual gap of its own, to which the Fenchel-Young gaps of the norms are added.
    """
    gap, size = 0.0, np.zeros(x.size)
    for group, v in zip(problem.groups, norm_dual, strict=True):
        size += np.sqrt(v.size * group.linear.gram_diagonal(v * v))
        gap += group.young(group.positions(x), v)
    rest, assumption = dual_gap(with_norms_linearised(problem, norm_dual), x, positions, dual, size)
    return gap + rest, assumption


def with_norms_linearised(problem: Composite, norm_dual: Sequence[Vector]) -> Composite:
    """The problem with the tangents ``v'z`` in place of its norms: it lies below."""
    vector, scalar = problem.vector.copy(), problem.scalar
    for group, v in zip(problem.groups, norm_dual, strict=True):
        vector += group.linear.transpose_apply(v)
        scalar += float(v @ group.offset)
    return replace(problem, vector=vector, scalar=scalar, groups=())


@dataclass(eq=False)
class ActiveSet:
    """A point, the rows that rest on a kink, and the groups that do not vanish.

    The quadratic of `problem` must be multiplied out: no squares.
    """

    problem: Composite
    x: Vector
    knots: list[Vector]  # for each row the knot it rests on, or NaN
    active: list[Mask]  # for each group whether it does not vanish

    def __post_init__(self) -> None:
        self.reference = self.problem.positions(self.x)

    def solve(self, tol: float, rounds: int = 8) -> Bracketed | None:
        """Solve and correct: the best point, with the dual of its rows and norms; None where nothing came of it."""
        best: Bracketed | None = None
        for _ in range(rounds):
            solved = self._newton()
            if solved is None:
                return best
            self.x, multipliers, norm_dual = solved
            norm_dual = self._divided(norm_dual)
            positions = self.problem.positions(self.x)
            value = self.problem.value(self.x, positions)
            dual = self._dual(positions, multipliers)
            feasible = [g.feasible(v) for g, v in zip(self.problem.groups, norm_dual, strict=True)]
            gap, assumption = group_gap(self.problem, self.x, positions, dual, feasible)
            if best is None or value + gap < best[1] + best[2] or (not np.isfinite(best[2]) and value < best[1]):
                best = Bracketed(self.x, value, gap, assumption, [*dual, *feasible])
            done = gap <= tol * abs(value)
            if done or not self._correct(positions, multipliers, norm_dual) or not self.may_exist:
                return best
        return best

    @property
    def may_exist(self) -> bool:
        """Whether no more rows are held than there are variables, or few more, as where data are degenerate."""
        rows = zip(self.problem.rows, self.knots, strict=True)
        held = sum(int(np.count_nonzero(~np.isnan(knot))) for r, knot in rows if r.single is None)
        return held <= self.problem.size + _SPARE

    # -- Newton's method on the active set ----------------------------------------------------------------------------

    def _newton(self) -> tuple[Vector, list[Vector], list[Vector]] | None:
        """The optimum on the active set; multipliers of the resting rows (zero for others), and duals of the norms."""
        for group, mask in zip(self.problem.groups, self.active, strict=True):
            mask &= group.norms(group.positions(self.x)) > 0.0
        resting = [~np.isnan(knot) for knot in self.knots]
        smooth = replace(self.problem, groups=()).freeze(self.reference, resting)
        held, target = self._held(resting)
        x, before = self.x, np.inf
        live = [group.take(mask) for group, mask in zip(self.problem.groups, self.active, strict=True) if mask.any()]
        for step in range(_NEWTON_STEPS_ON_SET):
            tick()
            gradient, hessian = smooth.gradient_at_zero, smooth.hessian
            if hessian is not None:
                gradient = gradient + hessian @ x
            for group in live:
                norm_gradient, norm_hessian = _norm_derivatives(group, x)
                gradient, hessian = gradient + norm_gradient, add(hessian, norm_hessian)
            dx, multipliers = held.step(hessian, gradient, target - held.matrix @ x)  # (1)
            if not np.all(np.isfinite(dx)):
                return None
            if self._collapsed(x, x + dx):
                return self._newton()
            length = 1.0
            if step:  # the first reaches the constraints, whatever it costs
                value = _smooth_value(smooth, live, x)
                while _smooth_value(smooth, live, x + length * dx) > value + 1e-14 * abs(value):
                    length *= 0.5
                    if length < _SHORTEST_STEP:
                        return x, *self._unstacked(resting, multipliers, x)
            x = x + length * dx
            size = float(np.abs(dx).max(initial=0.0))
            if size <= 1e-15 * float(np.abs(x).max(initial=0.0)) or (size <= 1e-9 and size > 0.5 * before):
                break  # as good as rounding allows
            before = size
        return x, *self._unstacked(resting, multipliers, x)

    def _collapsed(self, x: Vector, following: Vector) -> bool:
        """Take groups that shrink to nothing or turn about in a step out of the active ones; whether there are any.

        One that was taken out too soon will have a dual outside its ball, and is let go again.
        """
        any_gone = False
        for group, mask in zip(self.problem.groups, self.active, strict=True):
            start, now, then = (group.positions(point) for point in (self.x, x, following))
            gone = mask & (
                (group.norms(then) <= _VANISHING_NORM * group.norms(start)) | (group.summed(now * then) <= 0.0)
            )
            mask[gone] = False
            any_gone = any_gone or bool(gone.any())
        return any_gone

    def _held(self, resting: Sequence[Mask]) -> tuple[_Equalities, Vector]:
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
        held = _Equalities(sp.vstack(matrices, format="csr"), np.concatenate(lows), np.concatenate(highs))
        return held, np.concatenate(targets)

    def _unstacked(self, resting: Sequence[Mask], multipliers: Vector, x: Vector) -> tuple[list[Vector], list[Vector]]:
        rows, norm_dual, start = [], [], 0
        for r, rests in zip(self.problem.rows, resting, strict=True):
            own, count = np.zeros(r.count), int(rests.sum())
            own[rests] = multipliers[start : start + count]
            rows.append(own)
            start += count
        for group, mask in zip(self.problem.groups, self.active, strict=True):
            vanished = group.spread(~mask)
            v, count = group.spread(group.weights) * group.directions(group.positions(x)), int(vanished.sum())
            v[vanished] = multipliers[start : start + count]
            norm_dual.append(v)
            start += count
        return rows, norm_dual

    def _divided(self, norm_dual: list[Vector]) -> list[Vector]:
        """Duals of vanished groups that share variables, divided among them so that all are in their balls if need be.

        Their sum on each variable is given: projections in turn on that and on the balls, a little smaller ones so that
        the last duals are inside.
        """
        groups = self.problem.groups
        inside = [np.flatnonzero(group.spread(~mask)) for group, mask in zip(groups, self.active, strict=True)]
        held = Groups.stacked([group.take(~mask) for group, mask in zip(groups, self.active, strict=True)])
        v = np.concatenate([v[index] for v, index in zip(norm_dual, inside, strict=True)])
        if not v.size or np.all(held.norms(v) <= held.weights):
            return norm_dual
        matrix = sp.csr_array(held.linear.explicit())
        if np.any(np.diff(matrix.indptr) != 1) or np.bincount(matrix.indices).max() == 1:
            return norm_dual  # not of variables only, or none of them shared
        at, factor = matrix.indices, matrix.data
        squares, total = np.bincount(at, factor**2), np.bincount(at, factor * v)
        squares[squares == 0.0] = 1.0
        smaller = replace(held, weights=(1.0 - _SMALLER) * held.weights)
        for _ in range(_PROJECTIONS):
            if np.all(held.norms(v) <= held.weights):
                break
            v = smaller.feasible(v)
            v = v + factor * ((total - np.bincount(at, factor * v)) / squares)[at]
        divided = [own.copy() for own in norm_dual]
        parts = np.split(v, np.cumsum([index.size for index in inside])[:-1])
        for own, index, part in zip(divided, inside, parts, strict=True):
            own[index] = part
        return divided

    # -- What the multipliers say -------------------------------------------------------------------------------------

    def _dual(self, positions: Sequence[Vector], multipliers: Sequence[Vector]) -> list[Vector]:
        """Of the rows: multipliers where they rest, else gradients, of linear pieces as frozen, of others as now."""
        dual = []
        for r, z, z0, knot, u in zip(
            self.problem.rows, positions, self.reference, self.knots, multipliers, strict=True
        ):
            gradient = r.term.derivative(np.where(r.term.derivative(z0, 2) == 0.0, z0, z))
            weights = np.where(r.weights > 0.0, r.weights, 1.0)
            subgradient = np.where(np.isnan(knot) | (r.weights == 0.0), gradient, u / weights)
            dual.append(np.clip(subgradient, *r.term.subgradient_range))
        return dual

    def _correct(self, positions: Sequence[Vector], multipliers: Sequence[Vector], norm_dual: Sequence[Vector]) -> bool:
        """Let go what is dual infeasible, hold what passed a kink, freeze anew what passed a knot; whether any did."""
        infeasible = [
            ~mask & (group.norms(v) > group.weights * (1.0 + _MULTIPLIER_OUTSIDE))
            for group, mask, v in zip(self.problem.groups, self.active, norm_dual, strict=True)
        ]
        known = sum(int(mask.sum()) for mask in self.active)
        if sum(int(new.sum()) for new in infeasible) > _GROUPS_AT_ONCE + 0.1 * known:
            return False  # so wrong an active set is not worth correcting
        changed = False
        for b, (r, z, u) in enumerate(zip(self.problem.rows, positions, multipliers, strict=True)):
            knot, z0 = self.knots[b], self.reference[b]
            rests = ~np.isnan(knot)
            at = np.where(rests, knot, 0.0)
            low, high = r.term.subdifferential(at)
            margin = _MULTIPLIER_OUTSIDE * r.weights * (high - low)
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
        for group, mask, new, v in zip(self.problem.groups, self.active, infeasible, norm_dual, strict=True):
            if new.any():  # off zero, along the direction of descent
                descent = -group.linear.transpose_apply(np.where(group.spread(new), v, 0.0))
                size = max(float(np.abs(self.x).max(initial=0.0)), 1e-3) / max(float(np.abs(descent).max()), 1e-300)
                self.x = self.x + 1e-6 * size * descent
                mask |= new
                changed = True
        return changed


def _norm_derivatives(group: Groups, x: Vector) -> tuple[Vector, Any]:
    """(2): gradient and Hessian of the weighted norms where they do not vanish."""
    z = group.positions(x)
    directions, curvature = group.directions(z), group.weights / group.norms(z)
    gradient = group.linear.transpose_apply(group.spread(group.weights) * directions)
    return np.asarray(gradient), group.radial_hessian(directions, curvature, np.zeros_like(curvature))


def _smooth_value(smooth: Composite, live: Sequence[Groups], x: Vector) -> float:
    return smooth.quadratic(x) + sum(group.total(group.positions(x)) for group in live)


class _Equalities:
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

    def step(self, matrix: Any, gradient: Vector, missing: Vector) -> tuple[Vector, Vector]:
        """(1): minimise ``1/2 d'Kd + gradient'd`` subject to ``held d = missing``; the step and the multipliers."""
        dx, multipliers, free, count = np.zeros(gradient.size), np.zeros(missing.size), self.free, self.free.size
        dx[self.columns] = missing[self.alone] / self.factors
        inner, along = np.zeros((count, count)), gradient[free].copy()
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
        solution = _symmetric(system, rhs)  # (1), of the free variables and the rows of several
        dx[free] = scale * solution[:count]
        multipliers[self.others] = solution[count:]
        # (1): what is left of its first equation belongs to the rows of single variables.
        left = -(gradient + (0.0 if matrix is None else matrix @ dx) + self.transpose @ multipliers)
        multipliers[self.alone] = self._shared(left)
        return dx, multipliers

    def _shared(self, left: Vector) -> Vector:
        """Multipliers of the rows of single variables, which together leave nothing of the gradient, minus `left`.

        Where several rows hold a variable each in turn takes what its bounds allow, and the last what is left.
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
