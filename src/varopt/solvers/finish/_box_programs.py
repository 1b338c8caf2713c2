r"""Box-constrained quadratic programmes with a balance: the dual of kinks, each with a multiplier.

    min 1/2 v'Qv + q'v      0 <= v <= high,  s'v = total                                                            (1)

Where it is known about which variables end inside, all that are on a wrong side change it at once, a Newton step on the
conditions of optimality [HIK02]: some factorisations of those inside. Else, and where that goes round in circles, small
ones go to DAQP [DAQP], whose active set takes a step for every variable that changes sides and ends on a vertex; large
ones to Mehrotra's predictor and corrector [Mehrotra92; NW06, Algorithm 16.4], a dozen or two factorisations
whatever their degeneracy. With high = 1, and multipliers l of v >= 0, t of v <= 1 and b of the balance, its equations
are

    residual = Qv + q + b s - l + t,    miss = s'v - total,    mu = (l'v + t'(1 - v)) / 2n,                         (2)
    (Q + l / v + t / (1 - v)) dv + db s = -residual - l + c / v + t - c' / (1 - v),    s'dv = -miss,                (3)
    dl = c / v - l - (l / v) dv,    dt = c' / (1 - v) - t + (t / (1 - v)) dv,                                       (4)

with c = c' = 0 for the predictor, whose longest step leaves mu', and for the corrector

    c = sigma mu - dv dl,    c' = sigma mu + dv dt,    sigma = (mu' / mu)^3.                                        (5)
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import cholesky
from varopt.solvers.finish._daqp import EQUAL, active, by_dual_active_set

__all__ = ["box_by_active_set", "box_by_interior_point"]

Vector = NDArray[np.float64]

_LEAST_COMPLEMENTARITY = 1e-18  # mean beyond which rounding rules
_FAR_BOUND = 100.0  # natural sizes of a multiplier at which a bound is far away
_UNEVEN = 300.0  # ratio of the roots of curvatures, in units of the bounds, beyond which these may be no good units,
# And entries that steps may touch, or four steps for each multiplier, before others are tried.
_TRIED_ENTRIES = 2_000_000
_RIDGE = 1e-13  # what is added to a matrix of unit size, for it may be singular
_EXCHANGED = 96  # variables from which on exchanges of sides are faster than steps of DAQP,
_BOX_EXCHANGES = 12  # and how many at most: six to nine are usual
_SOFT = 0.1, 0.03  # share of the curvature that is added at first, for a guess has too many inside, and how it falls
_LEAST_SOFT = 1e-6  # share of which nothing is left at the next exchange
_DEPENDENT = 1e-6  # share of the root of its curvature that the others leave of a multiplier that depends on them
_WRONG = 1e-12  # share of the largest slope that is no reason to leave an end
_ACTIVE_SET_WORK = 25_000_000  # entries it may touch, a tenth of a second, where it needs many steps a variable
_ACTIVE_SET_SECONDS = 0.5, 1e-9  # in all, and for the cube of the variables: about as long as interior points take
_BOUNDARY_SHARE = 0.995  # of the way to the boundary that a step may take, as is usual [Wright97, ch. 10]


def box_by_interior_point(
    matrix: Vector, linear: Vector, high: Vector, signs: Vector, total: float, *, tol: float = 1e-11, most: int = 60
) -> tuple[Vector, float]:
    """The minimiser and the multiplier b of the balance, to relative complementarity `tol`.

    Variables are measured in units of `high`; where that overflows, their middle is returned. A step costs one
    factorisation of the order of the variables.
    """
    unit, count = high, high.size
    scaled, q = _scaled(matrix, linear, unit)
    size = max(float(np.abs(scaled.diagonal()).mean()), float(np.abs(q).max(initial=0.0)), 1e-300)
    if not np.isfinite(size):
        return 0.5 * unit, 0.0
    scaled, q, s = scaled / size, q / size, unit * signs
    largest = float(np.abs(s).max(initial=0.0)) or 1.0  # of which squares may underflow
    weight = float(np.linalg.norm(s / largest)) or 1.0
    s, goal = s / largest / weight, total / largest / weight
    v, b = np.full(count, 0.5), 0.0
    gradient = scaled @ v + q
    low = np.maximum(gradient, 0.0) + 1.0  # multipliers of v >= 0 and of v <= 1
    top = np.maximum(-gradient, 0.0) + 1.0
    for _ in range(most):
        tick()
        room = 1.0 - v
        residual = gradient + b * s - low + top  # (2)
        miss = float(s @ v) - goal
        mean = float(low @ v + top @ room) / (2 * count)
        if mean <= tol and np.abs(residual).max() <= 1e-9 and abs(miss) <= 1e-12:
            break
        if not min(v.min(initial=1.0), room.min(initial=1.0)) > 0.0:  # at an end, to rounding
            break
        system = scaled.copy()
        system[np.diag_indices(count)] += low / v + top / room  # (3)
        try:
            factor = cholesky(system, overwrite=True)
        except np.linalg.LinAlgError:
            break
        across = scipy.linalg.cho_solve(factor, s, check_finite=False)
        curvature = float(s @ across)  # of the balance, with dv eliminated
        if not curvature > 0.0:  # every variable is at an end, to rounding
            break
        below, above = np.zeros(count), np.zeros(count)  # what the products v low and (1 - v) top are steered to
        for corrected in (False, True):
            rhs = -residual - low + below / v + top - above / room  # (3)
            plain = scipy.linalg.cho_solve(factor, rhs, check_finite=False)
            db = (float(s @ plain) + miss) / curvature
            dv = plain - db * across
            dlow = below / v - low - low / v * dv  # (4)
            dtop = above / room - top + top / room * dv
            primal = _longest(np.concatenate([v, room]), np.concatenate([dv, -dv]))
            both = min(primal, _longest(np.concatenate([low, top]), np.concatenate([dlow, dtop])))
            if not corrected:
                ahead = float((low + both * dlow) @ (v + both * dv) + (top + both * dtop) @ (room - both * dv))
                centre = (ahead / (2 * count * mean)) ** 3 * mean  # (5): sigma mu
                below, above = centre - dv * dlow, centre + dv * dtop
        step = _BOUNDARY_SHARE * both if both < 1.0 / _BOUNDARY_SHARE else 1.0
        if not step > 1e-8 or mean < _LEAST_COMPLEMENTARITY:  # rounding rules, or a wrong total leaves nowhere to go
            break
        v, b, low, top = v + step * dv, b + step * db, low + step * dlow, top + step * dtop
        gradient = scaled @ v + q
    return v * unit, b * size / weight / largest


def box_by_active_set(
    inner: Vector, linear: Vector, balance: Vector, target: Vector, low: Vector, high: Vector,
    sides: Vector | None = None,
) -> Vector | None:  # fmt: skip
    """Minimise ``1/2 u'Gu + l'u`` with u in [low, high] and ``B u = target``, by DAQP; None where it loses its way.

    `sides` are -1 and 1 for multipliers that are expected at `low` and at `high`: good guesses save most of the steps.
    What is returned at an end is held there, what is not is free, however near it may be. Multipliers are measured in
    units of their bounds, so that weights of any size are alike; or, where the bounds are far away, in units of the
    size that the curvature allows.
    """
    ends = np.maximum(np.abs(low), np.abs(high))
    root = np.sqrt(np.maximum(inner.diagonal(), 0.0))  # of the curvature
    natural = float(np.max(np.abs(linear[root > 0.0]) / root[root > 0.0], initial=0.0))
    far = np.divide(_FAR_BOUND * natural, root, out=np.full(high.size, np.inf), where=root > 0.0)
    unit = np.where(ends > 0, np.minimum(ends, far) if natural > 0.0 else ends, 1.0)
    if not np.all(unit > 0.0):
        return None  # curvature of which no floating point number is the unit
    most = min(1000 + 50 * high.size, max(5 * high.size, _ACTIVE_SET_WORK // max(high.size, 1) ** 2))
    curved = (unit * root)[root > 0.0]
    uneven = curved.max(initial=0.0) > _UNEVEN * curved.min(initial=np.inf)  # constraints beside rows of small weights
    if sides is not None and not target.size and high.size >= _EXCHANGED:
        exchanged = _by_exchange(unit, inner, linear, low, high, sides)
        if exchanged is not None:
            return exchanged
    program = inner, linear, balance, target, low, high, sides
    found = _in_units(unit, min(most, max(4 * high.size, _TRIED_ENTRIES // high.size**2)) if uneven else most, *program)
    if found is None and uneven:
        found = _in_units(np.divide(1.0, root, out=unit, where=root > 0.0), most, *program)
    return found


def _scaled(inner: Vector, linear: Vector, unit: Vector) -> tuple[Vector, Vector]:
    """The quadratic and the linear part in units; infinite where they overflow."""
    with np.errstate(over="ignore"):
        return unit[:, None] * inner * unit, unit * linear


def _in_units(
    unit: Vector, most: int, inner: Vector, linear: Vector, balance: Vector, target: Vector, low: Vector, high: Vector,
    sides: Vector | None,
) -> Vector | None:  # fmt: skip
    """`box_by_active_set` with multipliers in given units, and at most so many steps."""
    (matrix, vector), constraint = _scaled(inner, linear, unit), balance * unit
    size = max(float(np.trace(matrix)) / high.size, float(np.abs(vector).max(initial=0.0)), 1e-300)
    if not np.isfinite(size):
        return None
    matrix, vector = matrix / size, vector / size
    lengths = np.linalg.norm(constraint, axis=1)
    usable = lengths > 1e-12 * max(1.0, float(lengths.max(initial=0.0)))
    constraint, bound = constraint[usable] / lengths[usable, None], target[usable] / lengths[usable]
    kinds = np.concatenate([np.zeros(high.size), np.full(bound.size, EQUAL)]).astype(np.int32)
    if sides is not None:
        kinds[: high.size] = active(sides)
    tick(10.0 * float(high.size) ** 3)  # in plain loops, before it looks at the clock
    # In columns of very different units it may go on for minutes: that is as good as losing its way.
    found = by_dual_active_set(
        matrix + _RIDGE * np.eye(high.size), vector, constraint, np.concatenate([high / unit, bound]),
        np.concatenate([low / unit, bound]), kinds, steps=most, primal_tol=1e-10,
        seconds=_ACTIVE_SET_SECONDS[0] + _ACTIVE_SET_SECONDS[1] * high.size**3,
    )  # fmt: skip
    if found is None or np.abs(constraint @ found[0] - bound).max(initial=0.0) > 1e-7:
        return None
    held = np.sign(found[1][: high.size])
    return np.where(held == 0.0, np.clip(found[0] * unit, low, high), np.where(held > 0.0, high, low))


def _by_exchange(
    unit: Vector, inner: Vector, linear: Vector, low: Vector, high: Vector, sides: Vector
) -> Vector | None:
    """`box_by_active_set` without a balance, all wrong sides changed at once; None where that does not come to an end.

    Curvature is added at first, so that multipliers that depend on each other share what they do. Where they still do
    so at the end, DAQP ends with fewer of them inside.
    """
    (matrix, vector), bottom, top = _scaled(inner, linear, unit), low / unit, high / unit
    diagonal = matrix.diagonal()
    largest = float(diagonal.max(initial=0.0))
    if not np.isfinite(largest) or not np.all(np.isfinite(vector)):
        return None
    ridge, slack = _RIDGE * largest, _WRONG * max(float(np.abs(vector).max(initial=0.0)), largest)
    held, soft, fewest = sides, _SOFT[0], high.size
    for _ in range(_BOX_EXCHANGES):
        tick()
        inside = np.flatnonzero(held == 0.0)
        v = np.where(held > 0.0, top, np.where(held < 0.0, bottom, 0.0))
        slope = vector + matrix @ v
        pivots = np.ones(1)
        if inside.size:
            part = matrix[np.ix_(inside, inside)]
            part[np.diag_indices(inside.size)] += soft * diagonal[inside] + ridge
            try:
                factor = cholesky(part, overwrite=True)
            except np.linalg.LinAlgError:
                return None
            pivots = factor[0].diagonal() / np.sqrt(diagonal[inside] + ridge)
            v[inside] = scipy.linalg.cho_solve(factor, -slope[inside], check_finite=False)
            slope += matrix[:, inside] @ v[inside]
        beyond = np.where(v > top, 1.0, np.where(v < bottom, -1.0, 0.0))
        ends = np.where(held == 0.0, beyond, np.where(held * slope > slack, 0.0, held))
        changes = int(np.count_nonzero(ends != held))
        if changes == 0 and soft == 0.0:
            dependent = pivots.min() <= _DEPENDENT
            return None if dependent else np.where(held == 0.0, v * unit, np.where(held > 0.0, high, low))
        if changes > 2 * fewest + 2:  # round in circles
            return None
        held, fewest = ends, min(fewest, changes)
        soft = soft * _SOFT[1] if changes and soft > _LEAST_SOFT else 0.0
    return None


def _longest(values: Vector, changes: Vector) -> float:
    """The longest step, at most 1 / `_BOUNDARY_SHARE`, that keeps the values positive."""
    falling = changes < 0.0
    return min(float(np.min(values[falling] / -changes[falling], initial=np.inf)), 1.0 / _BOUNDARY_SHARE)
