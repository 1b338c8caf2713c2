r"""From a small sigma to the exact optimum.

Everything is frozen but the kinks that a row may rest on. What is left is small,

    min 1/2 x'Hx + g'x + sum_k h_k (a_k'x + d_k)_+,                                                                 (1)

and is solved exactly through its dual: each near kink has a multiplier u_k between zero and its jump h_k. Without
curvature that is a linear programme, solved from vertex to vertex [BarrodaleRoberts73] or by a simplex method [HiGHS],

    max d'u,    A'u = -g,    0 <= u <= h;                                                                           (2)

with it a box-constrained quadratic programme [DAQP], H^+ the pseudo-inverse,

    min 1/2 (g + A'u)' H^+ (g + A'u) - d'u,    N'(g + A'u) = 0 for N the null space of H,    0 <= u <= h,           (3)
    x = -H^+ (g + A'u) + N c.                                                                                       (4)

Rows inside their bounds rest exactly, ``A_I x + d_I = 0``, which fixes u_I and c to the last digits.               (5)
Rows that passed a kink are added, and the solve is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import left, tick
from varopt._linalg import as_dense, factorised
from varopt.certificates import dual_gap
from varopt.composite import Composite
from varopt.solvers.finish._box_programs import box_by_active_set
from varopt.solvers.finish._vertex import best_vertex

__all__ = ["Exact", "cross_over"]

Vector = NDArray[np.float64]

# Share of the reach within which a row is expected to come to rest. Half or twice as much changes nothing on a quantile
# regression and a support vector machine of 2,000 x 40.
_RESTING_REACH = 1.0 / 3.0
_CURVED_TOLERANCE = 1e-3  # share of the tolerance that is asked for where terms are curved
_NEW_ENTRY_OPERATIONS = 400.0  # operations that an entry of a matrix takes in memory that is new
# Operations that an entry of a linear programme takes before HiGHS looks at the clock.
_PROGRAM_ENTRY_OPERATIONS = 2000.0

Near = list[list[NDArray[np.bool_]]]  # for each block, for each of its kinks: the rows that may rest on it


class Exact(NamedTuple):
    """A point, its value and the dual gap that its multipliers prove."""

    x: Vector
    value: float
    gap: float
    assumption: str  # what the gap takes on trust, empty where nothing
    dual: list[Vector]  # of the rows


def cross_over(
    problem: Composite, x: Vector, reach: Sequence[float], tol: float, *, rounds: int = 12, most: int = 2000
) -> Exact | None:
    """Solve `problem` exactly from a point near its optimum; None where that does not lock on.

    Parameters
    ----------
    problem : Composite
    x : array
        A point near the optimum.
    reach : sequence of float
        For each block, the distance from a kink within which a row is taken to be near it.
    tol : float
        Relative gap at which to stop.
    rounds, most : int
        Limits on the repetitions and on the number of near kinks.
    """
    reference = problem.positions(x)
    near: Near = [
        [np.abs(z - t) <= d for t, _ in r.kinks] for r, z, d in zip(problem.rows, reference, reach, strict=True)
    ]
    best: Exact | None = None
    positions, rests = reference, [_RESTING_REACH * d for d in reach]
    # Rows that have changed their quadratic piece are right a round later, which is worth its little time.
    lines = all(r.term.degree <= 1 for r in problem.rows)
    close = tol if lines else _CURVED_TOLERANCE * tol
    for _ in range(rounds):
        tick()
        if sum(int(mask.sum()) for block in near for mask in block) > most:
            return best
        sides = _sides(problem, positions, near, rests)
        solved = _solve_kinks(problem, reference, near, sides)
        if solved is None:
            return best
        x, multipliers, residual = solved
        positions = problem.positions(x)
        rests = [1e-9 * float(np.abs(z).max(initial=0.0)) for z in positions]
        value = problem.value(x, positions)
        dual = _dual(problem, reference, positions, near, multipliers)
        gap, assumption = dual_gap(problem, x, positions, dual, residual=residual if lines else None)
        if best is None or value + gap < best.value + best.gap:
            best = Exact(x, value, gap, assumption, dual)
        if gap <= close * max(problem.unit, abs(value)) or not _update(problem, reference, positions, near):
            return best
    return best


def _sides(problem: Composite, positions: Sequence[Vector], near: Near, rests: Sequence[float]) -> Vector:
    """On which side of its kink each near row seems to end up: -1 and 1, or 0 where it may come to rest."""
    sides = [np.zeros(0)]
    for r, z, masks, rest in zip(problem.rows, positions, near, rests, strict=True):
        for (t, _), mask in zip(r.kinks, masks, strict=True):
            away = (z - t)[mask]
            sides.append(np.where(np.abs(away) > rest, np.sign(away), 0.0))
    return np.concatenate(sides)


def _update(problem: Composite, reference: list[Vector], positions: Sequence[Vector], near: Near) -> bool:
    """Rows that passed a kink may rest on it; rows that only changed their polynomial are frozen anew."""
    changed = False
    for b, (r, z, z0) in enumerate(zip(problem.rows, positions, reference, strict=True)):
        for j, (t, _) in enumerate(r.kinks):
            passed = ~near[b][j] & ((z >= t) != (z0 >= t))
            near[b][j] = near[b][j] | passed
            changed = changed or bool(passed.any())
        if r.term.degree > 1:
            moved = r.term.derivative(z, 2) != r.term.derivative(z0, 2)
            reference[b] = np.where(moved, z, z0)
            changed = changed or bool(moved.any())
    return changed


def _solve_kinks(
    problem: Composite, reference: Sequence[Vector], near: Near, sides: Vector
) -> tuple[Vector, list[list[Vector]], Vector | None] | None:
    """(1): every near kink a function of its own and all else frozen; the point and the multipliers.

    Also what these leave of the gradient, where there is curvature along every variable: rounding, that of frozen rows
    added up once.
    """
    matrices, offsets, highs, distances, counts, tilts = [], [np.zeros(0)], [np.zeros(0)], [np.zeros(0)], [], []
    for r, z, masks in zip(problem.rows, reference, near, strict=True):
        tilt = np.zeros(z.shape)  # from the side that a row lies on to the middle of the jump at its kink
        for (t, jump), mask in zip(r.kinks, masks, strict=True):
            index = np.flatnonzero(mask)
            counts.append(index.size)
            part = r.linear.rows(index).explicit()
            matrices.append(part.toarray() if sp.issparse(part) else np.asarray(part, dtype=np.float64))
            knot, height = (np.broadcast_to(np.asarray(v, dtype=np.float64), z.shape)[index] for v in (t, jump))
            tilt[index] += np.where(z[index] >= knot, -0.5, 0.5) * height
            offsets.append(r.offset[index] - knot)
            away = np.abs(z[index] - knot)
            distances.append(away / max(float(away.max(initial=0.0)), 1e-300))
            highs.append(r.weights[index] * height)
        tilts.append(tilt)
    frozen = problem.freeze(reference, [np.zeros(z.shape, dtype=bool) for z in reference], tilts)
    d, high = np.concatenate(offsets), np.concatenate(highs)
    a = np.vstack(matrices) if matrices else np.zeros((0, problem.size))
    solved = (
        _linear(frozen.gradient_at_zero - 0.5 * high @ a, a, d, high, np.concatenate(distances))
        if frozen.hessian is None
        else _quadratic(frozen.hessian, frozen.gradient_at_zero, a, d, high, sides)
    )
    if solved is None or not np.all(np.isfinite(solved[0])):
        return None
    x, multipliers = solved
    flat = iter(np.split(multipliers, np.cumsum(counts)))
    curved = frozen.hessian is not None and bool(np.all(frozen.hessian.diagonal() > 0.0))
    residual = frozen.quadratic_gradient(x) + (multipliers - 0.5 * high) @ a if curved else None
    return x, [[next(flat) for _ in masks] for masks in near], residual


def _linear(gradient: Vector, a: Vector, d: Vector, high: Vector, distance: Vector) -> tuple[Vector, Vector] | None:
    """(1) without curvature, from vertex to vertex where that is a short way, else by its dual (2).

    Multipliers are measured in units of their bounds and variables in units of their columns, since HiGHS works to
    absolute tolerances; the multipliers strictly inside are then solved for once more, to full accuracy.
    """
    live = high > 0
    if not live.any():
        return None
    if live.all() and (found := best_vertex(gradient, a, d, high, distance)) is not None:
        return found
    from scipy.optimize import linprog

    tick(_PROGRAM_ENTRY_OPERATIONS * a.size)
    rows, cost = a[live] * high[live, None], d[live] * high[live]
    columns = np.abs(rows).max(axis=0)
    scale = np.where(columns > 0, columns, 1.0)
    gain = max(float(np.abs(cost).max()), 1e-300)
    matrix, wanted = (rows / scale).T, -gradient / scale
    if not (np.isfinite(gain) and np.all(np.isfinite(matrix)) and np.all(np.isfinite(wanted))):
        return None
    result = linprog(  # (2)
        -cost / gain, A_eq=matrix, b_eq=wanted, bounds=(0.0, 1.0), method="highs-ds",
        options=_seconds(),
    )  # fmt: skip
    if result.status != 0:
        return None
    v = np.clip(result.x, 0.0, 1.0)
    inside = (v > 1e-9) & (v < 1.0 - 1e-9)
    for _ in range(2 if inside.any() else 0):
        missing = -(gradient + v @ rows) / scale
        v[inside] += np.linalg.lstsq((rows[inside] / scale).T, missing, rcond=1e-13)[0]
    u = np.zeros(high.size)
    u[live] = np.clip(v, 0.0, 1.0) * high[live]
    # The multipliers of A'u = -g are the point: d(min -d'u) / d(-g_j) = x_j.
    return np.asarray(result.eqlin.marginals) * gain / scale, u


def _seconds() -> dict[str, float]:
    """Those that HiGHS may take."""
    return {"time_limit": max(left(), 1e-3)} if math.isfinite(left()) else {}


def _quadratic(
    matrix: Any, gradient: Vector, a: Vector, d: Vector, high: Vector, sides: Vector
) -> tuple[Vector, Vector] | None:
    """(1) by its dual (3).

    Multipliers are counted from the middle of their range, where large weights act in neither direction: counted from
    an end, what they leave of each other would be lost to rounding. The gradient g is that with all of them there.
    """
    tick(float(gradient.size) ** 2 * (gradient.size / 3.0 + _NEW_ENTRY_OPERATIONS))
    hessian = as_dense(matrix)
    diagonal, columns = hessian.diagonal(), np.abs(a).max(axis=0, initial=0.0)
    flat = np.where(columns > 0, columns, 1.0)
    scale = 1.0 / np.where(diagonal > 0, np.sqrt(np.maximum(diagonal, 1e-300)), flat)  # variables in any units
    half = 0.5 * high
    rows, gradient = a * scale, scale * gradient
    scaled = scale[:, None] * hessian * scale
    factor = factorised(scaled)
    if factor is not None:
        null = np.zeros((gradient.size, 0))

        def invert(v: Vector) -> Vector:
            return np.asarray(scipy.linalg.cho_solve(factor, v, check_finite=False))

    else:
        tick(10.0 * float(gradient.size) ** 3)
        values, vectors = np.linalg.eigh(scaled)
        curved = values > 1e-11 * max(float(values[-1]), 1e-300)
        null, basis, curvature = vectors[:, ~curved], vectors[:, curved], values[curved]

        def invert(v: Vector) -> Vector:
            return np.asarray(basis @ ((basis.T @ v).T / curvature).T)

    if not d.size:
        return -scale * invert(gradient), high  # (4)
    spread = invert(rows.T)
    inner = rows @ spread  # (3)
    balance = (rows @ null).T  # (3): in directions without curvature multipliers must cancel the gradient
    target = -(null.T @ gradient)
    linear = spread.T @ gradient - d  # (3): A H^+ g - d
    v = box_by_active_set(inner, linear, balance, target, -half, half, sides)
    if v is None:
        return None

    def point(v: Vector) -> Vector:
        return -invert(gradient + rows.T @ v)  # (4)

    v, finer, directions = _polish(v, lambda v: rows @ point(v) + d, inner, balance, target, half)
    y = point(v) - spread @ finer
    resting = balance[:, np.abs(v) < half]
    if null.shape[1] and (not resting.size or np.linalg.matrix_rank(resting) < null.shape[1]):
        # No resting row fixes these directions.
        found = _along(null.T @ gradient - balance @ half, balance.T, rows @ y + d, high)
        if found is None:
            return None
        directions = found
    return scale * (y + null @ directions), half + v  # (4): y + N c


def _along(gradient: Vector, a: Vector, d: Vector, high: Vector) -> Vector | None:
    """``argmin g'x + sum high (Ax + d)_+`` over a few directions, as a linear programme in epigraph form."""
    from scipy.optimize import linprog

    if not all(np.all(np.isfinite(part)) for part in (gradient, a, d)):
        raise np.linalg.LinAlgError("products of the data overflow")
    count, size = a.shape
    result = linprog(
        np.concatenate([gradient, high]),
        A_ub=np.hstack([a, -np.eye(count)]),
        b_ub=-d,
        bounds=[(None, None)] * size + [(0.0, None)] * count,
        method="highs",
        options=_seconds(),
    )
    return np.asarray(result.x[:size]) if result.status == 0 else None


def _polish(
    v: Vector, distance: Callable[[Vector], Vector], inner: Vector, balance: Vector, target: Vector, half: Vector
) -> tuple[Vector, Vector, Vector]:
    """Multipliers to full accuracy by (5), once it is known which lie inside.

    Also returns what they lack that is finer than their own rounding, which the point shall not lack; and the
    components of the point in directions without curvature, which these rows fix. `distance` is that of the rows from
    their kinks but for these directions, from the sum of all multipliers: only there do large ones cancel as well as
    they can.
    """
    inside = np.abs(v) < half
    count, free = int(inside.sum()), target.size
    # In units in which curvature is one and balances are of length one: data may be in any.
    diagonal = inner.diagonal()[inside]
    largest = float(diagonal.max(initial=0.0))
    unit = 1.0 / np.sqrt(np.maximum(diagonal, 1e-9 * largest if largest > 0.0 else 1.0))
    across = balance[:, inside] * unit
    lengths = np.linalg.norm(across, axis=1)
    rounding = 1e-9 * float(np.linalg.norm(balance, axis=1).max(initial=0.0) * unit.max(initial=0.0))
    lengths = np.where(lengths > rounding, lengths, 1.0)  # what is rounding stays small
    across = across / lengths[:, None]
    system = np.zeros((count + free, count + free))
    system[:count, :count] = unit[:, None] * inner[np.ix_(inside, inside)] * unit
    system[:count, count:] = -across.T
    system[count:, :count] = across
    # The smallest correction of what is known: where rows are dependent their multipliers are not unique.
    polished, finer, directions = v, np.zeros_like(v), np.zeros(free)
    for _ in range(3 if count + free else 0):
        polished = np.clip(polished + finer, -half, half)
        rest = unit * distance(polished)[inside] + across.T @ directions  # (5)
        step = _least(system, np.concatenate([rest, (target - balance @ polished) / lengths]))
        finer[inside] = unit * step[:count]
        directions += step[count:]
    return polished, finer, directions / lengths


def _least(system: Vector, rhs: Vector) -> Vector:
    """The solution of a square system; the smallest one of the closest where it is singular."""
    factor, _, solution, info = scipy.linalg.lapack.dgesv(system, rhs)
    diagonal = np.abs(np.diagonal(factor))
    if info == 0 and diagonal.min() > 1e-9 * diagonal.max():
        return np.asarray(solution)
    return np.asarray(np.linalg.lstsq(system, rhs, rcond=1e-13)[0])


def _dual(
    problem: Composite,
    reference: Sequence[Vector],
    positions: Sequence[Vector],
    near: Near,
    multipliers: list[list[Vector]],
) -> list[Vector]:
    """A dual point: multipliers on near kinks, else gradients, of a linear piece as frozen, of a curved one as now."""
    dual = []
    for r, z0, z, masks, parts in zip(problem.rows, reference, positions, near, multipliers, strict=True):
        at = z0 if r.term.degree <= 1 else np.where(r.term.derivative(z0, 2) == 0.0, z0, z)
        subgradient = np.array(r.term.derivative(at))
        for (t, jump), mask, u in zip(r.kinks, masks, parts, strict=True):
            subgradient -= np.where(mask & (at >= t), jump, 0.0)
            weights = r.weights[mask]
            subgradient[mask] += np.divide(u, weights, out=np.zeros_like(u), where=weights > 0)
        low, high = r.term.subgradient_range
        dual.append(np.clip(subgradient, low, high))
    return dual
